"""Interrupt experiments that run as scripts, and observe what they leave behind.

`FAULTS` are the ways to interrupt one, and `observe` does it once: a test asserts what it returns,
a benchmark repeats it and counts.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.journal.rows import JournalRows

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTIBLE = ROOT / "tests" / "end_to_end" / "scripts" / "interruptible.py"
DEADLINE_S = 180
"""Long enough for a machine under load; a script that needs it has failed."""


class Script:
    """A script that runs, and what it has printed so far.

    Args:
        arguments: The script and its arguments.
        directory: Its home.
        prefix: What runs the interpreter, such as ``["nohup"]``.
        flags: Of the interpreter.
    """

    def __init__(self, *arguments, directory, prefix=(), flags=()):
        environment = os.environ | {
            "HOME": str(directory),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        command = [*prefix, sys.executable, *flags, *map(str, arguments)]
        pipe = subprocess.PIPE
        # A new process group, as a terminal gives one to what it runs in the foreground.
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
        self.printed = ""

    def wait_for(self, word):
        while word not in self.printed:
            line = self.process.stdout.readline()
            assert line, self.printed + self.process.stderr.read()
            self.printed += line

    def signal(self, number):
        """Send a signal as a terminal does: to the whole group."""
        os.killpg(self.process.pid, number)

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

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def start_interruptible(directory, kind, iterations=1_000_000, prefix=(), flags=(), **options):
    """Start the interruptible experiment in a directory, or restore it."""
    arguments = (INTERRUPTIBLE, directory, kind, iterations, json.dumps(options))
    return Script(*arguments, directory=directory, prefix=prefix, flags=flags)


def still_alive(processes, within_s=10):
    """Wait until the processes are gone; return those that stay."""
    deadline = time.monotonic() + within_s
    while (
        alive := [process for process in processes if is_alive(process)]
    ) and time.monotonic() < deadline:
        os.sched_yield()
    return alive


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# The ways to interrupt.


def once(number):
    return lambda script: script.signal(number)


def twice(number):
    def deliver(script):
        script.signal(number)
        script.wait_for("TOLD")
        time.sleep(0.2)  # what comes at once is an echo of the first
        script.signal(number)

    return deliver


def to_all_processes(number):
    """Send a signal to every process of the job, as batch systems and service managers do."""

    def deliver(script):
        for process in [*script.descendants(), script.process]:
            process.send_signal(number)

    return deliver


def terminate_then_kill(after_s):
    def deliver(script):
        script.process.terminate()
        time.sleep(after_s)
        script.process.kill()

    return deliver


def kill_group(script):
    script.signal(signal.SIGKILL)


def kill_driver(script):
    script.process.kill()


def kill_driver_and_zygote(script):
    victims = [*psutil.Process(script.process.pid).children(), psutil.Process(script.process.pid)]
    for victim in victims:
        victim.suspend()  # neither may see the other die
    for victim in victims:
        victim.kill()


@dataclass(frozen=True)
class Fault:
    """A way to interrupt an experiment, and its expected exit codes."""

    deliver: Callable[[Script], None]
    exit_codes: tuple[int, ...]


FATAL_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
SIGNALS_TO_ALL = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
FAULTS = {
    **{number.name: Fault(once(number), (128 + number,)) for number in FATAL_SIGNALS},
    **{
        f"{number.name} to all processes": Fault(to_all_processes(number), (128 + number,))
        for number in SIGNALS_TO_ALL
    },
    "SIGTERM, then SIGKILL at once": Fault(terminate_then_kill(0.0), (-signal.SIGKILL, 143)),
    "SIGTERM, then SIGKILL": Fault(terminate_then_kill(0.05), (-signal.SIGKILL, 143)),
    "kill the driver": Fault(kill_driver, (-signal.SIGKILL,)),
    "kill the group": Fault(kill_group, (-signal.SIGKILL,)),
    "kill driver and zygote": Fault(kill_driver_and_zygote, (-signal.SIGKILL,)),
}


@dataclass(frozen=True)
class Observed:
    """The outcome of an experiment that was interrupted once, restored, and run to its end.

    Attributes:
        exit_code: Of the script that was interrupted.
        num_acknowledged: How many reports had been acknowledged by then.
        num_lost: How many of them are not in the journal.
        left_over: Command lines of processes that were still alive after 5 s.
        num_restore_lines: How often the line that restores the experiment was printed; a killed
            experiment may not print it.
        left_over_after_restore: Those of them that were still alive after the restore.
        restored: The endings after the restore.
        num_wrong_rows: How many trials' rows have a hole or a double, in the table or in
            ``result.json``.
    """

    exit_code: int
    num_acknowledged: int
    num_lost: int
    left_over: list[str]
    num_restore_lines: int
    left_over_after_restore: list[str]
    restored: str
    num_wrong_rows: int


def observe(directory, fault, kind="loader", delay_s=0.0):
    """Interrupt an experiment once, `delay_s` after its trials begin to report, and restore it.

    Args:
        directory: An empty directory.
        fault: How to interrupt it.
        kind: What is trained.
        delay_s: How long after the first reports.
    """
    script = start_interruptible(directory, kind)
    try:
        script.wait_for("READY")
        # The driver has received the first reports, and may not have answered yet.
        _wait_for_acknowledgement(directory)
        time.sleep(delay_s)
        born = script.descendants()
        fault.deliver(script)
        code = script.end()
    finally:
        script.close()
    left = still_alive(born, within_s=5)
    names = [" ".join(process.cmdline()) for process in left]
    acknowledged = _acknowledged(directory)
    lost = acknowledged - _stored(directory)
    again = start_interruptible(
        directory, kind, iterations=max(count for _, count in acknowledged) + 50
    )
    try:
        assert again.end() == 0, again.printed + again.errors
    finally:
        again.close()
    after = [" ".join(process.cmdline()) for process in still_alive(left, within_s=0)]
    wrong = [
        trial_id
        for trial_id in ("t00000", "t00001")
        if not _is_whole(directory / "interrupted", trial_id)
    ]
    num_lines = script.printed.count("Tuner.restore(")
    return Observed(
        code, len(acknowledged), len(lost), names, num_lines, after, again.said("ENDED"), len(wrong)
    )


def _wait_for_acknowledgement(directory):
    ledger, deadline = directory / "ledger", time.monotonic() + DEADLINE_S
    while not (ledger.exists() and ledger.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.001)


def _acknowledged(directory):
    lines = (directory / "ledger").read_text().splitlines()
    return {(trial_id, int(count)) for trial_id, count in map(str.split, lines)}


def _stored(directory):
    rows = JournalRows(directory / "interrupted")
    return {
        (trial_id, row["count"]) for trial_id in ("t00000", "t00001") for row in rows.of(trial_id)
    }


def _is_whole(experiment, trial_id):
    table = [row["count"] for row in JournalRows(experiment).of(trial_id)]
    file = [
        json.loads(line)["count"]
        for line in (experiment / trial_id / "result.json").read_text().splitlines()
    ]
    return table == file == list(range(1, len(table) + 1))
