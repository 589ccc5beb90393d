"""Budgets of hours and iterations: what is spent, and that the experiment ends when all is."""

import pytest

from tests.core.conversation import (
    BOOM,
    Conversation,
    Validating,
    answers,
    cluster,
    result,
    starts,
)
from tuner.core.events import (
    DriverRestarted,
    LeaseOwner,
    LeaseRequested,
    NodeLeft,
    Outcome,
    TrialSuggested,
    WorkerStarted,
)
from tuner.core.progress import look_at
from tuner.core.settings import ExperimentSettings, ValidationPolicy
from tuner.core.trial import TerminationReason
from tuner.core.worker_records import CheckpointRecord, WorkerGroup

HOUR_S = 3600.0


def talk(num_trials=1, *, capacity=None, ask=None, **settings):
    conversation = Conversation(
        capacity=capacity or {"cpu": 2.0}, **{"max_trials": num_trials} | settings
    )
    conversation.begin(num_trials, **ask or {})
    return conversation


def spent(conversation):
    progress = look_at(conversation.experiment, "", conversation.now_s)
    return {use.unit: round(use.spent_at(conversation.now_s), 9) for use in progress.budgets}


def restart(conversation, **changes):
    settings = ExperimentSettings(
        **{
            "capacity": conversation.experiment.settings.capacity,
            "max_trials": conversation.experiment.settings.max_trials,
            "budget": conversation.experiment.settings.budget,
        }
        | changes
    )
    commands = conversation.say(DriverRestarted(settings))
    for trial_id, attempt in starts(commands):
        conversation.say(WorkerStarted(trial_id, attempt, pid=1))
    return starts(commands)


def test_hours_are_those_of_what_trials_occupy():
    gpus = {"cpu": 8.0, "gpu": 2.0}
    limits = {"gpu_hours": 100, "cpu_hours": 100, "trial_hours": 100}
    conversation = talk(2, capacity=gpus, ask={"cpu": 3.0, "gpu": 0.5}, budget=limits)
    conversation.say(after_s=2 * HOUR_S)
    assert spent(conversation) == {"gpu_hours": 2.0, "cpu_hours": 12.0, "trial_hours": 4.0}
    conversation.exit("t00000", Outcome.COMPLETED)
    conversation.say(after_s=HOUR_S)
    assert spent(conversation) == {"gpu_hours": 2.5, "cpu_hours": 15.0, "trial_hours": 5.0}


def test_the_hours_of_a_group_are_those_of_all_its_workers():
    group = WorkerGroup(3, {"cpu": 1.0, "gpu": 0.5}, 3, 3)
    conversation = Conversation(
        capacity={"cpu": 4.0, "gpu": 2.0}, max_trials=1, budget={"gpu_hours": 100}
    )
    [asked] = conversation.say()
    conversation.say(TrialSuggested(asked.trial_id, {}, group.total, group=group))
    conversation.say(after_s=2 * HOUR_S)
    assert spent(conversation) == {"gpu_hours": 3.0}


def test_the_experiment_is_interrupted_when_a_budget_is_used_up():
    conversation = talk(2, max_trials=3, budget={"cpu_hours": 3.0, "iterations": 100})
    assert conversation.experiment.next_deadline_s() is not None
    conversation.say(after_s=HOUR_S)
    assert not conversation.experiment.is_stopping
    due_s = conversation.experiment.next_deadline_s()
    while due_s < 1.5 * HOUR_S:  # trials that are silent are looked at before
        conversation.say(after_s=due_s - conversation.now_s)
        due_s = conversation.experiment.next_deadline_s()
    assert due_s == 1.5 * HOUR_S
    conversation.say(after_s=due_s - conversation.now_s)
    reason = conversation.experiment.stop_reason
    assert (reason.rule, dict(reason.numbers)) == (
        "budget",
        {"unit": "cpu_hours", "budget": 3.0, "spent": 3.0},
    )
    # As after a time budget: they are asked to save and leave, and no other trial starts.
    reports = conversation.say(result("t00000", 1), result("t00001", 1))
    assert [reply for _, reply, _ in answers(reports)] == ["stop", "stop"]
    for trial_id in ("t00000", "t00001"):
        assert starts(conversation.exit(trial_id, Outcome.STOPPED)) == []
        assert conversation.trial(trial_id).ending is TerminationReason.INTERRUPTED
    assert conversation.experiment.is_finished


def test_an_experiment_that_stops_waits_for_no_budget():
    conversation = talk(budget={"trial_hours": 1.0})
    conversation.say(after_s=HOUR_S)
    assert conversation.experiment.is_stopping
    assert conversation.experiment.next_deadline_s() > HOUR_S  # until the worker is killed


def test_iterations_of_all_trials_and_attempts_count():
    conversation = talk(2, budget={"iterations": 7}, max_failures=1)
    conversation.report("t00000", 1, CheckpointRecord(0, 1))
    conversation.report("t00000", 3)  # a command may report every second epoch
    conversation.report("t00001", 1)
    assert spent(conversation) == {"iterations": 4}
    [(trial_id, attempt)] = starts(conversation.exit("t00000", Outcome.FAILED, BOOM))
    conversation.say(WorkerStarted(trial_id, attempt, pid=2))
    conversation.report("t00000", 2)  # once more
    assert spent(conversation) == {"iterations": 5}
    conversation.restore_from_snapshot()
    conversation.report("t00000", 3)
    assert not conversation.experiment.is_stopping
    assert answers(conversation.report("t00001", 2))[0][1] == "stop"
    assert conversation.experiment.stop_reason.numbers["unit"] == "iterations"


def test_a_retry_spends_its_hours():
    conversation = talk(budget={"cpu_hours": 9.0}, max_failures=1)
    conversation.say(after_s=HOUR_S)
    conversation.exit("t00000", Outcome.FAILED, BOOM)
    conversation.say(after_s=HOUR_S)
    assert spent(conversation) == {"cpu_hours": 2.0}


@pytest.mark.parametrize(("num_cpus", "hours"), [(4.0, 4.0), (1.0, 3.0)])
def test_validations_spend_hours_those_without_a_free_cpu_included(num_cpus, hours):
    policy = ValidationPolicy({"cpu": 2.0 if num_cpus > 1 else 1.0})
    conversation = Validating(
        capacity={"cpu": num_cpus}, validation=policy, budget={"cpu_hours": 100}
    )
    conversation.validate("t00000", 1)
    conversation.say(after_s=HOUR_S)
    conversation.end("t00000", 0, {"acc": 0.5})
    conversation.say(after_s=HOUR_S)
    assert spent(conversation) == {"cpu_hours": hours}


def test_leases_spend_hours():
    conversation = talk(capacity={"cpu": 4.0}, budget={"cpu_hours": 100})
    wanted = WorkerGroup(3, {"cpu": 1.0}, 3, 3)
    conversation.say(LeaseRequested(LeaseOwner("t00000", 1), "a", wanted))
    conversation.say(after_s=HOUR_S)
    assert spent(conversation) == {"cpu_hours": 4.0}


def test_trials_on_nodes_spend_hours_until_their_node_leaves():
    conversation = cluster(2, budget={"cpu_hours": 100})
    conversation.say(after_s=HOUR_S)
    conversation.say(NodeLeft("a", "preempted"))
    conversation.say(after_s=HOUR_S)
    assert spent(conversation) == {"cpu_hours": 3.0}


def test_what_is_spent_outlives_the_driver_and_a_larger_budget_goes_on():
    conversation = talk(max_trials=2, budget={"cpu_hours": 4.0}, capacity={"cpu": 1.0})
    conversation.say(after_s=3 * HOUR_S)
    conversation.restore_from_snapshot()
    # The driver dies. The next one begins with the time of the last record.
    assert restart(conversation) == [("t00000", 2)]
    assert spent(conversation) == {"cpu_hours": 3.0}
    conversation.say(after_s=HOUR_S)
    assert conversation.experiment.is_stopping
    conversation.report("t00000", 1)
    conversation.exit("t00000", Outcome.STOPPED)
    assert restart(conversation, budget={"cpu_hours": 6.0}) == [("t00000", 3)]
    assert spent(conversation) == {"cpu_hours": 4.0}
    conversation.say(after_s=HOUR_S)
    assert not conversation.experiment.is_stopping
    conversation.say(after_s=HOUR_S)
    assert conversation.experiment.is_stopping


def test_a_budget_that_is_spent_already_starts_nothing():
    conversation = talk(max_trials=2, budget={"trial_hours": 1.0}, capacity={"cpu": 1.0})
    conversation.say(after_s=HOUR_S)
    conversation.report("t00000", 1)
    conversation.exit("t00000", Outcome.STOPPED)
    assert restart(conversation) == []
    assert conversation.experiment.is_finished
    assert [trial.ending for trial in conversation.experiment.trials] == ["interrupted"]


def test_other_units_of_a_later_budget_have_been_counted_as_well():
    conversation = talk(budget={"cpu_hours": 9.0})
    conversation.say(after_s=HOUR_S)
    conversation.report("t00000", 1)
    restart(conversation, budget={"iterations": 9, "trial_hours": 9.0})
    assert spent(conversation) == {"iterations": 1, "trial_hours": 1.0}
    restart(conversation, budget={})
    assert spent(conversation) == {}
    conversation.say(after_s=HOUR_S)
    restart(conversation, budget={"cpu_hours": 9.0})
    assert spent(conversation) == {"cpu_hours": 2.0}


def test_a_budget_that_comes_late_begins_with_what_results_tell():
    conversation = talk(ask={"cpu": 2.0})
    conversation.say(result("t00000", 3, time_total_s=HOUR_S), after_s=2 * HOUR_S)
    restart(conversation, budget={"cpu_hours": 9.0, "iterations": 9, "trial_hours": 9.0})
    assert spent(conversation) == {"cpu_hours": 2.0, "iterations": 3, "trial_hours": 1.0}
    conversation.restore_from_snapshot()
    conversation.say(after_s=HOUR_S)
    assert spent(conversation) == {"cpu_hours": 4.0, "iterations": 3, "trial_hours": 2.0}


def test_what_is_left_counts_from_when_it_last_changed():
    conversation = talk(2, budget={"cpu_hours": 3.0})
    conversation.say(after_s=HOUR_S)
    progress = look_at(conversation.experiment, "", conversation.now_s + HOUR_S / 4)
    [use] = progress.budgets
    assert (use.spent_at(progress.elapsed_s), use.left_at(progress.elapsed_s)) == (2.5, 0.5)
    assert (progress.fraction, progress.remaining_s) == (0.0, HOUR_S / 4)
