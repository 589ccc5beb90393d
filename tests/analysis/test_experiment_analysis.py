import math
import pickle

import pytest

import tuner as tune
from tuner.analysis.experiment_analysis import ExperimentAnalysis
from tuner.analysis.result_grid import ResultGrid
from tuner.journal.rows import MemoryRows


@pytest.fixture
def trials(make, tmp_path):
    trials = [
        make.trial(
            "t1", [{"loss": 1.0, "acc": 0.9}, {"loss": 3.0, "acc": 0.8}], config={"lr": 0.1}
        ),
        make.trial("t2", [{"loss": 2.0, "acc": 0.1}], config={"lr": 0.2}),
    ]
    make.save(tmp_path, trials[0], 0, {"loss": 1.0, "acc": 0.9})
    make.save(tmp_path, trials[0], 1, {"loss": 3.0, "acc": 0.8})
    return trials


@pytest.fixture
def analysis(make, trials, tmp_path):
    rows = {
        "t1": make.rows("t1", [{"loss": 1.0, "acc": 0.9}, {"loss": 3.0, "acc": 0.8}]),
        "t2": make.rows("t2", [{"loss": 2.0, "acc": 0.1}]),
    }
    return ExperimentAnalysis(ResultGrid(trials, str(tmp_path), MemoryRows(rows), "loss", "min"))


def test_the_best_trial_is_that_of_the_grid(analysis, trials):
    assert analysis.trials == trials
    assert analysis.best_trial is trials[1]
    assert analysis.get_best_trial(scope="all") is trials[0]
    assert analysis.get_best_trial("acc", "max") is trials[0]
    assert analysis.best_config == {"lr": 0.2}
    assert analysis.get_best_config("acc", "max") == {"lr": 0.1}
    assert analysis.best_result["loss"] == 2.0


def test_checkpoints_are_the_best_or_the_latest_of_a_trial(analysis, trials):
    assert analysis.best_checkpoint is None
    assert analysis.get_best_checkpoint(trials[0]).path.endswith("checkpoint_000000")
    assert analysis.get_best_checkpoint(trials[0], "acc", "min").path.endswith("checkpoint_000001")
    assert analysis.get_last_checkpoint(trials[0]).path.endswith("checkpoint_000001")
    assert analysis.get_last_checkpoint() is None


def test_tables_and_mappings_cover_every_trial(analysis, tmp_path):
    assert analysis.experiment_path == str(tmp_path)
    assert analysis.results_df.loc["t1", "loss"] == 3.0
    assert analysis.dataframe("loss", "min")["loss"].tolist() == [1.0, 2.0]
    assert {trial_id: metrics["loss"] for trial_id, metrics in analysis.results.items()} == {
        "t1": 3.0,
        "t2": 2.0,
    }
    assert (
        analysis.dataframe("loss")["loss"].tolist()
        == analysis.dataframe()["loss"].tolist()
        == [3.0, 2.0]
    )
    with pytest.raises(ValueError, match="mode='min' needs a metric"):
        analysis.dataframe(mode="min")
    assert {trial_id: len(frame) for trial_id, frame in analysis.trial_dataframes.items()} == {
        "t1": 2,
        "t2": 1,
    }
    assert analysis.get_all_configs() == {"t1": {"lr": 0.1}, "t2": {"lr": 0.2}}
    assert analysis.get_all_configs(prefix=True) == {
        "t1": {"config/lr": 0.1},
        "t2": {"config/lr": 0.2},
    }
    assert len(analysis.best_dataframe) == 1


def test_the_path_of_a_trial_is_a_key_like_its_id(analysis, tmp_path):
    path = str(tmp_path / "t1")
    for by_trial, known in ((analysis.trial_dataframes, 2), (analysis.get_all_configs(), 1)):
        for found in (by_trial, pickle.loads(pickle.dumps(by_trial))):  # noqa: S301  (made here)
            assert path in found
            assert len(found[path]) == len(found.get(path)) == len(found["t1"]) == known
            assert "t3" not in found
            assert found.get("t3", 7) == 7
            with pytest.raises(KeyError, match="t3"):
                found["t3"]


def test_where_no_trial_can_be_compared_none_is_best(make, tmp_path):
    trials = [
        make.trial("t1", [{"loss": math.nan}], config={"lr": 1}),
        make.failed("t2", config={"lr": 2}),
    ]
    analysis = ExperimentAnalysis(ResultGrid(trials, str(tmp_path), MemoryRows({}), "loss", "min"))
    with pytest.warns(
        RuntimeWarning,
        match=r"none has a finite value of 'loss' \(scope 'last'\); "
        r"metrics that were reported: loss",
    ):
        assert (analysis.best_trial, analysis.best_config, analysis.get_last_checkpoint()) == (
            None,
        ) * 3
    with pytest.warns(RuntimeWarning, match="none has a finite value of 'acc'"):
        assert analysis.get_best_trial("acc", "max") is None
    assert analysis.get_best_trial(filter_nan_and_inf=False) is trials[0]
    with pytest.raises(RuntimeError, match="no trial has a finite value"):
        _ = analysis.best_result
    with pytest.raises(ValueError, match="metric must be given"):
        ExperimentAnalysis(ResultGrid(trials, str(tmp_path), MemoryRows({}))).get_best_trial()
    alone = ExperimentAnalysis(ResultGrid(trials[1:], str(tmp_path), MemoryRows({})))
    assert (alone.get_best_trial(), alone.get_best_config()) == (trials[1], {"lr": 2})


@pytest.mark.process
def test_a_directory_is_read_and_grids_and_analyses_can_be_pickled(tmp_path):
    grid = tune.Tuner(
        lambda config: tune.report({"loss": config["x"], "size": -config["x"]}),
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, executor="inline"),
    ).fit()
    analysis = ExperimentAnalysis(grid.experiment_path)
    assert analysis.best_config == {"x": 1}
    assert ExperimentAnalysis(
        tmp_path / "e", default_metric="size", default_mode="min"
    ).best_config == {"x": 2}
    assert pickle.loads(pickle.dumps(analysis)).best_dataframe["loss"].tolist() == [1]  # noqa: S301  (made here)
    assert [result.metrics["loss"] for result in pickle.loads(pickle.dumps(grid))] == [1, 2]  # noqa: S301  (made here)
    with pytest.raises(ValueError, match="must be left out for a ResultGrid"):
        ExperimentAnalysis(grid, default_metric="size")
