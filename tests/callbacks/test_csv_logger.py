"""progress.csv."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.callbacks.scenes import new_idle_writer
from tests.callbacks.table_cells import is_in
from tuner.callbacks.files.csv_logger import CSVLoggerCallback, read_table
from tuner.core.trial import Trial
from tuner.core.worker_records import ReportReply


def cells_of(trial):
    header, rows = read_table(Path(trial.local_path) / "progress.csv")
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.fixture
def logger(idle_writer):
    return CSVLoggerCallback(idle_writer)


def test_golden_file(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    first = {
        "val": {"loss": 0.5, "n": {"k": 1}},
        "loss": 0.25,
        "note": 'a, "b"',
        "done": False,
        "timestamp": 17,
        "acc": math.nan,
    }
    logger.log_trial_result(1, trial, report(trial, 1, **first))
    logger.log_trial_result(
        2, trial, report(trial, 2, loss=math.inf, checkpoint_dir_name=None, late=7)
    )
    logger.on_experiment_end(trials=[])
    assert (Path(trial.local_path) / "progress.csv").read_bytes().decode() == (
        "loss,note,acc,timestamp,done,training_iteration,trial_id,val/loss,val/n/k,"
        "checkpoint_dir_name,late\r\n"
        '0.25,"a, ""b""",nan,17,False,1,t00000,0.5,1,,\r\n'
        "inf,,,,,2,t00000,,,,7\r\n"
    )


def test_a_metric_that_turns_up_late_gets_a_column_and_earlier_rows_an_empty_cell(
    logger, make_trial, report
):
    trial = make_trial()
    logger.log_trial_start(trial)
    for iteration in range(1, 7):
        late = {"eval": iteration * 10} if iteration % 3 == 0 else {}
        logger.log_trial_result(iteration, trial, report(trial, iteration, **late))
        logger.writer.flush()
    logger.on_experiment_end(trials=[])
    assert [row["eval"] for row in cells_of(trial)] == ["", "", "30", "", "", "60"]
    frame = pd.read_csv(Path(trial.local_path) / "progress.csv")
    assert frame["eval"].dropna().tolist() == [30, 60]
    assert frame["training_iteration"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_new_driver_reads_the_columns_back_and_puts_no_value_under_a_wrong_one(
    make_trial, report
):
    trial = make_trial()
    first = CSVLoggerCallback(new_idle_writer())
    first.log_trial_start(trial)
    for iteration in (1, 2, 3):
        first.log_trial_result(
            iteration, trial, report(trial, iteration, b=iteration, a=-iteration)
        )
    first.on_experiment_end(trials=[])
    with (Path(trial.local_path) / "progress.csv").open("ab") as file:
        file.write(b"4,-4,")
    trial.attempt = 2
    second = CSVLoggerCallback(new_idle_writer())
    second.log_trial_start(trial)
    second.log_trial_result(3, trial, report(trial, 3, a=-30, c="new"))
    second.log_trial_result(4, trial, report(trial, 4, b=40))
    second.on_experiment_end(trials=[])
    assert [
        (row["training_iteration"], row["b"], row["a"], row["c"]) for row in cells_of(trial)
    ] == [
        ("1", "1", "-1", ""),
        ("2", "2", "-2", ""),
        ("3", "", "-30", "new"),
        ("4", "40", "", ""),
    ]


def test_nothing_is_appended_to_a_header_that_a_crash_has_torn(logger, make_trial, report):
    trial = make_trial()
    path = Path(trial.local_path) / "progress.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"loss,tra")
    logger.log_trial_result(1, trial, report(trial, 1, loss=0.5))
    logger.on_experiment_end(trials=[])
    assert [row["loss"] for row in cells_of(trial)] == ["0.5"]


def test_a_retry_from_the_beginning_determines_its_own_columns(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, old=1))
    trial.attempt = 2
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, new=1))
    logger.on_experiment_end(trials=[])
    (row,) = cells_of(trial)
    assert row["new"] == "1"
    assert "old" not in row


@pytest.mark.parametrize(
    "text", ["=1+1", "a\rb", "a\nb", "a\r\nb", '"', ",", " padded ", "\x1b[31m", "x" * 100_000]
)
def test_texts_come_back_as_they_were(logger, make_trial, report, text):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, text=text))
    logger.on_experiment_end(trials=[])
    assert cells_of(trial)[0]["text"] == text


def test_a_text_too_long_for_csv_readers_is_cut(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, text="y" * 200_000))
    logger.on_experiment_end(trials=[])
    assert cells_of(trial)[0]["text"] == "y" * 100_000 + "..."


@pytest.mark.parametrize(
    "value", [["x"], [1, 2], Path("a"), ReportReply.STOP, np.float64(0.5), 10**30, b"x"], ids=repr
)
def test_what_is_neither_number_nor_text_is_written_as_its_text(logger, make_trial, report, value):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, other=value))
    logger.on_experiment_end(trials=[])
    assert cells_of(trial)[0]["other"] == str(value)


def test_a_lone_empty_cell_is_a_row(logger, make_trial):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, {"loss": None})
    logger.on_experiment_end(trials=[])
    assert cells_of(trial) == [{"loss": ""}]


def test_a_number_too_long_for_csv_readers_is_quoted_like_any_text_when_it_is_cut(
    logger, make_trial, report
):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, text="-" + "1" * 200_000))
    logger.on_experiment_end(trials=[])
    assert (
        b"\"'-" + b"1" * 99_999 + b'..."' in (Path(trial.local_path) / "progress.csv").read_bytes()
    )


def test_half_a_character_does_not_stop_the_logger(logger, make_trial, report):
    trial = make_trial()
    logger.log_trial_start(trial)
    logger.log_trial_result(1, trial, report(trial, 1, text="\ud800"))
    logger.on_experiment_end(trials=[])
    assert cells_of(trial)[0]["text"] == "\\ud800"


def test_a_file_that_is_not_there_is_an_empty_table(tmp_path):
    assert read_table(tmp_path / "progress.csv") == ([], [])


@pytest.mark.parametrize("torn", ["5,6", "5", '"5\r\n', "5,6,7\r\n"])
def test_a_torn_row_is_no_row(tmp_path, torn):
    path = tmp_path / "progress.csv"
    path.write_bytes(f"a,b\r\n1,2\r\n3,4\r\n{torn}".encode())
    assert read_table(path) == (["a", "b"], [["1", "2"], ["3", "4"]])


PLAIN = ["a", "b", "c", "ünï"]
TEXTS = [
    "",
    "null",
    "a,b",
    "[",
    "]",
    "],[",
    "\\",
    '"',
    "True",
    "-",
    "-0.5",
    "1e-5",
    " ",
    "\u2028",
    "a\tb",
]
texts = st.one_of(st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=5))
values = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), texts)
names = st.sampled_from([*PLAIN, "=d", "e,f", 'g"', "h\r\n", ""])
metrics = st.dictionaries(
    names, st.one_of(values, st.dictionaries(names, values, max_size=2)), max_size=5
)
plain_metrics = st.dictionaries(st.sampled_from(PLAIN), values, max_size=4)


def holds(row, result):
    flat = {}
    for key, value in result.items():
        flat.update(
            {f"{key}/{inner}": leaf for inner, leaf in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return flat.keys() <= row.keys() and all(
        is_in(cell, flat.get(column)) for column, cell in row.items()
    )


@given(
    batches=st.lists(st.lists(metrics | plain_metrics, min_size=1, max_size=3), max_size=5),
    is_restarted=st.booleans(),
)
def test_the_table_read_back_equals_the_rows(tmp_path_factory, batches, is_restarted):
    trial = Trial("t00000", {}, {})
    trial.local_path = str(tmp_path_factory.mktemp("trial"))
    trial.attempt = 1
    logger = CSVLoggerCallback(new_idle_writer())
    logger.log_trial_start(trial)
    written = []
    for batch in batches:
        for result in batch:
            written.append({**result, "training_iteration": len(written) + 1})
            trial.num_rows = len(written)
            logger.log_trial_result(0, trial, written[-1])
        logger.writer.flush()
        if is_restarted:
            trial.attempt = 2
            logger = CSVLoggerCallback(new_idle_writer())
            logger.log_trial_start(trial)
    logger.on_experiment_end(trials=[])
    rows = cells_of(trial) if written else []
    assert len(rows) == len(written)
    assert [
        (row, result) for row, result in zip(rows, written, strict=True) if not holds(row, result)
    ] == []
