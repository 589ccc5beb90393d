"""Directory of an experiment: its place, whether it can be used, the declaration in it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.settings import ExperimentSettings
from tuner.errors import ExperimentExists, StorageError
from tuner.journal.completeness import MARK, check, mark_fields, remains_in
from tuner.journal.takeover_cleanup import check_ours, clear
from tuner.storage import atomic, layout, strict_json
from tuner.storage.declaration import (
    FORMAT_VERSION,
    RELEASE_KEY,
    THIS_RELEASE,
    is_experiment,
    read_declaration,
)
from tuner.storage.directories import absolute_path, make_folder, make_own_folder
from tuner.storage.disk import DIRECTORY_MODE
from tuner.storage.reading import has_content

from .argument_codec import note
from .config import RunConfig
from .experiment_spec import ExperimentSpec, Rerun, seed_of_trial
from .fingerprint import fingerprint

_BEGINNING = ("created", "declared_name", "id", "seed", "settings", "rerun")
"""What is written down of an experiment's beginning and stays as it was."""


def storage_root(run: RunConfig) -> Path:
    """Return the absolute directory in which the experiment's own is made."""
    return absolute_path(run.storage_path or layout.DEFAULT_STORAGE_PATH)


def new_directory(spec: ExperimentSpec) -> Path:
    """Make the directory of a new experiment.

    Raises:
        ExperimentExists: If the given name is taken, and ``RunConfig(if_exists="error")`` holds.
        StorageError: If the storage path cannot be written to, or what is to be replaced is no
            experiment of ours.
    """
    root = storage_root(spec.run)
    try:
        make_folder(root)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as cause:
        raise StorageError(
            f"storage_path {str(root)!r} cannot be written to: {cause}; give another one in "
            "RunConfig"
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
    """Make sure that the directory of a new experiment is still unused, now that its lock is held.

    Raises:
        ExperimentExists: If another driver has been there since its name was found free.
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
    """Remove the experiment in a directory whose lock the caller holds, if there is one, and return what the user is told of it.

    Raises:
        StorageError: If something in it cannot be removed.
    """
    if not is_experiment(directory):
        return ""
    left = clear(directory)
    kept = f"; kept, since it is none of the experiment's: {', '.join(left)}" if left else ""
    return f'the experiment that was in {str(directory)!r} has been removed, since RunConfig(if_exists="replace") was given{kept}'


def number_remark(spec: ExperimentSpec, directory: Path) -> str:
    """Return what the user is told where the experiment got another directory than the one of its name; empty if it did not."""
    if spec.run.name is None or directory.name == named_directory(spec.run).name:
        return ""
    return f'{spec.run.name!r} was taken, so this experiment is in {str(directory)!r}, since RunConfig(if_exists="new") was given'


def remove_unused(spec: ExperimentSpec, directory: Path) -> None:
    """Remove the directory of an experiment that could not begin, and the folders that its name made above it, if nothing is in them."""
    root = storage_root(spec.run)
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
    """What a directory tells about the experiment in it.

    Attributes:
        trainable: Fingerprint of what its trials run.
        seed: What all chance in it follows from.
        settings: The settings with which it began.
        parts: Space and configurations as they were declared last, by their names as arguments of
            the `Tuner`, as notes.
        text: All that was written.
    """

    trainable: Mapping[str, Any]
    seed: int
    settings: ExperimentSettings
    parts: Mapping[str, Any]
    text: Mapping[str, Any]

    @property
    def rerun(self) -> Rerun | None:
        """The trial of another experiment that it trains again; None for none."""
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
        """What tells the experiment from all others; of one that an earlier release has written, when it was created."""
        return str(self.text.get("id") or self.text.get("created", ""))


def noted_parts(spec: ExperimentSpec) -> dict[str, Any]:
    """Return what was declared as notes, by the names of the arguments of the `Tuner`."""
    return {
        "param_space": note(dict(spec.declared_space)),
        "tune_config": note(spec.tune),
        "run_config": note(spec.run),
    }


def write_declaration(spec: ExperimentSpec, settings: ExperimentSettings, directory: Path) -> None:
    """Write ``experiment.json``: what was declared, for people and for a restore; nothing in it is ever executed.

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
    """Write down what is declared now, and that this driver has begun a segment; how the experiment began stays as it was.

    Args:
        spec: What is declared now.
        directory: Its directory.
        epoch: The driver's epoch; its segment has been begun.

    Raises:
        StorageError: If it cannot be written, or what was declared before not be read.
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
        if not has_content(path, data):
            atomic.write_bytes(path, data)
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}; nothing has been run") from cause


def read_record(directory: Path) -> Record:
    """Return what the directory of an experiment tells.

    Raises:
        StorageError: If there is no experiment, what it tells cannot be read, or it was written by
            a later version.
    """
    if not is_experiment(directory):
        raise StorageError(
            f"{str(directory)!r} holds no experiment; give the directory that fit() has made"
        )
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
    """Check that an experiment can be continued, as far as that can be seen without its code, and without changing or locking anything.

    Raises:
        StorageError: If there is no experiment, or its declaration cannot be read.
        DamagedJournal: If its journal does not verify, which a torn end does, or lacks what was
            written to it.
    """
    read_record(directory)
    check(directory)


def named_directory(run: RunConfig) -> Path:
    """Return where the experiment lies that has the name given there."""
    return storage_root(run) / layout.check_name(run.name or "")


def _named(directory: Path, *, can_replace: bool) -> Path:
    if not can_replace:
        check_unused(directory)
    elif is_experiment(directory):
        check_ours(directory)  # long before anything is removed
    if experiment := next(_experiments_in(directory, layout.MAX_NAME_DEPTH), None):
        raise ExperimentExists(
            f"{str(directory)!r} holds other experiments, such as {str(experiment)!r}; choose "
            "another name"
        )
    _make(directory)
    return directory


def _numbered(directory: Path) -> Path:
    """Make the directory, or the first of those with a number behind its name, that does not exist yet."""
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
    """Make the folders that a name such as ``group/exp`` has above the experiment's own.

    Raises:
        ExperimentExists: If one of them is an experiment, whose trials lie there.
        StorageError: If one cannot be made, or is a link.
    """
    for above in reversed(directory.relative_to(root).parents[:-1]):
        folder = root / above
        if is_experiment(folder):
            raise ExperimentExists(
                f"{str(folder)!r} is itself an experiment, and {directory.name!r} would lie "
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
    """Yield experiments in the folders of one that is none itself."""
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
    stem = f"{_safe(trainable)}_{date}"
    for number in range(1000):
        directory = root / (stem if number == 0 else f"{stem}_{number}")
        try:
            directory.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            continue
        return directory
    raise StorageError(f"no free directory name like {stem!r} is left in {str(root)!r}")


def _safe(name: str) -> str:
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_"
        for letter in name
    ).lstrip("_-")
    return kept[:60] or "experiment"
