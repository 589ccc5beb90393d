"""Checks the files of an experiment, and says how to repair what is damaged. Read-only."""

from __future__ import annotations

import enum
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.analysis.open_experiment import StoredExperiment, read_stored
from tuner.analysis.result import is_over
from tuner.callbacks.files.validations_file import read_validations
from tuner.callbacks.log_records import Validated
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError, DamagedJournal, StorageError
from tuner.journal import completeness, snapshot_files
from tuner.journal.reader import Walk, read, verified
from tuner.journal.salvage import ASIDE_PREFIX
from tuner.spec.record import read_record
from tuner.storage import layout
from tuner.storage.array_store import decoded
from tuner.storage.directories import inspect_folder
from tuner.storage.disk import LOCAL_DISK
from tuner.storage.layout import journal_directory, segments_in, trial_directory
from tuner.storage.lock import driver_of, read_owner
from tuner.storage.manifest import verify
from tuner.storage.origin import address_of

from .pruning import KeepRules, needed_checkpoints, usage_of
from .record_checks import contradictions
from .status import State, state_of
from .store_inventory import StoreInventory, inventory_of

_LITTLE_BYTES: Final = 256 << 20
_MAX_NAMED: Final = 5
"""How many contradictory records are named."""
_ANEW: Final = "delete it; a restore writes it anew from the journal"


class Level(enum.StrEnum):
    """How bad a finding is."""

    OK = "ok"
    """Nothing is wrong."""
    WARNING = "warning"
    """Nothing is lost by it, or nothing that is still needed."""
    ERROR = "error"
    """The experiment cannot be continued, or not from where it was."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found.

    Attributes:
        subject: What was looked at, in a word.
        level: See `Level`.
        what: What was found.
        remedy: What to do about it; empty for nothing.
    """

    subject: str
    level: Level
    what: str
    remedy: str = ""


def check(experiment: Path, *, is_deep: bool = False) -> list[Finding]:
    """Return the findings about an experiment's directory, which is only read and may be in use.

    Args:
        experiment: The directory.
        is_deep: Read the contents of all checkpoints and stored arrays, and compare them with what
            was written; else only names and sizes of a checkpoint's files are compared.
    """
    findings = [
        *_directory(experiment),
        *_declaration(experiment),
        *_driver(experiment),
        *_journal(experiment),
        *_records(experiment),
        *_snapshots(experiment),
    ]
    if is_deep:
        findings += _objects(experiment)
    gaps = list(_incomplete_journal(experiment))
    try:
        stored = read_stored(experiment)
    except StorageError:
        return [*findings, *gaps]  # the findings say why
    # Where the journal lacks records, files that it does not know may be all that is left of them.
    leftovers = gaps or _leftovers(stored)
    try:
        inventory = inventory_of(experiment)
    except StorageError as refusal:
        inventory = None
        findings.append(Finding("storage", Level.WARNING, *split_remedy(str(refusal))))
    return [
        *findings,
        *(_store(stored, inventory) if inventory else ()),
        *_checkpoints(stored, inventory, is_deep=is_deep),
        *_validations(stored),
        *leftovers,
        *_disk_space(stored),
        *_experiment_state(stored),
    ]


def _directory(experiment: Path) -> Iterator[Finding]:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            inspect_folder(experiment)
        except StorageError as link:
            yield Finding("folder", Level.ERROR, *split_remedy(str(link)))
    for warning in shown:
        yield Finding("folder", Level.WARNING, *split_remedy(str(warning.message)))


def split_remedy(message: str) -> tuple[str, str]:
    """Return text and remedy of an error message of the engine."""
    what, _, remedy = message.rpartition("; ")
    return (what, remedy) if what else (remedy, "")


def _declaration(experiment: Path) -> Iterator[Finding]:
    try:
        read_record(experiment)
    except StorageError as damage:
        yield Finding("declaration", Level.ERROR, *split_remedy(str(damage)))
    else:
        yield Finding("declaration", Level.OK, f"{layout.DECLARATION} is as it was written")


def _driver(experiment: Path) -> Iterator[Finding]:
    owner = driver_of(experiment)
    if owner is not None:
        yield Finding("lock", Level.OK, f"driven by {owner}")
    elif left := read_owner(experiment):
        yield Finding(
            "lock",
            Level.OK,
            f"free; its last driver, {left}, was killed, so the experiment can be restored at once",
        )
    else:
        yield Finding("lock", Level.OK, "free")


def _journal(experiment: Path) -> Iterator[Finding]:
    try:
        num_records = sum(1 for _ in verified(experiment, 0, LOCAL_DISK))
        torn_at = _torn_at(experiment)
    except StorageError as damage:
        call = f"Tuner.restore({address_of(experiment)!r}, trainable"
        what, remedy = split_remedy(str(damage))
        yield Finding("journal", Level.ERROR, what, remedy.replace("Tuner.restore(...", call))
        return
    yield Finding("journal", Level.OK, f"{num_records} records, all of them verified")
    if torn_at is not None and driver_of(experiment) is None:
        yield Finding(
            "journal",
            Level.OK,
            f"its last line was cut off when the driver was killed, at byte {torn_at}; a restore "
            "cuts it off",
        )
    for aside in sorted(journal_directory(experiment).glob(f"{ASIDE_PREFIX}*")):
        remedy = "delete it when you do not want to look into it any more"
        yield Finding(
            "journal",
            Level.WARNING,
            f"{aside.name} was set aside when a damaged journal was salvaged",
            remedy,
        )


def _records(experiment: Path) -> Iterator[Finding]:
    with suppress(StorageError):  # already reported
        found = list(contradictions(read(experiment)))
        for what in found[:_MAX_NAMED]:
            yield Finding(
                "records",
                Level.WARNING,
                what,
                "put the journal back from a backup if it was changed; a restore and readers of "
                "the results pass over this record",
            )
        if more := found[_MAX_NAMED:]:
            yield Finding("records", Level.WARNING, f"{len(more)} more records contradict others")


def _incomplete_journal(experiment: Path) -> Iterator[Finding]:
    if driver_of(experiment) is not None:
        return  # its files are ahead of what was just read of its journal
    try:
        completeness.check(experiment)
    except DamagedJournal as damage:
        if damage.path is None:
            yield Finding("journal", Level.ERROR, *split_remedy(str(damage)))
    except StorageError:
        pass  # already reported


def _torn_at(experiment: Path) -> int | None:
    """Return the byte at which the last segment is torn off, None if it is not."""
    found = segments_in(journal_directory(experiment), LOCAL_DISK)
    if not found:
        return None
    walk = Walk()
    for _ in walk.through(found[-1][1], LOCAL_DISK.read(found[-1][1]), None):
        pass
    return walk.torn_at


def _snapshots(experiment: Path) -> Iterator[Finding]:
    paths = snapshot_files.paths(experiment)
    for path in paths:
        try:
            snapshot_files.load(path)
        except (OSError, ValueError, KeyError, TypeError, StorageError) as damage:
            if path.exists():  # else its driver has just removed it
                remedy = "delete it: the journal still holds everything"
                yield Finding(
                    "snapshot", Level.WARNING, f"{path.name} is damaged: {damage}", remedy
                )
        else:
            yield Finding("snapshot", Level.OK, f"{path.name} is whole")
    if not paths:
        yield Finding("snapshot", Level.OK, "none yet; a restore replays the whole journal")


def _objects(experiment: Path) -> Iterator[Finding]:
    for path in sorted((experiment / layout.OBJECTS).glob("*.npy")):
        try:
            decoded(str(path))
        except (OSError, ValueError, StorageError) as damage:
            remedy = (
                "restore the file from a backup; trials whose configuration names it cannot go on"
            )
            yield Finding("objects", Level.ERROR, f"{path.name} is damaged: {damage}", remedy)


def _store(stored: StoredExperiment, inventory: StoreInventory) -> Iterator[Finding]:
    url = inventory.store.url
    yield Finding(
        "storage", Level.OK, f"{url} holds {inventory.total_bytes / 1e6:.1f} MB, logs included"
    )
    if orphans := inventory.orphans(stored):
        names = ", ".join("/".join(place) for place in list(orphans)[:3])
        yield Finding(
            "storage",
            Level.WARNING,
            f"{len(orphans)} checkpoints in {url} are in no record: {names}",
            f"tuner prune {url} --yes removes them, and so does a restore",
        )
    try:
        num_uploads = inventory.unfinished_uploads()
    except StorageError as refusal:
        yield Finding("storage", Level.WARNING, *split_remedy(str(refusal)))
        return
    if num_uploads and stored.driver is None:
        yield Finding(
            "storage",
            Level.WARNING,
            f"{num_uploads} multipart uploads were begun and not completed; their parts are stored "
            "and paid for",
            "abort them, or give the bucket a rule that aborts incomplete multipart uploads after "
            "a day",
        )


def _damage_of(
    stored: StoredExperiment,
    inventory: StoreInventory | None,
    trial: Trial,
    record: CheckpointRecord,
    *,
    is_deep: bool,
) -> str:
    """Return what is wrong with a checkpoint where it is kept for good, empty for nothing."""
    if record.remote and inventory:
        return inventory.find_damage(trial.trial_id, record, is_deep=is_deep)
    try:
        verify(trial_directory(stored.path, trial.trial_id) / record.directory, with_hashes=is_deep)
    except (CheckpointError, OSError) as damage:
        return str(damage)
    return ""


def _checkpoints(
    stored: StoredExperiment, inventory: StoreInventory | None, *, is_deep: bool
) -> Iterator[Finding]:
    num_whole = 0
    for trial in stored.experiment.trials:
        for record in list(trial.checkpoints):
            if record.is_placeholder:
                continue  # it was reported for the sake of its metrics, and need not exist
            path = trial_directory(stored.path, trial.trial_id) / record.directory
            damage = _damage_of(stored, inventory, trial, record, is_deep=is_deep)
            if not damage:
                num_whole += 1
            # A driver deletes what is superseded.
            elif driver_of(stored.path) is None or path.exists():
                yield _damaged(trial, record, damage)
    how = (
        "read and compared" if is_deep else "names and sizes compared; --deep compares the contents"
    )
    yield Finding("checkpoints", Level.OK, f"{num_whole} are whole ({how})")


def _damaged(trial: Trial, record: CheckpointRecord, damage: str) -> Finding:
    what = f"{trial.trial_id}/{record.directory}: {damage}"
    if record.index not in needed_checkpoints(trial):
        return Finding(
            "checkpoints",
            Level.WARNING,
            what,
            "restore it from a backup if you want it; no trial continues from it",
        )
    earlier = [other for other in trial.checkpoints if other.index < record.index]
    then = (
        f"from {earlier[-1].directory}, of iteration {earlier[-1].iteration}"
        if earlier
        else "from the beginning"
    )
    who = "the trial that is to go on from it" if record.index in trial.leased else "the trial"
    return Finding(
        "checkpoints",
        Level.ERROR,
        what,
        f"restore it from a backup, or let {who} go on {then}, as a restore does by itself",
    )


def _validations(stored: StoredExperiment) -> Iterator[Finding]:
    for trial in stored.experiment.trials:
        path = trial_directory(stored.path, trial.trial_id) / layout.VALIDATIONS
        try:
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter("always")
                logged = read_validations(path)
        except OSError as refusal:
            yield Finding("validations", Level.WARNING, f"{path} cannot be read: {refusal}", _ANEW)
            continue
        for warning in shown:
            yield Finding("validations", Level.WARNING, str(warning.message), _ANEW)
        # A driver writes the file after the journal that has just been read.
        if logged and driver_of(stored.path) is None:
            yield from _unknown_validations(trial, path, logged)


def _unknown_validations(
    trial: Trial, path: Path, logged: Sequence[Validated]
) -> Iterator[Finding]:
    known = {(one.checkpoint.directory, one.status) for one in trial.validations.values()}
    unknown = [one for one in logged if (one.checkpoint, one.status) not in known]
    if unknown and not trial.superseded_attempt:
        one = unknown[0]
        yield Finding(
            "validations",
            Level.WARNING,
            f"{path} has {len(unknown)} validations that the journal does not know, e.g. "
            f"{one.status} of {one.checkpoint}",
            _ANEW,
        )


def _leftovers(stored: StoredExperiment) -> Iterator[Finding]:
    usage = usage_of(stored, KeepRules(), is_driven=driver_of(stored.path) is not None)
    if usage.leftovers:
        names = ", ".join(
            path.relative_to(stored.path).as_posix() for path in list(usage.leftovers)[:3]
        )
        what = f"{len(usage.leftovers)} unfinished or unrecorded files are left over: {names}"
        yield Finding(
            "leftovers",
            Level.WARNING,
            what,
            f"tuner prune {address_of(stored.path)} --yes removes them, and so does a restore",
        )


def _disk_space(stored: StoredExperiment) -> Iterator[Finding]:
    free_bytes = shutil.disk_usage(stored.path).free
    if free_bytes < _LITTLE_BYTES:
        yield Finding(
            "disk",
            Level.WARNING,
            f"{free_bytes >> 20} MiB are free",
            "make room, e.g. with tuner prune; trials wait while the disk is full",
        )


def _experiment_state(stored: StoredExperiment) -> Iterator[Finding]:
    state = state_of(stored.path, stored.experiment)
    num_left = sum(not is_over(trial) for trial in stored.experiment.trials)
    num_open = sum(len(trial.open_validations) for trial in stored.experiment.trials)
    if num_open and driver_of(stored.path) is None:
        yield Finding(
            "validations",
            Level.OK,
            f"checkpoints that are still to be validated: {num_open}; a restore does so",
        )
    if state is State.INTERRUPTED:
        command = f"tuner resume {address_of(stored.path)}"
        yield Finding(
            "experiment",
            Level.OK,
            f"interrupted, {num_left} of its trials are not over; {command} prints how to "
            f"continue it",
        )
    else:
        yield Finding("experiment", Level.OK, str(state))
