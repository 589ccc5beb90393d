"""Trials that train in several processes: what they are granted, and with how many they start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Pause, Reason, Resize, Resume
from tests.core.conversation import (
    Conversation,
    ScriptedScheduler,
    answers,
    result,
    starts,
)
from tuner.core.commands import AskSearcher, StartWorker
from tuner.core.events import DriverRestarted, Outcome, TrialSuggested, WorkerStarted
from tuner.core.resources import ResourcePool
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Status
from tuner.core.worker_records import CheckpointRecord, WorkerGroup
from tuner.errors import InvalidDecision


def group(fewest, most=None, **share):
    return WorkerGroup(most or fewest, share or {"cpu": 1.0}, fewest, most or fewest)


def started(commands):
    """Return the starts among the commands as (trial, number of workers)."""
    return [(c.trial_id, c.group.num_workers) for c in commands if isinstance(c, StartWorker)]


def begin(conversation, *groups):
    """Suggest a trial for each group; return who was started with how many workers."""
    conversation.say()
    commands = conversation.say(
        *[
            TrialSuggested(f"t{number:05d}", {"x": 1}, each.total, group=each)
            for number, each in enumerate(groups)
        ]
    )
    found = started(commands)
    for command in commands:
        if isinstance(command, StartWorker):
            conversation.say(WorkerStarted(command.trial_id, command.attempt, pid=1))
    return found


def talk(num_trials, scheduler=None, **settings):
    return Conversation(scheduler, max_trials=num_trials, max_pending=num_trials, **settings)


# ------------------------------------------------------------------- the pool


def test_all_workers_of_a_group_are_granted_or_none():
    pool = ResourcePool({"cpu": 3.0})
    assert pool.acquire(group(2, cpu=2.0)) is None
    assert pool.used == {"cpu": 0.0}
    assert pool.acquire(group(3)) == ()
    assert pool.used == {"cpu": 3.0}


def test_each_rank_finds_its_whole_devices_side_by_side():
    pool = ResourcePool({"gpu": 5})
    assert pool.acquire({"gpu": 1}) == (0,)
    assert pool.acquire(group(2, gpu=2.0)) == (1, 2, 3, 4)


def test_ranks_with_a_fraction_get_one_device_each_and_may_share_it():
    pool = ResourcePool({"gpu": 2})
    request = group(3, gpu=0.5)
    assert pool.acquire(request) == (0, 0, 1)
    assert pool.acquire({"gpu": 1}) is None
    assert pool.acquire({"gpu": 0.5}) == (1,)
    pool.release(request, (0, 0, 1))
    assert pool.acquire({"gpu": 1}) == (0,)


def test_fractions_that_do_not_fit_beside_each_other_need_a_device_each():
    pool = ResourcePool({"gpu": 2})
    assert "enough for 2" in pool.misfit(group(3, gpu=0.6))
    assert pool.misfit(group(2, gpu=0.6)) == ""
    assert pool.acquire(group(3, gpu=0.6)) is None
    assert pool.used == {"gpu": 0.0}


def test_a_group_that_can_never_be_granted_has_a_reason_with_numbers():
    pool = ResourcePool({"cpu": 4.0, "gpu": 1.0})
    assert pool.misfit(group(4, 8)) == ""
    assert pool.misfit(group(2, 8, cpu=1.0, gpu=1.0)) == (
        "the trial asks for 2 workers with {'cpu': 1.0, 'gpu': 1.0} each, the experiment has "
        "{'cpu': 4.0, 'gpu': 1.0} in all, enough for one; use fewer workers, or ask for less for "
        "each"
    )
    assert "enough for none" in pool.misfit(group(2, tpu=1.0))
    assert "gpu of each worker must be a fraction below 1" in pool.misfit(group(1, gpu=1.5))


SHARES = st.fixed_dictionaries(
    {"cpu": st.sampled_from([0.5, 1.0, 2.0])},
    optional={"gpu": st.sampled_from([0.25, 0.3, 0.5, 0.6, 1.0, 2.0])},
)


@st.composite
def groups(draw):
    fewest = draw(st.integers(1, 4))
    most = draw(st.integers(fewest, 6))
    count = draw(st.integers(fewest, most))
    return WorkerGroup(count, draw(SHARES), fewest, most)


@given(
    st.integers(1, 8),
    st.integers(0, 4),
    st.lists(st.tuples(groups(), st.integers(0, 3)), min_size=1, max_size=25),
)
def test_nothing_is_granted_twice_and_nothing_leaks(cpus, gpus, steps):
    pool, held = ResourcePool({"cpu": cpus, "gpu": gpus}), []
    for wanted, choice in steps:
        if held and choice == 0:
            pool.release(*held.pop())
        elif sized := pool.largest_fitting(wanted):
            assert wanted.min_workers <= sized.num_workers <= wanted.max_workers
            devices = pool.acquire(sized)
            assert devices is not None, "as many as fit were not granted"
            share = sized.resources_per_worker.get("gpu", 0.0)
            assert len(devices) == (sized.num_workers * max(1, int(share)) if share else 0)
            held.append((sized, devices))
        else:
            assert pool.acquire(wanted.resized(wanted.min_workers)) is None
        load = [0.0] * gpus
        for request, devices in held:
            for device in devices:
                load[device] += min(request.resources_per_worker["gpu"], 1.0)
        assert all(share <= 1 + 1e-9 for share in load)
        assert pool.used["cpu"] == sum(request.total["cpu"] for request, _ in held) <= cpus
    for grant in held:
        pool.release(*grant)
    assert set(pool.used.values()) == {0.0}


@given(st.integers(0, 12), groups())
def test_groups_are_counted_as_they_would_be_started(cpus, wanted):
    wanted = WorkerGroup(wanted.num_workers, {"cpu": 1.0}, wanted.min_workers, wanted.max_workers)
    pool = ResourcePool({"cpu": cpus})
    expected, count = pool.num_fitting(wanted, 20), 0
    while sized := pool.largest_fitting(wanted):
        pool.acquire(sized)
        count += 1
    assert count == expected


# ------------------------------------------------------------------- starts


def test_a_trial_starts_with_as_many_workers_as_fit():
    conversation = talk(3, capacity={"cpu": 5.0})
    assert begin(conversation, group(2, 3), group(1, 4), group(1, 4)) == [
        ("t00000", 3),
        ("t00001", 2),
    ]
    assert dict(conversation.trial("t00001").resources) == {"cpu": 2.0}
    assert started(conversation.exit("t00000", Outcome.COMPLETED)) == [("t00002", 3)]


def test_each_start_chooses_the_size_anew():
    conversation = talk(2, capacity={"cpu": 4.0}, max_failures=1)
    assert begin(conversation, group(1, 4), group(1, 1)) == [("t00000", 4)]
    # The other one gets in first, since it has waited longer.
    lost = conversation.exit("t00000", Outcome.LOST)
    assert started(lost) == [("t00001", 1), ("t00000", 3)]


def test_devices_of_all_ranks_are_told_with_the_start_and_come_back():
    conversation = talk(2, capacity={"cpu": 8.0, "gpu": 4.0})
    conversation.say()
    share = group(2, cpu=1.0, gpu=2.0)
    commands = conversation.say(
        TrialSuggested("t00000", {}, share.total, group=share),
        TrialSuggested("t00001", {}, share.total, group=share),
    )
    (start,) = [command for command in commands if isinstance(command, StartWorker)]
    assert (start.gpu_ids, start.resources) == ((0, 1, 2, 3), {"cpu": 2.0, "gpu": 4.0})
    conversation.restore_from_snapshot()
    again = conversation.exit("t00000", Outcome.LOST)
    assert [c.gpu_ids for c in again if isinstance(c, StartWorker)] == [(0, 1, 2, 3)]


def test_a_group_that_can_never_fit_fails_with_the_numbers_and_the_others_go_on():
    conversation = talk(2, capacity={"cpu": 2.0})
    assert begin(conversation, group(3), group(2)) == [("t00001", 2)]
    failed = conversation.trial("t00000")
    assert failed.status is Status.ERROR
    assert "asks for 3 workers" in failed.failures[-1].message


def test_the_searcher_is_asked_for_as_many_trials_as_have_room():
    settings = {"default_request": {"cpu": 4.0}, "default_group": group(2, 4)}
    conversation = Conversation(capacity={"cpu": 10.0}, **settings)
    # Two with four workers each, and one with the two that are left.
    assert sum(isinstance(command, AskSearcher) for command in conversation.say()) == 3


def test_a_restarted_driver_with_less_gives_up_what_can_never_fit():
    conversation = talk(1, capacity={"cpu": 4.0})
    begin(conversation, group(3))
    conversation.say(DriverRestarted(ExperimentSettings({"cpu": 2.0})))
    assert conversation.trial("t00000").status is Status.ERROR


# ------------------------------------------------------------------- another declaration


def restart(conversation, *, cpus=8.0, **groups):
    """Let another driver take over, with trials that are declared otherwise; return the starts."""
    settings = ExperimentSettings({"cpu": cpus}, max_trials=len(conversation.experiment.trials))
    return started(conversation.say(DriverRestarted(settings, groups=groups)))


def test_a_restored_trial_starts_with_the_workers_that_are_declared_now():
    conversation = talk(3, capacity={"cpu": 5.0})
    assert begin(conversation, group(2), group(2), group(2)) == [("t00000", 2), ("t00001", 2)]
    others = {"t00000": group(3), "t00002": group(1, 4)}
    assert dict(restart(conversation, **others)) == {"t00000": 3, "t00001": 2, "t00002": 3}
    conversation.restore_from_snapshot()
    assert conversation.exit("t00000", Outcome.COMPLETED) == []
    assert dict(conversation.experiment.trial_table.nodes.used) == {"cpu": 5.0}


def test_a_paused_trial_resumes_with_the_workers_that_are_declared_now():
    pause = Pause("t00000", Reason("test"))
    conversation = talk(2, ScriptedScheduler({("t00000", 1): [pause]}), capacity={"cpu": 4.0})
    begin(conversation, group(2), group(1))
    conversation.report("t00000", 1, CheckpointRecord(0, 1))
    conversation.exit("t00000", Outcome.STOPPED)
    conversation.scheduler.idle = [[Resume("t00000", Reason("test"))]]
    assert restart(conversation, t00000=group(4)) == [("t00001", 1), ("t00000", 4)]


def test_a_trial_that_is_over_keeps_the_workers_that_it_had():
    conversation = talk(1, capacity={"cpu": 4.0})
    begin(conversation, group(2))
    conversation.exit("t00000", Outcome.COMPLETED)
    assert restart(conversation, t00000=group(4)) == []
    assert conversation.trial("t00000").group.num_workers == 2


@pytest.mark.parametrize(("declared", "num_workers"), [(group(2, 6), 3), (group(4, 6), 6)])
def test_a_decided_size_outlasts_another_declaration_if_it_is_still_possible(declared, num_workers):
    conversation = talk(1, ScriptedScheduler(), capacity={"cpu": 8.0})
    begin(conversation, group(1, 4))
    resize(conversation, "t00000", 1, cpu=3.0)
    conversation.exit("t00000", Outcome.STOPPED)
    assert restart(conversation, t00000=declared) == [("t00000", num_workers)]


def test_more_workers_than_can_ever_fit_fail_the_trial_at_the_restart():
    conversation = talk(1, capacity={"cpu": 4.0})
    begin(conversation, group(2))
    assert restart(conversation, cpus=4.0, t00000=group(5)) == []
    assert "asks for 5 workers" in conversation.trial("t00000").failures[-1].message


# ------------------------------------------------------------------- resizing


def resize(conversation, trial_id, iteration, **resources):
    """Let the scheduler resize a trial at a result with a checkpoint."""
    conversation.scheduler.script[trial_id, iteration] = [
        Resize(trial_id, resources, Reason("test"))
    ]
    checkpoint = CheckpointRecord(conversation.trial(trial_id).next_checkpoint, iteration)
    return conversation.report(trial_id, iteration, checkpoint)


def test_a_decided_size_is_kept_in_later_starts():
    conversation = talk(1, ScriptedScheduler(), capacity={"cpu": 4.0}, max_failures=2)
    begin(conversation, group(1, 4))
    assert answers(resize(conversation, "t00000", 1, cpu=2.0)) == [("t00000", "pause", False)]
    assert started(conversation.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]
    conversation.restore_from_snapshot()
    assert started(conversation.exit("t00000", Outcome.LOST)) == [("t00000", 2)]


@pytest.mark.parametrize(
    "wrong", [{"cpu": 5.0}, {"cpu": 1.5}, {"gpu": 1.0}, {"cpu": 2.0, "x": 1.0}]
)
def test_a_size_that_is_no_possible_number_of_workers_is_an_invalid_decision(wrong):
    conversation = talk(1, ScriptedScheduler(), capacity={"cpu": 8.0, "gpu": 1.0, "x": 1.0})
    begin(conversation, group(1, 4))
    with pytest.raises(InvalidDecision, match="it trains over 1 to 4 workers with"):
        resize(conversation, "t00000", 1, **wrong)


def test_a_size_decided_for_a_larger_machine_is_chosen_anew_on_a_smaller_one():
    conversation = talk(1, ScriptedScheduler(), capacity={"cpu": 4.0})
    begin(conversation, group(1, 4))
    resize(conversation, "t00000", 1, cpu=3.0)
    conversation.exit("t00000", Outcome.STOPPED)
    assert started(conversation.say(DriverRestarted(ExperimentSettings({"cpu": 2.0})))) == [
        ("t00000", 2)
    ]


# ------------------------------------------------------------------- large requests


def crowded(**settings):
    """Return a conversation in which small trials keep a large one from starting."""
    conversation = Conversation(capacity={"cpu": 4.0}, **settings)
    begun = begin(conversation, group(2), group(1), group(4), group(1))
    assert [trial_id for trial_id, _ in begun] == ["t00000", "t00001", "t00003"]
    return conversation


def lose(conversation, trial_id, at_s):
    """Let a trial lose its worker at a time; return the trials that are started then."""
    conversation.now_s = at_s
    return [again for again, _ in starts(conversation.exit(trial_id, Outcome.LOST))]


def test_a_large_request_is_overtaken_for_a_while_and_then_what_is_free_is_held_for_it():
    conversation = crowded(max_overtaken_s=60.0)
    assert lose(conversation, "t00001", 30.0) == ["t00001"]
    assert lose(conversation, "t00001", 59.0) == ["t00001"]
    assert lose(conversation, "t00001", 60.0) == []
    conversation.restore_from_snapshot()
    assert lose(conversation, "t00003", 70.0) == []
    assert lose(conversation, "t00000", 80.0) == ["t00002"]
    assert lose(conversation, "t00002", 90.0) == ["t00001", "t00003", "t00000"]
    # The next time it waits, it counts anew from when it is overtaken.
    assert lose(conversation, "t00001", 149.0) == ["t00001"]
    assert lose(conversation, "t00001", 208.0) == ["t00001"]
    assert lose(conversation, "t00001", 209.0) == []


def test_without_the_rule_it_is_overtaken_for_ever():
    assert lose(crowded(), "t00001", 1000.0) == ["t00001"]


def test_what_the_waiting_trial_does_not_need_is_given_to_others():
    settings = {"max_overtaken_s": 60.0, "default_request": {"cpu": 0.5}}
    conversation = Conversation(capacity={"cpu": 3.0, "gpu": 1.0}, **settings)
    gpu = group(1, cpu=1.0, gpu=1.0)
    begin(conversation, gpu, gpu, group(1))
    conversation.say(TrialSuggested("t00003", {}, {"cpu": 1.0}))
    assert lose(conversation, "t00002", 30.0) == ["t00002"]
    # One CPU is kept beside the GPU that the other one waits for.
    assert lose(conversation, "t00002", 100.0) == []
    assert lose(conversation, "t00003", 110.0) == ["t00002"]
    assert lose(conversation, "t00000", 120.0) == ["t00001", "t00003"]


def test_reports_of_the_group_are_those_of_one_trial():
    conversation = talk(1, capacity={"cpu": 4.0})
    begin(conversation, group(4))
    assert answers(conversation.say(result("t00000", 1))) == [("t00000", "continue", False)]
    assert starts(conversation.exit("t00000", Outcome.LOST)) == [("t00000", 2)]
