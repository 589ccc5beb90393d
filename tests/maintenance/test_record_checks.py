"""Contradictions between a journal's records of checkpoints, validations, groups and leases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.events import (
    CheckpointCommitted,
    CheckpointSaved,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    Outcome,
    ResultReported,
    TrialForked,
    TrialSuggested,
    TurnEnded,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, ValidationRequest, WorkerGroup
from tuner.journal.records import encode
from tuner.maintenance.record_checks import contradictions

TRIAL = "t00000"
GROUP = WorkerGroup(2, {"cpu": 1.0}, 1, 4)
SUGGESTED = TrialSuggested(TRIAL, {}, {"cpu": 2.0}, group=GROUP)
REQUEST = ValidationRequest()


def result(checkpoint=None, upload=None, *, validates=False, row=None):
    record = None if checkpoint is None else CheckpointRecord(checkpoint, 1)
    return ResultReported(
        TRIAL, 1, {}, record, upload=upload, validation=REQUEST if validates else None, row=row
    )


def ended(index, outcome=Outcome.COMPLETED, num_try=1):
    metrics = {"acc": 0.5} if outcome is Outcome.COMPLETED else None
    return ValidationEnded(TRIAL, index, num_try, outcome, metrics)


def committed(index):
    return CheckpointCommitted(TRIAL, 1, CheckpointRecord(index, 1))


def lease(name="a", index=None):
    return LeaseRequested(LeaseOwner(TRIAL, 1, index), name, GROUP)


def release(name="a", index=None):
    return LeaseReleased(LeaseOwner(TRIAL, 1, index), name)


def found(*events):
    records = [{"q": number, **encode(event, 0.0)} for number, event in enumerate(events, 1)]
    return list(contradictions(records))


def test_a_row_supersedes_those_behind_it_and_leaves_no_gap():
    assert found(SUGGESTED, *(result(row=row) for row in (1, 2, 3, 2, 3, 1))) == []
    assert found(SUGGESTED, result(), result(row=7), result(row=8)) == []  # an earlier release's
    assert found(SUGGESTED, result(row=2)) == ["record 2 gives trial t00000 row 2 behind 0 rows"]
    assert found(SUGGESTED, result(row=1), result(row=0), result(row=1)) == [
        "record 3 gives trial t00000 row 0 behind 1 rows"
    ]


def test_an_orderly_journal_has_none():
    assert not found(
        SUGGESTED,
        WorkerStarted(TRIAL, 1, 7),
        result(0, validates=True),
        lease(),
        result(),
        result(upload=1, validates=True),
        ended(0, Outcome.FAILED),
        ended(0, num_try=2),
        release(),
        committed(1),
        lease("b", index=1),
        release("b", index=1),
        ended(1, Outcome.LOST),
        ended(1, num_try=2),
        CheckpointSaved(TRIAL, 1, CheckpointRecord(2, 3)),
        TurnEnded(),
        WorkerExited(TRIAL, 1, Outcome.COMPLETED),
        TrialForked("f00001", TRIAL, {}, {"cpu": 1.0}, 0),
        ResultReported("f00001", 1, {}, CheckpointRecord(0, 1)),
    )


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([ended(0)], "validates checkpoint 0 of trial t00000, which was never reported"),
        ([result(0), ended(0)], "validates checkpoint 0 of trial t00000, which nothing has asked"),
        (
            [result(0, validates=True), ended(0), ended(0)],
            "validates checkpoint 0 of trial t00000, which was validated before",
        ),
        (
            [result(upload=0, validates=True), ended(0)],
            "validates checkpoint 0 of trial t00000, which was not stored by then",
        ),
        ([result(validates=True)], "asks trial t00000 to validate a result without a checkpoint"),
        ([result(0), result(0)], "reports checkpoint 0 of trial t00000 a second time"),
        ([committed(3)], "stores checkpoint 3 of trial t00000, which was never reported"),
        ([result(0), committed(0)], "stores checkpoint 0 of trial t00000, a second time"),
        ([release()], "gives back lease 'a' of trial t00000, which it has not got"),
        ([lease(), lease()], "asks for lease 'a' of trial t00000 a second time"),
        ([lease(index=4)], "asks for a lease for the validation of checkpoint 4 of trial t00000"),
    ],
)
def test_each_contradiction_is_named(events, expected):
    [told] = found(SUGGESTED, *events)
    assert told.startswith(f"record {len(events) + 1} {expected}")


def test_records_of_a_trial_that_was_never_suggested_are_named():
    [told] = found(result(0))
    assert told == "record 1 is of trial 't00000', which was never suggested"


@pytest.mark.parametrize(
    ("group", "resources", "expected"),
    [
        (WorkerGroup(5, {"cpu": 1.0}, 1, 4), {"cpu": 5.0}, "5 workers, and between 1 and 4"),
        (WorkerGroup(2, {"cpu": 1.0}, 2, 2), {"cpu": 1.0}, "its workers ask for {'cpu': 2.0}"),
    ],
)
def test_a_group_that_does_not_fit_its_trial_is_named(group, resources, expected):
    [told] = found(TrialSuggested(TRIAL, {}, resources, group=group))
    assert expected in told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
KINDS = [
    "suggested",
    "forked",
    "result",
    "saved",
    "checkpoint_committed",
    "validation_ended",
    "lease_requested",
    "lease_released",
]
FIELDS = ["id", "c", "v", "upload", "index", "outcome", "metrics", "group", "resources", "of"]


@pytest.mark.property
@given(
    st.lists(
        st.fixed_dictionaries(
            {"k": st.sampled_from(KINDS) | JSON},
            optional=dict.fromkeys(FIELDS, st.just(TRIAL) | JSON),
        ),
        max_size=6,
    )
)
def test_records_of_any_content_are_looked_at(records):
    assert all(told.startswith("record ") for told in contradictions(records))
