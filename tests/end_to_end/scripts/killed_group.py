"""Trains one trial over two workers, and kills one process at one step of a commit.

Arguments: the storage path, the victim, the step, and the upload mode. The process that reaches the
step kills the victim, once. What a report was acknowledged for is written to ``ledger-<rank>``, and
each process to ``pids``, both in the storage path, outside the experiment.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil

import tuner as tune
from tests.waiting import wait_until
from tuner import FailureConfig, RunConfig, Tuner
from tuner.core.worker_records import WorkerGroup
from tuner.execution import attempt as attempt_module
from tuner.execution.attempt import current_attempt
from tuner.execution.group_trainable import GroupTrainable
from tuner.execution.report_options import CheckpointUploadMode, ReportOptions
from tuner.groups.group import RemoteGroup
from tuner.storage import checkpoint_parts
from tuner.storage.checkpoints import Checkpoint

NUM_REPORTS = 5
KILLS_AT = 3


class Scene:
    """What is to die when, and where that is noted."""

    def __init__(self, storage, victim, step, mode):
        self.storage, self.victim, self.step, self.mode = os.fspath(storage), victim, step, mode

    def note_pid(self, name, pid):
        Path(self.storage, f"pid-{name}").write_text(str(pid))
        self.append("pids", str(pid))

    def append(self, name, line):
        descriptor = os.open(f"{self.storage}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def kill(self, count):
        """Kill the victim when the given number is reported, unless that has been done."""
        if count != KILLS_AT:
            return
        try:
            os.close(os.open(f"{self.storage}/killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        victim = int(Path(self.storage, f"pid-{self.victim}").read_text())
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: is_dead(victim), "the death of the victim")

    def around(self, owner, name, count_of, *, is_after):
        """Kill around each call of a function; `count_of` makes of its arguments what is reported.

        Returns:
            What restores the function when it is called.
        """
        real = getattr(owner, name)

        def wrapped(*arguments, **options):
            count = count_of(*arguments)
            if not is_after:
                self.kill(count)
            result = real(*arguments, **options)
            if is_after:
                self.kill(count)
            return result

        setattr(owner, name, wrapped)
        return lambda: setattr(owner, name, real)


def is_dead(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def rank():
    return tune.get_context().get_world_rank()


def staged_count(directory, contents):
    return int(Path(directory, f"shard{rank()}").read_text())


def prepared_count(plan, trial_dir, provenance):
    return provenance.iteration


def count(scene):
    scene.note_pid(f"rank{rank()}", os.getpid())
    scene.note_pid("zygote", os.getppid())
    number = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            number = int(Path(directory, f"shard{rank()}").read_text())
    acting = 0 if scene.victim == "rank0" else 1
    if rank() == acting:
        if scene.step == "during":
            scene.around(checkpoint_parts, "write_part_manifest", staged_count, is_after=False)
        if scene.step == "staged":
            scene.around(attempt_module, "prepare_part", prepared_count, is_after=True)
    while number < NUM_REPORTS:
        number += 1
        directory = Path(scene.storage, f"source-{os.getpid()}-{number}")
        directory.mkdir()
        (directory / f"shard{rank()}").write_text(str(number))
        if scene.step == "before" and rank() == acting:
            scene.kill(number)
        options = ReportOptions(upload_mode=CheckpointUploadMode[scene.mode])
        current_attempt().report({"count": number}, Checkpoint(directory), options)
        scene.append(f"ledger-{rank()}", str(number))


class Source:
    def __init__(self, scene):
        self.scene = scene

    def as_trainable(self):
        return Loop(self.scene)


class Loop(GroupTrainable):
    func = staticmethod(count)

    def __init__(self, scene):
        self.scene = scene

    def __call__(self, config):
        count(self.scene)

    def group_for(self, config):
        return WorkerGroup(2, {"cpu": 1.0}, 2, 2)

    @property
    def validator(self):
        return None


def iteration_of(staging, final_path):
    return int(final_path.name.split("_")[1]) + 1


@contextlib.contextmanager
def killing(scene):
    """Let this process, which is the driver, kill at the steps that it takes."""
    scene.note_pid("driver", os.getpid())
    with contextlib.ExitStack() as stack:
        if scene.step in ("before rename", "after rename"):
            is_after = scene.step == "after rename"
            stack.callback(
                scene.around(checkpoint_parts, "publish", iteration_of, is_after=is_after)
            )
        if scene.step == "journalled":
            number_of = lambda group, command: group._num_reports + 1  # noqa: E731
            stack.callback(scene.around(RemoteGroup, "answer", number_of, is_after=False))
        yield


def fit(scene):
    """Run the experiment, or continue it; return its result."""
    path = f"{scene.storage}/killed-group"
    run_config = RunConfig(
        name="killed-group",
        storage_path=scene.storage,
        verbose=0,
        failure_config=FailureConfig(max_failures=3),
        resources={"cpu": 2, "gpu": 0},
    )
    if Tuner.can_restore(path):
        tuner = Tuner.restore(path, Source(scene), run_config=run_config)
    else:
        tuner = Tuner(Source(scene), run_config=run_config)
    with killing(scene):
        (result,) = tuner.fit()
    return result


if __name__ == "__main__":
    fit(Scene(*sys.argv[1:]))
