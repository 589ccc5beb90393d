"""Control requests: files by which other processes ask a driver for something, and its replies.

Files, since the experiment's directory is all that both processes surely share: it may be on a
network file system, its path may be too long for a socket, and a sender needs no other right than
to write there. A request names the driver that it is for, so that a later driver does not carry it
out long after its sender has ended.
"""

from __future__ import annotations

import enum
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import NotRunning, StorageError
from tuner.wire.declared import decode, encode

from . import atomic, layout, strict_json
from .directories import make_own_folder
from .lock import Owner, driver_of, read_owner
from .reading import read_file

_LOOK_EVERY_S: Final = 0.2
_POLL_S: Final = 0.02
_NOTE: Final = ".json"
_ANSWER: Final = ".answer"
_REFUSED: Final = ".refused"
LIMIT_BYTES: Final = 1 << 20
"""The largest size of a request that is read."""

_log = logging.getLogger("tuner")


class Verb(enum.StrEnum):
    """What can be asked for."""

    STOP = "stop"
    """Let the experiment end; it can be restored."""
    STOP_TRIAL = "stop_trial"
    PAUSE = "pause"
    RESUME = "resume"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """What a user asks a driver for.

    Attributes:
        verb: What is to be done.
        trial_id: With which trial; empty for the experiment.
        changes: Hyperparameters of a fork that are to be different, by their flattened names.
        checkpoint: Index of the checkpoint that it is to go on from; None for the latest.
        is_urgent: Whether workers are to be killed instead of asked.
    """

    verb: Verb
    trial_id: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: int | None = None
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class ControlReply:
    """The driver's reply to a control request.

    Attributes:
        is_granted: Whether the request is carried out, now or with the next report of the trial.
        text: What happens, or why the request is refused, as a sentence.
        trial_id: The trial concerned; of a fork the new one.
    """

    is_granted: bool
    text: str
    trial_id: str = ""


PendingRequest = tuple[ControlRequest, Callable[[ControlReply], None]]
"""A request, and the function that takes the reply to it."""


@final
class RequestInbox:
    """The driver's side: takes notes and answers them.

    Args:
        experiment: The experiment's directory, whose lock this process holds.
        clock: Returns seconds.
    """

    def __init__(self, experiment: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = experiment / layout.REQUESTS
        self._addressee = _name_of(read_owner(experiment))
        self._clock = clock
        self._look_at_s = float("-inf")
        self._refused: set[Path] = set()

    def take(self) -> list[PendingRequest]:
        """Return the requests since the last call; five calls a second are often enough."""
        now_s = self._clock()
        if now_s < self._look_at_s:
            return []
        self._look_at_s = now_s + _LOOK_EVERY_S
        return list(self._taken())

    def close(self) -> None:
        """Reply to requests that still wait that the experiment has ended."""
        for _, answer in self._taken():
            answer(ControlReply(is_granted=False, text="the experiment has come to its end"))
        with suppress(OSError):
            self._directory.rmdir()

    def _taken(self) -> Iterator[PendingRequest]:
        # In the order of their names, which contain the time; a file that is still being written
        # has another name.
        for path in sorted(self._directory.glob(f"[0-9]*{_NOTE}")):
            try:
                note = read_file(path, LIMIT_BYTES)
            except FileNotFoundError:
                continue  # taken back by the process that wrote it
            except OSError as cause:
                self._set_aside(path, cause)
                continue
            try:
                # The unlink decides a race: the sender withdraws a request by it, too, and only one
                # of both succeeds.
                path.unlink()
            except OSError:
                continue
            answer = _Reply(path)
            try:
                to, request = read_request(note)
            except (ValueError, KeyError, TypeError, AttributeError) as cause:
                _log.warning(
                    "request %s was not carried out, since it cannot be understood: %r", path, cause
                )
                answer(
                    ControlReply(
                        is_granted=False, text=f"the request cannot be understood: {cause!r}"
                    )
                )
                continue
            if to == self._addressee:
                yield request, answer

    def _set_aside(self, path: Path, cause: OSError) -> None:
        """Rename what is no readable request, so that it is examined and logged once."""
        if path in self._refused:
            return
        self._refused.add(path)
        aside = path.with_name(f"{path.name}{_REFUSED}")
        with suppress(OSError):
            path.rename(aside)
        _log.warning("%s is no request and was set aside as %s: %s", path, aside.name, cause)


@final
class _Reply:
    """Puts the answer to a note beside it."""

    def __init__(self, note: Path) -> None:
        self._path = note.with_suffix(_ANSWER)

    def __call__(self, answer: ControlReply) -> None:
        with suppress(OSError):  # the sender gets no reply, and says so
            atomic.write_text(self._path, strict_json.dumps(encode(answer)), sync=False)


_numbers = itertools.count()


def post(experiment: Path, request: ControlRequest, timeout_s: float = 30.0) -> ControlReply:
    """Send a request to the driver of an experiment, which may be another process, and wait.

    Args:
        experiment: The experiment's directory.
        request: The request.
        timeout_s: For how many seconds to wait.

    Raises:
        NotRunning: If the experiment is not running, or its driver ends before it replies.
        StorageError: If the directory cannot be written to, or no reply comes in time.
    """
    owner = _present_driver(experiment)
    directory = experiment / layout.REQUESTS
    note = directory / f"{time.time_ns()}-{os.getpid()}-{next(_numbers)}{_NOTE}"
    try:
        make_own_folder(directory)
        atomic.write_bytes(note, encode_request(_name_of(owner), request), sync=False)
    except OSError as cause:
        raise StorageError(
            f"{directory} cannot be written to: {cause}; only a user with write permission can "
            "control the experiment"
        ) from cause
    try:
        return _answered(experiment, note, owner, timeout_s)
    finally:
        for left in (note, note.with_suffix(_ANSWER)):
            left.unlink(missing_ok=True)


def _answered(experiment: Path, note: Path, owner: Owner, timeout_s: float) -> ControlReply:
    reply, until_s = note.with_suffix(_ANSWER), time.monotonic() + timeout_s
    while True:
        # The reply is looked for after the driver, so that one from its last moment is found.
        is_late = time.monotonic() >= until_s
        has_left = owner.is_gone or _name_of(read_owner(experiment)) != _name_of(owner)
        with suppress(FileNotFoundError):
            return decode(ControlReply, strict_json.loads(read_file(reply, LIMIT_BYTES)))
        if has_left:
            raise NotRunning(
                f"the driver of {str(experiment)!r} has ended before it answered; look what has "
                "become of the experiment"
            )
        if is_late:
            break
        time.sleep(_POLL_S)
    raise StorageError(
        f"{owner}, which drives {str(experiment)!r}, has not answered within {timeout_s:g} s; it "
        "may hang"
    )


def _present_driver(experiment: Path) -> Owner:
    owner = driver_of(experiment)
    if owner is None:
        raise NotRunning(
            f"experiment {str(experiment)!r} is not running; resume it with Tuner.restore"
        )
    return owner


def encode_request(to: str, request: ControlRequest) -> bytes:
    """Return a request to a driver as JSON."""
    return strict_json.to_bytes({"to": to, **encode(request)})


def read_request(note: bytes) -> tuple[str, ControlRequest]:
    """Return to which driver a request is, and the request.

    Raises:
        ValueError: If it is none; also KeyError, TypeError and AttributeError.
    """
    fields = strict_json.loads(note)
    to = fields.pop("to")
    return to, decode(ControlRequest, fields)


def _name_of(owner: Owner | None) -> str:
    return (
        ""
        if owner is None
        else f"{owner.pid}/{owner.host}/{owner.boot_id}/{owner.started}/{owner.ticks}"
    )
