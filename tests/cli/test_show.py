"""``tuner show``, ``best`` and ``compare``."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import tuner as tune
from searchers import OptunaSearch
from tests.exploits import TwoExploits


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_table_has_the_metric_and_what_differs(call, plain):
    heading, *lines = call("show", "plain").stdout.splitlines()
    assert heading.split() == [
        "trial",
        "status",
        "ending",
        "iter",
        "loss",
        "best",
        "at",
        "iter",
        "val/acc",
        "lr",
        "time",
    ]
    assert lines[1].split()[:7] == ["t00001", "TERMINATED", "completed", "4", "0.5", "0.25", "3"]
    assert len(lines) == 3


def test_lines_are_filtered_sorted_and_limited_and_columns_chosen(call, plain):
    arguments = [
        "--filter",
        "lr >= 0.5",
        "--filter",
        "ending == completed",
        "--sort",
        "loss",
        "--desc",
        "--columns",
        "trial_id,lr",
    ]
    heading, *lines = call("show", "plain", *arguments).stdout.splitlines()
    assert heading.split() == ["trial", "lr"]
    assert [line.split() for line in lines] == [["t00002", "2"], ["t00000", "0.5"]]
    assert len(call("show", "plain", *arguments, "--limit", "1").stdout.splitlines()) == 2


def test_columns_that_are_named_are_all_that_programs_get(call, plain):
    assert json.loads(
        call("show", "plain", "--columns", "trial_id,lr", "--limit", "1", "-f", "json").stdout
    ) == [{"trial_id": "t00000", "config/lr": 0.5}]
    assert (
        call(
            "show", "plain", "1", "--rows", "--columns", "loss", "--limit", "2", "-f", "csv"
        ).stdout
        == "loss\n0.5\n0.25\n"
    )


def test_nothing_that_meets_the_conditions_ends_with_1(call, plain):
    call("show", "plain", "--filter", "loss < 0", code=1)


@pytest.mark.parametrize("last", ["--desc", "--limit=9"])
def test_what_is_no_number_or_missing_comes_last_in_either_direction(call, odd, last):
    lines = call("show", "odd", "--sort", "loss", last).stdout.splitlines()
    assert lines[-1].startswith("t00002")


def test_json_is_strict_and_csv_is_what_pandas_reads(call, odd):
    records = json.loads(call("show", "odd", "-f", "json").stdout, parse_constant=pytest.fail)
    assert [record["loss"] for record in records] == [1.625, 0.625, "NaN"]
    assert records[1]["error"] == "ValueError: half-way"
    assert records[0]["error"] is None
    table = pd.read_csv(io.StringIO(call("show", "odd", "-f", "csv").stdout))
    assert table["loss"].isna().tolist() == [False, False, True]
    assert table["config/kind"].tolist()[:2] == ["plain", "fails"]


def test_a_file_may_be_named_as_in_ray_tune(call, plain, tmp_path):
    assert call("show", "plain", "--output", tmp_path / "trials.csv").stdout == ""
    assert len(rows_of((tmp_path / "trials.csv").read_text())) == 3


def test_one_trial_is_shown_with_all_that_is_known(call, odd):
    facts = json.loads(call("show", "odd", "1", "-f", "json").stdout)
    assert (facts["status"], facts["ending"], facts["failure 1"], facts["attempts"]) == (
        "ERROR",
        "failed",
        "ValueError: half-way",
        1,
    )
    assert facts["checkpoints"] == ["checkpoint_000000", "checkpoint_000001"]
    assert (
        facts["loss"],
        facts["metric_iteration"],
        facts["best/loss"],
        facts["best/training_iteration"],
    ) == (0.625, 2, 0.625, 2)
    assert re.search(r"failure 1 +ValueError: half-way\n", call("show", "odd", "1").stdout)


def test_times_have_a_unit_in_all_that_people_read(call, plain):
    assert re.search(r"time_total_s +\d+(\.\d+)?s\n", call("show", "plain", "0").stdout)
    assert re.fullmatch(r"\d+(\.\d+)?s", call("show", "plain").stdout.splitlines()[1].split()[-1])


def test_the_results_of_one_trial_are_a_table(call, plain):
    rows = rows_of(call("show", "plain", "1", "--rows", "-f", "csv").stdout)
    assert [row["loss"] for row in rows] == ["0.5", "0.25", "0.25", "0.5"]
    assert call("show", "plain", "1", "--rows").stdout.split()[:4] == [
        "iter",
        "loss",
        "val/acc",
        "time",
    ]


@pytest.mark.process
def test_text_of_users_cannot_steer_the_terminal(call, make, storage):
    make.run(storage, "evil", space={"lr": 1.0, "kind": tune.grid_search(["\x1b[31mred", "plain"])})
    for command in (
        ("show", "evil"),
        ("show", "evil", "0"),
        ("best", "evil"),
        ("explain", "evil", "0"),
    ):
        assert "\x1b" not in call(*command).stdout


def test_values_iterations_and_checkpoint_of_the_best_trial_belong_together(call, plain, odd):
    found = json.loads(call("best", "plain", "-f", "json").stdout)
    assert (found["trial_id"], found["config"]) == (
        "t00001",
        {"depth": 3, "kind": "plain", "lr": 0.25},
    )
    assert (found["loss"], found["metric_iteration"], found["training_iteration"]) == (0.5, 4, 4)
    assert (found["best/loss"], found["best/training_iteration"]) == (0.25, 3)
    assert found["checkpoint"] == str(plain / "t00001" / "checkpoint_000002")
    assert (found["checkpoint/loss"], found["checkpoint/training_iteration"]) == (0.25, 3)
    assert "t00001" in call("best", "plain").stdout


def test_the_best_trials_are_a_table_or_a_list(call, plain):
    assert [
        record["trial_id"]
        for record in json.loads(call("best", "plain", "--top", "2", "-f", "json").stdout)
    ] == ["t00001", "t00000"]
    heading = call("best", "plain", "--top", "2").stdout.splitlines()[0]
    assert heading.split() == [
        "trial",
        "status",
        "ending",
        "iter",
        "loss",
        "best",
        "at",
        "iter",
        "lr",
        "time",
    ]


def test_scope_metric_and_mode_can_be_others(call, plain):
    worst = json.loads(
        call(
            "best", "plain", "--metric", "val/acc", "--mode", "max", "--scope", "last", "-f", "json"
        ).stdout
    )
    assert (worst["trial_id"], worst["val/acc"], worst["best/training_iteration"]) == (
        "t00002",
        2.0,
        4,
    )
    mean = json.loads(call("best", "plain", "--scope", "avg", "-f", "json").stdout)
    assert (mean["trial_id"], mean["avg"], mean["loss"]) == ("t00001", 0.375, 0.5)


def test_the_error_about_an_unknown_metric_lists_the_known_ones(call, plain):
    assert (
        "no trial has reported 'acc'; reported were loss, val/acc"
        in call("best", "plain", "--metric", "acc", code=2).stderr
    )
    for command in ("best", "compare", "report"):
        assert (
            "does not say whether 'val/acc' is minimised; give --mode"
            in call(command, "plain", "--metric", "val/acc", code=2).stderr
        )
    shown = json.loads(call("show", "plain", "--metric", "val/acc", "-f", "json").stdout)
    assert [line["best/val/acc"] for line in shown] == [None, None, None]


@pytest.mark.process
def test_without_an_objective_one_has_to_be_given(call, make, storage):
    make.run(storage, "aimless", metric=None)
    assert "--metric and --mode" in call("best", "aimless", code=2).stderr
    call("show", "aimless")
    assert json.loads(call("ls", "-f", "json").stdout)[0]["best"] is None


@pytest.mark.process
def test_no_finite_value_ends_with_1(call, odd, make, storage):
    make.run(storage, "empty", space={"lr": float("inf"), "kind": "plain"})
    assert "has a finite value of 'loss' yet" in call("best", "empty", code=1).stderr


@pytest.fixture
def exploited(make, storage):
    """Three trials, two of which were given other learning rates."""
    return tune.ResultGrid.from_directory(make.run(storage, "exploited", scheduler=TwoExploits()))


@pytest.mark.process
def test_results_of_one_iteration_are_told_apart_by_the_exploits_before_them(call, exploited):
    result = max(exploited, key=lambda result: result.metrics["num_exploits"])
    rows = rows_of(call("show", "exploited", result.trial_id, "--rows", "-f", "csv").stdout)
    keys = [(int(row["training_iteration"]), int(row["num_exploits"])) for row in rows]
    frame = result.metrics_dataframe
    assert keys == list(zip(frame["training_iteration"], frame["num_exploits"], strict=True))
    assert keys[0][1] < keys[-1][1]


@pytest.mark.process
def test_all_results_that_count_are_the_iterations_of_an_experiment(call, exploited):
    (record,) = json.loads(call("compare", "exploited", "-f", "json").stdout)
    num_rows = sum(len(result.metrics_dataframe) for result in exploited)
    # An exploit has skipped one.
    assert (num_rows, sum(trial.iteration for trial in exploited.trials)) == (
        10,
        11,
    )
    assert record["num_iterations"] == num_rows


@pytest.mark.process
def test_values_stand_beside_the_learning_rate_they_were_reached_with(call, exploited):
    reached = {"t00000": 0.5, "t00001": 0.25, "t00002": 12.0}
    shown = json.loads(call("show", "exploited", "-f", "json").stdout)
    assert {line["trial_id"]: line["config/lr"] for line in shown} == reached
    assert json.loads(call("show", "exploited", "1", "-f", "json").stdout)["config/lr"] == 0.25
    exported = rows_of(call("show", "exploited", "-f", "csv").stdout)
    assert {line["trial_id"]: float(line["config/lr"]) for line in exported} == reached
    assert exploited[1].config["lr"] == 13.0


def test_experiments_are_compared_by_best_trials_and_declarations(call, plain, odd):
    first, second = json.loads(call("compare", "plain", "odd", "-f", "json").stdout)
    assert (first["experiment"], first["best"], first["num_trials"], first["num_iterations"]) == (
        "plain",
        0.25,
        3,
        12,
    )
    assert (second["num_failed"], second["num_iterations"]) == (1, 10)
    told = call("compare", "plain", "odd").stdout
    assert "odd is declared otherwise than plain:" in told
    assert "param_space['depth']: 3 -> nothing" in told


def test_one_that_has_lost_its_journal_is_shown_from_its_trials_files(call, plain):
    shutil.rmtree(plain / "journal")
    shutil.rmtree(plain / "snapshot")
    (plain / "experiment.json").unlink()
    lines = call("show", plain, "--columns", "trial_id,loss").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["t00000", "0.875"],
        ["t00001", "0.5"],
        ["t00002", "3.125"],
    ]
    assert "give --metric and --mode" in call("best", plain, code=2).stderr
    assert (
        "whether 'loss' is minimised; give --mode"
        in call("best", plain, "--metric", "loss", code=2).stderr
    )
    assert "has no journal; only tuner show," in call("explain", plain, "0", code=2).stderr
    assert (
        json.loads(call("best", plain, "--metric", "loss", "--mode", "min", "-f", "json").stdout)[
            "trial_id"
        ]
        == "t00001"
    )


def test_a_damaged_journal_is_said_and_the_trials_files_are_shown(call, plain):
    shutil.rmtree(plain / "snapshot")
    (segment,) = (plain / "journal").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b'"k":"started"', b'"k":"stirred"', 1))
    done = call("show", "plain")
    assert "the files of its trials are read instead" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stdout.splitlines()) == 4


def test_ray_tunes_trials_are_named_by_their_ids_or_numbers(call, storage):
    for number in range(3):
        folder = storage / "rays" / f"f_c0bc6_0000{number}_{number}_lr=1_2026-11-21_21-58-58"
        folder.mkdir(parents=True)
        row = {
            "loss": 1 / (number + 1),
            "training_iteration": 1,
            "trial_id": f"c0bc6_0000{number}",
            "config": {"lr": 1},
        }
        (folder / "result.json").write_text(json.dumps(row) + "\n")
        (folder / "params.json").write_text(json.dumps({"lr": 1}))
        (folder / "stdout").write_text(f"trial {number}\n")
    (storage / "rays" / "experiment_state-2026-11-21_21-58-58.json").write_text(
        json.dumps({"trial_data": []})
    )
    assert len(call("show", "rays").stdout.splitlines()) == 4
    assert json.loads(call("show", "rays", "2", "-f", "json").stdout)["trial_id"] == "c0bc6_00002"
    assert call("tail", "rays", "c0bc6_00001").stdout == "trial 1\n"
    assert (
        json.loads(call("best", "rays", "--metric", "loss", "--mode", "min", "-f", "json").stdout)[
            "trial_id"
        ]
        == "c0bc6_00002"
    )


def test_a_column_may_be_named_by_its_heading(call, plain):
    heading = call("show", "plain").stdout.splitlines()[0]
    for name in re.split(r"\s{2,}", heading.strip()):
        records = json.loads(
            call("show", "plain", "--sort", name, "--columns", name, "-f", "json").stdout
        )
        assert len(records) == 3
        assert len(records[0]) == 1
        assert call("show", "plain", "--columns", name).stdout.splitlines()[0] == name
    assert len(call("show", "plain", "--filter", "time < 1h").stdout.splitlines()) == 4
    assert call("show", "plain", "--filter", "time > 1h", code=1).stdout == ""


@pytest.mark.process
def test_headings_that_would_be_equal_are_the_full_names(call, make, storage):
    make.run(
        storage,
        "named",
        space={
            "lr": 1.0,
            "kind": "plain",
            "time": tune.grid_search([1, 2]),
            "loss": tune.grid_search([3, 4]),
        },
    )
    heading = call("show", "named").stdout.splitlines()[0].split()
    assert len(heading) - heading.count("iter") == len(set(heading) - {"iter"})
    assert {"config/loss", "loss", "time"} <= set(heading)


def test_the_best_few_are_asked_for_by_a_short_option(call, plain):
    assert call("best", "plain", "-n", 2).stdout == call("best", "plain", "--top", 2).stdout


class TwoGoals(tune.Trainable):
    def step(self):
        return {
            "loss": self.config["x"],
            "cost": -self.config["x"] if self.config["x"] else 5.0,
            "done": True,
        }


@pytest.fixture
def several(storage):
    """Three trials with two objectives, the first of which is on no front."""
    pytest.importorskip("optuna")
    searcher = OptunaSearch(
        metric=["loss", "cost"],
        mode=["min", "min"],
        points_to_evaluate=[{"x": 0}, {"x": 1}, {"x": -2}],
    )
    tune.Tuner(
        TwoGoals,
        param_space={"x": tune.randint(-3, 3)},
        tune_config=tune.TuneConfig(search_alg=searcher, num_samples=3, seed=1),
        run_config=tune.RunConfig(
            name="several", storage_path=storage, verbose=0, executor="inline", resources={"cpu": 1}
        ),
    ).fit()
    return storage / "several"


@pytest.mark.process
def test_several_objectives_are_known_by_all_tables(call, several):
    assert call("show", several).stdout.splitlines()[0].split()[:6] == [
        "trial",
        "status",
        "ending",
        "iter",
        "loss",
        "cost",
    ]
    done = call("best", several)
    assert done.stderr == "2 trials on the Pareto front of min loss, min cost\n"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["trial", "t00002", "t00001"]
    assert [
        record["config"] for record in json.loads(call("best", several, "-f", "json").stdout)
    ] == [{"x": -2}, {"x": 1}]
    assert (
        json.loads(call("best", several, "--metric", "cost", "-f", "json").stdout)["trial_id"]
        == "t00001"
    )
    (listed,) = json.loads(call("ls", several, "-f", "json").stdout)
    assert (listed["metric"], listed["best_trial"], listed["last"]) == (
        "min loss, min cost",
        None,
        None,
    )
    (front,) = json.loads(call("compare", several, "-f", "json").stdout)
    assert (front["metric"], front["num_on_front"]) == ("min loss, min cost", 2)


def report_names_of_columns(config):
    for step in range(2):
        told = {"error": 0.5 - step / 4, "status": 1.0, "attempt": 7, "path": 3}
        tune.report(told if config["x"] else {**told, "ending": 2})
    if config["x"] == 2:
        raise ValueError("at the end")


@pytest.fixture
def borrowed(storage):
    """Three trials whose metrics are called like columns of tables; the third one fails."""
    tune.Tuner(
        report_names_of_columns,
        param_space={"x": tune.grid_search([0, 1, 2])},
        tune_config=tune.TuneConfig(metric="error", mode="min"),
        run_config=tune.RunConfig(
            name="borrowed",
            storage_path=storage,
            verbose=0,
            executor="inline",
            resources={"cpu": 1},
        ),
    ).fit()
    return storage / "borrowed"


@pytest.mark.process
def test_a_metric_called_like_a_column_is_what_all_tables_have_of_it(call, borrowed):
    records = json.loads(call("show", "borrowed", "-f", "json").stdout)
    names = ["error", "status", "attempt", "path", "ending", "best/error"]
    told = [0.25, 1, 7, 3]
    assert [[record[name] for name in names] for record in records] == [
        [*told, 2, 0.25],
        [*told, None, 0.25],
        [*told, None, 0.25],
    ]
    assert [record["last_failure"] for record in records] == [None, None, "ValueError: at the end"]
    assert (
        json.loads(call("show", "borrowed", "2", "-f", "json").stdout).items()
        >= dict(zip(names, told, strict=False)).items()
    )
    heading, *_ = call("show", "borrowed", "--filter", "error < 0.3").stdout.splitlines()
    assert heading.split().count("error") == 1
    assert "attempt" in heading
    frame = tune.ResultGrid.from_directory(borrowed).get_dataframe()
    assert frame[names[:4]].iloc[0].tolist() == told
    best = json.loads(
        call("best", "borrowed", "--metric", "status", "--mode", "min", "-f", "json").stdout
    )
    assert (best["status"], best["best/status"]) == (1, 1)


def fail_once(config):
    marker = Path(tune.get_context().get_trial_dir(), "was_here")
    if not marker.exists():
        marker.touch()
        raise ValueError("once")
    tune.report({"loss": 1.0})


@pytest.mark.process
def test_a_trial_that_recovered_has_a_last_failure_and_no_error(call, storage):
    failures = tune.FailureConfig(max_failures=1, retry_on=["ValueError"])
    run = tune.RunConfig(
        name="once", storage_path=storage, verbose=0, executor="inline", failure_config=failures
    )
    tune.Tuner(
        fail_once, tune_config=tune.TuneConfig(metric="loss", mode="min"), run_config=run
    ).fit()
    [record] = json.loads(call("show", "once", "-f", "json").stdout)
    assert (record["ending"], record["num_failures"]) == ("completed", 1)
    assert (record["error"], record["last_failure"]) == (None, "ValueError: once")


@pytest.mark.process
def test_several_objectives_need_a_metric_for_options_that_concern_one(call, several):
    for option, value in (("--mode", "min"), ("--scope", "all")):
        told = call("best", several.name, option, value, code=2).stderr
        assert f"{option} needs --metric, as {several.name} optimises" in told


@pytest.mark.parametrize(
    ("method", "name"),
    [("report", "a.html"), pytest.param("to_parquet", "a.parquet", marks=pytest.mark.heavy)],
)
def test_a_report_is_written_to_a_folder_that_exists(plain, tmp_path, method, name):
    results = tune.ResultGrid.from_directory(plain)
    with pytest.raises(
        FileNotFoundError, match="nowhere' does not exist; make it, or choose another path"
    ):
        getattr(results, method)(tmp_path / "nowhere" / name)
