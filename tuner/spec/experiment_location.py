"""Location of an experiment: a directory of this machine, or also one in an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tuner import capabilities
from tuner.storage.declaration import is_experiment
from tuner.storage.directories import absolute_path
from tuner.storage.origin import origin_of
from tuner.storage.urls import is_like_url

from .config import RunConfig
from .experiment_directory import Record, named_directory, new_directory, read_record
from .experiment_spec import ExperimentSpec


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
