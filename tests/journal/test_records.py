import math
import typing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Decision, Reason, Stop
from tests.wire.instances import instances
from tuner.core.events import (
    Event,
    TurnEnded,
)
from tuner.core.recorded_decisions import RecordedDecision, StopExperiment
from tuner.errors import StorageError
from tuner.journal import records
from tuner.storage import strict_json

EVENTS = st.one_of([instances(event) for event in typing.get_args(Event)])
DECISIONS = [*typing.get_args(Decision), StopExperiment]
ADVICE = st.builds(
    RecordedDecision, st.integers(0, 3), st.one_of([instances(each) for each in DECISIONS])
)


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
