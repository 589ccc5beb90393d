"""Control requests: files by which other processes ask a driver for something, and its replies.

Files, or objects of a store, since the experiment's directory is all that both processes surely
share: it may be on a network file system, its path may be too long for a socket, and a sender needs
no other right than to write there.

A request is ``requests/<name>.json`` and names the driver that it is for, so that a later driver
does not carry it out long after its sender has ended. Whether it is carried out or withdrawn is
decided by who creates ``requests/<name>.taken``, the driver or its sender. The reply is
``requests/<name>.reply``; the sender deletes all three.
"""

from __future__ import annotations

import enum
import itertools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

from tuner.background import BackgroundJobs
from tuner.errors import NotRunning, StorageError
from tuner.wire.declared import decode, encode
from tuner.wire.record import record

from . import layout, strict_json
from .directories import make_own_folder
from .disk import FILE_MODE, read_file, write_bytes
from .lock import Owner, driver_of, read_owner

_REQUEST, _TAKEN, _REPLY = ".json", ".taken", ".reply"
_LIMIT_BYTES: Final = 1 << 20
_JOIN_S: Final = 5.0

_log = logging.getLogger("tuner")


class Verb(enum.StrEnum):
    """What can be asked for."""

    STOP = "stop"
    """Let the experiment end; it can be restored."""
    STOP_TRIAL = "stop_trial"
    PAUSE = "pause"
    RESUME = "resume"
    FORK = "fork"


@record
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


@record
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


class Folder(Protocol):
    """What is needed of the folder with requests; an `ObjectStore` has it, too."""

    def list(self) -> Iterable[str]:
        """Return the names of the files."""

    def get_if_exists(self, key: str, limit_bytes: int) -> bytes | None:
        """Return the content of a file, None if there is none."""

    def put(self, key: str, content: bytes) -> None:
        """Write a file."""

    def create(self, key: str, content: bytes) -> bool:
        """Write a file unless there is one, and return whether this call has."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files."""


@record
class RequestPlace:
    """Where requests to the driver of an experiment are, and who that is.

    Attributes:
        experiment: The experiment's directory or URL, for messages.
        folder: The folder with the requests.
        driver: Returns the driver that runs the experiment, None if it is not running.
        present: Returns the same, more cheaply, of an experiment that was running a moment ago.
        name_of: Returns by which name requests are addressed to a driver.
        look_s: How often a driver looks for requests, in seconds.
        poll_s: How often a sender looks for the reply, in seconds.
        timeout_s: How long it waits, in seconds.
    """

    experiment: str
    folder: Folder
    driver: Callable[[], Owner | None]
    present: Callable[[], Owner | None]
    name_of: Callable[[Owner], str]
    look_s: float
    poll_s: float
    timeout_s: float


def requests_in(experiment: Path) -> RequestPlace:
    """Return where requests to the driver of an experiment in a directory are."""

    def present() -> Owner | None:
        owner = read_owner(experiment)
        return None if owner is None or owner.is_gone else owner

    return RequestPlace(
        repr(str(experiment)),
        _LocalFolder(experiment / layout.REQUESTS),
        partial(driver_of, experiment),
        present,
        lambda owner: f"{owner.pid}/{owner.host}/{owner.boot_id}/{owner.started}/{owner.ticks}",
        look_s=0.2,
        poll_s=0.02,
        timeout_s=30.0,
    )


@final
class _LocalFolder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def list(self) -> Iterable[str]:
        # A file that is still being written has another name.
        return [path.name for path in self._path.glob("[0-9]*")]

    def get_if_exists(self, key: str, limit_bytes: int) -> bytes | None:
        with suppress(FileNotFoundError):
            return read_file(self._path / key, limit_bytes)
        return None

    def put(self, key: str, content: bytes) -> None:
        try:
            make_own_folder(self._path)
            write_bytes(self._path / key, content, sync=False)
        except OSError as cause:
            raise StorageError(
                f"{self._path} cannot be written to: {cause}; only a user with write permission "
                "can control the experiment"
            ) from cause

    def create(self, key: str, content: bytes) -> bool:
        try:
            (self._path / key).touch(FILE_MODE, exist_ok=False)
        except OSError:
            return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            (self._path / key).unlink(missing_ok=True)


@final
class RequestInbox:
    """The driver's side: takes requests and answers them.

    Args:
        place: Where they are.
        driver: This driver; None where that is not known, which gets none.
        wake: Has the driver take a request at once; a thread looks for them then. Without it `take`
            does.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        place: RequestPlace,
        driver: Owner | None,
        wake: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._folder = place.folder
        self._addressee = driver and place.name_of(driver)
        self._wake = wake
        self._clock = clock
        self._look_at_s = float("-inf")
        self._lock = threading.Lock()
        self._pending: list[tuple[str, ControlRequest]] = []
        self._seen: set[str] = set()
        self._jobs = BackgroundJobs(
            "tuner-requests",
            self._look,
            place.look_s,
            num_threads=1 if wake else 0,
            on_error=lambda error: _log.debug("requests cannot be read or answered: %s", error),
        )
        self._jobs.wake(place.look_s)

    def take(self) -> Sequence[PendingRequest]:
        """Return the requests since the last call."""
        if self._wake is None and (now_s := self._clock()) >= self._look_at_s:
            self._look_at_s = now_s + self._place.look_s
            self._look()
        if not self._pending:
            return ()
        with self._lock:
            taken, self._pending = self._pending, []
        return [(request, partial(self._answer, name)) for name, request in taken]

    def close(self) -> None:
        """Reply to requests that still wait that the experiment has ended."""
        self._jobs.submit(self._refuse_all)
        self._jobs.close(_JOIN_S)

    def _refuse_all(self) -> None:
        self._look()
        for name, _ in self._pending:
            self._reply(name, _refusal("the experiment has come to its end"))

    def _look(self) -> None:
        # In the order of their names, which contain the time.
        for key in sorted(self._folder.list()):
            if key.endswith(_REQUEST) and key not in self._seen:
                self._seen.add(key)
                self._take(key.removesuffix(_REQUEST))

    def _take(self, name: str) -> None:
        try:
            note = self._folder.get_if_exists(f"{name}{_REQUEST}", _LIMIT_BYTES)
            if note is None:
                return  # withdrawn by its sender
            to, request = _read_request(note)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
            _log.warning(
                "request %s was not carried out, since it cannot be understood: %r", name, cause
            )
            self._reply(name, _refusal(f"the request cannot be understood: {cause!r}"))
            return
        # The sender may have given up.
        if to == self._addressee and self._folder.create(f"{name}{_TAKEN}", b"driver"):
            with self._lock:
                self._pending.append((name, request))
            if self._wake:
                self._wake()

    def _answer(self, name: str, reply: ControlReply) -> None:
        # In the thread, if there is one: the driver's loop waits for no store.
        self._jobs.submit(partial(self._reply, name, reply))

    def _reply(self, name: str, reply: ControlReply) -> None:
        with suppress(StorageError):  # the sender gets no reply, and says so
            self._folder.put(f"{name}{_REPLY}", strict_json.to_bytes(encode(reply)))


def _refusal(why: str) -> ControlReply:
    return ControlReply(is_granted=False, text=why)


_numbers = itertools.count()


def post(
    place: RequestPlace, request: ControlRequest, timeout_s: float | None = None
) -> ControlReply:
    """Send a request to the driver of an experiment, which may be another process, and wait.

    Args:
        place: Where it is put.
        request: The request.
        timeout_s: For how many seconds to wait; None for as long as is usual there.

    Raises:
        NotRunning: If the experiment is not running, or its driver ends before it replies.
        StorageError: If the request cannot be written, or no reply comes in time.
    """
    timeout_s = place.timeout_s if timeout_s is None else timeout_s
    owner, folder = place.driver(), place.folder
    if owner is None:
        raise NotRunning(
            f"experiment {place.experiment} is not running; resume it with Tuner.restore"
        )
    to = place.name_of(owner)
    # The token, since senders on different machines may have the same process and time.
    name = f"{time.time_ns()}-{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
    folder.put(f"{name}{_REQUEST}", strict_json.to_bytes({"to": to, **encode(request)}))
    try:
        until_s = time.monotonic() + timeout_s
        while True:
            now = place.present()
            has_left = now is None or place.name_of(now) != to
            is_late = time.monotonic() >= until_s
            is_withdrawn = (has_left or is_late) and folder.create(f"{name}{_TAKEN}", b"sender")
            # Looked for after the driver, so that a reply from its last moment is found.
            reply = folder.get_if_exists(f"{name}{_REPLY}", _LIMIT_BYTES)
            if reply is not None:
                return decode(ControlReply, strict_json.loads(reply))
            if has_left:
                raise NotRunning(
                    f"the driver of {place.experiment} has ended before it answered; look what has "
                    "become of the experiment"
                )
            if is_late:
                what = "the request was withdrawn" if is_withdrawn else "it may carry it out yet"
                raise StorageError(
                    f"{owner}, which drives {place.experiment}, has not answered within "
                    f"{timeout_s:g} s; {what}"
                )
            time.sleep(place.poll_s)
    finally:
        folder.delete([f"{name}{suffix}" for suffix in (_REQUEST, _TAKEN, _REPLY)])


def _read_request(note: bytes) -> tuple[str, ControlRequest]:
    fields = strict_json.loads(note)
    to = fields.pop("to")
    return to, decode(ControlRequest, fields)
