import copy
import pickle
import shutil

import pytest

from tuner.analysis.result import Result
from tuner.analysis.result_grid import ResultGrid
from tuner.core.checkpoints import RetentionPolicy
from tuner.core.trial import Status, TerminationReason
from tuner.errors import CheckpointError, TrialFailed
from tuner.journal.rows import MemoryRows


@pytest.fixture
def result_of(tmp_path):
    """Return the result of one trial."""

    def build(trial, rows=(), metric=None, mode=None, retention=None):
        return ResultGrid(
            [trial],
            str(tmp_path),
            MemoryRows({trial.trial_id: rows}),
            metric,
            mode,
            retention=retention,
        )[0]

    return build


def indices(checkpoints):
    return [int(checkpoint.path[-6:]) for checkpoint in checkpoints]


def test_metrics_are_the_last_result_nested_with_configuration_and_tag(make, result_of):
    result = result_of(
        make.trial("t1", [{"loss": 2.0}, {"loss": 1.0, "val": {"acc": 0.5}}], config={"lr": 0.1})
    )
    assert result.metrics == {
        "loss": 1.0,
        "val": {"acc": 0.5},
        "training_iteration": 2,
        "trial_id": "t1",
        "done": True,
        "config": {"lr": 0.1},
        "experiment_tag": "tag-t1",
    }
    assert result.config == {"lr": 0.1}


def test_a_trial_that_never_reported_still_says_who_it_is(make, result_of):
    result = result_of(make.failed("t1", config={"lr": 0.1}))
    assert result.metrics == {
        "trial_id": "t1",
        "config": {"lr": 0.1},
        "done": True,
        "experiment_tag": "tag-t1",
    }
    assert result.metrics_dataframe.empty


@pytest.mark.parametrize(
    ("status", "ending", "is_done"),
    [
        (Status.TERMINATED, TerminationReason.COMPLETED, True),
        (Status.TERMINATED, TerminationReason.STOPPED_EARLY, True),
        (Status.TERMINATED, TerminationReason.INTERRUPTED, False),
        (Status.ERROR, TerminationReason.FAILED, True),
        (Status.PAUSED, None, False),
    ],
)
def test_done_is_whether_the_trial_is_over(make, result_of, status, ending, is_done):
    trial = make.trial("t1", [{"loss": 1.0}], status=status, ending=ending)
    result = result_of(trial, make.rows("t1", [{"loss": 1.0}]))
    assert (result.status, result.ending) == (status, ending)
    assert result.metrics["done"] is is_done
    assert result.metrics_dataframe["done"].tolist() == [is_done]


def test_the_error_of_a_failed_trial_names_trial_cause_and_carries_the_traceback(make, result_of):
    error = result_of(make.failed("t1")).error
    assert isinstance(error, TrialFailed)
    assert str(error) == "trial t1 failed: ValueError: boom"
    assert error.__notes__ == ["Traceback: here"]


def test_a_trial_that_recovered_has_no_error(make, result_of):
    assert result_of(make.trial("t1", failures=[("ValueError", "boom")])).error is None


def test_the_data_frame_of_a_trial_has_every_result_flattened_with_its_configuration(
    make, result_of
):
    reported = [{"loss": 2.0}, {"loss": 1.0, "val": {"acc": 0.5}}]
    frame = result_of(
        make.trial("t1", reported, config={"model": {"depth": 3}}), make.rows("t1", reported)
    ).metrics_dataframe
    assert list(frame.columns) == [
        "trial_id",
        "loss",
        "val/acc",
        "training_iteration",
        "config/model/depth",
        "done",
        "num_exploits",
    ]
    assert frame["training_iteration"].tolist() == [1, 2]
    assert frame["val/acc"].isna().tolist() == [True, False]
    assert frame["done"].tolist() == [False, True]
    assert frame["config/model/depth"].tolist() == [3, 3]


def test_without_a_score_the_latest_checkpoint_ranks_last(make, result_of, tmp_path):
    trial = make.trial("t1", [{"loss": 1.0}])
    for index in range(3):
        make.save(tmp_path, trial, index, {"loss": float(index)})
    result = result_of(trial)
    assert indices(checkpoint for checkpoint, _ in result.best_checkpoints) == [0, 1, 2]
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [0.0, 1.0, 2.0]
    assert result.checkpoint == result.best_checkpoint == result.best_checkpoints[-1][0]


@pytest.mark.parametrize(("order", "expected"), [("max", [2, 0, 1]), ("min", [1, 0, 2])])
def test_checkpoints_are_in_ascending_order_of_score_the_best_one_last(
    make, result_of, tmp_path, order, expected
):
    trial = make.trial("t1")
    for index, score in enumerate([0.5, 0.9, 0.1]):
        make.save(tmp_path, trial, index, {"acc": score}, score=score)
    result = result_of(trial, retention=RetentionPolicy(None, "acc", order))
    assert indices(checkpoint for checkpoint, _ in result.best_checkpoints) == expected
    assert indices([result.best_checkpoint]) == expected[-1:]
    assert indices([result.checkpoint]) == [2]


def test_the_latest_checkpoint_is_not_among_the_best_unless_it_is_good(make, result_of, tmp_path):
    trial = make.trial("t1")
    for index, score in enumerate([0.9, 0.1]):
        make.save(tmp_path, trial, index, {"acc": score}, score=score)
    result = result_of(trial, retention=RetentionPolicy(1, "acc", "max"))
    assert indices(checkpoint for checkpoint, _ in result.best_checkpoints) == [0]
    assert indices([result.checkpoint]) == [1]


def test_the_best_checkpoint_follows_the_metric_of_the_experiment_where_there_are_no_scores(
    make, result_of, tmp_path
):
    trial = make.trial("t1")
    for index, loss in enumerate([0.3, 0.1, 0.2]):
        make.save(tmp_path, trial, index, {"val": {"loss": loss}})
    result = result_of(trial, metric="val/loss", mode="min")
    assert indices([result.best_checkpoint]) == [1]
    assert indices([result.checkpoint]) == [2]


def test_the_best_checkpoint_of_the_best_result_follows_the_metric_it_was_chosen_by(make, tmp_path):
    trial = make.trial("t1", [{"loss": 0.3, "acc": 0.1}])
    for index, (loss, acc) in enumerate([(0.3, 0.1), (0.1, 0.2), (0.2, 0.9)]):
        make.save(tmp_path, trial, index, {"loss": loss, "acc": acc}, score=loss)
    grid = ResultGrid(
        [trial],
        str(tmp_path),
        MemoryRows({}),
        "loss",
        "min",
        retention=RetentionPolicy(None, "loss", "min"),
    )
    assert indices([grid[0].best_checkpoint]) == [1]
    assert indices([grid.get_best_result().best_checkpoint]) == [1]
    assert indices([grid.get_best_result("acc", "max").best_checkpoint]) == [2]


def test_the_best_checkpoint_by_any_metric_is_the_latest_of_equal_ones_and_never_nan(
    make, result_of, tmp_path
):
    trial = make.trial("t1")
    for index, loss in enumerate([0.1, 0.1, float("nan"), 0.4]):
        make.save(tmp_path, trial, index, {"loss": loss})
    result = result_of(trial)
    assert indices([result.get_best_checkpoint("loss", "min")]) == [1]
    assert indices([result.get_best_checkpoint("loss", "max")]) == [3]


def test_checkpoints_without_the_metric_are_passed_over(make, result_of, tmp_path):
    trial = make.trial("t1")
    make.save(tmp_path, trial, 0, {"loss": 0.5})
    make.save(tmp_path, trial, 1, {"other": 0.5})
    assert indices([result_of(trial).get_best_checkpoint("loss", "min")]) == [0]


def test_a_metric_that_no_checkpoint_has_is_refused_with_a_suggestion(make, result_of, tmp_path):
    trial = make.trial("t1")
    make.save(tmp_path, trial, 0, {"val": {"loss": 0.5}})
    result = result_of(trial, metric="acc", mode="max")
    with pytest.raises(
        ValueError,
        match="trial t1 with a checkpoint reported as a number, got 'loss'; "
        "did you mean 'val/loss'",
    ):
        result.get_best_checkpoint("loss", "min")
    with pytest.raises(ValueError, match="got 'mim'"):
        result.get_best_checkpoint("val/loss", "mim")
    assert result.best_checkpoint is None


def test_a_trial_without_checkpoints_has_none(make, result_of):
    result = result_of(make.trial("t1"))
    assert result.checkpoint is None
    assert result.best_checkpoint is None
    assert result.best_checkpoints == []
    assert result.get_best_checkpoint("loss", "min") is None


def test_metrics_of_a_checkpoint_hold_the_configuration(make, result_of, tmp_path):
    trial = make.trial("t1", config={"lr": 0.1})
    make.save(tmp_path, trial, 0, {"loss": 0.5})
    assert result_of(trial).best_checkpoints[0][1] == {"loss": 0.5, "config": {"lr": 0.1}}


def test_a_checkpoint_that_somebody_deleted_is_missed_aloud(make, result_of, tmp_path):
    trial = make.trial("t1")
    make.save(tmp_path, trial, 0, {"loss": 0.5})
    shutil.rmtree(tmp_path / "t1" / "checkpoint_000000")
    with pytest.raises(CheckpointError, match="checkpoint_000000"):
        _ = result_of(trial).best_checkpoints


def test_results_survive_pickling(make, result_of):
    result = result_of(make.failed("t1", [{"loss": 1.0}]), make.rows("t1", [{"loss": 1.0}]))
    twin = pickle.loads(pickle.dumps(result))  # noqa: S301  (our own)
    assert twin == result
    assert copy.copy(result) == result
    assert str(twin.error) == str(result.error)
    assert len(twin.metrics_dataframe) == 1


def test_the_text_shows_the_own_metrics_and_the_error(make, result_of):
    text = repr(result_of(make.failed("t1", [{"loss": 0.25}], config={"lr": 0.1})))
    assert "metrics={'loss': 0.25}" in text
    assert "status='ERROR'" in text
    assert "boom" in text
    assert "checkpoint=" not in text


def test_a_result_made_of_nothing_is_printable():
    assert "status=None" in repr(Result(trial_id="t1", path="/x", config={}, metrics={}))
