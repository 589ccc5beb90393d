"""User text is escaped on terminals and in spreadsheets, and cannot imitate the engine's output."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import tuner as tune
from tuner import Result
from tuner.callbacks.files.csv_logger import read_table
from tuner.cli import main

pytestmark = pytest.mark.process

STEERING = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202e\x00"


def visible(text):
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_nothing_of_the_users_steers_the_terminal(fit, capsys, executor):
    def train(config):
        tune.report({f"loss{STEERING}": 1.0, "note": STEERING})
        if config["fails"]:
            raise type(f"Error{STEERING}", (Exception,), {})(STEERING)

    space = {
        "fails": tune.grid_search([True, False]),
        f"lr{STEERING}": tune.grid_search([STEERING]),
        "act": tune.choice([len, STEERING]),
    }
    settings = {"metric": f"loss{STEERING}", "mode": "min", "num_samples": 2}
    fit(train, space, tune=settings, verbose=2, executor=executor, failure={"max_failures": 1})
    printed = "".join(capsys.readouterr())
    assert r"\x1b[31mred" in printed
    assert visible(printed)


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "=1,2",
    "=line\nbreak",
]
LOOK_ALIKES = ["'=1", "''=1", "it's", "'", "-1.5", "+2e3", 'a"=1']
STARTS = tuple("=+-@\t\r")


def report_formulas(config):
    for text in FORMULAS + LOOK_ALIKES:
        tune.report({"=name": text, "number": -0.5, "text": "plain"})


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_texts_that_a_spreadsheet_would_run_are_made_harmless_and_come_back_as_they_were(
    fit, executor
):
    (result,) = fit(report_formulas, executor=executor)
    path = Path(result.path, "progress.csv")
    header, rows = read_table(path)
    assert [row[header.index("=name")] for row in rows] == FORMULAS + LOOK_ALIKES
    assert {row[header.index("number")] for row in rows} == {"-0.5"}
    with path.open(newline="") as file:
        names, *lines = csv.reader(file)
    assert "'=name" in names
    column = [line[names.index("'=name")] for line in lines]
    assert column[: len(FORMULAS)] == [f"'{formula}" for formula in FORMULAS]
    assert [cell for cell in column if cell.startswith(STARTS)] == ["-1.5", "+2e3"]
    reported = [
        json.loads(line)["=name"]
        for line in Path(result.path, "result.json").read_text().splitlines()
    ]
    assert reported == FORMULAS + LOOK_ALIKES
    Path(result.path, "result.json").unlink()
    from_table = list(Result.from_path(result.path).metrics_dataframe["=name"].astype(str))
    assert from_table == [*FORMULAS, "'=1", "''=1", "it's", "'", "-1.5", "2000.0", 'a"=1']


def test_what_the_command_prints_as_csv_is_harmless(fit):
    (result,) = fit(report_formulas, {"=lr": tune.choice([FORMULAS[0]])}, executor="inline")
    experiment = str(Path(result.path).parent)
    for command in (
        ["show", experiment, "0", "--rows"],
        ["show", experiment],
        ["ls", str(Path(experiment).parent)],
    ):
        printed = CliRunner().invoke(main, [*command, "-f", "csv"])
        assert printed.exit_code == 0, printed.output
        assert not [
            cell
            for line in csv.reader(io.StringIO(printed.output, newline=""))
            for cell in line
            if is_run(cell)
        ]
    for options in (["--rows"], []):
        printed = CliRunner().invoke(main, ["export", experiment, *options])
        table = list(csv.reader(io.StringIO(printed.output, newline="")))
        assert len(table) > 1
        assert not [cell for line in table for cell in line if is_run(cell)]
        assert "'=name" in table[0]


def is_run(cell):
    """Return whether a spreadsheet would take the cell for a formula."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith(STARTS)
    return False


FRAMES = [
    {
        "kind": "exited",
        "outcome": "failed",
        "failure": {"kind": "X", "message": "", "traceback": ""},
    },
    {"kind": "result", "metrics": {"loss": -1e9, "training_iteration": 1}, "checkpoint": None},
    {
        "q": 1,
        "e": 1,
        "t": 0.0,
        "k": "exited",
        "id": "t00001",
        "a": 1,
        "outcome": "failed",
        "failure": None,
    },
    {"verdict": "stop", "save": False},
]


def imitate(config):
    lines = "".join(json.dumps(frame) + "\n" for frame in FRAMES)
    sys.stdout.write(lines)
    sys.stderr.write(lines)
    for frame in FRAMES:
        tune.report(
            {
                "loss": config["x"],
                "like": frame,
                "text": json.dumps(frame) + "\n" + lines,
                **{f"my_{key}": 1 for key in frame},
            }
        )
    tune.report(
        {
            "loss": config["x"],
            "kind": "exited",
            "outcome": "failed",
            "verdict": "stop",
            "q": 7,
            "k": "close",
        }
    )
    for tag in (
        {"$float": "NaN"},
        {"$object": "x"},
        {"$tuple": [1]},
        {"$items": [[1, 2]]},
        {"$$float": "NaN"},
    ):
        tune.report({"loss": config["x"], "tag": tag})


def test_a_result_or_a_printed_line_that_imitates_the_engine_changes_nothing(build, tmp_path):
    space = {"x": tune.grid_search([1.0, 2.0])}
    grid = build(imitate, space, tune={"metric": "loss", "mode": "min"}).fit()
    assert (grid.num_terminated, grid.num_errors) == (2, 0)
    for result, loss in zip(grid, [1.0, 2.0], strict=True):
        frame = result.metrics_dataframe
        assert frame["training_iteration"].tolist() == list(range(1, 11))
        assert set(frame["loss"]) == {loss}
        assert set(frame["trial_id"]) == {result.trial_id}
        assert result.metrics["tag"] == {"$$float": "NaN"}
        assert "exited" in Path(result.path, "stdout").read_text()
    restored = tune.Tuner.restore(
        tmp_path / "experiment",
        imitate,
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
    )
    again = restored.get_results()
    assert [result.metrics for result in again] == [result.metrics for result in grid]


@pytest.mark.parametrize(
    "name", ["trial_id", "training_iteration", "pid", "config", "hostname", "date"]
)
def test_a_result_cannot_pass_for_that_of_another_trial(fit, name):
    def train(config):
        tune.report({"loss": 1.0})
        tune.report({"loss": 1.0, name: "t00001"})

    first, second = fit(train, {"x": tune.grid_search([1, 2])}, executor="inline")
    assert [row["training_iteration"] for row in first.metrics_dataframe.to_dict("records")] == [
        1,
        2,
    ]
    assert first.metrics.get(name) != "t00001"
    assert (first.metrics["trial_id"], second.metrics["trial_id"]) == ("t00000", "t00001")
