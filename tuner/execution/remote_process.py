"""Processes as the executor knows them: what their messages mean, and how they have ended.

A `RemoteProcess` is started for its *owner*: a `RemoteWorker` for an attempt of a trial, and a
validator for a validation.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, final

from tuner.core.commands import AnswerReport, StartValidation, StartWorker
from tuner.core.events import Event, Outcome, ResultReported, ValidationEnded, WorkerExited
from tuner.core.worker_records import Failure, ReportReply
from tuner.storage import strict_json
from tuner.wire.record import record

from .failures import ExitInfo, diagnose_exit
from .process_service import Unstarted
from .worker_protocol import failure_of, report_answer, to_event

if TYPE_CHECKING:
    from .group_protocol import PartStored, RankReported

    Message = Event | RankReported | PartStored
    """What a message means; the second and third come from workers of groups alone."""

# Encoded once: there are few different answers, and one for each report of each trial.
_ANSWERS: Final = {
    (verdict, save): strict_json.to_bytes({"verdict": verdict.value, "save": save}) + b"\n"
    for verdict in ReportReply
    for save in (False, True)
}
_STAY: Final = {
    save: strict_json.to_bytes({"verdict": ReportReply.EXPLOIT.value, "save": save, "stay": True})
    + b"\n"
    for save in (False, True)
}

IF_SILENT: Final = (
    "the stack in error.txt shows where it hung; if a report may take that long, raise "
    "FailureConfig(report_timeout_s=...)"
)
"""What to do about an attempt that was killed since it did not report."""

_UNFIT: Final = {"kind": "unfit"}
# Training code can write to the connection, so there has to be a limit to what the driver keeps.
_MAX_PACKAGES: Final = 1_000
_MAX_VERSION_LENGTH: Final = 100


class RemoteProcess(ABC):
    """A process, from its start until its process group is gone.

    Attributes:
        key: Identifies it at the process service.
        stderr: The last lines that it has written to standard error, once it is gone.
        command: The command that started it.
        exit_message: How it ended according to the process itself; None until it says so.
    """

    __slots__ = ("_kill_reason", "_protocol_failure", "key", "stderr")

    command: StartWorker | StartValidation
    exit_message: WorkerExited | ValidationEnded | None

    _RULE: ClassVar[str]
    """What may write to the connection."""
    _SUBJECT: ClassVar[str]
    """What the process is started for."""

    def __init__(self, key: int) -> None:
        """Expect the process's messages.

        Args:
            key: Identifies it at the process service.
        """
        self.key = key
        self._expect_messages()

    @property
    @abstractmethod
    def node(self) -> str:
        """The machine that it runs on; empty for this one."""

    def _expect_messages(self) -> None:
        self.stderr = ""
        self._protocol_failure: Failure | None = None
        self._kill_reason: str | None = None

    @property
    def has_violated(self) -> bool:
        """Whether it has violated the protocol; nothing that comes after can be trusted."""
        return self._protocol_failure is not None

    @property
    def is_killed(self) -> bool:
        """Whether the core has had it killed."""
        return self._kill_reason is not None

    def mark_killed(self, reason: str) -> None:
        """Note that the core has it killed; an exit message that comes later is ignored."""
        self._kill_reason = self._kill_reason or reason

    def note_violation(self, why: str) -> None:
        """Note that it has violated the protocol; how it ended is then the violation."""
        self._protocol_failure = Failure("malformed message", f"{why}; {self._RULE}")

    def read(self, messages: Sequence[Any]) -> list[Message]:
        """Return what messages mean, and note the last one.

        Raises:
            ValueError: If the process violates the protocol, which is noted. It has to be killed.
        """
        try:
            return self._read(messages)
        except ValueError as error:
            self.note_violation(str(error))
            raise

    @abstractmethod
    def _read(self, messages: Sequence[Any]) -> list[Message]:
        """Return what messages mean, and note the last one.

        Raises:
            ValueError: If one violates the protocol.
        """

    def exit_event(self, exit_info: ExitInfo | None) -> WorkerExited | ValidationEnded:
        """Return how it ended, according to the process itself if it has said so.

        Args:
            exit_info: What was observed; None if nothing was.
        """
        return self.exit_message or self.end_event(*self._unsaid_exit(exit_info))

    @abstractmethod
    def end_event(self, outcome: Outcome, failure: Failure) -> WorkerExited | ValidationEnded:
        """Return the event that it has ended like this."""

    def _unsaid_exit(self, exit_info: ExitInfo | None) -> tuple[Outcome, Failure]:
        """Return how a process ended that has not said so itself.

        Args:
            exit_info: What was observed; None if nothing was.
        """
        # The most specific source first: a process that violated the protocol or was to be killed
        # may end with any exit code.
        if self._protocol_failure:
            return Outcome.FAILED, self._protocol_failure
        if self._kill_reason is not None:
            return Outcome.KILLED, Failure("killed", self._kill_reason, self.stderr)
        if exit_info is None:
            why = f"the process that started it died; the {self._SUBJECT} is not at fault"
            return Outcome.LOST, Failure("lost", why)
        return Outcome.FAILED, diagnose_exit(exit_info, self.stderr)


class ProcessOwner(ABC):
    """What processes are started for: an attempt of a trial, or a validation."""

    __slots__ = ()

    @abstractmethod
    def on_messages(self, process: Any, messages: Sequence[Message], /) -> None:
        """Handle what a process has sent."""

    @abstractmethod
    def on_gone(self, process: Any, exit_info: ExitInfo | None, /) -> None:
        """Note that a process's group is gone; without information if it was not observed."""

    @abstractmethod
    def on_unstarted(self, process: Any, unstarted: Unstarted, /) -> None:
        """Note that a process could not be started, now or at all."""

    # What matters only where a process has others beside it.

    def on_violation(self, process: Any, /) -> None:  # noqa: B027  (its end says it)
        """Note that a process has violated the protocol, and is killed."""

    def on_hangup(self, process: Any, /) -> None:  # noqa: B027  (it may live on)
        """Note that a process's connection has ended; mostly since it is dead."""

    def on_node_left(self, node: str, processes: Sequence[Any], alive_s: float, /) -> None:  # noqa: B027  (the core knows)
        """Note that processes are gone with their node, while others run elsewhere.

        Args:
            node: Its name.
            processes: Those whose end was not heard of.
            alive_s: Up to when it is known to have lived, by the monotonic clock.
        """

    def on_stack(self, process: Any, stack: str, /) -> None:  # noqa: B027  (none was asked for)
        """Handle the stack that a process was asked for."""


class OneProcessOwner(ProcessOwner):
    """What a single process is started for, which ends with it.

    Args:
        host: The executor.
    """

    __slots__ = ("_host",)

    def __init__(self, host: OwnerHost) -> None:
        self._host = host

    def on_gone(self, process: RemoteProcess, exit_info: ExitInfo | None) -> None:
        self._host.emit(process.exit_event(exit_info))

    def on_unstarted(self, process: RemoteProcess, unstarted: Unstarted) -> None:
        if process.is_killed:
            self._host.emit(process.exit_event(None))
        elif unstarted.is_shortage:
            self._host.start_again(process.command, unstarted.failure.message)
        else:
            self._host.emit(process.end_event(Outcome.FAILED, unstarted.failure))


class OwnerHost(Protocol):
    """What the owners of processes need of the executor."""

    def emit(self, event: Event, /) -> None:
        """Pass an event on to the driver."""

    def send(self, process: Any, line: bytes, /) -> None:
        """Begin to send a message to a process."""

    def kill(self, process: Any, /) -> None:
        """Kill a process's group."""

    def dump_stack(self, process: Any, /) -> None:
        """Have a process write its stack to its standard error."""

    def expect_exit(self, process: Any, /) -> None:
        """Kill a process that does not end in time."""

    def start_again(self, command: StartWorker | StartValidation, why: str, /) -> None:
        """Carry out a start again later; all that it has started is gone."""


# Workers.


def answer_line(command: AnswerReport) -> bytes:
    """Return the answer to a report of a single process."""
    if command.interruption:
        return strict_json.to_bytes(report_answer(command)) + b"\n"
    return _STAY[command.save] if command.stay else _ANSWERS[command.reply, command.save]


@final
class RemoteWorker(RemoteProcess):
    """One attempt, from its start until its process group is gone.

    Attributes:
        trial_id: The trial.
        attempt: Number of the attempt.
        command: The command that started the attempt.
        rank: Its rank, 0 for a single process.
        exit_message: How the attempt ended according to the worker itself; None until it says so.
        is_waiting: Whether it has reported and waits for its answer.
        is_reusable: Whether the process waits for the next attempt of its trial.
        is_unfit: Whether the trainable could not be reset for that; another process is needed.
    """

    __slots__ = (
        "_parse", "attempt", "command", "exit_message", "is_reusable", "is_unfit", "is_waiting",
        "rank", "trial_id",
    )  # fmt: skip

    command: StartWorker
    _RULE: ClassVar[str] = "nothing but report may write to a worker's connection"
    _SUBJECT: ClassVar[str] = "trial"

    def __init__(self, key: int, command: StartWorker, rank: int | None = None) -> None:
        """Expect the worker's first message.

        Args:
            key: Identifies it at the process service.
            command: The command that starts the attempt.
            rank: Its rank in a group; None for a single process.
        """
        super().__init__(key)
        self.rank = rank or 0
        self._parse: Callable[[str, int, Mapping[str, Any]], Message] = (
            to_event if rank is None else _parser_of_groups()
        )
        self.trial_id = command.trial_id
        self.begin_attempt(command)

    @property
    def node(self) -> str:
        return self.command.nodes[self.rank] if self.command.nodes else ""

    def begin_attempt(self, command: StartWorker) -> None:
        """Expect the first message of an attempt."""
        self.command = command
        self.attempt = command.attempt
        self.exit_message: WorkerExited | None = None
        self.is_reusable = self.is_unfit = self.is_waiting = False
        self._expect_messages()

    def end_event(self, outcome: Outcome, failure: Failure) -> WorkerExited:
        return WorkerExited(self.trial_id, self.attempt, outcome, failure)

    def _read(self, messages: Sequence[Any]) -> list[Message]:
        events: list[Message] = []
        for message in messages:
            if message == _UNFIT and not self.exit_message:
                # If it is to be killed, another process would only be killed as well.
                self.is_unfit = self._kill_reason is None
                continue
            event = self._parse(self.trial_id, self.attempt, message)
            self._check(message)
            if not isinstance(event, WorkerExited):
                events.append(event)
            elif self._kill_reason is None:  # else the attempt counts as killed
                self.exit_message = event
                self.is_reusable = message.get("stays") is True
        return events

    def _check(self, message: Mapping[str, Any]) -> None:
        if self.exit_message:
            raise ValueError("a message came after the last one")
        if message["kind"] == "result":
            if self.is_waiting:
                raise ValueError("a report came before the last one was answered")
            self.is_waiting = True


def _parser_of_groups() -> Callable[[str, int, Mapping[str, Any]], Message]:
    from .group_protocol import to_group_event  # noqa: PLC0415  (only groups need it)

    return to_group_event


class SingleHost(OwnerHost, Protocol):
    """What an attempt with one process needs of the executor."""

    def keep(self, worker: RemoteWorker, /) -> None:
        """Pass on the end of an attempt whose process waits for the next one."""

    def replace(self, worker: RemoteWorker, /) -> None:
        """Start another process for an attempt, in the place of one that is unfit for it."""


class AttemptOwner(ProcessOwner):
    """An attempt of a trial, with its processes.

    Attributes:
        trial_dir: The trial's directory.
        members: Its processes, by rank.
    """

    __slots__ = ()

    trial_dir: str | os.PathLike[str]
    members: Sequence[RemoteWorker]

    @abstractmethod
    def answer(self, command: AnswerReport) -> None:
        """Send the answer to a report."""

    @abstractmethod
    def kill(self, reason: str, *, is_silent: bool = False, is_urgent: bool = False) -> None:
        """Note that the core has the attempt killed; the executor kills the processes.

        Args:
            reason: Why.
            is_silent: Whether since it has not reported for too long.
            is_urgent: Whether what was stored before is not worth a wait either.
        """

    @property
    def deadline_s(self) -> float | None:
        """When `tick` is to be called, by the monotonic clock; None for never."""
        return None

    def tick(self, now_s: float) -> None:
        """Do what is due."""


@final
class SingleAttempt(OneProcessOwner, AttemptOwner):
    """One attempt of a trial, with its only process, whose messages are passed on as they come.

    Args:
        worker: The process.
        trial_dir: The trial's directory.
        host: The executor.

    """

    __slots__ = ("members", "trial_dir")

    _host: SingleHost

    def __init__(
        self, worker: RemoteWorker, trial_dir: str | os.PathLike[str], host: SingleHost
    ) -> None:
        super().__init__(host)
        self.trial_dir = trial_dir
        self.members = (worker,)

    def answer(self, command: AnswerReport) -> None:
        (worker,) = self.members
        if worker.is_waiting:
            worker.is_waiting = False
            self._host.send(worker, answer_line(command))

    def kill(self, reason: str, *, is_silent: bool = False, is_urgent: bool = False) -> None:
        del is_silent, is_urgent  # no other process waits for this one, and nothing is committed
        self.members[0].mark_killed(reason)

    def on_messages(self, process: RemoteWorker, messages: Sequence[Any]) -> None:
        """See `ProcessOwner`; only the workers of groups send other messages than events."""
        for message in messages:
            # The core would drop it as well.
            if not (process.is_killed and isinstance(message, ResultReported)):
                self._host.emit(message)
        if process.is_unfit:
            self._host.replace(process)
        elif process.exit_message and process.is_reusable:
            self._host.keep(process)
        elif process.exit_message:
            self._host.expect_exit(process)


@record
class ExitNotes:
    """What the last message of a worker says beside how the attempt ended, see `preload`.

    Attributes:
        late_imports: Preloadable modules that the worker has imported and the zygote had not.
        packages: Versions of packages that the worker has imported.
        unloadable: Why it could not load the trainable; empty if it could.
    """

    late_imports: list[str]
    packages: dict[str, str]
    unloadable: str

    @classmethod
    def of(cls, message: Any) -> ExitNotes | None:
        """Return those of a message, malformed ones left out; None if it is not the last one."""
        if not isinstance(message, dict) or message.get("kind") != "exited":
            return None
        late_imports, packages = message.get("late_imports"), message.get("packages")
        versions = packages.items() if isinstance(packages, dict) else ()
        unloadable = ""
        if message.get("is_unloadable") is True:
            with suppress(ValueError):
                unloadable = str(failure_of(message))
        names = late_imports if isinstance(late_imports, list) else ()
        return cls(
            [name for name in names if isinstance(name, str)],
            {
                name: version[:_MAX_VERSION_LENGTH]
                for name, version in islice(versions, _MAX_PACKAGES)
                if isinstance(version, str)
            },
            unloadable,
        )


@final
class ReusableWorkers:
    """Workers whose attempt has ended and that wait for the next one of the same trial.

    A worker is kept only until the driver has answered the end of the attempt: its resources count
    as free from then on, so it has to be started again at once or dismissed.
    """

    def __init__(self) -> None:
        self._by_trial: dict[str, RemoteWorker] = {}
        self._delivered: set[str] = set()

    def add(self, worker: RemoteWorker) -> None:
        """Keep a worker."""
        self._by_trial[worker.trial_id] = worker

    def mark_delivered(self) -> None:
        """Note that the driver is being given the events up to now."""
        self._delivered.update(self._by_trial)

    def find(self, command: StartWorker) -> RemoteWorker | None:
        """Return the worker kept for the trial of an attempt.

        None if there is no such worker, or if it was started elsewhere or with other resources.
        """
        worker = self._by_trial.get(command.trial_id)
        # Libraries have read the environment variables for threads and GPUs by now.
        if worker and _place(worker.command) == _place(command):
            return worker
        return None

    def take_unclaimed(self) -> list[RemoteWorker]:
        """Remove and return the workers that the driver knows of and has not started again."""
        if not self._delivered:
            return []
        unclaimed = [self._by_trial[trial_id] for trial_id in sorted(self._delivered)]
        for worker in unclaimed:
            self.discard(worker.key)
        return unclaimed

    def discard(self, key: int) -> None:
        """Remove a worker if it is kept."""
        for worker in self._by_trial.values():
            if worker.key == key:
                del self._by_trial[worker.trial_id]
                self._delivered.discard(worker.trial_id)
                return


def _place(command: StartWorker) -> tuple[Any, ...]:
    return command.resources, command.gpu_ids, command.nodes
