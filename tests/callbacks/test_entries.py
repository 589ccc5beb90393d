"""What the log files are told."""

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.callbacks.files.append import append, remove, replace_file
from tuner.callbacks.log_records import Begin, End, Row, Segment, begin_of, blocks_of, segments_of

BEGIN = Begin({}, True, -1, None, 0, 0.0)
AGAIN = Begin({}, False, 3, None, 0, 1.0)
FIRST, SECOND, THIRD = (Row({"loss": number}, float(number)) for number in range(3))


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [BEGIN],
        [FIRST, SECOND],
        [End(False, 0.0)],
        [BEGIN, FIRST, SECOND, End(False, 2.0)],
        [FIRST, AGAIN, SECOND, AGAIN, End(True, 2.0)],
        [BEGIN, AGAIN, FIRST, SECOND, THIRD],
    ],
)
def test_each_attempt_is_a_segment_and_nothing_is_lost(entries):
    segments = segments_of(entries)
    assert [entry for segment in segments for entry in segment.entries] == entries
    assert [segment.begin is None for segment in segments[1:]] == [False] * (len(segments) - 1)
    assert len(segments) == max(
        sum(isinstance(entry, Begin) for entry in entries)
        + (not isinstance([*entries, BEGIN][0], Begin)),
        0,
    )


@pytest.mark.parametrize(
    ("result", "has_shape"),
    [
        ({"a": 1.5, "b": 2, "c": None, "d": True, "e": "x"}, True),
        ({"a": 1.5, "config": {"lr": 1}}, True),
        ({}, True),
        ({"a": math.nan}, False),
        ({"a": -math.inf, "b": math.inf}, False),
        ({"a": {"b": 1}}, False),
        ({"a": [1]}, False),
        ({"a": type("Number", (float,), {})(1.0)}, False),
        ({1: 1.0}, False),
    ],
)
def test_only_plain_values_have_a_shape(result, has_shape):
    (block,) = blocks_of([Row(result, 0.0)])
    assert (block.shape is not None) is has_shape


def test_rows_with_the_same_names_and_classes_follow_each_other_in_a_block():
    plain, other, swapped, odd = (
        {"a": 1.0, "b": 2},
        {"a": 3.0, "b": 4.0},
        {"b": 4, "a": 3.0},
        {"a": math.nan, "b": 2},
    )
    results = [plain, {"a": 5.0, "b": 6}, other, swapped, odd, odd, plain]
    rows = [Row(result, float(number)) for number, result in enumerate(results)]
    blocks = blocks_of(rows)
    assert [row for block in blocks for row in block.rows] == rows
    assert [len(block.rows) for block in blocks] == [2, 1, 1, 2, 1]
    assert [block.shape and block.shape.names for block in blocks] == [
        ("a", "b"),
        ("a", "b"),
        ("b", "a"),
        None,
        ("a", "b"),
    ]
    assert blocks[0].shape is blocks[-1].shape is not blocks[1].shape
    assert [block.values for block in blocks] == [
        [(1.0, 2), (5.0, 6)],
        [(3.0, 4.0)],
        [(4, 3.0)],
        [],
        [(1.0, 2)],
    ]
    assert blocks_of([]) == []


def test_the_blocks_of_a_segment_are_found_once():
    segment = Segment(rows=[FIRST, SECOND])
    walked = []

    def pace(rows):
        return (walked.append(row) or row for row in rows)

    assert segment.blocks(pace) is segment.blocks(pace)
    assert walked == [FIRST, SECOND]


@given(
    values=st.dictionaries(
        st.text(max_size=2),
        st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.none()),
    ),
    data=st.data(),
)
def test_values_are_picked_by_their_names(values, data):
    names = tuple(data.draw(st.permutations(sorted(values))))[
        : data.draw(st.integers(0, len(values)))
    ]
    (block,) = blocks_of([Row(values, 0.0)])
    if block.shape:  # huge floats may have an infinite sum
        assert block.shape.picked(names)(block.values[0]) == tuple(values[name] for name in names)
        assert block.shape.num_nones == list(values.values()).count(None)


def test_an_attempt_that_begins_anew_supersedes_everything(make_trial):
    trial = make_trial()
    trial.attempt, trial.superseded_attempt, trial.resumed_iteration = 3, 2, 7
    begin = begin_of(trial)
    assert (begin.is_first, begin.resumed_iteration, begin.resumed_step, begin.num_earlier) == (
        False,
        -1,
        -1,
        0,
    )


def test_a_file_is_made_or_replaced_at_one_stroke_with_the_folder_it_needs(tmp_path):
    path = tmp_path / "a" / "file"
    replace_file(path, b"old")
    replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    append(str(path), b"er")
    assert path.read_bytes() == b"newer"
    assert [child.name for child in path.parent.iterdir()] == ["file"]
    remove(str(path))
    remove(str(path))
    assert not path.exists()


def test_where_the_directory_of_the_experiment_is_gone_none_is_made_in_its_place(tmp_path):
    for write in (append, replace_file):
        with pytest.raises(FileNotFoundError):
            write(tmp_path / "gone" / "t00000" / "file", b"row")
    assert list(tmp_path.iterdir()) == []


def test_who_appends_does_not_wait_for_the_reader_of_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "file")
    with pytest.raises(OSError, match="No such device"):
        append(tmp_path / "file", b"row")


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    path.symlink_to(victim)
    replace_file(path, b"new")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("precious", "new", False)
    remove(str(path))
    path.symlink_to(tmp_path / "nowhere")
    replace_file(path, b"new")
    assert (path.read_text(), path.is_symlink()) == ("new", False)
