"""Exchange of small values among the workers of a group, by files in the trial's directory.

It needs neither PyTorch nor a process group, and no more than the storage that workers share
anyway. Each exchange takes a few milliseconds: workers look for the files of the others every
`_POLL_S` seconds.
"""

from __future__ import annotations

import itertools
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tuner.execution.attempt import Attempt, current_attempt
from tuner.storage import atomic
from tuner.storage.directories import make_folder
from tuner.storage.layout import STAGING_PREFIX

_POLL_S: Final = 0.005
_counters: dict[str, Iterator[int]] = {}
"""Numbers of the exchanges of each group; workers count alike."""


def gather(value: Any) -> list[Any]:
    """Return what each worker of the group has passed, by rank; all of them have to call this.

    Args:
        value: A value that can be pickled.

    Raises:
        RuntimeError: Outside a trial.
    """
    attempt = current_attempt()
    if attempt is None:
        raise RuntimeError("workers can only exchange values in a trial")
    rank = attempt.assignment.rank
    if rank is None or rank.world_size == 1:
        return [value]
    # Of this prefix, so that it is removed when no worker of the trial is alive.
    number = next(_counters.setdefault(rank.run_id, itertools.count()))
    folder = _folder(attempt, number)
    make_folder(folder)
    atomic.write_bytes(folder / str(rank.world_rank), pickle.dumps(value), sync=False)
    paths = [folder / str(number) for number in range(rank.world_size)]
    while not all(path.exists() for path in paths):
        time.sleep(_POLL_S)  # the executor kills the group if one of them has died
    if number and rank.world_rank == 0:
        # All have come to this exchange, so none reads the one before it any more.
        shutil.rmtree(_folder(attempt, number - 1), ignore_errors=True)
    return [pickle.loads(path.read_bytes()) for path in paths]  # noqa: S301  (the group's own)


def _folder(attempt: Attempt, number: int) -> Path:
    assignment = attempt.assignment
    name = f"{STAGING_PREFIX}exchange-{assignment.attempt}-{number}"
    return Path(assignment.trial_dir) / name
