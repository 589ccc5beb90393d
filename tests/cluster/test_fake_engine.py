"""Engine of the fake cluster: what the driver hears when a node is killed."""

import queue
import threading

import pytest

from tests.cluster import fake_engine
from tests.cluster.fake_cluster import FakeCluster

pytestmark = pytest.mark.process


class Relay:
    """Notes what an engine reports."""

    def __init__(self):
        self.heard = []

    def agent_up(self, agent, facts):
        self.heard.append(("up", agent))

    def received(self, agent, lines):
        self.heard.append((*lines, agent))

    def agent_gone(self, agent, why, *, may_live=False):
        self.heard.append((why, agent))


def test_a_node_without_power_does_not_tell_how_its_host_ended(monkeypatch):
    listeners = queue.Queue()

    class Agent:
        """An agent whose node is killed while the engine waits for its lines."""

        pid = 0

        def __init__(self, *_, **__):
            pass

        def take(self, timeout_s):
            listeners.put(threading.current_thread())
            engine._do_kill("a")
            return ["the host was killed by SIGKILL"]

        def close(self, within_s):
            pass

    monkeypatch.setattr(fake_engine, "Agent", Agent)
    # Its socket would stay open as long as the process of the tests.
    monkeypatch.setattr(fake_engine.FakeEngine, "_listen", lambda self: None)
    relay = Relay()
    with FakeCluster({"a": {"cpu": 1}}) as cluster:
        engine = fake_engine.FakeEngine(cluster.settings(), "token", relay)
        engine.open([])
        listeners.get(timeout=60.0).join()
    assert relay.heard == [("up", "a"), ("the machine has lost its power", "a")]
