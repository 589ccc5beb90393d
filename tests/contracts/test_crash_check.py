"""The crash-and-replay check accepts sound schedulers and finds unsound ones."""

import itertools

import pytest

from schedulers import ASHAScheduler, FIFOScheduler, Pause, Reason, Resume, Scheduler, Stop
from tests.tiers import examples
from tuner.testing import CrashCheckFailed, simulate_with_faults


class Silent(Scheduler):
    """Decides nothing."""

    def on_trial_result(self, trial, result):
        return []


class Promoting(Silent):
    """Pauses every trial at its second result and resumes it when a slot is free."""

    def on_trial_result(self, trial, result):
        return [Pause(trial.trial_id, Reason("test"))] if result["training_iteration"] == 2 else []

    def on_idle(self, trials, num_free_slots):
        return [Resume(trials[0].trial_id, Reason("test"))]


@pytest.mark.property
@pytest.mark.parametrize(
    "make_scheduler",
    [FIFOScheduler, lambda: ASHAScheduler(max_t=9, reduction_factor=3, type="stopping"), Promoting],
)
def test_a_sound_scheduler_passes(make_scheduler):
    num = examples(25)
    check = simulate_with_faults(make_scheduler, num_experiments=num)
    assert check.num_experiments == num
    assert check.num_drivers > num
    assert check.num_worker_failures > num // 5


@pytest.mark.property
def test_the_same_seed_gives_the_same_experiments():
    first, second = (simulate_with_faults(Promoting, num_experiments=2, seed=7) for _ in range(2))
    assert first == second
    assert simulate_with_faults(Promoting, num_experiments=2, seed=70) != first


class RejectsRepeatedResults(Silent):
    """Raises at a result that it has seen before, as after a failed attempt."""

    def __init__(self):
        self.seen = set()

    def on_trial_result(self, trial, result):
        key = trial.trial_id, result["training_iteration"]
        if key in self.seen:
            raise KeyError(key)
        self.seen.add(key)
        return []


class Raising(Silent):
    def on_trial_result(self, trial, result):
        raise KeyError(result["training_iteration"])


@pytest.mark.parametrize("make_scheduler", [RejectsRepeatedResults, Raising])
def test_a_scheduler_that_raises_is_found(make_scheduler):
    with pytest.raises(CrashCheckFailed, match="KeyError") as caught:
        simulate_with_faults(make_scheduler, num_experiments=100)
    [note] = caught.value.__notes__
    assert "simulate_with_faults(make_scheduler, num_experiments=1, seed=" in note


class DecidesByGlobalState(Silent):
    """Decides by something that a replay does not repeat."""

    calls = itertools.count()

    def on_trial_result(self, trial, result):
        is_due = next(self.calls) % 7 == 3
        return [Stop(trial.trial_id, Reason("test"))] if is_due else []


def test_decisions_that_a_replay_does_not_repeat_are_found():
    with pytest.raises(CrashCheckFailed, match="the scheduler decided otherwise in"):
        simulate_with_faults(DecidesByGlobalState, num_experiments=50)


class ForgetsItsState(Silent):
    """Counts results, and loses the count when its state is loaded."""

    def __init__(self):
        self.num_results = 0

    def on_trial_result(self, trial, result):
        self.num_results += 1
        return []

    def state_dict(self):
        return {"num_results": self.num_results}

    def load_state_dict(self, state):
        self.num_results = 0


def test_a_state_that_is_not_restored_is_found():
    with pytest.raises(CrashCheckFailed, match="the state of the scheduler was"):
        simulate_with_faults(ForgetsItsState, num_experiments=50)


class NeverResumes(Promoting):
    """Keeps the experiment alive with pauses alone."""

    def on_trial_result(self, trial, result):
        return [Pause(trial.trial_id, Reason("test"))]


def test_an_experiment_that_does_not_end_is_found(monkeypatch):
    monkeypatch.setattr("tuner.testing.crash_check._MAX_TURNS", 50)
    with pytest.raises(CrashCheckFailed, match="does not end"):
        simulate_with_faults(NeverResumes, num_experiments=50)


class CannotLoadItsState(ForgetsItsState):
    def load_state_dict(self, state):
        raise TypeError("this state is none of mine")


def test_a_state_that_cannot_be_loaded_is_found():
    with pytest.raises(CrashCheckFailed, match="a snapshot cannot be loaded: TypeError"):
        simulate_with_faults(CannotLoadItsState, num_experiments=50)
