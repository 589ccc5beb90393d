"""Termination signals end no trial, but do end the processes that trials start."""

import multiprocessing
import os
import signal
import subprocess

import psutil
import pytest

from tuner.core.events import Outcome, ResultReported
from tuner.execution.local.process_setup import TERMINATION_SIGNALS

pytestmark = pytest.mark.process


def test_termination_signals_to_every_process_end_none_of_them(start_executor, start_method):
    def train(config):
        from tuner.execution.session import report

        for step in range(2):
            report({"step": step})

    harness = start_executor(train, start_method=start_method)
    harness.start("t00001")
    worker = harness.next_event("t00001", ResultReported).metrics["pid"]
    for process in (psutil.Process(worker).parent(), psutil.Process(worker)):
        for number in TERMINATION_SIGNALS:
            process.send_signal(number)
    harness.answer("t00001")
    assert harness.next_event("t00001", ResultReported).metrics["step"] == 0
    assert harness.exit_of("t00001").outcome is Outcome.COMPLETED
    assert harness.run("t00002").outcome is Outcome.COMPLETED


def by_exec():
    return subprocess.Popen(["sleep", "600"])


def by_fork():
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    return child


@pytest.mark.parametrize("begin", [by_exec, by_fork])
def test_a_process_that_training_code_has_started_can_be_terminated(
    start_executor, start_method, begin
):
    def train(config):
        child = begin()
        child.terminate()
        child.join() if hasattr(child, "join") else child.wait()

    assert start_executor(train, start_method=start_method).run().failure is None


def test_a_signal_handler_of_training_code_gets_signals_sent_to_the_trial(start_executor):
    def train(config):
        signal.signal(signal.SIGTERM, lambda number, frame: print("heard"))
        os.kill(os.getpid(), signal.SIGTERM)

    harness = start_executor(train)
    assert harness.run().outcome is Outcome.COMPLETED
    assert harness.printed() == "heard\n"
