"""Leases: resources that a trial's code is granted for an experiment of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation import Conversation, answers, kills, starts
from tuner.core.commands import GrantLease, KillValidation, RefuseLease, StartValidation
from tuner.core.events import (
    DriverRestarted,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    Outcome,
    ResultReported,
    StopRequested,
    ValidationEnded,
    WorkerStarted,
)
from tuner.core.settings import ExperimentSettings, ValidationPolicy
from tuner.core.trial import Status
from tuner.core.worker_records import CheckpointRecord, ValidationRequest, WorkerGroup

FIRST, SECOND, THIRD = (LeaseOwner(f"t0000{number}", 1) for number in range(3))


def group(fewest, most=None, **share):
    return WorkerGroup(most or fewest, share or {"cpu": 1.0}, fewest, most or fewest)


def talk(num_trials, *, cpu=4.0, gpu=0.0, **settings):
    capacity = {"cpu": cpu, "gpu": gpu} if gpu else {"cpu": cpu}
    conversation = Conversation(capacity=capacity, max_trials=num_trials, **settings)
    conversation.begin(num_trials)
    return conversation


def ask(conversation, owner, wanted, name="a"):
    return conversation.say(LeaseRequested(owner, name, wanted))


def release(conversation, owner, name="a"):
    return conversation.say(LeaseReleased(owner, name))


def granted(commands):
    """Return the leases granted as (trial, workers, devices)."""
    return [
        (c.owner.trial_id, c.num_workers, c.gpu_ids) for c in commands if isinstance(c, GrantLease)
    ]


def refused(commands):
    return [(c.owner, c.is_deadlock) for c in commands if isinstance(c, RefuseLease)]


def used(conversation):
    return conversation.experiment.trial_table.nodes.used["cpu"]


def test_a_lease_is_granted_when_the_turn_ends_and_holds_its_resources():
    conversation = talk(1, gpu=2.0)
    assert granted(ask(conversation, FIRST, group(2, cpu=1.0, gpu=1.0))) == [("t00000", 2, (0, 1))]
    assert used(conversation) == 3.0
    conversation.restore_from_snapshot()
    assert used(conversation) == 3.0
    release(conversation, FIRST)
    assert used(conversation) == 1.0


def test_a_lease_has_as_many_workers_as_fit():
    conversation = talk(1)
    assert granted(ask(conversation, FIRST, group(1, 8))) == [("t00000", 3, ())]


def test_leases_are_granted_in_the_order_of_the_requests():
    conversation = talk(3)
    assert granted(ask(conversation, FIRST, group(1))) == [("t00000", 1, ())]
    assert granted(ask(conversation, SECOND, group(1))) == []
    # It would have room as soon as the next one has, and waits its turn.
    assert granted(ask(conversation, THIRD, group(1))) == []
    conversation.restore_from_snapshot()
    assert granted(release(conversation, FIRST)) == [("t00001", 1, ())]
    assert granted(conversation.exit("t00000", Outcome.COMPLETED)) == [("t00002", 1, ())]


def test_a_lease_precedes_new_trials():
    conversation = Conversation(capacity={"cpu": 3.0}, max_trials=4, max_pending=4)
    conversation.begin(4)
    assert granted(ask(conversation, FIRST, group(2))) == []
    assert starts(conversation.exit("t00001", Outcome.COMPLETED)) == []
    commands = conversation.exit("t00002", Outcome.COMPLETED)
    assert (granted(commands), starts(commands)) == ([("t00000", 2, ())], [])
    assert starts(release(conversation, FIRST)) == [("t00003", 1)]


def test_a_lease_ends_with_its_owners_worker():
    conversation = talk(2)
    ask(conversation, FIRST, group(2))
    ask(conversation, SECOND, group(2))
    assert granted(conversation.exit("t00000", Outcome.LOST)) == [("t00001", 2, ())]
    conversation.exit("t00001", Outcome.COMPLETED)
    assert used(conversation) == 1.0


def test_a_lease_ends_with_the_driver():
    conversation = talk(1)
    ask(conversation, FIRST, group(2))
    conversation.say(DriverRestarted(ExperimentSettings({"cpu": 2.0})))
    assert used(conversation) == 1.0


def test_a_process_that_is_gone_gets_none():
    conversation = talk(1, max_failures=1)
    conversation.exit("t00000", Outcome.LOST)
    assert granted(ask(conversation, FIRST, group(1))) == []
    assert granted(ask(conversation, LeaseOwner("t00009", 1), group(1))) == []


def test_a_request_that_is_made_twice_or_withdrawn_counts_as_it_should():
    conversation = talk(2)
    ask(conversation, FIRST, group(2))
    assert granted(ask(conversation, FIRST, group(2))) == []
    ask(conversation, SECOND, group(2))
    release(conversation, SECOND)
    assert granted(release(conversation, FIRST)) == []
    assert used(conversation) == 2.0


def test_a_lease_that_can_never_fit_is_refused_at_once_with_the_numbers():
    conversation = talk(2)
    commands = ask(conversation, FIRST, group(4))
    assert refused(commands) == [(FIRST, False)]
    assert commands[0].reason == (
        "4 workers with 1 cpu each beside the process that asks for them never fit: the experiment "
        "has 4 cpu in all, of which that process holds 1 cpu, enough for 3 more; use fewer "
        "workers, ask for less for each, or let the trial itself ask for less with with_resources"
    )
    assert granted(ask(conversation, FIRST, group(3))) == []  # it has to wait for the other trial


def test_where_all_wait_for_each_other_the_newest_is_refused():
    conversation = talk(2)
    assert refused(ask(conversation, FIRST, group(3))) == []
    commands = ask(conversation, SECOND, group(3))
    assert refused(commands) == [(SECOND, True)]
    (refusal,) = [command for command in commands if isinstance(command, RefuseLease)]
    assert "set max_concurrent_trials so that fewer trials run at once" in refusal.reason
    assert "do not fit into the 2 cpu that are free" in refusal.reason
    # The other one waits until this one has left.
    assert granted(conversation.exit("t00001", Outcome.COMPLETED)) == [("t00000", 3, ())]


def test_a_smaller_lease_that_was_asked_for_later_is_granted_before_any_is_refused():
    conversation = talk(2)
    ask(conversation, FIRST, group(3))
    commands = ask(conversation, SECOND, group(2))
    assert (granted(commands), refused(commands)) == ([("t00001", 2, ())], [])


def test_a_process_that_trains_in_a_lease_is_not_stuck():
    conversation = talk(2)
    ask(conversation, FIRST, group(2))
    ask(conversation, FIRST, group(2), name="another thread")
    assert refused(ask(conversation, SECOND, group(2))) == []
    assert granted(release(conversation, FIRST)) == [("t00000", 2, ())]


def test_a_stopping_experiment_refuses_all_that_wait():
    conversation = talk(2)
    ask(conversation, FIRST, group(2))
    ask(conversation, SECOND, group(2))
    assert refused(conversation.say(StopRequested("signal.SIGINT"))) == [(SECOND, False)]


def test_a_trial_that_waits_for_a_lease_does_not_count_as_hung():
    conversation = talk(2, report_timeout_s=10.0)
    ask(conversation, FIRST, group(2))
    conversation.report("t00001", 1)
    ask(conversation, SECOND, group(2))
    conversation.report("t00000", 1)
    assert kills(conversation.say(after_s=9.0)) == []
    conversation.report("t00000", 2)
    assert kills(conversation.say(after_s=9.0)) == []
    assert granted(release(conversation, FIRST)) == [("t00001", 2, ())]
    assert kills(conversation.say(after_s=9.0)) == ["t00000"]
    assert kills(conversation.say(after_s=1.0)) == ["t00001"]


def test_a_request_that_is_withdrawn_lets_the_time_to_report_run_again():
    conversation = talk(2, report_timeout_s=10.0)
    ask(conversation, FIRST, group(2))
    ask(conversation, SECOND, group(2))
    conversation.report("t00000", 1)
    conversation.say(after_s=9.0)
    conversation.report("t00000", 2)
    release(conversation, SECOND)
    assert kills(conversation.say(after_s=9.9)) == []
    assert kills(conversation.say(after_s=0.1)) == ["t00000", "t00001"]


def test_the_time_to_report_runs_again_only_when_no_request_of_the_trial_waits():
    conversation = talk(1, report_timeout_s=10.0)
    ask(conversation, FIRST, group(2), "a")
    ask(conversation, FIRST, group(3), "b")
    ask(conversation, FIRST, group(3), "c")
    assert kills(conversation.say(after_s=20.0)) == []
    release(conversation, FIRST, "c")
    assert kills(conversation.say(after_s=20.0)) == []
    assert granted(release(conversation, FIRST, "a")) == [("t00000", 3, ())]
    assert kills(conversation.say(after_s=9.9)) == []
    assert kills(conversation.say(after_s=0.1)) == ["t00000"]


def validating(timeout_s=None, max_pending=None, **settings):
    """Return a conversation in which a checkpoint of the only trial is being validated."""
    policy = ValidationPolicy(timeout_s=timeout_s, max_pending=max_pending)
    conversation = talk(1, validation=policy, **settings)
    commands = conversation.say(
        ResultReported(
            "t00000",
            1,
            {"training_iteration": 1},
            CheckpointRecord(0, 1),
            validation=ValidationRequest(),
        )
    )
    (start,) = [command for command in commands if isinstance(command, StartValidation)]
    return conversation, LeaseOwner("t00000", start.num_try, start.checkpoint.index)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.LOST])
def test_a_validator_may_have_a_lease_that_ends_with_it(outcome):
    conversation, validator = validating()
    assert granted(ask(conversation, validator, group(2))) == [("t00000", 2, ())]
    conversation.restore_from_snapshot()
    assert used(conversation) == 4.0
    metrics = {"accuracy": 1.0} if outcome is Outcome.COMPLETED else None
    conversation.exit("t00000", Outcome.COMPLETED)
    conversation.say(ValidationEnded("t00000", 0, validator.attempt, outcome, metrics))
    assert used(conversation) in {0.0, 1.0}  # a lost one is tried again


def test_a_validator_waits_for_its_trial_to_end():
    conversation, validator = validating(cpu=3.0)
    assert granted(ask(conversation, validator, group(2))) == []
    assert granted(conversation.exit("t00000", Outcome.COMPLETED)) == [("t00000", 2, ())]


def test_trials_that_wait_for_a_lease_can_be_told_to_stop_one_by_one():
    conversation = talk(2)
    ask(conversation, FIRST, group(2))
    ask(conversation, SECOND, group(2))
    assert granted(conversation.exit("t00000", Outcome.COMPLETED)) == [("t00001", 2, ())]
    assert conversation.trial("t00000").status is Status.TERMINATED
    conversation.exit("t00001", Outcome.COMPLETED)
    assert used(conversation) == 0.0


def killed(commands):
    return [command for command in commands if isinstance(command, KillValidation)]


def test_the_time_limit_of_a_validation_does_not_run_while_it_waits_for_a_lease():
    conversation, validator = validating(timeout_s=10.0, cpu=3.0)
    conversation.say(after_s=4.0)
    assert granted(ask(conversation, validator, group(2))) == []
    conversation.restore_from_snapshot()
    assert killed(conversation.say(after_s=100.0)) == []
    commands = conversation.exit("t00000", Outcome.COMPLETED)
    assert granted(commands) == [("t00000", 2, ())]
    conversation.restore_from_snapshot()
    assert killed(conversation.say(after_s=5.9)) == []
    assert len(killed(conversation.say(after_s=0.1))) == 1


def test_the_time_limit_runs_again_when_the_request_is_withdrawn():
    conversation, validator = validating(timeout_s=10.0, cpu=3.0)
    ask(conversation, validator, group(2))
    conversation.say(after_s=100.0)
    release(conversation, validator)
    assert killed(conversation.say(after_s=9.9)) == []
    assert len(killed(conversation.say(after_s=0.1))) == 1


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 2), st.integers(1, 4), st.integers(0, 2)),
    st.tuples(st.sampled_from(["release", "report", "exit", "restore"]), st.integers(0, 2)),
)


@given(st.lists(STEPS, min_size=5, max_size=25))
def test_whatever_is_asked_for_not_all_processes_wait_for_each_other(steps):
    conversation = talk(3, cpu=6.0, max_failures=-1)
    answered = {}
    for name, (action, number, *sizes) in enumerate(steps):
        trial = conversation.trial(f"t0000{number}")
        owner = LeaseOwner(trial.trial_id, trial.attempt)
        held = [token for holder, token in answered if holder == owner]
        match action:
            case "ask" if not held:  # a process asks for one after the other
                answered[owner, str(name)] = None
                fewest, more = sizes
                commands = ask(conversation, owner, group(fewest, fewest + more), str(name))
            case "release" if held and answered[owner, held[0]]:
                del answered[owner, held[0]]
                commands = release(conversation, owner, held[0])
            case "exit":
                answered = {key: value for key, value in answered.items() if key[0] != owner}
                commands = conversation.exit(trial.trial_id, Outcome.LOST)
                commands += conversation.say(WorkerStarted(trial.trial_id, trial.attempt, pid=1))
            case "restore":
                conversation.restore_from_snapshot()
                continue
            case "report" if not held:
                commands = conversation.report(trial.trial_id, trial.iteration + 1)
            case _:
                continue
        for command in commands:
            if isinstance(command, GrantLease):
                answered[command.owner, command.token] = command.num_workers
            elif isinstance(command, RefuseLease):
                del answered[command.owner, command.token]
        running = conversation.experiment.trial_table.live.values()
        waiting = {owner for (owner, _), count in answered.items() if count is None}
        assert not running or any(
            LeaseOwner(trial.trial_id, trial.attempt) not in waiting for trial in running
        )


def test_a_trial_is_not_held_for_a_validation_that_waits_for_what_it_holds():
    conversation, validator = validating(max_pending=1, cpu=2.0)
    assert conversation.experiment.held_trials
    commands = ask(conversation, validator, group(1))
    assert answers(commands) == [("t00000", "continue", False)]
    assert refused(commands) == []
    conversation.restore_from_snapshot()
    assert granted(conversation.exit("t00000", Outcome.COMPLETED)) == [("t00000", 1, ())]


def test_a_trial_is_held_for_a_validation_that_has_what_it_asked_for():
    conversation, validator = validating(max_pending=1, cpu=4.0)
    commands = ask(conversation, validator, group(2))
    assert granted(commands) == [("t00000", 2, ())]
    assert answers(commands) == []
