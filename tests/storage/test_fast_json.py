"""What is plain is the same whoever looks."""

import enum
import math

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
@example({"a": [1.0, math.nan]})
@example([math.inf, -math.inf])
@example((1, 2.0, True))
@example({"a": Number(1.0)})
@example([Color.RED])
@example({"a": type("Table", (dict,), {})()})
def test_what_is_plain_is_so_in_either_language(value):
    plain, in_python = fast_json.is_plain(value), fast_json.is_plain_in_python(value)
    assert plain == in_python or (plain and not in_python and _has_a_huge_sum(value))


def _has_a_huge_sum(value):
    items = (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, (list, tuple))
        else []
    )
    numbers = [abs(item) for item in items if type(item) in (int, float)]
    return any(number > 1e150 for number in numbers) or any(map(_has_a_huge_sum, items))


def test_a_value_that_contains_itself_or_is_too_deep_is_not_plain():
    endless = []
    endless.append(endless)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, {"a": endless}, deep):
        assert fast_json.dumps(value) is None


@pytest.mark.parametrize("value", [[1e308, 1e308], [10**400, 1.5]])
def test_huge_numbers_come_to_no_harm(value):
    data = fast_json.dumps(value)
    assert data is None or fast_json.loads(data) == value
