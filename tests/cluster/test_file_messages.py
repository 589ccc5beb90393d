"""Messages about files between driver and node: what one end says is what the other one reads."""

import contextlib
import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.instances import instances
from tuner.cluster.file_messages import (
    FILE_KINDS,
    FILE_RECORDS,
    FILE_REQUESTS,
    FileRequest,
    Measured,
    Output,
    Transferred,
    is_output,
    read_file_record,
)
from tuner.storage.manifest import FileEntry, PartContents


def sent(message):
    return json.loads(json.dumps(message))


@given(st.sampled_from(get_args(FileRequest)).flatmap(instances))
def test_requests_arrive_as_they_were(request_):
    assert FILE_REQUESTS.decode(sent(FILE_REQUESTS.encode(request_))) == request_


PART = PartContents({"a": FileEntry(1, "ab", 2), "b": FileEntry(2, None)}, {"c": "a"}, ["d"], True)


@pytest.mark.parametrize(
    "record",
    [
        Transferred(1),
        Measured(2, PART, ["a differs"]),
        Measured(2, None, []),
        Output("t00001", "stderr.rank12", "x"),
        Output("t00001", "validation_000003.log", ""),
        Output("t00001", "return_value.json", "[1]"),
    ],
)
def test_records_arrive_as_they_were(record):
    assert read_file_record(sent(FILE_RECORDS.encode(record))) == record


CONTENTS = FILE_RECORDS.encode(Measured(2, PART, []))["contents"]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"kind": "transferred", "id": "1"}, "id must be an integer"),
        ({"kind": "output", "trial_id": "t1", "stream": "../x", "data": ""}, "stream must be"),
        ({"kind": "output", "trial_id": "t1", "stream": "result.json", "data": ""}, "stream must"),
        ({"kind": "measured", "id": 1, "contents": 5, "conflicts": []}, "contents must be"),
        ({"kind": "pin"}, "unknown kind"),
        (
            {
                "kind": "measured",
                "id": 1,
                "contents": CONTENTS | {"files": {"../a": CONTENTS["files"]["a"]}},
                "conflicts": [],
            },
            "../a",
        ),
    ],
)
def test_malformed_messages_of_nodes_are_refused(message, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_file_record(message)


@given(
    st.sampled_from(sorted(FILE_KINDS)),
    st.dictionaries(
        st.sampled_from(
            ["id", "failure", "is_storage", "contents", "conflicts", "trial_id", "stream", "data"]
        ),
        st.none() | st.booleans() | st.integers() | st.text() | st.just([]) | st.just({}),
    ),
)
def test_messages_of_any_content_are_read_or_refused(kind, fields):
    with contextlib.suppress(ValueError):
        read_file_record({"kind": kind, **fields})


def test_files_with_output_are_known_by_their_names():
    assert is_output("stdout")
    assert is_output("stderr.rank3")
    assert not is_output("stdout.rank0")
    assert not is_output("validation_1.log")
