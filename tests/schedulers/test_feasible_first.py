"""Every scheduler ranks trials that miss a constraint behind those that keep all."""

import json
import math
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedulers import (
    ASHAScheduler,
    DistributeResourcesToTopJob,
    HyperBandScheduler,
    MedianStoppingRule,
    MFPopulationBasedTraining,
    PASHAScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from schedulers.decisions import Exploit, Pause, Resize, Resume, Stop
from schedulers.feasible_first import FeasibleFirst
from schedulers.halving.stagnation import Stagnation
from searchers.objectives import outcome_constraints
from searchers.space import uniform
from tests.schedulers.play import Actor, Play, Stage
from tests.tiers import examples

LIMIT = outcome_constraints({"size": "<= 4"})
HALVING = {
    "stopping": lambda: ASHAScheduler(type="stopping", max_t=9, reduction_factor=3),
    "promotion": lambda: ASHAScheduler(type="promotion", max_t=9, reduction_factor=3),
    "brackets": lambda: ASHAScheduler(type="promotion", max_t=9, reduction_factor=2, brackets=2),
    "evidence": lambda: ASHAScheduler(
        type="promotion", max_t=9, reduction_factor=3, later_grace_period="auto", num_scouts=3
    ),
    "pasha": lambda: PASHAScheduler(max_t=9, reduction_factor=3),
    "hyperband": lambda: HyperBandScheduler(max_t=9, reduction_factor=3),
    "median": lambda: MedianStoppingRule("training_iteration", grace_period=1),
}


def ready(scheduler, constraints=LIMIT, **goals):
    assert scheduler.set_search_properties("loss", "min", seed=0, constraints=constraints, **goals)
    return scheduler


def curve(loss, size):
    return lambda time: {"loss": loss + 1 / time, "size": size}


def reported(scheduler, trial_id, time, **metrics):
    actor = Actor(trial_id, status="RUNNING")
    return list(scheduler.on_trial_result(actor, {"training_iteration": time, **metrics}))


@pytest.mark.parametrize("name", HALVING)
def test_it_is_remarked_once_that_trials_are_judged_before_they_have_reported_a_constraint(name):
    schedulers = {}
    for kind, size in (("late", None), ("early", 9)):
        scheduler = schedulers[kind] = ready(HALVING[name]())
        for number in range(9):
            scheduler.on_trial_add(Actor(f"t{number}"))
        for time in (1, 2):
            for number in range(9):
                reported(scheduler, f"t{number}", time, loss=number, size=size)
    (remark,) = [each for each in schedulers["late"].remarks if "size" in each]
    assert re.match(
        r"\w+ compares trials before they have reported size, so that those that keep size <= 4 "
        r"may be stopped before it is measured; report it with each result, or with the first one",
        remark,
    )
    assert not [each for each in schedulers["early"].remarks if "size" in each]
    restored = ready(HALVING[name]())
    restored.load_state_dict(json.loads(json.dumps(schedulers["late"].state_dict())))
    for number in range(9):
        reported(restored, f"t{number}", 3, loss=number)
    assert not [each for each in restored.remarks if "size" in each]


class TestViolations:
    def test_they_are_divided_by_the_bound_and_added(self):
        limits = outcome_constraints({"size": "<= 4", "fairness": ">= 0.8", "bias": "<= 0"})
        feasible_first = FeasibleFirst(limits)
        result = {"size": 5, "fairness": 0.4, "bias": 2}
        assert feasible_first.note("a", result) == pytest.approx(0.25 + 0.5 + 2)
        assert feasible_first.note("b", {"size": 4, "fairness": 0.8, "bias": 0}) == 0

    def test_both_bounds_of_a_metric_count(self):
        limits = outcome_constraints({"size": [">= 2", "<= 4"], "bias": "<= 1"})
        feasible_first = FeasibleFirst(limits)
        assert feasible_first.note("small", {"size": 1, "bias": 0}) == 0.5
        assert feasible_first.note("kept", {"size": 3, "bias": 0}) == 0
        assert feasible_first.note("large", {"size": 5, "bias": 0}) == 0.25
        restored = FeasibleFirst(limits)
        restored.load_state_dict(json.loads(json.dumps(feasible_first.state_dict())))
        names = ("small", "kept", "large", "unknown")
        assert [restored.violation(name) for name in names] == [0.5, 0, 0.25, math.inf]

    @pytest.mark.parametrize("odd", [math.nan, math.inf, 10**400])
    def test_what_is_not_finite_is_missed_infinitely(self, odd):
        feasible_first = FeasibleFirst(LIMIT)
        assert feasible_first.note("a", {"size": 3}) == 0
        assert feasible_first.note("a", {"size": odd}) == math.inf
        assert feasible_first.note("a", {"size": 3}) == 0

    @pytest.mark.parametrize("odd", [None, "3", [3], True])
    def test_what_is_no_number_leaves_the_number_before_as_it_is(self, odd):
        feasible_first = FeasibleFirst(LIMIT)
        assert feasible_first.note("a", {"size": odd}) == math.inf
        assert feasible_first.note("a", {"size": 3}) == 0
        assert feasible_first.note("a", {"size": odd}) == 0

    def test_a_clone_counts_as_its_donor_until_it_reports(self):
        feasible_first = FeasibleFirst(LIMIT)
        feasible_first.note("good", {"size": 3})
        feasible_first.note("bad", {"size": 8})
        feasible_first.take_over("bad", "good")
        assert feasible_first.violation("bad") == 0
        copy = FeasibleFirst(LIMIT)
        copy.load_state_dict(json.loads(json.dumps(feasible_first.state_dict())))
        copy.undo_take_over("bad")
        assert (copy.violation("bad"), copy.violation("good")) == (1.0, 0.0)
        feasible_first.note("bad", {"size": 6})
        feasible_first.undo_take_over("bad")
        assert feasible_first.violation("bad") == 0.5

    def test_without_constraints_nothing_is_kept(self):
        feasible_first = FeasibleFirst()
        assert feasible_first.note("a", {"size": math.nan}) == 0
        assert feasible_first.state_dict() == {}


@pytest.mark.parametrize("kind", HALVING)
def test_an_infeasible_trial_with_the_best_metric_is_not_trained_to_the_end(kind):
    curves = {f"bad{number}": curve(-10.0, 8.0 + number) for number in range(3)}
    curves |= {f"good{number}": curve(0.1 * number, 4.0) for number in range(9)}
    # A good one comes first: the first of a level continues whatever it has reached.
    order = sorted(curves, key=lambda name: (name[-1], name[0] == "b"))
    play = Play(
        ready(HALVING[kind]()),
        {name: curves[name] for name in order},
        12,
        max_trials=12,
        last_time=9,
    ).run()
    ends = play.stopped()
    longest = max(time for time, _ in ends.values())
    assert {name for name, (time, _) in ends.items() if time == longest} <= {
        name for name in curves if name.startswith("good")
    }


def test_a_stopped_trial_says_by_how_much_it_misses_the_constraints():
    scheduler = ready(HALVING["stopping"]())
    assert reported(scheduler, "a", 1, loss=0.9, size=3) == []
    (stop,) = reported(scheduler, "b", 1, loss=0.1, size=5)
    assert stop.reason.numbers | {"time": 1, "bracket": 0} == {
        "rung": 1,
        "value": 0.1,
        "violation": 0.25,
        "cutoff": 0.9,
        "rank": 2,
        "num_recorded": 2,
        "num_kept": 1,
        "time": 1,
        "bracket": 0,
    }
    # Among infeasible ones, the one that misses the constraint by less is better.
    alone = ready(HALVING["stopping"]())
    assert reported(alone, "c", 1, loss=0.9, size=5) == []
    assert reported(alone, "d", 1, loss=0.1, size=6)[0].reason.numbers["cutoff_violation"] == 0.25
    assert reported(alone, "e", 1, loss=5.0, size=4.5) == []


def test_a_constraint_that_was_reported_once_still_counts_later():
    scheduler = ready(HALVING["stopping"]())
    assert reported(scheduler, "a", 1, loss=0.5, size=9) == []
    assert reported(scheduler, "b", 1, loss=0.6, size=2) == []
    assert reported(scheduler, "b", 3, loss=0.6) == []
    (stop,) = reported(scheduler, "a", 3, loss=0.1)
    assert (stop.trial_id, stop.reason.numbers["violation"]) == ("a", 1.25)


@pytest.mark.parametrize("kind", ["stopping", "hyperband", "median"])
def test_a_constraint_that_nobody_has_reported_yet_changes_no_decision(kind):
    curves = {f"t{number}": curve(0.1 * ((number * 7) % 10), 1.0) for number in range(10)}
    late = {
        name: lambda time, of=of: {k: v for k, v in of(time).items() if k == "loss"}
        for name, of in curves.items()
    }
    plain = Play(ready(HALVING[kind](), ()), curves, 3, max_trials=10, last_time=9).run()
    constrained = Play(ready(HALVING[kind]()), late, 3, max_trials=10, last_time=9).run()
    assert constrained.summary == plain.summary


def test_a_paused_trial_that_misses_a_constraint_waits_for_all_that_keep_it():
    scheduler = ready(HALVING["promotion"]())
    stage = scheduler.experiment = Stage(None)
    for name, loss, size in [("bad", 0.0, 9), ("worse", 0.1, 99), ("good", 0.9, 4)]:
        stage.trials[name] = Actor(name, status="PAUSED")
        scheduler.on_trial_add(stage.trials[name])
        (pause,) = reported(scheduler, name, 1, loss=loss, size=size)
        assert isinstance(pause, Pause)
    (resume,) = scheduler.on_idle(list(stage.trials.values()), 2)
    assert isinstance(resume, Resume)
    assert (resume.trial_id, resume.reason.numbers["rank"]) == ("good", 1)


SIZES = st.sampled_from([1.0, 4.0, 5.0, 8.0, math.nan, None])
ROWS = st.lists(st.tuples(st.integers(0, 9), SIZES, st.integers(1, 12)), min_size=1, max_size=14)


class Judge:
    """Sees to it that no infeasible trial is promoted while a feasible one waits beside it."""

    def __init__(self, play, sizes):
        self.play, self.sizes, self.seen = play, sizes, 0
        play.after_fact = self

    def is_feasible(self, trial_id):
        size = self.sizes[trial_id]
        return size is not None and size <= 4

    def __call__(self):
        # Decisions are compared with the state in which they were made: before they are applied.
        for decision in self.play.decisions[self.seen :]:
            rule = decision.reason.rule.split(".")[1]
            if isinstance(decision, Resume) and rule in {"promotion", "last_resort", "thaw"}:
                assert decision.trial_id not in self.overlooked, "a feasible trial waits there"
        self.seen = len(self.play.decisions)
        waiting = [actor for actor in self.play.stage.trials.values() if actor.status == "PAUSED"]
        self.overlooked = {
            actor.trial_id
            for actor in waiting
            if not self.is_feasible(actor.trial_id)
            and any(
                self.is_feasible(other.trial_id) and other.time == actor.time for other in waiting
            )
        }

    overlooked = frozenset()


@settings(max_examples=examples(100))
@example([(0, 1.0, 1)] * 6, 2, "evidence")
@given(ROWS, st.integers(1, 4), st.sampled_from(["promotion", "brackets", "evidence", "pasha"]))
def test_no_infeasible_trial_is_promoted_while_a_feasible_one_waits(rows, num_slots, kind):
    names = [f"t{number}" for number in range(len(rows))]
    sizes = {name: size for name, (_, size, _) in zip(names, rows, strict=True)}
    curves = {
        name: lambda time, loss=loss, size=size: {"loss": loss / time, "size": size}
        for name, (loss, size, _) in zip(names, rows, strict=True)
    }
    scheduler = ready(HALVING[kind]())
    play = Play(scheduler, curves, num_slots, max_trials=len(rows), last_time=9)
    if kind != "brackets":  # where bracket by bracket is compared
        Judge(play, sizes)
    play.run()


@pytest.mark.parametrize("kind", HALVING)
def test_a_state_with_constraints_is_restored(kind):
    facts = [
        (f"t{number}", time, {"loss": (number * 7 % 5) / time, "size": number})
        for time in (1, 3)
        for number in range(8)
    ]
    once, cut = ready(HALVING[kind]()), ready(HALVING[kind]())
    for trial_id, time, metrics in facts:
        decided = reported(once, trial_id, time, **metrics)
        state = json.loads(json.dumps(cut.state_dict(), allow_nan=False))
        cut = ready(HALVING[kind]())
        cut.load_state_dict(state)
        assert cut.state_dict() == state
        assert reported(cut, trial_id, time, **metrics) == decided


@pytest.mark.parametrize("kind", HALVING)
def test_a_state_under_other_constraints_is_refused(kind):
    state = ready(HALVING[kind]()).state_dict()
    ready(HALVING[kind]()).load_state_dict(state)
    for other in ((), outcome_constraints({"size": "<= 5"})):
        with pytest.raises(ValueError, match="state must come from a scheduler with"):
            ready(HALVING[kind](), other).load_state_dict(state)


def test_stagnation_ends_with_less_violation_before_it_ends_with_better_values():
    stagnation = Stagnation()
    stagnation.note("a", 10, 0.1, violation=2.0)
    stagnation.note("b", 10, 5.0, violation=1.0)
    assert stagnation.part == 0
    stagnation.note("c", 10, 0.0, violation=1.5)
    assert stagnation.part == pytest.approx(1 / 3)
    copy = Stagnation()
    copy.load_state_dict(json.loads(json.dumps(stagnation.state_dict())))
    copy.note("d", 10, 9.0)
    assert (copy.part, copy.state_dict()["best"]) == (0, 9.0)


MEMBERS = {
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=1,
        burn_in_period=2,
        hyperparam_mutations={"lr": uniform(0, 1)},
    ),
    "mf-pbt": lambda: MFPopulationBasedTraining(
        "training_iteration", perturbation_interval=1, burn_in_period=2, frequencies=(1,)
    ),
}


def population(scheduler, sizes, losses=None):
    """Let each member report once; return the exploits."""
    stage = scheduler.experiment = Stage(len(sizes))
    stage.no_more_trials = True
    for name in sizes:
        actor = stage.trials[name] = Actor(name, {"lr": 0.1}, "RUNNING")
        scheduler.on_trial_add(actor)
        actor.checkpoint_index = actor.checkpoint_iteration = 1
    decided = []
    for time in (1, 2):
        for number, (name, size) in enumerate(sizes.items()):
            actor = stage.trials[name]
            loss = (losses or {}).get(name, float(number))
            result = {"training_iteration": time, "loss": loss, "size": size}
            decided += scheduler.on_trial_result(actor, result)
    return [decision for decision in decided if isinstance(decision, Exploit)]


@pytest.mark.parametrize("kind", MEMBERS)
def test_an_infeasible_member_is_exploited_over_and_never_a_donor(kind):
    # The infeasible ones have the best losses.
    sizes = {"a": 9, "b": 9, "c": 8, "d": 7, "e": 3, "f": 9, "g": 9, "h": 9}
    exploits = population(ready(MEMBERS[kind]()), sizes)
    assert exploits
    assert {exploit.donor_id for exploit in exploits} == {"e"}
    numbers = exploits[0].reason.numbers
    assert (numbers["violation"], "donor_violation" in numbers) == (1.25, False)


@pytest.mark.parametrize("kind", MEMBERS)
def test_without_a_feasible_member_those_that_miss_the_least_are_donors(kind):
    sizes = dict(zip("abcdefgh", (12, 11, 10, 9, 8, 7, 6, 5), strict=True))
    exploits = population(ready(MEMBERS[kind]()), sizes)
    assert exploits
    assert {exploit.donor_id for exploit in exploits} <= {"g", "h"}


def test_a_feasible_member_that_has_diverged_keeps_nobody_from_donating():
    sizes = dict.fromkeys("abcdefg", 9) | {"h": 3}
    exploits = population(ready(MEMBERS["pbt"]()), sizes, {"h": math.nan})
    assert [exploit.trial_id for exploit in exploits][-1] == "h"


def test_all_that_is_free_goes_to_the_best_that_keeps_the_constraints():
    scheduler = ready(
        ResourceChangingScheduler(resources_allocation_function=DistributeResourcesToTopJob())
    )
    stage = scheduler.experiment = Stage(2)
    stage.node_resources, stage.no_more_trials = stage.resources, True
    for name in ("bad", "good"):
        stage.trials[name] = Actor(name, status="RUNNING")
        scheduler.on_trial_add(stage.trials[name])
    decided = []
    for time in (1, 2):
        for name, loss, size in (("bad", 0.1, 9), ("good", 0.9, 4)):
            result = {"training_iteration": time, "loss": loss, "size": size}
            decided += scheduler.on_trial_result(stage.trials[name], result)
    grown = [decision.trial_id for decision in decided if isinstance(decision, Resize)]
    assert grown[-1] == "good"


def test_paused_trials_that_keep_the_constraints_are_resumed_first():
    scheduler = ready(
        MedianStoppingRule(
            "training_iteration", grace_period=1, min_samples_required=1, hard_stop=False
        )
    )
    stage = scheduler.experiment = Stage(4)
    for name, loss, size in [("a", 0.1, 4), ("b", 0.0, 9), ("c", 0.9, 4), ("d", 0.8, 3)]:
        stage.trials[name] = Actor(name, status="PAUSED")
        reported(scheduler, name, 1, loss=loss, size=size)
    stage.no_more_trials = True
    paused = [stage.trials[name] for name in "bcd"]
    assert [resume.trial_id for resume in scheduler.on_idle(paused, 2)] == ["c", "d"]


def test_a_scheduler_of_one_metric_names_the_one_for_several():
    several = (("loss", "min"), ("size", "min"))
    with pytest.raises(
        ValueError,
        match=r"ASHAScheduler must compare one metric, got several: 'loss', 'size'; give "
        r"ASHAScheduler\(metric=\.\.\., mode=\.\.\.\) one of them, or take MOASHAScheduler",
    ):
        ASHAScheduler().set_search_properties(None, None, seed=0, objectives=several)
    own = ASHAScheduler(metric="loss", mode="min")
    assert own.set_search_properties(None, None, seed=0, objectives=several)


def test_a_stop_for_a_constraint_is_a_stop():
    play = Play(
        ready(HALVING["median"]()),
        {name: curve(1.0, 4.0) for name in "abc"} | {"d": curve(0.0, 5.0)},
        4,
        last_time=5,
    ).run()
    (stop,) = [decision for decision in play.decisions if isinstance(decision, Stop)]
    assert (stop.trial_id, stop.reason.numbers["violation"]) == ("d", 0.25)
