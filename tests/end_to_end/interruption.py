"""Interrupt experiments that run as scripts, and observe what they leave behind.

`FAULTS` are the ways to interrupt one, and `observe` does it once: a test asserts what it returns,
a benchmark repeats it and counts.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.end_to_end.scripts import interruptible
from tests.waiting import wait_until
from tuner.driver import signals
from tuner.journal.rows import JournalRows

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTIBLE = Path(interruptible.__file__)
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


def still_alive(processes, but_for=()):
    """Wait until the processes are gone; return those that stay.

    Args:
        processes: The processes.
        but_for: Command lines of those that may stay.
    """

    def alive():
        return [process for process in processes if is_alive(process)]

    def has_ended():
        return all(command_of(process) in but_for for process in alive())

    with contextlib.suppress(AssertionError):
        wait_until(has_ended)
    return alive()


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


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
        threading.Event().wait(2 * signals._ECHO_S)  # what comes at once is an echo of the first
        script.signal(number)

    return deliver


def to_all_processes(number):
    """Send a signal to every process of the job, as batch systems and service managers do."""

    def deliver(script):
        for process in [*script.descendants(), script.process]:
            process.send_signal(number)

    return deliver


def terminate_then_kill(script):
    script.process.terminate()
    script.wait_for("TOLD")
    script.process.kill()


def terminate_and_kill(script):
    script.process.terminate()
    script.process.kill()


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
    """A way to interrupt an experiment.

    Attributes:
        deliver: Interrupts the experiment of a script.
        exit_codes: Those that may be expected.
        may_leave: Command lines of processes that may stay until the restore finds them.
    """

    deliver: Callable[[Script], None]
    exit_codes: tuple[int, ...]
    may_leave: tuple[str, ...] = ()


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
    "SIGTERM, then SIGKILL at once": Fault(terminate_and_kill, (-signal.SIGKILL, 143)),
    "SIGTERM, then SIGKILL": Fault(terminate_then_kill, (-signal.SIGKILL, 143)),
    "kill the driver": Fault(kill_driver, (-signal.SIGKILL,)),
    "kill the group": Fault(kill_group, (-signal.SIGKILL,)),
    # What has left its group and loses driver and zygote at once may stay.
    "kill driver and zygote": Fault(kill_driver_and_zygote, (-signal.SIGKILL,), ("sleep 600",)),
}


@dataclass(frozen=True)
class Observed:
    """The outcome of an experiment that was interrupted once, restored, and run to its end.

    Attributes:
        exit_code: Of the script that was interrupted.
        num_acknowledged: How many reports had been acknowledged by then.
        num_lost: How many of them are not in the journal.
        left_over: Command lines of processes that stayed.
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


def observe(directory, fault, kind="loader", after=1):
    """Interrupt an experiment once, after its trials have begun to report, and restore it.

    Args:
        directory: An empty directory.
        fault: How to interrupt it.
        kind: What is trained.
        after: After how many acknowledged reports.
    """
    script = start_interruptible(directory, kind)
    try:
        script.wait_for("READY")
        # The driver has received the first reports, and may not have answered yet.
        wait_until(lambda: len(_acknowledged(directory)) >= after, "an acknowledgement")
        born = script.descendants()
        fault.deliver(script)
        code = script.end()
    finally:
        script.close()
    left = still_alive(born, but_for=fault.may_leave)
    names = [command_of(process) for process in left]
    acknowledged = _acknowledged(directory)
    lost = acknowledged - _stored(directory)
    # In another process than the one that began it.
    iterations = max(count for _, count in acknowledged) + 50
    restored = interruptible.declare(directory, kind, iterations, verbose=0).fit()
    endings = str([f"{result.status} {result.ending}" for result in restored])
    left = [command_of(process) for process in still_alive(left)]
    wrong = [
        trial_id
        for trial_id in ("t00000", "t00001")
        if not _is_whole(directory / "interrupted", trial_id)
    ]
    num_lines = script.printed.count("Tuner.restore(")
    return Observed(code, len(acknowledged), len(lost), names, num_lines, left, endings, len(wrong))


def _acknowledged(directory):
    ledger = directory / "ledger"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
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
