"""A worker that does not exit gets SIGTERM first, then SIGKILL, and its stack is quoted."""

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from tests.execution.local.conftest import Harness
from tests.waiting import wait_until
from tuner.core.commands import KillWorker
from tuner.core.events import Outcome, ResultReported, WorkerStarted
from tuner.core.worker_records import ReportReply

pytestmark = pytest.mark.process


def await_print(harness, trial_id="t00001"):
    """Wait until the training code has printed something, which the executor has noticed."""
    harness.next_event(trial_id, WorkerStarted)
    file = harness.directory / trial_id / "stdout"
    wait_until(lambda: file.exists() and file.read_text())


def kill_gently(harness, trial_id, term_grace_s):
    harness.executor.carry_out([KillWorker(trial_id, 1, "the test says so", term_grace_s)])


def sleep_under_this_name(config):
    print("here", flush=True)
    threading.Event().wait()


def spin_under_this_name(config):
    print("here", flush=True)
    sum(range(10**12))


def stop_under_this_name(config):
    print("here", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize("behaviour", [sleep_under_this_name, spin_under_this_name])
def test_a_killed_worker_dumps_its_stack(start_executor, start_method, behaviour):
    harness = start_executor(behaviour, start_method=start_method)
    harness.start("t00001")
    await_print(harness)
    kill_gently(harness, "t00001", 0.5)
    ended = harness.exit_of("t00001")
    assert ended.outcome is Outcome.KILLED
    assert ended.failure.message == "the test says so"
    assert behaviour.__name__ in ended.failure.traceback


def test_a_stopped_process_is_killed_too(start_executor, start_method):
    harness = start_executor(stop_under_this_name, start_method=start_method)
    harness.start("t00001")
    await_print(harness)
    kill_gently(harness, "t00001", 0.1)
    assert harness.exit_of("t00001").outcome is Outcome.KILLED


def test_a_worker_that_cleans_up_in_time_ends_the_wait(start_executor):
    def train(config):
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        try:
            print("here", flush=True)
            threading.Event().wait()
        finally:
            print("cleaned up")

    harness = start_executor(train)
    harness.start("t00001")
    await_print(harness)
    kill_gently(harness, "t00001", 10_000.0)
    assert harness.exit_of("t00001").outcome is Outcome.KILLED
    assert harness.printed() == "here\ncleaned up\n"


def test_the_processes_of_a_trial_get_sigterm_too(start_executor, start_method, still_alive):
    def train(config):
        from tuner.execution.session import report

        # The shell writes a last line if it is given the time.
        child = subprocess.Popen(
            ["sh", "-c", "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.01; done"],
            stdout=subprocess.PIPE,
        )
        child.stdout.readline()
        report({"child": child.pid})
        print(child.stdout.read().decode(), end="")
        signal.pause()

    harness = start_executor(train, start_method=start_method)
    harness.start("t00001")
    child = harness.next_event("t00001", ResultReported).metrics["child"]
    harness.answer("t00001")
    kill_gently(harness, "t00001", 2.0)
    harness.exit_of("t00001")
    assert harness.printed() == "asked\n"
    assert still_alive([child], at_once=True) == []


def test_a_kill_overrides_a_graceful_one(start_executor):
    harness = start_executor(sleep_under_this_name)
    harness.start("t00001")
    await_print(harness)
    kill_gently(harness, "t00001", 10_000.0)
    kill_gently(harness, "t00001", 0.0)
    assert harness.exit_of("t00001").outcome is Outcome.KILLED


def test_a_kill_while_the_zygote_is_loading_takes_effect_at_once(
    start_executor, trainable_importing
):
    harness = start_executor(trainable_importing("import signal; signal.pause()"))
    harness.start("t00001")
    harness.kill("t00001")
    assert harness.exit_of("t00001").outcome is Outcome.KILLED


@pytest.mark.parametrize("verdict", [ReportReply.STOP, ReportReply.PAUSE, None])
def test_all_processes_of_a_trial_are_gone_before_its_exit_is_reported(
    tmp_path, start_executor, verdict, still_alive
):
    harness: Harness = start_executor(busy)
    harness.start("t00001", is_endless=verdict is not None)
    reported = harness.next_event("t00001", ResultReported)
    group = [reported.metrics["pid"], *reported.metrics["children"]]
    harness.answer("t00001", verdict or ReportReply.CONTINUE)
    harness.exit_of("t00001")
    # It has its own session, so the zygote does not wait for its end.
    leaver = reported.metrics["children"][-1]
    assert still_alive([pid for pid in group if pid != leaver], at_once=True) == []
    assert still_alive([leaver]) == []


def busy(config):
    """Start loader processes that ignore SIGTERM, one in its own session, and endless threads."""
    from tuner.execution.session import report

    deaf = ["sh", "-c", "trap '' TERM INT HUP; sleep 600 & wait; sleep 600"]
    children = [
        subprocess.Popen(deaf, start_new_session=is_leaver) for is_leaver in (False, False, True)
    ]
    for _ in range(3):
        threading.Thread(target=threading.Event().wait).start()
    wait_until(lambda: len(psutil.Process().children(recursive=True)) >= 6)
    report({"children": [child.pid for child in children]})
    while config["is_endless"]:
        report({})
