"""MLflow and Weights & Biases, by callbacks and in training code, read by their own readers."""

import json
from pathlib import Path

import pytest

import tuner as tune
from tuner.callbacks.trackers.mlflow_logger import make_sqlite_store
from tuner.callbacks.trackers.wandb_files import records
from tuner.integration.mlflow import MLflowLoggerCallback, setup_mlflow
from tuner.integration.wandb import WandbLoggerCallback, setup_wandb

mlflow = pytest.importorskip("mlflow")
wandb = pytest.importorskip("wandb")
pytestmark = pytest.mark.filterwarnings("default")  # the clients' own
NUM_STEPS = 6


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    uri = f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"
    make_sqlite_store(uri, mlflow.MlflowClient)
    return uri


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOKEN", "s3cret-t0ken")
    for name in (
        "WANDB_PROJECT",
        "WANDB_RUN_GROUP",
        "WANDB_DIR",
        "MLFLOW_EXPERIMENT_NAME",
        "MLFLOW_EXPERIMENT_ID",
    ):
        monkeypatch.delenv(name, raising=False)


def steps_of(config):
    """Train from the latest checkpoint on; the first attempt fails half-way."""
    step, is_first = 0, True
    if checkpoint := tune.get_checkpoint():
        step, is_first = int(Path(checkpoint.path, "step").read_text()), False
    while step < NUM_STEPS:
        step += 1
        yield step
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report(
                {"loss": config["lr"] / step}, checkpoint=tune.Checkpoint.from_directory(directory)
            )
        if is_first and step == NUM_STEPS // 2:
            raise RuntimeError("as planned")


def silent(config):
    for _ in steps_of(config):
        pass


def fit(train, tmp_path, name, **run):
    run_config = tune.RunConfig(
        name=name,
        storage_path=tmp_path,
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=1),
        resources={"cpu": 2, "gpu": 0},
        **run,
    )
    space = {"lr": tune.grid_search([1.0, 2.0]), "token": tune.Secret("TOKEN")}
    return tune.Tuner(train, param_space=space, run_config=run_config).fit()


def mlflow_runs(uri, name):
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"])
    points = [
        sorted(
            (point.step, point.value)
            for point in client.get_metric_history(run.info.run_id, "loss")
        )
        for run in runs
    ]
    return [(run.info.run_name, run.info.status, run.data.params) for run in runs], points


def wandb_runs(experiment):
    rows = {}
    for path in sorted(experiment.glob("wandb/offline-run-*/*.wandb")):
        reported = [
            {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            for record in records(path)
        ]
        rows.setdefault(path.stem, []).extend(row for row in reported if row)
    return rows


def test_the_callbacks_keep_one_run_for_each_trial_over_a_retry(tmp_path, uri):
    results = fit(
        silent, tmp_path, "outside", callbacks=[MLflowLoggerCallback(uri), WandbLoggerCallback()]
    )
    wandb.teardown()
    assert [result.error for result in results] == [None, None]
    facts, points = mlflow_runs(uri, "outside")
    assert facts == [
        ("t00000", "FINISHED", {"lr": "1.0", "token": "Secret('TOKEN')"}),
        ("t00001", "FINISHED", {"lr": "2.0", "token": "Secret('TOKEN')"}),
    ]
    expected = [[(step, lr / step) for step in range(1, NUM_STEPS + 1)] for lr in (1.0, 2.0)]
    assert points == expected
    runs = wandb_runs(tmp_path / "outside")
    assert (
        sorted([(row["_step"], row["loss"]) for row in rows] for rows in runs.values()) == expected
    )


def test_training_code_that_logs_has_one_run_over_a_retry_without_secrets(tmp_path, uri):
    def train(config):
        tracker = setup_mlflow(
            config,
            uri,
            experiment_name="inside",
            create_experiment_if_not_exists=True,
            tags={"who": "me"},
        )
        run = setup_wandb(config, project="digits")
        for step in steps_of(config):
            tracker.log_metric("loss", config["lr"] / step, step=step)
            run.log({"loss": config["lr"] / step, "step": step})

    results = fit(train, tmp_path, "inside")
    assert [result.error for result in results] == [None, None]
    facts, points = mlflow_runs(uri, "inside")
    assert [(name, status, params["token"]) for name, status, params in facts] == [
        ("t00000", "FINISHED", "Secret('TOKEN')"),
        ("t00001", "FINISHED", "Secret('TOKEN')"),
    ]
    expected = [[(step, lr / step) for step in range(1, NUM_STEPS + 1)] for lr in (1.0, 2.0)]
    assert points == expected
    runs = wandb_runs(tmp_path / "inside")
    # The second may have begun first.
    assert (
        sorted([(row["step"], row["loss"]) for row in rows] for rows in runs.values()) == expected
    )
    files = [
        path
        for path in (*tmp_path.rglob("*"), Path(uri.removeprefix("sqlite:///")))
        if path.is_file()
    ]
    assert not [path for path in files if b"s3cret-t0ken" in path.read_bytes()]


def test_a_missing_mlflow_experiment_is_refused(uri):
    with pytest.raises(
        ValueError,
        match="experiment_name must be that of an MLflow experiment, got 'nowhere'; make it, or "
        "pass create",
    ):
        setup_mlflow({}, uri, experiment_name="nowhere")


def test_a_server_that_cannot_be_reached_does_not_fail_the_experiment(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr("tuner.callbacks.trackers.tracker_queue._UNREACHABLE_PATIENCE_S", 2.0)
    callback = MLflowLoggerCallback("http://me:passw0rd@127.0.0.1:9")
    results = fit(silent, tmp_path, "alone", callbacks=[callback])
    assert [result.metrics["training_iteration"] for result in results] == [NUM_STEPS, NUM_STEPS]
    assert [len(result.metrics_dataframe) for result in results] == [NUM_STEPS, NUM_STEPS]
    assert "MLflow cannot be reached" in caplog.text
    assert "passw0rd" not in caplog.text
