"""The handle of a checkpoint that users hold: a directory here, or in an object store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tuner import capabilities
from tuner.errors import CheckpointError, missing_name

from . import strict_json
from .disk import SMALL_BYTES, read_file, write_text
from .layout import CHECKPOINT_PREFIX, MANIFEST, METADATA
from .urls import is_remote

if TYPE_CHECKING:
    from tuner.core.trial import Trial

_WRITE: Final = "write the state to files in a directory, and use Checkpoint.from_directory(path)"
_READ: Final = "read the files in checkpoint.path, or in `with checkpoint.as_directory()`"
_REPLACEMENTS: Final = {
    "from_bytes": _WRITE,
    "from_dict": _WRITE,
    "from_uri": "use Checkpoint(url)",
    "dir_or_data": _READ,
    "get_preprocessor": "save it in the checkpoint with the model",
    "to_bytes": _READ,
    "to_dict": _READ,
    "to_uri": "use checkpoint.path",
    "uri": "use checkpoint.path",
    "value": _READ,
}
"""Names of Ray's older checkpoints that do not exist here, each with the alternative."""


class _OlderNames(type):
    """Tells what to write in place of the constructors of Ray's older checkpoints."""

    if not TYPE_CHECKING:  # checkers are to see which names exist

        def __getattr__(cls, name: str) -> Any:
            raise missing_name(f"type object {cls.__name__!r}", name, _REPLACEMENTS)


class Checkpoint(metaclass=_OlderNames):
    """A directory with a user's files, on this machine or in an object store.

    The object only names the directory: it is light and holds no data, and the content of the
    directory is up to the user. Two checkpoints are equal if they name the same directory.

    Args:
        path: A local directory, or a URL of any file system that fsspec knows, e.g.
            ``"s3://bucket/run/checkpoint_000003"``.
        filesystem: The fsspec file system on which `path` lies; None for this machine, or as the
            URL says.

    Attributes:
        path: As given; a local one is made absolute.

    Example:
        >>> directory = tempfile.mkdtemp()
        >>> _ = Path(directory, "weights.txt").write_text("0.5 0.1")
        >>> with Checkpoint.from_directory(directory).as_directory() as files:
        ...     Path(files, "weights.txt").read_text()
        '0.5 0.1'

    Departures:
        Remote file systems are fsspec's, not pyarrow's, and a URL stays in `path`. Ray Tune
        downloads once for each object, this class once for each path.
    """

    __slots__ = ("_filesystem", "_path")

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        text = os.fspath(path)
        if filesystem is None and not is_remote(text):
            text = str(Path(text).absolute())
        self._path = text
        self._filesystem = filesystem

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """Return the checkpoint of a local directory, which is not copied.

        Raises:
            FileNotFoundError: If there is no such directory.
            NotADirectoryError: If it is something else.
        """
        if not os.path.lexists(path):
            raise FileNotFoundError(
                f"checkpoint directory {os.fspath(path)!r} does not exist; write the files before "
                "reporting them"
            )
        if not Path(path).is_dir():
            raise NotADirectoryError(
                f"a checkpoint is a directory, got the file {os.fspath(path)!r}; pass the "
                "directory it lies in"
            )
        return cls(path)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_name(f"{type(self).__name__!r} object", name, _REPLACEMENTS)

    @property
    def path(self) -> str:
        """The directory, or its URL."""
        return self._path

    @property
    def filesystem(self) -> Any:
        """The fsspec file system on which the checkpoint lies.

        Needs ``pip install "tuner-hpo[remote]"``, also for a local one.
        """
        return capabilities.filesystem_of(self._path, self._filesystem)

    @property
    def is_local(self) -> bool:
        """Whether the directory lies on this machine, where it is read without a copy."""
        return self._filesystem is None and not is_remote(self._path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the checkpoint into a directory that stays.

        Args:
            path: Where to; created if it is missing. None for a new temporary directory, which is
                the caller's to delete.

        Returns:
            The path of the copy.

        Raises:
            FileNotFoundError: If the checkpoint does not exist.
            CheckpointError: If a link leads out of it, or the copy does not match its manifest.
        """
        # What a process that only passes the checkpoint on has no use for.
        from .manifest import verify  # noqa: PLC0415
        from .trees import copy_tree  # noqa: PLC0415

        self._check_exists()
        target = Path(
            tempfile.mkdtemp(prefix=CHECKPOINT_PREFIX) if path is None else path
        ).absolute()
        if self.is_local:
            copy_tree(Path(self._path), target)
        else:
            capabilities.download(self._path, self._filesystem, target)
        if (target / MANIFEST).exists():
            verify(target)
        return str(target)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Read the checkpoint as a local directory.

        A local checkpoint is its own directory: nothing is copied, nothing deleted, and it must not
        be changed. A remote one is downloaded; processes of this machine that read it at the same
        time share one download, which the last of them removes.

        Raises:
            FileNotFoundError: If the checkpoint does not exist.
        """
        self._check_exists()
        if self.is_local:
            yield self._path
        else:
            with capabilities.shared_download(self._path, self._filesystem) as directory:
                yield str(directory)

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata stored with the checkpoint, empty without any."""
        try:
            if self.is_local:
                content = read_file(self._metadata_file(), SMALL_BYTES)
            else:
                store = capabilities.ObjectStore(self._path, self._filesystem)
                content = store.get(METADATA, SMALL_BYTES)
        except FileNotFoundError:
            return {}
        try:
            metadata: dict[str, Any] = strict_json.loads(content)
        except ValueError as cause:
            raise CheckpointError(
                f"the metadata of checkpoint {self._path} cannot be read: {cause}"
            ) from cause
        return metadata

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Store JSON values with the checkpoint, in the place of what was stored before.

        Raises:
            TypeError: If a value is not JSON.
        """
        text = strict_json.dumps(dict(metadata))
        if self.is_local:
            write_text(self._metadata_file(), text)
        else:
            capabilities.ObjectStore(self._path, self._filesystem).put(METADATA, text.encode())

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add JSON values to those stored with the checkpoint; of equal keys the new one counts."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def _metadata_file(self) -> Path:
        return Path(self._path, METADATA)

    def _check_exists(self) -> None:
        if self.is_local and not Path(self._path).is_dir():
            raise FileNotFoundError(
                f"checkpoint directory {self._path!r} does not exist; write the files before "
                "reporting them"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and (self._path, self._filesystem) == (
            other._path,
            other._filesystem,
        )

    def __hash__(self) -> int:
        return hash(self._path)

    def __reduce__(self) -> tuple[type[Checkpoint], tuple[str, Any]]:
        return Checkpoint, (self._path, self._filesystem)

    def __repr__(self) -> str:
        filesystem = "" if self._filesystem is None else f", filesystem={self._filesystem!r}"
        return f"Checkpoint({self._path!r}{filesystem})"

    def __fspath__(self) -> str:
        raise TypeError(
            f"{self!r} is not a path, it may lie elsewhere; use `with checkpoint.as_directory() as "
            "path:`"
        )


def locate(trial: Trial, directory: str | os.PathLike[str], trainable_name: str = "") -> None:
    """Set a trial's directory, and the class in which users get its checkpoints."""
    trial.local_path = os.fspath(directory)
    trial.trainable_name = trainable_name or trial.trainable_name
    trial.open_checkpoint = Checkpoint
