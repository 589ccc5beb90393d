"""Jumps of the system clock by hours and days are recorded and affect no decision."""

import itertools
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

import tuner as tune
from tuner.execution.result_fields import AutoFill
from tuner.journal import snapshot_files

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def jumping_clock(monkeypatch):
    """Let the wall clock of this process jump at every reading."""
    real, jumps = time.time, itertools.cycle([0.0, HOUR, -HOUR, DAY, -DAY])

    def jumping():
        return real() + next(jumps)

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setitem(AutoFill.__init__.__kwdefaults__, "wall_clock", jumping)
    return jumping


def train(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = int(Path(checkpoint.path, "step").read_text())
    for step in range(start + 1, config["steps"] + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(directory))
        if step == config.get("fails_after") and not start:
            raise RuntimeError("once")


def settings(tmp_path, space, **options):
    run_config = tune.RunConfig(
        name="exp",
        storage_path=tmp_path,
        verbose=0,
        executor="inline",
        failure_config=tune.FailureConfig(**options.pop("failure", {})),
    )
    return {
        "param_space": space,
        "run_config": run_config,
        "tune_config": tune.TuneConfig(max_concurrent_trials=2, **options),
    }


def journal(directory):
    for path in sorted((directory / "journal").glob("*.log")):
        for line in path.read_bytes().splitlines():
            yield json.loads(line.split(b" ", 1)[1])


def test_order_durations_and_time_budget_do_not_follow_the_clock(tmp_path, jumping_clock):
    space = {"steps": 5, "fails_after": 2, "n": tune.grid_search([1, 2, 3])}
    given = settings(tmp_path, space, failure={"max_failures": 1}, time_budget_s=600)
    grid = tune.Tuner(train, **given).fit()
    assert (grid.num_terminated, len(grid)) == (3, 3)
    for result in grid:
        frame = result.metrics_dataframe
        assert frame["step"].tolist() == [1, 2, 3, 4, 5]
        assert not frame["timestamp"].is_monotonic_increasing  # the clock did jump
        for name in ("time_this_iter_s", "time_total_s", "time_since_restore"):
            assert frame[name].between(0, 60).all()
        assert frame["time_total_s"].is_monotonic_increasing
        rows = [
            json.loads(line) for line in Path(result.path, "result.json").read_text().splitlines()
        ]
        assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    records = [record for record in journal(tmp_path / "exp") if "t" in record]
    assert [record["q"] for record in records] == sorted(record["q"] for record in records)
    assert all(0 <= one["t"] <= other["t"] < 60 for one, other in pairwise(records))


def test_a_time_budget_runs_out_although_the_clock_goes_back(tmp_path, jumping_clock):
    grid = tune.Tuner(train, **settings(tmp_path, {"steps": 10**9}, time_budget_s=0.3)).fit()
    assert (grid.num_terminated, grid[0].ending) == (1, "interrupted")


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY])
def test_between_sessions_the_clock_may_be_set(tmp_path, monkeypatch, jump):
    space = {"steps": 4, "n": tune.grid_search([1, 2])}
    tune.Tuner(train, **settings(tmp_path, {**space, "fails_after": 2})).fit()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    monkeypatch.setitem(AutoFill.__init__.__kwdefaults__, "wall_clock", time.time)
    grid = tune.Tuner.restore(
        tmp_path / "exp", train, resume_errored=True, **settings(tmp_path, space)
    ).fit()
    for result in grid:
        assert result.metrics_dataframe["step"].tolist() == [1, 2, 3, 4]
        assert result.metrics_dataframe["time_total_s"].is_monotonic_increasing
        assert tune.Result.from_path(result.path).metrics["step"] == 4
    stamps = [record["t"] for record in journal(tmp_path / "exp") if "t" in record]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("age", [-DAY, DAY])
def test_a_checkpoint_changed_between_sessions_is_detected_regardless_of_its_date(tmp_path, age):
    tune.Tuner(train, **settings(tmp_path, {"steps": 4, "fails_after": 3})).fit()
    checkpoint = tmp_path / "exp" / "t00000" / "checkpoint_000002"
    (checkpoint / "step").write_text("9")
    for path in (checkpoint / ".manifest.json", checkpoint / "step", checkpoint):
        os.utime(path, (time.time() + age, time.time() + age))
    grid = tune.Tuner.restore(
        tmp_path / "exp", train, resume_errored=True, **settings(tmp_path, {"steps": 4})
    ).fit()
    assert grid[0].metrics_dataframe["step"].tolist() == [1, 2, 3, 4]


def test_the_newest_snapshot_is_the_one_with_the_highest_number(tmp_path):
    for last, hour in enumerate([5, 3, 8, 1]):
        path = snapshot_files.write(tmp_path, {"last": last}, last)
        os.utime(path, (hour * HOUR, hour * HOUR))
    assert snapshot_files.load_newest(tmp_path).state == {"last": 3}
