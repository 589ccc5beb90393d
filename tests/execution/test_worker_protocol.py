import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.events import (
    CheckpointFailed,
    CheckpointSaved,
    CheckpointStarted,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import CheckpointRecord, Failure
from tuner.execution.worker_protocol import to_event

CHECKPOINT = {"index": 2, "iteration": 5, "time_total_s": 1.5, "counters": {"timesteps_total": 70}}
RECORD = CheckpointRecord(2, 5, 1.5, {"timesteps_total": 70})
FAILURE = {"kind": "ValueError", "message": "no", "traceback": "..."}


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"kind": "started", "pid": 7}, WorkerStarted("t", 1, 7)),
        (
            {
                "kind": "result",
                "metrics": {"training_iteration": 5, "loss": 0.5},
                "checkpoint": None,
            },
            ResultReported("t", 1, {"training_iteration": 5, "loss": 0.5}, None),
        ),
        (
            {"kind": "result", "metrics": {"training_iteration": 5}, "checkpoint": CHECKPOINT},
            ResultReported("t", 1, {"training_iteration": 5}, RECORD),
        ),
        ({"kind": "saving"}, CheckpointStarted("t", 1)),
        ({"kind": "saved", "checkpoint": CHECKPOINT}, CheckpointSaved("t", 1, RECORD)),
        (
            {"kind": "save_failed", "failure": FAILURE},
            CheckpointFailed("t", 1, Failure("ValueError", "no", "...")),
        ),
        (
            {"kind": "exited", "outcome": "completed", "failure": None},
            WorkerExited("t", 1, Outcome.COMPLETED),
        ),
        ({"kind": "exited", "outcome": "stopped"}, WorkerExited("t", 1, Outcome.STOPPED)),
        (
            {"kind": "exited", "outcome": "failed", "failure": FAILURE},
            WorkerExited("t", 1, Outcome.FAILED, Failure("ValueError", "no", "...")),
        ),
        (
            {"kind": "save_failed", "failure": {**FAILURE, "bases": ["B"], "place": "a.py:3"}},
            CheckpointFailed("t", 1, Failure("ValueError", "no", "...", ("B",), "a.py:3")),
        ),
        (
            {"kind": "exited", "outcome": "unsaved", "failure": FAILURE},
            WorkerExited("t", 1, Outcome.UNSAVED, Failure("ValueError", "no", "...")),
        ),
    ],
)
def test_every_message_becomes_its_event(message, event):
    assert to_event("t", 1, message) == event


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {},
        {"kind": ["started"]},
        {"kind": "launched"},
        {"kind": "started"},
        {"kind": "started", "pid": True},
        {"kind": "started", "pid": -1},
        {"kind": "result", "metrics": None},
        {"kind": "result", "metrics": {}},
        {"kind": "result", "metrics": {"training_iteration": 0}},
        {"kind": "result", "metrics": {"training_iteration": "1"}},
        {"kind": "result", "metrics": {"training_iteration": 1}, "checkpoint": {}},
        {"kind": "saved", "checkpoint": None},
        {"kind": "saved", "checkpoint": CHECKPOINT | {"index": 1.0}},
        {"kind": "saved", "checkpoint": CHECKPOINT | {"time_total_s": math.nan}},
        {"kind": "saved", "checkpoint": CHECKPOINT | {"counters": {"timesteps_total": "many"}}},
        {"kind": "save_failed", "failure": "no"},
        {"kind": "exited", "outcome": "killed", "failure": FAILURE},
        {"kind": "exited", "outcome": "failed", "failure": None},
        {"kind": "exited", "outcome": "unsaved", "failure": None},
        {"kind": "exited", "outcome": "completed", "failure": FAILURE},
        {
            "kind": "exited",
            "outcome": "failed",
            "failure": {"kind": "E", "message": None, "traceback": ""},
        },
    ],
)
def test_a_malformed_message_is_refused(message):
    with pytest.raises(ValueError, match=r"must be|must have"):
        to_event("t", 1, message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(["started", "result", "saved", "save_failed", "exited"])


@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("pid", "metrics", "checkpoint", "failure", "outcome"), JSON)
    ),
    KINDS,
)
def test_any_message_is_an_event_or_a_value_error(message, kind):
    try:
        event = to_event("t", 1, message | {"kind": kind})
    except ValueError:
        return
    assert (event.trial_id, event.attempt) == ("t", 1)
