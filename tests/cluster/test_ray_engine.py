"""The engine for Ray, on a cluster of three nodes on this machine."""

import json
import os
import select
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tuner.cluster.gateway import GatewayProcess

pytest.importorskip("ray")

from ray.cluster_utils import Cluster

ROOT = Path(__file__).resolve().parents[3]
ENGINE = "tuner.cluster.ray_engine:RayEngine"
DEADLINE_S = 60.0
# Agents that send back what they are told, see `echo_agent`.
ECHOING = {
    "env_vars": {"PYTHONPATH": str(ROOT), "GREETING": "hello"},
    "worker_process_setup_hook": "tests.cluster.echo_agent.install",
}
# Ray's own processes cause the warnings.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        # Lightning sets it in whatever process trains, and Ray's inherit it.
        patch.delenv("OMP_NUM_THREADS", raising=False)
        yield from running_cluster()


def running_cluster():
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "labels": {"zone": "a"},
            "include_dashboard": False,
            "_system_config": {
                "health_check_initial_delay_ms": 0,
                "health_check_period_ms": 500,
                "health_check_failure_threshold": 4,
            },
        },
    )
    cluster.add_node(num_cpus=2, resources={"licence": 2}, labels={"zone": "b"})
    cluster.add_node(num_cpus=2, num_gpus=1, labels={"zone": "c"})
    yield cluster
    cluster.shutdown()


class Driver:
    """The driver's end of a gateway, and what it has been told."""

    def __init__(self, address, known=(), **settings):
        settings = {"address": address, "runtime_env": ECHOING, "lease_s": 20.0, **settings}
        self.gateway = GatewayProcess(ENGINE, settings, "token", known)
        self.seen, self.facts, self.lines, self.gone = [], {}, {}, {}

    def wait_until(self, is_met):
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_met():
            assert time.monotonic() < deadline_s, self.seen[-20:]
            writable = [self.gateway.socket] if self.gateway.has_backlog else []
            select.select([self.gateway.socket], writable, [], 0.1)
            self.gateway.flush()
            received = self.gateway.receive()
            assert received is not None, self.gateway.why_gone()
            for message in received:
                self.note(*message)

    def note(self, kind, *fields):
        self.seen.append((kind, *fields))
        match kind:
            case "agent":
                self.facts[fields[0]] = fields[1]
            case "gone":
                self.gone[fields[0]] = fields[1]
            case "from":
                self.lines.setdefault(fields[0], []).extend(fields[1])

    def wait_for(self, kind):
        self.wait_until(lambda: any(message[0] == kind for message in self.seen))
        return next(message[1:] for message in self.seen if message[0] == kind)

    def wait_for_agents(self, number):
        """Wait until so many agents are there, and return their names."""
        self.wait_until(lambda: len(self.facts.keys() - self.gone.keys()) == number)
        return sorted(self.facts.keys() - self.gone.keys())

    def in_zone(self, zone):
        return next(
            name
            for name, facts in self.facts.items()
            if facts["labels"].get("zone") == zone and name not in self.gone
        )

    def ask(self, agent):
        """Return what an agent says about itself."""
        before = len(self.lines.get(agent, ()))
        self.gateway.tell(agent, ["about"])
        self.wait_until(lambda: len(self.lines.get(agent, ())) > before)
        return json.loads(self.lines[agent][before])


@pytest.fixture
def connect(cluster):
    drivers = []

    def connect(known=(), address=None, **settings):
        drivers.append(Driver(address or cluster.address, known, **settings))
        return drivers[-1]

    yield connect
    for driver in drivers:
        driver.gateway.close(DEADLINE_S)


@pytest.fixture(scope="class")
def shared_driver(cluster):
    # Trials of a node that is merely cut off would live as long as the lease.
    driver = Driver(cluster.address, known=["earlier"], lease_s=5.0)
    yield driver
    driver.gateway.close(DEADLINE_S)


@pytest.fixture
def driver(shared_driver):
    """Return the driver that the tests of a class have in common, without what is past."""
    driver = shared_driver
    driver.wait_for_agents(3)
    for agent in driver.gone:
        del driver.facts[agent]
    driver.gone, driver.lines = {}, {}
    return driver


@pytest.fixture
def add_node(cluster):
    nodes = []

    def add_node(**settings):
        nodes.append(cluster.add_node(**settings))
        return nodes[-1]

    yield add_node
    for node in nodes:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


class TestOneConnection:
    """What leaves the cluster as it was."""

    def test_each_node_gets_an_agent_with_its_resources_and_labels(self, driver, cluster):
        (opened,) = driver.wait_for("opened")
        assert opened == {"address": cluster.address, "version": version(), "is_elastic": True}
        assert "RAY_AUTH_MODE=token" in driver.wait_for("remark")[0]
        resources = {
            facts["labels"]["zone"]: facts["resources"]
            for facts in driver.facts.values()
            if facts["labels"]["ray.io/node-id"] and facts["address"]
        }
        assert resources == {
            "a": {"cpu": 2.0, "gpu": 0.0},
            "b": {"cpu": 2.0, "gpu": 0.0, "licence": 2.0},
            "c": {"cpu": 2.0, "gpu": 1.0},
        }
        agent = driver.in_zone("c")
        about = driver.ask(agent)
        assert (about["name"], about["token"]) == (agent, "token")
        assert about["facts"] == driver.facts[agent]
        assert about["environ"]["CUDA_VISIBLE_DEVICES"] == "0"
        assert about["environ"]["GREETING"] == "hello"
        assert "OMP_NUM_THREADS" not in about["environ"]

    def test_lines_go_both_ways_and_none_is_lost(self, driver):
        agents = driver.wait_for_agents(3)
        told = [f"line {number}" for number in range(500)]
        for line in told:
            for agent in agents:
                driver.gateway.tell(agent, [line])
        large = "x" * 1_000_000
        driver.gateway.tell(agents[0], [large])
        driver.wait_until(lambda: sum(map(len, driver.lines.values())) == 1_501)
        for agent in agents:
            assert Counter(driver.lines[agent]) - Counter([large]) == Counter(told)
        assert large in driver.lines[agents[0]]

    def test_nodes_join_drain_and_leave(self, driver, add_node, cluster):
        node = add_node(num_cpus=1, labels={"zone": "d"})
        driver.wait_for_agents(4)
        agent = driver.in_zone("d")
        assert driver.facts[agent]["resources"] == {"cpu": 1.0, "gpu": 0.0}
        drain(cluster, node, within_s=600)
        name, deadline_s = driver.wait_for("draining")
        assert name == agent
        assert 500 < deadline_s <= 600
        cluster.remove_node(node)
        driver.wait_until(lambda: driver.gone)
        assert list(driver.gone) == [agent]

    def test_a_node_that_dies_takes_its_agent_along(self, driver, add_node):
        node = add_node(num_cpus=1, labels={"zone": "d"})
        driver.wait_for_agents(4)
        agent = driver.in_zone("d")
        raylet = node.all_processes["raylet"][0].process
        raylet.kill()
        raylet.wait()
        driver.wait_until(lambda: driver.gone)
        assert list(driver.gone) == [agent]
        assert "node has died" in driver.gone[agent]
        assert driver.ask(driver.in_zone("a"))


def test_the_agent_of_a_killed_actor_is_replaced_by_one_of_another_name(connect):
    driver = connect(known=["host-2"])
    before = driver.wait_for_agents(3)
    agent = driver.in_zone("b")
    driver.gateway.tell(agent, ["die"])
    driver.wait_until(lambda: driver.gone)
    assert list(driver.gone) == [agent]
    assert "worker process has died" in driver.gone[agent]
    after = driver.wait_for_agents(3)
    (new,) = set(after) - set(before)
    assert driver.facts[new]["labels"]["zone"] == "b"
    assert driver.ask(new)["name"] == new


def test_names_of_an_earlier_gateway_are_not_used_again(connect):
    first = connect()
    names = first.wait_for_agents(3)
    os.kill(first.gateway._process.pid, signal.SIGKILL)
    second = connect(known=names)
    assert set(second.wait_for_agents(3)).isdisjoint(names)  # Ray has ended those of the first


def test_an_evicted_agent_comes_again_only_when_something_waits(connect):
    driver = connect()
    before = driver.wait_for_agents(3)
    agent = driver.in_zone("b")
    other = driver.in_zone("a")
    driver.gateway.evict(agent, "it is idle")
    driver.gateway.tell(other, ["die"])  # which is replaced
    # Its end is reported some seconds later, when its trials have certainly ended; the new one may
    # be there before.
    driver.wait_until(lambda: len(driver.facts) == 4 and driver.gone)
    assert list(driver.gone) == [other]
    driver.gateway.demand([({"cpu": 1.0}, {}, 1)])
    driver.wait_until(lambda: len(driver.facts) == 5)
    new = driver.facts[next(name for name in reversed(driver.facts))]
    assert new["labels"]["zone"] == "b"
    assert agent in before


def test_what_waits_asks_for_nodes_of_a_given_size(connect, add_node):
    driver = connect(agent_resources={"CPU": 2.0}, max_nodes=4)
    driver.wait_for_agents(3)
    driver.gateway.demand([({"cpu": 1.0}, {"zone": "d"}, 9)])
    add_node(num_cpus=2, labels={"zone": "e"})
    driver.wait_for_agents(4)  # nodes that are there are used, whatever waits
    assert driver.in_zone("e")


def test_a_node_that_comes_for_what_waits_gets_an_agent_of_its_own_size(connect, add_node):
    driver = connect(max_nodes=4, label_selector={"zone": "!a"})
    driver.wait_for_agents(2)
    driver.gateway.demand([({"cpu": 1.0}, {"zone": "d"}, 1)])
    add_node(num_cpus=3, labels={"zone": "d"})
    driver.wait_for_agents(3)
    assert driver.facts[driver.in_zone("d")]["resources"] == {"cpu": 3.0, "gpu": 0.0}


def test_agents_of_a_given_size_take_a_part_of_some_nodes(connect):
    driver = connect(agent_resources={"CPU": 1.0}, label_selector={"zone": "in(a,c)"})
    driver.wait_for_agents(2)
    resources = {facts["labels"]["zone"]: facts["resources"] for facts in driver.facts.values()}
    assert resources == {zone: {"cpu": 1.0, "gpu": 0.0} for zone in "ac"}


def test_a_cluster_that_is_not_there_is_named_with_a_remedy(connect):
    (why,) = connect(address="127.0.0.1:1").wait_for("failed")
    assert "the Ray cluster at '127.0.0.1:1' cannot be reached" in why
    assert "ray start --address" in why


def drain(cluster, node, within_s):
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    is_accepted, why = GcsClient(address=cluster.address).drain_node(
        node.node_id,
        autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"),
        "it is taken back",
        int((time.time() + within_s) * 1_000),
    )
    assert is_accepted, why


def version():
    import ray

    return ray.__version__
