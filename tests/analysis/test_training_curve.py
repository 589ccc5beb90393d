"""Rows of one iteration in a population, and the curve that led to a result."""

import csv
import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import Exploit, Reason, Resume, Scheduler

pytestmark = pytest.mark.process

KEY = ["training_iteration", "num_exploits"]


class Takeover(Scheduler):
    """Has a trial exploit another one when it reaches an iteration.

    Args:
        plan: Lists of trial, its iteration, donor, index of the donor's checkpoint.
    """

    def __init__(self, plan):
        self.plan = [tuple(step) for step in plan]

    def on_trial_result(self, trial, result):
        if not self.plan:
            return ()
        trial_id, iteration, donor_id, index = self.plan[0]
        if (trial.trial_id, result["training_iteration"]) != (trial_id, iteration):
            return ()
        del self.plan[0]
        config, why = {"x": trial.config["x"] + 10}, Reason("test.takeover")
        return [Exploit(trial_id, donor_id, config, why, index), Resume(trial_id, why)]

    def state_dict(self):
        return {"plan": [list(step) for step in self.plan]}

    def load_state_dict(self, state):
        self.plan = [tuple(step) for step in state["plan"]]


def train(config):
    checkpoint = tune.get_checkpoint()
    begun = []
    if checkpoint:
        with checkpoint.as_directory() as directory:
            begun = json.loads(Path(directory, "history.json").read_text())
    # What the model has been trained with is part of the model.
    for epoch in range(len(begun) + 1, 7):
        begun.append(config["x"])
        with tune.checkpoint_dir() as directory:
            Path(directory, "history.json").write_text(json.dumps(begun))
            tune.report(
                {"loss": 1 / epoch, "history": list(begun)},
                checkpoint=tune.Checkpoint.from_directory(directory),
            )


@pytest.fixture
def trained(build):
    """Return a function that trains two trials, one after the other, with these exploits."""

    def run(plan, **options):
        return build(
            train,
            {"x": tune.grid_search([1, 2])},
            tune={
                "metric": "loss",
                "mode": "min",
                "scheduler": Takeover(plan),
                "max_concurrent_trials": 1,
            },
            executor="inline",
            **options,
        ).fit()

    return run


# t00001 goes back to the donor's second checkpoint, although the donor has six.
ONCE = [("t00001", 4, "t00000", 1)]
# The second takeover is of the trial itself, the third of a donor that is ahead.
THRICE = [("t00001", 3, "t00000", 0), ("t00001", 4, "t00001", 0), ("t00001", 3, "t00000", 4)]


@pytest.mark.parametrize("plan", [[], ONCE, THRICE])
def test_the_curve_is_what_the_model_was_trained_with(trained, plan):
    for result in trained(plan):
        curve = result.training_curve
        assert curve["training_iteration"].tolist() == [1, 2, 3, 4, 5, 6]
        assert curve["config/x"].tolist() == result.metrics["history"]
        assert curve["loss"].iloc[-1] == result.metrics["loss"]
        if not plan:
            assert curve.equals(result.metrics_dataframe)


def test_the_rows_of_the_curve_name_who_trained_them(trained):
    curve = trained(ONCE)[1].training_curve
    assert curve["trial_id"].tolist() == ["t00000"] * 2 + ["t00001"] * 4
    assert curve["num_exploits"].tolist() == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("plan", [[], ONCE, THRICE])
def test_no_two_rows_of_a_trial_have_the_same_key(trained, plan):
    results = trained(plan)
    long = results.get_metrics_dataframe()
    assert not long.duplicated(["trial_id", *KEY]).any()
    assert long["num_exploits"].max() == len(plan)
    for result in results:
        frame = result.metrics_dataframe
        assert frame.duplicated("training_iteration").any() == (
            bool(plan) and result.trial_id == "t00001"
        )
        written = map(json.loads, Path(result.path, "result.json").read_text().splitlines())
        lines = csv.DictReader(Path(result.path, "progress.csv").read_text().splitlines())
        expected = list(map(tuple, frame[KEY].values.tolist()))
        assert [tuple(row[name] for name in KEY) for row in written] == expected
        assert [tuple(int(line[name]) for name in KEY) for line in lines] == expected
        assert result.metrics["num_exploits"] == expected[-1][1]


@pytest.mark.parametrize("plan", [[], ONCE, THRICE])
def test_a_directory_tells_the_same(trained, plan):
    results = trained(plan)
    again = tune.ResultGrid.from_directory(results.experiment_path)
    for result, read in zip(results, again, strict=True):
        assert read.training_curve.equals(result.training_curve)
        alone = tune.Result.from_path(result.path)
        assert alone.metrics_dataframe[KEY].equals(result.metrics_dataframe[KEY])
        assert alone.metrics_dataframe["config/x"].equals(result.metrics_dataframe["config/x"])


def test_a_trial_that_was_read_alone_does_not_know_its_donors(trained):
    results = trained(ONCE)
    assert len(tune.Result.from_path(results[0].path).training_curve) == 6
    with pytest.raises(ValueError, match="take it from the ResultGrid of the whole experiment"):
        _ = tune.Result.from_path(results[1].path).training_curve


def test_the_best_table_and_the_last_one_have_the_column(trained):
    results = trained(ONCE)
    assert results.get_dataframe()["num_exploits"].tolist() == [0, 1]
    best = results.get_dataframe(filter_metric="loss", filter_mode="min")
    assert best["num_exploits"].tolist() == [0, 1]


def test_a_name_of_the_engine_is_not_reported(fit, caplog):
    result = fit(lambda config: {"num_exploits": 7, "loss": 1.0}, executor="inline")[0]
    assert result.metrics["num_exploits"] == 0
    assert "has reported 'num_exploits'" in caplog.text
