"""How a worker is killed that does not leave: asked first, where there is time, and quoted with where it was."""

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from tests.processes.conftest import Stage
from tuner.core.commands import KillWorker
from tuner.core.events import Outcome, ResultReported, WorkerStarted
from tuner.core.trial import ReportReply


def await_print(theater, trial_id="t00001"):
    """Wait until the training code has printed something, which the executor has noticed."""
    theater.next_event(trial_id, WorkerStarted)
    file = theater.directory / trial_id / "stdout"
    while not (file.exists() and file.read_text()):
        os.sched_yield()


def kill_gently(theater, trial_id, term_grace_s):
    theater.executor.carry_out([KillWorker(trial_id, 1, "the test says so", term_grace_s)])


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
def test_who_is_killed_tells_where_it_was(stage, start_method, behaviour):
    theater = stage(behaviour, start_method=start_method)
    theater.start("t00001")
    await_print(theater)
    kill_gently(theater, "t00001", 0.5)
    ended = theater.exit_of("t00001")
    assert ended.outcome is Outcome.KILLED
    assert ended.failure.message == "the test says so"
    assert behaviour.__name__ in ended.failure.traceback


def test_who_is_stopped_is_killed_all_the_same(stage, start_method):
    theater = stage(stop_under_this_name, start_method=start_method)
    theater.start("t00001")
    await_print(theater)
    kill_gently(theater, "t00001", 0.1)
    assert theater.exit_of("t00001").outcome is Outcome.KILLED


def test_who_cleans_up_and_leaves_in_time_is_not_waited_for(stage):
    def train(config):
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        try:
            print("here", flush=True)
            threading.Event().wait()
        finally:
            print("cleaned up")

    theater = stage(train)
    theater.start("t00001")
    await_print(theater)
    kill_gently(theater, "t00001", 10_000.0)
    assert theater.exit_of("t00001").outcome is Outcome.KILLED
    assert theater.printed() == "here\ncleaned up\n"


def test_the_processes_of_a_trial_are_asked_as_well(stage, start_method, all_die):
    def train(config):
        from tuner.execution.session import report

        # The shell writes its own last words, if it is given the time.
        child = subprocess.Popen(
            ["sh", "-c", "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.01; done"],
            stdout=subprocess.PIPE,
        )
        child.stdout.readline()
        report({"child": child.pid})
        print(child.stdout.read().decode(), end="")
        signal.pause()

    theater = stage(train, start_method=start_method)
    theater.start("t00001")
    child = theater.next_event("t00001", ResultReported).metrics["child"]
    theater.answer("t00001")
    kill_gently(theater, "t00001", 2.0)
    theater.exit_of("t00001")
    assert theater.printed() == "asked\n"
    assert all_die([child], within_s=0) == []


def test_a_kill_outruns_one_that_gives_time(stage):
    theater = stage(sleep_under_this_name)
    theater.start("t00001")
    await_print(theater)
    kill_gently(theater, "t00001", 10_000.0)
    kill_gently(theater, "t00001", 0.0)
    assert theater.exit_of("t00001").outcome is Outcome.KILLED


def test_who_was_to_be_started_by_a_zygote_that_still_loads_is_gone_at_once(
    stage, trainable_importing
):
    theater = stage(trainable_importing("import time; time.sleep(10_000)"))
    theater.start("t00001")
    theater.kill("t00001")
    assert theater.exit_of("t00001").outcome is Outcome.KILLED


@pytest.mark.parametrize("verdict", [ReportReply.STOP, ReportReply.PAUSE, None])
def test_when_a_trial_stops_pauses_or_ends_all_of_its_processes_are_gone_before_its_exit_is_told(
    tmp_path, stage, verdict, all_die
):
    theater: Stage = stage(busy)
    theater.start("t00001", is_endless=verdict is not None)
    reported = theater.next_event("t00001", ResultReported)
    group = [reported.metrics["pid"], *reported.metrics["children"]]
    theater.answer("t00001", verdict or ReportReply.CONTINUE)
    theater.exit_of("t00001")
    leaver = reported.metrics["children"][
        -1
    ]  # of a session of its own, so that nobody has to wait for it
    assert all_die([pid for pid in group if pid != leaver], within_s=0) == []
    assert all_die([leaver], within_s=1) == []


def busy(config):
    """Have loader processes that do not listen, one of them in a session of its own, and threads that never end."""
    from tuner.execution.session import report

    deaf = ["sh", "-c", "trap '' TERM INT HUP; sleep 600 & wait; sleep 600"]
    children = [
        subprocess.Popen(deaf, start_new_session=is_leaver) for is_leaver in (False, False, True)
    ]
    for _ in range(3):
        threading.Thread(target=threading.Event().wait).start()
    while len(psutil.Process().children(recursive=True)) < 6:
        threading.Event().wait(0.01)
    report({"children": [child.pid for child in children]})
    while config["is_endless"]:
        report({})
