"""What a worker is told before anything of the user's is unpickled."""

from __future__ import annotations

import os

from tuner.execution.devices import worker_environment
from tuner.execution.messages import Assignment

from .wire import Birth, pickled


def birth_of(assignment: Assignment, working_directory: str) -> Birth:
    """Return the first message to a worker.

    Args:
        assignment: What it is started for.
        working_directory: The driver's; training code finds it in ``TUNE_ORIG_WORKING_DIR``.

    Raises:
        Exception: Whatever the reduction methods of what the configuration holds may raise.
    """
    directory = os.fspath(assignment.trial_dir)
    environ = worker_environment(assignment.resources, assignment.gpu_ids) | {
        "TUNER_TRIAL_ID": assignment.trial_id,
        "TUNER_TRIAL_DIR": directory,
        "TUNE_ORIG_WORKING_DIR": working_directory,
    }
    return Birth(directory, environ, assignment.seed, pickled(assignment))
