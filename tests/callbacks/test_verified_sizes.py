"""Sizes of complete log files, which a restore need not read."""

import datetime as dt
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.callbacks.scenes import new_idle_writer
from tuner.callbacks import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from tuner.callbacks.files import append, trial_file
from tuner.callbacks.files.verified_sizes import VerifiedSizes, size_of
from tuner.callbacks.log_records import Fingerprint
from tuner.core.trial import Status, TerminationReason

VALUES = (3, 3, 1_700_000_003, 0.25)
TOLD = Fingerprint(*VALUES)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Record each size at once, also for short files."""
    monkeypatch.setattr(trial_file.TrialFileLogger, "verified_portion_bytes", 0)
    monkeypatch.setattr(trial_file.TrialFileLogger, "min_verified_results", 0)


@pytest.fixture(autouse=True)
def machine_start(monkeypatch):
    """Return a function that simulates a reboot."""

    def start(name):
        monkeypatch.setattr(trial_file, "boot_id", lambda: name)

    start("monday")
    return start


def sizes_at(book, boot_id):
    return VerifiedSizes(str(book), boot_id, portion_bytes=0)


@pytest.fixture
def book(tmp_path):
    return tmp_path / "logged" / "book"


@pytest.fixture
def paths(tmp_path):
    """Make two log files of a trial and return their paths."""
    found = [tmp_path / "t00000" / name for name in ("params.json", "result.json")]
    found[0].parent.mkdir()
    for path in found:
        path.write_text("12345")
    return list(map(str, found))


def now(paths):
    """Return the paths with the sizes that the files have now."""
    return [(path, size_of(path)) for path in paths]


def test_recorded_sizes_are_valid_for_the_next_driver(book, paths):
    first = sizes_at(book, "monday")
    assert first.add(TOLD, now(paths)) == book.stat().st_size
    assert sizes_at(book, "monday").holds(TOLD, now(paths))


def test_each_of_many_is_valid(book, paths):
    for number in range(5):
        sizes_at(book, "monday").add(Fingerprint(number), now(paths))
    assert all(
        sizes_at(book, "monday").holds(Fingerprint(number), now(paths)) for number in range(5)
    )


def test_a_fifo_in_the_place_of_the_file_is_replaced_and_not_waited_for(book, paths):
    book.parent.mkdir()
    os.mkfifo(book)
    verified_sizes = sizes_at(book, "monday")
    assert not verified_sizes.holds(TOLD, now(paths))
    verified_sizes.add(TOLD, now(paths))
    assert sizes_at(book, "monday").holds(TOLD, now(paths))


@pytest.mark.parametrize("told", [(2, *VALUES[1:]), (*VALUES[:3], 0.5), ()])
def test_sizes_of_files_with_other_results_are_not_valid(book, paths, told):
    sizes_at(book, "monday").add(TOLD, now(paths))
    assert not sizes_at(book, "monday").holds(Fingerprint(*told), now(paths))


@pytest.mark.parametrize(
    "change", [lambda path: path.write_text("1234"), lambda path: path.write_text("123456")]
)
@pytest.mark.parametrize("number", [0, 1])
def test_files_of_another_size_are_not_held(book, paths, change, number):
    sizes_at(book, "monday").add(TOLD, now(paths))
    change(Path(paths[number]))
    assert not sizes_at(book, "monday").holds(TOLD, now(paths))


def test_files_of_another_trial_are_not_held(book, paths, tmp_path):
    sizes_at(book, "monday").add(TOLD, now(paths))
    (tmp_path / "t00000").rename(tmp_path / "t00001")
    assert not sizes_at(book, "monday").holds(
        TOLD, now([path.replace("t00000", "t00001") for path in paths])
    )


def test_a_directory_that_was_moved_takes_its_seals_with_it(book, paths, tmp_path):
    sizes_at(book, "monday").add(TOLD, now(paths))
    (tmp_path / "elsewhere").mkdir()
    for name in ("logged", "t00000"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    moved = [path.replace("t00000", "elsewhere/t00000") for path in paths]
    assert sizes_at(tmp_path / "elsewhere" / "logged" / "book", "monday").holds(TOLD, now(moved))


def test_no_size_is_valid_after_a_reboot(book, paths):
    sizes_at(book, "monday").add(TOLD, now(paths))
    later = sizes_at(book, "tuesday")
    assert not later.holds(TOLD, now(paths))
    later.add(TOLD, now(paths))
    assert not sizes_at(book, "monday").holds(TOLD, now(paths))
    assert sizes_at(book, "tuesday").holds(TOLD, now(paths))


def test_where_nothing_tells_one_start_from_another_nothing_is_sealed(book, paths):
    assert sizes_at(book, "").add(TOLD, now(paths)) == 0
    assert not book.exists()
    assert not sizes_at(book, "").holds(TOLD, now(paths))


def test_no_files_are_never_valid(book, paths):
    assert sizes_at(book, "monday").add(TOLD, []) == 0
    sizes_at(book, "monday").add(TOLD, now(paths))
    assert not sizes_at(book, "monday").holds(TOLD, [])


@pytest.mark.parametrize(
    "odd", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), float("nan"), np.int64(3), object]
)
def test_any_value_that_is_reported_as_the_time_can_be_recorded(book, paths, odd):
    sizes_at(book, "monday").add(Fingerprint(3, 3, odd, 0.25), now(paths))
    assert sizes_at(book, "monday").holds(Fingerprint(3, 3, odd, 0.25), now(paths))


def test_sizes_of_small_files_are_recorded_in_portions(book, paths):
    book_of = VerifiedSizes(str(book), "monday", portion_bytes=25)
    assert [book_of.add(Fingerprint(number), now(paths)) > 0 for number in range(6)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert all(
        sizes_at(book, "monday").holds(Fingerprint(number), now(paths)) for number in range(6)
    )


def test_a_torn_line_invalidates_itself_and_the_next(book, paths):
    for number in range(2):
        sizes_at(book, "monday").add(Fingerprint(number), now(paths))
    book.write_bytes(book.read_bytes()[:-3])
    for number in range(2, 4):
        sizes_at(book, "monday").add(Fingerprint(number), now(paths))
    assert [
        sizes_at(book, "monday").holds(Fingerprint(number), now(paths)) for number in range(4)
    ] == [
        True,
        False,
        False,
        True,
    ]


def test_a_head_that_was_torn_costs_everything_until_then(book, paths):
    sizes_at(book, "monday").add(Fingerprint(0), now(paths))
    book.write_bytes(book.read_bytes()[:5])
    assert not sizes_at(book, "monday").holds(Fingerprint(0), now(paths))
    sizes_at(book, "monday").add(Fingerprint(1), now(paths))
    assert sizes_at(book, "monday").holds(Fingerprint(1), now(paths))


def test_a_full_disk_prevents_only_the_recording(book, paths, monkeypatch):
    book_of = sizes_at(book, "monday")
    with monkeypatch.context() as patch:
        patch.setattr(
            append,
            "_write_all",
            lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
        )
        assert book_of.add(Fingerprint(0), now(paths)) == 0
    book_of.add(Fingerprint(1), now(paths))
    assert [
        sizes_at(book, "monday").holds(Fingerprint(number), now(paths)) for number in range(2)
    ] == [
        False,
        True,
    ]


def test_forgotten_sizes_are_not_valid(book, paths):
    sizes_at(book, "monday").add(TOLD, now(paths))
    later = sizes_at(book, "monday")
    later.forget()
    assert not later.holds(TOLD, now(paths))


@pytest.fixture(params=[CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback])
def begun(request, tmp_path):
    """Return a function that returns the logger of another driver."""

    def begin():
        logger = request.param(new_idle_writer())
        logger.setup(experiment_path=str(tmp_path))
        return logger

    return begin


@pytest.fixture
def finish(make_trial, report):
    """Return a function that passes all events of a trial to a logger, and returns the trial."""

    def finish(logger, num_reports=3):
        trial = make_trial()
        logger.log_trial_start(trial)
        for iteration in range(1, num_reports + 1):
            times = {"timestamp": 1_700_000_000 + iteration, "time_total_s": iteration / 4}
            trial.last_result = report(trial, iteration, loss=0.5, **times)
            logger.log_trial_result(iteration, trial, trial.last_result)
        trial.move_to(Status.TERMINATED)
        trial.num_rows, trial.ending = num_reports, TerminationReason.COMPLETED
        logger.log_trial_end(trial)
        logger.writer.flush()
        return trial

    return finish


@pytest.fixture
def opened(monkeypatch):
    """Return the names of the log files of which the contents were asked for, from now on."""
    found = []

    def spied(kind, genuine):
        def is_complete(self, trial):
            found.append(kind.__name__)
            return genuine(self, trial)

        return is_complete

    for kind in trial_file.TrialFile.__subclasses__():
        monkeypatch.setattr(kind, "is_complete", spied(kind, kind.is_complete))
    return found


def finish_again(logger, trial):
    logger.log_trial_start(trial)
    logger.log_trial_result(3, trial, trial.last_result)
    trial.num_rows = 1
    logger.log_trial_end(trial)
    logger.writer.flush()


def audit(logger, trial, results=None):
    logger.audit([trial], lambda trial_id: results[trial_id])
    logger.writer.flush()


def test_a_trial_that_is_over_is_not_read_again(begun, finish, opened):
    trial = finish(begun())
    assert begun().has_verified_size(trial)
    audit(begun(), trial)
    assert opened == []


def test_a_file_that_was_changed_is_read_and_rewritten(begun, finish, opened, report):
    trial = finish(begun())
    for path in Path(trial.local_path).iterdir():
        path.write_bytes(path.read_bytes()[:-30])
    results = [report(trial, 3, loss=0.5, timestamp=1_700_000_003, time_total_s=0.75)] * 3
    audit(begun(), trial, {trial.trial_id: results})
    assert len(opened) == 1
    assert begun().is_complete(trial)


def test_after_another_start_of_the_machine_it_is_read_once(begun, finish, opened, machine_start):
    trial = finish(begun())
    machine_start("tuesday")
    audit(begun(), trial)
    assert len(opened) == 1
    audit(begun(), trial)
    assert len(opened) == 1


def test_zeros_that_a_power_cut_has_left_are_found(begun, finish, machine_start, report):
    trial = finish(begun())
    machine_start("tuesday")
    for path in Path(trial.local_path).iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert not begun().is_complete(trial)


def test_one_that_goes_on_is_not_sealed_until_it_is_over_again(begun, finish, report):
    trial = finish(begun())
    logger = begun()
    trial.move_to(Status.RUNNING)
    trial.ending, trial.attempt, trial.resumed_iteration = None, 2, 3
    logger.log_trial_start(trial)
    trial.last_result, trial.num_rows = (
        report(trial, 4, loss=0.5, timestamp=1_700_000_004, time_total_s=1.0),
        4,
    )
    logger.log_trial_result(4, trial, trial.last_result)
    logger.writer.flush()
    assert not begun().has_verified_size(trial)
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    logger.log_trial_end(trial)
    logger.writer.flush()
    assert begun().has_verified_size(trial)


def test_short_ones_are_not_sealed(begun, finish, opened, monkeypatch, tmp_path):
    monkeypatch.setattr(trial_file.TrialFileLogger, "min_verified_results", 4)
    trial = finish(begun())
    audit(begun(), trial)
    assert len(opened) == 1
    assert not (tmp_path / "logged").exists()


def test_one_that_misses_results_is_not_sealed(begun, make_trial, report, monkeypatch, tmp_path):
    monkeypatch.setattr(trial_file, "_MAX_BACKLOG", 1)
    logger, trial = begun(), make_trial()
    logger.log_trial_start(trial)
    with monkeypatch.context() as patch:
        patch.setattr(
            trial_file,
            "append",
            lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")),
        )
        for iteration in (1, 2):
            logger.log_trial_result(iteration, trial, report(trial, iteration))
            logger.writer.write_batch()
    trial.last_result = report(trial, 3)
    logger.log_trial_result(3, trial, trial.last_result)
    trial.move_to(Status.TERMINATED)
    trial.num_rows, trial.ending = 3, TerminationReason.COMPLETED
    logger.log_trial_end(trial)
    logger.writer.flush()
    assert not (tmp_path / "logged").exists()
    assert not begun().is_complete(trial)


def test_a_recent_file_is_rewritten_only_if_its_size_is_not_recorded(
    begun, finish, opened, report, machine_start
):
    def results_of(trial_id):
        asked.append(trial_id)
        return [report(trial, 3, loss=0.5, timestamp=1_700_000_003, time_total_s=0.75)] * 3

    trial, asked = finish(begun()), []
    for start in ("monday", "tuesday"):
        machine_start(start)
        begun().on_experiment_restored(Path(), [trial], [trial.trial_id], results_of)
        assert opened == []
        assert asked == [trial.trial_id] * (start == "tuesday")


def test_where_nothing_is_written_nothing_is_missing(make_trial):
    logger = TBXLoggerCallback(new_idle_writer())
    logger.is_on = False
    assert logger.has_verified_size(make_trial())
    assert logger.is_complete(make_trial())


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_file_without_a_readable_size_is_neither_recorded_nor_valid(begun, finish, is_gone):
    logger = begun()
    trial = finish(logger)
    path = Path(logger.open_file(trial.local_path).paths()[-1])
    path.unlink()
    if not is_gone:
        path.symlink_to(path)
    assert not begun().has_verified_size(trial)
    logger.note_verified(logger.open_file(trial.local_path), Fingerprint(0))


def test_sizes_are_those_on_the_disk_after_a_restart_of_the_trial(begun, finish, make_trial):
    logger = begun()
    trial = finish(logger)
    trial.attempt, trial.superseded_attempt = 2, 1
    finish_again(logger, trial)
    file = logger.open_file(trial.local_path)
    assert file.sizes() == [(path, size_of(path)) for path in file.paths()]
    assert begun().has_verified_size(trial)


def test_the_book_says_what_it_seals_in_a_way_that_people_can_read(begun, finish, tmp_path):
    logger = begun()
    trial = finish(logger)
    head, line = map(
        json.loads, (tmp_path / "logged" / type(logger).__name__).read_text().splitlines()
    )
    told, *files = line
    assert (head, told) == ("monday", [3, 3, 1_700_000_003, 0.75])
    assert [(tmp_path / name).stat().st_size for name, _ in files] == [size for _, size in files]
    assert {Path(name).parent.name for name, _ in files} == {trial.trial_id}
