"""Experiments in S3 whose driver, machine or store is lost; with moto's server and real processes.

Each run is a process of its own. "Another machine" is another local directory: what one machine
knows of the other is in the store.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from tests.waiting import wait_until
from tuner.stores.object_store import ObjectStore

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).resolve().parents[2]
NUM_STEPS = 6

SCRIPT = """
import sys, tempfile
from pathlib import Path

import schedulers
import tuner as tune

KIND, URL, LOCAL, GATE, NUM_FREE = sys.argv[1:6]


def pace(num_done):
    from tests.waiting import wait_until

    wait_until(lambda: num_done < int(NUM_FREE) or Path(GATE).exists())


class Counter(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        pace(self.n)
        self.n += 1
        return {"loss": self.config["x"] / self.n, "n": self.n}

    def save_checkpoint(self, directory):
        Path(directory, "n").write_text(str(self.n))

    def load_checkpoint(self, directory):
        self.n = int(Path(directory, "n").read_text())


def count(config):
    n = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            n = int(Path(directory, "n").read_text())
    while n < 6:
        pace(n)
        n += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "n").write_text(str(n))
            checkpoint = tune.Checkpoint.from_directory(directory)
            tune.report({"loss": config["x"] / n, "n": n}, checkpoint=checkpoint)


pbt = schedulers.PopulationBasedTraining(
    perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
)
asha = schedulers.ASHAScheduler(max_t=6, grace_period=2)
is_pbt = KIND == "pbt"
if len(sys.argv) > 6:
    tune.Tuner.restore(f"{URL}/{KIND}", count, steal=True, local_dir=LOCAL).fit()
    raise SystemExit
tune.Tuner(
    Counter if is_pbt else count,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(
        metric="loss", mode="min", num_samples=3, seed=1, scheduler=pbt if is_pbt else asha
    ),
    run_config=tune.RunConfig(
        name=KIND,
        storage_path=URL,
        local_dir=LOCAL,
        mirror_s=0.2,
        durability="storage" if is_pbt else "group",
        stop={"training_iteration": 6},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1 if is_pbt else 0),
        resources={"cpu": 2},
        verbose=0,
    ),
    resume="auto",
).fit()
"""


@pytest.fixture
def gate(tmp_path):
    """Return the path of a file for which trials wait before their later steps."""
    return tmp_path / "gate"


@pytest.fixture
def start(tmp_path, s3_url, gate):
    """Return a function that starts a run on a machine, which is a local directory.

    Trials wait for the gate when they have done so many steps.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    running = []

    def start(kind, machine, num_free, *more):
        process = subprocess.Popen(
            [
                sys.executable,
                str(script),
                kind,
                s3_url,
                str(tmp_path / machine),
                str(gate),
                str(num_free),
                *more,
            ],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def results_in(url):
    return sum(len(each.rows.of(each.trial_id)) for each in tune.ResultGrid.from_directory(url))


def rows_of(url):
    return {
        each.trial_id: [(row["n"], row["timestamp"]) for row in each.rows.of(each.trial_id)]
        for each in tune.ResultGrid.from_directory(url)
    }


@pytest.mark.parametrize("kind", ["asha", "pbt"])
def test_an_experiment_goes_on_elsewhere_when_its_machine_is_lost(start, s3_url, tmp_path, kind):
    url = f"{s3_url}/{kind}"
    first = start(kind, "first", 3)
    store = ObjectStore(url)
    wait_until(lambda: store.get_if_exists("experiment.json") and results_in(url) > 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = rows_of(url)
    shutil.rmtree(tmp_path / "first")
    second = start(kind, "second", NUM_STEPS)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 0, output
    grid, rows = tune.ResultGrid.from_directory(url), rows_of(url)
    assert grid.num_terminated == 3
    # The last result is repeated where its checkpoint was not in the store yet: a class trains on
    # while that is uploaded, and the next result waits for it.
    certain = {trial_id: before[:-1] for trial_id, before in kept.items()}
    assert all(rows[trial_id][: len(before)] == before for trial_id, before in certain.items())
    assert all(len(set(found)) == len(found) for found in rows.values())
    with grid.get_best_result().checkpoint.as_directory() as directory:
        assert Path(directory, "n").read_text() == "6"
    assert_no_secret(store, tmp_path)


def assert_no_secret(store, folder):
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    contents += [store.get(key) for key in store.list()]
    assert not [content for content in contents if secret in content]


def test_one_of_two_machines_that_start_at_once_gets_the_experiment(start, s3_url, gate):
    drivers = [start("asha", machine, 1) for machine in ("first", "second")]
    wait_until(lambda: any(driver.poll() is not None for driver in drivers))
    gate.touch()
    outputs = [driver.communicate(timeout=120)[0] for driver in drivers]
    codes = sorted(driver.returncode for driver in drivers)
    assert codes[0] == 0, outputs
    (refused,) = [
        output for output, driver in zip(outputs, drivers, strict=True) if driver.returncode
    ]
    assert "is driven by process" in refused or "already holds" in refused
    rows = rows_of(f"{s3_url}/asha")
    assert all(len(set(found)) == len(found) for found in rows.values())


def test_a_driver_that_is_replaced_stops_and_names_the_other_one(start, s3_url):
    url = f"{s3_url}/asha"
    first = start("asha", "first", 1)
    store = ObjectStore(url)
    wait_until(lambda: store.get_if_exists("experiment.json") and results_in(url) > 0)
    second = start("asha", "second", NUM_STEPS, "steal")
    output, _ = first.communicate(timeout=60)
    assert first.returncode == 1
    assert f"{url} was taken over by process {second.pid} on " in output
    assert second.wait(timeout=60) == 0
    assert tune.ResultGrid.from_directory(url).num_terminated == 3
    assert all(len(set(found)) == len(found) for found in rows_of(url).values())


def test_trials_wait_while_the_store_is_down_and_go_on(start, s3_proxy, s3_url, gate):
    url = f"{s3_url}/pbt"
    driver = start("pbt", "first", 1)
    store = ObjectStore(url)
    wait_until(lambda: store.get_if_exists("experiment.json") and results_in(url) > 0)
    s3_proxy.__exit__()
    gate.touch()
    with socket.create_server(("127.0.0.1", s3_proxy._port)) as closes_at_once:
        for _ in range(6):
            closes_at_once.accept()[0].close()
    s3_proxy.__enter__()
    output, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, output
    assert tune.ResultGrid.from_directory(url).num_terminated == 3


def test_requests_reach_a_driver_through_the_store(start, s3_url, gate):
    url = f"{s3_url}/pbt"
    driver = start("pbt", "first", 1)
    store = ObjectStore(url)
    wait_until(lambda: store.get_if_exists("experiment.json") and results_in(url) > 1)
    handle = tune.attach(url)
    assert handle.is_running
    handle.pause_trial("t00002")
    forked = handle.fork_trial("t00001", {"x": 0.25})
    handle.resume_trial("t00002")
    handle.stop()
    gate.touch()
    assert driver.wait(timeout=60) == 0
    grid = handle.wait(timeout_s=10)
    assert forked in [each.trial_id for each in grid]
    assert any(each.metrics.get("training_iteration", 0) < 6 for each in grid)
    assert not store.list("requests/")
