"""Signals end an experiment politely, twice at once, and never leave a process behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tuner import Callback

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "end_to_end" / "scripts"
DEADLINE_S = 25
"""Less than the grace that a trial has to leave, so that a script that waits for a deaf trial is found out."""


class Script:
    """A script that runs, and what it has printed so far."""

    def __init__(self, *arguments, directory):
        environment = os.environ | {"HOME": str(directory), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, *map(str, arguments)]
        pipe = subprocess.PIPE
        # A process group of its own, as a terminal gives one to what it runs in the foreground.
        self.process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        self.printed = ""

    def wait_for(self, word):
        while word not in self.printed:
            line = self.process.stdout.readline()
            assert line, self.printed + self.process.stderr.read()
            self.printed += line

    def press_ctrl_c(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self):
        """Wait for the end and return the exit code."""
        printed, self.errors = self.process.communicate(timeout=DEADLINE_S)
        self.printed += printed
        return self.process.returncode

    def descendants(self):
        return psutil.Process(self.process.pid).children(recursive=True)

    def said(self, word):
        (line,) = [line for line in self.printed.splitlines() if line.startswith(f"{word} ")]
        return line.removeprefix(f"{word} ")


@pytest.fixture
def start(tmp_path):
    started = []

    def run(*arguments):
        started.append(Script(*arguments, directory=tmp_path))
        return started[-1]

    yield run
    for script in started:
        script.process.kill()
        script.process.wait()
        script.process.stdout.close()
        script.process.stderr.close()


@pytest.fixture
def start_endless(start, tmp_path):
    """Return a function that starts an experiment and waits until both of its trials have reported."""

    def run(kind):
        script = start(SCRIPTS / "interruptible.py", tmp_path, kind, 1_000_000)
        script.wait_for("READY")
        return script

    return run


def still_alive(processes, within_s=10):
    deadline = time.monotonic() + within_s
    while (alive := [process for process in processes if is_alive(process)]) and time.monotonic() < deadline:
        os.sched_yield()
    return alive


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_one_ctrl_c_stops_the_trials_and_returns_what_there_is(start_endless, tmp_path):
    script = start_endless("function")
    born = script.descendants()
    assert len(born) >= 3
    script.press_ctrl_c()
    assert script.end() == 0
    assert script.errors == ""
    assert script.said("ENDED") == "['TERMINATED interrupted', 'TERMINATED interrupted']"
    assert "interrupted by SIGINT; continue with" in script.printed
    assert f"Tuner.restore('{tmp_path}/interrupted', count, callbacks=callbacks).fit()" in script.printed
    assert re.search(r"^interrupted: 2/2 trials in \S+  interrupted 2$", script.printed, re.MULTILINE)
    assert (tmp_path / "interrupted" / "t00000" / "stdout").read_text() == "cleaned up\n"
    assert still_alive(born) == []


def test_classes_save_themselves_when_they_are_interrupted_and_go_on_from_there(start_endless, start, tmp_path):
    script = start_endless("class")
    script.press_ctrl_c()
    assert script.end() == 0
    counts, saved = re.findall(r"\[.*?\]", script.said("COUNTS"))
    assert saved == "[True, True]"
    reached = json.loads(counts)
    assert [int((tmp_path / "interrupted" / f"t0000{n}" / "checkpoint_000000" / "count").read_text()) for n in (0, 1)] == reached

    again = start(SCRIPTS / "interruptible.py", tmp_path, "class", 1_000_000)
    again.wait_for("READY")
    again.press_ctrl_c()
    assert again.end() == 0
    counts, saved = re.findall(r"\[.*?\]", again.said("COUNTS"))
    assert all(after > before for after, before in zip(json.loads(counts), reached, strict=True))
    rows = [json.loads(line) for line in (tmp_path / "interrupted" / "t00000" / "result.json").read_text().splitlines()]
    assert [row["count"] for row in rows] == [row["training_iteration"] for row in rows] == list(range(1, len(rows) + 1))


def test_a_second_ctrl_c_does_not_wait_for_trials_that_do_not_listen(start_endless):
    script = start_endless("deaf")
    born = script.descendants()
    script.press_ctrl_c()
    script.wait_for("TOLD")
    script.press_ctrl_c()
    assert script.end() == 0
    assert script.said("ENDED") == "['TERMINATED interrupted', 'TERMINATED interrupted']"
    assert still_alive(born) == []


def test_sigterm_saves_and_ends_the_script_with_143(start_endless, tmp_path):
    script = start_endless("class")
    born = script.descendants()
    script.process.terminate()
    assert script.end() == 143
    assert "ENDED" not in script.printed
    assert "interrupted by SIGTERM; continue with" in script.printed
    assert (tmp_path / "interrupted" / "t00001" / "checkpoint_000000" / "count").exists()
    assert still_alive(born) == []


def test_sigusr1_is_like_one_ctrl_c(start_endless):
    script = start_endless("function")
    script.process.send_signal(signal.SIGUSR1)
    assert script.end() == 0
    assert script.said("ENDED") == "['TERMINATED interrupted', 'TERMINATED interrupted']"


def test_a_killed_driver_leaves_no_process_and_nothing_that_was_reported_is_lost(start_endless, start, tmp_path):
    script = start_endless("class")
    born = script.descendants()
    script.process.kill()
    assert script.end() == -signal.SIGKILL
    assert still_alive(born) == []

    reported = (tmp_path / "interrupted" / "journal" / "00000000000000000001.log").read_text().count('"k":"result"')
    again = start(SCRIPTS / "interruptible.py", tmp_path, "class", reported + 1000)
    assert again.end() == 0
    assert again.said("ENDED") == "['TERMINATED completed', 'TERMINATED completed']"


def test_verbose_0_prints_nothing_whatever_happens(start, tmp_path):
    script = start("-X", "dev", SCRIPTS / "quiet.py", tmp_path)
    assert script.end() == 0
    assert (script.printed, script.errors) == ("", "")
    assert (tmp_path / "quiet" / "t00002" / "stdout").read_text() == "on stdout\n" * 3
    assert "ValueError: raised" in (tmp_path / "quiet" / "t00000" / "error.txt").read_text()


def test_a_ctrl_c_while_the_experiment_is_being_set_up_ends_it_before_it_has_begun(fit):
    class Interrupting(Callback):
        def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
            signal.raise_signal(signal.SIGINT)

    results = fit(lambda config: {"x": 1}, tune={"num_samples": 3}, callbacks=[Interrupting()])
    assert {result.ending for result in results} <= {"interrupted"}
    assert [result.metrics.get("x") for result in results] == [None] * len(results)
