"""A hold on an experiment that runs: in the background of this process, or under another one on the same directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from tuner.analysis.open_experiment import read_stored
from tuner.analysis.ranking import Mode
from tuner.analysis.result_grid import ResultGrid
from tuner.core.progress import Progress
from tuner.core.result import flatten
from tuner.errors import NotGranted, StorageError
from tuner.storage import strict_json
from tuner.storage.control_requests import ControlReply, ControlRequest, Verb, post
from tuner.storage.declaration import is_experiment
from tuner.storage.directories import absolute_path
from tuner.storage.lock import driver_of

if TYPE_CHECKING:
    import pandas as pd

_POLL_S: Final = 0.1
_MAX_WISHES: Final = 2
"""Ctrl-C once lets trials save and leave, twice kills them, and a third time is for whoever waits."""


class Session(Protocol):
    """An experiment that runs somewhere."""

    @property
    def is_running(self) -> bool:
        """Whether its driver is at work."""

    def ask(self, request: ControlRequest) -> ControlReply:
        """Ask the driver for something and wait for its answer.

        Raises:
            StorageError: If it cannot be reached.
        """

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the driver has ended, and return whether it has."""

    def results(self) -> ResultGrid:
        """Return what it came to, once it has ended.

        Raises:
            Exception: What ended it, where it did not end by itself.
        """


@final
class Handle:
    """Steers and watches an experiment while it runs.

    `Tuner.start` returns one for the experiment that it has begun, `attach` one for an experiment of another process. What is asked for
    is written into the journal before it is done, so a restored experiment knows of it. All methods may be called from any thread.

    Args:
        path: The experiment's directory.
        session: Where it runs.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     while True:
        ...         tune.report({"loss": config["x"]})
        >>> tuner = tune.Tuner(
        ...     train,
        ...     param_space={"x": tune.grid_search([1, 2])},
        ...     tune_config=tune.TuneConfig(metric="loss", mode="min"),
        ...     run_config=tune.RunConfig(storage_path=getfixture("tmp_path"), verbose=0),
        ... )
        >>> handle = tuner.start()
        >>> handle.stop()
        >>> [str(result.status) for result in handle.wait()]
        ['TERMINATED', 'TERMINATED']

    Departures:
        Ray Tune has nothing of the kind: who wants to stop one trial ends them all.
    """

    def __init__(self, path: str | os.PathLike[str], session: Session) -> None:
        self._path = Path(path)
        self._session = session

    @property
    def path(self) -> str:
        """Directory of the experiment."""
        return str(self._path)

    @property
    def is_running(self) -> bool:
        """Whether the experiment is being driven."""
        return self._session.is_running

    def results(self) -> ResultGrid:
        """Return what all trials have come to so far, read from the directory; those that run are RUNNING.

        Raises:
            StorageError: If the directory cannot be read.
        """
        return ResultGrid.from_directory(self._path)

    def dataframe(
        self, filter_metric: str | None = None, filter_mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return a table with a row for every trial, as far as it has come; see `ResultGrid.get_dataframe`.

        Args:
            filter_metric: Take of each trial the result with the best value of this metric; None takes the last result.
            filter_mode: ``"min"`` if smaller values of it are better, ``"max"`` if larger ones are; None for the `TuneConfig`'s mode.
        """
        return self.results().get_dataframe(filter_metric, filter_mode)

    def progress(self) -> Progress:
        """Return how far the experiment is."""
        return read_stored(self._path).progress()

    def stop(self, *, urgent: bool = False) -> None:
        """Let the experiment end, as Ctrl-C does: running trials save and leave, and `Tuner.restore` goes on with them.

        Returns at once; `wait` returns when it has ended.

        Args:
            urgent: Kill the workers instead of asking them.

        Raises:
            NotGranted: If it has ended already.
            StorageError: If its driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.STOP, is_urgent=urgent))

    def stop_trial(self, trial_id: str) -> None:
        """Let a trial end for good, with its next report.

        Raises:
            NotGranted: If there is no such trial, or it is over.
            StorageError: If the driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.STOP_TRIAL, trial_id))

    def pause_trial(self, trial_id: str) -> None:
        """Let a trial lie aside until `resume_trial`, whatever the scheduler says; what it occupies is free for others.

        A running trial that saves when it is asked to does so and leaves with its next report; a function leaves as soon as it has reported
        a checkpoint, and what it trained since its latest one is trained again. While trials are paused by hand the experiment does not
        end, except at its time budget or when it is stopped; a restored experiment goes on with them.

        Raises:
            NotGranted: If there is no such trial, it is over, or has been paused by hand already.
            StorageError: If the driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.PAUSE, trial_id))

    def resume_trial(self, trial_id: str) -> None:
        """Let a paused trial go on as soon as there is room for it, whoever has paused it.

        Raises:
            NotGranted: If there is no such trial, or it is not paused.
            StorageError: If the driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.RESUME, trial_id))

    def fork_trial(
        self,
        trial_id: str,
        config: Mapping[str, Any] | None = None,
        *,
        checkpoint: int | None = None,
    ) -> str:
        """Begin a new trial where another one stood, with other hyperparameters, and return its id.

        The other trial goes on as it was. The new one counts beside ``num_samples``; the scheduler treats it like any other, the searcher
        hears nothing of it. Where the other one has no checkpoint yet but saves when it is asked to, this waits for that.

        Args:
            trial_id: The trial whose checkpoint it goes on from; it may be over.
            config: The hyperparameters that are to be different, nested or by their flattened names, with plain values: numbers, texts,
                truth values, None and lists of them. None for a copy.
            checkpoint: Index of the checkpoint, e.g. 3 for ``checkpoint_000003``; None for the latest.

        Raises:
            NotGranted: If there is no such trial, checkpoint or hyperparameter.
            TypeError: If a value is not plain.
            StorageError: If the driver cannot be reached.
        """
        changes = {name: _plain(name, value) for name, value in flatten(config or {}).items()}
        return self._ask(ControlRequest(Verb.FORK, trial_id, changes, checkpoint)).trial_id

    def wait(self, timeout_s: float | None = None) -> ResultGrid:
        """Wait until the experiment has ended and return its results.

        Ctrl-C stops the experiment and waits on: once for trials to save and leave, twice to kill them.

        Args:
            timeout_s: For how many seconds to wait; None for as long as it takes.

        Raises:
            TimeoutError: If it has not ended by then; it runs on.
            Exception: Whatever `Tuner.fit` would have raised.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        num_wishes = 0
        while True:
            try:
                if self._session.join(
                    None if until_s is None else max(until_s - time.monotonic(), 0.0)
                ):
                    return self._session.results()
            except KeyboardInterrupt:
                num_wishes += 1
                if num_wishes > _MAX_WISHES:
                    raise
                with contextlib.suppress(StorageError):  # it may have ended by itself meanwhile
                    self._session.ask(ControlRequest(Verb.STOP, is_urgent=num_wishes > 1))
                continue
            raise TimeoutError(
                f"the experiment in {self.path!r} has not ended within {timeout_s:g} s; it runs on"
            )

    def __repr__(self) -> str:
        """Return where the experiment lies and whether it runs."""
        return f"Handle({self.path!r}, {'running' if self.is_running else 'ended'})"

    def _ask(self, request: ControlRequest) -> ControlReply:
        answer = self._session.ask(request)
        if not answer.is_granted:
            raise NotGranted(answer.text)
        return answer


def attach(path: str | os.PathLike[str]) -> Handle:
    """Return a handle on an experiment that another process drives, or did.

    Args:
        path: The experiment's directory. To steer the experiment one has to be able to write to it.

    Raises:
        StorageError: If there is no experiment.
    """
    directory = absolute_path(path)
    if not is_experiment(directory):
        raise StorageError(
            f"{str(directory)!r} holds no experiment; give the directory that fit() has made"
        )
    return Handle(directory, _Elsewhere(directory))


@final
class _Elsewhere:
    """An experiment of another process."""

    def __init__(self, path: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._path = path
        self._sleep = sleep

    @property
    def is_running(self) -> bool:
        return driver_of(self._path) is not None

    def ask(self, request: ControlRequest) -> ControlReply:
        return post(self._path, request)

    def join(self, timeout_s: float | None) -> bool:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self.is_running:
            if until_s is not None and time.monotonic() >= until_s:
                return False
            self._sleep(_POLL_S)
        return True

    def results(self) -> ResultGrid:
        return ResultGrid.from_directory(self._path)


def _plain(name: str, value: Any) -> Any:
    value = (
        value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    )
    try:
        strict_json.dumps(value)
    except (TypeError, ValueError) as cause:
        raise TypeError(
            f"config[{name!r}] must be a plain value, got {value!r:.200}; what is not changed may be any object"
        ) from cause
    return value
