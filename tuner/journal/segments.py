r"""Format of the journal's files: checksummed lines in segments.

A line is ``<CRC-32 of the body, 8 hex digits> <body>\n``, and the body is strict JSON that begins
with its sequence number ``q`` and the epoch ``e`` of the driver that wrote it. The first line of a
segment is its header; it names the format and repeats number and CRC of the last record before it,
so that a lost segment is detected. Segments are named by the number of their first record, and a
segment counts up to where the next one begins: so lines that a failed sync has put in doubt can be
written again into a new segment.
"""

from __future__ import annotations

import errno
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, final

from tuner.storage import strict_json
from tuner.storage.disk import Disk, Whereabouts, temporary_sibling
from tuner.storage.layout import segment_path

FORMAT: Final = 1
HEADER: Final = "segment"
_CRC_DIGITS: Final = 8


class JournalPosition(NamedTuple):
    """Where a journal ends; a tuple, since each record makes a new one.

    Attributes:
        sequence: Number of the last record, 0 without any.
        crc: CRC-32 of its body.
        epoch: Highest epoch that was seen: how many drivers have opened the journal.
    """

    sequence: int = 0
    crc: int = 0
    epoch: int = 0


START: Final = JournalPosition()
"""The end of a journal in which nothing has been written."""


def line_of(body: bytes, crc: int | None = None) -> bytes:
    """Return the line of a body, whose CRC-32 is computed where it is not given."""
    return b"%08x %b\n" % (zlib.crc32(body) if crc is None else crc, body)


def checked(line: bytes) -> tuple[bytes, int] | None:
    """Return body and CRC-32 of a line without its line break; None if it does not verify."""
    body = line[_CRC_DIGITS + 1 :]
    crc = zlib.crc32(body)
    return (body, crc) if body and line[: _CRC_DIGITS + 1] == b"%08x " % crc else None


def body_of(line: bytes) -> bytes | None:
    """Return the body of a line, given without its line break; None if it does not verify."""
    found = checked(line)
    return found[0] if found else None


def header_line(
    first: int, previous: tuple[int, ...], epoch: int, last: tuple[int, int] | None = None
) -> bytes:
    """Return the first line of a segment.

    Args:
        first: Number of its first record.
        previous: Number and CRC-32 of the record before that.
        epoch: Epoch of the driver that writes it.
        last: The same of the last one, where that is known.
    """
    header = {
        "k": HEADER,
        "v": FORMAT,
        "e": epoch,
        "first": first,
        "previous": previous[:2],
        **({"last": last} if last else {}),
    }
    return line_of(strict_json.to_bytes(header))


@final
class Segment:
    """The segment that is being written.

    Its methods raise OSError, and leave the file as it was then.

    Args:
        directory: The journal's directory.
        first: Number of its first record.
        content: What it begins with, the header first.
        disk: Where it lies.
        sync: Bring file and name to disk at once.
    """

    def __init__(
        self, directory: Path, first: int, content: bytes, disk: Disk, *, sync: bool
    ) -> None:
        self.first = first
        self.path = segment_path(directory, first)
        self.size_bytes = 0
        self._disk = disk
        self._is_ragged = False
        # Under a temporary name first: a segment never exists without its header, and one that is
        # replaced never vanishes. The content is synced before the rename, and the directory after
        # it: after a power cut the name is there with the content, or not at all.
        temporary = temporary_sibling(self.path)
        self._descriptor = disk.create(temporary)
        # So that another driver finds this one even where the lock file was deleted.
        disk.hold(self._descriptor)
        try:
            self.write(content)
            if sync:
                self.sync()
            disk.rename(temporary, self.path)
            if sync:
                disk.sync_directory(directory)
        except BaseException:
            self.close()
            with suppress(OSError):
                disk.remove(temporary)
            raise

    def write(self, data: bytes) -> None:
        """Append all or nothing, with one call unless the system takes a part only.

        Raises:
            OSError: As the system says: that the disk is full, or the file as large as a limit of
                the process (``ulimit -f``) allows.
        """
        if self._is_ragged:
            self._cut_back()
        self._is_ragged = True
        try:
            taken = 0
            # Why a part only was taken, the next call says.
            while taken < len(data):
                taken += self._taken_of(data[taken:])
        except BaseException:
            # A part of a line must not stay in the middle of the file. If it cannot be cut off now,
            # that is tried again before the next write.
            with suppress(OSError):
                self._cut_back()
            raise
        self.size_bytes += taken
        self._is_ragged = False

    def _taken_of(self, data: bytes) -> int:
        taken = self._disk.write(self._descriptor, data)
        if not taken:  # else it would be repeated for ever
            raise OSError(errno.EIO, f"none of {len(data)} bytes were taken")
        return taken

    def _cut_back(self) -> None:
        self._disk.truncate(self._descriptor, self.size_bytes)
        self._is_ragged = False

    def whereabouts(self) -> Whereabouts:
        """Return whether its path still names it."""
        return self._disk.whereabouts(self._descriptor, self.path)

    def sync(self) -> None:
        """Return when all that was written is on disk."""
        self._disk.sync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        # Errors of earlier writes are reported by `sync`, which comes before where it matters.
        with suppress(OSError):
            self._disk.close(self._descriptor)
        self._descriptor = -1  # the number will mean another file soon
