"""The driver's view of worker processes: one attempt, and workers kept for reuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import Event, Outcome, ResultReported, WorkerExited
from tuner.core.trial import Failure, ReportReply
from tuner.execution.group_protocol import PartStored, RankReported, to_group_event
from tuner.execution.worker_protocol import to_event
from tuner.storage import strict_json

from .exit_diagnosis import ExitInfo, diagnose_exit, last_lines, size
from .worker_connection import Bootstrap, DriverEnd

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

Message = Event | RankReported | PartStored
"""What a worker's message means; the second and third come from workers of groups alone."""
_Parser = Callable[[str, int, Mapping[str, Any]], Message]

_UNFIT: Final = {"kind": "unfit"}
_STACK_LINES: Final = 60
"""Length of the quoted standard error of a killed worker, which ends with its stack."""
# Training code can write to the connection, so there has to be a limit to what the driver keeps.
_MAX_PACKAGES: Final = 1_000
_MAX_VERSION_LENGTH: Final = 100


@final
class RemoteWorker:
    """One attempt, from its start until its process group is gone.

    Attributes:
        number: Unique among all workers of the executor.
        trial_id: The trial.
        attempt: Number of the attempt.
        end: The driver's end of the connection.
        command: The command that started the attempt.
        rank: Its rank, 0 for a single process.
        stderr: File that its standard error is appended to.
        exit_message: How the attempt ended according to the worker itself; None until it says so.
        is_reusable: Whether the process waits for the next attempt of its trial.
        is_unfit: Whether the trainable could not be reset for that; another process is needed.
        late_imports: Preloadable modules that the worker has imported and the zygote had not.
        packages: Versions of packages that the worker has imported.
        is_exit_delivered: Whether the driver has been given the end of the attempt, so that the
            end of the process is not another event.
        is_orphaned: Whether the zygote that started it is dead.
        mask: What the selector watches its connection for, 0 for nothing.
    """

    __slots__ = (
        "_is_waiting", "_kill_reason", "_parse", "_protocol_failure", "_stderr_start", "attempt",
        "command", "end", "exit_message", "is_exit_delivered", "is_orphaned",
        "is_reusable", "is_unfit", "late_imports", "mask", "number", "packages", "rank", "stderr",
        "trial_id",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        command: StartWorker,
        end: DriverEnd,
        stderr: Path,
        rank: int | None = None,
    ) -> None:
        """Expect the worker's first message.

        Args:
            number: Unique among all workers of the executor.
            command: The command that starts the attempt.
            end: The driver's end of the connection.
            stderr: File that its standard error is appended to.
            rank: Its rank in a group; None for a single process.
        """
        self.rank = rank or 0
        self._parse: _Parser = to_event if rank is None else to_group_event
        self.number = number
        self.trial_id = command.trial_id
        self.end = end
        self.is_orphaned = False
        self.late_imports: list[str] = []
        self.packages: dict[str, str] = {}
        self.mask = 0
        self.stderr = stderr
        self.begin_attempt(command)

    def begin_attempt(self, command: StartWorker) -> None:
        """Expect the first message of an attempt."""
        self.command = command
        self.attempt = command.attempt
        self.exit_message: WorkerExited | None = None
        self.is_reusable = self.is_unfit = self.is_exit_delivered = False
        self._stderr_start = size(self.stderr)  # earlier attempts wrote to the same file
        self._protocol_failure: Failure | None = None
        self._kill_reason: str | None = None
        self._is_waiting = False

    @property
    def trial_dir(self) -> Path:
        """The trial's directory."""
        return self.stderr.parent

    def last_lines(self) -> str:
        """Return the end of what the attempt has written to standard error, with its stack."""
        return last_lines(self.stderr, self._stderr_start, _STACK_LINES)

    def receive(self) -> list[Message] | None:
        """Return the events that one read completes, None at the end of the connection.

        Raises:
            ValueError: If the worker violates the protocol. It has to be killed; `exit_event` then
                returns the violation.
        """
        try:
            messages = self.end.receive()
            return None if messages is None else self._events(messages)
        except ValueError as error:
            self._note_violation(error)
            raise

    def drain(self) -> list[Message]:
        """Return the events that a worker that is gone has left in the connection."""
        if self._protocol_failure:
            return []
        try:
            return self._events(self.end.drain())
        except ValueError as error:
            self._note_violation(error)
            return []

    def answer(self, command: AnswerReport) -> None:
        """Begin to send the answer to a report."""
        self.note_answer()
        self.end.send(
            _STAY[command.save] if command.stay else _ANSWERS[command.reply, command.save]
        )

    def note_answer(self) -> None:
        """Note that its report is answered, so that it may report again."""
        self._is_waiting = False

    def mark_killed(self, reason: str) -> None:
        """Note that the core has the worker killed; an exit message that comes later is ignored."""
        self._kill_reason = self._kill_reason or reason

    def exit_event(self, exit_info: ExitInfo | None) -> WorkerExited:
        """Return how the worker ended.

        Args:
            exit_info: What the zygote observed; None if the zygote died.
        """
        # The most specific source first: a process that has sent its exit message, violated the
        # protocol or was to be killed may end with any exit code.
        if self.exit_message:
            return self.exit_message
        if self._protocol_failure:
            return self._exited(Outcome.FAILED, self._protocol_failure)
        if self._kill_reason is not None:
            failure = Failure("killed", self._kill_reason, self.last_lines())
            return self._exited(Outcome.KILLED, failure)
        if exit_info is None:
            return self._exited(
                Outcome.LOST,
                Failure("lost", "the process that started it died; the trial is not at fault"),
            )
        return self._exited(
            Outcome.FAILED, diagnose_exit(exit_info, self.stderr, self._stderr_start)
        )

    def _exited(self, outcome: Outcome, failure: Failure) -> WorkerExited:
        return WorkerExited(self.trial_id, self.attempt, outcome, failure)

    def _note_violation(self, error: ValueError) -> None:
        self._protocol_failure = Failure(
            "malformed message", f"{error}; nothing but report may write to a worker's connection"
        )

    def _events(self, messages: list[Any]) -> list[Message]:
        events: list[Message] = []
        for message in messages:
            if message == _UNFIT and not self.exit_message:
                # If it is to be killed, another process would only be killed as well.
                self.is_unfit = self._kill_reason is None
                continue
            event = self._parse(self.trial_id, self.attempt, message)
            self._check(event)
            if not isinstance(event, WorkerExited):
                events.append(event)
            elif self._kill_reason is None:  # else the attempt counts as killed
                self.exit_message = event
                self.is_reusable = message.get("stays") is True
                self.late_imports = [
                    name for name in message.get("late_imports") or () if isinstance(name, str)
                ]
                self.packages = _versions(message.get("packages"))
        return events

    def _check(self, event: Message) -> None:
        if self.exit_message:
            raise ValueError("a message came after the last one")
        if isinstance(event, (ResultReported, RankReported)):
            if self._is_waiting:
                raise ValueError("a report came before the last one was answered")
            self._is_waiting = True


def _versions(packages: Any) -> dict[str, str]:
    """Return the versions of packages that a worker has sent, leaving out malformed ones."""
    pairs = list(packages.items())[:_MAX_PACKAGES] if isinstance(packages, dict) else []
    return {
        name: version[:_MAX_VERSION_LENGTH] for name, version in pairs if isinstance(version, str)
    }


@final
class ReusableWorkers:
    """Workers whose attempt has ended and that wait for the next one of the same trial.

    A worker is kept only until the driver has answered the end of the attempt: its resources count
    as free from then on, so it has to be started again at once or dismissed.
    """

    def __init__(self) -> None:
        self._by_trial: dict[str, RemoteWorker] = {}

    def add(self, worker: RemoteWorker) -> None:
        """Keep a worker."""
        self._by_trial[worker.trial_id] = worker

    def mark_delivered(self) -> None:
        """Note that the driver is being given the events up to now."""
        for worker in self._by_trial.values():
            worker.is_exit_delivered = True

    def take(self, command: StartWorker, bootstrap: Bootstrap) -> RemoteWorker | None:
        """Give an attempt to the worker kept for its trial and return the worker.

        None if there is no such worker, or if it was started with other resources.
        """
        worker = self._by_trial.get(command.trial_id)
        # Libraries have read the environment variables for threads and GPUs by now.
        if worker is None or (command.resources, command.gpu_ids) != (
            worker.command.resources,
            worker.command.gpu_ids,
        ):
            return None
        del self._by_trial[command.trial_id]
        worker.begin_attempt(command)
        worker.end.send_bootstrap(bootstrap)
        return worker

    def take_unclaimed(self) -> list[RemoteWorker]:
        """Remove and return the workers that the driver knows of and has not started again."""
        unclaimed = [worker for worker in self._by_trial.values() if worker.is_exit_delivered]
        for worker in unclaimed:
            self.discard(worker)
        return unclaimed

    def discard(self, worker: RemoteWorker) -> bool:
        """Remove a worker; return whether it was kept."""
        is_kept = self._by_trial.get(worker.trial_id) is worker
        if is_kept:
            del self._by_trial[worker.trial_id]
        return is_kept

    def clear(self) -> None:
        """Remove all workers."""
        self._by_trial.clear()
