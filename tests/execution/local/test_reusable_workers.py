"""A worker kept for reuse that cannot be reset is replaced, in any order of its messages."""

import select
import selectors

import pytest

from tests.execution.local.conftest import DEADLINE_S
from tuner.core.commands import AnswerReport
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.trial import ReportReply
from tuner.execution.trainable import Trainable

pytestmark = pytest.mark.process


class Stubborn(Trainable):
    def step(self):
        return {}

    def reset_config(self, new_config):
        return False


@pytest.fixture
def refused(start_executor):
    """Start a second attempt in the process of the first, which refuses it and exits."""
    harness = start_executor(Stubborn)
    harness.start("t00001")
    harness.next_event("t00001", ResultReported)
    harness.executor.carry_out([AnswerReport("t00001", 1, ReportReply.EXPLOIT, stay=True)])
    harness.next_event("t00001", WorkerExited)
    harness.events.clear()
    harness.start("t00001", attempt=2)
    assert select.select([harness.processes._launcher.control], [], [], DEADLINE_S)[0]
    return harness


def test_a_process_that_exits_before_its_unfit_message_is_read_is_replaced(refused):
    refused.processes._on_launcher(selectors.EVENT_READ)  # the system may name this one first
    assert refused.next_event("t00001", WorkerStarted).attempt == 2
    assert refused.next_event("t00001", ResultReported).attempt == 2


def test_a_process_that_exits_before_its_unfit_message_is_read_is_not_replaced_for_a_killed_trial(
    refused,
):
    refused.kill("t00001", attempt=2)
    refused.processes._on_launcher(selectors.EVENT_READ)
    assert refused.next_event("t00001", WorkerExited).outcome is Outcome.KILLED
    assert refused.executor.wait(0.0) == []


def test_an_unfit_message_after_a_kill_starts_no_other_process(refused):
    refused.kill("t00001", attempt=2)
    assert refused.next_event("t00001", WorkerExited).outcome is Outcome.KILLED
    assert refused.executor.wait(0.0) == []
