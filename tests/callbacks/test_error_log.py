"""error.txt."""

import os
import re
from pathlib import Path

import pytest

from tuner.callbacks.files.error_log import ErrorLog
from tuner.core.worker_records import Failure


def test_failures_are_appended_by_attempt_without_colour_codes(make_trial):
    trial, log = make_trial(), ErrorLog()
    trial.failures.append(
        Failure(
            "ValueError", "bad \x1b[31mred\x1b[0m value", "Traceback:\n  \x1b]0;title\x07line\n"
        )
    )
    log.on_trial_recover(1, [], trial)
    trial.attempt = 2
    log.on_trial_start(1, [], trial)
    trial.failures.append(Failure("killed by SIGSEGV", ""))
    log.on_trial_error(2, [], trial)
    text = (Path(trial.local_path) / "error.txt").read_text()
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text) == (
        "Failure #1 (attempt 1, DATE)\nValueError: bad red value\nTraceback:\n  line\n\n"
        "Started again (attempt 2, DATE)\n\n"
        "Failure #2 (attempt 2, DATE)\nkilled by SIGSEGV\n\n"
    )


def test_a_trial_that_failed_before_it_was_laid_out_has_its_file_in_the_experiment(
    make_trial, tmp_path
):
    trial, log = make_trial("t00009"), ErrorLog()
    trial.local_path = ""
    trial.failures.append(Failure("ValueError", "needs 3 GPUs, there are 2"))
    log.setup(experiment_path=tmp_path)
    log.on_trial_error(1, [], trial)
    assert "needs 3 GPUs" in (tmp_path / "t00009" / "error.txt").read_text()


@pytest.mark.parametrize("text", ["\ud800", "ünï"])
def test_any_text_can_be_written(make_trial, text):
    trial = make_trial()
    trial.failures.append(Failure("ValueError", text))
    ErrorLog().on_trial_error(1, [], trial)
    assert (Path(trial.local_path) / "error.txt").stat().st_size


def test_a_fifo_in_the_place_of_the_file_is_told_of_and_not_waited_for(make_trial, caplog):
    trial = make_trial()
    trial.failures.append(Failure("ValueError", "bad"))
    Path(trial.local_path).mkdir()
    os.mkfifo(Path(trial.local_path, "error.txt"))
    ErrorLog().on_trial_error(1, [], trial)
    assert "error.txt: [Errno 6] No such device or address" in caplog.text


def test_of_the_starts_after_a_failure_only_the_first_is_told(make_trial):
    trial, log = make_trial(), ErrorLog()
    log.on_trial_start(1, [], trial)
    assert not Path(trial.local_path, "error.txt").exists()
    trial.failures.append(Failure("ValueError", "bad"))
    log.on_trial_recover(1, [], trial)
    for trial.attempt in (2, 3, 4):  # paused and resumed
        log.on_trial_start(1, [], trial)
    assert Path(trial.local_path, "error.txt").read_text().count("Started again") == 1


def test_a_file_that_cannot_be_written_is_told_of_once_until_it_can(make_trial, caplog):
    trial, log = make_trial(), ErrorLog()
    trial.failures.append(Failure("ValueError", "bad"))
    path = Path(trial.local_path)
    for _ in range(2):
        path.write_text("in the way of the directory")
        for _ in range(3):
            log.on_trial_recover(1, [], trial)
        path.unlink()
        path.mkdir()
        log.on_experiment_end([trial])
        (path / "error.txt").unlink()
        path.rmdir()
    assert caplog.text.count("retrying later") == 2
