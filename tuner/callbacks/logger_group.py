"""Group of file loggers that share one background writer and one record per event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, final

from tuner.callbacks.files.background_writer import Addressee, BatchWriter, Sink
from tuner.callbacks.files.trial_file import TrialFileLogger
from tuner.core.trial import Failure, Trial
from tuner.storage.checkpoints import Checkpoint

from .callback import Callback
from .log_records import End, Entry, Row, begin_of, is_over, validated

GROUPED: Final[Mapping[str, str]] = {
    "on_trial_start": "log_trial_start",
    "on_trial_result": "log_trial_result",
    "on_trial_complete": "log_trial_end",
    "on_trial_recover": "log_trial_end",
    "on_trial_error": "log_trial_end",
    "on_checkpoint_validated": "on_checkpoint_validated",
}
"""The hooks that a group handles, and the methods to which a logger forwards them."""

SwitchOff = Callable[[TrialFileLogger, str, Exception], None]
"""Called with a logger that has a defect, the hook and the defect."""


@final
class LoggerGroup:
    """Replaces the hooks of several loggers, with one entry per event for all their files.

    Args:
        members: The loggers.
        writer: The writer that all of them use.
        switch_off: See `SwitchOff`.

    Attributes:
        members: The loggers that are on.
    """

    def __init__(
        self, members: Sequence[TrialFileLogger], writer: BatchWriter, switch_off: SwitchOff
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


def groups_of(callbacks: Iterable[Callback], switch_off: SwitchOff) -> Iterator[LoggerGroup]:
    """Yield a group for all consecutive loggers that share a writer.

    A logger that overrides the hooks is left out.
    """
    for _, together in groupby(callbacks, lambda callback: id(_writer_of(callback) or callback)):
        members = list(together)
        loggers = [member for member in members if isinstance(member, TrialFileLogger)]
        if writer := _writer_of(members[0]):
            yield LoggerGroup(loggers, writer, switch_off)


def _writer_of(callback: Callback) -> BatchWriter | None:
    if not isinstance(callback, TrialFileLogger):
        return None
    has_own_hooks = any(
        getattr(type(callback), name) is not getattr(TrialFileLogger, name)
        for pair in GROUPED.items()
        for name in pair
    )
    return None if has_own_hooks else callback.writer
