"""Messages arrive complete at the other end, however the stream was split."""

import contextlib
import itertools
import pickle
import socket
import sys
import threading
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tuner.execution.assignment import Assignment
from tuner.execution.local.worker_connection import (
    MAX_FRAME_BYTES,
    Bootstrap,
    DriverEnd,
    WorkerEnd,
    pickled,
)
from tuner.storage import strict_json


class Pair:
    def __init__(self):
        ours, self.raw = socket.socketpair()
        self.driver = DriverEnd(ours)
        self.worker = WorkerEnd(self.raw.fileno())

    def close(self):
        self.driver.close()
        self.raw.close()


@pytest.fixture
def pair():
    opened = Pair()
    yield opened
    opened.close()


def assignment(**config):
    return Assignment(
        "t00001", 1, config, "exp", "/trial", "tag", {"cpu": 1.0}, (), None, 0, 0.0, {}, 0, 7
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=3,
)


@settings(max_examples=examples(50))
@given(
    messages=st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=3), max_size=3),
    cuts=st.lists(st.floats(0.0, 1.0), max_size=8),
)
def test_messages_survive_any_fragmentation(messages, cuts):
    stream = b"".join(strict_json.dumps(message).encode() + b"\n" for message in messages)
    received = []
    with contextlib.closing(Pair()) as pair:
        places = sorted(round(cut * len(stream)) for cut in cuts)
        for begin, end in itertools.pairwise([0, *places, len(stream)]):
            pair.raw.sendall(stream[begin:end])
            received += pair.driver.receive()
    assert received == messages


def test_floats_that_are_not_finite_arrive(pair):
    pair.worker.send({"loss": float("-inf")})
    assert pair.driver.receive() == [{"loss": float("-inf")}]


@pytest.mark.parametrize(
    "number",
    [2**63 - 1, 2**63, -(2**63) - 1, 10**30, 1234567890123456789.0, 0.12345678901234567890123],
)
def test_long_numbers_arrive_unchanged(pair, number):
    pair.worker.send({"deep": [{"n": number}]})
    [message] = pair.driver.receive()
    [received] = message["deep"]
    assert (received["n"], type(received["n"])) == (number, type(number))


def test_no_message_yet_differs_from_the_end(pair):
    assert pair.driver.receive() == []
    pair.raw.shutdown(socket.SHUT_WR)
    assert pair.driver.receive() is None


def test_draining_returns_all_messages(pair):
    for number in range(50):
        pair.worker.send({"number": number})
    assert [message["number"] for message in pair.driver.drain()] == list(range(50))


@pytest.mark.process
@pytest.mark.parametrize(
    "line", [b"x" * (MAX_FRAME_BYTES + 1), b"x" * (MAX_FRAME_BYTES + 1) + b"\n"]
)
def test_a_frame_that_is_too_long_is_refused_before_it_is_complete(pair, line):
    sender = threading.Thread(target=send_in_vain, args=[pair.raw, line])
    sender.start()
    pair.driver.socket.setblocking(True)
    with pytest.raises(ValueError, match="must not be longer"):
        list(iter(pair.driver.receive, None))
    pair.driver.close()
    sender.join()


def send_in_vain(end, data):
    try:
        end.sendall(data)
    except OSError:
        return


def test_a_deeply_nested_frame_is_refused(pair):
    pair.raw.sendall(b"[" * 50_000 + b"\n")
    with pytest.raises(ValueError, match="nested too deeply"):
        pair.driver.receive()


@pytest.mark.process
def test_a_bootstrap_and_its_answers_arrive_however_large(pair):
    bootstrap = Bootstrap("/trial", {"A": "b"}, 7, b"x" * 3_000_000)
    pair.driver.send_bootstrap(bootstrap)
    assert pair.driver.has_backlog
    received = []
    reader = threading.Thread(target=lambda: received.append(pair.worker.receive_bootstrap()))
    reader.start()
    while pair.driver.has_backlog:
        pair.driver.flush()
    reader.join()
    assert received == [bootstrap]
    pair.driver.send(b'{"verdict":"continue"}\n{"verdict":"stop"}\n')
    assert [pair.worker.receive()["verdict"] for _ in range(2)] == ["continue", "stop"]


def test_bytes_queue_behind_a_backlog(pair):
    pair.driver.send(b"x" * 1_000_000 + b"\n")
    pair.driver.send(b"tail\n")
    received = bytearray()
    while not received.endswith(b"tail\n"):
        pair.driver.flush()
        received += pair.raw.recv(1 << 16)
    assert len(received) == 1_000_006


def test_sending_to_a_worker_that_is_gone_is_no_error(pair):
    pair.raw.close()
    pair.driver.send(b"{}\n")
    assert not pair.driver.has_backlog
    assert pair.driver.receive() is None


def test_a_worker_without_a_driver_says_so(pair):
    pair.driver.close()
    with pytest.raises(EOFError, match="the driver is gone"):
        pair.worker.receive()


def delivered(sent):
    return pickle.loads(pickled(sent))  # noqa: S301  (our own)


def test_an_assignment_is_pickled_without_cloudpickle_if_possible():
    assert delivered(assignment(lr=0.1)) == assignment(lr=0.1)
    assert b"cloudpickle" not in pickled(assignment(lr=0.1))


def test_objects_that_other_processes_cannot_import_are_pickled_by_value():
    assert delivered(assignment(f=lambda x: x + 1)).config["f"](1) == 2


def test_names_of_the_script_are_pickled_by_value(monkeypatch):
    script = types.ModuleType("__main__")
    exec("class Setting:\n    value = 21", script.__dict__)  # noqa: S102  (stands for a script)
    monkeypatch.setitem(sys.modules, "__main__", script)
    setting = script.Setting()
    assert b"value" in pickled(assignment(setting=setting))
