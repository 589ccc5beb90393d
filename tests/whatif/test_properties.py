"""Properties of the replay of any recording."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule, PASHAScheduler
from tests.tiers import examples
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.settings import ExperimentSettings
from tuner.core.worker_records import Failure
from tuner.virtual.executor import Curve, CurvePoint
from tuner.whatif import ReplayEnding
from tuner.whatif.recording import RecordedTrial, Recording, Timing
from tuner.whatif.what_if import _answer

pytestmark = pytest.mark.property
SECONDS = st.floats(0.0, 100.0)
LEAVE_S = 0.5
STOPPING = [
    lambda: ASHAScheduler(max_t=9, reduction_factor=2, type="stopping"),
    lambda: ASHAScheduler(max_t=9, reduction_factor=3, brackets=2, type="stopping"),
    lambda: MedianStoppingRule(grace_period=1, min_samples_required=2),
]
PAUSING = [
    lambda: ASHAScheduler(max_t=9, reduction_factor=2, type="promotion"),
    lambda: HyperBandScheduler(max_t=9),
    lambda: PASHAScheduler(max_t=9),
]


@st.composite
def trials(draw, number):
    metrics = st.dictionaries(
        st.just("loss"),
        st.floats(allow_nan=True) | st.none() | st.floats(0, 1),
        min_size=0,
        max_size=1,
    )
    rows = draw(st.lists(st.tuples(metrics, SECONDS, st.booleans()), max_size=10))
    points = [
        CurvePoint(
            {
                **row,
                "training_iteration": iteration,
                "time_this_iter_s": took_s,
                "time_total_s": float(iteration),
            },
            took_s,
            saves,
        )
        for iteration, (row, took_s, saves) in enumerate(rows, start=1)
    ]
    failure = Failure("ValueError", "diverged") if draw(st.booleans()) else None
    # A stopped trial takes no longer to exit than one that ends by itself.
    curve = Curve(points, draw(SECONDS), LEAVE_S + draw(SECONDS), failure)
    return RecordedTrial(
        f"t{number:05d}",
        {"x": number},
        {"cpu": 1.0},
        str(number),
        curve,
        draw(st.booleans()),
        is_stopped_by_criterion=False,
    )


@st.composite
def recordings(draw, can_save):
    recorded = [draw(trials(number)) for number in range(draw(st.integers(1, 8)))]
    if not any(
        isinstance(point.metrics.get("loss"), float)
        for trial in recorded
        for point in trial.curve.points
    ):
        points = recorded[0].curve.points
        points.append(CurvePoint({"loss": 0.5, "training_iteration": len(points) + 1}, 1.0))
    if can_save:
        for trial in recorded:
            trial.curve.points[:] = [
                CurvePoint(point.metrics, point.took_s) for point in trial.curve.points
            ]
    policy = CheckpointPolicy(can_save_on_demand=can_save)
    return Recording(
        path="here",
        trials=recorded,
        settings=ExperimentSettings({"cpu": float(draw(st.integers(1, 4)))}, checkpoints=policy),
        seed=draw(st.integers(0, 9)),
        metric="loss",
        mode=draw(st.sampled_from(["min", "max"])),
        timing=Timing(leave_s=LEAVE_S),
        max_concurrent=None,
        is_inline=False,
        caveats=(),
    )


def answer_of(recording, make):
    answer = _answer(recording, make(), None, None, None)
    again = _answer(recording, make(), None, None, None)
    assert answer.as_dict() == again.as_dict()
    json.dumps(answer.as_dict(), allow_nan=False)
    assert "\n".join(answer.lines()) == str(answer)
    return answer


def assert_sound(recording, answer):
    assert [trial.trial_id for trial in answer.trials] == [
        trial.trial_id for trial in recording.trials
    ]
    assert all(trial.iterations <= trial.recorded_iterations for trial in answer.trials)
    assert sum(answer.num_by_ending.values()) == len(recording.trials)
    assert all(trial.is_cut for trial in answer.trials if trial.ending is ReplayEnding.RAN_OUT)
    assert all(trial.num_resumes <= trial.num_pauses for trial in answer.trials)
    found, there_was = answer.replayed.best_value, answer.in_full.best_value
    if found is not None:
        assert answer.chosen.last == found
        # Only a trial that ends earlier than it did can end with a better value than the best one
        # did.
        assert (
            there_was is None
            or answer.regret >= 0
            or answer.chosen.iterations < answer.chosen.recorded_iterations
        )
        assert answer.chosen_rank is None or 1 <= answer.chosen_rank <= len(answer.trials)
        ever = answer.replayed.best_at_any_iteration
        assert (
            ever >= answer.in_full.best_at_any_iteration
            if answer.mode == "min"
            else ever <= answer.in_full.best_at_any_iteration
        )
    times = [point.time_s for point in answer.replayed.progress]
    assert times == sorted(times)


@pytest.mark.parametrize("make", STOPPING)
@settings(max_examples=examples(40))
@given(recording=recordings(can_save=False))
def test_who_only_stops_never_takes_longer(make, recording):
    answer = answer_of(recording, make)
    assert_sound(recording, answer)
    assert answer.replayed.wall_clock_s <= answer.in_full.wall_clock_s * (1 + 1e-9)
    assert answer.replayed.worker_s <= answer.in_full.worker_s * (1 + 1e-9)
    assert answer.replayed.num_iterations <= answer.in_full.num_iterations
    assert answer.num_pauses == 0


@pytest.mark.parametrize("make", PAUSING)
@settings(max_examples=examples(40))
@given(recording=recordings(can_save=True))
def test_who_pauses_trials_that_save_trains_nothing_twice(make, recording):
    answer = answer_of(recording, make)
    assert_sound(recording, answer)
    assert answer.replayed.num_iterations <= answer.in_full.num_iterations
    assert not answer.supposes_saves


@pytest.mark.parametrize("make", PAUSING)
@settings(max_examples=examples(40))
@given(recording=recordings(can_save=False))
def test_who_pauses_trials_that_save_now_and_then_comes_to_an_end_as_well(make, recording):
    assert_sound(recording, answer_of(recording, make))
