"""``tuner explain``, ``tail``, ``export``, ``report`` and ``what-if``."""

import io
import json
import re
import sys

import pandas as pd
import pytest

import tuner as tune


def test_a_trials_story_is_told(call, odd):
    told = call("explain", "odd", "1").stdout
    assert told.startswith("t00001: ERROR after 2 iterations")
    assert "attempt 1 ends, failed: ValueError: half-way" in told


@pytest.mark.process
def test_why_an_experiment_has_ended_is_told(call, plain):
    assert call("explain", "plain").stdout == "3 of 3 trials have ended\n"
    stop_search = tune.StopSearch(patience=3, min_trials=10)
    tune.Tuner(
        lambda config: tune.report({"loss": config["x"]}),
        param_space={"x": tune.choice([1, 2])},
        tune_config=tune.TuneConfig(
            "loss", "min", 90, search_alg="random", seed=0, stop_search=stop_search
        ),
        run_config=tune.RunConfig(
            name="ended", storage_path=plain.parent, executor="inline", verbose=0
        ),
    ).fit()
    told = call("explain", "ended").stdout
    assert re.match(r"stopped after 1\d of 90 trials: the last 3 trials have gained 0 loss, ", told)
    listed = json.loads(call("ls", "-f", "json").stdout)
    remarks = {record["name"]: record.get("remark") for record in listed}
    assert remarks == {"ended": told.strip(), "plain": None}


@pytest.fixture
def printed(plain):
    (plain / "t00001" / "stdout").write_text("".join(f"line {number}\n" for number in range(30)))
    (plain / "t00001" / "stderr").write_text("careful")
    (plain / "t00000" / "stdout").write_text("")
    return plain


def test_the_last_lines_of_both_files_are_shown(call, printed):
    assert (
        call("tail", "plain", "1", "-n", "2").stdout == "line 28\nline 29\n==> stderr <==\ncareful"
    )
    assert len(call("tail", "plain", "1", "--file", "stdout").stdout.splitlines()) == 10
    assert (
        call("tail", "plain", "1", "-n", "99", "--file", "stdout").stdout.splitlines()[0]
        == "line 0"
    )


@pytest.fixture
def group(printed):
    for rank in (1, 2, 10):
        (printed / "t00001" / f"stdout.rank{rank}").write_text(f"of rank {rank}\n")
    (printed / "t00001" / "stdout.rank0x").write_text("no worker's\n")
    (printed / "t00001" / "stdout").write_text("of rank 0\n")
    return printed


def test_the_output_of_each_worker_of_a_group_is_shown(call, group):
    told = call("tail", "plain", "1", "--file", "stdout").stdout
    assert told == (
        "of rank 0\n==> stdout.rank1 <==\nof rank 1\n==> stdout.rank2 <==\nof rank 2\n"
        "==> stdout.rank10 <==\nof rank 10\n"
    )
    chosen = call("tail", "plain", "1", "--rank", "2", "--rank", "0").stdout
    assert chosen == "of rank 0\n==> stdout.rank2 <==\nof rank 2\n==> stderr <==\ncareful"


def test_results_read_the_output_of_each_worker(group):
    result = tune.ResultGrid.from_directory(group)[1]
    assert result.get_output() == "of rank 0\n"
    assert result.get_output("stdout", rank=10) == "of rank 10\n"
    assert result.get_output("stderr", rank=1) == ""
    with pytest.raises(ValueError, match="'stdout' or 'stderr', got 'error'"):
        result.get_output("error")


def test_long_lines_are_shown_whole(call, printed):
    (printed / "t00001" / "stdout").write_text("a\n" + "x" * 200_000 + "\nend\n")
    assert len(call("tail", "plain", "1", "-n", "2", "--file", "stdout").stdout) == 200_005


def test_a_trial_that_has_printed_nothing_ends_with_1(call, printed):
    assert "t00000 has printed nothing" in call("tail", "plain", "0", code=1).stderr


def test_following_ends_when_no_driver_runs_the_experiment(call, printed):
    assert call("tail", "plain", "1", "-f", "-n", "1", "--file", "stdout").stdout == "line 29\n"


def test_the_table_of_trials_is_exported_as_the_grid_has_it(call, plain):
    expected = tune.ResultGrid.from_directory(plain).get_dataframe()
    assert expected.pop("error").isna().all()  # None there, an empty cell here
    pd.testing.assert_frame_equal(
        pd.read_csv(io.StringIO(call("export", "plain").stdout)).drop(columns="error"),
        expected,
        check_dtype=False,
        check_frame_type=False,
    )
    assert [
        row["loss"] for row in json.loads(call("export", "plain", "--to", "json").stdout)
    ] == expected["loss"].tolist()


def test_all_results_are_exported_trial_after_trial(call, plain, tmp_path):
    assert call("export", "plain", "--rows", "-o", tmp_path / "curves.csv").stdout == ""
    table = pd.read_csv(tmp_path / "curves.csv")
    assert table["trial_id"].tolist() == ["t00000"] * 4 + ["t00001"] * 4 + ["t00002"] * 4
    assert table["loss"].tolist()[4:8] == [0.5, 0.25, 0.25, 0.5]


def test_values_that_are_missing_or_no_numbers_are_strict_json(call, odd):
    rows = json.loads(call("export", "odd", "--to", "json").stdout, parse_constant=pytest.fail)
    assert rows[2]["loss"] == "NaN"


@pytest.mark.heavy
def test_parquet_is_written(call, plain, tmp_path):
    pytest.importorskip("pyarrow")
    call("export", "plain", "-o", tmp_path / "trials.parquet")
    assert pd.read_parquet(tmp_path / "trials.parquet")["trial_id"].tolist() == [
        "t00000",
        "t00001",
        "t00002",
    ]
    call("export", "plain", "--rows", "-o", tmp_path / "curves.parquet")
    assert pd.read_parquet(tmp_path / "curves.parquet")["loss"].tolist()[4:8] == [
        0.5,
        0.25,
        0.25,
        0.5,
    ]
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [
        "curves.parquet",
        "trials.parquet",
    ]


@pytest.mark.process
def test_a_report_is_written(call, plain, tmp_path):
    pytest.importorskip("plotly")
    assert call("report", "plain", "-o", tmp_path / "r.html").stdout == f"{tmp_path / 'r.html'}\n"
    assert "t00002" in (tmp_path / "r.html").read_text()


def test_what_if_replays_with_the_scheduler_and_arguments_that_are_given(call, plain):
    arguments = [
        "what-if",
        "plain",
        "--scheduler",
        "asha",
        "--arg",
        "max_t=4",
        "--arg",
        "type=stopping",
        "--slots",
        "2",
    ]
    assert "ASHAScheduler(max_t=4, type='stopping')" in call(*arguments).stdout
    told = json.loads(call(*arguments, "-f", "json").stdout, parse_constant=pytest.fail)
    assert told["scheduler"].startswith("ASHAScheduler")
    assert (
        json.loads(call(*arguments, "--metric", "val/acc", "--mode", "max", "-f", "json").stdout)[
            "metric"
        ]
        == "val/acc"
    )


def test_what_if_tells_when_the_search_would_have_ended(call, plain):
    told = call("what-if", "plain", "--stop-search", "auto").stdout
    assert "What if stop_search='auto' had ended" in told
    assert "It would not have ended earlier." in told
    refused = call("what-if", "plain", code=2).stderr
    assert "--scheduler or --stop-search must be given, got neither" in refused


def test_what_if_refuses_what_the_scheduler_does_not_know(call, plain):
    assert (
        "max_tt"
        in call("what-if", "plain", "--scheduler", "asha", "--arg", "max_tt=27", code=2).stderr
    )


def test_a_library_that_is_missing_is_told_in_one_line(call, plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    told = call("report", "plain", code=3).stderr
    assert 'pip install "tuner-hpo[report]"' in told
    assert told.count("\n") == 1
