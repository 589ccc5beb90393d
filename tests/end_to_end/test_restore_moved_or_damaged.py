"""Restoring experiments whose directory was moved or damaged; damage is never skipped silently."""

import json
import tempfile
from pathlib import Path

import pytest

import tuner as tune
from tuner import Checkpoint, FailureConfig, RunConfig, Tuner
from tuner.errors import StorageError


@pytest.fixture
def restore():
    """Return a function that continues the experiment in a directory."""

    def run(path, trainable, space, *, resume_errored=False, **run):
        run_config = RunConfig(verbose=0, executor="inline", **run)
        return Tuner.restore(
            path, trainable, resume_errored=resume_errored, param_space=space, run_config=run_config
        ).fit()

    return run


def fragile(config):
    """Train four epochs; fail after the second while the flag file exists."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "epoch.json").read_text()) + 1
    for epoch in range(start, 4):
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "epoch.json").write_text(str(epoch))
            tune.report(
                {"epoch": epoch, "started_at": start},
                checkpoint=Checkpoint.from_directory(temporary),
            )
        if epoch == 1 and Path(config["flag"]).exists():
            raise RuntimeError("the flag stands")


def always_fails(config):
    raise RuntimeError("always")


@pytest.fixture
def flag(tmp_path):
    path = tmp_path / "flag"
    path.touch()
    return path


def test_failed_trials_go_on_from_their_checkpoint_in_a_directory_that_has_moved(
    fit, restore, rows_of, flag, tmp_path
):
    space = {"x": tune.grid_search([1, 2]), "flag": str(flag)}
    before = fit(fragile, space)
    assert before.num_errors == 2
    flag.unlink()
    moved = tmp_path / "moved" / "elsewhere"
    moved.parent.mkdir()
    Path(before.experiment_path).rename(moved)

    after = restore(moved, fragile, space, resume_errored=True)
    assert [result.trial_id for result in after] == [result.trial_id for result in before]
    assert (after.num_errors, after.num_terminated) == (0, 2)
    for result in after:
        assert Path(result.path).parent == moved
        assert [(row["epoch"], row["started_at"]) for row in rows_of(result.path)] == [
            (0, 0),
            (1, 0),
            (2, 2),
            (3, 2),
        ]
        assert [row["training_iteration"] for row in rows_of(result.path)] == [1, 2, 3, 4]
        assert len(result.metrics_dataframe) == 4


def test_the_idiom_of_restoring_if_there_is_something_to_restore(tmp_path):
    def train(config):
        tune.report({"x": 1})

    def run():
        run_config = RunConfig(name="idiom", storage_path=tmp_path, verbose=0, executor="inline")
        if Tuner.can_restore(tmp_path / "idiom"):
            return Tuner.restore(tmp_path / "idiom", train, run_config=run_config).fit()
        return Tuner(train, run_config=run_config).fit()

    assert (
        [result.trial_id for result in run()] == [result.trial_id for result in run()] == ["t00000"]
    )


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_it(
    fit, restore, rows_of, flag, damage
):
    before = fit(fragile, {"flag": str(flag)})
    flag.unlink()
    newest = Path(before[0].checkpoint.path, "epoch.json")
    if damage == "truncated":
        newest.write_text("")
    else:
        newest.unlink()
    after = restore(before.experiment_path, fragile, {"flag": str(flag)}, resume_errored=True)
    assert after.num_errors == 0
    rows = rows_of(after[0].path)
    assert [(row["epoch"], row["started_at"]) for row in rows] == [(0, 0), (1, 1), (2, 1), (3, 1)]
    assert [row["training_iteration"] for row in rows] == [1, 2, 3, 4]


def test_the_failures_of_the_first_session_do_not_use_up_the_retries_of_the_next(fit, restore):
    before = fit(always_fails, failure={"max_failures": 1})
    retries = FailureConfig(max_failures=2)
    after = restore(
        before.experiment_path, always_fails, None, resume_errored=True, failure_config=retries
    )
    log = Path(after[0].path, "error.txt").read_text()
    assert [line.split(",")[0] for line in log.splitlines() if line.startswith("Failure #")] == [
        f"Failure #{number} (attempt {number}" for number in range(1, 6)
    ]


# What cannot be restored.


@pytest.fixture
def finished(fit):
    def train(config):
        tune.report({"x": config["x"]})

    results = fit(train, {"x": tune.grid_search([1, 2])})
    return train, Path(results.experiment_path)


def test_an_unreadable_declaration_is_never_a_fresh_start(finished):
    train, directory = finished
    (directory / "experiment.json").write_text('{"format_version": 1, "na')
    assert not Tuner.can_restore(directory)
    with pytest.raises(StorageError, match=r"experiment.json cannot be read"):
        Tuner.restore(directory, train, param_space={"x": tune.grid_search([1, 2])})


def test_a_damaged_journal_is_an_error_and_never_a_fresh_start(finished, restore):
    train, directory = finished
    (segment,) = (directory / "journal").iterdir()
    text = bytearray(segment.read_bytes())
    text[len(text) // 2] ^= 1
    segment.write_bytes(bytes(text))
    with pytest.raises(StorageError):
        restore(directory, train, {"x": tune.grid_search([1, 2])})
