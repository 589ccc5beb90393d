"""Whether a journal is complete, as far as the other files of its experiment tell.

A journal that lost its newest segment, or all of them, verifies: what is missing at the end leaves
no gap. So it is compared with what can only have been written after it: the mark that each driver
leaves when it has begun a segment, snapshots, the rows of ``result.json``, and checkpoints. Each of
them follows the journal, whenever a process dies:

- the mark is written when the segment and its name have been synced;
- a snapshot is written when the record that it ends with has been synced;
- a row is written when its record has been;
- a checkpoint is committed before its record. A trial that has saved one because it was asked to
  does not wait before it reports another, and there it waits; where it is told then to save and
  leave, since the journal is lost, a third comes after it.

A power cut may take records that were not synced and leave files that followed them. Where the
machine has been started anew since the last driver began, what the durability setting allows to be
lost is therefore no contradiction.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION
from tuner.core.trial import TerminationReason, Trial
from tuner.errors import CheckpointError, DamagedJournal, StorageError
from tuner.storage import atomic, checkpoints, layout, strict_json
from tuner.storage.declaration import read_declaration
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import journal_directory
from tuner.storage.lock import boot_id, read_note
from tuner.storage.manifest import read_manifest
from tuner.storage.reading import open_file

from . import snapshot_files
from .reader import End, find_end, read
from .repair import ASIDE_PREFIX
from .segments import JournalPosition

MARK: Final = "journal"
"""Key of the mark in ``experiment.json``."""
_POWER_CUT_S: Final = 60.0
"""Under ``durability="group"``, a power cut takes 50 ms of training, or 21 times what a sync takes;
no sync takes three seconds."""
_ROW_BYTES: Final = (1 << 16, 4 << 20)
"""How much of the end of a file is read to find its last row: mostly enough, and always, since a
result has at most 1 MiB."""
_MAX_AHEAD: Final = 3
"""How many checkpoints a trial may have committed that the journal does not know yet."""
_NUM_NAMED: Final = 4

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Mark:
    """What was noted outside of the journal when its newest segment had been begun.

    Attributes:
        epoch: How many drivers have begun a segment; 0 where that was not noted.
        segment: Number of the first record of the newest segment; 0 where that was not noted.
        boot_id: Which start of which machine the driver belonged to; empty where that is not known.
        durability: What the driver let a power cut cost.
    """

    epoch: int = 0
    segment: int = 0
    boot_id: str = ""
    durability: str = "group"

    def allows(self, lost_s: float, now: str | None = None) -> bool:
        """Return whether a power cut since then may have taken so much.

        Args:
            lost_s: Training time that the journal lacks, in seconds; infinite for whole segments.
            now: The start of this machine; None to ask the system.
        """
        if self.boot_id and self.boot_id == (boot_id() if now is None else now):
            return False
        return self.durability == "process" or (
            self.durability == "group" and lost_s <= _POWER_CUT_S
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What the journal knows of a trial.

    Attributes:
        iteration: The largest ``training_iteration`` of its results.
        next_checkpoint: Index that its next checkpoint gets.
        time_total_s: Its longest training time.
    """

    iteration: int = 0
    next_checkpoint: int = 0
    time_total_s: float = 0.0

    @classmethod
    def of(cls, trial: Trial) -> Known:
        """Return what is known of a trial, without what came before it began anew."""
        return cls(trial.iteration, trial.next_checkpoint, _seconds(trial.last_result))


@dataclass(frozen=True, slots=True)
class Witness:
    """A file that tells what a trial has done.

    Attributes:
        trial_id: The trial.
        path: The file, relative to the experiment.
        iteration: ``training_iteration`` that it tells of.
        time_total_s: Training time up to that.
        index: The checkpoint's index, None for a row.
    """

    trial_id: str
    path: str
    iteration: int
    time_total_s: float
    index: int | None = None

    def contradicts(self, known: Known | None) -> bool:
        """Return what the journal lacks if it knows this of the trial.

        None stands for a trial that it does not know.
        """
        if known is None:
            return True
        return (
            self.iteration > known.iteration
            if self.index is None
            else self.index >= known.next_checkpoint + _MAX_AHEAD
        )


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that the journal lacks.

    Attributes:
        what: What is missing, and the file that shows it.
        lost_s: Training time that it lacks, in seconds; infinite for whole segments.
        witness: The file that tells, None where it is no file of a trial.
        is_known: Whether the journal knows the trial.
    """

    what: str
    lost_s: float = math.inf
    witness: Witness | None = None
    is_known: bool = True


# -------------------------------------------------------------------------------------------------
# the mark


def mark_fields(epoch: int, durability: str) -> dict[str, Any]:
    """Return the mark as it stands in ``experiment.json``."""
    return {"epoch": epoch, "boot_id": boot_id(), "durability": durability}


def read_mark(experiment: Path) -> Mark:
    """Return what was noted of the journal in ``experiment.json`` and in the lock file.

    Earlier releases noted nothing.

    Raises:
        StorageError: If there is no declaration that can be read.
    """
    declaration = read_declaration(experiment)
    noted, note = declaration.get(MARK), read_note(experiment)
    noted = noted if isinstance(noted, Mapping) else {}
    settings = declaration.get("run_config")
    durability = noted.get("durability") or (
        settings.get("durability") if isinstance(settings, Mapping) else None
    )
    return Mark(
        max(_whole(noted.get("epoch")), _whole(note.get("epoch"))),
        _whole(note.get("segment")),
        str(noted.get("boot_id") or note.get("boot_id") or ""),
        str(durability or "group"),
    )


def _whole(number: Any) -> int:
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _seconds(result: Mapping[str, Any]) -> float:
    seconds = result.get(TIME_TOTAL_S)
    try:
        return (
            float(seconds) if isinstance(seconds, (int, float)) and not math.isnan(seconds) else 0.0
        )
    except OverflowError:
        return math.inf


# -------------------------------------------------------------------------------------------------
# what is compared


def lacking_records(experiment: Path, mark: Mark, end: End, disk: Disk = LOCAL_DISK) -> list[Lack]:
    """Return what the journal lacks by its mark and the snapshots.

    Args:
        experiment: Directory of the experiment.
        mark: What was noted of the journal.
        end: Its end.
        disk: Where it lies.
    """
    lacks = []
    tail = end.tail
    if tail.epoch < mark.epoch:
        ends = f"it ends with driver {tail.epoch}" if tail.epoch else "it has no segment"
        lacks.append(Lack(f"driver {mark.epoch} has written to it ({ends})"))
    elif end.last is not None and int(end.last[0].stem) < mark.segment:
        lacks.append(Lack(f"the segment that began with record {mark.segment} is missing"))
    for path in snapshot_files.paths(experiment, disk):
        if int(path.stem) <= tail.sequence:
            break
        # One that is damaged tells nothing.
        with suppress(OSError, ValueError, KeyError, TypeError, StorageError):
            snapshot_files.load(path, disk)
            lacks.append(
                Lack(f"{layout.SNAPSHOT}/{path.name} was taken behind record {int(path.stem)}")
            )
            break
    return lacks


def lacking_results(
    experiment: Path, trials: Iterable[Trial], *, has_segment: bool = True, disk: Disk = LOCAL_DISK
) -> list[Lack]:
    """Return what the journal lacks by the files of unfinished and of unknown trials.

    Args:
        experiment: Directory of the experiment.
        trials: All trials, as the journal leaves them.
        has_segment: Whether there is a segment at all; the first is synced before any trial is
            started.
        disk: Where the journal lies.
    """
    known = {trial.trial_id: None if _is_over(trial) else Known.of(trial) for trial in trials}
    if not any(
        witness.contradicts(known.get(witness.trial_id)) for witness in witnesses(experiment, known)
    ):
        return []
    # What a trial had done before it began anew, its state does not tell.
    whole = known_by(read(experiment, disk=disk))
    looked_at = {trial_id: now and whole.get(trial_id, Known()) for trial_id, now in known.items()}
    return compared(witnesses(experiment, looked_at), whole, has_segment=has_segment)


def compared(
    found: Iterable[Witness], known: Mapping[str, Known], *, has_segment: bool = True
) -> list[Lack]:
    """Return what the journal lacks by the files of trials.

    Args:
        found: What the files tell.
        known: What the journal knows of each trial.
        has_segment: See `lacking_results`.
    """
    lacks = []
    for witness in found:
        trial = known.get(witness.trial_id)
        if witness.contradicts(trial):
            knows = (
                f"{trial.iteration} is the last that it knows"
                if trial
                else "it does not know the trial"
            )
            lost_s = (
                max(witness.time_total_s - (trial.time_total_s if trial else 0.0), 0.0)
                if has_segment
                else math.inf
            )
            lacks.append(
                Lack(
                    f"{witness.path} is of iteration {witness.iteration} ({knows})",
                    lost_s,
                    witness,
                    trial is not None,
                )
            )
    return lacks


def known_by(records: Iterable[Mapping[str, Any]]) -> dict[str, Known]:
    """Return what the records of a journal tell of each trial, all its attempts together."""
    known: dict[str, Known] = {}
    for record in records:
        kind = record.get("k")
        if kind == "suggested" or kind == "forked":  # noqa: PLR1714  (a forged one may have no hash)
            known.setdefault(str(record.get("id")), Known())
        elif kind == "result" or kind == "saved":  # noqa: PLR1714
            before = known.get(str(record.get("id")), Known())
            metrics, checkpoint = record.get("m"), record.get("c")
            metrics = metrics if isinstance(metrics, Mapping) else {}
            index = _whole(checkpoint.get("index")) if isinstance(checkpoint, Mapping) else -1
            known[str(record.get("id"))] = Known(
                max(before.iteration, _whole(metrics.get(TRAINING_ITERATION))),
                max(before.next_checkpoint, index + 1),
                max(before.time_total_s, _seconds(metrics)),
            )
    return known


def _is_over(trial: Trial) -> bool:
    """Return whether a trial neither goes on by itself nor may be told to."""
    return trial.is_finished and trial.ending in (
        TerminationReason.COMPLETED,
        TerminationReason.STOPPED_EARLY,
    )


# -------------------------------------------------------------------------------------------------
# the files of trials


def witnesses(experiment: Path, known: Mapping[str, Known | None]) -> Iterator[Witness]:
    """Yield what the files of trials tell: the last row of ``result.json``, and checkpoints.

    The checkpoints may be more than the journal knows.

    Args:
        experiment: Directory of the experiment.
        known: What the journal knows of each trial; None for one that is not looked at. Those that
            are left out are looked at, too.
    """
    names: list[str] = []
    with suppress(OSError), os.scandir(experiment) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if layout.is_trial(entry.name) and entry.is_dir(follow_symlinks=False)
        )
    for trial_id in names:
        of_trial = known.get(trial_id, Known(next_checkpoint=-_MAX_AHEAD))
        if of_trial is not None:
            yield from _witnesses_of(experiment, trial_id, of_trial.next_checkpoint)


def _witnesses_of(experiment: Path, trial_id: str, next_checkpoint: int) -> Iterator[Witness]:
    folder = Path(layout.trial_path(experiment, trial_id))
    row = _last_row(folder / layout.RESULTS)
    iteration = _whole(row.get(TRAINING_ITERATION))
    if iteration and row.get("trial_id", trial_id) == trial_id:
        yield Witness(trial_id, f"{trial_id}/{layout.RESULTS}", iteration, _seconds(row))
    with suppress(OSError):
        for name, index in checkpoints.numbered(folder):
            if index >= next_checkpoint + _MAX_AHEAD:
                with suppress(CheckpointError):
                    manifest = read_manifest(folder / name)
                    # Else the user has put it there.
                    if (manifest.trial_id, manifest.index) == (
                        trial_id,
                        index,
                    ):
                        yield Witness(
                            trial_id,
                            f"{trial_id}/{name}",
                            _whole(manifest.iteration),
                            _seconds(manifest.metrics),
                            index,
                        )


def remains_in(experiment: Path) -> str:
    """Return what is left of an experiment without declaration and journal; empty if none."""
    found = next((witness.path for witness in witnesses(experiment, {})), "")
    return found or next(
        (path.relative_to(experiment).as_posix() for path in snapshot_files.paths(experiment)), ""
    )


def _last_row(path: Path) -> Mapping[str, Any]:
    """Return the last row of a file that can be read, empty for none: its end may be torn."""
    with suppress(OSError), open_file(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        for length in _ROW_BYTES:
            file.seek(max(size_bytes - length, 0))
            for line in reversed(file.read(length).split(b"\n")[:-1]):
                with suppress(ValueError, RecursionError):
                    row = strict_json.loads(line)
                    if isinstance(row, dict):
                        return row
            if size_bytes <= length:
                break
    return {}


# -------------------------------------------------------------------------------------------------
# what follows from a lack


def checked_end(
    experiment: Path,
    mark: Mark,
    *,
    is_salvage: bool = False,
    disk: Disk = LOCAL_DISK,
    now: str | None = None,
) -> tuple[JournalPosition, list[Lack]]:
    """Return where a journal ends, and what it lacks by its mark and the snapshots.

    Snapshots that contain records which it lacks are removed.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        mark: What was noted of the journal.
        is_salvage: Go on whatever it lacks.
        disk: Where it lies.
        now: See `Mark.allows`.

    Raises:
        DamagedJournal: If its last segment is damaged, or it lacks what no power cut can have
            taken; nothing is changed then.
        StorageError: If it cannot be read, or a snapshot not be removed.
    """
    end = find_end(experiment, disk=disk)
    tail, lacks = end.tail, lacking_records(experiment, mark, end, disk)
    if not is_salvage and not all(mark.allows(lack.lost_s, now) for lack in lacks):
        known = known_by(read(experiment, disk=disk))
        raise incomplete(experiment, [*lacks, *compared(witnesses(experiment, known), known)], tail)
    if lacks:
        snapshot_files.discard_after(experiment, tail.sequence, disk)
    return tail, lacks


def settled(
    experiment: Path,
    mark: Mark,
    trials: Iterable[Trial],
    tail: JournalPosition,
    *,
    is_salvage: bool = False,
    disk: Disk = LOCAL_DISK,
    now: str | None = None,
) -> list[Lack]:
    """Settle what the files of trials tell and the journal lacks.

    It is kept aside, or removed where a power cut accounts for it.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        mark: What was noted of the journal.
        trials: All trials, as the journal leaves them.
        tail: Where it ends.
        is_salvage: Go on whatever it lacks, and keep aside what tells of it.
        disk: Where the journal lies.
        now: See `Mark.allows`.

    Returns:
        What the journal lacks.

    Raises:
        DamagedJournal: If it lacks what no power cut can have taken.
        StorageError: If something cannot be kept aside.
    """
    lacks = lacking_results(experiment, trials, has_segment=tail.epoch > 0, disk=disk)
    if is_salvage:
        if kept := set_aside(experiment, lacks):
            _log.warning(
                "kept aside, since the journal of %s knows nothing of it: %s",
                experiment,
                ", ".join(kept),
            )
    elif not all(mark.allows(lack.lost_s, now) for lack in lacks):
        raise incomplete(experiment, lacks, tail)
    else:
        _discard(experiment, lacks)
    return lacks


def _discard(experiment: Path, lacks: Iterable[Lack]) -> None:
    """Remove what followed records that a power cut has taken.

    It would contradict the journal of this driver.
    """
    for witness in (lack.witness for lack in lacks if lack.witness):
        try:
            if witness.index is None:
                (experiment / witness.path).unlink()
            else:
                checkpoints.delete(experiment / witness.path)
        except OSError as cause:
            raise StorageError(
                f"{experiment / witness.path} contains more than the journal and cannot be "
                f"removed: {cause}"
            ) from cause


def check(experiment: Path) -> None:
    """Refuse an experiment whose journal lacks what was written to it.

    Raises:
        DamagedJournal: If something is missing that no power cut can have taken, or if it does not
            verify.
        StorageError: If it cannot be read.
    """
    if lacks := unexplained(experiment):
        raise incomplete(experiment, lacks, find_end(experiment).tail)


def unexplained(experiment: Path) -> list[Lack]:
    """Return what a journal lacks and no power cut can have taken.

    Raises:
        StorageError: As `check` does.
    """
    mark, end = read_mark(experiment), find_end(experiment)
    known = known_by(read(experiment))
    lacks = lacking_records(experiment, mark, end) + compared(
        witnesses(experiment, known), known, has_segment=end.tail.epoch > 0
    )
    return [lack for lack in lacks if not mark.allows(lack.lost_s)]


def explained(lacks: Sequence[Lack], mark: Mark) -> str:
    """Return what the user is told of a loss that a power cut accounts for."""
    return (
        "the machine has been started anew since the experiment was last driven, and what "
        f"durability={mark.durability!r} lets a power cut "
        f"take is gone: {_listed(lacks)}; it is trained again"
    )


def incomplete(experiment: Path, lacks: Sequence[Lack], tail: JournalPosition) -> DamagedJournal:
    """Return the error that refuses a journal which lacks something.

    Args:
        experiment: Directory of the experiment.
        lacks: What.
        tail: Where the journal ends.
    """
    holds = f"records 1 to {tail.sequence} are" if tail.sequence else "no record is"
    return DamagedJournal(
        f"journal {journal_directory(experiment)} is incomplete, {holds} there: {_listed(lacks)}; "
        "put its files back from a backup, or "
        f"have Tuner.restore({str(experiment)!r}, trainable, salvage=True) go on from what is "
        "there and keep aside what contradicts it"
    )


def _listed(lacks: Sequence[Lack]) -> str:
    """Return the lacks in one line, of each trial the largest."""
    largest: dict[str, Lack] = {}
    for number, lack in enumerate(lacks):
        name = lack.witness.trial_id if lack.witness else str(number)
        if name not in largest or (
            lack.witness and lack.witness.iteration > _iteration(largest[name])
        ):
            largest[name] = lack
    named = [lack.what for lack in largest.values()]
    return ", ".join(named[:_NUM_NAMED]) + (
        f", and of {len(named) - _NUM_NAMED} trials more" if len(named) > _NUM_NAMED else ""
    )


def _iteration(lack: Lack) -> int:
    return lack.witness.iteration if lack.witness else 0


def set_aside(experiment: Path, lacks: Iterable[Lack]) -> list[str]:
    """Rename the files of results that the journal lacks, so that nothing replaces them.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        lacks: What the journal lacks.

    Returns:
        The new names, relative to the experiment.

    Raises:
        StorageError: If something cannot be renamed or copied.
    """
    kept = []
    try:
        unknown = {lack.witness.trial_id for lack in lacks if lack.witness and not lack.is_known}
        kept = [_renamed(experiment, trial_id) for trial_id in sorted(unknown)]
        for witness in [lack.witness for lack in lacks if lack.witness and lack.is_known]:
            if witness.index is not None:
                kept.append(_renamed(experiment, witness.path))
            else:
                names = [
                    name
                    for name in (layout.RESULTS, layout.PROGRESS)
                    if (experiment / witness.trial_id / name).is_file()
                ]
                kept += [_copied(experiment, f"{witness.trial_id}/{name}") for name in names]
    except OSError as cause:
        raise StorageError(
            f"what contradicts the journal of {experiment} cannot be kept aside: {cause}"
        ) from cause
    return kept


def _renamed(experiment: Path, name: str) -> str:
    aside = unused_name(experiment / name)
    (experiment / name).rename(aside)
    return aside.relative_to(experiment).as_posix()


def _copied(experiment: Path, name: str) -> str:
    aside = unused_name(experiment / name)
    temporary = atomic.temporary_sibling(aside)
    shutil.copyfile(experiment / name, temporary, follow_symlinks=False)
    temporary.rename(aside)
    return aside.relative_to(experiment).as_posix()


def unused_name(path: Path) -> Path:
    """Return an unused name beside a file: ``damaged-<name>``, ``damaged-<name>.1``, ..."""
    number, aside = 0, path.with_name(f"{ASIDE_PREFIX}{path.name}")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{ASIDE_PREFIX}{path.name}.{number}")
    return aside
