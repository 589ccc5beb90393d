import math

import numpy as np
import pandas as pd
import pytest

from tuner.analysis.flat_results import flat_config, flat_metrics, value_at
from tuner.analysis.frames import in_order_of_appearance, to_frame


def test_nested_metrics_are_joined_and_the_configuration_is_left_out():
    assert flat_metrics({"val": {"loss": 1.0, "top": {"k": 2}}, "config": {"lr": 0.1}}) == {
        "val/loss": 1.0,
        "val/top/k": 2,
    }


def test_nested_hyperparameters_stand_under_config():
    assert flat_config({"lr": 0.1, "model": {"depth": 3}}) == {
        "config/lr": 0.1,
        "config/model/depth": 3,
    }


def test_keys_keep_the_order_in_which_they_first_appear():
    assert in_order_of_appearance([{"b": 1, "a": 2}, {"c": 3, "a": 4}]) == ["b", "a", "c"]


@pytest.mark.parametrize("result", [{"val": {"loss": 0.5}}, {"val/loss": 0.5}])
def test_a_nested_metric_is_found_by_its_path_however_it_was_reported(result):
    assert value_at(result, "val/loss") == 0.5


def test_a_metric_that_is_not_there_has_no_value():
    assert value_at({"val": {"loss": 0.5}}, "val/accuracy") is None
    assert value_at({}, "loss") is None


def test_a_late_metric_becomes_a_column_with_gaps():
    frame = to_frame([{"loss": 1.0}, {"loss": 0.5, "accuracy": 0.9}])
    assert list(frame.columns) == ["loss", "accuracy"]
    assert math.isnan(frame["accuracy"][0])
    assert frame["accuracy"].dtype == float


def test_whole_numbers_stay_whole_where_none_is_missing():
    assert to_frame([{"n": 1}, {"n": 2}])["n"].dtype == np.int64


def test_none_among_numbers_is_a_gap_and_the_column_stays_numeric():
    frame = to_frame([{"loss": None}, {"loss": 2}])
    assert frame["loss"].dtype == "Int64"
    assert frame["loss"].isna().tolist() == [True, False]
    assert to_frame([{"loss": None}, {"loss": 2.5}])["loss"].dtype == float
    assert to_frame([{"n": None}, {"n": 2**70}])["n"][1] == 2**70


def test_a_column_of_truth_values_is_a_mask():
    frame = to_frame([{"ok": True}, {"ok": False}])
    assert frame["ok"].dtype == bool
    assert len(frame[frame["ok"]]) == 1


def test_a_column_of_truth_values_with_gaps_is_still_a_mask():
    frame = to_frame([{"ok": True, "n": 1}, {"n": 2}, {"ok": False, "n": 3}])
    assert frame[frame["ok"]]["n"].tolist() == [1]
    assert frame["ok"].isna().tolist() == [False, True, False]


def test_values_that_are_not_scalars_are_kept():
    array = np.arange(3)
    frame = to_frame(
        [
            {"list": [1, 2], "tuple": (1, 2), "array": array, "object": len},
            {"list": [3, 4], "tuple": (3, 4), "array": array},
        ]
    )
    assert frame["list"].tolist() == [[1, 2], [3, 4]]
    assert frame["tuple"].tolist() == [(1, 2), (3, 4)]
    assert frame["array"][0] is array
    assert frame["object"][0] is len


def test_texts_and_gaps_mix():
    frame = to_frame([{"name": "adam"}, {}])
    assert frame["name"][0] == "adam"
    assert pd.isna(frame["name"][1])


def test_columns_that_are_asked_for_exist_in_their_order_even_without_rows():
    assert list(to_frame([], ["b", "a"]).columns) == ["b", "a"]
    assert list(to_frame([{"a": 1, "c": 2}], ["b", "a"]).columns) == ["b", "a"]


def test_rows_without_any_value_are_rows():
    assert len(to_frame([{}, {}])) == 2


@pytest.mark.parametrize("value", [2**70, -(2**70)])
def test_integers_beyond_64_bit_survive(value):
    assert to_frame([{"n": value}])["n"][0] == value
