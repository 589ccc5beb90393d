"""What the user is warned of when a validation ends, and not before it has."""

import logging

import pytest

from tuner.callbacks.callback_list import CallbackList
from tuner.core.commands import (
    CheckpointRecorded,
    CheckpointValidated,
    ResultRecorded,
    TrialEnded,
)
from tuner.core.result import flatten
from tuner.core.trial import TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest
from tuner.driver.event_dispatch import EventDispatch
from tuner.validation.records import Validation, validations_of

CHECKPOINT = CheckpointRecord(3, 4)
BOOM = Failure("ValueError", "no such file")


class NoSearcher:
    def notify(self, notice):
        pass


class Observed:
    """A dispatch, and a trial whose checkpoint 3 is being validated."""

    def __init__(self, tmp_path, *, stop=None, **options):
        self.trial = Trial("t00000", {}, {"cpu": 1.0})
        validations_of(self.trial).open_validations[3] = Validation(
            CHECKPOINT, ValidationRequest(), is_open=True
        )
        self.dispatch = EventDispatch(
            NoSearcher(), CallbackList([]), [self.trial], tmp_path, "accuracy", **options
        )
        self.dispatch.begin_experiment(stop=stop)

    def report(self, num_rows=1, **metrics):
        self.trial.num_rows = num_rows
        self.trial.last_result = metrics
        self.dispatch.notify(ResultRecorded(self.trial, metrics, metrics))

    def validate(self, metrics=None, *, status="VALIDATED", delivered=False, failure=None):
        validations_of(self.trial).open_validations.clear()
        metrics = metrics or {}
        self.dispatch.notify(
            CheckpointValidated(
                self.trial, CHECKPOINT, status, metrics, metrics, flatten(metrics), delivered,
                failure,
            )
        )  # fmt: skip

    def end(self):
        self.trial.ending = TerminationReason.COMPLETED
        self.dispatch.notify(TrialEnded(self.trial))


@pytest.fixture
def warnings(caplog):
    def take():
        found = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        caplog.clear()
        return found

    return take


@pytest.mark.parametrize(
    ("status", "words"),
    [("VALIDATION_FAILED", "failed"), ("VALIDATION_TIMEOUT", "took too long")],
)
def test_a_validation_without_metrics_is_named_with_its_cause(tmp_path, warnings, status, words):
    Observed(tmp_path).validate(status=status, failure=BOOM)
    (warning,) = warnings()
    assert f"the validation of checkpoint_000003 of trial t00000 {words}, and its" in warning
    assert "no such file" in warning


def test_a_value_that_a_validation_changes_after_decisions_is_warned_of_once(tmp_path, warnings):
    observed = Observed(tmp_path)
    observed.validate({"accuracy": 0.5})
    (warning,) = warnings()
    assert "returned 'accuracy', which the trial had reported itself" in warning
    observed.validate({"accuracy": 0.6})
    assert warnings() == []


def test_values_that_decisions_wait_for_are_not_warned_of(tmp_path, warnings):
    Observed(tmp_path).validate({"accuracy": 0.5}, delivered=True)
    Observed(tmp_path).validate({"loss": 0.5})
    judged_late = Observed(tmp_path)
    validations_of(judged_late.trial).judged_index = 2
    judged_late.validate({"accuracy": 0.5})
    assert warnings() == []


def test_a_checkpoint_without_a_score_is_warned_of_when_its_validation_has_ended(
    tmp_path, warnings
):
    observed = Observed(tmp_path, score_attribute="f1")
    observed.dispatch.notify(CheckpointRecorded(observed.trial, CHECKPOINT))
    assert warnings() == []
    observed.validate({"accuracy": 0.5}, delivered=True)
    (warning,) = warnings()
    assert "checkpoint_000003 of trial t00000 has no number 'f1'" in warning


def test_a_stop_criterion_is_not_taken_for_misspelt_while_a_validation_may_supply_it(
    tmp_path, warnings
):
    observed = Observed(tmp_path, stop={"f1": 0.9})
    observed.report(num_rows=10, accuracy=0.5)
    assert warnings() == []
    observed.validate({"f1": 0.5}, delivered=True)
    observed.report(num_rows=11, accuracy=0.5)
    observed.end()
    assert warnings() == []


def test_a_stop_criterion_that_neither_reports_nor_validations_supply_is_named(tmp_path, warnings):
    observed = Observed(tmp_path, stop={"f2": 0.9})
    observed.report(num_rows=10, accuracy=0.5)
    observed.validate({"f1": 0.5}, delivered=True)
    assert warnings() == []
    observed.report(num_rows=11, accuracy=0.5)
    (warning,) = warnings()
    assert "trial t00000 has never reported stop['f2']" in warning
