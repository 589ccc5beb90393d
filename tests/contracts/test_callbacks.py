"""Contract tests of the callbacks."""

import contextlib
import itertools

import pytest

from tests.callbacks.scenes import new_idle_writer
from tuner.callbacks import (
    Callback,
    CLIReporter,
    Console,
    CSVLoggerCallback,
    ErrorLog,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
)
from tuner.callbacks.files.event_file import EventEncoder
from tuner.core.progress import Progress
from tuner.testing.callback_contract import CallbackContract


@pytest.fixture(scope="module", autouse=True)
def event_messages():
    """Import tensorboardX, which looks for boto3, before the first test that needs it."""
    with contextlib.suppress(ImportError):
        EventEncoder()


class TestCallback(CallbackContract):
    def make_callback(self):
        return Callback()


class TestJsonLogger(CallbackContract):
    def make_callback(self):
        return JsonLoggerCallback(new_idle_writer())


class TestCSVLogger(CallbackContract):
    def make_callback(self):
        return CSVLoggerCallback(new_idle_writer())


@pytest.mark.process  # tensorboardX imports what there is for S3.
class TestTensorBoardLogger(CallbackContract):
    def make_callback(self):
        return TBXLoggerCallback(new_idle_writer())


@pytest.mark.process
class TestLoggerOfItsOwn(CallbackContract):
    def make_callback(self):
        return JsonLoggerCallback()


class TestErrorLog(CallbackContract):
    def make_callback(self):
        return ErrorLog()


@pytest.mark.usefixtures("capfd")
class TestConsole(CallbackContract):
    def make_callback(self):
        return Console(lambda: Progress("contract"), 2)


@pytest.mark.usefixtures("capfd")
class TestConsoleWithReporter(CallbackContract):
    def make_callback(self):
        return Console(
            lambda: Progress("contract"),
            2,
            reporter=CLIReporter(print_intermediate_tables=True, max_report_frequency=0),
        )


class Noting(LoggerCallback):
    """A callback as a user may write it."""

    def __init__(self):
        self.num_results = 0

    def log_trial_result(self, iteration, trial, result):
        self.num_results += 1

    def get_state(self):
        return {"num_results": self.num_results}

    def set_state(self, state):
        self.num_results = state["num_results"]


class TestOneOfAUsers(CallbackContract):
    def make_callback(self):
        return Noting()


class KnowsItsArguments(Callback):
    def on_trial_result(self, iteration, trials, trial, result):
        pass


class TrustsTheLoss(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        assert result["loss"] > 0


class MovesTheTrial(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        trial.last_result = dict(result)


class TakesAway(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        del result["loss"]


class CountsAttempts(Callback):
    def on_trial_start(self, iteration, trials, trial, **info):
        assert trial.attempt == 1


class NeedsATrial(Callback):
    def on_experiment_end(self, trials, **info):
        trials[0]


class NeedsAResult(Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        trial.last_result["loss"]


class KeepsObjects(Callback):
    def get_state(self):
        return {"counter": itertools.count()}


@pytest.mark.parametrize(
    ("callback", "test"),
    [
        (KnowsItsArguments, "test_it_handles_an_experiment"),
        (TrustsTheLoss, "test_it_handles_odd_results"),
        (MovesTheTrial, "test_it_does_not_change_the_trial"),
        (TakesAway, "test_it_keeps_the_entries_of_a_result"),
        (CountsAttempts, "test_it_handles_pauses"),
        (NeedsATrial, "test_it_handles_an_experiment_without_trials"),
        (NeedsAResult, "test_it_handles_failures"),
        (KeepsObjects, "test_its_state_is_json_and_can_be_restored"),
    ],
)
def test_a_defective_callback_breaks_the_contract(callback, test):
    class Contract(CallbackContract):
        def make_callback(self):
            return callback()

    with pytest.raises((AssertionError, KeyError, TypeError, IndexError)):
        getattr(Contract(), test)()
