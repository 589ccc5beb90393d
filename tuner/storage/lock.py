"""Lock of an experiment's directory: one driver at a time, its owner, and takeover from it.

The lock is the kernel's (``flock``): it ends with the process that holds it, however that ends, so
there is no stale lock and no grace period. The content of the file names the owner for messages and
takeovers, and notes the newest segment of the journal; the lock does not depend on it.

The filelock package is not used: some of its releases empty the file when they open it, so that a
driver that does not get the lock would erase the name of its owner; and a forked child would keep
the lock.
"""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import logging
import os
import select
import signal
import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, final

from tuner.errors import ExperimentLocked, StorageError
from tuner.wire.declared import Malformed, decode, encode
from tuner.wire.record import record

from . import layout, strict_json
from .disk import FILE_MODE, LOCAL_DISK, is_held, open_regular, read_file
from .layout import journal_directory, segments_in
from .origin import origin_of

_BUSY: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_UNSUPPORTED: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_CONTENT_LIMIT_BYTES: Final = 4096
_NOTED: Final = ("epoch", "segment")
_STEAL_TIMEOUT_S: Final = 10.0
_NAME_TIMEOUT_S: Final = 0.5
"""How long a driver may take, once it has the lock, to write down that it is the owner."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_PROCESSES: Final = Path("/proc")
_START_FIELD: Final = 19
"""Of ``/proc/<pid>/stat``, counted behind the name of the program: when the process started, in
ticks since the machine did."""


def start_ticks(pid: int) -> int | None:
    """Return when a process started, as the kernel counts; None if that is unknown."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def kill(pid: int, started_ticks: int, timeout_s: float) -> None:
    """Kill a process of this machine and wait for its end; it may have ended already.

    Args:
        pid: The process.
        started_ticks: When it started, see `start_ticks`.
        timeout_s: How long to wait for its end.

    Raises:
        ExperimentLocked: If it is another process by now, may not be killed, or does not end.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError) as cause:
        raise ExperimentLocked(
            f"process {pid} cannot be held on to: {cause}; kill it yourself"
        ) from cause
    try:
        # A pid may be reused at any time. The handle refers to one process for good, so what is
        # compared here is what is killed.
        if start_ticks(pid) != started_ticks:
            raise ExperimentLocked(
                f"process {pid} is another one than that which took the lock; find out which "
                "process holds it"
            )
        _kill(handle, pid, timeout_s)
    finally:
        os.close(handle)


_log = logging.getLogger("tuner")


@final
class Lock:
    """A lock on a file, held by one process and not by its children.

    It is held until it is released or the process ends, even if the object is forgotten.

    Args:
        path: The file, created when the lock is first acquired.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open file, while the lock is held."""
        if self._descriptor is None:
            raise ValueError(f"lock {self.path} is not held")
        return self._descriptor

    def acquire(self, *, is_shared: bool = False, is_blocking: bool = True) -> bool:
        """Take the lock, or change between shared and exclusive.

        Args:
            is_shared: Allow others to hold it shared as well.
            is_blocking: Wait until it can be had.

        Returns:
            Whether it is held now; one that was held shared still is.

        Raises:
            OSError: If the file cannot be opened, or its file system has no locks.
        """
        is_new = self._descriptor is None
        if self._descriptor is None:
            self._descriptor = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
            )
            _held.add(self)
        mode = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (
            0 if is_blocking else fcntl.LOCK_NB
        )
        try:
            fcntl.flock(self._descriptor, mode)
        except OSError as refusal:
            if is_new or refusal.errno not in _BUSY:
                self._close()
            if refusal.errno in _BUSY:
                return False
            raise
        return True

    def release(self) -> None:
        """Release the lock, also if children have inherited it; does nothing if it is not held."""
        if self._descriptor is not None:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._close()

    def is_current(self) -> bool:
        """Return whether the locked file is still the one that its path names."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _held.discard(self)


_held: Final[set[Lock]] = set()


def _forget_in_child() -> None:
    # A forked child shares the parent's lock: if it kept it, the lock would outlive its owner; if
    # it released it, the owner would lose it.
    for lock in list(_held):
        lock._close()  # noqa: SLF001  (acts on all locks at once)


os.register_at_fork(after_in_child=_forget_in_child)


@record
class Owner:
    """The driver that holds an experiment, or held it when its machine or process died.

    Attributes:
        pid: Process of the driver.
        host: Its machine.
        boot_id: Which start of that machine, empty where the system does not tell.
        started: When it took the lock, as local time with its offset.
        epoch: How many drivers have begun a segment of the journal by the last note; see
            `ExperimentLock.note_segment`.
        ticks: When the process started, as its kernel counts; None where the system does not tell.
        segment: Number of the first record of the newest segment, likewise.
    """

    pid: int
    host: str
    boot_id: str
    started: str
    epoch: int = 0
    ticks: int | None = None
    segment: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether the process has surely ended: it was one of this machine, and is gone."""
        is_here = (self.host, self.boot_id) == (socket.gethostname(), boot_id())
        return is_here and self.ticks is not None and start_ticks(self.pid) != self.ticks

    def __str__(self) -> str:
        """Return process, machine and time in one phrase."""
        return f"process {self.pid} on {self.host} since {self.started}"


@final
class ExperimentLock:
    """The right to drive an experiment.

    Args:
        experiment: Directory of the experiment; it must exist.
        steal: Kill a driver of this machine that holds it, be it alive, stopped or hanging, and
            take its place.

    Example:
        >>> import tempfile
        >>> with ExperimentLock(tempfile.mkdtemp()) as lock:
        ...     lock.is_held
        True
    """

    def __init__(self, experiment: str | os.PathLike[str], *, steal: bool = False) -> None:
        self._directory = Path(experiment)
        self._steal = steal
        self._lock = Lock(self._directory / layout.LOCK)
        self._owner: Owner | None = None
        self._is_locked = False

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock through this object; a forked child does not."""
        return self._owner is not None and self._owner.pid == os.getpid()

    @property
    def is_in_place(self) -> bool:
        """Whether the lock that is held is still the file that other drivers would find.

        True where the file system has no locks.
        """
        try:
            return not self._is_locked or self._lock.is_current()
        except OSError:
            return True  # inconclusive, e.g. a network file system that does not answer

    def acquire(self) -> None:
        """Take the lock.

        On a file system without locks this only warns: nothing keeps a second driver out there.

        Raises:
            ExperimentLocked: If a driver holds it; names its process, machine and time. Also if it
                is this process, or if it was to be killed and cannot be.
            StorageError: If the lock file cannot be opened.
        """
        try:
            is_acquired = self._lock.acquire(is_blocking=False)
        except OSError as cause:
            if cause.errno not in _UNSUPPORTED:
                raise StorageError(f"{self._lock.path} cannot be locked: {cause}") from cause
            warnings.warn(
                f"{self._directory} has no working file locks; make sure that only one driver uses "
                "it",
                RuntimeWarning,
                stacklevel=2,
            )
            self._owner = current_owner()
            return
        if not is_acquired:
            self._evict(self._present_owner())
        self._is_locked = True
        # The lock is on a new file if a running driver's was deleted. That driver also locks the
        # segment that it writes.
        self._check_unwritten()
        noted = read_note(self._directory)
        epoch, segment = (noted[name] if type(noted.get(name)) is int else 0 for name in _NOTED)
        self._write(replace(current_owner(), epoch=epoch, segment=segment))

    def _check_unwritten(self) -> None:
        """Raise if a driver whose lock file was deleted still writes the journal."""
        segments = segments_in(journal_directory(self._directory), LOCAL_DISK)
        if segments and is_held(segments[-1][1]):
            self._lock.release()
            self._is_locked = False
            raise ExperimentLocked(
                f"experiment {self._directory} is driven by another process, which holds "
                f"{segments[-1][1]}, but not its lock file, which "
                "was deleted or replaced; wait until it ends, or end it"
            )

    def _present_owner(self) -> Owner | None:
        """Return the owner; waits a moment for one that has not yet written its name."""
        until_s = time.monotonic() + _NAME_TIMEOUT_S
        while True:
            owner = read_owner(self._directory)
            if (owner and not owner.is_gone) or time.monotonic() > until_s:
                return owner
            time.sleep(_NAME_TIMEOUT_S / 50)

    def _evict(self, owner: Owner | None) -> None:
        held = f"experiment {self._directory} is driven by {owner or 'another process'}"
        if not self._steal:
            raise ExperimentLocked(f"{held}; wait for it, end it, or choose another name")
        if owner is None or owner.ticks is None or not owner.boot_id:
            raise ExperimentLocked(
                f"{held}, of which too little is known to kill it; end it yourself"
            )
        if (owner.host, owner.boot_id) != (socket.gethostname(), boot_id()):
            raise ExperimentLocked(f"{held}, on another machine; end it there")
        if owner.pid == os.getpid():
            raise ExperimentLocked(f"{held}, which is this process; let it come to its end")
        kill(owner.pid, owner.ticks, _STEAL_TIMEOUT_S)
        if not self._lock.acquire(is_blocking=False):
            raise ExperimentLocked(f"{held}; that one was killed, but another has been faster")
        _log.warning("%s was killed, since its experiment %s is taken over", owner, self._directory)

    def note_segment(self, epoch: int, segment: int) -> None:
        """Note that the journal has a segment, so that a restore sees if it is missing.

        Args:
            epoch: Epoch of the driver that has begun it; 0, with 0, for a journal that is going to
                be a new one.
            segment: Number of its first record.
        """
        if self._owner is not None:
            self._write(replace(self._owner, epoch=epoch, segment=segment))

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self.is_held and self._owner is not None:
            # The note of the journal stays; the owner's name goes, so that no message and no
            # takeover can name a process that has ended.
            self._write_fields(
                {name: getattr(self._owner, name) for name in ("boot_id", *_NOTED)}
                if self._owner.epoch
                else None
            )
        self._owner = None
        self._is_locked = False
        self._lock.release()

    def _write(self, owner: Owner) -> None:
        self._owner = owner
        self._write_fields(encode(owner))

    def _write_fields(self, fields: Mapping[str, Any] | None) -> None:
        line = f"{strict_json.dumps(dict(fields))}\n".encode() if fields else b""
        # On a full disk, or without locks: it is information only.
        with suppress(OSError, ValueError):
            # Cut afterwards, and only the first line is read: a death in between leaves the
            # old content or the new.
            os.pwrite(self._lock.descriptor, line, 0)
            os.ftruncate(self._lock.descriptor, len(line))

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def read_owner(experiment: str | os.PathLike[str]) -> Owner | None:
    """Return the owner, or the last one if it died; None where that cannot be read."""
    return owner_in(read_note(experiment))


def owner_in(note: Any) -> Owner | None:
    """Return the owner among the fields of a note; None where it names none, or is damaged."""
    try:
        owner = decode(Owner, note, is_whole=False)
    except Malformed:
        return None
    # Messages show these two, and anyone may have written to an object store.
    return owner if f"{owner.host}{owner.started}".isprintable() else None


def read_note(experiment: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of the lock file, owner and journal mark; empty if unreadable."""
    try:
        line, _, _ = read_file(Path(experiment) / layout.LOCK, _CONTENT_LIMIT_BYTES).partition(
            b"\n"
        )
        note = strict_json.loads(line)
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def current_owner() -> Owner:
    """Return this process as the owner of a lock that it takes now."""
    started = dt.datetime.now().astimezone().isoformat(timespec="seconds")
    return Owner(
        os.getpid(),
        socket.gethostname(),
        boot_id(),
        started,
        ticks=start_ticks(os.getpid()),
    )


def driver_of(experiment: str | os.PathLike[str]) -> Owner | None:
    """Return the driver that runs the experiment now, None if it is not running.

    The name in the lock file is not enough: its process may have died with its machine, or the
    directory may be a copy. Unless the process is surely gone the lock is tried, which does not
    disturb a driver that holds it. Of a copy that was fetched from an object store, the driver is
    the one that ran the experiment then.

    Args:
        experiment: Its directory, which is not changed.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> with ExperimentLock(directory):
        ...     driver_of(directory).is_gone
        False
    """
    origin = None
    with suppress(StorageError):  # a copy is readable for its owner
        origin = origin_of(Path(experiment))
    if origin is not None and origin.is_copy:
        return owner_in(origin.driver)
    owner = read_owner(experiment)
    return (
        owner
        if owner is not None and not owner.is_gone and _is_locked(Path(experiment) / layout.LOCK)
        else None
    )


def _is_locked(path: Path) -> bool:
    try:
        descriptor = open_regular(path)
    except OSError:
        return True  # unknown, so what is written there is believed
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _kill(handle: int, pid: int, timeout_s: float) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as cause:
        raise ExperimentLocked(
            f"process {pid} belongs to another user and cannot be killed"
        ) from cause
    if not select.select([handle], [], [], timeout_s)[0]:
        raise ExperimentLocked(f"process {pid} was killed, but has not ended after {timeout_s:g} s")


def boot_id() -> str:
    """Return the id of this boot of the machine; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
