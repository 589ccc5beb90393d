"""What becomes of the parts of a checkpoint that the ranks of a group report."""

import pytest

from tests.execution.executor_conversation import DONE, result
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointStarted,
    Outcome,
    ResultReported,
    WorkerExited,
)
from tuner.groups import group_checkpoint

PLACED = {"kind": "placeholder", "name": "mine"}
PENDING = {"kind": "pending", "name": ""}
SAVING = {"kind": "saving"}


def stored(index, part=PLACED):
    return {"kind": "part", "index": index, "part": part}


@pytest.fixture
def ranks(talk):
    """The keys of two ranks."""
    return talk.start(num_workers=2)


def report(talk, keys, number, *parts, **fields):
    """Have the ranks report these parts, and return the events."""
    for key, part in zip(keys, parts, strict=True):
        talk.processes.send_from(key, SAVING, result(number, part=part, **fields))
    return talk.events()


def kinds(events):
    return [type(event) for event in events]


def errors(talk, keys):
    """Return what the report of each rank raises."""
    return [talk.processes.sent[key][-1].get("error", {}).get("message") for key in keys]


def test_a_checkpoint_stored_in_threads_counts_when_all_ranks_have_stored_theirs(talk, ranks):
    started, reported = report(talk, ranks, 1, PENDING, PENDING)
    assert isinstance(started, CheckpointStarted)
    assert (reported.upload, reported.checkpoint) == (0, None)
    talk.answer()
    talk.processes.send_from(ranks[1], stored(0))
    assert talk.events() == []
    talk.processes.send_from(ranks[0], stored(0))
    (committed,) = talk.events()
    assert isinstance(committed, CheckpointCommitted)
    assert (committed.checkpoint.index, committed.checkpoint.name) == (0, "mine")


def test_a_checkpoint_stored_at_once_waits_for_those_that_other_ranks_are_storing(talk, ranks):
    report(talk, ranks, 1, PENDING, PENDING)
    talk.answer()
    talk.processes.send_from(ranks[1], stored(0))
    assert kinds(report(talk, ranks, 2, None, PLACED)) == [CheckpointStarted]
    talk.processes.send_from(ranks[0], stored(0))
    committed, reported = talk.events()
    assert (committed.checkpoint.index, reported.checkpoint.index) == (0, 1)


def test_a_thread_that_cannot_store_fails_a_report_that_waits_for_it(talk, ranks):
    report(talk, ranks, 1, PENDING, PENDING)
    talk.answer()
    talk.processes.send_from(ranks[1], stored(0))
    report(talk, ranks, 2, None, PLACED)
    why = "a link leads out of the checkpoint"
    dropped = {"kind": "dropped", "name": "", "why": why}
    talk.processes.send_from(ranks[0], stored(0, dropped))
    assert kinds(talk.events()) == [CheckpointFailed]
    message = f"rank 0 could not store its part of a checkpoint: {why}"
    assert errors(talk, ranks) == [message, message]


def test_what_threads_store_is_committed_before_the_attempt_ends(talk, ranks):
    report(talk, ranks, 1, PENDING, None)
    talk.answer()
    for key in ranks:
        talk.processes.send_from(key, DONE)
    assert talk.events() == []
    assert [len(talk.processes.sent[key]) for key in ranks] == [1, 1]  # they may not leave yet
    talk.processes.send_from(ranks[0], stored(0))
    for key in ranks:
        talk.processes.end(key)
    assert kinds(talk.events()) == [WorkerExited]


@pytest.mark.parametrize("is_full", [True, False])
def test_a_commit_that_fails_costs_the_checkpoint_or_raises_in_all_ranks(
    talk, ranks, monkeypatch, is_full
):
    error = OSError(28, "no space left on device") if is_full else ValueError("not a directory")

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(group_checkpoint.GroupCheckpoint, "commit", fail)
    _, told = report(talk, ranks, 1, PLACED, PLACED)
    if is_full:
        assert (told.checkpoint, told.metrics.get("checkpoint_dir_name")) == (None, None)
    else:
        assert isinstance(told, CheckpointFailed)
        assert errors(talk, ranks) == ["not a directory"] * 2


def test_ranks_name_the_directory_alike(talk, ranks):
    for rank, key in enumerate(ranks):
        named = result(part=PLACED, name=f"of-rank-{rank}")
        talk.processes.send_from(key, named)
    assert talk.events() == []
    assert all("'of-rank-0', 'of-rank-1'" in error for error in errors(talk, ranks))


def request(function="judge", **kwargs):
    return {"fn": function, "kwargs": kwargs, "timeout": None, "payload": "", "takes_config": False}


def test_any_rank_may_ask_for_a_validation(talk, ranks):
    zero, one = ranks
    talk.processes.send_from(zero, result(part=PLACED))
    talk.processes.send_from(one, result(part=None, validation=request(limit=3)))
    (reported,) = talk.events()
    assert reported.validation.function == "judge"
    assert dict(reported.validation.kwargs) == {"limit": 3}


@pytest.mark.parametrize(
    ("part", "second", "why"),
    [
        (PLACED, request("judge_otherwise"), "must ask for the same, got function 'judge' and"),
        (PLACED, request(limit=1), "must ask for the same, got fn_kwargs {} and {'limit': 1}"),
        (None, request(), "needs a checkpoint"),
    ],
)
def test_validations_that_do_not_fit_together_raise_in_all_ranks(talk, ranks, part, second, why):
    for key, asked in zip(ranks, (request(), second), strict=True):
        talk.processes.send_from(key, result(part=part, validation=asked))
    assert talk.events() == []
    assert all(why in error for error in errors(talk, ranks))
    assert all("('" not in error for error in errors(talk, ranks))  # names, and no tuple of ours
    (reported,) = report(talk, ranks, 1, None, None)[1:]
    assert isinstance(reported, ResultReported)


def test_what_was_reported_last_does_not_count_where_the_ranks_are_killed(talk, ranks):
    report(talk, ranks, 1, PENDING, PENDING)
    talk.answer()
    talk.kill()
    for key in ranks:
        talk.processes.end(key)
    assert talk.exit().outcome is Outcome.KILLED
