"""Local copies of experiments that are kept in an object store, to restore or to read them."""

from __future__ import annotations

import logging
import os
import re
import shutil
import warnings
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import DamagedJournal, StorageError
from tuner.journal import pieces, snapshot_files
from tuner.journal.completeness import MARK
from tuner.journal.pieces import PieceReader, RecordId, read_starts, stretches
from tuner.journal.reader import find_end, verified
from tuner.journal.segments import JournalPosition, header_line
from tuner.journal.writer import SEGMENT_BYTES
from tuner.storage import atomic, layout, strict_json
from tuner.storage.declaration import read_declaration
from tuner.storage.directories import make_folder
from tuner.storage.disk import LOCAL_DISK
from tuner.storage.layout import segment_path
from tuner.storage.lock import ExperimentLock
from tuner.storage.object_store import ObjectStore
from tuner.storage.reading import LARGE_BYTES, SMALL_BYTES, read_file
from tuner.storage.remote_lock import released_key, released_sequence

_SNAPSHOT: Final = re.compile(rf"{layout.SNAPSHOT}/(\d{{1,8}})/(\d{{20}})\.json")
_FETCHED: Final = re.compile(
    rf"{layout.OBJECTS}/[0-9a-f]{{64}}\.npy|{re.escape(layout.ENVIRONMENT)}"
)
_LOG: Final = re.compile(r"pbt_[A-Za-z0-9_-]+\.txt|[tf]\d{5,}/[^./][^/]*")
_REBUILT: Final = re.compile(
    rf"[^/]+/(?:{re.escape(layout.RESULTS)}|{re.escape(layout.PROGRESS)}|events\.out\.tfevents\..*)"
)
"""Log files that a restore writes anew from the journal where they are missing."""
_BEFORE_DECLARATION: Final = ("lock", pieces.START, "probe", layout.OBJECTS)
_NUM_TRIES: Final = 5

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a local copy of an experiment contains.

    Attributes:
        end: The last record of its journal.
        missing: What the store lacks; empty unless salvaged.
    """

    end: RecordId
    missing: list[str]


def fetch_experiment(
    store: ObjectStore,
    directory: Path,
    *,
    with_logs: bool = True,
    is_salvage: bool = False,
) -> Fetched:
    """Copy an experiment from an object store, without its checkpoints, and verify it.

    The store is not changed, and no lock is taken: of an experiment that is running, this gives a
    state in which it was. Log files that the journal contains (``result.json``, ``progress.csv``
    and TensorBoard's) are not copied.

    Args:
        store: The experiment's directory in the store.
        directory: Where the copy is made; it holds at most a lock file.
        with_logs: Whether to copy the other files of trials, such as their output.
        is_salvage: Whether to copy what is before damage or a gap, instead of raising.

    Raises:
        DamagedJournal: If a part of the journal is missing or does not verify.
        StorageError: If there is no experiment, or it cannot be copied.
    """
    for _ in range(_NUM_TRIES):
        fetch = _Fetch(store, directory, with_logs=with_logs, is_salvage=is_salvage)
        fetched = fetch.run()
        # Where another driver has begun meanwhile, records may have been copied that it did not
        # find, and that do not count.
        if read_starts(store) == fetch.starts:
            return fetched
        _remove_own(directory)
    raise StorageError(
        f"experiment {store.url} was taken over {_NUM_TRIES} times while it was copied; try again"
    )


@final
class _Fetch:
    def __init__(
        self,
        store: ObjectStore,
        directory: Path,
        *,
        with_logs: bool,
        is_salvage: bool,
    ) -> None:
        self._store = store
        self._directory = directory
        self._with_logs = with_logs
        self._is_salvage = is_salvage
        # Before the pieces: a driver stores a snapshot when the records that it contains have been.
        self._sizes = store.list()
        self._declaration = self._read_declaration()
        self._reader = PieceReader(store, is_salvage=is_salvage)
        self.starts = self._reader.starts

    def run(self) -> Fetched:
        make_folder(self._directory)
        staging = atomic.temporary_sibling(self._directory / "fetched")
        try:
            make_folder(staging / layout.JOURNAL)
            (staging / layout.DECLARATION).write_bytes(self._declaration)
            self._write_journal(staging / layout.JOURNAL)
            self._check_complete()
            if not self._is_salvage:
                self._fetch_snapshot(staging)
            self._fetch_files(staging)
            self._move_in(staging)
        except OSError as cause:
            raise StorageError(
                f"experiment {self._store.url} cannot be copied to {self._directory}: {cause}"
            ) from cause
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return Fetched(self._reader.tail[:2], self._reader.missing)

    def _read_declaration(self) -> bytes:
        content = self._store.get_if_exists(layout.DECLARATION, SMALL_BYTES)
        if content is not None:
            return content
        # A driver that died before it had stored the declaration leaves a lock and nothing else.
        if any(key.partition("/")[0] not in _BEFORE_DECLARATION for key in self._sizes):
            raise StorageError(
                f"{self._store.url} has no {layout.DECLARATION}, but other objects of an "
                "experiment; put it back from a backup, or an older version of it where the store "
                "keeps versions"
            )
        raise StorageError(f"there is no experiment in {self._store.url}; check the URL")

    def _write_journal(self, journal: Path) -> None:
        previous, epoch, lines = JournalPosition(), 0, bytearray()
        for piece in self._reader:
            if len(lines) >= SEGMENT_BYTES:
                _write_segment(journal, previous, epoch, lines)
                previous, lines = JournalPosition(*piece.previous), bytearray()
            epoch = epoch if lines else piece.epoch
            lines += piece.lines
        if lines:
            _write_segment(journal, previous, epoch, lines)
        # The declaration may have been stored by a driver that has not stored any record. What is
        # missing shows in the pieces, so the mark in the declaration need not show it.
        tail = self._reader.tail
        epoch = max(tail.epoch, self._declared_epoch())
        _write_segment(journal, tail, epoch, b"")

    def _declared_epoch(self) -> int:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            epoch = strict_json.loads(self._declaration)[MARK]["epoch"]
            return epoch if type(epoch) is int else 0
        return 0

    def _check_complete(self) -> None:
        """Refuse a journal that ends before what other objects contain."""
        tail = self._reader.tail
        newest = max((sequence for sequence, _ in self._snapshots(None)), default=0)
        missing = []
        if newest > tail.sequence:
            missing.append(f"a snapshot was taken behind record {newest}")
        elif (ended_with := self._ended_with()) > tail.sequence:
            missing.append(f"its last driver has ended with record {ended_with}")
        elif not self.starts or not tail.sequence:
            key = next((key for key in self._sizes if layout.is_trial(key.partition("/")[0])), "")
            missing += [f"{key} is there, but no record of it"] if key else []
        if missing and not self._is_salvage:
            raise pieces.incomplete_error(self._store, tail, missing)
        self._reader.missing += missing

    def _ended_with(self) -> int:
        """Return the last record of a driver that had ended before the pieces were listed."""
        epoch = max(self.starts, default=0)
        return released_sequence(self._store, epoch) if released_key(epoch) in self._sizes else 0

    def _snapshots(self, up_to: int | None) -> list[tuple[int, str]]:
        """Return last record and key of the snapshots that count, the newest first."""
        ends = {part.epoch: part.end for part in stretches(self.starts)}
        found = [(int(name[2]), int(name[1]), name[0]) for name in _matches(_SNAPSHOT, self._sizes)]
        return sorted(
            (
                (sequence, key)
                for sequence, epoch, key in found
                if epoch in ends
                and ((end := ends[epoch]) is None or sequence <= end)
                and (up_to is None or sequence <= up_to)
            ),
            reverse=True,
        )

    def _fetch_snapshot(self, staging: Path) -> None:
        for _, key in self._snapshots(self._reader.tail.sequence):
            path = staging / layout.SNAPSHOT / key.rpartition("/")[2]
            # An older one may be removed meanwhile, when a newer one has been stored.
            with suppress(FileNotFoundError):
                self._store.download({key: path})
                try:
                    snapshot_files.load(path)
                except (OSError, ValueError, KeyError, TypeError) as cause:
                    warnings.warn(
                        f"snapshot {self._store.url}/{key} is damaged ({cause}); going on from an "
                        "older state",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                    path.unlink()
                else:
                    return

    def _fetch_files(self, staging: Path) -> None:
        wanted = [key for key in self._sizes if _FETCHED.fullmatch(key)]
        if self._with_logs:
            wanted += [
                name[0] for name in _matches(_LOG, self._sizes) if not _REBUILT.fullmatch(name[0])
            ]
        too_large = [key for key in wanted if self._sizes[key] > LARGE_BYTES]
        if too_large:
            raise StorageError(
                f"{self._store.url}/{too_large[0]} has {self._sizes[too_large[0]]} bytes, and at "
                f"most {LARGE_BYTES} are copied; delete it"
            )
        if wanted:
            self._store.download({key: staging / key for key in wanted})

    def _move_in(self, staging: Path) -> None:
        # The declaration last: without it the directory is no experiment, and the copy is made
        # again.
        names = sorted(os.listdir(staging), key=lambda name: name == layout.DECLARATION)  # noqa: PTH208
        for name in names:
            (staging / name).rename(self._directory / name)
        LOCAL_DISK.sync_directory(self._directory)


def _write_segment(
    journal: Path, previous: JournalPosition, epoch: int, lines: bytes | bytearray
) -> None:
    path = segment_path(journal, previous.sequence + 1)
    header = header_line(previous.sequence + 1, previous, epoch)
    atomic.write_bytes(path, header + lines)


def _matches(pattern: re.Pattern[str], keys: Mapping[str, int]) -> list[re.Match[str]]:
    return [name for name in map(pattern.fullmatch, keys) if name]


# -------------------------------------------------------------------------------------------------
# The working copy of a driver


def prepare_working_copy(
    store: ObjectStore, lock: ExperimentLock, directory: Path, epoch: int, *, is_salvage: bool
) -> RecordId:
    """Bring the local copy of an experiment up to date, from which a driver continues.

    A local copy of the epoch before this one that contains all that is stored is kept, since it may
    contain more. Any other one is moved aside, and the experiment copied from the store.

    Args:
        store: The experiment's directory in the store; `epoch` is locked there.
        lock: The lock of the local directory, which is held.
        directory: The local directory.
        epoch: The epoch of this driver.
        is_salvage: Whether to continue from what is before damage or a gap.

    Returns:
        The last record that is stored and counts, after which this epoch continues.

    Raises:
        DamagedJournal: If a part of the journal is missing or does not verify.
        StorageError: If there is no experiment, or another one in the local directory.
    """
    end = None
    if (directory / layout.DECLARATION).is_file():
        end = _end_in_local_copy(store, directory)
    if end is None:
        _move_aside(directory)
        # It notes which segment the copy that was there had.
        lock.note_segment(0, 0)
        end = fetch_experiment(store, directory, is_salvage=is_salvage).end
    # Before the epoch begins in the store: if this driver dies in between, its copy is still the
    # one that counts.
    note_epoch(directory, epoch)
    return end


def note_epoch(directory: Path, epoch: int) -> None:
    """Note in a local copy that it is driven under an epoch of the store.

    Raises:
        StorageError: If it cannot be written.
    """
    path = directory / layout.STORAGE_EPOCH
    try:
        atomic.write_text(path, strict_json.dumps({"epoch": epoch}) + "\n")
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}") from cause


def read_epoch(directory: Path) -> int:
    """Return by which epoch a local copy was last driven, 0 if that was not noted."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        epoch = strict_json.loads(read_file(directory / layout.STORAGE_EPOCH, SMALL_BYTES))["epoch"]
        return epoch if type(epoch) is int else 0
    return 0


def _end_in_local_copy(store: ObjectStore, directory: Path) -> RecordId | None:
    """Return the last stored record if the local copy contains it and is the newest, else None."""
    stored = store.get_if_exists(layout.DECLARATION, SMALL_BYTES)
    identity = _identity_of(read_declaration(directory))
    if stored is not None and _identity_in(stored) not in {identity, ""}:
        raise StorageError(
            f"{directory} contains another experiment than {store.url}; move it away, or choose "
            "another local_dir"
        )
    reader = PieceReader(store, is_salvage=True)
    if read_epoch(directory) < max(reader.starts, default=1):
        return None
    for _ in reader:
        pass
    end = reader.tail[:2]
    if not reader.missing:
        return end if _contains(directory, end) else None
    return _end_before_damage(store, directory, reader)


def _end_before_damage(store: ObjectStore, directory: Path, reader: PieceReader) -> RecordId | None:
    """Return the last record before what the store lacks, None if the local copy cannot mend it.

    The new epoch continues there, so what the local copy contains behind it is stored again.
    """
    try:
        newest = pieces.find_end(store, reader.starts)
    except DamagedJournal:
        newest = reader.starts[max(reader.starts)]
    whole = reader.tail[:2]
    if not (_contains(directory, newest) and _contains(directory, whole)):
        return None
    _log.warning(
        "the journal in %s is damaged behind record %d (%s); it is stored again from the local "
        "copy in %s",
        store.url,
        whole[0],
        ", ".join(reader.missing),
        directory,
    )
    return whole


def _identity_of(declaration: Any) -> str:
    return str(declaration.get("id") or declaration.get("created", ""))


def _identity_in(content: bytes) -> str:
    """Return the identity of a stored declaration, empty if it cannot be read."""
    with suppress(ValueError, AttributeError, RecursionError):
        return _identity_of(strict_json.loads(content))
    return ""


def _contains(directory: Path, record: RecordId) -> bool:
    """Return whether a journal verifies and contains a record."""
    try:
        crc = 0
        for number, body in enumerate(verified(directory, 0, LOCAL_DISK), start=1):
            if number == record[0]:
                crc = zlib.crc32(body)
        return find_end(directory).tail.sequence >= record[0] and crc == record[1]
    except StorageError as error:
        _log.warning("%s", error)
        return False


def _move_aside(directory: Path) -> None:
    own = [name for name in sorted(os.listdir(directory)) if _is_movable(name)]  # noqa: PTH208
    if not own:
        return
    aside = _unused_sibling(directory)
    try:
        aside.mkdir()
        # The declaration first: without it the rest is no experiment any more, and is moved aside
        # by the next restore where this one ends here.
        for name in sorted(own, key=lambda name: name != layout.DECLARATION):
            (directory / name).rename(aside / name)
    except OSError as cause:
        raise StorageError(
            f"the local copy in {directory} cannot be moved to {aside}: {cause}; move it yourself"
        ) from cause
    _log.warning(
        "the local copy in %s is older than the stored experiment, or has gone on from another "
        "state of it; it is kept in %s, and the stored one is used",
        directory,
        aside,
    )


def _is_movable(name: str) -> bool:
    # What is kept aside is no copy any more: it is restored as it is.
    return layout.is_own(name) and name not in {layout.LOCK, layout.ORIGIN}


def _unused_sibling(directory: Path) -> Path:
    number = 1
    while os.path.lexists(aside := directory.with_name(f"{directory.name}.aside-{number}")):
        number += 1
    return aside


def _remove_own(directory: Path) -> None:
    for name in os.listdir(directory):  # noqa: PTH208
        if _is_movable(name):
            path = directory / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
