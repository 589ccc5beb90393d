import json
import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers import ASHAScheduler, AsyncHyperBandScheduler, Reason, Stop
from tests.schedulers.play import Actor, Play

INF = math.inf
NAN = math.nan


@dataclass
class Stub:
    trial_id: str
    config: dict = field(default_factory=dict)
    status: str = "RUNNING"
    has_checkpoint: bool = False


def asha(**arguments):
    return ASHAScheduler(
        **{"metric": "loss", "mode": "min", "max_t": 9, "reduction_factor": 3, "type": "stopping"}
        | arguments
    )


def report_one(scheduler, trial_id, result):
    return list(scheduler.on_trial_result(Stub(trial_id), result))


def talk(scheduler, *reports):
    """Report ``(trial_id, training_iteration, loss)``; return the stops, with their rules."""
    stops = []
    for trial_id, time, loss in reports:
        for decision in report_one(scheduler, trial_id, {"training_iteration": time, "loss": loss}):
            assert decision.trial_id == trial_id
            stops.append((trial_id, time, decision.reason.rule))
    return stops


def test_a_small_history_matches_a_calculation_by_hand():
    scheduler = asha()
    assert scheduler.levels == (1, 3, 9)
    stops = talk(
        scheduler,
        ("a", 1, 0.50),  # 1: a                   alone
        ("b", 1, 0.60),  # 1: a B                 best 1 of 2: b falls
        ("c", 1, 0.40),  # 1: c a b               best 1 of 3
        ("a", 2, 0.90),  #                        no level here
        ("a", 3, 0.45),  # 3: a                   alone
        ("d", 1, 0.45),  # 1: c d a b             best 2 of 4
        ("c", 2, 0.39),
        ("c", 3, 0.47),  # 3: a C                 best 1 of 2: c falls
        ("e", 1, 0.46),  # 1: c d E a b           best 2 of 5: e falls
        ("d", 3, 0.30),  # 3: d a c               best 1 of 3
        ("a", 8, 0.99),
        ("a", 9, 0.80),  # 9: a                   trained enough
        ("d", 9, 0.90),  # 9: a d                 so has d, though worse
    )
    assert stops == [
        ("b", 1, "asha.rung"),
        ("c", 3, "asha.rung"),
        ("e", 1, "asha.rung"),
        ("a", 9, "asha.max_t"),
        ("d", 9, "asha.max_t"),
    ]


def test_a_stop_carries_the_numbers_it_is_based_on():
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.4), ("c", 1, 0.1))
    assert report_one(scheduler, "d", {"training_iteration": 2, "loss": 0.6}) == [
        Stop(
            "d",
            Reason(
                "asha.rung",
                {
                    "rung": 1,
                    "value": 0.6,
                    "cutoff": 0.4,
                    "rank": 4,
                    "num_recorded": 4,
                    "num_kept": 2,
                    "time": 2,
                    "bracket": 0,
                },
            ),
        )
    ]


def test_a_stop_at_max_t_carries_the_trials_rank():
    scheduler = asha()
    talk(scheduler, ("a", 9, 0.5))
    (stop,) = report_one(scheduler, "b", {"training_iteration": 11, "loss": 0.4})
    assert stop.reason.rule == "asha.max_t"
    assert {
        "max_t": 9,
        "time": 11,
        "rung": 9,
        "value": 0.4,
        "rank": 1,
        "num_recorded": 2,
    }.items() <= stop.reason.numbers.items()


def test_large_values_are_good_in_mode_max():
    assert talk(asha(mode="max"), ("a", 1, 0.5), ("b", 1, 0.4), ("c", 1, 0.6)) == [
        ("b", 1, "asha.rung")
    ]


@pytest.mark.parametrize(
    ("max_t", "factor", "levels"),
    [(81, 3, (1, 3, 9, 27, 81)), (1000, 10, (1, 10, 100, 1000)), (100, 4, (1, 4, 16, 64, 100))],
)
def test_a_trial_is_compared_at_every_level_below_max_t(max_t, factor, levels):
    scheduler = asha(max_t=max_t, reduction_factor=factor)
    assert scheduler.levels == levels
    reports = [("good", time, 0.1) for time in range(1, max_t)]
    assert talk(scheduler, *reports) == []
    for number, level in enumerate(levels[:-1]):
        assert talk(scheduler, (f"bad{number}", level, 0.9)) == [
            (f"bad{number}", level, "asha.rung")
        ]
    assert talk(scheduler, ("good", max_t, 0.1)) == [("good", max_t, "asha.max_t")]


def test_no_trial_is_stopped_within_the_grace_period():
    scheduler = asha(grace_period=3)
    assert talk(scheduler, ("a", 1, 0.1), ("b", 2, 0.9), ("a", 3, 0.1), ("b", 2.9, 0.9)) == []
    assert talk(scheduler, ("b", 3, 0.9)) == [("b", 3, "asha.rung")]


def test_a_report_between_levels_counts_at_the_level_below():
    scheduler = asha()
    assert talk(scheduler, ("a", 3, 0.5), ("b", 5, 0.6), ("c", 8, 0.4)) == [("b", 5, "asha.rung")]


def test_rare_reports_never_put_a_late_value_on_a_lower_rung():
    scheduler = asha(max_t=64, reduction_factor=4)
    assert talk(scheduler, ("rare", 16, 0.10), ("rare", 17, 0.09), ("rare", 18, 0.08)) == []
    assert talk(scheduler, ("young", 1, 0.9), ("young", 4, 0.8)) == []
    assert talk(scheduler, ("young", 16, 0.7)) == [("young", 16, "asha.rung")]
    assert "level 1: 1 recorded, 1 skipped" in scheduler.debug_string()


def test_repeated_and_belated_results_change_nothing():
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.5), ("a", 2, 0.5), ("a", 3, 0.4), ("b", 1, 0.5))
    before = scheduler.state_dict()
    assert (
        talk(scheduler, ("a", 3, 0.9), ("a", 1, 0.9), ("a", 2, 0.9), ("b", 1, 0.9), ("b", 2, 0.9))
        == []
    )
    assert scheduler.state_dict() == before


def test_a_retry_from_the_start_is_judged_again_only_where_it_has_not_been():
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.5), ("b", 3, 0.2), ("a", 2, 0.5))
    assert talk(scheduler, ("a", 1, 0.7), ("a", 2, 0.6)) == []
    assert talk(scheduler, ("a", 3, 0.6)) == [("a", 3, "asha.rung")]


def test_a_stop_is_repeated_with_the_same_reason_if_the_trial_reports_again():
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.1))
    first = report_one(scheduler, "b", {"training_iteration": 1, "loss": 0.9})
    before = scheduler.state_dict()
    assert first != []
    assert report_one(scheduler, "b", {"training_iteration": 1, "loss": 0.0}) == first
    assert report_one(scheduler, "b", {}) == first
    assert scheduler.state_dict() == before


@pytest.mark.parametrize(
    "end", [lambda s: s.on_trial_complete(Stub("b"), None), lambda s: s.on_trial_error(Stub("b"))]
)
def test_a_stop_reason_is_forgotten_when_the_trial_ends_but_its_value_stays(end):
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.1), ("b", 1, 0.9))
    assert end(scheduler) == ()
    assert scheduler.state_dict()["verdicts"] == {}
    assert "level 1: 2 recorded" in scheduler.debug_string()


@pytest.mark.parametrize("bad", [NAN, None, np.float32("nan"), INF])
def test_a_value_that_is_not_a_number_is_worst(bad):
    assert talk(asha(), ("a", 1, 0.5), ("b", 1, bad)) == [("b", 1, "asha.rung")]
    assert talk(asha(), ("b", 1, bad), ("a", 1, 0.5)) == []


def test_trials_that_all_diverge_do_not_keep_each_other_alive():
    scheduler = asha()
    stopped = [
        trial for trial, *_ in talk(scheduler, *[(f"t{number}", 1, NAN) for number in range(9)])
    ]
    assert stopped == [f"t{number}" for number in range(1, 9)]


def test_a_trial_without_a_number_at_its_second_level_is_stopped_even_if_alone_there():
    scheduler = asha()
    assert talk(scheduler, ("a", 1, NAN), ("a", 2, NAN)) == []
    assert talk(scheduler, ("a", 3, NAN)) == [("a", 3, "asha.rung")]
    # One whose first results were not defined yet continues, and so does one that reports rarely.
    assert talk(scheduler, ("b", 1, 0.5), ("b", 3, 0.5)) == []
    assert talk(asha(), ("a", 1, NAN), ("a", 3, 0.5)) == []
    assert talk(asha(), ("a", 3, NAN)) == []


def test_a_diverged_trial_is_stopped_even_if_first_at_its_level():
    assert talk(asha(), ("a", 1, 0.5), ("a", 3, NAN)) == [("a", 3, "asha.rung")]


def test_a_reason_with_nan_equals_itself_and_is_strict_json():
    scheduler, twin = asha(), asha()
    reports = [("a", 1, INF), ("b", 1, NAN)]
    talk(scheduler, *reports)
    talk(twin, *reports)
    result = {"training_iteration": 1}
    assert report_one(scheduler, "b", result) == report_one(twin, "b", result)
    (stop,) = report_one(scheduler, "b", result)
    assert json.loads(json.dumps(dict(stop.reason.numbers), allow_nan=False))["value"] == "nan"


@pytest.mark.parametrize(
    "result",
    [{}, {"loss": 0.5}, {"training_iteration": NAN, "loss": 0.5}, {"training_iteration": None}],
)
def test_without_a_time_nothing_is_decided_and_the_debug_string_shows_it(result):
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.1))
    assert report_one(scheduler, "b", result) == []
    assert "results without a number under 'training_iteration'" in scheduler.debug_string()


@pytest.mark.parametrize("value", [{}, {"loss": "0.5"}, {"loss": [0.5]}, {"loss": 10**400}])
def test_without_the_metric_nothing_is_decided_and_the_debug_string_shows_it(value):
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.1))
    assert report_one(scheduler, "b", {"training_iteration": 1} | value) == []
    assert scheduler.debug_string().count("results without a number under 'loss'") == 1
    assert talk(scheduler, ("b", 1, 0.9)) == [("b", 1, "asha.rung")]


def test_max_t_needs_no_metric():
    (stop,) = report_one(asha(), "a", {"training_iteration": 9})
    assert stop.reason == Reason("asha.max_t", {"time": 9, "bracket": 0, "max_t": 9})


@pytest.mark.parametrize("value", [True, 1, np.float64(1), np.int64(1), np.float32(1), Fraction(1)])
def test_every_kind_of_number_is_a_number(value):
    scheduler = asha()
    assert report_one(scheduler, "a", {"training_iteration": np.int64(1), "loss": value}) == []
    assert "level 1: 1 recorded, 0 skipped, cutoff 1" in scheduler.debug_string()
    json.dumps(scheduler.state_dict(), allow_nan=False)


def test_trials_may_continue_beyond_max_t():
    scheduler = asha(stop_last_trials=False)
    assert talk(scheduler, ("a", 9, 0.1), ("b", 9, 0.9), ("b", 10, 0.9), ("b", 1000, 0.9)) == []


def test_any_growing_entry_can_be_the_time():
    scheduler = asha(time_attr="time_total_s", max_t=60.0, grace_period=7.5)
    assert scheduler.levels == (7.5, 22.5, 60)
    assert report_one(scheduler, "a", {"time_total_s": 8.1, "loss": 0.1}) == []
    (stop,) = report_one(scheduler, "b", {"time_total_s": 7.6, "loss": 0.2})
    assert (stop.reason.numbers["rung"], stop.reason.numbers["time"]) == (7.5, 7.6)


def test_the_experiment_may_name_metric_and_mode():
    scheduler = ASHAScheduler()
    assert scheduler.set_search_properties("loss", "max", seed=3)
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.4)) == [("b", 1, "asha.rung")]


def test_a_metric_of_its_own_is_not_overruled():
    scheduler = asha()
    assert not scheduler.set_search_properties("accuracy", "max", seed=3)
    assert (scheduler.metric, scheduler.mode) == ("loss", "min")
    assert asha().set_search_properties(None, None, seed=3)


@pytest.mark.parametrize(
    ("metric", "mode", "complaint"),
    [
        (
            None,
            "min",
            (
                r"metric must be the name of a metric, got None; give it to TuneConfig or to "
                r"ASHAScheduler"
            ),
        ),
        ("loss", None, r"mode must be 'min' or 'max', got None; give it to TuneConfig"),
        ("loss", "lowest", r"mode must be 'min' or 'max', got 'lowest'"),
    ],
)
def test_a_missing_metric_or_mode_is_refused_before_the_first_trial(metric, mode, complaint):
    with pytest.raises(ValueError, match=complaint):
        ASHAScheduler().set_search_properties(metric, mode, seed=0)


def test_used_without_an_experiment_it_still_refuses_to_guess_the_metric():
    with pytest.raises(ValueError, match="metric must be"):
        talk(ASHAScheduler(), ("a", 1, 0.5))


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"grace_period": 0, "max_t": 100},
            ValueError,
            "grace_period must be between 1 and max_t=100, got 0; it is counted in time_attr units",
        ),
        (
            {"grace_period": 101, "max_t": 100},
            ValueError,
            "grace_period must be between 1 and max_t=100, got 101",
        ),
        ({"grace_period": NAN}, ValueError, "grace_period must be between 1 and max_t=9, got nan"),
        ({"grace_period": "1"}, TypeError, "grace_period must be a number, got '1'"),
        ({"max_t": 0}, ValueError, "max_t must be at least 1 and finite, got 0"),
        ({"max_t": INF}, ValueError, "max_t must be at least 1 and finite, got inf"),
        ({"max_t": True}, TypeError, "max_t must be a number, got True"),
        (
            {"reduction_factor": 1},
            ValueError,
            "reduction_factor must be more than 1 and finite, got 1",
        ),
        (
            {"reduction_factor": INF},
            ValueError,
            "reduction_factor must be more than 1 and finite, got inf",
        ),
        ({"reduction_factor": None}, TypeError, "reduction_factor must be a number, got None"),
        (
            {"brackets": 0},
            ValueError,
            "brackets must be at least 1, got 0; 1 compares all trials from the lowest level on",
        ),
        ({"brackets": 1.0}, TypeError, "brackets must be a whole number, got 1.0"),
        ({"mode": "minimum"}, ValueError, "mode must be 'min', 'max' or None, got 'minimum'"),
        ({"metric": ""}, ValueError, "metric must be a name or None, got ''"),
        (
            {"time_attr": ""},
            ValueError,
            "time_attr must be the name of an entry of each result, got ''",
        ),
        (
            {"type": "pausing"},
            ValueError,
            "type must be 'auto', 'promotion' or 'stopping', got 'pausing'",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        asha(**arguments)
    assert str(caught.value).startswith(complaint)


def test_both_names_are_the_same_class():
    assert ASHAScheduler is AsyncHyperBandScheduler


def started_at(scheduler, trial_ids):
    """Return for each trial the level at which a hopeless value was stopped."""
    levels = {}
    for trial_id in trial_ids:
        for level in scheduler.levels:
            for stop in report_one(scheduler, trial_id, {"training_iteration": level, "loss": NAN}):
                levels.setdefault(trial_id, stop.reason.numbers["rung"])
    return levels


def drawn(scheduler, trial_ids):
    """Return the bracket of each trial, as its stop at max_t tells."""
    return [
        report_one(scheduler, trial_id, {"training_iteration": 10**6})[0].reason.numbers["bracket"]
        for trial_id in trial_ids
    ]


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_more_brackets_than_levels_are_as_many_as_levels(kind):
    many, few = asha(brackets=7, type=kind), asha(brackets=3, type=kind)
    assert [remark.split(",")[0] for remark in many.remarks] == [
        "ASHAScheduler(brackets=7) makes 3 brackets"
    ]
    assert "the levels are 1, 3, 9" in many.remarks[0]
    assert not few.remarks
    reports = [(f"t{number}", level, number / 9) for number in range(9) for level in (1, 3)]
    assert talk(many, *reports) == talk(few, *reports)
    assert many.state_dict() == few.state_dict()


def test_brackets_are_drawn_in_proportion_to_hyperbands_sizes():
    scheduler = asha(max_t=81, brackets=5)
    scheduler.set_search_properties(None, None, seed=5)
    counts = Counter(drawn(scheduler, [f"t{number:05d}" for number in range(3000)]))
    shares = [counts[bracket] / 3000 for bracket in range(5)]
    assert shares == pytest.approx([size / 143 for size in (81, 34, 15, 8, 5)], abs=0.03)


def test_a_bracket_is_drawn_by_seed_and_name_alone():
    names = [f"t{number:05d}" for number in range(50)]
    draws = []
    for seed, order in ((1, names), (1, names[::-1]), (2, names)):
        scheduler = asha(max_t=81, brackets=5)
        scheduler.set_search_properties(None, None, seed=seed)
        draws.append(dict(zip(order, drawn(scheduler, order), strict=True)))
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_each_bracket_starts_one_level_later_and_compares_only_its_own():
    scheduler = asha(max_t=27, brackets=3)
    scheduler.set_search_properties(None, None, seed=0)
    names = [f"t{number:05d}" for number in range(60)]
    lowest = started_at(scheduler, names)
    firsts = {}
    for name, bracket in zip(names, drawn(scheduler, names), strict=True):
        if bracket not in firsts:
            firsts[bracket] = name
            # Alone on the first rung of its bracket.
            assert lowest[name] == scheduler.levels[bracket + 1]
        else:
            assert lowest[name] == scheduler.levels[bracket]
    assert sorted(firsts) == [0, 1, 2]


def test_a_restored_scheduler_continues_even_under_another_seed():
    scheduler, restored = asha(max_t=81, brackets=5), asha(max_t=81, brackets=5)
    scheduler.set_search_properties(None, None, seed=7)
    restored.set_search_properties(None, None, seed=8)
    names = [f"t{number:05d}" for number in range(40)]
    talk(scheduler, *[(name, 1, float(number)) for number, name in enumerate(names[:20])])
    report_one(scheduler, "t00000", {})
    restored.load_state_dict(json.loads(json.dumps(scheduler.state_dict(), allow_nan=False)))
    assert restored.debug_string() == scheduler.debug_string()
    reports = [
        (name, level, -float(number)) for level in (1, 3, 9) for number, name in enumerate(names)
    ]
    assert talk(restored, *reports) == talk(scheduler, *reports)
    assert restored.state_dict() == scheduler.state_dict()


@pytest.mark.parametrize(
    "change",
    [{"max_t": 27}, {"mode": "max"}, {"metric": "error"}, {"reduction_factor": 2}, {"brackets": 2}],
)
def test_the_state_of_a_different_scheduler_is_refused(change):
    with pytest.raises(
        ValueError,
        match=r"state must come from a scheduler with .*; construct it with the same arguments",
    ):
        asha().load_state_dict(asha(**change).state_dict())


def test_the_debug_string_is_one_line_about_every_rung():
    scheduler = asha()
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6), ("a", 3, 0.25))
    assert scheduler.debug_string() == (
        "ASHAScheduler: 1 stopped; bracket 0: level 1: 2 recorded, 0 skipped, cutoff 0.5 "
        "| "
        "level 3: 1 recorded, 0 skipped, cutoff 0.25 | level 9: 0 recorded, 0 skipped, cutoff nan"
    )


REPORTS = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"),
        st.integers(0, 12),
        st.one_of(st.floats(), st.integers(0, 3), st.none()),
    ),
    max_size=60,
)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats() | st.integers(0, 3)), max_size=60),
    st.sampled_from(["min", "max"]),
)
def test_a_trial_survives_every_rung_that_was_reached_with_a_number(turns, mode):
    scheduler = asha(mode=mode)
    time, stopped, seen, fallen = Counter(), set(), Counter(), Counter()
    for trial, loss in turns:
        if trial in stopped:
            continue
        time[trial] += 1
        seen[time[trial]] += math.isfinite(loss)
        if talk(scheduler, (trial, time[trial], loss)):
            stopped.add(trial)
            fallen[time[trial]] += math.isfinite(loss)
    for level in (1, 3):
        assert fallen[level] < seen[level] or not seen[level]
    assert all(level in scheduler.levels for level in fallen)


@given(REPORTS, st.integers(0, 60))
def test_a_restore_at_any_point_changes_no_decision(reports, cut):
    original, restored = asha(), asha()
    talk(original, *reports[:cut])
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    assert talk(restored, *reports[cut:]) == talk(original, *reports[cut:])
    assert restored.state_dict() == original.state_dict()


@given(REPORTS, st.data())
def test_repeating_any_earlier_result_never_changes_the_state(reports, data):
    scheduler = asha()
    talk(scheduler, *reports)
    before = scheduler.state_dict()
    if reports:
        talk(scheduler, *data.draw(st.lists(st.sampled_from(reports))))
    assert scheduler.state_dict() == before


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("value", [INF, -INF, math.nan, None])
def test_what_has_diverged_counts_as_worst_in_either_direction(mode, value):
    scheduler = asha(mode=mode, reduction_factor=2)
    results = {"a": 1.0, "b": 2.0, "c": value}
    decided = {
        name: report_one(scheduler, name, {"training_iteration": 1, "loss": loss})
        for name, loss in results.items()
    }
    assert decided["c"][0].reason.numbers["rank"] == 3


def asha_with_scouts(**arguments):
    fixed = {
        "metric": "loss",
        "mode": "min",
        "max_t": 9,
        "reduction_factor": 3,
        "later_grace_period": 3,
        "num_scouts": 3,
    }
    return ASHAScheduler(**{"type": "promotion"} | fixed | arguments)


def play(scheduler, **losses):
    return Play(
        scheduler,
        {name: lambda time, loss=loss: loss for name, loss in losses.items()},
        num_slots=1,
    ).run()


def is_scout(scheduler, name):
    actor = Actor(name, status="RUNNING")
    scheduler.on_trial_add(actor)
    return bool(scheduler.on_trial_result(actor, {"training_iteration": 1, "loss": 0.5}))


def test_only_the_first_trials_wait_at_the_lowest_level():
    done = play(asha_with_scouts(), a=0.5, b=0.4, c=0.6, d=0.7, e=0.3)
    pauses = [
        (
            decision.trial_id,
            decision.reason.numbers["rung"],
            decision.reason.numbers["num_recorded"],
        )
        for decision in done.decisions
        if decision.reason.rule == "asha.rung"
    ]
    # Later trials are compared at 3 for the first time, with the scout that was promoted
    # there.
    assert pauses == [("a", 1, 1), ("b", 1, 2), ("c", 1, 3), ("b", 3, 1), ("d", 3, 2), ("e", 3, 3)]
    assert done.stage.trials["e"].time == 9


def test_trials_that_stop_are_judged_as_late():
    scheduler = asha_with_scouts(type="stopping", num_scouts=1)
    answers = []
    for name in ("scout", "late"):
        actor = Actor(name, status="RUNNING")
        scheduler.on_trial_add(actor)
        for time in (1, 3):
            loss = 0.1 if name == "scout" else 0.9
            answers.append(
                [
                    decision.reason.rule
                    for decision in scheduler.on_trial_result(
                        actor, {"training_iteration": time, "loss": loss}
                    )
                ]
            )
    assert answers == [[], [], [], ["asha.rung"]]


def test_trials_that_begin_before_the_scouts_report_are_scouts():
    scheduler = asha_with_scouts(num_scouts=1)
    early = [Actor(name, status="RUNNING") for name in "abc"]
    for actor in early:
        scheduler.on_trial_add(actor)
    assert all(
        scheduler.on_trial_result(actor, {"training_iteration": 1, "loss": 0.5}) for actor in early
    )
    assert not is_scout(scheduler, "late")


def test_the_first_scouts_are_trained_to_the_end_whatever_their_values():
    done = play(
        asha_with_scouts(num_full_scouts=2), a=0.9, b=0.8, c=0.6, d=0.7, e=0.5, f=0.4, g=0.3
    )
    assert [done.stage.trials[name].time for name in "ab"] == [9, 9]
    pauses = [
        (decision.trial_id, decision.reason.numbers["rung"])
        for decision in done.decisions
        if decision.reason.rule == "asha.rung"
    ]
    # The two count as scouts: only one more is compared at 1.
    assert pauses[:3] == [("c", 1), ("d", 3), ("e", 3)]


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_scouts_that_are_trained_to_the_end_are_known_again_after_a_restore(kind):
    first = asha_with_scouts(type=kind, num_full_scouts=1)
    for name in "ab":
        first.on_trial_add(Actor(name, status="RUNNING"))
    second = asha_with_scouts(type=kind, num_full_scouts=1)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    for scheduler in (first, second):
        for time in range(1, 9):
            result = {"training_iteration": time, "loss": 1.0}
            assert not scheduler.on_trial_result(Actor("a", status="RUNNING"), result)
    with pytest.raises(ValueError, match="num_full_scouts"):
        asha_with_scouts(type=kind).load_state_dict(first.state_dict())


def test_levels_that_later_trials_pass_are_not_skipped():
    scheduler = asha_with_scouts(num_scouts=0)
    play(scheduler, a=0.5, b=0.4, c=0.6)
    assert "level 1: 0 recorded, 0 skipped" in scheduler.debug_string()


def test_a_grace_period_between_levels_is_that_of_the_next():
    scheduler = asha_with_scouts(later_grace_period=2, num_scouts=0)
    done = play(scheduler, a=0.5, b=0.4, c=0.6)
    assert [
        decision.reason.numbers["rung"]
        for decision in done.decisions
        if decision.reason.rule == "asha.rung"
    ] == [3, 3, 3]


def test_scouts_are_known_again_after_a_restore():
    first = asha_with_scouts()
    results = {"training_iteration": 1, "loss": 0.5}
    first.on_trial_add(Actor("a", status="RUNNING"))
    first.on_trial_result(Actor("a", status="RUNNING"), results)
    second = asha_with_scouts()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert [is_scout(second, name) for name in "bcd"] == [True, True, False]
    with pytest.raises(ValueError, match="num_scouts"):
        asha_with_scouts(num_scouts=4).load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"later_grace_period": 10}, ValueError, "between grace_period=1 and max_t=9, got 10"),
        (
            {"later_grace_period": 2, "grace_period": 3},
            ValueError,
            "between grace_period=3 and max_t=9, got 2",
        ),
        ({"later_grace_period": "3"}, TypeError, "later_grace_period must be a number"),
        ({"num_scouts": -1}, ValueError, "num_scouts must be at least 0"),
        ({"num_full_scouts": -1}, ValueError, "num_full_scouts must be at least 0"),
        ({"num_full_scouts": 4}, ValueError, "at most num_scouts=3, got 4"),
    ],
)
def test_scout_arguments_out_of_range_are_refused(arguments, error, complaint):
    with pytest.raises(error, match=complaint):
        asha_with_scouts(**arguments)
