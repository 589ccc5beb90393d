"""What a trial sends costs the driver little memory, whatever it is, and harms nobody else."""

import signal

import psutil
import pytest

from tuner.core.events import Outcome

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


@pytest.mark.parametrize("piece", [b"x", b"\n", b"[", b'{"kind": "result", "metrics": {', b"\0\xff"])
def test_a_flood_ends_its_own_trial_and_leaves_no_trace_in_the_driver(stage, piece):
    theater = stage(flood)
    theater.start("t00000", piece=piece)  # what the driver loads for its first such trial does not count
    assert theater.exit_of("t00000").outcome is Outcome.FAILED
    before = psutil.Process().memory_info().rss
    for number in range(1, 6):
        trial_id = f"t{number:05d}"
        theater.start(trial_id, piece=piece)
        ended = theater.exit_of(trial_id)
        assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "malformed message")
    assert psutil.Process().memory_info().rss - before <= 2 * MEBIBYTE


def test_the_neighbours_of_such_a_trial_go_on(stage):
    def train(config):
        if config["floods"]:
            flood(config)
        from tuner.execution.session import report

        for step in range(100):
            report({"step": step})

    theater = stage(train)
    theater.start("t00001", floods=True, piece=b"x")
    theater.start("t00002", floods=False)
    assert theater.exit_of("t00002").outcome is Outcome.COMPLETED
    assert theater.exit_of("t00001").failure.kind == "malformed message"
