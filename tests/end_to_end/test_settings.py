"""Settings are objects that can be assigned to, field by field, and are checked each time."""

import copy
import pickle

import pytest

from schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from tuner import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, TuneConfig, Tuner

pytestmark = pytest.mark.unit

SETTINGS = {
    TuneConfig: {"num_samples": 7, "scheduler": FIFOScheduler(), "time_budget_s": 5.0, "seed": 3},
    RunConfig: {
        "name": "other",
        "verbose": 0,
        "stop": {"training_iteration": 2},
        "failure_config": FailureConfig(max_failures=2),
    },
    CheckpointConfig: {
        "num_to_keep": 2,
        "checkpoint_score_attribute": "loss",
        "checkpoint_score_order": "min",
        "upload": "async",
    },
    FailureConfig: {"max_failures": 3, "stop_grace_s": 1.0},
    ResumeConfig: {
        "errored": ResumeConfig.ResumeType.RESTART,
        "unfinished": ResumeConfig.ResumeType.SKIP,
    },
}
REFUSED = [
    (TuneConfig, "num_samples", 0, ValueError),
    (TuneConfig, "scheduler", "ashaa", ValueError),
    (TuneConfig, "mode", "up", ValueError),
    (RunConfig, "verbose", 9, ValueError),
    (RunConfig, "callbacks", [1], TypeError),
    (RunConfig, "storage_path", 3, TypeError),
    (CheckpointConfig, "num_to_keep", 0, ValueError),
    (CheckpointConfig, "checkpoint_frequency", -1, ValueError),
    (FailureConfig, "max_failures", -2, ValueError),
    (ResumeConfig, "errored", "again", ValueError),
]


@pytest.mark.parametrize("kind", SETTINGS)
def test_what_is_assigned_is_as_if_it_had_been_given_to_the_constructor(kind):
    config = kind()
    for name, value in SETTINGS[kind].items():
        setattr(config, name, value)
    assert config == kind(**SETTINGS[kind])
    assert copy.copy(config) == config


@pytest.mark.parametrize("kind", [CheckpointConfig, FailureConfig, ResumeConfig])
def test_settings_are_pickled_with_what_was_assigned(kind):
    config = kind()
    for name, value in SETTINGS[kind].items():
        setattr(config, name, value)
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  (written in this line)


@pytest.mark.parametrize(("kind", "name", "value", "error"), REFUSED)
def test_what_the_constructor_refuses_is_refused_when_it_is_assigned_and_changes_nothing(
    kind, name, value, error
):
    config = kind()
    with pytest.raises(error) as refused:
        setattr(config, name, value)
    with pytest.raises(error) as refused_by_constructor:
        kind(**{name: value})
    assert str(refused.value) == str(refused_by_constructor.value)
    assert config == kind()


def test_a_word_is_taken_for_what_it_means():
    config = ResumeConfig()
    config.errored = "restart"
    assert config.errored is ResumeConfig.ResumeType.RESTART


def test_a_field_that_does_not_exist_is_refused_with_the_nearest_one():
    config = TuneConfig()
    with pytest.raises(
        AttributeError, match="TuneConfig has no field 'num_sample'; did you mean 'num_samples'"
    ):
        config.num_sample = 3
    with pytest.raises(
        AttributeError, match="FailureConfig has no field 'xyz'; it has max_failures, fail_fast, "
    ):
        FailureConfig().xyz = 1


def test_what_contradicts_each_other_may_be_assigned_one_by_one_and_is_refused_by_the_tuner():
    failure = FailureConfig(max_failures=2)
    failure.fail_fast = True
    with pytest.raises(ValueError, match="fail_fast needs max_failures=0"):
        Tuner(print, run_config=RunConfig(failure_config=failure))
    failure.max_failures = 0
    Tuner(print, run_config=RunConfig(failure_config=failure))


def test_a_scheduler_class_is_to_be_called():
    with pytest.raises(
        TypeError,
        match=r"got the class ASHAScheduler; call it: "
        r"scheduler=ASHAScheduler\(\.\.\.\)",
    ):
        TuneConfig(scheduler=ASHAScheduler)
    config = TuneConfig()
    with pytest.raises(TypeError, match=r"call it: scheduler=TrialScheduler\(\.\.\.\)"):
        config.scheduler = TrialScheduler
    assert config.scheduler is None
