"""Results of experiments whose checkpoints were validated, read from the journal."""

import json
import re
import shutil

import pandas as pd
import pytest

import tuner as tune
from tests.analysis.validated import FAILED, rewrite, validate
from tuner.analysis.result import CheckpointValidation
from tuner.core.events import CheckpointCommitted
from tuner.core.worker_records import CheckpointRecord
from tuner.journal import records
from tuner.journal.reader import read

pytestmark = pytest.mark.process


@pytest.fixture
def executor():
    return "inline"


def train(config):
    for step in range(1, 5):
        with tune.checkpoint_dir() as directory:
            tune.report(
                {"loss": config["x"] / step}, checkpoint=tune.Checkpoint.from_directory(directory)
            )


@pytest.fixture
def path(fit, tmp_path):
    """Return an experiment of two trials with four checkpoints each, none of them validated."""
    space = {"x": tune.grid_search([1.0, 2.0])}
    grid = fit(train, space, tune={"metric": "loss", "mode": "min"})
    assert all(set(result.checkpoint_statuses.values()) == {"COMMITTED"} for result in grid)
    return tmp_path / "experiment"


def validated(path):
    validate(
        path,
        {
            "t00000": {0: {"acc": 0.5}, 1: {"acc": 0.75}, 2: FAILED, 3: {"acc": 0.25, "loss": 9.0}},
            "t00001": {1: {"val": {"acc": 0.5}}, 3: None},
        },
    )
    return tune.ResultGrid.from_directory(path)


def test_the_metrics_of_a_validation_are_those_of_its_checkpoint(path):
    result = validated(path)[0]
    first, second, third, fourth = result.kept_checkpoints
    assert result.checkpoint_statuses == {
        first: "VALIDATED",
        second: "VALIDATED",
        third: "VALIDATION_FAILED",
        fourth: "VALIDATED",
    }
    assert result.validations["checkpoint_000002"] == CheckpointValidation(
        "VALIDATION_FAILED", {}, "ValueError: no data"
    )
    assert [metrics.get("acc") for _, metrics in result.best_checkpoints] == [0.5, 0.75, None, 0.25]
    assert result.get_best_checkpoint("acc", "max") == second
    assert (result.metrics["acc"], result.metrics["loss"]) == (0.25, 9.0)
    assert result.best_metrics["training_iteration"] == 3  # the value of the last was corrected
    assert result.best_checkpoint == third
    frame = result.metrics_dataframe
    assert frame["acc"].fillna(-1).tolist() == [0.5, 0.75, -1, 0.25]
    assert frame["loss"].tolist() == [1.0, 0.5, 1 / 3, 9.0]


def test_a_validation_that_has_not_ended_is_pending(path):
    result = validated(path)[1]
    assert list(result.checkpoint_statuses.values()) == [
        "COMMITTED",
        "VALIDATED",
        "COMMITTED",
        "PENDING_VALIDATION",
    ]
    assert result.metrics_of(result.kept_checkpoints[1])["val"] == {"acc": 0.5}
    assert "val" not in result.metrics


def test_trials_are_ranked_by_validated_metrics(path):
    grid = validated(path)
    assert grid.get_best_result("acc", "max", scope="all").trial_id == "t00000"
    assert grid.ranked("acc", "max", scope="all")[0][1] == 0.75
    assert grid.ranked("acc", "max", scope="avg")[0][1] == 0.5
    assert grid.get_best_result("val/acc", "max").trial_id == "t00001"
    assert [value for _, value in grid.ranked("loss", "max", scope="all")] == [9.0, 2.0]
    assert [value for _, value in grid.ranked("loss", "min", scope="all")] == [1 / 3, 0.5]
    assert grid.get_dataframe()["acc"].fillna(-1).tolist() == [0.25, -1]


def test_tables_hold_validated_metrics(path):
    frame = validated(path).get_metrics_dataframe()
    assert frame["acc"].notna().sum() == 3
    assert frame["val/acc"].tolist()[5] == 0.5


def test_a_copy_on_another_machine_has_the_same_results(path, tmp_path):
    expected = validated(path)
    frames = [result.metrics_dataframe for result in expected]
    shutil.move(path, tmp_path / "elsewhere")
    found = tune.ResultGrid.from_directory(tmp_path / "elsewhere")
    for one, other, frame in zip(found, expected, frames, strict=True):
        assert list(one.checkpoint_statuses.values()) == list(other.checkpoint_statuses.values())
        assert one.get_best_checkpoint("loss", "min").path.startswith(str(tmp_path / "elsewhere"))
        pd.testing.assert_frame_equal(one.metrics_dataframe, frame)


def test_the_explanation_names_each_validation(path, capsys):
    validated(path).explain("t00000")
    told = capsys.readouterr().out
    assert "checkpoint 1 of iteration 2 is validated: acc=0.75" in told
    assert "the validation of checkpoint 2 of iteration 3 ends, failed, try 1: ValueError" in told


def test_a_restore_writes_the_log_files_anew(path):
    validated(path)
    tune.Tuner.restore(path, train, verbose=0).fit()
    lines = (path / "t00000" / "validations.json").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["checkpoint"], one["status"], one["metrics"]) for one in found] == [
        ("checkpoint_000000", "VALIDATED", {"acc": 0.5}),
        ("checkpoint_000001", "VALIDATED", {"acc": 0.75}),
        ("checkpoint_000002", "VALIDATION_FAILED", {}),
        ("checkpoint_000003", "VALIDATED", {"acc": 0.25, "loss": 9.0}),
    ]
    rows = [json.loads(line) for line in (path / "t00000" / "result.json").read_text().splitlines()]
    assert [row.get("acc") for row in rows] == [0.5, 0.75, None, 0.25]
    assert pd.read_csv(path / "t00000" / "progress.csv")["loss"].tolist()[-1] == 9.0
    alone = tune.Result.from_path(path / "t00000")
    assert list(alone.checkpoint_statuses.values()).count("VALIDATED") == 3


def uploaded(path, *, is_stored):
    """Let the checkpoints of the first trial be stored after their reports, or never."""
    bodies = []
    for body in read(path):
        if body["k"] == records.RESULT and body["id"] == "t00000":
            index = body["c"]["index"]
            bodies.append({**body, "c": None, "upload": index})
            if is_stored:
                record = CheckpointRecord(index, index + 1, body["m"]["time_total_s"])
                event = CheckpointCommitted("t00000", body["a"], record)
                bodies.append(records.encode(event, body["t"]))
        else:
            bodies.append(body)
    rewrite(path, bodies)
    return tune.ResultGrid.from_directory(path)


def test_checkpoints_that_are_stored_after_their_reports_are_those_of_their_results(path):
    expected = tune.ResultGrid.from_directory(path)[0]
    found = uploaded(path, is_stored=True)[0]
    assert found.kept_checkpoints == expected.kept_checkpoints
    assert found.best_checkpoint == expected.best_checkpoint
    pd.testing.assert_frame_equal(found.metrics_dataframe, expected.metrics_dataframe)


def test_a_checkpoint_that_was_never_stored_is_none_of_the_trials(path):
    result = uploaded(path, is_stored=False)[0]
    assert (result.kept_checkpoints, result.checkpoint) == ([], None)
    assert result.best_checkpoint is None
    assert "checkpoint_dir_name" not in result.rows.of("t00000")[0]


def placeholder(path):
    """Let the last checkpoint of the first trial be one that need not exist."""
    bodies = []
    for body in read(path):
        if body["k"] == records.RESULT and body["id"] == "t00000" and body["c"]["index"] == 3:
            metrics = {**body["m"], "checkpoint_dir_name": "mine/last"}
            record = {**body["c"], "name": "mine/last", "is_placeholder": True}
            bodies.append({**body, "m": metrics, "c": record})
        else:
            bodies.append(body)
    rewrite(path, bodies)
    shutil.rmtree(path / "t00000" / "checkpoint_000003")
    return tune.ResultGrid.from_directory(path)[0]


def test_a_checkpoint_that_need_not_exist_has_its_metrics(path):
    result = placeholder(path)
    assert result.checkpoint == tune.Checkpoint(path / "t00000" / "mine" / "last")
    assert result.metrics_of(result.checkpoint)["loss"] == 0.25
    assert result.best_checkpoint == result.checkpoint
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [1.0, 0.5, 1 / 3, 0.25]
    assert result.checkpoint_statuses[result.checkpoint] == "COMMITTED"


def test_the_page_counts_validations_by_outcome(path, tmp_path):
    pytest.importorskip("plotly")
    page = validated(path).report(tmp_path / "report.html").read_text()
    section = page.partition('<section id="validations"')[2].partition("</section>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", section)
    assert cells[:6] == ["t00000", "3", "1", "0", "0", "ValueError: no data"]
    assert cells[6:11] == ["t00001", "1", "0", "0", "1"]
    plain = tune.ResultGrid.from_directory(path)[:0].report(tmp_path / "plain.html").read_text()
    assert 'id="validations"' not in plain
