import pickle
from pathlib import Path

import pytest

from tuner.errors import CheckpointError
from tuner.execution.assignment import Assignment
from tuner.execution.class_trainable import Trainable
from tuner.storage.checkpoints import Checkpoint


class Counter(Trainable):
    """Counts; `way` is the way in which it saves."""

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
        return {
            "none": None,
            "same": checkpoint_dir,
            "slash": checkpoint_dir + "/",
            "other": "/elsewhere",
            "number": 3,
        }[self.way]

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


ASSIGNMENT = Assignment(
    "t00003",
    2,
    {"a": [1]},
    "exp",
    "/exp/t00003",
    "3_a=1",
    {"cpu": 2.0},
    (),
    None,
    4,
    8.0,
    {"timesteps_total": 40},
    1,
    0,
)


# Without an experiment.


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
    assert (counter.trial_id, counter.trial_name, counter.trial_resources) == (
        "default",
        "default",
        {},
    )


def test_in_an_experiment_it_has_the_data_of_its_trial():
    counter = Counter(ASSIGNMENT.config, assignment=ASSIGNMENT)
    assert (counter.trial_id, counter.trial_name, counter.logdir) == (
        "t00003",
        "Counter_t00003",
        "/exp/t00003",
    )
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
    assert (
        result["time_total_s"]
        >= counter.train()["time_since_restore"] - result["time_this_iter_s"] - 1
    )


def test_save_without_a_directory_makes_a_new_one_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    counter = Counter({})
    assert counter.save() != counter.save()


def test_a_saved_dictionary_is_loaded_as_a_dictionary(tmp_path):
    Counter({"way": "dict"}).save(tmp_path)
    pickled = (tmp_path / "_dict_checkpoint.pkl").read_bytes()
    assert pickle.loads(pickled) == {"value": 0}  # noqa: S301


def test_files_without_a_manifest_can_be_restored(tmp_path):
    (tmp_path / "value").write_text("7")
    counter = Counter({})
    counter.restore(Checkpoint.from_directory(tmp_path))
    assert (counter.value, counter.iteration) == (7, 0)


@pytest.mark.parametrize("way", ["other", "number"])
def test_save_checkpoint_must_not_return_anything_else(way, tmp_path):
    with pytest.raises(
        ValueError,
        match="save_checkpoint must return None, a dictionary or the directory it was given",
    ):
        Counter({"way": way}).save(tmp_path)


def test_a_trainable_that_cannot_save_says_so(tmp_path):
    with pytest.raises(
        NotImplementedError, match="Unsaved cannot be saved; implement save_checkpoint"
    ):
        Unsaved().save(tmp_path)
    with pytest.raises(NotImplementedError, match="Unsaved cannot be restored"):
        Unsaved().restore(tmp_path)


def test_restoring_a_missing_checkpoint_names_it(tmp_path):
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


class OwnCount(Trainable):
    """Written for Ray Tune, where ``_iteration`` can be assigned to."""

    def setup(self, config):
        self._iteration = 0

    def step(self):
        return {"before": self._iteration}

    def save_checkpoint(self, checkpoint_dir):
        return {"count": self._iteration}

    def load_checkpoint(self, checkpoint):
        self._iteration = checkpoint["count"]

    def reset_config(self, new_config):
        self._iteration = 100
        return True


def test_an_assigned_iteration_continues_to_count(tmp_path):
    trainable = OwnCount()
    assert [trainable.train()["before"] for _ in range(3)] == [0, 1, 2]
    trainable._iteration = 10
    assert trainable.train()["before"] == 10
    assert trainable._iteration == 11
    assert trainable.iteration == 4
    trainable._iteration = "none of a number"
    assert trainable._iteration == "none of a number"


def test_a_checkpoint_and_a_reset_replace_an_assigned_iteration():
    trainable = OwnCount()
    for _ in range(2):
        trainable.train()
    again = OwnCount()
    again.restore(trainable.save())
    assert again.train()["before"] == 2
    assert again.reset({})
    assert again.train()["before"] == 0
