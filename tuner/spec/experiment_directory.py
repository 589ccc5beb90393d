"""Directory of an experiment: create, check and replace it; read and write its declaration."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.settings import ExperimentSettings
from tuner.errors import ExperimentExists, StorageError
from tuner.execution.leasing import lease_holder
from tuner.journal.mark import MARK, mark_fields, remains_in
from tuner.storage import layout, strict_json
from tuner.storage.declaration import (
    FORMAT_VERSION,
    RELEASE_KEY,
    THIS_RELEASE,
    is_experiment,
    read_declaration,
    refusal_of,
)
from tuner.storage.directories import absolute_path, make_folder, make_own_folder
from tuner.storage.disk import DIRECTORY_MODE, has_content, write_bytes
from tuner.storage.origin import origin_of
from tuner.storage.urls import join_url, split_options

from .argument_codec import note
from .config import RunConfig
from .experiment_spec import ExperimentSpec, Rerun, seed_of_trial
from .fingerprint import fingerprint

_BEGINNING = ("created", "declared_name", "id", "seed", "settings", "rerun")
"""Keys of the declaration that a restore does not change."""


def storage_root(run: RunConfig) -> Path:
    """Return the absolute directory of this machine in which the experiment's directory is created.

    An experiment that a trial or a validation runs lies beside the one that runs it, unless its
    settings say otherwise.
    """
    url = run.storage_url
    if url is None:
        return local_root(run.local_dir if run.storage_path is None else run.storage_path)
    if run.local_dir is not None or run.name is None:
        return local_root(run.local_dir)
    return default_root_for(join_url(url, run.name), run.name)


def default_root_for(url: str, name: str) -> Path:
    """Return the directory of this machine for an experiment in a store, where none was given.

    The default one; if another experiment of this name is there, for example of another bucket, a
    folder in it that is named after the store.

    Args:
        url: The experiment's URL.
        name: Its name.

    Raises:
        StorageError: If the note of the store in the directory cannot be read.
    """
    default = local_root(None)
    above = split_options(url)[0].removesuffix(name)
    readable = re.sub(r"[^A-Za-z0-9]+", "-", above).strip("-")[:60]
    beside = default / f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
    if is_experiment(beside / name):
        return beside
    if not is_experiment(default / name):
        return default
    origin = origin_of(default / name)
    return default if origin and origin.url == url else beside


def local_root(given: str | os.PathLike[str] | None) -> Path:
    """Return the directory that was given, or the default one, as an absolute path."""
    holder = lease_holder()
    default = holder.storage_path if holder else layout.DEFAULT_STORAGE_PATH
    return absolute_path(given or default)


def new_directory(spec: ExperimentSpec) -> Path:
    """Create the directory of a new experiment.

    Raises:
        ExperimentExists: If the name is taken, with ``RunConfig(if_exists="error")``.
        StorageError: If the storage path cannot be written to, or the directory to replace is not
            recognised as an experiment.
    """
    root = storage_root(spec.run)
    try:
        make_folder(root)
        # Permission bits do not tell: the file system may be read-only, full, or check elsewhere.
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as cause:
        raise StorageError(
            f"{'local_dir' if spec.run.storage_url else 'storage_path'} {str(root)!r} cannot be "
            f"written to: {cause}; give another one in RunConfig"
        ) from cause
    if spec.run.name is None:
        return _dated(root, spec.name)
    directory = named_directory(spec.run)
    _make_folders_above(root, directory)
    return (
        _numbered(directory)
        if spec.run.if_exists == "new"
        else _named(directory, can_replace=spec.run.if_exists == "replace")
    )


def check_unused(directory: Path) -> None:
    """Check that the directory of a new experiment is unused; called again with its lock held.

    Raises:
        ExperimentExists: If it holds an experiment, or the remains of one.
    """
    if directory.is_dir() and not is_experiment(directory) and (remains := remains_in(directory)):
        raise ExperimentExists(
            f"{str(directory)!r} holds what is left of an experiment, such as {remains!r}, "
            f"without {layout.DECLARATION} and journal; put "
            "them back from a backup, move the directory away, or choose another name"
        )
    if is_experiment(directory):
        raise ExperimentExists(
            f"{str(directory)!r} already holds an experiment; continue it with "
            f"Tuner.restore({str(directory)!r}, trainable) or "
            'Tuner(..., resume="auto"), keep it and run this one beside it with '
            'RunConfig(if_exists="new"), remove it for this one with '
            'RunConfig(if_exists="replace"), or choose another name'
        )


def replace_experiment(directory: Path) -> str:
    """Remove the experiment in a directory, if there is one; return a message about it.

    The caller must hold the directory's lock.

    Raises:
        StorageError: If something in it cannot be removed.
    """
    if not is_experiment(directory):
        return ""
    from tuner.journal.removal import clear  # noqa: PLC0415  (there is seldom one)

    left = clear(directory)
    kept = f"; files that do not belong to it were kept: {', '.join(left)}" if left else ""
    return (
        f"the experiment in {str(directory)!r} has been removed, "
        f'since RunConfig(if_exists="replace") was given{kept}'
    )


def number_remark(spec: ExperimentSpec, directory: Path) -> str:
    """Return a message if the experiment's directory got a number, else an empty string."""
    if spec.run.name is None or directory.name == named_directory(spec.run).name:
        return ""
    return (
        f"{spec.run.name!r} was taken, so this experiment is in {str(directory)!r}, "
        'since RunConfig(if_exists="new") was given'
    )


def remove_unused(spec: ExperimentSpec, directory: Path) -> None:
    """Remove the directory of an experiment that could not start, and the folders of its name.

    What is not empty is kept.
    """
    root = storage_root(spec.run)
    # rmdir refuses a directory with anything in it, which ends the loop.
    try:
        directory.rmdir()
        for above in directory.parents if root in directory.parents else ():
            if above == root:
                return
            above.rmdir()
    except OSError:
        pass


@dataclass(frozen=True, slots=True)
class Record:
    """The declaration of an experiment, as recorded in its directory.

    Attributes:
        trainable: Fingerprint of the trainable.
        seed: Seed of everything random in the experiment.
        settings: The settings with which it began.
        parts: Search space and configurations as declared last, as notes by the names of arguments
            of `Tuner`.
        text: The whole declaration as JSON.
    """

    trainable: Mapping[str, Any]
    seed: int
    settings: ExperimentSettings
    parts: Mapping[str, Any]
    text: Mapping[str, Any]

    @property
    def rerun(self) -> Rerun | None:
        """The trial of another experiment that this one runs again, None if there is none."""
        fields = self.text.get("rerun")
        return (
            Rerun(str(fields["experiment"]), str(fields["trial_id"]), int(fields["seed"]))
            if fields
            else None
        )

    def seed_of(self, trial_id: str) -> int:
        """Return the seed of one of its trials."""
        return seed_of_trial(trial_id, self.seed, self.rerun)

    @property
    def experiment_id(self) -> str:
        """Identifies the experiment among all others."""
        # Early releases recorded no id; the time of creation comes closest.
        return str(self.text.get("id") or self.text.get("created", ""))


def noted_parts(spec: ExperimentSpec) -> dict[str, Any]:
    """Return the declaration as notes, by the names of the arguments of `Tuner`."""
    return {
        "param_space": note(dict(spec.declared_space)),
        "tune_config": note(spec.tune),
        "run_config": note(spec.run),
    }


def write_declaration(spec: ExperimentSpec, settings: ExperimentSettings, directory: Path) -> None:
    """Write ``experiment.json``, the declaration for people and for a restore.

    Nothing in it is ever executed.

    Raises:
        StorageError: If it cannot be written.
    """
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    beginning = {
        "created": created,
        "declared_name": spec.run.name,
        "id": spec.experiment_id,
        "seed": spec.seed,
        "settings": settings.as_fields(),
    }
    _write(
        beginning if spec.rerun is None else {**beginning, "rerun": dataclasses.asdict(spec.rerun)},
        spec,
        directory,
    )


def rewrite_declaration(spec: ExperimentSpec, directory: Path, epoch: int) -> None:
    """Update ``experiment.json`` for a new driver; how the experiment began is not changed.

    Args:
        spec: What is declared now.
        directory: The experiment's directory.
        epoch: The driver's epoch, whose segment of the journal exists.

    Raises:
        StorageError: If it cannot be written, or the previous one cannot be read.
    """
    before = read_declaration(directory)
    kept = {name: before[name] for name in _BEGINNING if name in before}
    _write({**kept, MARK: mark_fields(epoch, spec.run.durability)}, spec, directory)


def _write(beginning: Mapping[str, Any], spec: ExperimentSpec, directory: Path) -> None:
    declaration = {
        "format_version": FORMAT_VERSION,
        RELEASE_KEY: THIS_RELEASE,
        "name": directory.name,
        "trainable": fingerprint(spec.trainable, spec.name),
        "metric": spec.metric,
        "mode": spec.mode,
        "num_samples": spec.tune.num_samples,
        **beginning,
        **noted_parts(spec),
    }
    path = directory / layout.DECLARATION
    data = (strict_json.dumps(strict_json.signed(declaration)) + "\n").encode()
    try:
        # An equal file is kept, so that a restore that changes nothing needs no flush to the disk.
        if not has_content(path, data):
            write_bytes(path, data)
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}; nothing has been run") from cause


def read_record(directory: Path) -> Record:
    """Return the declaration in the directory of an experiment.

    Raises:
        StorageError: If there is no experiment, its declaration cannot be read, or it was written
            by a later version.
    """
    if not is_experiment(directory):
        if any(directory.glob(layout.RAY_STATES)):
            raise StorageError(
                f"{str(directory)!r} is an experiment of Ray Tune, whose state is pickled, and "
                "cannot be continued; read it with ResultGrid.from_directory(path, metric, mode), "
                "and begin a new one with points_to_evaluate=tune.points_from(path, metric, mode)"
            )
        raise StorageError(refusal_of(directory))
    text = read_declaration(directory)
    try:
        parts = {name: text[name] for name in ("param_space", "tune_config", "run_config")}
        return Record(
            dict(text["trainable"]),
            int(text["seed"]),
            ExperimentSettings.from_fields(text["settings"]),
            parts,
            text,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        path = directory / layout.DECLARATION
        raise StorageError(
            f"{path} is not as this release writes it ({cause!r}); it has to be whole to "
            "continue the experiment"
        ) from cause


def check_restorable(directory: Path) -> None:
    """Check that an experiment's files are complete; changes and locks nothing.

    Raises:
        StorageError: If there is no experiment, or its declaration cannot be read.
        DamagedJournal: If its journal does not verify or lacks records. An incomplete last record
            is no damage.
    """
    from tuner.journal.completeness import check  # noqa: PLC0415  (new ones have no journal)

    read_record(directory)
    check(directory)


def named_directory(run: RunConfig) -> Path:
    """Return the directory of the experiment with this name and storage path."""
    return storage_root(run) / layout.check_name(run.name or "")


def _named(directory: Path, *, can_replace: bool) -> Path:
    if not can_replace:
        check_unused(directory)
    elif is_experiment(directory):
        from tuner.journal.removal import check_ours  # noqa: PLC0415  (seldom)

        # Early: it is removed only when all else is checked and its lock is held.
        check_ours(directory)
    # Trials and experiments of a group would be mixed up in one directory.
    if experiment := next(_experiments_in(directory, layout.MAX_NAME_DEPTH), None):
        raise ExperimentExists(
            f"{str(directory)!r} holds other experiments, such as {str(experiment)!r}; choose "
            "another name"
        )
    _make(directory)
    return directory


def _numbered(directory: Path) -> Path:
    """Create the directory, or else the first with a number appended that does not exist."""
    # Creating is the test: of two drivers that start at once, only one gets each name.
    for number in itertools.count(1):
        candidate = directory if number == 1 else directory.with_name(f"{directory.name}_{number}")
        try:
            candidate.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            continue
        except OSError as cause:
            raise _cannot_be_made(candidate, cause) from cause
        return candidate
    raise AssertionError("unreachable: counting has no end")


def _make_folders_above(root: Path, directory: Path) -> None:
    """Create the folders above the experiment's own in a name such as ``group/exp``.

    Raises:
        ExperimentExists: If one of them is an experiment.
        StorageError: If one cannot be created, or is a link.
    """
    for above in reversed(directory.relative_to(root).parents[:-1]):
        folder = root / above
        if is_experiment(folder):
            raise ExperimentExists(
                f"{str(folder)!r} is itself an experiment, and {directory.name!r} would be "
                "in it; choose another name"
            )
        _make(folder)


def _make(folder: Path) -> None:
    try:
        make_own_folder(folder)
    except OSError as cause:
        raise _cannot_be_made(folder, cause) from cause


def _cannot_be_made(folder: Path, cause: OSError) -> StorageError:
    return StorageError(f"{str(folder)!r} cannot be made: {cause}; choose another name")


def _experiments_in(folder: Path, max_depth: int) -> Iterator[Path]:
    """Yield the experiments below a folder that is no experiment."""
    if is_experiment(folder) or not folder.is_dir() or not max_depth:
        return
    for inner in sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()
    ):
        if is_experiment(inner):
            yield inner
        yield from _experiments_in(inner, max_depth - 1)


def _dated(root: Path, trainable: str) -> Path:
    date = dt.datetime.now().astimezone().strftime("%Y-%m-%d_%H-%M-%S")
    stem = f"{safe_name(trainable)}_{date}"
    # Two experiments of the same trainable may start in the same second.
    for number in range(1000):
        directory = root / (stem if number == 0 else f"{stem}_{number}")
        try:
            directory.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            continue
        return directory
    raise StorageError(f"no free directory name like {stem!r} is left in {str(root)!r}")


def safe_name(trainable: str) -> str:
    """Return a trainable's name as the name of a directory begins with it."""
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_"
        for letter in trainable
    ).lstrip("_-")
    return kept[:60] or "experiment"
