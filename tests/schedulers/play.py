"""Experiments without faults, for schedulers that pause and resume.

Trials follow given curves on a given number of slots.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from schedulers.decisions import Pause, Resume, Save, Stop


@dataclass
class Actor:
    """A trial with the attributes of `TrialView`."""

    trial_id: str
    config: dict = field(default_factory=dict)
    status: str = "PENDING"
    time: int = 0
    resources: dict = field(default_factory=lambda: {"cpu": 1.0})
    checkpoint_index: int | None = None
    checkpoint_iteration: int | None = None

    @property
    def has_checkpoint(self):
        return self.checkpoint_index is not None


class Stage:
    """An experiment with the attributes of `ExperimentView`, all of which may be set."""

    def __init__(self, max_trials=None, *, can_save_on_demand=True):
        self.trials = {}
        self.max_trials = max_trials
        self.no_more_trials = False
        self.can_save_on_demand = can_save_on_demand
        self.resources = {"cpu": 8.0}


class Play:
    """Runs trials, one report of each running one per round, and records the decisions.

    `summary` holds ``(verb, trial_id, rule)`` for each decision that is not a stop at the last
    level, in order.
    """

    def __init__(
        self,
        scheduler,
        curves: dict[str, Callable[[int], object]],
        num_slots,
        *,
        max_trials: int | None = None,
        last_time=10**6,
    ):
        self.stage = scheduler.experiment = Stage(max_trials)
        self.scheduler = scheduler
        self.summary = []
        self.decisions = []
        self.num_decided = 0
        self.num_facts = 0
        self.after_fact = lambda: None
        self._curves = curves
        self._to_come = list(curves)
        self._num_slots = num_slots
        self._last_time = last_time

    def run(self, max_rounds=2000):
        for _ in range(max_rounds):
            self._fill()
            running = self._with("RUNNING")
            if not running:
                assert not self._with("PAUSED") and not self._to_come, "it must end"  # noqa: PT018
                return self
            for actor in running:
                if actor.status == "RUNNING":
                    self._report(actor)
        raise AssertionError("it must end")

    def stopped(self):
        return {
            trial_id: (actor.time, actor.status) for trial_id, actor in self.stage.trials.items()
        }

    def _with(self, status):
        return [actor for actor in self.stage.trials.values() if actor.status == status]

    def _fill(self):
        while (free := self._num_slots - len(self._with("RUNNING"))) > 0:
            num_before = self.num_decided
            if paused := self._with("PAUSED"):
                self._carry_out(self.scheduler.on_idle(paused, free))
            for actor in self._with("PENDING"):
                actor.status = "RUNNING"
            if self.num_decided > num_before:
                continue
            if not self._to_come:
                return
            actor = Actor(self._to_come.pop(0))
            self.stage.trials[actor.trial_id] = actor
            self.stage.no_more_trials = not self._to_come
            self._carry_out(self.scheduler.on_trial_add(actor))
            actor.status = "RUNNING"

    def _report(self, actor):
        actor.time += 1
        result = {"training_iteration": actor.time, "time_total_s": 1.0 * actor.time} | self._read(
            actor
        )
        self._carry_out(self.scheduler.on_trial_result(actor, result))
        if actor.status == "RUNNING" and actor.time >= self._last_time:
            self._end(actor)

    def _read(self, actor):
        value = self._curves[actor.trial_id](actor.time)
        return value if isinstance(value, dict) else {"loss": value}

    def _end(self, actor):
        actor.status = "TERMINATED"
        self._carry_out(self.scheduler.on_trial_complete(actor, self._read(actor)))

    def _carry_out(self, decisions):
        self.num_facts += 1
        self.after_fact()
        for decision in decisions:
            actor = self.stage.trials[decision.trial_id]
            assert actor.status not in {"TERMINATED", "ERROR"}, f"stray: {decision}"
            self.num_decided += 1
            self.decisions.append(decision)
            if not decision.reason.rule.endswith(".max_t"):
                self.summary.append(
                    (type(decision).__name__.lower(), decision.trial_id, decision.reason.rule)
                )
            match decision:
                case Stop():
                    self._end(actor)
                case Pause():
                    actor.status, actor.checkpoint_index, actor.checkpoint_iteration = (
                        "PAUSED",
                        actor.time,
                        actor.time,
                    )
                case Resume():
                    assert actor.status == "PAUSED"
                    actor.status = "PENDING"
                case Save():
                    pass
