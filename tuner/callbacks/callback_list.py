"""List of an experiment's callbacks: calls their hooks in order and isolates their errors.

File loggers that share a background writer act as one, with one record per event for all files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from time import perf_counter
from typing import Any, Final, Literal, final

from tuner.callbacks.files.background_writer import Addressee, BatchWriter, Sink
from tuner.callbacks.files.trial_file import TrialFileLogger
from tuner.core.result import SHOULD_CHECKPOINT, with_own_containers
from tuner.core.trial import Trial
from tuner.core.worker_records import Failure
from tuner.storage.checkpoints import Checkpoint

from .callback import Callback, LoggerCallback
from .log_records import End, Entry, Row, begin_of, is_over, validated

Hook = Literal[
    "setup",
    "on_step_begin",
    "on_step_end",
    "on_trial_start",
    "on_trial_restore",
    "on_trial_save",
    "on_trial_result",
    "on_trial_complete",
    "on_trial_recover",
    "on_trial_error",
    "on_checkpoint",
    "on_checkpoint_validated",
    "on_trial_exploit",
    "on_experiment_end",
]
"""The name of a hook of `Callback`."""

HOOKS: tuple[Hook, ...] = Hook.__args__  # type: ignore[attr-defined]

_GROUPED: Final[Mapping[str, str]] = {
    "on_trial_start": "log_trial_start",
    "on_trial_result": "log_trial_result",
    "on_trial_complete": "log_trial_end",
    "on_trial_recover": "log_trial_end",
    "on_trial_error": "log_trial_end",
    "on_checkpoint_validated": "on_checkpoint_validated",
}
"""The hooks that a group handles, and the methods to which a logger forwards them."""

_SwitchOff = Callable[[TrialFileLogger, str, Exception], None]
_FORWARDS = {**_GROUPED, "on_trial_restore": "log_trial_restore", "on_trial_save": "log_trial_save"}
"""The method to which `LoggerCallback` forwards each hook."""

_Overrider = tuple[Sequence[Callback], Callable[..., None], bool]
"""Callbacks, the function that is called for them, and whether it writes files."""

_log = logging.getLogger("tuner")


class CallbackList:
    """Calls the hooks of many callbacks, in their order.

    If a callback raises, that is logged once on the logger ``tuner``, with its traceback, and it is
    never called again; neither the experiment nor other callbacks are affected. Hooks that a
    callback does not override cost nothing.

    Args:
        callbacks: The callbacks, the user's before the loggers, so that loggers log the changes
            that the others make in the copy of a result.

    Attributes:
        file_logging_s: Seconds spent in the hooks of loggers that write files.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        self.file_logging_s = 0.0
        self._groups = list(_groups_of(self._callbacks, self._switch_off))
        self._overriders: dict[Hook, list[_Overrider]] = {}
        self._may_change_results = False
        """Whether any callback gets results besides grouped loggers, which only read them."""
        self._index()

    def has(self, hook: Hook) -> bool:
        """Return whether any callback overrides the hook."""
        return bool(self._overriders[hook])

    def call(self, hook: Hook, **info: Any) -> None:
        """Call the hook of each callback that overrides it, with these keyword arguments."""
        # The index is replaced, never changed, when a callback fails, so iterating over the old one
        # is safe.
        for overrider in self._overriders[hook]:
            self._call_one(overrider, hook, info)

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> str:
        """Call ``on_trial_result`` and return the class that requested a checkpoint, or ``""``.

        Args:
            result: The result, which is not changed: callbacks get a copy, in which later ones see
                the changes of earlier ones.
            **info: ``iteration``, ``trials``, ``trial``, and for a group of workers
                ``rank_metrics``, which `UserCallback` alone is given.
        """
        rank_metrics = info.pop("rank_metrics", None)
        if self._may_change_results:
            result = with_own_containers(result)
        was_requested = bool(result.get(SHOULD_CHECKPOINT))
        arguments, asker = {**info, "result": result}, ""
        for overrider in self._overriders["on_trial_result"]:
            wants_ranks = rank_metrics and overrider[0][0].takes_rank_metrics
            own = {**arguments, "rank_metrics": rank_metrics} if wants_ranks else arguments
            self._call_one(overrider, "on_trial_result", own)
            if not (was_requested or asker) and result.get(SHOULD_CHECKPOINT):
                asker = type(overrider[0][0]).__name__
        return asker if result.get(SHOULD_CHECKPOINT) else ""

    def get_state(self) -> list[dict[str, Any]]:
        """Return the states of the callbacks that have one, as JSON values."""
        states = []
        for callback in list(self._callbacks):
            try:
                state = callback.get_state()
            except Exception as error:  # noqa: BLE001  (as in `call`)
                self._switch_off(callback, "get_state", error)
                continue
            if state is not None:
                states.append({"callback": _qualified_name(callback), "state": state})
        return states

    def set_state(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Restore the states that `get_state` returned.

        Callbacks of the same class are matched in their order. A state without a callback is
        ignored.
        """
        waiting = list(self._callbacks)
        for record in states:
            owner = next(
                (
                    callback
                    for callback in waiting
                    if _qualified_name(callback) == record["callback"]
                ),
                None,
            )
            if owner is None:
                continue
            waiting.remove(owner)
            try:
                owner.set_state(record["state"])
            except Exception as error:  # noqa: BLE001  (as in `call`)
                self._switch_off(owner, "set_state", error)

    def _call_one(self, overrider: _Overrider, hook: Hook, info: Mapping[str, Any]) -> None:
        owners, method, writes_files = overrider
        started_s = perf_counter() if writes_files else None
        try:
            method(**info)
        except Exception as error:  # noqa: BLE001  (a user's callback may raise anything)
            for owner in owners:
                self._switch_off(owner, hook, error)
        if started_s is not None:
            self.file_logging_s += perf_counter() - started_s

    def _index(self) -> None:
        self._overriders = {hook: [] for hook in HOOKS}
        for callback in self._callbacks:
            group = self._group_of(callback)
            for hook, overriders in self._overriders.items():
                if group and hook in _GROUPED:
                    if callback is group.members[0]:
                        overriders.append((group.members, getattr(group, hook), True))
                elif overrides(callback, hook):
                    overriders.append(
                        ([callback], getattr(callback, hook), isinstance(callback, TrialFileLogger))
                    )
        self._may_change_results = any(
            self._group_of(owners[0]) is None
            for owners, _, _ in self._overriders["on_trial_result"]
        )

    def _group_of(self, callback: Callback) -> _LoggerGroup | None:
        return next(
            (
                group
                for group in self._groups
                if any(member is callback for member in group.members)
            ),
            None,
        )

    def _switch_off(self, callback: Callback, where: str, error: Exception) -> None:
        self._callbacks = [other for other in self._callbacks if other is not callback]
        if group := self._group_of(callback):
            group.members = [member for member in group.members if member is not callback]
        self._index()
        _log.warning(
            "%s.%s raised %s and is switched off; the experiment continues without it",
            type(callback).__name__,
            where,
            type(error).__name__,
            exc_info=error,
        )


def overrides(callback: Callback, hook: Hook) -> bool:
    """Return whether the hook does more than forward to a method that is not overridden."""
    function = _function(callback, hook)
    if function is None or function is getattr(Callback, hook):
        return False
    if function is not getattr(LoggerCallback, hook):
        return True
    forward = _FORWARDS[hook]
    return _function(callback, forward) is not getattr(LoggerCallback, forward)


def _function(callback: Callback, name: str) -> Any:
    method = getattr(callback, name, None)
    return getattr(method, "__func__", method)


def _qualified_name(callback: Callback) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"


@final
class _LoggerGroup:
    """Replaces the hooks of several loggers, with one entry per event for all their files.

    Args:
        members: The loggers.
        writer: The writer that all of them use.
        switch_off: Called with a logger that has a defect, the hook and the defect.

    Attributes:
        members: The loggers that are on.
    """

    def __init__(
        self, members: Sequence[TrialFileLogger], writer: BatchWriter, switch_off: _SwitchOff
    ) -> None:
        self.members = members
        self._writer = writer
        self._switch_off = switch_off
        self._files: dict[Trial, _TrialFiles] = {}

    def on_trial_start(self, trial: Trial, **_: Any) -> None:
        """See `TrialFileLogger.log_trial_start`."""
        self._add(trial, begin_of(trial), "on_trial_start")

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any]
    ) -> None:
        """See `TrialFileLogger.log_trial_result`."""
        row = Row(result, time.time(), trial.num_rows)
        files = self._files.get(trial)
        if files is None or self._writer.has_failed:
            self._add(trial, row, "on_trial_result")
        else:  # the usual case, without the checks: this is the most frequent hook
            self._writer.add(files, row)

    def on_trial_complete(self, trial: Trial, **_: Any) -> None:
        """See `TrialFileLogger.log_trial_end`."""
        self._end(trial, "on_trial_complete")

    def on_trial_recover(self, trial: Trial, **_: Any) -> None:
        """See `TrialFileLogger.log_trial_end`."""
        self._end(trial, "on_trial_recover", has_failed=True)

    def on_trial_error(self, trial: Trial, **_: Any) -> None:
        """See `TrialFileLogger.log_trial_end`."""
        self._end(trial, "on_trial_error", has_failed=True)

    def on_checkpoint_validated(
        self,
        trial: Trial,
        *,
        checkpoint: Checkpoint,
        status: str,
        metrics: Mapping[str, Any],
        result: Mapping[str, Any],
        failure: Failure | None = None,
        **_: Any,
    ) -> None:
        """See `TrialFileLogger.on_checkpoint_validated`."""
        error = str(failure or "")
        entry = validated(trial, checkpoint, status, metrics, result, error=error)
        self._add(trial, entry, "on_checkpoint_validated")

    def _end(self, trial: Trial, hook: str, *, has_failed: bool = False) -> None:
        if is_over(trial):
            for entry in (
                self.members[0].last_entries(trial, has_failed=has_failed) if self.members else ()
            ):
                self._add(trial, entry, hook)
        if trial.is_finished:
            self._files.pop(trial, None)
            for member in self.members:
                member.forget(trial)

    def _add(self, trial: Trial, entry: Entry, hook: str) -> None:
        files = self._files.get(trial)
        if files is None:
            files = self._files[trial] = _TrialFiles(trial, self.members)
        self._writer.add(files, entry)
        if self._writer.has_failed:
            for member in self.members:
                if member.defect is not None:
                    self._switch_off(member, hook, member.defect)


@final
class _TrialFiles(Addressee):
    """The files of a trial, opened in the background at the first write, to keep the hooks cheap.

    Args:
        trial: The trial.
        loggers: The loggers, some of which may have opened their file already.
    """

    def __init__(self, trial: Trial, loggers: Sequence[TrialFileLogger]) -> None:
        self._directory = trial.local_path
        self._known = [(logger, logger.known_file(trial)) for logger in loggers]
        self._parts: tuple[Sink, ...] | None = None

    def parts(self) -> Sequence[Sink]:
        """Return the files."""
        if self._parts is None:
            self._parts = tuple(
                file for logger, known in self._known if (file := known or self._opened(logger))
            )
        return self._parts

    def expects_more(self, last: Entry) -> bool:
        """Return whether the trial is not over."""
        return last.__class__ is not End

    def _opened(self, logger: TrialFileLogger) -> Sink | None:
        try:
            return logger.open_file(self._directory) if logger.is_on else None
        except Exception as error:  # noqa: BLE001  (the other loggers still get their entries)
            logger.fail(error)
            return None


def _groups_of(callbacks: Iterable[Callback], switch_off: _SwitchOff) -> Iterator[_LoggerGroup]:
    """Yield a group for all consecutive loggers that share a writer.

    A logger that overrides the hooks is left out.
    """
    for _, together in groupby(callbacks, lambda callback: id(_writer_of(callback) or callback)):
        members = list(together)
        loggers = [member for member in members if isinstance(member, TrialFileLogger)]
        if writer := _writer_of(members[0]):
            yield _LoggerGroup(loggers, writer, switch_off)


def _writer_of(callback: Callback) -> BatchWriter | None:
    if not isinstance(callback, TrialFileLogger):
        return None
    has_own_hooks = any(
        getattr(type(callback), name) is not getattr(TrialFileLogger, name)
        for pair in _GROUPED.items()
        for name in pair
    )
    return None if has_own_hooks else callback.writer
