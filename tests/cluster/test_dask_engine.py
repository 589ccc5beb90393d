"""The Dask engine on real Dask clusters of this machine, with agents that send back what they get.

The extra ``test-heavy`` has what this needs.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

import pytest

import tuner as tune
from tuner import DaskCluster
from tuner.cluster.gateway import GatewayProcess
from tuner.errors import ClusterError

distributed = pytest.importorskip("distributed")
from tuner.cluster import dask_engine, dask_plugin  # noqa: E402  (imports it)

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0
ENGINE = "tuner.cluster.dask_engine:DaskEngine"
ECHO_AGENT = """
import os, threading

from tuner.cluster import dask_plugin


class EchoAgent:
    def __init__(self, name, token, facts, *, environ=None, silent_s=0.0):
        self.name, self.number = name, 0
        self.lines, self.has_lines, self.is_closed = [], threading.Condition(), False

    def tell(self, lines):
        with self.has_lines:
            for line in lines:
                self.number += 1
                self.lines.append(f"{self.name}:{self.number}:{line}")
            self.has_lines.notify()

    def take(self, timeout_s):
        with self.has_lines:
            self.has_lines.wait_for(lambda: self.lines or self.is_closed, timeout_s)
            lines, self.lines = self.lines, []
            return lines

    def close(self, within_s):
        with self.has_lines:
            self.is_closed = True
            self.has_lines.notify()


def dask_setup(worker):
    dask_plugin.Agent = EchoAgent
"""
WITHOUT_TUNER = """
import sys


def dask_setup(worker):
    sys.modules["tuner.cluster.dask_plugin"] = None
"""


class Reports:
    """What an engine reports, to be waited for."""

    def __init__(self):
        self.up, self.gone, self.lines = {}, {}, defaultdict(list)
        self.may_live = {}
        self.draining_s, self.remarks, self.why_lost = {}, [], None
        self._changed = threading.Condition()

    def agent_up(self, agent, facts):
        with self._changed:
            assert agent not in self.up
            self.up[agent] = dict(facts)
            self._changed.notify()

    def received(self, agent, lines):
        with self._changed:
            self.lines[agent] += lines
            self._changed.notify()

    def agent_gone(self, agent, why, *, may_live=False):
        with self._changed:
            self.up.pop(agent, None)
            if may_live:
                self.may_live[agent] = why
            else:
                self.gone[agent] = why
            self._changed.notify()

    def draining(self, agent, deadline_s):
        with self._changed:
            self.draining_s[agent] = deadline_s
            self._changed.notify()

    def remark(self, text, *, is_refusal=False):
        with self._changed:
            self.remarks.append(text)
            self._changed.notify()

    def lost(self, why):
        with self._changed:
            self.why_lost = why
            self._changed.notify()

    def wait_for(self, predicate):
        with self._changed:
            assert self._changed.wait_for(predicate, DEADLINE_S), vars(self)

    def agents_of(self, worker):
        return [a for a, facts in self.up.items() if facts["labels"]["worker"] == str(worker)]


@pytest.fixture(scope="module")
def echo_agent(tmp_path_factory):
    file = tmp_path_factory.mktemp("preload") / "echo_agent.py"
    file.write_text(ECHO_AGENT)
    return str(file)


def make_cluster(num_workers, **options):
    return distributed.LocalCluster(
        n_workers=num_workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # without Bokeh there is no dashboard
        silence_logs="CRITICAL",
        **options,
    )


@pytest.fixture(scope="module")
def cluster(echo_agent):
    with make_cluster(3, preload=echo_agent, resources={"licence": 2, "GPU": 7}) as made:
        made.wait_for_workers(3)
        yield made


def make_engine(settings, token="t"):  # noqa: S107  (no password)
    reports = Reports()
    return dask_engine.DaskEngine(settings, token, reports), reports


@pytest.fixture
def start_worker(cluster):
    """Return a function that starts a worker without a nanny, as a program of its own."""
    started = []

    def start(name, preload, *options, gpus=""):
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address),
                *("--name", name, "--no-nanny", "--nthreads", "2", "--no-dashboard"),
                *("--preload", preload, *options),
            ],
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "DASK_TUNER__LABELS": "{'rack': 7}"}
            | {"CUDA_VISIBLE_DEVICES": gpus},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()
        worker.wait()


@pytest.fixture
def open_engine(start_worker):
    """Return a function that opens an engine and returns it with its reports.

    Engines are closed before the workers of `start_worker` are killed.
    """
    opened = []

    def open_engine(cluster, token="t", **options):  # noqa: S107  (no password)
        settings = pickle.loads(pickle.dumps(DaskCluster(cluster, **options).settings()))  # noqa: S301
        engine, reports = make_engine(settings, token)
        opened.append(engine)
        facts = engine.open([])
        assert facts["version"] == distributed.__version__
        assert facts["reattaches"]
        return engine, reports

    yield open_engine
    for engine in opened:
        engine.close(20.0)


def ours_in_workers(cluster):
    def names(dask_worker):
        return [n for n in [*dask_worker.plugins, *dask_worker.handlers] if n.startswith("tuner-")]

    with distributed.Client(cluster, set_as_default=False) as client:
        return client.run(names)


def test_each_worker_has_an_agent_with_its_resources_and_labels(cluster, open_engine):
    _, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    assert len({facts["labels"]["worker"] for facts in reports.up.values()}) == 3
    for facts in reports.up.values():
        assert facts["resources"]["cpu"] == 1.0
        assert facts["resources"]["licence"] == 2.0
        assert "GPU" not in facts["resources"]
        assert facts["address"] == "127.0.0.1"
        assert "attached" not in facts
    assert reports.remarks == []


def test_lines_travel_both_ways_in_order_and_none_is_lost(cluster, open_engine):
    engine, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    lines = [f"{number} \u00e9\ud7ff {'x' * (number % 7 * 1000)}" for number in range(600)]
    for number in range(0, 600, 3):
        for agent in reports.up:
            engine.tell(agent, lines[number : number + 3])
    engine.tell("no such agent", ["nothing"])
    for agent in reports.up:
        reports.wait_for(lambda agent=agent: len(reports.lines[agent]) >= 600)
        told = [f"{agent}:{number}:{line}" for number, line in enumerate(lines, 1)]
        assert reports.lines[agent] == told


def test_two_experiments_on_one_cluster_have_agents_of_their_own(cluster, open_engine):
    first, of_first = open_engine(cluster, "one")
    second, of_second = open_engine(cluster, "two")
    for engine, reports in [(first, of_first), (second, of_second)]:
        reports.wait_for(lambda reports=reports: len(reports.up) == 3)
        for agent in reports.up:
            engine.tell(agent, ["hello"])
            reports.wait_for(lambda reports=reports, agent=agent: reports.lines[agent])
            assert reports.lines[agent] == [f"{agent}:1:hello"]
    first.close(20.0)
    agent = next(iter(of_second.up))
    second.tell(agent, ["still there"])
    of_second.wait_for(lambda: len(of_second.lines[agent]) == 2)
    assert of_second.gone == {}


def test_a_worker_that_its_nanny_restarts_is_a_new_node(cluster, open_engine):
    engine, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    (agent,) = reports.agents_of(1)
    os.kill(cluster.workers[1].pid, signal.SIGKILL)
    reports.wait_for(lambda: agent in reports.gone)
    reports.wait_for(lambda: reports.agents_of(1))
    (successor,) = reports.agents_of(1)
    assert successor != agent
    assert reports.gone[agent] == "its Dask worker has died, and was started again"
    engine.tell(successor, ["hello"])
    reports.wait_for(lambda: reports.lines[successor])
    assert len(reports.up) == 3


class Firewall:
    """Refuses connections from the gateway to workers, and breaks those that there are."""

    def __init__(self, monkeypatch):
        self._connect = dask_engine.connect
        self._comms, self.is_closed, self.num_refused = [], False, 0
        monkeypatch.setattr(dask_engine, "connect", self.connect)

    async def connect(self, address, **options):
        if self.is_closed:
            self.num_refused += 1
            raise ConnectionRefusedError(address)
        self._comms.append(await self._connect(address, **options))
        return self._comms[-1]

    def close(self, engine):
        def break_all():
            for comm in self._comms[1:]:  # the first one is to the scheduler
                comm.abort()

        self.is_closed = True
        engine._loop.call_soon_threadsafe(break_all)


def test_a_worker_that_refuses_connections_for_a_while_has_lost_nothing(
    cluster, open_engine, monkeypatch
):
    monkeypatch.setattr(dask_engine, "_RECONNECT_S", 0.1)
    firewall = Firewall(monkeypatch)
    engine, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    agents = list(reports.up)
    for agent in agents:
        engine.tell(agent, ["one"])
    reports.wait_for(lambda: len(reports.lines) == 3)
    firewall.close(engine)
    while firewall.num_refused < 9:  # the agents are there, for all that is known
        pass  # bounded by the test's timeout
    firewall.is_closed = False
    for agent in agents:
        engine.tell(agent, ["two"])
    reports.wait_for(lambda: all(len(reports.lines[agent]) == 2 for agent in agents))
    assert [reports.lines[agent][1] for agent in agents] == [f"{agent}:2:two" for agent in agents]
    assert (reports.gone, reports.may_live) == ({}, {})


def test_a_worker_that_refuses_connections_for_too_long_may_live_still(
    cluster, open_engine, monkeypatch
):
    firewall = Firewall(monkeypatch)
    engine, reports = open_engine(cluster)
    engine._lease_s = 0.5
    reports.wait_for(lambda: len(reports.up) == 3)
    firewall.close(engine)
    reports.wait_for(lambda: len(reports.may_live) == 3)
    assert reports.gone == {}
    firewall.is_closed = False


def test_workers_may_be_added_and_removed(cluster, open_engine):
    _, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    cluster.scale(4)
    reports.wait_for(lambda: len(reports.up) == 4)
    cluster.scale(3)
    reports.wait_for(lambda: len(reports.gone) == 1)
    assert set(reports.gone.values()) <= {"its Dask worker has ended it", "its Dask worker is gone"}


def test_a_worker_without_nanny_is_a_node_until_it_is_killed(
    open_engine, cluster, start_worker, echo_agent
):
    _, reports = open_engine(cluster)
    worker = start_worker("lone", echo_agent, "--resources", "licence=1")
    reports.wait_for(lambda: reports.agents_of("lone"))
    (agent,) = reports.agents_of("lone")
    assert reports.up[agent]["resources"] == {"cpu": 2.0, "licence": 1.0}
    assert reports.up[agent]["labels"]["rack"] == "7"
    worker.kill()
    reports.wait_for(lambda: agent in reports.may_live)
    assert reports.gone == {}  # nothing proves that it is dead


def test_gpus_that_several_workers_of_a_machine_offer_are_warned_of(
    open_engine, cluster, start_worker, echo_agent
):
    _, reports = open_engine(cluster)
    start_worker("a", echo_agent, gpus="0,1")
    start_worker("b", echo_agent, gpus="2")
    for name, num_gpus in [("a", 2.0), ("b", 1.0)]:
        reports.wait_for(lambda name=name: reports.agents_of(name))
        (agent,) = reports.agents_of(name)
        assert reports.up[agent]["resources"]["gpu"] == num_gpus
    assert reports.remarks == []
    start_worker("c", echo_agent, gpus="1,2")
    reports.wait_for(lambda: reports.agents_of("c"))
    (remark,) = reports.remarks
    assert "offer trials the same GPUs" in remark


def test_a_worker_whose_lifetime_ends_is_announced(open_engine, cluster, start_worker, echo_agent):
    _, reports = open_engine(cluster)
    start_worker("mortal", echo_agent, "--lifetime", "50s")
    reports.wait_for(lambda: reports.draining_s)
    ((agent, deadline_s),) = reports.draining_s.items()
    assert [agent] == reports.agents_of("mortal")
    assert 0.0 <= deadline_s <= 50.0


def test_a_worker_without_this_package_is_reported_and_tried_again(
    open_engine, cluster, start_worker, tmp_path, monkeypatch
):
    failures = []
    monkeypatch.setattr(dask_engine, "_RETRY_S", 0.1)
    monkeypatch.setattr(dask_engine, "back_off_s", lambda number: failures.append(number) or 0.0)
    _, reports = open_engine(cluster)
    preload = tmp_path / "without_tuner.py"
    preload.write_text(WITHOUT_TUNER)
    worker = start_worker("other", str(preload))
    while len(failures) < 3:
        pass  # bounded by the test's timeout
    (remark,) = reports.remarks
    assert "runs no trials: ModuleNotFoundError(" in remark
    assert worker.poll() is None


def test_an_evicted_agent_is_always_replaced_after_growing_pauses(
    cluster, open_engine, monkeypatch
):
    failures = []
    monkeypatch.setattr(dask_engine, "_RETRY_S", 0.0)
    monkeypatch.setattr(dask_engine, "back_off_s", lambda number: failures.append(number) or 0.0)
    engine, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    for _ in range(5):
        (agent,) = reports.agents_of(0)
        reports.up.pop(agent)
        engine.evict(agent, "a test")
        reports.wait_for(lambda: reports.agents_of(0))
    assert failures == [1, 2, 3, 4, 5]
    assert reports.gone == {}


def test_agents_outlive_the_gateway_and_the_next_one_finds_them(cluster):
    settings = DaskCluster(cluster).settings()
    first = GatewayProcess(ENGINE, settings, "t")
    known = {fields[0] for fields in messages_of(first, "agent", 3)}
    for agent in known:
        first.tell(agent, ["one"])
    assert {fields[0] for fields in messages_of(first, "from", 3)} == known
    os.kill(first._process.pid, signal.SIGKILL)
    second = GatewayProcess(ENGINE, settings, "t", sorted(known))
    found = {agent: facts for agent, facts in messages_of(second, "agent", 3)}  # noqa: C416
    assert found.keys() == known
    assert all(facts["attached"] for facts in found.values())
    for agent in known:
        second.tell(agent, ["two"])
    assert {(agent, *lines) for agent, lines in messages_of(second, "from", 3)} == {
        (agent, f"{agent}:2:two") for agent in known
    }
    second.close(20.0)
    first.close(0.0)
    assert set(map(tuple, ours_in_workers(cluster).values())) == {()}


def messages_of(gateway, kind, number):
    """Return the fields of so many messages of a kind."""
    found = []
    gateway.socket.setblocking(True)
    gateway.socket.settimeout(DEADLINE_S)
    while len(found) < number:
        received = gateway.receive()
        assert received is not None, gateway.why_gone()
        found += [fields for got, *fields in received if got == kind]
    return found


def test_nothing_is_left_in_the_workers_when_the_engine_is_closed(cluster, open_engine):
    engine, reports = open_engine(cluster)
    reports.wait_for(lambda: len(reports.up) == 3)
    assert all(ours_in_workers(cluster).values())
    engine.close(20.0)
    assert not any(ours_in_workers(cluster).values())
    assert reports.gone == {}


def test_a_worker_that_hangs_is_not_said_to_have_ended_its_agent(cluster):
    engine, reports = make_engine(DaskCluster(cluster).settings(), "hangs")
    engine.open([])
    reports.wait_for(lambda: len(reports.up) == 3)
    pid = cluster.workers[2].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError, match="1 Dask workers have not ended their agents"):
            engine.close(2.0)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_scheduler_sees_a_task_now_and_then_and_does_not_close(
    cluster, open_engine, monkeypatch
):
    monkeypatch.setattr(dask_engine, "_BUSY_S", 0.05)

    def num_transitions(dask_scheduler):
        return dask_scheduler.transition_counter

    with distributed.Client(cluster, set_as_default=False) as client:
        before = client.run_on_scheduler(num_transitions)
        open_engine(cluster)
        while client.run_on_scheduler(num_transitions) < before + 20:
            pass  # bounded by the test's timeout


# Dask may leave the socket of a connection that is refused at the end to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_with_temporary_certificates_and_its_end(echo_agent, open_engine):
    pytest.importorskip("cryptography")
    security = distributed.Security.temporary()
    with make_cluster(1, preload=echo_agent, security=security) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        engine, reports = open_engine(cluster)
        reports.wait_for(lambda: reports.up)
        (agent,) = reports.up
        engine.tell(agent, ["hello"])
        reports.wait_for(lambda: reports.lines[agent])
        with pytest.raises(ClusterError, match="no Dask scheduler can be reached at tls://"):
            make_engine(DaskCluster(cluster.scheduler_address).settings())[0].open([])
    reports.wait_for(lambda: agent in reports.gone and reports.why_lost)
    assert reports.remarks == []


def test_an_experiment_goes_on_where_a_worker_is_killed(tmp_path):
    def train(config):
        is_resumed = tune.get_checkpoint() is not None
        if is_resumed:
            Path(config["go"]).touch()
        with tempfile.TemporaryDirectory() as empty:
            tune.report({"resumed": is_resumed}, checkpoint=tune.Checkpoint.from_directory(empty))
        while not Path(config["go"]).exists():
            tune.report({"resumed": is_resumed})

    class KillOneWorker(tune.Callback):
        def __init__(self):
            self.reported = set()

        def on_trial_result(self, iteration, trials, trial, result, **info):
            if len(self.reported) < 2:
                self.reported.add(trial.trial_id)
                if len(self.reported) == 2:
                    os.kill(cluster.workers[0].pid, signal.SIGKILL)

    with make_cluster(2) as cluster:
        grid = tune.Tuner(
            train,
            param_space={"go": str(tmp_path / "go")},
            tune_config=tune.TuneConfig(num_samples=2),
            run_config=tune.RunConfig(
                name="e",
                storage_path=tmp_path,
                cluster=DaskCluster(cluster),
                callbacks=[KillOneWorker()],
                verbose=0,
            ),
        ).fit()
    assert grid.num_errors == 0
    assert sorted(result.metrics["resumed"] for result in grid) == [False, True]


def test_a_scheduler_file_is_read_when_the_engine_is_opened(cluster, open_engine, tmp_path):
    file = tmp_path / "scheduler.json"
    file.write_text(f'{{"address": "{cluster.scheduler_address}"}}')
    _, reports = open_engine(file)
    reports.wait_for(lambda: len(reports.up) == 3)
    file.write_text("{}")
    with pytest.raises(ClusterError, match="cannot be read as a Dask scheduler file: 'address'"):
        make_engine(DaskCluster(file).settings())[0].open([])


def test_a_scheduler_that_does_not_answer_is_reported_with_a_remedy():
    settings = DaskCluster("tcp://127.0.0.1:1", connect_timeout_s=0.2).settings()
    with pytest.raises(ClusterError, match=r"at tcp://127.0.0.1:1: .*; check that it runs"):
        make_engine(settings)[0].open([])


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://localhost:8786", False),
        ("tcp://[::1]:8786", False),
        ("tls://10.0.0.1:8786", False),
        ("tcp://10.0.0.1:8786", True),
        ("tcp://scheduler.lab:8786", True),
    ],
)
def test_a_cluster_that_a_network_can_reach_without_tls_is_warned_of(address, is_open):
    engine, reports = make_engine(DaskCluster(address).settings())
    engine._warn_of_open_network(address)
    engine._warn_of_open_network(address)
    assert len(reports.remarks) == is_open


def test_trials_inherit_the_environment_of_the_worker_without_what_dask_sets(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,0,1")
    assert dask_plugin._agent_environment() == {"OMP_NUM_THREADS": ""}
    monkeypatch.setitem(sys.modules, "dask_cuda", sys)
    assert dask_plugin._agent_environment()["CUDA_VISIBLE_DEVICES"] == "2"


def test_lines_that_an_agent_does_not_take_are_bounded(monkeypatch):
    monkeypatch.setattr(dask_engine, "_MAX_OUTBOX_CHARACTERS", 10)
    worker = dask_engine._Worker("tcp://127.0.0.1:1")
    worker.put(["12345", "67"])
    worker.put(["abcde"])
    assert worker.take() == ["67", "abcde"]
    assert worker.take() == []


def test_a_line_is_kept_however_long_it_is(monkeypatch):
    monkeypatch.setattr(dask_engine, "_MAX_OUTBOX_CHARACTERS", 10)
    worker = dask_engine._Worker("tcp://127.0.0.1:1")
    worker.put(["old", "x" * 11])
    assert worker.take() == ["x" * 11]
