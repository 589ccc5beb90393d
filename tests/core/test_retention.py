"""Which checkpoints may go."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.retention import RetentionPolicy, ranked, superseded
from tuner.core.trial import CheckpointRecord

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


def test_what_somebody_is_going_to_read_stays():
    assert gone([None] * 5, num_to_keep=1, leased={1, 3}) == [0, 2]


def is_better(one, other, sign):
    """Say naively whether a checkpoint is to be kept rather than another."""

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
