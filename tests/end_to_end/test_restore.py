"""A killed or interrupted experiment continues where it stopped."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import signal

import pytest

import tuner as tune
from tests.end_to_end.interruption import Script
from tests.end_to_end.scripts import ended_search
from tuner.errors import ExperimentExists, StorageError
from tuner.journal import reader
from tuner.storage import layout


def iterations(trial_dir):
    rows = [
        json.loads(line)["training_iteration"]
        for line in (trial_dir / "result.json").read_text().splitlines()
    ]
    with (trial_dir / "progress.csv").open(newline="") as table:
        assert [int(row["training_iteration"]) for row in csv.DictReader(table)] == rows
    return rows


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return how the search ends with which nothing interferes."""
    given = ended_search.given(tmp_path_factory.mktemp("whole"), executor="inline")
    return outcome(tune.Tuner(ended_search.train, **given).fit())


def outcome(grid):
    frame = grid.get_dataframe()
    return frame[["trial_id", "training_iteration", "loss", "status"]].to_csv(index=False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_experiment_that_was_ended_by_a_signal_ends_as_if_it_had_not_been(
    tmp_path, undisturbed, number
):
    storage = tmp_path / "ended"
    storage.mkdir()
    with contextlib.closing(
        Script(ended_search.__file__, storage, int(number), directory=tmp_path)
    ) as script:
        assert script.end() == (130 if number == signal.SIGINT else -number), script.errors
    moved = tmp_path / "moved"
    storage.rename(moved)
    num_results = sum(record["k"] == "result" for record in reader.read(moved / "exp"))
    assert ended_search.NUM_RESULTS <= num_results < undisturbed.count("TERMINATED") * 12
    restored = tune.Tuner.restore(moved / "exp", ended_search.train, **ended_search.given(moved))
    assert outcome(restored.fit()) == undisturbed
    for trial_dir in (moved / "exp").glob("t0*"):
        rows = iterations(trial_dir)
        assert rows == list(range(1, len(rows) + 1))


def quick(config):
    tune.report({"loss": config["x"]})


def settings(tmp_path, **tune_config):
    return {
        "param_space": {"x": tune.uniform(0, 1)},
        "tune_config": tune.TuneConfig(metric="loss", mode="min", seed=3, **tune_config),
        "run_config": tune.RunConfig(
            storage_path=tmp_path, name="exp", verbose=0, executor="inline"
        ),
    }


def test_a_finished_experiment_can_be_given_more_samples(tmp_path):
    first = tune.Tuner(quick, **settings(tmp_path, num_samples=3)).fit()
    more = tune.Tuner.restore(tmp_path / "exp", quick, **settings(tmp_path, num_samples=5)).fit()
    assert [result.config for result in more][:3] == [result.config for result in first]
    assert len(more) == 5
    assert len({result.config["x"] for result in more}) == 5


def test_results_come_back_without_running_anything_again(tmp_path):
    calls = []

    def train(config):
        calls.append(config["x"])
        tune.report({"loss": config["x"]})

    tune.Tuner(train, **settings(tmp_path, num_samples=3)).fit()
    grid = tune.Tuner.restore(tmp_path / "exp", train, **settings(tmp_path, num_samples=3)).fit()
    assert len(calls) == 3
    assert sorted(grid.get_dataframe()["loss"]) == sorted(calls)


def test_results_can_be_read_without_going_on(tmp_path):
    fitted = tune.Tuner(quick, **settings(tmp_path, num_samples=3)).fit()
    restored = tune.Tuner.restore(tmp_path / "exp", quick, **settings(tmp_path, num_samples=5))
    assert list(restored.get_results().get_dataframe()["loss"]) == list(
        fitted.get_dataframe()["loss"]
    )
    assert len(restored.fit()) == 5


def test_failed_trials_are_tried_again_where_that_is_asked_for(tmp_path):
    broken = [True]

    def train(config):
        if broken:
            raise ValueError("not yet")
        tune.report({"loss": config["x"]})

    assert tune.Tuner(train, **settings(tmp_path, num_samples=2)).fit().num_errors == 2
    broken.clear()
    assert (
        tune.Tuner.restore(tmp_path / "exp", train, **settings(tmp_path, num_samples=2))
        .fit()
        .num_errors
        == 2
    )
    grid = tune.Tuner.restore(
        tmp_path / "exp", train, resume_errored=True, **settings(tmp_path, num_samples=2)
    ).fit()
    assert grid.num_errors == 0
    assert grid.num_terminated == 2


def test_a_directory_without_an_experiment_is_refused(tmp_path):
    assert not tune.Tuner.can_restore(tmp_path)
    with pytest.raises(StorageError, match="holds no experiment"):
        tune.Tuner.restore(tmp_path, quick)


@pytest.mark.parametrize(
    "open_it",
    [lambda name: tune.Tuner.restore(name, quick), tune.ResultGrid.from_directory, tune.attach],
)
def test_a_name_under_the_default_storage_path_is_pointed_to(tmp_path, monkeypatch, open_it):
    monkeypatch.setattr(layout, "DEFAULT_STORAGE_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    tune.Tuner(quick, **settings(tmp_path)).fit()
    usual = re.escape(repr(str(tmp_path / "exp")))
    with pytest.raises((StorageError, FileNotFoundError), match=rf"; did you mean {usual}\?$"):
        open_it("exp")


def test_a_new_experiment_never_starts_over_in_the_place_of_an_old_one(tmp_path):
    tune.Tuner(quick, **settings(tmp_path)).fit()
    assert tune.Tuner.can_restore(tmp_path / "exp")
    with pytest.raises(ExperimentExists, match=r"Tuner\.restore"):
        tune.Tuner(quick, **settings(tmp_path)).fit()
