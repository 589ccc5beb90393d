"""Records behave as frozen dataclasses with slots do, but for what no one needs."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import field, fields, replace

import pytest

from tuner.wire.record import record


@record
class Point:
    x: float
    y: float = 0.0
    note: str = field(default="", compare=False, repr=False)


@record
class Other:
    x: float
    y: float = 0.0


@record
class Single:
    values: list[int] = field(default_factory=list)


def test_a_record_equals_one_of_its_class_with_the_same_values():
    assert Point(1, 2) == Point(1.0, 2.0)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 0.0)
    assert Single([1]) == Single([1]) != Single([2])
    assert Point(math.nan) == Point(math.nan)  # the same object, as in a tuple


def test_fields_can_be_left_out_of_comparisons_and_of_the_text():
    assert Point(1, note="a") == Point(1, note="b")
    assert hash(Point(1, note="a")) == hash(Point(1, note="b"))
    assert repr(Point(1, note="a")) == "Point(x=1, y=0.0)"


def test_records_can_be_keys():
    assert {Point(1, 2): "a"}[Point(1, 2)] == "a"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Single([1]))


def test_records_are_replaced_copied_pickled_and_matched():
    point = Point(1, 2, "a")
    unpickled = pickle.loads(pickle.dumps(point))  # noqa: S301  (made here)
    for same in (copy.deepcopy(point), unpickled, replace(point)):
        assert (same, same.note) == (point, "a")
    assert replace(point, y=3) == Point(1, 3)
    assert [each.name for each in fields(Point)] == ["x", "y", "note"]
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_records_have_slots():
    assert not hasattr(Point(1), "__dict__")
