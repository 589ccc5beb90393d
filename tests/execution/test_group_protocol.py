"""Messages of the workers of groups are checked field by field."""

import pytest

from tuner.core.events import Outcome, WorkerExited, WorkerStarted
from tuner.execution.checkpoint_part import Part, PartKind
from tuner.execution.group_protocol import (
    PartStored,
    RankReported,
    duplicates_among,
    to_group_event,
)
from tuner.execution.worker_protocol import to_event
from tuner.wire.declared import encode

METRICS = {"training_iteration": 1, "loss": 0.5}
STAGED = {"kind": "staged", "name": ".tmp-000003-1-0a1b2c3d"}


def result(**fields):
    return {"kind": "result", "metrics": METRICS, "checkpoint": None, **fields}


def read(message):
    return to_group_event("t00000", 1, message)


def test_a_result_has_its_part_and_the_chosen_name():
    reported = read(result(part=STAGED, name="epoch_3"))
    assert isinstance(reported, RankReported)
    assert reported.result.metrics == METRICS
    assert reported.part == Part(PartKind.STAGED, STAGED["name"])
    assert reported.name == "epoch_3"
    assert (read(result()).part, read(result()).name) == (None, "")


def test_a_part_follows_where_it_was_pending():
    assert read(result(part={"kind": "pending", "name": ""})).part == Part(PartKind.PENDING)
    stored = read({"kind": "part", "index": 3, "part": STAGED})
    assert stored == PartStored(3, Part(PartKind.STAGED, STAGED["name"]))
    dropped = {"kind": "dropped", "name": "", "why": "no space left"}
    assert read({"kind": "part", "index": 3, "part": dropped}).part.why == "no space left"


@pytest.mark.parametrize("kind", PartKind)
def test_what_is_sent_is_what_is_read(kind):
    names = {PartKind.STAGED: STAGED["name"], PartKind.PLACED: "a/b", PartKind.PLACEHOLDER: "b"}
    part = Part(kind, names.get(kind, ""), "why" if kind is PartKind.DROPPED else "")
    assert read(result(part=encode(part))).part == part


def test_other_messages_are_those_of_a_single_process():
    assert read({"kind": "started", "pid": 7}) == WorkerStarted("t00000", 1, 7)
    exited = read({"kind": "exited", "outcome": "completed", "failure": None})
    assert exited == WorkerExited("t00000", 1, Outcome.COMPLETED)


def test_of_ranks_that_report_the_same_directory_the_lowest_that_stores_later_deletes_it():
    def reported(kind, source):
        name = STAGED["name"] if kind == "staged" else ""
        return read(result(part={"kind": kind, "name": name}, source=source))

    staged, pending = reported("staged", "0-1-2"), reported("pending", "0-1-2")
    other = reported("pending", "0-1-3")
    assert duplicates_among([staged, pending, other, pending]) == [0, 3]
    assert duplicates_among([staged, staged, read(result(part=STAGED)), read(result())]) == [1]


MALFORMED = (
    result(part=STAGED, source=3),
    result(part=STAGED, source="x" * 101),
    {"kind": "committed", "checkpoint": {"index": 0, "iteration": 1}},
    {"kind": "saved", "checkpoint": {"index": 0, "iteration": 1}},
    3,
    {"kind": "unknown"},
    result(part="staged"),
    result(part={"kind": "staged"}),
    result(part={"kind": "stolen", "name": "x"}),
    result(part={"kind": "staged", "name": "../elsewhere"}),
    result(part={"kind": "staged", "name": ".tmp-000003-2-0a1b2c3d"}),
    result(part={"kind": "staged", "name": ".tmp-000003-1-a/../../b"}),
    result(part={"kind": "placed", "name": "../elsewhere"}),
    result(part={"kind": "placeholder", "name": "/etc"}),
    result(part=STAGED, name="../elsewhere"),
    result(part=STAGED, name=3),
    result(upload=0),
    result(checkpoint={"index": 0, "iteration": 1, "time_total_s": 0.0, "counters": {}}),
    {"kind": "part", "index": -1, "part": STAGED},
    {"kind": "part", "index": True, "part": STAGED},
    {"kind": "part", "index": 3, "part": None},
    {"kind": "part", "index": 3, "part": {"kind": "pending", "name": ""}},
)


@pytest.mark.parametrize("message", MALFORMED)
def test_a_malformed_message_is_refused(message):
    with pytest.raises(ValueError, match="must"):
        read(message)


def test_a_single_process_may_name_only_what_is_inside_its_trial():
    record = {"index": 0, "iteration": 1, "time_total_s": 0.0, "counters": {}}
    event = to_event("t00000", 1, result(checkpoint={**record, "name": "a/b"}))
    assert event.checkpoint.directory == "a/b"
    for name in ("../elsewhere", "/etc", "stdout"):
        with pytest.raises(ValueError, match="must be a path inside"):
            to_event("t00000", 1, result(checkpoint={**record, "name": name}))
