"""Progress of an experiment, as displays show it."""

from dataclasses import replace

import pytest

from schedulers.decisions import Reason, Stop
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler, result, suggest
from tuner.core.events import Outcome, TrialSuggested, ValidationEnded, WorkerStarted
from tuner.core.progress import Progress, look_at, why_waiting
from tuner.core.settings import ValidationPolicy
from tuner.core.trial import Status
from tuner.core.trial_metrics import Evaluation
from tuner.core.worker_records import CheckpointRecord, ValidationRequest, WorkerGroup


def look(talk, elapsed_s=0.0):
    return look_at(talk.experiment, "demo", elapsed_s)


def test_progress_of_a_new_experiment_is_empty():
    progress = look(Conversation(max_trials=4, metric="loss", mode="min"))
    assert (progress.name, progress.metric, progress.mode, progress.num_total) == (
        "demo",
        "loss",
        "min",
        4,
    )
    assert (
        progress.num_finished,
        progress.best,
        progress.best_last,
        progress.running,
        progress.leaders,
    ) == (0, None, None, (), ())
    assert progress.waiting_for == ""


def test_trials_are_counted_by_status_and_termination_reason():
    scheduler = ScriptedScheduler({("t00000", 1): [Stop("t00000", Reason("test"))]})
    talk = Conversation(scheduler, capacity={"cpu": 4.0}, max_trials=4, metric="loss", mode="min")
    talk.begin(4)
    talk.report("t00000", 1, loss=0.5)
    talk.exit("t00000", Outcome.STOPPED)
    talk.exit("t00001", Outcome.FAILED, BOOM)
    progress = look(talk, 7.0)
    assert {status: num for status, num in progress.num_trials_by_status.items() if num} == {
        Status.TERMINATED: 1,
        Status.ERROR: 1,
        Status.RUNNING: 2,
    }
    assert (
        progress.num_finished,
        progress.num_stopped_early,
        progress.num_errors,
        progress.elapsed_s,
    ) == (2, 1, 1, 7.0)
    assert [trial.trial_id for trial in progress.running] == ["t00002", "t00003"]
    assert (progress.best, progress.best_last, progress.best_ever) == (
        talk.trial("t00000"),
        Evaluation(0.5, 1, 1),
        Evaluation(0.5, 1, 1),
    )
    assert progress.leaders == (talk.trial("t00000"),)
    assert (progress.used, progress.capacity) == ({"cpu": 2.0}, {"cpu": 4.0})


def test_an_attempt_that_is_tried_again_counts_as_an_error_but_not_as_finished():
    talk = Conversation(max_trials=1, max_failures=1)
    talk.begin(1)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    assert (look(talk).num_errors, look(talk).num_finished) == (1, 0)


def test_progress_says_what_waiting_trials_wait_for():
    talk = Conversation(
        max_trials=2, capacity={"cpu": 2.0, "gpu": 1.0}, default_request={"cpu": 0.5}
    )
    talk.say()
    talk.say(suggest("t00000", cpu=1.0, gpu=1.0), suggest("t00001", cpu=2.0, gpu=1.0))
    assert look(talk).waiting_for == "free cpu and gpu"


def test_a_limit_on_concurrent_trials_is_what_they_wait_for():
    talk = Conversation(max_trials=2, max_concurrent=1, max_failures=1)
    talk.begin(1)
    assert look(talk).waiting_for == ""
    talk.experiment.trial_table.ready.push(talk.trial("t00000"))
    assert look(talk).waiting_for == "one of 1 concurrent trials to end"


@pytest.mark.parametrize(
    ("settings", "fraction"),
    [
        ({}, None),
        ({"num_total": 8, "num_finished": 2, "time_budget_s": 10.0, "elapsed_s": 9.0}, 0.25),
        ({"num_total": 8, "num_finished": 9}, 1.0),
        ({"time_budget_s": 10.0, "elapsed_s": 4.0}, 0.4),
        ({"time_budget_s": 10.0, "elapsed_s": 14.0}, 1.0),
    ],
)
def test_progress_is_that_of_the_trials_or_else_of_the_time(settings, fraction):
    assert Progress("demo", **settings).fraction == fraction


@pytest.mark.parametrize(
    ("settings", "remaining_s"),
    [
        ({}, None),
        ({"num_total": 100, "num_finished": 2, "elapsed_s": 9.0}, None),
        ({"num_total": 100, "num_finished": 10, "elapsed_s": 9.0}, 81.0),
        ({"num_total": 100, "num_finished": 10, "elapsed_s": 9.0, "time_budget_s": 20.0}, 11.0),
        ({"num_total": 100, "num_finished": 2, "elapsed_s": 9.0, "time_budget_s": 20.0}, 11.0),
        ({"elapsed_s": 29.0, "time_budget_s": 20.0}, None),
        ({"num_total": 8, "num_finished": 4, "elapsed_s": 9.0, "time_budget_s": 8.0}, None),
        ({"num_total": 8, "num_finished": 8, "elapsed_s": 9.0}, None),
        ({"num_total": 1000, "num_finished": 999, "elapsed_s": 600.0, "quiet_s": 90.0}, 90.0),
        (
            {
                "num_total": 1000,
                "num_finished": 999,
                "elapsed_s": 600.0,
                "longest_left_s": 200.0,
                "quiet_s": 90.0,
            },
            200.0,
        ),
        (
            {
                "num_total": 1000,
                "num_finished": 999,
                "elapsed_s": 600.0,
                "longest_left_s": 200.0,
                "time_budget_s": 700.0,
            },
            100.0,
        ),
    ],
)
def test_the_time_left_follows_from_the_pace_and_the_budget(settings, remaining_s):
    assert Progress("demo", **settings).remaining_s == remaining_s


def test_running_trials_count_by_the_share_that_they_have_trained():
    talk = Conversation(max_trials=4, capacity={"cpu": 2.0}, metric="loss", mode="min")
    talk.begin(2)
    for iteration in range(1, 4):
        talk.report("t00000", iteration, loss=1.0)
    talk.report("t00001", 1, loss=1.0)
    progress = look_at(talk.experiment, "demo", 10.0, full_iteration=4)
    assert (progress.num_underway, progress.fraction, progress.remaining_s) == (1.0, 0.25, 30.0)
    assert look(talk, 10.0).remaining_s is None


def test_the_estimate_for_the_last_trial_ignores_how_many_were_stopped_early():
    talk = Conversation(max_trials=1, capacity={"cpu": 1.0}, metric="loss", mode="min")
    talk.begin(1)
    talk.report("t00000", 2, loss=1.0, time_total_s=10.0)
    assert look_at(talk.experiment, "demo", 10.0, full_iteration=27).longest_left_s == 125.0
    assert look_at(talk.experiment, "demo", 10.0).longest_left_s == 0.0


def test_more_iterations_than_a_full_training_count_as_one():
    talk = Conversation(max_trials=2, capacity={"cpu": 1.0}, metric="loss", mode="min")
    talk.begin(1)
    for iteration in range(1, 10):
        talk.report("t00000", iteration, loss=1.0)
    assert look_at(talk.experiment, "demo", 10.0, full_iteration=4).num_underway == 1.0


@pytest.mark.parametrize(
    ("num_to_come", "num_pending", "remaining_s"), [(10, 0, 10.0), (10, 10, 10.0), (0, 0, None)]
)
def test_paused_trials_count_as_long_as_others_are_to_come_and_leave_the_end_open_after_that(
    num_to_come, num_pending, remaining_s
):
    statuses = {Status.PAUSED: 8, Status.TERMINATED: 2, Status.PENDING: num_pending}
    num_trials = 10 + num_to_come
    progress = Progress(
        "demo",
        num_trials_by_status=statuses,
        num_total=num_trials,
        num_finished=2,
        num_underway=8.0,
        elapsed_s=10.0,
    )
    assert progress.remaining_s == remaining_s


def test_a_notebook_shows_a_table_in_which_nothing_is_markup():
    shown = Progress(
        "<b>x</b>",
        num_total=4,
        num_finished=1,
        num_trials_by_status={Status.RUNNING: 2},
        elapsed_s=3.0,
    )._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in shown
    assert "<td>1 of 4 trials</td>" in shown
    assert "<td>2 RUNNING</td>" in shown


def test_a_trial_that_waits_has_a_reason():
    talk = Conversation(capacity={"cpu": 3.0}, max_trials=2)
    group = WorkerGroup(2, {"cpu": 1.0}, 2, 2)
    talk.say()
    for number in range(2):
        talk.say(TrialSuggested(f"t{number:05d}", {}, group.total, group=group))
    talk.say(WorkerStarted("t00000", 1, 7))
    assert look(talk).waiting_for == "free cpu for 2 workers"
    assert why_waiting(talk.experiment, talk.trial("t00001")) == "waits for free cpu for 2 workers"
    assert why_waiting(talk.experiment, talk.trial("t00000")) == ""


def test_a_trial_is_held_while_too_many_of_its_checkpoints_are_to_be_validated():
    policy = ValidationPolicy(max_pending=2)
    talk = Conversation(max_trials=1, validation=policy)
    talk.begin(1)
    trial = talk.trial("t00000")
    for index in range(2):
        assert why_waiting(talk.experiment, trial) == ""
        event = result("t00000", index + 1, 1, CheckpointRecord(index, index + 1))
        talk.say(replace(event, validation=ValidationRequest()))
        seen = look(talk)
        assert (seen.num_validating, seen.num_to_validate) == (1, index)
    assert seen.held == (trial,)
    assert "one of the 2 validations" in why_waiting(talk.experiment, trial)
    talk.say(ValidationEnded("t00000", 0, 1, Outcome.COMPLETED, {"acc": 0.5}))
    assert look(talk).held == ()
    talk.exit("t00000", Outcome.COMPLETED)
    assert "when 1 more of its checkpoints" in why_waiting(talk.experiment, trial)
