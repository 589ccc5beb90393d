"""Each validation runs in a process of its own and ends with one event."""

import functools
import os
import signal
import sys

import psutil
import pytest

from tests.waiting import wait_until
from tuner.core.commands import KillValidation
from tuner.core.events import Outcome, ValidationEnded
from tuner.core.worker_records import ValidationRequest
from tuner.execution.report_options import ValidationTask
from tuner.execution.resources import THREAD_VARIABLES
from tuner.execution.validation import pack_validation
from tuner.execution.validation_assignment import NOT_DECLARED
from tuner.storage.layout import validation_log

pytestmark = pytest.mark.process


def nothing(config):
    pass


def write(path, text):
    """Write a file that is whole as soon as it is there."""
    path.with_suffix(".new").write_text(str(text))
    path.with_suffix(".new").rename(path)


@pytest.fixture
def start(start_executor):
    """Return a function that starts an executor with a declared validation function."""
    return lambda validator, **options: start_executor(nothing, validator=validator, **options)


def test_the_returned_metrics_come_back(start, start_method, tmp_path):
    harness = start(
        lambda checkpoint: {"accuracy": 0.5, "path": checkpoint.path}, start_method=start_method
    )
    ended = harness.validate(2)
    path = str(tmp_path / "t00001" / "checkpoint_000002")
    assert ended == ValidationEnded(
        "t00001", 2, 1, Outcome.COMPLETED, {"accuracy": 0.5, "path": path}
    )


def test_several_validations_run_at_once_beside_a_trial(start_executor, tmp_path):
    def train(config):
        from tuner.execution.session import report

        (tmp_path / "training").touch()
        while not (tmp_path / "validated").exists():
            report({"loss": 1})

    def validate(checkpoint):
        index = int(str(checkpoint.path)[-1])
        (tmp_path / f"seen{index}").touch()
        names = ["training", "seen0", "seen1"]
        wait_until(lambda: all((tmp_path / name).exists() for name in names))
        return {"index": index}

    harness = start_executor(train, validator=validate)
    harness.start("t00001")
    harness.start_validation(0)
    harness.start_validation(1)
    assert {harness.end_of_validation(index).metrics["index"] for index in (0, 1)} == {0, 1}
    (tmp_path / "validated").touch()
    assert harness.exit_of("t00001").outcome is Outcome.COMPLETED


def test_what_it_prints_goes_to_a_log_of_its_own(start):
    def validate(checkpoint):
        print("to stdout")
        os.system("echo from a child")  # noqa: S605  (writes by descriptor)
        print("to stderr", file=sys.stderr)
        return {}

    harness = start(validate)
    harness.validate(7)
    printed = harness.printed(stream=validation_log(7))
    assert sorted(printed.splitlines()) == ["from a child", "to stderr", "to stdout"]


def test_threads_and_devices_are_those_of_its_own_resources(start, monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    harness = start(
        lambda checkpoint: {
            name: os.environ[name] for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        }
    )
    ended = harness.validate(resources={"cpu": 2.0, "gpu": 1.0}, gpu_ids=(2,))
    assert ended.metrics == {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "6"}


@pytest.mark.parametrize(
    ("ends", "kind", "message"),
    [
        (lambda: 1 / 0, "ZeroDivisionError", "division by zero"),
        (lambda: None, "TypeError", "must return a dictionary of metrics, got NoneType"),
        (lambda: sys.exit(3), "SystemExit", "exited with code 3"),
        (lambda: os._exit(3), "exited with code 3", "before the training code did"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "killed by SIGSEGV", ""),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL", ""),
    ],
)
def test_every_other_end_is_a_failure_with_its_cause(start, ends, kind, message):
    ended = start(lambda checkpoint: ends()).validate()
    assert ended.outcome is Outcome.FAILED
    assert ended.metrics is None
    assert ended.failure.kind == kind
    assert message in ended.failure.message


def test_a_crash_quotes_the_end_of_the_log(start):
    def validate(checkpoint):
        print("last words", flush=True)
        os.abort()

    ended = start(validate).validate()
    assert ended.failure.kind == "killed by SIGABRT"
    assert "last words" in ended.failure.traceback


def test_a_killed_validation_takes_its_children_along(start, tmp_path, still_alive):
    def validate(checkpoint):
        if os.fork():
            write(tmp_path / "parent", os.getpid())
        else:
            write(tmp_path / "child", os.getpid())
        signal.pause()

    harness = start(validate)
    harness.start_validation()
    while not (tmp_path / "parent").exists() or not (tmp_path / "child").exists():
        harness.executor.wait(0.01)
    harness.executor.carry_out([KillValidation("t00001", 0, 1, "it took longer than 1 s")])
    ended = harness.end_of_validation()
    assert ended.outcome is Outcome.KILLED
    assert ended.failure.message == "it took longer than 1 s"
    pids = [int((tmp_path / name).read_text()) for name in ("child", "parent")]
    assert still_alive(pids) == []


def test_a_validation_is_lost_with_the_process_that_started_it(start, tmp_path):
    def validate(checkpoint):
        write(tmp_path / "pid", os.getppid())
        wait_until((tmp_path / "again").exists)
        return {"a": 1}

    harness = start(validate)
    harness.start_validation()
    while not (tmp_path / "pid").exists():
        harness.executor.wait(0.01)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert harness.end_of_validation().outcome is Outcome.LOST
    (tmp_path / "again").touch()
    assert harness.validate(num_try=2).metrics == {"a": 1}


def test_no_validation_outlives_the_driver(tmp_path, still_alive):
    def validate(checkpoint):
        write(tmp_path / "pid", os.getpid())
        signal.pause()

    driver = os.fork()
    if driver == 0:
        from tests.execution.local.conftest import Harness

        harness = Harness(tmp_path, nothing, validator=validate)
        harness.start_validation()
        harness.end_of_validation()
        os._exit(0)
    wait_until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(pid)
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    assert still_alive([pid]) == []


class BreaksOnLoading:
    """Pickles, but does not unpickle."""

    def __reduce__(self):
        return int, ("not a number",)

    def __call__(self, checkpoint):
        return {}


def test_a_function_that_cannot_be_loaded_fails_validations_and_no_trial(start):
    harness = start(BreaksOnLoading())
    assert harness.run().outcome is Outcome.COMPLETED
    ended = harness.validate()
    assert ended.outcome is Outcome.FAILED
    assert "not a number" in ended.failure.message


def reporting(task, trial_dir, *, index=0):
    """Return a training function that reports a checkpoint with a validation."""

    def train(config):
        from tuner.execution.attempt import current_attempt
        from tuner.wire.declared import encode

        attempt = current_attempt()
        trial_dir.mkdir(exist_ok=True)
        request = pack_validation(task, trial_dir, index, NOT_DECLARED, {"config": config})
        message = {"kind": "result", "metrics": {"training_iteration": 1}, "checkpoint": None}
        attempt._channel.send(message | {"validation": encode(request)})
        attempt._has_unread_answer = True
        attempt._read_answer()

    return train


def reported(harness):
    harness.run()
    (request,) = [
        event.validation for event in harness.events["t00001"] if hasattr(event, "validation")
    ]
    return request


def test_a_function_given_to_a_report_runs_in_its_session_only(start_executor, tmp_path):
    factor = 3
    task = ValidationTask(lambda checkpoint, scale: {"a": factor * scale}, {"scale": 2})
    train = reporting(task, tmp_path / "t00001")
    harness = start_executor(train)
    request = reported(harness)
    payload = tmp_path / "t00001" / request.payload
    assert harness.validate(0, request).metrics == {"a": 6}
    assert not payload.exists()  # deleted with the end of its validation

    # A file that lies there is not trusted by another session.
    again = start_executor(train)
    reported_again = reported(harness := start_executor(train))
    assert (tmp_path / "t00001" / reported_again.payload).exists()
    ended = again.validate(0, reported_again)
    assert "pass validation_config=" in ended.failure.message
    harness.executor.shutdown(10)
    assert not (tmp_path / "t00001" / reported_again.payload).exists()


def test_a_payload_stays_for_another_try(start_executor, tmp_path):
    def validate(checkpoint):
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("the first time")
        return {"a": 1}

    harness = start_executor(reporting(ValidationTask(validate), tmp_path / "t00001"))
    request = reported(harness)
    assert harness.validate(0, request).outcome is Outcome.FAILED
    assert harness.validate(0, request, num_try=2).metrics == {"a": 1}


def test_a_huge_function_is_warned_about_with_its_size(start_executor, tmp_path, caplog):
    huge = os.urandom(11 * 2**20)
    task = ValidationTask(lambda checkpoint: {"size": len(huge)})
    harness = start_executor(reporting(task, tmp_path / "t00001"))
    harness.validate(0, reported(harness))
    assert "take 11 MiB when pickled" in caplog.text


def test_declared_arguments_are_bound_to_the_function(start):
    def validate(checkpoint, a, b):
        return {"a": a, "b": b}

    harness = start(functools.partial(validate, a=1, b=1))
    request = ValidationRequest(kwargs={"b": 2})
    assert harness.validate(0, request).metrics == {"a": 1, "b": 2}


def test_without_a_device_it_sees_none_of_those_that_the_experiment_was_given(start, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    harness = start(
        lambda checkpoint: {"devices": os.environ["CUDA_VISIBLE_DEVICES"]}, capacity={"gpu": 2}
    )
    assert harness.validate().metrics == {"devices": ""}
    assert harness.validate(1, gpu_ids=(1,)).metrics == {"devices": "1"}
