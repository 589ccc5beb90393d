"""Hanging trials are killed and retried with a limit, and logged without one; others continue."""

import json
import logging
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

import tuner as tune
from tests.waiting import wait_until
from tuner import Checkpoint
from tuner.core import timeouts
from tuner.execution import checkpoint_uploads


@pytest.fixture
def executor():
    return "process"


def sleep_for_ever():
    threading.Event().wait()


def spin_in_c():
    sum(range(10**12))


def stop_oneself():
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_deaf_to_signals():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep_for_ever()


HANGS = [sleep_for_ever, spin_in_c, stop_oneself, wait_deaf_to_signals]


def train(config):
    """Report two epochs, hang in the first attempt if configured, and report two more."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "epoch.json").read_text()) + 1
    for epoch in range(start, 4):
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "epoch.json").write_text(str(epoch))
            tune.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(temporary))
        if epoch == 1 and config["hang"] is not None:
            HANGS[config["hang"]]()


def test_a_hanging_trial_is_killed_and_retried_from_its_checkpoint(fit, rows_of):
    space = {"hang": tune.grid_search([*range(len(HANGS)), None])}
    # Endless retries: on a machine under load a start alone may take longer than that.
    results = fit(
        train, space, failure={"max_failures": -1, "report_timeout_s": 1}, resources={"cpu": 5}
    )
    assert [str(result.status) for result in results] == ["TERMINATED"] * 5
    assert [[row["epoch"] for row in rows_of(result.path)] for result in results] == [
        [0, 1, 2, 3]
    ] * 5
    errors = [Path(result.path, "error.txt").read_text() for result in results[:4]]
    for error in errors:
        assert "no report for more than report_timeout_s=1" in error
    # Where Python can tell, the line that hung is named.
    for hang in (0, 1):
        assert HANGS[hang].__name__ in errors[hang]


def test_a_trial_that_stores_a_large_checkpoint_does_not_count_as_hanging(fit, tmp_path):
    ledger, hung, killed = (tmp_path / name for name in ("ledger", "hung", "killed"))

    def hang():
        """Hang once the other trial stores, and tell when that was too long."""
        wait_until(ledger.exists, "a checkpoint that is stored")
        if hung.exists():
            killed.touch()
            return
        hung.touch()
        sleep_for_ever()

    def store():
        genuine = checkpoint_uploads.commit_from

        def commit_from(*arguments, **options):
            is_first = not ledger.exists()
            note("begin")
            if is_first:
                wait_until(killed.exists, "the end of a trial that has hung as long")
            try:
                return genuine(*arguments, **options)
            finally:
                note("end")

        checkpoint_uploads.commit_from = commit_from
        with tempfile.TemporaryDirectory() as temporary:
            tune.report({"epoch": 0}, checkpoint=Checkpoint.from_directory(temporary))

    def note(text):
        with ledger.open("a") as file:
            file.write(f"{text}\n")

    # Endless retries: on a machine under load a start alone may take longer than that.
    stored, _ = fit(
        lambda config: hang() if config["hangs"] else store(),
        {"hangs": tune.grid_search([False, True])},
        failure={"max_failures": -1, "report_timeout_s": 1},
        resources={"cpu": 2},
    )
    assert stored.checkpoint
    # Nothing is killed while it stores.
    lines = ledger.read_text().split()
    assert lines == ["begin", "end"] * (len(lines) // 2)


class Naming(logging.Handler):
    """Makes a file when the second trial has been said to be silent."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def emit(self, record):
        if record.getMessage().startswith("trial t00001 has been silent for "):
            self.path.touch()


def test_without_a_limit_a_silent_trial_is_named_once_and_goes_on(
    fit, monkeypatch, caplog, tmp_path
):
    monkeypatch.setattr(timeouts, "_MIN_SILENCE_S", 0.2)
    named = tmp_path / "named"
    naming, logger = Naming(named), logging.getLogger("tuner")

    def train(config):
        for _ in range(20):
            tune.report({"epoch": 0})
        if config["is_slow"]:
            wait_until(named.exists, "the warning")
        tune.report({"epoch": 1})

    logger.addHandler(naming)
    try:
        with caplog.at_level(logging.WARNING):
            results = fit(train, {"is_slow": tune.grid_search([False, True])})
    finally:
        logger.removeHandler(naming)
    assert [result.metrics["epoch"] for result in results] == [1, 1]
    # On a machine under load, the other trial may have been silent as well.
    (warning,) = [
        message
        for message in caplog.messages
        if "may hang" in message and message.startswith("trial t00001 has been silent for ")
    ]
    assert "report_timeout_s" in warning
