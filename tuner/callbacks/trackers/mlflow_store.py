"""Creation of MLflow's SQLite store, all or nothing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_SCHEME: Final = "sqlite:///"


def make_sqlite_store(uri: str, client: Callable[[str], Any]) -> None:
    """Make the SQLite file that a tracking URI names, unless it exists or the URI names something else.

    MLflow makes some sixty tables one after the other and can do nothing with a file that lacks the
    last of them: a process that is killed in between leaves a store that nobody can open any more.
    Here they are made beside it, and the whole file is moved to its place.

    Args:
        uri: The tracking URI.
        client: Connects to a URI, and makes the tables that it does not find.

    Raises:
        OSError: If it cannot be written.
    """
    if not uri.startswith(_SCHEME) or uri == _SCHEME or ":memory:" in uri or "?" in uri:
        return
    path = Path(uri.removeprefix(_SCHEME))
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as place:
        begun, whole = Path(place, "begun.db"), Path(place, "whole.db")
        client(f"{_SCHEME}{begun}")
        with (
            contextlib.closing(sqlite3.connect(begun)) as source,
            contextlib.closing(sqlite3.connect(whole)) as target,
        ):
            # The client still holds the file, and may not have written everything to it.
            source.backup(target)
        with contextlib.suppress(FileExistsError):  # somebody else was faster
            os.link(whole, path)
