"""The zygote when loading fails, the system refuses processes, or it is killed."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.waiting import wait_until
from tuner.core.events import Outcome, ResultReported, WorkerExited
from tuner.errors import TunerError
from tuner.execution.local import zygote
from tuner.execution.local.worker_pool import await_trial
from tuner.execution.local.zygote_protocol import Kill, Start, send_request
from tuner.execution.session import report

pytestmark = pytest.mark.process


@pytest.fixture
def keeps_zygote():
    return False


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_trainable_is_loaded_once_for_all_trials(start_executor, trainable_importing, tmp_path):
    harness = start_executor(
        trainable_importing(f"open({str(tmp_path / 'loads')!r}, 'a').write('x')")
    )
    for number in range(3):
        harness.run(f"t{number:05d}")
    assert (tmp_path / "loads").read_text() == "x"


SLEEPER = (
    "import threading; "
    "threading.Thread(target=threading.Event().wait, daemon=True, name='sleeper').start()"
)


def test_standby_workers_wait_as_long_as_needed_under_a_default_timeout():
    ours, theirs = socket.socketpair()
    theirs.settimeout(0.01)  # as modules of the user's may have set for all sockets
    with ours, ThreadPoolExecutor(1) as thread:
        received = thread.submit(await_trial, theirs)
        wait_until(lambda: theirs.gettimeout() is None)
        socket.send_fds(ours, [b"."], [0])
        os.close(received.result(60))


@pytest.fixture
def short_default_timeout():
    socket.setdefaulttimeout(0.01)  # in the driver, as a module of the user's may
    yield
    socket.setdefaulttimeout(None)


@pytest.mark.parametrize("thread", ["", SLEEPER])
@pytest.mark.usefixtures("short_default_timeout")
def test_trials_run_under_a_default_timeout_of_all_sockets(
    start_executor, trainable_importing, thread, tmp_path, wait_started
):
    loads = trainable_importing(f"import socket; socket.setdefaulttimeout(0.01); {thread}")

    def train(config):
        loads({})
        wait_until((tmp_path / "go").exists)
        for number in range(2):
            report({"number": number})

    harness = start_executor(train)
    for trial_id in ("t00001", "t00002"):
        harness.start(trial_id)
        wait_started(harness, trial_id)
    assert harness.executor.wait(0.05) == []
    (tmp_path / "go").touch()
    for trial_id in ("t00001", "t00002"):
        assert harness.exit_of(trial_id) == WorkerExited(trial_id, 1, Outcome.COMPLETED)


def test_threads_of_the_trainable_lead_to_spawned_workers_and_one_warning(
    start_executor, trainable_importing, caplog
):
    harness = start_executor(trainable_importing(SLEEPER))
    harness.start("t00001")
    harness.start("t00002")
    assert [harness.exit_of(trial_id).outcome for trial_id in ("t00001", "t00002")] == [
        Outcome.COMPLETED
    ] * 2
    (warning,) = warnings_in(caplog)
    assert "loading it starts threads (sleeper)" in warning


def test_a_trainable_that_cannot_be_loaded_fails_each_trial_with_the_cause(
    start_executor, trainable_importing, caplog
):
    harness = start_executor(trainable_importing("import no_such_module"))
    for trial_id in ("t00001", "t00002"):
        failure = harness.run(trial_id).failure
        assert failure.kind == "ModuleNotFoundError"
        assert "import no_such_module" in failure.traceback
    assert len(warnings_in(caplog)) == 1


def test_a_trainable_that_crashes_when_loaded_fails_each_trial(
    start_executor, trainable_importing, caplog
):
    harness = start_executor(trainable_importing("import os; os.abort()"))
    for trial_id in ("t00001", "t00002"):
        assert (
            harness._wait_for(
                lambda trial_id=trial_id: harness._exit(trial_id) or harness.start(trial_id)
            )
            is not None
        )
    assert any("loading it ends the process" in warning for warning in warnings_in(caplog))


def test_the_death_of_the_zygote_loses_its_workers_and_a_new_one_starts(
    start_executor, still_alive, wait_started, caplog
):
    def train(config):
        if config["is_patient"]:
            if os.fork() == 0:
                print(os.getpid(), flush=True)
            signal.pause()

    harness = start_executor(train)
    harness.start("t00001", is_patient=True)
    worker = wait_started(harness, "t00001")
    wait_until((harness.directory / "t00001/stdout").exists)
    pids = wait_until(lambda: harness.printed().split())
    psutil.Process(worker).parent().kill()
    assert harness.exit_of("t00001").outcome is Outcome.LOST
    assert still_alive([worker, *map(int, pids)]) == []
    assert harness.run("t00002", is_patient=False).outcome is Outcome.COMPLETED
    assert len(warnings_in(caplog)) == 1


def test_a_worker_that_had_finished_when_the_zygote_died_has_finished(start_executor):
    def train(config):
        from tuner.execution.session import report

        report({"loss": 1})
        # It kills itself, so that nothing can happen between the exit message and the kill.
        import atexit

        atexit.register(os.kill, os.getppid(), signal.SIGKILL)

    harness = start_executor(train)
    harness.start("t00001")
    harness.next_event("t00001", ResultReported)
    harness.answer("t00001")
    assert harness.exit_of("t00001").outcome is Outcome.COMPLETED


def test_an_executor_whose_zygote_dies_repeatedly_gives_up(start_executor, monkeypatch):
    monkeypatch.setattr("tuner.execution.local.launcher.command", lambda *_: ["false"])
    harness = start_executor(lambda config: None)
    with pytest.raises(TunerError, match="died 3 times in a row"):
        list(map(harness.run, ["t00001", "t00002", "t00003", "t00004"]))
    assert {event.outcome for events in harness.events.values() for event in events} <= {
        Outcome.LOST
    }


@pytest.mark.parametrize("method", ["zygote", "spawn"])
def test_a_worker_that_vanishes_while_it_waits_is_replaced_when_needed(
    start_executor, still_alive, method
):
    kept = psutil.Process().children()  # by another experiment of this process, maybe
    harness = start_executor(lambda config: None, start_method=method)
    harness.run("t00001")
    (zygote,) = (
        child
        for child in psutil.Process().children()
        if child not in kept and "tuner.execution.local.zygote" in child.cmdline()
    )
    standby_pids = zygote.children()
    assert standby_pids
    for spare in standby_pids:
        spare.kill()
    assert still_alive([spare.pid for spare in standby_pids]) == []
    assert harness.run("t00002").outcome is Outcome.COMPLETED


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")
def test_what_a_zygote_without_descriptors_cannot_start_is_started_later(start_executor, caplog):
    import resource

    harness = start_executor(
        lambda config: {"zygote": os.getppid()}, validator=lambda checkpoint: {"score": 1}
    )
    harness.run("t00000")
    (result,) = harness.results("t00000")
    zygote = result.metrics["zygote"]
    limits = resource.prlimit(zygote, resource.RLIMIT_NOFILE)
    resource.prlimit(zygote, resource.RLIMIT_NOFILE, (3, limits[1]))
    harness.start_validation()
    harness.start_group("t00002")
    harness.start("t00003")
    harness.start("t00004")
    while "too many files open" not in caplog.text:
        assert harness.executor.wait(0.1) == []
    harness.kill("t00004")
    assert harness.exit_of("t00004").outcome is Outcome.KILLED
    resource.prlimit(zygote, resource.RLIMIT_NOFILE, limits)
    assert harness.end_of_validation().metrics == {"score": 1}
    for trial_id in ("t00002", "t00003"):
        assert harness.exit_of(trial_id).outcome is Outcome.COMPLETED
        (result,) = harness.results(trial_id)
        assert result.metrics["zygote"] == zygote
    assert any("can be started again" in warning for warning in warnings_in(caplog))


class FakePool:
    """A worker pool that cannot prepare the first workers, then returns as if forked."""

    standby_pids = frozenset()

    def __init__(self, num_refusals, standby_end=None):
        self.num_refusals = num_refusals
        self.standby_end = standby_end

    def start(self, descriptor):
        return None

    def prepare(self, num_running):
        if self.num_refusals:
            self.num_refusals -= 1
            raise OSError("resource temporarily unavailable")
        return self.standby_end


@pytest.fixture
def ends():
    """Both ends of the control socket (driver, zygote), then both of a worker's connection."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(end) for end in (*socket.socketpair(), *socket.socketpair())]


def serve(control, pool):
    """Run the loop until it returns in a forked worker; return the end of its standby socket."""
    liveness, liveness_writer = os.pipe()
    try:
        return zygote.Zygote(control, liveness, pool, grace_s=1.0).serve()
    finally:
        os.close(liveness)
        os.close(liveness_writer)


def test_a_start_that_the_system_refuses_is_retried(ends, monkeypatch):
    monkeypatch.setattr(zygote, "_RETRY_S", 0.01)
    driver, control, standby_end, theirs = ends
    send_request(driver, Start(17, theirs.fileno()))
    assert serve(control, FakePool(num_refusals=2, standby_end=standby_end)) is standby_end
    assert "resource temporarily unavailable" in json.loads(driver.makefile().readline())["text"]


def test_a_kill_withdraws_a_pending_start(ends):
    driver, control, standby_end, theirs = ends
    for request in (Start(17, theirs.fileno()), Kill(17), Start(18, theirs.fileno())):
        send_request(driver, request)
    assert serve(control, FakePool(num_refusals=0, standby_end=standby_end)) is standby_end
    assert [json.loads(line) for line in driver.makefile()] == [
        {"kind": "gone", "worker": 17, "code": -signal.SIGKILL, "peak_bytes": 0, "is_oom": False}
    ]
