"""A group of workers is one attempt, whatever its ranks do."""

import logging

import pytest

from tests.execution.executor_conversation import (
    CRASHED,
    DONE,
    FAILED,
    SHORTAGE,
    STARTED,
    Conversation,
    result,
)
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.worker_records import ReportReply
from tuner.execution.failures import ExitInfo
from tuner.execution.process_service import HungUp, StackDumped, Violated
from tuner.groups import group
from tuner.groups.group import Patience

KILLED = ExitInfo(-9)


def test_a_group_of_one_is_a_single_process_with_a_rank(talk):
    key = talk.start(num_workers=1)
    assert talk.processes.assigned[key].rank.world_size == 1
    talk.processes.send_from(key, STARTED, result())
    assert [type(event) for event in talk.events()] == [WorkerStarted, ResultReported]


def test_a_group_is_one_attempt(talk):
    keys = talk.start(num_workers=3)
    ranks = [talk.processes.assigned[key].rank for key in keys]
    assert [rank.world_rank for rank in ranks] == [0, 1, 2]
    assert len({rank.master_port for rank in ranks}) == 1
    for key in keys:
        assert talk.events() == []
        talk.processes.send_from(key, STARTED)
    assert talk.events() == [WorkerStarted("t00001", 1, 4711)]
    for key in keys:
        assert talk.events() == []
        talk.processes.send_from(key, result(part=None))
    (reported,) = talk.events()
    assert len(reported.rank_metrics) == 3
    talk.answer()
    assert [talk.processes.sent[key][0]["verdict"] for key in keys] == ["continue"] * 3
    for key in keys:
        talk.processes.send_from(key, DONE)
    assert talk.events() == []
    assert [talk.processes.sent[key][1] for key in keys] == [{"leave": True}] * 3
    for key in keys:
        assert talk.events() == []
        talk.processes.end(key)
    assert talk.exit() == WorkerExited("t00001", 1, Outcome.COMPLETED)


def test_a_rank_that_dies_ends_the_others_and_is_to_blame(talk):
    zero, one, two = talk.start(num_workers=3)
    talk.processes.say(HungUp(one))
    talk.processes.end(one, CRASHED, "last words\n")
    assert talk.events() == []
    assert talk.processes.take_asked() == [("kill", zero, 0.0), ("kill", two, 0.0)]
    for key in (zero, two):
        talk.processes.end(key, ExitInfo(-9))
    ended = talk.exit()
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "killed by SIGSEGV")
    assert ended.failure.message.startswith("rank 1: ")


def test_a_killed_group_quotes_what_each_rank_wrote_last(talk):
    keys = talk.start(num_workers=2)
    talk.kill(term_grace_s=2.0)
    assert talk.processes.take_asked() == [("kill", key, 2.0) for key in keys]
    for rank, key in enumerate(keys):
        talk.processes.end(key, ExitInfo(-9), f"stack of {rank}\n")
    failure = talk.exit().failure
    assert (failure.kind, failure.message) == ("killed", "the test says so")
    assert failure.traceback == "rank 0:\nstack of 0\n\nrank 1:\nstack of 1\n"


@pytest.mark.usefixtures("at_once")
def test_where_a_rank_lacks_something_all_are_started_again(talk):
    talk.processes.refusals = [None, SHORTAGE]
    zero = talk.start(num_workers=3)
    (zero,) = talk.processes.keys
    assert talk.processes.take_asked() == [("kill", zero, 0.0)]
    talk.processes.end(zero, ExitInfo(-9))
    assert talk.events() == []
    assert talk.events() == []
    assert [each.rank.world_rank for each in talk.processes.assigned.values()] == [0, 1, 2]


def test_where_a_rank_cannot_be_started_at_all_the_attempt_fails(talk):
    talk.processes.refusals = [None, TypeError("cannot pickle a lock")]
    (zero,) = talk.start(num_workers=3)
    talk.processes.end(zero, ExitInfo(-9))
    ended = talk.exit()
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.message == (
        "rank 1: the worker could not be started: cannot pickle a lock"
    )


def test_where_no_rank_can_be_started_nothing_is_there_to_kill(talk):
    talk.processes.refusals = [TypeError("cannot pickle a lock")]
    talk.start(num_workers=2)
    assert talk.exit().failure.kind == "TypeError"
    assert (talk.processes.keys, talk.processes.asked) == ([], [])


def report_all(talk, keys, number=1, **fields):
    """Have all ranks report, and return the result."""
    for rank, key in enumerate(keys):
        message = result(number, part=None, **fields)
        metrics = {**message["metrics"], "rank": rank}
        talk.processes.send_from(key, {**message, "metrics": metrics})
    (reported,) = talk.events()
    return reported


def end_all(talk, exit_info=KILLED):
    for key in talk.processes.keys:
        talk.processes.end(key, exit_info)


def test_stored_metrics_are_those_of_rank_0_and_all_ranks_metrics_come_with_them(talk):
    reported = report_all(talk, talk.start(num_workers=3))
    assert reported.metrics["rank"] == 0
    assert [metrics["rank"] for metrics in reported.rank_metrics] == [0, 1, 2]


@pytest.mark.parametrize("reply", [ReportReply.STOP, ReportReply.PAUSE])
def test_all_ranks_get_the_same_answer(talk, reply):
    keys = talk.start(num_workers=2)
    report_all(talk, keys)
    talk.answer(reply)
    assert [talk.processes.sent[key][0]["verdict"] for key in keys] == [reply.value] * 2


@pytest.mark.parametrize("waits", [False, True])
def test_a_rank_that_returns_while_another_reports_is_an_error_at_once(talk, waits):
    zero, one = talk.start(num_workers=2)
    for number in (1, 2, 3):
        report_all(talk, (zero, one), number)
        talk.answer()
    fourth = {**result(4), "part": None}
    messages = [(zero, fourth), (one, DONE)]
    for key, message in messages if waits else reversed(messages):
        talk.processes.send_from(key, message)
    assert talk.events() == []
    assert [key for _, key, _ in talk.processes.take_asked()] == [zero, one]
    end_all(talk)
    failure = talk.exit().failure
    assert failure.kind == "UnequalReports"
    assert failure.message == (
        "rank 1 returned after 3 reports; rank 0 waits in report 4; "
        "all ranks must call report equally often"
    )
    assert [blamed for blamed, _ in failure.ranks] == [1]


@pytest.fixture
def without_collateral(monkeypatch):
    """Have ranks killed at once when another one has raised."""
    monkeypatch.setattr(group, "_COLLATERAL_S", 0.0)


@pytest.mark.usefixtures("without_collateral")
def test_when_a_rank_raises_the_others_are_killed_and_it_is_named(talk):
    zero, one, two = talk.start(num_workers=3)
    talk.processes.send_from(one, FAILED)
    assert talk.events() == []
    asked = [key for name, key, *_ in talk.processes.take_asked() if name == "kill"]
    assert asked == [zero, one, two]
    end_all(talk)
    failure = talk.exit().failure
    assert (failure.kind, failure.message) == ("KeyError", "rank 1: x")
    assert [failed for failed, _ in failure.ranks] == [1]


@pytest.mark.usefixtures("without_collateral")
def test_a_rank_that_was_killed_is_named_before_those_whose_connections_broke(talk):
    zero, one = talk.start(num_workers=2)
    talk.processes.say(HungUp(one))
    talk.processes.send_from(zero, FAILED)
    assert talk.events() == []  # whether rank 1 is dead is not known yet
    talk.processes.end(one, ExitInfo(-9, peak_bytes=2**20))
    talk.processes.end(zero, ExitInfo(0, peak_bytes=2**21))
    failure = talk.exit().failure
    assert failure.kind == "killed by SIGKILL"
    assert failure.message.startswith("rank 1: ")
    assert failure.message.endswith("peak memory of all: rank 0 2 MiB, rank 1 1 MiB")
    assert [failed for failed, _ in failure.ranks] == [1, 0]


def test_where_the_zygote_dies_all_is_lost(talk):
    zero, one = talk.start(num_workers=2)
    talk.processes.end(zero, None)
    talk.processes.send_from(one, FAILED)
    talk.processes.end(one, None)
    assert talk.exit().outcome is Outcome.LOST


@pytest.mark.parametrize("is_parsed", [False, True])
def test_a_rank_that_sends_nonsense_fails_the_attempt_and_is_named(talk, is_parsed):
    keys = talk.start(num_workers=2)
    if is_parsed:
        talk.processes.send_from(keys[1], {"kind": "nonsense"})
    else:
        talk.processes.say(Violated(keys[1], "it is no JSON"))
    assert talk.events() == []
    assert {key for _, key, _ in talk.processes.take_asked()} == set(keys)
    end_all(talk)
    ended = talk.exit()
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "malformed message")
    assert [blamed for blamed, _ in ended.failure.ranks] == [1]


STACK = """Stack (most recent call first):
  File "/home/user/train.py", line 7 in hang
  File "/home/user/train.py", line 3 in train
"""


def impatient(tmp_path, **variables):
    """Return a conversation about a group whose rank 0 waits for rank 1, and the keys."""
    environ = {f"RAY_TRAIN_COLLECTIVE_{name}": value for name, value in variables.items()}
    talk = Conversation(tmp_path, environ)
    keys = talk.start(num_workers=2)
    talk.processes.send_from(keys[0], {**result(), "part": None})
    return talk, keys


def test_a_late_rank_is_named_with_its_innermost_frame_and_not_stopped(tmp_path, caplog):
    talk, (_, one) = impatient(tmp_path, WARN_INTERVAL_S="1e-9")
    caplog.set_level(logging.WARNING)
    talk.events()
    talk.events()
    assert talk.processes.take_asked()[0] == ("dump_stack", one)
    talk.processes.say(StackDumped(one, STACK))
    assert talk.events() == []
    (text,) = caplog.messages
    assert text.startswith("rank 1 of trial t00001 is late: rank 0 called report 1 ")
    assert text.endswith("; it is in train.py:7 hang")
    talk.processes.send_from(one, {**result(), "part": None})
    assert len(talk.events()) == 1
    talk.processes.say(StackDumped(one, STACK))  # it is not late any more
    talk.events()
    assert len(caplog.messages) == 1


def test_a_stack_that_could_not_be_written_is_said_to_be_missing(tmp_path, caplog):
    talk, (_, one) = impatient(tmp_path)
    talk.processes.say(StackDumped(one, ""))
    talk.events()
    assert caplog.messages[0].endswith("it is in a place that it could not tell")


def test_ranks_wait_for_ever_unless_a_timeout_is_set(tmp_path):
    talk, keys = impatient(tmp_path, TIMEOUT_S="1e-9")
    talk.events()
    assert [key for _, key, _ in talk.processes.take_asked()] == keys
    end_all(talk)
    failure = talk.exit().failure
    assert failure.kind == "CollectiveTimeout"
    assert [blamed for blamed, _ in failure.ranks] == [1]
    assert failure.message.startswith(
        "rank 1 did not call report within 1e-09 s after rank 0 in report 1; "
    )


def test_a_group_killed_for_its_silence_names_the_ranks_that_were_late_and_the_remedy(talk):
    keys = talk.start(num_workers=3)
    for key in (keys[0], keys[2]):
        talk.processes.send_from(key, {**result(), "part": None})
    talk.events()
    talk.kill(is_silent=True, term_grace_s=0.5)
    for key in keys:
        talk.processes.end(key, KILLED, STACK)
    failure = talk.exit().failure
    assert failure.message.startswith(
        "rank 1 did not call report 1, in which ranks 0, 2 waited: the test says so; "
    )
    assert "report_timeout_s" in failure.message
    assert [blamed for blamed, _ in failure.ranks] == [1]
    assert "line 7 in hang" in failure.traceback


@pytest.mark.parametrize(
    ("variables", "patience"),
    [
        ({}, Patience(30.0, 60.0, None)),
        ({"WARN_INTERVAL_S": "5"}, Patience(5.0, 5.0, None)),
        ({"TIMEOUT_S": "7.5"}, Patience(30.0, 60.0, 7.5)),
        ({"TIMEOUT_S": "-1", "WARN_INTERVAL_S": "soon"}, Patience(30.0, 60.0, None)),
    ],
)
def test_variables_of_ray_train_say_how_long_ranks_wait(variables, patience):
    assert Patience.of({f"RAY_TRAIN_COLLECTIVE_{k}": v for k, v in variables.items()}) == patience


def test_several_groups_and_single_trials_run_side_by_side(talk):
    ranks = {trial_id: talk.start(trial_id, num_workers=2) for trial_id in ("t00001", "t00002")}
    ranks["t00009"] = [talk.start("t00009")]
    for keys in zip(*(ranks[name] for name in ("t00001", "t00002")), strict=True):
        for key in keys:
            talk.processes.send_from(key, {**result(), "part": None})
    talk.processes.send_from(ranks["t00009"][0], result())
    assert [event.trial_id for event in talk.events()] == ["t00001", "t00002", "t00009"]
    for name, keys in ranks.items():
        for key in keys:
            talk.processes.end(key, CRASHED)
        assert {event.trial_id for event in talk.events()} <= {name}
