"""Executor whose trials run on the nodes of a cluster, for experiments in an object store.

Each node has a host process, which runs its trials as the executor for one machine does, and
uploads what they make. Commands become messages to the hosts, and their messages events.

Where the nodes share a directory, they run processes alone, see `executor`. So will they here, once
they upload and download at the driver's request; nothing of this file is then left.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, assert_never, final

from tuner.core.commands import (
    AnswerReport,
    GrantLease,
    KillValidation,
    KillWorker,
    ListCheckpoints,
    RefuseLease,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import (
    CheckpointLost,
    Event,
    LeaseReleased,
    LeaseRequested,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import Failure
from tuner.execution.commit_pool import CommitPool
from tuner.execution.local.worker_connection import pickled
from tuner.storage import layout
from tuner.storage.object_checkpoints import ObjectCheckpoints

from .link import Liveness
from .node_losses import NodeLosses, as_lost
from .node_messages import Setup
from .nodes import ClusterNodes, Node
from .spread_group import SpreadGroups
from .storage_probe import StoreProof
from .stored_messages import (
    CommandWithoutConfig,
    Output,
    Packages,
    RankMessage,
    Unloadable,
    command_message,
    read_host_message,
    start_message,
    validation_message,
)

_JOURNAL_STORED: Final = {"kind": "journal_stored"}

_Worker = tuple[str, int]
_Validation = tuple[str, int, int]

_log = logging.getLogger("tuner")


@dataclass(slots=True)
class _Work:
    """What runs on a node.

    Attributes:
        attempts: Trials that run there.
        validations: Validations that run there.
        killed_in_silence: Attempts that were to be killed while nothing was heard of the node.
    """

    attempts: dict[_Worker, StartWorker] = field(default_factory=dict)
    validations: dict[_Validation, StartValidation] = field(default_factory=dict)
    killed_in_silence: set[_Worker] = field(default_factory=set)


@final
class StoredClusterExecutor(ClusterNodes):
    """Runs trials on the nodes of a cluster, with an object store for all that they make."""

    def __init__(
        self,
        engine: str,
        settings: Mapping[str, Any],
        description: str,
        directory: Path,
        *,
        trainable: bytes,
        validator: bytes = b"",
        seed_of: Callable[[str], int],
        on_packages: Callable[[Mapping[str, str]], None] | None = None,
        environ: Mapping[str, str] | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        """Get ready to connect.

        Args:
            engine: See `ClusterNodes`.
            settings: See there.
            description: See there.
            directory: The directory in which the driver works.
            trainable: See `ClusterNodes`.
            validator: See there.
            seed_of: Returns the seed of a trial.
            on_packages: Called with the versions of packages that a worker has imported.
            environ: Environment variables that are added for all processes of trials.
            liveness: How long nodes and driver may be silent.
        """
        super().__init__(
            engine,
            settings,
            description,
            trainable=trainable,
            validator=validator,
            liveness=liveness,
        )
        self._directory = directory
        self._seed_of = seed_of
        self._on_packages = on_packages
        self._is_journal_stored = False
        self._work: defaultdict[str, _Work] = defaultdict(_Work)
        self._of_attempt: dict[_Worker, Node] = {}
        self._of_validation: dict[_Validation, Node] = {}
        self._payloads: set[tuple[str, str]] = set()
        self._losses = NodeLosses()
        self._events: list[Event] = []
        self._is_closed = False
        self._groups = SpreadGroups(directory, self, sync=False, environ=environ or {})

    def connect(
        self,
        setup: Setup,
        proof: StoreProof | None,
        checkpoints: ObjectCheckpoints | None,
        *,
        is_async: bool,
    ) -> list[Event]:
        """Connect to the cluster, see `ClusterNodes.open`.

        Args:
            setup: See there.
            proof: See there.
            checkpoints: The store.
            is_async: Whether results are passed on before their checkpoints are stored.

        Returns:
            What has happened so far, for the driver's first turn.
        """
        if checkpoints:
            self._groups.use_store(checkpoints, is_async=is_async)
        self.open(setup, proof)
        with self.lock:
            events, self._events = self._events, []
        return events

    def note_journal_stored(self) -> None:
        """Let hosts upload checkpoints, as the object store has the journal's beginning.

        May be called from another thread.
        """
        self._is_journal_stored = True
        self.wake()

    # The Executor protocol.

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        with self.lock:
            for command in commands:
                self._do(command)
            starts = (command for command in commands if isinstance(command, StartWorker))
            self._losses.tell({start.trial_id: start.nodes for start in starts})
            self._send_frames(time.monotonic())

    def _do(self, command: WorkerCommand) -> None:
        match command:
            case AnswerReport():
                self._answer(command)
            case StartWorker():
                self._start(command)
            case KillWorker():
                self._kill(command)
            case StartValidation():
                self._start_validation(command)
            case KillValidation():
                key = command.trial_id, command.index, command.num_try
                _pass_on(self._of_validation.get(key), command)
            case GrantLease() | RefuseLease():
                self._answer_lease(command)
            case ListCheckpoints():
                self._list_checkpoints(command)
            case _:
                assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`.

        Raises:
            ClusterError: If the cluster cannot be reached any more.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self.lock:
            self._raise_error()
            self._losses.tell({})
            self._look_at_demand(time.monotonic())
            while not (self._events or self._is_woken or self._is_closed):
                self._step(deadline_s)
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    break
            self._is_woken = False
            self._losses.note_known()
            events, self._events = self._events, []
        return events

    def clock(self) -> float:
        """See `Executor`."""
        return time.monotonic()

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        self._is_closed = True
        if unfinished := self._groups.close():
            _log.warning(
                "not stored, and given up at the end of the experiment: %s; check whether the "
                "storage still answers",
                ", ".join(unfinished),
            )
        self.close(deadline_s)

    # Commands.

    def _start(self, command: StartWorker) -> None:
        if len(set(command.nodes)) > 1:
            self._groups.start(command)
            return
        # If its node has just left, the core learns of both in the order in which they happened.
        if host := self._nodes.get(command.node):
            key = command.trial_id, command.attempt
            try:
                message = self.start_message(command)
            except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
                why = f"the configuration cannot be sent to a node: {error}"
                failure = Failure(type(error).__name__, why)
                self._events.append(WorkerExited(*key, Outcome.FAILED, failure))
                return
            self._work[host.name].attempts[key] = command
            self._of_attempt[key] = host
            host.link.send(message)

    def start_message(self, command: StartWorker) -> Mapping[str, Any]:
        """Return the message that has a worker, or ranks, started; see `SpreadHost`.

        Raises:
            Exception: If the configuration cannot be pickled.
        """
        config = pickled(command.config)
        return start_message(command, config, self._seed_of(command.trial_id))

    def _answer(self, command: AnswerReport) -> None:
        key = command.trial_id, command.attempt
        if key in self._groups:
            self._groups.answer(command)
        else:
            _pass_on(self._of_attempt.get(key), command)

    def _kill(self, command: KillWorker) -> None:
        key = command.trial_id, command.attempt
        if key in self._groups:
            self._groups.kill(command)
            return
        host = self._of_attempt.get(key)
        if host and self.is_silent(host.name):
            self._work[host.name].killed_in_silence.add(key)
        _pass_on(host, command)

    def _start_validation(self, command: StartValidation) -> None:
        host = self._nodes.get(command.node)
        if host is None:
            return
        key = command.trial_id, command.checkpoint.index, command.num_try
        has_payload = (command.trial_id, command.request.payload) in self._payloads
        seed = self._seed_of(command.trial_id)
        try:
            config = pickled(command.config)
            message = validation_message(command, config, seed, has_payload=has_payload)
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            failure = Failure(type(error).__name__, f"it cannot be sent to a node: {error}")
            self._events.append(ValidationEnded(*key, Outcome.FAILED, failure=failure))
            return
        self._work[host.name].validations[key] = command
        self._of_validation[key] = host
        host.link.send(message)

    def _answer_lease(self, command: GrantLease | RefuseLease) -> None:
        owner = command.owner
        if owner.index is not None:
            key = owner.trial_id, owner.index, owner.attempt
            _pass_on(self._of_validation.get(key), command)
        else:
            _pass_on(self._asker(owner.trial_id, owner.attempt, command.token), command)

    def _list_checkpoints(self, command: ListCheckpoints) -> None:
        host = self._asker(command.trial_id, command.attempt, command.token)
        _pass_on(host, command)

    def _asker(self, trial_id: str, attempt: int, token: str) -> Node | None:
        if node := self._groups.take_asker(trial_id, attempt, token):
            return self._nodes.get(node)
        return self._of_attempt.get((trial_id, attempt))

    # What groups over several nodes need, see `SpreadHost`.

    def tell(self, node: str, message: Mapping[str, Any]) -> None:
        """See `SpreadHost`."""
        self.say(node, message)

    def emit(self, event: Event) -> None:
        """See `SpreadHost`."""
        self._note_payload(event)
        self._events.append(event)

    def watch(self, readable: CommitPool, on_readable: Callable[[], None]) -> None:
        """See `SpreadHost`."""
        self._selector.register(readable, selectors.EVENT_READ, lambda _mask: on_readable())

    def unwatch(self, readable: CommitPool) -> None:
        """See `SpreadHost`."""
        self._selector.unregister(readable)

    # What the nodes say, see `ClusterNodes`.

    @property
    def _has_news(self) -> bool:
        return bool(self._events)

    def _announce(self, event: NodeJoined | NodeDraining) -> None:
        self._events.append(event)

    def _is_idle(self, node: Node) -> bool:
        work = self._work[node.name]
        return not (work.attempts or work.validations or self._groups.trials_on(node.name))

    def _lose(self, node: Node, why: str, *, is_intended: bool) -> None:
        work = self._work.pop(node.name, _Work())
        for key in work.attempts:
            del self._of_attempt[key]
        for validation in work.validations:
            del self._of_validation[validation]
        trial_ids = {trial_id for trial_id, _ in work.attempts}
        trial_ids |= self._groups.trials_on(node.name)
        if trial_ids or not is_intended:
            self._losses.add(node.name, sorted(trial_ids), why)
        self._groups.on_node_left(node.name, node.link.confirmed_s)
        self._events.append(NodeLeft(node.name, why))

    def _select(self, timeout_s: float) -> None:
        if self._groups.deadline_s is not None:
            timeout_s = max(0.0, min(timeout_s, self._groups.deadline_s - time.monotonic()))
        super()._select(timeout_s)
        self._groups.tick()
        if self._is_journal_stored:
            self._is_journal_stored = False
            self._tell_all(_JOURNAL_STORED)
        self._send_frames(time.monotonic())

    def _on_told(self, node: Node, message: Mapping[str, Any]) -> None:
        told = read_host_message(message)
        match told:
            case RankMessage():
                self._groups.on_message(node.name, told.message)
            case Unloadable(why):
                self.gives_up_unloadable(node.name, why)
            case Packages(versions):
                if self._on_packages:
                    self._on_packages(versions)
            case Output():
                self._append_output(node, told)
            case _:
                self._on_event(node, told)

    def _on_event(self, host: Node, event: Event) -> None:
        if not self._runs(host, event):
            return  # late: the core knows that it is over
        match event:
            case WorkerStarted():
                host.has_loaded = True
            case WorkerExited():
                key = event.trial_id, event.attempt
                del self._work[host.name].attempts[key], self._of_attempt[key]
                if key in self._work[host.name].killed_in_silence:
                    self._work[host.name].killed_in_silence.discard(key)
                    event = as_lost(event, host.name)
            case ValidationEnded():
                self._end_validation(host, event)
            case _:
                pass
        self.emit(event)

    def _runs(self, host: Node, event: Event) -> bool:
        """Return whether an event is of something that runs on a node."""
        work = self._work[host.name]
        match event:
            case CheckpointLost():
                return True  # of a donor's, too
            case ValidationEnded():
                return (event.trial_id, event.index, event.num_try) in work.validations
            case LeaseRequested(owner) | LeaseReleased(owner):
                if owner.index is None:
                    return (owner.trial_id, owner.attempt) in work.attempts
                return (owner.trial_id, owner.index, owner.attempt) in work.validations
            case _:
                key = getattr(event, "trial_id", ""), getattr(event, "attempt", 0)
                return key in work.attempts

    def _end_validation(self, host: Node, event: ValidationEnded) -> None:
        key = event.trial_id, event.index, event.num_try
        command = self._work[host.name].validations.pop(key)
        del self._of_validation[key]
        is_over = event.outcome in (Outcome.COMPLETED, Outcome.KILLED)
        if is_over or (event.outcome is Outcome.FAILED and command.is_last_try):
            self._delete_payload(event.trial_id, command.request.payload)

    def _note_payload(self, event: Event) -> None:
        if isinstance(event, ResultReported) and event.validation and event.validation.payload:
            self._payloads.add((event.trial_id, event.validation.payload))

    def _delete_payload(self, trial_id: str, name: str) -> None:
        """Forget the payload of a validation, which its node deletes."""
        self._payloads.discard((trial_id, name))

    def _append_output(self, host: Node, output: Output) -> None:
        """Add to the output of a trial on this machine what it has written on its node."""
        trial_id = output.trial_id
        work = self._work[host.name]
        is_here = any(key[0] == trial_id for key in (*work.attempts, *work.validations))
        is_here = is_here or trial_id in self._groups.trials_on(host.name)
        if not is_here:
            return
        path = layout.trial_directory(self._directory, trial_id) / output.stream
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("wb" if output.is_whole else "ab") as file:
                file.write(output.data.encode())
        except OSError as error:
            self.on_remark(f"the output of trials cannot be stored: {error}")


def _pass_on(host: Node | None, command: CommandWithoutConfig) -> None:
    if host:
        host.link.send(command_message(command))
