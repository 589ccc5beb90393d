import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.halving.pasha import PASHAScheduler, crossing_distance, is_settled, percentile
from tests.schedulers.play import Actor, Play, Stage
from tests.tiers import examples


def pasha(**arguments):
    return PASHAScheduler(**{"metric": "loss", "mode": "min", "max_t": 81} | arguments)


def stable(number):
    return lambda time: number + 1 / time


def turning(number):
    """Reverse the order of trials at every level from the third result on."""
    return lambda time: number * (-1) ** sum(time >= level for level in (3, 9, 27, 81))


def curves(shape, num_trials=27):
    return {f"t{number:02d}": shape(number) for number in range(num_trials)}


@pytest.mark.parametrize("num_slots", [1, 4, 27])
def test_the_ceiling_stays_where_the_ranking_is_stable(num_slots):
    scheduler = pasha()
    ends = Play(scheduler, curves(stable), num_slots, max_trials=27).run().stopped()
    assert scheduler.ceiling == 3
    assert max(time for time, _ in ends.values()) == 3
    assert sum(time == 3 for time, _ in ends.values()) >= 9


def test_the_ceiling_rises_to_the_top_where_the_ranking_turns():
    scheduler = pasha()
    done = Play(scheduler, curves(turning, 81), 9, max_trials=81).run()
    assert scheduler.ceiling == 81
    assert [decision.reason.rule for decision in done.decisions].count("pasha.max_t") >= 1


def test_it_spends_less_than_it_would_without_a_ceiling():
    spent = {}
    for shape in (stable, turning):
        ends = Play(pasha(), curves(shape, 81), 9, max_trials=81).run().stopped()
        spent[shape] = sum(time for time, _ in ends.values())
    # Each trial to the first level, a third of them to the second.
    assert spent[stable] == 81 + 27 * 2
    assert spent[turning] > 2 * spent[stable]


def two_at_the_ceiling(scheduler, values):
    """Take trials to the ceiling with ``{trial: (value at level 1, value at 2, value at 3)}``."""
    scheduler.experiment = Stage()
    decided = []
    for name, losses in values.items():
        actor = Actor(name, status="RUNNING")
        scheduler.experiment.trials[name] = actor
        scheduler.on_trial_add(actor)
        for time, loss in enumerate(losses, start=1):
            decided = list(
                scheduler.on_trial_result(actor, {"training_iteration": time, "loss": loss})
            )
            decided += [
                (type(decision).__name__, decision.trial_id, decision.reason.numbers["rung"])
                for decision in decided
            ]
    return decided


def test_two_trials_that_change_places_raise_the_ceiling():
    scheduler = pasha()
    two_at_the_ceiling(scheduler, {"a": (0.1, 0.2, 0.4)})
    assert scheduler.ceiling == 3
    two_at_the_ceiling(scheduler, {"b": (0.2, 0.3, 0.3)})
    assert scheduler.ceiling == 9


def test_a_repeated_report_raises_nothing():
    scheduler = pasha()
    two_at_the_ceiling(scheduler, {"a": (0.1, 0.2, 0.4), "b": (0.2, 0.3, 0.3)})
    before = scheduler.state_dict()
    two_at_the_ceiling(scheduler, {"b": (0.2, 0.3, 0.3)})
    assert scheduler.state_dict() == before


@pytest.mark.parametrize(("epsilon", "ceiling"), [(0.11, 3), (0.09, 9)])
def test_a_given_epsilon_is_not_measured(epsilon, ceiling):
    scheduler = pasha(epsilon=epsilon)
    two_at_the_ceiling(scheduler, {"a": (0.1, 0.2, 0.4), "b": (0.2, 0.3, 0.3)})
    assert (scheduler.ceiling, scheduler.epsilon) == (ceiling, epsilon)


def test_epsilon_is_what_is_between_curves_that_cross_and_cross_back():
    # At 1 b leads, at 2 a, at 3 b again: 0.25 between them at the ceiling counts as noise, and so
    # does the change of c and d.
    scheduler = pasha()
    two_at_the_ceiling(scheduler, {"a": (0.5, 0.3, 0.5), "b": (0.45, 0.4, 0.25)})
    assert (scheduler.ceiling, scheduler.epsilon) == (3, 0.25)
    two_at_the_ceiling(scheduler, {"c": (0.6, 0.6, 0.9), "d": (0.7, 0.7, 0.8)})
    assert scheduler.ceiling == 3
    two_at_the_ceiling(scheduler, {"e": (0.9, 0.9, 0.1)})
    assert scheduler.ceiling == 9


def test_epsilon_stays_until_there_is_another_one_at_the_new_ceiling():
    scheduler = pasha()
    two_at_the_ceiling(
        scheduler, {"a": (0.5, 0.3, 0.5), "b": (0.45, 0.4, 0.25), "e": (0.9, 0.9, 0.1)}
    )
    assert (scheduler.ceiling, scheduler.epsilon) == (9, 0.25)


def test_it_ends_with_one_trial_at_the_ceiling_even_if_there_are_few():
    ends = Play(pasha(), curves(stable, 2), 1, max_trials=2).run()
    assert ends.stopped() == {"t00": (3, "TERMINATED"), "t01": (1, "TERMINATED")}
    assert ends.summary[-2:] == [
        ("pause", "t00", "pasha.rung"),
        ("stop", "t00", "pasha.not_promoted"),
    ]
    assert ends.decisions[-1].reason.numbers["ceiling"] == 3


def test_with_a_single_level_it_only_trains():
    assert Play(pasha(max_t=1), curves(stable, 3), 1, max_trials=3).run().stopped()["t02"] == (
        1,
        "TERMINATED",
    )


def test_trials_at_a_higher_place_within_epsilon_are_settled():
    lower = {"a": 0.1, "b": 0.2, "c": 0.5}
    assert is_settled(lower, ["a", "b", "c"], 0.0)
    assert not is_settled(lower, ["a", "c", "b"], 0.2)
    assert is_settled(lower, ["a", "c", "b"], 0.31)
    assert is_settled(lower, ["b", "a"], 0.1)
    assert is_settled({"a": 0.1, "b": math.nan}, ["a", "b"], 0.0)
    assert is_settled({}, ["a"], 0.0)


def test_only_times_that_both_have_count_for_a_crossing():
    one, other = {1: 0.0, 2: 1.0, 3: 0.0, 4: 9.0}, {1: 0.5, 2: 0.5, 3: 0.5}
    assert crossing_distance(one, other, 3) == 0.5
    assert crossing_distance(one, other, 2) is None
    assert crossing_distance(one, {}, 3) is None
    assert crossing_distance({1: 0.0, 2: 0.5, 3: 0.0}, other, 3) is None  # they touch


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=20), st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values, percent):
    np = pytest.importorskip("numpy")
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"epsilon": -1},
            ValueError,
            "epsilon must be at least 0 and finite, got -1; None measures it",
        ),
        ({"epsilon": math.nan}, ValueError, "epsilon must be at least 0 and finite, got nan"),
        ({"epsilon": "auto"}, TypeError, "epsilon must be a number, got 'auto'"),
        ({"reduction_factor": 1}, ValueError, "reduction_factor must be more than 1"),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        pasha(**arguments)
    assert str(caught.value).startswith(complaint)


ROWS = st.lists(
    st.lists(st.integers(0, 5).map(float) | st.just(math.nan), min_size=8, max_size=8),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(40))
@given(ROWS, st.integers(1, 4), st.data())
def test_a_restore_at_any_point_changes_no_decision(rows, num_slots, data):
    acts = {
        f"t{number:02d}": lambda time, row=row: row[time - 1] for number, row in enumerate(rows)
    }

    def new():
        return pasha(max_t=8, reduction_factor=2)

    whole = Play(new(), acts, num_slots, max_trials=len(rows)).run()
    cut = data.draw(st.integers(1, whole.num_facts))
    broken = Play(new(), acts, num_slots, max_trials=len(rows))

    def restore():
        if broken.num_facts == cut:
            state = json.loads(
                json.dumps(broken.scheduler.state_dict(), allow_nan=False, sort_keys=True)
            )
            broken.scheduler = new()
            broken.scheduler.load_state_dict(state)
            broken.scheduler.experiment = broken.stage

    broken.after_fact = restore
    assert list(map(repr, broken.run().decisions)) == list(map(repr, whole.decisions))
    assert broken.scheduler.state_dict() == whole.scheduler.state_dict()
