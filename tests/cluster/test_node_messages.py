"""What driver and node say about the node itself: there and back, and malformed."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cluster.node_messages import (
    NODE_MESSAGES,
    BlobReader,
    Draining,
    Hello,
    Probed,
    Ready,
    Remark,
    Setup,
    SetupRefused,
    SharedStorage,
    StoredElsewhere,
    blob_messages,
    own_versions,
    read_node_message,
    read_setup,
)
from tuner.storage import strict_json

HELLO = Hello.of_this_process("10.0.0.3", {"cpu": 4.0}, {"zone": "a"})


def sent(message):
    """Return what arrives of a message."""
    return strict_json.loads(strict_json.to_bytes(message))


@pytest.mark.parametrize(
    "record",
    [
        HELLO,
        Ready(),
        SetupRefused("no mount"),
        Probed(""),
        Remark("hm"),
        Draining(None),
        Draining(30.0),
    ],
)
def test_what_a_host_says_arrives_as_it_was(record):
    assert read_node_message(sent(NODE_MESSAGES.encode(record))) == record


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({}, "unknown kind None"),
        ({"kind": "shutdown"}, "unknown kind 'shutdown'"),
        ({"kind": "remark"}, "text is missing"),
        ({"kind": "refused", "why": 7}, "why must be a text"),
        ({"kind": "draining", "deadline_s": -1}, "deadline_s must be a finite number"),
        ({**HELLO.message, "resources": {"cpu": "4"}}, "resources.cpu must be a finite number"),
        ({**HELLO.message, "resources": {"cpu": float("inf")}}, "must be a finite number"),
        ({**HELLO.message, "versions": {"torch": 2}}, "versions.torch must be a text"),
        ({"kind": "hello"}, "protocol must be"),
    ],
)
def test_malformed_messages_of_a_host_are_refused(message, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_node_message(message)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    kind=st.sampled_from(["hello", "ready", "refused", "probed", "remark", "draining", 7]),
    fields=st.dictionaries(
        st.sampled_from(["why", "versions", "protocol", "resources", "labels", "deadline_s"]),
        json_values,
    ),
)
def test_messages_of_any_content_are_read_or_refused(kind, fields):
    with suppress(ValueError):
        read_node_message({**fields, "kind": kind})


def test_what_a_host_says_is_cut_where_it_is_too_long():
    assert len(read_node_message({"kind": "remark", "text": "x" * 9_000}).text) == 4_000


def test_a_host_introduces_itself():
    hello = Hello.of_this_process("10.0.0.3", {"cpu": 4.0}, {"zone": "a"})
    assert read_node_message(sent(hello.message)) == hello
    assert (hello.obstacle(), hello.difference()) == ("", "")


def test_a_host_of_another_release_is_refused_with_both_versions():
    own = own_versions()
    hello = Hello(1, own | {"tuner": "0.0.1", "python": "2.7"})
    assert hello.obstacle() == (
        f"it has tuner 0.0.1, while the driver has {own['tuner']}, and Python 2.7, while the "
        f"driver has {own['python']}; install the same versions on all nodes"
    )
    later = read_node_message({"kind": "hello", "protocol": 2, "versions": own, "pid": "new"})
    assert "version 2 of the messages" in later.obstacle()


def test_other_packages_are_worth_a_warning():
    own = {"numpy": "2.1", "torch": "2.9"}
    hello = Hello(1, {"numpy": "2.0", "cloudpickle": "3.1"})
    assert hello.difference(own) == (
        "it has numpy 2.0 (the driver: 2.1), torch not at all (the driver: 2.9), cloudpickle 3.1 "
        "(the driver: none); what is pickled may not load there"
    )


@pytest.mark.parametrize(
    "storage",
    [
        SharedStorage("/shared/exp", ("proof", "abc")),
        StoredElsewhere("s3://b/exp", 7, ("probe/e7-1", "ab")),
        StoredElsewhere("s3://b/exp", 7, ("probe/e7-1", "ab"), b"\x80", 100, 5.0),
    ],
)
def test_a_setup_arrives_as_it_was(storage):
    setup = Setup(
        storage=storage,
        environ={"A": "b"},
        sys_path=["/code"],
        argv=["train.py"],
        lease_s=3.0,
    )
    assert read_setup(sent(setup.message)) == setup


def test_code_arrives_in_parts():
    trainable, reader = bytes(range(256)) * 5000, BlobReader()
    *parts, end = blob_messages(trainable, b"check")
    assert (len(parts), end) == (4, {"kind": "blob_end"})
    for part in parts:
        reader.add(sent(part))
    assert reader.take() == (trainable, b"check")
    assert reader.take() == (b"", b"")
