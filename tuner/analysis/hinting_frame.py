"""Data frames of results, which say which column is meant by a name that they lack.

This module imports pandas at the top, since its class derives from one of pandas. It is itself
imported only when a frame is made.
"""

from __future__ import annotations

import difflib
from typing import Any, final

import pandas as pd

from tuner.core.result import CONFIG, DELIMITER


@final
class ResultsFrame(pd.DataFrame):
    """A data frame of results; what is computed from it is a plain `pandas.DataFrame`."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        """Return a column, as any frame does.

        Raises:
            KeyError: If there is none; with the column that may be meant.
        """
        try:
            return super().__getitem__(key)
        except KeyError as error:
            meant = self._meant_by(key) if isinstance(key, str) else None
            if meant is None:
                raise
            raise KeyError(f"there is no column {key!r}; did you mean {meant!r}?") from error

    def _meant_by(self, name: str) -> str | None:
        names = [column for column in self.columns if isinstance(column, str)]
        if (parameter := f"{CONFIG}{DELIMITER}{name}") in names:
            return parameter
        ending = [column for column in names if column.endswith(f"{DELIMITER}{name}")]
        close = difflib.get_close_matches(name, names, n=1)
        return next(iter([*ending, *close]), None)
