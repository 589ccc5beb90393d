"""Messages of nodes that run trials and store what they make: there and back, and malformed."""

import json
import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.commands import (
    AnswerReport,
    GrantLease,
    Interruption,
    KillValidation,
    KillWorker,
    ListCheckpoints,
    RefuseLease,
    StartValidation,
    StartWorker,
)
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointLost,
    CheckpointSaved,
    CheckpointsRequested,
    CheckpointStarted,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    NodeLeft,
    Outcome,
    ResultReported,
    StopRequested,
    TurnEnded,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import (
    CheckpointRecord,
    Failure,
    ReportReply,
    ValidationRequest,
    WorkerGroup,
)
from tuner.execution.cluster.service_messages import PickledConfig
from tuner.execution.cluster.stored_messages import (
    Output,
    Packages,
    RankMessage,
    Unloadable,
    command_message,
    event_message,
    read_command,
    read_event,
    read_host_message,
    start_message,
    validation_message,
)
from tuner.execution.local.worker_connection import pickled
from tuner.journal import records
from tuner.storage import strict_json

RECORD = CheckpointRecord(2, 5, 1.5, {"timesteps_total": 70}, remote="checkpoint_000002.e7a2")
FAILURE = Failure("ValueError", "no", "...", ("Exception",), "train.py:3 in train")
OWNER = LeaseOwner("t00001", 1, 3)
GROUP = WorkerGroup(2, {"cpu": 1.0}, 1, 2)
METRICS = {"training_iteration": 5, "loss": float("inf"), "nested": {"a": [1, None]}}
EVENTS = [
    WorkerStarted("t00001", 1, 7),
    ResultReported("t00001", 2, METRICS),
    ResultReported(
        "t00001",
        2,
        METRICS,
        RECORD,
        ("pid",),
        validation=ValidationRequest("m:f", {"n": 1}, 2.5, f".validation-2-{'a' * 64}.pkl", True),
        rank_metrics=({"loss": 1}, {"loss": 2}),
    ),
    ResultReported("t00001", 2, METRICS, upload=2),
    CheckpointStarted("t00001", 1),
    CheckpointSaved("t00001", 1, CheckpointRecord(0, 1, name="best/one")),
    CheckpointCommitted("t00001", 1, RECORD),
    CheckpointFailed("t00001", 1, FAILURE),
    CheckpointLost("t00001", 2, "it is cut"),
    CheckpointsRequested("t00001", 1, "4", waits_for_validation=False),
    WorkerExited("t00001", 1, Outcome.COMPLETED),
    WorkerExited("t00001", 1, Outcome.LOST, FAILURE),
    WorkerExited(
        "t00001", 1, Outcome.FAILED, Failure("E", "m", ranks=((1, FAILURE), (0, Failure("x", ""))))
    ),
    ValidationEnded("t00001", 2, 1, Outcome.COMPLETED, {"accuracy": 0.5}),
    ValidationEnded("t00001", 2, 1, Outcome.KILLED, failure=FAILURE),
    ValidationEnded("t00001", 2, 1, Outcome.LOST),
    LeaseRequested(OWNER, "5", GROUP),
    LeaseReleased(LeaseOwner("t00001", 1), "5"),
]


def sent(message):
    """Return what arrives of a message."""
    return strict_json.loads(strict_json.to_bytes(message))


def loaded(config):
    """Return what a worker finds where a configuration has been pickled."""
    return pickle.loads(pickle.dumps(config))  # noqa: S301  (our own)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_arrive_as_they_were(event):
    arrived = read_host_message(sent(event_message(event)))
    assert arrived == event
    if isinstance(event, ResultReported):
        assert (arrived.replaced, arrived.rank_metrics) == (event.replaced, event.rank_metrics)


@pytest.mark.parametrize(
    "event", [NodeLeft("n", "gone"), StopRequested("user.stop"), TurnEnded()], ids=repr
)
def test_a_node_cannot_cause_other_events_than_those_of_its_processes(event):
    with pytest.raises(ValueError, match="must be"):
        read_event({"kind": "event", "body": {**records.encode(event, 0.0), "id": "t1", "a": 1}})


def changed(event, **fields):
    message = sent(event_message(event))
    return message | {"body": message["body"] | fields}


def with_checkpoint(event, **fields):
    return changed(event, c=sent(event_message(event))["body"]["c"] | fields)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"kind": "event"}, "body must be an object"),
        (changed(EVENTS[0], id="../t1"), "id must be the id of a trial"),
        (changed(EVENTS[0], a=0), "a must be the number of an attempt"),
        (changed(EVENTS[0], a=True), "a must be an integer"),
        (changed(EVENTS[0], pid="7"), "pid must be"),
        (changed(EVENTS[1], m={}), "training_iteration must be"),
        (changed(EVENTS[1], c={"index": 1}), "counters must be"),
        (with_checkpoint(EVENTS[6], remote="../x"), "remote must name"),
        (with_checkpoint(EVENTS[5], name="../x"), "'../x'"),
        (changed(EVENTS[2], v={"payload": "/etc/passwd"}), "payload must be"),
        ({**event_message(EVENTS[1]), "rank_metrics": [1]}, "rank_metrics must be"),
        (changed(EVENTS[10], outcome="gone"), "outcome must be one of"),
        (changed(EVENTS[10], outcome="failed"), "must have a failure"),
        (changed(EVENTS[11], outcome="completed"), "must not"),
        (changed(EVENTS[12], failure={**event_message(EVENTS[12])["body"]["failure"],
                                      "ranks": [["0", {}]]}), "ranks.0.0 must be an integer"),
        (changed(EVENTS[13], outcome="stopped"), "outcome must be one of"),
        (changed(EVENTS[13], metrics=None), "metrics must be an object"),
        (changed(EVENTS[14], failure=None), "must have a failure"),
        (changed(EVENTS[16], token=""), "token must be"),
        (changed(EVENTS[16], group={}), "group.num_workers is missing"),
        ({"kind": "shutdown"}, "known kind"),
        ({"kind": "output", "trial_id": "t1", "stream": "../x", "data": ""}, "stream must be"),
        ({"kind": "output", "trial_id": "t1", "stream": "stdout", "data": 1}, "data must be"),
        ({"kind": "packages", "versions": {"torch": 2}}, "versions must be texts"),
    ],
)  # fmt: skip
def test_malformed_messages_of_nodes_are_refused(message, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_host_message(message)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(data=st.data(), event=st.sampled_from(EVENTS))
def test_an_event_with_any_field_replaced_is_read_or_refused(data, event):
    message = sent(event_message(event))
    fields = data.draw(st.sampled_from([message, message["body"]]))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    try:
        read = read_host_message(message)
    except ValueError:
        return
    # What was accepted can go into the journal, and comes back from there.
    assert type(records.decode(sent(records.encode(read, 0.0)))[0]) is type(read)


@given(
    kind=st.sampled_from(["unloadable", "packages", "output", "event", 7]),
    fields=st.dictionaries(
        st.sampled_from(["why", "versions", "body", "data"]),
        json_values,
    ),
)
def test_messages_of_any_content_are_read_or_refused(kind, fields):
    with suppress(ValueError):
        read_host_message({**fields, "kind": kind})


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"kind": "unloadable", "why": "ImportError: x"}, Unloadable("ImportError: x")),
        ({"kind": "packages", "versions": {"torch": "2.9"}}, Packages({"torch": "2.9"})),
        (Output("t1", "stderr.rank3", "x").message, Output("t1", "stderr.rank3", "x")),
        (Output("t1", "validation_000003.log", "x").message,
         Output("t1", "validation_000003.log", "x")),
        ({"kind": "rank_gone", "x": 1}, RankMessage({"kind": "rank_gone", "x": 1})),
    ],
)  # fmt: skip
def test_other_messages_of_hosts_arrive(message, read):
    assert read_host_message(sent(message)) == read


@pytest.mark.parametrize(
    "command",
    [
        AnswerReport("t1", 2, ReportReply.CONTINUE),
        AnswerReport("t1", 2, ReportReply.PAUSE, True, True, Interruption("user.pause", 3.0)),
        KillWorker("t1", 2, "enough", 2.5, is_silent=True),
        KillValidation("t1", 3, 1, "enough"),
        GrantLease(OWNER, "4", 2, (0, 1)),
        RefuseLease(OWNER, "4", "no", is_deadlock=True),
        ListCheckpoints("t1", 2, "4", [(RECORD, {"loss": 1.0}, "completed")]),
    ],
    ids=lambda command: type(command).__name__,
)
def test_commands_arrive_as_they_were(command):
    assert read_command(sent(command_message(command))) == command


class ImpossibleToLoad:
    """Fails where it is unpickled."""

    def __reduce__(self):
        return exec, ("raise KeyError('loaded')",)


def test_a_start_arrives_with_a_configuration_that_is_not_loaded_on_the_way():
    command = StartWorker(
        "t1",
        2,
        {"x": ImpossibleToLoad()},
        {"cpu": 2.0},
        (0, 1),
        RECORD,
        3,
        "tag",
        "t9",
        GROUP,
        ("n",),
    )
    message = sent(start_message(command, pickled(command.config), 17))
    read = read_command(message)
    assert message["seed"] == 17
    assert isinstance(read.config, PickledConfig)
    with pytest.raises(KeyError, match="loaded"):
        loaded(read.config)
    fields = [
        (each.trial_id, each.attempt, each.resources, each.gpu_ids, each.checkpoint, each.group,
         each.next_checkpoint, each.experiment_tag, each.source_id)
        for each in (read, command)
    ]  # fmt: skip
    assert fields[0] == fields[1]


def test_a_configuration_is_unpickled_as_what_it_stands_for():
    def local(x):
        return x + 1

    config = loaded(PickledConfig(pickled({"f": local, "n": (1, 2)})))
    assert (config["f"](1), config["n"]) == (2, (1, 2))


def test_a_validation_arrives_as_it_was():
    request = ValidationRequest("m:f", {"n": 1}, 2.5, "payload", True)
    command = StartValidation("t1", RECORD, 2, request, {"cpu": 1.0}, (3,), {"x": 1}, True)
    message = sent(validation_message(command, pickled(command.config), 5, has_payload=True))
    read = read_command(message)
    assert (message["seed"], message["has_payload"]) == (5, True)
    assert loaded(read.config) == {"x": 1}
    assert (read.checkpoint, read.request, read.num_try, read.gpu_ids, read.is_last_try) == (
        RECORD, request, 2, (3,), True,
    )  # fmt: skip


def test_messages_are_plain_json():
    json.dumps(event_message(EVENTS[6]), allow_nan=False)
