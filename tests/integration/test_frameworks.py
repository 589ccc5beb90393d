"""Training with a framework goes on as if nothing had happened, and ends politely, whatever the scheduler decides."""

import importlib.util
from pathlib import Path

import pytest

NEEDS = {"keras_training": "keras", "lightning_training": "lightning", "transformers_training": "transformers"}


@pytest.fixture(scope="module", params=NEEDS)
def trained(request, fates):
    if importlib.util.find_spec(NEEDS[request.param]) is None:
        pytest.skip(f"{NEEDS[request.param]} is not installed")
    return fates(request.param, **({"namespace": "lightning"} if request.param == "lightning_training" else {}))


def test_a_trial_that_was_paused_after_each_epoch_has_the_curve_of_one_that_was_not(trained, column):
    assert column(trained["go"], "training_iteration") == column(trained["pause"], "training_iteration") == [1, 2, 3, 4]
    assert column(trained["go"], "loss") == column(trained["pause"], "loss")
    assert column(trained["go"], "rate") == column(trained["pause"], "rate")
    assert len(set(column(trained["pause"], "pid"))) == 4


def test_a_stopped_trial_is_terminated_and_what_watches_its_training_is_told_of_the_end(trained, column, closed):
    assert trained["stop"].status == "TERMINATED"
    assert column(trained["stop"], "training_iteration") == [1, 2]
    assert closed(trained["stop"]) == closed(trained["go"]) == "success"


def test_a_clone_goes_on_with_the_schedule_of_the_donor_and_the_rate_of_its_own(trained, column):
    donor = column(trained["go"], "rate")
    assert column(trained["follow"], "rate")[-3:] == pytest.approx([10 * rate for rate in donor[-3:]])


def test_each_result_has_a_checkpoint(trained):
    assert len(list(Path(trained["pause"].path).glob("checkpoint_*"))) == 4
