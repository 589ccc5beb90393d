"""Queue of validations: their order, the resources that they hold, and their time limits.

Validations of one trial start in the order of its checkpoints, and those of all trials in the order
of the requests, as resources allow. One that needs nothing but CPUs is always admitted, even where
trials hold all of them: the trials may wait for what it finds out. Of several nodes, the one is
preferred where the trial has run, since its checkpoints are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, final

from tuner.core.commands import KillValidation, StartValidation
from tuner.core.events import Outcome, ValidationEnded
from tuner.core.failure_causes import lost_too_often
from tuner.core.resources import GPU, THIS_NODE, Machine
from tuner.core.settings import ValidationPolicy
from tuner.core.timeouts import Deadlines
from tuner.core.trial import Trial
from tuner.core.trial_table import TrialTable
from tuner.core.worker_records import Failure

from .records import Validation, ValidationMove, ValidationState, move_validation, validations_of

_CPU: Final = "cpu"
_NO_DICT: Final = Failure(
    "TypeError", "the validation function must return a dictionary of metrics, and did not"
)


@final
class ValidationQueue:
    """All open validations of an experiment.

    Args:
        trial_table: The trials, and the resources.

    Attributes:
        is_interrupted: Whether none is started any more in this session.
    """

    def __init__(self, trial_table: TrialTable) -> None:
        self._trial_table = trial_table
        self._policy = ValidationPolicy()
        self._max_losses: int | None = None
        self._unfinished: dict[tuple[str, int], Trial] = {}
        """Trials of the validations that are QUEUED or RUNNING, in the order of the requests."""
        self._running: set[tuple[str, int]] = set()
        self._num_open = 0
        self._deadlines = Deadlines()
        self._left_s: dict[str, float] = {}
        """What is left of the time limits of those that wait for a lease."""
        self.is_interrupted = False

    @property
    def resources_apart(self) -> Mapping[str, float]:
        """What those occupy whose CPUs are not those of the pool."""
        running = (self._trial_table[trial].validations[index] for trial, index in self._running)
        # One at most: others wait for the pool.
        return next((each.resources for each in running if each.is_apart), {})

    @property
    def policy(self) -> ValidationPolicy:
        """How checkpoints are validated in this session."""
        return self._policy

    def end_processes(self) -> None:
        """Queue again what ran, since no process of the last session is alive."""
        for trial_id, index in list(self._running):
            self._end_process(self._trial_table[trial_id], index)
            validation = self._trial_table[trial_id].validations[index]
            is_lost = validation.kill_move == ValidationMove.LOSE_CHECKPOINT
            self._move(
                self._trial_table[trial_id],
                validation,
                ValidationMove.LOSE_CHECKPOINT if is_lost else ValidationMove.LOSE,
            )
        for (_, index), trial in self._unfinished.items():
            trial.validations[index].losses = ()

    def begin_session(self, policy: ValidationPolicy | None, max_losses: int | None = None) -> None:
        """Apply the policy of a new session; fail what waits for more than its machine has.

        Args:
            policy: The policy.
            max_losses: See `ExperimentSettings.max_validation_losses`.
        """
        self._policy = policy or ValidationPolicy()
        self._max_losses = max_losses
        self.is_interrupted = False
        if why := self._misfit():
            self.give_up_waiting(why)

    @property
    def num_open(self) -> int:
        """How many have no outcome yet that was passed on."""
        return self._num_open

    @property
    def running(self) -> list[tuple[str, int]]:
        """Trial and index of the checkpoint of each that has a process, in a fixed order."""
        return sorted(self._running)

    @property
    def num_running(self) -> int:
        """How many have a process."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """How many wait for their turn, for resources, or for another session."""
        return len(self._unfinished) - len(self._running)

    @property
    def is_over(self) -> bool:
        """Whether no outcome will come in this session."""
        return not self._running and (self.is_interrupted or not self._num_open)

    @property
    def next_s(self) -> float | None:
        """When the next one has taken too long; None for never."""
        return self._deadlines.next_s()

    def add(self, trial: Trial, validation: Validation) -> None:
        """Queue a validation."""
        known = validations_of(trial)
        for by_index in (known.validations, known.open_validations):
            # A checkpoint that was reported earlier may be stored later.
            is_last = not by_index or validation.index > next(reversed(by_index))
            by_index[validation.index] = validation
            if not is_last:
                in_order = sorted(by_index.items())
                by_index.clear()
                by_index.update(in_order)
        self._num_open += 1
        self._unfinished[trial.trial_id, validation.index] = trial
        if why := self._misfit():
            validation.failure = Failure("ResourcesUnavailable", why)
            self._move(trial, validation, ValidationMove.FAIL)

    def give_up_waiting(self, why: str) -> list[Trial]:
        """Fail what waits to be started, for lack of resources; return the trials."""
        waiting = [
            (trial, validation)
            for (_, index), trial in self._unfinished.items()
            if (validation := trial.validations[index]).state is ValidationState.QUEUED
        ]
        for trial, validation in waiting:
            validation.failure = Failure("ResourcesUnavailable", why)
            self._move(trial, validation, ValidationMove.FAIL)
        return list(dict.fromkeys(trial for trial, _ in waiting))

    def num_startable(self, limit: int) -> int:
        """Return how many would be started if there were room, looking at no more than `limit`."""
        if self.is_interrupted:
            return 0
        running = Counter(trial_id for trial_id, _ in self._running)
        num = 0
        for (trial_id, index), trial in islice(
            self._unfinished.items(), limit + len(self._running)
        ):
            is_queued = trial.validations[index].state is ValidationState.QUEUED
            if is_queued and running[trial_id] < self._policy.max_in_flight:
                running[trial_id] += 1
                num += 1
        return num

    @property
    def shortage(self) -> str:
        """Why no node that is present could run what waits to be started; empty if one could."""
        nodes = self._trial_table.nodes
        if nodes.is_local or self.is_interrupted or not self.num_waiting:
            return ""
        if self._needs_cpus_only and nodes.usable:
            return ""  # such a validation is started even where there is no room for it
        return nodes.shortage(self._policy.resources).replace("the trial", "the validation")

    def start(self, now_s: float) -> list[StartValidation]:
        """Start the validations for which there is room, and return the commands.

        Trials are kept from taking what one that does not fit waits for.
        """
        started: list[StartValidation] = []
        if self.is_interrupted or len(self._unfinished) == len(self._running):
            return started
        for (trial_id, index), trial in self._unfinished.items():
            validation = trial.validations[index]
            if validation.state is not ValidationState.QUEUED or self._has_enough(trial):
                continue
            if not self._acquire(trial, validation):
                if short := self._short_for(trial):
                    self._trial_table.reserve(*short)
                break  # all ask for the same resources
            move_validation(validation, ValidationMove.START)
            validation.num_try += 1
            validation.kill_move = None
            self._running.add((trial_id, index))
            timeout_s = (
                self._policy.timeout_s
                if validation.request.timeout_s is None
                else validation.request.timeout_s
            )
            if timeout_s is not None:
                self._deadlines.set(_holder(trial_id, index), now_s + timeout_s)
            started.append(
                StartValidation(
                    trial_id,
                    validation.checkpoint,
                    validation.num_try,
                    validation.request,
                    validation.resources,
                    validation.gpu_ids,
                    trial.config_at(validation.checkpoint.num_rows or 0),
                    is_last_try=not self._has_retries(validation.num_failures + 1),
                    node=validation.node,
                )
            )
        return started

    def on_ended(self, event: ValidationEnded) -> Trial | None:
        """Record the end of a process; return its trial, None where another try has begun since."""
        trial = self._trial_table.find(event.trial_id)
        validation = trial.validations.get(event.index) if trial else None
        if (
            trial is None
            or validation is None
            or validation.state is not ValidationState.RUNNING
            or validation.num_try != event.num_try
        ):
            return None
        move = self._move_of(validation, event)
        self._end_process(trial, event.index)
        if move is ValidationMove.RETURN:
            validation.metrics, validation.failure = event.metrics, None
        elif move is ValidationMove.FAIL and event.outcome is Outcome.LOST:
            validation.failure = lost_too_often(validation.losses, is_validation=True)
        elif move is not ValidationMove.LOSE:
            # Of one that was to be killed and was lost before, what it was to be killed for counts.
            known = validation.failure if event.outcome is Outcome.LOST else None
            validation.failure = known or event.failure or validation.failure or _NO_DICT
        self._move(trial, validation, move)
        return trial

    def on_checkpoint_lost(self, trial: Trial, index: int, why: str) -> list[KillValidation]:
        """Give up the validation of a checkpoint that is damaged or gone, if there is one."""
        validation = trial.validations.get(index)
        if validation is None or not validation.is_unfinished:
            return []
        validation.failure = Failure("CheckpointLost", why)
        if validation.state is ValidationState.QUEUED:
            self._move(trial, validation, ValidationMove.LOSE_CHECKPOINT)
            return []
        return self._kill(trial, validation, ValidationMove.LOSE_CHECKPOINT, why)

    def kill_overdue(self, now_s: float) -> list[KillValidation]:
        """Return the commands that end those that have taken too long, each once."""
        if now_s < self._deadlines.none_before_s:
            return []
        kills: list[KillValidation] = []
        for holder in self._deadlines.take_due(now_s):
            trial_id, _, index = holder.rpartition("/")
            trial = self._trial_table[trial_id]
            validation = trial.validations[int(index)]
            limit_s = validation.request.timeout_s
            limit_s = self._policy.timeout_s if limit_s is None else limit_s
            why = f"the validation took longer than timeout_s={limit_s}"
            kills += self._kill(trial, validation, ValidationMove.TIME_OUT, why)
        return kills

    def on_node(self, name: str) -> list[tuple[str, int]]:
        """Return those whose process is on a node, as `running` does."""
        return [
            (trial_id, index)
            for trial_id, index in self.running
            if self._trial_table[trial_id].validations[index].node == name
        ]

    def suspend_time_limit(self, trial_id: str, index: int, now_s: float) -> None:
        """Stop the time limit of a validation that waits for a lease, for which it is not slow."""
        holder = _holder(trial_id, index)
        due_s = self._deadlines.due_s(holder)
        if due_s is not None:
            self._deadlines.cancel(holder)
            self._left_s[holder] = due_s - now_s

    def resume_time_limit(self, trial_id: str, index: int, now_s: float) -> None:
        """Let a time limit run on that was suspended; no effect on others."""
        holder = _holder(trial_id, index)
        left_s = self._left_s.pop(holder, None)
        if left_s is not None:
            self._deadlines.set(holder, now_s + left_s)

    def interrupt(self, reason: str) -> list[KillValidation]:
        """Start none any more, and return the commands that end those that run.

        They are queued again, for another session.
        """
        self.is_interrupted = True
        kills: list[KillValidation] = []
        for trial_id, index in self._unfinished:
            if (trial_id, index) in self._running:
                trial = self._trial_table[trial_id]
                kills += self._kill(trial, trial.validations[index], ValidationMove.LOSE, reason)
        return kills

    def drop(self, trial: Trial) -> None:
        """Forget a trial's validations, none of which runs, since it starts from the beginning."""
        for index in trial.open_validations:
            self._num_open -= 1
            self._unfinished.pop((trial.trial_id, index), None)
        trial.validation_part = None

    def take_ended(self, trial: Trial) -> list[Validation]:
        """Return the ended validations whose outcomes are due to be passed on, oldest first."""
        open_validations = validations_of(trial).open_validations
        ended: list[Validation] = []
        for validation in list(open_validations.values()):
            if validation.is_unfinished:
                break
            validation.is_open = False
            del open_validations[validation.index]
            self._num_open -= 1
            ended.append(validation)
        return ended

    def is_holding(self, trial: Trial, num_stuck: int = 0) -> bool:
        """Return whether the trial's next report has to wait until a validation has ended.

        It does not wait for one that cannot begin or go on, perhaps for lack of what the trial
        holds.

        Args:
            trial: The trial.
            num_stuck: How many of all running validations wait for resources themselves.
        """
        limit = self._policy.max_pending
        return (
            limit is not None
            and len(trial.open_validations) >= limit
            and len(self._running) > num_stuck
            and not self.is_interrupted
        )

    def check(self) -> None:
        """Assert every invariant; for tests, since it looks at all trials."""
        is_open, unfinished, running = set(), set(), set()
        for trial in self._trial_table.trials:
            for index, validation in trial.validations.items():
                key = trial.trial_id, index
                assert validation.is_open or not validation.is_unfinished, "closed before its end"
                is_open |= {key} if validation.is_open else set()
                unfinished |= {key} if validation.is_unfinished else set()
                running |= {key} if validation.state is ValidationState.RUNNING else set()
            assert set(trial.open_validations) == {
                index for index, validation in trial.validations.items() if validation.is_open
            }, "open validations of a trial are not those that it has"
            assert list(trial.open_validations) == sorted(trial.open_validations), "out of order"
            missing = trial.open_validations.keys() - {kept.index for kept in trial.checkpoints}
            assert all(
                trial.validations[index].failure or not trial.validations[index].is_unfinished
                for index in missing
            ), "retention has deleted a checkpoint that is to be validated"
        assert len(is_open) == self._num_open, "miscounted open validations"
        assert unfinished == set(self._unfinished), "unfinished validations are not those queued"
        assert running == self._running, "running validations are not those with a process"

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the trials do not contain, as JSON values."""
        state = {
            "order": [list(key) for key in self._unfinished],
            "due": self._deadlines.due,
            "is_interrupted": self.is_interrupted,
        }
        return state | ({"left": dict(self._left_s)} if self._left_s else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; the trials are there."""
        for trial_id, index in state["order"]:
            trial = self._trial_table[trial_id]
            self._unfinished[trial_id, index] = trial
            validation = trial.validations[index]
            if validation.state is ValidationState.RUNNING:
                self._running.add((trial_id, index))
                if not validation.is_apart:
                    holder = _holder(trial_id, index)
                    self._trial_table.hold_lent(holder, validation.resources, validation.gpu_ids)
        self._num_open = sum(len(trial.open_validations) for trial in self._trial_table.trials)
        for holder, due_s in state["due"].items():
            self._deadlines.set(holder, due_s)
        self._left_s = dict(state.get("left", {}))
        self.is_interrupted = state["is_interrupted"]

    def _move(self, trial: Trial, validation: Validation, move: ValidationMove) -> None:
        move_validation(validation, move)
        validation.kill_move = None
        if not validation.is_unfinished:
            del self._unfinished[trial.trial_id, validation.index]

    def _end_process(self, trial: Trial, index: int) -> None:
        """Free what a process held that is gone."""
        validation, holder = trial.validations[index], _holder(trial.trial_id, index)
        self._running.discard((trial.trial_id, index))
        self._deadlines.cancel(holder)
        self._left_s.pop(holder, None)
        if not validation.is_apart:
            self._trial_table.take_back(holder)
        validation.resources, validation.gpu_ids, validation.is_apart = {}, (), False
        validation.node = ""

    def _move_of(self, validation: Validation, event: ValidationEnded) -> ValidationMove:
        """Return what the end of a process means."""
        if validation.kill_move == ValidationMove.LOSE_CHECKPOINT:
            return ValidationMove.LOSE_CHECKPOINT
        if event.outcome is Outcome.COMPLETED and event.metrics is not None:
            return ValidationMove.RETURN  # perhaps just before it was to be killed
        if validation.kill_move is not None:
            return ValidationMove(validation.kill_move)
        if event.outcome is Outcome.LOST:
            return self._move_of_lost(validation, event.failure)
        validation.losses = ()
        validation.num_failures += 1
        is_tried_again = self._has_retries(validation.num_failures)
        return ValidationMove.RETRY if is_tried_again else ValidationMove.FAIL

    def _move_of_lost(self, validation: Validation, failure: Failure | None) -> ValidationMove:
        """Count a loss, unless its node had announced that it would leave."""
        limit, nodes = self._max_losses, self._trial_table.nodes
        if limit is None or nodes.has_any_announced_end([validation.node]):
            return ValidationMove.LOSE
        why = (failure and failure.message) or "its process vanished"
        validation.losses += ((validation.num_try, why),)
        is_over = len(validation.losses) >= limit
        return ValidationMove.FAIL if is_over else ValidationMove.LOSE

    def _has_retries(self, num_failures: int) -> bool:
        """Return whether a validation is tried again after this many failures."""
        return self._policy.max_retries < 0 or num_failures <= self._policy.max_retries

    def _kill(
        self, trial: Trial, validation: Validation, move: ValidationMove, reason: str
    ) -> list[KillValidation]:
        is_first = validation.kill_move is None
        # That the checkpoint is lost outweighs all else; otherwise the first kill counts.
        if is_first or move is ValidationMove.LOSE_CHECKPOINT:
            validation.kill_move = move
        if not is_first:
            return []
        self._deadlines.cancel(_holder(trial.trial_id, validation.index))
        self._left_s.pop(_holder(trial.trial_id, validation.index), None)
        return [KillValidation(trial.trial_id, validation.index, validation.num_try, reason)]

    def _has_enough(self, trial: Trial) -> bool:
        """Return whether as many of a trial's validations run as may at once."""
        num = sum(
            validation.state is ValidationState.RUNNING
            for validation in trial.open_validations.values()
        )
        return num >= self._policy.max_in_flight

    def _misfit(self) -> str:
        """Return why the declared resources could never be granted; empty if they could."""
        if self._needs_cpus_only:
            return ""
        return self._trial_table.nodes.misfit(self._policy.resources).replace(
            "the trial asks", "the validation asks"
        )

    @property
    def _needs_cpus_only(self) -> bool:
        return not any(amount for name, amount in self._policy.resources.items() if name != _CPU)

    def _acquire(self, trial: Trial, validation: Validation) -> bool:
        table, resources = self._trial_table, dict(self._policy.resources)
        holder = _holder(trial.trial_id, validation.index)
        granted = table.lend(holder, resources, preferred=trial.nodes)
        if granted:
            node: str | None = granted.nodes[0]
        elif self._running or not self._needs_cpus_only:
            return False
        else:
            node = table.nodes.place(preferred=trial.nodes)
        if node is None:
            return False
        validation.is_apart = granted is None
        validation.resources, validation.node = resources, node
        validation.gpu_ids = granted.devices if granted else ()
        return True

    def _short_for(self, trial: Trial) -> tuple[str, frozenset[str]] | None:
        """Return the resources that a validation waits for, and where."""
        nodes, resources = self._trial_table.nodes, self._policy.resources
        if not nodes.is_local:
            return nodes.short_on(resources, 1, preferred=trial.nodes)
        return THIS_NODE, _short_of(nodes, resources)


def _holder(trial_id: str, index: int) -> str:
    return f"{trial_id}/{index}"


def _short_of(nodes: Machine, request: Mapping[str, float]) -> frozenset[str]:
    """Return the resources of which there is not enough for a request that does not fit."""
    capacity, used = nodes.capacity, nodes.used
    short = {
        name
        for name, amount in request.items()
        if round(amount - capacity.get(name, 0.0) + used.get(name, 0.0), 6) > 0
    }
    return frozenset(short or {GPU})  # there are enough in all, but not on one device
