import collections
import enum
import math
import types
import warnings
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.result import AUTO_FILLED, MAX_SIZE_BYTES, SUPPLIED_BY_USER
from tuner.execution.metric_conversion import MAX_KEYS, Converter, as_metrics
from tuner.storage import strict_json


def convert(metrics):
    return Converter().convert(metrics)


class Colour(enum.IntEnum):
    RED = 3


class Name(str):
    __slots__ = ()


class Silent:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        (1, 1),
        (-(2**63), -(2**63)),
        (0.5, 0.5),
        (True, True),
        (None, None),
        ("text", "text"),
        ("ü\ud800", "ü\\ud800"),
        ((1, 2.0), [1, 2.0]),
        ({"a": {"b": (1,)}}, {"a": {"b": [1]}}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Colour.RED, 3),
        (Name("n"), "n"),
        (np.float32(1.5), 1.5),
        (np.float64(1.5), 1.5),
        (np.longdouble(1.5), 1.5),
        (np.int8(3), 3),
        (np.bool_(True), True),
        (np.str_("s"), "s"),
        (np.array(2.5), 2.5),
        (np.array([[7]]), 7),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.array([]), []),
        (collections.OrderedDict(z=1), {"z": 1}),
    ],
)
def test_values_are_converted_as_in_the_table(value, becomes):
    converted = convert({"x": value})["x"]
    assert converted == becomes
    assert type(converted) is type(becomes)


@pytest.mark.parametrize("value", [math.nan, np.float32("nan")])
def test_nan_is_kept(value):
    assert math.isnan(convert({"x": value})["x"])


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_are_kept(value):
    assert convert({"x": value}) == {"x": value}


def test_large_arrays_become_a_summary_with_one_warning():
    array, converter = np.arange(100.0).reshape(4, 25), Converter()
    with pytest.warns(UserWarning, match="'x' has 100 elements"):
        summary = converter.convert({"x": array})["x"]
    assert summary == {"shape": [4, 25], "dtype": str(array.dtype), "min": 0.0, "max": 99.0}
    assert converter.convert({"x": array})["x"] == summary


def test_arrays_without_an_order_have_no_extremes():
    with pytest.warns(UserWarning, match="elements"):
        assert convert({"x": np.array(["a"] * 65)})["x"]["min"] is None


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ({1}, "{1}"),
        (b"b", "b'b'"),
        (1j, "1j"),
        (2**63, str(2**63)),
        (np.uint64(2**63), str(2**63)),
        (Decimal("0.1"), "Decimal('0.1')"),
        (Silent(), "<Silent without a repr>"),
        (np.datetime64("2030-01-01"), "datetime.date(2030, 1, 1)"),
    ],
)
def test_other_values_become_their_repr_with_one_warning_for_each_key(value, becomes):
    converter = Converter()
    with pytest.warns(UserWarning, match="'x/y' is") as caught:
        assert converter.convert({"x": {"y": value}}) == {"x": {"y": becomes}}
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converter.convert({"x": {"y": value}})


def test_a_long_repr_is_cut():
    with pytest.warns(UserWarning, match="bytes"):
        assert len(convert({"x": b"x" * 1000})["x"]) == 200


def test_keys_become_strings():
    assert convert({1: 1, (2, 3): 2}) == {"1": 1, "(2, 3)": 2}


@pytest.mark.parametrize(
    ("metrics", "first", "second"),
    [
        ({1: 0, "1": 0}, "1", "'1'"),
        ({"a/b": 0, "a": {"b": 0}}, "'a/b'", r"\{'a': \{'b'\}\}"),
        ({"a": {"b/c": 0, "b": {"c": 0}}}, r"\{'a': \{'b/c'\}\}", r"\{'a': \{'b': \{'c'\}\}\}"),
    ],
)
def test_two_names_for_one_column_are_refused(metrics, first, second):
    with pytest.raises(ValueError, match=f"{first} and .*{second} both become"):
        convert(metrics)


def test_an_empty_dictionary_is_no_column_and_collides_with_none():
    assert convert({"a": {}, "b": 1}) == {"a": {}, "b": 1}


@pytest.mark.parametrize(
    "name", [*sorted(AUTO_FILLED - SUPPLIED_BY_USER - {"training_iteration"}), "config/lr"]
)
def test_values_under_names_of_the_engine_are_left_out_and_named_once(name):
    converter = Converter()
    for _ in range(2):
        assert converter.convert({"loss": 0.5, name: 1}) == {"loss": 0.5}
    assert (converter.take_replaced(), converter.take_replaced()) == ([name], [])


def test_a_training_iteration_passes():
    assert convert({"training_iteration": np.int64(10)}) == {"training_iteration": 10}


def test_a_name_of_the_engine_may_be_used_below_the_first_level():
    assert convert({"mine": {"trial_id": 1}}) == {"mine": {"trial_id": 1}}


def test_keys_that_training_code_may_supply_pass():
    supplied = dict.fromkeys(SUPPLIED_BY_USER - {"done", "should_checkpoint"}, 3) | {
        "done": np.bool_(True),
        "should_checkpoint": False,
    }
    assert convert(supplied) == supplied


@pytest.mark.parametrize("value", ["yes", None, 1])
def test_done_must_be_a_truth_value(value):
    with pytest.raises(ValueError, match="done must be True or False"):
        convert({"done": value})


@pytest.mark.parametrize("value", ["1", None, -1, math.nan, math.inf, True])
def test_supplied_counts_and_times_must_be_numbers(value):
    with pytest.raises(ValueError, match="timesteps_this_iter must be a finite number"):
        convert({"timesteps_this_iter": value})


def test_a_thousand_names_are_the_limit_at_any_level():
    assert len(convert({str(i): i for i in range(MAX_KEYS)})) == MAX_KEYS
    with pytest.raises(ValueError, match="at most 1000 names, got 1001"):
        convert({str(i): i for i in range(MAX_KEYS + 1)})
    with pytest.raises(ValueError, match="at most 1000 names"):
        convert({"inner": {str(i): i for i in range(MAX_KEYS)}})


@pytest.mark.parametrize(
    "value",
    [
        "x" * MAX_SIZE_BYTES,
        "\U0001f600" * (MAX_SIZE_BYTES // 12 + 1),
        [0.1] * 2**20,
        [[1.5] * 1000] * 300,
    ],
)
def test_a_result_beyond_the_size_limit_is_refused(value):
    with pytest.raises(ValueError, match=r"more than fit|too large|at most 1048576 bytes"):
        convert({"x": value})


def test_the_size_limit_is_exact():
    frame = len(strict_json.dumps({"x": ""}))
    assert convert({"x": "a" * (MAX_SIZE_BYTES - frame)})
    with pytest.raises(ValueError, match=f"got {MAX_SIZE_BYTES + 1}"):
        convert({"x": "a" * (MAX_SIZE_BYTES - frame + 1)})


def test_a_value_that_contains_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        convert({"x": endless})


@pytest.mark.parametrize("metrics", [None, 0.5, [("a", 1)], "loss"])
def test_metrics_must_be_a_dictionary(metrics):
    with pytest.raises(TypeError, match="metrics must be a dictionary, got"):
        convert(metrics)


def test_the_reported_dictionary_is_not_changed():
    metrics = {"x": 1, "y": {"z": (1,)}}
    converted = convert(metrics)
    converted["y"]["z"].append(2)
    assert metrics == {"x": 1, "y": {"z": (1,)}}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdef"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from("uvwxyz"), VALUES))
def test_json_values_survive_conversion_and_transport(metrics):
    assert convert(metrics) == metrics
    assert strict_json.loads(strict_json.dumps(convert(metrics))) == metrics


@given(
    st.dictionaries(
        st.text() | st.integers() | st.tuples(st.integers()),
        VALUES | st.binary() | st.complex_numbers() | st.sets(st.text()),
    )
)
def test_accepted_values_are_strict_json(metrics):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            converted = convert(metrics)
        except ValueError:
            return
    assert strict_json.loads(strict_json.dumps(converted)) == converted


@pytest.mark.parametrize("number", [1, 0.5, np.float32(0.5), np.int64(2)])
def test_a_number_becomes_the_default_metric(number):
    assert as_metrics(number) == {"_metric": number}


@pytest.mark.parametrize("value", ["0.5", True, None, [1], np.arange(3)])
def test_other_values_are_returned_unchanged(value):
    assert as_metrics(value) is value
