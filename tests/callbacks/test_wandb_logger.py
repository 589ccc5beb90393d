"""Runs of Weights & Biases, offline, as the real client writes them to its transaction logs."""

import json
import math
from pathlib import Path

import pytest

from tuner.callbacks.log_records import Row
from tuner.callbacks.trackers.tracker_queue import Begun
from tuner.callbacks.trackers.wandb_files import records, trace_of
from tuner.callbacks.trackers.wandb_logger import WandbLoggerCallback
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord
from tuner.storage.checkpoints import Checkpoint
from tuner.testing.callback_contract import CallbackContract

wandb = pytest.importorskip("wandb")

KEY = "0123456789abcdef0123456789abcdef01234567"
# The warnings are the client's own, from its thread.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Keep the client away from the user's own settings and keys."""
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield
    wandb.teardown()  # it would keep the settings


@pytest.fixture
def start(tmp_path):
    """Return a function that sets a callback up, as each driver of one experiment does."""
    experiment = tmp_path / "demo"
    experiment.mkdir()

    def setup(**options):
        logger = WandbLoggerCallback(**options)
        logger.setup(experiment_path=experiment, experiment_id="abc", metric="loss")
        return logger

    return setup


@pytest.fixture
def written(tmp_path):
    """Return a function that reads the records of one kind from all sessions of a trial's run."""

    def read(kind, trial_id="t00000"):
        paths = sorted(
            (tmp_path / "demo" / "wandb").glob(f"offline-run-*/run-abc-{trial_id}.wandb")
        )
        return [
            getattr(record, kind)
            for path in paths
            for record in records(path)
            if record.WhichOneof("record_type") == kind
        ]

    return read


class TestContract(CallbackContract):
    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)  # where the contract names no directory of an experiment

    def make_callback(self):
        return WandbLoggerCallback()


def rows(history):
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item}
        for row in history
    ]


def end(logger, *trials, ending=TerminationReason.COMPLETED):
    for trial in trials:
        trial.move_to(Status.ERROR if ending is TerminationReason.FAILED else Status.TERMINATED)
        trial.ending = ending
        logger.log_trial_end(trial)
    leave(logger)


def leave(logger):
    """End the experiment, and the client's own process, which writes the last records."""
    logger.on_experiment_end(trials=[])
    wandb.teardown()


def test_a_trial_is_one_run_with_configuration_and_curves(
    start, written, make_trial, report, tmp_path
):
    logger, trial = (
        start(project="digits", api_key=KEY, tags=["first"], config={"host": "here"}),
        make_trial(lr=0.1, net={"width": 2}),
    )
    logger.log_trial_start(trial)
    for iteration in (1, 2):
        odd = {"nan": math.nan, "up": math.inf, "ok": True, "text": "x", "list": [1]}
        logger.log_trial_result(
            iteration,
            trial,
            report(trial, iteration, loss=1 / iteration, val={"acc": 0.5}, timestamp=17, **odd),
        )
    end(logger, trial)
    run, *_ = written("run")
    assert (run.run_id, run.project, run.display_name, run.run_group, list(run.tags)) == (
        "abc-t00000",
        "digits",
        "t00000",
        "demo",
        ["first"],
    )
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert config.items() >= {"lr": 0.1, "net/width": 2, "host": "here"}.items()
    first, second = rows(written("history"))
    assert (first["loss"], second["loss"], first["val/acc"], first["_step"], second["_step"]) == (
        1,
        0.5,
        0.5,
        1,
        2,
    )
    assert math.isnan(first["nan"])
    assert (first["up"], first["ok"], first["text"]) == (math.inf, True, "x")
    assert "list" not in first
    assert [metric.step_metric for metric in written("metric") if metric.glob_name == "*"] == [
        "training_iteration"
    ]
    assert [exit_.exit_code for exit_ in written("exit")] == [0]
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (TerminationReason.FAILED, 1),
        (TerminationReason.INTERRUPTED, 255),
        (TerminationReason.STOPPED_EARLY, 0),
    ],
)
def test_a_run_ends_as_its_trial_does(start, written, make_trial, ending, code):
    logger, trial = start(), make_trial()
    logger.log_trial_start(trial)
    end(logger, trial, ending=ending)
    assert [exit_.exit_code for exit_ in written("exit")] == [code]


def test_what_a_retry_reports_again_is_not_lost(start, written, make_trial, report):
    logger, trial = start(), make_trial()
    logger.log_trial_start(trial)
    for iteration in (1, 2, 3):
        logger.log_trial_result(iteration, trial, report(trial, iteration, loss=iteration))
    trial.attempt = 2
    logger.log_trial_start(trial)
    for iteration in (2, 3):
        logger.log_trial_result(iteration, trial, report(trial, iteration, loss=10 * iteration))
    end(logger, trial)
    told = rows(written("history"))
    assert [(row["_step"], row["training_iteration"], row["loss"]) for row in told] == [
        (1, 1, 1),
        (2, 2, 2),
        (3, 3, 3),
        (4, 2, 20),
        (5, 3, 30),
    ]


def test_a_restored_trial_goes_on_in_its_run_and_what_was_lost_is_there(
    start, written, make_trial, report, tmp_path
):
    trial = make_trial()
    results = [
        report(trial, iteration, loss=iteration, timestamp=100 + iteration)
        for iteration in range(1, 6)
    ]
    first = start()
    first.log_trial_start(trial)
    for result in results[:2]:
        first.log_trial_result(result["training_iteration"], trial, result)
    leave(first)
    trial.checkpoints = [CheckpointRecord(0, 4)]
    second = start()
    second.catch_up([trial], lambda _: results)
    trial.attempt, trial.resumed_iteration = 2, 4
    second.log_trial_start(trial)
    second.log_trial_result(5, trial, report(trial, 5, loss=50, timestamp=200))
    end(second, trial)
    told = [(row["_step"], row["loss"]) for row in rows(written("history"))]
    assert told == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 50)]
    assert {run.run_id for run in written("run")} == {"abc-t00000"}
    assert trace_of(tmp_path / "demo" / "wandb", "abc-t00000").results[200, 5] == 1


def test_a_trial_that_has_told_everything_is_not_begun_again(start, written, make_trial, report):
    trial = make_trial()
    results = [report(trial, 1, loss=1, timestamp=100)]
    first = start()
    first.log_trial_start(trial)
    first.log_trial_result(1, trial, results[0])
    end(first, trial)
    second = start()
    second.catch_up([trial], lambda _: results)
    leave(second)
    assert len(written("run")) == 1


def test_an_exploit_changes_the_configuration(start, written, make_trial):
    logger, trial = start(), make_trial(lr=0.1)
    logger.log_trial_start(trial)
    trial.config, trial.attempt = {"lr": 0.5}, 2
    logger.log_trial_start(trial)
    end(logger, trial)
    changed = [
        json.loads(update.value_json)
        for config in written("config")
        for update in config.update
        if update.key == "lr"
    ]
    assert changed == [0.5]


def test_a_paused_trial_leaves_no_open_run_behind_and_goes_on_in_its_own(
    start, written, make_trial, report
):
    trial, tracker = make_trial(), start()._queue._tracker
    tracker.connect()
    for iteration in (1, 2):
        tracker.begin(trial, Begun({"lr": 0.1}, 0.0))
        tracker.log(trial, [Row(report(trial, iteration, loss=iteration), 0.0)])
        assert len(tracker._runs) == 1
        trial.move_to(Status.PAUSED)
        trial.attempt = 2
        tracker.idle()
        assert tracker._runs == {}
    # It was reported just before the pause.
    tracker.log(trial, [Row(report(trial, 3, loss=3), 0.0)])
    tracker.close()
    wandb.teardown()
    assert [row["_step"] for row in rows(written("history"))] == [1, 2, 3]


def test_metrics_can_be_left_out_and_the_configuration_logged(start, written, make_trial, report):
    logger, trial = start(excludes=["val", "b/c"], log_config=True), make_trial(lr=0.1)
    logger.log_trial_start(trial)
    logger.log_trial_result(
        1, trial, report(trial, 1, loss=1, val={"x": 1, "y": 2}, b={"c": 1, "d": 2}, valid=3)
    )
    end(logger, trial)
    (row,) = rows(written("history"))
    assert {name for name in row if not name.startswith("_")} == {
        "loss",
        "b/d",
        "valid",
        "training_iteration",
        "timestamp",
        "config/lr",
    }


def test_checkpoints_are_uploaded_if_that_is_wanted(start, written, make_trial, tmp_path):
    logger, trial = start(upload_checkpoints=True), make_trial()
    for name in ("checkpoint_000000", "checkpoint_000001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(name)
    logger.log_trial_start(trial)
    logger.on_checkpoint(0, [], trial, Checkpoint(tmp_path / "checkpoint_000000"))
    logger.on_checkpoint(0, [], trial, Checkpoint(tmp_path / "gone"))
    end(logger, trial)
    (artifact,) = written("artifact")
    assert (artifact.name, sorted(artifact.aliases)) == (
        "checkpoint_t00000",
        ["checkpoint_000000", "latest"],
    )


def test_a_key_comes_from_one_place(tmp_path):
    (tmp_path / "key").write_text(f"{KEY}\n")
    (tmp_path / "empty").write_text("\n")
    assert WandbLoggerCallback(api_key_file=str(tmp_path / "key"))._options.api_key == KEY
    with pytest.raises(ValueError, match="must not both be given"):
        WandbLoggerCallback(api_key=KEY, api_key_file=str(tmp_path / "key"))
    with pytest.raises(
        ValueError, match=r"api_key_file must be a file with the key, got .*empty', which is empty"
    ):
        WandbLoggerCallback(api_key_file=str(tmp_path / "empty"))
    with pytest.raises(
        ValueError, match=r"api_key_file must be a file with the key, got .*nowhere"
    ):
        WandbLoggerCallback(api_key_file=str(tmp_path / "nowhere"))


def test_what_the_callback_chooses_cannot_be_given():
    with pytest.raises(ValueError, match="must leave id, reinit, resume to the callback, got id"):
        WandbLoggerCallback(id="mine")


def test_online_without_a_key_is_told_at_once(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ValueError, match="W&B must have a key to be online, got none"):
        WandbLoggerCallback()


def test_a_torn_log_tells_what_is_whole(start, make_trial, report, tmp_path):
    logger, trial = start(), make_trial()
    logger.log_trial_start(trial)
    for iteration in range(1, 301):  # more than a block of the file
        logger.log_trial_result(
            iteration, trial, report(trial, iteration, loss=iteration, timestamp=100 + iteration)
        )
    end(logger, trial)
    directory = tmp_path / "demo" / "wandb"
    whole = trace_of(directory, "abc-t00000")
    assert (whole.last_step, len(whole.results), whole.exit_code) == (300, 300, 0)
    (path,) = directory.glob("offline-run-*/*.wandb")
    data = Path(path).read_bytes()
    assert len(data) > 2 * 32_768
    path.write_bytes(data[: len(data) // 2])
    torn = trace_of(directory, "abc-t00000")
    assert 100 < torn.last_step < 200
    assert max(torn.results) == (100 + torn.last_step, torn.last_step)
    assert torn.exit_code is None


def test_metrics_of_a_validation_have_the_iteration_of_its_checkpoint(
    start, written, make_trial, report
):
    logger, trial = start(excludes=["hidden"]), make_trial()
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
        metrics={"acc": 0.5, "hidden": {"x": 1}},
        result=results[1],
    )
    end(logger, trial)
    *_, last = rows(written("history"))
    shown = {name: value for name, value in last.items() if not name.startswith("_")}
    assert shown == {"acc": 0.5, "training_iteration": 2}
    assert last["_step"] == 4


def test_metrics_of_validations_that_were_lost_are_filled_in_once(
    start, written, validated_trial, report
):
    trial = validated_trial
    results = [report(trial, iteration, loss=iteration, timestamp=100) for iteration in (1, 2, 3)]
    first = start()
    first.log_trial_start(trial)
    for result in results[:2]:
        first.log_trial_result(0, trial, result)
    first.on_checkpoint_validated(
        0,
        [trial],
        trial,
        checkpoint=Checkpoint(f"{trial.local_path}/checkpoint_000000"),
        status="VALIDATED",
        metrics={"acc": 0.0},
        result=results[0],
    )
    leave(first)
    merged = [{**result, "acc": index / 4} for index, result in enumerate(results)]
    for _ in range(2):
        logger = start()
        logger.catch_up([trial], lambda _: merged)
        leave(logger)
    told = rows(written("history"))
    assert [(row["training_iteration"], row["acc"]) for row in told if "acc" in row] == [
        (1, 0.0),
        (3, 0.5),
        (2, 0.25),
    ]
    assert [row["loss"] for row in told if "loss" in row] == [1, 2, 3]


class Served:
    """Stands for the client of a server that has some results of one run."""

    def __init__(self, known):
        self.known, self.logged, self.ends = known, [], []
        self.config = self  # for `update`
        self.entity, self.project, self.id, self.starting_step = "me", "demo", "abc-t00000", 0
        self.resumed = bool(known)

    def init(self, **given):
        assert (given["id"], given["resume"]) == (self.id, "allow")
        return self

    def log(self, values, *, step, commit):
        assert commit
        self.logged.append((step, values["training_iteration"], values.get("loss")))
        self.known.append(values)

    def nothing(self, *_, **__):
        pass

    update = define_metric = nothing

    def finish(self, exit_code):
        self.ends.append(exit_code)

    def Settings(self, **given):  # noqa: N802  (the client's name)
        return given

    def Api(self, api_key):  # noqa: N802  (the client's name)
        assert api_key == KEY
        return self

    def run(self, path):
        assert path == "me/demo/abc-t00000"
        return self

    def scan_history(self, *, keys, use_cache):
        assert not use_cache
        return [row for row in self.known if row.keys() >= set(keys)]


def test_what_a_server_lacks_is_added_once(start, make_trial, report, monkeypatch):
    """Also from the middle of a run, of which local files show nothing."""
    results = [
        report(make_trial(), iteration, loss=iteration, timestamp=100) for iteration in (1, 2, 3)
    ]
    server = Served([dict(results[0]), dict(results[2])])
    trial = make_trial()
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    for _ in range(2):
        callback = start(project="demo", api_key=KEY)
        tracker = callback.tracker(callback._experiment)
        tracker._wandb, tracker._is_offline = server, False
        monkeypatch.setattr(tracker, "connect", lambda: None)
        monkeypatch.setattr(callback, "tracker", lambda _, tracker=tracker: tracker)
        assert list(callback.deliver(callback._experiment, [trial], lambda _: results)) == [trial]
    assert [(iteration, loss) for _, iteration, loss in server.logged] == [(2, 2)]
    assert server.ends == [0, 0]


def test_a_run_that_was_killed_is_ended_as_its_trial(start, written, make_trial, report):
    """All its results are there, but not how it ended."""
    trial = make_trial()
    results = [report(trial, 1, loss=1, timestamp=100)]
    first = start()
    first.log_trial_start(trial)
    first.log_trial_result(1, trial, results[0])
    leave(first)
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    for _ in range(2):
        second = start()
        second.catch_up([trial], lambda _: results)
        leave(second)
    assert sorted(exit_.exit_code for exit_ in written("exit")) == [0, 255]
    assert len(written("history")) == 1


def test_its_arguments_make_the_same_callback_without_its_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_RUN_GROUP", "ours")
    logger = WandbLoggerCallback(
        project="p", api_key=KEY, excludes=["a/b"], entity="team", dir=str(tmp_path), tags=["x"]
    )
    assert logger.export_command() == (
        f"tuner export EXP --to wandb --entity team --dir {tmp_path} --arg 'tags=[\"x\"]' "
        "--project p --group ours --mode offline --arg 'excludes=[\"a/b\"]'"
    )
