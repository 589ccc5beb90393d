"""Callbacks are called in the documented order, make the documented requests, and do no harm."""

import csv
import gc
import json
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

import tuner as tune
from schedulers.decisions import Reason, Stop
from schedulers.scheduler import Scheduler
from searchers import BasicVariantGenerator
from tuner import Callback, Checkpoint, LoggerCallback, Trainable, Tuner
from tuner.callbacks.callback_list import HOOKS
from tuner.core.trial import Status

TURNS = ("on_step_begin", "on_step_end")


class Recorder(Callback):
    """Records the calls of hooks: name, trial and arguments."""

    def __init__(self):
        self.calls = []

    def named(self, *names):
        return [(trial, info) for name, trial, info in self.calls if name in names]

    def of(self, trial_id):
        return [name for name, trial, _ in self.calls if trial == trial_id]

    def __getattribute__(self, name):
        if name not in HOOKS:
            return super().__getattribute__(name)

        def record(**info):
            self.calls.append((name, info["trial"].trial_id if "trial" in info else None, info))

        return record


class Counter(Trainable):
    """Fails once after its second step if its configuration says so."""

    def setup(self, config):
        self.fails = config.get("fails", False)

    def step(self):
        if self.fails and self.iteration == 2:
            raise ValueError("fails once")
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        self.fails = False


def train(config):
    for epoch in range(3):
        tune.report({"epoch": epoch})


@pytest.fixture
def recorder():
    return Recorder()


RESULT, SAVED = ["on_trial_result"], ["on_checkpoint", "on_trial_save"]


def test_the_hooks_of_a_trial_come_in_the_promised_order(fit, recorder):
    fit(Counter, stop={"training_iteration": 3}, callbacks=[recorder])
    assert recorder.of("t00000") == [
        "on_trial_start",
        *RESULT,
        *RESULT,
        *RESULT,
        *SAVED,
        "on_trial_complete",
    ]


def test_the_checkpoint_of_a_result_is_announced_after_the_result(fit, recorder):
    def train(config):
        for _ in range(2):
            with tempfile.TemporaryDirectory() as temporary:
                tune.report({}, checkpoint=Checkpoint.from_directory(temporary))

    fit(train, callbacks=[recorder])
    assert recorder.of("t00000") == [
        "on_trial_start",
        *RESULT,
        *SAVED,
        *RESULT,
        *SAVED,
        "on_trial_complete",
    ]
    paths = [info["checkpoint"].path for _, info in recorder.named("on_checkpoint")]
    assert [Path(path).name for path in paths] == ["checkpoint_000000", "checkpoint_000001"]
    assert all(
        isinstance(info["checkpoint"], Checkpoint) for _, info in recorder.named("on_checkpoint")
    )


def test_a_retry_is_recover_start_restore(fit, recorder):
    config = tune.CheckpointConfig(checkpoint_frequency=1)
    fit(
        Counter,
        {"fails": True},
        stop={"training_iteration": 3},
        callbacks=[recorder],
        checkpoint_config=config,
        failure={"max_failures": 1},
    )
    first = ["on_trial_start", *RESULT, *SAVED, *RESULT, *SAVED]
    second = ["on_trial_recover", "on_trial_start", "on_trial_restore", *RESULT, *SAVED]
    assert recorder.of("t00000") == [*first, *second, "on_trial_complete"]


def test_a_trial_that_fails_for_good_ends_with_an_error(fit, recorder):
    fit(Counter, {"fails": True}, callbacks=[recorder])
    assert recorder.of("t00000") == ["on_trial_start", *RESULT, *RESULT, "on_trial_error"]


def test_the_experiment_begins_with_setup_and_ends_with_its_end_once(fit, recorder, tmp_path):
    space, stop = {"x": tune.grid_search([1, 2])}, {"training_iteration": 2}
    fit(
        train,
        space,
        tune={"metric": "epoch", "mode": "max", "num_samples": 2},
        stop=stop,
        callbacks=[recorder],
    )
    names = [name for name, _, _ in recorder.calls]
    assert (names[0], names[-1]) == ("setup", "on_experiment_end")
    assert (names.count("setup"), names.count("on_experiment_end")) == (1, 1)
    logged = recorder.calls[0][2]
    assert (logged["stop"], logged["num_samples"], logged["total_num_samples"]) == (stop, 2, 4)
    assert (logged["experiment_path"], logged["metric"], logged["mode"], logged["space"]) == (
        tmp_path / "experiment",
        "epoch",
        "max",
        space,
    )
    assert [trial.status for trial in recorder.calls[-1][2]["trials"]] == [Status.TERMINATED] * 4


def test_every_turn_begins_and_ends_and_is_counted(fit, recorder):
    fit(train, callbacks=[recorder])
    turns = [(name, info["iteration"]) for name, _, info in recorder.calls if name in TURNS]
    assert turns == [(name, number) for number in range(1, len(turns) // 2 + 1) for name in TURNS]
    open_turn = None
    for name, _, info in recorder.calls[1:-1]:
        open_turn = info["iteration"] if name == "on_step_begin" else open_turn
        assert info["iteration"] == open_turn


@pytest.mark.parametrize(("executor", "is_left_alone"), [("inline", True), ("process", False)])
def test_the_collector_is_left_alone_where_trials_are_trained_in_the_same_process(
    fit, executor, is_left_alone
):
    class Looking(Callback):
        def on_trial_result(self, **info):
            seen.append(gc.get_threshold())

    seen, before = [], gc.get_threshold()
    fit(train, callbacks=[Looking()], executor=executor)
    assert seen
    assert {threshold == before for threshold in seen} == {is_left_alone}
    assert gc.get_threshold() == before


def test_a_trial_is_the_same_object_from_start_to_end(fit, recorder):
    fit(
        Counter,
        {"fails": True, "x": tune.grid_search([1, 2])},
        callbacks=[recorder],
        failure={"max_failures": 1},
        stop={"training_iteration": 3},
    )
    objects = {
        info["trial"]
        for _, info in recorder.named("on_trial_start", "on_trial_result", "on_trial_complete")
    }
    assert sorted(trial.trial_id for trial in objects) == ["t00000", "t00001"]
    assert all(
        info["trials"] is recorder.calls[-1][2]["trials"] for _, _, info in recorder.calls[1:]
    )


def test_in_on_trial_result_the_last_result_is_the_one_just_reported(fit):
    class Watcher(Callback):
        def __init__(self):
            self.seen = []

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.seen.append(
                (trial.last_result.get("training_iteration"), result["training_iteration"])
            )

        def on_trial_complete(self, iteration, trials, trial, **info):
            self.seen.append((trial.last_result["training_iteration"], None))

    watcher = Watcher()
    fit(train, callbacks=[watcher])
    assert watcher.seen == [(1, 1), (2, 2), (3, 3), (3, None)]


def test_what_a_callback_writes_into_a_result_reaches_later_callbacks_and_the_files(fit, rows_of):
    class Annotator(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            result["squared"] = result["epoch"] ** 2

    class Reader(Callback):
        def __init__(self):
            self.seen = []

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.seen.append(result.get("squared"))

    before, after = Reader(), Reader()
    (result,) = fit(train, callbacks=[before, Annotator(), after])
    assert (before.seen, after.seen) == ([None] * 3, [0, 1, 4])
    assert [row["squared"] for row in rows_of(result.path)] == [0, 1, 4]
    with Path(result.path, "progress.csv").open(newline="") as file:
        assert [row["squared"] for row in csv.DictReader(file)] == ["0", "1", "4"]


@pytest.mark.parametrize("is_replayed", [False, True])
def test_what_a_callback_writes_into_a_result_changes_nothing_of_the_experiment(
    build, tmp_path, is_replayed
):
    class Writer(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            result["epoch"] = result["val"]["loss"] = result["config"]["lr"] = -5.0
            result["added"] = 3.0

    def train(config):
        for epoch in range(3):
            tune.report({"epoch": epoch, "val": {"loss": config["lr"]}})

    tuner = build(
        train, {"lr": 0.1}, tune={"metric": "val/loss", "mode": "min"}, callbacks=[Writer()]
    )
    live = tuner.fit()
    if is_replayed:
        shutil.rmtree(tmp_path / "experiment" / "snapshot")
    restored = Tuner.restore(tmp_path / "experiment", train, callbacks=[Writer()]).get_results()
    for (result,) in (live, restored):
        assert (result.metrics["epoch"], result.metrics["val"], result.config) == (
            2,
            {"loss": 0.1},
            {"lr": 0.1},
        )
        assert "added" not in result.metrics
        assert list(result.metrics_dataframe["val/loss"]) == [0.1] * 3


def test_a_result_carries_the_configuration_and_the_keys_of_the_engine(fit, recorder):
    fit(train, {"lr": 0.1, "model": {"depth": 3}}, callbacks=[recorder])
    for position, (_, info) in enumerate(recorder.named("on_trial_result"), start=1):
        assert info["result"]["config"] == {"lr": 0.1, "model": {"depth": 3}}
        assert info["result"]["training_iteration"] == position
        assert info["result"]["trial_id"] == "t00000"


@pytest.mark.parametrize(
    "hook",
    [
        "setup",
        "on_step_begin",
        "on_trial_start",
        "on_trial_result",
        "on_trial_complete",
        "on_experiment_end",
    ],
)
def test_a_callback_that_raises_is_disabled_with_one_warning_and_the_others_go_on(
    fit, caplog, rows_of, hook
):
    class Broken(Callback):
        num_calls = 0

    def explode(**info):
        Broken.num_calls += 1
        raise RuntimeError("a defect of the callback")

    broken, recorder = Broken(), Recorder()
    setattr(broken, hook, explode)
    results = fit(train, {"x": tune.grid_search([1, 2])}, callbacks=[broken, recorder])
    assert Broken.num_calls == 1
    assert caplog.text.count("is switched off; the experiment continues without it") == 1
    assert f"Broken.{hook} raised RuntimeError" in caplog.text
    assert results.num_terminated == 2
    assert recorder.of("t00001") == [
        "on_trial_start",
        *RESULT,
        *RESULT,
        *RESULT,
        "on_trial_complete",
    ]
    assert len(rows_of(results[1].path)) == 3


def test_the_scheduler_gets_a_result_before_callbacks_do_and_the_searcher_at_any_time(fit):
    calls_made = []

    class Search(BasicVariantGenerator):
        def on_trial_result(self, trial_id, result):
            calls_made.append(("searcher", result["epoch"]))

    class Schedule(Scheduler):
        def on_trial_result(self, trial, result):
            calls_made.append(("scheduler", result["epoch"]))
            return []

    class Listener(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            calls_made.append(("callback", result["epoch"]))

    fit(train, tune={"search_alg": Search(), "scheduler": Schedule()}, callbacks=[Listener()])
    assert [each for each in calls_made if each[0] != "searcher"] == [
        (who, epoch) for epoch in range(3) for who in ("scheduler", "callback")
    ]
    assert [epoch for who, epoch in calls_made if who == "searcher"] == [0, 1, 2]


def test_a_trial_that_a_scheduler_stops_is_complete_for_callbacks(fit, recorder):
    class StopAtOnce(Scheduler):
        def on_trial_result(self, trial, result):
            return [Stop(trial.trial_id, Reason("test"))]

    (result,) = fit(train, tune={"scheduler": StopAtOnce()}, callbacks=[recorder])
    assert recorder.of("t00000") == ["on_trial_start", *RESULT, "on_trial_complete"]
    assert result.ending == "stopped early"


def test_a_custom_logger_needs_one_method(fit, tmp_path):
    class Ledger(LoggerCallback):
        def __init__(self):
            self.lines = []

        def log_trial_result(self, iteration, trial, result):
            self.lines.append((trial.trial_id, result["epoch"]))

        def log_trial_end(self, trial, failed=False):
            self.lines.append((trial.trial_id, failed))

    ledger = Ledger()
    fit(train, callbacks=[ledger])
    assert ledger.lines == [("t00000", 0), ("t00000", 1), ("t00000", 2), ("t00000", False)]


def test_a_logger_that_is_given_is_not_added_again(fit, monkeypatch):
    class Mine(tune.JsonLoggerCallback):
        pass

    (result,) = fit(train, callbacks=[Mine()])
    lines = Path(result.path, "result.json").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]


def test_default_loggers_can_be_switched_off(fit, monkeypatch):
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    (result,) = fit(train, executor="process")
    assert sorted(path.name for path in Path(result.path).iterdir()) == ["stderr", "stdout"]
    assert len(result.metrics_dataframe) == 3


def test_training_waits_for_nothing_but_its_answer(fit, recorder):
    fit(train, {"x": tune.grid_search(list(range(4)))}, callbacks=[recorder], resources={"cpu": 4})
    for trial_id in ("t00000", "t00001", "t00002", "t00003"):
        turns = [
            info["iteration"]
            for trial, info in recorder.named("on_trial_result")
            if trial == trial_id
        ]
        assert all(later > earlier for earlier, later in pairwise(turns))


class Saver(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        result["should_checkpoint"] = True


class Unsavable(Trainable):
    def step(self):
        return {"loss": 1.0}


@pytest.mark.parametrize(
    ("trainable", "why"),
    [
        (
            train,
            (
                "train is a function, and functions report their checkpoints themselves; call "
                "tune.report(metrics, checkpoint=...) in it"
            ),
        ),
        (
            Unsavable,
            "Unsavable has no save_checkpoint; implement save_checkpoint and load_checkpoint",
        ),
    ],
)
def test_a_callback_that_requests_impossible_checkpoints_gets_one_warning_with_its_name(
    fit, caplog, trainable, why
):
    fit(trainable, tune={"num_samples": 2}, callbacks=[Saver()], stop={"training_iteration": 3})
    logged = [
        record.getMessage()
        for record in caplog.records
        if "should_checkpoint" in record.getMessage()
    ]
    assert logged == [
        f"callback Saver sets should_checkpoint in on_trial_result, which has no effect: {why}"
    ]


def test_a_callback_that_asks_a_class_for_checkpoints_gets_them(fit, caplog):
    (result,) = fit(Counter, callbacks=[Saver()], stop={"training_iteration": 2})
    assert result.checkpoint is not None
    assert not any("should_checkpoint" in record.getMessage() for record in caplog.records)


def test_a_callback_that_assigns_the_status_of_a_trial_is_switched_off_with_what_to_do_instead(
    fit, caplog
):
    class Ender(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            trial.status = "TERMINATED"

    (result,) = fit(train, callbacks=[Ender()])
    assert result.metrics["training_iteration"] == 3
    (logged,) = [
        record
        for record in caplog.records
        if "Ender.on_trial_result raised AttributeError" in record.getMessage()
    ]
    assert "the status of trial t00000 cannot be assigned" in str(logged.exc_info[1])


def test_a_callback_sees_name_directory_and_checkpoint_of_a_trial(fit, tmp_path):
    seen = []

    class Looks(Callback):
        def on_trial_save(self, iteration, trials, trial, **info):
            seen.append((trial.trainable_name, trial.path, trial.checkpoint))

        def on_trial_start(self, iteration, trials, trial, **info):
            seen.append((trial.trainable_name, trial.path, trial.checkpoint))

    (result,) = fit(Counter, callbacks=[Looks()], stop={"training_iteration": 2})
    directory = str(tmp_path / "experiment" / "t00000")
    assert seen[0] == ("Counter", directory, None)
    assert seen[1] == ("Counter", directory, result.checkpoint)
    assert isinstance(result.checkpoint, tune.Checkpoint)
    (trial,) = tune.ExperimentAnalysis(str(tmp_path / "experiment")).trials
    assert (trial.trainable_name, trial.path, trial.checkpoint) == seen[1]
