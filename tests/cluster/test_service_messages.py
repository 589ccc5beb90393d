"""What driver and node say about processes: there and back, and malformed."""

import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.execution.conversation import assignment
from tuner.cluster.service_messages import (
    PROCESS_EVENTS,
    REQUESTS,
    DumpStack,
    ExpectExit,
    Kill,
    Listen,
    Preload,
    Reassign,
    Send,
    Start,
    Validate,
    read_record,
)
from tuner.core.worker_records import Failure, ValidationRequest
from tuner.execution.assignment import Rank
from tuner.execution.failures import ExitInfo
from tuner.execution.process_service import (
    Gone,
    HungUp,
    Listening,
    Said,
    StackDumped,
    Unstarted,
    Violated,
)
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.storage import strict_json

RECORDS = [
    Listening(3, "10.0.0.1", 29500),
    Said(3, [{"kind": "result", "metrics": {"loss": float("inf")}}, 7]),
    Violated(3, "a line is too long"),
    HungUp(3),
    StackDumped(3, "line 7 in hang"),
    Gone(3, ExitInfo(-9, 2**40, True), "last words"),
    Gone(3, None),
    Unstarted(3, Failure("OSError", "too many open files"), is_shortage=True),
]
RANK = Rank(2, 4, 0, 2, 1, "10.0.0.1", 29500, "t00001-1")


def sent(message):
    """Return what arrives of a message."""
    return strict_json.loads(strict_json.to_bytes(message))


def name_of(record):
    return type(record).__name__


@pytest.mark.parametrize("record", RECORDS, ids=name_of)
def test_what_a_node_says_arrives_as_it_was(record):
    assert read_record(sent(PROCESS_EVENTS.encode(record))) == record


@given(st.data())
def test_a_record_with_any_field_replaced_is_read_or_refused(data):
    message = PROCESS_EVENTS.encode(data.draw(st.sampled_from(RECORDS)))
    name = data.draw(st.sampled_from(sorted(message)))
    values = st.none() | st.booleans() | st.integers() | st.text() | st.just([]) | st.just({})
    with suppress(ValueError):
        read_record({**message, name: data.draw(values)})


@pytest.mark.parametrize(
    "request_",
    [
        Listen(3, is_local=False),
        Send(3, '{"leave":true}\n'),
        Kill(3, 2.5),
        ExpectExit(3),
        DumpStack(3),
        Preload(["torch"]),
    ],
    ids=name_of,
)
def test_what_the_driver_asks_for_arrives_as_it_was(request_):
    assert REQUESTS.decode(sent(REQUESTS.encode(request_))) == request_


class ImpossibleToLoad:
    """Fails where it is unpickled."""

    def __reduce__(self):
        return exec, ("raise KeyError('loaded')",)


@pytest.mark.parametrize("kind", [Start, Reassign])
def test_an_assignment_arrives_with_a_configuration_that_is_not_loaded_on_the_way(kind, tmp_path):
    given = assignment(Path(tmp_path), config={"x": ImpossibleToLoad()}, rank=RANK, gpu_ids=(0, 1))
    read = REQUESTS.decode(sent(REQUESTS.encode(kind(3, given)))).assignment
    assert (read.trial_dir, read.rank, read.gpu_ids) == (str(tmp_path), RANK, (0, 1))
    assert (read.trial_id, read.resources) == (given.trial_id, given.resources)
    with pytest.raises(KeyError, match="loaded"):
        pickle.loads(pickle.dumps(read))  # noqa: S301  (our own)


def test_a_process_finds_the_assignment_that_was_given(tmp_path):
    def local(x):
        return x + 1

    given = assignment(str(tmp_path), config={"f": local, "n": (1, 2)})
    read = REQUESTS.decode(sent(REQUESTS.encode(Start(3, given)))).assignment
    found = pickle.loads(pickle.dumps(read))  # noqa: S301  (our own)
    assert (found.config["f"](1), found.config["n"]) == (2, (1, 2))


def test_an_assignment_to_validate_arrives_as_it_was():
    request = ValidationRequest("m:f", {"n": 1}, 2.5, f".validation-2-{'a' * 64}.pkl", True)
    given = ValidationAssignment(
        "t00001", 2, 1, "/exp/t00001", "/exp/t00001/checkpoint_000002", request, {"x": 1},
        {"cpu": 1.0}, (3,), 5, has_payload=True, node="a",
    )  # fmt: skip
    read = REQUESTS.decode(sent(REQUESTS.encode(Validate(3, given)))).assignment
    assert pickle.loads(pickle.dumps(read)) == given  # noqa: S301  (our own)
