"""Experiments recorded in virtual time, with real drivers, journals and directories."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

import tuner as tune
from schedulers import FIFOScheduler
from schedulers.decisions import Decision
from tuner.background import BackgroundJobs
from tuner.driver import run as running
from tuner.journal.reader import read_events
from tuner.virtual.executor import SimulatedExecutor


class Saves(tune.Trainable):
    """Stands for training code that saves on demand; a curve replaces it."""

    def step(self):
        return {}

    def save_checkpoint(self, checkpoint_dir):
        return None

    def load_checkpoint(self, checkpoint):
        return None


def never_saves(config):
    """Stand for training code that saves nothing."""


@dataclass(frozen=True)
class Ran:
    """An experiment that has run.

    Attributes:
        grid: Its results.
        decisions: What was decided.
        end_s: When it ended.
    """

    grid: tune.ResultGrid
    decisions: list[Decision]
    end_s: float

    @property
    def path(self):
        return self.grid.experiment_path


@dataclass(frozen=True)
class World:
    """Training of all trials: each reports its losses at its pace, and some fail at the end."""

    losses: list[list[float]]
    paces_s: list[float]
    failing: frozenset[int] = frozenset()

    @classmethod
    def of(cls, seed, *, max_trials=8, max_results=12):
        chance = Random(seed)  # noqa: S311  (curves, no secrets)
        num = chance.randint(4, max_trials)
        lengths = [
            0 if chance.random() < 0.05 else chance.randint(1, max_results) for _ in range(num)
        ]
        return cls(
            [
                [
                    float("nan") if chance.random() < 0.05 else round(chance.random(), 2)
                    for _ in range(length)
                ]
                for length in lengths
            ],
            [chance.choice([0.5, 1.0, 1.0, 2.0, chance.random() + 0.01]) for _ in range(num)],
            frozenset(number for number in range(num) if chance.random() < 0.15),
        )

    def curve(self, config):
        for loss in self.losses[config["number"]]:
            yield {"loss": loss, "nested": {"loss": -loss}}
        if config["number"] in self.failing:
            raise ValueError("diverged")

    def steps(self, config):
        for _ in self.curve(config):
            yield {}

    def validate(self, config, iteration):
        return {"loss": self.losses[config["number"]][iteration - 1]}

    def pace_s(self, config, iteration):
        return self.paces_s[config["number"]]


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Return a function that runs an experiment in virtual time, with a real directory."""
    names = itertools.count()

    def run(
        world,
        scheduler=None,
        *,
        slots=1,
        can_save=False,
        stop=None,
        failure=None,
        search_alg=None,
        space=None,
        trainable=None,
        validation_s=None,
        **more,
    ):
        def make_executor(spec, directory, *_, **_more):
            is_late = validation_s is not None
            return SimulatedExecutor(
                world.steps if is_late else world.curve,
                capacity={"cpu": float(slots)},
                duration_s=world.pace_s,
                validate=world.validate if is_late else None,
                validation_s=validation_s or 0.0,
            )

        monkeypatch.setattr("tuner.driver.executors.make_executor", make_executor)
        # Virtual time waits for no thread, and no file is read but the journal.
        monkeypatch.setattr(
            running, "BackgroundJobs", lambda name, **_: BackgroundJobs(name, num_threads=0)
        )
        monkeypatch.setattr(running.EnvironmentRecorder, "start", lambda recorder: None)
        monkeypatch.setattr(running.Snapshots, "take_last", lambda snapshots, elapsed_s: None)
        monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        # What is saved in virtual time lies nowhere.
        monkeypatch.setattr(running.CheckpointStore, "find_damage", lambda *_: "")
        grid = tune.Tuner(
            trainable or (Saves if can_save else never_saves),
            param_space=space or {"number": tune.grid_search(list(range(len(world.losses))))},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                scheduler=scheduler or FIFOScheduler(),
                seed=7,
                search_alg=search_alg,
                **more,
            ),
            run_config=tune.RunConfig(
                name=f"run{next(names)}",
                storage_path=tmp_path,
                verbose=0,
                durability="process",
                stop=stop,
                failure_config=tune.FailureConfig(**failure or {}),
            ),
        ).fit()
        past = list(read_events(Path(grid.experiment_path)))
        return Ran(grid, [said.decision for each in past for said in each.recorded], past[-1].at_s)

    return run


@pytest.fixture
def worlds():
    """Builders of the training of all trials."""
    return SimpleNamespace(of=World.of, World=World)
