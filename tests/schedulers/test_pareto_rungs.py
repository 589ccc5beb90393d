"""Promotion with several metrics and constraints."""

import copy
import json
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import MOASHAScheduler, Pause, Resume, Stop
from schedulers.halving.fronts import MAX_SPREAD, Fronts, epsilon_net
from schedulers.halving.pareto_rungs import FrontRung, ParetoRungs
from schedulers.halving.promotion_rungs import PromotionRungs
from searchers.objectives import dominates, outcome_constraints
from tests.schedulers.play import Actor, Play, Stage
from tests.tiers import examples

NAN = math.nan
GOALS = (("accuracy", "max"), ("latency", "min"))
LIMIT = outcome_constraints({"size": "<= 4"})
COORDINATE = st.integers(0, 3).map(float)
OUTCOMES = st.lists(
    st.tuples(
        st.tuples(COORDINATE | st.just(NAN), COORDINATE),
        st.sampled_from([0.0, 0.0, 0.5, 1.0, math.inf]),
    ),
    max_size=20,
)


def moasha(constraints=(), **arguments):
    scheduler = MOASHAScheduler(
        **{"max_t": 9, "reduction_factor": 3, "type": "promotion"} | arguments
    )
    assert scheduler.set_search_properties(
        None, None, seed=0, objectives=GOALS, constraints=constraints
    )
    return scheduler


def ranking_of(outcomes):
    """Rank by peeling off fronts of constrained domination, as the definition says."""

    def beats(one, other):
        if one[1] != other[1]:
            return one[1] < other[1]
        return dominates(one[0], other[0])

    invalid = [n for n, (point, _) in enumerate(outcomes) if any(map(math.isnan, point))]
    left, ranking = [n for n in range(len(outcomes)) if n not in invalid], []
    while left:
        front = [n for n in left if not any(beats(outcomes[m], outcomes[n]) for m in left)]
        ranking += [front[place] for place in epsilon_net([outcomes[n][0] for n in front])]
        left = [n for n in left if n not in front]
    return ranking + invalid


@settings(max_examples=examples(100))
@given(OUTCOMES)
def test_ranks_follow_from_constrained_domination(outcomes):
    rung = FrontRung(GOALS)
    for number, (point, violation) in enumerate(outcomes):
        rung.add(f"t{number}", point, violation)
        rung.wait(f"t{number}")
        expected = [f"t{n}" for n in ranking_of(outcomes[: number + 1])]
        assert list(rung.waiting()) == expected
        assert [rung.rank(trial_id) for trial_id in expected] == list(range(1, number + 2))
    restored = FrontRung(GOALS)
    restored.load_state_dict(json.loads(json.dumps(rung.state_dict(), allow_nan=False)))
    for trial_id in rung.trial_ids:
        assert restored.place(trial_id, 1, 3) == rung.place(trial_id, 1, 3)
    assert restored.state_dict() == rung.state_dict()


@settings(max_examples=examples(100))
@given(OUTCOMES, st.sampled_from([2, 3]))
def test_no_infeasible_trial_survives_where_a_feasible_one_would_not(outcomes, factor):
    rungs = ParetoRungs((1,), factor)
    for number, (point, violation) in enumerate(outcomes):
        standing = rungs.record(f"t{number}", 1, point, violation=violation)
        place = ranking_of(outcomes[: number + 1]).index(number)
        assert standing.survives == (place < math.ceil((number + 1) / factor)) or not any(
            map(math.isfinite, point)
        )


@settings(max_examples=examples(80))
@given(OUTCOMES, st.sampled_from([2, 3]), st.integers(0, 4))
def test_no_trial_that_is_given_up_could_have_been_promoted(outcomes, factor, num_future):
    rungs = PromotionRungs((1, 3), factor, lambda: FrontRung(GOALS))
    given_up = set()
    for number in range(len(outcomes)):
        rungs.join(f"t{number}")
    for number, (point, violation) in enumerate(outcomes):
        rungs.record(f"t{number}", 1, point, violation=violation)
        promotable = {place.trial_id for place in rungs.promotable()}
        assert not promotable & given_up
        for place, _ in list(rungs.hopeless(num_future)):
            given_up.add(place.trial_id)
        for trial_id in given_up:
            place = rungs.place(trial_id)
            assert not place.is_promotable or trial_id not in promotable


def test_a_large_front_is_spread_out_over_its_first_members_only():
    rng = Random(0)  # noqa: S311  (not a secret)
    points = [(x, 1 - x) for x in (rng.random() for _ in range(MAX_SPREAD + 40))]
    order = list(epsilon_net(points))
    assert sorted(order) == list(range(len(points)))
    head = [points[number] for number in order[:MAX_SPREAD]]
    rest = [min(math.dist(points[n], point) for point in head) for n in order[MAX_SPREAD:]]
    assert rest == pytest.approx(sorted(rest, reverse=True), abs=0.01)


def test_a_net_is_made_anew_where_its_front_has_changed():
    fronts = Fronts()
    for point in [(0.0, 9.0), (9.0, 0.0), (1.0, 8.0)]:
        fronts.add(point)
    assert list(fronts.ranked()) == [0, 1, 2]
    fronts.add((0.5, 0.5))
    assert list(fronts.ranked()) == [0, 1, 3, 2]
    assert [fronts.front_of(number) for number in range(4)] == [0, 0, 1, 0]


POINTS = {
    "a": (0.9, 9.0, 4),
    "b": (0.8, 2.0, 4),
    "c": (0.7, 5.0, 4),
    "d": (0.99, 1.0, 5),
    "e": (0.6, 6.0, 4),
    "f": (0.5, 1.0, 4),
}


class TestAConversation:
    """Six trials at the first level, of which two may go on."""

    def met(self, names, max_trials=None):
        scheduler = moasha(LIMIT)
        stage = scheduler.experiment = Stage(max_trials)
        decided = []
        for name in names:
            accuracy, latency, size = POINTS[name]
            actor = stage.trials[name] = Actor(name, status="PAUSED")
            scheduler.on_trial_add(actor)
            metrics = {"accuracy": accuracy, "latency": latency, "size": size}
            decided += scheduler.on_trial_result(actor, {"training_iteration": 1, **metrics})
        return scheduler, stage, decided

    def test_every_trial_pauses_and_says_how_it_stands(self):
        _, _, decided = self.met("abcd")
        assert all(isinstance(decision, Pause) for decision in decided)
        assert decided[-1].reason.rule == "moasha.rung"
        assert decided[-1].reason.numbers == {
            "rung": 1,
            "accuracy": 0.99,
            "latency": 1.0,
            "violation": 0.25,
            "front": 3,
            "num_better": 3,
            "position": 1,
            "rank": 4,
            "num_recorded": 4,
            "num_promotable": 1,
            "bracket": 0,
            "time": 1.0,
        }

    def test_the_ends_of_the_first_front_are_promoted(self):
        scheduler, stage, _ = self.met("abcdef")
        resumed = scheduler.on_idle(list(stage.trials.values()), 3)
        # The best in the first metric, and the one farthest from it; the infeasible one, which
        # dominates all, is the last.
        assert [(each.trial_id, each.reason.rule) for each in resumed] == [
            ("a", "moasha.promotion"),
            ("f", "moasha.promotion"),
        ]

    def test_a_trial_that_too_many_beat_is_stopped_so_that_its_checkpoint_can_go(self):
        _, _, decided = self.met("abcdef", max_trials=6)
        stops = [decision for decision in decided if isinstance(decision, Stop)]
        assert {stop.reason.rule for stop in stops} == {"moasha.cannot_be_promoted"}
        assert {stop.trial_id for stop in stops} == {"d", "e"}

    def test_the_state_goes_on_elsewhere(self):
        scheduler, stage, _ = self.met("abcdef")
        state = json.loads(json.dumps(scheduler.state_dict(), allow_nan=False))
        other = moasha(LIMIT)
        other.experiment = stage
        other.load_state_dict(state)
        trials = list(stage.trials.values())
        assert other.on_idle(trials, 3) == scheduler.on_idle(trials, 3)
        for constraints in ((), outcome_constraints({"size": "<= 5"})):
            with pytest.raises(ValueError, match="state must come from a scheduler with"):
                moasha(constraints).load_state_dict(state)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([0.0, 1.0, 2.0, NAN]),
        st.sampled_from([3.0, 4.0, 5.0, 6.0, None]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=examples(100))
@given(ROWS, st.integers(1, 4), st.booleans(), st.sampled_from(["promotion", "stopping"]))
def test_every_experiment_ends_and_no_infeasible_trial_overtakes(rows, num_slots, is_known, type_):
    curves = {
        f"t{number}": lambda time, row=row: {
            "accuracy": row[0] * time,
            "latency": row[1],
            "size": row[2],
        }
        for number, row in enumerate(rows)
    }
    sizes = {f"t{number}": size for number, (_, _, size) in enumerate(rows)}
    odd = {f"t{number}" for number, (_, latency, _) in enumerate(rows) if math.isnan(latency)}
    play = Play(
        moasha(LIMIT, type=type_),
        curves,
        num_slots,
        max_trials=len(rows) if is_known else None,
        last_time=9,
    )
    waiting = {}

    def note():
        for decision in play.decisions[play.num_facts_seen :]:
            if isinstance(decision, Resume) and decision.reason.rule == "moasha.promotion":
                # Several may be promoted at once, the best of them first.
                waiting.pop(decision.trial_id, None)
                time = play.stage.trials[decision.trial_id].time
                overlooked = [
                    name
                    for name, at in waiting.items()
                    if at == time and (sizes[name] or 9) <= 4 and name not in odd
                ]
                is_feasible = (sizes[decision.trial_id] or 9) <= 4
                assert is_feasible or not overlooked
        play.num_facts_seen = len(play.decisions)
        waiting.clear()
        waiting.update(
            (name, actor.time)
            for name, actor in play.stage.trials.items()
            if actor.status == "PAUSED"
        )

    play.num_facts_seen = 0
    play.after_fact = note
    play.run()


def test_own_metrics_win_over_those_of_the_experiment():
    scheduler = MOASHAScheduler({"a": "min", "b": "max"})
    assert scheduler.set_search_properties(None, None, seed=0, objectives=GOALS)
    assert scheduler.objectives == (("a", "min"), ("b", "max"))
    assert moasha().objectives == GOALS


@pytest.mark.parametrize("objectives", [(), (("loss", "min"),)])
def test_several_metrics_have_to_be_known(objectives):
    metric, mode = objectives[0] if objectives else (None, None)
    with pytest.raises(
        ValueError,
        match=r"MOASHAScheduler must compare at least two metrics, got .*; name them in "
        r"TuneConfig\(metric=\[\.\.\.\]",
    ):
        MOASHAScheduler().set_search_properties(metric, mode, seed=0, objectives=objectives)


def test_a_copy_compares_the_metrics_that_it_is_given():
    original = MOASHAScheduler(max_t=9, type="promotion")
    assert original.debug_string() == "MOASHAScheduler: 0 stopped"
    copied = copy.deepcopy(original)
    assert copied.set_search_properties(None, None, seed=0, objectives=GOALS)
    curves = {name: lambda time: {"accuracy": time, "latency": 1.0} for name in "abc"}
    ends = Play(copied, curves, 2, max_trials=3, last_time=9).run().stopped()
    assert max(time for time, _ in ends.values()) == 9


def test_modes_alone_are_refused():
    with pytest.raises(ValueError, match="modes must be None without metrics, got 'min'"):
        MOASHAScheduler(modes="min")


def test_scouts_are_compared_early_and_later_trials_where_they_are_told():
    scheduler = moasha(type="stopping", later_grace_period=3, num_scouts=2, num_full_scouts=1)

    def stops(trial_id, time, accuracy):
        actor = Actor(trial_id, status="RUNNING")
        if time == 1:
            scheduler.on_trial_add(actor)
        result = {"training_iteration": time, "accuracy": accuracy, "latency": 1.0}
        return bool(scheduler.on_trial_result(actor, result))

    # The first is trained to the end, whatever it reports; the second is compared at once.
    assert not stops("full", 1, 0.0)
    assert not stops("scout", 1, 0.5)
    assert not stops("later", 1, 0.0)
    assert not stops("full", 3, 0.0)
    assert not stops("scout", 3, 0.5)
    assert stops("later", 3, 0.4)


def judged_late(latency_at):
    """Let sixty trials pass all levels, whose accuracy never changes its order."""
    scheduler = moasha(type="stopping", later_grace_period="auto", num_scouts=1)
    for number in range(60):
        actor = Actor(f"t{number}", status="RUNNING")
        scheduler.on_trial_add(actor)
        for time in (1, 3, 9):
            metrics = {"accuracy": -number, "latency": latency_at(number, time)}
            scheduler.on_trial_result(actor, {"training_iteration": time, **metrics})
    return scheduler


def test_trials_are_compared_early_where_the_ranks_of_all_metrics_can_be_believed():
    scheduler = judged_late(lambda number, time: number)
    assert "; new trials compared from 1 on: 4 of the 4 best at 3 " in scheduler.debug_string()
    assert any("MOASHA compares new trials from 1 t" in remark for remark in scheduler.remarks)


def test_trials_are_compared_later_where_the_ranks_of_one_metric_mislead():
    scheduler = judged_late(lambda number, time: number if time == 9 else -number)
    assert "; new trials compared from 9 on: 0 of the " in scheduler.debug_string()
    assert scheduler.debug_string().endswith("(latency)")
    copy = moasha(type="stopping", later_grace_period="auto", num_scouts=1)
    copy.load_state_dict(json.loads(json.dumps(scheduler.state_dict(), allow_nan=False)))
    assert copy.debug_string() == scheduler.debug_string()
