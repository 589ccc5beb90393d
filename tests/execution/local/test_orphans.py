"""The next driver of an experiment kills exactly the processes of dead drivers."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.waiting import wait_until
from tuner.execution.local.orphans import (
    VARIABLE,
    DriverIdentity,
    kill_orphans,
    kill_orphans_of,
)

pytestmark = pytest.mark.process


@pytest.fixture
def begin():
    """Return a function that starts a process in its own session that names a driver."""
    begun = []

    def run(name):
        environ = {**os.environ, VARIABLE: str(name)}
        process = subprocess.Popen(
            ["cat"],
            env=environ,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        begun.append(process)
        process.stdin.write(b"?")
        # Its environment can be read only some time after the process has been started.
        process.stdout.read(1)
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def dead_driver(tmp_path):
    """Return the name of a driver of the experiment in ``tmp_path`` that has died."""
    printing = (
        "from tuner.execution.local.orphans import DriverIdentity; "
        f"print(DriverIdentity.current({str(tmp_path)!r}))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", printing], env=environ, capture_output=True, check=True
    ).stdout
    return DriverIdentity.parse(printed.strip())


def test_an_identity_says_whether_the_driver_is_running(tmp_path, dead_driver):
    mine = DriverIdentity.current(tmp_path)
    assert mine.is_alive
    assert DriverIdentity.parse(str(mine).encode()) == mine
    assert not dead_driver.is_alive
    assert dead_driver.has_same_experiment(mine)


@pytest.mark.parametrize("text", [b"", b"1:2:3", b"1:2:3:4:5", b"1:2:3:x", b"-1:2:3:4", b"::::"])
def test_a_malformed_identity_is_ignored(text):
    assert DriverIdentity.parse(text) is None


def test_orphans_are_killed_and_returned(tmp_path, dead_driver, begin):
    left = begin(dead_driver)
    (found,) = kill_orphans(tmp_path)
    assert str(found) == f"process {left.pid} (cat)"
    assert left.wait() == -9
    assert kill_orphans(tmp_path) == []


def test_a_directory_that_has_been_moved_is_the_same_experiment(tmp_path, begin):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    name = DriverIdentity.current(here)
    begin(DriverIdentity(name.pid, name.started - 1, name.device, name.inode))
    here.rename(there)
    assert len(kill_orphans(there)) == 1


def test_processes_of_a_living_driver_or_another_experiment_are_not_killed(
    tmp_path, dead_driver, begin
):
    mine = DriverIdentity.current(tmp_path)
    other = DriverIdentity(
        dead_driver.pid, dead_driver.started, dead_driver.device, dead_driver.inode + 1
    )
    processes = [begin(mine), begin(other), begin("nonsense")]
    assert kill_orphans(tmp_path) == []
    assert [process.poll() for process in processes] == [None] * 3


def test_the_searching_process_does_not_find_itself(tmp_path, dead_driver):
    source = (
        "from tuner.execution.local.orphans import kill_orphans; "
        f"print(kill_orphans({str(tmp_path)!r}))"
    )
    environ = {**os.environ, VARIABLE: str(dead_driver), "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", source], env=environ, capture_output=True, check=True
    ).stdout
    assert printed == b"[]\n"


def test_processes_of_training_code_inherit_the_identity(
    start_executor, tmp_path, start_method, still_alive
):
    def train(config):
        import signal

        child = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
        if (fork := os.fork()) == 0:
            os.setsid()
            signal.pause()
        wait_until(lambda: os.getsid(fork) == fork)
        report = __import__("tuner").report
        report({"pids": [child, fork, os.getpid()]})
        signal.pause()

    from tuner.core.events import ResultReported

    name = DriverIdentity.current(tmp_path)
    dead = DriverIdentity(name.pid, name.started - 1, name.device, name.inode)
    harness = start_executor(
        train, start_method=start_method, environ={VARIABLE: str(dead)}, keeps_zygote=False
    )
    harness.start("t00001")
    *strays, _worker = pids = harness.next_event("t00001", ResultReported).metrics["pids"]
    # The worker itself may be dead before it is found: it dies with the zygote.
    assert set(strays) <= {orphan.pid for orphan in kill_orphans(tmp_path)}
    assert still_alive(pids, at_once=True) == []


def test_without_orphans_nothing_is_killed(tmp_path):
    source = textwrap.dedent(f"""
        from tuner.execution.local import orphans
        orphans._PROC = orphans.Path("/nowhere")
        print(orphans.kill_orphans({str(tmp_path)!r}))
    """)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run(
            [sys.executable, "-c", source], env=environ, capture_output=True, check=True
        ).stdout
        == b"[]\n"
    )


def test_what_a_dead_host_of_a_node_has_left_is_killed_by_the_next_one(begin):
    mine = DriverIdentity.of_host("s3://bucket/exp")
    assert mine.is_alive
    assert not mine.has_same_experiment(DriverIdentity.of_host("s3://bucket/other"))
    dead = DriverIdentity(mine.pid, mine.started - 1, mine.device, mine.inode)
    left, running = begin(dead), begin(mine)
    assert [found.pid for found in kill_orphans_of(mine)] == [left.pid]
    assert running.poll() is None
