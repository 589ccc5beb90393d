"""Checkpoints in an object store: uploaded with the manifest last, verified when downloaded.

A checkpoint is the directory ``<trial>/checkpoint_<index>.e<epoch>a<attempt>`` of the experiment's
store. The driver's epoch and the trial's attempt make its name unique: whatever a driver that has
been fenced still uploads, it overwrites nothing. A directory without a manifest is no checkpoint,
and one that no record names is an orphan, which `ObjectCheckpoints.sweep` deletes.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from tuner.core.worker_records import CheckpointRecord, checkpoint_directory_name
from tuner.errors import CheckpointError, StorageError, StorageUnreachable
from tuner.storage.checkpoint_directories import publish
from tuner.storage.checkpoint_names import check_directory_name
from tuner.storage.directories import make_folder, make_own_folder
from tuner.storage.disk import SMALL_BYTES, has_content, read_file, write_bytes
from tuner.storage.layout import (
    CHECKPOINT_PREFIX,
    MANIFEST,
    METADATA,
    STAGING_PREFIX,
    trial_directory,
)
from tuner.storage.manifest import (
    Manifest,
    PartContents,
    make_folders,
    make_links,
    read_manifest,
    verify,
)
from tuner.storage.trees import sync_files

from .checkpoint_cache import CheckpointCache, Key
from .object_store import ObjectStore

_NAME: Final = re.compile(CHECKPOINT_PREFIX + r"\d{6,18}\.e(\d{1,18})a\d{1,18}")
_PROOF: Final = re.compile(r"probe/e(\d{1,18})-[0-9a-f-]+")
_PAUSES_S: Final = (0.0, 0.2, 1.0)
"""Before a listing is compared again, for stores that list what is new with a delay."""


@final
class ObjectCheckpoints:
    """The checkpoints of an experiment in an object store, and their local copies.

    Safe to use by several threads, though not twice at a time for one checkpoint.

    Args:
        store: The experiment's directory in the store.
        experiment: The local directory in which its driver works.
        epoch: The driver's, see `RemoteLock`.
        sync: Whether a downloaded copy is on disk before it is used.
        cache_bytes: How large local copies that are not in use may be together; None for a tenth of
            the disk.
        await_journal: Called before each upload; returns when the store has a journal, or raises.

    Attributes:
        cache: The local copies of what is in the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        experiment: Path,
        epoch: int,
        *,
        sync: bool = True,
        cache_bytes: int | None = None,
        await_journal: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._experiment = experiment
        self._epoch = epoch
        self._await_journal = await_journal
        self._sync = sync
        self.cache = CheckpointCache(experiment, cache_bytes)

    def remote_name(self, index: int, attempt: int) -> str:
        """Return the name that a checkpoint of the present driver has in the store.

        Example:
            >>> store = ObjectStore("memory://bucket/run")
            >>> ObjectCheckpoints(store, Path.cwd(), epoch=7).remote_name(3, attempt=2)
            'checkpoint_000003.e7a2'
        """
        return f"{checkpoint_directory_name(index)}.e{self._epoch}a{attempt}"

    def path(self, trial_id: str, record: CheckpointRecord) -> Path:
        """Return the directory of a checkpoint's local copy, which need not exist.

        Raises:
            CheckpointError: If the recorded name would lead out of the trial's directory.
        """
        if record.name:
            with _raising_checkpoint_error(f"checkpoint {record.index} of trial {trial_id}"):
                check_directory_name(record.name)
        return trial_directory(self._experiment, trial_id) / record.directory

    @property
    def url(self) -> str:
        """The experiment's directory in the store, for messages."""
        return self._store.url

    @property
    def outage_s(self) -> float:
        return self._store.outage_s

    def upload(
        self,
        trial_id: str,
        record: CheckpointRecord,
        remote: str,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> int:
        """Upload a committed checkpoint, its manifest last, and return its size in bytes.

        Args:
            trial_id: The trial.
            record: The checkpoint; its local copy must not change meanwhile.
            remote: Name of its directory in the store, which no other checkpoint has had.
            is_wanted: Asked before the manifest is created; if not, what was uploaded is deleted.

        Raises:
            CheckpointError: If the local copy cannot be read, or the store does not keep what is
                uploaded. What was uploaded is no checkpoint then.
            StorageUnreachable: If the store did not answer, or refused.
        """
        path, place = self.path(trial_id, record), self._place(trial_id, remote)
        # A store with checkpoints and without any record looks as if its journal was lost.
        self._await_journal()
        with _raising_checkpoint_error(str(path)):
            content = read_file(path / MANIFEST, SMALL_BYTES)
            manifest = read_manifest(path)
            sizes = {name: entry.size_bytes for name, entry in manifest.files.items()}
            _upload(place, path, sizes, with_metadata=(path / METADATA).is_file())
            # One with a name of its own is replaced by a later checkpoint of that name.
            if manifest.index != record.index or not has_content(path / MANIFEST, content):
                raise CheckpointError(f"checkpoint {path} was replaced while it was uploaded")
        if not is_wanted():
            place.delete(place.list())
        elif not place.create(MANIFEST, content):
            raise CheckpointError(f"{place.url} holds another checkpoint already")
        return size_of(manifest)

    def upload_files(
        self,
        trial_id: str,
        remote: str,
        path: Path,
        sizes: Mapping[str, int],
        *,
        with_metadata: bool,
    ) -> None:
        """Upload files of a checkpoint of which other machines have others; see `complete`.

        Args:
            trial_id: The trial.
            remote: Name of its directory in the store, which no other checkpoint has had.
            path: The local directory, which must not change meanwhile.
            sizes: Sizes in bytes of the files by name.
            with_metadata: Whether the user's metadata is among them.

        Raises:
            CheckpointError: If a file cannot be read, or the store does not keep what is uploaded.
            StorageUnreachable: If the store did not answer, or refused.
        """
        place = self._place(trial_id, remote)
        self._await_journal()
        with _raising_checkpoint_error(str(path)):
            _upload(place, path, sizes, with_metadata=with_metadata)

    def complete(self, trial_id: str, remote: str, manifest: str, contents: PartContents) -> None:
        """Create the manifest of a checkpoint whose files `upload_files` has uploaded.

        Raises:
            CheckpointError: If the store lacks a file.
            StorageUnreachable: If the store did not answer, or refused.
        """
        place = self._place(trial_id, remote)
        sizes = {name: entry.size_bytes for name, entry in contents.files.items()}
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            listed = place.list()
            missing = [name for name in sizes if listed.get(name) != sizes[name]]
            if not missing:
                break
        else:
            raise CheckpointError(
                f"{place.url} lists {missing[0]} with {listed.get(missing[0], 'no')} bytes, and a "
                f"node has uploaded {sizes[missing[0]]}; check the store"
            )
        if not place.create(MANIFEST, manifest.encode()):
            raise CheckpointError(f"{place.url} holds another checkpoint already")

    def download(self, trial_id: str, record: CheckpointRecord) -> int:
        """Replace the local copy of a checkpoint by what the store holds, once that is verified.

        Returns:
            Its size in bytes.

        Raises:
            CheckpointError: If the store does not hold it, or it is damaged there.
            OSError: If the local copy cannot be written.
            StorageUnreachable: If the store did not answer, or refused.
        """
        path, place = self.path(trial_id, record), self._place(trial_id, record.remote)
        trial_dir = trial_directory(self._experiment, trial_id)
        make_own_folder(trial_dir)
        staging = trial_dir / f"{STAGING_PREFIX}download-{secrets.token_hex(6)}"
        staging.mkdir(0o700)
        try:
            manifest = _download(place, staging)
            if (manifest.trial_id, manifest.index) != (trial_id, record.index):
                raise CheckpointError(
                    f"{place.url} is checkpoint {manifest.index} of trial {manifest.trial_id}, not "
                    f"{record.index} of {trial_id}"
                )
            if self._sync:
                names = (*manifest.files, *manifest.directories)
                sync_files(f"{staging}/{name}" for name in names)
            make_folder(path.parent)
            publish(staging, path, sync=self._sync)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return size_of(manifest)

    def find_local_damage(
        self, trial_id: str, record: CheckpointRecord, *, with_hashes: bool
    ) -> str:
        """Return why the local copy cannot be used, empty if it can.

        Args:
            trial_id: The trial.
            record: The checkpoint.
            with_hashes: Whether contents are compared with the manifest, or names and sizes only.
        """
        try:
            path = self.path(trial_id, record)
            manifest = verify(path, with_hashes=with_hashes)
        except (CheckpointError, OSError) as damage:
            return str(damage)
        if manifest.index != record.index:
            return f"{path} holds checkpoint {manifest.index}"
        return ""

    def adopt(self, recorded: Iterable[tuple[str, CheckpointRecord]]) -> None:
        """Add the local copies that earlier drivers have left to the cache, the oldest first.

        Args:
            recorded: Trial and record of each checkpoint.
        """
        found: list[tuple[int, str, CheckpointRecord, int]] = []
        for trial_id, record in recorded:
            if record.remote:
                with suppress(CheckpointError, OSError):
                    path = self.path(trial_id, record)
                    size_bytes = size_of(read_manifest(path))
                    found.append((path.stat().st_mtime_ns, trial_id, record, size_bytes))
        for _, trial_id, record, size_bytes in sorted(found, key=lambda one: one[0]):
            self.add_copy(trial_id, record, size_bytes)
        self.cache.trim()

    def add_copy(self, trial_id: str, record: CheckpointRecord, size_bytes: int) -> None:
        """Add the local copy of a checkpoint in the store to the cache."""
        self.cache.add(
            (trial_id, record.remote),
            self.path(trial_id, record),
            record.index,
            size_bytes,
            has_own_name=bool(record.name),
        )

    def delete(self, trial_id: str, remote: str) -> None:
        """Delete a checkpoint in the store; its local copy stays.

        Raises:
            CheckpointError: If that is no name of a checkpoint in a store.
            StorageUnreachable: If the store did not answer, or refused.
        """
        place = self._place(trial_id, remote)
        # First: a checkpoint of which half is deleted never looks complete.
        place.delete([MANIFEST])
        place.delete(place.list())

    def sweep(self, recorded: Collection[Key]) -> list[str]:
        """Delete what earlier drivers have uploaded and no record names, and their proofs.

        Args:
            recorded: Trial and name in the store of each checkpoint that the present driver found
                recorded when it began; its own ones are left.

        Returns:
            What was deleted, as ``<trial>/<name>``.

        Raises:
            StorageError: If the store did not answer, or refused.
        """
        orphans: dict[Key, list[str]] = {}
        keys = self._store.list()
        proofs = {key: proof for key in keys if (proof := _PROOF.fullmatch(key))}
        self._store.delete(key for key, proof in proofs.items() if int(proof[1]) < self._epoch)
        for key in keys:
            trial_id, _, rest = key.partition("/")
            name = rest.partition("/")[0]
            found = _NAME.fullmatch(name)
            if found and int(found[1]) < self._epoch and (trial_id, name) not in recorded:
                orphans.setdefault((trial_id, name), []).append(key)
        for (trial_id, name), parts in orphans.items():
            self._store.delete([f"{trial_id}/{name}/{MANIFEST}"])
            self._store.delete(parts)
        return [f"{trial_id}/{name}" for trial_id, name in orphans]

    def _place(self, trial_id: str, remote: str) -> ObjectStore:
        trial_directory(self._experiment, trial_id)  # checks the id
        if not is_remote_name(remote):
            raise CheckpointError(
                f"{remote!r} is no name of a checkpoint in a store, like 'checkpoint_000003.e7a2'; "
                "the experiment is damaged"
            )
        return self._store.child(f"{trial_id}/{remote}")


def proof_prefix(epoch: int) -> str:
    """Return how the keys begin of objects that prove that nodes use the same store as a driver.

    Example:
        >>> proof_prefix(7)
        'probe/e7-'
    """
    return f"probe/e{epoch}-"


def is_remote_name(name: str) -> bool:
    """Return whether a checkpoint's directory in a store could have this name.

    Example:
        >>> is_remote_name("checkpoint_000003.e7a2"), is_remote_name("../checkpoint_000003.e7a2")
        (True, False)
    """
    return _NAME.fullmatch(name) is not None


def size_of(manifest: Manifest) -> int:
    """Return the size of a checkpoint's files together, in bytes."""
    return sum(entry.size_bytes for entry in manifest.files.values())


def _upload(
    place: ObjectStore, path: Path, sizes: Mapping[str, int], *, with_metadata: bool
) -> None:
    """Upload the files of a checkpoint, and compare names and sizes with what the store lists."""
    place.upload({name: path / name for name in sizes})
    if with_metadata:
        place.upload({METADATA: path / METADATA})
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        listed = place.list()
        missing = [name for name, size_bytes in sizes.items() if listed.get(name) != size_bytes]
        if not missing:
            return
        place.upload({name: path / name for name in missing})
    name = missing[0]
    raise CheckpointError(
        f"{place.url} lists {name} with {listed.get(name, 'no')} bytes after it was uploaded with "
        f"{sizes[name]}; check that the local file does not change, and the store"
    )


def _download(place: ObjectStore, staging: Path) -> Manifest:
    """Download a checkpoint into an empty directory, verify it, and return its manifest."""
    with _raising_checkpoint_error(place.url, staging):
        try:
            content = place.get(MANIFEST, SMALL_BYTES)
        except FileNotFoundError as cause:
            raise CheckpointError(
                f"{place.url} is no complete checkpoint: it has no {MANIFEST}"
            ) from cause
        write_bytes(staging / MANIFEST, content, sync=False)
        manifest = read_manifest(staging)
        make_folders(staging, manifest)
        try:
            place.download({name: staging / name for name in manifest.files})
        except FileNotFoundError as cause:
            raise CheckpointError(f"a file of {place.url} is missing") from cause
        metadata = place.get_if_exists(METADATA, SMALL_BYTES)
        if metadata is not None:
            write_bytes(staging / METADATA, metadata, sync=False)
        # After the files, none of which is written through a link then.
        make_links(staging, manifest)
        verify(staging)
    return manifest


@contextmanager
def _raising_checkpoint_error(what: str, staging: Path | None = None) -> Iterator[None]:
    """Raise a `CheckpointError` for what cannot be read or named.

    Args:
        what: The checkpoint.
        staging: Directory that messages are not to name, but the checkpoint instead.
    """
    try:
        yield
    except StorageUnreachable:
        raise
    except CheckpointError as damage:
        if staging is None:
            raise
        raise CheckpointError(str(damage).replace(str(staging), what)) from damage
    except (FileNotFoundError, ValueError, StorageError) as cause:
        raise CheckpointError(f"checkpoint {what} cannot be used: {cause}") from cause
