"""The list of callbacks isolates the engine from their errors."""

import copy
import logging

import pytest

from tuner.callbacks.callback import Callback, LoggerCallback
from tuner.callbacks.callback_list import HOOKS, CallbackList, overrides


class Recorder(Callback):
    def __init__(self, story, name="recorder"):
        self.story = story
        self.name = name

    def on_trial_start(self, iteration, trials, trial, **info):
        self.story.append((self.name, iteration, trial))


class Broken(Callback):
    def on_trial_start(self, **info):
        raise RuntimeError("as planned")

    def on_step_end(self, **info):
        raise AssertionError("called after it was switched off")


class Requester(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        result["should_checkpoint"] = True


class SecondRequester(Requester):
    pass


class Withdrawer(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        result["should_checkpoint"] = False


class Minimal(LoggerCallback):
    def log_trial_result(self, iteration, trial, result):
        pass


class Stateful(Callback):
    def __init__(self, state=None):
        self.state = state

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


def test_every_hook_of_the_base_class_can_be_called():
    hooks = {name for name in vars(Callback) if name == "setup" or name.startswith("on_")}
    assert set(HOOKS) == hooks


def test_callbacks_are_called_in_order_with_keywords():
    story = []
    callbacks = CallbackList([Recorder(story, "first"), Recorder(story, "second")])
    callbacks.call("on_trial_start", iteration=3, trials=[], trial="t")
    assert story == [("first", 3, "t"), ("second", 3, "t")]


def test_one_that_raises_is_reported_once_and_never_called_again(caplog):
    story = []
    callbacks = CallbackList([Broken(), Recorder(story)])
    with caplog.at_level(logging.WARNING, "tuner"):
        for _ in range(2):
            callbacks.call("on_trial_start", iteration=1, trials=[], trial="t")
        callbacks.call("on_step_end", iteration=1, trials=[])
    assert len(story) == 2
    (record,) = caplog.records
    assert "Broken.on_trial_start raised RuntimeError" in record.getMessage()
    assert str(record.exc_info[1]) == "as planned"


def test_an_interrupt_of_the_user_is_not_caught():
    class Interrupted(Callback):
        def on_step_end(self, **info):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CallbackList([Interrupted()]).call("on_step_end", iteration=1, trials=[])


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ("on_trial_result", True),
        ("on_trial_start", False),
        ("on_trial_complete", False),
        ("setup", False),
    ],
)
def test_a_logger_that_overrides_one_method_has_one_hook(hook, expected):
    assert overrides(Minimal(), hook) is expected
    assert CallbackList([Minimal()]).has(hook) is expected


def test_log_trial_end_stands_for_the_three_hooks_that_forward_to_it():
    class Ending(Minimal):
        def log_trial_end(self, trial, failed=False):
            pass

    hooks = [hook for hook in HOOKS if overrides(Ending(), hook)]
    assert hooks == ["on_trial_result", "on_trial_complete", "on_trial_recover", "on_trial_error"]


def test_a_hook_set_on_the_instance_counts():
    callback, story = Callback(), []
    callback.on_experiment_end = lambda **info: story.append(info)
    CallbackList([callback]).call("on_experiment_end", trials=[])
    assert story == [{"trials": []}]


@pytest.mark.parametrize(
    ("callbacks", "result", "expected"),
    [
        ([Requester()], {}, "Requester"),
        ([Recorder([]), Requester(), Minimal(), SecondRequester()], {}, "Requester"),
        ([Requester(), Withdrawer()], {}, ""),
        ([Requester()], {"should_checkpoint": True}, ""),
        ([Recorder([])], {"should_checkpoint": True}, ""),
        ([], {}, ""),
    ],
)
def test_a_checkpoint_is_requested_only_by_a_callback(callbacks, result, expected):
    assert (
        CallbackList(callbacks).on_trial_result(result, iteration=1, trials=[], trial=None)
        == expected
    )


def test_what_callbacks_write_into_a_result_is_written_into_a_copy():
    class Writer(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            result["loss"] = result["val"]["loss"] = result["config"]["lr"] = -5.0
            result["sizes"][0] = -5.0
            result["config"]["layers"][0]["size"] = -5.0

    class Reader(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.seen = result

    marker = object()  # what cannot be copied is shared
    result = {
        "loss": 1.0,
        "val": {"loss": 2.0},
        "sizes": [3.0],
        "config": {"lr": 0.1, "layers": ({"size": 4},), "model": marker},
    }
    before, reader = (
        copy.deepcopy({**result, "config": {**result["config"], "model": None}}),
        Reader(),
    )
    CallbackList([Writer(), reader]).on_trial_result(result, iteration=1, trials=[], trial=None)
    assert {**result, "config": {**result["config"], "model": None}} == before
    assert (
        reader.seen["loss"]
        == reader.seen["val"]["loss"]
        == reader.seen["config"]["layers"][0]["size"]
        == -5.0
    )
    assert reader.seen["config"]["model"] is marker


def test_states_find_their_callbacks_again_in_order():
    old = CallbackList([Recorder([]), Stateful({"n": 1}), Stateful({"n": 2})])
    first, second = Stateful(), Stateful()
    new = CallbackList([first, Recorder([]), second])
    new.set_state(old.get_state())
    assert (first.state, second.state) == ({"n": 1}, {"n": 2})


def test_a_state_without_its_callback_is_left_out():
    CallbackList([Recorder([])]).set_state(CallbackList([Stateful({"n": 1})]).get_state())


def test_a_callback_whose_state_cannot_be_had_is_switched_off(caplog):
    class Secretive(Requester):
        def get_state(self):
            raise RuntimeError("no")

    callbacks = CallbackList([Secretive()])
    assert callbacks.get_state() == []
    assert not callbacks.has("on_trial_result")
    assert "Secretive.get_state" in caplog.text
