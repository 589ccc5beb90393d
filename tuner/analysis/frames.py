"""From nested results to flat pandas tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tuner.core.result import AUTO_FILLED, CONFIG, DELIMITER, TRAINING_ITERATION, TRIAL_ID, flatten

if TYPE_CHECKING:
    import pandas as pd


METRIC_ITERATION = "metric_iteration"
"""In which iteration a trial reported the value that its row has of the experiment's metric."""
LOGDIR = "logdir"
_ITERATIONS = (TRAINING_ITERATION, METRIC_ITERATION)


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters as ``{"config/lr": 0.1, "config/model/depth": 3}``.

    Example:
        >>> flat_config({"lr": 0.1, "model": {"depth": 3}})
        {'config/lr': 0.1, 'config/model/depth': 3}
    """
    return {f"{CONFIG}{DELIMITER}{key}": value for key, value in flatten(config).items()}


def flat_metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with nested metrics flattened to ``"a/b"`` and without its ``config``."""
    return flatten({key: value for key, value in result.items() if key != CONFIG})


def value_at(result: Mapping[str, Any], metric: str) -> Any:
    """Return the value of a metric, ``"a/b"`` for a nested one; None where the result has none."""
    value = result.get(metric)
    return flatten(result).get(metric) if value is None and DELIMITER in metric else value


def in_order_of_appearance(rows: Iterable[Iterable[str]]) -> list[str]:
    """Return every key of the rows once, in the order in which they first appear."""
    return list(dict.fromkeys(key for row in rows for key in row))


def in_usual_order(names: Iterable[str], ends: Sequence[str] = ()) -> list[str]:
    """Return the columns of a table in their usual order.

    The trial first, then its metrics, the iteration, the hyperparameters, how the trial ended, what the engine adds to each result, and
    the trial's directory.

    Args:
        names: The columns.
        ends: Those of them that tell how the trial ended.
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
        return 6 if name == LOGDIR else 5 if name in AUTO_FILLED else 1

    return sorted(names, key=place)


def to_frame(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return flat rows as a table; a value that a row lacks, or that was reported as None, is missing in the pandas sense.

    Columns of numbers are numeric whatever is missing, and whole numbers stay whole (``Int64`` where some are missing). Columns of truth
    values stay usable as masks (``boolean`` where some are missing, in which case a missing one selects nothing). Everything else is what
    pandas makes of it.

    Args:
        rows: Flat rows, in the order of the table.
        columns: The columns and their order; None takes every key in the order in which they first appear.
    """
    import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

    names = in_order_of_appearance(rows) if columns is None else columns
    data = {name: column([row.get(name) for row in rows]) for name in names}
    return pd.DataFrame(data, index=pd.RangeIndex(len(rows)))


def column(values: list[Any]) -> pd.Series[Any]:
    """Return one column of `to_frame`."""
    import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

    kinds = {type(value) for value in values}
    if kinds == {bool, type(None)}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int, type(None)}:
        with suppress(OverflowError):  # numbers beyond 64 bits
            return pd.Series(values, dtype="Int64")
    if float in kinds and str in kinds:  # as texts alone, pandas would take NaN for a missing one
        return pd.Series(values, dtype="object")
    return pd.Series(values)
