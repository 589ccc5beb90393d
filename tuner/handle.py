"""Handles of running experiments: in the background of this process, or in another process."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from searchers.plain_values import plain_scalar
from tuner.analysis.open_experiment import read_stored
from tuner.analysis.ranking import Mode
from tuner.analysis.result_grid import ResultGrid
from tuner.core.progress import Progress
from tuner.core.result import flatten
from tuner.errors import NotGranted, StorageError
from tuner.storage import layout, strict_json
from tuner.storage.control_requests import (
    ControlReply,
    ControlRequest,
    RequestPlace,
    Verb,
    post,
    requests_in,
)
from tuner.storage.declaration import is_experiment, refusal_of
from tuner.storage.directories import absolute_path
from tuner.storage.origin import origin_of
from tuner.storage.urls import is_like_url, is_url

if TYPE_CHECKING:
    import pandas as pd

_MAX_REQUESTS: Final = 2
"""Ctrl-C once lets trials save and exit, twice kills them, and a third time ends `wait`."""


class Session(Protocol):
    """A running experiment, in this or another process."""

    @property
    def is_running(self) -> bool:
        """Whether the experiment is running."""

    def ask(self, request: ControlRequest) -> ControlReply:
        """Send a control request to the driver and wait for the reply.

        Raises:
            StorageError: If the driver cannot be reached.
        """

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the driver has ended, and return whether it has."""

    def results(self) -> ResultGrid:
        """Return the results, once the experiment has ended.

        Raises:
            Exception: The error that ended it.
        """


@final
class Handle:
    """Controls and observes an experiment while it runs.

    `Tuner.start` returns a handle of the experiment that it has started, `attach` one of an
    experiment in another process. Requests are written to the journal before they are carried out,
    so they are not lost in a crash. All methods may be called from any thread.

    Args:
        path: The experiment's directory, or its URL.
        session: The running experiment.
        storage_filesystem: The fsspec file system on which a URL is; None for that of the URL.

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
        >>> handle.wait().num_errors
        0

    Departures:
        Ray Tune has no such handle; it cannot stop a single trial from outside.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        session: Session,
        *,
        storage_filesystem: Any = None,
    ) -> None:
        self._path = os.fspath(path)
        self._session = session
        self._filesystem = storage_filesystem

    @property
    def path(self) -> str:
        """Directory of the experiment, or its URL."""
        return self._path

    @property
    def is_running(self) -> bool:
        """Whether the experiment is running."""
        return self._session.is_running

    def results(self) -> ResultGrid:
        """Return the results of all trials so far, read from the directory.

        Raises:
            StorageError: If the directory cannot be read.
        """
        return ResultGrid.from_directory(self._path, storage_filesystem=self._filesystem)

    def dataframe(
        self, filter_metric: str | None = None, filter_mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return a table with a row for each trial so far; see `ResultGrid.get_dataframe`.

        Args:
            filter_metric: Take of each trial the result with the best value of this metric; None
                takes the last result.
            filter_mode: ``"min"`` if smaller values of it are better, ``"max"`` if larger ones are;
                None for the `TuneConfig`'s mode.
        """
        return self.results().get_dataframe(filter_metric, filter_mode)

    def progress(self) -> Progress:
        """Return the progress of the experiment."""
        if self._filesystem is None and not is_url(self._path):
            return read_stored(Path(self._path)).progress()
        from tuner.stores.readable_copy import ReadableCopy  # noqa: PLC0415  (in stores only)

        copy = ReadableCopy(self._path, self._filesystem)  # there as long as this
        return read_stored(copy.directory).progress()

    def stop(self, *, urgent: bool = False) -> None:
        """Stop the experiment, as Ctrl-C does: running trials save and exit.

        `Tuner.restore` continues them. Returns at once; `wait` returns when the experiment has
        ended.

        Args:
            urgent: Kill the workers instead of asking them.

        Raises:
            NotGranted: If the experiment has ended already.
            StorageError: If its driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.STOP, is_urgent=urgent))

    def stop_trial(self, trial_id: str) -> None:
        """Stop a trial for good, with its next report.

        Raises:
            NotGranted: If there is no such trial, or it is over.
            StorageError: If the driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.STOP_TRIAL, trial_id))

    def pause_trial(self, trial_id: str) -> None:
        """Pause a trial until `resume_trial`, regardless of the scheduler, and free its resources.

        A running trial that can save on request does so and exits with its next report. A function
        exits once it has reported a checkpoint, and repeats the iterations after its latest one.
        While trials are paused by hand, the experiment ends only at its time budget or when it is
        stopped; a restored experiment continues them.

        Raises:
            NotGranted: If there is no such trial, it is over, or has been paused by hand already.
            StorageError: If the driver cannot be reached.
        """
        self._ask(ControlRequest(Verb.PAUSE, trial_id))

    def resume_trial(self, trial_id: str) -> None:
        """Resume a paused trial when resources are free, even one that the scheduler paused.

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
        """Start a trial from a checkpoint of another, with other hyperparameters; return its id.

        The other trial continues unchanged. The new one does not count towards ``num_samples``; the
        scheduler treats it like any other trial, and the searcher is not notified of it. If the
        other trial has no checkpoint yet but can save on request, this waits for the checkpoint.

        Args:
            trial_id: The trial whose checkpoint is used; it may have ended.
            config: The hyperparameters to change, nested or by flattened names, with plain values:
                numbers, strings, booleans, None and lists of them. None for a copy.
            checkpoint: Index of the checkpoint, e.g. 3 for ``checkpoint_000003``; None for the
                latest.

        Raises:
            NotGranted: If there is no such trial, checkpoint or hyperparameter.
            TypeError: If a value is not plain.
            StorageError: If the driver cannot be reached.
        """
        changes = {name: _plain(name, value) for name, value in flatten(config or {}).items()}
        return self._ask(ControlRequest(Verb.FORK, trial_id, changes, checkpoint)).trial_id

    def wait(self, timeout_s: float | None = None) -> ResultGrid:
        """Wait until the experiment has ended and return its results.

        The first Ctrl-C stops the experiment and lets trials save and exit, the second kills them;
        the wait continues. The third ends the wait.

        Args:
            timeout_s: How many seconds to wait; None for no limit.

        Raises:
            TimeoutError: If the experiment has not ended by then; it keeps running.
            Exception: Any exception that `Tuner.fit` would have raised.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        num_requests = 0
        while True:
            try:
                if self._session.join(
                    None if until_s is None else max(until_s - time.monotonic(), 0.0)
                ):
                    return self._session.results()
            except KeyboardInterrupt:
                num_requests += 1
                if num_requests > _MAX_REQUESTS:
                    raise
                # The experiment may have ended in the meantime.
                with contextlib.suppress(StorageError):
                    self._session.ask(ControlRequest(Verb.STOP, is_urgent=num_requests > 1))
                continue
            raise TimeoutError(
                f"the experiment in {self.path!r} has not ended within {timeout_s:g} s; it "
                "keeps running"
            )

    def __repr__(self) -> str:
        """Return the path of the experiment and whether it is running."""
        return f"Handle({self.path!r}, {'running' if self.is_running else 'ended'})"

    def _ask(self, request: ControlRequest) -> ControlReply:
        answer = self._session.ask(request)
        if not answer.is_granted:
            raise NotGranted(answer.text)
        return answer


def attach(path: str | os.PathLike[str], *, storage_filesystem: Any = None) -> Handle:
    """Return a handle of an experiment that another process runs, or has run.

    Args:
        path: The experiment's directory, or its URL in an object store. Control requests need write
            access to it.
        storage_filesystem: The fsspec file system on which `path` is; None for that of the URL, or
            this machine.

    Raises:
        StorageError: If there is no experiment.
        ValueError: If the URL is none.
    """
    if storage_filesystem is not None or is_like_url(os.fspath(path)):
        return _attach_to_store(os.fspath(path), storage_filesystem)
    directory = absolute_path(path)
    if not is_experiment(directory):
        raise StorageError(refusal_of(directory))
    origin = origin_of(directory)
    if origin is not None and origin.is_copy:
        return _attach_to_store(origin.url, None)
    return Handle(directory, _AttachedSession(directory, requests_in(directory)))


def _attach_to_store(path: str, filesystem: Any) -> Handle:
    from tuner.stores.checked_url import checked_url  # noqa: PLC0415  (in stores only)
    from tuner.stores.object_store import ObjectStore  # noqa: PLC0415  (likewise)
    from tuner.stores.remote_lock import requests_in_store  # noqa: PLC0415  (likewise)

    url = checked_url("path", path, filesystem)
    store = ObjectStore(url, filesystem)
    if store.get_if_exists(layout.DECLARATION) is None:
        raise StorageError(f"there is no experiment in {url}; check the URL")
    session = _AttachedSession(url, requests_in_store(store), filesystem)
    return Handle(url, session, storage_filesystem=filesystem)


@final
class _AttachedSession:
    """An experiment that another process, on any machine, runs or has run."""

    def __init__(
        self,
        path: Path | str,
        place: RequestPlace,
        filesystem: Any = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._place = place
        self._filesystem = filesystem
        self._sleep = sleep

    @property
    def is_running(self) -> bool:
        return self._place.driver() is not None

    def ask(self, request: ControlRequest) -> ControlReply:
        return post(self._place, request)

    def join(self, timeout_s: float | None) -> bool:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self.is_running:
            rest_s = math.inf if until_s is None else until_s - time.monotonic()
            if rest_s <= 0:
                return False
            self._sleep(min(self._place.look_s, rest_s))
        return True

    def results(self) -> ResultGrid:
        return ResultGrid.from_directory(self._path, storage_filesystem=self._filesystem)


def _plain(name: str, value: Any) -> Any:
    value = plain_scalar(value)
    try:
        strict_json.dumps(value)
    except (TypeError, ValueError) as cause:
        raise TypeError(
            f"config[{name!r}] must be a plain value, got {value!r:.200}; pass a number, string, "
            "boolean, None or a list of these"
        ) from cause
    return value
