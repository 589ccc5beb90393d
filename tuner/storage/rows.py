"""The results of single trials, out of a journal in which those of all trials lie mixed."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import DamagedJournal, StorageError

from . import strict_json
from .disk import LOCAL_DISK
from .records import RESULT
from .recovery import read, verified
from .segments import body_of

RESULT_OF: Final = re.compile(rb'\{"q":\d+,"e":\d+,"t":[^,]*,"k":"%b","id":"([^"\\]*)"' % RESULT.encode())
_OFFSET_BITS: Final = 40


def rows(experiment: str | os.PathLike[str], trial_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield records of results, in the order in which they were reported, those of all attempts.

    Args:
        experiment: Directory of the experiment; a driver may be writing in it.
        trial_id: Whose; None for all trials. Who asks for one trial after the other makes a `ResultIndex` instead.

    Raises:
        DamagedJournal: If records are missing or do not verify; names file and byte.
    """
    if trial_id is None:
        return (body for body in read(experiment) if body["k"] == RESULT)
    return ResultIndex(experiment).of(trial_id)


@final
class ResultIndex:
    """Knows where in the journal each trial's results stand: 12 bytes for each, and one pass over the files to begin with.

    Args:
        experiment: Directory of the experiment. Results that are reported later are not seen.

    Raises:
        DamagedJournal: If records are missing or do not verify; a torn end is passed over.
    """

    def __init__(self, experiment: str | os.PathLike[str]) -> None:
        self._segments: list[Path] = []
        self._places: dict[str, array[int]] = {}
        self._sizes: dict[str, array[int]] = {}
        for (path, offset), body in verified(experiment, 0, LOCAL_DISK):
            found = RESULT_OF.match(body)
            if found:
                self._add(found[1].decode(), path, offset, len(body))

    def _add(self, trial_id: str, path: Path, offset: int, size_bytes: int) -> None:
        if not self._segments or self._segments[-1] != path:
            self._segments.append(path)
        if trial_id not in self._places:
            self._places[trial_id], self._sizes[trial_id] = array("Q"), array("L")
        self._places[trial_id].append((len(self._segments) - 1) << _OFFSET_BITS | offset)
        self._sizes[trial_id].append(size_bytes)

    def trial_ids(self) -> list[str]:
        """Return the trials that have results, in the order of their first one."""
        return list(self._places)

    def count(self, trial_id: str) -> int:
        """Return how many results a trial has."""
        return len(self._places.get(trial_id, ()))

    def of(self, trial_id: str) -> Iterator[dict[str, Any]]:
        """Yield the records of a trial's results, in the order in which they were reported, those of all attempts.

        Raises:
            DamagedJournal: If one has changed since the index was made.
        """
        with ExitStack() as opened:
            files: dict[int, int] = {}
            for place, size_bytes in zip(self._places.get(trial_id, ()), self._sizes.get(trial_id, ()), strict=True):
                number, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
                if number not in files:
                    files[number] = self._open(number)
                    opened.callback(os.close, files[number])
                yield self._read(files[number], number, offset, size_bytes)

    def _open(self, number: int) -> int:
        try:
            return os.open(self._segments[number], os.O_RDONLY | os.O_CLOEXEC)
        except OSError as cause:
            raise StorageError(f"journal {self._segments[number]} cannot be read: {cause}") from cause

    def _read(self, descriptor: int, number: int, offset: int, size_bytes: int) -> dict[str, Any]:
        body = body_of(os.pread(descriptor, size_bytes + 9, offset))
        if body is None:
            raise DamagedJournal(f"journal {self._segments[number]} was changed at byte {offset} while it was read; read it again")
        record: dict[str, Any] = strict_json.loads(body)
        return record
