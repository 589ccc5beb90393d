"""Base of the tracker callbacks: turns the driver's hooks into records for the queue."""

from __future__ import annotations

import contextlib
import importlib.util
import numbers
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.callbacks.callback import LoggerCallback
from tuner.callbacks.log_records import Row, ended_validations, validated
from tuner.core import result as keys
from tuner.core.result import as_float, flatten
from tuner.core.trial import Failure, Status, TerminationReason, Trial
from tuner.storage.checkpoints import Checkpoint

from .tracker_queue import Begun, Ended, Entry, Outcome, Recalled, Saved, Tracker, TrackerQueue

_REPORTED: Final = frozenset(
    {
        keys.TRAINING_ITERATION,
        keys.TIME_TOTAL_S,
        keys.TIMESTAMP,
        keys.TIMESTEPS_TOTAL,
        keys.EPISODES_TOTAL,
    }
)
_HIDDEN: Final = keys.AUTO_FILLED - _REPORTED


@dataclass(frozen=True, slots=True)
class ExperimentFacts:
    """Facts about the experiment for a tracker.

    Attributes:
        name: Its name.
        path: Its directory.
        experiment_id: A unique id, which a restore keeps.
        metric: The metric to optimise, None where there is none.
    """

    name: str
    path: Path
    experiment_id: str
    metric: str | None = None

    def run_id(self, trial: Trial) -> str:
        """Return a unique id for a trial's run, the same after each restore."""
        return f"{self.experiment_id}-{trial.trial_id}"


class TrackerCallback(LoggerCallback):
    """A callback that keeps one run of a tracker per trial, also over pauses, retries and restores.

    Args:
        patience_s: How many seconds the end of the experiment waits for pending deliveries.
    """

    product: str
    """Name of the tracker in warnings."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._queue: TrackerQueue | None = None

    @abstractmethod
    def tracker(self, experiment: ExperimentFacts) -> Tracker:
        """Return the client for an experiment, not yet connected."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Create the queue; its thread connects to the tracker later."""
        path = Path(info.get("experiment_path") or ".")
        experiment_id = info.get("experiment_id") or secrets.token_hex(8)
        experiment = ExperimentFacts(path.resolve().name, path, experiment_id, info.get("metric"))
        self._queue = TrackerQueue(
            self.tracker(experiment), self.product, patience_s=self._patience_s
        )

    def log_trial_start(self, trial: Trial) -> None:
        """Begin or continue the trial's run."""
        self._add(trial, _begun(trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Queue the result."""
        self._add(trial, _row(result))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """End the trial's run if the trial is over."""
        if ended := _ended(trial):
            self._add(trial, ended)

    def on_checkpoint(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """Queue the checkpoint."""
        self._add(trial, Saved(Path(checkpoint.path)))

    def on_checkpoint_validated(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        *,
        checkpoint: Checkpoint,
        status: str,
        metrics: Mapping[str, Any],
        result: Mapping[str, Any],
        failure: Failure | None = None,
        **info: Any,
    ) -> None:
        """Queue the metrics of the validation."""
        if metrics:
            self._add(trial, validated(trial, checkpoint, status, metrics, result))

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Deliver what is queued."""
        if self._queue:
            self._queue.close()

    def catch_up(
        self, trials: Iterable[Trial], results_of: Callable[[str], Iterable[Mapping[str, Any]]]
    ) -> None:
        """Deliver what an earlier driver could not deliver before it died.

        Args:
            trials: Trials that may lack something.
            results_of: Returns all valid results of the trial with an id, oldest first.
        """
        if self._queue is None:
            return  # it could not be set up, and is switched off
        for trial in trials:
            if trial.attempt:
                recalled = _recalled(trial, results_of)
                # The next hook raises it again, which switches this callback off.
                with contextlib.suppress(Exception):
                    self._queue.add(trial, recalled)

    def _add(self, trial: Trial, entry: Entry) -> None:
        if self._queue is None:
            raise RuntimeError(
                f"{type(self).__name__} was not set up; call setup before other hooks"
            )
        self._queue.add(trial, entry)


def _begun(trial: Trial) -> Begun:
    return Begun(flatten(trial.config), time.time())


def _row(result: Mapping[str, Any]) -> Row:
    return Row(result, float(result.get(keys.TIMESTAMP) or time.time()))


def _ended(trial: Trial) -> Ended | None:
    if not trial.is_finished:
        return None  # an attempt has failed and is retried
    if trial.ending is TerminationReason.INTERRUPTED:
        return Ended(Outcome.KILLED, time.time())
    return Ended(Outcome.FAILED if trial.status is Status.ERROR else Outcome.FINISHED, time.time())


def _recalled(trial: Trial, results_of: Callable[[str], Iterable[Mapping[str, Any]]]) -> Recalled:
    rows = [_row(result) for result in results_of(trial.trial_id)]
    ended = _ended(trial)
    lasting = rows if ended else rows[: num_lasting(trial, rows)]
    iterations = {row.result.get(keys.TRAINING_ITERATION) for row in lasting}
    validations = [
        one for one in ended_validations(trial) if one.metrics and one.iteration in iterations
    ]
    return Recalled(_begun(trial), lasting, ended, validations)


def num_lasting(trial: Trial, rows: Sequence[Row]) -> int:
    """Return how many results of a resumed trial are final, i.e. not reported again.

    Args:
        trial: The trial.
        rows: All its valid results so far, oldest first.
    """
    last_iteration = trial.source.iteration if trial.source else 0
    num_earlier = trial.grafts[-1].num_rows if trial.grafts else 0
    count = len(rows)
    while (
        count > num_earlier
        and rows[count - 1].result.get(keys.TRAINING_ITERATION, 0) > last_iteration
    ):
        count -= 1
    return count


def measured(flat: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return the numbers, booleans and texts of a flattened result, without most of the engine's.

    An integer beyond the range of floats becomes infinite.
    """
    shown: dict[str, bool | int | float | str] = {}
    for name, value in flat.items():
        if name in _HIDDEN:
            continue
        if isinstance(value, bool | float | str):
            shown[name] = value
        elif isinstance(value, numbers.Real):
            shown[name] = (
                value if isinstance(value, int) and abs(value) < 2**53 else as_float(value)
            )
    return shown


def need_library(module: str, extra: str) -> None:
    """Check that a tracker's client library is installed, without importing it.

    Raises:
        ImportError: If it is not; names the extra.
    """
    if importlib.util.find_spec(module) is None:
        raise ImportError(f'{module} is not installed; pip install "tuner-hpo[{extra}]"')
