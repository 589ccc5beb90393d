"""What the end of a search would have saved in a recorded experiment."""

import json
import re

import pytest

import tuner as tune

pytestmark = pytest.mark.process
EARLY = tune.StopSearch(patience=6, min_trials=12)


def train(config):
    if config["x"] > 0.9:
        raise ValueError("too large")
    loss = config["x"] ** 2
    tune.report({"loss": loss, "gain": -loss, "cost": abs(config["x"] - 0.2)})


def run(tmp_path, stop_search=None, **settings):
    given = {"metric": "loss", "mode": "min", "num_samples": 60, "seed": 1, "search_alg": "random"}
    config = {"max_concurrent_trials": 1, "stop_search": stop_search}
    return tune.Tuner(
        train,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(**(given | config | settings)),
        run_config=tune.RunConfig(
            name=f"{stop_search is None}", storage_path=tmp_path, executor="inline", verbose=0
        ),
    ).fit()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return run(tmp_path_factory.mktemp("recorded"))


def test_it_ends_where_the_real_search_does(recorded, tmp_path):
    answer = tune.what_if(recorded.experiment_path, stop_search=EARLY)
    real = run(tmp_path, EARLY)
    assert answer.shorter.num_trials == len(real) < answer.recorded.num_trials == 60
    assert answer.shorter.best_trial_id == real.get_best_result().trial_id
    best = recorded.get_best_result()
    assert answer.regret == real.get_best_result().metrics["loss"] - best.metrics["loss"]
    assert answer.recorded.best_value == best.metrics["loss"]
    assert answer.saved_trials == 60 - len(real)
    assert 0 < answer.saved_worker_s < answer.recorded.worker_s
    assert 0 < answer.saved_s < answer.recorded.elapsed_s
    assert json.loads(json.dumps(answer.as_dict()))["why"]["numbers"]["num_trials"] == len(real)
    assert f"It would have stopped after {len(real)} of 60 trials: the last 6" in str(answer)


def test_with_several_metrics_the_front_is_compared(tmp_path):
    both = {"metric": ["loss", "cost"], "constraints": {"cost": "<= 0.8"}}
    recorded = run(tmp_path, **both)
    answer = tune.what_if(recorded, stop_search=EARLY)
    real = run(tmp_path, EARLY, **both)
    assert answer.shorter.num_trials == len(real) < answer.recorded.num_trials == 60
    assert answer.shorter.front == tuple(each.trial_id for each in real.get_best_results())
    assert answer.recorded.front == tuple(each.trial_id for each in recorded.get_best_results())
    assert 0 < answer.regret == 1 - answer.shorter.best_value < 1
    assert answer.recorded.best_value == 1
    told = str(answer)
    assert "60 trials, loss to be minimised and cost to be minimised" in told
    assert re.search(r"the hypervolume +100 % +\d\d\S* %\n", told)
    assert f"Quality lost: {100 * answer.regret:.3g} % of the hypervolume" in told
    assert json.loads(json.dumps(answer.as_dict()))["objectives"] == [
        ["loss", "min"],
        ["cost", "min"],
    ]
    one = tune.what_if(recorded, stop_search=EARLY, metric="cost")
    assert one.objectives == (("cost", "min"),)
    assert one.regret == 0 or one.shorter.best_value != one.recorded.best_value


def test_without_a_feasible_trial_nothing_is_compared(tmp_path):
    both = {"metric": ["loss", "cost"], "constraints": {"cost": "<= -1"}, "num_samples": 9}
    answer = tune.what_if(run(tmp_path, **both), stop_search="auto")
    assert (answer.why, answer.regret, answer.recorded.front) == (None, None, ())


def test_another_metric_is_compared_in_its_own_direction(recorded):
    answer = tune.what_if(recorded, stop_search=EARLY, metric="gain", mode="max")
    same = tune.what_if(recorded, stop_search=EARLY)
    assert answer.shorter.num_trials == same.shorter.num_trials
    assert answer.regret == same.regret


def test_a_search_that_would_have_gone_on_saves_nothing(recorded):
    answer = tune.what_if(recorded, stop_search=tune.StopSearch(patience=60))
    assert (answer.why, answer.saved_trials, answer.saved_s, answer.regret) == (None, 0, 0.0, 0.0)
    assert "It would not have ended earlier." in answer.lines()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"stop_search": "soon"}, TypeError, "must be 'auto' or a StopSearch, got 'soon'"),
        ({"stop_search": "auto", "slots": 2}, ValueError, "stop_search must come alone, got .*2"),
        ({"stop_search": "auto", "scheduler": "asha"}, ValueError, "got scheduler='asha'"),
        ({"stop_search": "auto", "metric": "gain"}, ValueError, "mode must be given with metric"),
        ({}, TypeError, "scheduler must be a scheduler or the name of one, got None"),
    ],
)
def test_what_cannot_be_asked_is_refused(recorded, arguments, error, message):
    with pytest.raises(error, match=message):
        tune.what_if(recorded, **arguments)
