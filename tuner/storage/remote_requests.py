"""Control requests as objects: how commands on any machine ask a driver for something.

A request is ``requests/<name>.json`` and names the epoch of the driver that it is for. Whether it
is carried out or withdrawn is decided by who creates ``requests/<name>.taken``, the driver or its
sender. The reply is ``requests/<name>.reply``; the sender deletes all three.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

from tuner.background import BackgroundJobs
from tuner.errors import NotRunning, StorageError
from tuner.wire.declared import decode, encode

from . import layout, strict_json
from .control_requests import (
    LIMIT_BYTES,
    ControlReply,
    ControlRequest,
    PendingRequest,
    encode_request,
    read_request,
)
from .object_store import ObjectStore
from .remote_lock import present_driver

_POLL_S: Final = 2.0
_ANSWER_POLL_S: Final = 0.5
_REQUEST, _TAKEN, _REPLY = ".json", ".taken", ".reply"
_JOIN_S: Final = 5.0

_log = logging.getLogger("tuner")
_numbers = itertools.count()


@final
class RemoteRequestInbox:
    """The driver's side: a thread that looks for requests every 2 s.

    Args:
        store: The experiment's directory in the object store.
        epoch: The driver's epoch.
        wake: Has the driver take a request at once.
    """

    def __init__(self, store: ObjectStore, epoch: int, wake: Callable[[], None]) -> None:
        self._store = store.child(layout.REQUESTS)
        self._epoch = epoch
        self._wake = wake
        self._lock = threading.Lock()
        self._pending: list[tuple[ControlRequest, str]] = []
        """Requests, each with the first part of the names of its objects."""
        self._seen: set[str] = set()
        self._jobs = BackgroundJobs(
            "tuner-requests",
            self._look,
            _POLL_S,
            on_error=lambda error: _log.debug("requests cannot be read or answered: %s", error),
        )
        self._jobs.wake(_POLL_S)

    def take(self) -> list[PendingRequest]:
        """Return the requests since the last call."""
        if not self._pending:
            return []
        with self._lock:
            taken, self._pending = self._pending, []
        return [(request, partial(self._answer, stem)) for request, stem in taken]

    def close(self) -> None:
        """Reply to requests that still wait that the experiment has ended."""
        self._jobs.submit(self._refuse_pending)  # after a look that is under way
        self._jobs.close(_JOIN_S)

    def _refuse_pending(self) -> None:
        for _, stem in self._pending:
            self._refuse(stem, "the experiment has come to its end")

    def _look(self) -> None:
        # In the order of their names, which contain the time.
        for name in sorted(key for key in self._store.list() if key.endswith(_REQUEST)):
            stem = name.removesuffix(_REQUEST)
            if stem in self._seen:
                continue
            self._seen.add(stem)
            note = self._store.get_if_exists(name, LIMIT_BYTES)
            if note is None:
                continue  # withdrawn by its sender
            try:
                to, request = read_request(note)
            except (ValueError, KeyError, TypeError, AttributeError) as cause:
                _log.warning("request %s cannot be understood: %r", name, cause)
                self._refuse(stem, f"the request cannot be understood: {cause!r}")
                continue
            # The sender may have given up.
            if to == str(self._epoch) and self._store.create(f"{stem}{_TAKEN}", b"driver"):
                with self._lock:
                    self._pending.append((request, stem))
                self._wake()

    def _answer(self, stem: str, reply: ControlReply) -> None:
        # In the thread: the driver's loop waits for no store.
        self._jobs.submit(partial(self._reply, stem, reply))

    def _refuse(self, stem: str, why: str) -> None:
        self._reply(stem, ControlReply(is_granted=False, text=why))

    def _reply(self, stem: str, reply: ControlReply) -> None:
        self._store.put(f"{stem}{_REPLY}", strict_json.to_bytes(encode(reply)))


def post(store: ObjectStore, request: ControlRequest, timeout_s: float = 60.0) -> ControlReply:
    """Send a request to the driver of an experiment, and wait for the reply.

    Args:
        store: The experiment's directory in the object store.
        request: The request.
        timeout_s: For how many seconds to wait; the driver looks every 2 s.

    Raises:
        NotRunning: If the experiment is not running, or its driver ends before it replies.
        StorageError: If the store cannot be written, or no reply comes in time.
    """
    owner = present_driver(store)
    if owner is None:
        raise NotRunning(f"experiment {store.url} is not running; resume it with Tuner.restore")
    place = store.child(layout.REQUESTS)
    # The token, since senders on different machines may have the same process and time.
    stem = f"{time.time_ns()}-{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
    place.put(f"{stem}{_REQUEST}", encode_request(str(owner.epoch), request))
    try:
        until_s = time.monotonic() + timeout_s
        while True:
            now = present_driver(store)
            has_left = now is None or now.epoch != owner.epoch
            is_late = time.monotonic() >= until_s
            is_withdrawn = (has_left or is_late) and place.create(f"{stem}{_TAKEN}", b"sender")
            # Looked for after the driver, so that a reply from its last moment is found.
            reply = place.get_if_exists(f"{stem}{_REPLY}", LIMIT_BYTES)
            if reply is not None:
                return decode(ControlReply, strict_json.loads(reply))
            if has_left:
                raise NotRunning(
                    f"the driver of {store.url} has ended before it answered; look what has become "
                    "of the experiment"
                )
            if is_late:
                what = "the request was withdrawn" if is_withdrawn else "it may carry it out yet"
                raise StorageError(
                    f"{owner}, which drives {store.url}, has not answered within {timeout_s:g} s; "
                    f"{what}"
                )
            time.sleep(_ANSWER_POLL_S)
    finally:
        place.delete([f"{stem}{suffix}" for suffix in (_REQUEST, _TAKEN, _REPLY)])
