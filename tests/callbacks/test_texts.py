"""Rows that are made from the text of results say what those say that are made from the results."""

import csv
import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.callbacks import texts
from tuner.callbacks.files import csv_logger, json_logger
from tuner.callbacks.files.background_writer import BatchWriter
from tuner.callbacks.files.tensorboard_logger import TBXLoggerCallback
from tuner.callbacks.log_records import Row, Segment, blocks_of
from tuner.core.result import CONFIG, TIMESTEPS_TOTAL, TRAINING_ITERATION
from tuner.storage.strict_json import loads, to_bytes

pytestmark = pytest.mark.skipif(
    not texts.IS_COMPILED, reason="no compiler was there when tuner was installed"
)

PLAIN = {"loss": float, "step": int, "note": str, "is_best": bool, "gap": type(None)}
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 10)
    | st.floats()
    | st.floats(-10, 10)
    | st.text(max_size=5)
    | st.sampled_from(
        ["=1", "-1", "+", "@a", "a,b", "[", "]", 'say "so"', "null", "a b", "", "5", "\\", "\n"]
    )
)
NAMES = st.sampled_from(
    ["loss", "acc", "a/b", "a,b", "é", "", "=x", CONFIG, TIMESTEPS_TOTAL, 'q"q']
)
RESULTS = st.builds(
    lambda iteration, result: {
        TRAINING_ITERATION: iteration,
        **result,
    },  # which the driver counts itself
    st.integers(-1, 1 << 40),
    st.dictionaries(
        NAMES,
        VALUES | st.dictionaries(NAMES, VALUES, max_size=2) | st.lists(VALUES, max_size=2),
        max_size=5,
    ),
)
MANY = st.lists(RESULTS, max_size=4).flatmap(
    lambda few: st.lists(st.sampled_from(few), max_size=8) if few else st.just([])
)


def layout(**class_of):
    found = texts.layout_of(class_of)
    assert found is not None
    return found


def spelled(result):
    """Return the row of a result as the driver makes it: with its text, where that is JSON itself."""
    text = to_bytes(result)
    return Row(None, 1.5, text) if b"$" not in text else Row(loads(text), 1.5)


def both(results):
    """Return the rows of the results with their texts, and without."""
    return [spelled(result) for result in results], [
        Row(loads(to_bytes(result)), 1.5) for result in results
    ]


@given(MANY)
def test_blocks_hold_the_same_rows_in_the_same_shapes(results):
    rows, parsed = both(results)
    found = [
        (block.shape and block.shape.names, [row.result for row in block.rows])
        for block in blocks_of(rows)
    ]
    joined = [(shape, row) for shape, of_block in found for row in of_block]
    expected = [
        (block.shape and block.shape.names, row.result)
        for block in blocks_of(parsed)
        for row in block.rows
    ]
    assert repr(joined) == repr(expected)  # NaN is not equal to itself


@given(MANY)
@example([{"loss": 1.0, "note": "null"}, {"loss": 0.00001, "note": "[1]"}])
def test_lines_of_json_say_the_same(results):
    rows, parsed = both(results)
    lines, expected = (
        json_logger._lines_of(blocks_of(some), b',"config":{}}\n', iter).splitlines()
        for some in (rows, parsed)
    )
    assert [json.loads(line) for line in lines] == [json.loads(line) for line in expected]


@given(MANY)
@example([{"loss": 1e-5, "note": "null"}, {"loss": 2.0, "note": "[1]"}])
@example([{"loss": 1.0, "note": "-"}])
def test_lines_of_a_table_say_the_same(results):
    rows, parsed = both(results)
    columns = tuple(dict.fromkeys(name for row in parsed for name in row.flat))
    made, expected = (
        csv_logger._lines_of(blocks_of(some), columns, iter) for some in (rows, parsed)
    )
    assert [*map(_numbers, _cells(made))] == [*map(_numbers, _cells(expected))]


def _cells(data):
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def _numbers(line):
    """Return a line of which numbers that are spelled differently are the same."""
    return [
        repr(float(cell))
        if any(digit in cell for digit in "0123456789") and _is_number(cell)
        else cell
        for cell in line
    ]


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


@given(MANY)
@example([{"loss": 1e300, TRAINING_ITERATION: 1}])
@example([{"loss": True, TRAINING_ITERATION: 3, "acc": -0.0}])
@example([{"loss": 0.1, TRAINING_ITERATION: 1 << 40, TIMESTEPS_TOTAL: 300}])
def test_records_of_events_are_the_same(results):
    written = []
    for some in both(results):
        logger = TBXLoggerCallback(BatchWriter(has_thread=False))
        file = logger.open_file("/nowhere")
        written.append(
            b"".join(
                record for block in blocks_of(some) for record in file._records_of(block, iter)
            )
        )
    assert written[0] == written[1]


def test_what_is_alike_is_counted_up_to_the_first_that_is_not():
    own = layout(**PLAIN)
    alike = {"loss": -1.5e-7, "step": -3, "note": "a b", "is_best": False, "gap": None}
    others = [
        {**alike, "loss": 1}, {**alike, "step": 1.0}, {**alike, "note": None}, {**alike, "is_best": 0}, {**alike, "gap": 0},
        {**alike, "more": 1},
        {"step": 1, **alike}, {}, {**alike, "note": 'a"b'}, {**alike, "note": {}},
    ]  # fmt: skip
    for other in others:
        assert own.num_alike([to_bytes(one) for one in (other, alike, alike, other, alike)], 1) == 2
    assert own.num_alike([], 0) == 0


@given(
    st.binary(max_size=60) | st.text('{}[]":,\\0159.eE+-truefalsn $', max_size=60).map(str.encode),
    st.integers(0, 60),
)
@example(b'{"loss":1.5,"step":3,"note":"', 60)
@example(b'{"loss":-,"step":3,"note":"x","is_best":true,"gap":null}', 60)
@example(b'{"loss":1.5,"step":3,"note":"x","is_best":t', 60)
def test_nothing_that_is_torn_is_taken_for_a_result(noise, size):
    own = layout(**PLAIN)
    whole = b'{"loss":1.5,"step":3,"note":"x","is_best":true,"gap":null}'
    torn = [noise, whole[:size] + noise]
    for text in torn:
        assert own.num_alike([text], 0) == (text == whole)
        assert own.table([text], ("loss", "note")) in (None, b"1.5,x\r\n")
        assert text == whole or own.events([text], [1.0], "step", {"loss": b"l"}, b"h") is None


def test_a_table_has_the_columns_that_are_asked_for():
    own = layout(**PLAIN)
    text = b'{"loss":1.5,"step":3,"note":"x y","is_best":true,"gap":null}'
    assert (
        own.table([text, text], ("gap", "note", "loss", "is_best", "step"))
        == b",x y,1.5,True,3\r\n,x y,1.5,True,3\r\n"
    )
    assert own.table([], ("loss",)) == b""


@pytest.mark.parametrize("note", ["a,b", "=1", "+1", "-1", "@1"])
def test_a_cell_that_has_to_be_quoted_is_left_to_those_who_can(note):
    assert (
        layout(note=str, step=int).table([to_bytes({"note": note, "step": 1})], ("note", "step"))
        is None
    )


def test_so_is_a_curve_that_does_not_fit():
    own = layout(**PLAIN)
    head, names = b"head", {"loss": b"tag"}
    assert (
        own.events(
            [b'{"loss":1e39,"step":3,"note":"","is_best":true,"gap":null}'],
            [1.0],
            "step",
            names,
            head,
        )
        is None
    )
    assert (
        own.events(
            [b'{"loss":1.0,"step":0,"note":"","is_best":true,"gap":null}'],
            [1.0],
            "step",
            names,
            head,
        )
        is None
    )
    assert own.events([], [], "nothing", names, head) is None


def test_what_does_not_belong_together_is_refused():
    one = [b'{"a":1}']
    with pytest.raises(ValueError, match="keys"):
        texts._rows.num_alike(one, 0, (), b"")
    with pytest.raises(ValueError, match="one kind"):
        texts._rows.num_alike(one, 0, (b'"a":',), b"")
    with pytest.raises(ValueError, match="before the first"):
        texts._rows.num_alike(one, -1, (b'"a":',), b"i")
    for places in (b"\x01", b"\x00\x00"):
        with pytest.raises(ValueError, match="each once"):
            texts._rows.table(one, (b'"a":',), places)
    with pytest.raises(ValueError, match="a time for each text"):
        texts._rows.events(one, [], (b'"a":',), 0, b"\x00", b"", (b"x",))
    with pytest.raises(TypeError):
        texts._rows.table(["text"], (b'"a":',), b"\x00")


def test_too_many_names_are_parsed():
    assert texts.layout_of({str(number): int for number in range(256)}) is None
    assert texts.layout_of({}) is None
    assert texts.layout_of({"a": list}) is None


def test_a_configuration_in_the_text_is_not_part_of_the_row():
    row = Row(None, 0.0, b'{"loss":1.0,"config":{"lr":0.1}}')
    assert row.result == {"loss": 1.0}
    (block,) = Segment(rows=[row]).blocks(iter)
    assert not block.texts
