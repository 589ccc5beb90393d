"""Comet's experiments, offline, as the real client archives them."""

import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tuner.callbacks.trackers.comet_logger import CometLoggerCallback
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord
from tuner.storage.checkpoints import Checkpoint

pytest.importorskip("comet_ml")
# The warnings are the client's own, from its thread.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("default")]


@pytest.fixture
def start(tmp_path):
    """Return a function that sets a callback up, as each driver of one experiment does."""

    def setup(**options):
        logger = CometLoggerCallback(online=False, **options)
        logger.setup(experiment_path=tmp_path / "demo", experiment_id="abc", metric="loss")
        return logger

    return setup


@pytest.fixture
def told(tmp_path):
    """Return a function that reads the archives: metrics by step, parameters, others, and keys."""

    def read():
        points, params, others, keys, tags = [], {}, {}, set(), set()
        for path in sorted(
            (tmp_path / "demo" / "comet").glob("*.zip"), key=lambda path: path.stat().st_mtime
        ):
            with zipfile.ZipFile(path) as archive:
                head = json.loads(archive.read("experiment.json"))
                messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
            keys.add(head["offline_id"])
            tags |= set(head["tags"])
            for message in messages:
                payload = message["payload"]
                if message["type"] == "metric_msg":
                    points.append(
                        (
                            payload["metric"]["metricName"],
                            payload["metric"]["step"],
                            float(payload["metric"]["metricValue"]),
                        )
                    )
                elif message["type"] == "parameter_msg":
                    params[payload["param"]["paramName"]] = payload["param"]["paramValue"]
                elif message["type"] == "log_other":
                    others[payload["key"]] = payload["value"]
        return points, params, others, keys, tags

    return read


def end(logger, trial):
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED
    logger.log_trial_end(trial)
    logger.on_experiment_end(trials=[trial])


def test_a_trial_is_one_experiment_over_a_restore(start, told, make_trial, report):
    trial = make_trial(lr=0.1, net={"width": 2})
    results = [
        report(trial, iteration, loss=iteration, timestamp=100 + iteration)
        for iteration in range(1, 6)
    ]
    first = start(tags=["mine"])
    first.log_trial_start(trial)
    for result in results[:2]:
        first.log_trial_result(result["training_iteration"], trial, result)
    first.on_experiment_end(trials=[trial])
    assert told()[2]["status"] == "KILLED"
    trial.checkpoints = [CheckpointRecord(0, 4)]
    second = start(tags=["mine"])
    second.catch_up([trial], lambda _: results)
    trial.attempt, trial.resumed_iteration, trial.config = 2, 4, {"lr": 0.5, "net": {"width": 2}}
    second.log_trial_start(trial)
    odd = {"nan": math.nan, "up": math.inf, "text": "x", "list": [1], "val": {"acc": 0.5}}
    second.log_trial_result(5, trial, report(trial, 5, loss=50, timestamp=200, **odd))
    end(second, trial)
    points, params, others, keys, tags = told()
    assert [(step, value) for name, step, value in points if name == "loss"] == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
        (5, 50),
    ]
    assert {name for name, *_ in points} >= {"nan", "up", "val/acc", "training_iteration"}
    assert (params["lr"], params["net/width"]) == (0.5, 2)
    assert (others["Name"], others["status"], others["text"]) == ("t00000", "FINISHED", "x")
    assert len(keys) == 1
    assert tags == {"mine", "demo"}


def test_the_client_is_imported_when_it_is_needed():
    code = (
        "import sys, tuner.integration.comet, tuner.integration.mlflow, tuner.integration.wandb\n"
    )
    code += "assert not {'comet_ml', 'mlflow', 'wandb'} & set(sys.modules)"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)  # noqa: S603


def test_metrics_of_validations_that_were_lost_are_filled_in_once(
    start, told, validated_trial, report
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
    first.on_experiment_end(trials=[trial])
    merged = [{**result, "acc": index / 4} for index, result in enumerate(results)]
    for _ in range(2):
        logger = start()
        logger.catch_up([trial], lambda _: merged)
        logger.on_experiment_end(trials=[trial])
    points = told()[0]
    assert sorted((step, value) for name, step, value in points if name == "acc") == [
        (1, 0.0),
        (2, 0.25),
        (3, 0.5),
    ]
    assert [value for name, _, value in points if name == "loss"] == [1, 2, 3]


class Server:
    """Stands for Comet, which knows some experiments."""

    class exceptions:  # noqa: N801  (the client's name)
        class NotFound(Exception):
            pass

        class CometException(Exception):
            pass

    def __init__(self):
        self.metrics, self.others, self.num_made = {}, {}, 0

    def APIExperiment(self, previous_experiment):  # noqa: N802
        if previous_experiment not in self.metrics:
            raise self.exceptions.NotFound
        return Stored(self, previous_experiment)

    def Experiment(self, experiment_key, **_):  # noqa: N802
        assert experiment_key not in self.metrics
        self.num_made += 1
        self.metrics[experiment_key] = []
        return Stored(self, experiment_key)

    def ExistingExperiment(self, previous_experiment, **_):  # noqa: N802
        if previous_experiment not in self.metrics:
            raise ValueError("there is none")
        return Stored(self, previous_experiment)


class Stored:
    def __init__(self, server, key):
        self.server, self.key = server, key

    def log_metrics(self, metrics, step):
        self.server.metrics[self.key] += [
            {"metricName": name, "metricValue": str(value), "step": step}
            for name, value in metrics.items()
        ]

    def get_metrics(self):
        return self.server.metrics[self.key] or None

    def log_other(self, name, value):
        self.server.others[name] = value

    def get_others_summary(self, name):
        return [self.server.others[name]] if name in self.server.others else []

    def nothing(self, *_, **__):
        pass

    log_parameters = log_others = set_name = add_tags = end = nothing


def test_what_the_server_lacks_is_added_once(tmp_path, make_trial, report, monkeypatch):
    server, trial = Server(), make_trial()
    results = [report(trial, iteration, loss=iteration, timestamp=100) for iteration in (1, 2, 3)]
    trial.move_to(Status.TERMINATED)
    trial.ending = TerminationReason.COMPLETED

    def fill(results):
        callback = CometLoggerCallback()
        callback.setup(experiment_path=tmp_path / "demo", experiment_id="abc")
        tracker = callback.tracker(callback._experiment)
        monkeypatch.setattr(tracker, "connect", lambda: setattr(tracker, "_comet", server))
        monkeypatch.setattr(callback, "tracker", lambda _: tracker)
        return list(callback.deliver(callback._experiment, [trial], lambda _: results))

    for some in ([results[0], results[2]], results, results):
        assert fill(some) == [trial]
    (metrics,) = server.metrics.values()
    told = [(one["step"], one["metricValue"]) for one in metrics if one["metricName"] == "loss"]
    assert sorted(told) == [(1, "1"), (2, "2"), (3, "3")]
    assert (server.num_made, server.others["status"]) == (1, "FINISHED")
