"""The command as a process, with a running driver and after a killed one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import json, sys, tempfile
from pathlib import Path
import tuner as tune
from schedulers import FIFOScheduler

def train(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            start = json.loads(Path(directory, "step").read_text())
    for step in range(start + 1, 5):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report({"loss": 1 / step}, checkpoint=tune.Checkpoint.from_directory(directory))
        print("step", step, flush=True)
        if step == 3 and Path("ready").exists():
            Path("ready").write_text("ready")  # waits for a reader
            Path("gate").read_text()           # waits for a writer, who never comes

if __name__ == "__main__":
    if sys.argv[1:]:
        tune.Tuner.restore("held", train, verbose=0).fit()
    else:
        tune.Tuner(
            train,
            tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=FIFOScheduler()),
            run_config=tune.RunConfig(name="held", storage_path=".", verbose=0),
        ).fit()
"""


def python(*arguments, cwd, **more):
    environment = os.environ | {"HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(  # noqa: S603
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        **more,
    )


@pytest.fixture
def driver(tmp_path):
    """A driver whose only trial has reported three times, and waits."""
    (tmp_path / "driver.py").write_text(DRIVER)
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "gate")
    process = python("driver.py", cwd=tmp_path, start_new_session=True)
    assert (tmp_path / "ready").read_text() == "ready"
    yield process
    process.kill()
    process.wait()


def state_of(call):
    return json.loads(call("ls", ".", "-f", "json").stdout)[0]["state"]


def test_a_running_experiment_is_read_and_left_alone_and_a_killed_one_goes_on_after_a_prune(
    driver, tmp_path, call, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert state_of(call) == "running"
    (trial,) = json.loads(call("show", "held", "-f", "json").stdout)
    assert (trial["status"], trial["training_iteration"], trial["loss"]) == ("RUNNING", 3, 1 / 3)
    assert call("tail", "held", "0", "-n", "1").stdout == "step 3\n"
    assert "driven by process" in call("doctor", "held").stdout
    assert "is driven by process" in call("prune", "held", "--yes", code=3).stderr

    following = python(
        "-m", "tuner", "tail", "held", "0", "-f", "-n", "2", cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert following.stdout.readline() == "step 2\n"
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    rest, _ = following.communicate()  # closes its pipes
    assert (rest, following.returncode) == ("step 3\n", 0)

    assert state_of(call) == "interrupted"
    assert "held prints how to continue it" in call("doctor", "held").stdout
    call("prune", "held", "--keep-best", "0", "--yes")
    assert [path.name for path in (tmp_path / "held").glob("t*/checkpoint_*")] == [
        "checkpoint_000002"
    ]
    (tmp_path / "ready").unlink()
    assert python("driver.py", "restore", cwd=tmp_path).wait() == 0
    assert state_of(call) == "finished"
    (trial,) = json.loads(call("show", "held", "-f", "json").stdout)
    assert (trial["training_iteration"], trial["loss"], trial["attempt"]) == (4, 1 / 4, 2)
    assert "has lost checkpoint 1: deleted by tuner prune" in call("explain", "held", "0").stdout
    assert (tmp_path / "held" / "t00000" / "stdout").read_text().count("step 3") == 1


def test_a_reader_who_has_seen_enough_is_no_error(plain):
    process = python(
        "-m",
        "tuner",
        "export",
        str(plain),
        "--rows",
        "--to",
        "json",
        cwd=plain.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


def test_ctrl_c_ends_it_with_130(driver, tmp_path):
    following = python(
        "-m",
        "tuner",
        "tail",
        "held",
        "0",
        "-f",
        "-n",
        "1",
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert following.stdout.readline() == "step 3\n"
    following.send_signal(signal.SIGINT)
    _, complaint = following.communicate()
    assert following.returncode == 130
    assert complaint.strip() == ""
