import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.decisions import Pause, Reason, Resume, Stop
from schedulers.halving.asha import ASHAScheduler
from schedulers.halving.freeze_thaw import PausedTrial, Promise
from schedulers.halving.halving_scheduler import RungPlan, RungReport
from schedulers.halving.promotion_rule import PromotionRule
from schedulers.halving.promotion_rungs import PromotionRungs, ValueRung
from tests.schedulers.play import Actor, Play, Stage
from tests.tiers import examples

NAN = math.nan


def asha(**arguments):
    return ASHAScheduler(
        **{"metric": "loss", "mode": "min", "max_t": 9, "reduction_factor": 3, "type": "promotion"}
        | arguments
    )


def constant(**losses):
    return {name: lambda time, loss=loss: loss for name, loss in losses.items()}


def play(losses, num_slots=1, scheduler=None, **stage):
    return Play(scheduler or asha(), constant(**losses), num_slots, **stage).run()


def reported(scheduler, stage, trial_id, time, loss, **more):
    actor = stage.trials.setdefault(trial_id, Actor(trial_id, status="RUNNING"))
    return list(scheduler.on_trial_result(actor, {"training_iteration": time, "loss": loss} | more))


def staged(max_trials=None, **arguments):
    scheduler, stage = asha(**arguments), Stage(max_trials)
    scheduler.experiment = stage
    return scheduler, stage


def paused(stage, *trial_ids):
    for trial_id in trial_ids:
        stage.trials[trial_id].status = "PAUSED"
    return [actor for actor in stage.trials.values() if actor.status == "PAUSED"]


LOSSES = {"a": 0.5, "b": 0.4, "c": 0.6, "d": 0.3, "e": 0.45, "f": 0.7, "g": 0.2, "h": 0.1, "i": 0.8}


def moves(stage_play):
    """Return decisions as ``(sign, trial, level)``; the sign of stops is ``"x"``."""
    signs = {Pause: "=", Resume: "+", Stop: "x"}
    return [
        (signs[type(decision)], decision.trial_id, decision.reason.numbers["rung"])
        for decision in stage_play.decisions
    ]


def test_one_slot_matches_a_calculation_by_hand():
    # Of n at a level, floor(n / 3) may go on: none of two, one of three to five, two of six to
    # eight, three of nine.
    assert moves(play(LOSSES))[:23] == [
        ("=", "a", 1),  # 1: a
        ("=", "b", 1),  # 1: b a
        ("=", "c", 1),  # 1: B a c                the best of three
        ("+", "b", 1),
        ("=", "b", 3),  # 3: b                    none of one; 1: B leads, and has been promoted
        ("=", "d", 1),  # 1: D b a c              overtakes b
        ("+", "d", 1),
        ("=", "d", 3),  # 3: d b
        ("=", "e", 1),  # 1: D b e a c            still one
        ("=", "f", 1),  # 1: D B e a c f          two, both of whom have been promoted
        ("=", "g", 1),  # 1: G D b e a c f
        ("+", "g", 1),
        ("=", "g", 3),  # 3: G d b
        ("+", "g", 3),  #                         before a new trial: the higher level comes first
        ("x", "g", 9),
        ("=", "h", 1),  # 1: H G d b e a c f
        ("+", "h", 1),
        ("=", "h", 3),  # 3: H g d b
        ("+", "h", 3),
        ("x", "h", 9),
        # 1: H G D b e a c f i    three, all of whom have been promoted; no trial comes any more.
        (
            "=",
            "i",
            1,
        ),
        ("x", "i", 1),
        ("x", "f", 1),
    ]


def test_two_slots_match_a_calculation_by_hand():
    assert moves(play(LOSSES, num_slots=2))[:24] == [
        ("=", "a", 1),
        ("=", "b", 1),
        ("=", "c", 1),
        ("=", "d", 1),  # 1: D b a c              one of four
        ("+", "d", 1),
        ("=", "e", 1),  # beside d, a new trial
        ("=", "d", 3),
        ("=", "f", 1),  # 1: D B e a c f          two of six
        ("+", "b", 1),
        ("=", "g", 1),  # 1: G D b e a c f
        ("+", "g", 1),
        ("=", "b", 3),  # 3: d b
        ("=", "g", 3),  # 3: G d b
        ("=", "h", 1),  # 1: H G d b e a c f      h was started when b had paused
        ("+", "g", 3),  # the higher level first
        ("+", "h", 1),
        ("=", "h", 3),  # 3: H g d b
        ("+", "h", 3),
        ("x", "g", 9),
        ("=", "i", 1),
        ("x", "h", 9),
        ("x", "i", 1),
        ("x", "f", 1),
        ("x", "c", 1),
    ]


@pytest.mark.parametrize("num_slots", [1, 2, 3, 9])
def test_every_number_of_slots_trains_the_best_in_full(num_slots):
    ends = play(LOSSES, num_slots, max_trials=9).stopped()
    assert ends["h"] == (9, "TERMINATED")
    assert ends["i"][0] == ends["f"][0] == ends["c"][0] == 1


def test_a_synchronous_rung_promotes_as_successive_halving():
    # Nine at once: three of nine, one of three.
    ends = play(LOSSES, num_slots=9, max_trials=9).stopped()
    assert Counter(time for time, _ in ends.values()) == {1: 6, 3: 2, 9: 1}


def test_a_pause_and_a_promotion_carry_the_numbers_they_are_based_on():
    scheduler, stage = staged()
    reported(scheduler, stage, "a", 1, 0.5)
    reported(scheduler, stage, "b", 1, 0.4)
    standing = {
        "rung": 1,
        "value": 0.6,
        "cutoff": 0.4,
        "rank": 3,
        "num_recorded": 3,
        "num_promotable": 1,
        "bracket": 0,
        "time": 1.0,
    }
    assert reported(scheduler, stage, "c", 1, 0.6) == [Pause("c", Reason("asha.rung", standing))]
    standing = {
        "rung": 1,
        "value": 0.4,
        "cutoff": 0.4,
        "rank": 1,
        "num_recorded": 3,
        "num_promotable": 1,
        "bracket": 0,
    }
    assert scheduler.on_idle(paused(stage, "a", "b", "c"), 1) == (
        Resume("b", Reason("asha.promotion", standing)),
    )


def test_a_pause_that_was_not_carried_out_is_repeated():
    scheduler, stage = staged()
    (first,) = reported(scheduler, stage, "a", 1, 0.5)
    assert reported(scheduler, stage, "a", 1, 0.5) == [first]
    before = scheduler.state_dict()
    (again,) = reported(scheduler, stage, "a", 2, 0.4)
    assert isinstance(again, Pause)
    assert scheduler.state_dict() == before
    (higher,) = reported(scheduler, stage, "a", 3, 0.3)
    assert (higher.reason.numbers["rung"], higher.reason.numbers["value"]) == (3, 0.3)


def test_a_promoted_trial_continues_to_the_next_level_when_it_repeats_results():
    scheduler, stage = staged(reduction_factor=2, max_t=8)
    for trial_id, loss in (("a", 0.1), ("b", 0.2)):
        reported(scheduler, stage, trial_id, 1, loss)
    assert [decision.trial_id for decision in scheduler.on_idle(paused(stage, "a", "b"), 4)] == [
        "a"
    ]
    stage.trials["a"].status = "RUNNING"
    assert reported(scheduler, stage, "a", 1, 0.1) == []
    assert [type(decision) for decision in reported(scheduler, stage, "a", 2, 0.1)] == [Pause]


def test_a_trial_that_crashed_before_its_pause_trains_until_it():
    scheduler, stage = staged()
    reported(scheduler, stage, "a", 4, 0.5)
    assert reported(scheduler, stage, "a", 1, 0.5) == []
    assert reported(scheduler, stage, "a", 2, 0.5) == []
    assert [type(decision) for decision in reported(scheduler, stage, "a", 3, 0.5)] == [Pause]


def test_rare_reports_count_at_the_highest_level_reached():
    scheduler, stage = staged()
    (pause,) = reported(scheduler, stage, "a", 5, 0.5)
    assert pause.reason.numbers["rung"] == 3
    assert "level 1: 0 recorded, 1 skipped" in scheduler.debug_string()


def test_only_paused_trials_are_promoted():
    scheduler, stage = staged(reduction_factor=2, max_t=4)
    for trial_id, loss in (("a", 0.1), ("b", 0.2), ("c", 0.3), ("d", 0.4)):
        reported(scheduler, stage, trial_id, 1, loss)
    # a is still on its way to its pause; b may be promoted before it.
    assert [
        decision.trial_id for decision in scheduler.on_idle(paused(stage, "b", "c", "d"), 4)
    ] == ["b"]
    assert [
        decision.trial_id
        for decision in scheduler.on_idle(paused(stage, "a"), 4)
        if decision.reason.rule == "asha.promotion"
    ] == ["a"]


def test_a_failed_trial_is_not_promoted_but_still_compared_with():
    scheduler, stage = staged()
    for trial_id, loss in (("a", 0.1), ("b", 0.2), ("c", 0.3)):
        reported(scheduler, stage, trial_id, 1, loss)
    stage.trials["a"].status = "ERROR"
    scheduler.on_trial_error(stage.trials["a"])
    assert scheduler.on_idle(paused(stage, "b", "c"), 4) == ()
    # Restored, it reports again, and may be promoted.
    stage.trials["a"].status = "RUNNING"
    assert [type(decision) for decision in reported(scheduler, stage, "a", 1, 0.1)] == [Pause]
    assert [decision.trial_id for decision in scheduler.on_idle(paused(stage, "a"), 4)] == ["a"]


def test_equal_values_promote_no_more_than_there_is_room_for():
    summary = play(dict.fromkeys("abcdef", 0.5), num_slots=6, max_trials=6).summary
    assert [trial_id for verb, trial_id, rule in summary if rule == "asha.promotion"] == ["a", "b"]


@pytest.mark.parametrize("bad", [NAN, None, math.inf, -math.inf])
def test_what_is_not_a_number_is_never_promoted(bad):
    ends = play({"a": bad, "b": 0.9, "c": bad, "d": bad, "e": bad, "f": bad}, max_trials=6)
    assert ends.stopped()["b"][0] == 9
    assert not [
        trial_id for verb, trial_id, _ in ends.summary if verb == "resume" and trial_id != "b"
    ]
    assert Counter(
        time for time, _ in play(dict.fromkeys("abcdef", bad), max_trials=6).stopped().values()
    ) == {1: 6}


def test_large_values_are_good_in_mode_max():
    ends = play(LOSSES, scheduler=asha(mode="max"), max_trials=9).stopped()
    assert max(ends, key=ends.__getitem__) == "i"


def test_two_trials_with_a_factor_of_three_yield_one_full_training():
    ends = play({"a": 0.5, "b": 0.4}, max_trials=2)
    assert ends.stopped() == {"a": (1, "TERMINATED"), "b": (9, "TERMINATED")}
    assert ends.summary == [
        ("pause", "a", "asha.rung"),
        ("pause", "b", "asha.rung"),
        ("stop", "a", "asha.cannot_be_promoted"),
        ("resume", "b", "asha.last_resort"),
        ("pause", "b", "asha.rung"),
        ("resume", "b", "asha.last_resort"),
    ]


def test_the_last_resort_needs_no_known_number_of_trials():
    assert play({"a": 0.5, "b": 0.4}).stopped() == {"a": (1, "TERMINATED"), "b": (9, "TERMINATED")}


def test_the_last_resort_is_not_needed_where_a_trial_comes_to_its_own_end():
    # All end after five, between the levels three and nine; the best one has done so, and no other
    # is resumed for it.
    ends = play(LOSSES, last_time=5, max_trials=9)
    assert Counter(time for time, _ in ends.stopped().values())[5] == 2
    assert not [entry for entry in ends.summary if entry[2] == "asha.last_resort"]


def test_what_is_left_is_stopped_with_its_standing():
    scheduler, stage = staged(reduction_factor=3)
    reported(scheduler, stage, "full", 9, 0.1)
    stage.trials["full"].status = "TERMINATED"
    scheduler.on_trial_complete(stage.trials["full"], {})
    reported(scheduler, stage, "a", 1, 0.5)
    stage.max_trials, stage.no_more_trials = 2, True
    numbers = {
        "rung": 1,
        "value": 0.5,
        "cutoff": "nan",
        "rank": 1,
        "num_recorded": 1,
        "num_promotable": 0,
        "bracket": 0,
    }
    assert scheduler.on_idle(paused(stage, "a"), 1) == (
        Stop("a", Reason("asha.not_promoted", numbers)),
    )
    assert "value=0.5, cutoff=none, rank=1" in str(Reason("asha.not_promoted", numbers))


def test_nothing_is_wound_up_while_a_trial_runs_or_is_to_come():
    scheduler, stage = staged(max_trials=9)
    for trial_id, loss in (("a", 0.5), ("b", 0.6)):
        reported(scheduler, stage, trial_id, 1, loss)
    assert scheduler.on_idle(paused(stage, "a", "b"), 2) == ()
    stage.trials["c"] = Actor("c", status="RUNNING")
    stage.no_more_trials = True
    assert scheduler.on_idle(paused(stage, "a", "b"), 2) == ()


def test_a_search_that_waits_for_a_trial_to_end_gets_one_at_a_time():
    scheduler, stage = staged(max_trials=100)
    for trial_id, loss in (("a", 0.5), ("b", 0.4)):
        reported(scheduler, stage, trial_id, 1, loss)
    stage.no_more_trials = True
    (stop,) = scheduler.on_idle(paused(stage, "a", "b"), 2)
    assert (type(stop), stop.trial_id, stop.reason.rule) == (Stop, "a", "asha.not_promoted")
    # Not obeyed yet, it is repeated, and no other is stopped in its place.
    stage.no_more_trials = False
    assert scheduler.on_idle(paused(stage, "a", "b"), 2) == (stop,)


def test_a_paused_trial_that_waits_for_nothing_is_resumed():
    scheduler, stage = staged()
    stage.trials["a"] = Actor("a")
    assert scheduler.on_idle(paused(stage, "a"), 1) == (Resume("a", Reason("asha.goes_on")),)


def test_trials_that_can_never_be_promoted_are_stopped_at_once():
    scheduler, stage = staged(max_trials=6)
    answers = [reported(scheduler, stage, name, 1, loss) for name, loss in (("a", 0.1), ("b", 0.2))]
    assert [type(decision) for (decision,) in answers] == [Pause, Pause]
    # At most two of six are promoted: the third can never be among them.
    pause, stop = reported(scheduler, stage, "c", 1, 0.15)
    assert (type(pause), pause.trial_id) == (Pause, "c")
    assert (stop.trial_id, stop.reason.rule) == ("b", "asha.cannot_be_promoted")
    assert stop.reason.numbers == {
        "rung": 1,
        "value": 0.2,
        "cutoff": 0.1,
        "rank": 3,
        "num_recorded": 3,
        "num_promotable": 1,
        "bracket": 0,
        "num_possible": 6,
    }
    (own,) = reported(scheduler, stage, "d", 1, 0.9)
    assert (type(own), own.reason.rule) == (Stop, "asha.cannot_be_promoted")
    assert reported(scheduler, stage, "d", 2, 0.0) == [own]


def test_trials_that_end_before_a_level_make_its_room_smaller():
    scheduler, stage = staged(max_trials=6)
    for trial_id in "abcdef":
        stage.trials[trial_id] = Actor(trial_id, status="RUNNING")
        scheduler.on_trial_add(stage.trials[trial_id])
    for trial_id, loss in (("a", 0.1), ("b", 0.2)):
        reported(scheduler, stage, trial_id, 1, loss)
    stage.trials["f"].status = "ERROR"
    (stop,) = scheduler.on_trial_error(stage.trials["f"])
    assert (stop.trial_id, stop.reason.numbers["num_possible"]) == ("b", 5)


def test_brackets_have_rungs_of_their_own_and_the_highest_level_comes_first():
    scheduler, stage = staged(brackets=2, max_t=27)
    scheduler.set_search_properties(None, None, seed=0)
    by_bracket = {0: [], 1: []}
    for number in range(40):
        by_bracket[scheduler._bracket_of(f"t{number}")].append(f"t{number}")
    for bracket, level in ((0, 1), (1, 3)):
        for rank, trial_id in enumerate(by_bracket[bracket][:3]):
            (pause,) = reported(scheduler, stage, trial_id, level, float(rank))
            assert (pause.reason.numbers["rung"], pause.reason.numbers["bracket"]) == (
                level,
                bracket,
            )
    chosen = scheduler.on_idle(paused(stage, *stage.trials), 5)
    assert [decision.trial_id for decision in chosen] == [by_bracket[1][0], by_bracket[0][0]]


def test_trials_may_continue_beyond_max_t():
    scheduler, stage = staged(stop_last_trials=False)
    assert reported(scheduler, stage, "a", 9, 0.1) == []
    assert reported(scheduler, stage, "a", 10, 0.1) == []


def test_results_that_lack_something_decide_nothing():
    scheduler, stage = staged()
    stage.trials["a"] = Actor("a", status="RUNNING")
    for result in (
        {},
        {"loss": 0.5},
        {"training_iteration": 1},
    ):
        assert list(scheduler.on_trial_result(stage.trials["a"], result)) == []
    for name in ("training_iteration", "loss"):
        assert f"results without a number under {name!r}" in scheduler.debug_string()


@pytest.mark.parametrize(
    ("can_save_on_demand", "has_checkpoint", "kind", "verb"),
    [
        (True, False, Pause, "pauses"),
        (False, True, Pause, "pauses"),
        (False, False, type(None), "stops"),
    ],
)
def test_auto_promotes_where_trials_have_checkpoints(
    can_save_on_demand, has_checkpoint, kind, verb
):
    scheduler = ASHAScheduler(
        metric="loss", mode="min", max_t=9, reduction_factor=3, grace_period=2
    )
    scheduler.experiment = Stage(can_save_on_demand=can_save_on_demand)
    actor = Actor("a", status="RUNNING", checkpoint_index=0 if has_checkpoint else None)
    scheduler.on_trial_add(actor)
    assert list(scheduler.on_trial_result(actor, {"training_iteration": 1, "loss": 0.5})) == []
    assert list(scheduler.remarks) == []
    decisions = list(scheduler.on_trial_result(actor, {"training_iteration": 2, "loss": 0.5}))
    assert type(decisions[0] if decisions else None) is kind
    (remark,) = scheduler.remarks
    assert remark.startswith(f"ASHA {verb} trials at its levels")
    restored = ASHAScheduler(metric="loss", mode="min", max_t=9, reduction_factor=3, grace_period=2)
    restored.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    assert restored.state_dict() == scheduler.state_dict()
    assert (
        list(restored.on_trial_result(actor, {"training_iteration": 2, "loss": 0.5})) == decisions
    )
    assert list(restored.remarks) == []


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"type": "pausing"},
            ValueError,
            "type must be 'auto', 'promotion' or 'stopping', got 'pausing'; 'auto' promotes",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        asha(**arguments)
    assert str(caught.value).startswith(complaint)


def test_the_state_of_another_type_is_refused():
    with pytest.raises(ValueError, match="state must come from a scheduler with"):
        asha().load_state_dict(asha(type="stopping").state_dict())


def test_a_rung_promotes_more_than_its_share_by_those_that_are_overtaken():
    # As in the paper: of four at level 1 only one may go on, but c was the best of three before d
    # came.
    done = play({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}, max_trials=None)
    assert [
        decision.trial_id for decision in done.decisions if decision.reason.rule == "asha.promotion"
    ] == [
        "c",
        "d",
    ]


CURVES = st.lists(
    st.lists(st.integers(0, 5).map(float) | st.just(NAN), min_size=9, max_size=9),
    min_size=1,
    max_size=14,
)


def of(rows):
    return {
        f"t{number:04d}": lambda time, row=row: row[min(time, len(row)) - 1]
        for number, row in enumerate(rows)
    }


@pytest.mark.parametrize(
    ("max_t", "factor", "sizes"),
    [
        (81, 3, (81, 27, 9, 3, 1)),
        (64, 4, (64, 16, 4, 1)),
        (100, 10, (100, 10, 1)),
        (256, 4, (256, 64, 16, 4, 1)),
    ],
)
def test_the_rungs_of_the_paper_hold_its_numbers_of_trials(max_t, factor, sizes):
    # Table 1 of the ASHA paper is that of successive halving: n = max_t trials at level 1, a factor
    # less at each further one.
    scheduler = asha(max_t=max_t, reduction_factor=factor)
    assert scheduler.levels == tuple(factor**k for k in range(len(sizes)))
    number = sizes[0]
    ends = (
        Play(scheduler, of([[float(k)] for k in range(number)]), number, max_trials=number)
        .run()
        .stopped()
    )
    reached = [sum(time >= level for time, _ in ends.values()) for level in scheduler.levels]
    assert tuple(reached) == sizes


SETTINGS = st.fixed_dictionaries(
    {"reduction_factor": st.sampled_from([2, 3]), "brackets": st.sampled_from([1, 2])}
)


@settings(max_examples=examples(60))
@given(CURVES, st.integers(1, 4), SETTINGS, st.booleans(), st.sampled_from([4, 10**6]))
def test_promoted_trials_are_among_the_best_and_promoted_once_per_rung(
    rows, num_slots, arguments, is_known, last_time
):
    done = Play(
        asha(**arguments),
        of(rows),
        num_slots,
        max_trials=len(rows) if is_known else None,
        last_time=last_time,
    ).run()
    for decision in done.decisions:
        if decision.reason.rule == "asha.promotion":
            numbers = decision.reason.numbers
            assert (
                numbers["rank"]
                <= numbers["num_promotable"]
                == numbers["num_recorded"] // arguments["reduction_factor"]
            )
    resumed = Counter(
        (decision.trial_id, decision.reason.numbers["rung"])
        for decision in done.decisions
        if isinstance(decision, Resume)
    )
    assert set(resumed.values()) <= {1}


@settings(max_examples=examples(60))
@given(CURVES, st.integers(1, 4), SETTINGS, st.booleans())
def test_in_the_end_all_the_best_of_every_rung_were_promoted(rows, num_slots, arguments, is_known):
    scheduler = asha(**arguments)
    done = Play(scheduler, of(rows), num_slots, max_trials=len(rows) if is_known else None).run()
    resumed = {
        (decision.trial_id, decision.reason.numbers["rung"])
        for decision in done.decisions
        if isinstance(decision, Resume)
    }
    for rungs in scheduler._rule.summaries():
        for index, level in enumerate(rungs.levels[:-1]):
            ranking = [
                (trial_id, value)
                for trial_id, value in rungs.rung_at(index).values().items()
                if not math.isnan(value)
            ]
            room = rungs.rung_at(index).num_recorded // arguments["reduction_factor"]
            assert {(trial_id, level) for trial_id, _ in ranking[:room]} <= resumed


@settings(max_examples=examples(60))
@given(CURVES, st.integers(1, 4), st.booleans())
def test_some_trial_that_can_be_compared_is_trained_in_full(rows, num_slots, is_known):
    ends = (
        Play(asha(), of(rows), num_slots, max_trials=len(rows) if is_known else None)
        .run()
        .stopped()
    )
    if all(not math.isnan(value) for row in rows for value in row):
        assert max(time for time, _ in ends.values()) == 9


@settings(max_examples=examples(40))
@given(CURVES, st.integers(1, 4), st.data())
def test_a_restore_at_any_point_changes_no_decision(rows, num_slots, data):
    def new():
        return asha(brackets=2)

    whole = Play(new(), of(rows), num_slots, max_trials=len(rows)).run()
    cut = data.draw(st.integers(1, whole.num_facts))
    broken = Play(new(), of(rows), num_slots, max_trials=len(rows))

    def restore():
        if broken.num_facts == cut:
            state = json.loads(
                json.dumps(broken.scheduler.state_dict(), allow_nan=False, sort_keys=True)
            )
            broken.scheduler = new()
            broken.scheduler.load_state_dict(state)
            broken.scheduler.experiment = broken.stage
            assert broken.scheduler.state_dict() == state

    broken.after_fact = restore
    assert list(map(repr, broken.run().decisions)) == list(map(repr, whole.decisions))


RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abcdefghij"),
        st.integers(0, 2),
        st.integers(0, 4).map(float) | st.just(NAN),
    ),
    max_size=40,
)


@settings(max_examples=examples(80))
@given(RECORDS, st.sampled_from(["min", "max"]), st.sampled_from([2, 3]), st.integers(0, 4))
def test_no_trial_that_is_given_up_could_have_been_promoted(records, mode, factor, num_future):
    rungs = PromotionRungs((1, 3, 9), factor, lambda: ValueRung(mode))
    names = sorted({trial_id for trial_id, *_ in records})
    given_up = set()
    for trial_id in names:
        rungs.join(trial_id)
    for trial_id, index, value in records:
        if trial_id in given_up:
            continue
        rungs.record(trial_id, rungs.levels[index], (value,))
        promotable = {place.trial_id for place in rungs.promotable()}
        assert not promotable & given_up
        for place, _ in list(rungs.hopeless(num_future)):
            assert place.trial_id not in promotable
            given_up.add(place.trial_id)
        assert all(
            rungs.place(trial_id).rank > rungs.place(trial_id).num_promotable
            for trial_id in given_up
        )


class Chooser:
    """Promises much of one trial, and records what it could choose among."""

    def __init__(self, chosen=None):
        self.chosen, self.offered = chosen, []

    def __call__(self, trials):
        self.offered.append(list(trials))
        return Promise(self.chosen, 3.14159) if self.chosen else None


def reconsidering(chooser, losses, max_trials=None):
    """Return a rule whose trials have all reached the first level, and its experiment."""
    stage = Stage(max_trials)
    rule = PromotionRule(RungPlan("asha", (1, 3, 9), 3), lambda: ValueRung("min"), chooser)
    given_up = []
    for name, loss in losses.items():
        stage.trials[name] = Actor(name, status="PAUSED")
        rule.join(name, 0)
        decided = rule.judge(RungReport(name, 0, time=1, value=loss), stage)
        given_up += [decision for decision in decided if isinstance(decision, Stop)]
    return rule, stage, given_up


def test_a_trial_that_promises_much_continues_though_it_is_not_among_the_best():
    chooser = Chooser("b")
    rule, stage, _ = reconsidering(chooser, {"a": 0.1, "b": 0.9, "c": 0.5, "d": NAN})
    trials = list(stage.trials.values())
    assert rule.on_idle(trials, 1, stage)[0].reason.rule == "asha.promotion"
    assert not chooser.offered
    trials = [trial for trial in trials if trial.trial_id != "a"]
    (resume,) = rule.on_idle(trials, 1, stage)
    assert chooser.offered == [[PausedTrial("c", 2), PausedTrial("b", 2)]]
    assert (resume.trial_id, resume.reason.rule) == ("b", "asha.thaw")
    assert resume.reason.numbers["promises"] == 3.14
    chooser.chosen = None
    trials = [trial for trial in trials if trial.trial_id != "b"]
    assert rule.on_idle(trials, 1, stage) == []
    assert chooser.offered[-1] == [PausedTrial("c", 2)]


def test_a_trial_that_misses_a_constraint_is_not_continued_for_its_promise():
    chooser = Chooser()
    rule, stage, _ = reconsidering(chooser, {"a": 0.1, "b": 0.9})
    stage.trials["c"] = Actor("c", status="PAUSED")
    rule.join("c", 0)
    rule.judge(RungReport("c", 0, time=1, value=0.0, violation=0.5), stage)
    rule.on_idle([stage.trials["b"], stage.trials["c"]], 1, stage)
    assert chooser.offered == [[PausedTrial("b", 2)]]


def test_a_trial_that_continues_waits_again_at_the_next_level():
    rule, stage, _ = reconsidering(Chooser("b"), {"b": 0.9, "c": 0.5})
    rule.on_idle([stage.trials["b"], stage.trials["c"]], 1, stage)
    (pause,) = rule.judge(RungReport("b", 0, time=3, value=0.2), stage)
    assert isinstance(pause, Pause)
    assert pause.reason.numbers["rung"] == 3


def test_once_no_new_trial_comes_none_is_continued_for_its_promise():
    chooser = Chooser("b")
    rule, stage, _ = reconsidering(chooser, {"b": 0.9, "c": 0.5})
    stage.no_more_trials = True
    rule.on_idle([stage.trials["b"], stage.trials["c"]], 1, stage)
    assert not chooser.offered


def test_what_may_be_continued_for_its_promise_is_not_given_up_before_the_search_is_over():
    losses = {f"t{number}": float(number) for number in range(9)}
    rule, stage, given_up = reconsidering(Chooser(), losses, max_trials=9)
    assert not given_up
    stage.no_more_trials = True
    decided = rule.leave("t0", 0, stage, is_trained=False)
    assert {stop.trial_id for stop in decided} >= {"t7", "t8"}
