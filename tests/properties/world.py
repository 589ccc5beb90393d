"""A random environment of the pure core that checks the core's promises.

It plays executor, searcher and clock at once: workers start, report, save, fail and exit when a
test makes them, always within the protocols.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from collections import Counter, defaultdict

from schedulers.decisions import Exploit, Pause, Reason, Resize, Resume, Save, Stop
from schedulers.scheduler import Scheduler
from tuner.core.commands import (
    AnswerReport,
    AskSearcher,
    CheckpointRecorded,
    DeleteCheckpoint,
    KillWorker,
    StartWorker,
)
from tuner.core.events import (
    CheckpointFailed,
    CheckpointLost,
    CheckpointSaved,
    DriverRestarted,
    Outcome,
    ResultReported,
    ResumeRequested,
    SearchEnded,
    SuggestionPostponed,
    TrialForked,
    TrialSuggested,
    TurnEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.experiment import Experiment
from tuner.core.trial import Status
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply

BOOM = Failure("ValueError", "boom")


def chance_from(seed):
    """Return a random generator seeded with `seed`."""
    return random.Random(seed)  # noqa: S311  (not a secret)


class Mood(enum.Enum):
    """The next action of a worker."""

    STARTING = enum.auto()
    TRAINING = enum.auto()
    WAITING = enum.auto()
    SAVING = enum.auto()
    LEAVING = enum.auto()


@dataclasses.dataclass(eq=False)
class Worker:
    """A worker, and its own view of its state."""

    command: StartWorker
    mood: Mood = Mood.STARTING
    leaves_after_saving: bool = False
    is_condemned: bool = False
    iteration: int = 0
    next_index: int = 0

    @property
    def key(self):
        return self.command.trial_id, self.command.attempt


TEMPERS = {
    "stops": (Stop, Save),
    "pauses": (Pause, Pause, Resume, Save),
    "exploits": (Exploit, Exploit, Exploit, Pause, Resume, Resume, Save),
    "anything": (Stop, Pause, Pause, Resume, Resume, Save, Exploit, Resize),
}
"""What a whimsical scheduler may be like."""


class WhimsicalScheduler(Scheduler):
    """Makes random decisions about seen trials; the same facts and seed give the same ones."""

    def __init__(self, seed, temper="anything"):
        self._chance = chance_from(seed)
        self._known = []
        self._kinds = TEMPERS[temper]
        self._can_resume = Resume in self._kinds
        self.is_calm = False

    def state_dict(self):
        version, numbers, gauss = self._chance.getstate()
        return {
            "chance": [version, list(numbers), gauss],
            "known": list(self._known),
            "is_calm": self.is_calm,
        }

    def load_state_dict(self, state):
        version, numbers, gauss = state["chance"]
        self._chance.setstate((version, tuple(numbers), gauss))
        self._known = list(state["known"])
        self.is_calm = state["is_calm"]

    def _whims(self, trial, rate=0.3):
        if self.is_calm or self._chance.random() > rate:
            return []
        others = [
            self._chance.choice(self._known[-6:]) for _ in range(self._chance.choice([0, 0, 1, 2]))
        ]
        return [
            self._decide(self._chance.choice(self._kinds), trial_id)
            for trial_id in (trial.trial_id, *others)
        ]

    def _decide(self, kind, trial_id):
        reason = Reason("whim", {"number": self._chance.random()})
        if kind is Exploit:
            config = {**self.experiment.trials[trial_id].config, "by": reason.numbers["number"]}
            return Exploit(trial_id, self._chance.choice(self._known), config, reason)
        if kind is Resize:
            return Resize(trial_id, {"cpu": self._chance.choice([0.5, 1.0])}, reason)
        return kind(trial_id, reason)

    def on_trial_add(self, trial):
        self._known.append(trial.trial_id)
        return self._whims(trial, rate=0.1)

    def on_trial_result(self, trial, result):
        return self._whims(trial)

    def on_trial_complete(self, trial, result):
        return self._whims(trial)

    def on_trial_error(self, trial):
        return self._whims(trial)

    def on_idle(self, trials, num_free_slots):
        assert num_free_slots > 0
        assert trials
        assert all(trial.status is Status.PAUSED for trial in trials)
        if self.is_calm or self._chance.random() < 0.3:
            return []
        kinds = (Resume, Resume, Resume, Stop) if self._can_resume else (Stop,)
        return [
            self._decide(self._chance.choice(kinds), self._chance.choice(trials).trial_id)
            for _ in range(num_free_slots)
        ]


class World:
    """The environment and its history.

    Attributes:
        workers: Those that live, by trial and attempt.
        dead: Keys of workers that have exited or died with their driver.
        asked: Ids of trials whose configurations are asked for.
        history: Every event with its time, in order; None where the scheduler calms down.
        outcomes: What followed from each event, as text that compares even where it holds NaN.
    """

    def __init__(self, settings, scheduler, stopper):
        self.scheduler = scheduler
        self.experiment = Experiment(settings, scheduler, stopper)
        self.now_s = 0.0
        self.workers = {}
        self.dead = []
        self.asked = []
        self.history = []
        self.outcomes = []
        self.num_started = Counter()
        self.num_exited = Counter()
        self.kept = defaultdict(dict)
        self.deleted = set()
        self._over = {}
        self._commands = []

    # Events sent to the core.

    def tell(self, event):
        """Fold an event and check everything that must hold after it."""
        outcome = self.experiment.handle(event, self.now_s)
        self.history.append((event, self.now_s))
        self.outcomes.append(repr((outcome.commands, outcome.notices, outcome.decisions)))
        self._commands += outcome.commands
        for notice in outcome.notices:
            if isinstance(notice, CheckpointRecorded):
                self.kept[notice.trial.trial_id][notice.checkpoint.index] = notice.checkpoint
        self.experiment.check()
        self._check_ended_trials(event)
        self._check_failures()

    def end_turn(self):
        """Close the turn and carry out the commands, in the driver's order."""
        self.tell(TurnEnded())
        commands, self._commands = self._commands, []
        doomed = {
            (command.trial_id, command.checkpoint.index)
            for command in commands
            if isinstance(command, DeleteCheckpoint)
        }
        for command in commands:
            match command:
                case StartWorker():
                    assert (
                        command.checkpoint is None
                        or (command.source_id, command.checkpoint.index) not in doomed
                    )
                    self._start(command)
                case AnswerReport():
                    self._answer(command)
                case KillWorker():
                    self._condemn(command)
                case DeleteCheckpoint():
                    self._delete(command)
                case AskSearcher():
                    self.asked.append(command.trial_id)
        self._check_turn()

    def _start(self, command):
        trial_id = command.trial_id
        assert not any(other == trial_id for other, _ in self.workers), (
            "two live attempts of one trial"
        )
        assert command.attempt == self.num_started[trial_id] + 1
        self._check_source(command)
        assert command.next_checkpoint not in self.kept[trial_id]
        self.num_started[trial_id] += 1
        iteration = command.checkpoint.iteration if command.checkpoint else 0
        worker = Worker(command, iteration=iteration, next_index=command.next_checkpoint)
        self.workers[worker.key] = worker

    def _check_source(self, command):
        """A trial continues from its latest checkpoint, or from a donor's after an exploit."""
        trial, kept = self.experiment.trial_table[command.trial_id], self.kept[command.source_id]
        latest = max(kept.values(), key=lambda checkpoint: checkpoint.index, default=None)
        if trial.graft:
            assert command.source_id == trial.graft.donor_id
            assert command.checkpoint == kept[command.checkpoint.index]
            assert command.config == trial.config
        else:
            assert command.source_id == command.trial_id
            assert command.checkpoint == (trial.source if trial.grafts else latest)

    def _answer(self, command):
        worker = self.workers[command.trial_id, command.attempt]
        assert worker.mood is Mood.WAITING, "an answer without a waiting worker"
        assert not command.save or self.experiment.settings.checkpoints.can_save_on_demand
        leaves = command.reply is not ReportReply.CONTINUE
        worker.leaves_after_saving = leaves
        worker.mood = Mood.SAVING if command.save else Mood.LEAVING if leaves else Mood.TRAINING

    def _condemn(self, command):
        # It may have exited since in the same turn; executors ignore what is said to one that has.
        key = (command.trial_id, command.attempt)
        assert key in self.workers or key in self.dead
        if key in self.workers:
            self.workers[key].is_condemned = True

    def _delete(self, command):
        key = (command.trial_id, command.checkpoint.index)
        assert key not in self.deleted, "deleted twice"
        assert self.kept[command.trial_id].pop(command.checkpoint.index) == command.checkpoint
        self.deleted.add(key)

    # Invariants.

    def _check_ended_trials(self, event):
        """Nothing happens to a trial after its end, unless a restarted driver continues it."""
        if isinstance(event, DriverRestarted):
            self._over = {}
        for trial in self.experiment.trials:
            if trial.is_finished:
                standing = (
                    trial.status,
                    trial.ending,
                    trial.reason,
                    trial.attempt,
                    trial.num_failures,
                    len(trial.failures),
                )
                assert self._over.setdefault(trial.trial_id, standing) == standing, (
                    "something happened to a trial that is over"
                )
        assert all(self.experiment.trial_table[trial_id].is_finished for trial_id in self._over)

    def _check_failures(self):
        limit = self.experiment.settings.max_failures
        for trial in self.experiment.trials:
            assert trial.is_finished or limit < 0 or trial.num_failures <= limit, (
                "tried again too often"
            )

    def _check_turn(self):
        experiment = self.experiment
        waiting = [
            worker.key
            for worker in self.workers.values()
            if worker.mood is Mood.WAITING and not worker.is_condemned
        ]
        assert not waiting, f"no answer for {waiting}"
        assert {trial_id for trial_id, _ in self.workers} == set(experiment.trial_table.live)
        for trial in experiment.trials:
            assert {checkpoint.index for checkpoint in trial.checkpoints} == set(
                self.kept[trial.trial_id]
            )
            num_to_keep = experiment.settings.checkpoints.retention.num_to_keep
            assert num_to_keep is None or len(trial.checkpoints) <= num_to_keep + 1 + len(
                trial.leased
            )
        deadline_s = experiment.next_deadline_s()
        assert deadline_s is None or deadline_s > self.now_s, "a deadline that was passed over"
        is_up_to_the_user = bool(experiment.trial_table.held) and experiment.stop_reason is None
        has_work = self.workers or self.asked or experiment.trial_table.ready or is_up_to_the_user
        assert experiment.is_finished or has_work, "nothing will ever happen again"
        if not self.workers and not experiment.is_finished and not is_up_to_the_user:
            assert self.asked or experiment.trial_table.ready.resting_until_s, (
                "no worker runs, although all resources are free"
            )
        self._check_devices()

    def _check_devices(self):
        load = Counter()
        for worker in self.workers.values():
            for device in worker.command.gpu_ids:
                load[device] += min(worker.command.resources["gpu"], 1.0)
        assert all(share < 1.001 for share in load.values()), "a device is occupied twice"
        assert all(device < int(self.experiment.settings.capacity.get("gpu", 0)) for device in load)

    # Actions of the environment.

    def in_mood(self, *moods):
        """Return the workers in these moods."""
        return [worker for worker in self.workers.values() if worker.mood in moods]

    def begin(self, worker):
        """Let a worker call the training code."""
        worker.mood = Mood.TRAINING
        self.tell(WorkerStarted(*worker.key, pid=1))

    def report(self, worker, metrics, *, has_checkpoint=False):
        """Let a worker report and wait for the answer."""
        worker.iteration += 1
        worker.mood = Mood.WAITING
        checkpoint = self._checkpoint_of(worker) if has_checkpoint else None
        self.tell(
            ResultReported(
                *worker.key, {"training_iteration": worker.iteration, **metrics}, checkpoint
            )
        )

    def save(self, worker, *, succeeds=True):
        """Let a worker save what it was asked to save."""
        worker.mood = Mood.LEAVING if worker.leaves_after_saving else Mood.TRAINING
        if succeeds:
            self.tell(CheckpointSaved(*worker.key, self._checkpoint_of(worker)))
        else:
            self.tell(CheckpointFailed(*worker.key, BOOM))

    def _checkpoint_of(self, worker):
        worker.next_index += 1
        return CheckpointRecord(worker.next_index - 1, worker.iteration)

    def exit(self, worker, outcome):
        """Let a worker exit."""
        del self.workers[worker.key]
        self.dead.append(worker.key)
        self.num_exited[worker.key] += 1
        assert self.num_exited[worker.key] == 1
        self.tell(
            WorkerExited(
                *worker.key,
                outcome,
                None if outcome in {Outcome.COMPLETED, Outcome.STOPPED} else BOOM,
            )
        )

    def lose_checkpoint(self, worker):
        """Let the checkpoint that a worker is to start from turn out to be damaged."""
        trial_id, index = worker.command.source_id, worker.command.checkpoint.index
        self.tell(CheckpointLost(trial_id, index, "a byte was flipped"))
        del self.kept[trial_id][index]
        self.exit(worker, Outcome.LOST)

    def answer(self, suggestions, rest):
        """Answer requests with `suggestions` (resources, failure), then with `rest`."""
        asked, self.asked = self.asked, []
        for trial_id, (resources, failure) in zip(asked, suggestions, strict=False):
            self.tell(TrialSuggested(trial_id, {"of": trial_id}, resources, failure=failure))
        for trial_id in asked[len(suggestions) :]:
            self.tell(SuggestionPostponed(trial_id) if rest == "postponed" else SearchEnded())

    def restart(self, event):
        """Replace the driver and all workers; what had been decided but not done is lost."""
        self.dead += self.workers
        self.workers = {}
        self.asked = []
        lost = [command for command in self._commands if isinstance(command, DeleteCheckpoint)]
        self._commands = []
        for command in lost:
            self._delete(command)
        self.tell(event)

    def carry_on(self):
        """Let every worker take its next step without a fault, and close the turn."""
        for worker in list(self.workers.values()):
            match worker.mood:
                case Mood.STARTING:
                    self.begin(worker)
                case Mood.TRAINING if not worker.is_condemned:
                    self.report(
                        worker,
                        {
                            "loss": 1.0 / (worker.iteration + 1),
                            "val": {"acc": 0.1 * worker.iteration},
                        },
                    )
                case Mood.SAVING:
                    self.save(worker)
                case _:
                    self.exit(worker, Outcome.KILLED if worker.is_condemned else Outcome.STOPPED)
        self.end_turn()

    def steer(self, wish):
        """Apply a request of the user's, unless the experiment rejects it, as the driver does."""
        if self.experiment.why_rejected(wish):
            return
        self.tell(wish)
        if isinstance(wish, TrialForked) and wish.trial_id not in self.experiment.trial_table.by_id:
            raise AssertionError("a fork without a trial")

    def come_to_an_end(self):
        """Let all live trials proceed without new suggestions; return the number of turns."""
        self.scheduler.is_calm = True
        self.history.append((None, self.now_s))
        for trial_id in list(self.experiment.trial_table.held):
            self.steer(ResumeRequested(trial_id))
        self.end_turn()
        for turn in range(20 + 5 * len(self.experiment.trials)):
            if self.experiment.is_finished:
                return turn
            self.answer([], "ended")
            if not self.workers and self.experiment.trial_table.ready.resting_until_s:
                self.now_s = max(self.now_s, self.experiment.next_deadline_s() or 0.0)
            for worker in list(self.workers.values()):
                self._go_on(worker)
            self.end_turn()
        raise AssertionError(f"the experiment does not end: {self.experiment.trials}")

    def _go_on(self, worker):
        if worker.is_condemned:
            self.exit(worker, Outcome.KILLED)
        elif worker.mood is Mood.STARTING:
            self.begin(worker)
        elif worker.mood is Mood.TRAINING:
            self.exit(worker, Outcome.COMPLETED)
        elif worker.mood is Mood.SAVING:
            self.save(worker)
        else:
            self.exit(worker, Outcome.STOPPED)
