"""The agent of a node, with stand-ins for the host that do as their name says."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cluster.stand_ins import obey
from tests.execution.local.conftest import DEADLINE_S, is_alive
from tuner.cluster import agent as agent_module
from tuner.cluster.agent import Agent, LineQueue

pytestmark = pytest.mark.process

MODULE = "tests.cluster.stand_ins"
FACTS = {"resources": {"cpu": 2.0}, "labels": {}, "address": "127.0.0.1"}


@pytest.fixture
def start_agent(monkeypatch):
    """Return a function that starts an agent with a stand-in, which is closed after the test."""
    monkeypatch.setattr(agent_module, "_PAUSES_S", (0.0,))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    opened = []

    def start(behaviour="echo"):
        opened.append(
            Agent("node", "secret", FACTS, environ={"STAND_IN": behaviour}, module=MODULE)
        )
        return opened[-1]

    yield start
    for agent in opened:
        agent.close()


def next_lines(agent, number=1):
    """Return this many lines, decoded."""
    lines, deadline_s = [], time.monotonic() + DEADLINE_S
    while len(lines) < number:
        assert time.monotonic() < deadline_s, lines
        lines += map(json.loads, agent.take(1.0))
    return lines


def test_the_host_is_told_of_its_node_and_lines_go_both_ways(start_agent):
    agent = start_agent()
    ((number, greeting),) = next_lines(agent)
    assert (number, greeting["host"], greeting["name"], greeting["token"]) == (
        1,
        1,
        "node",
        "secret",
    )
    assert greeting["facts"] == FACTS
    assert greeting["path"][0] == os.path.abspath(sys.path[0])  # noqa: PTH100
    agent.tell(['[1, "there"]', '[1,"and back"]'])
    assert next_lines(agent, 2) == [[1, "there"], [1, "and back"]]


def test_lines_for_an_earlier_host_are_dropped(start_agent):
    agent = start_agent()
    next_lines(agent)
    agent.tell(['[7, "late"]', "nonsense", '[1, "for me"]'])
    assert next_lines(agent) == [[1, "for me"]]


def test_a_host_that_is_killed_is_replaced_by_one_with_the_next_number(start_agent):
    agent = start_agent()
    ((_, greeting),) = next_lines(agent)
    os.kill(greeting["pid"], signal.SIGKILL)
    gone, (number, following) = next_lines(agent, 2)
    assert gone == {"host_gone": 1, "why": "killed by SIGKILL", "next": 2}
    assert (number, following["host"]) == (2, 2)
    agent.tell(['[1, "late"]', '[2, "hello"]'])
    assert next_lines(agent) == [[2, "hello"]]


def test_an_agent_gives_up_after_three_hosts_that_never_said_a_line(start_agent):
    agent = start_agent("die")
    assert next_lines(agent, 3) == [
        {"host_gone": 1, "why": "exit code 5", "next": 2},
        {"host_gone": 2, "why": "exit code 5", "next": 3},
        {"host_gone": 3, "why": "exit code 5", "next": None},
    ]
    agent.tell(['[3, "anyone?"]'])
    assert agent.take(0.0) == []


def test_a_host_that_the_driver_has_closed_is_not_replaced(start_agent):
    agent = start_agent()
    next_lines(agent)
    agent.tell(['[1, "exit 0"]'])
    assert next_lines(agent) == [{"host_gone": 1, "why": "its driver has closed it", "next": None}]


def test_a_host_without_driver_is_replaced_only_if_the_agent_has_heard_of_the_driver(start_agent):
    agent = start_agent()
    next_lines(agent)
    agent.tell(['[1, "exit 3"]'])
    assert next_lines(agent)[0]["next"] == 2
    deserted = start_agent("lonely")
    assert next_lines(deserted, 2)[-1] == {
        "host_gone": 1,
        "why": "it has not heard of its driver",
        "next": None,
    }


def test_closing_ends_the_host_and_the_wait_for_lines(start_agent):
    agent = start_agent()
    ((_, greeting),) = next_lines(agent)
    agent.close()
    agent.close()
    assert not is_alive(greeting["pid"])
    assert agent.take(DEADLINE_S) == []


def test_a_host_that_does_not_end_is_killed(start_agent):
    agent = start_agent("stay")
    ((_, greeting),) = next_lines(agent)
    agent.close(within_s=0.1)
    assert not is_alive(greeting["pid"])


def test_a_host_that_reads_nothing_does_not_block_the_agent(start_agent):
    agent = start_agent("deaf")
    next_lines(agent)
    line = json.dumps([1, "x" * (1 << 20)])
    for _ in range(100):
        agent.tell([line])
    agent.close(within_s=0.1)


def test_a_queue_drops_its_oldest_lines():
    queue = LineQueue(10)
    for line in (b"1234", b"5678", b"90", b"ab"):
        queue.add(line)
    assert queue.take() == [b"5678", b"90", b"ab"]
    queue.add(b"x" * 100)
    assert (bool(queue), queue.pop(), bool(queue)) == (True, b"x" * 100, False)


def test_a_stand_in_knows_its_orders():
    assert obey(1, "there") == [1, "there"]


def test_the_host_dies_with_the_process_of_its_agent(still_alive):
    code = (
        "import signal; from tuner.cluster.agent import Agent; "
        f"agent = Agent('node', 'secret', {FACTS!r}); "
        "print(*agent.take(60), flush=True); signal.pause()"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
    _, frame = json.loads(process.stdout.readline())
    process.kill()
    process.communicate()
    assert still_alive([frame["m"][0]["pid"]]) == []
