"""Starts that fail because the system is short of something are retried, and logged once."""

import errno
import logging
import os
from types import SimpleNamespace

import pytest

from tuner.core.commands import StartWorker
from tuner.execution import start_retry
from tuner.execution.start_retry import StartRetryQueue, describe_shortage


def start(trial_id):
    return StartWorker(trial_id, 1, {}, {"cpu": 1.0}, (), None, 0)


@pytest.fixture
def starts(monkeypatch, caplog):
    monkeypatch.setattr(start_retry, "_RETRY_S", 0.0)
    caplog.set_level(logging.INFO, "tuner")
    return StartRetryQueue()


def test_a_shortage_is_logged_once_and_so_is_its_end(starts, caplog, tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "t00001"))
    for _ in range(3):
        starts.add(start("a"), str(full))
        starts.add(start("b"), str(full))
        assert len(starts.take_due()) == 2
    starts.note_start()
    starts.note_start()
    starts.add(start("c"), str(full))
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition(" now")[0] for message in messages] == [
        "trial a cannot be started",
        "trials can be started again",
        "trial c cannot be started",
    ]


@pytest.mark.parametrize("num_free", [0, 5])
def test_a_file_system_without_inodes_is_named(monkeypatch, tmp_path, num_free):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_files=100, f_favail=num_free))
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "t00001"))
    why = describe_shortage(full)
    assert ("it has no inodes left for new files, see df -i" in why) is (num_free == 0)
