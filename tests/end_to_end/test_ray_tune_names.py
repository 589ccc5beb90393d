"""Import paths, classes and functions that scripts of Ray Tune use."""

import pytest

import schedulers
import searchers
import tuner
import tuner as tune
from tuner.utils import flatten_dict, validate_save_restore


class Counts(tune.Trainable):
    def setup(self, config):
        self.total = 0

    def step(self):
        self.total += self.config.get("by", 1)
        return {"total": self.total, "seen": self._iteration}

    def save_checkpoint(self, checkpoint_dir):
        return {"total": self.total}

    def load_checkpoint(self, checkpoint):
        self.total = checkpoint["total"]


class Unsaved(tune.Trainable):
    def step(self):
        return {}


def test_import_paths_of_ray_tune_lead_to_the_same_objects():
    from tuner import tune as same
    from tuner.schedulers import ASHAScheduler, TrialScheduler
    from tuner.search import BasicVariantGenerator

    assert same is tuner
    assert ASHAScheduler is schedulers.ASHAScheduler
    assert TrialScheduler is schedulers.TrialScheduler
    assert BasicVariantGenerator is searchers.BasicVariantGenerator
    assert tune.schedulers.PB2 is schedulers.PB2
    assert tune.search.ConcurrencyLimiter is searchers.ConcurrencyLimiter
    assert tune.utils.flatten_dict is flatten_dict


def test_dictionaries_are_flattened():
    assert flatten_dict({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}, delimiter=".") == {
        "a.b": 1,
        "a.c.d": [2],
        "e": {},
    }
    with pytest.raises(ValueError, match="keys must not contain '/', got 'a/b'"):
        flatten_dict({"x": {"a/b": 1}}, prevent_delimiter=True)


def test_a_class_is_saved_and_loaded_or_the_error_names_the_missing_method():
    assert validate_save_restore(Counts, config={"by": 2})
    with pytest.raises(NotImplementedError, match="implement save_checkpoint and load_checkpoint"):
        validate_save_restore(Unsaved)
    with pytest.raises(TypeError, match="trainable_cls must be a subclass of Trainable"):
        validate_save_restore(print)


def test_the_iteration_has_its_older_name_too(fit):
    grid = fit(Counts, {"by": 1}, stop={"training_iteration": 3}, executor="inline")
    assert list(grid[0].metrics_dataframe["seen"]) == [0, 1, 2]


def test_the_resources_of_a_trial_are_a_placement_group_factory(fit):
    def train(config):
        resources = tune.get_context().get_trial_resources()
        assert isinstance(resources, tune.PlacementGroupFactory)
        assert (resources.head_cpus, resources.bundles) == (2.0, [{"CPU": 2.0}])
        assert resources == {"cpu": 2.0}
        tune.report(
            {
                "cpus": resources["cpu"],
                "required": resources.required_resources["CPU"],
                "all": resources,
            }
        )

    result = fit(tune.with_resources(train, {"cpu": 2}), executor="inline", resources={"cpu": 2})[0]
    assert result.error is None
    assert (result.metrics["cpus"], result.metrics["required"], result.metrics["all"]) == (
        2.0,
        2.0,
        {"cpu": 2.0},
    )
    request = tune.PlacementGroupFactory([{}, {"cpu": 1}, {"GPU": 1, "CPU": 0}])
    assert (request.head_cpus, request.head_bundle_is_empty) == (0.0, True)
    assert request.bundles == [{"CPU": 1.0}, {"GPU": 1.0}]
    assert request.required_resources == {"CPU": 1.0, "GPU": 1.0}
    assert hash(request) == hash(tune.PlacementGroupFactory([{}, {"CPU": 1}, {"gpu": 1, "cpu": 0}]))


class OnlyHook(tune.LoggerCallback):
    def __init__(self):
        self.seen = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.seen.append(result["total"])


def test_a_logger_may_override_the_hook_alone(fit):
    logger = OnlyHook()
    fit(Counts, {"by": 5}, stop={"training_iteration": 2}, executor="inline", callbacks=[logger])
    assert logger.seen == [5, 10]


def test_a_checkpoint_folder_that_does_not_exist_is_named_as_it_was_given(fit, tmp_path):
    folder = tmp_path / "nowhere"

    def train(config):
        checkpoint = tune.Checkpoint(folder)
        tune.report({"loss": 1.0}, checkpoint=checkpoint)

    (error,) = fit(train, executor="inline").errors
    assert (
        f"checkpoint directory '{folder}' does not exist; write the files before reporting them"
        in str(error)
    )
    assert "could not be copied" not in str(error)

    def removed(config):
        folder.mkdir(exist_ok=True)
        checkpoint = tune.Checkpoint.from_directory(folder)
        folder.rmdir()
        tune.report({"loss": 1.0}, checkpoint=checkpoint)

    (error,) = fit(removed, executor="inline", name="second").errors
    assert f"checkpoint directory '{folder}' does not exist" in str(error)
