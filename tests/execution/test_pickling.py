"""A trainable that cannot be pickled is refused with the name of the cause."""

import functools
import importlib.util
import json
import logging
import pickle
import sys
import threading

import pytest

from tuner.errors import TrainableNotPicklable
from tuner.execution import pickling
from tuner.execution.class_trainable import Trainable
from tuner.execution.pickling import pickle_trainable
from tuner.execution.trainable import with_parameters


def delivered(trainable):
    return pickle.loads(pickle_trainable(trainable))  # noqa: S301  (our own)


def refusal(trainable):
    with pytest.raises(TrainableNotPicklable) as caught:
        pickle_trainable(trainable)
    return str(caught.value)


def test_a_closure_is_pickled_with_what_it_captures():
    factor = 3
    assert delivered(lambda config: factor * config["x"])({"x": 2}) == 6


def test_a_captured_variable_is_named_with_its_type():
    lock = threading.Lock()
    message = refusal(lambda config: lock)
    assert "captures 'lock' (_thread.lock)" in message
    assert "create it inside the function" in message


class Model:
    def __init__(self, **parts):
        self.__dict__.update(parts)


class Slotted:
    __slots__ = ("part",)

    def __init__(self, part):
        self.part = part


def test_the_path_leads_through_attributes_items_and_functions():
    model = Model(layers=[{"hooks": Slotted(threading.Lock())}])
    assert "captures 'model.layers[0]['hooks'].part' (_thread.lock)" in refusal(
        lambda config: model
    ).replace('"', "'")


def test_a_function_captured_by_a_function_is_followed():
    lock = threading.Lock()

    def helper():
        return lock

    assert "captures 'helper -> lock'" in refusal(lambda config: helper())


def test_a_default_is_followed():
    lock = threading.Lock()
    assert "captures '__defaults__[0]'" in refusal(lambda config, lock=lock: lock)


def test_a_partial_is_followed():
    message = refusal(functools.partial(lambda config, data: data, data=threading.Lock()))
    assert "keywords['data']" in message


def test_a_bound_method_is_followed():
    class Trainer:
        def __init__(self):
            self.lock = threading.Lock()

        def train(self, config):
            return self.lock

    assert "captures '__self__.lock'" in refusal(Trainer().train)


def test_a_class_is_followed():
    lock = threading.Lock()

    class Trainer:
        def step(self):
            return lock

    assert "Trainer captures 'step -> lock'" in refusal(Trainer)


def test_a_global_that_the_function_uses_is_found():
    scope = {"lock": threading.Lock(), "unused": threading.Lock(), "__name__": "__main__"}
    exec("def train(config):\n    return lock", scope)  # noqa: S102  (stands for a script)
    assert "train captures 'lock'" in refusal(scope["train"])


def test_circular_references_end():
    model = Model(lock=threading.Lock())
    model.itself = model

    def train(config):
        return train, model

    assert "captures 'model.lock'" in refusal(train)


def test_a_trainable_that_is_the_cause_itself_is_named():
    message = refusal(threading.Lock())
    assert message.startswith("lock (_thread.lock) cannot be pickled")


def test_an_object_whose_own_pickling_fails_is_named():
    class Stubborn:
        def __reduce__(self):
            raise RuntimeError("will not")

    stubborn = Stubborn()
    message = refusal(lambda config: stubborn)
    assert "captures 'stubborn'" in message
    assert "will not" in message


def test_a_huge_trainable_is_warned_about_once_with_its_largest_part(monkeypatch, caplog):
    monkeypatch.setattr(pickling, "HUGE_BYTES", 2**20)
    small, table = b"x" * 1000, b"x" * 2**21
    with caplog.at_level(logging.WARNING):
        pickle_trainable(lambda config: (small, table))
    (record,) = caplog.records
    assert "2 MiB when pickled, of which 'table' takes 2 MiB" in record.getMessage()


def test_data_bound_by_with_parameters_causes_no_warning(monkeypatch, caplog):
    monkeypatch.setattr(pickling, "HUGE_BYTES", 2**20)

    class Model(Trainable):
        def setup(self, config, data):
            pass

        def step(self):
            return {}

    table, other = b"x" * 2**21, b"y" * 2**21
    pickle_trainable(with_parameters(lambda config, data: None, data=table))
    pickle_trainable(with_parameters(Model, data=table))
    assert caplog.records == []
    pickle_trainable(with_parameters(lambda config, data: other, data=table))
    assert len(caplog.records) == 1


def test_an_ordinary_trainable_causes_no_warning(caplog):
    pickle_trainable(lambda config: None)
    assert caplog.records == []


def test_a_function_of_a_module_that_others_cannot_import_is_pickled_by_value(
    tmp_path, monkeypatch
):
    path = tmp_path / "secluded.py"
    path.write_text("FACTOR = 3\n\ndef train(config):\n    return FACTOR * config['x']\n")
    spec = importlib.util.spec_from_file_location("hidden.secluded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "hidden.secluded", module)
        data = pickle_trainable(module.train)
    assert pickle.loads(data)({"x": 2}) == 6  # noqa: S301  (our own)


def test_a_function_of_a_library_is_pickled_by_reference():
    assert b"json" in pickle_trainable(json.dumps)
    assert len(pickle_trainable(json.dumps)) < 100
