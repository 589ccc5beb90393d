"""Messages of a trial cost the driver little memory and do not disturb other trials."""

import gc
import signal
import tracemalloc

import pytest

from tuner.core.events import Outcome

pytestmark = pytest.mark.process

MEBIBYTE = 1 << 20


def flood(config):
    """Write to the worker's own connection, in pieces, as fast as the driver reads."""
    import os

    from tuner.execution.attempt import Attempt

    piece = config["piece"] * (100_000 // len(config["piece"]))
    for _ in range(100):
        data = piece
        while data:
            data = data[os.write(Attempt.latest._channel._descriptor, data) :]
    signal.pause()


@pytest.fixture
def held():
    """Return a function that returns the bytes of all objects of this process, the driver."""
    tracemalloc.start()

    def bytes_held():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    yield bytes_held
    tracemalloc.stop()


@pytest.mark.parametrize(
    "piece", [b"x", b"\n", b"[", b'{"kind": "result", "metrics": {', b"\0\xff"]
)
def test_a_flood_ends_its_own_trial_and_leaves_no_trace_in_the_driver(start_executor, held, piece):
    harness = start_executor(flood)
    # What the driver loads for its first such trial does not count.
    harness.start("t00000", piece=piece)
    assert harness.exit_of("t00000").outcome is Outcome.FAILED
    before = held()
    for number in range(1, 3):
        trial_id = f"t{number:05d}"
        harness.start(trial_id, piece=piece)
        ended = harness.exit_of(trial_id)
        assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "malformed message")
    assert held() - before <= MEBIBYTE / 2


def test_a_flood_does_not_stop_other_trials(start_executor):
    def train(config):
        if config["floods"]:
            flood(config)
        from tuner.execution.session import report

        for step in range(100):
            report({"step": step})

    harness = start_executor(train)
    harness.start("t00001", floods=True, piece=b"x")
    harness.start("t00002", floods=False)
    assert harness.exit_of("t00002").outcome is Outcome.COMPLETED
    assert harness.exit_of("t00001").failure.kind == "malformed message"
