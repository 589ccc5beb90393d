"""Simulated disk, under a real file system, that loses unflushed writes in a power cut.

An ext4 file system is on a loop device, which is backed by a file that this process serves to the
kernel with the FUSE protocol. The process thus records each write to the disk and each flush, in
order, and can compute the content of the disk after a power cut at any instant: all writes before
the last flush, and any of the blocks written after it. Runs on Linux only and as root, because it
mounts file systems.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final, final

SIZE_BYTES: Final = 48 << 20
_SECTOR_BYTES: Final = 512
_TOOLS: Final = ("mkfs.ext4", "losetup", "mount", "umount")
_REQUEST: Final = struct.Struct("<IIQQIIIHH")
"""Length, operation code and id of a request; the other fields are ignored."""
_ANSWER: Final = struct.Struct("<IiQ")
_INIT: Final = struct.Struct("<IIIIHHIIHH8I")
_ATTRIBUTES: Final = struct.Struct("<QIIQQQQQQIIIIIIIIII")
_PLACE: Final = struct.Struct("<QQI")
"""Handle, offset and size, the first fields of a read and of a write."""
_DATA_AT: Final = 40
"""Offset of the data in a write request, after its header."""
_PROTOCOL: Final = (7, 31)
_MAX_WRITE: Final = 1 << 17
_NOSUID_NODEV: Final = 2 | 4
_GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _RELEASE, _FSYNC, _FLUSH, _INITIALISE, _DESTROY = (
    3,
    4,
    14,
    15,
    16,
    18,
    20,
    25,
    26,
    38,
)
_UNANSWERED: Final = frozenset({2, 36, 42})
"""FORGET, INTERRUPT and BATCH_FORGET, which have no reply."""


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A write that reached the disk.

    Attributes:
        at_s: Monotonic time of the write.
        offset: Offset on the disk, in bytes.
        data: The bytes written.
    """

    at_s: float
    offset: int
    data: bytes


def why_not() -> str:
    """Return the reason why the disk cannot be used here, empty if it can."""
    if sys.platform != "linux":
        return "it needs Linux"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"it needs {', '.join(missing)}"
    if (
        os.geteuid() != 0
        or not os.access("/dev/fuse", os.W_OK)
        or not os.access("/dev/loop-control", os.W_OK)
    ):
        return "it needs root, /dev/fuse and /dev/loop-control"
    return ""


@final
class Platter:
    """Records the writes to a disk and its flushes, in order.

    Args:
        content: The initial content.

    Attributes:
        content: The current content, which reads return.
        written: Every write, oldest first.
    """

    def __init__(self, content: bytes) -> None:
        self._before = content
        self._flushed = [0]
        """For each flush, the number of writes before it."""
        self.content = bytearray(content)
        self.written: list[Written] = []

    def write(self, at_s: float, offset: int, data: bytes) -> None:
        """Record a write."""
        self.written.append(Written(at_s, offset, data))
        self.content[offset : offset + len(data)] = data

    def flush(self) -> None:
        """Record that all writes so far are durable."""
        self._flushed.append(len(self.written))

    def image_at(self, number: int, chance: Random) -> bytes:
        """Return the content of the disk if the power fails before a write.

        Args:
            number: Index of the write.
            chance: Chooses which of the unflushed writes are on the disk, and which are torn.
        """
        content = bytearray(self._before)
        num_safe = self._flushed[bisect_right(self._flushed, number) - 1]
        for write in self.written[:num_safe]:
            content[write.offset : write.offset + len(write.data)] = write.data
        keep = chance.choice((0.0, 0.5, 1.0))
        for write in self.written[num_safe:number]:
            if chance.random() < keep:
                num_bytes = len(write.data)
                if chance.random() < 0.1:  # noqa: PLR2004
                    num_bytes = chance.randrange(0, num_bytes, _SECTOR_BYTES)
                content[write.offset : write.offset + num_bytes] = write.data[:num_bytes]
        return bytes(content)


@final
class ForgetfulDisk:
    """The disk, with an empty ext4 on it.

    Args:
        root: An empty directory.

    Attributes:
        platter: The writes since the file system was made.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        image = root / "image"
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,nodiscard", str(image))
        self.platter = Platter(image.read_bytes())
        self._answers: Mapping[int, Callable[[memoryview], bytes]] = {
            _INITIALISE: lambda _: _INIT.pack(
                *_PROTOCOL, 0, 0, 0, 0, _MAX_WRITE, 1, 0, 0, *[0] * 8
            ),
            _GETATTR: lambda _: self._attributes(),
            _SETATTR: lambda _: self._attributes(),
            _OPEN: lambda _: bytes(16),
            _READ: self._read,
            _WRITE: self._write,
            _FSYNC: self._flush,
            _FLUSH: lambda _: b"",
            _RELEASE: lambda _: b"",
            _DESTROY: lambda _: b"",
        }

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount the file system and return its path."""
        served = self._root / "served"
        served.touch()
        connection = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            _mount_fuse(served, connection)
            server = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            server.start()
            try:
                with _mounted(served, self._root / "mounted") as path:
                    yield path
            finally:
                _run("umount", str(served))
                server.join()
        finally:
            os.close(connection)

    def _serve(self, connection: int) -> None:
        while True:
            try:
                request = memoryview(os.read(connection, _MAX_WRITE + (1 << 16)))
            except OSError as error:
                if error.errno == errno.ENODEV:  # the file has been unmounted
                    return
                continue
            _, asked, number, *_ = _REQUEST.unpack_from(request)
            if asked in _UNANSWERED:
                continue
            answer = self._answers.get(asked)
            body = answer(request[_REQUEST.size :]) if answer else b""
            with contextlib.suppress(FileNotFoundError):  # the client has been killed meanwhile
                os.write(
                    connection,
                    _ANSWER.pack(_ANSWER.size + len(body), 0 if answer else -errno.ENOSYS, number)
                    + body,
                )

    def _attributes(self) -> bytes:
        mode = stat.S_IFREG | 0o600
        num_sectors = SIZE_BYTES // _SECTOR_BYTES
        # Valid for 3600 s; inode 1, size, sectors, six fields of times, mode, one link, ids and
        # device 0, block size.
        return _ATTRIBUTES.pack(
            3600, 0, 0, 1, SIZE_BYTES, num_sectors, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0
        )

    def _read(self, body: memoryview) -> bytes:
        _, offset, size = _PLACE.unpack_from(body)
        return bytes(self.platter.content[offset : offset + size])

    def _write(self, body: memoryview) -> bytes:
        _, offset, size = _PLACE.unpack_from(body)
        self.platter.write(time.monotonic(), offset, bytes(body[_DATA_AT : _DATA_AT + size]))
        return struct.pack("<II", size, 0)

    def _flush(self, _: memoryview) -> bytes:
        self.platter.flush()
        return b""


@contextlib.contextmanager
def mounted_image(image: bytes, root: Path) -> Iterator[Path]:
    """Mount the disk after a power cut, as a restarted machine does, and return its path.

    Args:
        image: The content of the disk.
        root: An empty directory.
    """
    path = root / "image"
    path.write_bytes(image)
    with _mounted(path, root / "mounted") as mounted:
        yield mounted


@contextlib.contextmanager
def _mounted(disk: Path, target: Path) -> Iterator[Path]:
    target.mkdir()
    device = _run("losetup", "--find", "--show", str(disk)).strip()
    try:
        _run("mount", device, str(target))
        try:
            yield target
        finally:
            _run("umount", str(target))
    finally:
        _run("losetup", "--detach", device)


def _mount_fuse(target: Path, connection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={connection},rootmode={stat.S_IFREG | 0o600:o},user_id=0,group_id=0"
    if (
        libc.mount(
            b"forgetful",
            os.fsencode(target),
            b"fuse",
            ctypes.c_ulong(_NOSUID_NODEV),
            options.encode(),
        )
        != 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount a file of our own: {os.strerror(number)}")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (from `_TOOLS`)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
