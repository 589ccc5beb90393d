"""Infeasible trials in ``tuner show``, ``best``, ``ls``, ``explain`` and ``export``."""

import json
import re
from pathlib import Path

import pytest

import tuner as tune

pytestmark = pytest.mark.process


def train(config):
    # The size is reported once, and not with the last result.
    tune.report({"loss": 2 / config["width"], "cost": config["width"], "size_mb": config["width"]})
    with tune.checkpoint_dir() as directory:
        Path(directory, "weights").write_text("w")
        tune.report(
            {"loss": 1 / config["width"], "cost": config["width"]},
            checkpoint=tune.Checkpoint.from_directory(directory),
        )


@pytest.fixture
def limited(storage):
    """Return a function that runs three trials under a limit of their size."""

    def run(name, metric="loss", limit="<= 4"):
        tuner = tune.Tuner(
            train,
            param_space={"width": tune.grid_search([8, 4, 2])},
            tune_config=tune.TuneConfig(
                metric=metric, mode="min", constraints={"size_mb": limit}, search_alg="random"
            ),
            run_config=tune.RunConfig(
                name=name, storage_path=storage, verbose=0, executor="inline", resources={"cpu": 1}
            ),
        )
        return Path(tuner.fit().experiment_path)

    return run


def columns_of(done, *names):
    heading, *lines = [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()]
    return [tuple(line[heading.index(name)] for name in names) for line in lines]


def test_one_metric(call, limited):
    experiment = limited("one")
    assert columns_of(call("show", experiment), "trial", "feasible", "size_mb") == [
        ("t00000", "no", "8"),
        ("t00001", "yes", "4"),
        ("t00002", "yes", "2"),
    ]
    records = json.loads(call("show", experiment, "-f", "json").stdout)
    assert [(one["feasible"], one["size_mb"]) for one in records] == [
        (False, 8),
        (True, 4),
        (True, 2),
    ]
    for number, condition in (
        (2, "feasible == true"),
        (2, "feasible == yes"),
        (1, "feasible = no"),
    ):
        assert len(columns_of(call("show", experiment, "--filter", condition), "trial")) == number
    found = json.loads(call("best", experiment, "-f", "json").stdout)
    assert (found["trial_id"], found["size_mb"]) == ("t00001", 4)
    assert columns_of(call("best", experiment, "-n", "5"), "trial") == [("t00001",), ("t00002",)]
    assert json.loads(call("ls", experiment, "-f", "json").stdout)[0]["best_trial"] == "t00001"
    facts = json.loads(call("show", experiment, "0", "-f", "json").stdout)
    assert (facts["feasible"], facts["infeasible"]) == (False, "size_mb 8 misses <= 4 by 4")
    assert "infeasible" not in json.loads(call("show", experiment, "1", "-f", "json").stdout)
    told = call("explain", experiment, "0").stdout.splitlines()
    assert told[-1] == "infeasible: size_mb 8 misses <= 4 by 4"
    assert "infeasible" not in call("explain", experiment, "1").stdout
    assert "feasible" in call("export", experiment).stdout.splitlines()[0].split(",")


def test_a_constraint_on_what_is_optimised_has_no_column_of_its_own(call, limited):
    experiment = limited("both", metric=["loss", "size_mb"])
    heading = re.split(r"\s{2,}", call("show", experiment).stdout.splitlines()[0])
    assert heading.count("size_mb") == 1
    assert columns_of(call("show", experiment), "feasible", "size_mb")[0] == ("no", "8")


def test_a_front_of_one_trial_is_told_in_the_singular(call, limited):
    done = call("best", limited("single", metric=["loss", "cost"], limit="<= 2"))
    assert done.stderr.startswith("1 trial on the Pareto front of min loss, min cost")


def test_several_metrics(call, limited):
    experiment = limited("two", metric=["loss", "cost"])
    done = call("best", experiment)
    assert columns_of(done, "trial", "size_mb") == [("t00001", "4"), ("t00002", "2")]
    assert done.stderr == "2 trials on the Pareto front of min loss, min cost, size_mb <= 4\n"
    assert call("best", experiment, "-n", "1").stderr == (
        "1 of 2 trials on the Pareto front of min loss, min cost, size_mb <= 4\n"
    )
    assert json.loads(call("ls", experiment, "-f", "json").stdout)[0]["remark"] == (
        "2 on the Pareto front"
    )
    found = json.loads(call("best", experiment, "--metric", "loss", "-f", "json").stdout)
    assert found["trial_id"] == "t00001"


def test_fronts_are_compared_from_one_reference(call, limited):
    names = {"wide": "<= 4", "narrow": "<= 2", "none": "<= 1"}
    paths = [limited(name, ["loss", "cost"], limit) for name, limit in names.items()]
    found = json.loads(call("compare", *paths, "-f", "json").stdout)
    # From a loss of 0.55, which is the narrow front's, and a cost of 4.2, the wide one's.
    assert [(each["num_on_front"], each["num_feasible"]) for each in found] == [
        (2, 2),
        (1, 1),
        (0, 0),
    ]
    assert [each["hypervolume"] for each in found] == pytest.approx(
        [0.05 * 2.2 + 0.25 * 0.2, 0.05 * 2.2, 0]
    )
    assert call("compare", paths[2], code=1).stderr == ""
    told = call("compare", paths[0], limited("single"), code=2).stderr
    assert "optimises loss, cost; give one of them as --metric" in told


def failing(config):
    raise ValueError(config["width"])


def test_several_metrics_that_no_trial_has_reported(call, storage):
    experiment = tune.Tuner(
        failing,
        param_space={"width": tune.grid_search([8, 4])},
        tune_config=tune.TuneConfig(metric=["loss", "cost"], mode="min"),
        run_config=tune.RunConfig(
            name="failed",
            storage_path=storage,
            verbose=0,
            executor="inline",
            failure_config=tune.FailureConfig(fail_script=False),
        ),
    )
    path = Path(experiment.fit().experiment_path)
    assert call("best", path, code=1).stderr == (
        "tuner best: no trial has a finite value of each of min loss, min cost yet\n"
    )


@pytest.mark.parametrize("metric", ["loss", ["loss", "cost"]])
def test_no_feasible_trial(call, limited, metric):
    experiment = limited("none", metric, limit="<= 1")
    assert call("best", experiment, code=1).stderr == (
        "tuner best: no trial is feasible: 3 of 3 miss size_mb <= 1; the closest is t00002: "
        "size_mb 2 misses <= 1 by 1; tuner show lists them all\n"
    )
    (listed,) = json.loads(call("ls", experiment, "-f", "json").stdout)
    assert (listed["best_trial"], listed["remark"]) == (None, "no feasible trial")


@pytest.mark.parametrize("metric", ["loss", ["loss", "cost"]])
def test_checkpoints_of_the_best_feasible_trial_are_kept(call, limited, metric):
    experiment = limited("kept", metric)
    call("prune", experiment, "--keep-best", "1", "--yes")
    kept = [path.parent.name for path in sorted(experiment.glob("t*/checkpoint_*"))]
    assert kept == ["t00001"]


def test_something_is_kept_if_no_trial_is_feasible(call, limited):
    experiment = limited("none", limit="<= 1")
    call("prune", experiment, "--keep-best", "1", "--yes")
    assert [path.parent.name for path in experiment.glob("t*/checkpoint_*")] == ["t00000"]


def test_a_replay_finds_the_best_feasible_trial(call, limited):
    answer = tune.what_if(limited("replayed"), "fifo")
    assert (answer.chosen.trial_id, answer.best_recorded.trial_id) == ("t00001", "t00001")
    assert (answer.chosen_rank, answer.regret) == (1, 0)
    assert [outcome.is_feasible for outcome in answer.trials] == [False, True, True]
    assert answer.in_full.best_at_any_iteration == answer.replayed.best_value == 0.25


def test_a_replay_finds_nothing_where_no_trial_is_feasible(limited):
    answer = tune.what_if(limited("none", limit="<= 1"), "fifo")
    assert answer.chosen is None
    assert "Nothing is found: no trial is feasible\n" in str(answer)
