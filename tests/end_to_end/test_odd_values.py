"""Odd values in reports stop no experiment and are written as `metric_conversion` documents.

The table is in the docstring of `tuner.execution.metric_conversion`.
"""

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from searchers import ConcurrencyLimiter, OptunaSearch
from searchers.random_search import BasicVariantGenerator

SCRIPT = Path(__file__).parent / "scripts" / "odd_values.py"
ROOT = SCRIPT.parents[3]


def strict(text):
    return json.loads(
        text, parse_constant=lambda literal: pytest.fail(f"{literal} is not strict JSON")
    )


def json_documents(directory):
    """Yield every JSON value in every file of an experiment."""
    for path in Path(directory).rglob("*"):
        if path.suffix == ".log":
            yield from (strict(line.split(b" ", 1)[1]) for line in path.read_bytes().splitlines())
        elif path.name == "result.json":
            yield from map(strict, path.read_bytes().splitlines())
        elif path.suffix == ".json" or (path.name == "lock" and path.stat().st_size):
            yield strict(path.read_bytes())


EXPECTED = {
    "python": {
        "int": 1,
        "float": 0.5,
        "bool": True,
        "text": "ü",
        "none": None,
        "list": [1, [2.5, None]],
        "dict": {"deep": {"er": 1}},
    },
    "not_finite": {"nan": "NaN", "inf": "Infinity", "minus": "-Infinity", "tensor": "NaN"},
    "scalars": {"f32": 0.5, "i8": -3, "bool": True, "0d": 2.5, "one": 7},
    "torch": {"grad": 6.0, "one": 3, "bf16": 1.0, "few": [0.0, 1.0, 2.0]},
    "arrays": {
        "few": [[0, 1], [2, 3]],
        "many": {"shape": [65], "dtype": "float64", "min": 0.0, "max": 64.0},
        "tensor": {"shape": [4, 25], "dtype": "torch.int64", "min": 0, "max": 99},
    },
    "others": {
        "set": "{1}",
        "bytes": ("b'" + "b" * 500)[:199] + "…",
        "complex": "1j",
        "object": "<Silent without a repr>",
        "big": str(2**63),
        "bigger": ("-1" + "0" * 400)[:199] + "…",
    },
    "keys": {"1": 1, "(2, 3)": 2, "None": 3, "0.5": 4},
}
WARNED = [
    "arrays/many",
    "arrays/tensor",
    *(
        f"others/{name}"
        for name in ("big", "bigger", "bytes", "complex", "lambda", "object", "set")
    ),
]


@pytest.mark.heavy  # PyTorch's values are among them
@pytest.mark.parametrize("executor", ["process", "inline"])
def test_every_kind_of_value_is_converted_as_the_table_lists(tmp_path, executor):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, executor],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = strict(done.stdout)
    assert found["status"] == "TERMINATED"
    assert found["num_rows"] == 2 * len(EXPECTED) + 1
    assert found["warned"] == WARNED  # once for each name, though each was reported twice
    assert found["restored_alike"]
    assert found["has_torch"] == (executor == "inline")
    rows = list(
        map(strict, (tmp_path / "exp" / "t00000" / "result.json").read_bytes().splitlines())
    )
    for row, (name, expected) in zip(rows, [*EXPECTED.items()] * 2, strict=False):
        assert name in row
        assert (
            row[name]
            .pop("lambda", "<function values.<locals>.<lambda> at 0x")
            .startswith("<function values.<locals>.<lambda> at 0x")
        )
        assert row[name] == expected
    assert len(list(json_documents(tmp_path))) > len(rows)


REFUSED = {
    "not a dictionary": ([("loss", 1)], "TypeError: metrics must be a dictionary, got list"),
    "a number": (0.5, "TypeError: metrics must be a dictionary, got float"),
    "keys that collide": ({1: 0, "1": 0}, "ValueError: the names 1 and '1' both become '1'"),
    "names that collide": (
        {"a/b": 1, "a": {"b": 2}},
        "ValueError: 'a/b' and {'a': {'b'}} both become 'a/b'",
    ),
    "too many names": (
        {f"k{number}": 0 for number in range(1001)},
        "ValueError: a result may hold at most 1000 names, got 1001",
    ),
    "too many bytes": (
        {"text": "x" * 2**20},
        "ValueError: a result may take at most 1048576 bytes as JSON",
    ),
    "too many numbers": ({"list": list(range(2**20))}, "more than fit into a result"),
}


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_a_value_that_cannot_be_reported_fails_its_trial_alone_with_the_reason(
    fit, tmp_path, executor
):
    def train(config):
        tune.report({"loss": 1.0})
        if config["what"] is not None:
            tune.report(REFUSED[config["what"]][0])
        tune.report({"loss": 2.0})

    grid = fit(train, {"what": tune.grid_search([None, *REFUSED, None])}, executor=executor)
    assert [str(result.status) for result in grid] == [
        "TERMINATED",
        *["ERROR"] * len(REFUSED),
        "TERMINATED",
    ]
    for result, (_, message) in zip(list(grid)[1:-1], REFUSED.values(), strict=True):
        assert message in str(result.error)
        assert len(result.metrics_dataframe) == 1
    assert len(list(json_documents(tmp_path))) > 2 * len(grid)


def test_a_report_after_the_end_is_refused_and_has_no_effect(fit):
    answers = []

    def train(config):
        def late():
            over.wait(30)
            try:
                tune.report({"loss": 9.0})
            except RuntimeError as refusal:
                answers.append(str(refusal))

        tune.report({"loss": 1.0})
        threads.append(threading.Thread(target=late))
        threads[-1].start()

    over, threads = threading.Event(), []
    (result,) = fit(train, executor="inline")
    over.set()
    for thread in threads:
        thread.join()
    assert answers == [
        "trial t00000 is over, nothing can be reported any more; join threads before returning"
    ]
    assert len(result.metrics_dataframe) == 1


ODD = [
    None,
    "0.5",
    "",
    [1.0],
    {"a": 1},
    True,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    {1},
    b"1",
    1e308,
    -1,
    0,
]


@pytest.fixture
def metric_need_not_be_a_number(monkeypatch):
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")


# An odd time may end all trials at their first result.
@pytest.mark.usefixtures("metric_need_not_be_a_number")
@pytest.mark.parametrize(
    "search", [BasicVariantGenerator, OptunaSearch, lambda: ConcurrencyLimiter(OptunaSearch(), 2)]
)
@pytest.mark.parametrize(
    "schedule",
    [
        lambda: None,
        lambda: ASHAScheduler(max_t=50, brackets=2),
        lambda: ASHAScheduler("time", max_t=50),
    ],
)
@pytest.mark.parametrize("stop", [None, {"loss": 1e9, "time": "< -1e9"}])
@pytest.mark.filterwarnings("ignore:the reported value")
def test_an_odd_objective_or_time_is_kept_and_ends_nothing(fit, tmp_path, schedule, search, stop):
    """A value of the wrong type is kept in its row, and no scheduler or searcher fails."""

    def train(config):
        for number, odd in enumerate(ODD):
            tune.report({"loss": odd, "time": ODD[number - config["n"]], "step": number})
        for time in (5, 4, 4, 4):  # falls, and repeats itself
            tune.report({"loss": 1.0, "time": time})
        tune.report({})
        tune.report({"other": 1})

    settings = {
        "metric": "loss",
        "mode": "min",
        "scheduler": schedule(),
        "search_alg": search(),
        "num_samples": 6,
        "seed": 1,
    }
    checkpoints = tune.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss")
    grid = fit(
        train,
        {"n": tune.randint(0, 9)},
        tune=settings,
        stop=stop,
        executor="inline",
        checkpoint_config=checkpoints,
    )
    assert (len(grid), grid.num_errors) == (6, 0)
    for result in grid:
        steps = result.metrics_dataframe["step"].dropna().tolist()
        assert steps == list(range(len(steps)))
    if settings["scheduler"] is None and stop is None:
        assert {len(result.metrics_dataframe) for result in grid} == {len(ODD) + 6}
        assert grid.get_best_result(scope="all").trial_id == "t00000"  # no infinity is the best
    assert len(list(json_documents(tmp_path))) > 6


@pytest.mark.parametrize("schedule", [lambda: None, lambda: ASHAScheduler(max_t=5)])
def test_trials_that_never_report_or_never_the_metric_end_like_others(fit, monkeypatch, schedule):
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")

    def train(config):
        for _ in range(config["reports"]):
            tune.report({} if config["reports"] == 2 else {"loss": None})

    space = {"reports": tune.grid_search([0, 2, 3])}
    settings = {
        "metric": "loss",
        "mode": "min",
        "scheduler": schedule(),
        "search_alg": BasicVariantGenerator(),
    }
    grid = fit(train, space, tune=settings, executor="inline")
    assert [str(result.status) for result in grid] == ["TERMINATED"] * 3
    assert [len(result.metrics_dataframe) for result in grid] == [0, 2, 3]


@pytest.mark.parametrize(
    ("mode", "stop", "num_warnings"),
    [("min", {"loss": 0.1}, 1), ("min", {"loss": "<= 0.1"}, 0), ("max", {"loss": 0.1}, 0)],
)
def test_a_stop_threshold_that_a_minimised_metric_meets_at_once_logs_one_warning(
    fit, caplog, mode, stop, num_warnings
):
    fit(
        lambda config: [tune.report({"loss": 1.0 / time}) for time in (1, 2)],
        tune={"metric": "loss", "mode": mode, "num_samples": 3},
        stop=stop,
    )
    found = [
        record.getMessage()
        for record in caplog.records
        if "write stop={'loss': '<= 0.1'}" in record.getMessage()
    ]
    assert len(found) == num_warnings
