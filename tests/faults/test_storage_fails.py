"""Experiments that run as scripts, on storage that is full, read-only, or comes back."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import tuner as tune
from tests.faults.script import HALT_EPOCH, HEARD, NUM_EPOCHS
from tests.waiting import wait_until
from tuner.errors import StorageError
from tuner.journal.rows import JournalRows

SCRIPT = Path(__file__).with_name("script.py")
PATIENCE_S = 60
BEFORE_HALT = 2 * (HALT_EPOCH - 1)
ALL = f"{NUM_EPOCHS} {NUM_EPOCHS} 0\n"


class Driver:
    """A driver's process and its output so far."""

    def __init__(self, how, storage, ledger, retry_s=60):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, SCRIPT, how, storage, ledger, str(retry_s)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.errors = []
        self._listener = threading.Thread(
            target=lambda: self.errors.extend(iter(self.process.stderr.readline, "")), daemon=True
        )
        self._listener.start()

    def wait_for(self, is_true):
        wait_until(lambda: is_true() or self.process.poll() is not None)
        assert is_true(), self.said

    @property
    def said(self):
        return "".join(self.errors)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        """Return what it prints, once it has ended."""
        out = self.process.stdout.read()
        self.process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return out


@pytest.fixture
def start():
    """Return a function that starts a driver, which does not outlive the test."""
    drivers = []

    def new(*arguments, **options):
        drivers.append(Driver(*arguments, **options))
        return drivers[-1]

    yield new
    for driver in drivers:
        if driver.process.poll() is None:
            driver.kill()


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger"
    path.touch()
    return path


def go_on(ledger):
    """Let the trials, which wait, go on."""
    ledger.with_name("go").touch()


def acknowledged(ledger):
    return [tuple(line.split()) for line in ledger.read_text().splitlines()]


def journaled(directory):
    rows = JournalRows(directory)
    return {
        (trial_id, str(row["training_iteration"]))
        for trial_id in ("t00000", "t00001")
        for row in rows.of(trial_id)
    }


def fill(path):
    """Take all the space that is left, to the last byte."""
    with (path / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


def logs_of(directory):
    return [
        len(path.read_text().splitlines()) for path in sorted(directory.glob("t0*/result.json"))
    ]


def test_trials_wait_while_the_disk_is_full_and_go_on_when_there_is_space(start, mount, ledger):
    storage = mount("small", "size=4m")
    driver = start("new", storage, ledger)
    driver.wait_for(lambda: len(acknowledged(ledger)) == BEFORE_HALT)
    fill(storage)
    go_on(ledger)
    driver.wait_for(lambda: "cannot be written" in driver.said)
    # The last page of the journal may have had some room.
    assert len(acknowledged(ledger)) < 2 * NUM_EPOCHS
    (storage / "filler").unlink()
    assert driver.end() == ALL, driver.said
    assert driver.process.returncode == 0
    assert (
        len(
            re.findall(
                r"journal \S+\.log cannot be written: .*No space left on device", driver.said
            )
        )
        == 1
    )
    assert Counter(acknowledged(ledger)) == Counter(journaled(storage / "exp"))
    assert logs_of(storage / "exp") == [NUM_EPOCHS, NUM_EPOCHS]


@pytest.mark.parametrize("num_signals", [1, 2])
def test_a_driver_that_waits_for_space_still_obeys(start, mount, ledger, num_signals):
    storage = mount("small", "size=4m")
    driver = start("new", storage, ledger)
    driver.wait_for(lambda: len(acknowledged(ledger)) == BEFORE_HALT)
    fill(storage)
    go_on(ledger)
    driver.wait_for(lambda: "cannot be written" in driver.said)
    for number in range(num_signals):
        driver.wait_for(lambda number=number: driver.said.count(HEARD) == number)
        driver.process.send_signal(signal.SIGINT)
    assert driver.end() == ""
    assert driver.process.returncode not in (0, -signal.SIGINT)
    check_restorable(start, driver, storage, ledger, (storage / "filler").unlink)


def check_restorable(start, driver, storage, ledger, mend):
    assert "Tuner.restore(" in driver.said
    assert set(acknowledged(ledger)) <= journaled(storage / "exp")
    mend()
    again = start("restore", storage, ledger)
    assert again.end() == ALL, again.said
    assert logs_of(storage / "exp") == [NUM_EPOCHS, NUM_EPOCHS]


def test_storage_that_stays_read_only_ends_the_experiment_with_an_error_and_nothing_lost(
    start, tmp_path, ledger
):
    driver = start("new", tmp_path, ledger, retry_s=1)
    driver.wait_for(lambda: len(acknowledged(ledger)) == BEFORE_HALT)
    flag = ledger.with_name("read-only")
    flag.touch()
    go_on(ledger)
    assert driver.end() == ""
    assert driver.process.returncode == 1
    assert re.search(
        r"StorageError: journal \S+\.log cannot be written: .*Read-only file system.*given up "
        r"after 1 s",
        driver.said,
    )
    check_restorable(start, driver, tmp_path, ledger, flag.unlink)


def test_storage_that_is_read_only_for_a_moment_costs_nothing(start, tmp_path, ledger):
    driver = start("new", tmp_path, ledger)
    driver.wait_for(lambda: len(acknowledged(ledger)) == BEFORE_HALT)
    flag = ledger.with_name("read-only")
    flag.touch()
    go_on(ledger)
    driver.wait_for(lambda: "cannot be written" in driver.said)
    flag.unlink()
    assert driver.end() == ALL, driver.said
    assert Counter(acknowledged(ledger)) == Counter(journaled(tmp_path / "exp"))


def never(config):
    raise AssertionError("a trial has run")


@pytest.mark.parametrize("name", ["exp", None])
@pytest.mark.parametrize("options", ["ro,size=1m", "size=16k"])
def test_where_nothing_can_be_written_nothing_is_begun_and_nothing_left(mount, options, name):
    storage = mount("useless", options)
    if "ro" not in options:
        fill(storage)
    before = sorted(storage.iterdir())
    with pytest.raises(StorageError, match=re.escape(str(storage))):
        tune.Tuner(
            never, run_config=tune.RunConfig(storage_path=storage, name=name, verbose=0)
        ).fit()
    assert sorted(storage.iterdir()) == before
