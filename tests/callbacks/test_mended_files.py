"""Repair of log files: minimal cases of faults that the simulation has found."""

import csv
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.callbacks.scenes import new_idle_writer
from tuner.callbacks import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from tuner.callbacks.files import append, csv_logger, json_logger, tensorboard_logger, trial_file
from tuner.callbacks.files.event_file import EventEncoder, records, shown
from tuner.core.trial import AppliedExploit, Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord


def csv_iterations(home):
    with (home / "progress.csv").open(newline="") as table:
        return [int(row["training_iteration"]) for row in csv.DictReader(table)]


def json_iterations(home):
    return [
        json.loads(line)["training_iteration"]
        for line in (home / "result.json").read_text().splitlines()
    ]


def event_iterations(home):
    [path] = home.glob("events.*")
    return [step for step, _ in shown(records(path.read_bytes()))]


READERS = {
    CSVLoggerCallback: csv_iterations,
    JsonLoggerCallback: json_iterations,
    TBXLoggerCallback: event_iterations,
}


@pytest.fixture(params=READERS)
def logger(request):
    return request.param(new_idle_writer())


@pytest.fixture
def told(logger):
    """Return a function that flushes the writer and returns the iterations in a trial's file."""

    def read(trial):
        logger.writer.flush()
        return READERS[type(logger)](Path(trial.local_path))

    return read


def test_what_is_not_written_yet_stands_before_what_follows_it(
    logger, told, make_trial, report, monkeypatch
):
    trial = make_trial()
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.INTERRUPTED
    with monkeypatch.context() as patch:
        patch.setattr(
            trial_file, "append", lambda *_: (_ for _ in ()).throw(OSError(28, "no space"))
        )
        logger.rewrite(trial, [report(trial, iteration) for iteration in (1, 2, 3)])
        logger.writer.write_batch()
    trial.move_to(Status.RUNNING)
    trial.ending, trial.attempt = None, 2
    logger.log_trial_start(trial)
    logger.log_trial_result(4, trial, report(trial, 4))
    assert told(trial) == [1, 2, 3, 4]


@pytest.fixture
def begin(logger, make_trial, report, tmp_path):
    """Return a function that begins an experiment, logs some results of a trial and returns it."""

    def begin(num_reports, logger=logger, experiment=tmp_path):
        logger.setup(experiment_path=experiment)
        trial = make_trial()
        logger.log_trial_start(trial)
        for iteration in range(1, num_reports + 1):
            logger.log_trial_result(iteration, trial, report(trial, iteration))
        return trial

    return begin


def test_files_of_a_driver_whose_journal_was_lost_are_superseded(logger, told, begin):
    told(begin(5))
    assert told(begin(2, type(logger)(logger.writer))) == [1, 2]


def test_of_a_trial_that_never_started_nothing_is_left_that_a_forgotten_driver_has_written(
    logger, told, begin, make_trial, tmp_path
):
    """A power cut has destroyed its journal."""
    told(begin(5))
    again = type(logger)(logger.writer)
    again.setup(experiment_path=tmp_path)
    trial = make_trial()
    trial.move_to(Status.TERMINATED)
    trial.attempt, trial.ending = 0, TerminationReason.STOPPED_EARLY
    again.log_trial_end(trial)
    logger.writer.flush()
    assert not Path(trial.local_path, "result.json").exists()
    assert not Path(trial.local_path, "progress.csv").exists()
    assert all(
        list(shown(records(path.read_bytes()))) == []
        for path in Path(trial.local_path).glob("events.*")
    )


def test_of_a_trial_that_never_started_nothing_is_written(logger, make_trial, tmp_path):
    logger.setup(experiment_path=tmp_path)
    trial = make_trial()
    trial.move_to(Status.TERMINATED)
    trial.attempt, trial.ending = 0, TerminationReason.STOPPED_EARLY
    logger.log_trial_end(trial)
    logger.writer.flush()
    assert not Path(trial.local_path).exists()


def test_in_the_directory_of_a_trial_that_had_none_nothing_is_looked_for(
    logger, told, begin, monkeypatch
):
    trial = begin(2)
    Path(trial.local_path).mkdir()  # as its worker does
    for module in (csv_logger, json_logger, tensorboard_logger):
        monkeypatch.setattr(module, "remove", None)
    for module, name in [(append, "_make_folder"), (tensorboard_logger, "_event_files")]:
        monkeypatch.setattr(module, name, None)
    assert told(trial) == [1, 2]
    assert not logger.takes(trial.local_path)
    assert logger.takes(f"{trial.local_path}1")


@pytest.mark.parametrize("name", ["params.json", "result.json", "progress.csv"])
def test_anything_in_the_place_of_a_new_file_is_replaced(told, begin, name):
    trial = begin(2)
    Path(trial.local_path).mkdir()
    Path(trial.local_path, name).write_text("nonsense")
    assert told(trial) == [1, 2]


@pytest.mark.parametrize(
    "place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["FIFO", "link"]
)
def test_what_lies_in_the_place_of_a_file_is_replaced_and_neither_read_nor_waited_for(
    logger, told, begin, report, place
):
    trial = begin(3)
    told(trial)
    trial.num_rows, trial.last_result = 3, report(trial, 3)
    for path in Path(trial.local_path).iterdir():
        path.unlink()
        place(path)
    later = type(logger)(logger.writer)
    assert not later.is_complete(trial)
    later.mend(trial, lambda _: [report(trial, iteration) for iteration in (1, 2, 3)], iter)
    assert told(trial) == [1, 2, 3]
    assert later.is_complete(trial)


def test_if_setup_cannot_list_the_directory_each_trial_is_checked(told, begin, tmp_path):
    assert told(begin(2, experiment=tmp_path / "nowhere")) == [1, 2]
    assert told(begin(1, experiment=tmp_path / "nowhere")) == [1]


def test_what_an_attempt_has_not_reported_again_stays(logger, told, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in (1, 2, 3):
        logger.log_trial_result(iteration, trial, report(trial, iteration))
    trial.attempt = 2
    logger.log_trial_start(trial)
    assert told(trial) == [1, 2, 3]
    logger.log_trial_result(2, trial, report(trial, 2))
    assert told(trial) == [1, 2]


def test_what_a_clone_reports_again_is_logged_once(logger, told, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in (1, 2, 3):
        logger.log_trial_result(iteration, trial, report(trial, iteration))
    trial.grafts = [
        AppliedExploit(1, 3, 3, trial.config, "t00009", CheckpointRecord(0, 1), 1, 0, None)
    ]
    for trial.attempt in (2, 3):
        logger.log_trial_start(trial)
        for iteration in (2, 3, 4):
            result = report(trial, iteration)
            trial.num_rows = iteration + 2
            logger.log_trial_result(iteration, trial, result)
        assert told(trial) == [1, 2, 3, 2, 3, 4]


def test_each_row_that_is_rewritten_has_the_configuration_with_which_it_was_reported(make_trial):
    trial = make_trial(lr=0.3)
    donated = CheckpointRecord(0, 1)
    trial.grafts = [
        AppliedExploit(1, 2, 2, {"lr": 0.1}, "t00009", donated, 1, 0, None),
        AppliedExploit(2, 3, 3, {"lr": 0.2}, "t00009", donated, 1, 0, None),
    ]
    logger = JsonLoggerCallback(new_idle_writer())
    logger.rewrite(trial, [{"training_iteration": iteration} for iteration in (1, 2, 2, 2)])
    logger.writer.flush()
    rows = map(json.loads, (Path(trial.local_path) / "result.json").read_text().splitlines())
    assert [row["config"]["lr"] for row in rows] == [0.1, 0.1, 0.2, 0.3]


def test_what_the_table_has_lost_is_not_told_any_more(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1))
    logger.writer.flush()
    trial.num_rows = 0
    logger.rewrite(trial, [])
    logger.writer.flush()
    assert logger.is_complete(trial)
    if isinstance(logger, TBXLoggerCallback):
        assert event_iterations(Path(trial.local_path)) == []


@pytest.mark.parametrize(
    "later",
    [{"timestamp": 1_700_000_009}, {"time_total_s": 2.25}],
    ids=["timestamp", "time_total_s"],
)
def test_a_row_of_an_attempt_that_is_over_is_not_the_last_result(logger, make_trial, report, later):
    trial = make_trial()
    logger.log_trial_start(trial)
    times = {"timestamp": 1_700_000_001, "time_total_s": 2.0}
    for iteration in (1, 2):
        logger.log_trial_result(iteration, trial, report(trial, iteration, loss=0.5, **times))
    logger.writer.flush()
    trial.num_rows, trial.last_result = 2, report(trial, 2, loss=0.5, **times)
    assert logger.is_complete(trial)
    # The same iteration again, of which the driver died before it was written.
    trial.last_result = report(trial, 2, loss=0.5, **(times | later))
    shows_it = not isinstance(logger, TBXLoggerCallback) or "time_total_s" in later
    assert logger.is_complete(trial) is not shows_it


def test_zeros_are_no_records():
    encoder = EventEncoder()
    whole = [encoder.scalars(1.0, step, {"loss": 1.0}) for step in (1, 2)]
    data = b"".join(whole)
    for num_zeros in range(1, len(whole[1])):
        assert records(data[:-num_zeros] + bytes(num_zeros)) == whole[:1]
    assert records(data + bytes(100)) == whole


def test_points_behind_a_restart_take_the_place_of_those_before_it():
    encoder = EventEncoder()
    first, second, third, again = (
        encoder.scalars(1.0, step, {"loss": 1.0}) for step in (1, 2, 300, 2)
    )
    assert shown([first, second, third, encoder.restart(1.0, 2), again]) == [(1, first), (2, again)]
    assert (
        shown([first, encoder.restart(1.0, 0), encoder.session_start(1.0, {"lr": 1.0}, "loss")])
        == []
    )
    assert shown([encoder.scalars(1.0, 0, {"loss": 1.0})])[0][0] == 0


def test_parameters_that_a_power_cut_has_emptied_are_rewritten(make_trial, report):
    trial = make_trial()
    logger = JsonLoggerCallback(new_idle_writer())
    logger.log_trial_start(trial)
    logger.writer.flush()
    assert logger.is_complete(trial)
    path = Path(trial.local_path) / "params.json"
    path.write_bytes(b"")
    assert not logger.is_complete(trial)
    logger.rewrite(trial, [])
    logger.writer.flush()
    assert json.loads(path.read_text()) == {"lr": 0.1}


def test_a_trial_that_has_never_started_has_no_files_before_it_starts(
    logger, told, make_trial, report, monkeypatch
):
    trial = make_trial()
    logger.setup(experiment_path=str(Path(trial.local_path).parent))
    trial.attempt = 0
    logger.rewrite(trial, [])  # it was pending when its driver died
    logger.writer.flush()
    assert not Path(trial.local_path).exists()

    trial.attempt = 1
    # A new file gets another name, since the time has changed.
    monkeypatch.setattr(tensorboard_logger.time, "time", lambda: 2_000_000_000.0)
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1))
    assert told(trial) == [1]


@pytest.fixture
def finish(make_trial, report):
    """Return a function that logs a whole trial, and returns it with its results."""

    def finish(logger, num_reports=3, **metrics):
        trial = make_trial()
        logger.log_trial_start(trial)
        results = []
        for iteration in range(1, num_reports + 1):
            times = {"timestamp": 1_700_000_000 + iteration, "time_total_s": iteration / 4}
            results.append(report(trial, iteration, loss=0.5, **times, **metrics))
            logger.log_trial_result(iteration, trial, results[-1])
        trial.move_to(Status.TERMINATED)
        trial.last_result, trial.num_rows = results[-1], num_reports
        trial.ending = TerminationReason.COMPLETED
        logger.log_trial_end(trial)
        logger.writer.flush()
        return trial, results

    return finish


def contents(trial):
    return {path.name: path.read_bytes() for path in sorted(Path(trial.local_path).iterdir())}


def restore(logger, trial, results):
    later = type(logger)(logger.writer)
    later.catch_up_with_journal(Path(), [trial], (), lambda _: results)
    logger.writer.flush()
    assert later.is_complete(trial)


def test_a_complete_file_of_a_trial_that_is_over_is_left_as_it_is(logger, finish):
    trial, results = finish(logger)
    before = contents(trial)
    restore(logger, trial, results)
    assert contents(trial) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-30],
        lambda data: bytes(len(data)),
        lambda data: b"",
        lambda data: data + data[-60:],
    ],
    ids=["cut", "zeroed", "emptied", "repeated"],
)
def test_any_other_file_of_a_trial_that_is_over_is_rewritten(logger, told, finish, spoil):
    trial, results = finish(logger)
    for path in Path(trial.local_path).iterdir():
        path.write_bytes(spoil(path.read_bytes()))
    assert not logger.is_complete(trial)
    restore(logger, trial, results)
    assert told(trial) == [1, 2, 3]


def test_a_file_that_misses_results_is_not_complete(logger, make_trial, report, monkeypatch):
    monkeypatch.setattr(trial_file, "_MAX_BACKLOG", 1)
    trial = make_trial()
    logger.log_trial_start(trial)
    with monkeypatch.context() as patch:
        patch.setattr(
            trial_file, "append", lambda *_: (_ for _ in ()).throw(OSError(28, "no space"))
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
    assert not logger.is_complete(trial)


@pytest.mark.parametrize(("garbage", "at"), [(b"x", 0), (b"\0", 20)], ids=["text", "zeros"])
@pytest.mark.parametrize("kind", [JsonLoggerCallback, CSVLoggerCallback])
def test_garbage_in_the_place_of_a_row_is_found(finish, kind, garbage, at):
    logger = kind(new_idle_writer())
    trial, results = finish(logger)
    path = Path(trial.local_path) / (
        "result.json" if kind is JsonLoggerCallback else "progress.csv"
    )
    *others, row, last = path.read_bytes().splitlines(keepends=True)
    row = row[:at] + garbage * len(row[at:-2]) + row[-2:]
    path.write_bytes(b"".join([*others, row, last]))
    assert not logger.is_complete(trial)
    restore(logger, trial, results)
    assert READERS[kind](path.parent) == [1, 2, 3]


def test_zeros_in_the_middle_of_an_event_file_are_found(finish):
    logger = TBXLoggerCallback(new_idle_writer())
    trial, results = finish(logger, **{f"metric_{number}": 0.5 for number in range(20)})
    [path] = Path(trial.local_path).glob("events.*")
    data = path.read_bytes()
    at = data.index(b"metric_3", data.index(b"metric_9"))
    path.write_bytes(data[:at] + bytes(100) + data[at + 100 :])
    assert not logger.is_complete(trial)
    restore(logger, trial, results)


def test_an_event_file_without_the_end_of_a_trial_that_is_over_is_not_complete(finish):
    logger = TBXLoggerCallback(new_idle_writer())
    trial, _ = finish(logger)
    [path] = Path(trial.local_path).glob("events.*")
    *found, _ = records(path.read_bytes())
    path.write_bytes(b"".join(found))
    assert not logger.is_complete(trial)


@pytest.mark.parametrize("is_validated", [False, True])
def test_what_is_complete_is_rewritten_only_where_a_validation_was_recent(
    logger, finish, is_validated
):
    def results_of(trial_id):
        asked.append(trial_id)
        return results

    trial, results = finish(logger)
    asked = []
    if is_validated:
        ended = SimpleNamespace(
            is_open=False,
            checkpoint=CheckpointRecord(0, 1),
            failure=None,
            status="VALIDATED",
            metrics={},
        )
        trial.validation_part = SimpleNamespace(validations={0: ended}, open_validations={})
    for recent in ([], [trial.trial_id]):
        later = type(logger)(logger.writer)
        later.catch_up_with_journal(Path(), [trial], recent, results_of)
    assert asked == [trial.trial_id] * is_validated


def test_where_nothing_is_written_nothing_is_missing(make_trial):
    logger = TBXLoggerCallback(new_idle_writer())
    logger.is_on = False
    assert logger.is_complete(make_trial())
