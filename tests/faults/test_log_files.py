"""Log files agree with the journal after damage to them or errors of the disk."""

import csv
import errno
import json
import os
from pathlib import Path

import pytest

import tuner as tune
from tests.waiting import wait_until
from tuner.callbacks.files import append, background_writer
from tuner.callbacks.files.event_file import records
from tuner.callbacks.files.trial_file import TrialFileLogger
from tuner.journal.rows import JournalRows

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def train(config):
    for epoch in range(1, 6):
        tune.report({"loss": config["x"] / epoch, "text": "a\nb" if config["x"] > 1 else "c"})


@pytest.fixture
def given(tmp_path, monkeypatch):
    monkeypatch.setattr(background_writer, "_PERIOD_S", 0.02)
    return {
        "param_space": {"x": tune.grid_search([1.0, 2.0])},
        "run_config": tune.RunConfig(
            storage_path=tmp_path, name="exp", verbose=0, executor="inline", durability="process"
        ),
    }


@pytest.fixture
def directory(tmp_path, given):
    """Run an experiment to its end."""
    tune.Tuner(train, **given).fit()
    return tmp_path / "exp"


@pytest.fixture
def restore(tmp_path, given, monkeypatch):
    """Return a function that restores it and treats no trial as recent."""
    repair = TrialFileLogger.catch_up_with_journal
    monkeypatch.setattr(
        TrialFileLogger,
        "catch_up_with_journal",
        lambda logger, path, trials, recent, results_of: repair(
            logger, path, trials, (), results_of
        ),
    )
    return lambda: tune.Tuner.restore(tmp_path / "exp", train, **given).fit()


def losses_in(trial_dir):
    with (trial_dir / "progress.csv").open(newline="") as table:
        from_csv = [float(row["loss"]) for row in csv.DictReader(table)]
    from_json = [
        json.loads(line)["loss"] for line in (trial_dir / "result.json").read_text().splitlines()
    ]
    return from_csv, from_json, losses_in_events(events_of(trial_dir))


def losses_in_events(path):
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for event in (Event.FromString(record[12:-4]) for record in records(path.read_bytes())):
        # A restart: what was there of this step and later ones no longer counts.
        if event.HasField("session_log"):
            found = [(step, loss) for step, loss in found if step < event.step]
        found += [
            (event.step, value.simple_value) for value in event.summary.value if value.tag == "loss"
        ]
    return [loss for _, loss in found]


def events_of(trial_dir):
    (path,) = trial_dir.glob("events.out.tfevents.*")
    return path


def check_they_say_what_the_journal_says(directory):
    rows = JournalRows(directory)
    for trial_dir in directory.glob("t0*"):
        expected = [row["loss"] for row in rows.of(trial_dir.name)]
        assert len(expected) == 5
        for found in losses_in(trial_dir):
            assert found == pytest.approx(expected)


def without_last_lines(data):
    return b"".join(data.splitlines(keepends=True)[:-2])


def without_a_middle_line(data):
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:2] + lines[4:])


DAMAGES = {
    "lost its end": without_last_lines,
    "lost a row": without_a_middle_line,
    "was torn": lambda data: data[:-7],
    "is empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["result.json", "progress.csv"])
def test_a_log_that_lacks_rows_is_written_anew_however_long_ago_it_lost_them(
    directory, restore, name, damage
):
    for trial_dir in directory.glob("t0*"):
        path = trial_dir / name
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    restore()
    check_they_say_what_the_journal_says(directory)


@pytest.mark.parametrize("name", ["result.json", "progress.csv", "events.out.tfevents.*"])
def test_a_log_that_is_gone_is_written_anew(directory, restore, name):
    for path in directory.glob(f"t0*/{name}"):
        path.unlink()
    restore()
    check_they_say_what_the_journal_says(directory)


@pytest.mark.parametrize("keep", [3, 5, 7])
def test_an_event_file_that_lacks_its_last_records_is_written_anew(directory, restore, keep):
    for trial_dir in directory.glob("t0*"):
        path = events_of(trial_dir)
        path.write_bytes(b"".join(list(records(path.read_bytes()))[:keep]))
    restore()
    check_they_say_what_the_journal_says(directory)


def test_an_event_file_that_is_torn_is_written_anew(directory, restore):
    for trial_dir in directory.glob("t0*"):
        path = events_of(trial_dir)
        path.write_bytes(path.read_bytes()[:-3])
    restore()
    check_they_say_what_the_journal_says(directory)


def test_logs_that_are_whole_are_left_alone(directory, restore):
    paths = sorted(
        path for path in directory.glob("t0*/*") if path.name not in {"stdout", "stderr"}
    )
    before = [(path, path.stat().st_ino, path.read_bytes()) for path in paths]
    restore()
    assert [(path, path.stat().st_ino, path.read_bytes()) for path in paths] == before


class FullFor:
    """Makes a given number of appends to log files fail."""

    def __init__(self, num_failures, genuine):
        self.num_left = num_failures
        self._genuine = genuine

    def __call__(self, descriptor, data, disk):
        if self.num_left > 0:
            self.num_left -= 1
            os.write(descriptor, data[: len(data) // 2])
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - len(data) // 2)
            raise FULL
        return self._genuine(descriptor, data, disk)


@pytest.mark.parametrize("num_failures", [1, 2, 5])
def test_logs_are_whole_in_the_end_where_the_disk_was_full_for_a_while(
    tmp_path, given, monkeypatch, num_failures, caplog
):
    full = FullFor(num_failures, append._write_all)
    monkeypatch.setattr(append, "_write_all", full)

    class Patient(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["training_iteration"] == 2:
                wait_until(lambda: not full.num_left)

    given["run_config"] = tune.RunConfig(
        storage_path=tmp_path,
        name="exp",
        verbose=0,
        executor="inline",
        durability="process",
        callbacks=[Patient()],
    )
    tune.Tuner(train, **given).fit()
    check_they_say_what_the_journal_says(tmp_path / "exp")
    assert sum("cannot write" in record.message for record in caplog.records) == 1


def test_a_log_that_could_never_be_written_is_reported_and_repaired_at_the_restore(
    tmp_path, given, monkeypatch, caplog, restore
):
    with monkeypatch.context() as patch:
        patch.setattr(append, "_write_all", FullFor(10**9, None))
        grid = tune.Tuner(train, **given).fit()
    assert grid.num_terminated == 2
    assert sum("log files are incomplete" in record.getMessage() for record in caplog.records) == 1
    assert not any(record.exc_info for record in caplog.records)
    restore()
    check_they_say_what_the_journal_says(tmp_path / "exp")


def test_a_failure_that_could_not_be_written_down_is_written_later(tmp_path, given, monkeypatch):
    def fails(config):
        raise ValueError(f"x is {config['x']}")

    full = FullFor(1, append._write_all)
    monkeypatch.setattr(append, "_write_all", full)
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    tune.Tuner(fails, **given).fit()
    texts = [
        Path(tmp_path, "exp", trial, "error.txt").read_text() for trial in ("t00000", "t00001")
    ]
    assert [text.count("ValueError: x is") > 0 for text in texts] == [True, True]
