"""What programs report: lines of output, lines of JSON, rows of files."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.command.file_tail import FileTail
from tuner.command.reports import (
    FileReports,
    JsonReports,
    OutputReports,
    Progress,
    compiled,
    nearest_number,
)


def read(reader, lines):
    return [found for line in lines if (found := reader.read(line)) is not None]


# Output.


def test_groups_of_a_matching_line_are_a_result():
    reader = OutputReports(compiled(r"epoch (?P<epoch>\d+).*loss[=: ]+(?P<loss>\S+)"))
    assert read(reader, ["begin", "epoch 1/9 loss: 0.5,", "epoch 2/9 loss=1e-3", "end"]) == [
        {"epoch": 1, "loss": 0.5},
        {"epoch": 2, "loss": 0.001},
    ]


def test_the_last_pattern_completes_what_the_others_have_found():
    reader = OutputReports(compiled([r"train (?P<train>\S+)", r"val (?P<val>\S+)"]))
    assert read(reader, ["train 1", "train 2", "val 3", "val 4"]) == [
        {"train": 2, "val": 3},
        {"val": 4},
    ]


def test_the_order_of_the_lines_counts_where_the_patterns_have_another():
    reader = OutputReports(
        compiled([r"val (?P<val>\S+)", r"acc (?P<acc>\S+)", r"train (?P<train>\S+)"])
    )
    lines = [f"{name} {epoch}" for epoch in (1, 2, 3) for name in ("train", "val", "acc")]
    assert read(reader, lines) == [
        {"train": 1},
        {"train": 2, "val": 2, "acc": 2},
        {"train": 3, "val": 3, "acc": 3},
    ]


def test_what_is_found_more_rarely_completes_no_result():
    reader = OutputReports(compiled([r"val (?P<val>\S+)", r"train (?P<train>\S+)"]))
    assert read(reader, ["train 1", "train 2", "val 2", "train 3"]) == [
        {"train": 1},
        {"train": 2},
        {"val": 2, "train": 3},
    ]


def test_a_group_that_did_not_take_part_is_left_out():
    reader = OutputReports(compiled(r"loss (?P<loss>\S+)( acc (?P<acc>\S+)%)?"))
    assert read(reader, ["loss nan", "loss 2 acc 98.5%"]) == [
        {"loss": pytest.approx(float("nan"), nan_ok=True)},
        {"loss": 2, "acc": 98.5},
    ]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("loss (", "must be a regular expression, got 'loss \\('"),
        (r"loss (\S+)", "must have a named group for each metric"),
        (3, "must be regular expressions, got 3"),
    ],
)
def test_what_finds_no_metric_is_refused(pattern, said):
    with pytest.raises((TypeError, ValueError), match=said):
        compiled(pattern)


# Lines of JSON.


def test_lines_that_are_no_objects_are_counted_and_the_first_is_shown():
    reader = JsonReports()
    lines = ['{"loss": 0.5}', "", "loss 3", "[1]", "{}", '{"loss": NaN}']
    assert [one["loss"] for one in read(reader, lines)] == [
        0.5,
        pytest.approx(float("nan"), nan_ok=True),
    ]
    assert (reader.num_refused, reader.first_refused) == (3, "loss 3")


# Files.

ROWS = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}, {"epoch": 3}]
CSV = b"epoch,loss\r\n1,0.5\r\n2,0.25\r\n3,\r\n"
JSONL = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
HEADER = CSV[:12]
QUOTED = b'epoch,loss,"a, ""note"""\n1,0.5,"of\n\ntwo, lines"\n2,0.25,"\xc3\xbc"\n3,,5" \xff\n'


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        CSV.replace(b",", b"\t"),
        CSV.replace(b",", b";"),
        JSONL,
        CSV.rstrip(),
        b"\xef\xbb\xbf" + CSV,
        b"\xef\xbb\xbf" + JSONL,
        CSV.replace(b"2,", HEADER + b"2,"),
    ],
)
@given(cuts=st.lists(st.integers(0, 60), max_size=5))
def test_a_file_is_read_alike_however_it_is_cut(text, cuts):
    reader, rows = FileReports(), []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        rows += reader.read(text[begin:end])
    rows += reader.read(b"", is_end=True)
    assert rows == ROWS


@given(cuts=st.lists(st.integers(0, 80), max_size=5))
def test_cells_in_quotes_may_have_commas_and_several_lines(cuts):
    reader, rows = FileReports(is_csv=True), []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(QUOTED)], strict=True):
        rows += reader.read(QUOTED[begin:end])
    notes = ["of\n\ntwo, lines", "ü", '5" \ufffd']
    assert rows == [{**row, 'a, "note"': note} for row, note in zip(ROWS, notes, strict=True)]


def test_a_file_with_one_object_that_is_replaced_is_read_each_time():
    reader, rows = FileReports(is_csv=False), []
    for epoch in (1, 2, 2):
        rows += reader.read(b'{"epoch": %d, "loss": {"a": 1}}' % epoch)
        reader.restart()
    assert [row["epoch"] for row in rows] == [1, 2]


def test_a_file_that_begins_with_another_row_is_read_whole():
    reader = FileReports(is_csv=False)
    assert list(reader.read(JSONL)) == ROWS
    reader.restart()
    assert list(reader.read(b'{"epoch": 4}\n{"epoch": 5}\n')) == [{"epoch": 4}, {"epoch": 5}]


def test_a_file_that_is_written_anew_with_another_column_is_read_on_where_it_was():
    reader = FileReports(is_csv=True)
    assert list(reader.read(b"epoch,loss\n1,0.5\n2,0.25\n")) == ROWS[:2]
    reader.restart()
    assert list(reader.read(b"epoch,loss,acc\n1,0.5,\n2,0.25,\n3,,0.9\n")) == [
        {"epoch": 3, "acc": 0.9}
    ]


def test_rows_of_an_earlier_attempt_are_not_read_again(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(CSV)
    tail = FileTail(str(path))
    assert list(tail.read()) == []
    with path.open("ab") as file:
        file.write(b"4,0.1\r\n")
    assert list(tail.read()) == [{"epoch": 4, "loss": 0.1}]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_begins_anew_is_read_from_its_beginning(tmp_path, is_replaced):
    path = tmp_path / "log.csv"
    path.write_bytes(CSV * 3)
    tail = FileTail(str(path))
    if is_replaced:
        path.rename(tmp_path / "old.csv")
    path.write_bytes(CSV)
    assert list(tail.read()) == ROWS


def test_a_file_that_is_no_shorter_when_it_begins_anew_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(CSV.replace(b"0.5", b"0.7"))
    tail = FileTail(str(path))
    path.write_bytes(CSV + b"4,1\r\n")
    assert list(tail.read()) == [*ROWS, {"epoch": 4, "loss": 1}]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_file_that_is_equal_when_it_begins_anew_is_read_at_the_end(tmp_path, is_written):
    path = tmp_path / "log.csv"
    path.write_bytes(CSV)
    os.utime(path, (1, 1))
    tail = FileTail(str(path))
    if is_written:
        path.write_bytes(CSV)
    assert list(tail.read(is_end=True)) == []
    assert list(tail.read_anew()) == (ROWS if is_written else [])


def test_a_directory_is_no_file_with_results(tmp_path):
    with pytest.raises(ValueError, match=r"must be a file, got .*; name a file"):
        FileTail(str(tmp_path))


def test_a_file_may_appear_later(tmp_path):
    tail = FileTail(str(tmp_path / "log.csv"))
    assert not tail.exists
    assert list(tail.read()) == []
    (tmp_path / "log.csv").write_bytes(CSV.rstrip())
    assert list(tail.read()) == ROWS[:2]
    assert list(tail.read(is_end=True)) == ROWS[2:]


# Progress.


@pytest.mark.parametrize(
    ("name", "reported", "iterations"),
    [
        ("auto", [{"epoch": 0}, {"epoch": 1}, {"epoch": 2}], [None, None, None]),
        ("auto", [{"epoch": 5}, {"epoch": 10}], [5, 10]),
        ("auto", [{"step": 100}, {"step": 200, "epoch": 2}], [100, None]),
        ("step", [{"step": 100, "epoch": 1}, {"step": 200.0}], [100, 200]),
        (None, [{"epoch": 5}], [None]),
        ("auto", [{"epoch": 2.5}, {"epoch": "x"}, {"epoch": True}], [None, None, None]),
        ("auto", [{"epoch": 3, "training_iteration": 7}], [7]),
    ],
)
def test_the_programs_own_count_becomes_the_iteration_where_it_is_larger(
    name, reported, iterations
):
    progress = Progress(name, 0)
    counted = [progress.counted(metrics) for metrics in reported]
    assert [one.get("training_iteration") for one in counted] == iterations


def test_a_continued_trial_counts_on():
    assert Progress("auto", 5).counted({"epoch": 6}) == {"epoch": 6}
    assert Progress("auto", 5).counted({"epoch": 7})["training_iteration"] == 7


# What was printed instead.


def test_the_number_that_looks_most_like_the_metric_is_named_with_a_pattern_that_finds_it():
    lines = ["Epoch 3: validation loss = 0.312, acc 0.9", "done in 3 s"]
    found = nearest_number(lines, ["val_loss"])
    assert found.text == "validation loss = 0.312"
    assert OutputReports(compiled(found.pattern)).read(lines[0]) == {"val_loss": 0.312}
    assert nearest_number(["no number here"], ["loss"]) is None
