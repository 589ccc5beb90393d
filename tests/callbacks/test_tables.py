"""Tables fit the terminal, or are plain text."""

import io

import pytest
from rich.console import Console

from tuner.callbacks.tables import Column, Table, text_table


def drawn(table, width):
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


TABLE = Table(
    [
        Column("id", ["a", "b"]),
        Column("state", ["TERMINATED", "RUNNING"], min_width=5),
        Column("n", ["1", "23"], is_number=True),
        Column("note", ["[red]x[/]", "y"], rank=1),
    ]
)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            80,
            ["id  state        n  note", "a   TERMINATED   1  [red]x[/]", "b   RUNNING     23  y"],
        ),
        (28, ["id  state        n", "a   TERMINATED   1", "b   RUNNING     23"]),
        (14, ["id  state    n", "a   TERMI…   1", "b   RUNNI…  23"]),
        (13, ["id  state   n", "a   TERM…   1", "b   RUNN…  23"]),
    ],
)
def test_columns_are_left_out_by_rank_and_then_cut(width, lines):
    assert drawn(TABLE, width) == lines


@pytest.mark.parametrize("width", range(1, 30))
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, drawn(TABLE, width))) <= width


def test_as_plain_text_all_columns_are_in_full():
    assert TABLE.lines() == [
        "id  state       n   note",
        "a   TERMINATED  1   [red]x[/]",
        "b   RUNNING     23  y",
    ]


def test_a_column_is_left_out_with_the_one_that_gives_it_a_meaning():
    table = Table([Column("metric", ["loss"], 1), Column("value", ["0.1"], 2, beside="metric")])
    assert [column.title for column in table.fitting(80)] == ["metric", "value"]
    assert [column.title for column in table.fitting(5)] == []


def test_wide_characters_take_two_columns():
    assert text_table([["id", "n"], ["日本", "1"], ["abcd", "2"]]) == [
        "id    n",
        "日本  1",
        "abcd  2",
    ]
