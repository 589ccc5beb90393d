"""Results of trials, from memory or from the journal, without those that were superseded.

Each result has its row: its position among those of its trial that count, which the core has
counted (`Trial.num_rows`). A result supersedes those that were reported before it and have its row
or a later one, see `surviving`. How the records of the journal are read is in `result_records`.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, final

from tuner.core.result import NUM_EXPLOITS
from tuner.core.trial import Trial

if TYPE_CHECKING:
    from .result_records import ResultIndex

Row = dict[str, Any]
"""A result, nested as reported, with the auto-filled keys but without ``config``."""
Reported = tuple[str, int, int, Row]
"""The trial that reported a result, its branch, which is how many exploits lay behind the trial,
its row, see `surviving`, and the result."""


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
        from .result_records import numbered  # noqa: PLC0415  (as in `JournalRows`)

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
        from .result_records import result_records, results_in  # noqa: PLC0415  (as in `_records`)

        records = (
            itertools.chain.from_iterable(map(self._records, trial_ids))
            if are_few
            else result_records(self._path, trial_ids)
        )
        return results_in(records, self._history_of)

    def configs_by_branch(self, trial_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the configuration of each branch; empty where it never changed."""
        history = self._history_of(trial_id)
        return history.configs if history.grafted else ()

    def _history_of(self, trial_id: str) -> History:
        return self._histories.get(trial_id, _PLAIN)

    def _records(self, trial_id: str) -> Iterator[dict[str, Any]]:
        if self._index is None:
            from .result_records import ResultIndex  # noqa: PLC0415  (seldom read where it ran)

            self._index = ResultIndex(self._path)
        return self._index.of(trial_id)

    def _current(self, trial_id: str) -> list[tuple[int, Row]]:
        from .result_records import results_in  # noqa: PLC0415  (as in `_records`)

        return current(
            result[1:]
            for result in results_in(self._records(trial_id), self._history_of, names_saved=False)
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
