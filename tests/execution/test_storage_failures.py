"""Training code that meets a full or failing disk, between its reports and in them."""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.execution.conversation import PAUSE_AND_SAVE, converse
from tuner.core.failure_causes import storage_fault
from tuner.core.worker_records import STORAGE_FAILED, STORAGE_FULL
from tuner.errors import CheckpointError
from tuner.execution import attempt, storage_failures
from tuner.execution.class_trainable import Trainable
from tuner.execution.report_options import CheckpointUploadMode, ReportOptions
from tuner.execution.session import checkpoint_dir, report
from tuner.execution.worker_protocol import to_event
from tuner.storage.checkpoints import Checkpoint

FULL = [errno.ENOSPC, errno.EDQUOT]
FAILING = [errno.EIO, errno.EROFS, errno.ESTALE]
TORCH = "[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"


def refuse(code, *names):
    raise OSError(code, os.strerror(code), *names)


def fault(script):
    """Return the fault as the driver sees it."""
    failure = to_event("t00000", 1, script.exit).failure
    assert (failure is None) == (script.outcome == "completed")
    return storage_fault(failure) if failure else ""


@pytest.fixture
def full(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda directory: SimpleNamespace(free=0))


@pytest.mark.parametrize("code", FULL + FAILING)
def test_a_write_that_fails_where_a_checkpoint_is_written_is_the_disks_fault(tmp_path, code):
    def train(config):
        with checkpoint_dir():
            refuse(code)

    script = converse(train, tmp_path)
    assert (script.outcome, script.exit["failure"]["kind"]) == ("failed", "OSError")
    assert fault(script) == (STORAGE_FULL if code in FULL else STORAGE_FAILED)
    assert list(tmp_path.iterdir()) == []


def test_any_error_there_is_the_disks_fault_while_it_has_no_room_and_says_so(tmp_path, full):
    def train(config):
        with checkpoint_dir():
            raise RuntimeError("basic_ios::clear: iostream error")

    script = converse(train, tmp_path)
    assert fault(script) == STORAGE_FULL
    message = script.exit["failure"]["message"]
    assert message == f"basic_ios::clear: iostream error; the disk of {tmp_path} is full"


def test_on_a_disk_with_room_only_the_words_of_a_writer_tell(tmp_path):
    def train(config):
        with checkpoint_dir():
            raise RuntimeError(config["text"])

    texts = [
        TORCH,
        "I/O error: No space left on device (os error 28)",
        "500 requested and 0 written",
    ]
    for text in texts:
        assert fault(converse(train, tmp_path, config={"text": text})) == STORAGE_FULL
    assert fault(converse(train, tmp_path, config={"text": "Parent directory is missing"})) == ""


@pytest.mark.parametrize(
    "error", [KeyError("x"), PermissionError(errno.EACCES, "no"), SystemExit(1)]
)
def test_other_errors_there_are_the_codes_own(tmp_path, error):
    def train(config):
        with checkpoint_dir():
            raise error

    assert fault(converse(train, tmp_path)) == ""


def test_code_that_catches_the_error_is_not_excused_for_a_later_one(tmp_path):
    def train(config):
        try:
            with checkpoint_dir():
                refuse(errno.ENOSPC)
        except OSError:
            report({})
        raise KeyError("later")

    script = converse(train, tmp_path)
    assert (len(script.results), fault(script)) == (1, "")


def test_code_that_translates_the_error_is_excused(tmp_path):
    def train(config):
        try:
            with checkpoint_dir():
                refuse(errno.EDQUOT)
        except OSError as error:
            raise ValueError("cannot save") from error

    assert fault(converse(train, tmp_path)) == STORAGE_FULL


@pytest.mark.parametrize(("code", "expected"), [(28, STORAGE_FULL), (30, STORAGE_FAILED), (2, "")])
def test_an_error_that_names_a_file_of_the_experiment_is_the_disks_fault(tmp_path, code, expected):
    trial_dir = tmp_path / "exp" / "t00000"
    trial_dir.mkdir(parents=True)
    for name in (trial_dir / "mine" / "weights", tmp_path / "exp" / "shared"):
        script = converse(lambda config, name=name: refuse(code, str(name)), trial_dir)
        assert fault(script) == expected
    script = converse(lambda config: refuse(code, "/elsewhere/other"), trial_dir)
    assert fault(script) == (STORAGE_FAILED if code == errno.ENOSPC else "")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        RuntimeError(TORCH),
        sqlite3.OperationalError("database or disk is full"),
    ],
)
def test_a_temporary_directory_below_the_trials_is_deleted_before_the_disk_is_looked_at(
    tmp_path, error
):
    def train(config):
        with tempfile.TemporaryDirectory(dir=tmp_path):
            raise error

    assert fault(converse(train, tmp_path)) == STORAGE_FAILED


def test_where_no_directory_can_be_made_training_goes_on_without_the_checkpoint(
    tmp_path, monkeypatch, caplog
):
    def no_room(*arguments):
        raise CheckpointError("no checkpoint can be written") from OSError(errno.ENOSPC, "full")

    def train(config):
        with checkpoint_dir() as directory:
            places.append(directory)
            Path(directory, "weights").write_text("x")
            report({}, Checkpoint.from_directory(directory))
        monkeypatch.undo()
        with checkpoint_dir() as directory:
            places.append(directory)
            report({}, Checkpoint.from_directory(directory))

    places = []
    monkeypatch.setattr(attempt, "stage", no_room)
    monkeypatch.setattr("tuner.storage.checkpoint_directories.stage", no_room)
    script = converse(train, tmp_path)
    assert script.outcome == "completed"
    checkpoints = [message["checkpoint"] for message in script.said if message["kind"] == "result"]
    assert [record and record["index"] for record in checkpoints] == [None, 0]
    assert [Path(place).parent == tmp_path for place in places] == [False, True]
    assert not Path(places[0]).exists()
    assert "no checkpoint can be written" in caplog.text
    assert "continues without a checkpoint" in caplog.text


def test_what_was_written_elsewhere_is_stored_if_there_is_room_by_then(tmp_path, monkeypatch):
    def train(config):
        with checkpoint_dir() as directory:
            monkeypatch.undo()
            Path(directory, "weights").write_text("x")
            report({}, Checkpoint.from_directory(directory))

    monkeypatch.setattr(attempt, "stage", lambda *_: refuse_as_checkpoint(errno.EROFS))
    converse(train, tmp_path)
    assert (tmp_path / "checkpoint_000000" / "weights").read_text() == "x"


def refuse_as_checkpoint(code):
    raise CheckpointError("no checkpoint can be written") from OSError(code, "injected")


@pytest.mark.parametrize(("code", "expected"), [(28, STORAGE_FULL), (13, "")])
def test_where_none_can_be_made_anywhere_the_disk_is_at_fault(
    tmp_path, monkeypatch, code, expected
):
    def nowhere(**options):
        raise FileNotFoundError(errno.ENOENT, "no usable temporary directory found")

    def no_room(*arguments):
        path = str(tmp_path / "staging")
        raise CheckpointError("cannot be written") from OSError(code, "injected", path)

    def train(config):
        with checkpoint_dir():
            raise AssertionError("entered")

    monkeypatch.setattr(attempt, "stage", no_room)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", nowhere)
    script = converse(train, tmp_path)
    assert script.exit["failure"]["kind"] == "CheckpointError"
    assert fault(script) == expected


class Unsaved(Trainable):
    def step(self):
        return {}

    def save_checkpoint(self, checkpoint_dir):
        refuse(errno.ENOSPC)


def test_a_class_that_cannot_be_paused_since_the_disk_is_full_is_excused(tmp_path):
    script = converse(Unsaved, tmp_path, PAUSE_AND_SAVE)
    assert (script.outcome, fault(script)) == ("unsaved", STORAGE_FULL)


@pytest.mark.process
def test_a_checkpoint_that_a_thread_cannot_store_for_want_of_space_excuses_the_attempt(
    tmp_path, monkeypatch
):
    def train(config):
        (tmp_path / "source").mkdir()
        options = ReportOptions(upload_mode=CheckpointUploadMode.ASYNC)
        attempt.current_attempt().report({}, Checkpoint(tmp_path / "source"), options)

    monkeypatch.setattr(
        "tuner.execution.checkpoint_uploads.commit", lambda *_, **__: refuse(errno.ENOSPC)
    )
    assert fault(converse(train, tmp_path)) in (STORAGE_FULL, STORAGE_FAILED)


def test_a_function_for_uploads_that_finds_no_space_costs_the_checkpoint_alone(tmp_path, caplog):
    def train(config):
        options = ReportOptions(upload=lambda checkpoint, name: refuse(errno.EDQUOT))
        attempt.current_attempt().report({}, Checkpoint(tmp_path), options)

    assert converse(train, tmp_path).outcome == "completed"
    assert "continues without a checkpoint" in caplog.text


def test_an_error_whose_text_cannot_be_read_is_described_all_the_same(tmp_path):
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    failure = storage_failures.StorageFailures(tmp_path).describe(Mute())
    assert failure.kind == "Mute"
