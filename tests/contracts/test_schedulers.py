"""Contract tests of FIFO and custom schedulers, and tests of `Rehearsal`."""

from schedulers import ASHAScheduler, FIFOScheduler, Pause, Reason, Resume, Scheduler
from tuner.testing.rehearsal import Rehearsal
from tuner.testing.scheduler_contract import SchedulerContract


class TestFIFO(SchedulerContract):
    def make_scheduler(self):
        return FIFOScheduler()


class TestASHA(SchedulerContract):
    def make_scheduler(self):
        return ASHAScheduler(max_t=18, grace_period=2, reduction_factor=3, type="stopping")


class TestASHAInBracketsByTime(SchedulerContract):
    def make_scheduler(self):
        return ASHAScheduler(
            time_attr="time_total_s",
            max_t=150.0,
            grace_period=10,
            reduction_factor=2,
            brackets=3,
            stop_last_trials=False,
            type="stopping",
        )


class PausesEachTrialOnce(Scheduler):
    """Stands for the schedulers that pause and resume."""

    def __init__(self):
        self.resumed = set()

    def on_trial_result(self, trial, result):
        is_due = result.get("training_iteration") == 7 and trial.trial_id not in self.resumed
        return [Pause(trial.trial_id, Reason("test"))] if is_due else ()

    def on_idle(self, trials, num_free_slots):
        chosen = [trial.trial_id for trial in trials][:num_free_slots]
        self.resumed.update(chosen)
        return [Resume(trial_id, Reason("test")) for trial_id in chosen]

    def state_dict(self):
        return {"resumed": sorted(self.resumed)}

    def load_state_dict(self, state):
        self.resumed = set(state["resumed"])


class TestPausing(SchedulerContract):
    def make_scheduler(self):
        return PausesEachTrialOnce()


class NeverResumes(PausesEachTrialOnce):
    def on_idle(self, trials, num_free_slots):
        return ()


def test_a_rehearsal_resumes_what_was_paused():
    rehearsal = Rehearsal(PausesEachTrialOnce()).run()
    assert [trial.time for trial in rehearsal.trials] == [20, 3, 0, *[20] * 9]
    assert any(fact.startswith("idle: [Resume") for fact in rehearsal.facts)


def test_a_rehearsal_ends_paused_trials_that_are_never_resumed():
    rehearsal = Rehearsal(NeverResumes()).run()
    assert [trial.time for trial in rehearsal.trials] == [7, 3, 0, *[7] * 9]


def test_a_rehearsal_applies_stops_and_covers_every_kind_of_fact():
    scheduler = ASHAScheduler(
        metric="score", mode="max", max_t=18, reduction_factor=3, type="stopping"
    )
    rehearsal = Rehearsal(scheduler).run()
    kinds = [fact.split()[0] for fact in rehearsal.facts]
    assert {kind: kinds.count(kind) for kind in ("added", "completed", "failed")} == {
        "added": 12,
        "completed": 11,
        "failed": 1,
    }
    assert any("asha.rung" in fact for fact in rehearsal.facts)
    assert max(trial.time for trial in rehearsal.trials) == 18
