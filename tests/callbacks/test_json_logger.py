"""params.json and result.json."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.callbacks.scenes import new_idle_writer
from tuner.callbacks.callback_list import CallbackList
from tuner.callbacks.files import append
from tuner.callbacks.files.json_logger import JsonLoggerCallback
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure
from tuner.storage.readable_json import encode_json


def strict(text):
    def refuse(literal):
        raise AssertionError(f"bare {literal}")

    return json.loads(text, parse_constant=refuse)


def rows_of(trial):
    return [
        strict(line) for line in (Path(trial.local_path) / "result.json").read_text().splitlines()
    ]


@pytest.fixture
def logger(idle_writer):
    return JsonLoggerCallback(idle_writer)


def test_golden_files(logger, make_trial, report):
    trial = make_trial(lr=0.1, act="relu", path=Path("/data"), nested={"b": math.inf, "a": (1, 2)})
    logger.log_trial_start(trial)
    logger.log_trial_result(
        1, trial, report(trial, 1, loss=0.5, val={"loss": math.nan, "acc": 0.9})
    )
    logger.log_trial_result(2, trial, report(trial, 2, loss=-math.inf, val={"loss": 0.25}))
    logger.on_experiment_end(trials=[trial])
    directory = Path(trial.local_path)
    assert (directory / "params.json").read_text() == (
        '{\n  "act": "relu",\n  "lr": 0.1,\n  "nested": {\n    "a": [\n      1,\n      2\n    '
        '],\n    "b": "Infinity"\n  },\n'
        '  "path": "/data"\n}\n'
    )
    config = '"config":{"lr":0.1,"act":"relu","path":"/data","nested":{"b":"Infinity","a":[1,2]}}'
    assert (directory / "result.json").read_text() == (
        '{"loss":0.5,"val":{"loss":"NaN","acc":0.9},"training_iteration":1,"trial_id":"t00000",'
        + config
        + "}\n"
        '{"loss":"-Infinity","val":{"loss":0.25},"training_iteration":2,"trial_id":"t00000",'
        + config
        + "}\n"
    )


def test_pandas_reads_it(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in (1, 2):
        logger.log_trial_result(iteration, trial, report(trial, iteration, loss=1 / iteration))
    logger.on_experiment_end(trials=[])
    frame = pd.read_json(Path(trial.local_path) / "result.json", lines=True)
    assert frame["loss"].tolist() == [1.0, 0.5]


class Nameless:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64("nan"), "NaN"),
        (np.float32("-inf"), "-Infinity"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1, 2]), "[1 2]"),
        ({"a": {1}}, {"a": "{1}"}),
        ({(1, 2): "tuple as key"}, {"(1, 2)": "tuple as key"}),
        (Nameless(), "<Nameless>"),
        ("\ud800 half a character\n", "\ud800 half a character\n"),
        (2**80, 2**80),
        ([math.nan, [math.inf]], ["NaN", ["Infinity"]]),
    ],
)
def test_every_value_becomes_strict_json(value, expected):
    text = encode_json({"value": value})
    assert "\n" not in text
    assert strict(text) == {"value": expected}


def test_a_retry_replaces_the_rows_that_it_reports_again(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in range(1, 6):
        logger.log_trial_result(iteration, trial, report(trial, iteration, attempt=1))
    trial.attempt = 2
    logger.log_trial_start(trial)
    for iteration in range(4, 7):
        logger.log_trial_result(iteration, trial, report(trial, iteration, attempt=2))
    logger.on_experiment_end(trials=[])
    assert [(row["training_iteration"], row["attempt"]) for row in rows_of(trial)] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
        (6, 2),
    ]


@pytest.mark.parametrize(
    "torn", [b'{"training_iteration": 2, "lo', b"\x00\x00\x00", b'{"training_iteration": 1}']
)
def test_a_new_driver_goes_on_behind_the_checkpoint_even_after_a_torn_line(
    make_trial, report, torn
):
    trial = make_trial()
    first = JsonLoggerCallback(new_idle_writer())
    first.log_trial_start(trial)
    for iteration in (1, 2):
        first.log_trial_result(iteration, trial, report(trial, iteration))
    first.on_experiment_end(trials=[])
    with (Path(trial.local_path) / "result.json").open("ab") as file:
        file.write(torn)
    trial.attempt = 2
    second = JsonLoggerCallback(new_idle_writer())
    second.log_trial_start(trial)
    second.log_trial_result(2, trial, report(trial, 2, again=True))
    second.on_experiment_end(trials=[])
    assert [(row["training_iteration"], row.get("again")) for row in rows_of(trial)] == [
        (1, None),
        (2, True),
    ]


def test_a_retry_from_the_beginning_leaves_nothing_of_the_first_attempt(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, attempt=1))
    trial.attempt = 2
    logger.log_trial_start(trial)
    logger.writer.flush()
    # As in the table, until it is reported again.
    assert [row["attempt"] for row in rows_of(trial)] == [1]
    logger.log_trial_result(1, trial, report(trial, 1, attempt=2))
    logger.on_experiment_end(trials=[])
    assert [row["attempt"] for row in rows_of(trial)] == [2]


def test_a_resumed_trial_keeps_all_rows_up_to_its_pause_without_reading_them(
    logger, make_trial, report, monkeypatch
):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1))
    trial.attempt = 2
    monkeypatch.setattr("tuner.callbacks.files.json_logger.read_rows", None)
    logger.log_trial_start(trial)
    logger.log_trial_result(2, trial, report(trial, 2))
    logger.on_experiment_end(trials=[])
    assert [row["training_iteration"] for row in rows_of(trial)] == [1, 2]


def test_rewriting_a_file_makes_it_hold_exactly_the_given_results(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, loss=9.0))
    trial.move_to(Status.TERMINATED)
    trial.attempt, trial.ending = 3, TerminationReason.COMPLETED
    logger.rewrite(trial, [report(trial, 1, loss=1.0), report(trial, 2, loss=2.0)])
    logger.on_experiment_end(trials=[])
    assert [row["loss"] for row in rows_of(trial)] == [1.0, 2.0]


def test_a_new_configuration_of_the_same_trial_is_written_from_then_on(logger, make_trial, report):
    trial = make_trial(lr=0.1)
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1))
    trial.config, trial.attempt = {"lr": 0.2}, 2
    logger.log_trial_start(trial)
    logger.log_trial_result(2, trial, report(trial, 2))
    logger.on_experiment_end(trials=[])
    assert [row["config"]["lr"] for row in rows_of(trial)] == [0.1, 0.2]
    assert json.loads((Path(trial.local_path) / "params.json").read_text()) == {"lr": 0.2}


def test_what_callbacks_change_after_the_logger_is_not_written(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    result = report(trial, 1, loss=1.0)
    logger.log_trial_result(1, trial, result)
    result["loss"] = 2.0
    logger.on_experiment_end(trials=[])
    assert rows_of(trial)[0]["loss"] == 1.0


@pytest.mark.parametrize("num_bytes", [0, 1, 40])
def test_a_full_disk_loses_and_doubles_nothing_once_there_is_space_again(
    logger, make_trial, report, monkeypatch, num_bytes
):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1))
    logger.writer.flush()
    real_write, room = append.os.write, [num_bytes]

    def write(descriptor, data):
        taken = real_write(descriptor, data[: room[0]]) if room[0] else 0
        room[0] -= taken
        if not taken:
            raise OSError(28, "No space left on device")
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(append.os, "write", write)
        logger.log_trial_result(2, trial, report(trial, 2))
        logger.writer.flush()
        assert [row["training_iteration"] for row in rows_of(trial)] == [1]
        logger.log_trial_result(3, trial, report(trial, 3))
    logger.on_experiment_end(trials=[])
    assert [row["training_iteration"] for row in rows_of(trial)] == [1, 2, 3]


def test_a_defect_met_in_the_background_switches_this_logger_off_only(
    make_trial, report, caplog, monkeypatch
):
    trial = make_trial()
    logger = JsonLoggerCallback(new_idle_writer())
    callbacks = CallbackList([logger])
    monkeypatch.setattr("tuner.callbacks.files.json_logger.json_bytes", lambda *_, **__: 1 / 0)
    callbacks.call("on_trial_start", iteration=0, trials=[], trial=trial)
    logger.writer.flush()
    callbacks.on_trial_result(report(trial, 1), iteration=1, trials=[], trial=trial)
    assert not callbacks.has("on_trial_result")
    assert "JsonLoggerCallback.on_trial_result raised ZeroDivisionError" in caplog.text
    logger.writer.close()


def test_a_link_planted_in_the_place_of_a_file_is_not_followed(
    logger, make_trial, report, tmp_path, caplog
):
    trial = make_trial()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    logger.log_trial_start(trial)
    logger.writer.flush()
    (Path(trial.local_path) / "result.json").symlink_to(victim)
    logger.log_trial_result(1, trial, report(trial, 1))
    logger.on_experiment_end(trials=[])
    assert "1 log files are incomplete" in caplog.text
    assert victim.read_text() == "precious"


def test_trials_that_have_ended_are_forgotten(logger, make_trial):
    trial = make_trial()
    logger.log_trial_start(trial)
    trial.failures.append(Failure("ValueError", "no"))
    trial.move_to(Status.ERROR)
    trial.ending = TerminationReason.FAILED
    logger.log_trial_end(trial, failed=True)
    assert not logger._files
    logger.on_experiment_end(trials=[])
