"""The records of results in the journal: of all trials in one pass, or of one by an index."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

from tuner.errors import DamagedJournal, StorageError
from tuner.storage import strict_json
from tuner.storage.disk import LOCAL_DISK
from tuner.storage.reading import open_regular

from .reader import backwards, verified
from .records import COMMITTED, RESULT, SAVED, VALIDATED
from .segments import body_of

_OF_KIND: Final = rb'\{"q":\d+,"e":\d+,"t":[^,]*,"k":"(?:%b)","id":"([^"\\]*)"'
RESULT_OF: Final = re.compile(_OF_KIND % RESULT.encode())
_OF_ROWS: Final = f"{RESULT}|{SAVED}|{COMMITTED}|{VALIDATED}"
_ROW_OF: Final = re.compile(_OF_KIND % _OF_ROWS.encode())
_OF_TRIAL: Final = re.compile(_OF_KIND % f"{_OF_ROWS}|(suggested|forked)".encode())
"""A result, or what is recorded of its checkpoint later; or, with a first group, what a trial comes
from: it has no result before."""
_OFFSET_BITS: Final = 40
_DECODED_AT_ONCE: Final = 64
"""To decode so many records in one piece takes half the time of one by one; of more, memory becomes
the limit."""


def result_records(
    experiment: str | os.PathLike[str], trial_ids: Collection[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the records of results and of their checkpoints in one pass over the journal.

    Those of all attempts are yielded, in their order.

    Args:
        experiment: Directory of the experiment; a driver may be writing in it.
        trial_ids: Of which trials; None for all. For one trial after the other a `ResultIndex` is
            faster.

    Raises:
        DamagedJournal: If records are missing or do not verify; names file and byte.
    """
    bodies = _bodies_of_results(experiment, trial_ids)
    while some := list(islice(bodies, _DECODED_AT_ONCE)):
        joined = b"[" + b",".join(some) + b"]"
        try:
            # A text with "$" may have a float that is not finite, which the fast decoder refuses:
            # the whole batch would be decoded slowly.
            yield from (
                [strict_json.loads(body) for body in some]
                if b"$" in joined
                else strict_json.loads(joined)
            )
        except ValueError as cause:
            raise DamagedJournal(
                f"a record of the journal in {os.fspath(experiment)!r} is no JSON: {cause}"
            ) from cause


def _bodies_of_results(
    experiment: str | os.PathLike[str], trial_ids: Collection[str] | None
) -> Iterator[bytes]:
    wanted = None if trial_ids is None else {trial_id.encode() for trial_id in trial_ids}
    for body in verified(experiment, 0, LOCAL_DISK):
        if (match := _ROW_OF.match(body)) and (wanted is None or match[1] in wanted):
            yield body


@final
class ResultIndex:
    """Index of the records of results and of their checkpoints by trial, 12 bytes for each.

    The pass begins at the end, and goes as far back as the trials that are asked for, so that those
    that ran last are found soon.

    Args:
        experiment: Directory of the experiment. Results that are reported later are not seen.

    Raises:
        DamagedJournal: If records of the last segment are missing or do not verify; a torn end is
            passed over. So do the methods, where they find that of others.
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
        # The last segment at once: a driver may be writing in it, and what it adds later is to be
        # seen by none of the questions.
        self._go_back()

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
        """Return how many such records a trial has."""
        self._go_back_to(trial_id)
        return len(self._places.get(trial_id, ()))

    def of(self, trial_id: str) -> Iterator[dict[str, Any]]:
        """Yield the records of a trial's results and of their checkpoints, those of all attempts.

        Raises:
            DamagedJournal: If one has changed since it was found.
        """
        self._go_back_to(trial_id)
        places, sizes = (
            self._places.get(trial_id, array("Q")),
            self._sizes.get(trial_id, array("L")),
        )
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
            raise StorageError(
                f"journal {self._segments[number]} cannot be read: {cause}"
            ) from cause

    def _read(self, descriptor: int, number: int, offset: int, size_bytes: int) -> dict[str, Any]:
        body = body_of(os.pread(descriptor, size_bytes + 9, offset))
        if body is None:
            raise DamagedJournal(
                f"journal {self._segments[number]} was changed at byte {offset} while it was read; "
                "read it again"
            )
        record: dict[str, Any] = strict_json.loads(body)
        return record
