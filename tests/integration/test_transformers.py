"""When the callback for Transformers reports, by the hooks that a trainer calls."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import tuner as tune

pytest.importorskip("transformers")

from tuner.integration.transformers import TuneReportCallback, TuneReportCheckpointCallback


class Training:
    """Call the hooks of a trainer: steps, each with an evaluation, a saved checkpoint or both."""

    def __init__(self, callback, save_strategy="steps"):
        trial_dir = tune.get_context().get_trial_dir()
        self.callback = callback
        self.args = SimpleNamespace(
            world_size=1,
            output_dir=f"{trial_dir}/trainer",
            save_strategy=save_strategy,
            learning_rate=0.1,
        )
        self.state = SimpleNamespace(is_world_process_zero=True, global_step=0, log_history=[])
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)
        self.tell("train_begin")

    def tell(self, hook):
        getattr(self.callback, f"on_{hook}")(self.args, self.state, self.control)

    def step(self, *, loss=None, saves=False):
        self.tell("step_begin")
        self.state.global_step += 1
        self.control.should_save = saves and self.args.save_strategy != "best"
        if loss is not None:
            self.state.log_history.append({"eval_loss": loss})
            self.tell("evaluate")
        if saves:
            folder = Path(self.args.output_dir, f"checkpoint-{self.state.global_step}")
            folder.mkdir(parents=True)
            (folder / "weights").write_text("x")
            self.tell("save")


@pytest.fixture
def rows(tmp_path):
    """Return a function that runs one trial here; returns (step, loss, has checkpoint) rows."""

    def run(train):
        run_config = tune.RunConfig(storage_path=tmp_path, verbose=0, executor="inline")
        result = tune.Tuner(train, run_config=run_config).fit()[0]
        assert result.error is None
        table = result.metrics_dataframe
        saved = [isinstance(name, str) for name in table.get("checkpoint_dir_name", [])]
        return list(zip(table["step"], table["eval_loss"], saved, strict=True))

    return run


def test_an_evaluation_and_its_checkpoint_are_one_result(rows):
    def train(config):
        training = Training(TuneReportCheckpointCallback())
        training.step(loss=0.5)
        training.step(loss=0.4, saves=True)
        training.step(saves=True)
        training.tell("train_end")

    assert rows(train) == [(1, 0.5, False), (2, 0.4, True), (3, 0.4, True)]


def test_with_the_strategy_best_an_evaluation_waits_for_the_trainers_decision(rows):
    def train(config):
        training = Training(TuneReportCheckpointCallback(), save_strategy="best")
        training.step(loss=0.5, saves=True)
        training.step(loss=0.6)
        training.step(loss=0.7)
        training.tell("train_end")

    assert [(loss, saved) for _, loss, saved in rows(train)] == [
        (0.5, True),
        (0.6, False),
        (0.7, False),
    ]


def test_without_checkpoints_only_metrics_are_reported(rows):
    def train(config):
        training = Training(TuneReportCallback(["eval_loss", "step"]))
        training.step(loss=0.5, saves=True)
        training.tell("train_end")

    assert rows(train) == [(1, 0.5, False)]


def test_another_rank_reports_nothing(tmp_path):
    def train(config):
        training = Training(TuneReportCheckpointCallback())
        training.state.is_world_process_zero = False
        training.step(loss=0.5, saves=True)
        tune.report({"own": 1})

    run_config = tune.RunConfig(storage_path=tmp_path, verbose=0, executor="inline")
    assert tune.Tuner(train, run_config=run_config).fit()[0].metrics["training_iteration"] == 1


def test_a_shared_output_directory_causes_a_warning(tmp_path):
    seen = []

    def train(config):
        callback = TuneReportCheckpointCallback()
        training = Training(callback)
        training.args.output_dir = str(tmp_path / "out")
        with pytest.warns(UserWarning, match=r"output_dir='.*out' may be other trials' as well"):
            training.tell("train_begin")
        seen.append(True)

    tune.Tuner(
        train, run_config=tune.RunConfig(storage_path=tmp_path, verbose=0, executor="inline")
    ).fit()
    assert seen == [True]
