"""Checkpoints: when one is due, retention and leases."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Reason
from tuner.core.checkpoints import (
    CheckpointManager,
    CheckpointPolicy,
    RetentionPolicy,
    ranked,
    superseded,
)
from tuner.core.trial import AppliedExploit, Intention, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, ReportReply

PAUSE = Intention(ReportReply.PAUSE, TerminationReason.INTERRUPTED, Reason("test"))
STOP = Intention(ReportReply.STOP, TerminationReason.STOPPED_EARLY, Reason("test"))
INTERRUPT = Intention(ReportReply.STOP, TerminationReason.INTERRUPTED, Reason("signal.SIGINT"))


def keeper(*, retention=None, can_save_on_demand=True, **policy):
    return CheckpointManager(
        CheckpointPolicy(
            can_save_on_demand=can_save_on_demand,
            retention=retention or RetentionPolicy(),
            **policy,
        )
    )


def trial_with(intention=None, *, owes_save=False, checkpoints=()):
    trial = Trial("t", {}, {})
    trial.intention, trial.owes_save = intention, owes_save
    trial.checkpoints = list(checkpoints)
    return trial


def at(iteration, **more):
    return {"training_iteration": iteration, **more}


def indices(trial):
    return [checkpoint.index for checkpoint in trial.checkpoints]


@pytest.mark.parametrize(
    ("intention", "at_end", "is_due"),
    [
        (None, True, False),
        (PAUSE, False, True),
        (INTERRUPT, False, True),
        (STOP, False, False),
        (STOP, True, True),
    ],
)
def test_a_leaving_worker_saves_if_the_trial_may_continue_or_at_end_is_set(
    intention, at_end, is_due
):
    assert keeper(at_end=at_end).is_due(trial_with(intention), at(3)) is is_due


def test_a_checkpoint_is_due_at_multiples_of_the_frequency():
    assert [time for time in range(1, 8) if keeper(frequency=3).is_due(trial_with(), at(time))] == [
        3,
        6,
    ]
    assert not any(keeper(frequency=0).is_due(trial_with(), at(time)) for time in range(1, 8))


@pytest.mark.parametrize(
    ("flag", "is_due"), [(True, True), (False, False), (1, False), ("yes", False)]
)
def test_a_result_may_ask_for_a_checkpoint_with_true_itself(flag, is_due):
    assert keeper().is_due(trial_with(), at(3, should_checkpoint=flag)) is is_due


def test_a_callback_may_request_a_checkpoint():
    assert keeper().is_due(trial_with(owes_save=True), at(3))


def test_there_is_at_most_one_checkpoint_per_result():
    trial = trial_with(PAUSE, owes_save=True, checkpoints=[CheckpointRecord(0, 3)])
    assert not keeper(frequency=1).is_due(trial, at(3))
    assert keeper(frequency=1).is_due(trial, at(4))


def test_a_checkpoint_from_before_an_exploit_is_none_of_the_training_since():
    trial = trial_with(PAUSE, checkpoints=[CheckpointRecord(0, 3)])
    donor = CheckpointRecord(4, 2)
    trial.grafts = [AppliedExploit(1, 3, 3, {}, "d", donor, 2, 1, Reason("test"))]
    assert keeper().is_due(trial, at(3))
    trial.checkpoints.append(CheckpointRecord(1, 3))
    assert not keeper().is_due(trial, at(3))


def test_a_trainable_that_cannot_save_on_demand_is_never_asked():
    assert not keeper(can_save_on_demand=False, frequency=1, at_end=True).is_due(
        trial_with(PAUSE, owes_save=True), at(1)
    )
    assert not keeper(can_save_on_demand=False).can_save_on_demand
    assert keeper().can_save_on_demand


@pytest.mark.parametrize(
    ("value", "score"),
    [(0.5, 0.5), (3, 3.0), (True, None), ("0.5", None), (None, None), (math.inf, math.inf)],
)
def test_the_score_is_the_number_in_the_result(value, score):
    trial = trial_with()
    scored, _ = keeper(retention=RetentionPolicy(score_attribute="val/acc")).add(
        trial, CheckpointRecord(0, 1), at(1, **{"val/acc": value})
    )
    assert scored.score == score
    assert trial.checkpoints == [scored]


def test_a_score_may_be_nan_or_missing():
    judge = keeper(retention=RetentionPolicy(score_attribute="acc"))
    assert math.isnan(judge.add(trial_with(), CheckpointRecord(0, 1), at(1, acc=math.nan))[0].score)
    assert judge.add(trial_with(), CheckpointRecord(0, 1, score=0.9), at(1))[0].score is None


def test_each_checkpoint_moves_the_next_index_on():
    trial = trial_with()
    keeper().add(trial, CheckpointRecord(4, 1), at(1))
    assert trial.next_checkpoint == 5


def test_what_is_superseded_leaves_the_trial_and_is_returned_for_deletion():
    trial, judge = trial_with(), keeper(retention=RetentionPolicy(num_to_keep=1))
    assert judge.add(trial, CheckpointRecord(0, 1), at(1))[1] == []
    assert [dropped.index for dropped in judge.add(trial, CheckpointRecord(1, 2), at(2))[1]] == [0]
    assert indices(trial) == [1]


def test_the_checkpoint_that_an_attempt_starts_from_stays_until_it_is_released():
    trial, judge = (
        trial_with(checkpoints=[CheckpointRecord(0, 1)]),
        keeper(retention=RetentionPolicy(num_to_keep=1)),
    )
    assert judge.lease_start(trial) == CheckpointRecord(0, 1)
    assert judge.add(trial, CheckpointRecord(1, 2), at(2))[1] == []
    assert indices(trial) == [0, 1]
    assert [dropped.index for dropped in judge.release(trial)] == [0]
    assert indices(trial) == [1]
    assert judge.release(trial) == []


def test_a_lost_checkpoint_is_forgotten_with_its_lease_and_its_index_is_not_reused():
    trial, judge = trial_with(), keeper()
    for index in range(2):
        judge.add(trial, CheckpointRecord(index, index + 1), at(index + 1))
    judge.lease_start(trial)
    judge.lose(trial, 1)
    assert (indices(trial), trial.leased, trial.next_checkpoint) == ([0], set(), 2)
    judge.lose(trial, 7)
    assert indices(trial) == [0]


def test_a_start_from_the_beginning_leases_nothing():
    trial = trial_with()
    assert keeper().lease_start(trial) is None
    assert trial.leased == set()


SCORES = st.one_of(
    st.none(), st.just(math.nan), st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 0.5, 2.0, math.inf])
)


def checkpoints(*scores):
    return [CheckpointRecord(index, index + 1, score=score) for index, score in enumerate(scores)]


def gone(scores, *, leased=(), **policy):
    return [
        checkpoint.index
        for checkpoint in superseded(checkpoints(*scores), RetentionPolicy(**policy), leased)
    ]


def test_without_a_limit_all_stay():
    assert gone([0.1] * 9) == []


def test_without_a_score_the_most_recent_stay():
    assert gone([None] * 5, num_to_keep=2) == [0, 1, 2]


@pytest.mark.parametrize(("order", "expected"), [("max", [0, 3]), ("min", [1, 2, 3])])
def test_the_best_stay_and_so_does_the_latest(order, expected):
    # The last one is the worst for "max", so that it stays as one more than num_to_keep.
    assert (
        gone([0.1, 0.9, 0.8, 0.2, 0.0], num_to_keep=2, score_attribute="acc", score_order=order)
        == expected
    )


def test_one_more_than_num_to_keep_may_exist_and_no_more():
    assert gone([0.9, 0.1], num_to_keep=1, score_attribute="acc") == []
    assert gone([0.9, 0.1, 0.2], num_to_keep=1, score_attribute="acc") == [1]
    assert gone([0.9, 0.2, 0.95], num_to_keep=1, score_attribute="acc") == [0, 1]


def test_of_equal_scores_the_newer_one_is_better():
    assert gone([0.5, 0.5, 0.5, 0.1], num_to_keep=2, score_attribute="acc") == [0]
    assert gone([0.5, 0.5, 0.5, 0.9], num_to_keep=2, score_attribute="acc", score_order="min") == [
        0
    ]


@pytest.mark.parametrize("order", ["max", "min"])
def test_what_is_not_finite_ranks_below_every_number_and_a_missing_score_below_that(order):
    order_of = ranked(
        checkpoints(-math.inf, math.nan, None, math.inf, 0.0), RetentionPolicy(2, "acc", order)
    )
    assert [checkpoint.index for checkpoint in order_of] == [2, 0, 1, 3, 4]


def test_leased_checkpoints_are_kept():
    assert gone([None] * 5, num_to_keep=1, leased={1, 3}) == [0, 2]


def is_better(one, other, sign):
    """Return whether a checkpoint ranks before another, computed naively."""

    def key(checkpoint):
        score = checkpoint.score
        quality = (
            (0, 0.0) if score is None else (2, sign * score) if math.isfinite(score) else (1, 0.0)
        )
        return (*quality, checkpoint.index)

    return key(one) > key(other)


@given(
    scores=st.lists(SCORES, min_size=3, max_size=9),
    num_to_keep=st.integers(1, 4),
    order=st.sampled_from(["max", "min"]),
    data=st.data(),
)
def test_retention_agrees_with_its_definition(scores, num_to_keep, order, data):
    all_of_them = checkpoints(*scores)
    leased = data.draw(st.sets(st.integers(0, 8), max_size=2))
    dropped = superseded(all_of_them, RetentionPolicy(num_to_keep, "acc", order), leased)
    sign = 1 if order == "max" else -1
    expected = [
        checkpoint
        for checkpoint in all_of_them[:-1]
        if checkpoint.index not in leased
        and sum(
            is_better(other, checkpoint, sign) for other in all_of_them if other is not checkpoint
        )
        >= num_to_keep
    ]
    assert [checkpoint.index for checkpoint in dropped] == [
        checkpoint.index for checkpoint in expected
    ]
    assert len(all_of_them) - len(dropped) <= num_to_keep + 1 + len(leased)


@given(scores=st.lists(SCORES, min_size=1, max_size=9), num_to_keep=st.integers(1, 4))
def test_what_stays_stays_when_asked_again(scores, num_to_keep):
    policy = RetentionPolicy(num_to_keep, "acc")
    all_of_them = checkpoints(*scores)
    dropped = {checkpoint.index for checkpoint in superseded(all_of_them, policy)}
    kept = [checkpoint for checkpoint in all_of_them if checkpoint.index not in dropped]
    assert superseded(kept, policy) == []
