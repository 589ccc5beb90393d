"""Selection of lines and columns, and tables that fit the terminal."""

import math

import click
import pytest

from tuner.cli.output import Column, Output, OutputType, as_csv, as_json, table_of
from tuner.cli.selection import ConditionType, Selection, resolved

RECORDS = [
    {"id": "a", "loss": 0.5, "config/lr": 1, "kind": "adam", "done": True},
    {"id": "b", "loss": math.nan, "config/lr": 10, "kind": "sgd", "done": False},
    {"id": "c", "loss": 0.25, "config/lr": 2, "kind": "sgd"},
]


def ids(records):
    return "".join(record["id"] for record in records)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("loss < 0.5", "c"),
        ("loss<=0.5", "ac"),
        ("loss == 0.50", "a"),
        ("lr > 9", "b"),  # as a number, not as a text
        ("config/lr != 1", "bc"),
        ("kind = sgd", "bc"),
        ("kind != sgd", "a"),
        ("kind >= b", "bc"),
        ("done == true", "a"),
        ("done == False", "b"),
        ("done != true", "b"),  # no value meets no condition
    ],
)
def test_a_condition_compares_as_numbers_where_both_are(text, chosen):
    assert ids(Selection([ConditionType().convert(text, None, None)]).of(RECORDS)) == chosen


@pytest.mark.parametrize("text", ["", "loss", "< 3", "loss ~ 3"])
def test_an_invalid_condition_is_refused(text):
    with pytest.raises(click.BadParameter, match="is not a condition"):
        ConditionType().convert(text, None, None)


@pytest.mark.parametrize(
    ("sort", "is_descending", "expected"),
    [
        (["loss"], False, "cab"),
        (["loss"], True, "acb"),
        (["lr"], True, "bca"),
        (["kind", "loss"], False, "acb"),
        (["done"], False, "bac"),
    ],
)
def test_lines_are_sorted_with_what_is_unknown_last(sort, is_descending, expected):
    assert ids(Selection(sort=sort, is_descending=is_descending).of(RECORDS)) == expected


def test_sorting_by_the_second_column_keeps_the_order_of_the_first():
    assert ids(Selection(sort=["kind", "lr"]).of(RECORDS)) == "acb"


def test_a_name_means_the_column_before_the_hyperparameter():
    assert resolved("lr", ["loss", "config/lr"]) == "config/lr"
    assert resolved("lr", ["lr", "config/lr"]) == "lr"
    with pytest.raises(click.UsageError, match="did you mean 'loss'"):
        resolved("los", ["loss", "config/lr"])


def test_columns_are_the_usual_ones_that_have_values_unless_they_are_named():
    usual = [Column("id", "name"), Column("kind"), Column("error")]
    assert [column.key for column in Selection().columns_among(usual, RECORDS)] == ["id", "kind"]
    assert [
        column.heading for column in Selection(columns=["id", "lr"]).columns_among(usual, RECORDS)
    ] == ["name", "config/lr"]
    assert len(Selection(columns=["all"]).columns_among(usual, RECORDS)) == 5


def test_json_is_strict_for_all_values():
    text = as_json(
        [{"a": math.inf, "b": (1, -math.inf), "c": {"d": math.nan, 1: None}, "e": print}]
    )
    assert '"Infinity"' in text
    assert '"-Infinity"' in text
    assert '"NaN"' in text
    assert "built-in function print" in text


def test_csv_has_every_key_of_any_record():
    assert (
        as_csv([{"a": 1, "b": "x,y"}, {"c": [1, 2], "a": math.nan}])
        == 'a,b,c\n1,"x,y",\nNaN,,"[1, 2]"\n'
    )
    assert as_csv([]) == ""


def test_columns_that_do_not_fit_are_left_out_the_higher_ranks_first():
    columns = [
        Column("id"),
        Column("kind", rank=2),
        Column("loss", rank=1),
        Column("config/lr", "learning rate", rank=1),
    ]
    shown = {
        width: [column.title for column in table_of(RECORDS, columns).fitting(width)]
        for width in (80, 24, 12, 3)
    }
    assert shown == {
        80: ["id", "kind", "loss", "learning rate"],
        24: ["id", "loss", "learning rate"],
        12: ["id", "loss"],
        3: ["id"],
    }


def test_wide_characters_count_for_what_they_take():
    records = [{"id": "日本", "n": 1}, {"id": "abcd", "n": 2}]
    first, second, third = table_of(records, [Column("id"), Column("n")]).lines()
    assert (first, second, third) == ("id    n", "日本  1", "abcd  2")


def test_a_file_is_an_output_by_its_ending(tmp_path):
    assert OutputType().convert("json", None, None) == Output("json")
    output = OutputType().convert(str(tmp_path / "t.csv"), None, None)
    output.write([{"a": 1}], [])
    assert (tmp_path / "t.csv").read_text() == "a\n1\n"
    with pytest.raises(click.BadParameter, match="none of table, csv and json"):
        OutputType().convert("t.xlsx", None, None)
