import json
import math
from datetime import datetime, timedelta

import pytest

from tuner.analysis.result import Result
from tuner.errors import StorageError, TrialFailed
from tuner.storage import checkpoint_directories
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.manifest import Provenance

FIRST_AT = datetime(2026, 3, 1, 12, 0, 0)  # noqa: DTZ001  (local time, as the files have it)


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "t00007"
    path.mkdir()
    return path


def write_results(directory, rows, end="\n"):
    lines = [json.dumps({"trial_id": "t00007", **row}) for row in rows]
    (directory / "result.json").write_text("\n".join(lines) + end)


def write_error(directory, *events):
    """Write errors, or None for a new attempt, each dated an hour before the previous one."""
    texts, num_failures = [], 0
    for number, event in enumerate(events, start=1):
        dated = f"(attempt {number}, {FIRST_AT - number * timedelta(hours=1):%Y-%m-%d %H:%M:%S})"
        num_failures += event is not None
        texts.append(
            f"Started again {dated}\n\n"
            if event is None
            else f"Failure #{num_failures} {dated}\n{event}\n\n"
        )
    (directory / "error.txt").write_text("".join(texts))


def test_results_and_configuration_come_from_the_json_files(directory):
    (directory / "params.json").write_text('{"model": {"depth": 3}}')
    write_results(
        directory,
        [
            {"loss": 2.0, "training_iteration": 1, "config": {}},
            {"loss": 1.0, "training_iteration": 2, "config": {}},
        ],
    )
    result = Result.from_path(directory)
    assert result.trial_id == "t00007"
    assert result.path == str(directory)
    assert result.config == {"model": {"depth": 3}}
    assert result.metrics == {
        "trial_id": "t00007",
        "loss": 1.0,
        "training_iteration": 2,
        "config": {"model": {"depth": 3}},
    }
    assert result.metrics_dataframe["loss"].tolist() == [2.0, 1.0]
    assert result.metrics_dataframe["config/model/depth"].tolist() == [3, 3]
    assert (result.error, result.status, result.ending) == (None, None, None)


def test_the_configuration_of_the_last_result_replaces_a_missing_file(directory):
    write_results(directory, [{"config": {"lr": 0.1}}, {"config": {"lr": 0.2}}])
    assert Result.from_path(directory).config == {"lr": 0.2}


def test_floats_that_are_not_finite_come_back_as_floats_by_name_or_literal(directory):
    (directory / "result.json").write_text(
        '{"a": "NaN", "b": {"c": "Infinity"}, "d": ["-Infinity"], "e": NaN, "f": "nan"}\n'
    )
    metrics = Result.from_path(directory).metrics
    assert math.isnan(metrics["a"])
    assert math.isnan(metrics["e"])
    assert (metrics["b"], metrics["d"], metrics["f"]) == ({"c": math.inf}, [-math.inf], "nan")


def test_a_torn_last_line_is_left_out(directory):
    write_results(directory, [{"loss": 1.0}], end='\n{"loss": 0.')
    assert Result.from_path(directory).metrics["loss"] == 1.0


@pytest.mark.parametrize("damage", ["{oops", "[1]", "\x00\x00"])
def test_a_damaged_line_is_left_out_and_said_aloud(directory, damage):
    (directory / "result.json").write_text(f'{{"loss": 1.0}}\n{damage}\n{{"loss": 2.0}}\n')
    with pytest.warns(RuntimeWarning, match="line 2 of .*result.json is damaged"):
        result = Result.from_path(directory)
    assert result.metrics_dataframe["loss"].tolist() == [1.0, 2.0]


def test_rows_that_were_reported_again_count_once(directory):
    write_results(
        directory,
        [
            {"training_iteration": iteration, "n": n}
            for n, iteration in enumerate([1, 2, 3, 2, 3, 4])
        ],
    )
    assert Result.from_path(directory).metrics_dataframe["n"].tolist() == [0, 3, 4, 5]


def test_the_csv_file_is_read_if_there_is_no_json(directory):
    (directory / "params.json").write_text('{"lr": 0.1}')
    lines = [
        "loss,done,training_iteration,trial_id,date,val/acc,note",
        "0.5,False,1,t00007,2026-03-01_12-00-00,,",
        "nan,True,2,t00007,x,1,1_0",
    ]
    (directory / "progress.csv").write_bytes("\r\n".join([*lines, "0.1,True"]).encode())
    result = Result.from_path(directory)
    assert math.isnan(result.metrics.pop("loss"))
    assert result.metrics == {
        "done": True,
        "training_iteration": 2,
        "trial_id": "t00007",
        "date": "x",
        "val": {"acc": 1},
        "note": "1_0",
        "config": {"lr": 0.1},
    }
    assert result.metrics_dataframe["val/acc"].isna().tolist() == [True, False]


@pytest.mark.parametrize("with_key", [True, False])
def test_checkpoints_are_found_by_their_manifests_whether_or_not_results_name_them(
    directory, make, with_key
):
    trial = make.trial("t00007")
    for index in range(2):
        make.save(directory.parent, trial, index, {"loss": float(index)})
    (directory / "checkpoint_000009").mkdir()
    (directory / ".tmp-000002-1-abc").mkdir()
    write_results(
        directory,
        [{"loss": 0.0, **({"checkpoint_dir_name": "checkpoint_000001"} if with_key else {})}],
    )
    result = Result.from_path(directory)
    assert [checkpoint.path for checkpoint, _ in result.best_checkpoints] == [
        str(directory / f"checkpoint_00000{n}") for n in (0, 1)
    ]
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [0.0, 1.0]
    assert result.checkpoint == result.best_checkpoint == result.best_checkpoints[-1][0]
    assert result.get_best_checkpoint("loss", "min") == result.best_checkpoints[0][0]


def test_a_moved_directory_is_read_where_it_is(directory, make, tmp_path):
    make.save(directory.parent, make.trial("t00007"), 0, {"loss": 1.0})
    write_results(directory, [{"loss": 1.0}])
    moved = directory.rename(tmp_path / "elsewhere")
    result = Result.from_path(moved)
    assert result.trial_id == "t00007"
    assert result.checkpoint.path == str(moved / "checkpoint_000000")


def test_the_last_failure_is_the_error_of_a_trial_that_did_not_continue_at_any_clock(
    directory,
):
    write_results(
        directory, [{"loss": 1.0, "date": f"{FIRST_AT + timedelta(days=1):%Y-%m-%d_%H-%M-%S}"}]
    )
    write_error(directory, "OSError: gone", None, "ValueError: boom\nTraceback:\n\n  line 3")
    result = Result.from_path(directory)
    assert isinstance(result.error, TrialFailed)
    assert str(result.error) == "trial t00007 failed: ValueError: boom"
    assert result.error.__notes__ == ["Traceback:\n\n  line 3"]
    assert result.status == "ERROR"


def test_a_failure_after_which_the_trial_was_started_again_is_no_error(directory):
    write_results(
        directory, [{"loss": 1.0, "date": f"{FIRST_AT - timedelta(days=1):%Y-%m-%d_%H-%M-%S}"}]
    )
    write_error(directory, "OSError: gone", None, "ValueError: boom", None)
    result = Result.from_path(directory)
    assert (result.error, result.status) == (None, None)


def test_a_trial_that_failed_before_its_first_result_can_be_read(directory):
    write_error(directory, "ImportError: no module")
    result = Result.from_path(directory)
    assert str(result.error) == "trial t00007 failed: ImportError: no module"
    assert result.metrics_dataframe.empty


def test_an_error_file_of_another_form_is_shown_whole(directory):
    (directory / "error.txt").write_text("it broke")
    assert str(Result.from_path(directory).error) == "trial t00007 failed: it broke"


def test_a_directory_without_a_trial_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="path must be the directory of a trial"):
        Result.from_path(tmp_path)
    with pytest.raises(FileNotFoundError, match="path must be the directory of a trial"):
        Result.from_path(tmp_path / "missing")


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_configuration_is_refused(directory, text):
    (directory / "params.json").write_text(text)
    with pytest.raises(StorageError, match=r"params\.json"):
        Result.from_path(directory)


def write_validations(directory, *validations):
    lines = [
        json.dumps({"error": "", "metrics": {}, "time": 1.0, **validation})
        for validation in validations
    ]
    (directory / "validations.json").write_text("\n".join(lines) + "\n")


def commit(directory, index, name, metrics):
    staging = checkpoint_directories.stage(directory, index, attempt=1)
    provenance = Provenance(directory.name, 1, index, index + 1, metrics)
    path = checkpoint_directories.commit(staging, directory, provenance, sync=False)
    if name != path.name:
        path.rename(directory / name)
    return Checkpoint(directory / name)


def test_metrics_of_validations_are_added_to_the_results_of_their_checkpoints(directory):
    names = ["checkpoint_000000", "best", "gone"]
    rows = [
        {"loss": 1.0, "training_iteration": number, "checkpoint_dir_name": name}
        for number, name in enumerate(names, start=1)
    ]
    write_results(directory, rows)
    write_validations(
        directory,
        {"checkpoint": "best", "training_iteration": 1, "status": "VALIDATED"},
        {
            "checkpoint": "best",
            "training_iteration": 2,
            "status": "VALIDATED",
            "metrics": {"acc": 0.5, "deep": {"f1": "NaN"}},
        },
        {
            "checkpoint": "gone",
            "training_iteration": 3,
            "status": "VALIDATION_FAILED",
            "error": "ValueError: no",
        },
    )
    first = commit(directory, 0, "checkpoint_000000", rows[0])
    best = commit(directory, 1, "best", rows[1])
    result = Result.from_path(directory)
    frame = result.metrics_dataframe
    assert frame["acc"].isna().tolist() == [True, False, True]
    assert result.kept_checkpoints == [first, best]
    assert result.metrics_of(best)["acc"] == 0.5
    assert math.isnan(result.metrics_of(best)["deep"]["f1"])
    assert result.get_best_checkpoint("acc", "max") == best
    assert result.get_best_checkpoint("loss", "min") == best  # the later one
    assert result.checkpoint_statuses == {
        first: "COMMITTED",
        best: "VALIDATED",
        Checkpoint(directory / "gone"): "VALIDATION_FAILED",
    }
    assert result.validations["gone"].error == "ValueError: no"


@pytest.mark.parametrize("name", ["../t00008/best", "/etc", "", 3, None, "x" * 300, "a\0b"])
def test_a_result_does_not_name_a_checkpoint_outside_of_its_directory(directory, name):
    other = directory.parent / "t00008"
    other.mkdir()
    commit(other, 0, "best", {})
    write_results(directory, [{"loss": 1.0, "training_iteration": 1, "checkpoint_dir_name": name}])
    assert Result.from_path(directory).kept_checkpoints == []


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"[]\n{}\n", b"{" * 10_000])
def test_validations_that_cannot_be_understood_are_left_out(directory, content, recwarn):
    write_results(directory, [{"loss": 1.0, "training_iteration": 1}])
    (directory / "validations.json").write_bytes(content)
    assert Result.from_path(directory).validations == {}


def test_a_link_in_the_place_of_the_validations_is_not_followed(directory):
    write_results(directory, [{"loss": 1.0}])
    (directory / "validations.json").symlink_to("/dev/zero")
    with pytest.raises(StorageError, match="link"):
        Result.from_path(directory)
