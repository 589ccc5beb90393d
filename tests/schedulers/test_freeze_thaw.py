import json

import pytest

from schedulers.halving.freeze_thaw import REQUIRED_RATIO, FreezeThaw, PausedTrial
from searchers.models import forecast
from searchers.space import choice, grid_search, uniform
from tests.schedulers.play import Actor

LEVELS = (1, 3, 9)
SPACE = {"x": uniform(0, 1), "constant": 3}


def slow_learner(x, time):
    """Bad at first and good in the end where `x` is large."""
    return (1 - x) + 3 * x / time


def experiment(is_trained=lambda x: x < 0.3 or 0.45 < x < 0.7, space=SPACE, num=40):
    """Return trials, their values by level, and what could continue, with `FreezeThaw`."""
    freeze_thaw = FreezeThaw(LEVELS)
    freeze_thaw.take_space(space)
    trials, values, paused = {}, {}, []
    for number in range(num):
        x = 0.02 + 0.96 * number / num
        name = f"t{number}"
        trials[name] = Actor(name, {"x": x, "constant": 3, "added by a searcher": number})
        reached = LEVELS if is_trained(x) else LEVELS[:1]
        values[name] = {index: slow_learner(x, time) for index, time in enumerate(reached)}
        if not is_trained(x):
            paused.append(PausedTrial(name, 2))
    return freeze_thaw, paused, values, trials


def test_a_slow_learner_is_promising_if_its_like_have_ended_well():
    freeze_thaw, paused, values, trials = experiment()
    promise = freeze_thaw.most_promising(paused, values, trials, first=9)
    assert trials[promise.trial_id].config["x"] > 0.7
    assert promise.ratio > REQUIRED_RATIO


def test_what_starts_badly_and_ends_badly_promises_nothing():
    freeze_thaw, _, values, trials = experiment()
    bad = {
        name: {index: 5 + value for index, value in found.items()} for name, found in values.items()
    }
    for name in [name for name, found in values.items() if len(found) == 3]:
        bad[name] = values[name]
    assert freeze_thaw.most_promising([PausedTrial("t15", 2)], bad, trials, first=9) is None


def test_a_trial_that_costs_too_much_waits():
    freeze_thaw, paused, values, trials = experiment()
    dear = [PausedTrial(trial.trial_id, 10_000) for trial in paused]
    assert freeze_thaw.most_promising(dear, values, trials, first=9) is None


@pytest.mark.parametrize("space", [{}, {"x": grid_search([0.1, 0.2])}])
def test_without_a_space_that_a_model_can_search_there_is_no_forecast(space):
    freeze_thaw, paused, values, trials = experiment(space=space)
    assert freeze_thaw.most_promising(paused, values, trials, first=9) is None


def test_few_trials_allow_no_forecast():
    freeze_thaw, paused, values, trials = experiment(num=5)
    assert freeze_thaw.most_promising(paused, values, trials, first=9) is None
    assert freeze_thaw.most_promising([], {}, {}, first=9) is None
    assert freeze_thaw.most_promising(paused, {}, {}, first=9) is None


def test_trials_of_another_space_are_left_out():
    freeze_thaw, paused, values, trials = experiment()
    expected = freeze_thaw.most_promising(paused, values, trials, first=9)
    freeze_thaw, paused, values, trials = experiment()
    others = {
        f"other{number}": Actor(f"other{number}", config)
        for number, config in enumerate([{}, {"x": "three"}, {"y": 0.5}])
    }
    waiting = [*paused, *(PausedTrial(name, 2) for name in others), PausedTrial("unknown", 2)]
    more = {**values, **{name: {0: -99.0} for name in (*others, "unknown")}}
    assert freeze_thaw.most_promising(waiting, more, trials | others, first=9) == expected


def test_nothing_is_forecast_again_before_there_is_something_new(monkeypatch):
    tables = []
    monkeypatch.setattr(forecast, "forecast_of", lambda table, *_, **__: tables.append(table))
    freeze_thaw, paused, values, trials = experiment()
    for _ in range(3):
        assert freeze_thaw.most_promising(paused, values, trials, first=9) is None
    assert len(tables) == 1
    values["t20"][1] = 0.5
    freeze_thaw.most_promising(paused, values, trials, first=9)
    freeze_thaw.most_promising(paused[1:], values, trials, first=9)
    freeze_thaw.most_promising(paused[1:], values, trials, first=3)
    assert len(tables) == 4


def test_the_process_is_fitted_again_once_all_trials_of_the_last_fit_are_forgotten(monkeypatch):
    given, forecast_of = [], forecast.forecast_of
    monkeypatch.setattr(
        forecast, "forecast_of", lambda *args: given.append(args[2]) or forecast_of(*args)
    )
    freeze_thaw, paused, values, trials = experiment(num=20)
    later = {f"later {name}": found for name, found in values.items()}
    trials |= {f"later {name}": trial for name, trial in trials.items()}
    freeze_thaw.most_promising(paused, values, trials, first=9)
    freeze_thaw.most_promising(paused, later | values, trials, first=3)
    assert given == [None, None]
    freeze_thaw.most_promising(paused[1:], later | values, trials, first=3)
    freeze_thaw.most_promising(paused, later, trials, first=3)
    assert [logs is None for logs in given[2:]] == [False, True]


def test_a_restored_one_promises_the_same():
    first, paused, values, trials = experiment()
    first.most_promising(paused, values, trials, first=9)
    second, *_ = experiment()
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    values["t20"] = {0: 2.5, 1: 1.0}
    assert first.most_promising(paused, values, trials, first=9) == second.most_promising(
        paused, values, trials, first=9
    )


def test_a_restore_may_change_the_space():
    first, paused, values, trials = experiment()
    first.most_promising(paused, values, trials, first=9)
    second, *_ = experiment(space={"x": uniform(0, 1), "constant": choice([3, 4])})
    second.load_state_dict(first.state_dict())
    assert second.most_promising(paused, values, trials, first=9) is not None
