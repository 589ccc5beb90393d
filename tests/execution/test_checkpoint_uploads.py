"""How a single process stores what it reports: now, in a thread, or not at all."""

import dataclasses
import errno
import shutil
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.execution.conversation import STOP, converse
from tuner.background import BackgroundJobs
from tuner.errors import CheckpointError
from tuner.execution import checkpoint_uploads
from tuner.execution.attempt import current_attempt
from tuner.execution.report_options import CheckpointUploadMode, ReportOptions
from tuner.execution.session import checkpoint_dir, get_checkpoint
from tuner.storage import layout
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.manifest import verify

pytestmark = pytest.mark.process

ASYNC = ReportOptions(upload_mode=CheckpointUploadMode.ASYNC)
NO_UPLOAD = ReportOptions(upload_mode=CheckpointUploadMode.NO_UPLOAD)


def report(metrics, checkpoint=None, options=ASYNC):
    current_attempt().report(metrics, checkpoint, options)


def written(directory, text="x"):
    Path(directory).mkdir(parents=True, exist_ok=True)
    Path(directory, "weights").write_text(text)
    return Checkpoint.from_directory(directory)


def committed(script):
    return [said["checkpoint"] for said in script.said if said["kind"] == "committed"]


@pytest.fixture
def slow_store(monkeypatch):
    """Make storing wait for an event; return the event."""
    may_store, real = threading.Event(), checkpoint_uploads.commit

    def wait(*arguments, **options):
        assert may_store.wait(60)
        return real(*arguments, **options)

    monkeypatch.setattr(checkpoint_uploads, "commit", wait)
    return may_store


def test_report_returns_before_a_checkpoint_is_stored_that_is_stored_in_a_thread(
    tmp_path, slow_store
):
    latest = []

    def train(config):
        report({}, written(tmp_path / "source"))
        latest.append(get_checkpoint())
        slow_store.set()

    script = converse(train, tmp_path)
    assert script.kinds == ["started", "result", "saving", "committed", "exited"]
    (result,) = script.said[1:2]
    assert (result["checkpoint"], result["upload"]) == (None, 0)
    assert result["metrics"]["checkpoint_dir_name"] == "checkpoint_000000"
    assert [record["index"] for record in committed(script)] == [0]
    assert latest == [None]
    verify(tmp_path / "checkpoint_000000")


def test_the_local_directory_is_moved_and_so_gone_afterwards(tmp_path):
    inodes = []

    def train(config):
        checkpoint = written(tmp_path / "source")
        inodes.append((tmp_path / "source" / "weights").stat().st_ino)
        report({}, checkpoint)

    converse(train, tmp_path)
    assert not (tmp_path / "source").exists()
    assert (tmp_path / "checkpoint_000000" / "weights").stat().st_ino == inodes[0]


def test_a_directory_that_its_owner_deletes_at_once_is_stored_all_the_same(tmp_path, slow_store):
    def train(config):
        with TemporaryDirectory(dir=tmp_path) as directory:
            report({}, written(directory))
        with checkpoint_dir() as directory:
            report({}, written(directory))
        slow_store.set()

    script = converse(train, tmp_path)
    assert [record["index"] for record in committed(script)] == [0, 1]
    for index in (0, 1):
        verify(tmp_path / f"checkpoint_00000{index}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_000000",
        "checkpoint_000001",
    ]


def test_at_most_two_checkpoints_are_outstanding(tmp_path, slow_store):
    reported = []

    def train(config):
        for number in range(3):
            if number == 2:
                threading.Timer(0.05, lambda: reported.append("stored") or slow_store.set()).start()
            report({}, written(tmp_path / f"source{number}"))
            reported.append(number)

    script = converse(train, tmp_path)
    assert reported == [0, 1, "stored", 2]
    assert [record["index"] for record in committed(script)] == [0, 1, 2]


def test_a_report_that_waits_long_for_a_checkpoint_to_be_stored_says_so(
    tmp_path, slow_store, monkeypatch, caplog
):
    monkeypatch.setenv("RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S", "0.02")

    def train(config):
        threading.Timer(0.1, slow_store.set).start()
        report({}, written(tmp_path / "source"))

    converse(train, tmp_path)
    assert "training waits since" in caplog.text


@pytest.mark.parametrize("end", ["return", "raise", "stop"])
def test_every_way_to_end_waits_for_what_is_being_stored(tmp_path, slow_store, end):
    def train(config):
        threading.Timer(0.05, slow_store.set).start()
        report({}, written(tmp_path / "source"))
        if end == "raise":
            raise KeyError("lost")

    script = converse(train, tmp_path, *([STOP] if end == "stop" else []))
    assert script.kinds[-3:] == ["saving", "committed", "exited"]
    assert script.outcome == {"return": "completed", "raise": "failed", "stop": "stopped"}[end]
    verify(tmp_path / "checkpoint_000000")


@pytest.fixture
def full_disk(monkeypatch):
    def fail(*arguments, **options):
        raise CheckpointError("could not be written") from OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(checkpoint_uploads, "commit", fail)
    monkeypatch.setattr(checkpoint_uploads, "commit_from", fail)


def test_a_checkpoint_that_a_thread_cannot_store_fails_the_next_report(tmp_path, full_disk):
    def train(config):
        report({}, written(tmp_path / "source"))
        current_attempt()._uploads.wait()
        report({})

    script = converse(train, tmp_path)
    assert len(script.results) == 1
    assert (script.outcome, script.exit["failure"]["kind"]) == ("failed", "CheckpointError")


@pytest.mark.parametrize("answers", [[], [STOP]])
def test_a_checkpoint_that_a_thread_cannot_store_fails_an_attempt_that_ends(
    tmp_path, full_disk, answers
):
    script = converse(lambda config: report({}, written(tmp_path / "source")), tmp_path, *answers)
    assert (script.outcome, script.exit["failure"]["kind"]) == ("failed", "CheckpointError")
    assert committed(script) == []


KEPT = ReportOptions(upload_mode=CheckpointUploadMode.ASYNC, deletes_local=False)


def copied(checkpoint, name):
    target = Path(current_attempt().assignment.trial_dir, name)
    shutil.copytree(checkpoint.path, target)
    return Checkpoint(target)


def copied_late(checkpoint, name):
    Path(checkpoint.path, "weights").write_text("y")
    return copied(checkpoint, name)


@pytest.fixture
def stored_later(monkeypatch):
    """Make the thread begin with what it stores when the event is set; return the event."""
    may_begin, submit = threading.Event(), BackgroundJobs.submit

    def submit_late(self, job):
        submit(self, lambda: may_begin.wait(60) and job())

    monkeypatch.setattr(BackgroundJobs, "submit", submit_late)
    return may_begin


@pytest.mark.parametrize("upload", [None, copied])
@pytest.mark.parametrize("name", [None, "latest"])
def test_a_directory_that_is_written_again_before_it_is_stored_fails_the_next_report(
    tmp_path, stored_later, upload, name
):
    options = dataclasses.replace(KEPT, upload=upload, directory_name=name)

    def train(config):
        report({"epoch": 1}, written(tmp_path / "reused", "1"), options)
        written(tmp_path / "reused", "2")
        stored_later.set()
        current_attempt()._uploads.wait()
        report({"epoch": 2})

    script = converse(train, tmp_path)
    assert (script.outcome, script.exit["failure"]["kind"]) == ("failed", "CheckpointError")
    assert "written to after it was reported" in script.exit["failure"]["message"]
    assert "into a new directory" in script.exit["failure"]["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["reused"]
    assert committed(script) == []


def test_a_change_while_the_users_function_stores_a_checkpoint_is_seen(tmp_path):
    options = dataclasses.replace(KEPT, upload=copied_late)
    script = converse(lambda config: report({}, written(tmp_path / "x"), options), tmp_path)
    assert "written to after it was reported" in script.exit["failure"]["message"]


def test_a_directory_may_be_written_again_once_it_is_stored(tmp_path):
    def train(config):
        for epoch in "123":
            report({}, written(tmp_path / "reused", epoch), KEPT)
            current_attempt()._uploads.wait()

    script = converse(train, tmp_path)
    assert script.outcome == "completed"
    for index, epoch in enumerate("123"):
        assert (tmp_path / f"checkpoint_00000{index}" / "weights").read_text() == epoch


def test_a_checkpoint_that_is_stored_at_once_comes_after_those_of_the_thread(tmp_path, slow_store):
    def train(config):
        threading.Timer(0.05, slow_store.set).start()
        report({}, written(tmp_path / "first"))
        report({}, written(tmp_path / "second"), ReportOptions())

    script = converse(train, tmp_path)
    assert script.kinds == ["started", "result", "saving", "committed", "result", "exited"]
    assert [said["checkpoint"] for said in script.said if said["kind"] == "result"][1]["index"] == 1


def test_a_chosen_name_is_that_of_the_directory(tmp_path):
    def train(config):
        report({}, written(tmp_path / "s1"), ReportOptions(directory_name="epoch_0"))
        report({}, written(tmp_path / "s2"), ReportOptions("epoch_1", CheckpointUploadMode.ASYNC))

    script = converse(train, tmp_path)
    assert [said["metrics"]["checkpoint_dir_name"] for said in script.said[2:3]] == ["epoch_0"]
    assert script.said[2]["checkpoint"]["name"] == "epoch_0"
    assert committed(script)[0]["name"] == "epoch_1"
    for name in ("epoch_0", "epoch_1"):
        verify(tmp_path / name)


def test_what_is_not_uploaded_is_recorded_where_it_lies(tmp_path):
    def train(config):
        report({}, written(tmp_path / "mine" / "first"), NO_UPLOAD)
        report({}, Checkpoint(tmp_path / "placeholder"), NO_UPLOAD)

    script = converse(train, tmp_path)
    first, second = [said["checkpoint"] for said in script.said if said["kind"] == "result"]
    assert (first["index"], first["name"], "is_placeholder" in first) == (0, "mine/first", False)
    assert (second["index"], second["name"], second["is_placeholder"]) == (1, "placeholder", True)
    verify(tmp_path / "mine" / "first")
    assert not (tmp_path / "placeholder").exists()


@pytest.mark.parametrize("place", ["../elsewhere", ".", "/elsewhere", "s3://bucket/x"])
def test_what_is_not_uploaded_must_lie_in_the_trials_directory(tmp_path, place):
    trial_dir = tmp_path / "t00000"
    trial_dir.mkdir()

    def train(config):
        path = place if "//" in place else trial_dir / place
        report({}, Checkpoint(path), NO_UPLOAD)

    script = converse(train, trial_dir)
    assert script.kinds == ["started", "exited"]
    assert script.exit["failure"]["kind"] == "ValueError"
    assert "inside the trial's directory" in script.exit["failure"]["message"]


def test_a_later_checkpoint_does_not_replace_one_that_lies_under_its_number(tmp_path):
    def keep_in_place(config):
        report({}, written(tmp_path / "checkpoint_000001"), NO_UPLOAD)

    def upload(checkpoint, name):
        return written(tmp_path / "checkpoint_000002")

    def store_elsewhere(config):
        report({}, written(tmp_path / "source"), ReportOptions(upload=upload))

    for train in (keep_in_place, store_elsewhere):
        script = converse(train, tmp_path)
        assert script.results == []
        assert "numbered name of another" in script.exit["failure"]["message"]


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_a_function_of_the_users_may_store_the_checkpoint(tmp_path, mode):
    calls = []

    def upload(checkpoint, name):
        calls.append(name)
        with checkpoint.as_directory() as source:
            Path(source).rename(tmp_path / name)
        return Checkpoint(tmp_path / name)

    options = ReportOptions(upload_mode=mode, upload=upload)
    script = converse(lambda config: report({}, written(tmp_path / "source"), options), tmp_path)
    assert calls == ["checkpoint_000000"]
    assert script.outcome == "completed"
    verify(tmp_path / "checkpoint_000000")


def test_a_function_that_stores_it_elsewhere_fails_the_report(tmp_path):
    options = ReportOptions(upload=lambda checkpoint, name: Checkpoint("/elsewhere"))
    script = converse(lambda config: report({}, written(tmp_path / "source"), options), tmp_path)
    assert script.kinds == ["started", "saving", "save_failed", "exited"]
    assert script.exit["failure"]["kind"] == "ValueError"


def test_a_function_that_exits_in_the_thread_fails_the_attempt(tmp_path):
    def upload(checkpoint, name):
        raise SystemExit(3)

    options = ReportOptions(upload_mode=CheckpointUploadMode.ASYNC, upload=upload)
    script = converse(lambda config: report({}, written(tmp_path / "source"), options), tmp_path)
    assert (script.outcome, script.exit["failure"]["kind"]) == ("failed", "SystemExit")


@pytest.mark.parametrize(("deletes", "is_left"), [(None, True), (False, True), (True, False)])
def test_the_local_directory_is_deleted_only_if_that_is_asked_for(tmp_path, deletes, is_left):
    options = ReportOptions(deletes_local=deletes)
    converse(lambda config: report({}, written(tmp_path / "source"), options), tmp_path)
    assert (tmp_path / "source").exists() == is_left
    verify(tmp_path / "checkpoint_000000")


def test_a_full_disk_costs_the_checkpoint_and_not_the_metrics(tmp_path, full_disk):
    def train(config):
        report({"number": 0}, written(tmp_path / "first"), ReportOptions())
        report({"number": 1})

    script = converse(train, tmp_path)
    assert [result["number"] for result in script.results] == [0, 1]
    assert [result["checkpoint_dir_name"] for result in script.results] == [None, None]
    assert script.outcome == "completed"


def test_a_committed_checkpoint_is_not_deleted_when_it_is_reported_again(tmp_path):
    taken = written(tmp_path / "taken")
    Path(taken.path, layout.MANIFEST).write_text("{}")
    plan = checkpoint_uploads.plan_checkpoint(taken, ASYNC, str(tmp_path), 0)
    assert not plan.deletes_local
    own = written(tmp_path / "own")
    assert checkpoint_uploads.plan_checkpoint(own, ASYNC, str(tmp_path), 0).deletes_local


def test_a_directory_that_is_no_checkpoint_is_not_replaced_by_one_of_its_name(tmp_path):
    precious = written(tmp_path / "precious")
    given = written(tmp_path / "given")
    options = ReportOptions(directory_name="precious")
    with pytest.raises(ValueError, match="is no checkpoint"):
        checkpoint_uploads.plan_checkpoint(given, options, str(tmp_path), 0)
    assert Path(precious.path, "weights").exists()


@pytest.mark.parametrize("options", [ASYNC, ReportOptions(deletes_local=True)])
@pytest.mark.parametrize("place", ["t00000", ".", "work"])
def test_a_directory_that_is_in_use_is_neither_moved_nor_deleted(
    tmp_path, monkeypatch, options, place
):
    for name in ("t00000", "work"):
        written(tmp_path / name)
    monkeypatch.chdir(tmp_path / "work")
    script = converse(
        lambda config: report({}, Checkpoint(tmp_path / place), options), tmp_path / "t00000"
    )
    assert script.results == []
    assert script.exit["failure"]["kind"] == "ValueError"
    assert "write it into a directory of its own" in script.exit["failure"]["message"]
    assert (tmp_path / place).is_dir()
