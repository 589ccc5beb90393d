import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.decisions import Resume
from schedulers.halving.asha import ASHAScheduler
from schedulers.halving.promotion_rule import PromotionRungs
from tests.schedulers.play import Play

NAN = math.nan


def asha(**arguments):
    return ASHAScheduler(
        **{"metric": "loss", "mode": "min", "max_t": 9, "reduction_factor": 3, "type": "promotion"}
        | arguments
    )


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
        (1000, 10, (1000, 100, 10, 1)),
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


@settings(max_examples=60)
@given(CURVES, st.integers(1, 4), SETTINGS, st.booleans(), st.sampled_from([4, 10**6]))
def test_whoever_is_promoted_is_among_the_best_at_the_time_and_only_once_per_rung(
    rows, num_slots, arguments, is_known, last_time
):
    done = Play(
        asha(**arguments),
        of(rows),
        num_slots,
        max_trials=len(rows) if is_known else None,
        last_time=last_time,
    ).run()
    for said in done.decisions:
        if said.reason.rule == "asha.promotion":
            numbers = said.reason.numbers
            assert (
                numbers["rank"]
                <= numbers["num_promotable"]
                == numbers["num_recorded"] // arguments["reduction_factor"]
            )
    resumed = Counter(
        (said.trial_id, said.reason.numbers["rung"])
        for said in done.decisions
        if isinstance(said, Resume)
    )
    assert set(resumed.values()) <= {1}


@settings(max_examples=60)
@given(CURVES, st.integers(1, 4), SETTINGS, st.booleans())
def test_in_the_end_all_the_best_of_every_rung_were_promoted(rows, num_slots, arguments, is_known):
    scheduler = asha(**arguments)
    done = Play(scheduler, of(rows), num_slots, max_trials=len(rows) if is_known else None).run()
    resumed = {
        (said.trial_id, said.reason.numbers["rung"])
        for said in done.decisions
        if isinstance(said, Resume)
    }
    for rungs in scheduler._rule.summaries():
        for index, level in enumerate(rungs.levels[:-1]):
            ranking = [
                (trial_id, value)
                for trial_id, value in rungs.recorded_at(index).items()
                if not math.isnan(value)
            ]
            room = len(rungs.recorded_at(index)) // arguments["reduction_factor"]
            assert {(trial_id, level) for trial_id, _ in ranking[:room]} <= resumed


@settings(max_examples=60)
@given(CURVES, st.integers(1, 4), st.booleans())
def test_some_trial_that_can_be_compared_is_trained_in_full(rows, num_slots, is_known):
    ends = (
        Play(asha(), of(rows), num_slots, max_trials=len(rows) if is_known else None)
        .run()
        .stopped()
    )
    if all(not math.isnan(value) for row in rows for value in row):
        assert max(time for time, _ in ends.values()) == 9


@settings(max_examples=40)
@given(CURVES, st.integers(1, 4), st.data())
def test_a_restore_at_any_point_changes_no_decision(rows, num_slots, data):
    def new():
        return asha(brackets=2, num_threshold_candidates=1)

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


@settings(max_examples=80)
@given(RECORDS, st.sampled_from(["min", "max"]), st.sampled_from([2, 3]), st.integers(0, 4))
def test_nobody_who_is_given_up_could_have_been_promoted(records, mode, factor, num_future):
    rungs = PromotionRungs((1, 3, 9), factor, mode)
    names = sorted({trial_id for trial_id, *_ in records})
    given_up = set()
    for trial_id in names:
        rungs.join(trial_id)
    for trial_id, index, value in records:
        if trial_id in given_up:
            continue
        rungs.record(trial_id, rungs.levels[index], value)
        promotable = {place.trial_id for place in rungs.promotable()}
        assert not promotable & given_up
        for place, _ in list(rungs.hopeless(num_future)):
            assert place.trial_id not in promotable
            given_up.add(place.trial_id)
        assert all(
            rungs.place(trial_id).rank > rungs.place(trial_id).num_promotable
            for trial_id in given_up
        )
