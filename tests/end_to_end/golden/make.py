"""Make ``release_<version>`` and ``store_<version>`` beside this file, in this release's format.

The first is an interrupted experiment, the second what an object store has of one that two drivers
have begun. Run it once for each release that changes the format, and keep the folders of earlier
releases: ``python tests/end_to_end/golden/make.py``.
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np

import tuner as tune
from tuner.execution import result_fields
from tuner.stores import journal_mirror as mirror

HERE = Path(__file__).parent


def scale(value):
    return value * 2


def train(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = int(Path(checkpoint.path, "step").read_text())
    for step in range(start + 1, 5):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            metrics = {
                "loss": config["f"](config["x"]) / step,
                "bound": float("-inf"),
                "deep": {"er": config["shape"][0]},
            }
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def declaration(storage, **run):
    """Return the arguments that declare the experiment in `storage`."""
    return {
        "param_space": {
            "x": tune.grid_search([1.0, 2.0, 3.0]),
            "f": scale,
            "shape": (2, 3),
            "data": np.arange(3.0),
        },
        "tune_config": tune.TuneConfig(metric="loss", mode="min", seed=7, max_concurrent_trials=1),
        "run_config": tune.RunConfig(
            name="exp",
            storage_path=storage,
            verbose=0,
            executor="inline",
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            **run,
        ),
    }


class Interrupt(tune.Callback):
    """Ends the driver in the middle of a trial."""

    def __init__(self, trial_id="t00001"):
        self.trial_id = trial_id

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if (trial.trial_id, result["training_iteration"]) == (self.trial_id, 2):
            raise KeyboardInterrupt


def make_directory(storage):
    try:
        tune.Tuner(train, **declaration(storage, callbacks=[Interrupt()])).fit()
    except KeyboardInterrupt:
        Path(storage, "exp", "lock").unlink()


def make_store(storage):
    mirror._NUM_PACKED = 3
    url = Path(storage).as_uri()
    for trial_id in ("t00001", "t00002"):
        with tempfile.TemporaryDirectory() as machine, contextlib.suppress(KeyboardInterrupt):
            run = {"local_dir": machine, "durability": "storage"}
            declared = declaration(url, callbacks=[Interrupt(trial_id)], **run)
            if trial_id == "t00001":
                tune.Tuner(train, **declared).fit()
            else:
                tune.Tuner.restore(f"{url}/exp", train, **declared).fit()
    Path(storage, "exp", "environment.json").unlink()
    for path in Path(storage, "exp", "lock").glob("*.json"):
        text = re.sub(r'"(host|boot_id)":"[^"]*"', r'"\1":"\1"', path.read_text())
        path.write_text(re.sub(r'"(pid|ticks|pid_namespace)":\d+', r'"\1":1', text))


def main():
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    result_fields.host = lambda: ("host", "127.0.0.1")
    result_fields.here = lambda: result_fields.Place(1, *result_fields.host())
    for make, name in ((make_directory, "release"), (make_store, "store")):
        target = HERE / f"{name}_{tune.__version__}"
        shutil.rmtree(target, ignore_errors=True)
        with tempfile.TemporaryDirectory() as storage:
            make(storage)
            shutil.copytree(Path(storage, "exp"), target)


if __name__ == "__main__":
    main()
