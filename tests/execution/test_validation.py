"""What a validation is given is the same after it has been written down."""

import functools
import math
import threading

import pytest

from tuner.core.secret_reference import Secret
from tuner.core.worker_records import ValidationRequest
from tuner.execution.report_options import ValidationTask
from tuner.execution.secrets import resolve_secrets
from tuner.execution.validation import name_of, pack_validation, run_validation, validated_metrics
from tuner.execution.validation_assignment import (
    NOT_DECLARED,
    DeclaredValidator,
    ValidationAssignment,
    payload_digest,
)
from tuner.storage import strict_json


class Thing:
    """An object that JSON cannot hold."""

    def __init__(self, name="thing"):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


def told(checkpoint, **kwargs):
    return {"told": sorted(kwargs), "path": str(checkpoint.path)}


def older(checkpoint, config):
    return {"told": sorted(config)}


@pytest.fixture
def pack(tmp_path):
    def build(declared=None, sources=None, *, takes_config=False, function=None, **kwargs):
        task = ValidationTask(function, kwargs, takes_config=takes_config)
        declared = DeclaredValidator(declared) if declared else NOT_DECLARED
        request = pack_validation(task, tmp_path, 3, declared, sources or {"config": {}})
        # The journal holds it between.
        kwargs = strict_json.loads(strict_json.dumps(request.kwargs))
        return ValidationRequest(
            request.function, kwargs, None, request.payload, request.takes_config
        )

    return build


@pytest.fixture
def run(tmp_path):
    def validate(request, declared=None, *, config=None, is_same_session=True, trainable=None):
        assignment = ValidationAssignment(
            "t00001", 3, 1, str(tmp_path), str(tmp_path / "checkpoint_000003"), request,
            config or {}, {"cpu": 1.0}, has_payload=is_same_session and bool(request.payload),
        )  # fmt: skip
        declared = DeclaredValidator(declared) if declared else NOT_DECLARED
        return run_validation(trainable or (lambda config: None), declared, assignment)

    return validate


def test_a_function_is_called_with_the_checkpoint_and_its_arguments(pack, run, tmp_path):
    assert run(pack(function=told, epoch=3, name="a")) == {
        "kind": "validated",
        "metrics": {"told": ["epoch", "name"], "path": str(tmp_path / "checkpoint_000003")},
    }


def test_the_older_form_is_called_with_a_config(pack, run):
    request = pack(function=older, takes_config=True, epoch=3)
    assert run(request)["metrics"] == {"told": ["epoch"]}


def test_arguments_of_a_report_win_over_the_declared_ones(pack, run):
    def both(checkpoint, a, b):
        return {"a": a, "b": b}

    declared = functools.partial(both, a=1, b=1)
    request = pack(declared, b=2)
    assert (request.function, request.payload) == ("", "")
    assert run(request, declared)["metrics"] == {"a": 1, "b": 2}


def test_declared_arguments_also_count_where_the_function_takes_a_config(pack, run):
    declared = functools.partial(older, a=1)
    assert run(pack(declared, takes_config=True, b=2), declared)["metrics"] == {"told": ["a", "b"]}


def test_plain_arguments_survive_a_restart_without_a_payload(pack, run):
    def same(checkpoint, **kwargs):
        seen.update(kwargs)
        return {}

    seen = {}
    given = {
        "n": 3, "x": math.inf, "text": "a", "none": None, "list": [1, {"a": (1, 2)}],
        "tuple": (1, (2,)), "tag": {"$config": ["x"]}, "escaped": {"$$tuple": []}, "empty": {},
    }  # fmt: skip
    request = pack(same, **given)
    assert request.payload == ""
    assert run(request, same, is_same_session=False)["kind"] == "validated"
    assert seen == given


def test_an_object_of_the_configuration_is_found_again_after_a_restart(pack, run):
    def names(checkpoint, data):
        return {"name": data["inner"][0].name}

    config = {"data": Thing("first")}
    request = pack(names, {"config": config}, data={"inner": [config["data"]]})
    assert request.kwargs == {"data": {"inner": [{"$config": ["config", "data"]}]}}
    config["data"].name = "changed"
    assert run(request, names, config=config)["metrics"] == {"name": "first"}
    again = {"data": Thing("second")}
    result = run(request, names, config=again, is_same_session=False)
    assert result["metrics"] == {"name": "second"}


def test_datasets_are_never_pickled(pack, run):
    class Trainer:
        def __call__(self, config):
            pass

        def validation_sources(self, config):
            return {"datasets": {"val": dataset}}

    dataset = Thing()
    dataset.lock = threading.Lock()  # cannot be pickled
    request = pack(function=lambda checkpoint, data: {"same": data is dataset},
                   sources={"datasets": {"val": dataset}}, data=dataset)  # fmt: skip
    assert run(request, trainable=Trainer())["metrics"] == {"same": True}


def test_an_object_that_is_stored_nowhere_is_named_after_a_restart(pack, run):
    request = pack(told, data=Thing())
    assert run(request, told)["kind"] == "validated"
    failure = run(request, told, is_same_session=False)["failure"]
    assert "argument 'data'" in failure["message"]
    assert "<thing>" in failure["message"]


def test_a_secret_reaches_the_validation_and_neither_journal_nor_payload(
    pack, run, monkeypatch, tmp_path
):
    monkeypatch.setenv("VALIDATION_KEY", "hunter2-hunter2")
    key = resolve_secrets({"key": Secret("VALIDATION_KEY")})["key"]
    request = pack(
        function=lambda checkpoint, key, url: {"n": len(key) + len(url)}, key=key,
        url=f"http://{key}",
    )  # fmt: skip
    assert "hunter2" not in strict_json.dumps(request.kwargs)
    assert request.kwargs["key"] == {"$secret": "VALIDATION_KEY"}
    assert run(request)["metrics"] == {"n": 37}


def test_a_large_argument_stays_out_of_the_journal(pack, run):
    request = pack(told, data=list(range(100_000)))
    assert len(strict_json.dumps(request.kwargs)) < 1_000
    assert run(request, told)["kind"] == "validated"


def test_a_function_of_a_module_is_imported_after_a_restart(pack, run):
    request = ValidationRequest("json:loads", {}, payload=".validation-3-" + "0" * 64 + ".pkl")
    failure = run(request, is_same_session=False)["failure"]
    assert "the JSON object must be str" in failure["message"]


def test_a_function_of_the_script_is_found_among_the_globals_of_the_training(pack, run):
    script = {"__name__": "__main__"}
    exec(  # noqa: S102  (as a script is run)
        "def check(checkpoint):\n    return {'ok': 1}\n"
        "def train(config):\n    report(validate_fn=check)\n",
        script,
    )
    request = pack(function=script["check"])
    assert request.function == "__main__:check"
    result = run(request, is_same_session=False, trainable=script["train"])
    assert result["metrics"] == {"ok": 1}


def test_a_function_that_cannot_be_found_any_more_fails_with_advice(pack, run):
    request = pack(function=lambda checkpoint: {})
    failure = run(request, is_same_session=False)["failure"]
    assert "pass validation_config=" in failure["message"]
    assert run(request, told, is_same_session=False)["kind"] == "validated"


def test_a_changed_payload_is_not_unpickled(pack, run, tmp_path):
    request = pack(function=told)
    (tmp_path / request.payload).write_bytes(b"\x80\x04.")
    assert "has been changed" in run(request)["failure"]["message"]


def test_validation_without_a_function_or_with_a_wrong_one_is_refused(pack):
    with pytest.raises(ValueError, match="validation needs a function"):
        pack()
    with pytest.raises(TypeError, match="must be callable, got 'told'"):
        pack(function="told")


def test_an_argument_that_cannot_be_carried_is_named(pack):
    with pytest.raises(ValueError, match="argument 'lock' of the validation function"):
        pack(function=told, lock=threading.Lock())
    lock = threading.Lock()
    with pytest.raises(ValueError, match="captures 'lock'"):
        pack(function=lambda checkpoint: lock)


@pytest.mark.parametrize("returned", [None, 0.5, [1]])
def test_a_validation_has_to_return_a_dictionary(returned):
    with pytest.raises(TypeError, match="must return a dictionary of metrics"):
        validated_metrics(returned)


def test_keys_of_the_engine_are_left_out_of_validated_metrics():
    returned = {"accuracy": 0.5, "training_iteration": 9, "config": {"a": Thing()}, "done": True}
    assert validated_metrics(returned) == {"accuracy": 0.5}


def test_an_exception_and_an_exit_fail_the_validation(pack, run):
    def fails(checkpoint):
        raise KeyError("weights")

    def leaves(checkpoint):
        raise SystemExit(0)

    failure = run(pack(function=fails))["failure"]
    assert failure["kind"] == "KeyError"
    assert 'raise KeyError("weights")' in failure["traceback"]
    assert run(pack(function=leaves))["failure"]["message"] == "exited with code 0"


def test_the_digest_of_a_payload_is_in_its_name():
    assert payload_digest(".validation-3-" + "ab" * 32 + ".pkl") == "ab" * 32
    assert payload_digest("../.validation-3-" + "ab" * 32 + ".pkl") == ""
    assert name_of(functools.partial(told)) == f"{__name__}:told"
