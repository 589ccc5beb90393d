"""The tables of transitions: listed transitions happen, all others are refused."""

from dataclasses import replace

import pytest

from schedulers.decisions import Reason
from tuner.core.events import Outcome
from tuner.core.lifecycle import (
    EVACUATION_MOVES,
    EXIT_MOVES,
    LIVE_WORKERS,
    TRIAL_TABLE,
    WORKER_TABLE,
    TrialMove,
    WorkerMove,
    can_move_worker,
    exit_move,
    is_coupled,
    move_trial,
    move_worker,
)
from tuner.core.trial import NODE_DRAINING, Intention, Status, TerminationReason, Trial, WorkerState
from tuner.core.worker_records import Failure, ReportReply
from tuner.errors import InvalidTransition

OVER = (Status.TERMINATED, Status.ERROR)
TRIAL_MOVES = [(before, move) for before in Status for move in TrialMove]
WORKER_MOVES = [(before, move) for before in WorkerState for move in WorkerMove]


def trial_in(status=Status.PENDING, worker=WorkerState.ABSENT, reply=None):
    trial = Trial("t00007", {"x": 1}, {"cpu": 1.0})
    trial.move_to(status)
    trial.worker = worker
    if reply:
        trial.intention = Intention(reply, TerminationReason.STOPPED_EARLY, Reason("asha.rung"))
    return trial


def state_of(trial):
    return {name: getattr(trial, name) for name in Trial.__slots__ if name != "__weakref__"}


@pytest.mark.parametrize(("before", "move"), [pair for pair in TRIAL_MOVES if pair in TRIAL_TABLE])
def test_a_listed_move_of_a_trial_follows_the_table_and_changes_nothing_else(before, move):
    trial = trial_in(before)
    expected = {**state_of(trial), "_status": TRIAL_TABLE[before, move]}
    move_trial(trial, move)
    assert state_of(trial) == expected


@pytest.mark.parametrize(
    ("before", "move"), [pair for pair in TRIAL_MOVES if pair not in TRIAL_TABLE]
)
def test_an_unlisted_move_of_a_trial_is_refused_and_leaves_it_untouched(before, move):
    trial = trial_in(before)
    expected = state_of(trial)
    with pytest.raises(
        InvalidTransition, match=f"{move} is not possible for trial t00007, which is {before}"
    ):
        move_trial(trial, move)
    assert state_of(trial) == expected


@pytest.mark.parametrize(
    ("before", "move"), [pair for pair in WORKER_MOVES if pair in WORKER_TABLE]
)
def test_a_listed_move_of_a_worker_follows_the_table_and_changes_nothing_else(before, move):
    trial = trial_in(Status.RUNNING, before)
    expected = {**state_of(trial), "worker": WORKER_TABLE[before, move]}
    assert can_move_worker(trial, move)
    move_worker(trial, move)
    assert state_of(trial) == expected


@pytest.mark.parametrize(
    ("before", "move"), [pair for pair in WORKER_MOVES if pair not in WORKER_TABLE]
)
def test_an_unlisted_move_of_a_worker_is_refused_and_leaves_it_untouched(before, move):
    trial = trial_in(Status.RUNNING, before)
    expected = state_of(trial)
    assert not can_move_worker(trial, move)
    with pytest.raises(
        InvalidTransition,
        match=f"{move} is not possible for trial t00007.* with its worker {before}",
    ):
        move_worker(trial, move)
    assert state_of(trial) == expected


def test_an_invalid_move_raises_with_the_state_of_the_trial():
    trial = trial_in(Status.RUNNING, WorkerState.TRAINING, ReportReply.STOP)
    trial.attempt = 3
    trial.last_result = {"training_iteration": 12}
    trial.failures = [Failure("ValueError", "boom"), Failure("killed by SIGSEGV", "")]
    with pytest.raises(InvalidTransition) as refusal:
        move_worker(trial, WorkerMove.LAUNCH)
    for part in (
        "launch",
        "RUNNING",
        "TRAINING",
        "attempt 3",
        "iteration 12",
        "asha.rung",
        "ValueError: boom; killed by SIGSEGV",
    ):
        assert part in str(refusal.value)


def test_a_trial_that_is_over_can_only_be_revived():
    assert {(before, move) for before, move in TRIAL_TABLE if before in OVER} == {
        (before, TrialMove.REVIVE) for before in OVER
    }


def test_only_a_running_trial_can_pause_and_only_a_waiting_one_start():
    assert {before for before, move in TRIAL_TABLE if move is TrialMove.PAUSE} == {Status.RUNNING}
    assert {before for before, move in TRIAL_TABLE if move is TrialMove.START} == {
        Status.PENDING,
        Status.PAUSED,
    }


def test_every_live_worker_can_be_killed_and_can_exit_and_an_absent_one_can_only_be_launched():
    assert {before for before, move in WORKER_TABLE if move is WorkerMove.KILL} == LIVE_WORKERS
    assert {before for before, move in WORKER_TABLE if move is WorkerMove.EXIT} == LIVE_WORKERS
    assert [move for before, move in WORKER_TABLE if before is WorkerState.ABSENT] == [
        WorkerMove.LAUNCH
    ]


def test_only_a_waiting_worker_can_be_answered():
    told = {WorkerMove.GO_ON, WorkerMove.SAVE, WorkerMove.LEAVE}
    assert {before for before, move in WORKER_TABLE if move in told} == {WorkerState.WAITING}


def test_every_worker_state_can_be_reached_and_left():
    assert set(WORKER_TABLE.values()) == set(WorkerState)
    assert {before for before, _ in WORKER_TABLE} == set(WorkerState)


def test_the_table_of_exits_is_complete():
    assert set(EXIT_MOVES) == {(reply, outcome) for reply in ReportReply for outcome in Outcome}


@pytest.mark.parametrize("outcome", Outcome)
def test_a_trial_that_is_to_leave_its_node_is_queued_again_unless_it_fails_or_is_done(outcome):
    trial = trial_in(Status.RUNNING, WorkerState.STOPPING, ReportReply.PAUSE)
    trial.intention = replace(trial.intention, reason=Reason(NODE_DRAINING))
    move = exit_move(trial, outcome)
    assert move is EVACUATION_MOVES[outcome]
    assert move in {TrialMove.REQUEUE, TrialMove.FAIL, TrialMove.END}
    assert (Status.RUNNING, move) in TRIAL_TABLE


@pytest.mark.parametrize("reply", ReportReply)
@pytest.mark.parametrize("outcome", Outcome)
def test_what_an_exit_means_is_always_a_possible_move_of_a_running_trial(reply, outcome):
    trial = trial_in(
        Status.RUNNING, WorkerState.STOPPING, None if reply is ReportReply.CONTINUE else reply
    )
    move = exit_move(trial, outcome)
    assert move is EXIT_MOVES[reply, outcome]
    assert (Status.RUNNING, move) in TRIAL_TABLE


@pytest.mark.parametrize(
    ("reply", "outcome", "move"),
    [
        (None, Outcome.COMPLETED, TrialMove.END),
        (None, Outcome.FAILED, TrialMove.FAIL),
        (None, Outcome.KILLED, TrialMove.FAIL),
        (None, Outcome.LOST, TrialMove.REQUEUE),
        (ReportReply.PAUSE, Outcome.STOPPED, TrialMove.PAUSE),
        (ReportReply.PAUSE, Outcome.COMPLETED, TrialMove.END),
        (ReportReply.PAUSE, Outcome.KILLED, TrialMove.FAIL),
        (ReportReply.PAUSE, Outcome.LOST, TrialMove.REQUEUE),
        *[
            (ReportReply.STOP, outcome, TrialMove.END)
            for outcome in Outcome
            if outcome is not Outcome.UNSAVED
        ],
        *[
            (reply, Outcome.UNSAVED, TrialMove.FAIL)
            for reply in (None, ReportReply.PAUSE, ReportReply.STOP)
        ],
        (ReportReply.EXPLOIT, Outcome.UNSAVED, TrialMove.PAUSE),
    ],
)
def test_an_exit_means_what_was_intended_and_what_happened(reply, outcome, move):
    assert exit_move(trial_in(Status.RUNNING, WorkerState.STOPPING, reply), outcome) is move


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("worker", WorkerState)
def test_a_worker_exists_exactly_while_its_trial_is_running(status, worker):
    assert is_coupled(trial_in(status, worker)) == (
        (status is Status.RUNNING) == (worker is not WorkerState.ABSENT)
    )
