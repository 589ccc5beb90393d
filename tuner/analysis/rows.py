"""Where the rows of a trial come from: every result as it was reported."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, final

from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Trial
from tuner.storage.rows import ResultIndex

Row = dict[str, Any]
"""A result, nested as reported, with the auto-filled keys but without ``config``."""


class Rows(Protocol):
    """The results of an experiment's trials."""

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results in the order in which they were reported, one for each iteration; empty if it never reported.

        What an attempt reported beyond the iteration at which a later attempt went on is superseded by what that one reported. Not so
        where the trial went on from another trial's checkpoint: what it had reported until then stays, and iterations may repeat.
        """

    def configs(self, trial_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the configuration in force at each of these results; None where it never changed."""


@final
class MemoryRows:
    """Rows that were never on a disk.

    Args:
        results: The results of each trial, by its id, in the order they were reported.
        branches: The branch of each of them, see `current`; a trial that is not there has one only.
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
        return [row for _, row in self._current(trial_id)]

    def configs(self, trial_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the configuration in force at each of the trial's results; None where it never changed."""
        return _configs_of(self._current(trial_id), self._configs.get(trial_id, ()))

    def _current(self, trial_id: str) -> list[tuple[int, Row]]:
        return current(zip(self._branches.get(trial_id) or repeat(0), self._results.get(trial_id, ()), strict=False))


@final
class JournalRows:
    """Rows read from an experiment's journal, which is gone through once, when the first of them are asked for.

    Args:
        experiment_path: Directory of the experiment. Results that are reported after the first question are not seen.
        histories: See `histories_of`.
    """

    def __init__(self, experiment_path: str | os.PathLike[str], histories: Mapping[str, History] | None = None) -> None:
        self._path = experiment_path
        self._histories = histories or {}
        self._index: ResultIndex | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return JournalRows, (self._path, self._histories)  # the index is made anew where it is needed

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results.

        Raises:
            DamagedJournal: If records are missing or do not verify.
        """
        return [row for _, row in self._current(trial_id)]

    def configs(self, trial_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the configuration in force at each of the trial's results; None where it never changed."""
        history = self._histories.get(trial_id, _PLAIN)
        return _configs_of(self._current(trial_id), history.configs) if history.grafted else None

    def _current(self, trial_id: str) -> list[tuple[int, Row]]:
        if self._index is None:
            self._index = ResultIndex(self._path)
        return current(_counted(self._index.of(trial_id), self._histories.get(trial_id, _PLAIN)))


@dataclass(frozen=True, slots=True)
class History:
    """What has to be known of a trial's attempts to tell which of its results count.

    Attributes:
        superseded: The last attempt whose results no longer count, since the trial began anew after it; 0 for none.
        grafted: The last attempt before each exploit, oldest first.
        configs: The configuration until each of them, and the last one behind them.
    """

    superseded: int = 0
    grafted: tuple[int, ...] = ()
    configs: tuple[Mapping[str, Any], ...] = ()

    def branch_of(self, attempt: int) -> int:
        """Return behind how many exploits an attempt lies."""
        return bisect_left(self.grafted, attempt)


_PLAIN = History()


def histories_of(trials: Iterable[Trial]) -> dict[str, History]:
    """Return the history of each trial that has begun anew, or gone on from another one's checkpoint."""
    return {
        trial.trial_id: History(
            trial.superseded_attempt,
            tuple(graft.attempt for graft in trial.grafts),
            (*(graft.config for graft in trial.grafts), trial.config),
        )
        for trial in trials
        if trial.superseded_attempt or trial.grafts
    }


def _counted(records: Iterable[Mapping[str, Any]], history: History) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield branch and metrics of a trial's records, without what a dead attempt's worker still sent after the next one had reported."""
    latest = history.superseded + 1
    for record in records:
        if record["a"] >= latest:
            latest = record["a"]
            yield history.branch_of(latest), record["m"]


def current(results: Iterable[tuple[int, Mapping[str, Any]]]) -> list[tuple[int, Row]]:
    """Return the results that no later attempt has superseded, each behind the number of its branch.

    Args:
        results: All that one trial reported, in that order, each behind the number of its branch: how many exploits lay behind the trial.
            Within a branch, an iteration that is not above the one before it shows that an attempt went on from an earlier checkpoint.
    """
    rows: list[tuple[int, Row]] = []
    branch, num_earlier = 0, 0
    for number, result in results:
        if number != branch:
            branch, num_earlier = number, len(rows)
        iteration = result.get(TRAINING_ITERATION, len(rows) + 1)
        while len(rows) > num_earlier and rows[-1][1].get(TRAINING_ITERATION, len(rows)) >= iteration:
            rows.pop()
        rows.append((number, dict(result)))
    return rows


def _configs_of(rows: Sequence[tuple[int, Row]], configs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]] | None:
    return [configs[min(branch, len(configs) - 1)] for branch, _ in rows] if len(configs) > 1 else None
