"""Arguments of trainers, and what is merged from a search space."""

import dataclasses

import pytest

import tuner as tune
from tuner import train
from tuner.train.trainer import DataParallelTrainer, TrainLoop, takes_config


def loop(config):
    train.report({"loss": 0.0})


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda: None, False),
        (lambda config: None, True),
        (lambda settings: None, True),
        (lambda config=None: None, True),
        (lambda verbose=False: None, False),
    ],
)
def test_the_signature_says_whether_a_function_takes_its_configuration(function, wanted):
    assert takes_config(function) is wanted


async def asynchronous(config):
    pass


def yielding(config):
    yield {"loss": 1.0}


@pytest.mark.parametrize("function", [3, asynchronous, yielding, lambda config, data: None, dict])
def test_what_cannot_be_called_in_a_worker_is_refused(function):
    with pytest.raises(TypeError, match="train_loop_per_worker"):
        DataParallelTrainer(function)


@pytest.mark.parametrize(
    "arguments",
    [
        {"scaling_config": {"num_workers": 2}},
        {"run_config": {}},
        {"train_loop_config": 3},
        {"datasets": [1]},
        {"dataset_config": "all"},
        {"resume_from_checkpoint": "path"},
        {"validation_config": len},
        {"backend_config": "gloo"},
    ],
)
def test_arguments_of_the_wrong_type_are_refused(arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        DataParallelTrainer(loop, **arguments)


def test_metadata_belongs_to_checkpoints():
    with pytest.raises(ValueError, match="set_metadata"):
        DataParallelTrainer(loop, metadata={"a": 1})


def test_a_trial_has_the_values_of_the_space_over_those_of_the_trainer():
    config = {"lr": 0.1, "model": {"layers": 2, "width": 8}}
    run = TrainLoop(DataParallelTrainer(loop, train_loop_config=config))
    searched = {"train_loop_config": {"lr": 0.5, "model": {"width": 16}}}
    assert run.loop_config(searched) == {"lr": 0.5, "model": {"layers": 2, "width": 16}}
    assert run.loop_config({}) == config


def test_the_number_of_workers_can_be_searched():
    given = train.ScalingConfig(2, resources_per_worker={"CPU": 2})
    run = TrainLoop(DataParallelTrainer(loop, scaling_config=given))
    assert run.group_for({}).total == {"cpu": 4.0}
    assert run.group_for({"scaling_config": {"num_workers": 3}}).total == {"cpu": 6.0}
    assert run.group_for({"scaling_config": train.ScalingConfig(5)}).total == {"cpu": 5.0}
    with pytest.raises(TypeError, match="scaling_config"):
        run.group_for({"scaling_config": 3})


def test_a_space_of_the_training_function_alone_is_refused(trainer):
    with pytest.raises(ValueError, match="train_loop_config"):
        tune.Tuner(trainer(loop), param_space={"lr": tune.uniform(0, 1)})


@pytest.mark.parametrize(
    "searched", [tune.uniform(0, 1), tune.grid_search([1, 2]), tune.sample_from(lambda: 3)]
)
def test_what_is_to_be_searched_belongs_to_the_space_of_a_tuner(trainer, searched):
    made = trainer(loop, {"epochs": 1, "model": {"lr": searched}})
    remedy = r"'model/lr'.*param_space=\{'train_loop_config': \{'model': \{'lr': \.\.\.\}\}\}"
    with pytest.raises(ValueError, match=remedy):
        made.fit()
    with pytest.raises(ValueError, match=remedy):
        tune.Tuner(made, param_space={"train_loop_config": {"epochs": 2}})
    tune.Tuner(made, param_space={"train_loop_config": {"model": {"lr": tune.uniform(0, 1)}}})
    tune.Tuner(made, param_space={"train_loop_config": {"model": 3}})
    tune.Tuner(made, param_space={"train_loop_config": {"model": tune.choice([{"lr": 3}])}})


def test_datasets_to_split_are_those_of_the_trainer():
    config = train.DataConfig(["trian"])
    with pytest.raises(ValueError, match="got \\['trian'\\]"):
        DataParallelTrainer(loop, datasets={"train": [1, 2]}, dataset_config=config)


def test_a_checkpoint_to_begin_with_must_exist(trainer, tmp_path):
    lost = train.Checkpoint(tmp_path / "lost")
    with pytest.raises(FileNotFoundError, match=f"resume_from_checkpoint.*{lost.path}"):
        trainer(loop, resume_from_checkpoint=lost)


def test_a_group_larger_than_the_machine_is_refused_before_the_start(trainer):
    with pytest.raises(ValueError, match="never fit"):
        trainer(loop, {"epochs": 1}, num_workers=9).fit()


def test_a_trainer_keeps_its_settings_apart_from_later_changes():
    config = {"lr": 1}
    made = DataParallelTrainer(loop, train_loop_config=config)
    config["lr"] = 2
    assert made.train_loop_config == {"lr": 1}
    assert dataclasses.replace(made.scaling_config, num_workers=3).num_workers == 3


def test_the_callback_of_such_a_trial_needs_one():
    with pytest.raises(RuntimeError, match="outside a trial"):
        train.TuneReportCallback()
