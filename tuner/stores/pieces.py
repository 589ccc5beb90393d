"""Pieces of a journal in an object store: immutable, chained, each in the format of a segment.

A driver that mirrors its journal works under an *epoch*, the number of the lock that it holds in
the store (`tuner.stores.remote_lock`). Its pieces are ``journal/<epoch>/<first record>.log``, and
``start/<epoch>.json`` names the record after which they continue. Who reads follows exact names,
from one piece to the record behind its last one, so a listing that is out of date hides nothing.
What a driver has stored behind the record after which a later epoch continues never counts.

Under ``durability="storage"`` pieces are small and many. So a driver also stores the content of
many at once, as a *pack* ``journal/<epoch>/<first record>-<last record>.pack``. That is a shortcut:
the pieces stay, and are read where a listing does not show the pack.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, final

from tuner.errors import DamagedJournal
from tuner.journal.reader import Walk
from tuner.journal.segments import JournalPosition, body_of, header_line, line_of
from tuner.storage import layout, strict_json
from tuner.storage.layout import segment_path

from .object_store import ObjectStore
from .remote_lock import lock_key, start_key

RecordId = tuple[int, int]
"""Number and CRC-32 of a record; ``(0, 0)`` stands for the beginning of the journal."""
ORIGIN: Final = (0, 0)
START: Final = "start"
_PIECE: Final = re.compile(rf"{layout.JOURNAL}/(\d{{1,8}})/(\d{{20}})\.log")
_PACK: Final = re.compile(rf"{layout.JOURNAL}/(\d{{1,8}})/(\d{{20}})-(\d{{20}})\.pack")
_START: Final = re.compile(rf"{START}/(\d{{8}})\.json")
_NUM_AHEAD: Final = 32
"""How many pieces are fetched ahead of the one that is verified: 1 MiB each as a rule."""
_NUM_THREADS: Final = 16

_log = logging.getLogger("tuner")


class Piece(NamedTuple):
    """Lines that are stored together.

    Attributes:
        first: Number of the first record.
        previous: The record before it.
        last: The last record.
        epoch: Epoch of the journal's driver that wrote the first record, as in a segment's header.
        lines: The lines of its records, as they stand in the journal.
    """

    first: int
    previous: RecordId
    last: RecordId
    epoch: int
    lines: bytes

    @property
    def content(self) -> bytes:
        """What is stored: a segment whose header also names the last record."""
        return header_line(self.first, self.previous, self.epoch, self.last) + self.lines


def piece_key(epoch: int, first: int, last: int | None = None) -> str:
    """Return the name of the piece, or of the pack up to a last one, that begins with a record.

    Example:
        >>> piece_key(7, 1234)
        'journal/7/00000000000000001234.log'
        >>> piece_key(7, 1, 1234)
        'journal/7/00000000000000000001-00000000000000001234.pack'
    """
    end = ".log" if last is None else f"-{last:020d}.pack"
    return f"{layout.JOURNAL}/{epoch}/{first:020d}{end}"


def joined(pieces: Sequence[Piece]) -> Piece:
    """Return pieces that follow each other as one."""
    return pieces[0]._replace(last=pieces[-1].last, lines=b"".join(piece.lines for piece in pieces))


def pieces_in(keys: Sequence[str] | Mapping[str, int]) -> dict[int, list[int]]:
    """Return for each epoch the first records of its pieces among these keys, in order."""
    found: dict[int, list[int]] = {}
    for name in map(_PIECE.fullmatch, keys):
        if name:
            found.setdefault(int(name[1]), []).append(int(name[2]))
    return {epoch: sorted(firsts) for epoch, firsts in sorted(found.items())}


def read_starts(store: ObjectStore, keys: Mapping[str, int] | None = None) -> dict[int, RecordId]:
    """Return for each epoch that has begun the record after which it continues, in order.

    Args:
        store: The experiment's directory in the store.
        keys: What is listed there; None to list it.

    Raises:
        DamagedJournal: If one cannot be read.
        StorageError: If the store cannot be reached.
    """
    listed = map(_START.fullmatch, store.list(f"{START}/") if keys is None else keys)
    epochs = {int(name[1]) for name in listed if name}
    # What a listing does not show yet is found by its lock, since the numbers of those have no
    # gaps.
    epoch = max(epochs, default=0) + 1
    while store.get_if_exists(lock_key(epoch)) is not None:
        epochs.add(epoch)
        epoch += 1
    starts = {epoch: _read_start(store, epoch) for epoch in sorted(epochs)}
    return {epoch: start for epoch, start in starts.items() if start is not None}


def _read_start(store: ObjectStore, epoch: int) -> RecordId | None:
    """Return the record after which an epoch continues, None if it has not begun."""
    content = store.get_if_exists(start_key(epoch))
    if content is None:
        return None
    try:
        fields = strict_json.loads(content)
        if fields.get("abandoned") is True:
            return None
        sequence, crc = fields["sequence"], fields["crc"]
        if not (type(sequence) is type(crc) is int and sequence >= 0 and crc >= 0):
            raise ValueError(f"got sequence {sequence!r} and crc {crc!r}")  # noqa: TRY301
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise DamagedJournal(
            f"{store.url}/{start_key(epoch)} is not as it was written ({cause!r}); put it back "
            "from a backup, or an older version of it where the store keeps versions"
        ) from cause
    return sequence, crc


class Stretch(NamedTuple):
    """The part of the journal that counts of what was stored under an epoch.

    Attributes:
        epoch: The epoch.
        after: The record after which it continues.
        end: Number of the last record that counts, since a later epoch continues there; None for
            the epoch that nothing has followed.
    """

    epoch: int
    after: RecordId
    end: int | None


def stretches(starts: Mapping[int, RecordId]) -> list[Stretch]:
    """Return the stretches that make up the journal, in order.

    A later epoch may continue before an earlier one began, where a damaged journal was cut; what
    the earlier one has stored does not count then.

    Example:
        >>> stretches({1: (0, 0), 2: (70, 5), 4: (30, 9)})
        [Stretch(epoch=1, after=(0, 0), end=30), Stretch(epoch=4, after=(30, 9), end=None)]
    """
    found: list[Stretch] = []
    end: int | None = None
    for epoch, after in sorted(starts.items(), reverse=True):
        if end is None or after[0] < end:
            found.append(Stretch(epoch, after, end))
            end = after[0]
    return found[::-1]


@final
class PieceReader:
    """Follows the pieces of a journal, and verifies all of them.

    Args:
        store: The experiment's directory in the store.
        is_salvage: Whether to stop at damage and at gaps instead of raising.
        keys: What is listed there; None to list it.

    Attributes:
        tail: The last record that was read.
        starts: See `read_starts`.
        missing: What was not there or did not verify, where `is_salvage` is set.

    Raises:
        DamagedJournal: See `read_starts`; also if there are pieces of an epoch without a start.
        StorageError: If the store cannot be reached.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        is_salvage: bool = False,
        keys: Mapping[str, int] | None = None,
    ) -> None:
        self._store = store
        self._is_salvage = is_salvage
        self.tail = JournalPosition()
        self._epoch = 1
        self.missing: list[str] = []
        self.starts = read_starts(store, keys)
        keys = store.list(f"{layout.JOURNAL}/") if keys is None else keys
        self._listed = pieces_in(keys)
        self._packs = {
            (int(name[1]), int(name[2])): int(name[3])
            for name in map(_PACK.fullmatch, keys)
            if name
        }
        for epoch in self._listed.keys() - self.starts.keys():
            # A driver stores its first piece after that, so it was there once.
            self._refuse(f"{start_key(epoch)} is missing, and pieces of epoch {epoch} are there")

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces in order.

        Raises:
            DamagedJournal: If one is missing or does not verify, see `is_salvage`.
            StorageError: If the store cannot be reached.
        """
        parts = stretches(self.starts)
        names = [name for part in parts for name in self._names(part)]
        with _fetching(self._store, names) as fetch:
            for part in parts:
                if not self._is_at(part):
                    return
                self._epoch = part.epoch
                while part.end is None or self.tail.sequence < part.end:
                    try:
                        piece = self._read(part, fetch)
                    except DamagedJournal as damage:
                        self._refuse(str(damage), damage)
                        return
                    if piece is None:
                        break
                    yield piece
        # A driver stores one piece after the other: where a later one is there, the next one was.
        last = max(self._listed.get(self._epoch, ()), default=0)
        self.require(last - 1, piece_key(self._epoch, last))

    def _names(self, part: Stretch) -> Iterator[str]:
        """Yield what is going to be read, as far as the listing shows it."""
        last = part.after[0]
        for first in self._listed.get(part.epoch, ()):
            if last < first and (part.end is None or first <= part.end):
                # Without a pack, the end of a piece is not known, and its beginning will do.
                pack = self._packs.get((part.epoch, first))
                last = pack or first
                yield piece_key(part.epoch, first, pack)

    def _is_at(self, part: Stretch) -> bool:
        """Return whether the pieces reach up to where an epoch continues."""
        if not self.require(part.after[0], start_key(part.epoch)):
            return False
        if self.tail[:2] != part.after:
            self._refuse(
                f"record {self.tail.sequence} has CRC {self.tail.crc:08x}, but epoch {part.epoch} "
                f"continues after one with {part.after[1]:08x}"
            )
            return False
        return True

    def require(self, sequence: int, key: str) -> bool:
        """Return whether the pieces reach as far as when an object was stored.

        Args:
            sequence: Number of the last record that was stored then.
            key: The object.

        Raises:
            DamagedJournal: If they do not, see `is_salvage`.
        """
        if sequence <= self.tail.sequence:
            return True
        self._refuse(
            f"{piece_key(self._epoch, self.tail.sequence + 1)} is missing, and {key} was stored "
            f"behind record {sequence}"
        )
        return False

    def _read(self, part: Stretch, fetch: Callable[[str], bytes | None]) -> Piece | None:
        """Return the piece behind the last record, None if there is none."""
        first = self.tail.sequence + 1
        pack = self._packs.pop((part.epoch, first), None)
        key = piece_key(part.epoch, first, pack)
        content = fetch(key)
        if content is None and pack is None:
            return None
        walk = Walk()
        walk.tail = self.tail
        try:
            piece = verified_piece(
                f"{self._store.url}/{key}", content or b"", first, walk, part.end
            )
        except DamagedJournal as damage:
            if pack is None:
                raise
            _log.warning("%s; the pieces are read from which it was made", damage)
            return self._read(part, fetch)
        self.tail = walk.tail
        return piece

    def _refuse(self, what: str, damage: DamagedJournal | None = None) -> None:
        if not self._is_salvage:
            url, last = self._store.url, self.tail.sequence
            raise damage or DamagedJournal(
                f"journal {url}/{layout.JOURNAL} is incomplete, "
                f"{f'records 1 to {last} are' if last else 'no record is'} there: {what}; put its "
                "objects back from a backup, or older versions of them where the store keeps "
                f"versions, or have Tuner.restore({url!r}, trainable, salvage=True) go on from "
                "what is there"
            )
        self.missing.append(what)


@contextmanager
def _fetching(store: ObjectStore, names: Sequence[str]) -> Iterator[Callable[[str], bytes | None]]:
    """Yield a function that returns objects, of which these are fetched ahead in threads."""
    if len(names) < 2:  # noqa: PLR2004  (no threads for a single one)
        yield store.get_if_exists
        return
    rest, futures = iter(names), dict[str, Future[bytes | None]]()
    pool = ThreadPoolExecutor(_NUM_THREADS, "tuner-fetch")

    def fetch(key: str) -> bytes | None:
        for name in itertools.islice(rest, _NUM_AHEAD - len(futures)):
            futures[name] = pool.submit(store.get_if_exists, name)
        future = futures.pop(key, None)
        return future.result() if future else store.get_if_exists(key)

    try:
        yield fetch
    finally:
        pool.shutdown(cancel_futures=True)


def verified_piece(
    name: str, content: bytes, first: int, walk: Walk | None = None, end: int | None = None
) -> Piece:
    """Return a piece whose lines and header verify.

    Args:
        name: Its name for messages.
        content: What is stored.
        first: Number of its first record, by its name.
        walk: What has been gone through before it; None not to compare it with that.
        end: Number of the last record that counts, None for all.

    Raises:
        DamagedJournal: If it does not verify.
    """
    walk = walk or Walk()
    path = segment_path(Path(), first)
    # Errors of the walk name a local file and its remedies; what is wrong with it stays the same.
    length = 0
    try:
        for offset, body in walk.through(path, content, None):
            if end is not None and walk.tail and walk.tail.sequence >= end:
                length = offset + len(body) + _LINE_OVERHEAD
                break
        else:
            length = len(content)
    except DamagedJournal as cause:
        raise _damaged_piece(name, str(cause).partition(": ")[2].partition(";")[0]) from cause
    head, tail = walk.head, walk.tail
    if walk.torn_at is not None or head is None or tail is None:
        raise _damaged_piece(name, f"it is cut off at byte {walk.torn_at or 0}")
    begin = content.index(b"\n") + 1
    last = _last_of(content[: begin - 1])
    is_whole = length == len(content)
    if (is_whole and last != (tail.sequence, tail.crc)) or head.sequence == tail.sequence:
        raise _damaged_piece(name, f"it ends with record {tail.sequence}, not {last[0]}")
    return Piece(
        head.sequence + 1,
        (head.sequence, head.crc),
        (tail.sequence, tail.crc),
        head.epoch,
        content[begin:length],
    )


_LINE_OVERHEAD: Final = len(line_of(b""))


def _last_of(line: bytes) -> RecordId:
    try:
        sequence, crc = map(int, strict_json.loads(body_of(line) or b"")["last"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return ORIGIN
    return sequence, crc


def find_end(store: ObjectStore, starts: Mapping[int, RecordId]) -> RecordId:
    """Return the last record that is stored, without reading more than the last pieces.

    Args:
        store: The experiment's directory in the store.
        starts: See `read_starts`.

    Raises:
        DamagedJournal: If the last piece does not verify.
        StorageError: If the store cannot be reached.
    """
    if not starts:
        return ORIGIN
    epoch, tail = max(starts.items())
    listed = pieces_in(store.list(f"{layout.JOURNAL}/{epoch}/")).get(epoch, [])
    first = max([tail[0] + 1, *listed])
    while (content := store.get_if_exists(key := piece_key(epoch, first))) is not None:
        tail = verified_piece(f"{store.url}/{key}", content, first).last
        first = tail[0] + 1
    return tail


def _damaged_piece(name: str, what: str) -> DamagedJournal:
    return DamagedJournal(
        f"piece {name} of the journal is damaged: {what}; put it back from a backup, or an older "
        "version of it where the store keeps versions, or have Tuner.restore(..., salvage=True) "
        "go on from what is before it",
        name,
    )
