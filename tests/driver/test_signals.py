import signal

import pytest

from tuner.core.events import TIME_LIMIT
from tuner.core.failure_causes import COMMON_FAILURE
from tuner.core.policies import TIME_BUDGET
from tuner.core.trial import TerminationReason, Trial
from tuner.driver.signals import exit_code, has_failed

FAILED, DONE = TerminationReason.FAILED, TerminationReason.COMPLETED
EARLY, CUT = TerminationReason.STOPPED_EARLY, TerminationReason.INTERRUPTED


def trial(ending, *, reported=True):
    made = Trial("t00000", {}, {})
    made.ending = ending
    made.last_result = {"loss": 1.0} if reported else {}
    return made


@pytest.mark.parametrize(
    ("endings", "rule", "has_none"),
    [
        ([], "", False),
        ([FAILED], "", True),
        ([FAILED] * 20, "", True),
        ([FAILED] * 5, COMMON_FAILURE, True),
        ([FAILED, DONE], "", False),
        ([FAILED, EARLY], "", False),
        ([CUT, CUT], TIME_BUDGET, False),
        ([FAILED, CUT], TIME_BUDGET, False),
        ([FAILED, None], TIME_BUDGET, False),
        ([FAILED, CUT], "fail_fast", True),
        ([FAILED, DONE], "fail_fast", False),
    ],
)
def test_an_experiment_fails_if_trials_fail_and_none_succeeds(endings, rule, has_none):
    assert has_failed([trial(ending) for ending in endings], rule) is has_none


def test_a_trial_that_has_yet_to_report_has_not_succeeded():
    assert has_failed([trial(FAILED), trial(None, reported=False)], TIME_BUDGET)


@pytest.mark.parametrize(
    ("rule", "received", "failed", "code"),
    [
        ("", None, False, None),
        ("", None, True, 1),
        (TIME_LIMIT, None, True, 124),
        ("signal.SIGINT", signal.SIGINT, True, 130),
        ("signal.SIGTERM", signal.SIGTERM, False, 143),
        (COMMON_FAILURE, signal.SIGINT, True, 1),
    ],
)
def test_what_has_interrupted_a_script_says_more_than_that_its_trials_have_failed(
    rule, received, failed, code
):
    assert exit_code(rule, received, has_failed=failed) == code
