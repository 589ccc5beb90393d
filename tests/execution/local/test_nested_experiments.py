"""An experiment inside a trial or a validation is an ordinary one, and ends with its process."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tuner.core.commands import GrantLease, KillValidation, RefuseLease
from tuner.core.events import LeaseOwner, LeaseReleased, LeaseRequested, Outcome

pytestmark = pytest.mark.process


def nothing(config):
    pass


def pids_in(directory):
    """Return the process ids that processes have written into files."""
    return {path.name: int(path.read_text()) for path in Path(directory).glob("*.pid")}


def await_pids(directory, *names, poll=lambda: None):
    def are_there():
        poll()
        return all(pids_in(directory).get(f"{name}.pid") for name in names)

    wait_until(are_there)
    return pids_in(directory)


def note(directory, name, pid):
    """Write a file that is whole as soon as it is there."""
    Path(directory, f"{name}.new").write_text(str(pid))
    Path(directory, f"{name}.new").rename(Path(directory, f"{name}.pid"))


@pytest.fixture
def start(start_executor, tmp_path):
    """Return a function that starts the executor of an experiment ``storage/outer``."""

    def build(validator):
        harness = start_executor(nothing, validator=validator)
        harness.directory = tmp_path / "storage" / "outer"
        harness.directory.mkdir(parents=True)
        return harness

    return build


@pytest.fixture
def hang_inside(tmp_path):
    """Return a function that runs an experiment whose trial never ends."""

    def run():
        import tuner as tune

        def inner(config):
            note(tmp_path, "rank", os.getpid())
            note(tmp_path, "zygote", os.getppid())
            signal.pause()

        tune.Tuner(inner, run_config=tune.RunConfig(name="inner")).fit()

    return run


def test_an_experiment_inside_a_validation_lies_beside_the_outer_one(start, tmp_path):
    def validate(checkpoint):
        import tuner as tune

        grid = tune.Tuner(
            lambda config: tune.report({"accuracy": config["x"]}),
            param_space={"x": tune.grid_search([1, 2])},
            run_config=tune.RunConfig(name="outer_validation_epoch_3"),
        ).fit()
        return grid.get_best_result("accuracy", "max").metrics

    harness = start(validate)
    ended = harness.validate()
    # What the inner engine has filled in is not of this checkpoint.
    assert ended.metrics == {"accuracy": 2}
    assert (tmp_path / "storage" / "outer_validation_epoch_3" / "experiment.json").exists()
    assert "outer_validation" not in harness.printed(stream="validation_000000.log")


def test_an_inner_trainer_borrows_what_its_process_does_not_occupy(start, tmp_path):
    def validate(checkpoint):
        from tuner.train import RunConfig, ScalingConfig
        from tuner.train.trainer import DataParallelTrainer

        trainer = DataParallelTrainer(
            nothing,
            scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2}),
            run_config=RunConfig(name="inner"),
        )
        trainer.fit()
        return {"ok": 1}

    harness = start(validate)
    harness.start_validation(4)
    asked = harness.next_event("t00001", LeaseRequested)
    assert asked.owner == LeaseOwner("t00001", 1, 4)
    assert asked.group.total == {"cpu": 2.0}
    harness.executor.carry_out([GrantLease(asked.owner, asked.token, 1)])
    assert harness.end_of_validation(4).metrics == {"ok": 1}
    assert harness.next_event("t00001", LeaseReleased).token == asked.token


def test_a_refused_lease_fails_the_validation_with_the_reason(start):
    def validate(checkpoint):
        from tuner.train import RunConfig, ScalingConfig
        from tuner.train.trainer import DataParallelTrainer

        scaling = ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2})
        run_config = RunConfig(name="inner")
        DataParallelTrainer(nothing, scaling_config=scaling, run_config=run_config).fit()

    harness = start(validate)
    harness.start_validation()
    asked = harness.next_event("t00001", LeaseRequested)
    refusal = RefuseLease(asked.owner, asked.token, "a deadlock: buy more", is_deadlock=True)
    harness.executor.carry_out([refusal])
    ended = harness.end_of_validation()
    assert ended.outcome is Outcome.FAILED
    assert "a deadlock: buy more" in str(ended.failure)


@pytest.mark.parametrize("how", ["kill -9", "command"])
def test_a_dead_validation_leaves_no_process_of_its_experiment(
    start, tmp_path, hang_inside, still_alive, how
):
    def validate(checkpoint):
        note(tmp_path, "validator", os.getpid())
        hang_inside()

    harness = start(validate)
    harness.start_validation()
    pids = await_pids(
        tmp_path, "validator", "rank", "zygote", poll=lambda: harness.executor.wait(0.05)
    )
    if how == "kill -9":
        os.kill(pids["validator.pid"], signal.SIGKILL)
    else:
        harness.executor.carry_out([KillValidation("t00001", 0, 1, "too slow")])
    outcome = harness.end_of_validation().outcome
    assert outcome is (Outcome.FAILED if how == "kill -9" else Outcome.KILLED)
    assert still_alive(pids.values()) == []


SCRIPT = """
    import os, signal, sys
    from pathlib import Path

    import tuner as tune
    from tuner.driver import signals
    from tuner.train import RunConfig, ScalingConfig
    from tuner.train.trainer import DataParallelTrainer

    root = Path(sys.argv[1])
    signals._ECHO_S = 0.0  # two signals in a row are two requests

    def note(name, pid):
        (root / f"{name}.tmp").write_text(str(pid))
        (root / f"{name}.tmp").rename(root / f"{name}.pid")

    def loop(config):
        note("inner_zygote", os.getppid())
        note("rank", os.getpid())
        signal.pause()

    def trial(config):
        note("outer_zygote", os.getppid())
        note("trial", os.getpid())
        DataParallelTrainer(
            loop, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(name="inner")
        ).fit()

    if __name__ == "__main__":
        note("driver", os.getpid())
        run_config = tune.RunConfig(name="outer", storage_path=root / "storage", verbose=0)
        tune.Tuner(trial, run_config=run_config).fit()
"""


@pytest.fixture
def script(tmp_path):
    """Start a script whose trial runs a trainer; return its process and the ids of all others."""
    started = []

    def start():
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(SCRIPT))
        process = subprocess.Popen(
            [sys.executable, path, tmp_path],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        started.append(process)
        names = ("driver", "outer_zygote", "trial", "inner_zygote", "rank")
        return process, await_pids(tmp_path, *names)

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("killed", ["driver", "trial"])
def test_no_level_outlives_the_one_above(script, still_alive, killed):
    process, pids = script()
    below = {"driver": ["outer_zygote", "trial"], "trial": []}[killed] + ["inner_zygote", "rank"]
    assert all(psutil.pid_exists(pid) for pid in pids.values())
    os.kill(pids[f"{killed}.pid"], signal.SIGKILL)
    assert still_alive([pids[f"{name}.pid"] for name in below]) == []
    process.wait(60)  # the driver goes on after its trial has failed, and ends


def test_a_dead_rank_fails_the_trial_that_runs_the_trainer(script, tmp_path, still_alive):
    process, pids = script()
    os.kill(pids["rank.pid"], signal.SIGKILL)
    process.wait(60)
    error = (tmp_path / "storage" / "outer" / "t00000" / "error.txt").read_text()
    assert "killed by SIGKILL" in error
    assert still_alive(pids.values()) == []


def test_ctrl_c_reaches_only_the_outermost_driver(script, still_alive):
    process, pids = script()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    assert still_alive(pids.values()) == []
