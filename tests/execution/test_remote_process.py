"""The end of a worker is reported once, from the most reliable source."""

import json

import pytest

from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.worker_records import Failure, ReportReply
from tuner.execution.failures import ExitInfo
from tuner.execution.remote_process import ExitNotes, RemoteWorker, answer_line

STARTED = {"kind": "started", "pid": 4711}
RESULT = {"kind": "result", "metrics": {"training_iteration": 1, "loss": 0.5}, "checkpoint": None}
COMPLETED = {"kind": "exited", "outcome": "completed", "failure": None}


class Conversation:
    def __init__(self):
        self.worker = RemoteWorker(1, StartWorker("t00001", 2, {}, {}, (), None, 0))

    def receive(self, *messages):
        return self.worker.read(messages)

    def exited(self, code=0):
        event = self.worker.exit_event(None if code is None else ExitInfo(code))
        assert (event.trial_id, event.attempt) == ("t00001", 2)
        return event


@pytest.fixture
def talk():
    return Conversation()


def test_messages_become_events_of_the_attempt(talk):
    assert talk.receive(STARTED, RESULT) == [
        WorkerStarted("t00001", 2, 4711),
        ResultReported("t00001", 2, {"training_iteration": 1, "loss": 0.5}),
    ]


def test_the_exit_message_is_held_back_until_the_process_is_gone(talk):
    assert talk.receive(STARTED, COMPLETED) == [WorkerStarted("t00001", 2, 4711)]
    assert talk.exited() == WorkerExited("t00001", 2, Outcome.COMPLETED)


@pytest.mark.parametrize("code", [0, 1, -9, None])
def test_the_exit_message_counts_whatever_the_exit_code(talk, code):
    talk.receive(COMPLETED)
    talk.worker.mark_killed("too late")
    assert talk.exited(code).outcome is Outcome.COMPLETED


def test_an_exit_message_after_the_kill_is_ignored(talk):
    talk.worker.mark_killed("first reason")
    talk.worker.mark_killed("second reason")
    assert talk.receive(COMPLETED) == []
    assert talk.exited(-9) == WorkerExited(
        "t00001", 2, Outcome.KILLED, Failure("killed", "first reason")
    )


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([RESULT, RESULT], "before the last one was answered"),
        ([COMPLETED, RESULT], "after the last one"),
        ([{"kind": "joke"}], "kind must be one of"),
    ],
)
def test_a_violation_of_the_protocol_is_the_trials_failure(talk, messages, complaint):
    with pytest.raises(ValueError, match=complaint):
        talk.receive(*messages)
    assert talk.worker.has_violated
    ended = talk.exited(-9)
    if ended.outcome is not Outcome.COMPLETED:
        assert ended.outcome is Outcome.FAILED
        assert complaint in ended.failure.message


def test_an_answered_worker_may_report_again(talk):
    talk.receive(RESULT)
    talk.worker.is_waiting = False
    assert len(talk.receive(RESULT)) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (3, "exited with code 3"),
        (0, "exited with code 0"),
        (-11, "killed by SIGSEGV"),
        (-64, "killed by SIGRTMAX"),
        (-40, "killed by signal 40"),
    ],
)
def test_an_exit_without_a_message_is_diagnosed_from_the_exit_code(talk, code, kind):
    ended = talk.exited(code)
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == kind


@pytest.mark.parametrize(
    ("is_oom", "hint"),
    [
        (True, "the kernel ended the process because memory ran out"),
        (False, "the kernel reports no lack of memory"),
        (None, "the kernel sends it when memory runs out"),
    ],
)
def test_a_kill_by_another_sender_is_explained_by_what_the_kernel_reports(talk, is_oom, hint):
    failure = talk.worker.exit_event(ExitInfo(-9, peak_bytes=3 << 30, is_oom=is_oom)).failure
    assert hint in failure.message
    assert failure.message.endswith("; its peak memory was 3,072 MiB")


def test_the_failure_of_a_killed_worker_quotes_its_stack(talk):
    talk.worker.stderr = "Stack (most recent call first):\n  in train\n"
    talk.worker.mark_killed("it hangs")
    assert talk.exited(-9).failure == Failure(
        "killed", "it hangs", "Stack (most recent call first):\n  in train\n"
    )


def test_the_end_of_stderr_is_quoted(talk):
    talk.worker.stderr = "".join(f"line {number}\n" for number in range(60))
    assert talk.exited(1).failure.traceback.splitlines() == [
        f"line {number}" for number in range(40, 60)
    ]


def test_a_worker_that_dies_with_the_zygote_is_lost(talk):
    assert talk.exited(None).outcome is Outcome.LOST


def test_answers_are_lines_of_json():
    answer = AnswerReport("t00001", 2, ReportReply.CONTINUE, save=True)
    assert json.loads(answer_line(answer)) == {"verdict": "continue", "save": True}
    stay = AnswerReport("t00001", 2, ReportReply.EXPLOIT, stay=True)
    assert json.loads(answer_line(stay)) == {"verdict": "exploit", "save": False, "stay": True}


def test_what_a_last_message_says_besides_is_taken_without_what_is_malformed():
    assert ExitNotes.of(RESULT) is None
    assert ExitNotes.of("exited") is None
    assert ExitNotes.of(COMPLETED) == ExitNotes([], {}, "")
    message = {
        **COMPLETED,
        "late_imports": ["torch", 3],
        "packages": {"torch": "2" * 200, "numpy": 1} | {f"p{n}": "1" for n in range(2000)},
        "is_unloadable": True,
    }
    notes = ExitNotes.of(message)
    assert (notes.late_imports, notes.packages["torch"]) == (["torch"], "2" * 100)
    assert (len(notes.packages), notes.unloadable) == (999, "")
    failure = {"kind": "ImportError", "message": "no torch", "traceback": ""}
    assert "no torch" in ExitNotes.of({**message, "failure": failure}).unloadable
