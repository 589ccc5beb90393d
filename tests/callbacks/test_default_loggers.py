"""The loggers of an experiment by default, and those that are disabled."""

import threading

import pytest

from tuner.callbacks import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
    default_loggers,
)
from tuner.callbacks.callback_list import CallbackList


def test_the_defaults_are_the_three_file_loggers():
    assert [type(logger) for logger in default_loggers()] == [
        JsonLoggerCallback,
        CSVLoggerCallback,
        TBXLoggerCallback,
    ]


def test_a_class_that_the_user_gave_is_not_added_again():
    class Mine(CSVLoggerCallback):
        pass

    assert [type(logger) for logger in default_loggers([Mine()])] == [
        JsonLoggerCallback,
        TBXLoggerCallback,
    ]


@pytest.mark.process
def test_they_share_one_thread_which_ends_with_the_experiment(make_trial, report):
    before = threading.active_count()
    callbacks = CallbackList(default_loggers())
    trial = make_trial()
    callbacks.call("setup")
    callbacks.call("on_trial_start", iteration=0, trials=[trial], trial=trial)
    callbacks.on_trial_result(report(trial, 1, loss=1.0), iteration=1, trials=[trial], trial=trial)
    assert threading.active_count() == before + 1
    callbacks.call("on_experiment_end", trials=[trial])
    assert threading.active_count() == before
