import pytest

from tuner.analysis.result_grid import ResultGrid
from tuner.analysis.shortfalls import why_none_validated
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest
from tuner.journal.rows import MemoryRows
from tuner.validation.records import Validation, ValidationState, validations_of

FAILED, TIMEOUT = ValidationState.FAILED, ValidationState.TIMEOUT


def trial_with(*states):
    trial = Trial("t00000", {}, {})
    trial.local_path = "/results/exp/t00000"
    trial.last_result = {"loss": 1.0, "training_iteration": 1}
    trial.summarise(trial.last_result)
    for index, state in enumerate(states):
        validation = Validation(
            CheckpointRecord(index, index + 1), ValidationRequest(), is_open=True
        )
        validation.state, validation.failure = state, Failure("KeyError", f"'label {index}'")
        validations_of(trial).validations[index] = validation
    return trial


@pytest.mark.parametrize(
    "states", [(), (ValidationState.QUEUED,), (FAILED, ValidationState.VALIDATED)]
)
def test_nothing_is_said_unless_all_that_have_ended_failed(states):
    assert why_none_validated([trial_with(*states)]) == ""


def test_the_first_cause_and_its_log_file_are_named():
    trials = [trial_with(ValidationState.QUEUED, FAILED), trial_with(TIMEOUT)]
    assert why_none_validated(trials) == (
        "2 of 2 validations failed: KeyError: 'label 1', /results/exp/t00000/validation_000001.log"
    )


def test_the_best_result_is_missing_for_the_same_reason(tmp_path):
    trials = [trial_with(FAILED)]
    grid = ResultGrid(trials, str(tmp_path), MemoryRows({}), "acc", "max")
    with pytest.raises(RuntimeError, match="no trial has the metric 'acc': 1 of 1 validations"):
        grid.get_best_result()
    with pytest.raises(ValueError, match="lss"):
        grid.get_best_result("lss", "min")
