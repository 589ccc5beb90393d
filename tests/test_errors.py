"""Errors of failed trials that are of Python's own types as well."""

import builtins
import copy
import pickle

import pytest

from tuner.errors import TrialFailed, TunerError, trial_failed

BUILTINS = sorted(
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and kind is not Exception
    and not issubclass(kind, BaseExceptionGroup)
)


def test_an_error_is_of_the_type_that_was_raised_and_looks_like_any_other():
    for name in BUILTINS:
        error = trial_failed('trial t00000 failed: it\'s "so"', [name])
        error.add_note("Traceback ...")
        unpickled = pickle.loads(pickle.dumps(error))  # noqa: S301  (of our own)
        for one in (error, unpickled, copy.copy(error)):
            assert isinstance(one, getattr(builtins, name)), name
            assert isinstance(one, TrialFailed), name
            assert isinstance(one, TunerError), name
            assert str(one) == 'trial t00000 failed: it\'s "so"', name
            assert repr(one).startswith("TrialFailed("), name
            assert one.__notes__ == ["Traceback ..."], name


@pytest.mark.parametrize(
    "kinds",
    [
        (),
        ["killed by SIGKILL"],
        ["CannotPause"],
        ["SystemExit"],
        ["ExceptionGroup"],
        ["print"],
        ["Exception"],
    ],
)
def test_what_is_no_exception_of_pythons_is_a_failed_trial_alone(kinds):
    assert type(trial_failed("no", kinds)) is TrialFailed


def test_a_custom_exception_counts_as_its_nearest_built_in_base():
    error = trial_failed("no", ["OutOfMemoryError", "RuntimeError"])
    assert isinstance(error, RuntimeError)
    assert not isinstance(error, ValueError)


def test_it_is_caught_as_what_was_raised():
    with pytest.raises(KeyError, match="trial t00000 failed"):
        raise trial_failed("trial t00000 failed: KeyError: 'lr'", ["KeyError", "LookupError"])
