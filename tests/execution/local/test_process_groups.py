"""No process outlives the driver, whichever processes are killed."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.process

HARNESS = str(Path(__file__).parent)
SCRIPT = """
    import os, signal, subprocess, sys
    sys.path.insert(0, {harness!r})
    from conftest import Harness
    from pathlib import Path

    def train(config):
        # One in the same group, one that runs another program, one in a new session.
        pids = [os.getpid(), subprocess.Popen(["sleep", "600"]).pid]
        for leave in (int, os.setsid):
            if (pid := os.fork()) == 0:
                leave()
                signal.pause()
            while leave is os.setsid and os.getsid(pid) != pid:
                os.sched_yield()
            pids.append(pid)
        print(*pids, flush=True)
        while config["is_busy"]:
            sum(range(10**7))
        signal.pause()

    harness = Harness(Path({directory!r}), train, start_method={method!r})
    if os.fork() == 0:  # a fork of the driver must not keep the workers alive
        harness.processes._wakeup_pipe = None
        signal.pause()
    harness.start("t00001", is_busy=True)
    harness.start("t00002", is_busy=False)
    while True:
        harness.executor.wait(None)
"""


@pytest.fixture
def family(tmp_path, request, start_method):
    """Return a driver process with two busy trials, and the ids of all its descendants."""
    source = textwrap.dedent(SCRIPT).format(
        harness=HARNESS, directory=str(tmp_path), method=start_method
    )
    script = tmp_path / "driver.py"
    script.write_text(source)
    driver = subprocess.Popen(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    pids = set()
    while len(pids) < 8:
        assert driver.poll() is None
        files = [tmp_path / trial_id / "stdout" for trial_id in ("t00001", "t00002")]
        pids = {int(pid) for file in files if file.exists() for pid in file.read_text().split()}
    children = psutil.Process(driver.pid).children()
    yield driver, pids, children
    driver.kill()
    driver.wait()
    for child in children:
        if child.is_running():
            child.kill()


def zygote_of(children):
    return next(child for child in children if "tuner.execution.local.zygote" in child.cmdline())


def test_no_process_outlives_a_killed_driver(family, still_alive):
    driver, pids, children = family
    zygote = zygote_of(children)
    all_pids = pids | {child.pid for child in zygote.children(recursive=True)} | {zygote.pid}
    driver.send_signal(signal.SIGKILL)
    assert still_alive(all_pids) == []


def test_no_process_outlives_driver_and_zygote_killed_together(family, still_alive):
    driver, pids, children = family
    zygote = zygote_of(children)
    members = {pid for pid in pids if os.getpgid(pid) == os.getsid(pid) and os.getpgid(pid) in pids}
    leavers = {pid for pid in pids if os.getpgid(pid) == pid and psutil.Process(pid).ppid() in pids}
    os.kill(zygote.pid, signal.SIGSTOP)
    driver.send_signal(signal.SIGKILL)
    zygote.kill()
    assert still_alive(members - leavers) == []
    for pid in leavers:  # those in sessions of their own are found only by the next driver
        os.kill(pid, signal.SIGKILL)


def test_no_process_outlives_a_driver_that_ends_without_a_shutdown(tmp_path, still_alive):
    source = """
        import sys
        sys.path.insert(0, {harness!r})
        from conftest import Harness
        from pathlib import Path
        from tuner.core.events import WorkerStarted
        import signal
        harness = Harness(Path({directory!r}), lambda config: signal.pause())
        harness.start("t00001")
        print(harness.next_event("t00001", WorkerStarted).pid)
    """
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(source).format(harness=HARNESS, directory=str(tmp_path)))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, script], env=environ, capture_output=True, check=True, timeout=60
    )
    assert printed.stderr == b""
    assert still_alive([int(printed.stdout)]) == []


def test_definitions_of_a_script_and_its_modules_can_be_used_in_trials(tmp_path):
    (tmp_path / "neighbour.py").write_text("def double(x):\n    return 2 * x\n")
    source = """
        import sys
        sys.path.append({harness!r})
        from conftest import Harness
        from pathlib import Path
        import neighbour

        class Setting:
            value = 21

        def train(config):
            assert isinstance(config["setting"], Setting)
            print(neighbour.double(config["setting"].value))

        harness = Harness(Path({directory!r}), train)
        assert harness.run(setting=Setting()).failure is None, harness.events
        assert "torch" not in sys.modules
        harness.executor.shutdown(5)
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source).format(harness=HARNESS, directory=str(tmp_path)))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, script], env=environ, check=True, timeout=60)
    assert (tmp_path / "t00001/stdout").read_text() == "42\n"
