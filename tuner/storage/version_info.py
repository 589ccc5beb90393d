"""Which release has written an experiment: what to say, and what to install, where this one cannot read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tuner.version import __version__

from . import layout, strict_json
from .reading import SMALL_BYTES, read_file

RELEASE_KEY: Final = "release"
THIS_RELEASE: Final = __version__


def writer_of(experiment: str | os.PathLike[str]) -> str:
    """Return who has written the experiment last, e.g. ``"version 0.1.0 of tuner-hpo"``; says so where that is not known."""
    try:
        declaration = strict_json.loads(
            read_file(Path(experiment) / layout.DECLARATION, SMALL_BYTES)
        )
        return f"version {str(declaration[RELEASE_KEY])[:40]} of tuner-hpo"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown version of tuner-hpo"
