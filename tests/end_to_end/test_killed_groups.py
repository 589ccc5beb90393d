"""kill -9 of each process of a worker group, its driver and its zygote, at each step of a commit.

Whatever is killed when: the experiment continues behind what it has acknowledged, counts each
result once, and leaves no process, no unfinished and no damaged checkpoint behind.
"""

import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.interruption import Script, still_alive
from tests.end_to_end.scripts import killed_group
from tests.end_to_end.scripts.killed_group import NUM_REPORTS
from tuner.storage.manifest import verify

VICTIMS = ("rank0", "rank1", "driver", "zygote")
STEPS = ("before", "during", "staged", "before rename", "after rename", "journalled")


def check(tmp_path, victim, step, mode):
    if victim == "driver":
        with contextlib.closing(
            Script(killed_group.__file__, tmp_path, victim, step, mode, directory=tmp_path)
        ) as script:
            assert script.end() == -signal.SIGKILL, script.errors
        assert Path(tmp_path, "killed").exists()
    result = killed_group.fit(killed_group.Scene(tmp_path, victim, step, mode))
    assert Path(tmp_path, "killed").exists()
    assert result.status == "TERMINATED"
    # Nothing is doubled, and nothing is missing.
    assert list(result.metrics_dataframe["count"]) == list(range(1, NUM_REPORTS + 1))
    # This process is the driver, and keeps its zygote for the next experiment.
    kept = {os.getpid(), *(child.pid for child in psutil.Process().children())}
    pids = {int(line) for line in Path(tmp_path, "pids").read_text().split()} - kept
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert still_alive(processes) == []
    (trial_dir,) = Path(tmp_path, "killed-group").glob("t0*")
    assert list(trial_dir.glob(".tmp-*")) == []
    checkpoints = sorted(trial_dir.glob("checkpoint_*"))
    for path in checkpoints:
        verify(path)
    return [path.name for path in checkpoints]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_acknowledged_is_lost_and_nothing_doubled(tmp_path, victim, step):
    names = check(tmp_path, victim, step, "SYNC")
    assert names == [f"checkpoint_{index:06d}" for index in range(NUM_REPORTS)]
    for rank in (0, 1):
        # A report that has returned has stored its checkpoint, so that none is repeated.
        told = [int(line) for line in Path(tmp_path, f"ledger-{rank}").read_text().split()]
        assert told == sorted(set(told))


@pytest.mark.parametrize("step", ["during", "staged", "before rename", "after rename"])
@pytest.mark.parametrize("victim", ["rank1", "driver"])
def test_what_is_stored_in_threads_is_whole_or_gone(tmp_path, victim, step):
    check(tmp_path, victim, step, "ASYNC")
