"""Delivery to a tracker in a background thread, also if the tracker fails."""

import json
import logging
import threading
from collections import Counter

import pytest

from tuner.callbacks.callback_list import CallbackList
from tuner.callbacks.log_records import Row
from tuner.callbacks.trackers.tracker import TrackerCallback, measured
from tuner.callbacks.trackers.tracker_queue import Tracker, TrackerQueue, rows_without
from tuner.core.trial import AppliedExploit, Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord

pytestmark = pytest.mark.process


class Unreachable(Exception):
    pass


class Notebook(Tracker):
    """Records its calls, after raising the given errors."""

    def __init__(self, *errors, gate=None):
        self.story = []
        self.errors = list(errors)
        self.gate = gate

    def connect(self):
        if self.gate:
            self.gate.wait(60)
        if self.errors:
            raise self.errors.pop(0)
        self.story.append("connect")

    def begin(self, trial, begun):
        self.story.append(("begin", trial.trial_id, begun.config))

    def log(self, trial, rows):
        self.story.append(
            ("log", trial.trial_id, [row.result["training_iteration"] for row in rows])
        )

    def end(self, trial, ended):
        self.story.append(("end", trial.trial_id, str(ended.outcome)))

    def recall(self, trial, recalled):
        self.story.append(
            (
                "recall",
                trial.trial_id,
                [row.result["training_iteration"] for row in recalled.rows],
                recalled.ended,
            )
        )

    def close(self):
        self.story.append("leave")

    def is_transient(self, error):
        return isinstance(error, Unreachable)


class Logger(TrackerCallback):
    product = "Notebook"
    kind = "mlflow"

    def __init__(self, tracker, upload_timeout=300.0):
        super().__init__(upload_timeout)
        self.book = tracker

    def arguments(self):
        return {
            "tracking_uri": "sqlite:////a b.db",
            "experiment_name": None,
            "tags": {"who": "me"},
            "tracking_token": "s3cret",
            "settings": object(),
        }

    def tracker(self, experiment):
        self.facts = experiment
        return self.book


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._LAST_PAUSE_S", 0.001)


def run(logger, trial, report, iterations=(1, 2), experiment_path="/x/demo"):
    callbacks = CallbackList([logger])
    callbacks.call("setup", experiment_path=experiment_path, experiment_id="abc", metric="loss")
    callbacks.call("on_trial_start", iteration=0, trials=[trial], trial=trial)
    for iteration in iterations:
        callbacks.on_trial_result(
            report(trial, iteration, loss=1.0), iteration=iteration, trials=[trial], trial=trial
        )
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    callbacks.call("on_trial_complete", iteration=9, trials=[trial], trial=trial)
    callbacks.call("on_experiment_end", trials=[trial])


def test_everything_is_delivered_in_order(make_trial, report):
    logger = Logger(Notebook())
    run(logger, make_trial(lr=0.1, net={"width": 2}), report)
    assert logger.book.story == [
        "connect",
        ("begin", "t00000", {"lr": 0.1, "net/width": 2}),
        ("log", "t00000", [1, 2]),
        ("end", "t00000", "FINISHED"),
        "leave",
    ]
    assert (logger.facts.name, logger.facts.run_id(make_trial())) == ("demo", "abc-t00000")


def test_what_passes_is_tried_again_with_one_notice_that_tells_no_password(
    make_trial, report, caplog
):
    errors = [Unreachable("no route to http://me:secret@host/x") for _ in range(3)]
    logger = Logger(Notebook(*errors))
    with caplog.at_level(logging.WARNING, "tuner"):
        run(logger, make_trial(), report)
    assert logger.book.story[-1] == "leave"
    (record,) = caplog.records
    assert (
        "Notebook cannot be reached (Unreachable: no route to http://host/x)" in record.getMessage()
    )


def test_what_does_not_pass_switches_the_callback_off(make_trial, report, caplog):
    logger = Logger(Notebook(RuntimeError("as planned")))
    with caplog.at_level(logging.WARNING, "tuner"):
        run(logger, make_trial(), report)
    assert logger.book.story == []
    assert [record.getMessage().count("Logger.") for record in caplog.records] == [0, 1]
    assert COMMAND in caplog.text
    assert "RuntimeError and is switched off; the experiment continues without it" in caplog.text


COMMAND = (
    "    tuner export /x/demo --to mlflow --tracking-uri 'sqlite:////a b.db' "
    """--arg 'tags={"who": "me"}'"""
)
"""Arguments that are not given, secrets and objects are left out."""


def test_the_end_waits_for_a_tracker_that_hangs_as_long_as_it_is_told(make_trial, report, caplog):
    gate = threading.Event()
    logger = Logger(Notebook(gate=gate), upload_timeout=0.01)
    with caplog.at_level(logging.WARNING, "tuner"):
        run(logger, make_trial(), report)
    gate.set()
    (record,) = caplog.records
    assert record.getMessage() == (
        "Notebook lacks 2 results; the experiment's own files hold all of them. Fill it with\n"
        + COMMAND
    )


def test_a_slow_first_answer_is_waited_for_with_lines_that_say_so(
    make_trial, report, caplog, monkeypatch
):
    gate = threading.Event()

    class Patient(logging.Handler):
        """Lets the tracker answer when it is said that it is waited for."""

        def emit(self, record):
            gate.set()

    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._FIRST_LINE_S", 0.0)
    logger = Logger(Notebook(gate=gate), upload_timeout=300)
    handler = Patient()
    logging.getLogger("tuner").addHandler(handler)
    try:
        with caplog.at_level(logging.WARNING, "tuner"):
            run(logger, make_trial(), report)
    finally:
        logging.getLogger("tuner").removeHandler(handler)
    assert logger.book.story[-1] == "leave"
    (record,) = caplog.records
    assert record.getMessage() == (
        "waiting for Notebook, which lacks 2 results, for 300 s more at most; Ctrl-C ends the wait"
    )


def test_a_request_to_stop_ends_the_wait(make_trial, report, caplog, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._FIRST_LINE_S", 0.0)
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._JOIN_S", 0.001)
    logger = Logger(Notebook(gate=gate), upload_timeout=1e6)

    class Impatient(logging.Handler):
        def emit(self, record):
            logger.end_waits_at_stop()

    handler = Impatient()
    logging.getLogger("tuner").addHandler(handler)
    try:
        with caplog.at_level(logging.WARNING, "tuner"):
            run(logger, make_trial(), report)
    finally:
        logging.getLogger("tuner").removeHandler(handler)
        gate.set()
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == [
        "waiting",
        "Notebook",
    ]
    assert COMMAND in caplog.text


def test_an_interrupted_experiment_is_not_held_up(make_trial, report, monkeypatch):
    waits = []
    monkeypatch.setattr(TrackerQueue, "close", lambda _, patience_s: waits.append(patience_s))
    for ending in (TerminationReason.INTERRUPTED, TerminationReason.COMPLETED):
        logger, trial = Logger(Notebook(), upload_timeout=300), make_trial()
        logger.setup()
        trial.move_to(Status.TERMINATED)
        trial.ending = ending
        logger.on_experiment_end(trials=[trial])
    assert waits == [30, 300]


@pytest.mark.parametrize("upload_timeout", [0, -1, float("inf"), float("nan"), True, "5", None])
def test_a_wait_that_is_no_time_is_refused(upload_timeout):
    with pytest.raises(
        ValueError, match="upload_timeout must be a positive number of seconds, got"
    ):
        Logger(Notebook(), upload_timeout=upload_timeout)


def test_the_end_gives_up_a_tracker_that_is_known_to_be_absent(
    make_trial, report, caplog, monkeypatch
):
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._UNREACHABLE_PATIENCE_S", 0.0)
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._JOIN_S", 0.001)

    class Nowhere(Notebook):
        def connect(self):
            raise Unreachable

    logger = Logger(Nowhere(), upload_timeout=1e6)
    with caplog.at_level(logging.WARNING, "tuner"):
        run(logger, make_trial(), report)
    assert "Notebook lacks 2 results" in caplog.text


def test_a_restore_delivers_what_an_earlier_driver_could_not(make_trial, report, monkeypatch):
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._UNREACHABLE_PATIENCE_S", 0.0)
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._JOIN_S", 0.001)

    class Nowhere(Notebook):
        def connect(self):
            raise Unreachable

    first, trial = Logger(Nowhere()), make_trial()
    run(first, trial, report)
    second = Logger(Notebook())
    second.set_state(json.loads(json.dumps(first.get_state())))
    assert second.is_behind(trial)
    assert not second.is_behind(make_trial("t00009"))
    second.setup()
    assert second.get_state() == {"behind": ["t00000"]}  # as long as it has not caught up
    second.catch_up([trial], lambda _: [report(trial, iteration) for iteration in (1, 2)])
    second.on_experiment_end(trials=[trial])
    assert second.book.story[1][:3] == ("recall", "t00000", [1, 2])
    assert second.get_state() is None


def test_memory_is_bounded_and_dropped_results_are_reported(
    make_trial, report, caplog, monkeypatch
):
    gate = threading.Event()
    logger = Logger(Notebook(gate=gate))
    trial = make_trial()
    logger.setup()
    logger._queue._capacity = 3
    with caplog.at_level(logging.WARNING, "tuner"):
        logger.log_trial_start(trial)
        for iteration in range(1, 11):
            logger.log_trial_result(iteration, trial, report(trial, iteration, loss=1.0))
        gate.set()
        logger.on_experiment_end(trials=[])
    assert logger.book.story[2] == ("log", "t00000", [1, 2, 3])
    assert [
        "does not keep up" in caplog.records[0].getMessage(),
        "Notebook lacks 7 results" in caplog.records[1].getMessage(),
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("status", "ending", "outcome"),
    [
        (Status.TERMINATED, TerminationReason.COMPLETED, "FINISHED"),
        (Status.TERMINATED, TerminationReason.STOPPED_EARLY, "FINISHED"),
        (Status.TERMINATED, TerminationReason.INTERRUPTED, "KILLED"),
        (Status.ERROR, TerminationReason.FAILED, "FAILED"),
    ],
)
def test_a_run_ends_as_its_trial_does(make_trial, status, ending, outcome):
    logger, trial = Logger(Notebook()), make_trial()
    logger.setup()
    logger.log_trial_start(trial)
    logger.log_trial_end(trial, failed=True)  # an attempt that is tried again ends nothing
    trial.move_to(status)
    trial.ending = ending
    logger.log_trial_end(trial)
    logger.on_experiment_end(trials=[])
    assert logger.book.story[2:] == [("end", "t00000", outcome), "leave"]


def test_a_restored_trial_is_recalled_up_to_what_it_reports_again(make_trial, report):
    logger, trial = Logger(Notebook()), make_trial()
    trial.checkpoints = [CheckpointRecord(0, 3)]
    logger.setup()
    logger.catch_up(
        [trial, unstarted := make_trial("t00001")],
        lambda _: [report(trial, iteration) for iteration in range(1, 6)],
    )
    unstarted.attempt = 0
    logger.on_experiment_end(trials=[])
    assert logger.book.story[1] == ("recall", "t00000", [1, 2, 3], None)


def test_one_that_could_not_be_set_up_recalls_nothing_and_ends_nothing(make_trial):
    Logger(Notebook()).catch_up([make_trial()], lambda _: [])
    broken = Logger(Notebook(RuntimeError("as planned")))
    broken.setup()
    broken.catch_up([make_trial()], lambda _: [])
    broken._queue._jobs.wait(60)
    broken.catch_up([make_trial()], lambda _: [])
    with pytest.raises(RuntimeError, match="as planned"):
        broken.log_trial_start(make_trial())


def test_what_a_trial_reported_before_an_exploit_lasts(make_trial):
    trial = make_trial()
    donated = CheckpointRecord(0, 1)
    trial.grafts = [AppliedExploit(1, 3, 3, {}, "t00009", donated, 1, 0, None)]
    assert trial.source_row == 3
    trial.grafts, trial.checkpoints = [], [CheckpointRecord(0, 2)]
    assert trial.source_row == 2


def test_rows_that_a_tracker_lacks(make_trial, report):
    trial = make_trial()
    rows = [
        Row(report(trial, iteration), at) for iteration, at in ((1, 10.0), (2, 10.9), (3, 12.0))
    ]
    assert rows_without(rows, Counter()) == rows
    assert rows_without(rows, Counter([(10, 1), (12, 3), (11, 7)])) == rows[1:2]
    again = [*rows, Row(report(trial, 3), 12.5)]  # after an exploit
    assert rows_without(again, Counter([(12, 3)])) == [*rows[:2], again[3]]
    assert rows_without(again, Counter({(12, 3): 2})) == rows[:2]


def test_measured_are_numbers_booleans_and_texts():
    given = {
        "a": 1,
        "b": True,
        "c": "x",
        "d": [1],
        "e": None,
        "f": 10**400,
        "g": -(2**60),
        "pid": 3,
        "training_iteration": 2,
        "h": 0.5,
    }
    shown = measured(given)
    assert shown == {
        "a": 1,
        "b": True,
        "c": "x",
        "f": float("inf"),
        "g": -(2.0**60),
        "training_iteration": 2,
        "h": 0.5,
    }
