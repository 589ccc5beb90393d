"""Progress of whole experiments, as reporters and the kernel of a notebook receive it."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
sys.path.insert(0, {root!r})
import tuner as tune

def train(config):
    for step in range(1, 4):
        tune.report({{"loss": config["x"] / step}})

config = tune.TuneConfig(metric="loss", mode="min")
run = tune.RunConfig(
    name="verbose_{verbose}",
    storage_path={storage!r},
    verbose={verbose},
    progress_reporter={reporter},
)
space = {{"x": tune.grid_search([1.0, 2.0])}}
grid = tune.Tuner(train, param_space=space, tune_config=config, run_config=run).fit()
"""


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config["x"] / step})
    if config["x"] == 2.0:
        raise ValueError("exploded")


class Watching(tune.ProgressReporter):
    def __init__(self):
        self.seen, self.began = [], None

    def setup(self, start_time=None, total_samples=None, metric=None, mode=None, **kwargs):
        self.began = (total_samples, metric, mode)

    def should_report(self, trials, done=False):
        return done

    def report(self, trials, done, *sys_info):
        self.seen.append(
            (
                [
                    (trial.trial_id, trial.status == tune.Trial.ERROR, trial.iteration)
                    for trial in trials
                ],
                done,
                *sys_info,
            )
        )


SPACE = {"x": tune.grid_search([1.0, 2.0])}
GOAL = {"metric": "loss", "mode": "min"}


def test_a_reporter_of_the_users_sees_the_experiment(fit, capfd):
    reporter = Watching()
    fit(train, SPACE, tune=GOAL, verbose=1, progress_reporter=reporter, resources={"cpu": 1})
    assert reporter.began == (2, "loss", "min")
    assert reporter.seen == [
        (
            [("t00000", False, 3), ("t00001", True, 3)],
            True,
            "completed 1  failed 1  CPU 0/1",
            "CPU 0/1",
        )
    ]
    out, err = capfd.readouterr()
    assert re.match(
        r"Searcher: .*\nt00001 failed in attempt 1, giving up: ValueError: exploded  "
        r"/.*/t00001/error.txt\n",
        out,
    )
    # The traceback of the first failure of its kind.
    assert out.endswith("  ValueError: exploded\n")
    assert err == ""


def test_columns_of_the_users_choice_are_in_the_summary(fit, capsys):
    reporter = tune.CLIReporter(
        metric_columns={"training_iteration": "epoch"}, parameter_columns=["x"]
    )
    fit(train, SPACE, tune=GOAL, verbose=1, progress_reporter=reporter)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["trial", "status", "ending", "loss", "best", "epoch", "x", "time"] in lines
    assert ["t00000", "TERMINATED", "completed", "0.3333", "0.3333@3", "3", "1", "0s"] in lines


def test_verbose_0_is_silent_with_a_custom_reporter_too(fit, capfd):
    reporter = Watching()
    fit(train, SPACE, tune=GOAL, verbose=0, progress_reporter=reporter)
    assert (reporter.seen, reporter.began) == ([], None)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_sees_a_curve_and_the_iterations_that_are_left(fit, monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fit(train, SPACE, tune=GOAL, verbose=1, stop={"training_iteration": 3}, executor="inline")
    summary = terminal.getvalue()[terminal.getvalue().rindex("best trial") :]
    assert "last 0.3333 (iter 3)" in summary
    assert re.search(r"t00000  TERMINATED  completed   3/3  0.3333  0.3333@3  █▃▁", summary)


@pytest.fixture
def run_cell(tmp_path):
    """Return a function that runs a cell in a real kernel and returns its messages."""
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client").KernelManager(
        kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel")
    )
    manager.start_kernel(env=os.environ | {"HOME": str(tmp_path)})
    client = manager.client()
    client.start_channels()

    def run(**values):
        client.wait_for_ready(timeout=60)
        code = SCRIPT.format(root=str(ROOT), storage=str(tmp_path), **values)
        request = client.execute(code)
        messages = []
        while not messages or messages[-1][0] != "status":
            message = client.get_iopub_msg(timeout=60)
            if (
                message["parent_header"].get("msg_id") == request
                and message["content"].get("execution_state") != "busy"
            ):
                messages.append((message["msg_type"], message["content"]))
        return [message for message in messages if message[0] not in ("status", "execute_input")]

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def test_a_notebook_gets_one_output_that_is_replaced_and_none_at_verbose_0(run_cell):
    start_line, first, *others = run_cell(verbose=1, reporter=None)
    assert start_line[1]["text"].startswith("Searcher: ")
    assert first[0] == "display_data"
    assert {kind for kind, _ in others} == {"update_display_data"}
    display_id = first[1]["transient"]["display_id"]
    assert {content["transient"]["display_id"] for _, content in others} == {display_id}
    final = others[-1][1]["data"]
    assert "last 0.3333 (iter 3)  best 0.3333 (iter 3)" in final["text/plain"]
    assert final["text/html"].startswith("<pre")
    assert "t00001" in final["text/html"]
    assert run_cell(verbose=0, reporter="tune.JupyterNotebookReporter()") == []


def test_warnings_from_before_and_after_the_experiment_are_on_the_console(tmp_path):
    """Runs in a separate process, since pytest's own handler keeps warnings from the console."""
    script = """
import sys
sys.modules["tensorboardX"] = None
import tuner as tune

class Broken(tune.Callback):
    def setup(self, *arguments, **info):
        raise RuntimeError("no connection")

def train(config):
    tune.report({"loss": config["x"]})

for verbose in (0, 1):
    run_config = tune.RunConfig(
        name=f"run{verbose}",
        storage_path=sys.argv[1],
        callbacks=[Broken()],
        verbose=verbose,
        executor="inline",
    )
    tune.Tuner(train, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config).fit()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert (
        done.stdout.count("no TensorBoard files are written, since tensorboardX cannot be imported")
        == 1
    )
    assert done.stdout.count("pip install tensorboardX") == 1
    assert "no connection" in done.stdout
    assert "run0" not in done.stdout
    assert done.stderr == ""
