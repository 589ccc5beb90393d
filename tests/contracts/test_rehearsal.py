"""`Rehearsal`, which calls a scheduler as the engine does."""

from schedulers import ASHAScheduler
from tests.contracts.test_schedulers import PausesEachTrialOnce
from tuner.testing.rehearsal import Rehearsal


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
