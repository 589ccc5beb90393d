"""A trainable is identified by its name and its source, without bound arguments."""

import functools
import linecache

import tuner as tune
from tuner.spec.record import fingerprint, trainable_changes


def train(config, data=None):
    return {"loss": config["x"]}


class Model(tune.Trainable):
    def step(self):
        return {"loss": 1.0}


class Callable:
    def __call__(self, config):
        return {"loss": 1.0}


def test_bound_arguments_do_not_change_the_fingerprint():
    plain = fingerprint(train, "train")
    assert plain["source_sha256"] is not None
    for bound in (
        tune.with_parameters(train, data=[1]),
        tune.with_resources(train, {"cpu": 2}),
        tune.with_resources(tune.with_parameters(train, data=[1]), {"cpu": 2}),
        functools.partial(train, data=[1]),
    ):
        assert fingerprint(bound, "train") == plain


def test_a_class_is_compared_by_its_source_too():
    plain = fingerprint(Model, "Model")
    assert plain["source_sha256"] is not None
    assert fingerprint(tune.with_resources(Model, {"cpu": 2}), "Model") == plain
    assert fingerprint(Callable(), "Callable")["qualname"] == "Callable"


def test_another_function_and_another_source_are_trainable_changes():
    now = fingerprint(train, "train")
    assert list(trainable_changes(now, now)) == []
    assert list(trainable_changes({**now, "qualname": "old"}, now)) == ["trainable: old -> train"]
    [difference] = trainable_changes({**now, "source_sha256": "0" * 64}, now)
    assert (
        difference == f"trainable's source (SHA-256): 000000000000 -> {now['source_sha256'][:12]}"
    )


def test_without_a_source_only_names_are_compared():
    names = {}
    exec("def train(config): return {}", names)  # noqa: S102  (a function without a file)
    typed_in = fingerprint(names["train"], "train")
    assert typed_in["source_sha256"] is None
    assert list(trainable_changes({**typed_in, "source_sha256": "0" * 64}, typed_in)) == []


def test_code_that_was_typed_in_has_no_source(monkeypatch):
    """From Python 3.13 on its text can be read, under the file name of all such code."""
    monkeypatch.setitem(
        linecache.cache, "<string>", (9, None, ["import sys\n", "sys.exit()\n"], "<string>")
    )
    names = {}
    exec("def train(config): return {}", names)  # noqa: S102  (a function without a file)
    assert fingerprint(names["train"], "train")["source_sha256"] is None


def test_another_module_is_no_difference():
    now = fingerprint(train, "train")
    assert list(trainable_changes({**now, "module": "__main__"}, now)) == []
