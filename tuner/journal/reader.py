"""Journal reader: verifies every line, and distinguishes a torn end from damage.

A line that does not verify, with no valid line after it, is where a write was cut off: the record
was never acknowledged, or the power failed within the promised window. It is cut off. With a valid
line after it, something has changed the file, and the journal is refused: to continue from a guess
would be worse than to stop.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from tuner.core.events import Event, TurnEnded
from tuner.core.recorded_decisions import RecordedDecision
from tuner.errors import DamagedJournal, StorageError
from tuner.storage import strict_json
from tuner.storage.declaration import THIS_RELEASE, writer_of
from tuner.storage.disk import LOCAL_DISK, Disk, write_bytes
from tuner.storage.layout import journal_directory, segments_in
from tuner.wire.record import record

from . import records
from .segments import FORMAT, HEADER, START, JournalPosition, body_of, checked

_NUMBERS: Final = re.compile(rb'\{"q":(\d{1,19}),"e":(\d{1,19}),')
_LINE_START: Final = re.compile(rb'[0-9a-f]{8} \{"[kq]":')
_TORN_PREFIX: Final = "torn-"


class Superseded(NamedTuple):
    """The lines of a segment that the next segment has replaced.

    Attributes:
        path: The segment.
        offset: Byte at which the first such line begins.
        epoch: Epoch of the driver that wrote it, None where it does not verify.
    """

    path: Path
    offset: int
    epoch: int | None


@final
class Walk:
    """Verifies the segments of a journal in order, and that each record follows the one before it.

    Attributes:
        head: The record before the segment that was last gone through, as its header says.
        tail: The last record that was seen.
        torn_at: Byte at which the last segment is torn off, None if it is not.
        superseded: What the last segment holds behind the start of the next one, None for nothing.
            A driver whose sync has failed writes the same records into a new segment, and leaves
            them where they were.
    """

    def __init__(self) -> None:
        self.head: JournalPosition | None = None
        self.tail: JournalPosition | None = None
        self.torn_at: int | None = None
        self.superseded: Superseded | None = None

    def through(self, path: Path, data: bytes, end: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield offset and body of each record of a segment.

        Args:
            path: The segment.
            data: Its content.
            end: Number of the record with which the next segment begins, None for the last one.

        Raises:
            DamagedJournal: If something does not verify, unless it is the torn end of the last
                segment.
            StorageError: If a newer version wrote the segment.
        """
        for offset, line in _lines(data):
            found = checked(line)
            if (
                end is not None
                and self.tail is not None
                and offset
                and self.tail.sequence + 1 >= end
            ):
                numbers = numbers_of(found[0]) if found else None
                self.superseded = Superseded(path, offset, numbers[1] if numbers else None)
                return
            if found is None:
                if end is None and not _is_good_line_behind(data, offset):
                    self.torn_at = offset
                    return
                raise _damaged(path, offset, "a line does not match its checksum")
            body, crc = found
            if offset:
                self._take_record(path, offset, body, crc)
                yield offset, body
            else:
                self._take_header(path, body)
        if end is None:
            self.torn_at = None if data else 0
        elif self.tail is None or self.tail.sequence + 1 < end:
            raise _damaged(
                path, len(data), f"it ends before record {end}, with which the next segment begins"
            )

    def _take_header(self, path: Path, body: bytes) -> None:
        try:
            header = strict_json.loads(body)
            if header.get("k") != HEADER:
                raise _damaged(path, 0, "its first line is no header")
            version, (sequence, crc), epoch = (
                int(header["v"]),
                map(int, header["previous"]),
                int(header["e"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
            raise _damaged(path, 0, f"its header is not as it was written ({cause!r})") from cause
        if version > FORMAT:
            raise StorageError(
                f"{path} was written by a newer version (format {version}, known is {FORMAT}); "
                "open it with that one"
            )
        previous = JournalPosition(sequence, crc, epoch)
        if path.stem != f"{sequence + 1:020d}":
            raise _damaged(path, 0, f"its header says that it begins with record {sequence + 1}")
        if self.tail is not None:
            self.check_follows(path, previous)
        self.head = self.tail = previous
        self.superseded = None

    def check_follows(self, path: Path, previous: JournalPosition) -> None:
        """Refuse a segment that does not follow what was seen.

        Args:
            path: The segment.
            previous: The record before it, and the epoch of its driver, as its header says.

        Raises:
            DamagedJournal: If that is another record, or if an earlier driver has written records
                that this one did not know.
        """
        last = self.tail or START
        if (last.sequence, last.crc) != (previous.sequence, previous.crc):
            raise _damaged(
                path, 0, f"it does not follow record {last.sequence} of the segment before it"
            )
        # Epochs never decrease within a journal. Two drivers that wrote at the same time show here,
        # or in lines behind the start of the next segment that were not there when it was begun.
        if previous.epoch < last.epoch:
            raise _two_drivers(path, 0, last.epoch, previous.epoch)
        behind = self.superseded
        if behind and behind.epoch is not None and behind.epoch < previous.epoch:
            raise _two_drivers(behind.path, behind.offset, previous.epoch, behind.epoch)

    def _take_record(self, path: Path, offset: int, body: bytes, crc: int) -> None:
        last = self.tail or START
        numbers = numbers_of(body)
        if numbers is None:
            raise _damaged(path, offset, "a line is no record")
        sequence, epoch = numbers
        if sequence != last.sequence + 1:
            raise _damaged(
                path, offset, f"record {last.sequence + 1} is missing, there stands {sequence}"
            )
        if epoch < last.epoch:
            raise _two_drivers(path, offset, last.epoch, epoch)
        self.tail = JournalPosition(sequence, crc, epoch)


def numbers_of(body: bytes) -> tuple[int, int] | None:
    """Return sequence number and epoch of a record, None if the body is none."""
    numbers = _NUMBERS.match(body)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while (end := data.find(b"\n", offset)) >= 0:
        yield offset, data[offset:end]
        offset = end + 1
    if offset < len(data):
        yield offset, b""  # a line without its line break was cut off, even if the rest verifies


def _is_good_line_behind(data: bytes, offset: int) -> bool:
    # Not only at line breaks: where one was changed, the line behind it hangs on the one before it.
    for start in _LINE_START.finditer(data, offset + 1):
        end = data.find(b"\n", start.start())
        if end >= 0 and body_of(data[start.start() : end]) is not None:
            return True
    return False


def _damaged(path: Path, offset: int, what: str) -> DamagedJournal:
    remedy = (
        "restore the file from a backup, or have Tuner.restore(..., salvage=True) cut it there and "
        "keep the rest aside"
    )
    return DamagedJournal(
        f"journal {path} is damaged at byte {offset}: {what}; {remedy}", str(path), offset
    )


def _two_drivers(path: Path, offset: int, later: int, earlier: int) -> DamagedJournal:
    return _damaged(
        path,
        offset,
        f"driver {earlier} wrote behind driver {later}, so the file lock of {path.parent} did not "
        "hold",
    )


def read(
    experiment: str | os.PathLike[str], after: int = 0, disk: Disk = LOCAL_DISK
) -> Iterator[dict[str, Any]]:
    """Yield the records of an experiment's journal in order, marks included.

    A torn end is passed over in silence, since it may be a line that a driver is just writing;
    the driver that takes the journal over calls `recover` first.

    Args:
        experiment: Directory of the experiment.
        after: Number of the last record not to be read, e.g. that of a snapshot.
        disk: Where it lies.

    Raises:
        DamagedJournal: If records are missing or do not verify; names file and byte.
        StorageError: If a newer version wrote them, or they cannot be read.
    """
    for body in verified(experiment, after, disk):
        try:
            yield strict_json.loads(body)
        except ValueError as cause:
            raise DamagedJournal(
                f"a record of journal {journal_directory(experiment)} is no JSON, "
                f"{body[:40]!r}...: {cause}"
            ) from cause


@record
class RecordedEvent:
    """An event as the journal holds it.

    Attributes:
        event: The event; None for a record that only marks where a driver began or ended.
        at_s: When, in seconds of experiment time, which never goes back.
        recorded: What was decided on it.
    """

    event: Event | None
    at_s: float
    recorded: Sequence[RecordedDecision] = ()


def read_events(
    directory: Path, after: int = 0, elapsed_s: float = 0.0, disk: Disk = LOCAL_DISK
) -> Iterator[RecordedEvent]:
    """Yield events and the decisions made on them, as `Experiment.handle` takes them.

    Args:
        directory: The experiment's directory; a driver may be writing in it.
        after: Number of the last record not to be read, e.g. that of a snapshot.
        elapsed_s: The experiment's running time at that record.
        disk: Where the journal lies.

    Raises:
        StorageError: If a record is of a kind that this release does not know.
        DamagedJournal: If the journal does not verify; a torn end does.
    """
    for body in read(directory, after, disk):
        try:
            if not records.is_event(body):
                # Experiment time never goes back, not even behind the mark of an end.
                elapsed_s = max(elapsed_s, records.stamp_of(body))
                yield RecordedEvent(None, elapsed_s)
                continue
            if records.ROUTINE_END in body:
                yield RecordedEvent(TurnEnded(), records.stamp_of(body, records.ROUTINE_END))
            event, elapsed_s, recorded = records.decode(body)
        except StorageError as cause:
            hint = (
                f"{str(directory)!r} was written by {writer_of(directory)}, this is version "
                f"{THIS_RELEASE}"
            )
            raise StorageError(f"{cause}; {hint}") from cause
        yield RecordedEvent(event, elapsed_s, recorded)


def verified(experiment: str | os.PathLike[str], after: int, disk: Disk) -> Iterator[bytes]:
    """Yield the body of each record, as text; see `read`."""
    found = segments_in(journal_directory(experiment), disk)
    if not found:
        return
    _check_begins(found[0], after)
    needed = [one for one, (following, _) in pairwise(found) if following > after + 1] + found[-1:]
    ends = [first for first, _ in needed[1:]]
    walk = Walk()
    for (_, path), end in zip(needed, [*ends, None], strict=True):
        for _, body in walk.through(path, _content(path, disk), end):
            if walk.tail is not None and walk.tail.sequence > after:
                yield body


def backwards(
    experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK
) -> Iterator[tuple[Path, Iterator[tuple[int, bytes]]]]:
    """Yield the segments, the last one first, each with the offset and body of its records.

    Segments that are begun after the first step are not seen.

    Args:
        experiment: Directory of the experiment.
        disk: Where it lies.

    Raises:
        DamagedJournal: As `read` does; of what was not asked for nothing is known. The records of a
            segment have to be gone through before the next one is asked for.
        StorageError: As `read` does.
    """
    end: int | None = None
    later: tuple[Path, JournalPosition | None] | None = None
    found = segments_in(journal_directory(experiment), disk)
    for first, path in reversed(found):
        walk = Walk()
        yield path, walk.through(path, _content(path, disk), end)
        if later and later[1]:
            walk.check_follows(later[0], later[1])
        end, later = first, (path, walk.head)
    if found:
        _check_begins(found[0], 0)


def _check_begins(first: tuple[int, Path], after: int) -> None:
    number, path = first
    if number > after + 1:
        raise _damaged(
            path,
            0,
            f"records {after + 1} to {number - 1}, which stood in a segment before it, are missing",
        )


def _content(path: Path, disk: Disk) -> bytes:
    try:
        return disk.read(path)
    except OSError as cause:
        raise StorageError(f"journal {path} cannot be read: {cause}") from cause


class End(NamedTuple):
    """The end of a journal, as it is found.

    Attributes:
        tail: The last record; `START` where nothing but torn segments is there.
        torn: Of each segment that is torn, the last one first: path, content, and the byte from
            which on it is not good.
        last: Path and content of the last segment that is to be kept, None without any.
    """

    tail: JournalPosition
    torn: Sequence[tuple[Path, bytes, int]]
    last: tuple[Path, bytes] | None


def find_end(experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK) -> End:
    """Return where a journal ends, without changing it.

    Only the last segment is verified; `read` verifies the others.

    Args:
        experiment: Directory of the experiment.
        disk: Where it lies.

    Raises:
        DamagedJournal: If its last segment is damaged.
        StorageError: If it cannot be read.
    """
    found = segments_in(journal_directory(experiment), disk)
    torn: list[tuple[Path, bytes, int]] = []
    while found:
        _, path = found.pop()
        data = _content(path, disk)
        walk = Walk()
        for _ in walk.through(path, data, None):
            pass
        if walk.torn_at is not None:
            torn.append((path, data, walk.torn_at))
        if walk.tail is not None:
            return End(walk.tail, torn, (path, data[: walk.torn_at]))
    return End(START, torn, None)


def recover(experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK) -> JournalPosition:
    """Bring a journal into the state in which it can be continued, and return where it ends.

    A torn end is kept aside as ``torn-<segment>-<offset>`` and cut off, with a warning. Where the
    last segment is to be replaced by one of the same number, since it holds no record, what the one
    before it holds behind that number is cut off: from then on only a driver that was not kept out
    can have written it.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        disk: Where it lies.

    Raises:
        DamagedJournal: As `find_end` does; nothing is changed then.
        StorageError: If it cannot be read or cut.
    """
    # All that is read and may be refused comes before the first change.
    end = find_end(experiment, disk)
    superseded = _superseded_before(experiment, end, disk)
    # First the copies of the torn ends, then the cuts: a crash in between loses nothing.
    for path, data, offset in end.torn:
        _set_aside(path, data, offset, disk)
    if superseded:
        _write_anew(superseded.path, _content(superseded.path, disk)[: superseded.offset], disk)
    if end.last:
        _write_anew(*end.last, disk)
    return end.tail


def _superseded_before(
    experiment: str | os.PathLike[str], end: End, disk: Disk
) -> Superseded | None:
    """Return what the segment before the last one holds behind the start of the last one.

    None unless the last one holds no record.

    Raises:
        DamagedJournal: If a driver before that of the last segment has written it.
    """
    if not end.last or int(end.last[0].stem) != end.tail.sequence + 1:
        return None
    before = [
        path
        for first, path in segments_in(journal_directory(experiment), disk)
        if first <= end.tail.sequence
    ]
    if not before:
        return None
    walk = Walk()
    try:
        for _ in walk.through(before[-1], _content(before[-1], disk), end.tail.sequence + 1):
            pass
    except DamagedJournal:
        return None  # refused by what reads it, if anything has to
    walk.check_follows(end.last[0], end.tail)
    return walk.superseded


def _set_aside(path: Path, data: bytes, offset: int, disk: Disk) -> None:
    aside = path.with_name(f"{_TORN_PREFIX}{path.stem}-{offset}")
    try:
        write_bytes(aside, data[offset:], disk=disk)
        if not offset:
            disk.remove(path)
    except OSError as cause:
        raise StorageError(f"the torn end of journal {path} cannot be cut off: {cause}") from cause
    warnings.warn(
        f"the last write to journal {path} was cut off at byte {offset}: {len(data) - offset} "
        f"bytes are kept in {aside.name}, "
        "the experiment goes on from the record before them",
        RuntimeWarning,
        stacklevel=3,
    )


def _write_anew(path: Path, data: bytes, disk: Disk) -> None:
    # A driver that was killed has left lines that are only in the kernel's cache. If the next
    # segment were on disk before them, a power cut would leave a gap. Syncing the file is not
    # enough: after a failed sync the kernel marks the lost pages clean, and the next sync succeeds.
    try:
        write_bytes(path, data, disk=disk)
    except OSError as cause:
        raise StorageError(f"journal {path} cannot be synced: {cause}") from cause
