"""Lines of a journal that is being written, read from its segments."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Final, final

from tuner.errors import DamagedJournal, StorageError
from tuner.journal.reader import numbers_of
from tuner.journal.segments import checked
from tuner.storage.disk import LOCAL_DISK, open_file
from tuner.storage.layout import journal_directory, segments_in

from .pieces import Piece, RecordId

_CHUNK_BYTES: Final = 1 << 20


@final
class SegmentTail:
    """Cuts a journal into pieces, from a record on, while its driver appends to it.

    It reads the files and not the driver's memory, so that nothing is stored elsewhere which the
    local journal may not have.

    Args:
        experiment: The experiment's directory.
        after: The record after which the first piece begins; it is in the journal.
        piece_bytes: From this size on a piece is complete.

    Attributes:
        position: The last record that was read.
    """

    def __init__(self, experiment: Path, after: RecordId, piece_bytes: int = _CHUNK_BYTES) -> None:
        self.position = after
        self._journal = journal_directory(experiment)
        self._piece_bytes = piece_bytes
        self._path: Path | None = None
        self._offset = 0

    def next_piece(self, up_to: int) -> Piece | None:
        """Return the lines behind the last piece, None if there is none.

        Args:
            up_to: Number of the last record that may be read; it has been written.

        Raises:
            DamagedJournal: If a line does not verify.
            StorageError: If the journal cannot be read.
        """
        previous = self.position
        if previous[0] >= up_to:
            return None
        try:
            return self._cut(up_to)
        except BaseException:
            self.position, self._path = previous, None
            raise

    def _cut(self, up_to: int) -> Piece:
        previous, epoch, size_bytes = self.position, 0, 0
        lines: list[bytes] = []
        while self.position[0] < up_to and size_bytes < self._piece_bytes:
            for line in self._read_lines(self.position[0] + 1):
                found = checked(line[:-1])
                numbers = numbers_of(found[0]) if found else None
                if found is None or (self._offset and numbers is None):
                    raise self._damaged()
                # The header, and records of the piece before, are passed over.
                if numbers and numbers[0] > self.position[0]:
                    if numbers[0] > self.position[0] + 1:
                        raise self._damaged()
                    epoch = epoch or numbers[1]
                    lines.append(line)
                    size_bytes += len(line)
                    self.position = numbers[0], found[1]
                self._offset += len(line)
                if self.position[0] == up_to or size_bytes >= self._piece_bytes:
                    break
        return Piece(previous[0] + 1, previous, self.position, epoch, b"".join(lines))

    def _read_lines(self, number: int) -> list[bytes]:
        """Return whole lines from the present place on, at least one."""
        path = self._segment_with(number)
        # A segment that a failed sync has put in doubt is replaced by one that begins in its midst.
        if path != self._path:
            self._path, self._offset = path, 0
        size_bytes = _CHUNK_BYTES
        try:
            with closing(open_file(path)) as file:
                while True:
                    data = os.pread(file.fileno(), size_bytes, self._offset)
                    if (end := data.rfind(b"\n")) >= 0:
                        return data[: end + 1].splitlines(keepends=True)
                    if len(data) < size_bytes:
                        raise self._damaged()
                    size_bytes *= 2
        except OSError as cause:
            raise StorageError(f"journal {path} cannot be read: {cause}") from cause

    def _segment_with(self, number: int) -> Path:
        # Listed each time: rotation, and what is said in `_read_lines`.
        found = [path for first, path in segments_in(self._journal, LOCAL_DISK) if first <= number]
        if not found:
            raise DamagedJournal(
                f"journal {self._journal} has no record {number}, which has been written",
                str(self._journal),
            )
        return found[-1]

    def _damaged(self) -> DamagedJournal:
        return DamagedJournal(
            f"journal {self._path} is damaged at byte {self._offset}: there is not record "
            f"{self.position[0] + 1} as it was written; its copy in the object store ends before "
            "it",
            str(self._path),
            self._offset,
        )
