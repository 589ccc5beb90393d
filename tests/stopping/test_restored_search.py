"""A search that has ended stays so, until it is declared otherwise."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from searchers import BasicVariantGenerator
from tuner.core.events import SearchEnded
from tuner.journal.reader import read_events
from tuner.journal.snapshot_files import load_newest
from tuner.stopping.stop_search import StopSearch

pytestmark = pytest.mark.process
EARLY = StopSearch(patience=6, min_trials=12)
BOTH = {"metric": ["loss", "cost"], "constraints": {"cost": "<= 0.8"}}
"""Two metrics, of which all between their best values is on the front."""


def train(config):
    tune.report({"loss": config["x"] ** 2, "cost": abs(config["x"] - 0.2)})


class Crash(tune.Callback):
    """Kills the driver when so many trials have ended."""

    def __init__(self, num_trials):
        self._num_left = num_trials

    def on_trial_complete(self, iteration, trials, trial, **info):
        self._num_left -= 1
        if not self._num_left:
            os.kill(os.getpid(), signal.SIGKILL)


def crash(storage_path, num_trials, goals):
    tuner_for(storage_path, callbacks=[Crash(num_trials)], **goals).fit()


def tuner_for(tmp_path, callbacks=None, **settings):
    given = {"metric": "loss", "mode": "min", "num_samples": 60, "seed": 1, "stop_search": EARLY}
    return tune.Tuner(
        train,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(search_alg=BasicVariantGenerator(), **(given | settings)),
        run_config=tune.RunConfig(
            name="run", storage_path=tmp_path, executor="inline", verbose=0, callbacks=callbacks
        ),
    )


@pytest.fixture
def goals():
    """What is optimised, other than the loss alone."""
    return {}


@pytest.fixture
def stopped(tmp_path, goals):
    """The directory of an experiment whose search has ended, and how many trials it had."""
    grid = tuner_for(tmp_path, **goals).fit()
    assert 12 <= len(grid) < 40
    return tmp_path / "run", len(grid)


def ends_in(path):
    return [
        past.event.why
        for past in read_events(path)
        if isinstance(past.event, SearchEnded) and past.event.why
    ]


def test_tune_run_ends_a_search_as_a_tuner_does(tmp_path):
    analysis = tune.run(
        train,
        config={"x": tune.uniform(-1, 1)},
        metric="loss",
        mode="min",
        num_samples=60,
        search_alg="random",
        stop_search=EARLY,
        max_concurrent_trials=1,
        storage_path=tmp_path,
        name="older",
        verbose=0,
    )
    assert 12 <= len(analysis.trials) < 60
    assert ends_in(tmp_path / "older")


def test_it_stays_ended_and_says_why(stopped, capsys):
    path, num = stopped
    again = tune.Tuner.restore(path, train, verbose=1).fit()
    assert len(again) == num
    assert len(set(map(str, ends_in(path)))) == 1
    shown = capsys.readouterr().out
    assert f"Continuing run: {num} of {num} trials finished (" in shown
    assert f"stopped after {num} of 60 trials: the last 6 trials have gained 0 loss" in shown
    assert "nothing new" not in shown
    assert "train, stop_search='never').fit()" in shown
    again.explain()
    assert capsys.readouterr().out.startswith(f"stopped after {num} of 60 trials: ")


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_it_goes_on_without_a_criterion(stopped, with_snapshot):
    path, num = stopped
    if not with_snapshot:
        shutil.rmtree(path / "snapshot")
    assert (load_newest(path) is not None) == with_snapshot
    again = tune.Tuner.restore(path, train, stop_search="never").fit()
    assert len(again) == 60 > num
    again.explain()


@pytest.mark.parametrize(
    "changed",
    [{"num_samples": 90}, {"stop_search": "auto"}, {"stop_search": StopSearch(patience=4)}],
)
def test_it_goes_on_for_a_while_where_anything_is_declared_otherwise(stopped, changed):
    path, num = stopped
    again = tune.Tuner.restore(path, train, **changed).fit()
    assert len(again) >= num + 4
    assert json.loads((path / "experiment.json").read_text())["tune_config"]["stop_search"]


@pytest.mark.parametrize("goals", [BOTH])
def test_it_says_so_of_several_metrics(stopped, capsys, goals):
    path, num = stopped
    again = tune.Tuner.restore(path, train, verbose=1).fit()
    assert len(again) == num
    assert f"stopped after {num} of 60 trials: the last 6 trials have gained 0 % of the " in (
        capsys.readouterr().out
    )
    again.explain()
    assert "hypervolume of loss, cost, and more than 0 % would be worth" in capsys.readouterr().out


@pytest.mark.parametrize("goals", [BOTH])
def test_it_goes_on_where_other_constraints_are_declared(stopped, goals):
    path, num = stopped
    wider = {"cost": "<= 1.3"}
    assert len(tune.Tuner.restore(path, train, constraints=wider).fit()) >= num + 6


def test_a_criterion_that_comes_later_knows_the_trials_before(tmp_path):
    tuner_for(tmp_path, stop_search=None, num_samples=50).fit()
    again = tune.Tuner.restore(tmp_path / "run", train, num_samples=60, stop_search=EARLY).fit()
    assert len(again) == 50
    assert len(set(map(str, ends_in(tmp_path / "run")))) == 1


@pytest.mark.parametrize("goals", [{}, BOTH], ids=["one metric", "several"])
@pytest.mark.parametrize("num_left", [5, 1, 0])
def test_it_ends_after_a_crash_where_it_would_have(stopped, tmp_path, num_left, goals):
    path, num = stopped
    configs = [result.config for result in tune.ResultGrid.from_directory(path)]
    shutil.rmtree(path)
    code = f"from {__name__} import crash; crash({str(tmp_path)!r}, {num - num_left}, {goals})"
    done = subprocess.run(  # noqa: S603  (our own interpreter)
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    assert len(tune.ResultGrid.from_directory(path)) in (num - num_left, num - num_left + 1)
    again = tune.Tuner.restore(path, train, callbacks=[]).fit()
    assert [result.config for result in again] == configs
    assert {why.numbers["num_trials"] for why in ends_in(path)} == {num}
