"""The rules about checkpoints that the guides state, one test each, on whole experiments."""

import json
import pickle
import tempfile
from pathlib import Path

import pytest

import tuner as tune
from schedulers.decisions import Pause, Reason, Resume
from schedulers.scheduler import Scheduler
from tuner import Checkpoint, CheckpointConfig, RunConfig, Trainable, Tuner

# Lists of scores are constants here, which is what a warning asks about.
CONSTANTS = pytest.mark.filterwarnings("ignore:param_space has nothing to search:RuntimeWarning")
pytestmark = [pytest.mark.process, CONSTANTS]


class Counter(Trainable):
    """Counts its steps, and has what it counted in its checkpoints."""

    def setup(self, config):
        self.count = 0

    def step(self):
        self.count += 1
        return {
            "count": self.count,
            "should_checkpoint": self.count in self.config.get("ask_at", ()),
        }

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "count.txt").write_text(str(self.count))

    def load_checkpoint(self, checkpoint):
        self.count = int(Path(checkpoint, "count.txt").read_text())


def train_with_scores(config):
    """Report each score with a checkpoint that holds its position; None reports without a score."""
    for position, score in enumerate(config["scores"]):
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "position.txt").write_text(str(position))
            tune.report(
                {} if score is None else {"score": score},
                checkpoint=Checkpoint.from_directory(temporary),
            )


def position(checkpoint):
    return int(Path(checkpoint.path, "position.txt").read_text())


def positions(checkpoints):
    return [position(checkpoint) for checkpoint, _ in checkpoints]


# Saving.


def test_a_checkpoint_is_only_reported_together_with_metrics(fit):
    def train(config):
        tune.report(checkpoint=Checkpoint.from_directory("."))

    (result,) = fit(train)
    assert "TypeError" in str(result.error)


def test_the_directory_is_copied_byte_for_byte_and_belongs_to_the_user_afterwards(fit, tmp_path):
    mine = tmp_path / "mine"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "weights.bin").write_bytes(bytes(range(256)) * 1000)

    def train(config):
        tune.report({"kept": True}, checkpoint=Checkpoint.from_directory(mine))
        (mine / "deep" / "weights.bin").write_bytes(b"changed afterwards")

    (result,) = fit(train)
    assert (
        Path(result.checkpoint.path, "deep", "weights.bin").read_bytes() == bytes(range(256)) * 1000
    )
    assert (mine / "deep" / "weights.bin").read_bytes() == b"changed afterwards"


def test_a_checkpoint_carries_the_metrics_of_its_report(fit):
    (result,) = fit(train_with_scores, {"scores": [3, 1, 2]})
    assert [metrics["score"] for _, metrics in result.best_checkpoints] == [3, 1, 2]
    assert [metrics["training_iteration"] for _, metrics in result.best_checkpoints] == [1, 2, 3]


def test_a_borrowed_directory_becomes_the_checkpoint(fit, checkpoints_in):
    def train(config):
        with tune.checkpoint_dir() as directory:
            Path(directory, "state.txt").write_text("here")
            tune.report({}, checkpoint=Checkpoint.from_directory(directory))

    (result,) = fit(train)
    assert checkpoints_in(result.path) == ["checkpoint_000000"]
    assert Path(result.checkpoint.path, "state.txt").read_text() == "here"
    assert [path.name for path in Path(result.path).iterdir() if path.name.startswith(".")] == []


def test_several_reasons_for_a_checkpoint_at_one_iteration_make_one(fit):
    (result,) = fit(
        Counter,
        {"ask_at": [2, 4]},
        checkpoint={"checkpoint_frequency": 2},
        stop={"training_iteration": 4},
    )
    assert [metrics["count"] for _, metrics in result.best_checkpoints] == [2, 4]


def test_a_checkpoint_at_the_end_belongs_to_the_last_result(fit):
    (result,) = fit(Counter, stop={"training_iteration": 7})
    (only,) = result.best_checkpoints
    assert only[1]["training_iteration"] == 7
    assert Path(only[0].path, "count.txt").read_text() == "7"


# Which settings apply to what.


@pytest.mark.parametrize(
    ("field", "value", "for_functions"),
    [
        ("num_to_keep", 2, True),
        ("checkpoint_score_attribute", "score", True),
        ("checkpoint_score_order", "min", True),
        ("upload", "async", True),
        ("checkpoint_frequency", 2, False),
        ("checkpoint_at_end", True, False),
    ],
)
def test_which_settings_apply_to_functions_and_all_apply_to_classes(
    field, value, for_functions, tmp_path
):
    run_config = RunConfig(
        storage_path=tmp_path, checkpoint_config=CheckpointConfig(**{field: value})
    )
    Tuner(Counter, run_config=run_config)
    if for_functions:
        Tuner(train_with_scores, run_config=run_config)
    else:
        with pytest.raises(
            ValueError,
            match=f"{field}={value!r} does not apply to a function trainable; report a checkpoint",
        ):
            Tuner(train_with_scores, run_config=run_config)


# Retention.


def test_all_checkpoints_are_kept_by_default(fit, checkpoints_in):
    (result,) = fit(train_with_scores, {"scores": list(range(5))})
    assert len(checkpoints_in(result.path)) == len(result.best_checkpoints) == 5


def test_num_to_keep_keeps_the_most_recent(fit, checkpoints_in):
    (result,) = fit(train_with_scores, {"scores": [3, 1, 2, 0]}, checkpoint={"num_to_keep": 2})
    assert checkpoints_in(result.path) == ["checkpoint_000002", "checkpoint_000003"]
    assert positions(result.best_checkpoints) == [2, 3]


@pytest.mark.parametrize(
    ("scores", "rule", "best", "on_disk"),
    [
        pytest.param([3, 1, 2], ("max", 1), [0], [0, 2], id="the latest is kept beside the best"),
        pytest.param([1, 2, 3], ("max", 1), [2], [2], id="the latest is the best"),
        pytest.param([3, 1, 2, 0.5], ("min", 2), [1, 3], [1, 3], id="min reverses the order"),
        pytest.param([2, 2, 2], ("max", 1), [2], [2], id="of equals the newer is better"),
        pytest.param(
            [1, None, 2, None], ("max", 3), [3, 0, 2], [0, 2, 3], id="no metric ranks lowest"
        ),
        pytest.param(
            [float("nan"), float("-inf"), 0, 1],
            ("max", 3),
            [1, 2, 3],
            [1, 2, 3],
            id="NaN ranks below minus infinity",
        ),
    ],
)
def test_the_best_are_kept_and_always_the_latest(fit, checkpoints_in, scores, rule, best, on_disk):  # noqa: PLR0917  (a table)
    checkpoint = {
        "checkpoint_score_attribute": "score",
        "checkpoint_score_order": rule[0],
        "num_to_keep": rule[1],
    }
    (result,) = fit(train_with_scores, {"scores": scores}, checkpoint=checkpoint)
    assert positions(result.best_checkpoints) == best
    assert checkpoints_in(result.path) == [f"checkpoint_{index:06d}" for index in on_disk]
    assert position(result.checkpoint) == len(scores) - 1


def test_a_checkpoint_without_the_metric_it_is_ranked_by_logs_one_warning(fit, caplog):
    config = {"num_to_keep": 1, "checkpoint_score_attribute": "accuracy"}
    fit(train_with_scores, {"scores": [1, 2]}, checkpoint=config)
    logged = [record.getMessage() for record in caplog.records if "accuracy" in record.getMessage()]
    assert len(logged) == 1
    assert "score" in logged[0]


# Loading.


def test_a_checkpoint_of_one_experiment_can_start_another_and_is_left_alone(fit):
    (first,) = fit(train_with_scores, {"scores": [1]}, name="first")
    before = {path.name: path.read_bytes() for path in Path(first.checkpoint.path).iterdir()}

    def train(config, origin):
        assert tune.get_checkpoint() is None
        with origin.as_directory() as directory:
            tune.report({"read": Path(directory, "position.txt").read_text()})

    (second,) = fit(tune.with_parameters(train, origin=first.checkpoint), name="second")
    assert second.metrics["read"] == "0"
    assert {
        path.name: path.read_bytes() for path in Path(first.checkpoint.path).iterdir()
    } == before


def test_a_checkpoint_is_a_light_name_of_a_directory(fit):
    (result,) = fit(train_with_scores, {"scores": [1]})
    assert len(pickle.dumps(result.checkpoint)) < 1000
    assert Checkpoint(result.checkpoint.path) == result.checkpoint
    copied = pickle.loads(pickle.dumps(result.checkpoint))  # noqa: S301  (our own bytes)
    assert copied == result.checkpoint
    with result.checkpoint.as_directory() as directory:
        assert directory == result.checkpoint.path
    assert Path(directory).is_dir()


def test_metadata_stays_with_the_checkpoint(fit):
    def train(config):
        with tempfile.TemporaryDirectory() as temporary:
            checkpoint = Checkpoint.from_directory(temporary)
            checkpoint.set_metadata({"epoch": 3})
            tune.report({"loss": 0.5}, checkpoint=checkpoint)

    (result,) = fit(train)
    result.checkpoint.update_metadata({"note": "good"})
    assert result.checkpoint.get_metadata() == {"epoch": 3, "note": "good"}


def test_the_checkpoint_of_a_running_trial_is_its_latest(fit):
    def train(config):
        seen = []
        for _ in range(3):
            latest = tune.get_checkpoint()
            seen.append(latest and Path(latest.path).name)
            with tempfile.TemporaryDirectory() as temporary:
                tune.report({"seen": seen}, checkpoint=Checkpoint.from_directory(temporary))

    (result,) = fit(train)
    assert result.metrics["seen"] == [None, "checkpoint_000000", "checkpoint_000001"]


class PauseOnce(Scheduler):
    """Pauses each trial at its second result and resumes it when there is room."""

    def on_trial_result(self, trial, result):
        return [Pause(trial.trial_id, Reason("test"))] if result["training_iteration"] == 2 else []

    def on_trial_complete(self, trial, result):
        return []

    def on_idle(self, trials, num_free_slots):
        return [Resume(trial.trial_id, Reason("test")) for trial in trials[:num_free_slots]]


def test_a_paused_trial_goes_on_from_its_checkpoint_in_another_process(fit, rows_of):
    def train(config):
        start = 0
        if checkpoint := tune.get_checkpoint():
            start = json.loads(Path(checkpoint.path, "epoch.json").read_text()) + 1
        for epoch in range(start, 4):
            with tempfile.TemporaryDirectory() as temporary:
                Path(temporary, "epoch.json").write_text(str(epoch))
                tune.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(temporary))

    results = fit(
        train,
        {"x": tune.grid_search([1, 2, 3])},
        tune={"scheduler": PauseOnce()},
        executor="process",
    )
    for result in results:
        rows = rows_of(result.path)
        assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
        assert len({row["pid"] for row in rows}) == 2


def test_a_class_is_paused_and_resumed_without_a_word_about_checkpoints(fit):
    (result,) = fit(Counter, stop={"training_iteration": 4}, tune={"scheduler": PauseOnce()})
    assert result.metrics["count"] == 4
    assert result.metrics["iterations_since_restore"] == 2
