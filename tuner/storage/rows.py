"""The results of single trials, out of a journal in which those of all trials lie mixed."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

from tuner.errors import DamagedJournal, StorageError

from . import strict_json
from .reading import open_regular
from .records import RESULT
from .recovery import backwards, read
from .segments import body_of

_OF_KIND: Final = rb'\{"q":\d+,"e":\d+,"t":[^,]*,"k":"%b","id":"([^"\\]*)"'
RESULT_OF: Final = re.compile(_OF_KIND % RESULT.encode())
_OF_TRIAL: Final = re.compile(_OF_KIND % (rb"(?:%b|(suggested|forked))" % RESULT.encode()))
"""A result, or, with a first group, what a trial comes from: it has no result before."""
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
    """Knows where in the journal each trial's results stand: 12 bytes for each, and one pass over the files.

    The pass begins at the end, and goes as far back as the trials that are asked for, so that those that ran last are found soon.

    Args:
        experiment: Directory of the experiment. Results that are reported later are not seen.

    Raises:
        DamagedJournal: If records of the last segment are missing or do not verify; a torn end is passed over. So do the methods, where
            they find that of others.
    """

    def __init__(self, experiment: str | os.PathLike[str]) -> None:
        self._segments: list[Path] = []
        self._places: dict[str, array[int]] = {}
        self._sizes: dict[str, array[int]] = {}
        """Both from the last result to the first."""
        self._begun: set[str] = set()
        self._unread = backwards(experiment)
        self._damage: StorageError | None = None
        self._turn = Lock()
        self._go_back()  # as far as a driver may still be writing

    def _go_back_to(self, trial_id: str) -> None:
        if trial_id in self._begun:
            return
        with self._turn:
            if self._damage:
                raise self._damage
            try:
                while trial_id not in self._begun and self._go_back():
                    pass
            except StorageError as damage:
                self._damage = damage  # what lies before it is not to be reached by asking again
                raise

    def _go_back(self) -> bool:
        """Read one more segment; return False where there is none."""
        segment = next(self._unread, None)
        if segment is None:
            return False
        path, bodies = segment
        begun: set[str] = set()
        found: dict[str, tuple[array[int], array[int]]] = {}
        for offset, body in bodies:
            if match := _OF_TRIAL.match(body):
                trial_id = match[2].decode()
                if match[1]:
                    begun.add(trial_id)
                    continue
                if trial_id not in found:
                    found[trial_id] = array("Q"), array("L")
                found[trial_id][0].append(len(self._segments) << _OFFSET_BITS | offset)
                found[trial_id][1].append(len(body))
        self._segments.append(path)
        for trial_id, (places, sizes) in found.items():
            places.reverse()
            sizes.reverse()
            self._places.setdefault(trial_id, array("Q")).extend(places)
            self._sizes.setdefault(trial_id, array("L")).extend(sizes)
        self._begun |= begun  # last: from now on other threads read them
        return True

    def count(self, trial_id: str) -> int:
        """Return how many results a trial has."""
        self._go_back_to(trial_id)
        return len(self._places.get(trial_id, ()))

    def of(self, trial_id: str) -> Iterator[dict[str, Any]]:
        """Yield the records of a trial's results, in the order in which they were reported, those of all attempts.

        Raises:
            DamagedJournal: If one has changed since it was found.
        """
        self._go_back_to(trial_id)
        places, sizes = self._places.get(trial_id, array("Q")), self._sizes.get(trial_id, array("L"))
        with ExitStack() as opened:
            files: dict[int, int] = {}
            for place, size_bytes in zip(reversed(places), reversed(sizes), strict=True):
                number, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
                if number not in files:
                    files[number] = self._open(number)
                    opened.callback(os.close, files[number])
                yield self._read(files[number], number, offset, size_bytes)

    def _open(self, number: int) -> int:
        try:
            return open_regular(self._segments[number])
        except OSError as cause:
            raise StorageError(f"journal {self._segments[number]} cannot be read: {cause}") from cause

    def _read(self, descriptor: int, number: int, offset: int, size_bytes: int) -> dict[str, Any]:
        body = body_of(os.pread(descriptor, size_bytes + 9, offset))
        if body is None:
            raise DamagedJournal(f"journal {self._segments[number]} was changed at byte {offset} while it was read; read it again")
        record: dict[str, Any] = strict_json.loads(body)
        return record
