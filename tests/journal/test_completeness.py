"""The progress of trials by a journal, with which the files beside it are compared."""

from tuner.core.events import (
    CheckpointCommitted,
    CheckpointSaved,
    Outcome,
    ResultReported,
    TrialSuggested,
    ValidationEnded,
)
from tuner.core.trial import CheckpointRecord, ValidationRequest
from tuner.journal.completeness import Evidence, RecordedProgress, progress_in
from tuner.journal.records import encode

TRIAL = "t00000"


def progress_of(*events):
    return progress_in(encode(event, 0.0) for event in events)[TRIAL]


def reported(iteration, **more):
    return ResultReported(TRIAL, 1, {"training_iteration": iteration}, **more)


def test_progress_is_that_of_the_last_result_and_the_last_checkpoint():
    assert progress_of(TrialSuggested(TRIAL, {}, {})) == RecordedProgress()
    events = reported(1, checkpoint=CheckpointRecord(0, 1)), reported(2)
    assert progress_of(*events) == RecordedProgress(2, 1)
    assert progress_of(*events, CheckpointSaved(TRIAL, 1, CheckpointRecord(1, 2))) == (
        RecordedProgress(2, 2)
    )


def test_a_checkpoint_that_was_reported_may_be_stored_before_that_is_recorded():
    announced = [reported(iteration, upload=iteration - 1) for iteration in range(1, 7)]
    assert progress_of(*announced) == RecordedProgress(6, 6)
    stored = Evidence(TRIAL, "t00000/checkpoint_000005", 6, 0.0, index=5)
    assert not stored.contradicts(progress_of(*announced))
    assert progress_of(CheckpointCommitted(TRIAL, 1, CheckpointRecord(7, 8))).next_checkpoint == 8


def test_validations_are_no_progress():
    event = reported(1, checkpoint=CheckpointRecord(0, 1), validation=ValidationRequest())
    ended = ValidationEnded(TRIAL, 0, 1, Outcome.COMPLETED, {"training_iteration": 9})
    assert progress_of(event, ended) == progress_of(event)
