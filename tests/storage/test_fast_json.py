"""Fast JSON: which values it takes, and that they come back as they were."""

import enum
import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.storage import fast_json

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=2)
    | st.binary(max_size=2)
    | st.just({1})
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner)
    ),
    max_leaves=8,
)


class Number(float):
    """A float that may mean something else."""


class Color(enum.StrEnum):
    """A text that may mean something else."""

    RED = "red"


@given(VALUES)
@example((1, 2.0, True))
@example([10**18, 2**64 - 1, -(2**63)])
def test_what_is_plain_comes_back_from_its_json(value):
    if fast_json.is_plain(value) and (data := fast_json.dumps(value)):
        assert repr(fast_json.loads(data)) == repr(_with_lists(value))


def _with_lists(value):
    """Return the value with lists in the place of tuples."""
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return [*map(_with_lists, value)] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        {"a": [1.0, math.nan]},
        [math.inf, -math.inf],
        {"a": (math.inf,)},
        {"a": Number(1.0)},
        [Color.RED],
        {"a": type("Table", (dict,), {})()},
        {"a": b"x"},
    ],
)
def test_what_json_writes_otherwise_is_not_plain(value):
    assert not fast_json.is_plain(value)


def test_a_value_that_contains_itself_or_is_too_deep_is_not_plain():
    endless = []
    endless.append(endless)
    deep = []
    for _ in range(5 * sys.getrecursionlimit()):
        deep = [deep]
    for value in (endless, {"a": endless}, deep):
        assert fast_json.dumps(value) is None


@pytest.mark.parametrize("text", ["18446744073709551616", "[1, -9223372036854775809]", "1" * 5000])
def test_integers_of_more_than_64_bits_are_refused_rather_than_rounded(text):
    with pytest.raises(ValueError, match="64 bits"):
        fast_json.loads(text.encode())


@pytest.mark.parametrize("value", [[1e308, 1e308], [10**400, 1.5]])
def test_huge_numbers_come_to_no_harm(value):
    data = fast_json.dumps(value)
    assert data is None or fast_json.loads(data) == value
