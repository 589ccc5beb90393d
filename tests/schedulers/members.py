"""Small engine for populations: members that train, checkpoints, slots, failures and speeds."""

from dataclasses import dataclass, field

from schedulers import Exploit, Pause, Resume, Save, Stop


@dataclass
class Toy:
    """A member of the population; `step` of the engine trains its `state`."""

    trial_id: str
    config: dict
    state: object = None
    status: str = "PENDING"
    time: int = 0
    resources: dict = field(default_factory=lambda: {"cpu": 1.0})
    checkpoints: list = field(default_factory=list)
    owes_save: bool = False
    exploit: Exploit | None = None
    is_to_resume: bool = False
    source: tuple = (0, None)

    def keep(self, time, state):
        """Keep a checkpoint, from which the member continues after a pause."""
        self.checkpoints.append((time, state))
        self.source = (time, state)

    @property
    def has_checkpoint(self):
        return bool(self.checkpoints)

    @property
    def checkpoint_index(self):
        return len(self.checkpoints) - 1 if self.checkpoints else None

    @property
    def checkpoint_iteration(self):
        return self.checkpoints[-1][0] if self.checkpoints else None

    @property
    def is_over(self):
        return self.status in ("TERMINATED", "ERROR")


class View:
    def __init__(self, num, slots, can_save=True):
        self.trials, self.max_trials, self.can_save_on_demand, self.resources = (
            {},
            num,
            can_save,
            {"cpu": float(slots)},
        )

    @property
    def no_more_trials(self):
        return len(self.trials) >= self.max_trials


class Engine:
    """Runs rounds; in each, every running member that is not slow trains one step and reports.

    `step(state, config, trial)` returns the new state and the metrics. `decided` lists ``(trial_id,
    time, decision)``.
    """

    def __init__(
        self,
        scheduler,
        configs,
        step,
        *,
        slots=None,
        ends_at=20,
        fails=(),
        is_slow=lambda trial_id, turn: False,
        start=None,
        **view,
    ):
        self.scheduler = scheduler
        self.view = scheduler.experiment = View(len(configs), slots or len(configs), **view)
        self.waiting = [Toy(f"t{number}", config, start) for number, config in enumerate(configs)]
        self.step, self.ends_at, self.fails, self.is_slow = step, ends_at, set(fails), is_slow
        self.slots = slots or len(configs)
        self.decided, self.after_turn, self.num_turns = [], lambda engine: None, 0

    @property
    def trials(self):
        return self.view.trials

    def alive(self, *statuses):
        return [trial for trial in self.trials.values() if trial.status in statuses]

    def run(self, max_turns=600):
        while self.waiting or not all(trial.is_over for trial in self.trials.values()):
            self.num_turns += 1
            assert self.num_turns <= max_turns, (
                f"no end: {[(t.trial_id, t.status, t.time) for t in self.trials.values()]}"
            )
            self.fill()
            for trial in self.alive("RUNNING"):
                if trial.status == "RUNNING" and not self.is_slow(trial.trial_id, self.num_turns):
                    self.advance(trial)
            self.resume_paused()
            self.after_turn(self)
        return self

    def num_free(self):
        return self.slots - len(self.alive("RUNNING"))

    def fill(self):
        for trial in self.alive("PENDING")[: self.num_free()]:
            trial.status = "RUNNING"
        while self.num_free() and self.waiting and not self.alive("PENDING"):
            trial = self.waiting.pop(0)
            self.trials[trial.trial_id] = trial
            self.carry_out_all(self.scheduler.on_trial_add(trial), trial)
            trial.status = "RUNNING"

    def advance(self, trial):
        trial.time += 1
        if (trial.trial_id, trial.time) in self.fails:
            self.fails.discard((trial.trial_id, trial.time))
            self.end(trial, "ERROR")
            return
        trial.state, metrics = self.step(trial.state, trial.config, trial)
        time = trial.time
        self.carry_out_all(
            self.scheduler.on_trial_result(trial, {"training_iteration": trial.time, **metrics}),
            trial,
        )
        if trial.owes_save and not trial.is_over:
            self.save(trial)
        if time >= self.ends_at and not trial.is_over:  # which outweighs all that was decided
            trial.exploit = None
            self.end(trial, "TERMINATED")

    def save(self, trial):
        trial.owes_save = False
        trial.keep(trial.time, trial.state)
        self.apply_exploits()

    def end(self, trial, status):
        trial.status, trial.owes_save = status, False
        decisions = (
            self.scheduler.on_trial_error(trial)
            if status == "ERROR"
            else self.scheduler.on_trial_complete(trial, None)
        )
        self.carry_out_all(decisions, trial)
        for other in self.trials.values():
            if other.exploit and other.exploit.donor_id == trial.trial_id:
                other.exploit = None  # it was waiting for a checkpoint that does not come
        self.apply_exploits()

    def apply_exploits(self):
        for trial in self.trials.values():
            if trial.exploit is None:
                if trial.status == "PAUSED" and trial.is_to_resume:
                    trial.status, trial.is_to_resume = "PENDING", False
                continue
            donor, index = self.trials[trial.exploit.donor_id], trial.exploit.checkpoint
            if index is None and (donor.owes_save or not donor.checkpoints):
                continue
            trial.source = donor.checkpoints[-1 if index is None else index]
            trial.time, trial.state = trial.source
            trial.config, trial.exploit = trial.exploit.config, None
            if trial.is_to_resume:
                trial.status, trial.is_to_resume = "PENDING", False

    def resume_paused(self):
        paused = self.alive("PAUSED")
        while paused and not self.alive("PENDING") and self.num_free():
            num_before = len(paused)
            self.carry_out_all(self.scheduler.on_idle(paused, self.num_free()), None)
            paused = self.alive("PAUSED")
            if len(paused) == num_before:
                break
        if paused and not self.waiting and not self.alive("PENDING", "RUNNING"):
            raise AssertionError(f"no decision resumes {[trial.trial_id for trial in paused]}")

    def carry_out_all(self, decisions, reporter):
        for decision in decisions:
            trial = self.trials[decision.trial_id]
            assert not trial.is_over, decision
            self.decided.append((decision.trial_id, trial.time, decision))
            self.carry_out(decision, trial)
        self.apply_exploits()

    def carry_out(self, decision, trial):
        match decision:
            case Stop():
                self.end(trial, "TERMINATED")
            case Pause():
                if trial.status == "RUNNING" and (
                    self.view.can_save_on_demand or trial.checkpoints
                ):
                    trial.status = "PAUSED"
                    if self.view.can_save_on_demand:
                        self.save(trial)
            case Resume():
                assert trial.status == "PAUSED", decision
                if trial.exploit:
                    trial.is_to_resume = True
                else:
                    trial.status = "PENDING"
                    trial.time, trial.state = trial.source
            case Save():
                assert trial.status == "RUNNING", decision
                trial.owes_save = True
            case Exploit():
                donor = self.trials[decision.donor_id]
                assert donor.status != "ERROR", decision
                assert donor.checkpoints or (donor.status == "RUNNING" and donor.owes_save), (
                    decision
                )
                trial.status, trial.exploit = "PAUSED", decision

    def exploits(self):
        return [
            (trial_id, time, decision)
            for trial_id, time, decision in self.decided
            if isinstance(decision, Exploit)
        ]

    def moments_of(self, kind):
        return [
            (trial_id, time)
            for trial_id, time, decision in self.decided
            if isinstance(decision, kind)
        ]
