"""Data frames of configurations and results; `MetricsTable` holds every result of several trials.

Results are converted to columns while they are read: a number in a column takes 8 bytes, a result
as a dictionary more than a thousand. Columns of one type are converted to pandas once for all
trials, and the frame of a trial is a slice of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tuner.core.result import (
    AUTO_FILLED,
    CONFIG,
    DELIMITER,
    DONE,
    NUM_EXPLOITS,
    TRAINING_ITERATION,
    TRIAL_ID,
)
from tuner.core.trial import AppliedExploit
from tuner.journal.rows import Rows, surviving

from .ancestry import Stretch, ancestry
from .flat_results import flat_config, flat_metrics

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, np.dtype[Any]]

METRIC_ITERATION = "metric_iteration"
"""Column with the iteration at which a trial reported the metric's value in its row."""
LOGDIR = "logdir"
_ITERATIONS = (TRAINING_ITERATION, METRIC_ITERATION)
_LAST = (NUM_EXPLOITS, LOGDIR)
_CHUNK: Final = 256
"""Results held as dictionaries before they become columns; more exceed the CPU's cache."""
_READ_AT_ONCE: Final = 100_000
"""Up to this many results, which take about a second, are all read for the first frame.

In larger experiments a few requested trials are read alone.
"""
_READ_ALONE: Final = 0.02
"""Trials are few if they have at most this share of all results."""
_DTYPES: Final = {float: np.float64, int: np.int64, bool: np.bool_}
_SAME_IN_PARTS: Final = frozenset({float, int, bool, str, type(None)})
"""Types for which pandas gives a column and any part of it the same type."""


def in_order_of_appearance(rows: Iterable[Iterable[str]]) -> list[str]:
    """Return every key of the rows once, in the order in which they first appear."""
    return list(dict.fromkeys(key for row in rows for key in row))


def in_usual_order(names: Iterable[str], ends: Sequence[str] = ()) -> list[str]:
    """Return the columns of a table in their usual order.

    The trial comes first, then its metrics, the iteration, the hyperparameters, how the trial
    ended, the fields that the engine adds to each result, how many exploits lay before it, and the
    trial's directory.

    Args:
        names: The columns.
        ends: Those that say how the trial ended.
    """
    prefix = f"{CONFIG}{DELIMITER}"

    def place(name: str) -> int:
        if name == TRIAL_ID:
            return 0
        if name in _ITERATIONS:
            return 2
        if name.startswith(prefix):
            return 3
        if name in ends:
            return 4
        if name in _LAST:
            return 6 + _LAST.index(name)
        return 5 if name in AUTO_FILLED else 1  # 1: a metric

    return sorted(names, key=place)


def to_frame(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return flat rows as a data frame, in which None and absent values are missing values.

    Columns of numbers stay numeric if values are missing, and whole numbers stay whole (``Int64``).
    Columns of booleans stay usable as masks (``boolean``, in which a missing value selects
    nothing). Other columns have the type that pandas infers.

    Args:
        rows: Flat rows, in the order of the table.
        columns: The columns and their order; None takes every key in the order in which they first
            appear.
    """
    import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

    names = in_order_of_appearance(rows) if columns is None else columns
    data = {name: column([row.get(name) for row in rows]) for name in names}
    return pd.DataFrame(data, index=pd.RangeIndex(len(rows)))


def with_hints(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame as one that names the column meant by a name that it lacks."""
    from .hinting_frame import ResultsFrame  # noqa: PLC0415  (imports pandas)

    return ResultsFrame(frame)


def column(values: list[Any]) -> pd.Series[Any]:
    """Return one column of `to_frame`."""
    import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

    kinds = {type(value) for value in values}
    if kinds == {bool, type(None)}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int, type(None)}:
        with suppress(OverflowError):  # numbers beyond 64 bits
            return pd.Series(values, dtype="Int64")
    if float in kinds and str in kinds:
        # Inferred as a column of strings, pandas would turn a reported NaN into a missing string.
        return pd.Series(values, dtype="object")
    return pd.Series(values)


@dataclass(frozen=True, slots=True)
class TableTrial:
    """A trial's id, configuration and state, for its data frame.

    Attributes:
        trial_id: The trial.
        config: Its last configuration.
        done: Whether it is over, for the last row.
        num_rows: How many results it has; 0 if that is unknown before they are read.
        grafts: Its exploits, oldest first, if they are known.
    """

    trial_id: str
    config: Mapping[str, Any]
    done: bool
    num_rows: int = 0
    grafts: Sequence[AppliedExploit] = ()


@final
class MetricsFrames:
    """Data frames of an experiment's trials, read in one pass over all results.

    If only a few of very many trials are requested, these are read alone: finding the results of
    one trial in a journal takes about half the time of reading all, but hardly any memory.

    Args:
        trials: The trials.
        rows: Source of their results, read when the first frame is requested.
    """

    def __init__(self, trials: Sequence[TableTrial], rows: Rows) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._rows = rows
        num_rows = sum(trial.num_rows for trial in trials)
        self._num_alone = _READ_ALONE * num_rows if num_rows > _READ_AT_ONCE else 0
        self._asked: set[str] = set()
        self._table: MetricsTable | None = None

    def of(self, trial_id: str) -> pd.DataFrame:
        """Return every result of one trial, see `MetricsTable.of`."""
        if self._table is None:
            self._asked.add(trial_id)
            if sum(self._trials[asked].num_rows for asked in self._asked) <= self._num_alone:
                return MetricsTable([self._trials[trial_id]], self._rows, are_few=True).of(trial_id)
        return self._all().of(trial_id)

    def joined(self) -> pd.DataFrame:
        """Return every result of every trial."""
        return self._all().joined()

    def curve(self, trial_id: str) -> pd.DataFrame:
        """Return the results that led to the last one of a trial, see `Result.training_curve`.

        Raises:
            ValueError: If the trials that it continued from are not known, or not among these.
        """
        import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

        own = self.of(trial_id)
        if own.empty or not (num_exploits := int(own[NUM_EXPLOITS].iloc[-1])):
            return own
        end = Stretch(trial_id, num_exploits, int(own[TRAINING_ITERATION].iloc[-1]))
        stretches = list(ancestry(end, self._grafts_of))
        if stretches[-1].num_exploits:
            raise ValueError(
                f"trial {trial_id} continued from a checkpoint of another trial, whose results are "
                "not among these; take it from the ResultGrid of the whole experiment"
            )
        parts = [_trained_in(stretch, self.of) for stretch in reversed(stretches)]
        return pd.concat([part for part in parts if len(part)], ignore_index=True)

    def _grafts_of(self, trial_id: str) -> Sequence[AppliedExploit] | None:
        return self._trials[trial_id].grafts if trial_id in self._trials else None

    def _all(self) -> MetricsTable:
        if self._table is None:
            self._table = MetricsTable(list(self._trials.values()), self._rows)
        return self._table


@final
class MetricsTable:
    """Every current result of some trials, flat, with the configuration in force at it.

    The results are read on construction.

    Args:
        trials: The trials, in the order of the table.
        rows: Source of their results.
        are_few: Look these trials up instead of reading the results of all.
    """

    def __init__(self, trials: Sequence[TableTrial], rows: Rows, *, are_few: bool = False) -> None:
        reported, numbers, branches, positions = _read(trials, rows, are_few=are_few)
        places = _counting(numbers, positions)
        ends = np.cumsum(np.bincount(numbers[places], minlength=len(trials))).tolist()
        self._spans: dict[str, slice] = {}
        self._names_of: dict[str, list[str]] = {}
        """The columns that each trial has, in their order."""
        configs = _Configs()
        for trial, begin, end in zip(trials, [0, *ends], ends, strict=False):
            self._spans[trial.trial_id] = slice(begin, end)
            self._names_of[trial.trial_id] = []
            if end > begin:
                own = places[begin:end]
                keys = [
                    TRIAL_ID,
                    *reported.keys_of(own),
                    NUM_EXPLOITS,
                    DONE,
                    *configs.append(trial, rows, branches[own].tolist()),
                ]
                self._names_of[trial.trial_id] = in_usual_order(dict.fromkeys(keys))
        self._names = in_usual_order(in_order_of_appearance(self._names_of.values()))

        def values(name: str) -> Array:
            if name == TRIAL_ID:
                return np.repeat(
                    np.array([trial.trial_id for trial in trials], dtype=object),
                    np.diff(ends, prepend=0),
                )
            if name == NUM_EXPLOITS:
                return branches[places]
            if name in configs.names:
                return configs.values(name)
            return reported.values(name)[places]

        self._mixed: dict[str, Array] = {}
        """Values of columns whose pandas type may differ between a trial's frame and the table."""
        # A result cannot know that it is the last one: ``done`` is set when its trial is over.
        lasts = {
            span.stop - 1: trial.done
            for trial, span in zip(trials, self._spans.values(), strict=True)
            if span.stop > span.start
        }
        self._frame = self._framed(
            lambda name: _with(values(name), lasts) if name == DONE else values(name), len(places)
        )

    def _framed(self, values: Callable[[str], Array], num_rows: int) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

        made: dict[str, pd.Series[Any]] = {}
        for name in self._names:
            found = values(name)
            made[name] = column(found.tolist()) if found.dtype == object else pd.Series(found)
            kinds = set(map(type, found)) if found.dtype == object else set()
            if (
                len(kinds) > 1
                or not kinds <= _SAME_IN_PARTS
                or (kinds == {int} and made[name].dtype != np.int64)
            ):
                self._mixed[name] = found
        return pd.DataFrame(made, index=pd.RangeIndex(num_rows))

    def joined(self) -> pd.DataFrame:
        """Return all results, those of one trial after those of another."""
        return self._frame.copy()

    def of(self, trial_id: str) -> pd.DataFrame:
        """Return the results of a trial, with the columns that it has, typed by its own values."""
        import pandas as pd  # noqa: PLC0415  (as above)

        span, names = self._spans[trial_id], self._names_of[trial_id]
        part = self._frame.iloc[span]
        frame = part.copy() if names == self._names else part[names].copy()
        frame.index = pd.RangeIndex(len(frame))
        for name in self._mixed.keys() & set(names):
            frame[name] = column(self._mixed[name][span].tolist())
        return frame


def _trained_in(stretch: Stretch, frame_of: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    frame = frame_of(stretch.trial_id)
    if frame.empty:
        return frame
    is_before_its_end = frame[TRAINING_ITERATION] <= stretch.last_iteration
    return frame[(frame[NUM_EXPLOITS] == stretch.num_exploits) & is_before_its_end]


def _read(
    trials: Sequence[TableTrial], rows: Rows, *, are_few: bool
) -> tuple[_Columns, Array, Array, Array]:
    """Return all results as columns, with each one's trial number, branch and row."""
    number_of = {trial.trial_id: number for number, trial in enumerate(trials)}
    reported = _Columns()
    numbers, branches, positions = array("q"), array("q"), array("q")
    for trial_id, branch, row, result in rows.reported(number_of, are_few=are_few):
        numbers.append(number_of[trial_id])
        branches.append(branch)
        positions.append(row)
        reported.append(result)
    return reported, np.array(numbers), np.array(branches), np.array(positions)


def _counting(numbers: Array, rows: Array) -> Array:
    """Return the indices of results that no later attempt has superseded, ordered by trial."""
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    # Nearly always nothing was trained twice, which is checked for all trials at once.
    is_same_trial = numbers[1:] == numbers[:-1]
    if (rows[1:] == rows[:-1] + 1)[is_same_trial].all():
        return order
    trials = np.split(np.arange(len(order)), np.flatnonzero(~is_same_trial) + 1)
    kept: Array = np.concatenate([trial[surviving(rows[trial].tolist())] for trial in trials])
    return order[kept]


def _with(values: Array, known: Mapping[int, bool]) -> Array:
    changed = values.astype(object)
    changed[list(known)] = list(known.values())
    return _array(changed.tolist())


def _array(values: Sequence[Any]) -> Array:
    """Return values as an array of numbers or booleans if all are such, else of objects."""
    return _array_of(values, set(map(type, values)))


def _array_of(values: Sequence[Any], kinds: set[type]) -> Array:
    dtype = _DTYPES.get(next(iter(kinds))) if len(kinds) == 1 else None
    if dtype:
        with suppress(OverflowError):  # integers beyond 64 bits
            return np.array(values, dtype=dtype)
    return np.fromiter(values, dtype=object, count=len(values))


@final
class _Configs:
    """The configurations in force at the rows of a table, as columns."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._configs: list[dict[str, Any]] = []
        self._num_rows: list[int] = []
        """For how many rows each configuration was in force."""

    def append(self, trial: TableTrial, rows: Rows, branches: Iterable[int]) -> list[str]:
        """Add the configurations in force at a trial's rows, and return their column names.

        The configuration of a row is found by its branch.
        """
        configs = rows.configs_by_branch(trial.trial_id)
        found = [
            flat_config(config) for config in (configs if len(configs) > 1 else [trial.config])
        ]
        names: dict[str, None] = {}
        for number, run in groupby(min(branch, len(found) - 1) for branch in branches):
            self._configs.append(found[number])
            self._num_rows.append(sum(1 for _ in run))
            names |= dict.fromkeys(found[number])
        self.names |= names
        return list(names)

    def values(self, name: str) -> Array:
        """Return a column, with None where a configuration lacks it."""
        return np.repeat(_array([config.get(name) for config in self._configs]), self._num_rows)


@final
class _Columns:
    """Results as columns, with None where a result lacks a key."""

    def __init__(self) -> None:
        self._buffer: list[Mapping[str, Any]] = []
        self._chunks: list[dict[str, Array]] = []
        self._shapes: dict[tuple[str, ...], int] = {}
        """The numbers of the combinations of keys that results have."""
        self._shape_numbers: list[Array] = []
        """The combination of each result, by chunk."""
        self._sizes: list[int] = []
        """How many results each chunk has."""
        self._texts: dict[str, str] = {}
        """Each string once, since most occur in many rows."""

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a result, nested or flat."""
        self._buffer.append(row)
        if len(self._buffer) == _CHUNK:
            self._empty_buffer()

    def keys_of(self, places: Array) -> list[str]:
        """Return the keys of the results at these indices, in order of first appearance."""
        self._empty_buffer()
        if len(self._shape_numbers) > 1:
            self._shape_numbers = [np.concatenate(self._shape_numbers)]
        shapes, numbers = list(self._shapes), self._shape_numbers[0][places].tolist()
        return in_order_of_appearance(shapes[number] for number in dict.fromkeys(numbers))

    def values(self, name: str) -> Array:
        """Return a column."""
        self._empty_buffer()
        parts = [chunk.get(name) for chunk in self._chunks]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({part.dtype for part in known}) > 1:
            known = [
                np.full(size, None) if part is None else part.astype(object)
                for part, size in zip(parts, self._sizes, strict=True)
            ]
        return np.concatenate(known or [np.empty(0, dtype=object)])

    def _empty_buffer(self) -> None:
        if not self._buffer:
            return
        shapes, columns = _transposed(self._buffer)
        kinds = {name: set(map(type, values)) for name, values in columns.items()}
        # Most results are flat: flattening costs time only for chunks with a nested one.
        if CONFIG in columns or any(dict in found for found in kinds.values()):
            shapes, columns = _transposed(list(map(flat_metrics, self._buffer)))
            kinds = {name: set(map(type, values)) for name, values in columns.items()}
        numbers = {
            shape: self._shapes.setdefault(shape, len(self._shapes))
            for shape in dict.fromkeys(shapes)
        }
        self._shape_numbers.append(np.array([numbers[shape] for shape in shapes]))
        self._sizes.append(len(shapes))
        self._chunks.append(
            {
                name: _array_of(self._shared(values, kinds[name]), kinds[name])
                for name, values in columns.items()
            }
        )
        self._buffer.clear()

    def _shared(self, values: Sequence[Any], kinds: set[type]) -> Sequence[Any]:
        return list(map(self._texts.setdefault, values, values)) if kinds == {str} else values


def _transposed(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[str, ...]], dict[str, Sequence[Any]]]:
    """Return the keys of each row, and the values of each key; None where a row lacks it."""
    shapes = list(map(tuple, rows))
    if shapes.count(shapes[0]) == len(shapes):
        return shapes, dict(
            zip(shapes[0], zip(*(row.values() for row in rows), strict=True), strict=True)
        )
    return shapes, {
        name: [row.get(name) for row in rows]
        for name in in_order_of_appearance(dict.fromkeys(shapes))
    }
