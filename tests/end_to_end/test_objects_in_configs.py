"""Functions, classes and arrays in configurations: never pickled to disk, kept by a restore."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from searchers.searcher import Searcher
from tuner.errors import StorageError


class Net:
    """A user's class, of which all objects look the same."""

    def __repr__(self):
        return "Net()"


def train(config):
    tune.report({"loss": config["loss"](2), "sum": float(np.sum(config["data"]))})


def losses():
    """Return functions that differ only in their position."""
    return [lambda x, power=power: x**power for power in range(3)]


def given(storage, loss, **constants):
    return {
        "param_space": {"loss": loss, "net": {"of": (Net(), Net)}, "data": np.ones(3), **constants},
        "tune_config": tune.TuneConfig(metric="loss", mode="min", seed=2),
        "run_config": tune.RunConfig(
            storage_path=storage, name="exp", verbose=0, executor="inline"
        ),
    }


def bytes_of(directory):
    return {
        path: path.read_bytes()
        for path in Path(directory).rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_a_restored_experiment_has_the_objects_that_are_given_again(tmp_path):
    tune.Tuner(train, **given(tmp_path, tune.grid_search(losses()))).fit()
    again = given(tmp_path, tune.grid_search(losses()))
    grid = tune.Tuner.restore(tmp_path / "exp", train, **again).fit()
    assert [result.config["loss"] for result in grid] == again["param_space"]["loss"]["grid_search"]
    assert all(result.config["net"]["of"] == again["param_space"]["net"]["of"] for result in grid)
    assert [result.metrics["loss"] for result in grid] == [1, 2, 4]


class Fickle(Searcher):
    """Proposes other configurations in each session."""

    session = 0

    def __init__(self):
        self.space = {}
        type(self).session += 1

    def set_search_properties(self, metric, mode, config, **spec):
        self.space = config
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id):
        return {"loss": self.space["loss"].categories[self.session % 3]}


def test_the_recorded_choice_stands_whatever_the_searcher_proposes_now(tmp_path):
    def settings(functions):
        settings = given(tmp_path, tune.choice(functions))
        return {
            **settings,
            "tune_config": tune.TuneConfig(metric="loss", mode="min", search_alg=Fickle()),
        }

    tune.Tuner(train, **settings(losses())).fit()
    functions = losses()
    (result,) = tune.Tuner.restore(tmp_path / "exp", train, **settings(functions)).get_results()
    assert result.config["loss"](2) == result.metrics["loss"]
    assert any(result.config["loss"] is function for function in functions)


def test_what_is_not_given_again_is_listed_by_place_and_nothing_is_touched(tmp_path):
    model = {"loss": len, "parts": [Net(), 3]}
    tune.Tuner(train, **given(tmp_path, tune.choice(losses()), model=model)).fit()
    before = bytes_of(tmp_path)
    restored = tune.Tuner.restore(tmp_path / "exp", train, **given(tmp_path, tune.choice(losses())))
    for attempt in (restored.get_results, restored.fit):
        with pytest.raises(StorageError) as caught:
            attempt()
        assert (
            'param_space["model"]["loss"] (<built-in function len>), '
            'param_space["model"]["parts"][0] (Net())' in str(caught.value)
        )
        assert bytes_of(tmp_path) == before


@pytest.mark.parametrize(
    ("space", "place"),
    [
        (
            {"a": {"lock": threading.Lock()}},
            r'config\["a"\]\["lock"\] \(_thread.lock\) cannot be carried',
        ),
        (
            {"a": tune.choice([1, [threading.Lock()]])},
            r"config\[\"a\"\], category 1, holds '\[0\]' \(_thread.lock\), which cannot be carried",
        ),
        (
            {"a": tune.grid_search([open])} | {"b": (x for x in "ab")},
            r'config\["b"\] \(generator\) cannot be carried',
        ),
    ],
)
def test_what_cannot_be_carried_to_a_worker_is_named_before_any_folder_exists(
    build, tmp_path, space, place
):
    with pytest.raises(TypeError, match=place):
        build(train, space, storage_path=tmp_path / "storage", executor="process")
    assert list(tmp_path.iterdir()) == []


def test_a_large_array_is_stored_once_for_all_trials_and_described_in_files_for_people(
    fit, tmp_path
):
    array = np.random.default_rng(0).random(250_000)

    def train(config):
        config["data"][0] = config["x"]
        for _ in range(3):
            tune.report(
                {"sum": float(config["data"].sum()), "owns": bool(config["data"].flags.writeable)}
            )

    results = fit(train, {"x": tune.grid_search([float(x) for x in range(10)]), "data": array})
    assert results.num_errors == 0
    assert [result.metrics["sum"] for result in results] == pytest.approx(
        [array[1:].sum() + x for x in range(10)]
    )
    files = bytes_of(tmp_path / "experiment")
    assert sum(map(len, files.values())) < array.nbytes + 200_000
    assert [len(data) for path, data in files.items() if path.suffix == ".npy"] == [
        array.nbytes + 128
    ]
    (params,) = (
        json.loads(data) for path, data in files.items() if path.match("t00000/params.json")
    )
    assert len(params["data"]) <= 200


def test_a_restored_trial_has_the_array_that_was_stored(tmp_path):
    tune.Tuner(train, **given(tmp_path, tune.choice(losses()))).fit()
    again = given(tmp_path, tune.choice(losses()))
    again["param_space"]["data"] = np.zeros(3)
    (result,) = tune.Tuner.restore(tmp_path / "exp", train, **again).fit()
    assert np.array_equal(result.config["data"], np.ones(3))
