"""The summary says if no trial has reached the scheduler's first comparison."""

import pytest

import tuner as tune
from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from tuner import Tuner
from tuner.cli.explain import explain


def train(config):
    for step in range(1, config["steps"] + 1):
        tune.report({"score": step * config["rate"]})


def broken(config):
    tune.report({"score": 0.0})
    raise ValueError


MUTATIONS = {"rate": tune.uniform(0, 1)}
SILENT = {
    "PBT in seconds": (
        lambda: PopulationBasedTraining(hyperparam_mutations=MUTATIONS),
        "perturbation_interval=60;",
    ),
    "the median in seconds": (MedianStoppingRule, "grace_period=60;"),
    "ASHA from 10 on": (
        lambda: ASHAScheduler(grace_period=10),
        "training_iteration=3, and its first comparison is at grace_period=10;",
    ),
    "wrapped": (
        lambda: ResourceChangingScheduler(ASHAScheduler(grace_period=10)),
        "ASHAScheduler compared no trials",
    ),
}
FITTING = {
    "none": FIFOScheduler,
    "ASHA from 3 on": lambda: ASHAScheduler(grace_period=3),
    "PBT in iterations": lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=3, hyperparam_mutations=MUTATIONS
    ),
}


@pytest.fixture
def run(build):
    def run(scheduler, trainable=train, **options):
        settings = {
            "metric": "score",
            "mode": "max",
            "scheduler": scheduler,
            "num_samples": 2,
            "seed": 1,
        }
        space = {"rate": tune.uniform(0, 1), "steps": 3}
        return build(
            trainable, space, tune=settings, executor="inline", **{"verbose": 1, **options}
        ).fit()

    return run


@pytest.mark.parametrize("case", SILENT)
def test_the_summary_and_explain_report_that_no_trial_was_compared(run, case, capsys, tmp_path):
    make, expected = SILENT[case]
    grid = run(make())
    logged = [
        line
        for line in capsys.readouterr().out.splitlines()
        if " compared no trials: the longest one came to " in line
    ]
    assert len(logged) == 1
    assert expected in logged[0]
    grid.explain("t00000")
    last = capsys.readouterr().out.splitlines()[-1]
    assert " never compared this trial: it came to " in last
    explain.callback(tmp_path / "experiment", "0")
    assert capsys.readouterr().out.splitlines()[-1] == last
    Tuner.restore(tmp_path / "experiment", train).get_results().explain("t00001")
    assert " never compared this trial: it came to " in capsys.readouterr().out


@pytest.mark.parametrize("case", FITTING)
def test_no_such_report_where_trials_were_compared(run, case, capsys):
    run(FITTING[case]()).explain("t00000")
    out = capsys.readouterr().out
    assert "compared no trials" not in out
    assert "never compared" not in out


def test_no_such_report_where_no_trial_completed(run, capsys):
    run(ASHAScheduler(grace_period=10), broken)
    assert "compared no trials" not in capsys.readouterr().out
