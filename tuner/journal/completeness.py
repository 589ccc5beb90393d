"""Completeness check of a journal against the other files of its experiment.

A journal that lost its newest segment, or all of them, verifies: what is missing at the end leaves
no gap. So it is compared with what can only have been written after it: the mark that each driver
leaves when it has begun a segment, snapshots, the rows of ``result.json``, and checkpoints. Each of
them follows the journal, whenever a process dies:

- the mark is written when the segment and its name have been synced;
- a snapshot is written when its last record has been synced;
- a row is written when its record has been;
- a checkpoint is committed before its record, but by three at most, see `_MAX_AHEAD`.

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
"""Under ``durability="group"`` and ``"storage"``, a power cut takes 50 ms of training, or 21 times
as long as a sync takes, and no sync takes three seconds."""
_ROW_BYTES: Final = (1 << 16, 4 << 20)
"""How much of the end of a file is read to find its last row: first what is mostly enough, then
what always is, since a result has at most 1 MiB."""
# A trial that has saved a checkpoint on request does not wait before it reports another with its
# next result, and there it waits for the reply. If the reply is to save and leave, since the
# journal is lost, a third follows.
_MAX_AHEAD: Final = 3
"""How many checkpoints a trial may have committed that are not in the journal."""
_NUM_NAMED: Final = 4

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Mark:
    """A note outside of the journal, made when its newest segment had been begun.

    Attributes:
        epoch: How many drivers have begun a segment; 0 where that was not noted.
        segment: Number of the first record of the newest segment; 0 where that was not noted.
        boot_id: Which start of which machine the driver belonged to; empty where that is not known.
        durability: The durability setting of the driver.
    """

    epoch: int = 0
    segment: int = 0
    boot_id: str = ""
    durability: str = "group"

    def allows(self, lost_s: float, current_boot: str | None = None) -> bool:
        """Return whether a power cut since then may have caused a loss.

        Args:
            lost_s: Training time that the journal lacks, in seconds; infinite for whole segments.
            current_boot: The present start of this machine; None to ask the system.
        """
        # The same start of the machine: there was no power cut since. Without a note there may have
        # been one.
        if self.boot_id and self.boot_id == (boot_id() if current_boot is None else current_boot):
            return False
        return self.durability == "process" or (
            self.durability in {"group", "storage"} and lost_s <= _POWER_CUT_S
        )


@dataclass(frozen=True, slots=True)
class RecordedProgress:
    """A trial's progress according to the journal.

    Attributes:
        iteration: The largest ``training_iteration`` of its results.
        next_checkpoint: Index that its next checkpoint gets.
        time_total_s: Its longest training time.
    """

    iteration: int = 0
    next_checkpoint: int = 0
    time_total_s: float = 0.0

    @classmethod
    def of(cls, trial: Trial) -> RecordedProgress:
        """Return the progress of a trial since it last began at iteration 0."""
        return cls(trial.iteration, trial.next_checkpoint, _time_total_s(trial.last_result))


@dataclass(frozen=True, slots=True)
class Evidence:
    """A file that shows how far a trial has come.

    Attributes:
        trial_id: The trial.
        path: The file, relative to the experiment.
        iteration: The ``training_iteration`` that it shows.
        time_total_s: Training time up to that.
        index: The checkpoint's index, None for a row.
    """

    trial_id: str
    path: str
    iteration: int
    time_total_s: float
    index: int | None = None

    def contradicts(self, known: RecordedProgress | None) -> bool:
        """Return whether the file is ahead of the journal, which may not know the trial (None)."""
        if known is None:
            return True
        return (
            self.iteration > known.iteration
            if self.index is None
            else self.index >= known.next_checkpoint + _MAX_AHEAD
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that is missing at the end of the journal.

    Attributes:
        what: What is missing, and the file that shows it.
        lost_s: Training time that it lacks, in seconds; infinite for whole segments.
        evidence: The file that shows it, None where it is no file of a trial.
        is_known: Whether the journal knows the trial.
    """

    what: str
    lost_s: float = math.inf
    evidence: Evidence | None = None
    is_known: bool = True


# -------------------------------------------------------------------------------------------------
# The mark


def mark_fields(epoch: int, durability: str) -> dict[str, Any]:
    """Return the fields of the mark in ``experiment.json``."""
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
        max(_as_int(noted.get("epoch")), _as_int(note.get("epoch"))),
        _as_int(note.get("segment")),
        str(noted.get("boot_id") or note.get("boot_id") or ""),
        str(durability or "group"),
    )


def _as_int(number: Any) -> int:
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _time_total_s(result: Mapping[str, Any]) -> float:
    seconds = result.get(TIME_TOTAL_S)
    try:
        return (
            float(seconds) if isinstance(seconds, (int, float)) and not math.isnan(seconds) else 0.0
        )
    except OverflowError:
        return math.inf


# -------------------------------------------------------------------------------------------------
# The comparison


def find_missing_records(
    experiment: Path, mark: Mark, end: End, disk: Disk = LOCAL_DISK
) -> list[Gap]:
    """Return what the journal lacks by its mark and the snapshots.

    Args:
        experiment: Directory of the experiment.
        mark: What was noted of the journal.
        end: Its end.
        disk: Where it lies.
    """
    gaps = []
    tail = end.tail
    if tail.epoch < mark.epoch:
        ends = f"it ends with driver {tail.epoch}" if tail.epoch else "it has no segment"
        gaps.append(Gap(f"driver {mark.epoch} has written to it ({ends})"))
    elif end.last is not None and int(end.last[0].stem) < mark.segment:
        gaps.append(Gap(f"the segment that began with record {mark.segment} is missing"))
    for path in snapshot_files.paths(experiment, disk):
        if int(path.stem) <= tail.sequence:
            break
        # A damaged snapshot proves nothing: its name may be all that a power cut left of it.
        with suppress(OSError, ValueError, KeyError, TypeError, StorageError):
            snapshot_files.load(path, disk)
            gaps.append(
                Gap(f"{layout.SNAPSHOT}/{path.name} was taken behind record {int(path.stem)}")
            )
            break
    return gaps


def find_missing_results(
    experiment: Path, trials: Iterable[Trial], *, has_segment: bool = True, disk: Disk = LOCAL_DISK
) -> list[Gap]:
    """Return what the journal lacks by the files of unfinished and of unknown trials.

    Args:
        experiment: Directory of the experiment.
        trials: All trials, as the journal leaves them.
        has_segment: Whether there is a segment at all; the first is synced before any trial is
            started.
        disk: Where the journal lies.
    """
    known = {
        trial.trial_id: None if _is_over(trial) else RecordedProgress.of(trial) for trial in trials
    }
    if not any(
        evidence.contradicts(known.get(evidence.trial_id))
        for evidence in file_evidence(experiment, known)
    ):
        return []
    # A trial that began anew has older rows and checkpoints, which its state does not contain. The
    # whole journal does; it is read only now, since that takes long.
    whole = progress_in(read(experiment, disk=disk))
    to_check = {
        trial_id: progress and whole.get(trial_id, RecordedProgress())
        for trial_id, progress in known.items()
    }
    return compare(file_evidence(experiment, to_check), whole, has_segment=has_segment)


def compare(
    found: Iterable[Evidence], known: Mapping[str, RecordedProgress], *, has_segment: bool = True
) -> list[Gap]:
    """Return what the journal lacks by the files of trials.

    Args:
        found: What the files show.
        known: The recorded progress of each trial.
        has_segment: See `find_missing_results`.
    """
    gaps = []
    for evidence in found:
        trial = known.get(evidence.trial_id)
        if evidence.contradicts(trial):
            knows = (
                f"{trial.iteration} is the last that it knows"
                if trial
                else "it does not know the trial"
            )
            lost_s = (
                max(evidence.time_total_s - (trial.time_total_s if trial else 0.0), 0.0)
                if has_segment
                else math.inf
            )
            gaps.append(
                Gap(
                    f"{evidence.path} is of iteration {evidence.iteration} ({knows})",
                    lost_s,
                    evidence,
                    trial is not None,
                )
            )
    return gaps


def progress_in(records: Iterable[Mapping[str, Any]]) -> dict[str, RecordedProgress]:
    """Return the progress of each trial by the records of a journal, over all its attempts."""
    known: dict[str, RecordedProgress] = {}
    for record in records:
        kind = record.get("k")
        # By `==`, since the kind in a forged record may not be hashable.
        if kind == "suggested" or kind == "forked":  # noqa: PLR1714
            known.setdefault(str(record.get("id")), RecordedProgress())
        elif kind == "result" or kind == "saved" or kind == "checkpoint_committed":  # noqa: PLR1714
            before = known.get(str(record.get("id")), RecordedProgress())
            metrics, checkpoint = record.get("m"), record.get("c")
            metrics = metrics if isinstance(metrics, Mapping) else {}
            index = _as_int(checkpoint.get("index")) if isinstance(checkpoint, Mapping) else -1
            if "upload" in record:  # it may be stored long before that is recorded
                index = max(index, _as_int(record["upload"]))
            known[str(record.get("id"))] = RecordedProgress(
                max(before.iteration, _as_int(metrics.get(TRAINING_ITERATION))),
                max(before.next_checkpoint, index + 1),
                max(before.time_total_s, _time_total_s(metrics)),
            )
    return known


def _is_over(trial: Trial) -> bool:
    """Return whether a trial has ended for good: no restore resumes it."""
    return trial.is_finished and trial.ending in (
        TerminationReason.COMPLETED,
        TerminationReason.STOPPED_EARLY,
    )


# -------------------------------------------------------------------------------------------------
# The files of trials


def file_evidence(
    experiment: Path, known: Mapping[str, RecordedProgress | None]
) -> Iterator[Evidence]:
    """Yield the last row of each ``result.json``, and the checkpoints that the journal must know.

    Args:
        experiment: Directory of the experiment.
        known: The recorded progress of each trial; None for one that is skipped. Directories of
            trials that are not in it are looked at, too.
    """
    names: list[str] = []
    with suppress(OSError), os.scandir(experiment) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if layout.is_trial(entry.name) and entry.is_dir(follow_symlinks=False)
        )
    for trial_id in names:
        progress = known.get(trial_id, RecordedProgress(next_checkpoint=-_MAX_AHEAD))
        if progress is not None:
            yield from _evidence_of(experiment, trial_id, progress.next_checkpoint)


def _evidence_of(experiment: Path, trial_id: str, next_checkpoint: int) -> Iterator[Evidence]:
    folder = Path(layout.trial_path(experiment, trial_id))
    row = _last_row(folder / layout.RESULTS)
    iteration = _as_int(row.get(TRAINING_ITERATION))
    if iteration and row.get("trial_id", trial_id) == trial_id:
        yield Evidence(trial_id, f"{trial_id}/{layout.RESULTS}", iteration, _time_total_s(row))
    with suppress(OSError):
        for name, index in checkpoints.numbered(folder):
            if index >= next_checkpoint + _MAX_AHEAD:
                with suppress(CheckpointError):
                    manifest = read_manifest(folder / name)
                    # Where its manifest names another trial or index, the user has put it there.
                    if (manifest.trial_id, manifest.index) == (trial_id, index):
                        yield Evidence(
                            trial_id,
                            f"{trial_id}/{name}",
                            _as_int(manifest.iteration),
                            _time_total_s(manifest.metrics),
                            index,
                        )


def remains_in(experiment: Path) -> str:
    """Return a file that proves an experiment without declaration and journal; empty if none."""
    found = next((evidence.path for evidence in file_evidence(experiment, {})), "")
    return found or next(
        (path.relative_to(experiment).as_posix() for path in snapshot_files.paths(experiment)), ""
    )


def _last_row(path: Path) -> Mapping[str, Any]:
    """Return the last valid row of a file, empty for none; a row that was cut off is skipped."""
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
# Consequences


def check_end(
    experiment: Path,
    mark: Mark,
    *,
    is_salvage: bool = False,
    disk: Disk = LOCAL_DISK,
    current_boot: str | None = None,
) -> tuple[JournalPosition, list[Gap]]:
    """Return where a journal ends, and what it lacks by its mark and the snapshots.

    Snapshots that contain records which it lacks are removed.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        mark: What was noted of the journal.
        is_salvage: Whether to accept a journal that lacks records.
        disk: Where it lies.
        current_boot: See `Mark.allows`.

    Raises:
        DamagedJournal: If its last segment is damaged, or it lacks what no power cut can have
            taken; nothing is changed then.
        StorageError: If it cannot be read, or a snapshot not be removed.
    """
    end = find_end(experiment, disk=disk)
    tail, gaps = end.tail, find_missing_records(experiment, mark, end, disk)
    if not is_salvage and not all(mark.allows(gap.lost_s, current_boot) for gap in gaps):
        known = progress_in(read(experiment, disk=disk))
        raise incomplete_error(
            experiment, [*gaps, *compare(file_evidence(experiment, known), known)], tail
        )
    if gaps:
        snapshot_files.discard_after(experiment, tail.sequence, disk)
    return tail, gaps


def reconcile_files(
    experiment: Path,
    mark: Mark,
    trials: Iterable[Trial],
    tail: JournalPosition,
    *,
    is_salvage: bool = False,
    disk: Disk = LOCAL_DISK,
    current_boot: str | None = None,
) -> list[Gap]:
    """Rename or remove files of trials that are ahead of the journal.

    They are removed where a power cut explains them, and renamed where `is_salvage` is set.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        mark: What was noted of the journal.
        trials: All trials, as the journal leaves them.
        tail: Where it ends.
        is_salvage: Whether to accept a journal that lacks records, and rename the files that
            contradict it.
        disk: Where the journal lies.
        current_boot: See `Mark.allows`.

    Returns:
        What the journal lacks.

    Raises:
        DamagedJournal: If it lacks what no power cut can have taken.
        StorageError: If a file cannot be renamed or removed.
    """
    gaps = find_missing_results(experiment, trials, has_segment=tail.epoch > 0, disk=disk)
    if is_salvage:
        if kept := set_aside(experiment, gaps):
            _log.warning(
                "kept aside, since the journal of %s knows nothing of it: %s",
                experiment,
                ", ".join(kept),
            )
    elif not all(mark.allows(gap.lost_s, current_boot) for gap in gaps):
        raise incomplete_error(experiment, gaps, tail)
    else:
        _discard(experiment, gaps)
    return gaps


def _discard(experiment: Path, gaps: Iterable[Gap]) -> None:
    # A later restore would find them ahead of this driver's journal, and no power cut to explain
    # it.
    for evidence in (gap.evidence for gap in gaps if gap.evidence):
        try:
            if evidence.index is None:
                (experiment / evidence.path).unlink()
            else:
                checkpoints.delete(experiment / evidence.path)
        except OSError as cause:
            raise StorageError(
                f"{experiment / evidence.path} contains more than the journal and cannot be "
                f"removed: {cause}"
            ) from cause


def check(experiment: Path) -> None:
    """Raise if the journal of an experiment lacks records.

    Raises:
        DamagedJournal: If it lacks what no power cut can have taken, or does not verify.
        StorageError: If it cannot be read.
    """
    if gaps := find_unexplained(experiment):
        raise incomplete_error(experiment, gaps, find_end(experiment).tail)


def find_unexplained(experiment: Path) -> list[Gap]:
    """Return what a journal lacks that no power cut can have taken.

    Raises:
        StorageError: As `check` does.
    """
    mark, end = read_mark(experiment), find_end(experiment)
    known = progress_in(read(experiment))
    gaps = find_missing_records(experiment, mark, end) + compare(
        file_evidence(experiment, known), known, has_segment=end.tail.epoch > 0
    )
    return [gap for gap in gaps if not mark.allows(gap.lost_s)]


def power_cut_warning(gaps: Sequence[Gap], mark: Mark) -> str:
    """Return the warning about a loss that a power cut explains."""
    return (
        "the machine has been started anew since the experiment was last driven, and what "
        f"durability={mark.durability!r} lets a power cut "
        f"take is gone: {_listed(gaps)}; it is trained again"
    )


def incomplete_error(
    experiment: Path, gaps: Sequence[Gap], tail: JournalPosition
) -> DamagedJournal:
    """Return the error for a journal that lacks something and ends at `tail`."""
    holds = f"records 1 to {tail.sequence} are" if tail.sequence else "no record is"
    return DamagedJournal(
        f"journal {journal_directory(experiment)} is incomplete, {holds} there: {_listed(gaps)}; "
        "put its files back from a backup, or "
        f"have Tuner.restore({str(experiment)!r}, trainable, salvage=True) go on from what is "
        "there and keep aside what contradicts it"
    )


def _listed(gaps: Sequence[Gap]) -> str:
    """Return the gaps in one line, the largest of each trial."""
    largest: dict[str, Gap] = {}
    for number, gap in enumerate(gaps):
        name = gap.evidence.trial_id if gap.evidence else str(number)
        if name not in largest or (
            gap.evidence and gap.evidence.iteration > _iteration(largest[name])
        ):
            largest[name] = gap
    named = [gap.what for gap in largest.values()]
    return ", ".join(named[:_NUM_NAMED]) + (
        f", and of {len(named) - _NUM_NAMED} trials more" if len(named) > _NUM_NAMED else ""
    )


def _iteration(gap: Gap) -> int:
    return gap.evidence.iteration if gap.evidence else 0


def set_aside(experiment: Path, gaps: Iterable[Gap]) -> list[str]:
    """Rename the files that contradict the journal, so that nothing overwrites them.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        gaps: What the journal lacks.

    Returns:
        The new names, relative to the experiment.

    Raises:
        StorageError: If something cannot be renamed or copied.
    """
    kept = []
    try:
        unknown = {gap.evidence.trial_id for gap in gaps if gap.evidence and not gap.is_known}
        kept = [_renamed(experiment, trial_id) for trial_id in sorted(unknown)]
        for evidence in [gap.evidence for gap in gaps if gap.evidence and gap.is_known]:
            if evidence.index is not None:
                kept.append(_renamed(experiment, evidence.path))
            else:
                names = [
                    name
                    for name in (layout.RESULTS, layout.PROGRESS)
                    if (experiment / evidence.trial_id / name).is_file()
                ]
                kept += [_copied(experiment, f"{evidence.trial_id}/{name}") for name in names]
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
