"""Who drives an experiment, seen from outside."""

import json
import os
import shutil
import socket

import pytest

from tuner.storage.lock import ExperimentLock, Lock, Owner, driver_of


def write_owner(directory, **changes):
    owner = {
        "pid": 1,
        "host": socket.gethostname(),
        "boot_id": "another",
        "started": "then",
        "epoch": 1,
        "ticks": 1,
    }
    (directory / "lock").write_text(json.dumps(owner | changes))


def test_nobody_drives_what_has_no_lock_or_a_free_one(tmp_path):
    assert driver_of(tmp_path) is None
    with ExperimentLock(tmp_path):
        assert driver_of(tmp_path).pid == os.getpid()
    assert driver_of(tmp_path) is None


@pytest.mark.parametrize("changes", [{}, {"host": "elsewhere"}])
def test_of_another_machine_or_an_earlier_start_of_this_one_the_lock_itself_is_asked(
    tmp_path, changes
):
    write_owner(tmp_path, **changes)
    assert driver_of(tmp_path) is None
    held = Lock(tmp_path / "lock")
    assert held.acquire()
    assert driver_of(tmp_path).started == "then"
    held.release()
    assert driver_of(tmp_path) is None


def test_to_look_changes_nothing_and_leaves_the_lock_free(tmp_path):
    write_owner(tmp_path)
    before = (tmp_path / "lock").read_text()
    driver_of(tmp_path)
    assert (tmp_path / "lock").read_text() == before
    with ExperimentLock(tmp_path) as lock:
        assert lock.is_held


def test_a_copy_of_an_experiment_is_not_driven_by_the_driver_of_the_original(tmp_path):
    with ExperimentLock(tmp_path):
        copy = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}_copy")
        assert driver_of(tmp_path) is not None
        assert driver_of(copy) is None


def test_a_lock_that_may_only_be_read_can_be_asked(tmp_path):
    write_owner(tmp_path)
    (tmp_path / "lock").chmod(0o444)
    assert driver_of(tmp_path) is None


def test_whoever_cannot_open_the_lock_believes_what_is_written_in_it(tmp_path, monkeypatch):
    write_owner(tmp_path)

    def refuse(*_, **__):
        raise PermissionError(13, "not yours")

    monkeypatch.setattr("tuner.storage.lock.os.open", refuse)
    monkeypatch.setattr(
        "tuner.storage.lock.read_owner", lambda _: Owner(1, "elsewhere", "", "then")
    )
    assert driver_of(tmp_path).pid == 1
