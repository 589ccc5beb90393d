"""Every mistake has its own message, and is found before anything has been started."""

import threading

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter, TreeSearch
from tuner import (
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    Trainable,
    TuneConfig,
    Tuner,
)
from tuner.errors import StorageError, TrainableNotPicklable

pytestmark = pytest.mark.unit


def train(config):
    tune.report({"loss": 1.0, "val": {"accuracy": 0.5}})


class WithoutStep(Trainable):
    pass


class NoTrainable:
    def step(self):
        return {}


async def asynchronous(config):
    pass


def two_arguments(config_one, config_two):
    pass


def needs_data(config, data):
    pass


@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        (lambda: None, r"lambda\(\) cannot be called with \(config\)"),
        (
            needs_data,
            (
                r"needs_data\(config, data\) cannot be called with \(config\): .*'data'; see "
                r"with_parameters"
            ),
        ),
        (two_arguments, "must take the configuration as an argument config"),
        (asynchronous, "asynchronous is asynchronous, and training blocks; .*asyncio.run"),
        (WithoutStep, "WithoutStep must implement step"),
        (NoTrainable, "must derive from Trainable, got NoTrainable"),
        (3, "trainable must be a function of the configuration or a subclass of Trainable, got 3"),
        (
            None,
            (
                "trainable must be a function of the configuration or a subclass of Trainable, "
                "got None"
            ),
        ),
    ],
)
def test_what_cannot_be_trained(trainable, message):
    with pytest.raises(TypeError, match=message):
        Tuner(trainable)


def test_an_unknown_registered_name_is_answered_with_the_closest():
    tune.register_trainable("train_digits", train)
    with pytest.raises(
        ValueError, match="no trainable is registered as 'train_digit'; did you mean 'train_digits'"
    ):
        Tuner("train_digit")


@pytest.mark.parametrize("space", [["lr"], "lr", 3, {("lr",)}])
def test_a_space_that_is_no_dictionary(space):
    with pytest.raises(
        TypeError,
        match="param_space must be a dictionary of parameter names to values or domains, got",
    ):
        Tuner(train, param_space=space)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"tune_config": RunConfig()}, "TuneConfig"), ({"run_config": TuneConfig()}, "RunConfig")],
)
def test_configurations_that_are_mixed_up(options, name):
    with pytest.raises(TypeError, match=f"must be a {name}, got "):
        Tuner(train, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "minimum"}, "mode must be 'min' or 'max', .*, got 'minimum'"),
        ({"mode": "Max"}, "mode must be 'min' or 'max', .*, got 'Max'"),
        (
            {"metric": "accuracy"},
            (
                r"got metric='accuracy' without a mode; write TuneConfig\(metric='accuracy', "
                r"mode='max'\) if a larger"
            ),
        ),
        ({"num_samples": -2}, "num_samples must be at least 1, or -1 for endless, got -2"),
        ({"num_samples": 0}, "num_samples must be at least 1, or -1 for endless, got 0"),
        (
            {"max_concurrent_trials": -1},
            "max_concurrent_trials must be at least 1, or None for no limit, got -1",
        ),
        (
            {"time_budget_s": 0},
            "time_budget_s must be a positive number of seconds or a timedelta, got 0",
        ),
    ],
)
def test_settings_of_the_search_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        TuneConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": 3}, "metric must be the name of a reported value, .*, got 3"),
        ({"num_samples": 2.5}, "num_samples must be a whole number, got 2.5"),
        ({"num_samples": "4"}, "num_samples must be a whole number, got '4'"),
        ({"scheduler": 3}, "scheduler must be a Scheduler, the name of one, 'auto' or None, got 3"),
        (
            {"search_alg": ASHAScheduler()},
            "search_alg must be a Searcher, the name of one, 'auto' or None, got ",
        ),
        (
            {"time_budget_s": "1h"},
            "time_budget_s must be a positive number of seconds or a timedelta, got '1h'",
        ),
        (
            {"max_concurrent_trials": "2"},
            "max_concurrent_trials must be a whole number or None, got '2'",
        ),
    ],
)
def test_settings_of_the_search_of_the_wrong_type(options, message):
    with pytest.raises(TypeError, match=message):
        TuneConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_to_keep": 0}, "num_to_keep must be at least 1, or None to keep all, got 0"),
        (
            {"checkpoint_score_order": "best"},
            "checkpoint_score_order must be 'max' or 'min', got 'best'",
        ),
        (
            {"checkpoint_frequency": -1},
            r"checkpoint_frequency must be at least 0 \(0 is off\), got -1",
        ),
        ({"upload": "later"}, "upload must be 'sync' or 'async', got 'later'"),
    ],
)
def test_settings_of_checkpoints(options, message):
    with pytest.raises(ValueError, match=message):
        CheckpointConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_failures": -2},
            "max_failures must be at least 0, or -1 for endless retries, got -2",
        ),
        (
            {"max_failures": 1, "fail_fast": True},
            "fail_fast needs max_failures=0, got max_failures=1",
        ),
        ({"fail_fast": "yes"}, "fail_fast must be True, False or 'raise', got 'yes'"),
        (
            {"report_timeout_s": 0},
            "report_timeout_s must be a positive number of seconds or None, got 0",
        ),
        ({"stop_grace_s": -1}, "stop_grace_s must be at least 0 seconds, got -1"),
    ],
)
def test_settings_of_failures(options, message):
    with pytest.raises(ValueError, match=message):
        FailureConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"interrupt_grace_s": -1},
            "interrupt_grace_s must be finite and at least 0 seconds, got -1",
        ),
        (
            {"interrupt_grace_s": float("inf")},
            "interrupt_grace_s must be finite and at least 0 seconds, got inf",
        ),
        (
            {"time_limit_s": 12},
            (
                r"time_limit_s must be finite and more than interrupt_grace_s=10.0 and 2.0 s .*, "
                r"got 12"
            ),
        ),
        ({"time_limit_s": float("nan")}, "time_limit_s must be finite and more than .*, got nan"),
        ({"time_limit_s": float("inf")}, "time_limit_s must be finite and more than .*, got inf"),
        (
            {"time_limit_s": -5, "interrupt_grace_s": 0},
            "time_limit_s must be finite and more than .*, got -5",
        ),
    ],
)
def test_settings_of_interruptions(options, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (FailureConfig, {"max_failures": "2"}, "max_failures must be a whole number, got '2'"),
        (FailureConfig, {"max_failures": 1.5}, "max_failures must be a whole number, got 1.5"),
        (FailureConfig, {"max_failures": None}, "max_failures must be a whole number, got None"),
        (
            FailureConfig,
            {"report_timeout_s": "2"},
            "report_timeout_s must be a number of seconds or None, got '2'",
        ),
        (
            FailureConfig,
            {"stop_grace_s": None},
            "stop_grace_s must be a number of seconds, got None",
        ),
        (
            CheckpointConfig,
            {"num_to_keep": 2.5},
            "num_to_keep must be a whole number or None, got 2.5",
        ),
        (
            CheckpointConfig,
            {"num_to_keep": True},
            "num_to_keep must be a whole number or None, got True",
        ),
        (
            CheckpointConfig,
            {"checkpoint_frequency": "2"},
            "checkpoint_frequency must be a whole number, got '2'",
        ),
        (
            CheckpointConfig,
            {"checkpoint_score_attribute": 3},
            "checkpoint_score_attribute must be the name of a reported value, got 3",
        ),
        (
            RunConfig,
            {"callbacks": tune.Callback()},
            "callbacks must be a list of tuner.Callback, got <tuner",
        ),
        (
            RunConfig,
            {"resources": [1]},
            r"resources must be a dictionary of amounts by name, got \[1\]",
        ),
        (
            RunConfig,
            {"resources": {"cpu": "2"}},
            "resources must be a dictionary of amounts by name, got {'cpu': '2'}",
        ),
        (RunConfig, {"storage_path": 3}, "storage_path must be a path, got 3"),
        (
            RunConfig,
            {"time_limit_s": "2h"},
            "time_limit_s must be a number of seconds or None, got '2h'",
        ),
        (
            RunConfig,
            {"time_limit_s": True},
            "time_limit_s must be a number of seconds or None, got True",
        ),
        (
            RunConfig,
            {"interrupt_grace_s": None},
            "interrupt_grace_s must be a number of seconds, got None",
        ),
    ],
)
def test_values_of_the_wrong_type(kind, options, message):
    with pytest.raises(TypeError, match=message):
        kind(**options)


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf")])
def test_resources_that_are_no_amount(amount):
    with pytest.raises(ValueError, match=r"resources must be finite and at least 0, got \{'cpu': "):
        RunConfig(resources={"cpu": amount})


@pytest.mark.parametrize("name", ["../elsewhere", "a/../b", "", ".hidden", "x" * 101])
def test_a_name_that_is_no_directory_name(name):
    with pytest.raises(ValueError, match="name must be 1 to 100 letters, digits, spaces"):
        RunConfig(name=name)


@pytest.mark.parametrize(
    ("stop", "kind", "message"),
    [
        (
            3,
            TypeError,
            (
                r"stop must be a dict, a function \(trial_id, result\) -> bool, a Stopper or a "
                r"list of those, got 3"
            ),
        ),
        ({"loss": "small"}, ValueError, r"stop\['loss'\] must be a number .* got 'small'"),
        ({"loss": None}, ValueError, r"stop\['loss'\] must be a number .* got None"),
        ({"loss": [1]}, ValueError, r"stop\['loss'\] must be a number .* got \[1\]"),
        ([{"loss": 1}], TypeError, "stop must be a dict, "),
        (tune.MaximumIterationStopper, TypeError, "stop must be a dict, "),
    ],
)
def test_a_stop_criterion_that_is_none(stop, kind, message):
    with pytest.raises(kind, match=message):
        RunConfig(stop=stop)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"storage_path": "s3:/oops"}, ValueError, "got 's3:/oops', which looks like a URL with"),
        (
            {"storage_filesystem": "s3", "storage_path": "bucket/runs"},
            TypeError,
            "storage_filesystem must be an fsspec file system, got 's3'; pass fsspec.filesystem",
        ),
        (
            {"durability": "storage", "storage_path": "runs"},
            ValueError,
            "durability='storage' needs a URL as storage_path, got 'runs'; durability='strict'",
        ),
        (
            {"local_dir": "scratch", "storage_path": "runs"},
            ValueError,
            "local_dir must be None with a directory as storage_path, got 'scratch'",
        ),
        (
            {"local_dir": "s3://bucket"},
            ValueError,
            "local_dir must be a directory of this machine, got 's3://bucket'; give the URL as",
        ),
        ({"mirror_s": 0}, ValueError, "mirror_s must be finite and more than 0 s, got 0"),
        ({"cache_bytes": -1}, ValueError, "cache_bytes must be at least 0, or None for a tenth"),
        ({"cache_bytes": 0.5}, TypeError, "cache_bytes must be a whole number of bytes or None"),
        ({"storage_lock": "flock"}, ValueError, "storage_lock must be one of 'epochs', 'none'"),
        (
            {"storage_path": ""},
            ValueError,
            "storage_path must name a directory, got ''; leave it out for",
        ),
        ({"storage_path": "a\0b"}, ValueError, "storage_path must not contain a null character"),
        (
            {"storage_path": "~nobodyx/x"},
            ValueError,
            "storage_path '~nobodyx/x' .* '~nobodyx' is the home directory of no known user; give",
        ),
        (
            {"callbacks": [print]},
            TypeError,
            "callbacks must be instances of tuner.Callback, got <built-in function print>",
        ),
        (
            {"callbacks": [tune.Callback]},
            TypeError,
            "callbacks must be instances of tuner.Callback, got <class",
        ),
        ({"verbose": 7}, ValueError, r"verbose must be 0 \(silent\), 1 or 2, got 7"),
        (
            {"checkpoint_config": {"num_to_keep": 1}},
            TypeError,
            "checkpoint_config must be a CheckpointConfig, got {'num_to_keep': 1}",
        ),
        ({"executor": "ray"}, ValueError, "executor must be one of process, inline, got 'ray'"),
        (
            {"cluster": "auto"},
            TypeError,
            r"cluster must be a RayCluster, a DaskCluster or None, got 'auto'; write RayCluster\(",
        ),
        (
            {"cluster": tune.RayCluster},
            TypeError,
            r"cluster must be a RayCluster, .* got <class .*; write RayCluster\(\.\.\.\)",
        ),
        ({"cluster": 3}, TypeError, "cluster must be a .* got 3; leave it out for this machine"),
        (
            {"cluster": tune.RayCluster(), "executor": "inline"},
            ValueError,
            "executor must be 'process' with a cluster, got 'inline' and the Ray cluster",
        ),
        (
            {"cluster": tune.RayCluster(), "resources": {"cpu": 4}},
            ValueError,
            "resources must be None with a cluster, whose nodes have their own, got {'cpu': 4}",
        ),
        (
            {"cluster": tune.RayCluster(), "storage_path": "memory://runs"},
            ValueError,
            "storage_path must be what all nodes reach with a cluster, got 'memory://runs'",
        ),
        ({"node_wait_s": -1}, ValueError, "node_wait_s must be finite and at least 0 seconds, got"),
        ({"node_wait_s": "5m"}, TypeError, "node_wait_s must be a number of seconds, got '5m'"),
    ],
)
def test_settings_of_the_run(options, kind, message):
    with pytest.raises(kind, match=message):
        RunConfig(**options)


# What only shows when things are put together, still before any trial.


@pytest.mark.parametrize(
    "part",
    [
        {"scheduler": ASHAScheduler(metric="accuracy", mode="max")},
        {
            "search_alg": BasicVariantGenerator(),
            "scheduler": ASHAScheduler(metric="loss", mode="max"),
        },
    ],
)
def test_a_metric_that_differs(build, part):
    message = (
        r"metric and mode must be the same everywhere, got metric='loss', mode='min' in TuneConfig "
        r"and .* in ASHAScheduler"
    )
    with pytest.raises(ValueError, match=message):
        build(train, tune={"metric": "loss", "mode": "min", **part})


@pytest.mark.parametrize("options", [{"metric": "loss"}, {"mode": "min"}, {}])
def test_a_scheduler_without_metric_or_mode(build, tmp_path, options):
    with pytest.raises(ValueError, match=r"(metric|mode) must be .*TuneConfig"):
        build(train, tune={"scheduler": ASHAScheduler(), **options}).fit()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"checkpoint_frequency": 2}, {"checkpoint_at_end": True}])
def test_periodic_checkpoints_of_a_function(build, options):
    with pytest.raises(
        ValueError,
        match="does not apply to a function trainable; report a checkpoint where one is due",
    ):
        build(train, checkpoint_config=CheckpointConfig(**options))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"cpu": 100}, "ask for less cpu, or give RunConfig"),
        ({"cpu": 1, "licence": 1}, "ask for less licence, or give RunConfig"),
    ],
)
def test_a_request_that_can_never_be_met(build, tmp_path, request_, message):
    with pytest.raises(ValueError, match=message):
        build(tune.with_resources(train, request_), resources={"cpu": 2, "gpu": 0}).fit()
    assert list(tmp_path.iterdir()) == []


def test_a_request_for_part_of_a_second_gpu():
    with pytest.raises(
        ValueError,
        match=r"gpu must be at most 1 or a whole number, got 1.5; only one GPU can be shared by "
        r"fractions",
    ):
        tune.with_resources(train, {"gpu": 1.5})


def test_a_request_for_nothing_needs_another_limit(build):
    with pytest.raises(
        ValueError,
        match="ask for nothing, so that nothing limits how many trials run; set "
        "max_concurrent_trials",
    ):
        build(tune.with_resources(train, {"cpu": 0})).fit()


def test_what_cannot_be_carried_to_a_worker_names_the_variable(build, tmp_path):
    guard = threading.Lock()
    settings = {"io": {"guard": guard}}

    def locked(config):
        return settings["io"]["guard"]

    with pytest.raises(
        TrainableNotPicklable, match=r"locked captures .*settings.*\['guard'\].* \(_thread.lock\)"
    ):
        build(locked, executor="process").fit()
    assert list(tmp_path.iterdir()) == []


def test_storage_where_a_file_is_in_the_way(build, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        StorageError,
        match=r"storage_path '.*file' cannot be written to: .*; give another one in RunConfig",
    ):
        build(train, storage_path=tmp_path / "file").fit()
    with pytest.raises(StorageError, match=r"storage_path '.*file/below' cannot be written to"):
        build(train, storage_path=tmp_path / "file" / "below").fit()
    assert (tmp_path / "file").read_text() == "mine"


def test_storage_on_a_read_only_file_system(build):
    with pytest.raises(StorageError, match=r"storage_path '/proc/tuner' cannot be written to"):
        build(train, storage_path="/proc/tuner").fit()


def test_a_file_in_the_place_of_the_experiment(build, tmp_path):
    (tmp_path / "experiment").write_text("mine")
    with pytest.raises(StorageError, match="experiment"):
        build(train).fit()
    assert (tmp_path / "experiment").read_text() == "mine"


def test_results_before_the_experiment_was_run(build):
    with pytest.raises(
        RuntimeError, match="the experiment has not been run yet; call fit\\(\\) first"
    ):
        build(train).get_results()


@pytest.fixture
def deleted_directory(tmp_path, monkeypatch):
    place = tmp_path / "gone"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()


@pytest.mark.usefixtures("deleted_directory")
@pytest.mark.parametrize(
    "call",
    [
        lambda: tune.Tuner(lambda config: None),
        lambda: tune.Tuner.restore("x", lambda config: None),
        lambda: tune.ResultGrid.from_directory("x"),
        lambda: tune.Tuner.can_restore("x") or tune.Tuner.restore("x", print),
    ],
)
def test_a_working_directory_that_has_been_deleted_is_named_with_what_to_do(call):
    with pytest.raises(
        StorageError,
        match="the current working directory has been deleted; change to one that exists",
    ):
        call()


@pytest.mark.usefixtures("deleted_directory")
def test_absolute_paths_are_read_without_a_working_directory(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be the directory of an experiment"):
        tune.ResultGrid.from_directory(tmp_path)


def test_the_home_directory_of_an_unknown_user_is_named():
    with pytest.raises(StorageError, match="'~nobodyx' is the home directory of no known user"):
        tune.Tuner.restore("~nobodyx/x", print)


def test_two_search_spaces(build):
    searcher = TreeSearch(space={"x": tune.uniform(0, 1)})
    message = (
        "search space must be given once, got one in TreeSearch and 'y' to search in param_space"
    )
    for around in (searcher, ConcurrencyLimiter(searcher, 1)):
        with pytest.raises(ValueError, match=message):
            build(
                train,
                {"y": tune.uniform(0, 1)},
                tune={"metric": "loss", "mode": "min", "search_alg": around},
                executor="inline",
            ).fit()
