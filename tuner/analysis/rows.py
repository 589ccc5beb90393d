"""Where the rows of a trial come from: every result as it was reported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, final

from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Trial
from tuner.storage.rows import ResultIndex

Row = dict[str, Any]
"""A result, nested as reported, with the auto-filled keys but without ``config``."""


class Rows(Protocol):
    """The results of an experiment's trials."""

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results in the order of their ``training_iteration``, one for each; empty if it never reported.

        What an attempt reported beyond the iteration at which a later attempt went on is superseded by what that one reported.
        """


@final
class MemoryRows:
    """Rows that were never on a disk.

    Args:
        results: The results of each trial, by its id, in the order they were reported.
    """

    def __init__(self, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._results = results

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results."""
        return current(self._results.get(trial_id, ()))


@final
class JournalRows:
    """Rows read from an experiment's journal, which is gone through once, when the first of them are asked for.

    Args:
        experiment_path: Directory of the experiment. Results that are reported after the first question are not seen.
        superseded: See `superseded_attempts`.
    """

    def __init__(self, experiment_path: str | os.PathLike[str], superseded: Mapping[str, int] | None = None) -> None:
        self._path = experiment_path
        self._superseded = superseded or {}
        self._index: ResultIndex | None = None

    def of(self, trial_id: str) -> list[Row]:
        """Return the trial's results.

        Raises:
            DamagedJournal: If records are missing or do not verify.
        """
        if self._index is None:
            self._index = ResultIndex(self._path)
        return current(_counted(self._index.of(trial_id), self._superseded.get(trial_id, 0)))


def superseded_attempts(trials: Iterable[Trial]) -> dict[str, int]:
    """Return, of each trial that began anew, the last attempt whose results no longer count."""
    return {trial.trial_id: trial.superseded_attempt for trial in trials if trial.superseded_attempt}


def _counted(records: Iterable[Mapping[str, Any]], superseded: int) -> Iterator[Mapping[str, Any]]:
    """Yield the metrics of a trial's records, without what a dead attempt's worker still sent after the next one had reported."""
    latest = superseded + 1
    for record in records:
        if record["a"] >= latest:
            latest = record["a"]
            yield record["m"]


def current(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the results that no later attempt has superseded.

    Args:
        results: All that one trial reported, in that order. An iteration that is not above the one before it shows that an
            attempt went on from an earlier checkpoint.
    """
    rows: list[Row] = []
    for result in results:
        iteration = result.get(TRAINING_ITERATION, len(rows) + 1)
        while rows and rows[-1].get(TRAINING_ITERATION, len(rows)) >= iteration:
            rows.pop()
        rows.append(dict(result))
    return rows
