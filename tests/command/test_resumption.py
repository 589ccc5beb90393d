"""`tuner resume` and `tuner rerun` of experiments of commands, in processes of their own."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tuner as tune
from tests.waiting import wait_until

pytestmark = pytest.mark.process

TRAIN = """
    import os, pathlib, sys
    state = pathlib.Path(os.environ["TUNER_CHECKPOINT_DIR"], "count")
    count = int(state.read_text()) if state.exists() else 0
    while count < 6:
        count += 1
        state.with_suffix(".new").write_text(str(count))
        state.with_suffix(".new").rename(state)
        with open(os.environ["TUNER_REPORT"], "a") as file:
            print('{"loss": %f, "count": %d}' % (float(sys.argv[1]) / count, count), file=file)
        if count == 3 and os.path.exists("hold"):
            os.mkfifo(f"held{sys.argv[1]}")
            open(f"held{sys.argv[1]}").read()
    """


@pytest.fixture
def tuner_in(tmp_path):
    """Return a function that begins the command `tuner` in the directory of the program."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN), encoding="utf-8")
    begun = []

    def begin(*words, cwd=tmp_path):
        process = subprocess.Popen(  # noqa: S603  (this interpreter)
            [sys.executable, "-m", "tuner", *words],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def sweep(tuner_in, tmp_path):
    return tuner_in(
        "run", "--name", "exp", "--storage", "results", "--checkpoints", "--metric", "loss",
        "--mode", "min", "-p", "lr=grid_search(1, 2, 3)", "--max-concurrent", "1",
        "--", sys.executable, "train.py", "{lr}",
    )  # fmt: skip


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_an_experiment_is_continued_from_anywhere_as_if_it_had_not_ended(
    ending, tuner_in, tmp_path
):
    (tmp_path / "hold").touch()
    first = sweep(tuner_in, tmp_path)
    wait_until(lambda: (tmp_path / "held1").exists() or first.poll() is not None, "the third count")
    first.send_signal(ending)
    output = first.communicate()[0]
    assert first.returncode in (-signal.SIGKILL, 130), output
    if ending == signal.SIGINT:
        assert "tuner resume " in output
    (tmp_path / "hold").unlink()
    again = tuner_in("resume", str(tmp_path / "results" / "exp"), cwd="/")
    output = again.communicate()[0]
    assert again.returncode == 0, output
    assert "command of the best trial" in output
    results = tune.ResultGrid.from_directory(tmp_path / "results" / "exp")
    for result in results:
        assert list(result.metrics_dataframe["count"]) == [*range(1, 7)]
    # Nothing is left to run, but more can be asked for.
    done = tuner_in("resume", str(tmp_path / "results" / "exp"))
    assert "nothing is left to run" in done.communicate()[0]
    assert done.returncode == 1
    one = tuner_in("rerun", str(tmp_path / "results" / "exp"), "1")
    output = one.communicate()[0]
    assert one.returncode == 0, output
    assert (tmp_path / "results" / "exp_t00001_rerun").is_dir()


def test_more_samples_are_run_by_a_resumption(tuner_in, tmp_path):
    first = tuner_in(
        "run", "--name", "exp", "--storage", "results", "-n", "1", "-p", "lr=uniform(1, 2)",
        "--", sys.executable, "train.py", "{lr}",
    )  # fmt: skip
    output = first.communicate()[0]
    assert first.returncode == 0, output
    place = tmp_path / "results" / "exp"
    more = tuner_in("resume", os.fspath(place), "-n", "3")
    output = more.communicate()[0]
    assert more.returncode == 0, output
    assert len(tune.ResultGrid.from_directory(place)) == 3


def test_a_cluster_has_no_meaning_for_an_experiment_of_a_script(tuner_in, tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            import tuner as tune
            def train(config):
                tune.report(loss=1)
            if __name__ == "__main__":
                run = tune.RunConfig(name="exp", storage_path="results", verbose=0)
                tune.Tuner(train, run_config=run).fit()
            """
        ),
        encoding="utf-8",
    )
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)
    refused = tuner_in("resume", os.fspath(Path("results", "exp")), "-n", "3")
    assert "--num-samples has no meaning for an experiment of a script" in refused.communicate()[0]
    assert refused.returncode == 2
