import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from searchers.plain_values import DESCRIPTION_LIMIT
from tuner.storage.strict_json import Opaque, dumps, loads, opaque, seal, unseal

KEYS = st.text(max_size=5) | st.sampled_from(["$float", "$object", "$$float", "$", "{$"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["NaN", "{", "$float"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def refuse(literal):
    raise AssertionError(f"{literal} is not strict JSON")


@given(VALUES)
@example({"$float": "NaN"})
@example({"$$float": {"$object": {"$float": math.inf}}})
def test_every_value_comes_back_and_every_text_is_strict_and_fits_on_one_line(value):
    text = dumps(value)
    json.loads(text, parse_constant=refuse)
    assert "\n" not in text
    assert text.isascii()
    assert loads(text) == value
    assert loads(text.encode()) == value


def read(text):
    try:
        return repr(loads(text))
    except ValueError:
        return "refused"


@given(st.text("0123456789.-eE,[] ", max_size=40))
@example("9223372036854775808")
@example("[18446744073709551616]")
@example('{"a": -9223372036854775809}')
@example("0.00012345678901234567")
@example("[0.00012345678901234567, 18446744073709551616]")
@example('"18446744073709551616"')
@example("[1e400, -0]")
@example('"\\ud800"')
def test_bytes_are_read_as_text_is_however_long_the_numbers(text):
    assert read(text.encode()) == read(text)


def test_nan_comes_back_as_nan_wherever_it_stands():
    value = loads(dumps({"a": [math.nan, {"b": math.nan}], "c": -math.inf}))
    assert math.isnan(value["a"][0])
    assert math.isnan(value["a"][1]["b"])
    assert value["c"] == -math.inf


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", '{"a":NaN}', '{"$x":NaN}'])
def test_literals_that_are_not_json_are_refused(literal):
    with pytest.raises(ValueError, match="not strict JSON"):
        loads(literal)


def test_an_unknown_float_is_refused():
    with pytest.raises(ValueError, match=r"must be one of NaN, Infinity, -Infinity, got 'nan'"):
        loads('{"$float":"nan"}')


def test_what_is_not_json_is_refused_without_default():
    for value in ({"a": len}, {"a": [math.nan, len]}, {(1, 2): 3}):
        with pytest.raises(TypeError):
            dumps(value)


def test_what_is_not_json_comes_back_as_its_repr():
    value = {"f": len, "x": math.nan, "deep": {"g": [object]}}
    back = loads(dumps(value, default=opaque))
    assert back["f"] == Opaque("<built-in function len>")
    assert back["deep"]["g"] == [Opaque("<class 'object'>")]
    assert loads(dumps(back, default=opaque))["f"] == back["f"]


def test_a_long_repr_is_cut_and_one_that_raises_is_replaced():
    class Rude:
        def __repr__(self):
            raise RuntimeError

    class Chatty:
        def __repr__(self):
            return "x" * 1000

    assert loads(dumps(Chatty(), default=opaque)).text == "x" * DESCRIPTION_LIMIT
    assert "Rude object" in loads(dumps(Rude(), default=opaque)).text


def test_numpy_scalars_become_numbers_where_opaque_values_are_taken():
    assert loads(dumps([np.int64(3), np.float32(0.5)], default=opaque)) == [3, 0.5]
    assert loads(dumps([np.float32("inf"), len], default=opaque))[0] == math.inf


def test_a_value_that_contains_itself_is_refused():
    value = {}
    value["self"] = value
    with pytest.raises(ValueError, match="contains itself"):
        dumps(value)


@given(VALUES)
def test_a_sealed_value_comes_back(value):
    assert unseal(seal(value).encode()) == value


@given(VALUES, st.data())
def test_no_changed_bit_and_no_cut_of_a_sealed_text_goes_unnoticed(value, data):
    sealed = seal(value).encode()
    position = data.draw(st.integers(0, len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(flipped), sealed[:position], sealed + b"x"):
        with pytest.raises(ValueError):
            unseal(damaged)
