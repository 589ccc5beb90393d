"""Attempts of class trainables; for those of functions see test_session."""

import errno
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.execution.conversation import (
    CONTINUE,
    PAUSE_AND_SAVE,
    SAVE,
    STOP,
    STOP_AND_SAVE,
    Script,
    assignment,
    converse,
)
from tuner.execution import session
from tuner.execution.class_trainable import Trainable
from tuner.execution.session import get_context, report, run_attempt
from tuner.storage.manifest import verify


class Counter(Trainable):
    """Counts up to `until`; `calls` remembers what was called."""

    calls = []  # noqa: RUF012  (shared on purpose: the engine makes the instance)

    def setup(self, config):
        type(self).calls = ["setup"]
        self.value = 0
        self.until = config.get("until", 1000)

    def step(self):
        self.calls.append("step")
        self.value += 1
        return {"value": self.value, "done": self.value == self.until}

    def save_checkpoint(self, checkpoint_dir):
        self.calls.append("save")
        return {"value": self.value}

    def load_checkpoint(self, checkpoint):
        self.calls.append("load")
        self.value = checkpoint["value"]

    def cleanup(self):
        self.calls.append("cleanup")


class FileCounter(Counter):
    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "value").write_text(str(self.value), encoding="utf-8")

    def load_checkpoint(self, checkpoint):
        assert isinstance(checkpoint, str)
        self.value = int(Path(checkpoint, "value").read_text(encoding="utf-8"))


def checkpoints(script):
    return [message["checkpoint"] for message in script.said if message["kind"] == "saved"]


def test_each_step_is_a_result_until_the_answer_is_to_stop(tmp_path):
    script = converse(Counter, tmp_path, CONTINUE, CONTINUE, STOP)
    assert [result["value"] for result in script.results] == [1, 2, 3]
    assert [result["training_iteration"] for result in script.results] == [1, 2, 3]
    assert all(result["checkpoint_dir_name"] is None for result in script.results)
    assert script.outcome == "stopped"
    assert Counter.calls == ["setup", "step", "step", "step", "cleanup"]


def test_done_ends_the_attempt_even_if_the_answer_is_to_continue(tmp_path):
    script = converse(Counter, tmp_path, config={"until": 2})
    assert [result["done"] for result in script.results] == [False, True]
    assert script.outcome == "completed"
    assert Counter.calls[-1] == "cleanup"


@pytest.mark.parametrize("trainable", [Counter, FileCounter])
def test_requested_saves_are_committed_before_training_continues(tmp_path, trainable):
    script = converse(trainable, tmp_path, SAVE, CONTINUE, PAUSE_AND_SAVE, next_checkpoint=2)
    assert script.kinds == [
        "started",
        "result",
        "saving",
        "saved",
        "result",
        "result",
        "saving",
        "saved",
        "exited",
    ]
    assert [(record["index"], record["iteration"]) for record in checkpoints(script)] == [
        (2, 1),
        (3, 3),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_000002",
        "checkpoint_000003",
    ]
    verify(tmp_path / "checkpoint_000003")


@pytest.mark.parametrize("trainable", [Counter, FileCounter])
def test_a_later_attempt_continues_from_the_checkpoint_in_any_directory(tmp_path, trainable):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (record,) = checkpoints(converse(trainable, first, CONTINUE, CONTINUE, STOP_AND_SAVE))
    shutil.move(first, second)
    continued = {
        "checkpoint_dir": str(second / "checkpoint_000000"),
        "iteration": record["iteration"],
        "next_checkpoint": 1,
    }
    script = converse(trainable, second, STOP, time_total_s=record["time_total_s"], **continued)
    assert [
        (result["value"], result["training_iteration"], result["iterations_since_restore"])
        for result in script.results
    ] == [(4, 4, 1)]


def test_setup_comes_before_load_and_save_before_cleanup(tmp_path):
    converse(Counter, tmp_path, STOP_AND_SAVE)
    converse(Counter, tmp_path, STOP_AND_SAVE, checkpoint_dir=str(tmp_path / "checkpoint_000000"))
    assert Counter.calls == ["setup", "load", "step", "save", "cleanup"]


class DiskFull(Counter):
    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "half").touch()
        raise OSError(errno.ENOSPC, "no space left on device")


class FullInDisguise(Counter):
    def save_checkpoint(self, checkpoint_dir):
        try:
            DiskFull.save_checkpoint(self, checkpoint_dir)
        except OSError as error:
            raise RuntimeError("the writer failed") from error


@pytest.mark.parametrize("trainable", [DiskFull, FullInDisguise])
def test_a_checkpoint_without_space_is_reported_and_training_continues(tmp_path, trainable):
    script = converse(trainable, tmp_path, SAVE, STOP_AND_SAVE)
    assert script.kinds == ["started", "result", "save_failed", "result", "save_failed", "exited"]
    assert script.outcome == "stopped"
    assert list(tmp_path.iterdir()) == []


def test_any_error_of_a_library_on_a_full_disk_counts_as_a_full_disk(tmp_path, monkeypatch):
    class Unsaved(Counter):
        def save_checkpoint(self, checkpoint_dir):
            raise RuntimeError("unexpected pos 64 vs 0")

    monkeypatch.setattr("shutil.disk_usage", lambda directory: SimpleNamespace(free=0))
    assert converse(Unsaved, tmp_path, SAVE, STOP).kinds == [
        "started",
        "result",
        "save_failed",
        "result",
        "exited",
    ]


def test_a_pause_without_space_for_the_first_checkpoint_fails_with_that_cause(tmp_path):
    script = converse(DiskFull, tmp_path, PAUSE_AND_SAVE)
    assert (script.kinds[-1], script.outcome, script.said[-1]["failure"]["kind"]) == (
        "exited",
        "unsaved",
        "OSError",
    )
    donor = tmp_path / "checkpoint_000000"
    converse(Counter, tmp_path, STOP_AND_SAVE)
    script = converse(
        DiskFull, tmp_path, PAUSE_AND_SAVE, checkpoint_dir=str(donor), next_checkpoint=1
    )
    assert (script.kinds[-2], script.outcome) == ("save_failed", "stopped")


@pytest.mark.parametrize("answer", [SAVE, PAUSE_AND_SAVE, STOP_AND_SAVE])
def test_training_code_that_cannot_save_itself_fails_with_what_it_raised(tmp_path, answer):
    class Unsaved(Counter):
        def save_checkpoint(self, checkpoint_dir):
            Path(checkpoint_dir, "half").touch()
            raise KeyError("optimizer")

    script = converse(Unsaved, tmp_path, answer)
    assert script.kinds == ["started", "result", "exited"]
    assert script.outcome == "unsaved"
    failure = script.said[-1]["failure"]
    assert (failure["kind"], failure["message"]) == ("KeyError", "'optimizer'")
    assert 'raise KeyError("optimizer")' in failure["traceback"]
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_returns_another_path_from_save_checkpoint_fails(tmp_path):
    class Elsewhere(Counter):
        def save_checkpoint(self, checkpoint_dir):
            return "/elsewhere"

    script = converse(Elsewhere, tmp_path, SAVE)
    assert script.outcome == "unsaved"
    assert script.said[-1]["failure"]["kind"] == "ValueError"
    assert (
        "save_checkpoint must return None, a dictionary or the directory it was given"
        in script.said[-1]["failure"]["message"]
    )


def test_a_failed_save_leaves_its_index_to_the_next(tmp_path):
    class SavesLater(Counter):
        def save_checkpoint(self, checkpoint_dir):
            if self.value < 2:
                raise OSError(errno.ENOSPC, "no space left on device")

    script = converse(SavesLater, tmp_path, SAVE, STOP_AND_SAVE)
    assert "no space left" in script.said[2]["failure"]["message"]
    assert [record["index"] for record in checkpoints(script)] == [0]


def test_a_trial_directory_that_is_gone_is_a_failure_of_the_attempt(tmp_path):
    script = converse(Counter, tmp_path / "missing", SAVE, STOP)
    assert script.said[-1]["failure"]["kind"] == "CheckpointError"
    assert script.outcome == "unsaved"


@pytest.mark.parametrize("hook", ["setup", "step", "load_checkpoint", "log_result"])
def test_a_hook_that_raises_fails_the_attempt_without_clean_up(tmp_path, hook):
    converse(Counter, tmp_path, STOP_AND_SAVE)
    calls = []

    def broken(self, *arguments):
        raise ValueError(hook)

    class Broken(Counter):
        def cleanup(self):
            calls.append("cleanup")

    setattr(Broken, hook, broken)
    exit_ = converse(Broken, tmp_path, checkpoint_dir=str(tmp_path / "checkpoint_000000")).exit
    assert (exit_["outcome"], exit_["failure"]["message"], calls) == ("failed", hook, [])


def test_a_clean_up_that_raises_is_a_failure(tmp_path):
    class Broken(Counter):
        def cleanup(self):
            raise ValueError("still open")

    assert converse(Broken, tmp_path, STOP).exit["failure"]["message"] == "still open"


def test_should_checkpoint_reaches_the_driver(tmp_path):
    class Preempted(Counter):
        def step(self):
            return super().step() | {"should_checkpoint": self.value == 3}

    results = converse(Preempted, tmp_path, config={"until": 4}).results
    assert [result["should_checkpoint"] for result in results] == [False, False, True, False]


def test_class_trainables_do_not_call_report(tmp_path):
    class Reporting(Counter):
        def step(self):
            report({})

    failure = converse(Reporting, tmp_path).exit["failure"]
    assert failure["kind"] == "RuntimeError"
    assert "return the metrics from step" in failure["message"]


def test_class_trainables_have_a_context(tmp_path):
    class Curious(Counter):
        def step(self):
            return {"name": get_context().get_trial_name(), "same": self.trial_name, "done": True}

    (result,) = converse(Curious, tmp_path).results
    assert result["name"] == result["same"] == "Curious_t00000"


@pytest.mark.parametrize(("took_s", "num_logged"), [(10.5, 1), (9.5, 0)])
def test_a_slow_setup_is_logged(tmp_path, monkeypatch, caplog, took_s, num_logged):
    now = [0.0]
    monkeypatch.setattr(session.time, "monotonic", lambda: now[0])

    class Slow(Counter):
        def setup(self, config):
            super().setup(config)
            now[0] += took_s

    with caplog.at_level(logging.INFO, "tuner"):
        converse(Slow, tmp_path, STOP)
    assert len(caplog.messages) == num_logged
    assert all(f"took {took_s} s" in message for message in caplog.messages)


def test_a_channel_that_breaks_is_not_hidden(tmp_path):
    class Broken(Script):
        def send(self, message):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_attempt(Counter, assignment(tmp_path), Broken())
