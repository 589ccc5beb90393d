"""A disk that is full between two reports, while training code writes its checkpoint."""

import tempfile
import threading
from pathlib import Path

import pytest

import tuner as tune
from tests.faults.test_storage_fails import fill
from tests.waiting import wait_until
from tuner import train
from tuner.train import DataParallelTrainer, ScalingConfig

NUM_EPOCHS = 4
FULL_AT = 3
NUM_BYTES = 200_000


class Machine:
    """The disk of the experiment, and files outside of it."""

    def __init__(self, storage, outside):
        self.storage = str(storage)
        self.full, self.refused, self.ledger = (
            str(outside / name) for name in ("full", "refused", "ledger")
        )

    def fill_once(self, epoch):
        if epoch == FULL_AT and not Path(self.full).exists():
            Path(self.full).touch()
            fill(Path(self.storage))

    def free_when_refused(self):
        wait_until(Path(self.refused).exists)
        Path(self.storage, "filler").unlink()

    def wait_for_room(self):
        wait_until(lambda: not Path(self.storage, "filler").exists())


def write(directory, name, epoch, machine):
    """Write as a user's code does, which knows nothing of full disks."""
    try:
        Path(directory, name).write_bytes(bytes([epoch]) * NUM_BYTES)
    except OSError:
        Path(machine.refused).touch()
        raise


def latest_epoch():
    checkpoint = train.get_checkpoint()
    return Path(checkpoint.path, "state-0").read_bytes()[0] if checkpoint else 0


def in_lent_directory(config):
    machine = config["machine"]
    for epoch in range(latest_epoch() + 1, NUM_EPOCHS + 1):
        rank = train.get_context().get_world_rank()
        if rank == 0:
            machine.fill_once(epoch)
        with tune.checkpoint_dir() as directory:
            write(directory, f"state-{rank}", epoch, machine)
            train.report({"epoch": epoch}, tune.Checkpoint.from_directory(directory))


def in_temporary_directory(config):
    machine = config["machine"]
    for epoch in range(latest_epoch() + 1, NUM_EPOCHS + 1):
        machine.fill_once(epoch)
        with tempfile.TemporaryDirectory(dir=tune.get_context().get_trial_dir()) as directory:
            write(directory, "state-0", epoch, machine)
            tune.report({"epoch": epoch}, tune.Checkpoint.from_directory(directory))


class InClass(tune.Trainable):
    def setup(self, config):
        self.epoch = 0

    def step(self):
        self.epoch += 1
        self.config["machine"].fill_once(self.epoch)
        if self.epoch > FULL_AT:  # a checkpoint that the engine saves is left out without room
            self.config["machine"].wait_for_room()
        return {"epoch": self.epoch, "done": self.epoch == NUM_EPOCHS}

    def save_checkpoint(self, checkpoint_dir):
        write(checkpoint_dir, "state-0", self.epoch, self.config["machine"])

    def load_checkpoint(self, checkpoint):
        self.epoch = Path(checkpoint, "state-0").read_bytes()[0]


class InLog(InClass):
    """Writes files of its own into the trial's directory."""

    def step(self):
        result = super().step()
        write(self.logdir, "mine", self.epoch, self.config["machine"])
        return result


@pytest.fixture
def machine(mount, tmp_path):
    return Machine(mount("small", "size=6m"), tmp_path)


@pytest.mark.parametrize(
    "trainable", [in_lent_directory, in_temporary_directory, InClass, InLog, "group"]
)
def test_the_trial_goes_on_when_there_is_room_and_no_failure_is_counted(machine, trainable):
    is_class = isinstance(trainable, type)
    kept = tune.CheckpointConfig(checkpoint_frequency=1 if is_class else 0)
    if trainable == "group":
        trainable = DataParallelTrainer(
            in_lent_directory, scaling_config=ScalingConfig(num_workers=2)
        )
        space = {"train_loop_config": {"machine": machine}}
    else:
        space = {"machine": machine}
    run_config = tune.RunConfig(
        storage_path=machine.storage, name="exp", verbose=0, checkpoint_config=kept
    )
    tuner = tune.Tuner(trainable, param_space=space, run_config=run_config)
    freeing = threading.Thread(target=machine.free_when_refused)
    freeing.start()
    [result] = tuner.fit()
    freeing.join()
    assert Path(machine.full).exists()
    assert result.error is None
    epochs = list(result.metrics_dataframe["epoch"])
    assert epochs == list(range(1, NUM_EPOCHS + 1))
    saved = Path(result.checkpoint.path, "state-0").read_bytes()[0]
    assert saved == NUM_EPOCHS
    assert not list(Path(machine.storage).glob("exp/t0*/.tmp-*"))
