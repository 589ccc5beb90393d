"""Validations under random interleavings of reports, ends, deaths and restores."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.conversation import BOOM, Conversation, ScriptedScheduler
from tests.tiers import examples
from tuner.core import commands as cmd
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.events import (
    CheckpointLost,
    DriverRestarted,
    Outcome,
    ResultReported,
    StopRequested,
    ValidationEnded,
    WorkerStarted,
)
from tuner.core.settings import ValidationPolicy
from tuner.core.trial import Status, WorkerState
from tuner.core.trial_metrics import MetricSummary
from tuner.core.worker_records import CheckpointRecord, ValidationRequest

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["report", "report", "report", "plain", "validated", "validated", "failed", "lost",
             "stale", "checkpoint lost", "done", "crash", "stop", "restart", "snapshot", "wait"]
        ),
        st.integers(0, 30),
    ),
    max_size=60,
)  # fmt: skip
NONE = MetricSummary()
POLICIES = st.builds(
    ValidationPolicy,
    st.sampled_from([{"cpu": 1.0}, {"cpu": 0.5}, {"gpu": 1.0}]),
    max_in_flight=st.integers(1, 3),
    max_pending=st.sampled_from([None, 1, 2]),
    max_retries=st.integers(0, 1),
    timeout_s=st.sampled_from([None, 5.0]),
)


class Random(Conversation):
    """Carries out random actions where they are possible, and answers all commands."""

    def __init__(self, policy, num_to_keep):
        super().__init__(
            ScriptedScheduler(),
            capacity={"cpu": 2.0, "gpu": 1.0},
            metric="acc",
            mode="max",
            max_trials=2,
            max_failures=2,
            validation=policy,
            checkpoints=CheckpointPolicy(retention=RetentionPolicy(num_to_keep)),
        )
        self.running = []
        self.requested = set()
        self.over = []
        self.begin(2)

    def say(self, *events, after_s=0.0):
        commands = super().say(*events, after_s=after_s)
        for command in commands:
            if isinstance(command, cmd.StartValidation):
                self.running.append(command)
            elif isinstance(command, cmd.DeleteCheckpoint):
                opened = self.trial(command.trial_id).open_validations
                assert command.checkpoint.index not in opened
        return commands

    def training(self, pick):
        live = [
            trial
            for trial in self.experiment.trials
            if trial.worker in (WorkerState.STARTING, WorkerState.TRAINING)
        ]
        if not live:
            return None
        trial = live[pick % len(live)]
        if trial.worker is WorkerState.STARTING:
            self.say(WorkerStarted(trial.trial_id, trial.attempt, 1))
        return trial if trial.worker is WorkerState.TRAINING else None

    def act(self, action, pick):  # noqa: C901, PLR0912  (one case for each action)
        match action:
            case "report" | "plain" if trial := self.training(pick):
                iteration = (
                    trial.resumed_iteration + 1 + max(trial.iteration - trial.resumed_iteration, 0)
                )
                index, is_asked = trial.next_checkpoint, action == "report"
                if is_asked:
                    self.requested.add((trial.trial_id, index))
                self.say(
                    ResultReported(
                        trial.trial_id,
                        trial.attempt,
                        {"training_iteration": iteration, "step": pick},
                        CheckpointRecord(index, iteration) if is_asked else None,
                        validation=ValidationRequest() if is_asked else None,
                    )
                )
            case "validated":
                self.end(pick, Outcome.COMPLETED, {"acc": pick / 10.0})
            case "failed":
                self.end(pick, Outcome.FAILED)
            case "lost":
                self.end(pick, Outcome.LOST)
            case "stale" if self.over:
                self.say(self.over[pick % len(self.over)])
            case "checkpoint lost":
                trial = self.experiment.trials[pick % len(self.experiment.trials)]
                if trial.checkpoints and not trial.leases:
                    latest = trial.checkpoints[-1].index
                    self.say(CheckpointLost(trial.trial_id, latest, "gone"))
            case "done" | "crash" if trial := self.training(pick):
                is_done = action == "done"
                self.exit(
                    trial.trial_id,
                    Outcome.COMPLETED if is_done else Outcome.FAILED,
                    None if is_done else BOOM,
                )
            case "stop":
                self.say(StopRequested("signal.SIGINT"))
            case "restart":
                self.running.clear()
                self.say(DriverRestarted(self.experiment.settings))
            case "snapshot":
                self.restore_from_snapshot()
            case "wait":
                self.say(after_s=3.0)

    def end(self, pick, outcome, metrics=None):
        if self.running:
            ended = self.running.pop(pick % len(self.running))
            failure = BOOM if metrics is None else None
            key = ended.trial_id, ended.checkpoint.index, ended.num_try
            self.over.append(ValidationEnded(*key, Outcome.COMPLETED, {"acc": -1.0}))
            self.say(ValidationEnded(*key, outcome, metrics, failure))

    def finish(self):
        """Restart, and let everything run to its end."""
        self.act("restart", 0)
        for _ in range(400):
            if self.experiment.is_finished:
                return
            self.act("wait", 0)
            self.act("done", 0)
            self.act("validated", 0)
        raise AssertionError("the experiment does not end")


@given(POLICIES, st.sampled_from([None, 1, 2]), ACTIONS)
@settings(max_examples=examples(120))
def test_nothing_is_lost_or_validated_twice_whatever_happens(policy, num_to_keep, actions):
    talk = Random(policy, num_to_keep)
    for action, pick in actions:
        if not talk.experiment.is_finished or action == "restart":
            talk.act(action, pick)
    talk.finish()
    passed_on = [
        (notice.trial.trial_id, notice.checkpoint.index)
        for notice in talk.notices
        if isinstance(notice, cmd.CheckpointValidated)
    ]
    assert len(passed_on) == len(set(passed_on))
    assert not any(trial.summary.get("acc", NONE).min == -1.0 for trial in talk.experiment.trials)
    assert set(passed_on) == talk.requested
    for trial in talk.experiment.trials:
        assert trial.is_finished
        own = [index for trial_id, index in passed_on if trial_id == trial.trial_id]
        assert own == sorted(own)
        ends = [
            notice
            for notice in talk.notices
            if isinstance(notice, cmd.TrialEnded) and notice.trial.trial_id == trial.trial_id
        ]
        assert bool(ends) == (trial.status is Status.TERMINATED) or trial.status is Status.ERROR
    assert talk.experiment.trial_table.nodes.used == {"cpu": 0.0, "gpu": 0.0}
