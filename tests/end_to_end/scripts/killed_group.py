"""Trains one trial over two workers, and kills one process at one step of a commit.

Arguments: the storage path, the victim, the step, and the upload mode. The process that reaches the
step kills the victim, once. Run again, the script continues the experiment. What a report was
acknowledged for is written to ``ledger-<rank>``, and each process to ``pids``, both in the storage
path, outside the experiment.
"""

import os
import signal
import sys
import time
from pathlib import Path

import tuner as tune
from tuner import FailureConfig, RunConfig, Tuner
from tuner.core.trial import WorkerGroup
from tuner.execution import attempt as attempt_module
from tuner.execution.attempt import current_attempt
from tuner.execution.local.group import RemoteGroup
from tuner.execution.report_options import CheckpointUploadMode, ReportOptions
from tuner.storage import checkpoint_parts
from tuner.storage.checkpoints import Checkpoint

NUM_REPORTS = 5
KILLS_AT = 3
STORAGE, VICTIM, STEP, MODE = sys.argv[1:]


def pid_of(victim):
    return int(Path(STORAGE, f"pid-{victim}").read_text())


def note_pid(name, pid):
    Path(STORAGE, f"pid-{name}").write_text(str(pid))
    append("pids", str(pid))


def append(name, line):
    descriptor = os.open(f"{STORAGE}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def kill(count):
    """Kill the victim when the given number is reported, unless that has been done."""
    if count != KILLS_AT:
        return
    try:
        os.close(os.open(f"{STORAGE}/killed", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(pid_of(VICTIM), signal.SIGKILL)
    time.sleep(0.02)


def kill_around(owner, name, count_of, *, is_after):
    """Kill around each call of a function; `count_of` makes of its arguments what is reported."""
    real = getattr(owner, name)

    def wrapped(*arguments, **options):
        count = count_of(*arguments)
        if not is_after:
            kill(count)
        result = real(*arguments, **options)
        if is_after:
            kill(count)
        return result

    setattr(owner, name, wrapped)


def rank():
    return tune.get_context().get_world_rank()


def staged_count(directory, contents):
    return int(Path(directory, f"shard{rank()}").read_text())


def prepared_count(plan, trial_dir, provenance):
    return provenance.iteration


def count(config):
    note_pid(f"rank{rank()}", os.getpid())
    note_pid("zygote", os.getppid())
    number = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            number = int(Path(directory, f"shard{rank()}").read_text())
    acting = 0 if VICTIM == "rank0" else 1
    if rank() == acting:
        if STEP == "during":
            kill_around(checkpoint_parts, "write_part_manifest", staged_count, is_after=False)
        if STEP == "staged":
            kill_around(attempt_module, "prepare_part", prepared_count, is_after=True)
    while number < NUM_REPORTS:
        number += 1
        directory = Path(STORAGE, f"source-{os.getpid()}-{number}")
        directory.mkdir()
        (directory / f"shard{rank()}").write_text(str(number))
        if STEP == "before" and rank() == acting:
            kill(number)
        options = ReportOptions(upload_mode=CheckpointUploadMode[MODE])
        current_attempt().report({"count": number}, Checkpoint(directory), options)
        append(f"ledger-{rank()}", str(number))


class Source:
    def as_trainable(self):
        return Loop()


class Loop:
    func = staticmethod(count)

    def __call__(self, config):
        count(config)

    def group_for(self, config):
        return WorkerGroup(2, {"cpu": 1.0}, 2, 2)

    @property
    def validator(self):
        return None


def iteration_of(staging, final_path):
    return int(final_path.name.split("_")[1]) + 1


if __name__ == "__main__":
    note_pid("driver", os.getpid())
    if STEP in ("before rename", "after rename"):
        kill_around(
            checkpoint_parts,
            "publish",
            iteration_of,
            is_after=STEP == "after rename",
        )
    if STEP == "journalled":
        kill_around(
            RemoteGroup, "answer", lambda group, command: group._num_reports + 1, is_after=False
        )
    path = f"{STORAGE}/killed-group"
    run_config = RunConfig(
        name="killed-group",
        storage_path=STORAGE,
        verbose=0,
        failure_config=FailureConfig(max_failures=3),
        resources={"cpu": 2, "gpu": 0},
    )
    if Tuner.can_restore(path):
        tuner = Tuner.restore(path, Source(), run_config=run_config)
    else:
        tuner = Tuner(Source(), run_config=run_config)
    (result,) = tuner.fit()
    print("STATUS", result.status, flush=True)
    print("COUNTS", list(result.metrics_dataframe["count"]), flush=True)
