"""The core in a random environment."""

from __future__ import annotations

import dataclasses
import functools
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    MFPopulationBasedTraining,
    PASHAScheduler,
    PopulationBasedTraining,
)
from searchers.space import uniform
from tests.properties.world import BOOM, TEMPERS, Mood, WhimsicalScheduler, World
from tests.tiers import examples
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    DriverRestarted,
    Outcome,
    PauseRequested,
    ResultReported,
    ResumeRequested,
    ResumeType,
    StopRequested,
    TrialForked,
    TrialStopRequested,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.experiment import Experiment
from tuner.core.manual_control import next_fork_id
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import CombinedStopper, MetricThresholdStopper, NoopStopper, TimeoutStopper
from tuner.core.trial import Status
from tuner.core.worker_records import CheckpointRecord

REQUESTS = st.sampled_from(
    [
        *[{"cpu": 1.0}] * 12,
        {"cpu": 0.5},
        {"cpu": 2.0},
        {"cpu": 0.5, "gpu": 0.5},
        {"gpu": 0.3},
        {"cpu": 1.0, "gpu": 1.0},
        {"gpu": 2.0},
        {"cpu": 9.0},
    ]
)
MUTATIONS = {"x": uniform(0.0, 1.0)}
METRICS = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.sampled_from([0.1, 0.5, 1.0, math.nan, math.inf, None]),
        "val": st.fixed_dictionaries({"acc": st.sampled_from([0.1, 0.9, math.nan])}),
        "done": st.booleans(),
        "should_checkpoint": st.booleans(),
    },
)
SUGGESTIONS = st.lists(
    st.tuples(REQUESTS, st.sampled_from([*[None] * 9, BOOM])), min_size=1, max_size=4
)
NUM_TURNS = st.sampled_from([1, 0, 2, 5])
RARELY = st.sampled_from([*[False] * 9, True])
RETENTIONS = st.builds(
    RetentionPolicy,
    num_to_keep=st.sampled_from([None, 1, 1, 2]),
    score_attribute=st.sampled_from([None, "val/acc"]),
    score_order=st.sampled_from(["min", "max"]),
)
SETTINGS = st.builds(
    ExperimentSettings,
    capacity=st.sampled_from([{"cpu": 2.0}, {"cpu": 4.0, "gpu": 2.0}, {"cpu": 1.0, "gpu": 1.0}]),
    metric=st.just("loss"),
    mode=st.sampled_from(["min", "max"]),
    max_trials=st.sampled_from([None, 20, 8, 3]),
    max_concurrent=st.sampled_from([None, None, 1, 2]),
    max_failures=st.sampled_from([0, 1, 2, -1]),
    fail_fast=RARELY,
    time_budget_s=st.sampled_from([None, None, 100.0]),
    budget=st.sampled_from([{}, {}, {"cpu_hours": 0.02}, {"iterations": 20}]),
    stop_grace_s=st.sampled_from([1.0, 30.0]),
    report_timeout_s=st.sampled_from([None, 10.0]),
    checkpoints=st.builds(
        CheckpointPolicy,
        can_save_on_demand=st.sampled_from([True, True, False]),
        frequency=st.sampled_from([0, 0, 1, 3]),
        at_end=st.booleans(),
        retention=RETENTIONS,
    ),
)
SCHEDULERS = {
    **{temper: functools.partial(WhimsicalScheduler, temper=temper) for temper in TEMPERS},
    "promotion": lambda _: ASHAScheduler(max_t=9, reduction_factor=2, type="promotion"),
    "pasha": lambda _: PASHAScheduler(max_t=9, reduction_factor=2),
    "hyperband": lambda _: HyperBandScheduler(max_t=9, reduction_factor=3),
    "median": lambda _: MedianStoppingRule(
        "training_iteration", grace_period=1, min_samples_required=1, hard_stop=False
    ),
    "pbt": lambda _: PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations=MUTATIONS
    ),
    "pbt, generations": lambda _: PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations=MUTATIONS, synch=True
    ),
    "mf-pbt": lambda _: MFPopulationBasedTraining(
        "training_iteration", perturbation_interval=1, frequencies=(1, 2)
    ),
}
"""By name, what makes a scheduler, whimsical ones from a seed."""
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "capacity": st.sampled_from([{"cpu": 1.0}, {"cpu": 3.0, "gpu": 1.0}]),
        "max_trials": st.sampled_from([None, 30]),
        "max_failures": st.just(-1),
    },
)
"""What may be different after a restart."""


def make_stopper(kind):
    """Return a new stopper of a kind."""
    match kind:
        case "by iteration":
            return MetricThresholdStopper({"training_iteration": 4})
        case "by time":
            return CombinedStopper(TimeoutStopper(60.0), MetricThresholdStopper({"loss": "<= 0.1"}))
        case _:
            return NoopStopper()


class ExperimentMachine(RuleBasedStateMachine):
    """Applies events in any order; the world checks the invariants after each."""

    @initialize(
        declared=SETTINGS,
        seed=st.integers(0, 999),
        scheduler=st.sampled_from([*TEMPERS, *SCHEDULERS]),
        stopper=st.sampled_from(["none", "by iteration", "by time"]),
    )
    def begin_experiment(self, declared, seed, scheduler, stopper):
        self.needs_population = "pbt" in scheduler
        if self.needs_population:
            declared = dataclasses.replace(declared, max_trials=declared.max_trials or 6)

        def make():
            made = SCHEDULERS[scheduler](seed)
            made.set_search_properties("loss", declared.mode, seed=seed)
            return made, make_stopper(stopper)

        self.make = make
        self.declared = declared
        self.world = World(declared, *self.make())
        self.world.end_turn()

    def pick(self, data, *moods):
        return data.draw(st.sampled_from(self.world.in_mood(*moods)))

    def starting_from_checkpoints(self):
        return [worker for worker in self.world.in_mood(Mood.STARTING) if worker.command.checkpoint]

    def go_on(self, data):
        """Continue the turn, end it, or run some turns without faults."""
        for _ in range(data.draw(NUM_TURNS)):
            if self.world.asked:
                self.world.answer(
                    data.draw(SUGGESTIONS), "ended" if data.draw(RARELY) else "postponed"
                )
            self.world.carry_on()
        if data.draw(st.booleans()):
            self.world.end_turn()

    @rule(data=st.data())
    def carry_on(self, data):
        self.go_on(data)

    @precondition(lambda self: self.world.in_mood(Mood.TRAINING))
    @rule(data=st.data(), metrics=METRICS, has_checkpoint=st.booleans())
    def report(self, data, metrics, has_checkpoint):
        can_report_one = not self.declared.checkpoints.can_save_on_demand
        self.world.report(
            self.pick(data, Mood.TRAINING),
            metrics,
            has_checkpoint=has_checkpoint and can_report_one,
        )
        self.go_on(data)

    @precondition(lambda self: self.world.in_mood(Mood.SAVING))
    @rule(data=st.data())
    def fail_to_save(self, data):
        self.world.save(self.pick(data, Mood.SAVING), succeeds=False)
        self.go_on(data)

    @precondition(lambda self: self.starting_from_checkpoints())
    @rule(data=st.data())
    def lose_a_checkpoint(self, data):
        self.world.lose_checkpoint(data.draw(st.sampled_from(self.starting_from_checkpoints())))
        self.go_on(data)

    @precondition(lambda self: self.world.workers)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def exit_at_any_time(self, data, outcome):
        self.world.exit(self.pick(data, *Mood), outcome)
        self.go_on(data)

    @precondition(lambda self: self.world.dead)
    @rule(data=st.data(), kind=st.sampled_from(["started", "result", "saved", "failed", "exited"]))
    def receive_late_message(self, data, kind):
        """Deliver a late message of an attempt that has ended."""
        key = data.draw(st.sampled_from(self.world.dead))
        checkpoint = CheckpointRecord(77, 7)
        late = {
            "started": WorkerStarted(*key, pid=1),
            "result": ResultReported(
                *key, {"training_iteration": 7, "loss": 0.0, "done": True}, checkpoint
            ),
            "saved": CheckpointSaved(*key, checkpoint),
            "failed": CheckpointFailed(*key, BOOM),
            "exited": WorkerExited(*key, Outcome.FAILED, BOOM),
        }
        before = [repr(trial) for trial in self.world.experiment.trials]
        self.world.tell(late[kind])
        assert [repr(trial) for trial in self.world.experiment.trials] == before
        assert self.world.outcomes[-1] == repr(([], [], []))
        self.go_on(data)

    @precondition(lambda self: self.world.experiment.trials)
    @rule(data=st.data())
    def ask_for_a_checkpoint(self, data):
        trial = data.draw(st.sampled_from(list(self.world.experiment.trials)))
        self.world.tell(CheckpointRequested(trial.trial_id))
        self.go_on(data)

    @rule(data=st.data(), seconds=st.sampled_from([0.5, 2.0, 11.0, 31.0]))
    def let_time_pass(self, data, seconds):
        self.world.end_turn()
        self.world.now_s += seconds
        self.world.end_turn()
        self.go_on(data)

    @rule(data=st.data(), is_urgent=st.booleans(), is_meant=RARELY)
    def ask_to_stop(self, data, is_urgent, is_meant):
        if is_meant:
            self.world.tell(StopRequested("signal.SIGINT", is_urgent))
        self.go_on(data)

    @precondition(lambda self: self.world.experiment.trials)
    @rule(
        data=st.data(),
        wish=st.sampled_from([TrialStopRequested, PauseRequested, PauseRequested, ResumeRequested]),
    )
    def steer(self, data, wish):
        trial = data.draw(st.sampled_from(list(self.world.experiment.trials)))
        self.world.steer(wish(trial.trial_id))
        self.go_on(data)

    @precondition(lambda self: any(trial.checkpoints for trial in self.world.experiment.trials))
    @rule(data=st.data(), request=REQUESTS)
    def fork(self, data, request):
        experiment = self.world.experiment
        donor = data.draw(
            st.sampled_from([trial for trial in experiment.trials if trial.checkpoints])
        )
        checkpoint = data.draw(st.sampled_from(donor.checkpoints))
        changes = data.draw(
            st.dictionaries(st.sampled_from(sorted(donor.config) or ["x"]), st.integers(0, 9))
        )
        fork_id = next_fork_id(experiment.trial_table.num_forked)
        self.world.steer(TrialForked(fork_id, donor.trial_id, changes, request, checkpoint.index))
        self.go_on(data)

    @rule(
        data=st.data(),
        is_meant=RARELY,
        changes=CHANGES,
        unfinished=st.sampled_from([ResumeType.RESUME, *ResumeType]),
        errored=st.sampled_from(ResumeType),
        finished=st.sampled_from([*[ResumeType.SKIP] * 4, *ResumeType]),
    )
    def restart(self, data, is_meant, changes, **resume):
        if self.needs_population:
            changes.pop("max_trials", None)
        if is_meant:
            self.world.restart(
                DriverRestarted(
                    dataclasses.replace(self.world.experiment.settings, **changes), **resume
                )
            )
            self.world.end_turn()
        self.go_on(data)

    @invariant()
    def every_worker_exits_at_most_once_and_lives_until_then(self):
        world = getattr(self, "world", None)
        if world:
            assert sum(world.num_started.values()) == len(world.workers) + len(world.dead)

    def teardown(self):
        world = getattr(self, "world", None)
        if world is None:
            return
        world.come_to_an_end()
        assert not world.workers
        is_stopped = world.experiment.stop_reason is not None
        may_go_on = {Status.PAUSED, Status.PENDING} if is_stopped else set()
        assert all(
            trial.is_finished or trial.status in may_go_on for trial in world.experiment.trials
        )
        self.replay()

    def replay(self):
        """Feed the same events to a new experiment, and compare the outcomes."""
        scheduler, stopper = self.make()
        experiment = Experiment(self.declared, scheduler, stopper)
        outcomes = []
        for event, at_s in self.world.history:
            if event is None:
                scheduler.is_calm = True
                continue
            outcome = experiment.handle(event, at_s)
            outcomes.append(repr((outcome.commands, outcome.notices, outcome.decisions)))
        assert outcomes == self.world.outcomes


TestMachine = ExperimentMachine.TestCase
TestMachine.settings = settings(max_examples=examples(120), stateful_step_count=50)
