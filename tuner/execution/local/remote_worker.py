"""The driver's view of worker processes: one attempt, and workers kept for reuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, final

from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import ResultReported, WorkerExited
from tuner.core.trial import ReportReply
from tuner.execution.group_protocol import RankReported, to_group_event
from tuner.execution.worker_protocol import report_answer, to_event
from tuner.storage import strict_json

from .exit_diagnosis import ExitInfo
from .remote_process import Message, RemoteProcess
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

_Parser = Callable[[str, int, Mapping[str, Any]], Message]

_UNFIT: Final = {"kind": "unfit"}
# Training code can write to the connection, so there has to be a limit to what the driver keeps.
_MAX_PACKAGES: Final = 1_000
_MAX_VERSION_LENGTH: Final = 100


@final
class RemoteWorker(RemoteProcess):
    """One attempt, from its start until its process group is gone.

    Attributes:
        trial_id: The trial.
        attempt: Number of the attempt.
        command: The command that started the attempt.
        rank: Its rank, 0 for a single process.
        exit_message: How the attempt ended according to the worker itself; None until it says so.
        is_reusable: Whether the process waits for the next attempt of its trial.
        is_unfit: Whether the trainable could not be reset for that; another process is needed.
        late_imports: Preloadable modules that the worker has imported and the zygote had not.
        packages: Versions of packages that the worker has imported.
        unloadable: Why it could not load the trainable; empty if it could.
        is_exit_delivered: Whether the driver has been given the end of the attempt, so that the
            end of the process is not another event.
        relayed: The messages that came since `take_relayed`, where the group is on another machine;
            None where it is on this one.
    """

    __slots__ = (
        "_is_waiting", "_parse", "attempt", "command", "exit_message", "is_exit_delivered",
        "is_reusable", "is_unfit", "late_imports", "packages", "rank", "relayed", "trial_id",
        "unloadable",
    )  # fmt: skip

    _RULE: ClassVar[str] = "nothing but report may write to a worker's connection"
    _SUBJECT: ClassVar[str] = "trial"

    def __init__(
        self,
        number: int,
        command: StartWorker,
        end: DriverEnd,
        stderr: Path,
        rank: int | None = None,
        *,
        is_relayed: bool = False,
    ) -> None:
        """Expect the worker's first message.

        Args:
            number: Unique among all workers of the executor.
            command: The command that starts the attempt.
            end: The driver's end of the connection.
            stderr: File that its standard error is appended to.
            rank: Its rank in a group; None for a single process.
            is_relayed: Whether the group is on another machine, so that messages are kept for it.
        """
        super().__init__(number, end, stderr)
        self.rank = rank or 0
        self._parse: _Parser = to_event if rank is None else to_group_event
        self.relayed: list[Any] | None = [] if is_relayed else None
        self.trial_id = command.trial_id
        self.late_imports: list[str] = []
        self.packages: dict[str, str] = {}
        self.unloadable = ""
        self.begin_attempt(command)

    def begin_attempt(self, command: StartWorker) -> None:
        """Expect the first message of an attempt."""
        self.command = command
        self.attempt = command.attempt
        self.exit_message: WorkerExited | None = None
        self.is_reusable = self.is_unfit = self.is_exit_delivered = False
        self._is_waiting = False
        self._expect_messages()

    @property
    def trial_dir(self) -> Path:
        """The trial's directory."""
        return self.stderr.parent

    def answer(self, command: AnswerReport) -> None:
        """Begin to send the answer to a report."""
        self.note_answer()
        if command.interruption:
            self.end.send(strict_json.to_bytes(report_answer(command)) + b"\n")
        else:
            self.end.send(
                _STAY[command.save] if command.stay else _ANSWERS[command.reply, command.save]
            )

    def take_relayed(self) -> list[Any]:
        """Return the messages that came since the last call, for a group on another machine."""
        taken = self.relayed or []
        if self.relayed is not None:
            self.relayed = []
        return taken

    def note_answer(self) -> None:
        """Note that its report is answered, so that it may report again."""
        self._is_waiting = False

    def exit_event(self, exit_info: ExitInfo | None) -> WorkerExited:
        """Return how the attempt ended, according to the worker itself if it has said so.

        Args:
            exit_info: What the zygote observed; None if the zygote died.
        """
        return self.exit_message or WorkerExited(
            self.trial_id, self.attempt, *self._unsaid_exit(exit_info)
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
            if self.relayed is not None and self._kill_reason is None:
                self.relayed.append(message)
            if not isinstance(event, WorkerExited):
                events.append(event)
            elif self._kill_reason is None:  # else the attempt counts as killed
                self.exit_message = event
                self.is_reusable = message.get("stays") is True
                self.late_imports = [
                    name for name in message.get("late_imports") or () if isinstance(name, str)
                ]
                self.packages = _versions(message.get("packages"))
                if message.get("is_unloadable") is True:
                    self.unloadable = str(event.failure)
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
