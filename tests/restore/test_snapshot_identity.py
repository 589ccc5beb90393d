"""A snapshot is used if all arguments are declared as before; else the journal is replayed."""

from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from searchers import BasicVariantGenerator
from tuner.restore.snapshot_state import usable_snapshot
from tuner.spec.experiment_spec import make_spec

pytestmark = pytest.mark.process

SPACE = {"x": tune.uniform(0, 1), "n": 3, "sizes": (1, 2)}


def learn(config):
    tune.report({"loss": config["x"]})


def declared(space=None, *, max_t=9, random_state=1, stop=5, num_samples=3, mode="min"):
    scheduler, searcher = (
        ASHAScheduler(max_t=max_t),
        BasicVariantGenerator(random_state=random_state),
    )
    return {
        "param_space": space or SPACE,
        "tune_config": tune.TuneConfig(
            metric="loss",
            mode=mode,
            num_samples=num_samples,
            scheduler=scheduler,
            search_alg=searcher,
        ),
        "run_config": tune.RunConfig(
            executor="inline", verbose=0, stop={"training_iteration": stop}
        ),
    }


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tune.Tuner(learn, **declared()).fit().experiment_path


def is_usable(directory, **changes):
    spec = make_spec(learn, *declared(**changes).values())
    spec.connect()
    return usable_snapshot(spec, Path(directory)) is not None


def test_the_same_declaration_and_more_samples_of_it_go_on_from_the_snapshot(directory):
    assert is_usable(directory)
    assert is_usable(directory, num_samples=9)


@pytest.mark.parametrize(
    "change",
    [{"max_t": 5}, {"random_state": 2}, {"stop": 7}, {"space": {**SPACE, "n": 4}}, {"mode": "max"}],
    ids=str,
)
def test_another_argument_of_the_same_class_replays_the_journal(directory, change):
    assert not is_usable(directory, **change)


def test_configurations_come_back_from_a_snapshot_with_their_types(directory):
    grid = tune.Tuner.restore(directory, learn).get_results()
    assert [result.config["sizes"] for result in grid] == [(1, 2)] * 3


def test_a_space_with_secrets_is_declared_by_their_names_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HUB_API_KEY", "swordfish")
    run_config = tune.RunConfig(name="e", storage_path=tmp_path, executor="inline", verbose=0)
    space = {"x": tune.uniform(0, 1), "key": tune.Secret("HUB_API_KEY")}
    tune.Tuner(learn, param_space=space, run_config=run_config).fit()
    assert "swordfish" not in (tmp_path / "e" / "experiment.json").read_text()
    assert tune.Tuner.restore(tmp_path / "e", learn, num_samples=2).fit().num_terminated == 2
