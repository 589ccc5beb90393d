"""Small experiments with random faults, to test that every experiment ends."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from schedulers import Pause, Resize, Resume, Stop

OVER = ("TERMINATED", "ERROR")


@dataclass
class Stub:
    """A trial that tests set up by hand, or that `World` runs."""

    trial_id: str
    config: dict = field(default_factory=dict)
    status: str = "RUNNING"
    resources: dict = field(default_factory=lambda: {"cpu": 1.0})
    has_checkpoint: bool = False
    checkpoint_index: int | None = None
    checkpoint_iteration: int | None = None


@dataclass
class StubExperiment:
    """An experiment that tests set up by hand."""

    trials: dict = field(default_factory=dict)
    max_trials: int | None = None
    no_more_trials: bool = False
    can_save_on_demand: bool = True
    resources: dict = field(default_factory=lambda: {"cpu": 4.0})


@dataclass
class Schedule:
    """Events of a trial that is not stopped."""

    step: int
    ends_at: int
    fails_at: int
    lost_at: int
    pauses_after: int
    curve: float


class World:
    """Runs trials with random schedules, and calls a scheduler with one result at a time.

    Results may jump by several iterations, be NaN or lack the metric. Trials end, fail for good,
    are lost once and repeat what they have reported since their last checkpoint, and may report a
    few more results before they pause. A searcher may limit the number of trials that have not
    ended, paused ones included.
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
        self.rng = Random(seed)  # noqa: S311  (not a secret)
        self.make_scheduler = make_scheduler
        self.scheduler = make_scheduler()
        self.schedules = [self.draw_schedule(num_results) for _ in range(num_trials)]
        self.trials, self.time, self.pausing, self.resized = {}, Counter(), {}, {}
        self.max_trials, self.max_alive, self.can_save_on_demand = None, max_alive, True
        self.resources = {"cpu": float(num_slots)}
        self.num_restarts = num_restarts
        self.log, self.num_results_reported = [], 0
        self.scheduler.experiment = self

    def draw_schedule(self, num_results):
        rng = self.rng
        is_failing, is_lost = rng.random() < 0.15, rng.random() < 0.2
        return Schedule(
            step=rng.choice([1, 1, 1, 2, 7]),
            ends_at=rng.choice([0, num_results, num_results, rng.randint(1, num_results)]),
            fails_at=rng.randint(1, 10) if is_failing else 10**9,
            lost_at=rng.randint(1, 10) if is_lost else 10**9,
            pauses_after=rng.choice([0, 0, 0, 1, 3]),
            curve=rng.random(),
        )

    def with_status(self, *statuses):
        return [trial for trial in self.trials.values() if trial.status in statuses]

    @property
    def is_full(self):
        return (
            self.max_alive is not None
            and len(self.with_status("PENDING", "RUNNING", "PAUSED")) >= self.max_alive
        )

    @property
    def no_more_trials(self):
        return not self.schedules or (self.is_full and not self.with_status("PENDING", "RUNNING"))

    def num_free(self, trial=None):
        used = sum(running.resources["cpu"] for running in self.with_status("RUNNING"))
        assert used <= self.resources["cpu"], f"{used} in use of {self.resources}"
        return int((self.resources["cpu"] - used) / (trial.resources["cpu"] if trial else 1.0))

    def run(self, max_turns=20_000):
        for _ in range(max_turns):
            self.fill()
            if not self.with_status("PENDING", "RUNNING"):
                assert not self.with_status("PAUSED"), (
                    f"never resumed: {[trial.trial_id for trial in self.with_status('PAUSED')]}"
                )
                assert not self.schedules
                return self
            self.advance(self.rng.choice(self.with_status("RUNNING")))
            # Only so often: between two restarts there may be no checkpoint, hence no progress.
            if self.num_restarts and self.rng.random() < 0.1:
                self.num_restarts -= 1
                self.restart()
        raise AssertionError("no end")

    def fill(self):
        self.start_pending()
        while self.with_status("PAUSED") and not self.with_status("PENDING") and self.num_free():
            before = len(self.with_status("PAUSED"))
            self.carry_out_all(
                self.scheduler.on_idle(self.with_status("PAUSED"), self.num_free()), "idle"
            )
            self.start_pending()
            if len(self.with_status("PAUSED")) == before:
                break
        while (
            self.schedules
            and self.num_free()
            and not self.is_full
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
        trial.schedule = self.schedules.pop(0)
        self.trials[trial.trial_id] = trial
        self.carry_out_all(self.scheduler.on_trial_add(trial), "add")

    def advance(self, trial):
        schedule, trial_id = trial.schedule, trial.trial_id
        if self.time[trial_id] >= schedule.ends_at:
            self.end(trial)
            return
        time = self.time[trial_id] = self.time[trial_id] + schedule.step
        self.num_results_reported += 1
        self.carry_out_all(
            self.scheduler.on_trial_result(trial, self.result(trial, time)), f"{trial_id}@{time}"
        )
        if trial.status == "RUNNING" and time >= schedule.fails_at:
            trial.status = "ERROR"
            self.carry_out_all(self.scheduler.on_trial_error(trial), f"{trial_id} failed")
        elif trial.status == "RUNNING" and time >= schedule.lost_at:
            schedule.lost_at = 10**9
            self.lose(trial)

    def result(self, trial, time):
        loss = trial.schedule.curve + 1 / time
        oddity = Random(f"{trial.trial_id}/{time}").random()  # noqa: S311  (not a secret)
        result = {
            "training_iteration": time,
            "time_total_s": 1.5 * time,
            "loss": math.nan if oddity < 0.1 else loss,
        }
        return {key: value for key, value in result.items() if key != "loss" or oddity < 0.95}

    def lose(self, trial):
        trial.status = "PENDING"
        self.pausing.pop(trial.trial_id, None)
        if trial.trial_id in self.resized:
            trial.resources = self.resized.pop(trial.trial_id)
        self.time[trial.trial_id] = trial.checkpoint_iteration or 0

    def save(self, trial):
        trial.has_checkpoint, trial.checkpoint_iteration = True, self.time[trial.trial_id]

    def end(self, trial):
        trial.status = "TERMINATED"
        self.carry_out_all(self.scheduler.on_trial_complete(trial, None), f"{trial.trial_id} ended")

    def restart(self):
        """Lose all workers and their pending pauses, and restore the scheduler from its state."""
        state = json.dumps(self.scheduler.state_dict(), allow_nan=False)
        self.scheduler = self.make_scheduler()
        self.scheduler.load_state_dict(json.loads(state))
        self.scheduler.experiment = self
        assert json.dumps(self.scheduler.state_dict()) == state
        for trial in self.with_status("RUNNING"):
            self.lose(trial)

    def carry_out_all(self, decisions, fact):
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
                self.pausing.setdefault(trial.trial_id, trial.schedule.pauses_after)
                if self.pausing[trial.trial_id] <= 0:
                    del self.pausing[trial.trial_id]
                    self.save(trial)
                    trial.status = "PAUSED"
                else:
                    self.pausing[trial.trial_id] -= 1
            case Resume() if trial.status == "PAUSED":
                trial.status = "PENDING"
            case Resize() if trial.status == "RUNNING":
                self.save(trial)
                trial.status, trial.resources = "PENDING", dict(decision.resources)
