"""Files of snapshots: the state of an experiment after some record, which shortens a restore.

A snapshot is a shortcut and never the only copy of anything: the journal is complete. So a damaged
one is skipped with a warning, and one that cannot be written costs nothing but time.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import StorageError
from tuner.storage import layout, strict_json
from tuner.storage.disk import LOCAL_DISK, Disk, write_bytes
from tuner.wire.record import record

FORMAT: Final = 1
NUM_KEPT: Final = 2
MIN_PERIOD_S: Final = 60.0
QUIET_FACTOR: Final = 19
"""After a save of d seconds, 19 d without one: so saving takes at most a twentieth of the time."""

_NAME: Final = re.compile(r"(\d{20})\.json")


@record
class Snapshot:
    """The state of an experiment.

    Attributes:
        last_sequence: Number of the last record of the journal that it contains.
        state: JSON values.
    """

    last_sequence: int
    state: dict[str, Any]


def write(
    experiment: str | os.PathLike[str],
    state: Mapping[str, Any],
    last_sequence: int,
    *,
    sync: bool = True,
    disk: Disk = LOCAL_DISK,
) -> Path:
    """Write a snapshot, and remove all but the newest two.

    Args:
        experiment: Directory of the experiment.
        state: JSON values; what JSON cannot hold is written as its ``repr``.
        last_sequence: Number of the last record that the state contains; it has been synced.
        sync: Return only when it is on disk.
        disk: Where it lies.

    Returns:
        Its path.

    Raises:
        StorageError: If it cannot be written; the older ones are untouched then.
    """
    return write_parts(
        experiment,
        [strict_json.to_bytes(dict(state), strict_json.opaque)],
        last_sequence,
        sync=sync,
        disk=disk,
    )


def write_parts(
    experiment: str | os.PathLike[str],
    state: Sequence[bytes],
    last_sequence: int,
    *,
    sync: bool = True,
    disk: Disk = LOCAL_DISK,
) -> Path:
    """Write a snapshot whose state is JSON text already, in parts; see `write`."""
    directory = Path(experiment) / layout.SNAPSHOT
    path = directory / f"{last_sequence:020d}.json"
    body = [f'{{"format":{FORMAT},"last_sequence":{last_sequence},"state":'.encode(), *state, b"}"]
    try:
        disk.make_directory(directory)
        # Older ones are removed only after this one is in place, so that there is always one.
        write_bytes(path, *strict_json.seal_parts(body), sync=sync, disk=disk)
        older = paths(experiment, disk)[NUM_KEPT:]
    except OSError as cause:
        raise StorageError(f"no snapshot can be written in {directory}: {cause}") from cause
    for superseded in older:
        with suppress(OSError):  # it is tried again after the next one
            disk.remove(superseded)
    return path


def discard_after(
    experiment: str | os.PathLike[str], sequence: int, disk: Disk = LOCAL_DISK
) -> None:
    """Remove the snapshots that contain records after this one, which a power cut has taken.

    Raises:
        StorageError: If one cannot be removed.
    """
    # New records will get the numbers of the lost ones, and a restore from such a snapshot would
    # skip them.
    for path in paths(experiment, disk):
        if int(path.stem) <= sequence:
            return
        try:
            disk.remove(path)
        except OSError as cause:
            raise StorageError(
                f"snapshot {path} contains more than the journal and cannot be removed: {cause}; "
                "delete it"
            ) from cause


def load_newest(experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK) -> Snapshot | None:
    """Return the newest snapshot that is intact.

    The newest is the one with the largest number in its name. A damaged one is skipped with a
    warning: the journal still contains everything.

    Returns:
        The snapshot; None if there is none, and the whole journal has to be replayed.

    Raises:
        StorageError: If a newer version wrote it.
    """
    for path in paths(experiment, disk):
        try:
            return load(path, disk)
        except (OSError, ValueError, KeyError, TypeError) as cause:
            warnings.warn(
                f"snapshot {path} is damaged ({cause}); going on from an older state",
                RuntimeWarning,
                stacklevel=2,
            )
    return None


def load(path: Path, disk: Disk = LOCAL_DISK) -> Snapshot:
    """Return what a snapshot holds.

    Raises:
        OSError, ValueError, KeyError, TypeError: If it is not there, damaged, or none.
        StorageError: If a newer version wrote it.
    """
    body = strict_json.unseal(disk.read(path))
    if body["format"] > FORMAT:
        raise StorageError(
            f"snapshot {path} was written by a newer version (format {body['format']}); open it "
            "with that one"
        )
    if path.stem != f"{body['last_sequence']:020d}":
        raise ValueError(f"it contains records up to {body['last_sequence']}")
    return Snapshot(body["last_sequence"], body["state"])


def paths(experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK) -> list[Path]:
    """Return the snapshots, newest first."""
    directory = Path(experiment) / layout.SNAPSHOT
    return sorted(
        (directory / name for name in disk.names(directory) if _NAME.fullmatch(name)), reverse=True
    )


@final
class SnapshotClock:
    """Schedules snapshots such that saving takes at most 5 % of the time, forced saves included.

    All times are seconds of one monotonic clock.

    Args:
        start_s: When the experiment began; the first save is due one period later.
        fixed_period_s: Seconds between the end of a save and the next, regardless of its cost; None
            for at least 60 seconds and 19 times the duration of each save.

    Example:
        >>> clock = SnapshotClock(start_s=0.0)
        >>> clock.saved(started_s=60.0, ended_s=64.0)
        >>> clock.due_s
        140.0
    """

    def __init__(self, start_s: float, fixed_period_s: float | None = None) -> None:
        if fixed_period_s is not None and not fixed_period_s >= 0:
            raise ValueError(
                f"fixed_period_s must be at least 0, got {fixed_period_s}; None leaves the period "
                "to the cost of a save"
            )
        self._fixed_period_s = fixed_period_s
        self._last_end_s = start_s
        self._paid_off_s = start_s

    @property
    def due_s(self) -> float:
        """When the next save is due."""
        if self._fixed_period_s is not None:
            return self._last_end_s + self._fixed_period_s
        return max(self._last_end_s + MIN_PERIOD_S, self._paid_off_s)

    def is_due(self, now_s: float) -> bool:
        """Return whether a save is due."""
        return now_s >= self.due_s

    def is_affordable(self, now_s: float) -> bool:
        """Return whether a save would stay within the share, due or not.

        Never where the period is fixed.
        """
        return self._fixed_period_s is None and now_s >= self._paid_off_s

    def saved(self, started_s: float, ended_s: float) -> None:
        """Take note of a save, due or forced.

        A save before the one before it is paid off adds to that debt, so that forced saves delay
        those that are due.
        """
        self._last_end_s = ended_s
        self.worked(started_s, ended_s)

    def worked(self, started_s: float, ended_s: float) -> None:
        """Account for work on an unfinished save, which stays due."""
        self._paid_off_s = max(self._paid_off_s, started_s) + (1 + QUIET_FACTOR) * (
            ended_s - started_s
        )
