"""Settings of trainers: what they accept, and what they stand for."""

import logging
import pickle

import pytest

import tuner as tune
from tuner import CheckpointConfig, FailureConfig, RunConfig, Tuner, train
from tuner.core.settings import ValidationPolicy
from tuner.spec.argument_codec import constructed, differences, note
from tuner.spec.experiment_spec import make_spec
from tuner.spec.training_config import ScalingConfig, ValidationConfig, ValidationTaskConfig


def validate(checkpoint, size=1):
    return {"score": size}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_workers": -1}, "num_workers must be at least 1"),
        ({"num_workers": (3, 2)}, "1 <= min <= max"),
        ({"num_workers": (0, 2)}, "1 <= min <= max"),
        ({"resources_per_worker": {"CPU": -1}}, "finite number of at least 0"),
        ({"placement_strategy": "NEAR"}, "PACK, SPREAD"),
        ({"use_tpu": True}, "not supported"),
        ({"topology": "4x4"}, "not supported"),
        ({"resources_per_worker": {"TPU": 4}}, "not supported"),
        ({"trainer_resources": {"CPU": 1}}, "must be None"),
        ({"elastic_resize_monitor_interval_s": -1.0}, "at least 0 seconds"),
    ],
)
def test_a_scaling_out_of_range_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        ScalingConfig(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"num_workers": 2.0}, {"num_workers": True}, {"num_workers": (1, 2, 3)}, {"use_gpu": 2}],
)
def test_a_scaling_of_the_wrong_type_is_refused(arguments):
    with pytest.raises(TypeError):
        ScalingConfig(**arguments)


def test_each_worker_gets_a_cpu_and_with_use_gpu_a_gpu():
    assert ScalingConfig(2).amounts_per_worker == {"cpu": 1.0}
    assert ScalingConfig(2, use_gpu=True).amounts_per_worker == {"cpu": 1.0, "gpu": 1.0}
    shared = ScalingConfig(2, use_gpu=True, resources_per_worker={"CPU": 4, "GPU": 0.5})
    assert shared.amounts_per_worker == {"cpu": 4.0, "gpu": 0.5}
    assert shared.total_resources == {"CPU": 8.0, "GPU": 1.0}


def test_a_tuple_of_workers_is_elastic():
    config = ScalingConfig((1, 4))
    group = config.group()
    assert config.is_elastic
    assert (group.min_workers, group.max_workers) == (1, 4)
    assert not ScalingConfig(4).is_elastic


def test_a_scaling_config_shows_what_was_chosen():
    assert repr(ScalingConfig(2)) == "ScalingConfig(num_workers=2)"
    assert repr(ScalingConfig((1, 2), use_gpu=True)) == (
        "ScalingConfig(num_workers=(1, 2), use_gpu=True)"
    )


def test_no_workers_are_one_process():
    assert ScalingConfig(0).group().num_workers == 1


def test_a_scaling_config_survives_the_way_to_a_worker_and_into_the_declaration():
    config = ScalingConfig((2, 3), use_gpu=True, resources_per_worker={"CPU": 2})
    absent = []
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  (its own)
    assert constructed(note(config), "space", absent) == config
    assert absent == []


def test_the_policy_of_a_validation_is_what_it_may_occupy_and_how_often_it_is_tried():
    config = ValidationConfig(
        validate,
        ValidationTaskConfig({"size": 3}, timeout_s=9.0),
        {"num_cpus": 2, "num_gpus": 1, "resources": {"disk": 1}, "max_retries": 4},
        max_in_flight=2,
        max_pending=5,
    )
    assert config.policy == ValidationPolicy(
        {"cpu": 2.0, "gpu": 1.0, "disk": 1.0}, 2, 5, max_retries=4, timeout_s=9.0
    )
    assert ValidationConfig(validate).policy == ValidationPolicy()


def test_arguments_of_a_report_count_before_the_declared_ones():
    config = ValidationConfig(validate, ValidationTaskConfig({"size": 3}))
    assert config.validator(None) == {"score": 3}
    assert config.validator(None, size=4) == {"score": 4}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fn": 3}, TypeError),
        ({"fn": validate, "task_config": {"size": 3}}, TypeError),
        ({"fn": validate, "ray_remote_kwargs": {"retry_exceptions": True}}, ValueError),
        ({"fn": validate, "ray_remote_kwargs": {"num_cpus": -1}}, ValueError),
        ({"fn": validate, "ray_remote_kwargs": {"max_retries": -1}}, ValueError),
        ({"fn": validate, "max_in_flight": 0}, ValueError),
        ({"fn": validate, "max_pending": 0}, ValueError),
    ],
)
def test_an_impossible_validation_is_refused(arguments, error):
    with pytest.raises(error):
        ValidationConfig(**arguments)


@pytest.mark.parametrize("timeout_s", [0, -1.0])
def test_a_time_limit_of_a_validation_is_positive(timeout_s):
    with pytest.raises(ValueError, match="timeout_s"):
        ValidationTaskConfig(timeout_s=timeout_s)


@pytest.mark.process
def test_a_function_that_is_declared_is_described_and_has_to_be_given_again(build, tmp_path):
    tuner = build(lambda config: {"loss": 1}, validation_config=ValidationConfig(validate))
    tuner.fit()
    with pytest.raises(ValueError, match="validation_config="):
        Tuner.restore(tmp_path / "experiment", lambda config: {"loss": 1})
    Tuner.restore(
        tmp_path / "experiment",
        lambda config: {"loss": 1},
        validation_config=ValidationConfig(validate),
    )


@pytest.mark.process
def test_workers_get_the_variables_of_worker_runtime_env(fit):
    def loop(config):
        import os  # noqa: PLC0415  (in the worker)

        return {"level": os.environ["NCCL_DEBUG"]}

    results = fit(loop, worker_runtime_env={"env_vars": {"NCCL_DEBUG": "INFO"}})
    assert results[0].metrics["level"] == "INFO"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"pip": ["torch"]}, ValueError),
        ({"env_vars": {"LEVEL": 3}}, TypeError),
        (["NCCL_DEBUG"], TypeError),
    ],
)
def test_worker_runtime_env_is_variables_only(given, error):
    with pytest.raises(error, match="env_vars"):
        RunConfig(worker_runtime_env=given)


def test_variables_are_refused_where_trials_share_the_process():
    with pytest.raises(ValueError, match="inline"):
        RunConfig(worker_runtime_env={"env_vars": {"A": "1"}}, executor="inline")


def test_a_level_of_logging_has_to_exist():
    assert train.LoggingConfig("debug").log_level == "DEBUG"
    with pytest.raises(ValueError, match="log_level"):
        train.LoggingConfig("LOUD")


@pytest.mark.process
@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_level_of_logging_holds_in_driver_and_workers(tmp_path, num_workers):
    def tell():
        train.report({"level": logging.getLogger("tuner").level})

    settings = train.RunConfig(
        name="run",
        storage_path=tmp_path,
        verbose=0,
        logging_config=train.LoggingConfig("ERROR"),
    )
    scaling = train.ScalingConfig(num_workers)
    logger = logging.getLogger("tuner")
    before = logger.level
    try:
        trainer = train.DataParallelTrainer(tell, scaling_config=scaling, run_config=settings)
        assert trainer.fit().metrics["level"] == logging.ERROR
        assert logger.level == logging.ERROR
    finally:
        logger.setLevel(before)


def test_datasets_are_split_by_name():
    config = train.DataConfig(["train"])
    assert config.is_split("train")
    assert not config.is_split("validation")
    with pytest.raises(TypeError):
        train.DataConfig("train")


def test_a_scaling_that_is_searched_is_a_part_of_the_space():
    def loop(config):
        pass

    searched = ScalingConfig(num_workers=tune.grid_search([1, 2]), use_gpu=True)
    spec = make_spec(
        train.DataParallelTrainer(loop), {"scaling_config": searched}, None, RunConfig()
    )
    assert spec.space["scaling_config"] == {"num_workers": {"grid_search": [1, 2]}, "use_gpu": True}
    group = spec.group_for({"scaling_config": {"num_workers": 2, "use_gpu": True}})
    assert (group.num_workers, group.resources_per_worker) == (2, {"cpu": 1.0, "gpu": 1.0})
    with pytest.raises(ValueError, match="num_workers must be at least 1"):
        spec.trainable.group_for({"scaling_config": {"num_workers": -1}})


def test_a_trainer_alone_searches_nothing():
    with pytest.raises(ValueError, match="scaling_config of a trainer must hold values"):
        train.DataParallelTrainer(
            lambda: None, scaling_config=ScalingConfig(num_workers=tune.choice([1, 2]))
        )


@pytest.mark.parametrize("names", ["validation", [1], 3])
def test_datasets_with_all_rows_are_named(names):
    with pytest.raises(TypeError, match="datasets_with_all_rows must be a list of names"):
        train.DataConfig(datasets_with_all_rows=names)


def test_datasets_with_all_rows_have_to_be_there():
    config = train.DataConfig(datasets_with_all_rows=["val"])
    with pytest.raises(ValueError, match="datasets_with_all_rows must be names of datasets"):
        train.DataParallelTrainer(lambda: None, datasets={"vla": [1]}, dataset_config=config)


def test_settings_of_a_run_are_never_none():
    run = RunConfig()
    assert run.failure_config == FailureConfig()
    assert run.checkpoint_config == CheckpointConfig()
    run.failure_config.max_failures = 2
    assert RunConfig().failure_config.max_failures == 0


def test_default_settings_are_no_change_of_a_run_that_recorded_none():
    noted = note(RunConfig())
    older = {**noted, "failure_config": None, "checkpoint_config": None}
    assert list(differences(older, noted, "run_config")) == []
    assert list(differences(noted, older, "run_config")) == []
    changed = note(RunConfig(failure_config=FailureConfig(max_failures=2)))
    assert list(differences(older, changed, "run_config")) == [
        "run_config.failure_config.max_failures: 0 -> 2"
    ]
