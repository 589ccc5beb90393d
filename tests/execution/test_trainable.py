import functools
import pickle
from pathlib import Path

import cloudpickle
import pytest

from tuner.errors import CheckpointError
from tuner.execution.messages import Assignment
from tuner.execution.registry import get_trainable, register_trainable
from tuner.execution.resource_requests import PlacementGroupFactory, resources_for, with_resources
from tuner.execution.trainable import Trainable, check_trainable, is_class_trainable, trainable_name, with_parameters
from tuner.storage.checkpoints import Checkpoint


class Counter(Trainable):
    """Counts; `way` says how it saves."""

    def setup(self, config, start=0):
        self.value = start
        self.way = config.get("way", "dict")
        self.events = [("setup", config)]

    def step(self):
        self.value += 1
        return {"value": self.value, "timesteps_this_iter": 10}

    def save_checkpoint(self, checkpoint_dir):
        if self.way == "dict":
            return {"value": self.value}
        Path(checkpoint_dir, "value").write_text(str(self.value), encoding="utf-8")
        return {"none": None, "same": checkpoint_dir, "slash": checkpoint_dir + "/", "other": "/elsewhere", "number": 3}[self.way]

    def load_checkpoint(self, checkpoint):
        if isinstance(checkpoint, dict):
            self.value = checkpoint["value"]
        else:
            self.value = int(Path(checkpoint, "value").read_text(encoding="utf-8"))

    def reset_config(self, new_config):
        self.value = 0
        return new_config.get("resettable", True)

    def cleanup(self):
        self.events.append("cleanup")

    def log_result(self, result):
        self.events.append(result)
        result.clear()


class Unsaved(Trainable):
    def step(self):
        return {}


class Abstract(Trainable):
    pass


def train(config):
    return {"loss": config["x"]}


ASSIGNMENT = Assignment(
    "t00003", 2, {"a": [1]}, "exp", "/exp/t00003", "3_a=1", {"cpu": 2.0}, (), None, 4, 8.0, {"timesteps_total": 40}, 1, 0
)


# ---------------------------------------------------------------------------------------------------- without an experiment


def test_steps_give_complete_results_and_count():
    counter = Counter({})
    assert [counter.train()["value"] for _ in range(3)] == [1, 2, 3]
    assert counter.iteration == counter.training_iteration == 3
    assert counter.train()["timesteps_total"] == 40


def test_a_step_without_metrics_still_gives_a_result():
    assert Unsaved({}).train()["training_iteration"] == 1


@pytest.mark.parametrize("returned", [None, 0.5, [1]])
def test_a_step_must_return_a_dictionary(returned):
    class Wrong(Trainable):
        def step(self):
            return returned

    with pytest.raises(TypeError, match="step must return a dictionary of metrics, got"):
        Wrong().train()


def test_setup_gets_a_deep_copy_of_the_configuration():
    config = {"layers": [1]}
    counter = Counter(config)
    (_, given), *_ = counter.events
    given["layers"].append(2)
    assert counter.config == counter.get_config() == {"layers": [1]} == config


def test_log_result_sees_the_complete_result_and_cannot_change_it():
    counter = Counter({})
    result = counter.train()
    assert result["value"] == 1
    assert result["training_iteration"] == 1


def test_without_an_experiment_there_is_a_directory_to_write_to(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    counter = Counter({})
    assert Path(counter.logdir).parent == tmp_path
    assert counter.logdir == counter.logdir
    assert (counter.trial_id, counter.trial_name, counter.trial_resources) == ("default", "default", {})


def test_in_an_experiment_it_knows_its_trial():
    counter = Counter(ASSIGNMENT.config, assignment=ASSIGNMENT)
    assert (counter.trial_id, counter.trial_name, counter.logdir) == ("t00003", "Counter_t00003", "/exp/t00003")
    assert counter.trial_resources == {"cpu": 2.0}
    assert counter.iteration == 4
    assert counter.train()["timesteps_total"] == 50


@pytest.mark.parametrize("way", ["dict", "none", "same", "slash"])
def test_save_and_restore_give_back_state_and_counts(way, tmp_path):
    counter = Counter({"way": way})
    for _ in range(3):
        counter.train()
    checkpoint = counter.save(tmp_path / "saved")
    (tmp_path / "saved").rename(tmp_path / "moved")
    assert checkpoint == Checkpoint(tmp_path / "saved")
    restored = Counter({"way": way})
    restored.restore(tmp_path / "moved")
    result = restored.train()
    assert (result["value"], result["training_iteration"], result["timesteps_total"]) == (4, 4, 40)
    assert result["iterations_since_restore"] == 1
    assert result["time_total_s"] >= counter.train()["time_since_restore"] - result["time_this_iter_s"] - 1


def test_save_without_a_directory_makes_a_new_one_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    counter = Counter({})
    assert counter.save() != counter.save()


def test_a_dictionary_is_handed_back_as_a_dictionary(tmp_path):
    Counter({"way": "dict"}).save(tmp_path)
    assert pickle.loads((tmp_path / "_dict_checkpoint.pkl").read_bytes()) == {"value": 0}  # noqa: S301  (our own)


def test_files_without_a_manifest_can_be_restored(tmp_path):
    (tmp_path / "value").write_text("7")
    counter = Counter({})
    counter.restore(Checkpoint.from_directory(tmp_path))
    assert (counter.value, counter.iteration) == (7, 0)


@pytest.mark.parametrize("way", ["other", "number"])
def test_save_checkpoint_must_not_return_anything_else(way, tmp_path):
    with pytest.raises(ValueError, match="save_checkpoint must return None, a dictionary or the directory it was given"):
        Counter({"way": way}).save(tmp_path)


def test_a_trainable_that_cannot_save_says_so(tmp_path):
    with pytest.raises(NotImplementedError, match="Unsaved cannot be saved; implement save_checkpoint"):
        Unsaved().save(tmp_path)
    with pytest.raises(NotImplementedError, match="Unsaved cannot be restored"):
        Unsaved().restore(tmp_path)


def test_restoring_what_is_not_there_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Counter({}).restore(tmp_path / "nowhere")


def test_a_link_out_of_a_saved_checkpoint_is_refused(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "link").symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="link"):
        Counter({}).save(tmp_path / "saved")


def test_reset_starts_over_with_the_new_configuration():
    counter = Counter({})
    counter.train()
    assert counter.reset({"x": 1})
    assert (counter.config, counter.iteration) == ({"x": 1}, 0)
    assert counter.train()["timesteps_total"] == 10


def test_a_reset_that_is_refused_changes_nothing():
    counter = Counter({})
    counter.train()
    assert not counter.reset({"resettable": False})
    assert (counter.config, counter.iteration) == ({}, 1)
    assert not Unsaved().reset({})


def test_stop_cleans_up():
    counter = Counter({})
    counter.stop()
    assert counter.events[-1] == "cleanup"


# ---------------------------------------------------------------------------------------------------- what can be trained


def with_config_and_default(config, epochs=3):
    pass


def named_last(epochs=1, *, config):
    return config


def no_arguments():
    pass


def two(first, second):
    pass


def two_defaults(lr=0.1, epochs=3):
    pass


async def asynchronous(config):
    pass


class Callable:
    def __call__(self, config):
        return config


class AsynchronousCallable:
    async def __call__(self, config):
        return config


@pytest.mark.parametrize(
    "trainable",
    [train, with_config_and_default, named_last, lambda c: None, lambda *a: None, lambda c, /: None,
     Callable(), Callable().__call__,
     functools.partial(two, second=1), functools.partial(train), Counter, print],
)  # fmt: skip
def test_functions_of_the_configuration_and_subclasses_can_be_trained(trainable):
    check_trainable(trainable)


@pytest.mark.parametrize(
    ("trainable", "why"),
    [
        (3, "must be a function of the configuration or a subclass of Trainable, got 3"),
        ("train", "must be a function"),
        (None, "must be a function"),
        (Counter({}), "must be a function"),
        (dict, "must derive from Trainable, got dict"),
        (Abstract, "Abstract must implement step"),
        (Trainable, "must implement step"),
        (lambda **named: None, "cannot be called with"),
        (no_arguments, r"no_arguments\(\) cannot be called with \(config\)"),
        (two, "must take the configuration as an argument config or as its only positional one"),
        (two_defaults, "must take the configuration as an argument config"),
        (lambda config, data: None, "missing a required argument: 'data'; see with_parameters"),
        (asynchronous, "asynchronous is asynchronous"),
        (AsynchronousCallable(), "is asynchronous"),
    ],
)
def test_anything_else_is_refused_with_the_reason(trainable, why):
    with pytest.raises(TypeError, match=why):
        check_trainable(trainable)


def test_names_of_trainables():
    names = [trainable_name(one) for one in (train, Counter, functools.partial(train), lambda c: 0, Callable())]
    assert names == ["train", "Counter", "train", "lambda", "Callable"]


def test_only_subclasses_are_class_trainables():
    assert [is_class_trainable(one) for one in (Counter, train, Counter({}), dict, 3)] == [True, False, False, False, False]


# ---------------------------------------------------------------------------------------------------- parameters and resources


def weighted(config, data, scale=1):
    return sum(data) * scale * config["x"]


def test_parameters_reach_a_function_by_name():
    bound = with_parameters(weighted, data=[1, 2])
    check_trainable(bound)
    assert bound({"x": 10}) == 30
    assert with_parameters(named_last, epochs=2)(config={"x": 1}) == {"x": 1}


def test_parameters_may_be_given_one_after_the_other_and_the_last_one_counts():
    bound = with_parameters(with_parameters(weighted, data=[1], scale=2), data=[1, 2])
    assert bound({"x": 10}) == 60
    bound = with_parameters(with_parameters(Counter, start=1), start=2)
    assert bound({}).value == 2


def test_parameters_reach_the_setup_of_a_class_and_its_original_stays():
    bound = with_parameters(Counter, start=5)
    assert bound({}).train()["value"] == 6
    assert Counter({}).train()["value"] == 1
    assert (bound.__name__, bound.__module__) == (Counter.__name__, Counter.__module__)


@pytest.mark.parametrize(
    ("trainable", "parameters"),
    [(train, {"data": 1}), (weighted, {"scale": 2}), (weighted, {"config": 1}), (Counter, {"begin": 1}), (dict, {}), (3, {})],
)
def test_parameters_that_do_not_fit_are_refused(trainable, parameters):
    with pytest.raises(TypeError, match=r"cannot be called with|must derive|must be a function|multiple values|config"):
        with_parameters(trainable, **parameters)


@pytest.mark.parametrize("trainable", [with_config_and_default, Counter])
def test_resources_and_parameters_chain_in_either_order(trainable):
    parameters = {"start": 1} if trainable is Counter else {"epochs": 1}
    one = with_parameters(with_resources(trainable, {"gpu": 1}), **parameters)
    other = with_resources(with_parameters(trainable, **parameters), {"gpu": 1})
    assert resources_for(one, {}) == resources_for(other, {}) == {"gpu": 1.0}
    assert resources_for(trainable, {}) == {"cpu": 1.0}
    check_trainable(one)
    check_trainable(other)
    if trainable is Counter:
        assert one({}).value == other({}).value == 1


@pytest.mark.parametrize(
    "trainable", [with_parameters(weighted, data=[1]), with_resources(Counter, {"cpu": 2}), with_parameters(Counter, start=1)]
)
def test_what_is_bound_travels_to_other_processes(trainable):
    copy = cloudpickle.loads(cloudpickle.dumps(trainable))
    assert trainable_name(copy) == trainable_name(trainable)
    assert resources_for(copy, {}) == resources_for(trainable, {})
    assert copy({"x": 3}) == 3 if trainable_name(copy) == "weighted" else copy({}).train()["value"] == trainable({}).train()["value"]


class Greedy(Unsaved):
    @classmethod
    def default_resource_request(cls, config):
        return PlacementGroupFactory([{"CPU": 1}, {"CPU": config["workers"], "GPU": 0.5}])


@pytest.mark.parametrize(
    ("trainable", "resources"),
    [
        (train, {"cpu": 1.0}),
        (Counter, {"cpu": 1.0}),
        (Greedy, {"cpu": 4.0, "gpu": 0.5}),
        (with_resources(Greedy, {"cpu": 1}), {"cpu": 1.0}),
        (with_resources(train, {"CPU": 2, "GPU": 0.25, "TPU_v4": 1}), {"cpu": 2.0, "gpu": 0.25, "TPU_v4": 1.0}),
        (with_resources(train, lambda config: {"cpu": config["workers"]}), {"cpu": 3.0}),
        (with_resources(with_resources(train, {"cpu": 5}), {"cpu": 7}), {"cpu": 7.0}),
        (with_resources(train, PlacementGroupFactory([{}, {"cpu": 1}, {"cpu": 1, "gpu": 1}], strategy="SPREAD")), {"cpu": 2.0, "gpu": 1.0}),
    ],
)
def test_requests(trainable, resources):
    assert resources_for(trainable, {"workers": 3}) == resources


@pytest.mark.parametrize(
    ("request_", "error"),
    [({"cpu": -1}, ValueError), ({"cpu": "2"}, ValueError), ({"cpu": True}, ValueError), ({"cpu": float("nan")}, ValueError),
     ({"cpu": 1, "CPU": 1}, ValueError), ({"gpu": 1.5}, ValueError), (3, TypeError), ([{"cpu": 1}], TypeError)],
)  # fmt: skip
def test_impossible_requests_are_refused_early_and_from_functions_late(request_, error):
    with pytest.raises(error, match=r"must be|asked for twice"):
        with_resources(train, request_)
    with pytest.raises(error, match=r"must be|asked for twice"):
        resources_for(with_resources(train, lambda config: request_), {})


@pytest.mark.parametrize(("bundles", "strategy"), [([], "PACK"), ([{"cpu": 1}], "STACK"), ([{"cpu": -1}], "PACK")])
def test_impossible_bundles_are_refused(bundles, strategy):
    with pytest.raises(ValueError, match="must"):
        PlacementGroupFactory(bundles, strategy)


def test_with_resources_leaves_the_function_as_it_is():
    with_resources(train, {"cpu": 4})
    assert not hasattr(train, "requested_resources")


# ---------------------------------------------------------------------------------------------------- names


def test_a_registered_trainable_is_found_by_its_name():
    register_trainable("registered", train)
    assert get_trainable("registered") is train
    register_trainable("registered", Counter)
    assert get_trainable("registered") is Counter


def test_an_unknown_name_is_answered_with_the_closest():
    register_trainable("resnet_cifar", train)
    with pytest.raises(ValueError, match="'resnet_cifr'; did you mean 'resnet_cifar'"):
        get_trainable("resnet_cifr")
    with pytest.raises(ValueError, match=r"registered are .*resnet_cifar"):
        get_trainable("zzzzzz")


def test_only_trainables_can_be_registered():
    with pytest.raises(TypeError, match="must be a function"):
        register_trainable("three", 3)
    with pytest.raises(TypeError, match="name must be a non-empty string"):
        register_trainable("", train)
