"""Runs an endless experiment, or continues it where it was interrupted.

Arguments: the storage path; what is trained, see `TRAINABLES`; the iterations after which a trial
is done; the options of `RunConfig`, as JSON. What a report was acknowledged for is written to
``ledger`` in the storage path, outside the experiment.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import tuner as tune
from tests.waiting import wait_until
from tuner import Callback, RunConfig, Trainable, Tuner
from tuner.execution.process_executor import ProcessExecutor


def acknowledge(storage, trial_id, count):
    descriptor = os.open(f"{storage}/ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{trial_id} {count}\n".encode())
    os.close(descriptor)


class Counter(Trainable):
    def setup(self, config):
        self.count = 0

    def step(self):
        if self.count:
            acknowledge(self.config["storage"], self.trial_id, self.count)
        self.count += 1
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint):
        self.count = int(Path(checkpoint, "count").read_text())


class Waiting(Counter):
    """Goes on from its first step when there is a file ``go`` in the storage path."""

    def step(self):
        if self.count:
            wait_until(Path(self.config["storage"], "go").exists, "what lets trials go on")
        return super().step()


class WithLoader(Counter):
    """Has a loader process, a thread, and a daemon in another session."""

    def setup(self, config):
        super().setup(config)
        for is_daemon in (False, True):
            subprocess.Popen(["sleep", "600"], start_new_session=is_daemon)
        threading.Thread(target=threading.Event().wait, daemon=True).start()


def count(config):
    number = 0
    try:
        while True:
            number += 1
            tune.report({"count": number})
            acknowledge(config["storage"], tune.get_context().get_trial_id(), number)
    finally:
        print("cleaned up")


def deaf(config):
    tune.report({"count": 1})
    while True:
        threading.Event().wait()


def deaf_with_handler(config):
    def clean_up(number, frame):
        print("cleaned up")
        sys.exit(1)

    signal.signal(signal.SIGTERM, clean_up)
    deaf(config)


class Herald(Callback):
    """Prints when every trial has reported, and when they are asked to stop.

    Args:
        jump_s: By how many seconds the clock of the experiment jumps once every trial has reported.
    """

    def __init__(self, jump_s):
        self.jump_s, self.jumped_s = jump_s, 0.0
        if jump_s:
            ProcessExecutor.clock = lambda executor: time.monotonic() + self.jumped_s
        self.reported = set()
        self.is_told = False

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.reported.add(trial)
        if len(self.reported) == 2:
            self.reported.add(None)
            print("READY", flush=True)
            self.jumped_s = self.jump_s

    def on_step_end(self, iteration, trials, **info):
        if not self.is_told and any(trial.intention for trial in trials):
            self.is_told = True
            print("TOLD", flush=True)


TRAINABLES = {
    "function": count,
    "class": Counter,
    "loader": WithLoader,
    "waiting": Waiting,
    "deaf": deaf,
    "deaf with handler": deaf_with_handler,
}


def declare(storage, kind, iterations, *, jump_s=0.0, **options):
    """Return the experiment, new or restored."""
    trainable = TRAINABLES[kind]
    space = {"x": tune.grid_search([1, 2]), "storage": str(storage)}
    run_config = RunConfig(
        name="interrupted",
        storage_path=storage,
        stop={"training_iteration": iterations},
        callbacks=[Herald(jump_s)],
        resources={"cpu": 2, "gpu": 0},
        **options,
    )
    path = f"{storage}/interrupted"
    if Tuner.can_restore(path):
        return Tuner.restore(path, trainable, param_space=space, run_config=run_config)
    return Tuner(trainable, param_space=space, run_config=run_config)


if __name__ == "__main__":
    storage, kind, iterations, options = sys.argv[1:]
    tuner = declare(storage, kind, int(iterations), **json.loads(options))
    try:
        tuner.fit()
        print("WENT ON")
    finally:
        results = tuner.get_results()
        print("ENDED", [f"{result.status} {result.ending}" for result in results])
        print(
            "COUNTS",
            [result.metrics["count"] for result in results],
            [result.checkpoint is not None for result in results],
        )
