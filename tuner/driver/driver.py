"""The loop of an experiment: wait for events, fold them, write them to the journal, notify, act.

The driver owns the only loop and the only clock of an experiment. It decides nothing: commands come
from the core. Its one rule is the order, *persist, then act*: no report is answered, no worker is
started and no file is deleted before the events that led to it are in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeGuard

from tuner.core.commands import (
    AnswerReport,
    AskSearcher,
    Command,
    DeleteCheckpoint,
    Effects,
    Notice,
    StartWorker,
    TrialAdded,
    WorkerCommand,
)
from tuner.core.events import (
    TIME_LIMIT,
    CheckpointLost,
    CheckpointRequested,
    Event,
    ResultReported,
    StopRequested,
    TurnEnded,
    WorkerExited,
)
from tuner.core.events import Outcome as WorkerOutcome
from tuner.core.experiment import Experiment
from tuner.core.failure_causes import CHECKPOINT_LOST
from tuner.core.recorded_decisions import RecordedDecision
from tuner.core.trial import WorkerState
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply
from tuner.errors import StorageLost
from tuner.execution.executor import Executor
from tuner.wire.record import record

from .control import RequestHandler

_NOTICEABLE_S = 0.1
"""A write that takes so long stops the experiment's clock."""
_LAST_ANSWER_S = 0.5
"""How long a stopped experiment waits for a suggestion that the searcher is computing."""
_LOOK_S = 0.1
"""How long the end of an experiment waits for the searcher before it looks for a request to
stop."""
# Made once, since every turn ends with one of them.
_TURN_ENDED = TurnEnded()
_NOOP_TURN_ENDED = TurnEnded(is_noop=True)


_MAY_HAVE_BEEN_SAVING: Final = frozenset(
    {WorkerOutcome.FAILED, WorkerOutcome.UNSAVED, WorkerOutcome.KILLED, WorkerOutcome.LOST}
)
"""Outcomes of an attempt that may have been saving a checkpoint when it ended."""


class EventLog(Protocol):
    """Where events are recorded."""

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Add an event, to be written with the next `flush`."""

    def flush(self) -> None:
        """Write everything added, in one piece."""


class SuggestionSource(Protocol):
    """Where configurations come from: a searcher, or a recording of its suggestions."""

    def ask(self, trial_ids: list[str], /) -> Sequence[Event]:
        """Ask for a configuration for each id; return the answers so far. Called in every turn."""

    def take(self) -> Sequence[Event]:
        """Return the answers that have come since; the executor is woken when there are any."""

    def withdraw(self) -> None:
        """Ask for nothing more, since the experiment stops."""

    def settle(self, timeout_s: float | None, /) -> bool:
        """Wait until the searcher has processed everything; return whether it has."""


class NoticeListener(Protocol):
    """Receives notices, turn by turn."""

    def begin_turn(self) -> None:
        """Called when a turn begins."""

    def notify(self, notice: Notice, /) -> bool:
        """Take a notice; return whether a checkpoint of the trial is wanted at its result."""

    def remark(self, text: str, /) -> None:
        """Take a remark of the scheduler for the user."""

    def end_turn(self) -> None:
        """Called when a turn is over."""


class CheckpointFiles(Protocol):
    """The files of checkpoints, of which the core knows the records only."""

    def delete(self, trial_id: str, checkpoint: CheckpointRecord, /) -> None:
        """Delete a trial's superseded checkpoint."""

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord, /) -> str:
        """Return the damage of a checkpoint before a worker starts from it, empty for none."""

    def discard_unfinished(self, trial_id: str, attempt: int, /) -> None:
        """Delete unfinished checkpoints of an attempt that failed or was killed."""


class _NoCheckpointFiles:
    def delete(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        pass

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        return ""

    def discard_unfinished(self, trial_id: str, attempt: int) -> None:
        pass


NO_CHECKPOINT_FILES: Final = _NoCheckpointFiles()
"""For trials whose checkpoints are records only, as in virtual time."""


@record
class Timing:
    """How a driver uses its executor's clock.

    Attributes:
        tick_s: How long the driver waits at most before it looks at the clock, in seconds, so that
            stoppers and progress displays are kept up to date; None to wait for events and
            deadlines only.
        in_microseconds: Whether times are rounded to microseconds, which are written much faster.
            Only for clocks that always advance: a virtual one might not reach the time between.
        leave_at_s: Time by the clock at which the driver requests a stop itself, since the time
            limit of its job is near, in seconds; None for no limit.
    """

    tick_s: float | None = 1.0
    in_microseconds: bool = False
    leave_at_s: float | None = None


REAL_TIME: Final = Timing()

VIRTUAL_TIME: Final = Timing(tick_s=None)
"""A virtual clock stands still while the driver works, so there is no need to look at it."""


class Driver:
    """Runs an experiment to its end.

    Args:
        experiment: The state, fresh or replayed.
        executor: Where trials run.
        log: Where events are written before commands are carried out.
        suggestions: Proposes configurations.
        observers: Receives notices.
        checkpoint_files: Verifies and deletes the files of checkpoints.
        timing: How the executor's clock is used.
        elapsed_s: Running time of earlier sessions, in seconds.
        take_snapshot: Called in each turn with the experiment's running time in seconds, when
            everything has been written and notified, and nothing has been carried out.
        control: Control requests of the user; None for none.
    """

    def __init__(  # noqa: PLR0917  (its collaborators, given once)
        self,
        experiment: Experiment,
        executor: Executor,
        log: EventLog,
        suggestions: SuggestionSource,
        observers: NoticeListener,
        checkpoint_files: CheckpointFiles = NO_CHECKPOINT_FILES,
        *,
        timing: Timing = REAL_TIME,
        elapsed_s: float = 0.0,
        take_snapshot: Callable[[float], None] | None = None,
        control: RequestHandler | None = None,
    ) -> None:
        self._experiment = experiment
        self._executor = executor
        self._log = log
        self._suggestions = suggestions
        self._observers = observers
        self._checkpoint_files = checkpoint_files
        self._take_snapshot = take_snapshot
        self._tick_s = timing.tick_s
        self._in_microseconds = timing.in_microseconds
        self._leave_at_s = timing.leave_at_s
        self._earlier_s = elapsed_s
        self._clock = executor.clock
        self._began_s = self._clock()
        self._control = control
        self._is_written = True
        """Whether everything has been written that has to be before it is notified or acted on."""
        self._commands: list[Command] = []
        self._notices: list[Notice] = []
        self._answers: list[Event] = []
        self._requests: list[StopRequested] = []

    def request_stop(self, request: StopRequested) -> None:
        """Stop the experiment at the next turn; callable from signal handlers and other threads."""
        self._requests.append(request)
        self._executor.wake()

    def run(self, first: Sequence[Event] = ()) -> None:
        """Take turns until the experiment is over.

        Args:
            first: Events before the first turn, e.g. that the driver was restarted.

        Raises:
            StorageLost: If the journal was deleted or moved; before it is raised, workers get time
                to save and leave.
        """
        try:
            self._take_turns(first)
        except StorageLost:
            self._stop_without_journal()
            raise

    def _take_turns(self, first: Sequence[Event]) -> None:
        self._turn(first)
        while not self._experiment.is_finished:
            timeout_s = 0.0 if self._answers else self._timeout_s()
            events = self._executor.wait(timeout_s)
            self._check_time_limit()
            answers, self._answers = self._answers, []
            requests, self._requests = self._requests, []
            self._turn([*requests, *answers, *self._suggestions.take(), *events])
        self._settle_searcher()
        self._log.flush()

    def _stop_without_journal(self) -> None:
        """Have workers save and leave after the journal was lost; no report is acknowledged."""
        settings, live = self._experiment.settings, self._experiment.trial_table.live
        left = {trial_id: trial.attempt for trial_id, trial in live.items()}
        waiting = {
            command.trial_id for command in self._commands if isinstance(command, AnswerReport)
        }
        waiting |= {
            trial_id for trial_id, trial in live.items() if trial.worker is WorkerState.WAITING
        }
        until_s = self._clock() + settings.interrupt_grace_s
        while left and not any(request.is_urgent for request in self._requests):
            saves = settings.checkpoints.can_save_on_demand
            answered = [trial_id for trial_id in left if trial_id in waiting]
            self._executor.carry_out(
                [
                    AnswerReport(trial_id, left[trial_id], ReportReply.STOP, save=saves)
                    for trial_id in answered
                ]
            )
            if (rest_s := until_s - self._clock()) <= 0.0:
                return
            events = self._executor.wait(rest_s)
            waiting = {event.trial_id for event in events if isinstance(event, ResultReported)}
            for event in events:
                if isinstance(event, WorkerExited):
                    left.pop(event.trial_id, None)

    def _settle_searcher(self) -> None:
        """Pass the last notices to the searcher; a stopped experiment waits for it only briefly."""
        is_stopped = self._experiment.stop_reason is not None
        self._suggestions.settle(_LAST_ANSWER_S if is_stopped else 0.0)
        if answers := [*self._answers, *self._suggestions.take()]:
            self._answers = []
            self._turn(answers)
        while not (self._suggestions.settle(_LOOK_S) or is_stopped or self._requests):
            pass

    @property
    def elapsed_s(self) -> float:
        """Running time in seconds: earlier sessions included, long writes excluded."""
        # Added in this order, so that rounding never makes time go backwards from one driver to the
        # next.
        elapsed_s = self._earlier_s + (self._clock() - self._began_s)
        return int(elapsed_s * 1e6 + 0.5) / 1e6 if self._in_microseconds else elapsed_s

    def _turn(self, events: Sequence[Event]) -> None:
        self._observers.begin_turn()
        for event in events:
            self._fold(event)
        num_requested = self._fold_requests()
        # Notices of events go out before the end of the turn is folded: callbacks have to see
        # trials as they were at the event, and may ask for a checkpoint, which the end of the turn
        # requests. Of added trials they are not notified.
        if any(not isinstance(notice, TrialAdded) for notice in self._notices):
            self._write()
            self._notify()
        self._end_turn()
        if not events or num_requested or (self._has_effects() and not self._is_written):
            self._write()
        # A request is confirmed when it is in the journal, and so cannot be forgotten any more.
        if self._control:
            self._control.confirm()
        self._notify()
        # Between notices and actions: the searcher has been notified of nothing that the state does
        # not contain, and no command of this turn is lost if a restore starts from here.
        if self._take_snapshot:
            self._with_clock_stopped(self._take_snapshot, self.elapsed_s)
        self._act()
        self._discard_unfinished_checkpoints(events)
        self._observers.end_turn()

    def _fold_requests(self) -> int:
        """Fold the user's control requests one by one, and return the number of their events."""
        num = 0
        for event in self._control.events() if self._control else ():
            self._fold(event)
            num += 1
        return num

    def _fold(self, event: Event) -> None:
        at_s = self.elapsed_s
        outcome = self._experiment.handle(event, at_s)
        if not isinstance(event, ResultReported):
            self._log.append(event, at_s, outcome.recorded)
            self._is_written = False
        # A result that comes too late, e.g. of a worker that is being killed, has no effect, and
        # those who read the results from the journal are not to count it.
        elif outcome.notices:
            row = self._experiment.trial_table[event.trial_id].num_rows
            self._log.append(replace(event, row=row), at_s, outcome.recorded)
            self._is_written = False
        self._take(outcome)

    def _end_turn(self) -> None:
        at_s = self.elapsed_s
        outcome = self._experiment.handle(_TURN_ENDED, at_s)
        self._log.append(
            _NOOP_TURN_ENDED if outcome.is_noop else _TURN_ENDED, at_s, outcome.recorded
        )
        self._is_written &= outcome.is_noop
        self._take(outcome)

    def _has_effects(self) -> bool:
        # Without effects outside the driver, the records can wait for the next turn's write. A
        # question to the searcher is none: if the driver dies, a restore asks it again.
        return bool(self._notices) or any(
            not isinstance(command, AskSearcher) for command in self._commands
        )

    def _write(self) -> None:
        self._with_clock_stopped(self._log.flush)
        self._is_written = True

    def _with_clock_stopped(self, save: Callable[..., None], *arguments: float) -> None:
        # While a write takes long, e.g. since the disk is full, no report is answered. If the clock
        # ran on, deadlines would pass for which the trials are not to blame.
        began_s = self._clock()
        save(*arguments)
        if self._clock() - began_s >= _NOTICEABLE_S:
            self._earlier_s, self._began_s = (
                self._earlier_s + (began_s - self._began_s),
                self._clock(),
            )

    def _take(self, outcome: Effects) -> None:
        self._commands += outcome.commands
        self._notices += outcome.notices
        for remark in outcome.remarks:
            self._observers.remark(remark)

    def _notify(self) -> None:
        if not self._notices:
            return
        notices, self._notices = self._notices, []
        for notice in notices:
            if self._observers.notify(notice):
                self._fold(CheckpointRequested(notice.trial.trial_id))

    def _act(self) -> None:
        commands, self._commands = self._commands, []
        # Workers first, since they wait. Deletions may wait: the checkpoint store holds them back
        # until their record has been synced.
        self._executor.carry_out(
            [command for command in commands if self._is_for_executor(command)]
        )
        for command in commands:
            if isinstance(command, DeleteCheckpoint):
                self._checkpoint_files.delete(command.trial_id, command.checkpoint)
        if self._experiment.stop_reason:
            self._suggestions.withdraw()
        self._answers += self._suggestions.ask(
            [command.trial_id for command in commands if isinstance(command, AskSearcher)]
        )

    def _discard_unfinished_checkpoints(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, WorkerExited) and event.outcome in _MAY_HAVE_BEEN_SAVING:
                self._checkpoint_files.discard_unfinished(event.trial_id, event.attempt)

    def _is_for_executor(self, command: Command) -> TypeGuard[WorkerCommand]:
        if isinstance(command, (DeleteCheckpoint, AskSearcher)):
            return False
        return not (
            isinstance(command, StartWorker)
            and command.checkpoint
            and self._has_lost(command.checkpoint, command)
        )

    def _has_lost(self, checkpoint: CheckpointRecord, start: StartWorker) -> bool:
        """Return whether a checkpoint is damaged; then the core gets events of its loss."""
        owner_id = start.source_id or start.trial_id
        why = self._checkpoint_files.find_damage(owner_id, checkpoint)
        if why:
            lost = CheckpointLost(owner_id, checkpoint.index, why)
            # Folded in the next turn. The core chooses the checkpoint before this one, and starts
            # an attempt that does not count as a failure of the trial.
            self._answers += [
                lost,
                WorkerExited(
                    start.trial_id,
                    start.attempt,
                    WorkerOutcome.LOST,
                    Failure(CHECKPOINT_LOST, why),
                ),
            ]
        return bool(why)

    def _check_time_limit(self) -> None:
        if self._leave_at_s is not None and self._clock() >= self._leave_at_s:
            self._leave_at_s = None
            self._requests.append(StopRequested(TIME_LIMIT))

    def _timeout_s(self) -> float | None:
        due_s = self._experiment.next_deadline_s()
        limits = [] if self._tick_s is None else [self._tick_s]
        if due_s is not None:
            limits.append(max(due_s - self.elapsed_s, 0.0))
        if self._leave_at_s is not None:
            limits.append(max(self._leave_at_s - self._clock(), 0.0))
        return min(limits, default=None)
