"""Lock of an experiment in an object store: epochs, of which the newest owns the experiment.

An object store has no locks that end with their holder. So a driver creates ``lock/<epoch>.json``
under the first number that is free, and keeps asking whether a later one is there. A driver that
has lost its machine, hangs or is cut off from the store cannot be asked to stop; it is *fenced*:
nothing that it stores after a later epoch was created counts, and it notices at its next request.

What makes this safe is an order, not a clock. A new driver creates its lock, then reads the
journal, then creates ``start/<epoch>.json``, the point at which its own part begins. A driver that
has stored something asks for a later lock before it counts that as stored: where there is none, a
driver that comes later will read it. Clocks decide only whether another driver is asked to wait.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import ExperimentFenced, ExperimentLocked, StorageError, StorageLost
from tuner.storage import layout, strict_json
from tuner.storage.control_requests import RequestPlace
from tuner.storage.lock import Owner, current_owner, owner_in
from tuner.wire.declared import encode

from .object_store import ObjectStore

_WATCH_S: Final = 30.0
"""How long a driver that cannot be asked is watched for a sign of life, in seconds."""
BEAT_S: Final = 10.0
"""How often a driver gives one, in seconds; well below the time for which it is watched."""
_NUM_LOOKS: Final = 15
_CONTENT_LIMIT_BYTES: Final = 4096
_LOCK: Final = re.compile(r"lock/(\d{8})\.json")
_START: Final = re.compile(r"start/(\d{8})\.json")
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")

_given_up: Final[set[bytes]] = set()
"""Contents of locks of this process under which it drives nothing any more."""

_log = logging.getLogger("tuner")


@final
class RemoteLock:
    """The right to drive an experiment in an object store.

    All methods raise `StorageUnreachable` if the store does not answer, or refuses.

    Args:
        store: Directory of the experiment.
        steal: Take over from a driver that runs, too; it stops at its next request.
        is_checked: Whether the store creates objects only if they are absent. If not, the caller
            makes sure that only one driver runs, and no other is waited for.
        clock: Monotonic time in seconds.
        sleep: Sleeps so many seconds.

    Attributes:
        epoch: Number of the lock that is or was held, 0 before.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        steal: bool = False,
        is_checked: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._has_to_watch = is_checked and not steal
        self._clock = clock
        self._sleep = sleep
        self.epoch = 0
        self._content = b""
        self._num_beats = 0
        self._is_held = False

    def acquire(self) -> int:
        """Take the lock, and return its epoch.

        A driver that has ended, or was a process of this machine and is gone, is replaced at once,
        as is one of this process after `give_up`. Any other is watched for 30 s, and replaced if it
        gives no sign of life.

        Raises:
            ExperimentLocked: If another driver runs; names its process, machine and time.
            StorageError: If there is a lock that no driver has created.
        """
        # Starts too: an epoch whose lock was deleted by hand has been used all the same.
        known = _listed(self._store, _LOCK) | _listed(self._store, _START)
        epoch = _newest_from(self._store, max(known, default=0))
        self._check_no_gap(epoch)
        while True:
            if epoch and self._has_to_watch:
                self._await_end(epoch)
            newest = _newest_from(self._store, epoch)
            # Another one may be faster at any point: then that one is asked.
            if newest == epoch and self._create_lock(epoch + 1):
                break
            epoch = max(newest, epoch + 1)
        self._is_held = True
        self._abandon_starts()
        self.beat()
        return self.epoch

    def start_after(self, sequence: int, crc: int) -> None:
        """Begin this epoch's part of the journal, once the rest was read and before any of it.

        Args:
            sequence: Number of the last record that was read, 0 if there is none.
            crc: Its checksum.

        Raises:
            ExperimentFenced: If another driver has taken over meanwhile.
        """
        start = {"epoch": self.epoch, "sequence": sequence, "crc": crc}
        is_created = self._store.create(start_key(self.epoch), strict_json.to_bytes(start))
        self.check()
        if not is_created:
            raise ExperimentFenced(
                f"{self._store.url}/{start_key(self.epoch)} was created by another driver; restore "
                "the experiment"
            )

    def check(self) -> None:
        """Return if no other driver had taken over when this was called.

        To be called after each part of the journal that was stored, and before it counts.

        Raises:
            ExperimentFenced: If one has; names its process, machine and time.
        """
        successor = _read(self._store, lock_key(self.epoch + 1))
        if successor is not None:
            raise ExperimentFenced(
                f"experiment {self._store.url} was taken over by {_describe(successor)}; this "
                "driver stops, and what it has not stored yet does not count"
            )

    def beat(self) -> None:
        """Give a sign of life; to be called every `BEAT_S`.

        Raises:
            ExperimentFenced: If another driver has taken over.
            StorageLost: If the lock was deleted from the store, as with the whole experiment.
        """
        if not self._is_held:
            return
        self._num_beats += 1
        self._store.put(alive_key(self.epoch), str(self._num_beats).encode())
        # Also where nothing is stored for a long time, a driver without the lock is to stop.
        self.check()
        if _read(self._store, lock_key(self.epoch)) != self._content:
            raise StorageLost(
                f"{self._store.url}/{lock_key(self.epoch)} was deleted or replaced, and with it "
                "perhaps the whole experiment; it is not written any more",
                is_deleted=True,
            )

    def release(self, sequence: int | None = None) -> None:
        """Let other drivers take over at once; does nothing if the lock is not held.

        Args:
            sequence: Number of the last record of the journal, all of which is stored; a reader
                then notices if its end is lost. None if that is not known.

        Raises:
            StorageUnreachable: If the store does not answer, or refuses. Other drivers then have to
                wait as after a crash.
        """
        if self._is_held:
            self._is_held = False
            content = b"" if sequence is None else strict_json.to_bytes({"sequence": sequence})
            self._store.put(released_key(self.epoch), content)

    def give_up(self) -> None:
        """Let later drivers of this process take over at once, without telling the store.

        For the end of a driver that may have failed to release the lock: its process lives on, and
        would be taken for a driver that still runs.
        """
        self._is_held = False
        if self._content:
            _given_up.add(self._content)

    def _create_lock(self, epoch: int) -> bool:
        content = strict_json.to_bytes(
            {
                **encode(current_owner()),
                "epoch": epoch,
                # Two drivers never create the same content, see `ObjectStore.create`.
                "token": secrets.token_hex(16),
                "pid_namespace": _pid_namespace(),
            }
        )
        if not self._store.create(lock_key(epoch), content):
            return False
        self.epoch, self._content, self._num_beats = epoch, content, 0
        return True

    def _abandon_starts(self) -> None:
        """Keep earlier drivers that have not begun their part of the journal from beginning it.

        One that has read the journal before this one does, and was stopped since, would otherwise
        go on to create its start. It would be fenced then; but who reads the journal later would
        follow that start, and miss records that this epoch continues after.
        """
        started = _listed(self._store, _START)
        abandoned = strict_json.to_bytes({"abandoned": True})
        for epoch in range(1, self.epoch):
            if epoch not in started:
                self._store.create(start_key(epoch), abandoned)

    def _check_no_gap(self, epoch: int) -> None:
        """Refuse a number that no driver can have come to, since each takes the next one."""
        before = epoch - 1
        if before > 0 and all(
            _read(self._store, key) is None for key in (lock_key(before), start_key(before))
        ):
            raise StorageError(
                f"experiment {self._store.url} has {lock_key(epoch)} or {start_key(epoch)}, but "
                "not those of the epoch before; delete them if no driver has created them, or put "
                f"back {lock_key(before)}"
            )

    def _await_end(self, epoch: int) -> None:
        """Return when the driver of an epoch has ended, or another has taken over from it.

        Raises:
            ExperimentLocked: If it gives a sign of life.
        """
        owner = _read(self._store, lock_key(epoch))
        if _has_ended(self._store, epoch, owner):
            return
        seen = _read(self._store, alive_key(epoch))
        _log.warning(
            "experiment %s is locked by %s; it is taken over if that gives no sign of life for "
            "%.0f s",
            self._store.url,
            _describe(owner),
            _WATCH_S,
        )
        until_s = self._clock() + _WATCH_S
        while self._clock() < until_s:
            self._sleep(_WATCH_S / _NUM_LOOKS)
            if (
                _has_ended(self._store, epoch, owner)
                or _read(self._store, lock_key(epoch + 1)) is not None
            ):
                return
            if _read(self._store, alive_key(epoch)) != seen:
                raise ExperimentLocked(
                    f"experiment {self._store.url} is driven by {_describe(owner)}; wait for it, "
                    "end it, choose another name, or take it over with steal=True"
                )
        _log.warning(
            "experiment %s is taken over from %s, which has given no sign of life for %.0f s",
            self._store.url,
            _describe(owner),
            _WATCH_S,
        )


def present_driver(store: ObjectStore) -> Owner | None:
    """Return the driver that runs an experiment, None if it is not running.

    One on another machine counts as running until it has released the lock or was replaced, since
    only time would show that it was lost. Its `Owner.epoch` is that of the lock.
    """
    epoch = _newest_from(store, max(_listed(store, _LOCK), default=0))
    if not epoch:
        return None
    content = _read(store, lock_key(epoch))
    if _has_ended(store, epoch, content):
        return None
    owner, _ = _parse(content)
    return replace(owner or Owner(0, "an unknown machine", "", "an unknown time"), epoch=epoch)


def requests_in_store(store: ObjectStore) -> RequestPlace:
    """Return where requests to the driver of an experiment in a store are."""
    driver = partial(present_driver, store)
    return RequestPlace(
        store.url,
        store.child(layout.REQUESTS),
        driver,
        driver,
        lambda owner: str(owner.epoch),
        look_s=2.0,
        poll_s=0.5,
        timeout_s=60.0,
    )


def lock_key(epoch: int) -> str:
    """Return the key of the object that names the driver of an epoch."""
    return f"lock/{epoch:08d}.json"


def alive_key(epoch: int) -> str:
    """Return the key of the object that the driver of an epoch replaces while it lives."""
    return f"lock/{epoch:08d}.alive"


def released_key(epoch: int) -> str:
    """Return the key of the object that is there once the driver of an epoch has ended."""
    return f"lock/{epoch:08d}.released"


def released_sequence(store: ObjectStore, epoch: int) -> int:
    """Return the number of the record with which an epoch has ended, 0 if that is not known."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        content = store.get_if_exists(released_key(epoch), _CONTENT_LIMIT_BYTES)
        sequence = strict_json.loads(content or b"")["sequence"]
        return sequence if type(sequence) is int else 0
    return 0


def start_key(epoch: int) -> str:
    """Return the key of the object that says where an epoch's part of the journal begins.

    Its content is JSON: ``sequence`` and ``crc`` of the record before that part, or ``abandoned``
    for an epoch that has none.
    """
    return f"start/{epoch:08d}.json"


def _listed(store: ObjectStore, pattern: re.Pattern[str]) -> set[int]:
    keys = store.list(f"{pattern.pattern.partition('/')[0]}/")
    return {int(name[1]) for name in map(pattern.fullmatch, keys) if name}


def _newest_from(store: ObjectStore, epoch: int) -> int:
    """Return the newest epoch, from one that exists on; listings may not show it yet."""
    while _read(store, lock_key(epoch + 1)) is not None:
        epoch += 1
    return epoch


def _has_ended(store: ObjectStore, epoch: int, content: bytes | None) -> bool:
    if content in _given_up or _read(store, released_key(epoch)) is not None:
        return True
    owner, namespace = _parse(content)
    # A pid of another container says nothing here, even on the same machine.
    return owner is not None and namespace == _pid_namespace() and owner.is_gone


def _read(store: ObjectStore, key: str) -> bytes | None:
    return store.get_if_exists(key, _CONTENT_LIMIT_BYTES)


def _parse(content: bytes | None) -> tuple[Owner | None, Any]:
    """Return the owner that a lock names and its namespace; None where that cannot be read."""
    with suppress(ValueError, RecursionError):
        found = strict_json.loads(content or b"")
        if owner := owner_in(found):
            return owner, found.get("pid_namespace")
    return None, None


def _describe(content: bytes | None) -> str:
    return str(_parse(content)[0] or "another driver")


def _pid_namespace() -> int:
    """Return which namespace this process's id belongs to; 0 where the system does not tell."""
    try:
        return os.stat(_PID_NAMESPACE).st_ino  # noqa: PTH116  (through a link that leads nowhere)
    except OSError:
        return 0
