"""A paused trial is shown to the sampler as it stands at its rung, and as running again once it goes on."""

import json
import math

import pytest

from searchers import ConcurrencyLimiter, OptunaSearch
from searchers.space import uniform

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState


def prepared(mode="min", **arguments):
    searcher = OptunaSearch(metric="loss", mode=mode, **arguments)
    assert searcher.set_search_properties(None, None, {"x": uniform(0, 1)}, seed=0)
    return searcher


def row(loss, iteration):
    return {"loss": loss, "training_iteration": iteration}


def paused(searcher, name, *rows):
    config = searcher.suggest(name)
    for each in rows:
        searcher.on_trial_result(name, each)
    searcher.on_trial_pause(name, rows[-1] if rows else None)
    return config


def test_a_paused_trial_is_pruned_at_its_rung_with_its_intermediate_values():
    searcher = prepared()
    paused(searcher, "a", row(3.0, 1), row(2.0, 2))
    for trial in (searcher.study.trials[0], searcher.study.get_trials(states=[State.PRUNED])[0]):
        assert (trial.state, trial.value, trial.intermediate_values) == (
            State.PRUNED,
            2.0,
            {1: 3.0, 2: 2.0},
        )
    assert searcher.study.get_trials(states=[State.RUNNING]) == []


def test_it_runs_again_with_its_next_result_and_is_pruned_again_at_the_next_rung():
    searcher = prepared()
    paused(searcher, "a", row(3.0, 1))
    searcher.on_trial_result("a", row(2.5, 2))
    assert searcher.study.trials[0].state == State.RUNNING
    searcher.on_trial_result("a", row(2.0, 3))
    searcher.on_trial_pause("a", row(2.0, 3))
    assert (searcher.study.trials[0].state, searcher.study.trials[0].last_step) == (State.PRUNED, 3)


@pytest.mark.parametrize(
    ("ending", "state"),
    [({}, State.COMPLETE), ({"stopped": True}, State.PRUNED), ({"error": True}, State.FAIL)],
)
def test_a_paused_trial_can_end_in_every_way(ending, state):
    searcher = prepared()
    paused(searcher, "a", row(3.0, 1))
    searcher.on_trial_complete("a", None if "error" in ending else row(1.0, 1), **ending)
    assert searcher.study.trials[0].state == state
    assert searcher.study.trials[0].intermediate_values[1] == (3.0 if "error" in ending else 1.0)


def test_a_trial_that_has_reported_nothing_keeps_running():
    searcher = prepared()
    paused(searcher, "a")
    assert searcher.study.trials[0].state == State.RUNNING


def test_nan_at_a_rung_is_no_value():
    searcher = prepared()
    paused(searcher, "a", row(math.nan, 1))
    assert (searcher.study.trials[0].state, searcher.study.trials[0].value) == (State.PRUNED, None)


def test_trials_of_others_are_ignored():
    searcher = prepared()
    searcher.on_trial_pause("z", row(1.0, 1))
    assert searcher.study.trials == []


def test_the_sampler_learns_from_paused_trials():
    searcher = prepared()
    for number in range(40):
        config = searcher.suggest(str(number))
        searcher.on_trial_result(str(number), row(config["x"], 1))
        searcher.on_trial_pause(str(number), row(config["x"], 1))
    assert sum(trial.params["x"] for trial in searcher.study.trials[-10:]) / 10 < 0.25


def test_a_restored_search_shows_the_same_trials_as_paused():
    first, second = prepared(constraints=["loss"]), prepared(constraints=["loss"])
    paused(first, "a", row(3.0, 1))
    paused(first, "b", row(2.0, 1))
    first.on_trial_result("b", row(1.0, 2))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [trial.state for trial in second.study.trials] == [State.PRUNED, State.RUNNING]
    assert second.study.trials[0].constraints == {"loss": 3.0}
    for searcher in (first, second):
        searcher.on_trial_result("a", row(1.5, 2))
        searcher.on_trial_complete("a", row(1.5, 2))
    assert [trial.state for trial in second.study.trials] == [State.COMPLETE, State.RUNNING]
    assert first.suggest("c") == second.suggest("c")


@pytest.mark.parametrize("batch", [False, True])
def test_pauses_pass_a_concurrency_limiter_at_once(batch):
    inner = prepared()
    limiter = ConcurrencyLimiter(inner, 2, batch=batch)
    limiter.suggest("a")
    limiter.on_trial_pause("a", row(3.0, 1))
    assert inner.study.trials[0].state == State.PRUNED
    limiter.suggest("b")
    assert limiter.suggest("c") is None, "a paused trial is still unfinished"
