import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import (
    ASHAScheduler,
    Exploit,
    FIFOScheduler,
    Pause,
    PopulationBasedTraining,
    Reason,
    Resize,
    Scheduler,
    Stop,
)
from schedulers.halving.hyperband import HyperBandScheduler
from schedulers.resource_changing import (
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceAllocation,
    ResourceChangingScheduler,
    misfit,
)
from tests.schedulers.small_world import Stub, StubExperiment, World
from tests.tiers import examples

WHY = Reason("test")


class Scripted(Scheduler):
    """Returns given decisions, and remembers the calls it has received."""

    def __init__(self, *decisions):
        self.decisions = decisions
        self.heard = []

    def on_trial_add(self, trial):
        self.heard.append(("add", trial.trial_id))
        return self.decisions

    def on_trial_result(self, trial, result):
        self.heard.append(("result", trial.trial_id))
        return self.decisions

    def on_trial_complete(self, trial, result):
        self.heard.append(("complete", trial.trial_id))
        return self.decisions

    def on_trial_error(self, trial):
        self.heard.append(("error", trial.trial_id))
        return self.decisions

    def on_idle(self, trials, num_free_slots):
        self.heard.append(("idle", num_free_slots))
        return self.decisions

    def state_dict(self):
        return {"heard": len(self.heard)}


def changing(function=None, base=None, names="a", cpus=4.0, request=None, **view):
    """Return a scheduler with trials, all of them running."""
    scheduler = ResourceChangingScheduler(base, function or DistributeResources())
    scheduler.experiment = StubExperiment(
        **{"no_more_trials": True, "resources": {"cpu": cpus}} | view
    )
    for name in names:
        add(scheduler, name, request or {"cpu": 1.0})
    return scheduler


def add(scheduler, name, request):
    scheduler.experiment.trials[name] = Stub(name, resources=dict(request))
    scheduler.on_trial_add(scheduler.experiment.trials[name])


def report(scheduler, name, time=1, *, moves=True, **metrics):
    """Report a result; return the trial's new resources, None if it keeps its own.

    They take effect if `moves` is true.
    """
    trial = scheduler.experiment.trials[name]
    decisions = scheduler.on_trial_result(trial, {"training_iteration": time, **metrics})
    sizes = [
        dict(decision.resources)
        for decision in decisions
        if isinstance(decision, Resize) and decision.trial_id == name
    ]
    if sizes and moves:
        trial.resources = sizes[-1]
    return sizes[-1] if sizes else None


def end(scheduler, name):
    trial = scheduler.experiment.trials[name]
    trial.status = "TERMINATED"
    scheduler.on_trial_complete(trial, None)


# Dividing evenly.


def test_free_resources_go_to_those_that_are_left():
    scheduler = changing(names="abcd")
    assert [report(scheduler, name) for name in "abcd"] == [None] * 4
    end(scheduler, "d")
    assert [report(scheduler, name) for name in "abc"] == [None] * 3  # a third of four is one
    end(scheduler, "c")
    assert report(scheduler, "a") == {"cpu": 2}
    assert report(scheduler, "a") is None
    end(scheduler, "b")
    assert report(scheduler, "a") == {"cpu": 4}


def test_on_a_cluster_a_trial_gets_no_more_than_one_node_has():
    scheduler = changing(names="a", cpus=12.0)
    scheduler.experiment.node_resources = {"cpu": 5.0}
    assert report(scheduler, "a") == {"cpu": 5}
    add(scheduler, "b", {"cpu": 1.0})
    add(scheduler, "c", {"cpu": 1.0})
    assert report(scheduler, "a", 2) == {"cpu": 4}


def test_a_decision_tells_the_numbers_it_was_based_on():
    scheduler = changing(names="ab")
    trial = scheduler.experiment.trials["a"]
    numbers = {"cpu": 2.0, "cpu_before": 1.0, "cpu_available": 3.0, "num_live": 2}
    assert list(scheduler.on_trial_result(trial, {})) == [
        Resize("a", {"cpu": 2.0}, Reason("resource_changing.resize", numbers))
    ]


def test_a_trial_shrinks_to_its_share_when_others_come():
    scheduler = changing(names="a")
    assert report(scheduler, "a") == {"cpu": 4}
    add(scheduler, "b", {"cpu": 1.0})
    scheduler.experiment.trials["b"].status = "PENDING"
    assert report(scheduler, "a") == {"cpu": 2}


def test_no_trial_shrinks_below_the_original_request():
    scheduler = changing(names="ab", request={"cpu": 2.0})
    for name in "cdefgh":
        add(scheduler, name, {"cpu": 2.0})
    assert [report(scheduler, name) for name in "ab"] == [None, None]


def test_what_was_promised_but_not_taken_yet_is_not_given_away():
    scheduler = changing(names="ab", cpus=5.0, function=lambda *_: None)
    scheduler._allocate = lambda experiment, trial, result, books: {
        "cpu": books.available_to(trial)["cpu"]
    }
    assert report(scheduler, "a", moves=False) == {"cpu": 4}
    assert report(scheduler, "b") is None
    assert scheduler.available_to(scheduler.experiment.trials["b"]) == {"cpu": 1}
    end(scheduler, "a")
    assert report(scheduler, "b") == {"cpu": 5}


@pytest.mark.parametrize(
    ("arguments", "request_", "resized"),
    [
        ({}, {"cpu": 1, "gpu": 1}, {"cpu": 9, "gpu": 4}),
        ({}, {"cpu": 1, "gpu": 0.5}, {"cpu": 9, "gpu": 0.5}),  # no trial can have one and a half
        ({}, {"cpu": 1.5, "memory": 1}, {"cpu": 8.5, "memory": 1}),
        ({"increase_by": {"cpu": 3}}, {"cpu": 1, "gpu": 1}, {"cpu": 7, "gpu": 1}),
        ({"increase_by": {"CPU": 2, "GPU": 1}}, {"cpu": 1, "gpu": 1}, {"cpu": 7, "gpu": 4}),
        ({"increase_by": {"gpu": 0.25}}, {"cpu": 1, "gpu": 0.5}, {"cpu": 1, "gpu": 4}),
        (
            {"increase_by": {"cpu": 3}, "increase_by_times": 1},
            {"cpu": 1, "gpu": 1},
            {"cpu": 4, "gpu": 1},
        ),
        ({"increase_by_times": 2}, {"cpu": 1, "gpu": 1}, {"cpu": 3, "gpu": 3}),
        ({"add_bundles": True}, {"cpu": 2, "gpu": 1}, {"cpu": 8, "gpu": 4}),
        ({"add_bundles": True, "increase_by_times": 1}, {"cpu": 2, "gpu": 1}, {"cpu": 4, "gpu": 2}),
        ({"reserve_resources": {"cpu": 2, "gpu": 1}}, {"cpu": 1, "gpu": 1}, {"cpu": 7, "gpu": 3}),
        ({}, {"licence": 1}, None),
    ],
)
def test_resources_are_raised_in_steps(arguments, request_, resized):
    capacity = {"cpu": 9.0, "gpu": 4.0, "memory": 8.0, "licence": 2.0}
    scheduler = changing(DistributeResources(**arguments), request=request_, resources=capacity)
    assert report(scheduler, "a") == resized


def test_room_for_trials_to_come_is_left_to_them():
    scheduler = changing(no_more_trials=False)
    assert report(scheduler, "a", 1) is None
    assert report(scheduler, "a", 1) is None  # repeated
    add(scheduler, "b", {"cpu": 1.0})
    assert report(scheduler, "a", 2) is None
    assert report(scheduler, "a", 3) == {"cpu": 2}  # no trial has come for the free resources


@pytest.mark.parametrize(
    "view", [{"no_more_trials": True}, {"no_more_trials": False, "max_trials": 1}]
)
def test_what_is_free_is_handed_out_at_once_when_no_trial_comes(view):
    assert report(changing(**view), "a", 1) == {"cpu": 4}


def test_what_no_trial_to_come_could_start_with_is_handed_out_at_once():
    scheduler = changing(
        no_more_trials=False, request={"cpu": 1, "gpu": 1}, resources={"cpu": 4, "gpu": 1}
    )
    assert report(scheduler, "a", 1) == {"cpu": 4, "gpu": 1}


# All to the best.


def test_the_best_gets_all_that_is_free_and_the_former_best_keeps_what_it_has():
    scheduler = changing(
        DistributeResourcesToTopJob(metric="loss", mode="min"), names="abc", cpus=6.0
    )
    assert report(scheduler, "a", loss=0.5) == {"cpu": 4}
    assert report(scheduler, "b", loss=0.4) is None  # is best, but nothing is left
    assert report(scheduler, "a", loss=0.6) is None
    end(scheduler, "c")
    assert report(scheduler, "a", loss=0.6) is None
    assert report(scheduler, "b", loss=0.4) == {"cpu": 2}
    end(scheduler, "b")
    assert report(scheduler, "a", loss=0.7) == {"cpu": 6}


def test_the_former_best_shrinks_where_it_has_more_than_there_is():
    scheduler = changing(
        DistributeResourcesToTopJob(metric="loss", mode="max"), names="ab", cpus=6.0
    )
    assert report(scheduler, "a", loss=0.5) == {"cpu": 5}
    report(scheduler, "b", loss=0.9)
    scheduler.experiment.resources = {"cpu": 3.0}
    assert report(scheduler, "a", loss=0.5) == {"cpu": 2}


def test_a_trial_whose_value_is_no_number_is_not_the_best():
    scheduler = changing(DistributeResourcesToTopJob(metric="loss", mode="max"), names="ab")
    for loss in (float("nan"), float("inf"), None, "1"):
        assert report(scheduler, "a", loss=loss) is None
    assert report(scheduler, "a") is None
    assert report(scheduler, "b", loss=-1) == {"cpu": 3}


def test_the_best_is_measured_by_the_experiments_metric_where_no_other_is_named():
    scheduler = changing(
        DistributeResourcesToTopJob(), base=ASHAScheduler(max_t=100, grace_period=100), names=""
    )
    assert scheduler.set_search_properties("loss", "min", seed=0)
    add(scheduler, "a", {"cpu": 1.0})
    add(scheduler, "b", {"cpu": 1.0})
    report(scheduler, "b", loss=0.1)
    assert report(scheduler, "a", loss=0.2) is None


@pytest.mark.parametrize(("metric", "mode"), [(None, "min"), ("loss", None)])
def test_the_best_needs_a_direction(metric, mode):
    scheduler = ResourceChangingScheduler(FIFOScheduler(), DistributeResourcesToTopJob())
    with pytest.raises(
        ValueError,
        match=r"m\w+ must be .*; give it to TuneConfig or to DistributeResourcesToTopJob",
    ):
        scheduler.set_search_properties(metric, mode, seed=0)


# A function of the user's.


def asking_for(resources):
    return changing(lambda experiment, trial, result, books: resources, names="ab")


def test_a_function_sees_experiment_trial_result_and_scheduler():
    calls = []
    scheduler = changing(lambda *arguments: calls.append(arguments))
    assert report(scheduler, "a", 7, loss=1) is None
    ((experiment, trial, result, books),) = calls
    assert (experiment, trial.trial_id, result) == (
        scheduler.experiment,
        "a",
        {"training_iteration": 7, "loss": 1},
    )
    assert books is scheduler
    assert (books.original_request(trial), books.available_to(trial), books.num_live) == (
        {"cpu": 1},
        {"cpu": 4},
        1,
    )


@pytest.mark.parametrize(
    ("resources", "complaint"),
    [
        ({"cpu": 4}, "cpu must be at most 3.0, which is what other trials leave"),
        ({"cpu": 0.5}, "cpu must be at least 1.0, which the trial asked for"),
        ({}, "cpu must be at least 1.0, which the trial asked for"),
        ({"cpu": 5}, "cpu must be at most 4.0, got 5"),
        ({"cpu": 1, "gpu": 1}, "gpu must be at most 0.0, got 1"),
        ({"cpu": float("nan")}, "cpu must be a finite number of at least 0, got nan"),
        ({"cpu": "2"}, "cpu must be a finite number of at least 0, got '2'"),
        (2, "resources must be a dictionary of amounts, got 2"),
    ],
)
def test_a_wish_that_goes_too_far_is_ignored_and_the_user_is_told_once(resources, complaint):
    scheduler = asking_for(resources)
    assert report(scheduler, "a") is None
    assert report(scheduler, "b") is None
    assert scheduler.remarks == [
        (
            f"resources_allocation_function wanted {resources} for trial a, which is ignored: "
            f"{complaint}"
        )
    ]
    assert scheduler.base_scheduler.remarks is scheduler.remarks
    scheduler.remarks = ()
    assert scheduler.base_scheduler.remarks == ()


def test_a_wish_for_what_the_trial_has_is_none():
    scheduler = asking_for({"cpu": 1, "gpu": 0})
    assert report(scheduler, "a") is None
    assert scheduler.remarks == ()


def test_no_more_than_a_share_or_whole_gpus():
    assert misfit({"gpu": 0.5, "cpu": 1}, {"gpu": 2.0, "cpu": 1}) == ""
    assert (
        misfit({"gpu": 1.5}, {"gpu": 2.0})
        == "gpu must be a fraction below 1 or a whole number, got 1.5"
    )


# Around another scheduler.


@pytest.mark.parametrize(
    "decision",
    [Stop("a", WHY), Pause("a", WHY), Exploit("a", "b", {}, WHY), Resize("a", {"cpu": 1.0}, WHY)],
)
def test_a_trial_that_does_not_simply_go_on_is_not_resized(decision):
    scheduler = changing(base=Scripted(decision))
    assert scheduler.on_trial_result(scheduler.experiment.trials["a"], {}) == (decision,)


def test_decisions_about_others_do_not_matter():
    scheduler = changing(base=Scripted(Stop("b", WHY)))
    stop, resize = scheduler.on_trial_result(scheduler.experiment.trials["a"], {})
    assert (stop.trial_id, resize.trial_id) == ("b", "a")


def test_a_trial_that_cannot_be_saved_is_not_resized():
    scheduler = changing(can_save_on_demand=False)
    assert report(scheduler, "a") is None
    scheduler.experiment.trials["a"].checkpoint_iteration = 1
    assert report(scheduler, "a", time=2) is None, (
        "it would train the second iteration again, and perhaps so for ever"
    )
    scheduler.experiment.trials["a"].checkpoint_iteration = 3
    assert report(scheduler, "a", time=3) == {"cpu": 4}


def test_without_a_function_nothing_is_resized():
    scheduler = ResourceChangingScheduler(resources_allocation_function=None)
    scheduler.experiment = StubExperiment(no_more_trials=True)
    add(scheduler, "a", {"cpu": 1.0})
    assert report(scheduler, "a") is None


def test_everything_is_handed_on():
    base = Scripted(Stop("x", WHY))
    scheduler = changing(base=base)
    trial = scheduler.experiment.trials["a"]
    decisions = [
        scheduler.on_trial_result(trial, {"training_iteration": 1})[0],
        *scheduler.on_trial_complete(trial, None),
        *scheduler.on_trial_error(trial),
        *scheduler.on_idle([trial], 2),
    ]
    assert decisions == [Stop("x", WHY)] * 4
    assert base.heard == [
        ("add", "a"),
        ("result", "a"),
        ("complete", "a"),
        ("error", "a"),
        ("idle", 2),
    ]
    assert base.experiment is scheduler.experiment
    assert scheduler.keeps_state
    scheduler.metric, scheduler.mode = "loss", "max"
    assert (base.metric, base.mode) == ("loss", "max")
    assert not scheduler.set_search_properties("other", "min", seed=0)
    assert scheduler.debug_string() == "ResourceChangingScheduler: 1 resized; Scripted"


def test_a_base_without_state_is_brought_back_by_telling_it_all_again():
    class Forgetful(Scheduler):
        def on_trial_result(self, trial, result):
            return ()

    assert not ResourceChangingScheduler(Forgetful()).keeps_state


def test_a_failed_trial_that_is_brought_back_has_its_request_still():
    scheduler = changing(names="ab")
    trial = scheduler.experiment.trials["a"]
    assert report(scheduler, "a") == {"cpu": 2}
    trial.status = "ERROR"
    scheduler.on_trial_error(trial)
    assert report(scheduler, "b") == {"cpu": 4}
    scheduler.experiment.trials["b"].resources = {"cpu": 2.0}
    trial.status = "RUNNING"
    assert scheduler.original_request(trial) == {"cpu": 1}
    assert report(scheduler, "a") == {"cpu": 1}  # as long as what b was promised is not given back
    assert report(scheduler, "b") is None
    assert report(scheduler, "a") == {"cpu": 2}


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"increase_by": {"cpu": -1}},
            ValueError,
            "increase_by['cpu'] must be a finite number of at least 0, got -1",
        ),
        (
            {"increase_by": {"cpu": 0}},
            ValueError,
            (
                "increase_by must name an amount of something, got {'cpu': 0}; None takes 1 "
                "CPU and 1 "
                "GPU"
            ),
        ),
        (
            {"increase_by": 2},
            TypeError,
            "increase_by must be a dictionary of amounts, got 2; for example {'cpu': 2}",
        ),
        (
            {"increase_by_times": 0},
            ValueError,
            "increase_by_times must be at least 1, or -1 for any number, got 0",
        ),
        (
            {"increase_by_times": 1.5},
            TypeError,
            "increase_by_times must be a whole number, got 1.5",
        ),
        (
            {"reserve_resources": {"cpu": "1"}},
            ValueError,
            "reserve_resources['cpu'] must be a finite number of at least 0, got '1'",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    for kind in (DistributeResources, DistributeResourcesToTopJob):
        with pytest.raises(error) as caught:
            kind(**arguments)
        assert str(caught.value) == complaint


def test_only_schedulers_and_functions_are_accepted():
    with pytest.raises(TypeError, match="base_scheduler must be a scheduler or None, got 'asha'"):
        ResourceChangingScheduler("asha")
    with pytest.raises(
        TypeError, match="resources_allocation_function must be a function or None, got 3"
    ):
        ResourceChangingScheduler(None, 3)
    with pytest.raises(ValueError, match="mode must be 'min', 'max' or None, got 'low'"):
        DistributeResourcesToTopJob(mode="low")


def test_the_state_tells_all():
    def made():
        return changing(
            DistributeResourcesToTopJob(), ASHAScheduler(metric="loss", mode="min"), "abc", cpus=6.0
        )

    scheduler, restored = made(), made()
    report(scheduler, "a", loss=0.5, moves=False)
    report(scheduler, "b", loss=0.4, moves=False)
    state = json.loads(json.dumps(scheduler.state_dict()))
    restored.load_state_dict(state)
    assert restored.state_dict() == scheduler.state_dict() == state
    assert report(restored, "b", loss=0.4) == report(scheduler, "b", loss=0.4)
    assert state == json.loads(json.dumps(state))


# Random experiments with faults.

ALLOCATIONS = [
    DistributeResources,
    lambda: DistributeResources(increase_by={"cpu": 2}, reserve_resources={"cpu": 1}),
    lambda: DistributeResources(add_bundles=True, increase_by_times=2),
    DistributeResourcesToTopJob,
]


def random_request(experiment, trial, result, scheduler):
    """Request any amount, valid or not, but the same at the same result."""
    rng = Random(f"{trial.trial_id}/{result['training_iteration']}")  # noqa: S311
    return {"cpu": float(rng.randint(-1, 8))}


BASES = [
    FIFOScheduler,
    lambda: ASHAScheduler(max_t=20, reduction_factor=2),
    lambda: HyperBandScheduler(max_t=9),
]


def made(base, allocation):
    def make():
        scheduler = ResourceChangingScheduler(base(), allocation())
        scheduler.set_search_properties("loss", "min", seed=0)
        return scheduler

    return make


def check_allocation(world):
    """Check at each step that allocations, promised ones included, fit the resources."""
    advance = world.advance

    def checked(trial):
        advance(trial)
        held = [scheduler_held(world, other.trial_id) for other in world.with_status("RUNNING")]
        assert sum(held) <= world.resources["cpu"] + 1e-6
        assert all(other.resources["cpu"] >= 1 for other in world.trials.values())

    world.advance = checked
    return world


def scheduler_held(world, trial_id):
    return world.scheduler._held(trial_id).get("cpu", 0.0)


@pytest.mark.property
@settings(max_examples=examples(60))
@given(
    st.integers(0, 10**6),
    st.sampled_from(BASES),
    st.sampled_from([*ALLOCATIONS, lambda: random_request]),
    st.integers(1, 9),
    st.sampled_from([None, 1, 3]),
)
def test_every_experiment_ends_within_its_resources(seed, base, allocation, num_slots, max_alive):
    check_allocation(
        World(made(base, allocation), seed, num_slots=num_slots, max_alive=max_alive)
    ).run()


@pytest.mark.property
@settings(max_examples=examples(20))
@given(
    st.integers(0, 10**6), st.sampled_from(BASES), st.sampled_from(ALLOCATIONS), st.integers(0, 150)
)
def test_a_restore_at_any_point_changes_no_decision(seed, base, allocation, cut):
    original, twin = (
        World(made(base, allocation), seed, num_slots=6, max_alive=4, num_restarts=0)
        for _ in range(2)
    )
    advance = twin.advance

    def restore_once(trial):
        if twin.num_results_reported == cut:
            state = json.loads(json.dumps(twin.scheduler.state_dict(), allow_nan=False))
            twin.scheduler = twin.make_scheduler()
            twin.scheduler.load_state_dict(state)
            twin.scheduler.experiment = twin
        advance(trial)

    twin.advance = restore_once
    log = original.run().log
    assert twin.run().log == log


def test_what_is_free_is_used_in_the_end():
    world = World(
        made(FIFOScheduler, DistributeResources), 3, num_slots=4, num_trials=6, num_restarts=0
    )
    for schedule in world.schedules:
        schedule.step, schedule.ends_at, schedule.fails_at, schedule.lost_at = 1, 30, 10**9, 10**9
    world.schedules[0].ends_at = 100
    world.run()
    assert world.trials["t000"].resources == {"cpu": 4.0}


def test_an_allocation_of_ones_own_may_be_a_class():
    class Doubling(ResourceAllocation):
        def __call__(self, experiment, trial, result, scheduler):
            return self._grown(scheduler.original_request(trial), {"cpu": 2.0})

    assert report(changing(Doubling()), "a") == {"cpu": 2}


def test_a_population_stays_one_inside_the_wrapper():
    base = PopulationBasedTraining(perturbation_interval=5, hyperparam_mutations={"lr": [1, 2]})
    assert (
        ResourceChangingScheduler(base).needs_population,
        ResourceChangingScheduler(base).log_config,
    ) == (True, True)
    assert (
        ResourceChangingScheduler().needs_population,
        ResourceChangingScheduler().log_config,
    ) == (False, False)
