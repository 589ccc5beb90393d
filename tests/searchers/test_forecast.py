"""Expected final scores of trials and of the next suggestion."""

import math

import numpy as np
import pytest

from searchers.models.forecast import NUM_RECENT, Expectation, forecast_of
from searchers.models.observations import MIN_TRIALS, Observations


def observed(curves, failed=()):
    """Return the table of trials with these pairs of position and values by time."""
    observations = Observations()
    for number, (x, curve) in enumerate(curves):
        observations.add(f"t{number}", [x])
        for time, value in curve.items():
            observations.record(f"t{number}", time, value)
        if number in failed:
            observations.end(f"t{number}", is_failed=True)
    return observations.table()


def slow_learners(trained_until, num=40):
    """Return curves that begin badly and end well where `x` is large."""
    return [
        (x, {time: (1 - x) + x * 3 / time for time in (1, 3, 9) if time <= trained_until(x)})
        for x in np.linspace(0.02, 0.98, num)
    ]


def test_a_slow_learner_left_behind_is_expected_to_overtake():
    curves = slow_learners(lambda x: 9 if x < 0.3 or 0.45 < x < 0.7 else 1)
    forecast = forecast_of(observed(curves), (0,))
    late, early = forecast.trials["t39"], forecast.trials["t0"]
    assert late.mean < early.mean
    assert late.deviation > early.deviation
    assert late.improvement(forecast.best) > forecast.trials["t13"].improvement(forecast.best)


def test_the_best_score_is_that_of_a_fully_trained_trial():
    forecast = forecast_of(observed(slow_learners(lambda x: 9 if x < 0.6 else 1)), (0,))
    trained = {name: each.mean for name, each in forecast.trials.items() if int(name[1:]) < 24}
    assert forecast.best == min(trained.values())
    assert min(each.mean for each in forecast.trials.values()) < forecast.best


def test_forecasts_are_uncertain_where_early_values_say_little_about_the_end():
    rng = np.random.default_rng(0)
    x, early, other = rng.random((3, 40))

    def deviation_of_paused(final):
        curves = [
            (place, {1: 1 + low} | ({9: end} if number % 2 else {}))
            for number, (place, low, end) in enumerate(zip(x, early, final, strict=True))
        ]
        trials = forecast_of(observed(curves), (0,)).trials
        return np.mean([trials[f"t{number}"].deviation for number in range(0, 40, 2)])

    assert deviation_of_paused(early) < 0.9 * deviation_of_paused(other)


def test_a_diverged_trial_has_no_forecast():
    curves = slow_learners(lambda x: 9 if x < 0.6 else 1)
    curves[39] = (0.98, {1: 1.0, 3: math.nan})
    forecast = forecast_of(observed(curves), (0,))
    assert set(forecast.trials) == {f"t{number}" for number in range(39)}


def test_a_suggestion_is_expected_to_be_like_the_latest():
    worse_first = slow_learners(lambda x: 9 if 0.1 < x < 0.9 else 3)
    forecast = forecast_of(observed(worse_first), (0,))
    latest = [each.mean for each in list(forecast.trials.values())[-NUM_RECENT:]]
    assert forecast.suggestion.mean == pytest.approx(np.mean(latest))
    assert forecast.suggestion.deviation >= np.std(latest)
    assert forecast.suggestion.mean < forecast_of(observed(worse_first[::-1]), (0,)).suggestion.mean


def test_a_failed_trial_has_no_forecast_and_makes_suggestions_look_worse():
    curves = slow_learners(lambda x: 9 if x > 0.2 else 3)
    forecast = forecast_of(observed(curves, failed={39}), (0,))
    assert "t39" not in forecast.trials
    assert forecast.suggestion.mean > forecast_of(observed(curves), (0,)).suggestion.mean


@pytest.mark.parametrize(
    "curves",
    [slow_learners(lambda x: 1), slow_learners(lambda x: 9 * (x > 0.1) + 1)[: MIN_TRIALS - 1], []],
)
def test_there_is_no_forecast_of_few_trials_or_a_single_level(curves):
    assert forecast_of(observed(curves), (0,)) is None


def test_improvement_is_what_samples_gain_on_average():
    expectation = Expectation(0.3, 0.7)
    samples = np.random.default_rng(0).normal(0.3, 0.7, size=100_000)
    gains = np.maximum(-0.2 - samples, 0)
    assert expectation.improvement(-0.2) == pytest.approx(gains.mean(), rel=0.03)
