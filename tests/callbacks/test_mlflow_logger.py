"""MLflow runs, as MLflow's own client reads them back from an SQLite store."""

import math
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tuner.callbacks.trackers.mlflow_logger import (
    MLflowLoggerCallback,
    legal_name,
    make_sqlite_store,
)
from tuner.callbacks.trackers.tracker import need_library
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord
from tuner.storage.checkpoints import Checkpoint
from tuner.testing.callback_contract import CallbackContract

mlflow = pytest.importorskip("mlflow")
from mlflow.utils.validation import _validate_metric_name  # noqa: E402  (may be missing)

# The warnings are the client's own, from its thread.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("default")]


@pytest.fixture
def uri(empty_mlflow_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # artifacts lie below it
    return f"sqlite:///{shutil.copy(empty_mlflow_store, tmp_path / 'mlflow.db')}"


@pytest.fixture
def start(uri, tmp_path):
    """Return a function that sets a callback up, as each driver of one experiment does."""

    def setup(**options):
        logger = MLflowLoggerCallback(uri, **options)
        logger.setup(experiment_path=tmp_path / "demo", experiment_id="abc", metric="loss")
        return logger

    return setup


@pytest.fixture
def runs(uri):
    def read(experiment="demo"):
        client = mlflow.MlflowClient(uri)
        return client.search_runs(
            [client.get_experiment_by_name(experiment).experiment_id],
            order_by=["attributes.run_name"],
        )

    return read


class TestContract(CallbackContract):
    @pytest.fixture(autouse=True)
    def find_store(self, uri):
        self.uri = uri

    def make_callback(self):
        return MLflowLoggerCallback(self.uri)


def curve(uri, run, name):
    return [
        (point.step, point.value)
        for point in mlflow.MlflowClient(uri).get_metric_history(run.info.run_id, name)
    ]


def end(logger, *trials, failed=False):
    for trial in trials:
        trial.move_to(Status.ERROR if failed else Status.TERMINATED)
        trial.ending = TerminationReason.FAILED if failed else TerminationReason.COMPLETED
        logger.log_trial_end(trial, failed=failed)
    logger.on_experiment_end(trials=trials)


def test_a_trial_is_one_run_with_parameters_and_curves(start, runs, uri, make_trial, report):
    logger, good, bad = (
        start(tags={"who": "me"}),
        make_trial("t00000", lr=0.1, net={"width": 2}),
        make_trial("t00001", lr=0.2),
    )
    for trial in (good, bad):
        logger.log_trial_start(trial)
        for iteration in (1, 2):
            odd = {
                "nan": math.nan,
                "up": math.inf,
                "ok": True,
                "text": "x",
                "list": [1],
                "top@5": 1,
                "huge": 10**400,
            }
            logger.log_trial_result(
                iteration,
                trial,
                report(trial, iteration, loss=1 / iteration, val={"acc": 0.5}, timestamp=17, **odd),
            )
    bad.move_to(Status.ERROR)
    bad.ending = TerminationReason.FAILED
    logger.log_trial_end(bad, failed=True)
    end(logger, good)
    first, second = runs()
    assert [(run.info.run_name, run.info.status) for run in (first, second)] == [
        ("t00000", "FINISHED"),
        ("t00001", "FAILED"),
    ]
    assert first.data.params == {"lr": "0.1", "net/width": "2"}
    assert (
        first.data.tags.items()
        >= {"who": "me", "trial_id": "t00000", "experiment_name": "demo"}.items()
    )
    assert curve(uri, first, "loss") == [(1, 1.0), (2, 0.5)]
    assert curve(uri, first, "val/acc") == [(1, 0.5), (2, 0.5)]
    metrics = first.data.metrics
    assert sorted(metrics) == [
        "huge",
        "loss",
        "nan",
        "ok",
        "timestamp",
        "top_5",
        "training_iteration",
        "up",
        "val/acc",
    ]
    assert math.isnan(metrics["nan"])
    assert metrics["ok"] == 1.0
    assert metrics["up"] == metrics["huge"] > 1e300  # the largest number that the store has


def test_a_restored_trial_goes_on_in_its_run_and_what_was_lost_is_there(
    start, runs, uri, make_trial, report
):
    trial = make_trial()
    first = start()
    first.log_trial_start(trial)
    results = [
        report(trial, iteration, loss=iteration, timestamp=100 + iteration)
        for iteration in range(1, 6)
    ]
    for result in results[:2]:
        first.log_trial_result(result["training_iteration"], trial, result)
    first.on_experiment_end(trials=[trial])
    assert [run.info.status for run in runs()] == ["KILLED"]
    trial.checkpoints = [CheckpointRecord(0, 4)]
    second = start()
    second.catch_up([trial], lambda _: results)
    trial.attempt, trial.resumed_iteration = 2, 4
    second.log_trial_start(trial)
    second.log_trial_result(5, trial, report(trial, 5, loss=50, timestamp=200))
    end(second, trial)
    (run,) = runs()
    assert run.info.status == "FINISHED"
    assert curve(uri, run, "loss") == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 50)]


def test_a_trial_that_ended_unheard_is_told_later(start, runs, uri, make_trial, report):
    trial = make_trial()
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    told = [report(trial, 1, loss=1.0, timestamp=100)]
    logger = start()
    logger.catch_up([trial], lambda _: told)
    logger.on_experiment_end(trials=[trial])
    again = start()
    again.catch_up([trial], lambda _: told)
    again.on_experiment_end(trials=[trial])
    (run,) = runs()
    assert run.info.status == "FINISHED"
    assert curve(uri, run, "loss") == [(1, 1.0)]


def test_what_an_exploit_changes_becomes_a_tag(start, runs, make_trial, report):
    trial, logger = make_trial(lr=0.1, width=2), start()
    logger.log_trial_start(trial)
    trial.config, trial.attempt = {"lr": 0.5, "width": 2}, 2
    logger.log_trial_start(trial)
    end(logger, trial)
    (run,) = runs()
    assert run.data.params == {"lr": "0.1", "width": "2"}
    assert {name: value for name, value in run.data.tags.items() if name.startswith("config/")} == {
        "config/lr": "0.5"
    }


def test_more_than_one_request_holds(start, runs, uri, make_trial, report):
    trial, logger = make_trial(**{f"p{number}": number for number in range(250)}), start()
    logger.log_trial_start(trial)
    for iteration in range(1, 1201):
        logger.log_trial_result(iteration, trial, report(trial, iteration, loss=1.0))
    end(logger, trial)
    (run,) = runs()
    assert len(run.data.params) == 250
    assert len(curve(uri, run, "loss")) == 1200


def test_the_directory_is_copied_and_parameters_wait_if_that_is_wanted(
    start, runs, make_trial, monkeypatch
):
    monkeypatch.setattr("tuner.callbacks.trackers.mlflow_logger._SETTLING_S", 0.0)
    trial, logger = (
        make_trial(),
        start(save_artifact=True, log_params_on_trial_end=True, experiment_name="mine"),
    )
    Path(trial.local_path).mkdir()
    Path(trial.local_path, "result.json").write_text("{}\n")
    logger.log_trial_start(trial)
    end(logger, trial)
    (run,) = runs("mine")
    assert run.data.params == {"lr": "0.1"}
    assert Path(run.info.artifact_uri, "result.json").read_text() == "{}\n"


def test_a_directory_that_cannot_be_copied_holds_nothing_up(
    start, runs, make_trial, monkeypatch, caplog
):
    monkeypatch.setattr("tuner.callbacks.trackers.mlflow_logger._SETTLING_S", 0.0)
    trial, logger = make_trial(), start(save_artifact=True)
    Path(trial.local_path).mkdir()
    Path(trial.local_path).with_name("mlruns").write_text("where artifacts were to go")
    Path(trial.local_path, "result.json").write_text("{}\n")
    logger.log_trial_start(trial)
    end(logger, trial)
    assert [run.info.status for run in runs()] == ["FINISHED"]
    assert "the directory of trial t00000 could not be copied to MLflow" in caplog.text


def test_the_token_is_for_the_environment_alone(start, monkeypatch, tmp_path, make_trial):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "")
    logger, trial = start(tracking_token="s3cret-token"), make_trial()  # noqa: S106  (not one)
    logger.log_trial_start(trial)
    end(logger, trial)
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and b"s3cret-token" in path.read_bytes()
    ]


@pytest.mark.parametrize(
    "name",
    [
        "val/loss",
        "top@5 (%)",
        "/a//b/..",
        ".",
        "..",
        "a/./b",
        "a/",
        "",
        "x" * 300,
        "a\nb",
        "../x",
        "..a",
        "/",
    ],
)
def test_every_name_becomes_one_that_mlflow_takes(name):
    _validate_metric_name(legal_name(name))


def test_a_store_is_made_whole_or_not_at_all(tmp_path):
    path = tmp_path / "mlflow.db"

    def killed_half_way(uri):
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as store:
            store.execute("create table experiments (a)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_sqlite_store(f"sqlite:///{path}", killed_half_way)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_extra_is_named():
    with pytest.raises(
        ImportError, match=r'mlflow_of_old is not installed; pip install "tuner-hpo\[mlflow\]"'
    ):
        need_library("mlflow_of_old", "mlflow")


def test_metrics_of_a_validation_have_the_step_of_its_checkpoint(
    start, runs, uri, make_trial, report
):
    logger, trial = start(), make_trial()
    logger.log_trial_start(trial)
    results = [report(trial, iteration, loss=1 / iteration) for iteration in (1, 2, 3)]
    for result in results:
        logger.log_trial_result(0, trial, result)
    logger.on_checkpoint_validated(
        0,
        [trial],
        trial,
        checkpoint=Checkpoint(f"{trial.local_path}/checkpoint_000001"),
        status="VALIDATED",
        metrics={"val": {"acc": 0.5}, "text": "x"},
        result=results[1],
    )
    end(logger, trial)
    [run] = runs()
    assert curve(uri, run, "val/acc") == [(2, 0.5)]
    assert curve(uri, run, "training_iteration") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_metrics_of_validations_that_were_lost_are_filled_in_once(
    start, runs, uri, validated_trial, report
):
    trial = validated_trial
    first = start()
    first.log_trial_start(trial)
    results = [report(trial, iteration, loss=iteration, timestamp=100) for iteration in (1, 2, 3)]
    for result in results[:2]:
        first.log_trial_result(0, trial, result)
    first.on_experiment_end(trials=[trial])
    merged = [{**result, "acc": index / 4} for index, result in enumerate(results)]
    for _ in range(2):
        logger = start()
        logger.catch_up([trial], lambda _: merged)
        logger.on_experiment_end(trials=[trial])
    [run] = runs()
    assert sorted(curve(uri, run, "acc")) == [(1, 0.0), (2, 0.25), (3, 0.5)]
    assert curve(uri, run, "loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_server_that_is_not_there_is_known_at_once(monkeypatch, make_trial, report, caplog):
    """MLflow's own client would try for minutes."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._UNREACHABLE_PATIENCE_S", 0.0)
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._JOIN_S", 0.001)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        uri = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        logger, trial = MLflowLoggerCallback(uri), make_trial()
        logger.setup(experiment_path="demo", experiment_id="abc")
        logger.log_trial_start(trial)
        logger.log_trial_result(1, trial, report(trial, 1, loss=1.0))
        end(logger, trial)
    assert "MLflow cannot be reached (ConnectionRefusedError" in caplog.text
    assert "MLflow lacks 1 result; the experiment's own files hold all of them" in caplog.text
    assert f"--to mlflow --tracking-uri {uri} --experiment-name demo" in caplog.text
