"""What the executor makes of what a process service says, without processes."""

import json

import pytest

from tests.execution.executor_conversation import (
    CRASHED,
    DONE,
    FAILED,
    SHORTAGE,
    STARTED,
    STAYS,
    UNFIT,
    result,
)
from tests.execution.fake_processes import ENDED
from tuner.core.commands import (
    GrantLease,
    KillValidation,
    ListCheckpoints,
)
from tuner.core.events import (
    CheckpointsRequested,
    LeaseOwner,
    LeaseRequested,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply
from tuner.execution.failures import ExitInfo, as_message
from tuner.execution.process_service import HungUp, Unstarted, Violated
from tuner.execution.validation_payloads import Payloads

# Attempts of one process.


def test_messages_are_events_in_order_and_the_exit_follows_the_end_of_the_process(talk):
    key = talk.start()
    talk.processes.send_from(key, STARTED, result())
    started, reported = talk.events()
    assert (started, type(reported)) == (WorkerStarted("t00001", 1, 4711), ResultReported)
    talk.answer()
    assert talk.processes.sent[key] == [{"verdict": "continue", "save": False}]
    talk.processes.send_from(key, DONE)
    assert talk.events() == []
    assert talk.processes.take_asked() == [("expect_exit", key)]
    talk.processes.end(key)
    assert talk.exit() == WorkerExited("t00001", 1, Outcome.COMPLETED)


def test_the_exit_message_counts_whatever_the_exit_code(talk):
    key = talk.start()
    talk.processes.send_from(key, DONE)
    talk.processes.end(key, CRASHED)
    assert talk.exit().outcome is Outcome.COMPLETED


def test_a_process_that_vanishes_fails_with_its_exit_code_and_last_words(talk):
    key = talk.start()
    talk.processes.say(HungUp(key))
    assert talk.events() == []  # it may live on
    talk.processes.end(key, ExitInfo(3), "last words\n")
    failure = talk.exit().failure
    assert (failure.kind, failure.traceback) == ("exited with code 3", "last words\n")


def test_a_process_whose_end_nobody_observed_is_lost(talk):
    talk.processes.end(talk.start(), None)
    assert talk.exit().outcome is Outcome.LOST


@pytest.mark.parametrize("messages", [[result(), result(2)], [3], [{"kind": "secret"}]])
def test_a_violation_of_the_protocol_has_the_process_killed_and_is_the_failure(talk, messages):
    key = talk.start()
    talk.processes.send_from(key, *messages)
    talk.processes.send_from(key, DONE)  # nothing that comes after it counts
    assert talk.events() == []
    assert talk.processes.take_asked() == [("kill", key, 0.0)]
    talk.processes.end(key, ExitInfo(-9))
    assert talk.exit().failure.kind == "malformed message"


def test_what_is_no_message_at_all_is_the_failure_too(talk):
    key = talk.start()
    talk.processes.say(Violated(key, "a line is too long"))
    talk.processes.end(key, ExitInfo(-9))
    assert talk.exit().failure.message.startswith("a line is too long; nothing but report")


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_kill_reaches_the_process_with_its_grace_and_is_how_the_attempt_ends(talk, grace_s):
    key = talk.start()
    talk.kill(term_grace_s=grace_s)
    assert talk.processes.take_asked() == [("kill", key, grace_s)]
    talk.processes.send_from(key, result())  # the core would drop it as well
    talk.processes.send_from(key, FAILED)
    talk.processes.end(key, ExitInfo(-9), "in train\n")
    killed = Failure("killed", "the test says so", "in train\n")
    assert talk.exit() == WorkerExited("t00001", 1, Outcome.KILLED, killed)


def test_a_kill_for_silence_says_what_to_do(talk):
    key = talk.start()
    talk.kill(is_silent=True)
    talk.processes.end(key, ExitInfo(-9))
    assert "report_timeout_s" in talk.exit().failure.message


def test_commands_for_attempts_that_are_over_are_ignored(talk):
    key = talk.start()
    talk.processes.end(key)
    talk.events()
    talk.answer()
    talk.kill()
    assert (talk.events(), talk.processes.take_asked(), talk.processes.sent) == ([], [], {key: []})


def test_an_answer_to_no_report_is_not_sent(talk):
    key = talk.start()
    talk.answer()
    talk.processes.send_from(key, result())
    talk.events()
    talk.answer()
    talk.answer(ReportReply.STOP)
    assert talk.processes.sent[key] == [{"verdict": "continue", "save": False}]


def test_the_exits_notes_are_passed_on(talk):
    key = talk.start()
    failure = as_message(Failure("ImportError", "no torch"))
    notes = {"late_imports": ["torch"], "packages": {"torch": "2.9"}, "is_unloadable": True}
    talk.processes.send_from(key, {**FAILED, **notes, "failure": failure})
    talk.events()
    assert (talk.processes.preloaded, talk.packages) == (["torch"], {"torch": "2.9"})
    [(node, why)] = talk.unloadable
    assert (node, "no torch" in why) == ("", True)


def test_a_wake_ends_the_wait_without_an_event(talk):
    talk.executor.wake()
    assert talk.events(None) == []


def test_nothing_is_done_after_a_shutdown(talk):
    talk.start()
    talk.executor.shutdown(1.0)
    talk.executor.shutdown(1.0)
    assert talk.processes.is_closed
    assert (talk.start("t00002"), talk.events(None)) == (None, [])


# Starts.


def test_what_cannot_be_pickled_fails_its_attempt_only(talk):
    talk.processes.refusals = [TypeError("cannot pickle a lock")]
    assert talk.start() is None
    failure = talk.exit().failure
    assert (failure.kind, failure.message) == (
        "TypeError",
        "the worker could not be started: cannot pickle a lock",
    )
    assert talk.start("t00002")


@pytest.mark.usefixtures("at_once")
def test_a_start_that_lacks_something_is_retried_and_can_be_killed_meanwhile(talk, caplog):
    talk.processes.refusals = [SHORTAGE, SHORTAGE]
    assert (talk.start(), talk.start("t00002")) == (None, None)
    talk.kill()
    assert talk.exit().outcome is Outcome.KILLED
    assert talk.events() == []
    assert [each.trial_id for each in talk.processes.assigned.values()] == ["t00002"]
    assert "trial t00001 cannot be started now: [Errno 24] too many open files" in caplog.text


@pytest.mark.usefixtures("at_once")
def test_a_start_that_fails_elsewhere_is_retried_unless_that_would_not_help(talk):
    failure = Failure("OSError", "the node lacks descriptors")
    first = talk.start()
    talk.processes.say(Unstarted(first, failure))
    assert talk.events() == []
    talk.events()
    (_, second) = talk.processes.keys
    talk.processes.say(Unstarted(second, failure, is_shortage=False))
    assert talk.exit() == WorkerExited("t00001", 1, Outcome.FAILED, failure)


def test_a_killed_start_that_fails_elsewhere_is_a_kill(talk):
    key = talk.start()
    talk.kill()
    talk.processes.say(Unstarted(key, Failure("OSError", "why")))
    assert talk.exit().outcome is Outcome.KILLED


# Processes that are used again.


def staying(talk):
    """Return the process of an attempt that has ended and stays for the next one."""
    key = talk.start()
    talk.processes.send_from(key, STARTED, result())
    talk.events()
    talk.answer(ReportReply.EXPLOIT, stay=True)
    assert talk.processes.sent[key] == [{"verdict": "exploit", "save": False, "stay": True}]
    talk.processes.send_from(key, STAYS)
    assert talk.exit() == WorkerExited("t00001", 1, Outcome.STOPPED)
    return key


def test_a_process_that_stays_is_given_the_next_attempt(talk):
    key = staying(talk)
    assert talk.start(attempt=2) is None
    assert talk.processes.take_asked() == [("reassign", key)]
    talk.processes.send_from(key, STARTED, result(2))
    assert [event.attempt for event in talk.events()] == [2, 2]
    talk.processes.end(key, CRASHED)
    assert talk.exit().attempt == 2


@pytest.mark.parametrize("other", ["trial", "resources", "nothing"])
def test_a_process_that_is_not_needed_at_once_is_dismissed(talk, other):
    key = staying(talk)
    if other == "nothing":
        talk.executor.carry_out([])
    else:
        talk.start("t00002") if other == "trial" else talk.start(attempt=2, cpus=2.0)
        assert len(talk.processes.keys) == 2
    assert talk.processes.take_asked() == [("kill", key, 0.0)]
    talk.processes.end(key, ExitInfo(-9))
    assert talk.events() == []


def test_a_process_that_dies_while_it_waits_is_replaced_when_needed(talk):
    key = staying(talk)
    talk.processes.end(key, CRASHED)
    assert talk.events() == []
    assert talk.start(attempt=2) not in (None, key)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_process_that_is_unfit_for_the_next_attempt_is_replaced(talk, is_gone):
    key = staying(talk)
    talk.start(attempt=2)
    talk.processes.send_from(key, UNFIT)
    if is_gone:
        talk.processes.end(key)
    assert talk.events() == []
    other = talk.processes.keys[-1]
    assert other != key
    talk.processes.send_from(other, STARTED)
    assert talk.events() == [WorkerStarted("t00001", 2, 4711)]


def test_an_unfit_process_is_not_replaced_for_an_attempt_that_is_killed(talk):
    key = staying(talk)
    talk.start(attempt=2)
    talk.kill(attempt=2)
    talk.processes.send_from(key, UNFIT)
    talk.processes.end(key)
    assert talk.exit().outcome is Outcome.KILLED
    assert talk.processes.keys == []


# Requests of processes.


def test_requests_are_answered_to_the_process_that_asked(talk):
    one, other = talk.start(), talk.start("t00002")
    request = {"kind": "checkpoints", "token": "7", "waits": True, "stored": False}
    talk.processes.send_from(other, request)
    assert talk.events() == [CheckpointsRequested("t00002", 1, "7", True, False)]
    listed = (CheckpointRecord(0, 1), {"loss": 0.5}, "committed")
    answer = ListCheckpoints("t00002", 1, "7", (listed,))
    talk.executor.carry_out([answer, answer])
    assert talk.processes.sent[one] == []
    ((sent),) = talk.processes.sent[other]
    assert (sent["checkpoints"], sent["list"][0][1:]) == ("7", [{"loss": 0.5}, "committed"])


def test_a_lease_is_granted_to_whoever_asked_and_not_to_one_that_is_gone(talk):
    group = {"min_workers": 1, "num_workers": 2, "max_workers": 2, "strategy": "PACK"}
    asked = {"kind": "lease", "group": {**group, "resources_per_worker": {"cpu": 1.0}}}
    worker, validator = talk.start(), talk.validate(3)
    talk.processes.send_from(worker, {**asked, "token": "1"})
    talk.processes.send_from(validator, {**asked, "token": "2"})
    first, second = talk.events()
    assert isinstance(first, LeaseRequested)
    assert (first.owner, second.owner) == (LeaseOwner("t00001", 1), LeaseOwner("t00001", 1, 3))
    talk.processes.end(worker)
    talk.executor.carry_out([GrantLease(each.owner, each.token, 2, ()) for each in (first, second)])
    assert talk.processes.sent[worker] == []
    assert talk.processes.sent[validator] == [{"lease": "2", "num_workers": 2, "devices": []}]


# Validations.


def test_a_validation_ends_when_its_process_is_gone(talk):
    key = talk.validate(2)
    talk.processes.send_from(key, {"kind": "validated", "metrics": {"a": 1}})
    assert talk.events() == []
    assert talk.processes.take_asked() == [("expect_exit", key)]
    talk.processes.end(key)
    assert talk.events() == [ValidationEnded("t00001", 2, 1, Outcome.COMPLETED, {"a": 1})]


@pytest.mark.parametrize(
    ("exit_info", "outcome"), [(CRASHED, Outcome.FAILED), (None, Outcome.LOST)]
)
def test_a_validation_whose_process_vanishes_has_failed_or_is_lost(talk, exit_info, outcome):
    talk.processes.end(talk.validate(), exit_info, "last words")
    (ended,) = talk.events()
    assert ended.outcome is outcome


def test_a_killed_validation_is_killed_whatever_it_says(talk):
    key = talk.validate()
    talk.executor.carry_out([KillValidation("t00001", 0, 1, "too long")] * 2)
    talk.processes.send_from(key, {"kind": "validated", "metrics": {}})
    talk.processes.end(key)
    (ended,) = talk.events()
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "too long")
    talk.executor.carry_out([KillValidation("t00001", 0, 1, "late")])
    assert talk.events() == []


@pytest.mark.parametrize("messages", [[{"kind": "validated", "metrics": 3}], [STARTED]])
def test_a_malformed_message_fails_the_validation(talk, messages):
    key = talk.validate()
    talk.processes.send_from(key, *messages)
    talk.events()
    assert talk.processes.take_asked() == [("kill", key, 0.0)]
    talk.processes.end(key, ExitInfo(-9))
    (ended,) = talk.events()
    assert ended.failure.kind == "malformed message"


@pytest.mark.usefixtures("at_once")
def test_a_validation_that_cannot_be_started_now_is_started_later_or_fails(talk):
    talk.processes.refusals = [SHORTAGE, TypeError("cannot pickle a lock")]
    assert talk.validate() is None
    (ended,) = talk.events()
    assert (ended.outcome, ended.failure.message) == (
        Outcome.FAILED,
        "the validation could not be started: cannot pickle a lock",
    )
    talk.processes.refusals = [SHORTAGE]
    talk.validate(num_try=2)
    talk.executor.carry_out([KillValidation("t00001", 0, 2, "too long")])
    (ended,) = talk.events()
    assert ended.outcome is Outcome.KILLED


PAYLOAD = "validation_000000-1-" + "0" * 40 + ".pkl"


@pytest.mark.parametrize(
    ("message", "is_last_try", "is_kept"),
    [
        ({"kind": "validated", "metrics": {}}, False, False),
        ({"kind": "failed", "failure": as_message(Failure("KeyError", "x"))}, False, True),
        ({"kind": "failed", "failure": as_message(Failure("KeyError", "x"))}, True, False),
        (None, False, True),
    ],
)
def test_a_payload_is_deleted_when_its_validation_is_not_tried_again(
    talk, monkeypatch, message, is_last_try, is_kept
):
    deleted = []
    monkeypatch.setattr(Payloads, "has", lambda payloads, assignment: True)
    monkeypatch.setattr(Payloads, "delete", lambda payloads, assignment: deleted.append(1))
    key = talk.validate(is_last_try=is_last_try)
    assert talk.processes.assigned[key].has_payload
    if message:
        talk.processes.send_from(key, message)
    talk.processes.end(key, ENDED if message else None)
    talk.events()
    assert deleted == [] if is_kept else [1]


def test_json_can_carry_what_is_sent(talk):
    key = talk.start()
    talk.processes.send_from(key, result())
    talk.events()
    talk.answer(ReportReply.PAUSE, save=True)
    assert json.loads(json.dumps(talk.processes.sent[key])) == [{"verdict": "pause", "save": True}]
