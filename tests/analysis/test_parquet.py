"""Parquet files hold every trial and every result, with types, and nothing is lost in them."""

import json
import math
import sys

import pytest

import tuner as tune
from tests.analysis.validated import validate
from tuner.analysis import ResultGrid
from tuner.journal.rows import MemoryRows

pytestmark = pytest.mark.heavy
arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def grid(make, tmp_path):
    def build(reported, configs=None):
        trials = [
            make.trial(name, results, config=(configs or {}).get(name, {}))
            for name, results in reported.items()
        ]
        rows = MemoryRows({name: make.rows(name, results) for name, results in reported.items()})
        return ResultGrid(trials, str(tmp_path / "experiment"), rows)

    return build


def the_column(grid, tmp_path, name="config/x", file="trials.parquet"):
    grid.to_parquet(tmp_path / "tables")
    table = parquet.read_table(tmp_path / "tables" / file)
    field = table.schema.field(name)
    return (
        table.column(name).to_pylist(),
        str(field.type),
        field.metadata == {b"tuner.encoding": b"json"},
    )


def test_a_directory_gets_both_tables(experiment, tmp_path):
    grid = experiment("pbt")
    written = grid.to_parquet(tmp_path / "tables")
    assert [path.name for path in written] == ["trials.parquet", "results.parquet"]
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        "results.parquet",
        "trials.parquet",
    ]
    trials, results = map(parquet.read_table, written)
    frame = grid.get_dataframe()
    assert trials.column_names == list(frame.columns)
    for name in ("accuracy", "trial_id", "training_iteration", "config/lr", "status"):
        assert trials.column(name).to_pylist() == frame[name].tolist()
    assert results.num_rows == sum(len(result.metrics_dataframe) for result in grid)
    own = results.filter(arrow.compute.equal(results.column("trial_id"), "t00001"))
    assert own.column("accuracy").to_pylist() == grid[1].metrics_dataframe["accuracy"].tolist()


def test_a_file_gets_the_trials(experiment, tmp_path):
    [path] = experiment("asha").to_parquet(str(tmp_path / "all.parquet"))
    assert path == tmp_path / "all.parquet"
    assert [entry.name for entry in tmp_path.iterdir()] == ["all.parquet"]
    assert parquet.read_table(path).num_rows == 20


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "double"),
        (["a", None], "string"),
        ([True, None], "bool"),
        ([[8, 4], [16]], "list<element: int64>"),
        ([(8, 4), (2,)], "list<element: int64>"),
        ([[[1], []], [[2, 3]]], "list<element: list<element: int64>>"),
    ],
)
def test_values_of_one_type_keep_it(grid, tmp_path, values, kind):
    found, its_kind, is_json = the_column(
        grid({"a": [], "b": []}, {"a": {"x": values[0]}, "b": {"x": values[1]}}), tmp_path
    )
    assert found == [list(value) if isinstance(value, tuple) else value for value in values]
    assert (its_kind, is_json) == (kind, False)


@pytest.mark.parametrize("values", [["a", 1], [[1], "b"], [True, 1], [[1, "a"], [2]], [10**30, 1]])
def test_values_of_several_types_are_json_texts(grid, tmp_path, values):
    found, kind, is_json = the_column(
        grid({"a": [], "b": []}, {"a": {"x": values[0]}, "b": {"x": values[1]}}), tmp_path
    )
    assert (kind, is_json) == ("string", True)
    assert [json.loads(text) for text in found] == values


def test_objects_are_described(grid, tmp_path):
    [text, _], kind, is_json = the_column(
        grid({"a": [], "b": []}, {"a": {"x": len}, "b": {}}), tmp_path
    )
    assert ("built-in function len" in text, kind, is_json) == (True, "string", True)


def test_unreported_values_are_missing_and_nan_is_nan(grid, tmp_path):
    found, kind, _ = the_column(
        grid({"a": [{"loss": math.nan}, {"other": 1}, {"loss": 2.0}]}),
        tmp_path,
        "loss",
        "results.parquet",
    )
    assert (math.isnan(found[0]), found[1:], kind) == (True, [None, 2.0], "double")


def test_nested_metrics_are_flat(grid, tmp_path):
    assert the_column(
        grid({"a": [{"val": {"loss": 0.5}}]}), tmp_path, "val/loss", "results.parquet"
    )[0] == [0.5]


def test_tables_that_are_put_together_from_parts_agree(grid, tmp_path, monkeypatch):
    monkeypatch.setattr("tuner.analysis.tables._CHUNK", 2)
    results = [
        {"whole": 1, "odd": 1},
        {"whole": 2, "odd": 2},
        {"whole": 2.5, "odd": "text", "late": [1]},
        {"odd": None},
        {"odd": [1]},
    ]
    grid = grid({"a": results})
    assert the_column(grid, tmp_path, "whole", "results.parquet")[:2] == (
        [1.0, 2.0, 2.5, None, None],
        "double",
    )
    assert the_column(grid, tmp_path, "late", "results.parquet")[0] == [None, None, [1], None, None]
    found, kind, is_json = the_column(grid, tmp_path, "odd", "results.parquet")
    assert (found, kind, is_json) == (["1", "2", '"text"', None, "[1]"], "string", True)


@pytest.mark.parametrize("reported", [{}, {"a": []}])
def test_without_results_the_tables_are_written(grid, tmp_path, reported):
    trials, results = grid(reported).to_parquet(tmp_path)
    assert (parquet.read_table(trials).num_rows, parquet.read_table(results).num_rows) == (
        len(reported),
        0,
    )


def test_a_failed_write_leaves_the_old_file(experiment, tmp_path, monkeypatch):
    path = tmp_path / "all.parquet"
    path.write_text("old")

    def fail(*arguments, **more):
        raise OSError("disk full")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        experiment("asha").to_parquet(path)
    assert (path.read_text(), [entry.name for entry in tmp_path.iterdir()]) == (
        "old",
        ["all.parquet"],
    )


def test_without_pyarrow_the_extra_is_named(grid, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "tuner-hpo\[parquet\]"'):
        grid({}).to_parquet(tmp_path)


def test_validated_metrics_are_written(fit, tmp_path):
    def train(config):
        for _ in range(2):
            with tune.checkpoint_dir() as directory:
                tune.report({}, checkpoint=tune.Checkpoint.from_directory(directory))

    fit(train, executor="inline")
    validate(tmp_path / "experiment", {"t00000": {0: {"acc": 0.5}}})
    grid = ResultGrid.from_directory(tmp_path / "experiment")
    assert the_column(grid, tmp_path, "acc", "results.parquet")[0] == [0.5, None]
