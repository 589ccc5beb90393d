"""The page on tables documents exactly the columns that exist."""

import csv
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from tuner.core.result import AUTO_FILLED

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^##+ (.*?)\n(.*?)(?=^##|\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))
ROW = re.compile(r"^\| `(.*?)` \| (.*?) \|", flags=re.MULTILINE)
PLACEHOLDERS = {
    "<metric>": ["accuracy", "loss"],
    "config/<parameter>": ["config/lr", "config/momentum"],
}
KINDS = {"str": "string", "bool": "boolean", "int": "integer", "float": "floating"}
RESULT = "Keys of a result"
CHARTS = [
    title for title in SECTIONS if title.islower() and "." not in title and title != "importances"
]


def columns(section):
    """Return the columns that a section documents, in their order, with their types."""
    named = [(name, kind) for name, kind in ROW.findall(SECTIONS[section])]
    return {column: kind for name, kind in named for column in PLACEHOLDERS.get(name, [name])}


@pytest.fixture
def grid(experiment):
    return experiment("pbt")


def charts(experiment):
    data = experiment("pbt").plot.data
    return {
        "learning_curves": data.learning_curves(),
        "parallel_coordinates": experiment("hyperband").plot.data.parallel_coordinates(),
        "slice": data.slice(),
        "history": data.history(),
        "rungs": experiment("asha").plot.data.rungs(),
        "lineage": data.lineage(),
        "schedules": data.schedules(),
        "slots": data.slots(),
        "pareto": data.pareto(("accuracy", "loss"), ("max", "min")),
        "hypervolume": data.hypervolume(None, ("accuracy", "loss"), ("max", "min")),
        "slowest": data.slowest(),
        "failed": experiment("plain").plot.data.failed(),
    }


def test_a_result_has_the_keys_that_the_page_documents(grid):
    row = {key for key in grid[0].metrics if key not in ("config", "experiment_tag")}
    assert row == set(columns(RESULT))
    # The others are those of which the page tells beside the table, and those that every table has
    # in another way.
    beside = set(re.findall(r"`(\w+)`", SECTIONS[RESULT].rpartition("|\n")[2]))
    assert AUTO_FILLED - row == beside | {"config", "experiment_tag"}


def test_the_frames_of_results_have_these_columns(grid):
    frames = {
        "ResultGrid.get_dataframe": grid.get_dataframe(),
        "Result.metrics_dataframe": grid[0].metrics_dataframe,
        "ResultGrid.get_metrics_dataframe": grid.get_metrics_dataframe(),
    }
    for section, frame in frames.items():
        assert set(frame.columns) == {*columns(RESULT), *columns(section)}
    names = list(grid.get_dataframe().columns)
    assert names[:5] == ["trial_id", "accuracy", "loss", "training_iteration", "metric_iteration"]
    assert names[-1] == "logdir"


def test_the_tables_of_several_metrics_have_these_columns(experiment):
    grid = experiment("limited")
    assert set(grid.get_dataframe()) - set(grid[:1].feasible.get_dataframe()) <= {"feasible"}
    front = {"<metric>": ["accuracy", "latency_ms", "size_mb"]}
    front["config/<parameter>"] = ["config/width", "config/layers"]
    told = [
        column
        for name, _ in ROW.findall(SECTIONS["ResultGrid.pareto"])
        for column in front.get(name, [name])
    ]
    assert list(grid.pareto().columns) == told
    assert list(grid.hypervolume().columns) == list(columns("ResultGrid.hypervolume"))


def test_the_files_of_a_trial_have_these_keys(grid):
    directory = Path(grid[0].path)
    rows = [json.loads(line) for line in (directory / "result.json").read_text().splitlines()]
    assert {key for row in rows for key in row} == {*columns(RESULT), *columns("result.json")}
    with (directory / "progress.csv").open(newline="") as file:
        assert set(next(csv.reader(file))) == set(columns(RESULT))
    assert set(json.loads((directory / "params.json").read_text())) == {"lr", "momentum"}


@pytest.mark.parametrize("name", CHARTS)
def test_the_data_of_a_chart_have_these_columns_and_types(experiment, name):
    frame = charts(experiment)[name]
    told = columns(name)
    assert list(frame.columns) == list(told)
    assert len(frame) > 0
    for column, kind in told.items():
        if kind in KINDS:
            assert pd.api.types.infer_dtype(frame[column].dropna()) == KINDS[kind], column


@pytest.mark.process
def test_importances_have_these_columns(experiment):
    pytest.importorskip("optuna")
    assert list(experiment("asha").plot.data.importances().columns) == list(columns("importances"))


def test_every_method_has_its_section(grid):
    public = {name for name in dir(type(grid.plot.data)) if not name.startswith("_")}
    assert public == {*CHARTS, "importances"}


@pytest.mark.heavy
def test_parquet_files_have_these_columns(grid, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    trials, results = (parquet.read_schema(path).names for path in grid.to_parquet(tmp_path))
    assert trials == list(grid.get_dataframe().columns)
    assert results[0] == "trial_id"
    assert set(results) == set(columns(RESULT))
