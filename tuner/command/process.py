"""The processes of a program: started, listened to, and ended whole."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from tuner.execution.local import orphans, process_groups

from .program import ADDRESS as _ADDRESS

_READ_BYTES: Final = 1 << 16
_MAX_PRINTED: Final = 1 << 16
"""Longer lines of output are cut for whoever looks for results in them."""
_MAX_TOLD: Final = 1 << 22
"""Longer lines of JSON are cut; a result has at most 1 MiB."""
_NUM_LAST_LINES: Final = 120
"""Enough for what a program and a launcher around it print when they fail."""
_POLL_S: Final = 0.1
"""How often a file is looked at, and the end of the program where the system does not tell it."""
_NUM_KILLS: Final = 100
"""How often processes are looked for that those that are being killed may have started."""
_KILL_S: Final = 0.1
"""How long the end of those is waited for before others are looked for."""
_NUM_LAST_READS: Final = 32
"""How often each pipe is read after the end; it holds at most 1 MiB."""
_MIN_AGE_S: Final = 10.0
"""Age from which a directory in which nobody listens is not one that is just being made."""
_LONGEST_ADDRESS: Final = 90
"""Letters in the path of a socket; the system takes about 100."""


@final
@dataclass(frozen=True, slots=True)
class Printed:
    """A line of output.

    Attributes:
        line: The line, without its end.
    """

    line: str


@final
@dataclass(frozen=True, slots=True)
class Told:
    """A line that the program has written to the file named ``TUNER_REPORT``.

    Attributes:
        line: The line, without its end.
    """

    line: str


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the session of a Python program, which waits for the answer.

    Attributes:
        request: The request.
        answer: To be called with the answer, once.
    """

    request: Mapping[str, Any]
    answer: Callable[[Mapping[str, Any]], None]


@final
@dataclass(frozen=True, slots=True)
class Looked:
    """It is time to look at the file that the program writes."""


Event = Printed | Told | Asked | Looked


@final
class _Lines:
    """Splits what comes in parts into lines; a carriage return ends one as well.

    Args:
        max_bytes: Where longer lines are cut.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def split(self, data: bytes) -> list[str]:
        first, *others = data.replace(b"\r", b"\n").split(b"\n")
        self._rest += first
        whole = []
        for line in others:
            whole.append(self._rest)
            self._rest = bytearray(line)
        if len(self._rest) > self._max_bytes:
            whole, self._rest = [*whole, self._rest], bytearray()
        return [line[: self._max_bytes].decode("utf-8", "replace") for line in whole]

    def last(self) -> list[str]:
        rest, self._rest = self._rest, bytearray()
        return [rest.decode("utf-8", "replace")] if rest else []


@final
@dataclass(slots=True)
class _Source:
    """A descriptor that is read."""

    descriptor: int
    take: Callable[[bytes], Iterator[Event]]
    end: Callable[[], Iterator[Event]] = field(default=lambda: iter(()))


@final
class Program:
    """A program that runs for one attempt of a trial, with all processes that it starts.

    In a worker of its own it belongs to the worker's process group, and dies with it whatever
    happens. Where trials share the driver's process, it has a group of its own.

    Its output goes to the standard streams of this process, line by line as it comes.

    Args:
        words: The command.
        environ: Its environment; the places to report to are added.
        cwd: Its working directory.
        is_line: Whether there is one word, a line for the shell.
        is_worker: Whether this process is a worker that runs nothing else.
        looks: Whether a file is to be looked at while it runs.

    Raises:
        OSError: If it cannot be started.

    Attributes:
        last_output: The last lines of both streams.
        last_errors: The last lines of the standard error.
        was_told: Whether a Python program has been told to end, and may do so by itself.
    """

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        cwd: str | os.PathLike[str],
        *,
        is_line: bool = False,
        is_worker: bool = False,
        looks: bool = False,
    ) -> None:
        self.last_output: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self.last_errors: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self.was_told = False
        self._looks = looks
        self._num_unread = 0
        self._readers: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._closing = contextlib.ExitStack()
        self._owns_group = not is_worker
        try:
            directory = self._make_directory()
            told = _Lines(_MAX_TOLD)
            self._listen_to(
                f"{directory}/report",
                lambda data: map(Told, told.split(data)),
                lambda: map(Told, told.last()),
            )
            self._address = f"{directory}/session"
            self._listen_for_sessions(self._address)
            # Only now: others tell by what is listened to that this one is not abandoned.
            _remove_abandoned(Path(directory).parent)
            with contextlib.ExitStack() as own:
                output, errors = (
                    self._open_output(f"{directory}/{name}", stream, own)
                    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr))
                )
                self._process = subprocess.Popen(  # noqa: S603  (the user's command)
                    ["/bin/sh", "-c", *words] if is_line else words,
                    cwd=cwd,
                    env={
                        **environ,
                        "TUNER_REPORT": f"{directory}/report",
                        _ADDRESS: self._address,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    process_group=0 if self._owns_group else None,
                    # A worker's processes die with it in any case.
                    preexec_fn=(  # noqa: PLW1509  (it waits for no other thread)
                        functools.partial(process_groups.die_with_parent, os.getpid())
                        if self._owns_group
                        else None
                    ),
                )
        except BaseException:
            self._closing.close()
            raise
        self._exit = self._watch_for_exit()

    def _make_directory(self) -> str:
        prefix = _prefix()
        directory = tempfile.mkdtemp(prefix=prefix)
        if len(directory) > _LONGEST_ADDRESS:
            Path(directory).rmdir()
            directory = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
        self._closing.callback(shutil.rmtree, directory, ignore_errors=True)
        return directory

    def _listen_to(
        self,
        path: str,
        take: Callable[[bytes], Iterator[Event]],
        end: Callable[[], Iterator[Event]],
    ) -> None:
        """Make a FIFO and read it; unlike a pipe, it tells when it was written to."""
        os.mkfifo(path, 0o600)
        # Held open for writing as well, so that it never is at its end.
        reader = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing.callback(os.close, reader)
        self._readers.append(reader)
        self._add(_Source(reader, take, end))

    def _listen_for_sessions(self, address: str) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._closing.callback(listener.close)
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._listener = listener

    def _add(self, source: _Source) -> None:
        os.set_blocking(source.descriptor, False)
        self._selector.register(source.descriptor, selectors.EVENT_READ, source)

    def _open_output(self, path: str, stream: Any, own: contextlib.ExitStack) -> int:
        """Listen to one of the program's streams, and return where it is to write."""
        lines = _Lines(_MAX_PRINTED)
        kept = [self.last_output, *([self.last_errors] if path.endswith("stderr") else [])]

        def keep(line: str) -> Printed:
            for last in kept if line.strip() else ():
                last.append(line)
            return Printed(line)

        def take(data: bytes) -> Iterator[Event]:
            _pass_on(data, stream)
            return map(keep, lines.split(data))

        self._listen_to(path, take, lambda: map(keep, lines.last()))
        writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        own.callback(os.close, writer)
        return writer

    def _watch_for_exit(self) -> int | None:
        """Return a descriptor that is readable once the program has ended; None for none."""
        if not hasattr(os, "pidfd_open"):
            return None
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except OSError:  # an old kernel, or a sandbox
            return None
        self._closing.callback(os.close, descriptor)
        self._selector.register(descriptor, selectors.EVENT_READ, None)
        return descriptor

    @property
    def code(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._process.poll()

    def said_last_ns(self) -> int | None:
        """Return when the program last wrote something, None while there is more to be read.

        The time is that of the system's clock, in nanoseconds.
        """
        poll = select.poll()
        for reader in self._readers:
            poll.register(reader, select.POLLIN)
        if self._num_unread or poll.poll(0):
            return None
        return max(os.fstat(reader).st_mtime_ns for reader in self._readers)

    def events(self, deadline_s: float | None = None) -> Iterator[Event]:
        """Yield what it prints and tells until it ends, in the order in which it is read.

        Args:
            deadline_s: Time by `time.monotonic` at which to end even though it still runs.
        """
        while self.code is None:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            poll_s = _POLL_S if self._looks or self._exit is None else None
            limits_s = [limit_s for limit_s in (poll_s, left_s) if limit_s is not None]
            yield from self._ready(min(limits_s, default=None))
            if self._looks:
                yield Looked()
        # What was written before the end, and nothing that other processes go on to write.
        for _ in range(_NUM_LAST_READS):
            yield from self._ready(0)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Source):
                yield from key.data.end()

    def _ready(self, wait_s: float | None) -> Iterator[Event]:
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, _Source):
                yield from self._read(key.data)

    def _read(self, source: _Source) -> Iterator[Event]:
        try:
            data = os.read(source.descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            events = list(source.take(data))
            for number, event in enumerate(events, 1):
                self._num_unread = len(events) - number
                yield event
        else:
            self._selector.unregister(source.descriptor)
            yield from source.end()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            self._closing.callback(connection.close)
            lines = _Lines(_MAX_TOLD)

            def asked(line: str) -> Event:
                return Asked(json.loads(line), lambda answer: _send(connection, answer))

            self._add(
                _Source(
                    connection.fileno(), lambda data: (asked(line) for line in lines.split(data))
                )
            )

    def end(self, grace_s: float) -> None:
        """End it with all its processes, if it still runs, and release what it has used.

        A program that was told to end may do so by itself for half of the time. Then it gets
        SIGTERM, and at the end of the time it is killed.

        Args:
            grace_s: How many seconds it has.
        """
        try:
            begin_s = time.monotonic()
            if self.was_told:
                self._drain(begin_s + grace_s / 2)
            if self.code is None:
                self._signal(signal.SIGTERM)
                self._drain(begin_s + grace_s)
            self._kill()
        finally:
            self._closing.close()
            self._selector.close()

    def _drain(self, deadline_s: float) -> None:
        for event in self.events(deadline_s):
            if isinstance(event, Asked):
                event.answer({"stop": True})

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The worker itself does nothing on termination signals, see `process_setup`.
            os.killpg(self._process.pid if self._owns_group else os.getpgrp(), number)

    def _kill(self) -> None:
        """Kill what is left of it; processes that it has left behind as well."""
        if self._owns_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            _kill_by_variable(_variable(Path(self._address).parent))
        else:
            process_groups.kill_descendants()
        self._process.wait()


def _variable(directory: Path) -> bytes:
    """Return what all processes of the program that reports in a directory have been given."""
    return f"{_ADDRESS}={directory}/session".encode()


def _kill_by_variable(variable: bytes) -> None:
    """Kill all processes with this variable in their environment, whatever group they are in."""
    for _ in range(_NUM_KILLS):
        if not orphans.kill_where(lambda pid: variable in orphans.environment_of(pid), _KILL_S):
            return


def _prefix() -> str:
    """Return how the names of directories begin that processes of this machine make."""
    # Others may share the file system.
    return f"tuner-{zlib.crc32(socket.gethostname().encode()):08x}-"


def _remove_abandoned(parent: Path) -> None:
    """Remove directories of processes that were killed before they could, and their programs."""
    for other in parent.glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > _MIN_AGE_S and not _is_read(other / "report"):
                _kill_by_variable(_variable(other))
                shutil.rmtree(other)


def _is_read(fifo: Path) -> bool:
    """Return whether a process holds a FIFO open that may be there."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def _pass_on(data: bytes, stream: Any) -> None:
    """Write output to a stream of this process, which may have been replaced by the user."""
    with contextlib.suppress(OSError, ValueError):
        if hasattr(stream, "buffer"):
            stream.flush()
            stream.buffer.write(data)
            stream.buffer.flush()
        elif stream is not None:
            stream.write(data.decode("utf-8", "replace"))
            stream.flush()


def _send(connection: socket.socket, answer: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        connection.setblocking(True)
        connection.sendall(json.dumps(answer).encode() + b"\n")
        connection.setblocking(False)
