"""Local copies of experiments that are kept in an object store, to restore or to read them."""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import warnings
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import DamagedJournal, StorageError
from tuner.journal import snapshot_files
from tuner.journal.mark import MARK
from tuner.journal.reader import verified
from tuner.journal.segments import START, JournalPosition, header_line
from tuner.journal.writer import SEGMENT_BYTES
from tuner.storage import layout, strict_json
from tuner.storage.declaration import read_declaration
from tuner.storage.directories import make_folder
from tuner.storage.disk import (
    LARGE_BYTES,
    LOCAL_DISK,
    SMALL_BYTES,
    read_file,
    temporary_sibling,
    write_bytes,
    write_text,
)
from tuner.storage.lock import ExperimentLock
from tuner.stores import pieces

from .object_store import ObjectStore
from .pieces import ORIGIN, PieceReader, RecordId, read_starts, stretches
from .remote_lock import released_key, released_sequence

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


def fetch_experiment(
    store: ObjectStore,
    directory: Path,
    *,
    with_logs: bool = True,
    is_salvage: bool = False,
) -> RecordId:
    """Copy an experiment from an object store, without its checkpoints, and verify it.

    The store is not changed, and no lock is taken: of an experiment that is running, this gives a
    state in which it was. Log files that the journal contains (``result.json``, ``progress.csv``
    and TensorBoard's) are not copied.

    Args:
        store: The experiment's directory in the store.
        directory: Where the copy is made; it holds at most a lock file.
        with_logs: Whether to copy the other files of trials, such as their output.
        is_salvage: Whether to copy what is before damage or a gap, instead of raising.

    Returns:
        The last record of its journal.

    Raises:
        DamagedJournal: If a part of the journal is missing or does not verify.
        StorageError: If there is no experiment, or it cannot be copied.
    """
    for _ in range(_NUM_TRIES):
        fetch = _Fetch(store, is_salvage=is_salvage)
        staging = temporary_sibling(directory / "fetched")
        try:
            make_folder(staging / layout.JOURNAL)
            fetch.into(staging, with_logs=with_logs)
            # Where another driver has begun meanwhile, records may have been copied that it did not
            # find, and that do not count.
            if read_starts(store) == fetch.reader.starts:
                _move(staging, directory)
                return fetch.reader.tail[:2]
        except OSError as cause:
            raise StorageError(
                f"experiment {store.url} cannot be copied to {directory}: {cause}"
            ) from cause
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    raise StorageError(
        f"experiment {store.url} was taken over {_NUM_TRIES} times while it was copied; try again"
    )


@final
class _Fetch:
    def __init__(self, store: ObjectStore, *, is_salvage: bool) -> None:
        self._store = store
        self._is_salvage = is_salvage
        # Before the pieces: a driver stores a snapshot when the records that it contains have been.
        self._sizes = store.list()
        self._declaration = self._read_declaration()
        self.reader = PieceReader(store, is_salvage=is_salvage, keys=self._sizes)

    def into(self, staging: Path, *, with_logs: bool) -> None:
        (staging / layout.DECLARATION).write_bytes(self._declaration)
        self._write_journal(staging / layout.JOURNAL)
        snapshots = self._snapshots()
        self._check_complete(snapshots)
        if not self._is_salvage:
            self._fetch_snapshot(staging, snapshots)
        self._fetch_files(staging, with_logs=with_logs)

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
        """Write the pieces as segments, which they are, but fewer of them."""
        previous, epoch, lines = START, 0, bytearray()
        for piece in self.reader:
            if len(lines) >= SEGMENT_BYTES:
                _write_segment(journal, previous, epoch, lines)
                previous, lines = JournalPosition(*piece.previous), bytearray()
            epoch = epoch if lines else piece.epoch
            lines += piece.lines
        if lines:
            _write_segment(journal, previous, epoch, lines)
        # The declaration may have been stored by a driver that has not stored any record. What is
        # missing shows in the pieces, so the mark in the declaration need not show it.
        tail, declared = self.reader.tail, 0
        with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):
            declared = int(strict_json.loads(self._declaration)[MARK]["epoch"])
        _write_segment(journal, tail, max(tail.epoch, declared), b"")

    def _check_complete(self, snapshots: Mapping[int, str]) -> None:
        """Refuse a journal that ends before what other objects contain."""
        newest, epoch = max(snapshots, default=0), max(self.reader.starts, default=0)
        evidence = [(newest, snapshots.get(newest, ""))]
        if (key := released_key(epoch)) in self._sizes:
            evidence.append((released_sequence(self._store, epoch), key))
        trials = (key for key in self._sizes if layout.is_trial(key.partition("/")[0]))
        evidence += [(1, key) for key in itertools.islice(trials, 1)]
        for sequence, key in evidence:
            self.reader.require(sequence, key)

    def _snapshots(self) -> dict[int, str]:
        """Return the keys of the snapshots that count, by their last records."""
        ends = {part.epoch: part.end for part in stretches(self.reader.starts)}
        found = {}
        for name in filter(None, map(_SNAPSHOT.fullmatch, self._sizes)):
            epoch, sequence = int(name[1]), int(name[2])
            if epoch in ends and ((end := ends[epoch]) is None or sequence <= end):
                found[sequence] = name[0]
        return found

    def _fetch_snapshot(self, staging: Path, snapshots: Mapping[int, str]) -> None:
        for sequence in sorted(snapshots, reverse=True):
            key, path = snapshots[sequence], staging / layout.SNAPSHOT / f"{sequence:020d}.json"
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

    def _fetch_files(self, staging: Path, *, with_logs: bool) -> None:
        wanted = [
            key
            for key in self._sizes
            if _FETCHED.fullmatch(key)
            or (with_logs and _LOG.fullmatch(key) and not _REBUILT.fullmatch(key))
        ]
        for key in wanted:
            if self._sizes[key] > LARGE_BYTES:
                raise StorageError(
                    f"{self._store.url}/{key} has {self._sizes[key]} bytes, and at most "
                    f"{LARGE_BYTES} are copied; delete it"
                )
        self._store.download({key: staging / key for key in wanted})


def _move(staging: Path, directory: Path) -> None:
    # The declaration last: without it the directory is no experiment, and the copy is made again.
    for path in sorted(staging.iterdir(), key=lambda path: path.name == layout.DECLARATION):
        path.rename(directory / path.name)
    LOCAL_DISK.sync_directory(directory)


def _write_segment(
    journal: Path, previous: JournalPosition, epoch: int, lines: bytes | bytearray
) -> None:
    path = layout.segment_path(journal, previous.sequence + 1)
    header = header_line(previous.sequence + 1, previous, epoch)
    write_bytes(path, header + lines)


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
        end = fetch_experiment(store, directory, is_salvage=is_salvage)
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
        write_text(path, strict_json.dumps({"epoch": epoch}) + "\n")
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}") from cause


def read_epoch(directory: Path) -> int:
    """Return by which epoch a local copy was last driven, 0 if that was not noted."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        epoch = strict_json.loads(read_file(directory / layout.STORAGE_EPOCH, SMALL_BYTES))["epoch"]
        return epoch if type(epoch) is int else 0
    return 0


def _end_in_local_copy(store: ObjectStore, directory: Path) -> RecordId | None:
    """Return the last stored record if the local copy contains it and is the newest, else None.

    Where the store lacks something that the local copy has, it is the last record before that: the
    new epoch continues there, so what is behind it is stored again.
    """
    stored = store.get_if_exists(layout.DECLARATION, SMALL_BYTES)
    if stored is not None and _identity_in(stored) not in {
        _identity(read_declaration(directory)),
        "",
    }:
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
        return end if _contains(directory, {end}) else None
    try:
        newest = pieces.find_end(store, reader.starts)
    except DamagedJournal:
        newest = reader.starts[max(reader.starts)]
    if not _contains(directory, {newest, end}):
        return None
    _log.warning(
        "the journal in %s is damaged behind record %d (%s); it is stored again from the local "
        "copy in %s",
        store.url,
        end[0],
        ", ".join(reader.missing),
        directory,
    )
    return end


def _identity(declaration: Any) -> str:
    return str(declaration.get("id") or declaration.get("created", ""))


def _identity_in(content: bytes) -> str:
    """Return the identity of a stored declaration, empty if it cannot be read."""
    with suppress(ValueError, AttributeError, RecursionError):
        return _identity(strict_json.loads(content))
    return ""


def _contains(directory: Path, records: set[RecordId]) -> bool:
    """Return whether a journal verifies and contains records."""
    found = {ORIGIN}
    try:
        for number, body in enumerate(verified(directory, 0, LOCAL_DISK), start=1):
            if any(number == wanted for wanted, _ in records):
                found.add((number, zlib.crc32(body)))
    except StorageError as error:
        _log.warning("%s", error)
        return False
    return records <= found


def _move_aside(directory: Path) -> None:
    # What is kept aside is no copy any more: it is restored as it is.
    kept = {layout.LOCK, layout.ORIGIN}
    own = [path for path in sorted(directory.iterdir()) if layout.is_own(path.name)]
    own = [path for path in own if path.name not in kept]
    if not own:
        return
    number = 1
    while os.path.lexists(aside := directory.with_name(f"{directory.name}.aside-{number}")):
        number += 1
    try:
        aside.mkdir()
        # The declaration first: without it the rest is no experiment any more, and is moved aside
        # by the next restore where this one ends here.
        for path in sorted(own, key=lambda path: path.name != layout.DECLARATION):
            path.rename(aside / path.name)
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
