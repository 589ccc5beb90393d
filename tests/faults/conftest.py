"""Experiments on storage that fails at chosen calls."""

import dataclasses
import errno
import os
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

import tuner as tune
from tuner.driver import run
from tuner.driver.storage_retry import StorageRetry
from tuner.storage.disk import LocalDisk

CHANGING = (
    "create",
    "write",
    "sync",
    "truncate",
    "rename",
    "remove",
    "make_directory",
    "sync_directory",
)
"""The calls by which journal, declaration and manifests change the disk."""
SYNCS = ("sync", "sync_directory")


class Sabotage:
    """Wraps the local disk and lets chosen calls fail; the engine waits in virtual time.

    Attributes:
        num_calls: How many calls have been made, of those that change something.
        num_faults: How many of them have failed.
        now_s: Virtual time, which passes only while the engine waits for the storage.
    """

    def __init__(self):
        self.num_calls = self.num_faults = 0
        self.now_s = 0.0
        self.by_name = Counter()
        self._first = self._last = 0
        self._until_s = 0.0
        self._code = errno.EIO
        self._names = CHANGING
        self._condemned = set()
        self._turn = threading.RLock()

    def fail(self, first, code, *, num_calls=1, for_s=0.0, names=CHANGING):
        """Let `num_calls` calls fail, beginning with call `first`.

        After them all calls fail until the engine has waited for `for_s` seconds.
        """
        self._first, self._last, self._code, self._names = first, first + num_calls - 1, code, names
        self._until_s = for_s
        self.num_calls = self.num_faults = 0
        self.now_s = 0.0

    def heal(self):
        """Let nothing fail any more."""
        self._first = self._last = self.num_calls = 0
        self._until_s = 0.0

    def sleep(self, duration_s):
        self.now_s += duration_s

    def call(self, name, genuine, disk, arguments):
        with self._turn:
            if name in self._names:
                self.num_calls += 1
                self.by_name[name] += 1
            self._look_for_second_sync(name, arguments)
            if name in self._names and self._is_due():
                return self._refuse(name, genuine, disk, arguments)
            # No power is cut here, and real disks are slow to sync.
            return None if name in SYNCS else genuine(disk, *arguments)

    def _is_due(self):
        if not self._first or self.num_calls < self._first:
            return False
        return self.num_calls <= self._last or self.now_s < self._until_s

    def _refuse(self, name, genuine, disk, arguments):
        self.num_faults += 1
        if name == "sync":
            self._condemned.add(arguments[0])
        if name == "write" and self._code == errno.ENOSPC and len(arguments[1]) > 1:
            return genuine(disk, arguments[0], arguments[1][: len(arguments[1]) // 2])
        raise OSError(self._code, os.strerror(self._code))

    def _look_for_second_sync(self, name, arguments):
        if name == "close":
            self._condemned.discard(arguments[0])
        assert name != "sync" or arguments[0] not in self._condemned, (
            "a file was synced again after a failed sync"
        )


@pytest.fixture
def sabotage(monkeypatch):
    """Wrap the disk in a `Sabotage`."""
    saboteur = Sabotage()
    for name in (*CHANGING, "close"):
        monkeypatch.setattr(LocalDisk, name, _hooked(saboteur, name, getattr(LocalDisk, name)))
    monkeypatch.setattr(
        run,
        "StorageRetry",
        lambda limit_s, **options: StorageRetry(
            limit_s, clock=lambda: saboteur.now_s, sleep=saboteur.sleep, **options
        ),
    )
    return saboteur


def _hooked(saboteur, name, genuine):
    return lambda disk, *arguments: saboteur.call(name, genuine, disk, arguments)


@pytest.fixture
def mount(tmp_path):
    """Return a function that mounts a small file system."""
    mounted = []

    def small(name, options):
        path = tmp_path / name
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield small
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=True)


class Short:
    """A short experiment in this process: two trials of four epochs that save every second one.

    Attributes:
        acknowledged: Reports of each trial that were answered.
    """

    def __init__(self, storage, durability="strict", **settings):
        self.storage = Path(storage)
        self.durability = durability
        self.settings = settings
        self.acknowledged = set()

    @property
    def directory(self):
        return self.storage / "short"

    def train(self, config):
        """Train four epochs; a checkpoint may be missing where the disk did not take it."""
        start = 0
        if checkpoint := tune.get_checkpoint():
            start = int(Path(checkpoint.path, "epoch").read_text())
        trial_id = tune.get_context().get_trial_id()
        for epoch in range(start + 1, 5):
            metrics = {"loss": config["x"] / epoch}
            if epoch % 2:
                tune.report(metrics)
            else:
                with tune.checkpoint_dir() as staging:
                    Path(staging, "epoch").write_text(str(epoch))
                    tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(staging))
            self.acknowledged.add((trial_id, epoch))

    def given(self):
        return {
            "param_space": {"x": tune.grid_search([1.0, 2.0])},
            "tune_config": tune.TuneConfig(metric="loss", mode="min", seed=1),
            "run_config": tune.RunConfig(
                storage_path=self.storage,
                name="short",
                verbose=0,
                executor="inline",
                resources={"cpu": 2},
                durability=self.durability,
                **self.settings,
            ),
        }

    def fit(self):
        return tune.Tuner(self.train, **self.given()).fit()

    def restore(self, **how):
        tuner = tune.Tuner.restore(self.directory, self.train, **self.given())
        tuner._resumption = dataclasses.replace(tuner._resumption, **how)
        return tuner.fit()


@pytest.fixture
def short(tmp_path, monkeypatch):
    """Return a maker of short experiments, without log files, each in a separate directory."""
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    return lambda name, **options: Short(tmp_path / str(name), **options)
