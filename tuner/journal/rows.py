"""Results of trials, from memory or from the journal, without those that were superseded.

Each result has its row: its position among those of its trial that count, which the core has
counted (`Trial.num_rows`). A result supersedes those that were reported before it and have its row
or a later one, see `surviving`. Only results that were recorded without it are numbered here, see
`RowCounter`.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from tuner.core.result import (
    CHECKPOINT_DIR_NAME,
    ITERATIONS_SINCE_RESTORE,
    NUM_EXPLOITS,
    TRAINING_ITERATION,
    merged,
)
from tuner.core.trial import Trial, checkpoint_directory_name
from tuner.errors import StorageError

from .records import COMMITTED, SAVED, VALIDATED

if TYPE_CHECKING:
    from .result_records import ResultIndex

Row = dict[str, Any]
"""A result, nested as reported, with the auto-filled keys but without ``config``."""
Reported = tuple[str, int, int, Row]
"""The trial that reported a result, its branch, which is how many exploits lay behind the trial,
its row, see `surviving`, and the result."""

_MAX_ROW: Final = 1 << 40


class Rows(Protocol):
    """The results of an experiment's trials."""

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results in the order of their reports, one for each iteration.

        What an attempt reported beyond the iteration from which a later attempt continued is
        superseded by what that one reported. Where the trial continued from another trial's
        checkpoint, earlier results stay, and iterations may repeat: `NUM_EXPLOITS`, which is filled
        in here, tells them apart.

        A result whose checkpoint has been validated has the validation's metrics as well.
        """

    def configs(self, trial_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the configuration of each of these results; None where it never changed."""

    def reported(self, trial_ids: Collection[str], *, are_few: bool = False) -> Iterator[Reported]:
        """Yield all that these trials reported, also what is superseded.

        The results of a trial come in their order, those of several trials mixed.

        A result names the checkpoint that was saved after it, too; with `of` only one that was
        reported with it.

        Args:
            trial_ids: The trials.
            are_few: Look these up instead of going through the results of all trials.
        """

    def configs_by_branch(self, trial_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the configuration of each branch; empty where it never changed."""


@final
class MemoryRows:
    """Rows that were never in a journal.

    Args:
        results: The results of each trial, by its id, in the order they were reported.
        branches: The branch of each of them, see `Reported`; a trial that is not there has one
            only.
        configs: The configuration of each branch; a trial that is not there has one only.
    """

    def __init__(
        self,
        results: Mapping[str, Sequence[Mapping[str, Any]]],
        branches: Mapping[str, Sequence[int]] | None = None,
        configs: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._results = results
        self._branches = branches or {}
        self._configs = configs or {}

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results."""
        return [row | {NUM_EXPLOITS: branch} for branch, row in self._current(trial_id)]

    def configs(self, trial_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the configuration of each of the trial's results; None where it never changed."""
        return _configs_of(self._current(trial_id), self.configs_by_branch(trial_id))

    def reported(self, trial_ids: Collection[str], *, are_few: bool = False) -> Iterator[Reported]:
        """Yield all that these trials reported, one trial after the other."""
        for trial_id in trial_ids:
            for branch, row, result in self._numbered(trial_id):
                yield trial_id, branch, row, dict(result)

    def configs_by_branch(self, trial_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the configuration of each branch; empty where it never changed."""
        return self._configs.get(trial_id, ())

    def _numbered(self, trial_id: str) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
        branches = self._branches.get(trial_id) or repeat(0)
        return numbered(zip(branches, self._results.get(trial_id, ()), strict=False))

    def _current(self, trial_id: str) -> list[tuple[int, Row]]:
        return current(self._numbered(trial_id))


@final
class JournalRows:
    """Rows read from an experiment's journal, in one pass when the first of them are asked for.

    Args:
        experiment_path: Directory of the experiment. Results that are reported after the first
            question are not seen.
        histories: See `histories_of`.
    """

    def __init__(
        self,
        experiment_path: str | os.PathLike[str],
        histories: Mapping[str, History] | None = None,
    ) -> None:
        self._path = experiment_path
        self._histories = histories or {}
        self._index: ResultIndex | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # The index is made anew where it is needed.
        return JournalRows, (self._path, self._histories)

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results.

        Raises:
            DamagedJournal: If records are missing or do not verify.
        """
        return [row | {NUM_EXPLOITS: branch} for branch, row in self._current(trial_id)]

    def configs(self, trial_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the configuration of each of the trial's results; None where it never changed."""
        configs = self.configs_by_branch(trial_id)
        return _configs_of(self._current(trial_id), configs) if configs else None

    def reported(self, trial_ids: Collection[str], *, are_few: bool = False) -> Iterator[Reported]:
        """Yield all that these trials reported, in one pass over the journal unless they are few.

        Raises:
            DamagedJournal: If records are missing or do not verify.
        """
        if are_few:
            records: Iterable[Mapping[str, Any]] = itertools.chain.from_iterable(
                map(self._records, trial_ids)
            )
        else:
            from .result_records import result_records  # noqa: PLC0415  (as in `_records`)

            records = result_records(self._path, trial_ids)
        return _reported(records, self._histories)

    def configs_by_branch(self, trial_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the configuration of each branch; empty where it never changed."""
        history = self._histories.get(trial_id, _PLAIN)
        return history.configs if history.grafted else ()

    def _records(self, trial_id: str) -> Iterator[dict[str, Any]]:
        if self._index is None:
            from .result_records import ResultIndex  # noqa: PLC0415  (seldom read where it ran)

            self._index = ResultIndex(self._path)
        return self._index.of(trial_id)

    def _current(self, trial_id: str) -> list[tuple[int, Row]]:
        return current(
            result[1:]
            for result in _reported(self._records(trial_id), self._histories, names_saved=False)
        )


@dataclass(frozen=True, slots=True)
class History:
    """The turning points of a trial, by which its superseded results are recognised.

    Attributes:
        superseded: The last attempt whose results no longer count, since the trial began anew after
            it; 0 for none.
        grafted: The last attempt before each exploit, oldest first.
        configs: The configuration until each of them, and the last one behind them.
        failed_validations: Indices of checkpoints whose validation has failed for good, so that
            their results stay as they are.
    """

    superseded: int = 0
    grafted: tuple[int, ...] = ()
    configs: tuple[Mapping[str, Any], ...] = ()
    failed_validations: frozenset[int] = frozenset()

    def branch_of(self, attempt: int) -> int:
        """Return behind how many exploits an attempt lies."""
        return bisect_left(self.grafted, attempt)


_PLAIN = History()


def histories_of(trials: Iterable[Trial]) -> dict[str, History]:
    """Return the history of each trial that began anew, applied an exploit or had validations."""
    return {
        trial.trial_id: History(
            trial.superseded_attempt,
            tuple(graft.attempt for graft in trial.grafts),
            (*(graft.config for graft in trial.grafts), trial.config),
            frozenset(
                index
                for index, one in trial.validations.items()
                if not (one.is_unfinished or one.is_validated)
            ),
        )
        for trial in trials
        if trial.superseded_attempt or trial.grafts or trial.validations
    }


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


def _reported(
    records: Iterable[Mapping[str, Any]],
    histories: Mapping[str, History],
    *,
    names_saved: bool = True,
) -> Iterator[Reported]:
    """Yield results that counted when they were recorded, once no later record can amend them.

    Args:
        records: Of results, and of their checkpoints.
        histories: See `histories_of`.
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
            history = histories.get(trial_id, _PLAIN)
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


def current(results: Iterable[tuple[int, int, Mapping[str, Any]]]) -> list[tuple[int, Row]]:
    """Return a trial's results that count, each with its branch.

    Args:
        results: All that it reported, in that order, with branch and row.
    """
    reported = list(results)
    places = surviving(row for _, row, _ in reported)
    return [(branch, dict(result)) for branch, _, result in map(reported.__getitem__, places)]


def surviving(rows: Iterable[int]) -> list[int]:
    """Return the places of the results that count: a row supersedes itself and those behind it.

    Args:
        rows: The rows of all that one trial reported, in that order.

    Example:
        >>> surviving([1, 2, 3, 2])
        [0, 3]
    """
    places: list[int] = []
    for place, row in enumerate(rows):
        del places[row - 1 :]
        places.append(place)
    return places


def _configs_of(
    rows: Sequence[tuple[int, Row]], configs: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]] | None:
    return (
        [configs[min(branch, len(configs) - 1)] for branch, _ in rows] if len(configs) > 1 else None
    )
