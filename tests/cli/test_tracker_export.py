"""``tuner export --to`` a tracker, with the real clients: MLflow in a file, W&B offline."""

import json
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import tuner as tune
from tuner.callbacks.trackers.wandb_files import records

pytestmark = pytest.mark.filterwarnings("default")  # the clients' own

LOSSES = [
    ("t00000", 1, 0.875), ("t00000", 2, 0.375), ("t00000", 3, 0.375), ("t00000", 4, 0.875),
    ("t00001", 1, 0.5), ("t00001", 2, 0.25), ("t00001", 3, 0.25), ("t00001", 4, 0.5),
    ("t00002", 1, 3.125), ("t00002", 2, 1.125), ("t00002", 3, 1.125), ("t00002", 4, 3.125),
]  # fmt: skip
"""The curves of the experiment ``plain``."""


@pytest.fixture
def store(empty_mlflow_store, tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(empty_mlflow_store, tmp_path / "mlflow.db"))


def ask(store, query):
    with closing(sqlite3.connect(store)) as opened:
        return opened.execute(query).fetchall()


def curves(store, metric="loss"):
    query = "select key, name, step, value from metrics join runs using (run_uuid) order by 2, 3"
    return [tuple(point) for key, *point in ask(store, query) if key == metric]


@pytest.mark.heavy
def test_mlflow_is_filled_once(call, plain, store):
    for _ in range(2):
        done = call("export", "plain", "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}")
        assert done.stdout == "MLflow has all results of 3 trials\n"
    assert curves(store) == LOSSES
    assert ask(store, "select name, status from runs order by name") == [
        (f"t0000{number}", "FINISHED") for number in range(3)
    ]
    assert ask(
        store, "select distinct e.name from experiments e join runs using (experiment_id)"
    ) == [("plain",)]
    assert len(ask(store, "select * from params where key = 'lr'")) == 3
    (began, ended), *_ = ask(store, "select start_time, end_time from runs")
    assert began <= ended


@pytest.mark.heavy
def test_a_delivery_that_was_cut_off_is_completed(call, plain, store):
    command = ("export", "plain", "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}")
    call(*command)
    with closing(sqlite3.connect(store)) as opened, opened:
        # In the middle of a result, in the middle of a run, and a run that never ended.
        opened.execute("delete from metrics where key = 'loss' and step in (2, 4)")
        opened.execute("update runs set status = 'RUNNING', end_time = null where name = 't00001'")
        opened.execute("update runs set name = 'mine' where name = 't00002'")
    call(*command, "--arg", 'tags={"who": "me"}')
    assert [(step, value) for _, step, value in curves(store)] == [
        (step, value) for _, step, value in [*LOSSES[8:], *LOSSES[:8]]
    ]
    assert ask(store, "select name, status from runs order by name") == [
        ("mine", "FINISHED"),
        ("t00000", "FINISHED"),
        ("t00001", "FINISHED"),
    ]
    assert len(curves(store, "training_iteration")) == 12


@pytest.mark.heavy
def test_trials_that_failed_or_reported_no_number_are_there(call, odd, store):
    for _ in range(2):
        call(
            "export", "odd", "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}",
            "--experiment-name", "others",
        )  # fmt: skip
    assert ask(store, "select name, status from runs order by name") == [
        ("t00000", "FINISHED"),
        ("t00001", "FAILED"),
        ("t00002", "FINISHED"),
    ]
    assert len(curves(store)) == 4 + 2 + 4
    assert ask(store, "select count(*) from metrics where is_nan") == [(1,)]


@pytest.mark.heavy
def test_the_command_that_the_end_names_fills_the_tracker(call, storage, store, make, caplog):
    """A server that does not answer in time, and then does."""
    pytest.importorskip("mlflow")
    from tuner.integration.mlflow import MLflowLoggerCallback  # noqa: PLC0415

    class Nowhere(MLflowLoggerCallback.__mro__[1]):
        product, kind = MLflowLoggerCallback.product, MLflowLoggerCallback.kind
        arguments = MLflowLoggerCallback.arguments

        def __init__(self, *arguments, **options):
            like = MLflowLoggerCallback(*arguments, **options)
            self.__dict__ |= like.__dict__

        def tracker(self, experiment):
            tracker = MLflowLoggerCallback.tracker(self, experiment)
            tracker.connect = lambda: (_ for _ in ()).throw(ConnectionError("nobody is there"))
            return tracker

    callback = Nowhere(
        "sqlite:///mlflow.db", experiment_name="it's mine", tags={"a": 1}, upload_timeout=0.01
    )
    make.run(storage, "late", callbacks=[callback])
    (told,) = [text for text in caplog.messages if "MLflow lacks" in text]
    command = told.splitlines()[-1].strip()
    program, *arguments = shlex.split(command)
    assert program == "tuner"
    assert "MLflow lacks 12 results" in told
    call(*arguments)
    call(*arguments)
    assert curves(store) == LOSSES
    assert ask(store, "select name from experiments where name like '%mine'") == [("it's mine",)]
    assert ask(store, "select count(*) from tags where key = 'a'") == [(3,)]


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Keep W&B away from the user's own settings and keys."""
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    yield wandb
    wandb.teardown()


@pytest.mark.heavy
def test_wandb_is_filled_once(call, plain, alone):
    for _ in range(2):
        call("export", "plain", "--to", "wandb", "--mode", "offline", "--project", "digits")
        alone.teardown()
    paths = sorted((plain / "wandb").glob("offline-run-*/*.wandb"))
    assert len(paths) == 3
    told = [record for path in paths for record in records(path)]
    assert {record.run.project for record in told if record.WhichOneof("record_type") == "run"} == {
        "digits"
    }
    losses = [
        json.loads(item.value_json)
        for record in told
        if record.WhichOneof("record_type") == "history"
        for item in record.history.item
        if (item.key or "/".join(item.nested_key)) == "loss"
    ]
    assert losses == [value for *_, value in LOSSES]


@pytest.mark.process
def test_tensorboard_is_filled_once_and_repaired(call, plain, tmp_path):
    pytest.importorskip("tensorboardX")
    command = ("export", "plain", "--to", "tensorboard")
    assert call(*command).stdout.startswith("0 event files written")
    (path,) = (plain / "t00001").glob("events.*")
    path.unlink()
    assert call(*command).stdout.startswith("1 event files written")
    assert len(list((plain / "t00001").glob("events.*"))) == 1
    elsewhere = (*command, "--dir", tmp_path / "board")
    assert call(*elsewhere).stdout.startswith("3 event files written")
    assert call(*elsewhere).stdout.startswith("0 event files written")
    assert len(list((tmp_path / "board").glob("t0000?/events.*"))) == 3


@pytest.mark.heavy
def test_an_experiment_of_ray_tune_is_exported(call, plain, store):
    """Without a journal the files of its trials are read."""
    shutil.rmtree(plain / "journal")
    (plain / "experiment.json").unlink()
    for _ in range(2):
        call("export", plain, "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}")
    assert curves(store) == LOSSES


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--to", "csv", "--tracking-uri", "x"], "--tracking-uri is for --to mlflow"),
        (["--project", "x"], "--project is for --to mlflow, wandb, comet, tensorboard"),
        (
            ["--to", "mlflow", "--project", "x"],
            "--to mlflow takes --experiment-name, --tracking-uri",
        ),
        (["--to", "mlflow", "--rows"], "takes neither --output nor --rows"),
        (["--to", "mlflow", "-o", "x.csv"], "takes neither --output nor --rows"),
        (["--to", "mlflow", "--arg", "nope=1"], "nope"),
        (["--to", "mlflow", "--arg", "nope"], "--arg must be NAME=VALUE"),
        (["--to", "tensorboard", "--arg", "a=1"], "--to tensorboard takes --dir, got --arg"),
        (["--to", "wandb", "--mode", "later"], "online"),
    ],
)
def test_options_that_do_not_fit_are_refused(call, plain, options, told):
    assert told in call("export", "plain", *options, code=2).stderr


@pytest.mark.heavy
def test_a_tracker_that_fails_is_told_in_one_line(call, plain, store, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient  # noqa: PLC0415

    def refuse(*_, **__):
        raise ConnectionError("no route to http://me:s3cret@host")

    monkeypatch.setattr(MlflowClient, "log_batch", refuse)
    done = call("export", "plain", "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}", code=3)
    assert len(done.stderr.splitlines()) == 1
    assert "MLflow has 0 trials, and then failed (ConnectionError: no route to http://host)" in (
        done.stderr
    )
    assert "s3cret" not in done.stderr
    monkeypatch.undo()
    call("export", plain, "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}")
    assert curves(store) == LOSSES


@pytest.mark.heavy
def test_trials_of_a_running_experiment_stay_open(call, plain, store, monkeypatch):
    """Another driver may hold it; what it has not ended goes on."""
    monkeypatch.setattr("tuner.maintenance.tracker_export.driver_of", lambda _: object())
    opened = tune.ResultGrid.from_directory(plain).trials
    assert all(trial.is_finished for trial in opened)
    call("export", "plain", "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}")
    client = pytest.importorskip("mlflow").MlflowClient(f"sqlite:///{store}")
    ((experiment, mark),) = ask(
        store,
        "select distinct experiment_id, t.value from runs join tags t using (run_uuid) "
        "where key = 'tuner.experiment_id'",
    )
    client.create_run(
        str(experiment),
        tags={"tuner.experiment_id": mark, "trial_id": "t00009"},
        run_name="t00009",
    )
    call("export", "plain", "--to", "mlflow", "--tracking-uri", f"sqlite:///{store}")
    assert ask(store, "select status from runs where name = 't00009'") == [("RUNNING",)]
    refused = call("export", "plain", "--to", "tensorboard", code=3).stderr
    assert "is running, and writes its event files itself" in refused
