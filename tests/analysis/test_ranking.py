import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Reason
from tuner.analysis.ranking import MODES, check_mode, is_number, rank, unknown_metric
from tuner.core.metric_watch import METRIC_NOT_REPORTED, error_for, meant_by


@pytest.mark.parametrize("mode", MODES)
@given(value=st.floats(allow_nan=False))
def test_nan_is_worse_than_every_number(mode, value):
    assert rank(math.nan, mode) < rank(value, mode)


@given(a=st.floats(allow_nan=False), b=st.floats(allow_nan=False))
def test_the_directions_are_opposite(a, b):
    assert (rank(a, "min") < rank(b, "min")) == (rank(a, "max") > rank(b, "max")) == (a > b)


@pytest.mark.parametrize("mode", MODES)
def test_a_known_mode_is_returned(mode):
    assert check_mode(mode) == mode


@pytest.mark.parametrize(
    ("typo", "meant"), [("maximize", "max"), ("MIN", "min"), ("minimise", "min")]
)
def test_a_mistyped_mode_is_refused_with_the_one_that_was_meant(typo, meant):
    with pytest.raises(ValueError, match=f"got '{typo}'; did you mean '{meant}'"):
        check_mode(typo)


def test_a_missing_mode_is_refused_with_where_to_set_it():
    with pytest.raises(
        ValueError,
        match="filter_mode must be 'min' or 'max', got None; pass it, or set it in TuneConfig",
    ):
        check_mode(None, "filter_mode")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (0.5, True), (math.nan, True), (True, False), ("1", False), (None, False)],
)
def test_truth_values_and_texts_are_no_numbers(value, expected):
    assert is_number(value) is expected


@pytest.mark.parametrize(
    ("metric", "known", "said"),
    [
        ("acuracy", ["accuracy", "loss"], "did you mean 'accuracy'?"),
        ("loss", ["val/loss", "accuracy"], "did you mean 'val/loss'?"),
        ("train/loss", ["loss", "accuracy"], "did you mean 'loss'?"),
        ("xyz", ["b", "a"], "reported were: a, b"),
        ("xyz", [], "reported were: none"),
    ],
)
def test_the_error_for_an_unknown_metric_lists_those_that_exist(metric, known, said):
    assert said in str(unknown_metric(metric, known, "a trial"))


def test_a_long_list_of_metrics_is_cut():
    message = str(unknown_metric("xyz", [f"m{number:02d}" for number in range(30)], "a trial"))
    assert message.endswith("m08, m09, ...")


def test_an_experiment_and_its_results_suggest_the_same_metric():
    keys = ["losses", "train/loss", "val/loss"]
    meant = meant_by("loss", keys)
    assert meant == ["train/loss", "val/loss", "losses"]
    assert str(unknown_metric("loss", set(keys), "a trial")).endswith(
        "did you mean 'train/loss' or 'val/loss' or 'losses'?"
    )
    reason = Reason(
        METRIC_NOT_REPORTED,
        {"metric": "loss", "trial_id": "t00000", "reported": ", ".join(keys), "meant": meant[0]},
    )
    assert error_for(reason).endswith("did you mean 'train/loss'?")
