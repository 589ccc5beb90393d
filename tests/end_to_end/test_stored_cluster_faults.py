"""Experiments on a cluster whose nodes share nothing but an object store, which fails."""

import errno
import os
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

import tuner as tune
from tests.end_to_end.test_cluster import (
    NUM_STEPS,
    Once,
    at_step,
    check_complete,
    cluster,
    count,
    executor,
    records,
)
from tests.end_to_end.test_cluster_faults import BLOCKED_AFTER, ONE, TWO, Then
from tests.end_to_end.test_stored_cluster import run
from tests.execution.local.conftest import still_alive
from tuner.errors import ExperimentFenced
from tuner.stores.object_store import ObjectStore
from tuner.stores.remote_lock import RemoteLock

pytestmark = pytest.mark.heavy

__all__ = ["cluster", "executor", "run", "still_alive"]  # fixtures

NO_ROOM_AT = 3
FAULTS = ("503", "lose", "cut")


def check_saved(results):
    """Check that each result has the checkpoint that it was reported with."""
    for result in results:
        assert all(result.metrics_dataframe["should_checkpoint"])


def test_requests_of_nodes_that_fail_are_tried_again(run, cluster, s3_proxy):
    """Have some answered 503, some carried out without an answer, and some answered in part."""
    s3_proxy.fault = lambda number, method, path: (
        None if number % 10 else FAULTS[number // 10 % len(FAULTS)]
    )
    results = run(count, cluster(TWO), tune={"num_samples": 2})
    check_complete(results)
    check_saved(results)


def test_uploads_wait_while_the_store_is_away(run, cluster, s3_proxy, tmp_path):
    refusals = []

    def go_away():
        refusals.extend(["503"] * 12)

    s3_proxy.fault = lambda number, method, path: refusals.pop() if refusals else None
    results = run(
        count, cluster(TWO), tune={"num_samples": 2}, callbacks=[Once(at_step(3), go_away)]
    )
    assert not refusals
    check_complete(results)
    check_saved(results)
    assert records(tmp_path / "local" / "experiment", "node_left") == []


def block_once(config):
    """Count; the first process of a trial stays alive for ever after some steps."""
    mark = Path(config["marks"], tune.get_context().get_trial_id())
    if not mark.exists():
        mark.touch()
        count({**config, "num_steps": BLOCKED_AFTER})
        threading.Event().wait()
    with mark.open("w") as file:
        checkpoint = tune.get_checkpoint()
        file.write(Path(checkpoint.path, "step").read_text() if checkpoint else "none")
    count(config)


def test_a_checkpoint_that_was_changed_in_the_store_gives_way_to_the_one_before(
    run, cluster, s3_url, tmp_path
):
    (tmp_path / "marks").mkdir()
    store = ObjectStore(f"{s3_url}/experiment")

    def damage(trial):
        newest = max(key for key in store.list() if "/checkpoint_" in key and key.endswith("/step"))
        assert store.get(newest) == str(BLOCKED_AFTER).encode()
        store.put(newest, b"9")
        nodes.kill_node(trial.node)

    nodes = cluster(TWO)
    results = run(
        block_once,
        nodes,
        tune={"num_samples": 1},
        space={"x": 1.0, "marks": os.fspath(tmp_path / "marks")},
        callbacks=[Then(BLOCKED_AFTER, damage)],
    )
    check_complete(results)
    (mark,) = (tmp_path / "marks").iterdir()
    assert mark.read_text() == str(BLOCKED_AFTER - 1)


def have_no_room_once(config):
    """Count; the disk of the node has no room for the checkpoint of one step."""
    rename = os.rename

    def full(source, target, **options):
        raise OSError(errno.ENOSPC, "no space left on device", os.fspath(target))

    for step in range(1, NUM_STEPS + 1):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            os.rename = full if step == NO_ROOM_AT else rename
            checkpoint = tune.Checkpoint.from_directory(directory)
            tune.report({"step": step, "loss": 0.0}, checkpoint=checkpoint)


def test_without_room_on_the_node_a_checkpoint_fails_and_training_goes_on(run, cluster):
    results = run(have_no_room_once, cluster(ONE), tune={"num_samples": 1})
    check_complete(results)
    is_saved = results[0].metrics_dataframe["should_checkpoint"]
    assert list(is_saved) == [step != NO_ROOM_AT for step in range(1, NUM_STEPS + 1)]
    assert "no space left on device" in Path(results[0].path, "stderr").read_text()


def test_a_driver_that_is_replaced_ends_its_nodes(run, cluster, s3_url, still_alive):
    others, running = set(psutil.Process().children(recursive=True)), []

    def take_over():
        running.extend(set(psutil.Process().children(recursive=True)) - others)
        RemoteLock(ObjectStore(f"{s3_url}/experiment"), steal=True).acquire()

    with pytest.raises(ExperimentFenced):
        run(
            count,
            cluster(TWO),
            tune={"num_samples": 50},
            callbacks=[Once(at_step(3), take_over)],
        )
    assert len(running) > len(TWO)
    assert still_alive([process.pid for process in running]) == []
