"""An experiment in miniature in which everything goes wrong that may go wrong, to see whether a
scheduler gets it to an end.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from schedulers import Pause, Resize, Resume, Stop

OVER = ("TERMINATED", "ERROR")


@dataclass
class Stub:
    """A trial for conversations by hand, and for the world below."""

    trial_id: str
    config: dict = field(default_factory=dict)
    status: str = "RUNNING"
    resources: dict = field(default_factory=lambda: {"cpu": 1.0})
    has_checkpoint: bool = False
    checkpoint_index: int | None = None
    checkpoint_iteration: int | None = None


@dataclass
class StubExperiment:
    """What a scheduler sees in a conversation by hand."""

    trials: dict = field(default_factory=dict)
    max_trials: int | None = None
    no_more_trials: bool = False
    can_save_on_demand: bool = True
    resources: dict = field(default_factory=lambda: {"cpu": 4.0})


@dataclass
class Fate:
    """What happens to a trial that is not stopped."""

    step: int
    ends_at: int
    fails_at: int
    lost_at: int
    pauses_after: int
    curve: float


class World:
    """Plays trials of random fates to a scheduler, one result at a time.

    Results may jump by several iterations, be NaN or lack the metric. Trials end, fail for good,
    are lost once and repeat what they have reported since their last checkpoint, and may take a few
    more results before they obey a pause. A searcher may allow only so many trials at a time,
    paused ones included.
    """

    def __init__(
        self,
        make_scheduler,
        seed,
        *,
        num_trials=20,
        num_slots=3,
        max_alive=None,
        num_results=30,
        num_restarts=10,
    ):
        self.chance = Random(seed)  # noqa: S311  (not a secret)
        self.make_scheduler = make_scheduler
        self.scheduler = make_scheduler()
        self.fates = [self.draw_fate(num_results) for _ in range(num_trials)]
        self.trials, self.time, self.told, self.resized = {}, Counter(), {}, {}
        self.max_trials, self.max_alive, self.can_save_on_demand = None, max_alive, True
        self.resources = {"cpu": float(num_slots)}
        self.num_restarts = num_restarts
        self.log, self.num_results_told = [], 0
        self.scheduler.experiment = self

    def draw_fate(self, num_results):
        chance = self.chance
        is_failing, is_lost = chance.random() < 0.15, chance.random() < 0.2
        return Fate(
            step=chance.choice([1, 1, 1, 2, 7]),
            ends_at=chance.choice([0, num_results, num_results, chance.randint(1, num_results)]),
            fails_at=chance.randint(1, 10) if is_failing else 10**9,
            lost_at=chance.randint(1, 10) if is_lost else 10**9,
            pauses_after=chance.choice([0, 0, 0, 1, 3]),
            curve=chance.random(),
        )

    def with_status(self, *statuses):
        return [trial for trial in self.trials.values() if trial.status in statuses]

    @property
    def is_blocked(self):
        return (
            self.max_alive is not None
            and len(self.with_status("PENDING", "RUNNING", "PAUSED")) >= self.max_alive
        )

    @property
    def no_more_trials(self):
        return not self.fates or (self.is_blocked and not self.with_status("PENDING", "RUNNING"))

    def num_free(self, trial=None):
        used = sum(running.resources["cpu"] for running in self.with_status("RUNNING"))
        assert used <= self.resources["cpu"], f"{used} in use of {self.resources}"
        return int((self.resources["cpu"] - used) / (trial.resources["cpu"] if trial else 1.0))

    def run(self, max_turns=20_000):
        for _ in range(max_turns):
            self.fill()
            if not self.with_status("PENDING", "RUNNING"):
                assert not self.with_status("PAUSED"), (
                    f"left alone: {[trial.trial_id for trial in self.with_status('PAUSED')]}"
                )
                assert not self.fates
                return self
            self.advance(self.chance.choice(self.with_status("RUNNING")))
            # Not for ever: nothing may be saved between two of them.
            if self.num_restarts and self.chance.random() < 0.1:
                self.num_restarts -= 1
                self.restart()
        raise AssertionError("no end")

    def fill(self):
        self.start_pending()
        while self.with_status("PAUSED") and not self.with_status("PENDING") and self.num_free():
            before = len(self.with_status("PAUSED"))
            self.obey(self.scheduler.on_idle(self.with_status("PAUSED"), self.num_free()), "idle")
            self.start_pending()
            if len(self.with_status("PAUSED")) == before:
                break
        while (
            self.fates
            and self.num_free()
            and not self.is_blocked
            and not self.with_status("PENDING")
        ):
            self.add()
            self.start_pending()

    def start_pending(self):
        for trial in self.with_status("PENDING"):
            if self.num_free(trial):
                trial.status = "RUNNING"

    def add(self):
        trial = Stub(f"t{len(self.trials):03d}", status="PENDING")
        trial.fate = self.fates.pop(0)
        self.trials[trial.trial_id] = trial
        self.obey(self.scheduler.on_trial_add(trial), "add")

    def advance(self, trial):
        fate, trial_id = trial.fate, trial.trial_id
        if self.time[trial_id] >= fate.ends_at:
            self.end(trial)
            return
        time = self.time[trial_id] = self.time[trial_id] + fate.step
        self.num_results_told += 1
        self.obey(
            self.scheduler.on_trial_result(trial, self.result(trial, time)), f"{trial_id}@{time}"
        )
        if trial.status == "RUNNING" and time >= fate.fails_at:
            trial.status = "ERROR"
            self.obey(self.scheduler.on_trial_error(trial), f"{trial_id} failed")
        elif trial.status == "RUNNING" and time >= fate.lost_at:
            fate.lost_at = 10**9
            self.lose(trial)

    def result(self, trial, time):
        loss = trial.fate.curve + 1 / time
        oddity = Random(f"{trial.trial_id}/{time}").random()  # noqa: S311  (not a secret)
        result = {
            "training_iteration": time,
            "time_total_s": 1.5 * time,
            "loss": math.nan if oddity < 0.1 else loss,
        }
        return {key: value for key, value in result.items() if key != "loss" or oddity < 0.95}

    def lose(self, trial):
        trial.status = "PENDING"
        self.told.pop(trial.trial_id, None)
        if trial.trial_id in self.resized:
            trial.resources = self.resized.pop(trial.trial_id)
        self.time[trial.trial_id] = trial.checkpoint_iteration or 0

    def save(self, trial):
        trial.has_checkpoint, trial.checkpoint_iteration = True, self.time[trial.trial_id]

    def end(self, trial):
        trial.status = "TERMINATED"
        self.obey(self.scheduler.on_trial_complete(trial, None), f"{trial.trial_id} ended")

    def restart(self):
        """Lose all workers, and with them what they were told, and bring the scheduler back from
        its state.
        """
        state = json.dumps(self.scheduler.state_dict(), allow_nan=False)
        self.scheduler = self.make_scheduler()
        self.scheduler.load_state_dict(json.loads(state))
        self.scheduler.experiment = self
        assert json.dumps(self.scheduler.state_dict()) == state
        for trial in self.with_status("RUNNING"):
            self.lose(trial)

    def obey(self, decisions, fact):
        self.log.append(f"{fact}: {list(decisions)}")
        for decision in decisions:
            assert self.trials[decision.trial_id].status not in OVER, (
                f"{decision} after {fact}, which comes too late"
            )
        for decision in decisions:
            self.carry_out(decision, self.trials[decision.trial_id])

    def carry_out(self, decision, trial):
        match decision:
            case Stop() if trial.status not in OVER:
                self.end(trial)
            case Pause() if trial.status == "RUNNING":
                self.told.setdefault(trial.trial_id, trial.fate.pauses_after)
                if self.told[trial.trial_id] <= 0:
                    del self.told[trial.trial_id]
                    self.save(trial)
                    trial.status = "PAUSED"
                else:
                    self.told[trial.trial_id] -= 1
            case Resume() if trial.status == "PAUSED":
                trial.status = "PENDING"
            case Resize() if trial.status == "RUNNING":
                self.save(trial)
                trial.status, trial.resources = "PENDING", dict(decision.resources)
