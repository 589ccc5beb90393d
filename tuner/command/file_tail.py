"""Files that a program writes: results as they are appended, and changes of a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from .reports import FileReports, JsonReports


@final
class FileTail:
    """Reads the results that are appended to a file.

    What is in the file when this is made is of an earlier attempt, and is not read again.

    Args:
        path: The file, which need not exist yet.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity, self._size = self._status()
        self._reports = FileReports(is_csv=_is_csv(path), num_old=self._size)

    @property
    def exists(self) -> bool:
        """Whether the file is there."""
        return os.path.exists(self.path)  # noqa: PTH110

    @property
    def json(self) -> JsonReports:
        """What was read as lines of JSON."""
        return self._reports.json

    def said_last_ns(self) -> int | None:
        """Return when the file was last written, None while there is more to be read."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return None
        return None if status.st_size > self._reports.offset else status.st_mtime_ns

    def read(self, *, is_end: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the results that have been added.

        Args:
            is_end: Whether the program has ended.
        """
        identity, size = self._status()
        if identity != self._identity or size < self._size:
            self._reports.restart()
        self._identity, self._size = identity, size
        if size == self._reports.offset and not is_end:
            return
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123
                file.seek(self._reports.offset)
                data = file.read()
        except FileNotFoundError:
            return
        yield from self._reports.read(data, is_end=is_end)

    def _status(self) -> tuple[tuple[int, int] | None, int]:
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return None, 0
        return (status.st_dev, status.st_ino), status.st_size


@final
@dataclass(frozen=True, slots=True)
class Contents:
    """What changes when a file below a directory does.

    Attributes:
        files: Names, sizes, and when they were last written or renamed, in nanoseconds.
    """

    files: frozenset[tuple[str, int, int]]

    @classmethod
    def of(cls, directory: str) -> Contents:
        """Return the present contents of a directory."""
        found = set()
        for path in Path(directory).rglob("*"):
            try:
                status = path.lstat()
            except OSError:  # deleted meanwhile
                continue
            if not path.is_dir():
                found.add((str(path), status.st_size, status.st_ctime_ns))
        return cls(frozenset(found))

    @property
    def newest_ns(self) -> int:
        """When the newest file was last changed; 0 without files."""
        return max((changed_ns for *_, changed_ns in self.files), default=0)


def _is_csv(path: str) -> bool | None:
    suffix = Path(path).suffix
    if suffix in (".csv", ".tsv"):
        return True
    return False if suffix in (".json", ".jsonl", ".ndjson") else None
