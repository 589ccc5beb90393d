"""An experiment can be taken away from a driver that hangs, but from no other process and no other machine."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest

from tuner.errors import ExperimentLocked
from tuner.storage import layout, lock, strict_json
from tuner.storage.lock import ExperimentLock, read_owner

OWNER = """
import signal, sys
from tuner.storage.lock import ExperimentLock
ExperimentLock(sys.argv[1]).acquire()
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def owner(tmp_path):
    """Start a process that holds the lock."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603  (ourselves)
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def rewrite_owner(experiment, **changes):
    changed = dataclasses.replace(read_owner(experiment), **changes)
    (experiment / layout.LOCK).write_text(strict_json.dumps(dataclasses.asdict(changed)))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_driver_is_killed_and_replaced_only_when_told(tmp_path, owner, is_stopped, caplog):
    if is_stopped:
        owner.send_signal(signal.SIGSTOP)
    with pytest.raises(ExperimentLocked, match=f"process {owner.pid} on "):
        ExperimentLock(tmp_path).acquire()
    assert owner.poll() is None
    with ExperimentLock(tmp_path, steal=True):
        assert owner.wait(10) == -signal.SIGKILL
        assert read_owner(tmp_path).pid == os.getpid()
    assert f"process {owner.pid} on " in caplog.text


def test_an_experiment_that_nobody_holds_is_not_stolen(tmp_path, caplog):
    with ExperimentLock(tmp_path, steal=True) as held:
        assert held.is_held
    assert not caplog.records


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"host": "elsewhere"}, "another machine; end it there"),
        ({"boot_id": "earlier"}, "another machine; end it there"),
        ({"boot_id": ""}, "too little is known"),
        ({"ticks": None}, "too little is known"),
        ({"ticks": 1}, "another one than that which took the lock"),
        ({"pid": os.getpid()}, "which is this process"),
    ],
)
def test_whoever_is_not_surely_the_owner_is_not_killed(tmp_path, owner, changes, why):
    rewrite_owner(tmp_path, **changes)
    with pytest.raises(ExperimentLocked, match=why):
        ExperimentLock(tmp_path, steal=True).acquire()
    assert owner.poll() is None


def test_an_owner_that_has_left_no_name_is_not_killed(tmp_path, owner):
    (tmp_path / layout.LOCK).write_text("[garbage")
    with pytest.raises(ExperimentLocked, match="too little is known"):
        ExperimentLock(tmp_path, steal=True).acquire()
    assert owner.poll() is None


def test_where_another_is_faster_it_keeps_what_it_has(tmp_path, owner, monkeypatch):
    def kill(*_):
        return

    monkeypatch.setattr(lock, "kill", kill)
    with pytest.raises(ExperimentLocked, match="another has been faster"):
        ExperimentLock(tmp_path, steal=True).acquire()


def test_a_process_that_is_gone_needs_no_killing():
    child = os.fork()
    if not child:
        os._exit(0)
    ticks = lock.start_ticks(child)
    os.waitpid(child, 0)
    lock.kill(child, ticks, 1.0)
    assert lock.start_ticks(child) is None


def test_a_process_that_does_not_end_is_told_of(monkeypatch):
    child = os.fork()
    if not child:
        signal.pause()
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    with pytest.raises(ExperimentLocked, match=r"has not ended after 0\.01 s"):
        lock.kill(child, lock.start_ticks(child), 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_one_of_somebody_else_is_left(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(ExperimentLocked, match="belongs to somebody else"):
        lock.kill(os.getpid(), lock.start_ticks(os.getpid()), 0.01)
