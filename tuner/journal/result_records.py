"""The records of results in the journal: of all trials in one pass, or of one by an index.

A result has its row and its branch, and what was recorded of its checkpoint since amends it. Only
results that were recorded without their row are numbered here, see `RowCounter`.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, final

from tuner.core.result import (
    CHECKPOINT_DIR_NAME,
    ITERATIONS_SINCE_RESTORE,
    TRAINING_ITERATION,
    merged,
)
from tuner.core.worker_records import checkpoint_directory_name
from tuner.errors import DamagedJournal, StorageError
from tuner.storage import strict_json
from tuner.storage.disk import LOCAL_DISK, open_regular

from .reader import backwards, verified
from .records import COMMITTED, RESULT, SAVED, VALIDATED
from .segments import body_of

if TYPE_CHECKING:
    from .rows import History, Reported, Row

_OF_KIND: Final = rb'\{"q":\d+,"e":\d+,"t":[^,]*,"k":"(?:%b)","id":"([^"\\]*)"'
RESULT_OF: Final = re.compile(_OF_KIND % RESULT.encode())
_OF_ROWS: Final = f"{RESULT}|{SAVED}|{COMMITTED}|{VALIDATED}"
_ROW_OF: Final = re.compile(_OF_KIND % _OF_ROWS.encode())
_OF_TRIAL: Final = re.compile(_OF_KIND % f"{_OF_ROWS}|(suggested|forked)".encode())
"""A result, or what is recorded of its checkpoint later; or, with a first group, what a trial comes
from: it has no result before."""
_OFFSET_BITS: Final = 40
_MAX_ROW: Final = 1 << 40
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


@final
class RowCounter:
    """Numbers the results of one trial that were recorded without their rows.

    That is so in journals of earlier releases and in log files. An earlier release may also have
    continued what this one had begun.
    """

    def __init__(self) -> None:
        self._iterations: list[int] = []
        """Of the results that count so far."""
        self._branch = self._num_earlier = 0

    def row_of(self, branch: int, result: Mapping[str, Any], began: int | None = None) -> int:
        """Return the row of the next result.

        Within a branch, one whose iteration is not above the one before it shows that an attempt
        continued from an earlier checkpoint; in another branch all earlier results stay.

        Args:
            branch: See `Reported`.
            result: The result; without an iteration it has one above the result before.
            began: If it is the first of its attempt, the iteration behind which that began, see
                `_beginning`; else, and where that is not known, None.
        """
        known = self._iterations
        if branch != self._branch:
            self._branch, self._num_earlier = branch, len(known)
        given = result.get(TRAINING_ITERATION)
        iteration = len(known) + 1 if given is None else given
        last = iteration - 1 if began is None else min(began, iteration - 1)
        while len(known) > self._num_earlier and known[-1] > last:
            del known[-1]
        known.append(iteration)
        return len(known)

    def note(self, branch: int, result: Mapping[str, Any], row: int) -> None:
        """Take in a result whose row is known, behind which one may come that is to be numbered."""
        known = self._iterations
        if branch != self._branch:
            self._branch, self._num_earlier = branch, len(known)
        del known[row - 1 :]
        known.append(result.get(TRAINING_ITERATION) or row)


def numbered(
    results: Iterable[tuple[int, Mapping[str, Any]]],
) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield a trial's results, each with its branch before it, with branch and row."""
    counter = RowCounter()
    for branch, result in results:
        yield branch, counter.row_of(branch, result), result


@final
class Numbering:
    """Finds branches and rows of one trial's records, given in their order.

    Args:
        history: The trial's.

    Attributes:
        attempt: That of the latest result that counted when it was recorded.
    """

    __slots__ = ("_counter", "_history", "attempt")

    def __init__(self, history: History) -> None:
        self.attempt = history.superseded
        self._history = history
        self._counter = RowCounter()

    def is_late(self, attempt: int) -> bool:
        """Return whether a record comes from an attempt that was over, or that does not count.

        Earlier releases also recorded results that workers had sent before they died.
        """
        return attempt < self.attempt or attempt <= self._history.superseded

    def place(self, record: Mapping[str, Any]) -> tuple[int, int]:
        """Return branch and row of a result that is not late.

        Raises:
            StorageError: If the row is none that a result can have.
        """
        attempt, row = record["a"], record.get("row")
        branch = self._history.branch_of(attempt) if self._history.grafted else 0
        if row is None:
            began = _beginning(record["m"]) if attempt != self.attempt else None
            row = self._counter.row_of(branch, record["m"], began)
        elif 0 < row <= _MAX_ROW:
            self._counter.note(branch, record["m"], row)
        else:
            raise StorageError(
                f"record {record['q']} has the row {row!r:.80}, which no trial can have reached; "
                "tuner doctor says what else is wrong"
            )
        self.attempt = attempt
        return branch, int(row)


def _beginning(first: Mapping[str, Any]) -> int | None:
    """Return the iteration after which an attempt began, by its first result; None if unknown."""
    iteration, since = first.get(TRAINING_ITERATION), first.get(ITERATIONS_SINCE_RESTORE)
    return iteration - since if isinstance(iteration, int) and isinstance(since, int) else None


def _checkpoint_index(record: Mapping[str, Any]) -> int | None:
    """Return the index of the checkpoint that was reported with a result, None without one."""
    if checkpoint := record["c"]:
        return int(checkpoint["index"])
    return record.get("upload")


def _metrics_of(record: Mapping[str, Any]) -> Row:
    """Return the metrics of a result, which name its checkpoint only once that is stored."""
    metrics: Row = record["m"]
    if "upload" in record:
        metrics = {name: value for name, value in metrics.items() if name != CHECKPOINT_DIR_NAME}
    return metrics


def _index_in(record: Mapping[str, Any]) -> int:
    """Return which checkpoint a record is about that may amend a result."""
    return int(record["index"] if record["k"] == VALIDATED else record["c"]["index"])


def _amendment(record: Mapping[str, Any]) -> Callable[[Row], Row] | None:
    """Return how a record changes the result of its checkpoint; None for not at all."""
    if record["k"] == COMMITTED:
        name = record["c"].get("name") or checkpoint_directory_name(record["c"]["index"])
        return lambda row: {**row, CHECKPOINT_DIR_NAME: name}
    if record["k"] == VALIDATED and (metrics := record["metrics"]):
        return lambda row: merged(row, metrics)
    return None


@dataclass(slots=True)
class _HeldResults:
    """The latest results of a trial, held back as long as a later record may amend the first.

    Attributes:
        history: The trial's.
        numbers: Their rows.
        results: The results, oldest first, each with the index of its checkpoint or None.
        num_open: For each index how many records may still amend its result: its commit, and its
            validation.
    """

    history: History
    numbers: Numbering
    results: deque[tuple[int | None, Reported]] = field(default_factory=deque)
    num_open: dict[int, int] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a result behind the others."""
        index = _checkpoint_index(record)
        reported = (record["id"], *self.numbers.place(record), _metrics_of(record))
        self.results.append((index, reported))
        if index is not None:
            may_validate = "v" in record and index not in self.history.failed_validations
            if num_open := ("upload" in record) + may_validate:
                self.num_open[index] = num_open

    def amend(self, record: Mapping[str, Any]) -> None:
        """Take in what has been recorded of a checkpoint since its result."""
        wanted, more = _index_in(record), _amendment(record)
        places = range(len(self.results) - 1, -1, -1)
        place = next((place for place in places if self.results[place][0] == wanted), None)
        if place is None or more is None:
            return
        trial_id, branch, row, metrics = self.results[place][1]
        self.results[place] = wanted, (trial_id, branch, row, more(metrics))
        self.num_open[wanted] = self.num_open.get(wanted, 0) - 1

    def release(self) -> Iterator[Reported]:
        """Remove and yield the first results, up to one that a later record may amend."""
        while self.results:
            index, reported = self.results[0]
            if index is not None:
                if self.num_open.get(index, 0) > 0:
                    return
                self.num_open.pop(index, None)
            self.results.popleft()
            yield reported


def results_in(
    records: Iterable[Mapping[str, Any]],
    history_of: Callable[[str], History],
    *,
    names_saved: bool = True,
) -> Iterator[Reported]:
    """Yield results that counted when they were recorded, once no later record can amend them.

    Args:
        records: Of results, and of their checkpoints.
        history_of: Returns the history of a trial.
        names_saved: Whether a result names the checkpoint that was saved after it.
    """
    held: dict[str, _HeldResults] = {}
    for record in records:
        trial_id, kind = record["id"], record["k"]
        mine = held.get(trial_id)
        if kind in (COMMITTED, VALIDATED):
            # Also those of earlier attempts: a validation may outlive its attempt.
            if mine:
                mine.amend(record)
            continue
        if mine is None:
            history = history_of(trial_id)
            mine = held[trial_id] = _HeldResults(history, Numbering(history))
        if mine.numbers.is_late(record["a"]):
            continue
        if kind == SAVED:
            if names_saved and mine.results and mine.numbers.attempt == record["a"]:
                mine.results[-1][1][3][CHECKPOINT_DIR_NAME] = checkpoint_directory_name(
                    record["c"]["index"]
                )
            continue
        yield from mine.release()
        mine.add(record)
    for mine in held.values():
        yield from (reported for _, reported in mine.results)
