"""Restores of experiments with failed, finished and timed-out trials."""

import pickle
from pathlib import Path

import pytest

import tuner as tune
from tuner import ResumeConfig, Tuner


@pytest.fixture
def path(tmp_path):
    return tmp_path / "experiment"


def losses(grid):
    return [result.metrics["loss"] for result in grid]


def flaky(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = int(Path(checkpoint.path, "step").read_text())
    for step in range(start, 4):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step + 1))
            tune.report(
                {"loss": float(step), "start": start},
                checkpoint=tune.Checkpoint.from_directory(directory),
            )
        if step == 1 and Path(config["flag"]).exists():
            raise RuntimeError("the flag stands")


@pytest.fixture
def failed(fit, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    assert fit(flaky, {"flag": str(flag)}, executor="inline").num_errors == 1
    flag.unlink()
    return flag


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.mark.filterwarnings("ignore:snapshot:RuntimeWarning")
def test_nothing_in_the_directory_is_unpickled_or_imported(failed, path, tmp_path, monkeypatch):
    trace = tmp_path / "trace"
    bomb = pickle.dumps(Bomb(trace))
    derived = [
        file
        for file in path.rglob("*")
        if file.is_file() and file.parent.name != "journal" and file.name != "experiment.json"
    ]
    planted = [
        path / "tuner.pkl",
        path / "searcher-state.pkl",
        path / "objects" / "a.npy",
        path / "snapshot" / "00000000000000000001.json",
    ]
    sources = [
        path / "__init__.py",
        path / "tuner.py",
        path / "conftest.py",
        path / "sitecustomize.py",
        path / "t00000" / "settings.py",
    ]
    for file in [*derived, *planted, *sources]:
        if "checkpoint_" not in file.parent.name:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(
                bomb
                if file not in sources
                else f"import pathlib; pathlib.Path({str(trace)!r}).touch()".encode()
            )
    pickle.loads(bomb)  # noqa: S301  (that the bomb works)
    trace.unlink()
    monkeypatch.chdir(path)
    assert Tuner.can_restore(".")
    assert Tuner.restore(".", flaky).get_results().num_errors == 1
    grid = Tuner.restore(".", flaky, resume_errored=True).fit()
    assert (grid.num_errors, len(grid.get_dataframe())) == (0, 1)
    assert not trace.exists()


RESTARTS = [
    {"restart_errored": True},
    {"resume_config": ResumeConfig(errored="restart")},
    {"_resume_config": ResumeConfig(errored="restart")},
]


@pytest.mark.parametrize("how", RESTARTS, ids=lambda how: next(iter(how)))
def test_a_failed_trial_that_begins_anew_leaves_nothing_of_its_past_in_the_table(
    failed, path, rows_of, how
):
    grid = Tuner.restore(path, flaky, **how).fit()
    assert (grid.num_errors, grid[0].trial_id) == (0, "t00000")
    table = grid[0].metrics_dataframe
    assert [*zip(table["training_iteration"], table["start"], strict=True)] == [
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
    ]
    assert [row["start"] for row in rows_of(grid[0].path)] == [0, 0, 0, 0]
    kept = sorted(item.name for item in (path / "t00000").glob("checkpoint_*"))
    assert kept == [f"checkpoint_{index:06d}" for index in range(2, 6)]
    again = Tuner.restore(path, flaky).get_results()[0].metrics_dataframe
    assert again.equals(table)


def test_a_failed_trial_that_fails_anew_before_its_first_report_has_no_rows(failed, path):
    def fails_at_once(config):
        raise RuntimeError("at once")

    fails_at_once.__name__ = "flaky"
    for grid in (
        Tuner.restore(path, fails_at_once, restart_errored=True).fit(),
        Tuner.restore(path, flaky).get_results(),
    ):
        assert grid.num_errors == 1
        assert grid[0].metrics_dataframe is None or grid[0].metrics_dataframe.empty
    assert not Path(grid[0].path, "result.json").exists()


def test_resuming_comes_before_restarting(failed, path):
    grid = Tuner.restore(path, flaky, resume_errored=True, restart_errored=True).fit()
    assert [*grid[0].metrics_dataframe["start"]] == [0, 0, 2, 2]


def test_a_resume_config_stands_alone(failed, path):
    with pytest.raises(ValueError, match="must not both be given"):
        Tuner.restore(path, flaky, resume_errored=True, resume_config=ResumeConfig())
    with pytest.raises(
        ValueError, match="errored must be 'skip', 'resume' or 'restart', got 'retry'"
    ):
        ResumeConfig(errored="retry")


def test_finished_trials_begin_anew_where_that_is_asked_for(fit, path):
    fit(lambda config: [tune.report({"loss": 1.0}) for _ in range(3)] and None, executor="inline")
    grid = Tuner.restore(
        path, lambda config: {"loss": -1.0}, resume_config=ResumeConfig(finished="restart")
    ).fit()
    assert losses(grid) == [-1.0]
    assert len(grid[0].metrics_dataframe) == 1


def endless(config):
    step = int(Path(tune.get_checkpoint().path, "step").read_text()) if tune.get_checkpoint() else 0
    while True:
        step += 1
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report({"loss": 1.0 / step}, checkpoint=tune.Checkpoint.from_directory(directory))


@pytest.mark.usefixtures("short_time")
def test_trials_whose_time_was_over_go_on_when_they_are_given_more(fit, path):
    first = fit(endless, tune={"time_budget_s": 0.2}, executor="inline")
    assert first[0].metrics["training_iteration"] >= 1
    same = Tuner.restore(path, endless).fit()
    assert same[0].metrics["training_iteration"] == first[0].metrics["training_iteration"]
    more = Tuner.restore(path, endless, time_budget_s=0.5).fit()
    assert more[0].trial_id == first[0].trial_id
    table = more[0].metrics_dataframe
    assert [*table["training_iteration"]] == [*range(1, len(table) + 1)]
    assert len(table) > first[0].metrics["training_iteration"]


@pytest.mark.usefixtures("short_time")
def test_the_end_of_the_time_budget_is_logged(tmp_path, capsys):
    space = {"steps": 10**9}
    tune_config = tune.TuneConfig(time_budget_s=0.3)
    run_config = tune.RunConfig(name="short", storage_path=tmp_path, executor="inline", verbose=1)
    Tuner(endless, param_space=space, tune_config=tune_config, run_config=run_config).fit()
    assert (
        "the time budget of 0.3 s is used up; to go on, restore with a larger time_budget_s"
        in capsys.readouterr().out
    )
