"""The loop: wait for events, fold them, write them down, tell observers, act.

The driver owns the only loop and the only clock of an experiment. It decides nothing: what is to be done comes from the core. Its one
rule is the order: *persist, then act*. No answer leaves, no worker starts and no file is deleted before the events that led to it are in
the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeGuard

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
from tuner.core.policies import RecordedDecision
from tuner.core.trial import CheckpointRecord, Failure, ReportReply, WorkerState
from tuner.errors import StorageLost
from tuner.execution.executor import Executor

from .control import Helm

_NOTICEABLE_S = 0.1
_LAST_ANSWER_S = 0.5
"""How long an experiment that is stopped waits for what the searcher is computing."""
_LOOK_S = 0.1
# Every turn ends, and mostly in the same way.
_TURN_ENDED = TurnEnded()
_TURN_ENDED_IN_ROUTINE = TurnEnded(is_routine=True)


_UNTIDY = frozenset(
    {WorkerOutcome.FAILED, WorkerOutcome.UNSAVED, WorkerOutcome.KILLED, WorkerOutcome.LOST}
)
"""Ends of an attempt that may come in the middle of a save."""


class EventLog(Protocol):
    """Where events are written down."""

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Take in an event, to be written with the next `flush`."""

    def flush(self) -> None:
        """Write everything taken in, in one piece."""


class SuggestionSource(Protocol):
    """Where configurations are asked for: a searcher, or what one has been recorded to propose."""

    def ask(self, trial_ids: list[str], /) -> Sequence[Event]:
        """Ask for a configuration for each id, and return the answers that are there; called at the end of every turn."""

    def take(self) -> Sequence[Event]:
        """Return the answers that have come since; the executor is woken when there are some."""

    def withdraw(self) -> None:
        """Ask nothing more, since the experiment stops."""

    def settle(self, timeout_s: float | None, /) -> bool:
        """Wait until everything is told and answered, at most so long; return whether it is."""


class Audience(Protocol):
    """Who hears of what happens, turn by turn."""

    def begin_turn(self) -> None:
        """Hear that a turn begins."""

    def tell(self, notice: Notice, /) -> bool:
        """Hear of a notice; return whether somebody wants a checkpoint of the trial at its result."""

    def remark(self, text: str, /) -> None:
        """Hear what the scheduler wants the user to know."""

    def end_turn(self) -> None:
        """Hear that the turn is over."""


class Driver:
    """Runs an experiment to its end.

    Args:
        experiment: The state, fresh or replayed.
        executor: Where trials run.
        log: Where events are written before anything is done about them.
        proposer: Who proposes configurations.
        observers: Who hears of what happens.
        delete_checkpoint: Deletes a trial's superseded checkpoint.
        find_damage: Returns what is wrong with a trial's checkpoint, empty for nothing; asked before a worker starts from one. None
            trusts them all.
        discard_unfinished: Deletes what an attempt of a trial has left that ended otherwise than by its own word, and may have been saving.
            None leaves it to the next sweep.
        at_rest: Called in each turn with the experiment's running time, when all that has happened is told, and nothing yet done about it:
            the moment for a snapshot. None for nobody.
        elapsed_s: Running time of earlier sessions.
        tick_s: How long the driver waits at most before it looks at the clock, so that stoppers and progress displays stay alive; None
            to wait for events and deadlines only.
        helm: Where the user's wishes come from; None for nowhere.
        leave_at_s: Time by the executor's clock at which it asks for a stop by itself, since its own time will soon be over; None for
            never.
        in_microseconds: Whether time goes by in whole microseconds, of which a stamp is written down much faster; for clocks that always
            go on, since a virtual one might never come to a moment in between.
    """

    def __init__(  # noqa: PLR0917  (its collaborators, given once)
        self,
        experiment: Experiment,
        executor: Executor,
        log: EventLog,
        proposer: SuggestionSource,
        observers: Audience,
        delete_checkpoint: Callable[[str, CheckpointRecord], None],
        *,
        find_damage: Callable[[str, CheckpointRecord], str] | None = None,
        discard_unfinished: Callable[[str, int], None] | None = None,
        at_rest: Callable[[float], None] | None = None,
        elapsed_s: float = 0.0,
        tick_s: float | None = 1.0,
        helm: Helm | None = None,
        leave_at_s: float | None = None,
        in_microseconds: bool = False,
    ) -> None:
        self._experiment = experiment
        self._executor = executor
        self._log = log
        self._proposer = proposer
        self._observers = observers
        self._delete_checkpoint = delete_checkpoint
        self._find_damage = find_damage
        self._discard_unfinished = discard_unfinished
        self._at_rest = at_rest
        self._tick_s = tick_s
        self._earlier_s = elapsed_s
        self._clock = executor.clock
        self._began_s = self._clock()
        self._helm = helm
        self._leave_at_s = leave_at_s
        self._in_microseconds = in_microseconds
        self._is_written = True
        """Whether nothing has been taken in that has to be written down before it is told or acted on."""
        self._commands: list[Command] = []
        self._notices: list[Notice] = []
        self._answers: list[Event] = []
        self._requests: list[StopRequested] = []

    def request_stop(self, request: StopRequested) -> None:
        """Let the experiment stop at the next turn; may be called from signal handlers and other threads."""
        self._requests.append(request)
        self._executor.wake()

    def run(self, first: Sequence[Event] = ()) -> None:
        """Take turns until the experiment is over.

        Args:
            first: What has happened before the first turn, e.g. that the driver was restarted.

        Raises:
            StorageLost: If the journal is not in its place any more; trials have been told to save and leave.
        """
        try:
            self._take_turns(first)
        except StorageLost:
            self._dismiss_trials()
            raise

    def _take_turns(self, first: Sequence[Event]) -> None:
        self._turn(first)
        while not self._experiment.is_finished:
            timeout_s = 0.0 if self._answers else self._patience_s()
            events = self._executor.wait(timeout_s)
            self._mind_time_limit()
            answers, self._answers = self._answers, []
            requests, self._requests = self._requests, []
            self._turn([*requests, *answers, *self._proposer.take(), *events])
        self._settle_searcher()
        self._log.flush()

    def _dismiss_trials(self) -> None:
        """Have trials save and leave, without a word in the journal: nothing that they have reported is acknowledged or told."""
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
            told = [trial_id for trial_id in left if trial_id in waiting]
            self._executor.carry_out(
                [
                    AnswerReport(trial_id, left[trial_id], ReportReply.STOP, save=saves)
                    for trial_id in told
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
        """Let the searcher hear the last notices; an experiment that is stopped waits for it only briefly."""
        is_stopped = self._experiment.stop_reason is not None
        self._proposer.settle(_LAST_ANSWER_S if is_stopped else 0.0)
        if answers := [*self._answers, *self._proposer.take()]:
            self._answers = []
            self._turn(answers)
        while not (self._proposer.settle(_LOOK_S) or is_stopped or self._requests):
            pass

    @property
    def elapsed_s(self) -> float:
        """Running time of the experiment in seconds, earlier sessions included; it stands still while the storage takes nothing."""
        # In this order, so that no rounding lets time run backwards where one driver takes over from another.
        elapsed_s = self._earlier_s + (self._clock() - self._began_s)
        return int(elapsed_s * 1e6 + 0.5) / 1e6 if self._in_microseconds else elapsed_s

    def _turn(self, events: Sequence[Event]) -> None:
        self._observers.begin_turn()
        for event in events:
            self._fold(event)
        wishes = self._fold_wishes()
        # Whoever is told has to find things as they were when it happened, and may want a checkpoint, for which the end of the turn asks.
        # That a trial has been added nobody hears.
        if any(not isinstance(notice, TrialAdded) for notice in self._notices):
            self._write()
            self._tell()
        self._end_turn()
        if not events or wishes or (self._has_effects() and not self._is_written):
            self._write()
        if self._helm:
            self._helm.confirm()
        self._tell()
        if self._at_rest:
            self._without_hurry(self._at_rest, self.elapsed_s)
        self._act()
        self._discard_what_is_left(events)
        self._observers.end_turn()

    def _fold_wishes(self) -> int:
        """Fold what the user wishes, each before the next is looked at; return how many events that were."""
        num = 0
        for event in self._helm.events() if self._helm else ():
            self._fold(event)
            num += 1
        return num

    def _fold(self, event: Event) -> None:
        at_s = self.elapsed_s
        outcome = self._experiment.handle(event, at_s)
        self._log.append(event, at_s, outcome.recorded)
        self._is_written = False
        self._take(outcome)

    def _end_turn(self) -> None:
        at_s = self.elapsed_s
        outcome = self._experiment.handle(_TURN_ENDED, at_s)
        self._log.append(
            _TURN_ENDED_IN_ROUTINE if outcome.is_routine else _TURN_ENDED, at_s, outcome.recorded
        )
        self._is_written &= outcome.is_routine
        self._take(outcome)

    def _has_effects(self) -> bool:
        """Whether anything of this turn is going to be seen from outside; where nothing is, its records are written with the next one's."""
        return bool(self._notices) or any(
            not isinstance(command, AskSearcher) for command in self._commands
        )

    def _write(self) -> None:
        self._without_hurry(self._log.flush)
        self._is_written = True

    def _without_hurry(self, save: Callable[..., None], *arguments: float) -> None:
        """Save something. While the storage makes us wait for that, nobody is answered, and so nobody's time runs."""
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

    def _tell(self) -> None:
        if not self._notices:
            return
        notices, self._notices = self._notices, []
        for notice in notices:
            if self._observers.tell(notice):
                self._fold(CheckpointRequested(notice.trial.trial_id))

    def _act(self) -> None:
        commands, self._commands = self._commands, []
        self._executor.carry_out(
            [command for command in commands if self._is_for_executor(command)]
        )
        for command in commands:
            if isinstance(command, DeleteCheckpoint):
                self._delete_checkpoint(command.trial_id, command.checkpoint)
        if self._experiment.stop_reason:
            self._proposer.withdraw()
        self._answers += self._proposer.ask(
            [command.trial_id for command in commands if isinstance(command, AskSearcher)]
        )

    def _discard_what_is_left(self, events: Sequence[Event]) -> None:
        for event in events:
            if (
                self._discard_unfinished
                and isinstance(event, WorkerExited)
                and event.outcome in _UNTIDY
            ):
                self._discard_unfinished(event.trial_id, event.attempt)

    def _is_for_executor(self, command: Command) -> TypeGuard[WorkerCommand]:
        if isinstance(command, (DeleteCheckpoint, AskSearcher)):
            return False
        return not (
            isinstance(command, StartWorker)
            and command.checkpoint
            and self._has_lost(command.checkpoint, command)
        )

    def _has_lost(self, checkpoint: CheckpointRecord, start: StartWorker) -> bool:
        """Where the checkpoint to start from is damaged, let the trial be started again from the one before it."""
        owner_id = start.source_id or start.trial_id
        why = self._find_damage(owner_id, checkpoint) if self._find_damage else ""
        if why:
            lost = CheckpointLost(owner_id, checkpoint.index, why)
            self._answers += [
                lost,
                WorkerExited(
                    start.trial_id,
                    start.attempt,
                    WorkerOutcome.LOST,
                    Failure("CheckpointLost", why),
                ),
            ]
        return bool(why)

    def _mind_time_limit(self) -> None:
        if self._leave_at_s is not None and self._clock() >= self._leave_at_s:
            self._leave_at_s = None
            self._requests.append(StopRequested(TIME_LIMIT))

    def _patience_s(self) -> float | None:
        due_s = self._experiment.next_deadline_s()
        limits = [] if self._tick_s is None else [self._tick_s]
        if due_s is not None:
            limits.append(max(due_s - self.elapsed_s, 0.0))
        if self._leave_at_s is not None:
            limits.append(max(self._leave_at_s - self._clock(), 0.0))
        return min(limits, default=None)
