"""kill -9 of each process of a worker group, its driver and its zygote, at each step of a commit.

Whatever is killed when: the experiment continues behind what it has acknowledged, counts each
result once, and leaves no process, no unfinished and no damaged checkpoint behind.
"""

from pathlib import Path

import psutil
import pytest

from tests.end_to_end.interruption import ROOT, Script, still_alive
from tuner.storage.checkpoints import verify

SCRIPT = ROOT / "tests" / "end_to_end" / "scripts" / "killed_group.py"
VICTIMS = ("rank0", "rank1", "driver", "zygote")
STEPS = ("before", "during", "staged", "before rename", "after rename", "journalled")
NUM_REPORTS = 5


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the script to its end, and what it has printed."""
    opened = []

    def run_script(*arguments):
        opened.append(Script(SCRIPT, tmp_path, *arguments, directory=tmp_path))
        code = opened[-1].end()
        return code, opened[-1].printed, opened[-1].errors

    yield run_script
    for script in opened:
        script.close()


def check(tmp_path, run, victim, step, mode):
    code, printed, errors = run(victim, step, mode)
    assert Path(tmp_path, "killed").exists(), errors
    if victim == "driver":
        assert code == -9, errors
        code, printed, errors = run(victim, step, mode)
    assert code == 0, errors
    assert "STATUS TERMINATED" in printed
    # Nothing is doubled, and nothing is missing.
    assert f"COUNTS {list(range(1, NUM_REPORTS + 1))}" in printed
    pids = {int(line) for line in Path(tmp_path, "pids").read_text().split()}
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
def test_nothing_acknowledged_is_lost_and_nothing_doubled(tmp_path, run, victim, step):
    names = check(tmp_path, run, victim, step, "SYNC")
    assert names == [f"checkpoint_{index:06d}" for index in range(NUM_REPORTS)]
    for rank in (0, 1):
        # A report that has returned has stored its checkpoint, so that none is repeated.
        told = [int(line) for line in Path(tmp_path, f"ledger-{rank}").read_text().split()]
        assert told == sorted(set(told))


@pytest.mark.parametrize("step", ["during", "staged", "before rename", "after rename"])
@pytest.mark.parametrize("victim", ["rank1", "driver"])
def test_what_is_stored_in_threads_is_whole_or_gone(tmp_path, run, victim, step):
    check(tmp_path, run, victim, step, "ASYNC")
