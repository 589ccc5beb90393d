import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.events import (
    CheckpointFailed,
    CheckpointSaved,
    CheckpointsRequested,
    CheckpointStarted,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest, WorkerGroup
from tuner.execution.worker_protocol import to_event, to_validation_end
from tuner.wire.declared import encode

CHECKPOINT = {"index": 2, "iteration": 5, "time_total_s": 1.5, "counters": {"timesteps_total": 70}}
RECORD = CheckpointRecord(2, 5, 1.5, {"timesteps_total": 70})
GROUP = encode(WorkerGroup(2, {"cpu": 1.0}, 1, 2))
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
        {"kind": "result", "metrics": {"training_iteration": 1}, "validation": []},
        {"kind": "result", "metrics": {"training_iteration": 1}, "validation": {"fn": 3}},
        {"kind": "result", "metrics": {"training_iteration": 1}, "validation": {"kwargs": None}},
        {"kind": "result", "metrics": {"training_iteration": 1}, "validation": {"timeout": -1}},
        {
            "kind": "result",
            "metrics": {"training_iteration": 1},
            "validation": {"payload": "../../.validation-0-" + "0" * 64 + ".pkl"},
        },
        {"kind": "checkpoints"},
        {"kind": "checkpoints", "token": ""},
        {"kind": "checkpoints", "token": "x" * 101},
        {"kind": "release", "token": 3},
        {"kind": "lease", "token": "1"},
        {"kind": "lease", "token": "1", "group": GROUP | {"num_workers": 2.0}},
        {"kind": "lease", "token": "1", "group": GROUP | {"num_workers": 3}},
        {"kind": "lease", "token": "1", "group": GROUP | {"min_workers": 0}},
        {"kind": "lease", "token": "1", "group": GROUP | {"resources_per_worker": {"cpu": -1}}},
        {"kind": "lease", "token": "1", "group": GROUP | {"strategy": None}},
        {"kind": "lease", "group": GROUP},
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
KINDS = st.sampled_from(
    ["started", "result", "saved", "save_failed", "exited", "checkpoints", "lease", "release"]
)
FIELDS = (
    "pid", "metrics", "checkpoint", "failure", "outcome", "validation", "token", "waits", "group"
)  # fmt: skip


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)),
    KINDS,
)
def test_any_message_is_an_event_or_a_value_error(message, kind):
    try:
        event = to_event("t", 1, message | {"kind": kind})
    except ValueError:
        return
    owner = getattr(event, "owner", event)
    assert (owner.trial_id, owner.attempt) == ("t", 1)


OWNER = LeaseOwner("t", 1)


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (
            {"kind": "checkpoints", "token": "1", "waits": False},
            CheckpointsRequested("t", 1, "1", waits_for_validation=False),
        ),
        (
            {"kind": "lease", "token": "1", "group": GROUP},
            LeaseRequested(OWNER, "1", WorkerGroup(2, {"cpu": 1.0}, 1, 2)),
        ),
        ({"kind": "release", "token": "1"}, LeaseReleased(OWNER, "1")),
    ],
)
def test_requests_beside_reports_become_events(message, event):
    assert to_event("t", 1, message) == event


def test_a_report_says_how_its_checkpoint_is_validated():
    request = ValidationRequest(
        "m:f", {"a": [1]}, 3.0, ".validation-0-" + "0" * 64 + ".pkl", takes_config=True
    )
    message = {"kind": "result", "metrics": {"training_iteration": 1}}
    event = to_event("t", 1, message | {"validation": encode(request)})
    assert event.validation == request


def test_a_validation_ends_with_metrics_or_a_failure():
    assert to_validation_end(
        "t", 3, 2, {"kind": "validated", "metrics": {"a": 1}}
    ) == ValidationEnded("t", 3, 2, Outcome.COMPLETED, {"a": 1})
    for kind in ("failed", "exited"):
        ended = to_validation_end("t", 3, 2, {"kind": kind, "failure": FAILURE})
        assert ended.outcome is Outcome.FAILED
        assert ended.failure == Failure("ValueError", "no", "...")


@pytest.mark.parametrize(
    "message",
    [
        None,
        {"kind": "result"},
        {"kind": "validated"},
        {"kind": "validated", "metrics": []},
        {"kind": "failed"},
        {"kind": "failed", "failure": None},
        {"kind": "exited", "outcome": "completed", "failure": None},
    ],
)
def test_a_malformed_end_of_a_validation_is_refused(message):
    with pytest.raises(ValueError, match="must be"):
        to_validation_end("t", 0, 1, message)
