"""Base of the tracker callbacks: turns the driver's hooks into records for the queue."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import math
import numbers
import secrets
import shlex
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.callbacks.callback import LoggerCallback
from tuner.callbacks.log_records import Row, ended_validations, validated
from tuner.core import result as keys
from tuner.core.result import as_float, flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import Failure
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.origin import address_of

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
EXPORT_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "mlflow": frozenset({"tracking_uri", "experiment_name"}),
    "wandb": frozenset({"project", "group", "entity", "mode", "dir"}),
    "comet": frozenset({"project", "workspace", "mode", "dir"}),
}
"""Options of ``tuner export --to TRACKER``, by tracker; other arguments are given as ``--arg``."""
_SECRETS: Final = frozenset({"api_key", "tracking_token"})
_INTERRUPTED_PATIENCE_S: Final = 30.0
"""How long the end of an interrupted experiment waits at most: a batch system may kill it soon."""

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class ExperimentFacts:
    """Facts about the experiment for a tracker.

    Attributes:
        name: Its name.
        path: Its directory.
        experiment_id: A unique id, which a restore keeps.
        metric: The metric to optimise, None where there is none.
        is_running: Whether another process runs it, so that trials without an end go on.
    """

    name: str
    path: Path
    experiment_id: str
    metric: str | None = None
    is_running: bool = False

    def run_id(self, trial: Trial) -> str:
        """Return a unique id for a trial's run, the same after each restore."""
        return f"{self.experiment_id}-{trial.trial_id}"


class TrackerCallback(LoggerCallback):
    """A callback that keeps one run of a tracker per trial, also over pauses, retries and restores.

    Args:
        upload_timeout: How many seconds the end of the experiment waits for pending deliveries.

    Raises:
        ValueError: If that is not a positive number.
    """

    product: str
    """Name of the tracker in warnings."""
    kind: str
    """Its name in ``tuner export --to``."""

    def __init__(self, upload_timeout: float) -> None:
        is_number = isinstance(upload_timeout, int | float) and not isinstance(upload_timeout, bool)
        if not (is_number and 0 < upload_timeout < math.inf):
            raise ValueError(
                "upload_timeout must be a positive number of seconds, got "
                f"{upload_timeout!r}; give the longest time that the end of an experiment may wait "
                f"for {self.product}"
            )
        self._upload_timeout = upload_timeout
        self._queue: TrackerQueue | None = None
        self._experiment: ExperimentFacts | None = None
        self._behind: frozenset[str] = frozenset()

    @abstractmethod
    def tracker(self, experiment: ExperimentFacts) -> Tracker:
        """Return the client for an experiment, not yet connected."""

    @abstractmethod
    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that make such a callback, secrets left out, as JSON values."""

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
        self._experiment = experiment
        self._queue = TrackerQueue(self.tracker(experiment), self.product)

    def get_state(self) -> dict[str, Any] | None:
        """Return the ids of trials of which the tracker lacks something."""
        behind = self._behind.union(self._queue.behind if self._queue else ())
        return {"behind": sorted(behind)} if behind else None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what an earlier driver has not delivered."""
        self._behind = frozenset(state["behind"])

    def is_behind(self, trial: Trial) -> bool:
        """Return whether an earlier driver has not delivered all of the trial."""
        return trial.trial_id in self._behind

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
        """Deliver what is queued, for `upload_timeout` at most, or tell how to do it later."""
        if self._queue is None:
            return
        patience_s = self._upload_timeout
        if any(trial.ending is TerminationReason.INTERRUPTED for trial in trials):
            patience_s = min(patience_s, _INTERRUPTED_PATIENCE_S)
        try:
            is_complete = self._queue.close(patience_s)
        except Exception:
            self._tell_remedy()
            raise
        if not is_complete:
            self._tell_remedy()

    def end_waits_at_stop(self) -> None:
        """End the wait at the end of the experiment."""
        if self._queue:
            self._queue.stop_waiting()

    def catch_up_with_journal(
        self,
        experiment_path: Path,
        trials: Sequence[Trial],
        recent: Collection[str],
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
    ) -> None:
        """Deliver what an earlier driver may not have delivered."""
        self.catch_up(
            [
                trial
                for trial in trials
                if trial.trial_id in recent or not trial.is_finished or self.is_behind(trial)
            ],
            results_of,
        )

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
        self._behind = frozenset()  # from here on the queue knows
        for trial in trials:
            if trial.attempt:
                recalled = _recalled(trial, results_of)
                # The next hook raises it again, which switches this callback off.
                with contextlib.suppress(Exception):
                    self._queue.add(trial, recalled)

    def deliver(
        self,
        experiment: ExperimentFacts,
        trials: Iterable[Trial],
        results_of: Callable[[str], Sequence[Mapping[str, Any]]],
    ) -> Iterator[Trial]:
        """Deliver all that the tracker lacks of recorded trials, and yield each when it is there.

        What the tracker has is not delivered again. This needs no `setup`, and waits for the
        tracker instead of retrying: a call that was interrupted may be repeated.

        Args:
            experiment: The experiment.
            trials: Its trials; those that have never started are skipped.
            results_of: Returns all valid results of the trial with an id, oldest first.

        Raises:
            Exception: Any that the tracker's client raises.
        """
        tracker = self.tracker(experiment)
        tracker.connect()
        try:
            for trial in trials:
                if trial.attempt:
                    tracker.complete(trial, _recorded(trial, results_of))
                    yield trial
        finally:
            tracker.close()

    def export_command(self) -> str:
        """Return the command that delivers what the tracker lacks, for a shell."""
        given = [
            word
            for name, value in self.arguments().items()
            if value not in (None, (), [], {}) and name not in _SECRETS and _is_json(value)
            for word in (
                (f"--{name.replace('_', '-')}", str(value))
                if name in EXPORT_OPTIONS[self.kind]
                else ("--arg", f"{name}={json.dumps(value)}")
            )
        ]
        path = self._experiment.path.resolve() if self._experiment else Path("EXP")
        return shlex.join(["tuner", "export", address_of(path), "--to", self.kind, *given])

    def _add(self, trial: Trial, entry: Entry) -> None:
        if self._queue is None:
            raise RuntimeError(
                f"{type(self).__name__} was not set up; call setup before other hooks"
            )
        try:
            self._queue.add(trial, entry)
        except Exception:
            self._tell_remedy()
            raise

    def _tell_remedy(self) -> None:
        _log.warning(
            "%s lacks %s; the experiment's own files hold all of them. Fill it with\n    %s",
            self.product,
            self._queue.lacking if self._queue else "all results",
            self.export_command(),
        )


def _begun(trial: Trial, rows: Sequence[Row] = ()) -> Begun:
    return Begun(flatten(trial.config), rows[0].at if rows else time.time())


def _row(result: Mapping[str, Any]) -> Row:
    return Row(result, float(result.get(keys.TIMESTAMP) or time.time()))


def _ended(trial: Trial, rows: Sequence[Row] = ()) -> Ended | None:
    if not trial.is_finished:
        return None  # an attempt has failed and is retried
    at = rows[-1].at if rows else time.time()
    if trial.ending is TerminationReason.INTERRUPTED:
        return Ended(Outcome.KILLED, at)
    return Ended(Outcome.FAILED if trial.status is Status.ERROR else Outcome.FINISHED, at)


def _recalled(trial: Trial, results_of: Callable[[str], Iterable[Mapping[str, Any]]]) -> Recalled:
    """Return the trial as it continues in this driver."""
    rows = [_row(result) for result in results_of(trial.trial_id)]
    ended = _ended(trial, rows)
    return _story(trial, rows if ended else rows[: trial.source_row], ended)


def _recorded(trial: Trial, results_of: Callable[[str], Iterable[Mapping[str, Any]]]) -> Recalled:
    """Return the trial as it was left, whether or not it will continue."""
    rows = [_row(result) for result in results_of(trial.trial_id)]
    return _story(trial, rows, _ended(trial, rows))


def _story(trial: Trial, lasting: Sequence[Row], ended: Ended | None) -> Recalled:
    iterations = {row.result.get(keys.TRAINING_ITERATION) for row in lasting}
    validations = [
        one for one in ended_validations(trial) if one.metrics and one.iteration in iterations
    ]
    return Recalled(_begun(trial, lasting), lasting, ended, validations)


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


def _is_json(value: Any) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        json.dumps(value)
        return True
    return False


def need_library(module: str, extra: str) -> None:
    """Check that a tracker's client library is installed, without importing it.

    Raises:
        ImportError: If it is not; names the extra.
    """
    if importlib.util.find_spec(module) is None:
        raise ImportError(f'{module} is not installed; pip install "tuner-hpo[{extra}]"')
