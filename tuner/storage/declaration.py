"""Declaration of an experiment: ``experiment.json``, environments, and its release."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tuner.errors import StorageError
from tuner.version import __version__

from . import layout, strict_json
from .disk import SMALL_BYTES, read_file

RELEASE_KEY: Final = "release"
THIS_RELEASE: Final = __version__
FORMAT_VERSION: Final = 1
_SEGMENTS: Final = f"{'[0-9]' * 20}.log"


def is_experiment(path: Path) -> bool:
    """Return whether the directory holds an experiment: a declaration or a journal segment."""
    return (path / layout.DECLARATION).is_file() or any((path / layout.JOURNAL).glob(_SEGMENTS))


def refusal_of(path: Path) -> str:
    """Return why a directory without an experiment is refused, and which may have been meant."""
    remedy = guess_of(path) or "give the directory that fit() created"
    return f"{str(path)!r} holds no experiment; {remedy}"


def guess_of(path: Path) -> str:
    """Return a question whether an experiment of the same name was meant, empty if there is none.

    The shell takes a name for an experiment under the default storage path; in Python, a name is
    relative to the working directory.
    """
    usual = Path(layout.DEFAULT_STORAGE_PATH).expanduser() / path.name
    return f"did you mean {str(usual)!r}?" if path.name and is_experiment(usual) else ""


def read_declaration(directory: Path) -> Mapping[str, Any]:
    """Return what ``experiment.json`` says.

    Raises:
        StorageError: If it cannot be read, or was written by a later version.
    """
    path = directory / layout.DECLARATION
    try:
        text = strict_json.loads(read_file(path, SMALL_BYTES))
        version = int(text["format_version"])
        declaration: Mapping[str, Any] = (
            strict_json.checked(text) if version <= FORMAT_VERSION else {}
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as cause:
        raise StorageError(
            f"{path} cannot be read: {cause}; it has to be there to continue the experiment"
        ) from cause
    if version > FORMAT_VERSION:
        raise StorageError(
            f"{path} was written by {writer_of(directory)} in format {version}, version "
            f"{THIS_RELEASE} reads up to {FORMAT_VERSION}; "
            "update tuner-hpo"
        )
    return declaration


def read_environments(directory: Path) -> list[Mapping[str, Any]]:
    """Return the environment of each session, the latest last; empty if unknown."""
    try:
        sessions = json.loads(read_file(directory / layout.ENVIRONMENT, SMALL_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    return (
        [session for session in sessions if isinstance(session, dict)]
        if isinstance(sessions, list)
        else []
    )


def writer_of(experiment: str | os.PathLike[str]) -> str:
    """Return which release has written the experiment, e.g. ``"version 0.1.0 of tuner-hpo"``."""
    try:
        declaration = strict_json.loads(
            read_file(Path(experiment) / layout.DECLARATION, SMALL_BYTES)
        )
        return f"version {str(declaration[RELEASE_KEY])[:40]} of tuner-hpo"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown version of tuner-hpo"
