"""Inventory of the object store of an experiment: its checkpoints, and leftovers to delete."""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from tuner.analysis.open_experiment import StoredExperiment
from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.storage.disk import SMALL_BYTES
from tuner.storage.layout import MANIFEST
from tuner.storage.manifest import read_manifest
from tuner.storage.origin import Origin, origin_of
from tuner.stores.object_backends import resolve
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_errors import describe
from tuner.stores.object_store import ObjectStore
from tuner.stores.remote_lock import present_driver

_CHECKPOINT: Final = re.compile(r"([^/]+)/(checkpoint_\d{6,18}\.e(\d+)a\d+)/.+")


def inventory_of(experiment: Path) -> StoreInventory | None:
    """Return what the store holds of the experiment in a directory; None if it is in no store.

    Raises:
        StorageUnreachable: If the store does not answer, or refuses, or was reached through a file
            system that only the experiment's script has.
    """
    origin = origin_of(experiment)
    if origin is None:
        return None
    if origin.has_filesystem and not origin.is_copy:
        raise StorageUnreachable(
            f"{origin.url} was reached through a storage_filesystem, which is not known here; "
            "checkpoints in the store are not examined"
        )
    return StoreInventory(origin)


@final
class StoreInventory:
    """A listing of an experiment's directory in its object store.

    Args:
        origin: Where that is.

    Attributes:
        store: The directory.
    """

    def __init__(self, origin: Origin) -> None:
        self.store = ObjectStore(origin.url)
        self._sizes = self.store.list()
        self._checkpoint_bytes: dict[tuple[str, str], int] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        for key, size_bytes in self._sizes.items():
            if found := _CHECKPOINT.fullmatch(key):
                place = found[1], found[2]
                self._checkpoint_bytes[place] = self._checkpoint_bytes.get(place, 0) + size_bytes
                self._epochs[place] = int(found[3])

    @property
    def total_bytes(self) -> int:
        """The size of all objects."""
        return sum(self._sizes.values())

    def size_of(self, trial_id: str, record: CheckpointRecord) -> int:
        """Return the size of a checkpoint in bytes, 0 if it is not there."""
        return self._checkpoint_bytes.get((trial_id, record.remote), 0)

    def find_damage(self, trial_id: str, record: CheckpointRecord, *, is_deep: bool) -> str:
        """Return what is wrong with a checkpoint in the store, empty for nothing.

        Args:
            trial_id: The trial.
            record: The checkpoint.
            is_deep: Whether it is downloaded and its contents are compared with the manifest; else
                only names and sizes are.

        Raises:
            StorageUnreachable: If the store does not answer, or refuses.
        """
        place = self.store.child(f"{trial_id}/{record.remote}")
        content = place.get_if_exists(MANIFEST, SMALL_BYTES)
        if content is None:
            return f"{place.url} is no complete checkpoint: it has no {MANIFEST}"
        with tempfile.TemporaryDirectory() as folder:
            try:
                if is_deep:
                    ObjectCheckpoints(self.store, Path(folder), 0).download(trial_id, record)
                    return ""
                (Path(folder) / MANIFEST).write_bytes(content)
                files = read_manifest(folder).files
            except CheckpointError as damage:
                return str(damage).replace(folder, place.url)
        for name, entry in files.items():
            found = self._sizes.get(f"{trial_id}/{record.remote}/{name}")
            if found != entry.size_bytes:
                there = "is missing" if found is None else f"has {found} bytes"
                return f"{place.url}/{name} {there}, and had {entry.size_bytes} bytes"
        return ""

    def orphans(self, stored: StoredExperiment) -> dict[tuple[str, str], int]:
        """Return the sizes of checkpoints that no record names, by trial and name.

        While a driver runs, those of its epoch may be recorded yet.
        """
        recorded = {
            (trial.trial_id, record.remote)
            for trial in stored.experiment.trials
            for record in trial.checkpoints
        }
        driver = present_driver(self.store)
        epoch = driver.epoch if driver else None
        return {
            place: size_bytes
            for place, size_bytes in self._checkpoint_bytes.items()
            if place not in recorded and self._epochs[place] != epoch
        }

    def unfinished_uploads(self) -> int | None:
        """Return how many multipart uploads were not completed; None where that is not known.

        Their parts are stored, and paid for, until they are aborted.

        Raises:
            StorageUnreachable: If the store does not answer, or refuses.
        """
        filesystem, root = resolve(self.store.url, None)
        call: Any = getattr(filesystem, "call_s3", None)
        if call is None:
            return None
        bucket, _, prefix = root.partition("/")
        try:
            answer = call("list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/")
        except Exception as cause:
            raise StorageUnreachable(
                f"the multipart uploads of {self.store.url} cannot be listed: {describe(cause)}"
            ) from cause
        return len(answer.get("Uploads") or ())

    def delete(self, trial_id: str, name: str) -> None:
        """Delete a checkpoint, its manifest first.

        Raises:
            StorageUnreachable: If the store does not answer, or refuses.
        """
        place = self.store.child(f"{trial_id}/{name}")
        place.delete([MANIFEST])
        with suppress(FileNotFoundError):
            place.delete(place.list())
