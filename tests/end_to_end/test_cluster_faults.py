"""Experiments on a cluster of subprocesses: faults of one node, one trial or one connection.

What happens when whole nodes, the network or the driver fail is in ``test_cluster.py``.
"""

import itertools
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import tuner as tune
from tests.cluster.fake_cluster import FakeCluster
from tests.end_to_end.test_cluster import (
    NUM_STEPS,
    check_complete,
    cluster,
    count,
    executor,
    records,
    run,
    take_steps,
)
from tests.waiting import wait_until
from tuner.cluster import nodes as cluster_nodes
from tuner.cluster.link import Liveness
from tuner.errors import ClusterError
from tuner.version import __version__

__all__ = ["cluster", "executor"]  # fixtures

ROOT = Path(__file__).resolve().parents[2]
ONE = {"a": {"cpu": 1}}
TWO = {"a": {"cpu": 1}, "b": {"cpu": 1}}
BLOCKED_AFTER = 3


@pytest.fixture
def marks(tmp_path):
    """Return a directory in which trials leave traces."""
    path = tmp_path / "marks"
    path.mkdir()
    return path


@pytest.fixture
def space(marks):
    return {"x": tune.uniform(0, 1), "marks": os.fspath(marks)}


@pytest.fixture
def customized(tmp_path):
    """Return a function that returns the environment of a node whose interpreter runs some code."""

    def environ(code):
        path = tmp_path / "customized"
        path.mkdir()
        (path / "sitecustomize.py").write_text(textwrap.dedent(code))
        return {"PYTHONPATH": os.fspath(path)}

    return environ


class Then(tune.Callback):
    """Calls a function with the trial that reports a step first."""

    def __init__(self, step, then):
        self.step, self.then = step, then

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if self.then and result["step"] == self.step:
            then, self.then = self.then, None
            then(trial)


def beat(path):
    """Write the time, again and again, to a file."""
    with path.open("a") as file:
        while True:
            file.write(f"{time.monotonic()}\n")
            file.flush()
            threading.Event().wait(0.02)


def block_once(config):
    """Count; the first process of a trial stays alive for ever after some steps."""
    marks, trial_id = Path(config["marks"]), tune.get_context().get_trial_id()
    is_first = not list(marks.glob(f"{trial_id}-*"))
    path = marks / f"{trial_id}-{os.getpid()}"
    path.touch()
    threading.Thread(target=beat, args=[path], daemon=True).start()
    if is_first:
        count({**config, "num_steps": BLOCKED_AFTER})
        threading.Event().wait()
    count(config)


def check_one_after_the_other(marks):
    """Check that no process of a trial was alive when the next one was; return how many were."""
    lives = sorted(
        [float(line) for line in path.read_text().splitlines()] for path in marks.iterdir()
    )
    for one, following in itertools.pairwise(lives):
        assert one[-1] < following[0], "two processes of a trial ran at once"
    return len(lives)


def short(lease_s, node_timeout_s):
    return Liveness(
        silent_s=0.5, node_timeout_s=node_timeout_s, lease_s=lease_s, reconnect_s=30.0, idle_s=0.5
    )


def test_a_node_that_is_heard_no_more_ends_its_trials_though_it_hears_its_driver(
    build, marks, space, tmp_path
):
    with FakeCluster(TWO, liveness=short(2.0, 5.0)) as nodes:
        mute = Then(BLOCKED_AFTER, lambda trial: nodes.set_network(trial.node, is_mute=True))
        results = run(
            build, nodes, trainable=block_once, num_samples=1, space=space, callbacks=[mute]
        )
    check_complete(results)
    assert check_one_after_the_other(marks) >= 2
    assert any(
        left["why"].startswith("nothing was heard of it")
        for left in records(tmp_path / "experiment", "node_left")
    )


def test_a_cut_that_is_longer_than_the_lease_and_too_short_to_be_noticed_moves_the_trials(
    build, marks, space, tmp_path
):
    def cut(trial):
        nodes.set_network(trial.node, is_cut=True)
        threading.Timer(4.0, nodes.set_network, [trial.node]).start()

    with FakeCluster(ONE, liveness=short(2.0, 20.0)) as nodes:
        results = run(
            build,
            nodes,
            trainable=block_once,
            num_samples=1,
            space=space,
            callbacks=[Then(BLOCKED_AFTER, cut)],
        )
    check_complete(results)
    assert check_one_after_the_other(marks) == 2
    (left,) = records(tmp_path / "experiment", "node_left")[:1]
    assert "replaced" in left["why"] or "heard of its driver" in left["why"], left


def end_once(config, victim):
    """Count; the first process of each trial kills another one, or itself."""
    mark = Path(config["marks"], tune.get_context().get_trial_id())
    if not mark.exists():
        count({**config, "num_steps": BLOCKED_AFTER})
        mark.touch()
        os.kill(victim(), signal.SIGKILL)
        threading.Event().wait()
    count(config)


def end_the_zygote(config):
    end_once(config, os.getppid)


def end_itself(config):
    end_once(config, os.getpid)


def test_trials_of_a_zygote_that_dies_are_started_again_on_the_same_node(
    build, cluster, space, tmp_path
):
    results = run(build, cluster(ONE), trainable=end_the_zygote, num_samples=1, space=space)
    check_complete(results)
    ends = [record["outcome"] for record in records(tmp_path / "experiment", "exited")]
    assert ends == ["lost", "completed"]
    assert records(tmp_path / "experiment", "node_left") == []


def test_a_trial_that_is_killed_is_tried_again_as_on_one_machine(build, cluster, space, tmp_path):
    results = run(
        build,
        cluster(ONE),
        trainable=end_itself,
        num_samples=1,
        space=space,
        failure={"max_failures": 1},
    )
    check_complete(results)
    failed, completed = records(tmp_path / "experiment", "exited")
    assert (failed["outcome"], completed["outcome"]) == ("failed", "completed")
    assert "SIGKILL" in str(failed["failure"])


def end_the_node_if_told(config):
    # In step with each other: a trial that gets no farther is given up after five losses, whether
    # they are its own doing or that of the trial beside it.
    marks, journal = Path(config["marks"]), Path(config["journal_of"])

    def num_attempts():
        return len(list(marks.iterdir()))

    def has_got_farther(trial_id):
        steps = {each["m"]["step"] for each in records(journal, "result") if each["id"] == trial_id}
        return len(steps) >= num_attempts()

    if config["is_deadly"]:
        (marks / str(num_attempts())).touch()
        wait_until(lambda: has_got_farther("t00001") and has_got_farther("t00002"))
        zygote = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(zygote.rpartition(")")[2].split()[1]), signal.SIGKILL)
        threading.Event().wait()
    take_steps(config, lambda step: wait_until(lambda: num_attempts() >= min(step, 5)))


def test_a_trial_that_ends_every_node_it_runs_on_is_given_up_and_the_others_finish(
    build, cluster, marks, tmp_path
):
    results = run(
        build,
        cluster(),
        trainable=end_the_node_if_told,
        num_samples=1,
        space={
            "x": 1.0,
            "is_deadly": tune.grid_search([True, False, False]),
            "journal_of": str(tmp_path / "experiment"),
            "marks": str(marks),
        },
    )
    (error,) = results.errors
    assert "5 times" in str(error), error
    for result in results:
        if not result.config["is_deadly"]:
            assert list(result.metrics_dataframe["step"]) == list(range(1, NUM_STEPS + 1))


OTHER_VERSION = f"""
    import sys
    sys.path.insert(0, {os.fspath(ROOT)!r})
    import tuner.version
    tuner.version.__version__ = "0.0.9"
"""


def test_a_node_of_another_version_is_not_used_and_both_versions_are_told(
    build, cluster, customized, caplog, tmp_path
):
    nodes = cluster(TWO, environ={"b": customized(OTHER_VERSION)})
    check_complete(run(build, nodes, num_samples=3))
    joined = {record["node"] for record in records(tmp_path / "experiment", "node_joined")}
    assert joined == {"a"}
    (told,) = {text for text in caplog.messages if "node b is not used" in text}
    assert "0.0.9" in told
    assert __version__ in told


def test_where_no_node_can_be_used_the_experiment_ends_and_can_be_restored(
    build, cluster, customized, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster_nodes, "_FIRST_NODE_S", 1.0)
    nodes = cluster(ONE, environ={"a": customized(OTHER_VERSION)})
    said = r"nothing can run: .*; not used: .*0\.0\.9.* continue with"
    with pytest.raises(ClusterError, match=said):
        run(build, nodes, num_samples=1, node_wait_s=1.0)
    restored = tune.Tuner.restore(
        tmp_path / "experiment", count, cluster=cluster(ONE), node_wait_s=60.0
    )
    check_complete(restored.fit())


def test_a_node_that_alone_cannot_load_the_code_is_not_used(
    build, cluster, caplog, tmp_path, monkeypatch
):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "code_with_a_dependency.py").write_text(
        textwrap.dedent(
            """
            import os
            if "LACKS_THE_DEPENDENCY" in os.environ:
                raise ImportError("the dependency is not installed")
            from tests.end_to_end.test_cluster import count
            def train(config):
                count(config)
            """
        )
    )
    monkeypatch.syspath_prepend(os.fspath(tmp_path / "code"))
    import code_with_a_dependency

    try:
        nodes = cluster(ONE, environ={"b": {"LACKS_THE_DEPENDENCY": "1"}})
        late = Then(1, lambda trial: nodes.add_node("b", {"cpu": 1}))
        results = run(
            build,
            nodes,
            trainable=code_with_a_dependency.train,
            num_samples=12,
            callbacks=[late],
        )
    finally:
        sys.modules.pop("code_with_a_dependency", None)
    check_complete(results)
    (told,) = {text for text in caplog.messages if "is not used" in text}
    assert told.startswith("node b is not used: the training code cannot be loaded there")
    assert "the dependency is not installed" in told


def test_what_no_node_has_is_waited_for_while_nodes_may_come(build, cluster, caplog):
    nodes = cluster(ONE, spare={"large": {"cpu": 4}})
    trainable = tune.with_resources(count, {"cpu": 3})
    check_complete(run(build, nodes, trainable=trainable, num_samples=2))


def test_what_no_node_has_is_an_error_after_a_while(build, cluster):
    trainable = tune.with_resources(count, lambda config: {"cpu": 3 if config["is_large"] else 1})
    results = run(
        build,
        cluster(ONE),
        trainable=trainable,
        num_samples=1,
        space={"x": 1.0, "is_large": tune.grid_search([False, True])},
        node_wait_s=8.0,  # in which the node has to join, however busy the machine is
    )
    (error,) = results.errors
    assert "cpu" in str(error).lower()
    assert [len(each.metrics_dataframe) for each in results if not each.error] == [NUM_STEPS]


def test_the_clock_of_a_node_may_be_wrong(build, cluster, customized):
    wrong = """
        import time
        right = time.time
        time.time = lambda: right() - 400 * 86400
    """
    nodes = cluster(TWO, environ={"b": customized(wrong)})
    results = run(build, nodes, num_samples=4)
    check_complete(results)
    for result in results:
        total_s = list(result.metrics_dataframe["time_total_s"])
        assert total_s == sorted(total_s)
        assert 0 <= total_s[0] <= total_s[-1] < 3600
