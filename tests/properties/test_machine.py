"""The core in a world that does anything at any time."""

from __future__ import annotations

import dataclasses
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.properties.world import BOOM, Mood, WhimsicalScheduler, World
from tuner.core.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    DriverRestarted,
    Outcome,
    ResultReported,
    StopRequested,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.experiment import Experiment
from tuner.core.retention import RetentionPolicy
from tuner.core.settings import CheckpointPolicy, ExperimentSettings
from tuner.core.stoppers import CombinedStopper, MetricThresholdStopper, NoopStopper, TimeoutStopper
from tuner.core.trial import CheckpointRecord

REQUESTS = st.sampled_from(
    [{"cpu": 1.0}, {"cpu": 1.0}, {"cpu": 2.0}, {"cpu": 0.5, "gpu": 0.5}, {"gpu": 0.3}, {"cpu": 1.0, "gpu": 1.0}, {"gpu": 2.0}, {"cpu": 9.0}]
)
METRICS = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.sampled_from([0.1, 0.5, 1.0, math.nan, math.inf, None]),
        "val": st.fixed_dictionaries({"acc": st.sampled_from([0.1, 0.9, math.nan])}),
        "done": st.booleans(),
        "should_checkpoint": st.booleans(),
    },
)
SUGGESTIONS = st.lists(st.tuples(REQUESTS, st.sampled_from([None, None, None, BOOM])), max_size=4)
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
    max_trials=st.sampled_from([None, 1, 3, 8]),
    max_concurrent=st.sampled_from([None, None, 1, 2]),
    max_failures=st.sampled_from([0, 1, 2, -1]),
    fail_fast=st.sampled_from([False, False, True]),
    time_budget_s=st.sampled_from([None, None, 100.0]),
    stop_grace_s=st.sampled_from([1.0, 30.0]),
    report_timeout_s=st.sampled_from([None, 10.0]),
    checkpoints=st.builds(
        CheckpointPolicy,
        can_save_on_demand=st.booleans(),
        frequency=st.sampled_from([0, 0, 1, 3]),
        at_end=st.booleans(),
        retention=RETENTIONS,
    ),
)


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
    """Lets things happen in any order; the world checks after each of them what must hold."""

    @initialize(
        declared=SETTINGS, seed=st.integers(0, 999), can_pause=st.booleans(), stopper=st.sampled_from(["none", "by iteration", "by time"])
    )
    def begin_experiment(self, declared, seed, can_pause, stopper):
        self.make = lambda: (WhimsicalScheduler(seed, can_pause=can_pause), make_stopper(stopper))
        self.declared = declared
        self.world = World(declared, *self.make())
        self.world.end_turn()

    def pick(self, data, *moods):
        return data.draw(st.sampled_from(self.world.in_mood(*moods)))

    @precondition(lambda self: self.world.asked)
    @rule(suggestions=SUGGESTIONS, rest=st.sampled_from(["postponed", "postponed", "ended"]))
    def answer_the_driver(self, suggestions, rest):
        self.world.answer(suggestions, rest)

    @precondition(lambda self: self.world.in_mood(Mood.STARTING))
    @rule(data=st.data())
    def start(self, data):
        self.world.begin(self.pick(data, Mood.STARTING))

    @precondition(lambda self: self.world.in_mood(Mood.STARTING, Mood.TRAINING))
    @rule()
    def start_all_and_report(self):
        """Keep a long story moving."""
        for worker in self.world.in_mood(Mood.STARTING):
            self.world.begin(worker)
        for worker in self.world.in_mood(Mood.TRAINING):
            self.world.report(worker, {"loss": 0.5, "val": {"acc": 0.1 * worker.iteration}})
        self.world.end_turn()

    @precondition(lambda self: self.world.in_mood(Mood.TRAINING))
    @rule(data=st.data(), metrics=METRICS, has_checkpoint=st.booleans())
    def report(self, data, metrics, has_checkpoint):
        can_report_one = not self.declared.checkpoints.can_save_on_demand
        self.world.report(self.pick(data, Mood.TRAINING), metrics, has_checkpoint=has_checkpoint and can_report_one)

    @precondition(lambda self: self.world.in_mood(Mood.SAVING))
    @rule(data=st.data(), succeeds=st.sampled_from([True, True, False]))
    def save(self, data, succeeds):
        self.world.save(self.pick(data, Mood.SAVING), succeeds=succeeds)

    @precondition(lambda self: self.world.in_mood(Mood.LEAVING))
    @rule(data=st.data())
    def leave(self, data):
        self.world.exit(self.pick(data, Mood.LEAVING), Outcome.STOPPED)

    @precondition(lambda self: self.world.workers)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def exit_at_any_time(self, data, outcome):
        self.world.exit(self.pick(data, *Mood), outcome)

    @precondition(lambda self: self.world.dead)
    @rule(data=st.data(), kind=st.sampled_from(["started", "result", "saved", "failed", "exited"]))
    def hear_of_the_dead(self, data, kind):
        """Let a message of an attempt that is over arrive late."""
        key = data.draw(st.sampled_from(self.world.dead))
        checkpoint = CheckpointRecord(77, 7)
        late = {
            "started": WorkerStarted(*key, pid=1),
            "result": ResultReported(*key, {"training_iteration": 7, "loss": 0.0, "done": True}, checkpoint),
            "saved": CheckpointSaved(*key, checkpoint),
            "failed": CheckpointFailed(*key, BOOM),
            "exited": WorkerExited(*key, Outcome.FAILED, BOOM),
        }
        before = [repr(trial) for trial in self.world.experiment.trials]
        self.world.tell(late[kind])
        assert [repr(trial) for trial in self.world.experiment.trials] == before
        assert self.world.outcomes[-1] == repr(([], [], []))

    @precondition(lambda self: self.world.experiment.trials)
    @rule(data=st.data())
    def ask_for_a_checkpoint(self, data):
        trial = data.draw(st.sampled_from(list(self.world.experiment.trials)))
        self.world.tell(CheckpointRequested(trial.trial_id))

    @rule(seconds=st.sampled_from([0.5, 2.0, 11.0, 31.0]))
    def let_time_pass(self, seconds):
        self.world.end_turn()
        self.world.now_s += seconds
        self.world.end_turn()

    @rule(is_urgent=st.booleans(), chance=st.integers(0, 9))
    def ask_to_stop(self, is_urgent, chance):
        if chance == 0:
            self.world.tell(StopRequested("signal.SIGINT", is_urgent))

    @rule(
        chance=st.integers(0, 4),
        capacity=st.sampled_from([None, {"cpu": 1.0}]),
        more_trials=st.integers(0, 2),
        resume=st.booleans(),
        errored=st.booleans(),
    )
    def restart(self, chance, capacity, more_trials, resume, errored):
        if chance:
            return
        now = self.world.experiment.settings
        max_trials = None if now.max_trials is None else now.max_trials + more_trials
        after = dataclasses.replace(now, capacity=capacity or now.capacity, max_trials=max_trials)
        self.world.restart(DriverRestarted(after, resume, errored))
        self.world.end_turn()

    @rule()
    def end_turn(self):
        self.world.end_turn()

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
        assert all(trial.is_finished for trial in world.experiment.trials)
        self.replay()

    def replay(self):
        """Feed the same events to a fresh experiment: the same follows."""
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
TestMachine.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
