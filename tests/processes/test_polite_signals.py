"""What is meant for the driver ends no trial, and what trials start can be ended by them as ever."""

import multiprocessing
import os
import signal
import subprocess

import psutil
import pytest

from tuner.core.events import Outcome, ResultReported
from tuner.execution.local.process_setup import TERMINATION_SIGNALS


@pytest.mark.parametrize("number", TERMINATION_SIGNALS)
def test_a_polite_signal_to_every_process_ends_none_of_them(stage, start_method, number):
    def train(config):
        from tuner.execution.session import report

        for step in range(2):
            report({"step": step})

    theater = stage(train, start_method=start_method)
    theater.start("t00001")
    worker = theater.next_event("t00001", ResultReported).metrics["pid"]
    for process in (psutil.Process(worker).parent(), psutil.Process(worker)):
        process.send_signal(number)
    theater.answer("t00001")
    assert theater.next_event("t00001", ResultReported).metrics["step"] == 0
    assert theater.exit_of("t00001").outcome is Outcome.COMPLETED
    assert theater.run("t00002").outcome is Outcome.COMPLETED


def by_exec():
    return subprocess.Popen(["sleep", "600"])


def by_fork():
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    return child


@pytest.mark.parametrize("begin", [by_exec, by_fork])
def test_a_process_that_training_code_has_started_can_be_terminated(stage, start_method, begin):
    def train(config):
        child = begin()
        child.terminate()
        child.join() if hasattr(child, "join") else child.wait()

    assert stage(train, start_method=start_method).run().failure is None


def test_a_handler_of_the_training_code_hears_what_is_sent_to_the_trial(stage):
    def train(config):
        signal.signal(signal.SIGTERM, lambda number, frame: print("heard"))
        os.kill(os.getpid(), signal.SIGTERM)

    theater = stage(train)
    assert theater.run().outcome is Outcome.COMPLETED
    assert theater.printed() == "heard\n"
