"""Files that a program writes: results as they are appended, and changes of a directory."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from .reports import FileReports, JsonReports

_MARK_BYTES: Final = 1 << 12


@final
@dataclass(frozen=True, slots=True)
class _Status:
    identity: tuple[int, int] | None
    size: int
    written_ns: int


_NO_FILE: Final = _Status(None, 0, 0)


@final
@dataclass(frozen=True, slots=True)
class _Marks:
    """Parts of a file up to a place, by which it is recognised."""

    end: int
    head: bytes
    tail: bytes


@final
class FileTail:
    """Reads the results that are appended to a file.

    What is in the file when this is made is of an earlier attempt, and is not read again.

    Args:
        path: The file, which need not exist yet.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._status = self._first_status = self._look()
        size = self._status.size
        self._reports = FileReports(is_csv=_is_csv(path), num_old=size)
        self._marks = self._marks_before(size)

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
        status = self._look()
        if status == self._status and not is_end:
            return
        end = self._marks.end
        if self._is_other(status):
            self._reports.restart()
            end = 0
        self._status = status
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123
                file.seek(self._reports.offset)
                data = file.read()
        except FileNotFoundError:
            return
        yield from self._reports.read(data, is_end=is_end)
        self._marks = self._marks_before(max(self._reports.offset, end))

    def read_anew(self) -> Iterator[dict[str, Any]]:
        """Yield all results of a file that was written since this was made, even if it is equal."""
        if self._status != self._first_status:
            self._status = _NO_FILE
            yield from self.read(is_end=True)

    def _is_other(self, status: _Status) -> bool:
        """Return whether the file does not begin with what it was when it was last looked at."""
        marks = self._marks
        return (
            status.identity != self._status.identity
            or status.size < self._status.size
            or self._marks_before(marks.end) != marks
        )

    def _marks_before(self, end: int) -> _Marks:
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123
                head = file.read(min(end, _MARK_BYTES))
                file.seek(max(0, end - _MARK_BYTES))
                return _Marks(end, head, file.read(min(end, _MARK_BYTES)))
        except OSError:
            return _Marks(end, b"", b"")

    def _look(self) -> _Status:
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return _NO_FILE
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(
                f"report_file must be a file, got {self.path!r}, which is none; name a file that "
                "the program writes"
            )
        return _Status((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


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
        found: set[tuple[str, int, int]] = set()
        rest = [directory]
        while rest:
            with contextlib.suppress(OSError), os.scandir(rest.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        rest.append(entry.path)
                        continue
                    with contextlib.suppress(OSError):  # deleted meanwhile
                        status = entry.stat(follow_symlinks=False)
                        found.add((entry.path, status.st_size, status.st_ctime_ns))
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
