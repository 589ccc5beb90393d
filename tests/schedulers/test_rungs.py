import json
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.halving.rungs import Rungs, RungStanding, bracket_sizes, rung_levels

NAN = math.nan
VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.integers(0, 5).map(float)
FACTORS = st.sampled_from([1.5, 2, 3, 4, 10])
MODES = st.sampled_from(["min", "max"])


def one_rung(values: Iterable[float], factor: float = 2, mode: str = "min") -> list[RungStanding]:
    rungs = Rungs([1], factor, mode)
    return [rungs.record(f"t{index}", 1, value) for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("grace_period", "max_t", "factor", "levels"),
    [
        (1, 81, 3, (1, 3, 9, 27, 81)),
        (1, 1000, 10, (1, 10, 100, 1000)),
        (1, 100, 4, (1, 4, 16, 64, 100)),
        (3, 81, 3, (3, 9, 27, 81)),
        (1, 243, 3, (1, 3, 9, 27, 81, 243)),
        (1, 125, 5, (1, 5, 25, 125)),
        (5, 5, 4, (5,)),
        (1, 4, 1.5, (1, 1.5, 2.25, 3.375, 4)),
    ],
)
def test_levels_are_products_of_the_factor_and_end_at_max_t(grace_period, max_t, factor, levels):
    assert rung_levels(grace_period, max_t, factor) == levels


@given(st.integers(2, 12), st.integers(1, 8))
def test_no_level_is_lost_to_rounding(factor, exponent):
    assert rung_levels(1, factor**exponent, factor) == tuple(factor**k for k in range(exponent + 1))


def test_a_rounding_error_below_max_t_adds_no_second_rung():
    root = 1000 ** (1 / 3)
    assert root**3 != 1000
    assert len(rung_levels(1, 1000, root)) == 4
    assert rung_levels(1, 1000, root)[-1] == 1000


@pytest.mark.parametrize(
    ("levels", "sizes"),
    [
        ((1, 3, 9, 27, 81), (81, 34, 15, 8, 5)),
        ((1, 4, 16, 64, 256), (256, 80, 27, 10, 5)),
        ((1, 10, 100, 1000), (1000, 134, 20, 4)),
    ],
)
def test_brackets_have_the_sizes_of_hyperband(levels, sizes):
    assert bracket_sizes(levels, len(levels)) == sizes


def test_fewer_brackets_are_the_first_ones():
    assert bracket_sizes((1, 3, 9, 27, 81), 2) == (81, 34)


def test_the_best_half_rounded_up_survives():
    standings = one_rung([5.0, 4.0, 6.0, 4.5, 4.2], factor=2)
    assert [(s.rank, s.num_recorded, s.num_kept, s.survives) for s in standings] == [
        (1, 1, 1, True),
        (1, 2, 1, True),
        (3, 3, 2, False),
        (2, 4, 2, True),
        (2, 5, 3, True),
    ]


def test_the_cutoff_is_the_worst_value_that_survives():
    assert [s.cutoff for s in one_rung([5.0, 4.0, 6.0, 4.5], factor=2)] == [5.0, 4.0, 5.0, 4.5]
    assert [s.cutoff for s in one_rung([5.0, 4.0, 6.0, 4.5], factor=2, mode="max")] == [
        5.0,
        5.0,
        5.0,
        5.0,
    ]


def test_mode_max_reverses_the_ranks():
    assert [s.rank for s in one_rung([0.1, 0.3, 0.2], mode="min")] == [1, 2, 2]
    assert [s.rank for s in one_rung([0.1, 0.3, 0.2], mode="max")] == [1, 1, 2]


def test_equal_values_share_the_better_rank_and_survive_together():
    standings = one_rung([0.5] * 8, factor=4)
    assert [s.rank for s in standings] == [1] * 8
    assert all(s.survives for s in standings)


def test_ties_below_the_cutoff_are_stopped_together():
    standings = one_rung([0.1, 0.5, 0.5, 0.5], factor=4)
    assert [s.survives for s in standings] == [True, False, False, False]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_a_number_ranks_behind_everything(mode):
    standings = one_rung([NAN, 0.5, NAN, math.inf, -math.inf, NAN], mode=mode)
    assert [s.survives for s in standings if math.isnan(s.value)] == [True, False, False]
    assert [s.rank for s in standings if math.isnan(s.value)] == [1, 3, 6]
    assert standings[1].rank == 1


def test_infinities_are_ordered_as_numbers():
    assert [s.rank for s in one_rung([0.0, math.inf, -math.inf], mode="min")] == [1, 2, 1]


def test_a_cutoff_among_values_that_are_no_numbers_is_nan():
    standings = one_rung([1.0, NAN, NAN, NAN], factor=2)
    assert math.isnan(standings[-1].cutoff)


def test_reached_is_the_highest_level_at_or_below_the_time():
    rungs = Rungs([2, 8, 32], 4, "min")
    assert [rungs.reached(time) for time in (0, 1.99, 2, 7, 8, 31.5, 32, 1000)] == [
        None,
        None,
        2,
        2,
        8,
        8,
        32,
        32,
    ]


def test_a_trial_is_recorded_once_per_level():
    rungs = Rungs([1, 4], 2, "min")
    assert rungs.record("a", 1, 0.5) is not None
    assert rungs.record("a", 1, 0.1) is None
    assert [rung.num_recorded for rung in rungs] == [1, 0]
    assert next(iter(rungs)).cutoff == 0.5


def test_a_jump_over_levels_leaves_them_empty_for_good():
    rungs = Rungs([1, 4, 16, 64], 4, "min")
    assert rungs.record("a", 16, 0.1).level == 16
    assert [rungs.record("a", level, 0.01) for level in (16, 4, 1)] == [None, None, None]
    assert [(rung.num_recorded, rung.num_skipped) for rung in rungs] == [
        (0, 1),
        (0, 1),
        (1, 0),
        (0, 0),
    ]


def test_a_skipped_level_is_counted_once():
    rungs = Rungs([1, 4, 16], 4, "min")
    rungs.record("a", 4, 0.1)
    rungs.record("a", 16, 0.1)
    assert [rung.num_skipped for rung in rungs] == [1, 0, 0]


@pytest.mark.parametrize("level", [0, 2, 5])
def test_an_unknown_level_is_refused(level):
    with pytest.raises(ValueError, match=rf"level must be one of \(1, 4\), got {level}; reached"):
        Rungs([1, 4], 4, "min").record("a", level, 0.5)


def test_a_summary_is_one_short_line():
    rungs = Rungs([1, 4], 4, "min")
    rungs.record("a", 4, 0.25)
    assert [str(rung) for rung in rungs] == [
        "level 1: 0 recorded, 1 skipped, cutoff nan",
        "level 4: 1 recorded, 0 skipped, cutoff 0.25",
    ]


@given(st.lists(VALUES, min_size=1), FACTORS, MODES)
def test_the_best_so_far_always_survives(values, factor, mode):
    for standing in one_rung(values, factor, mode):
        if standing.rank == 1:
            assert standing.survives
    assert any(standing.survives for standing in one_rung(values, factor, mode))


@given(st.lists(st.floats(allow_nan=False), min_size=1), FACTORS, MODES)
def test_a_value_survives_exactly_when_it_is_as_good_as_the_cutoff(values, factor, mode):
    for standing in one_rung(values, factor, mode):
        is_as_good = (
            standing.value <= standing.cutoff
            if mode == "min"
            else standing.value >= standing.cutoff
        )
        assert standing.survives == is_as_good


@given(st.lists(st.integers(0, 9), min_size=1), MODES)
def test_a_rank_is_one_more_than_the_number_of_better_values(values, mode):
    for count, standing in enumerate(one_rung(values, 3, mode), start=1):
        seen = values[:count]
        num_better = sum(
            value < standing.value if mode == "min" else value > standing.value for value in seen
        )
        assert (standing.rank, standing.num_recorded) == (num_better + 1, count)


@given(st.lists(VALUES), FACTORS, MODES)
def test_min_is_max_of_the_negated_values(values, factor, mode):
    other = "max" if mode == "min" else "min"
    standings = one_rung(values, factor, mode)
    mirrored = one_rung([-value for value in values], factor, other)
    assert [(s.rank, s.survives) for s in standings] == [(s.rank, s.survives) for s in mirrored]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1, 3, 9, 27]), VALUES)),
    st.permutations(range(6)),
    MODES,
)
def test_ranks_do_not_depend_on_the_names_of_trials(reports, renamed, mode):
    one, other = Rungs([1, 3, 9, 27], 3, mode), Rungs([1, 3, 9, 27], 3, mode)
    for trial, level, value in reports:
        standing, twin = (
            one.record(f"t{trial}", level, value),
            other.record(f"t{renamed[trial]}", level, value),
        )
        assert (standing and (standing.rank, standing.survives)) == (
            twin and (twin.rank, twin.survives)
        )


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([1, 3, 9, 27]), VALUES)), MODES)
def test_no_trial_is_recorded_twice_on_a_rung_and_none_climbs_down(reports, mode):
    rungs = Rungs([1, 3, 9, 27], 3, mode)
    recorded = [
        (trial, level) for trial, level, value in reports if rungs.record(trial, level, value)
    ]
    assert len(set(recorded)) == len(recorded) == sum(rung.num_recorded for rung in rungs)
    for trial in "abcd":
        climbed = [level for name, level in recorded if name == trial]
        assert climbed == sorted(climbed)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([1, 3, 9]), VALUES)),
    st.integers(0, 20),
    FACTORS,
    MODES,
)
def test_a_restored_state_continues_exactly_as_the_original(reports, cut, factor, mode):
    original = Rungs([1, 3, 9], factor, mode)
    for report in reports[:cut]:
        original.record(*report)
    restored = Rungs([1, 3, 9], factor, mode)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    for report in reports[cut:]:
        assert repr(original.record(*report)) == repr(restored.record(*report))
    assert original.state_dict() == restored.state_dict()
