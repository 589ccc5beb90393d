"""How log files show validations of checkpoints, which end after later results."""

import json
import math
import os
from pathlib import Path

import pytest

from tuner.callbacks import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from tuner.callbacks.callback_list import CallbackList
from tuner.callbacks.files.csv_logger import read_table
from tuner.callbacks.files.validations_file import read_validations
from tuner.core.result import merged
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure
from tuner.storage.checkpoints import Checkpoint


@pytest.fixture
def loggers(idle_writer):
    found = [
        JsonLoggerCallback(idle_writer),
        CSVLoggerCallback(idle_writer),
        TBXLoggerCallback(idle_writer),
    ]
    for logger in found:
        logger.setup(metric="loss", mode="min", space={})
    return found


@pytest.fixture
def story(loggers, make_trial, report):
    return Story(loggers, make_trial(), report)


class Story:
    """A trial whose results have a checkpoint each, which are validated later."""

    def __init__(self, loggers, trial, report):
        self.callbacks, self.trial, self._report = CallbackList(loggers), trial, report
        self._writer = loggers[0].writer
        self._results = {}

    def call(self, hook, **more):
        info = {"iteration": 0, "trials": [self.trial], "trial": self.trial}
        self.callbacks.call(hook, **info, **more)

    def reports(self, *iterations, **metrics):
        for iteration in iterations:
            name = f"checkpoint_{iteration:06d}"
            result = self._report(
                self.trial, iteration, loss=1 / iteration, checkpoint_dir_name=name, **metrics
            )
            self._results[iteration] = result
            info = {"iteration": 0, "trials": [self.trial], "trial": self.trial}
            self.callbacks.on_trial_result(result, **info)

    def validates(self, iteration, *, status="VALIDATED", failure=None, **metrics):
        path = Path(self.trial.local_path) / f"checkpoint_{iteration:06d}"
        self.call(
            "on_checkpoint_validated",
            checkpoint=Checkpoint(path),
            status=status,
            metrics=metrics,
            result=merged(self._results[iteration], metrics),
            failure=failure,
        )

    def ends(self):
        self.trial.move_to(Status.TERMINATED)
        self.trial.ending = TerminationReason.COMPLETED
        self.call("on_trial_complete")
        self.flush()

    def flush(self):
        self._writer.close()

    def text(self, name):
        return (Path(self.trial.local_path) / name).read_text()

    def rows(self):
        return [json.loads(line) for line in self.text("result.json").splitlines()]

    def table(self):
        header, lines = read_table(Path(self.trial.local_path) / "progress.csv")
        return [dict(zip(header, line, strict=True)) for line in lines]

    def curves(self):
        from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
            EventAccumulator,
        )

        accumulator = EventAccumulator(self.trial.local_path)
        accumulator.Reload()
        return {
            tag: [(event.step, round(event.value, 4)) for event in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]
        }


def test_each_validation_that_has_ended_is_a_line_of_its_own_file(story):
    story.call("on_trial_start")
    story.reports(1, 2, 3)
    story.validates(1, acc=0.5, val={"f1": math.nan})
    story.validates(2, status="VALIDATION_FAILED", failure=Failure("ValueError", "no"))
    story.flush()
    lines = [json.loads(line) for line in story.text("validations.json").splitlines()]
    assert all(line.pop("time") > 1_600_000_000 for line in lines)
    assert lines == [
        {
            "checkpoint": "checkpoint_000001",
            "training_iteration": 1,
            "status": "VALIDATED",
            "metrics": {"acc": 0.5, "val": {"f1": "NaN"}},
            "error": "",
        },
        {
            "checkpoint": "checkpoint_000002",
            "training_iteration": 2,
            "status": "VALIDATION_FAILED",
            "metrics": {},
            "error": "ValueError: no",
        },
    ]
    assert [row.get("acc") for row in story.rows()] == [None, None, None]


def test_the_metrics_are_in_the_rows_once_the_trial_is_over(story):
    story.call("on_trial_start")
    story.reports(1, 2, note="a,b")
    story.validates(1, acc=0.5, loss=9.0, val={"f1": 0.25})
    story.flush()
    story.reports(3)
    story.validates(3, acc=0.75)
    story.ends()
    assert [(row["loss"], row.get("acc"), row.get("val")) for row in story.rows()] == [
        (9.0, 0.5, {"f1": 0.25}),
        (0.5, None, None),
        (1 / 3, 0.75, None),
    ]
    assert [(row["loss"], row["acc"], row["val/f1"], row["note"]) for row in story.table()] == [
        ("9.0", "0.5", "0.25", "a,b"),
        ("0.5", "", "", "a,b"),
        (str(1 / 3), "0.75", "", ""),
    ]


def test_rows_of_the_trial_without_validations_are_left_as_they_are(story):
    story.call("on_trial_start")
    story.reports(1, 2)
    story.ends()
    assert not (Path(story.trial.local_path) / "validations.json").exists()
    assert len(story.rows()) == len(story.table()) == 2


@pytest.mark.heavy
def test_a_validated_metric_is_a_curve_at_the_steps_of_the_checkpoints(story):
    story.call("on_trial_start")
    story.reports(1, 2, 3)
    story.validates(1, acc=0.5)
    story.reports(4)
    story.validates(3, acc=0.75)
    story.ends()
    assert story.curves()["acc"] == [(1, 0.5), (3, 0.75)]
    assert story.curves()["loss"] == [(1, 1.0), (2, 0.5), (3, 0.3333), (4, 0.25)]


@pytest.mark.heavy
def test_a_curve_of_the_training_code_is_not_cut_off_by_a_validated_value(story):
    story.call("on_trial_start")
    story.reports(1, 2, 3)
    story.flush()
    story.validates(1, loss=8.0)
    story.validates(3, loss=7.0)
    story.ends()
    curves = story.curves()
    assert curves["loss"] == [(1, 1.0), (2, 0.5), (3, 0.3333), (3, 7.0)]
    assert curves["loss/validated"] == [(1, 8.0)]


def test_an_event_file_with_validations_is_complete(story, loggers):
    story.call("on_trial_start")
    story.reports(1, 2)
    story.validates(1, acc=0.5)
    story.validates(2, acc=0.5)
    story.ends()
    story.trial.num_rows, story.trial.last_result = 2, {"training_iteration": 2}
    assert loggers[2].is_complete(story.trial)
    assert loggers[1].is_complete(story.trial)


def test_a_trial_that_begins_anew_has_no_validations_of_before(story):
    story.call("on_trial_start")
    story.reports(1)
    story.validates(1, acc=0.5)
    story.flush()
    story.call("on_trial_start")  # its first attempt, as after a driver was killed
    story.reports(1)
    story.ends()
    assert "acc" not in story.rows()[0]
    assert not (Path(story.trial.local_path) / "validations.json").exists()


@pytest.mark.parametrize(
    "line",
    [
        b"[1, 2]\n",
        b"no json\n",
        b"[" * 100_000 + b"\n",
        b'{"checkpoint": 3}\n',
        b'{"checkpoint": "c", "status": "VALIDATED", "error": "", "metrics": [], "time": 1}\n',
        b'{"checkpoint": "c", "status": "V", "error": "", "metrics": {}, "time": 1}\n',
        b"\xff\xfe\n",
    ],
)
def test_a_damaged_line_is_left_out_with_a_warning(tmp_path, line):
    good = (
        b'{"checkpoint": "c", "training_iteration": 1, "status": "VALIDATED", "metrics": {"a": 1},'
        b' "error": "", "time": %s}\n' % (b"9" * 400)
    )
    path = tmp_path / "validations.json"
    path.write_bytes(line + good + b'{"torn')
    with pytest.warns(RuntimeWarning, match=r"line 1 of .* is damaged"):
        [found] = read_validations(path)
    assert (found.checkpoint, found.metrics, found.at) == ("c", {"a": 1}, math.inf)


def test_a_file_that_is_a_link_or_a_pipe_is_not_read(tmp_path):
    (tmp_path / "link").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            read_validations(tmp_path / name)
    assert read_validations(tmp_path / "missing") == []
