"""The files of an experiment's directory, as people, notebooks and TensorBoard rely on them."""

import csv
import json
import logging
import math
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tuner as tune
from schedulers import ASHAScheduler
from tuner import Checkpoint, ResultGrid

GOLDEN = """\
environment.json
experiment.json
journal/00000000000000000001.log
lock
snapshot/00000000000000000014.json
t00000/checkpoint_000000/.manifest.json
t00000/checkpoint_000000/state/weights.txt
t00000/events.out.tfevents.*
t00000/params.json
t00000/progress.csv
t00000/result.json
t00000/stderr
t00000/stdout
t00001/error.txt
t00001/events.out.tfevents.*
t00001/params.json
t00001/progress.csv
t00001/result.json
t00001/stderr
t00001/stdout
"""

FILLED_IN = [
    "timestamp", "checkpoint_dir_name", "should_checkpoint", "done", "training_iteration",
    "trial_id", "date", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip",
    "time_since_restore", "iterations_since_restore", "num_exploits",
]  # fmt: skip


def train(config):
    print("training with", config["lr"])
    print("a word on stderr", file=sys.stderr)
    logging.getLogger("mine").warning("a warning of the user's")
    subprocess.run(["echo", "from a child process"], check=True)
    for epoch in range(1, 3):
        tune.report({"loss": 1 / epoch, "gap": math.nan, "val": {"accuracy": epoch / 10}})
    if config["fails"]:
        raise ValueError("the second trial fails")
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary, "state").mkdir()
        Path(temporary, "state", "weights.txt").write_text("0.5")
        tune.report(
            {"loss": 0.1, "val": {"accuracy": 0.9}, "late": 7},
            checkpoint=Checkpoint.from_directory(temporary),
        )


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    storage = tmp_path_factory.mktemp("storage")
    tuner = tune.Tuner(
        train,
        param_space={
            "lr": tune.choice([0.1]),
            "fails": tune.grid_search([False, True]),
            "model": {"depth": 3, "act": print},
        },
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", seed=7, scheduler=ASHAScheduler(max_t=100, grace_period=50)
        ),
        run_config=tune.RunConfig(
            name="golden", storage_path=storage, verbose=0, resources={"cpu": 2, "gpu": 0}
        ),
    )
    assert isinstance(tuner.fit(), ResultGrid)
    assert [path.name for path in storage.iterdir()] == ["golden"]
    return storage / "golden"


def lines_of(path):
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_golden_listing(directory):
    files = sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    listing = "".join(re.sub(r"tfevents\..*", "tfevents.*", name) + "\n" for name in files)
    assert listing == GOLDEN


def test_params_json_is_the_configuration(directory):
    assert (directory / "t00000" / "params.json").read_text() == (
        '{\n  "fails": false,\n  "lr": 0.1,\n  "model": {\n    "act": "<built-in function '
        'print>",\n    "depth": 3\n  }\n}\n'
    )


def test_result_json_has_a_strict_json_object_per_result_nested_with_the_configuration(directory):
    rows = lines_of(directory / "t00000" / "result.json")
    assert [row["loss"] for row in rows] == [1.0, 0.5, 0.1]
    assert [row["val"] for row in rows] == [{"accuracy": 0.1}, {"accuracy": 0.2}, {"accuracy": 0.9}]
    assert [row.get("gap") for row in rows] == ["NaN", "NaN", None]
    assert [row["checkpoint_dir_name"] for row in rows] == [None, None, "checkpoint_000000"]
    assert all(
        row["config"]
        == {"fails": False, "lr": 0.1, "model": {"act": "<built-in function print>", "depth": 3}}
        for row in rows
    )
    assert list(rows[0]) == ["loss", "gap", "val", *FILLED_IN, "config"]
    assert len(lines_of(directory / "t00001" / "result.json")) == 2


def test_progress_csv_grows_a_column_for_what_comes_late(directory):
    with (directory / "t00000" / "progress.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["loss", "gap", *FILLED_IN, "val/accuracy", "late"]
    assert [row[-1] for row in rows] == ["", "", "7"]


def test_pandas_reads_both_tables_alike(directory):
    from_csv = pd.read_csv(directory / "t00000" / "progress.csv")
    from_json = pd.read_json(directory / "t00000" / "result.json", lines=True)
    assert from_csv["loss"].tolist() == from_json["loss"].tolist() == [1.0, 0.5, 0.1]
    assert from_csv["gap"].isna().all()
    assert from_csv["val/accuracy"].tolist() == [0.1, 0.2, 0.9]


def test_tensorboard_lists_the_curves(directory):
    events = EventAccumulator(str(directory / "t00000"))
    events.Reload()
    assert {"loss", "val/accuracy", "late"} <= set(events.Tags()["scalars"])
    assert [(event.step, round(event.value, 4)) for event in events.Scalars("loss")] == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.1),
    ]
    assert [event.step for event in events.Scalars("late")] == [3]


def test_what_a_trial_prints_stands_in_its_directory(directory):
    assert (
        directory / "t00000" / "stdout"
    ).read_text() == "training with 0.1\nfrom a child process\n"
    assert (
        directory / "t00000" / "stderr"
    ).read_text() == "a word on stderr\na warning of the user's\n"


def test_error_txt_holds_the_traceback_of_user_code_only(directory):
    log = (directory / "t00001" / "error.txt").read_text()
    assert re.match(
        r"Failure #1 \(attempt 1, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)\nValueError: the second "
        r"trial fails\nTraceback",
        log,
    )
    assert 'raise ValueError("the second trial fails")' in log
    assert "session.py" not in log


def test_a_checkpoint_has_the_users_files_and_a_manifest_of_where_it_comes_from(directory):
    checkpoint = directory / "t00000" / "checkpoint_000000"
    assert (checkpoint / "state" / "weights.txt").read_text() == "0.5"
    origin = json.loads((checkpoint / ".manifest.json").read_text())["body"]
    assert (origin["trial_id"], origin["iteration"], origin["metrics"]["late"]) == ("t00000", 3, 7)
    assert list(origin["files"]) == ["state/weights.txt"]


def test_experiment_json_is_the_declaration(directory):
    declaration = json.loads(
        (directory / "experiment.json").read_text(), parse_constant=pytest.fail
    )
    assert declaration["format_version"] == 1
    assert (declaration["name"], declaration["seed"], declaration["num_samples"]) == (
        "golden",
        7,
        1,
    )
    assert (declaration["metric"], declaration["mode"]) == ("loss", "min")
    assert (declaration["trainable"]["name"], declaration["trainable"]["qualname"]) == (
        "train",
        "train",
    )
    assert declaration["param_space"]["model"] == {
        "depth": 3,
        "act": {"@": "absent", "what": "builtins.print"},
    }
    assert declaration["param_space"]["lr"] == {
        "@": "Categorical",
        "categories": {"@": "tuple", "items": [0.1]},
        "is_ordered": False,
    }
    assert declaration["tune_config"]["scheduler"] == {
        "@": "ASHAScheduler",
        "max_t": 100,
        "grace_period": 50,
    }
    assert declaration["settings"]["max_trials"] == 2


def test_every_line_of_the_journal_is_checksummed_strict_json_and_numbered(directory):
    (segment,) = (directory / "journal").iterdir()
    numbers, kinds = [], []
    for line in segment.read_bytes().splitlines():
        checksum, body = line[:8], line[9:]
        assert int(checksum, 16) == zlib.crc32(body)
        record = json.loads(body, parse_constant=pytest.fail)
        kinds.append(record["k"])
        numbers += [record["q"]] if "q" in record else []
    assert numbers == list(range(1, len(numbers) + 1))
    assert [kinds.count(kind) for kind in ("suggested", "started", "result", "exited")] == [
        2,
        2,
        5,
        2,
    ]


def test_two_experiments_with_the_same_storage_keep_apart(fit, tmp_path):
    def train(config):
        tune.report({"x": 1})

    first, second = (fit(train, name=name).experiment_path for name in ("first", "second"))
    assert {Path(first).parent, Path(second).parent} == {tmp_path}
    assert (Path(first) / "t00000" / "result.json").exists()
    assert (Path(second) / "t00000" / "result.json").exists()


def test_nothing_but_a_function_is_needed(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))

    def train_func(config):
        for epoch in range(config["epochs"]):
            tune.report({"epoch": epoch})

    results = tune.Tuner(train_func, param_space={"epochs": 5}).fit()
    assert len(results) == 1
    assert results[0].status == "TERMINATED"
    assert results.get_best_result().metrics["epoch"] == 4
    (directory,) = (tmp_path / "tuner_results").iterdir()
    assert re.fullmatch(r"train_func_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", directory.name)
    assert str(directory) in capsys.readouterr().out


def test_experiments_without_a_name_never_share_a_directory(fit, tmp_path):
    def train(config):
        return {"x": 1}

    paths = {fit(train, name=None).experiment_path for _ in range(3)}
    assert len(paths) == 3


def test_a_function_that_returns_its_metrics_has_one_result(fit, rows_of):
    (result,) = fit(lambda config: {"score": 3})
    assert [row["score"] for row in rows_of(result.path)] == [3]
    assert result.metrics["done"] is True
