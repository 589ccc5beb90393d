"""Reports whose workers wait for an answer: whether to go on, to save, or to leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from tuner.wire.record import record

from .checkpoints import CheckpointManager
from .commands import AnswerReport, Interruption, Outbox
from .events import LeaseOwner
from .exploits import ExploitTracker
from .lifecycle import WorkerMove, move_worker
from .result import CONFIG, flatten
from .timeouts import Timeouts
from .trial import TerminationReason, Trial, WorkerState
from .trial_table import TrialTable
from .worker_records import ReportReply


@record
class UnansweredReport:
    """A result whose worker is blocked until it gets a reply.

    Attributes:
        trial: The trial.
        result: The result, nested as reported, with ``config``; becomes the trial's last result.
        flat: The same flattened, without ``config``.
    """

    trial: Trial
    result: dict[str, Any]
    flat: Mapping[str, Any]


@final
class UnansweredReports:
    """Answers reports when a turn ends, by what was decided about their trials.

    A report is *held*, and answered in a later turn, while a part wants it: too many validations of
    its trial are open.

    Args:
        trial_table: The trials.
        exploits: Exploits that wait for a donor to save.
        holds_report: Returns whether a part has the report of a trial wait, see `part`.
        out: Receives the answers.
    """

    def __init__(
        self,
        trial_table: TrialTable,
        exploits: ExploitTracker,
        holds_report: Callable[[Trial], bool],
        out: Outbox,
    ) -> None:
        self._trial_table = trial_table
        self._exploits = exploits
        self._holds_report = holds_report
        self._out = out
        self._reports: dict[str, UnansweredReport] = {}
        self._checkpoints: CheckpointManager
        self._timeouts: Timeouts

    def begin_session(self, checkpoints: CheckpointManager, timeouts: Timeouts) -> None:
        """Use what belongs to a new session."""
        self._checkpoints = checkpoints
        self._timeouts = timeouts

    def add(self, report: UnansweredReport) -> None:
        """Queue a report until the turn ends."""
        self._reports[report.trial.trial_id] = report

    def drop(self, trial: Trial) -> None:
        """Forget the report of a trial whose worker is killed or gone, if there is one."""
        self._reports.pop(trial.trial_id, None)

    def answer(self, now_s: float, *, is_stopping: bool) -> bool:
        """Answer the reports that are not held; return whether all their trials simply continue.

        Args:
            now_s: Experiment time.
            is_stopping: Whether the experiment stops.
        """
        held, all_continue = {}, True
        for trial_id, report in self._reports.items():
            if self._is_held(report.trial):
                held[trial_id] = report
            else:
                all_continue &= self._answer(report, now_s, is_stopping=is_stopping)
        self._reports = held
        return all_continue

    @property
    def held_trials(self) -> list[Trial]:
        """Trials that get an answer in a later turn only."""
        return [report.trial for report in self._reports.values() if self._is_held(report.trial)]

    @property
    def owners(self) -> set[LeaseOwner]:
        """The workers that wait for an answer."""
        return {
            LeaseOwner(report.trial.trial_id, report.trial.attempt)
            for report in self._reports.values()
        }

    def check(self) -> None:
        """Assert every invariant; for tests."""
        waiting = {
            trial_id
            for trial_id, trial in self._trial_table.live.items()
            if trial.worker is WorkerState.WAITING
        }
        assert set(self._reports) <= waiting, "an unanswered report of a worker that is not waiting"

    def check_held(self) -> None:
        """Assert that there is none but held ones, as after each turn."""
        assert all(self._is_held(report.trial) for report in self._reports.values()), (
            "a turn is under way"
        )

    def state_dict(self) -> list[str]:
        """Return the trials of the reports that are held."""
        return list(self._reports)

    def load_state_dict(self, state: Iterable[str]) -> None:
        """Restore what `state_dict` returned; the trials are there."""
        for trial_id in state:
            trial = self._trial_table[trial_id]
            result = {key: trial.last_result[key] for key in trial.last_result if key != CONFIG}
            self.add(UnansweredReport(trial, trial.last_result, flatten(result)))

    def _is_held(self, trial: Trial) -> bool:
        """Return whether a report is answered in a later turn, as its trial does not leave."""
        is_leaving = trial.intention is not None and (
            trial.intention.reply is not ReportReply.PAUSE or bool(trial.source)
        )
        return not is_leaving and self._holds_report(trial)

    def _answer(self, report: UnansweredReport, now_s: float, *, is_stopping: bool) -> bool:
        """Answer a report and return whether its trial simply continues."""
        trial = report.trial
        save = self._checkpoints.is_due(trial, report.flat)
        reply = trial.intention.reply if trial.intention else ReportReply.CONTINUE
        # A worker that is still storing a checkpoint leaves once it has.
        if reply is ReportReply.PAUSE and not (
            save or trial.source or trial.uploads or is_stopping
        ):
            reply = ReportReply.CONTINUE  # until the training code itself reports a checkpoint
        if trial.owes_save and not save:
            self._exploits.supply(trial)  # it has just reported one, or never saves on demand
        trial.owes_save = False
        if reply is ReportReply.CONTINUE:
            move_worker(trial, WorkerMove.SAVE if save else WorkerMove.GO_ON)
            self._timeouts.expect_report(trial.trial_id, now_s)
            why = None
        else:
            move_worker(trial, WorkerMove.LEAVE)
            self._timeouts.expect_exit(trial.trial_id, now_s)
            why = self._interruption(trial, now_s)
        stay = reply is ReportReply.EXPLOIT and self._restarts_at_once(trial)
        self._out.commands.append(
            AnswerReport(trial.trial_id, trial.attempt, reply, save, stay, why)
        )
        return reply is ReportReply.CONTINUE and not save

    def _interruption(self, trial: Trial, now_s: float) -> Interruption | None:
        """Return why a trial that leaves will go on later; None where it will not."""
        intention = trial.intention
        if intention is None or intention.reply is ReportReply.EXPLOIT:
            return None
        if intention.ending is not TerminationReason.INTERRUPTED:
            return None
        return Interruption(intention.reason.rule, self._timeouts.left_s(trial.trial_id, now_s))

    def _restarts_at_once(self, trial: Trial) -> bool:
        """Return whether a trial that leaves for an exploit is the next one to be started."""
        return trial.exploit is not None and not (trial.waits_for or self._trial_table.ready)
