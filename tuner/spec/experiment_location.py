"""Where an experiment is: a directory of this machine, or also one in an object store.

The directory of a new experiment is created, checked and replaced here.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner import capabilities
from tuner.errors import ExperimentExists, StorageError
from tuner.execution.leasing import lease_holder
from tuner.journal.mark import remains_in
from tuner.storage import layout
from tuner.storage.declaration import is_experiment
from tuner.storage.directories import absolute_path, make_folder, make_own_folder
from tuner.storage.disk import DIRECTORY_MODE
from tuner.storage.origin import origin_of
from tuner.storage.urls import is_like_url, join_url, split_options

from .config import RunConfig
from .experiment_spec import ExperimentSpec
from .record import Record, read_record


class ExperimentLocation:
    """Where an experiment is: in a directory of this machine.

    `StoredLocation` is that of one whose original is in an object store.

    Args:
        directory: The directory of this machine in which its driver works.

    Attributes:
        directory: As given.
        url: Its URL in an object store; empty without one.
        filesystem: The file system that was given for the store; None for that of its URL.
    """

    url = ""
    filesystem: Any = None

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def address(self) -> str:
        """What `Tuner.restore` accepts: the URL, or the path of the directory."""
        return self.url or os.fspath(self.directory)

    def has_experiment(self) -> bool:
        """Return whether there is an experiment.

        Raises:
            StorageError: If the store cannot be read, or the directory holds another experiment
                than it.
        """
        return is_experiment(self.directory)

    def read_record(self) -> Record:
        """Return the declaration of the experiment.

        Raises:
            StorageError: If there is no experiment, its declaration cannot be read, or the
                directory holds another one than the store.
        """
        return read_record(self.directory)


def named_location(run: RunConfig) -> ExperimentLocation:
    """Return where the experiment of this name and storage path is, or will be."""
    if run.storage_url is None:
        return ExperimentLocation(named_directory(run))
    stored: ExperimentLocation = capabilities.StoredLocation.named(run)
    return stored


def new_location(spec: ExperimentSpec) -> ExperimentLocation:
    """Create the local directory of a new experiment, and return where the experiment will be.

    Raises:
        ExperimentExists: If the name is taken, with ``RunConfig(if_exists="error")``.
        StorageError: If the storage path cannot be written to.
    """
    if spec.run.storage_url is None:
        return ExperimentLocation(new_directory(spec))
    stored: ExperimentLocation = capabilities.StoredLocation.new(spec)
    return stored


def location_of(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    local_dir: str | os.PathLike[str] | None = None,
) -> ExperimentLocation:
    """Return where an experiment is that exists.

    Args:
        path: Its URL, or its directory on this machine.
        filesystem: The fsspec file system on which the path is; None for that of the URL.
        local_dir: For a URL: where its local directory is, or will be made; None for the default.

    Raises:
        ValueError: If the URL is none, or `local_dir` is given with a path of this machine.
        StorageError: If the store cannot be read, or the local directory belongs to an experiment
            that needs its file system again.
    """
    stored: ExperimentLocation
    if filesystem is not None or is_like_url(os.fspath(path)):
        stored = capabilities.StoredLocation.at(os.fspath(path), filesystem, local_dir)
        return stored
    directory = absolute_path(path)
    if local_dir is not None:
        raise ValueError(
            f"local_dir must be None for a directory of this machine, got {local_dir!r} for "
            f"{str(directory)!r}; pass the URL of the experiment with it"
        )
    origin = origin_of(directory)
    if origin is None:
        return ExperimentLocation(directory)
    stored = capabilities.StoredLocation.noted(directory, origin)
    return stored


# Its directory.


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
