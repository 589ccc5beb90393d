"""Variables of the environment by which a command has a script continue or repeat something."""

from __future__ import annotations

import os
from typing import Final

RESUME: Final = "TUNER_RESUME"
"""Names the directory of an experiment, which is continued."""
RERUN: Final = "TUNER_RERUN"
"""Names a trial and the directory of its experiment, ``t00003:/home/you/tuner_results/digits``; the
trial is trained again."""


def is_requested() -> bool:
    """Return whether the next `Tuner` is to do what one of the variables says."""
    return RESUME in os.environ or RERUN in os.environ
