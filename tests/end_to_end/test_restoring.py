"""An experiment goes on where it ended, also elsewhere and with more to do, and never starts from nothing in silence."""

import json
import tempfile
from pathlib import Path

import pytest

import tuner as tune
from tuner import Checkpoint, FailureConfig, RunConfig, Trainable, TuneConfig, Tuner
from tuner.errors import StorageError


@pytest.fixture
def restore(tmp_path):
    """Return a function that continues the experiment in a directory."""

    def run(path, trainable, space=None, *, tune=None, resume_errored=False, resume_unfinished=True, **run):
        run_config = RunConfig(verbose=0, **run)
        options = {"param_space": space, "tune_config": TuneConfig(**(tune or {})), "run_config": run_config}
        return Tuner.restore(path, trainable, resume_unfinished, resume_errored, **options).fit()

    return run


def fragile(config):
    """Train four epochs; fail after the second for as long as the flag stands."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "epoch.json").read_text()) + 1
    for epoch in range(start, 4):
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "epoch.json").write_text(str(epoch))
            tune.report({"epoch": epoch, "started_at": start}, checkpoint=Checkpoint.from_directory(temporary))
        if epoch == 1 and Path(config["flag"]).exists():
            raise RuntimeError("the flag stands")


@pytest.fixture
def flag(tmp_path):
    path = tmp_path / "flag"
    path.touch()
    return path


def test_failed_trials_go_on_from_their_checkpoint_in_a_directory_that_has_moved(fit, restore, rows_of, flag, tmp_path):
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
        assert [(row["epoch"], row["started_at"]) for row in rows_of(result.path)] == [(0, 0), (1, 0), (2, 2), (3, 2)]
        assert [row["training_iteration"] for row in rows_of(result.path)] == [1, 2, 3, 4]
        assert len(result.metrics_dataframe) == 4


def test_failed_trials_stay_failed_unless_they_are_to_be_tried_again(fit, restore, flag):
    before = fit(fragile, {"flag": str(flag)})
    flag.unlink()
    after = restore(before.experiment_path, fragile, {"flag": str(flag)})
    assert after.num_errors == 1
    assert after[0].metrics["epoch"] == 1


def test_finished_trials_are_not_trained_again_and_more_samples_are_added(fit, restore, tmp_path):
    log = tmp_path / "trained"

    def train(config):
        with log.open("a") as file:
            file.write("x")
        tune.report({"y": config["x"]})

    space = {"x": tune.uniform(0, 1)}
    before = fit(train, space, tune={"num_samples": 3, "seed": 1})
    after = restore(before.experiment_path, train, space, tune={"num_samples": 5})
    assert log.read_text() == "x" * 5
    assert [result.config for result in after][:3] == [result.config for result in before]
    assert len({result.config["x"] for result in after}) == 5


def test_the_idiom_of_restoring_if_there_is_something_to_restore(tmp_path):
    def train(config):
        tune.report({"x": 1})

    def run():
        if Tuner.can_restore(tmp_path / "idiom"):
            return Tuner.restore(tmp_path / "idiom", train, run_config=RunConfig(verbose=0)).fit()
        return Tuner(train, run_config=RunConfig(name="idiom", storage_path=tmp_path, verbose=0)).fit()

    assert [result.trial_id for result in run()] == [result.trial_id for result in run()] == ["t00000"]


def test_a_class_goes_on_from_its_last_checkpoint(fit, restore, rows_of):
    class Counter(Trainable):
        def setup(self, config):
            self.count = 0

        def step(self):
            self.count += 1
            return {"count": self.count}

        def save_checkpoint(self, checkpoint_dir):
            return {"count": self.count}

        def load_checkpoint(self, checkpoint):
            self.count = checkpoint["count"]

    before = fit(Counter, tune={"time_budget_s": 0.3})
    reached = before[0].metrics["count"]
    assert before[0].ending == "stopped early"
    after = restore(before.experiment_path, Counter, stop={"training_iteration": reached + 2}, resume_unfinished=True)
    assert after[0].metrics["count"] == reached


@pytest.mark.xfail(strict=True, reason="a trial goes on from its latest checkpoint without a look at whether it is intact")
@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_it(fit, restore, rows_of, flag, damage):
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


# What cannot be restored.


@pytest.fixture
def finished(fit):
    def train(config):
        tune.report({"x": config["x"]})

    results = fit(train, {"x": tune.grid_search([1, 2])})
    return train, Path(results.experiment_path)


def test_where_there_is_no_experiment(tmp_path):
    assert not Tuner.can_restore(tmp_path)
    with pytest.raises(StorageError, match="holds no experiment; give the directory that fit"):
        Tuner.restore(tmp_path, fragile)


def test_an_unreadable_declaration_is_never_a_fresh_start(finished):
    train, directory = finished
    (directory / "experiment.json").write_text('{"format_version": 1, "na')
    assert not Tuner.can_restore(directory)
    with pytest.raises(StorageError, match=r"experiment.json cannot be read"):
        Tuner.restore(directory, train, param_space={"x": tune.grid_search([1, 2])})


def test_another_trainable_or_space_is_refused_with_each_difference(finished):
    _, directory = finished
    with pytest.raises(ValueError, match=r"holds another experiment: trainable was 'train' and is 'fragile'; space was .* and is "):
        Tuner.restore(directory, fragile, param_space={"x": tune.grid_search([1, 2, 3])})


def test_a_damaged_journal_is_told_and_never_a_fresh_start(finished, restore):
    train, directory = finished
    (segment,) = (directory / "journal").iterdir()
    text = bytearray(segment.read_bytes())
    text[len(text) // 2] ^= 1
    segment.write_bytes(bytes(text))
    with pytest.raises(StorageError):
        restore(directory, train, {"x": tune.grid_search([1, 2])})


def test_the_failures_of_the_first_session_do_not_use_up_the_retries_of_the_next(fit, restore, flag):
    before = fit(fragile, {"flag": str(flag)}, failure={"max_failures": 1})
    assert before.num_errors == 1 or before.num_terminated == 1
    flag.unlink()
    after = restore(before.experiment_path, fragile, {"flag": str(flag)}, resume_errored=True, failure_config=FailureConfig(max_failures=1))
    assert after.num_errors == 0
