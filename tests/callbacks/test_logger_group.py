"""Loggers that share one entry per event."""

import json
from pathlib import Path

import pytest

from tuner.callbacks import Callback, CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from tuner.callbacks.callback_list import CallbackList
from tuner.callbacks.files import trial_file
from tuner.callbacks.files.csv_logger import read_table
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure


@pytest.fixture
def three(idle_writer):
    return [
        JsonLoggerCallback(idle_writer),
        CSVLoggerCallback(idle_writer),
        TBXLoggerCallback(idle_writer),
    ]


def run(callbacks, trial, report, *, num_reports=2):
    callbacks.call("on_trial_start", iteration=0, trials=[trial], trial=trial)
    for iteration in range(1, num_reports + 1):
        callbacks.on_trial_result(
            report(trial, iteration, loss=1 / iteration),
            iteration=iteration,
            trials=[trial],
            trial=trial,
        )


def end(callbacks, trial):
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    callbacks.call("on_trial_complete", iteration=9, trials=[trial], trial=trial)


def told(trial):
    """Return iterations of ``progress.csv``, and those of ``result.json`` with configurations."""
    header, lines = read_table(Path(trial.local_path) / "progress.csv")
    lines_of_json = (Path(trial.local_path) / "result.json").read_text().splitlines()
    rows = [json.loads(line) for line in lines_of_json]
    return [int(line[header.index("training_iteration")]) for line in lines], [
        (row["training_iteration"], row["config"]) for row in rows
    ]


def test_one_entry_stands_for_all_of_them(three, idle_writer, make_trial, report):
    callbacks, trial = CallbackList(three), make_trial()
    run(callbacks, trial, report)
    end(callbacks, trial)
    assert idle_writer.num_waiting == 4
    callbacks.call("on_experiment_end", trials=[trial])
    assert told(trial) == ([1, 2], [(1, trial.config), (2, trial.config)])
    assert all(logger.is_complete(finished_as_reported(trial, report)) for logger in three)


def test_what_a_restore_could_not_write_yet_stands_before_what_follows_it(
    three, idle_writer, make_trial, report, monkeypatch
):
    trial = make_trial()
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.INTERRUPTED
    with monkeypatch.context() as patch:
        patch.setattr(
            trial_file, "append", lambda *_: (_ for _ in ()).throw(OSError(28, "no space"))
        )
        for logger in three:
            logger.rewrite(trial, [report(trial, iteration) for iteration in (1, 2, 3)])
        idle_writer.write_batch()
    trial.move_to(Status.RUNNING)
    trial.ending, trial.attempt, trial.resumed_iteration = None, 2, 3
    callbacks = CallbackList(three)
    callbacks.call("on_trial_start", iteration=0, trials=[trial], trial=trial)
    callbacks.on_trial_result(report(trial, 4), iteration=4, trials=[trial], trial=trial)
    callbacks.call("on_experiment_end", trials=[trial])
    in_csv, in_json = told(trial)
    assert in_csv == [iteration for iteration, _ in in_json] == [1, 2, 3, 4]


def finished_as_reported(trial, report):
    trial.num_rows, trial.last_result = 2, report(trial, 2, loss=0.5)
    return trial


def test_the_files_are_those_that_the_loggers_would_write_alone(three, make_trial, report):
    together, alone = make_trial("t00001"), make_trial("t00002")
    callbacks = CallbackList(three)
    run(callbacks, together, report)
    end(callbacks, together)
    for logger in three:
        logger.log_trial_start(alone)
        for iteration in (1, 2):
            logger.log_trial_result(iteration, alone, report(alone, iteration, loss=1 / iteration))
        alone.move_to(Status.TERMINATED)
        alone.ending = TerminationReason.COMPLETED
        logger.log_trial_end(alone)
    three[0].writer.close()
    for name in ("params.json", "result.json", "progress.csv"):
        text = (Path(together.local_path) / name).read_text()
        assert text.replace("t00001", "t00002") == (Path(alone.local_path) / name).read_text()


class Doubts(Callback):
    """Changes each loss to 9."""

    def on_trial_result(self, iteration, trials, trial, result, **info):
        result["loss"] = 9.0


@pytest.mark.parametrize(("is_first", "loss"), [(True, 9.0), (False, 0.5)])
def test_loggers_write_what_the_callbacks_before_them_have_changed_in_a_result(
    three, make_trial, report, is_first, loss
):
    trial = make_trial()
    callbacks = CallbackList([Doubts(), *three] if is_first else [*three, Doubts()])
    callbacks.call("on_trial_start", iteration=0, trials=[trial], trial=trial)
    for iteration in (1, 2, 3):
        result = report(trial, iteration, loss=0.5)
        callbacks.on_trial_result(result, iteration=iteration, trials=[trial], trial=trial)
    end(callbacks, trial)
    callbacks.call("on_experiment_end", trials=[trial])
    header, lines = read_table(Path(trial.local_path) / "progress.csv")
    assert [float(line[header.index("loss")]) for line in lines] == [loss] * 3
    assert [
        row["loss"]
        for row in map(
            json.loads, (Path(trial.local_path) / "result.json").read_text().splitlines()
        )
    ] == [loss] * 3


def test_a_defect_of_one_switches_off_that_one_and_costs_the_others_nothing(
    three, make_trial, report, monkeypatch, caplog
):
    callbacks, trial = CallbackList(three), make_trial()
    monkeypatch.setattr(
        "tuner.callbacks.files.tensorboard_logger._EventFile.write_segment", lambda *_: 1 / 0
    )
    run(callbacks, trial, report)
    three[0].writer.flush()
    result = report(trial, 3)
    callbacks.on_trial_result(result, iteration=3, trials=[trial], trial=trial)
    assert "TBXLoggerCallback.on_trial_result raised ZeroDivisionError" in caplog.text
    callbacks.on_trial_result(report(trial, 4), iteration=4, trials=[trial], trial=trial)
    end(callbacks, trial)
    callbacks.call("on_experiment_end", trials=[trial])
    assert caplog.text.count("switched off") == 1
    assert told(trial) == ([1, 2, 3, 4], [(iteration, trial.config) for iteration in (1, 2, 3, 4)])


def test_a_file_that_cannot_even_be_opened_is_a_defect_of_its_logger(
    three, make_trial, report, monkeypatch, caplog
):
    callbacks, trial = CallbackList(three), make_trial()
    monkeypatch.setattr(three[0], "open_file", lambda _: 1 / 0)
    run(callbacks, trial, report)
    three[0].writer.flush()
    end(callbacks, trial)
    callbacks.call("on_experiment_end", trials=[trial])
    assert "JsonLoggerCallback.on_trial_complete raised ZeroDivisionError" in caplog.text
    assert len(read_table(Path(trial.local_path) / "progress.csv")[1]) == 2


def test_when_all_have_a_defect_none_is_called_any_more(
    idle_writer, make_trial, report, monkeypatch
):
    callbacks, trial = (
        CallbackList([JsonLoggerCallback(idle_writer), CSVLoggerCallback(idle_writer)]),
        make_trial(),
    )
    monkeypatch.setattr("tuner.callbacks.files.trial_file.TrialFile.num_to_keep", lambda *_: 1 / 0)
    run(callbacks, trial, report, num_reports=1)
    idle_writer.flush()
    callbacks.on_trial_result(report(trial, 2), iteration=2, trials=[trial], trial=trial)
    assert not callbacks.has("on_trial_result")
    idle_writer.close()


def test_a_logger_that_overrides_hooks_is_called_itself(idle_writer, make_trial, report):
    class Loud(JsonLoggerCallback):
        def log_trial_result(self, iteration, trial, result):
            result["heard"] = True
            super().log_trial_result(iteration, trial, result)

    trial = make_trial()
    callbacks = CallbackList([Loud(idle_writer), CSVLoggerCallback(idle_writer)])
    run(callbacks, trial, report)
    end(callbacks, trial)
    callbacks.call("on_experiment_end", trials=[trial])
    assert "heard" in read_table(Path(trial.local_path) / "progress.csv")[0]
    assert "heard" in (Path(trial.local_path) / "result.json").read_text()


def test_another_callback_between_two_is_told_between_them(idle_writer, make_trial, report):
    class Marking(Callback):
        def on_trial_result(self, result, **info):
            result["marked"] = 1

    trial = make_trial()
    callbacks = CallbackList(
        [JsonLoggerCallback(idle_writer), Marking(), CSVLoggerCallback(idle_writer)]
    )
    run(callbacks, trial, report)
    end(callbacks, trial)
    callbacks.call("on_experiment_end", trials=[trial])
    assert "marked" in read_table(Path(trial.local_path) / "progress.csv")[0]
    assert "marked" not in (Path(trial.local_path) / "result.json").read_text()


def test_what_was_begun_by_a_logger_alone_is_continued_in_the_same_file(three, make_trial, report):
    callbacks, trial = CallbackList(three), make_trial()
    trial.num_rows = 1
    for logger in three:
        logger.rewrite(trial, [report(trial, 1, loss=1.0)])
    trial.attempt = 2
    callbacks.call("on_trial_start", iteration=0, trials=[trial], trial=trial)
    callbacks.on_trial_result(report(trial, 2, loss=0.5), iteration=1, trials=[trial], trial=trial)
    callbacks.call("on_experiment_end", trials=[trial])
    assert told(trial) == ([1, 2], [(1, trial.config), (2, trial.config)])


def test_a_failed_attempt_ends_nothing_and_a_failed_trial_is_forgotten(three, make_trial, report):
    callbacks, trial = CallbackList(three), make_trial()
    run(callbacks, trial, report, num_reports=1)
    trial.move_to(Status.PENDING)
    callbacks.call("on_trial_recover", iteration=1, trials=[trial], trial=trial)
    trial.move_to(Status.RUNNING)
    trial.attempt = 2
    run(callbacks, trial, report, num_reports=1)
    trial.failures.append(Failure("ValueError", "no"))
    trial.move_to(Status.ERROR)
    trial.ending = TerminationReason.FAILED
    callbacks.call("on_trial_error", iteration=2, trials=[trial], trial=trial)
    callbacks.call("on_experiment_end", trials=[trial])
    assert told(trial)[0] == [1]
    assert not callbacks._groups[0]._files
