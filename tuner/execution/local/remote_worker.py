"""The driver's picture of one worker: what it may say next, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, final

from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import Event, Outcome, ResultReported, WorkerExited
from tuner.core.trial import Failure, ReportReply
from tuner.execution.translate import to_event
from tuner.storage import strict_json

from .exit_diagnosis import Remains, cause_of_death, last_lines, size
from .wire import DriverEnd

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

_UNFIT: Final = {"kind": "unfit"}
_STACK_LINES: Final = 60
"""How many of its last lines a killed worker is quoted with: it has written there where it was."""
_MAX_PACKAGES: Final = 1_000
_MAX_VERSION_LENGTH: Final = 100


@final
class RemoteWorker:
    """One attempt, from its start to the end of its process group.

    Attributes:
        number: Unique among all workers of the executor.
        trial_id: Whose.
        attempt: Which.
        end: The driver's end of the connection.
        command: What it was started for.
        farewell: What the worker itself has said last about how it ended.
        stays: Whether it has said so and waits for the next attempt of its trial.
        is_unfit: Whether it could not be reset for that, so that another process has to take its place.
        late_imports: Modules that it has had to import, and that the zygote had not.
        packages: Versions of packages that it has imported.
        is_told: Whether the end of its attempt has been told, so that nobody is to hear of the end of its process.
        is_orphaned: Whether the zygote that had started it is dead.
        mask: What the selector watches its connection for, 0 for nothing.
    """

    __slots__ = (
        "_complaint", "_is_waiting", "_kill_reason", "_stderr", "_stderr_start", "attempt", "command", "end", "farewell", "is_orphaned",
        "is_told", "is_unfit", "late_imports", "mask", "number", "packages", "stays", "trial_id",
    )  # fmt: skip

    def __init__(self, number: int, command: StartWorker, end: DriverEnd, stderr: Path) -> None:
        """Expect the worker's first message.

        Args:
            number: See above.
            command: What it was started for.
            end: See above.
            stderr: File that takes its standard error, after that of earlier attempts.
        """
        self.number = number
        self.trial_id = command.trial_id
        self.end = end
        self.is_orphaned = False
        self.late_imports: list[str] = []
        self.packages: dict[str, str] = {}
        self.mask = 0
        self._stderr = stderr
        self.take_on(command)

    def take_on(self, command: StartWorker) -> None:
        """Expect the first message of an attempt."""
        self.command = command
        self.attempt = command.attempt
        self.farewell: WorkerExited | None = None
        self.stays = self.is_unfit = self.is_told = False
        self._stderr_start = size(self._stderr)
        self._complaint: Failure | None = None
        self._kill_reason: str | None = None
        self._is_waiting = False

    def receive(self) -> list[Event] | None:
        """Return the events that one read completes, None at the end of the connection.

        Raises:
            ValueError: If the worker does not keep to the protocol; it has to be killed, and `exit_event` will tell.
        """
        try:
            messages = self.end.receive()
            return None if messages is None else self._events(messages)
        except ValueError as error:
            self._complain(error)
            raise

    def drain(self) -> list[Event]:
        """Return the events in what a worker that is gone has left in the connection."""
        if self._complaint:
            return []
        try:
            return self._events(self.end.drain())
        except ValueError as error:
            self._complain(error)
            return []

    def answer(self, command: AnswerReport) -> None:
        """Begin to send the answer to a report."""
        self._is_waiting = False
        self.end.send(
            _STAY[command.save] if command.stay else _ANSWERS[command.reply, command.save]
        )

    def condemn(self, reason: str) -> None:
        """Note that the worker is being killed on the core's wish; a last word that comes later counts no more."""
        self._kill_reason = self._kill_reason or reason

    def exit_event(self, remains: Remains | None) -> WorkerExited:
        """Return how the worker ended.

        Args:
            remains: What was found of it; None if it went with its zygote.
        """
        if self.farewell:
            return self.farewell
        if self._complaint:
            return self._exited(Outcome.FAILED, self._complaint)
        if self._kill_reason is not None:
            where = last_lines(self._stderr, self._stderr_start, _STACK_LINES)
            return self._exited(Outcome.KILLED, Failure("killed", self._kill_reason, where))
        if remains is None:
            return self._exited(
                Outcome.LOST,
                Failure(
                    "lost", "the process that had started it died, through no fault of the trial's"
                ),
            )
        return self._exited(
            Outcome.FAILED, cause_of_death(remains, self._stderr, self._stderr_start)
        )

    def _exited(self, outcome: Outcome, failure: Failure) -> WorkerExited:
        return WorkerExited(self.trial_id, self.attempt, outcome, failure)

    def _complain(self, error: ValueError) -> None:
        self._complaint = Failure(
            "malformed message", f"{error}; nothing but report may write to a worker's connection"
        )

    def _events(self, messages: list[Any]) -> list[Event]:
        events: list[Event] = []
        for message in messages:
            if message == _UNFIT and not self.farewell:
                self.is_unfit = self._kill_reason is None
                continue
            event = to_event(self.trial_id, self.attempt, message)
            self._check(event)
            if not isinstance(event, WorkerExited):
                events.append(event)
            elif self._kill_reason is None:
                self.farewell = event
                self.stays = message.get("stays") is True
                self.late_imports = [
                    name for name in message.get("late_imports") or () if isinstance(name, str)
                ]
                self.packages = _versions(message.get("packages"))
        return events

    def _check(self, event: Event) -> None:
        if self.farewell:
            raise ValueError("a message came after the last one")
        if isinstance(event, ResultReported):
            if self._is_waiting:
                raise ValueError("a report came before the last one was answered")
            self._is_waiting = True


def _versions(told: Any) -> dict[str, str]:
    """Return what a worker says about packages as far as it is of the right kind."""
    pairs = list(told.items())[:_MAX_PACKAGES] if isinstance(told, dict) else []
    return {
        name: version[:_MAX_VERSION_LENGTH] for name, version in pairs if isinstance(version, str)
    }
