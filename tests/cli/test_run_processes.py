"""``tuner run`` as a process: whole sweeps, by flags and by files, interrupted and continued."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interpreter import run_python
from tuner.analysis import ResultGrid

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """\
import argparse
from pathlib import Path

import tuner as tune

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()
for epoch in range(1, args.epochs + 1):
    if epoch == 3 and Path("gate").is_fifo():
        Path("ready").write_text("ready")  # waits for a reader
        Path("gate").read_text()  # waits for a writer, who never comes
    tune.report({"epoch": epoch, "val_loss": (args.lr - 0.01) ** 2 + args.width / epoch})
"""
SWEEP = """\
command: python train.py --lr {lr} --width {width} --epochs {epochs}
space:
  lr: loguniform(1e-5, 1e-1)
  width: choice(64, 128)
  epochs: 2
name: digits
metric: val_loss
mode: min
num_samples: 50
searcher: random
max_concurrent: 1
seed: 3
"""


@pytest.fixture
def tuner(tmp_path):
    """Starts the command in a directory with a script."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    started = []

    def start(*arguments):
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "tuner", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(tuner):
    """Runs the command to its end and returns what it has printed to the standard output."""

    def run(*arguments, code=0):
        process = tuner("run", *arguments)
        output, errors = process.communicate()
        assert process.returncode == code, output + errors
        return output

    return run


def results(tmp_path, name):
    grid = ResultGrid.from_directory(tmp_path / "tuner_results" / name)
    return [(result.config, result.metrics["val_loss"]) for result in grid]


def test_a_command_line_is_searched_and_that_of_the_best_trial_is_told(run, tmp_path):
    search = ("-n", 6, "-p", "lr=loguniform(1e-5,1e-1)", "-p", "width=choice(64,128,256)")
    objective = ("--metric", "val_loss", "--mode", "min", "--scheduler", "asha", "--seed", 1)
    command = ("--", "python", "train.py", "--lr", "{lr}", "--width", "{width}")
    output = run("--name", "digits", *search, *objective, *command)
    assert "asha stops trials for good, since the program saves no checkpoints" in output
    found = results(tmp_path, "digits")
    assert len(found) == 6
    best, _ = min(found, key=lambda one: one[1])
    line = f"python train.py --lr {best['lr']} --width {best['width']}"
    assert output.endswith(f"command of the best trial:\n    {line}\n")


def test_a_dry_run_shows_what_a_run_then_tries(run, tmp_path):
    commands = run("sweep.yaml", "--dry-run").partition("\n\n")[0].splitlines()
    assert not (tmp_path / "tuner_results").exists()
    run("sweep.yaml", "-n", 5, "-p", "width=choice(64, 128)", "--max-concurrent", 2)
    assert commands == [
        f"python train.py --lr {config['lr']} --width {config['width']} --epochs 2"
        for config, _ in results(tmp_path, "digits")
    ]


def test_options_override_a_file(run, tmp_path):
    run("sweep.yaml", "-n", 2, "-p", "epochs=1", "--name", "brief", "--if-exists", "new")
    found = results(tmp_path, "brief")
    assert [config["epochs"] for config, _ in found] == [1, 1]


@pytest.mark.parametrize("way", ["run", "resume"])
def test_after_ctrl_c_a_sweep_goes_on_and_ends_as_if_nothing_had_happened(
    way, run, tuner, tmp_path
):
    run("sweep.yaml", "-n", 4, "-p", "epochs=4", "--name", "undisturbed")
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "gate")
    flags = ("-n", "4", "-p", "epochs=4", "--name", "disturbed")
    process = tuner("run", "sweep.yaml", *flags)
    assert (tmp_path / "ready").read_text() == "ready"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert f"tuner resume {tmp_path / 'tuner_results' / 'disturbed'}" in output
    (tmp_path / "gate").unlink()
    if way == "run":
        run("sweep.yaml", *flags, "--resume")
    else:
        process = tuner("resume", "disturbed")
        output, errors = process.communicate()
        assert process.returncode == 0, output + errors
    assert results(tmp_path, "disturbed") == results(tmp_path, "undisturbed")


def test_a_sweep_of_which_all_trials_fail_ends_with_1(run, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('no data')")
    assert "no data" in run("sweep.yaml", "-n", 2, code=1)


def test_a_metric_that_is_never_reported_is_told_with_the_ways_out(tuner, tmp_path):
    process = tuner("run", "sweep.yaml", "-n", 1, "--metric", "loss")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "no trial has reported the metric 'loss'" in errors
    assert errors.endswith("add --resume, which keeps what has been reported\n")


def test_the_engine_loads_neither_sweeps_nor_yaml(tmp_path):
    loaded = run_python("-c", "import sys, tuner.tuner; print(*sys.modules)", cwd=tmp_path).stdout
    assert "tuner.tuner" in loaded.split()
    assert not any(name == "yaml" or name.startswith("tuner.command") for name in loaded.split())


def test_the_commands_of_a_front_are_told_and_none_that_misses_a_constraint(run, tmp_path):
    report = 'import tuner; tuner.report({"loss": 1 / {x}, "cost": {x}})'
    goals = ("--metric", "loss", "--metric", "cost", "--mode", "min", "--constraint", "cost <= 2")
    command = ("--", "python", "-c", report)
    output = run("--name", "two", "-p", "x=grid(3,2,1)", "--searcher", "random", *goals, *command)
    told = [f"    {shlex.join(['python', '-c', report.replace('{x}', x)])}" for x in ("2", "1")]
    listed = "\n".join(told)
    assert output.endswith(f"commands of trials on the Pareto front:\n{listed}\n")
