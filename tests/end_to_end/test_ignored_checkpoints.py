"""A function that is resumed, and does not ask for the checkpoint to continue from."""

import functools
import json
import logging
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler, PopulationBasedTraining
from tuner import train as tuner_train
from tuner.train import ScalingConfig
from tuner.train.trainer import DataParallelTrainer


def report_with_checkpoint(epoch, report=tune.report):
    with tune.checkpoint_dir() as directory:
        Path(directory, "state.json").write_text(json.dumps(epoch))
        report(
            {"loss": 1 / epoch, "epoch": epoch},
            checkpoint=tune.Checkpoint.from_directory(directory),
        )


def state_in(checkpoint):
    with checkpoint.as_directory() as directory:
        return json.loads(Path(directory, "state.json").read_text())


def never_asks(config):
    for epoch in range(1, 5):
        report_with_checkpoint(epoch)


def asks_too_late(config):
    for epoch in range(1, 5):
        report_with_checkpoint(epoch)
        tune.get_checkpoint()


def continues(config):
    checkpoint = tune.get_checkpoint()
    for epoch in range((state_in(checkpoint) if checkpoint else 0) + 1, 5):
        report_with_checkpoint(epoch)


def old_style(config, checkpoint_dir=None):
    begun = json.loads(Path(checkpoint_dir, "state.json").read_text()) if checkpoint_dir else 0
    for epoch in range(begun + 1, 5):
        report_with_checkpoint(epoch)


def old_style_with_data(hyperparameters, checkpoint_dir=None, data=None):
    assert data == [1, 2, 3]
    old_style(hyperparameters, checkpoint_dir)


def old_style_in_name_only(config, checkpoint_dir=None):
    never_asks(config)


PROMOTION = {"max_t": 4, "grace_period": 1, "reduction_factor": 2, "type": "promotion"}


@pytest.fixture
def promoted(build, caplog):
    """Return a function that trains two trials, of which one is resumed, and its warnings."""

    def run(trainable):
        results = build(
            trainable,
            {"x": tune.grid_search([1, 2])},
            tune={
                "metric": "loss",
                "mode": "min",
                "scheduler": ASHAScheduler(**PROMOTION),
                "max_concurrent_trials": 1,
            },
        ).fit()
        assert max(trial.attempt for trial in results.trials) > 1, "no trial was resumed"
        return results, ignored_in(caplog)

    return run


def ignored_in(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "has not asked for" in record.getMessage()
    ]


@pytest.mark.parametrize("trainable", [never_asks, asks_too_late, old_style_in_name_only])
def test_a_checkpoint_that_is_not_asked_for_before_the_first_report_is_warned_of_once(
    promoted, trainable
):
    _, warnings = promoted(trainable)
    assert len(warnings) == 1
    assert trainable.__name__ in warnings[0]
    assert "checkpoint_000000" in warnings[0]
    assert "checkpoint = tune.get_checkpoint()" in warnings[0]
    assert "ASHAScheduler(type='stopping')" in warnings[0]


@pytest.mark.parametrize(
    "trainable",
    [
        continues,
        old_style,
        functools.partial(old_style_with_data, data=[1, 2, 3]),
        tune.with_parameters(old_style_with_data, data=[1, 2, 3]),
        functools.partial(old_style_with_data, checkpoint_dir=None, data=[1, 2, 3]),
        tune.with_parameters(old_style_with_data, checkpoint_dir=None, data=[1, 2, 3]),
    ],
)
def test_a_function_that_gets_its_checkpoint_continues_without_a_warning(promoted, trainable):
    results, warnings = promoted(trainable)
    assert not warnings
    for result in results:
        rows = result.metrics_dataframe
        assert rows["epoch"].tolist() == rows["training_iteration"].tolist()


def test_without_a_scheduler_no_other_one_is_recommended(build, tmp_path, caplog):
    def fails_once(config):
        with tune.checkpoint_dir() as directory:
            tune.report({"loss": 1}, checkpoint=tune.Checkpoint.from_directory(directory))
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError("once")

    build(fails_once, failure={"max_failures": 1}).fit()
    (warning,) = ignored_in(caplog)
    assert "checkpoint = tune.get_checkpoint()" in warning
    assert "Scheduler" not in warning


def test_a_class_is_not_concerned(promoted):
    class Steps(tune.Trainable):
        def setup(self, config):
            self.epoch = 0

        def step(self):
            self.epoch += 1
            return {"loss": 1 / self.epoch, "done": self.epoch == 4}

        def save_checkpoint(self, checkpoint_dir):
            return {"epoch": self.epoch}

        def load_checkpoint(self, checkpoint):
            self.epoch = checkpoint["epoch"]

    assert not promoted(Steps)[1]


def test_it_is_warned_of_once_in_a_population(build, caplog):
    def train(config):
        for epoch in range(1, 9):
            report_with_checkpoint(epoch)

    build(
        train,
        {"x": tune.grid_search([1.0, 2.0])},
        stop={"training_iteration": 8},
        tune={
            "metric": "loss",
            "mode": "min",
            "scheduler": PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=2,
                quantile_fraction=0.5,
                hyperparam_mutations={"x": [1.0, 2.0]},
                synch=True,
            ),
        },
    ).fit()
    assert len(ignored_in(caplog)) == 1


def test_a_retry_counts_as_well(build, caplog):
    def train(config):
        marker = Path(tune.get_context().get_trial_dir(), "failed")
        for epoch in range(1, 4):
            report_with_checkpoint(epoch)
            if epoch == 2 and not marker.exists():
                marker.touch()
                raise ConnectionError("lost")

    build(train, failure={"max_failures": 1}).fit()
    assert len(ignored_in(caplog)) == 1


class TestGroups:
    @pytest.fixture
    def executor(self):
        return "process"

    @staticmethod
    def fit(loop, tmp_path, **given):
        return DataParallelTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=tune.RunConfig(
                storage_path=tmp_path, verbose=0, failure_config=tune.FailureConfig(max_failures=1)
            ),
            **given,
        ).fit()

    @pytest.mark.parametrize("asking", ["none", "rank 0"])
    def test_one_rank_that_asks_is_enough(self, tmp_path, caplog, asking):
        def loop(config):
            context = tuner_train.get_context()
            marker = Path(context.get_trial_dir(), "failed")
            if asking == "rank 0" and context.get_world_rank() == 0:
                tuner_train.get_checkpoint()
            is_retry = marker.exists()
            report_with_checkpoint(1, tuner_train.report)
            if not is_retry:
                marker.touch()
                raise ConnectionError("lost")

        self.fit(loop, tmp_path)
        warnings = ignored_in(caplog)
        assert len(warnings) == (asking == "none")
        if warnings:
            assert "checkpoint = tuner.train.get_checkpoint()" in warnings[0]

    def test_the_checkpoint_that_a_trainer_begins_with_counts_as_well(self, tmp_path, caplog):
        (tmp_path / "begun").mkdir()
        (tmp_path / "begun" / "state.json").write_text("3")

        def loop(config):
            tuner_train.report({"loss": 1.0})

        begun = tune.Checkpoint.from_directory(tmp_path / "begun")
        self.fit(loop, tmp_path, resume_from_checkpoint=begun)
        (warning,) = ignored_in(caplog)
        assert str(tmp_path / "begun") in warning
