"""The table of trials, their resources, and what is kept of a trial."""

import pytest

from schedulers.decisions import Pause, Reason, Resize, Resume
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    answers,
    kills,
    result,
    starts,
    suggest,
)
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.commands import AskSearcher, DeleteCheckpoint, StartWorker, TrialStarted
from tuner.core.events import (
    CheckpointLost,
    CheckpointRequested,
    CheckpointSaved,
    Outcome,
    StopRequested,
    TurnEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.resources import Demand
from tuner.core.trial import Status, TerminationReason
from tuner.core.trial_table import TrialTable
from tuner.core.worker_records import CheckpointRecord, Failure

WHY = Reason("test")
SAVES = CheckpointPolicy(can_save_on_demand=True)


class IdleCalls(ScriptedScheduler):
    """Counts how often it is asked about paused trials."""

    num_calls = 0

    def on_idle(self, trials, num_free_slots):
        self.num_calls += 1
        return super().on_idle(trials, num_free_slots)


def test_a_report_that_comes_at_the_last_moment_is_in_time():
    talk = Conversation(max_trials=1, report_timeout_s=10.0)
    talk.begin(1)
    talk.now_s = 10.0
    commands = talk.report("t00000", 1)
    assert (kills(commands), answers(commands)) == ([], [("t00000", "continue", False)])
    assert talk.experiment.next_deadline_s() == 20.0


def test_no_deadline_outlives_its_worker():
    talk = Conversation(max_trials=1, max_concurrent=1, report_timeout_s=10.0)
    talk.begin(1)
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.experiment.next_deadline_s() is None
    assert talk.say(after_s=99.0) == []


@pytest.mark.parametrize("done", [1, "yes", False, None])
def test_only_true_itself_means_done(done):
    talk = Conversation(max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1, done=done)) == [("t00000", "continue", False)]


def test_what_befell_a_lost_worker_is_no_failure_of_its_trial():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.exit("t00000", Outcome.LOST, Failure("lost", "its machine went away"))
    assert talk.trial("t00000").failures == []


def test_what_went_wrong_on_the_way_out_is_kept_although_the_trial_ends_well():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1, done=True)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    assert (talk.trial("t00000").ending, talk.trial("t00000").failures) == (
        TerminationReason.COMPLETED,
        [BOOM],
    )


def test_a_failed_trial_knows_from_where_it_will_report_again_before_it_is_started():
    talk = Conversation(max_trials=1, max_failures=1)
    talk.begin(1)
    talk.report("t00000", 1)
    talk.report("t00000", 2, CheckpointRecord(0, 2))
    talk.report("t00000", 3)
    talk.experiment.handle(WorkerExited("t00000", 1, Outcome.FAILED, BOOM), 0.0)
    assert (talk.trial("t00000").status, talk.trial("t00000").resumed_iteration) == (
        Status.PENDING,
        2,
    )


def test_a_resumed_trial_knows_from_where_it_continues():
    talk = Conversation(
        ScriptedScheduler({("t00000", 2): [Pause("t00000", WHY)]}, idle=[[Resume("t00000", WHY)]]),
        max_trials=1,
        checkpoints=SAVES,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.report("t00000", 2)
    talk.saved("t00000", 0, 2)
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]
    assert talk.trial("t00000").resumed_iteration == 2
    assert [
        (notice.is_resumed, notice.is_retry)
        for notice in talk.notices
        if isinstance(notice, TrialStarted)
    ] == [
        (False, False),
        (True, False),
    ]


def test_a_request_for_a_checkpoint_ends_with_the_attempt():
    talk = Conversation(max_trials=1, max_failures=1, checkpoints=SAVES)
    talk.begin(1)
    talk.say(CheckpointRequested("t00000"))
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.say(WorkerStarted("t00000", 2, 1))
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]


def test_while_a_big_trial_waits_no_small_one_is_asked_for_in_its_place():
    talk = Conversation(capacity={"cpu": 3.0}, max_trials=9)
    talk.say()
    assert starts(
        talk.say(suggest("t00000", cpu=2.0), suggest("t00001", cpu=2.0), suggest("t00002", cpu=1.0))
    ) == [
        ("t00000", 1),
        ("t00002", 1),
    ]
    talk.say(WorkerStarted("t00002", 1, 1))
    assert [
        command
        for command in talk.exit("t00002", Outcome.COMPLETED)
        if isinstance(command, AskSearcher)
    ] == []


def test_a_scheduler_is_not_asked_about_paused_trials_while_others_wait_to_start():
    scheduler = IdleCalls({("t00002", 1): [Pause("t00002", WHY)]})
    talk = Conversation(scheduler, capacity={"cpu": 3.0}, max_trials=3, checkpoints=SAVES)
    talk.say()
    talk.say(suggest("t00000", cpu=2.0), suggest("t00001", cpu=2.0), suggest("t00002", cpu=1.0))
    talk.say(WorkerStarted("t00002", 1, 1))
    talk.report("t00002", 1)
    talk.saved("t00002", 0, 1)
    talk.exit("t00002", Outcome.STOPPED)
    assert talk.trial("t00002").status is Status.PAUSED
    assert scheduler.num_calls == 0


def test_a_result_may_be_what_a_paused_trial_has_waited_for():
    scheduler = ScriptedScheduler(
        {("t00000", 1): [Pause("t00000", WHY)]}, idle=[[], [Resume("t00000", WHY)]]
    )
    talk = Conversation(scheduler, max_trials=2, checkpoints=SAVES)
    talk.begin(2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == []
    assert starts(talk.report("t00001", 1)) == [("t00000", 2)]


def test_paused_trials_stay_paused_when_the_experiment_is_interrupted():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}), max_trials=2, checkpoints=SAVES
    )
    talk.begin(2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    talk.say(StopRequested("signal.SIGINT"))
    talk.report("t00001", 1)
    talk.saved("t00001", 0, 1)
    talk.exit("t00001", Outcome.STOPPED)
    assert talk.experiment.is_finished
    assert [(trial.status, trial.ending) for trial in talk.experiment.trials] == [
        (Status.PAUSED, None),
        (Status.TERMINATED, TerminationReason.INTERRUPTED),
    ]


def test_a_result_of_a_worker_that_is_killed_before_its_answer_is_kept():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    assert kills(
        talk.say(result("t00000", 1, loss=0.5), StopRequested("signal.SIGINT", is_urgent=True))
    ) == ["t00000"]
    assert talk.trial("t00000").last_result["loss"] == 0.5


def test_a_killed_workers_last_report_is_neither_counted_nor_answered():
    talk = Conversation(max_trials=1, report_timeout_s=10.0)
    talk.begin(1)
    assert kills(talk.say(after_s=10.0)) == ["t00000"]
    assert talk.report("t00000", 1, loss=0.5) == []
    assert talk.trial("t00000").last_result == {}


def test_results_are_summarised_as_they_come():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    for time, loss in enumerate((0.5, 0.25), 1):
        talk.report("t00000", time, loss=loss)
    summary = talk.trial("t00000").summary["loss"]
    assert (summary.last, summary.max, summary.count) == (0.25, 0.5, 2)


def test_with_one_checkpoint_to_keep_pauses_and_retries_always_find_one():
    script = {("t00000", time): [Pause("t00000", WHY)] for time in (2, 4)}
    policy = CheckpointPolicy(can_save_on_demand=True, retention=RetentionPolicy(num_to_keep=1))
    talk = Conversation(
        ScriptedScheduler(script, idle=[[Resume("t00000", WHY)]] * 2),
        max_trials=1,
        max_failures=1,
        checkpoints=policy,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.report("t00000", 2)
    talk.saved("t00000", 0, 2)
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]
    assert starts(talk.exit("t00000", Outcome.FAILED, BOOM)) == [("t00000", 3)]
    talk.say(WorkerStarted("t00000", 3, 1))
    assert [
        command for command in talk.report("t00000", 3) if isinstance(command, DeleteCheckpoint)
    ] == []
    talk.report("t00000", 4)
    deleted = [
        command for command in talk.saved("t00000", 1, 4) if isinstance(command, DeleteCheckpoint)
    ]
    assert deleted == [DeleteCheckpoint("t00000", CheckpointRecord(0, 2))]
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == [("t00000", 4)]


def test_a_start_from_a_lost_checkpoint_uses_the_one_before_and_counts_no_failure():
    talk = Conversation(max_trials=1, max_failures=1)
    talk.begin(1)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.report("t00000", 2, CheckpointRecord(1, 2))
    talk.exit("t00000", Outcome.FAILED, BOOM)
    commands = talk.say(
        CheckpointLost("t00000", 1, "torn"),
        WorkerExited("t00000", 2, Outcome.LOST, Failure("CheckpointLost", "torn")),
    )
    [start] = [command for command in commands if isinstance(command, StartWorker)]
    assert (start.attempt, start.checkpoint, start.next_checkpoint) == (
        3,
        CheckpointRecord(0, 1),
        2,
    )
    assert (talk.trial("t00000").num_failures, talk.trial("t00000").resumed_iteration) == (1, 1)


def test_a_checkpoint_that_was_not_asked_for_is_dropped():
    talk = Conversation(max_trials=1, checkpoints=SAVES)
    talk.begin(1)
    talk.say(CheckpointSaved("t00000", 1, CheckpointRecord(0, 1)))
    assert talk.trial("t00000").checkpoints == []


def test_a_turn_in_which_a_paused_trial_joins_the_queue_is_not_a_noop():
    """The queue exists only in the driver's memory, so the turn must be recorded."""
    wider = Resize("t00000", {"cpu": 2.0}, WHY)
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [wider]}), max_trials=2, checkpoints=SAVES
    )
    talk.begin(2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    for event in (WorkerExited("t00000", 1, Outcome.STOPPED), result("t00001", 1)):
        talk.experiment.handle(event, 0.0)
    outcome = talk.experiment.handle(TurnEnded(), 0.0)
    assert talk.trial("t00000") in talk.experiment.trial_table.ready
    assert not outcome.is_noop


def test_a_turn_that_only_asks_the_searcher_is_a_noop():
    """Nothing is visible outside before the searcher's answer, which is an event."""
    talk = Conversation(max_trials=3)
    talk.begin(2)
    talk.experiment.handle(WorkerExited("t00000", 1, Outcome.COMPLETED), 0.0)
    outcome = talk.experiment.handle(TurnEnded(), 0.0)
    assert outcome.commands == [AskSearcher("t00002")]
    assert outcome.is_noop


def test_a_turn_that_starts_a_trial_is_not_a_noop():
    talk = Conversation(max_trials=1)
    talk.experiment.handle(TurnEnded(), 0.0)
    talk.experiment.handle(suggest("t00000"), 0.0)
    assert not talk.experiment.handle(TurnEnded(), 0.0).is_noop


def test_paused_trials_are_not_gone_through_while_there_is_no_room_for_one(monkeypatch):
    """There may be tens of thousands of them, and reports must stay cheap."""
    script = ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}, idle=[(), ()])
    talk = Conversation(script, max_trials=3, checkpoints=SAVES)
    talk.begin(2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    talk.say(suggest("t00002"))
    assert talk.experiment.trial_table.num_free_slots(Demand({"cpu": 1.0})) == 0
    monkeypatch.setattr(
        TrialTable, "idle", property(lambda _: pytest.fail("the paused trials are iterated"))
    )
    assert answers(talk.report("t00001", 1)) == [("t00001", "continue", False)]
