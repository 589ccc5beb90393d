import dataclasses
import math
import typing
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Decision, Number, Reason, Stop
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.events import (
    Event,
    LeaseOwner,
    Outcome,
    ResumeType,
    TurnEnded,
)
from tuner.core.recorded_decisions import RecordedDecision, StopExperiment
from tuner.core.settings import ExperimentSettings, ValidationPolicy
from tuner.core.trial import CheckpointRecord, Failure, ValidationRequest, WorkerGroup
from tuner.errors import StorageError
from tuner.journal import records
from tuner.storage import strict_json

FLOATS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def mappings(values):
    return st.dictionaries(st.text(max_size=4), values, max_size=3)


BY_TYPE = {
    str: st.text(max_size=8),
    bytes: st.just(b""),
    int: st.integers(0, 10**9),
    float: FLOATS,
    bool: st.booleans(),
    float | None: st.none() | FLOATS,
    int | None: st.none() | st.integers(),
    str | None: st.none() | st.text(max_size=8),
    tuple[str, ...]: st.lists(st.text(max_size=8), max_size=3).map(tuple),
    tuple[tuple[str, str], ...]: st.lists(
        st.tuples(st.text(max_size=8), st.sampled_from(["min", "max"])), max_size=3
    ).map(tuple),
    Outcome: st.sampled_from(Outcome),
    ResumeType: st.sampled_from(ResumeType),
    Mapping[str, typing.Any]: mappings(JSON),
    Mapping[str, float]: mappings(FLOATS),
    Mapping[str, int]: mappings(st.integers()),
    Mapping[str, str]: mappings(st.text(max_size=4)),
    Mapping[str, Number | str]: mappings(FLOATS | st.integers() | st.text(max_size=3)),
}


def instances(cls):
    """Draw every field, also those with defaults, so that no field is missing in the codec."""
    hints = typing.get_type_hints(cls)
    return st.builds(
        cls, **{field.name: BY_TYPE[hints[field.name]] for field in dataclasses.fields(cls)}
    )


BY_TYPE[Mapping[str, typing.Any] | None] = st.none() | mappings(JSON)
BY_TYPE[tuple[Mapping[str, typing.Any], ...]] = st.just(())
OF_RANK = st.builds(Failure, BY_TYPE[str], BY_TYPE[str])
BY_TYPE[tuple[tuple[int, Failure], ...]] = st.lists(
    st.tuples(st.integers(0, 9), OF_RANK), max_size=2
).map(tuple)
for record in (
    Failure,
    CheckpointRecord,
    Reason,
    WorkerGroup,
    ValidationRequest,
    ValidationPolicy,
    LeaseOwner,
):
    BY_TYPE[record] = instances(record)
    BY_TYPE[record | None] = st.none() | BY_TYPE[record]
BY_TYPE[Mapping[str, WorkerGroup]] = mappings(BY_TYPE[WorkerGroup])

for settings in (RetentionPolicy, CheckpointPolicy, ExperimentSettings):
    BY_TYPE[settings] = instances(settings)

EVENTS = st.one_of([instances(event) for event in typing.get_args(Event)])
for decision in (*typing.get_args(Decision), StopExperiment):
    BY_TYPE[decision] = instances(decision)
BY_TYPE[Decision | StopExperiment] = st.one_of(
    [BY_TYPE[decision] for decision in (*typing.get_args(Decision), StopExperiment)]
)
ADVICE = instances(RecordedDecision)


@given(EVENTS, st.floats(0, 1e9), st.lists(ADVICE, max_size=3).map(tuple))
def test_every_event_and_all_advice_comes_back_from_its_text(event, stamp, recorded):
    body = strict_json.loads(strict_json.dumps(records.encode(event, stamp, recorded)))
    assert records.is_event(body)
    assert records.decode(body) == (event, stamp, recorded)


@given(st.lists(EVENTS, min_size=2, max_size=2, unique_by=type))
def test_different_events_are_of_different_kinds(events):
    first, second = (records.encode(event, 0.0)["k"] for event in events)
    assert first != second


def test_the_body_begins_with_stamp_and_kind_and_leaves_out_what_is_not_decided():
    assert list(records.encode(TurnEnded(), 1.5)) == ["t", "k"]


def test_marks_are_no_events():
    assert not records.is_event(records.mark(records.OPEN, 0.0, pid=1))


@pytest.mark.parametrize(
    "body",
    [
        {"q": 7, "t": 0.0, "k": "teleported", "id": "t1"},
        {"q": 7, "t": 0.0},
        {"q": 7, "t": 0.0, "k": ["turn"]},
        {"q": 7, "t": 0.0, "k": "started", "id": "t1", "a": 1},
        {"q": 7, "t": None, "k": "turn"},
        {
            "q": 7,
            "t": 0.0,
            "k": "turn",
            "d": [{"k": "exploit", "id": "t1", "rule": "pbt", "n": {}}],
        },
        {
            "q": 7,
            "t": 0.0,
            "k": "result",
            "id": "t1",
            "a": 1,
            "m": {},
            "c": {"index": 0, "iteration": 1, "shards": 4},
        },
        {
            "q": 7,
            "t": 0.0,
            "k": "exited",
            "id": "t1",
            "a": 1,
            "outcome": "vanished",
            "failure": None,
        },
    ],
)
def test_what_this_version_does_not_know_is_refused(body):
    with pytest.raises(StorageError, match=r"record 7 .*newer version"):
        records.decode(body)


def test_numbers_of_a_reason_that_are_not_finite_come_back():
    decision = Stop(
        "t00000",
        Reason(
            "rule",
            {"nan": float("nan"), "inf": -math.inf, "np": np.float32("nan"), "n": np.int64(3)},
        ),
    )
    text = strict_json.dumps(
        records.encode(TurnEnded(), 1.0, [RecordedDecision(0, decision)]), strict_json.opaque
    )
    _, _, (back,) = records.decode(strict_json.loads(text))
    assert repr(back.decision) == repr(
        Stop("t00000", Reason("rule", {"nan": math.nan, "inf": -math.inf, "np": math.nan, "n": 3}))
    )
