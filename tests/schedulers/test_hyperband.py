import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import Pause, Reason, Resume, Stop
from schedulers.halving.hyperband import (
    Band,
    BracketPlan,
    HyperBandForBOHB,
    HyperBandScheduler,
    num_places,
)
from tests.schedulers.small_world import Stub, StubExperiment, World
from tests.tiers import examples

NAN = math.nan


def hyperband(no_more_trials=False, **arguments):
    scheduler = HyperBandScheduler(
        **{"metric": "loss", "mode": "min", "max_t": 9, "reduction_factor": 3} | arguments
    )
    scheduler.experiment = StubExperiment(no_more_trials=no_more_trials)
    return scheduler


def add(scheduler, names):
    for name in names:
        trial = scheduler.experiment.trials[name] = Stub(name)
        assert scheduler.on_trial_add(trial) == ()


def short(decisions):
    """Return decisions as ``("stop a", ...)``."""
    return [f"{type(decision).__name__.lower()} {decision.trial_id}" for decision in decisions]


def report_one(scheduler, name, time, loss):
    return scheduler.on_trial_result(
        scheduler.experiment.trials[name], {"training_iteration": time, "loss": loss}
    )


def talk(scheduler, *reports):
    """Report ``(trial, training_iteration, loss)`` and return the decisions on the last one.

    Pauses take effect at once.
    """
    decisions = []
    for name, time, loss in reports:
        decisions = report_one(scheduler, name, time, loss)
        for decision in decisions:
            status = {Pause: "PAUSED", Resume: "RUNNING", Stop: "TERMINATED"}[type(decision)]
            scheduler.experiment.trials[decision.trial_id].status = status
    return short(decisions)


def idle(scheduler):
    paused = [trial for trial in scheduler.experiment.trials.values() if trial.status == "PAUSED"]
    return short(scheduler.on_idle(paused, 1))


# The brackets of the paper.


def table(max_t, reduction_factor):
    return [plan.halvings(reduction_factor) for plan in Band(max_t, reduction_factor)]


def test_the_brackets_of_algorithm_1_for_81():
    assert table(81, 3) == [
        ((81, 1), (27, 3), (9, 9), (3, 27), (1, 81)),
        ((34, 3), (11, 9), (3, 27), (1, 81)),
        ((15, 9), (5, 27), (1, 81)),
        ((8, 27), (2, 81)),
        ((5, 81),),
    ]


def test_the_brackets_of_algorithm_1_for_27():
    assert table(27, 3) == [
        ((27, 1), (9, 3), (3, 9), (1, 27)),
        ((12, 3), (4, 9), (1, 27)),
        ((6, 9), (2, 27)),
        ((4, 27),),
    ]


def test_the_halvings_of_table_1_of_the_paper():
    columns = [
        ((81, 1), (27, 3), (9, 9), (3, 27), (1, 81)),
        ((27, 3), (9, 9), (3, 27), (1, 81)),
        ((9, 9), (3, 27), (1, 81)),
        ((6, 27), (2, 81)),
        ((5, 81),),
    ]
    for column, plan in zip(columns, Band(81, 3), strict=True):
        num_trials = (
            5 // (plan.s + 1)
        ) * 3**plan.s  # where Algorithm 1 rounds up at the end, the table rounds down first
        assert BracketPlan(plan.s, num_trials, plan.levels).halvings(3) == column


@pytest.mark.parametrize(
    ("max_t", "factor", "s_max"),
    [(1000, 10, 3), (243, 3, 5), (125, 5, 3), (2**30, 2, 30), (1, 3, 0), (80, 3, 3)],
)
def test_no_bracket_is_lost_to_rounding(max_t, factor, s_max):
    band = Band(max_t, factor)
    assert [plan.s for plan in band] == list(range(s_max, -1, -1))
    for plan in band:
        assert plan.levels[-1] == max_t
        assert plan.levels[0] == pytest.approx(max_t / factor**plan.s)
        assert all(isinstance(level, int) for level in plan.levels) == (max_t % factor**plan.s == 0)


@given(st.integers(1, 10**6) | st.floats(1, 1e6), st.integers(2, 10) | st.floats(1.2, 10))
def test_a_band_spends_about_the_same_on_each_bracket(max_t, factor):
    band = Band(max_t, factor)
    assert band[0].levels[0] < factor * 1.001
    for plan in band:
        assert list(plan.levels) == sorted(set(plan.levels))
        assert plan.num_trials * plan.levels[0] * (plan.s + 1) >= len(band) * max_t * 0.999
        assert (plan.num_trials - 1) * plan.levels[0] * (plan.s + 1) <= len(band) * max_t * 1.001


@given(st.integers(1, 10_000), st.integers(2, 9))
def test_halving_again_and_again_is_dividing_by_a_power(num_trials, factor):
    twice = num_places(num_places(num_trials, factor), factor)
    assert twice == max(1, num_trials // factor**2)


def test_a_tiny_factor_takes_no_time():
    assert len(Band(100, 1.001)) == 4608


# Conversations.


def test_a_bracket_goes_as_worked_out_by_hand():
    scheduler = hyperband(max_t=3)  # s=1: 3 trials, compared at 1; s=0: 2 trials, trained to 3
    add(scheduler, "abcde")
    assert talk(scheduler, ("a", 1, 0.5)) == ["pause a"]
    assert talk(scheduler, ("b", 1, 0.3)) == ["pause b"]
    # In the bracket that compares no trials.
    assert talk(scheduler, ("d", 1, 0.9), ("d", 2, 0.9)) == []
    assert idle(scheduler) == []  # c is still on its way
    assert talk(scheduler, ("c", 1, 0.4)) == ["resume b", "stop c", "stop a"]
    assert talk(scheduler, ("b", 2, 0.3)) == []
    assert talk(scheduler, ("b", 3, 0.3)) == ["stop b"]
    assert talk(scheduler, ("d", 3, 0.9)) == ["stop d"]
    assert talk(scheduler, ("e", 3, 0.1)) == ["stop e"]


def test_who_completes_a_rung_and_is_good_enough_is_not_paused():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6)) == ["pause b"]
    assert talk(scheduler, ("c", 1, 0.4)) == ["stop a", "stop b"]
    assert talk(scheduler, ("c", 2, 0.4)) == []


def test_a_bracket_of_nine_is_halved_twice():
    scheduler = hyperband()
    add(scheduler, "abcdefghi")
    losses = dict(zip("abcdefghi", (0.9, 0.2, 0.8, 0.1, 0.7, 0.3, 0.6, 0.5, 0.4), strict=True))
    last = talk(scheduler, *[(name, 1, loss) for name, loss in losses.items()])
    assert last == [
        "resume d",
        "resume b",
        "resume f",
        "stop i",
        "stop h",
        "stop g",
        "stop e",
        "stop c",
        "stop a",
    ]
    assert talk(scheduler, ("d", 2, 0.1), ("d", 3, 0.30)) == ["pause d"]
    assert talk(scheduler, ("b", 3, 0.20)) == ["pause b"]
    assert talk(scheduler, ("f", 3, 0.25)) == ["resume b", "stop f", "stop d"]
    assert talk(scheduler, ("b", 9, 0.1)) == ["stop b"]


def test_decisions_tell_the_numbers_they_were_based_on():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    where = {"bracket": 0, "s": 1, "level": 1}
    assert report_one(scheduler, "a", 1, 0.5) == [
        Pause(
            "a",
            Reason(
                "hyperband.wait",
                {**where, "value": 0.5, "num_waiting": 1, "num_joined": 3, "num_planned": 3},
            ),
        )
    ]
    report_one(scheduler, "b", 1, 0.3)
    compared = {"num_compared": 3, "num_kept": 1, "cutoff": 0.3}
    assert report_one(scheduler, "c", 1, NAN) == [
        Resume("b", Reason("hyperband.rung", {**where, "value": 0.3, "rank": 1, **compared})),
        Stop("a", Reason("hyperband.rung", {**where, "value": 0.5, "rank": 2, **compared})),
        Stop("c", Reason("hyperband.rung", {**where, "value": "nan", "rank": 3, **compared})),
    ]
    assert report_one(scheduler, "b", 4, 0.2) == [
        Stop(
            "b",
            Reason("hyperband.max_t", {"bracket": 0, "s": 1, "value": 0.2, "time": 4, "max_t": 3}),
            is_complete=True,
        )
    ]


def test_what_is_not_a_number_takes_no_place_that_numbers_leave_free():
    scheduler = hyperband()
    add(scheduler, "abcdefghi")
    values = dict.fromkeys("abcdefghi", NAN) | {"e": 0.5}
    decided = talk(scheduler, *[(name, 1, value) for name, value in values.items()])
    assert [what for what in decided if what.startswith("resume")] == ["resume e"]


def test_without_any_number_some_trials_reach_the_second_level_and_none_beyond():
    scheduler = hyperband()
    add(scheduler, "abcdefghi")
    decided = talk(scheduler, *[(name, 1, NAN) for name in "abcdefghi"])
    assert [what for what in decided if what.startswith("resume")] == [
        "resume a",
        "resume b",
        "resume c",
    ]
    decided = talk(scheduler, *[(name, 3, NAN) for name in "abc"])
    assert sorted(what for what in decided if not what.startswith("pause")) == [
        "stop a",
        "stop b",
        "stop c",
    ]


def test_large_values_are_good_in_mode_max():
    scheduler = hyperband(max_t=3, mode="max")
    add(scheduler, "abc")
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3), ("c", 1, 0.4)) == [
        "resume a",
        "stop c",
        "stop b",
    ]


def test_trials_fill_brackets_in_order_and_bands_follow_each_other():
    scheduler = hyperband()
    add(scheduler, [f"t{number:02d}" for number in range(9 + 5 + 3 + 9 + 1)])
    saved = scheduler.state_dict()["brackets"]
    assert [len(bracket) for bracket in saved] == [9, 5, 3, 9, 1]
    assert [bracket[0]["trial_id"] for bracket in saved] == ["t00", "t09", "t14", "t17", "t26"]


def test_a_bracket_is_waited_for_until_it_is_full():
    scheduler = hyperband(max_t=3)
    add(scheduler, "ab")
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6)) == ["pause b"]
    assert idle(scheduler) == []
    add(scheduler, "c")
    assert idle(scheduler) == []
    assert talk(scheduler, ("c", 1, 0.7)) == ["resume a", "stop b", "stop c"]


def test_without_further_trials_those_that_are_there_are_compared():
    scheduler = hyperband()
    add(scheduler, "ab")
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6)) == ["pause b"]
    scheduler.experiment.no_more_trials = True
    assert idle(scheduler) == ["resume a", "stop b"]
    scheduler.experiment.trials["b"].status = "TERMINATED"
    assert idle(scheduler) == ["resume a"]  # even if it was resumed before


def test_a_result_completes_a_rung_when_no_further_trial_comes():
    scheduler = hyperband(no_more_trials=True)
    add(scheduler, "ab")
    assert talk(scheduler, ("a", 1, 0.5)) == ["pause a"]
    assert talk(scheduler, ("b", 1, 0.6)) == ["resume a", "stop b"]
    assert talk(scheduler, ("a", 3, 0.6)) == []  # it is alone


@pytest.mark.parametrize("end", ["on_trial_error", "on_trial_complete"])
def test_no_trial_waits_for_one_that_is_over(end):
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3))
    gone = scheduler.experiment.trials["c"]
    gone.status = "ERROR"
    arguments = (gone,) if end == "on_trial_error" else (gone, None)
    assert short(getattr(scheduler, end)(*arguments)) == ["resume b", "stop a"]


def test_one_that_fails_while_it_is_paused_leaves_the_others_to_be_compared():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    talk(scheduler, ("a", 1, 0.1), ("b", 1, 0.3))
    assert scheduler.on_trial_error(scheduler.experiment.trials["a"]) == []
    assert talk(scheduler, ("c", 1, 0.2)) == ["stop b"]
    assert scheduler.on_trial_error(scheduler.experiment.trials["c"]) == []


def test_a_trial_that_is_over_without_a_word_is_noticed_when_idle():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3))
    scheduler.experiment.trials["c"].status = "ERROR"
    assert idle(scheduler) == ["resume b", "stop a"]


def test_a_failed_trial_that_is_brought_back_is_compared_with_those_that_were_there():
    for loss, decided in ((0.4, ["stop c"]), (0.2, ["resume c"])):
        scheduler = hyperband(max_t=3)
        add(scheduler, "abc")
        talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3))
        scheduler.on_trial_error(scheduler.experiment.trials["c"])
        assert talk(scheduler, ("c", 1, loss)) == ([] if decided == ["resume c"] else decided)


def test_later_comers_are_compared_with_those_before_them():
    scheduler = hyperband(no_more_trials=True)
    add(scheduler, "abcd")
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6), ("c", 1, 0.7), ("d", 1, 0.8)) == [
        "resume a",
        "stop b",
        "stop c",
        "stop d",
    ]
    add(scheduler, "e")  # the best of five
    assert talk(scheduler, ("e", 1, 0.4)) == []
    add(scheduler, "f")  # the fourth of six
    assert talk(scheduler, ("f", 1, 0.65)) == ["stop f"]
    assert talk(scheduler, ("a", 3, 0.5)) == ["pause a"]
    assert talk(scheduler, ("e", 3, 0.4)) == ["stop a"]


def test_failed_survivors_are_replaced():
    scheduler = hyperband(no_more_trials=True)
    add(scheduler, "ab")
    assert talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6)) == ["resume a", "stop b"]
    scheduler.on_trial_error(scheduler.experiment.trials["a"])
    add(scheduler, "c")
    assert talk(scheduler, ("c", 1, 0.9)) == []


def test_equal_values_rank_in_the_order_in_which_the_trials_joined():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    assert talk(scheduler, ("c", 1, 0.5), ("b", 1, 0.5), ("a", 1, 0.5)) == ["stop b", "stop c"]


def test_of_trials_that_have_all_diverged_one_goes_on():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    assert talk(scheduler, ("a", 1, NAN), ("b", 1, None), ("c", 1, -math.inf)) == [
        "resume a",
        "stop b",
        "stop c",
    ]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, NAN, None])
def test_what_has_diverged_is_worst_in_either_direction(mode, value):
    scheduler = hyperband(max_t=3, mode=mode)
    add(scheduler, "abc")
    assert talk(scheduler, ("a", 1, value), ("b", 1, 1e9), ("c", 1, 1e9)) == [
        "resume b",
        "stop c",
        "stop a",
    ]


def test_a_result_that_jumps_over_a_level_counts_at_all_it_has_reached():
    scheduler = hyperband()
    add(scheduler, "abcdefghi")
    talk(scheduler, *[(name, 4, 0.1 * number) for number, name in enumerate("abcdefgh")])
    # All are past both levels: the best three of nine, and of them the best, go on at once.
    assert talk(scheduler, ("i", 4, 0.9)) == [
        "resume a",
        "stop b",
        "stop c",
        *[f"stop {name}" for name in "defghi"],
    ]


def test_a_trial_that_jumps_to_the_next_level_waits_there():
    scheduler = hyperband()
    add(scheduler, "abcdefghi")
    talk(scheduler, *[(name, 1, 0.1 * number) for number, name in enumerate("abcdefgh")])
    decisions = report_one(scheduler, "i", 3, 0.05)
    assert short(decisions)[:2] == ["resume a", "resume b"]
    assert short(decisions)[-1] == "pause i"
    assert decisions[-1].reason.numbers["level"] == 3


def test_a_trial_that_jumps_to_the_end_is_complete_and_not_waited_for():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3))
    assert talk(scheduler, ("c", 3, 0.9)) == ["stop c", "resume b", "stop a"]


def test_repeated_results_get_the_same_answer_and_do_not_count_again():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    first = report_one(scheduler, "a", 1, 0.5)
    before = scheduler.state_dict()
    assert report_one(scheduler, "a", 1, 0.0) == first
    assert report_one(scheduler, "a", 2, 0.0) == first
    assert scheduler.state_dict() == before
    report_one(scheduler, "b", 1, 0.4)
    last = report_one(scheduler, "c", 1, 0.6)
    assert report_one(scheduler, "c", 1, 0.0) == [
        decision for decision in last if decision.trial_id == "c"
    ]
    assert report_one(scheduler, "b", 1, 0.9) == []
    assert report_one(scheduler, "a", 0.5, 0.9) == [Stop("a", last[1].reason)]


def test_a_waiting_trial_that_begins_anew_is_paused_where_it_waited():
    scheduler = hyperband(max_t=9)
    add(scheduler, "abcdefghi")
    assert talk(scheduler, ("a", 1, 0.5)) == ["pause a"]
    assert short(report_one(scheduler, "a", 0.5, 0.5)) == []
    assert short(report_one(scheduler, "a", 1, 0.9)) == ["pause a"]


def test_a_winner_that_was_still_on_its_way_into_the_pause_is_resumed_when_idle():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    report_one(scheduler, "a", 1, 0.1)
    talk(scheduler, ("b", 1, 0.3), ("c", 1, 0.4))
    assert short(report_one(scheduler, "a", 2, 0.1)) == []
    scheduler.experiment.trials["a"].status = "PAUSED"
    assert idle(scheduler) == ["resume a"]


def test_an_unknown_paused_trial_is_resumed():
    assert short(hyperband().on_idle([Stub("x", status="PAUSED")], 1)) == ["resume x"]


def test_without_the_metric_or_the_time_nothing_counts_and_the_watcher_is_told():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abc")
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3))
    trial = scheduler.experiment.trials["c"]
    for result in (
        {"training_iteration": 1},
        {"loss": 0.1},
        {"training_iteration": 2, "loss": "0.1"},
        {},
    ):
        assert scheduler.on_trial_result(trial, result) in ([], ())
    assert (
        "results without a number under 'loss'; results without a number under 'training_iteration'"
        in scheduler.debug_string()
    )
    assert talk(scheduler, ("c", 2, 0.4)) == ["resume b", "stop c", "stop a"]


def test_the_end_needs_no_metric():
    scheduler = hyperband()
    add(scheduler, "a")
    (stop,) = scheduler.on_trial_result(Stub("a"), {"training_iteration": 9})
    assert stop == Stop(
        "a",
        Reason("hyperband.max_t", {"bracket": 0, "s": 2, "time": 9, "max_t": 9}),
        is_complete=True,
    )


def test_trials_may_continue_beyond_max_t():
    scheduler = hyperband(max_t=3, stop_last_trials=False)
    add(scheduler, "abc")
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.3))
    assert talk(scheduler, ("c", 3, 0.9)) == ["resume b", "stop a"]
    assert talk(scheduler, ("c", 4, 0.9), ("b", 5, 0.1), ("b", 1000, 0.1)) == []


def test_levels_need_not_be_whole():
    scheduler = hyperband(time_attr="time_total_s", max_t=10.0, reduction_factor=2.5)
    assert [plan.levels for plan in scheduler.band] == [(1.6, 4, 10), (4, 10), (10,)]
    add(scheduler, "abcdefghijklm")
    assert scheduler.on_trial_result(Stub("a"), {"time_total_s": 1.5, "loss": 1}) == []
    (pause,) = scheduler.on_trial_result(Stub("a"), {"time_total_s": 1.6, "loss": 1})
    assert pause.reason.numbers["level"] == 1.6


def test_the_experiment_may_name_metric_and_mode():
    scheduler = HyperBandScheduler()
    assert scheduler.set_search_properties("loss", "max", seed=3)
    assert not scheduler.set_search_properties("other", "min", seed=3)
    assert (scheduler.metric, scheduler.mode) == ("loss", "max")


@pytest.mark.parametrize(("metric", "mode"), [(None, "min"), ("loss", None), ("loss", "lowest")])
def test_a_missing_metric_or_mode_is_refused_before_the_first_trial(metric, mode):
    with pytest.raises(
        ValueError, match=r"m\w+ must be .*; give it to TuneConfig or to HyperBandScheduler"
    ):
        HyperBandScheduler().set_search_properties(metric, mode, seed=0)


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"max_t": 0},
            ValueError,
            "max_t must be at least 1 and finite, got 0; it is counted in time_attr units",
        ),
        ({"max_t": math.inf}, ValueError, "max_t must be at least 1 and finite, got inf"),
        ({"max_t": "9"}, TypeError, "max_t must be a number, got '9'"),
        (
            {"reduction_factor": 1},
            ValueError,
            "reduction_factor must be more than 1 and finite, got 1; one trial in so many",
        ),
        (
            {"reduction_factor": NAN},
            ValueError,
            "reduction_factor must be more than 1 and finite, got nan",
        ),
        ({"mode": "low"}, ValueError, "mode must be 'min', 'max' or None, got 'low'"),
        ({"metric": ""}, ValueError, "metric must be a name or None, got ''"),
        (
            {"time_attr": None},
            ValueError,
            "time_attr must be the name of an entry of each result, got None",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        hyperband(**arguments)
    assert str(caught.value).startswith(complaint)


def test_the_name_for_bohb_is_the_same_scheduler():
    assert HyperBandForBOHB is HyperBandScheduler


@pytest.mark.parametrize(
    "change", [{"max_t": 27}, {"mode": "max"}, {"metric": "error"}, {"reduction_factor": 2}]
)
def test_the_state_of_a_different_scheduler_is_refused(change):
    with pytest.raises(
        ValueError,
        match=r"state must come from a scheduler with .*; construct it with the same arguments",
    ):
        hyperband().load_state_dict(hyperband(**change).state_dict())


def test_the_debug_string_shows_brackets_that_are_not_over():
    scheduler = hyperband(max_t=3)
    add(scheduler, "abcd")
    talk(scheduler, ("a", 1, 0.5), ("b", 1, 0.6))
    bracket = "bracket 0 (s=1): 3 of 3 joined, 3 to be compared, 2 wait at 1"
    assert (
        scheduler.debug_string()
        == f"HyperBandScheduler: 0 stopped; {bracket}; bracket 1 (s=0): 1 of 2 joined, 0 to be "
        "compared"
    )
    talk(scheduler, ("c", 1, 0.4))
    assert (
        scheduler.debug_string()
        == "HyperBandScheduler: 2 stopped; bracket 1 (s=0): 1 of 2 joined, 0 to be compared"
    )


# Whatever happens.


def made(stop_last_trials=True):
    return lambda: HyperBandScheduler(
        metric="loss", mode="min", max_t=9, reduction_factor=3, stop_last_trials=stop_last_trials
    )


@settings(max_examples=examples(120))
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.sampled_from([None, None, 1, 2, 5]),
    st.integers(1, 30),
    st.booleans(),
)
def test_every_experiment_ends(seed, num_slots, max_alive, num_trials, stop_last_trials):
    World(
        made(stop_last_trials),
        seed,
        num_slots=num_slots,
        max_alive=max_alive,
        num_trials=num_trials,
    ).run()


@settings(max_examples=examples(30))
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_a_full_bracket_without_faults_is_halved_as_the_paper_says(seed, num_slots):
    world = World(made(), seed, num_slots=num_slots, num_trials=9 + 5 + 3, num_restarts=0)
    for schedule in world.schedules:
        (
            schedule.step,
            schedule.ends_at,
            schedule.fails_at,
            schedule.lost_at,
            schedule.pauses_after,
        ) = (
            1,
            100,
            10**9,
            10**9,
            0,
        )
    world.result = lambda trial, time: {"training_iteration": time, "loss": trial.schedule.curve}
    world.run()
    times = sorted(world.time.values())
    assert times == [1] * 6 + [3] * 2 + [3] * 4 + [9] + [9] + [9] * 3
    best = min(list(world.trials.values())[:9], key=lambda trial: trial.schedule.curve)
    assert world.time[best.trial_id] == 9


@settings(max_examples=examples(30))
@given(st.integers(0, 10**6), st.data())
def test_a_restore_at_any_point_changes_no_decision(seed, data):
    original = World(made(), seed, num_restarts=0)
    twin = World(made(), seed, num_restarts=0)
    cut = data.draw(st.integers(0, 120))
    original.run()
    advance = twin.advance

    def restore_once(trial):
        if twin.num_results_reported == cut:
            state = json.loads(json.dumps(twin.scheduler.state_dict(), allow_nan=False))
            twin.scheduler = twin.make_scheduler()
            twin.scheduler.load_state_dict(state)
            twin.scheduler.experiment = twin
        advance(trial)

    twin.advance = restore_once
    assert twin.run().log == original.log
