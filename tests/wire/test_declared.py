"""How declared records are written and read."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Decision
from tests.wire.instances import instances, records_in
from tuner.core.events import Event
from tuner.core.recorded_decisions import StopExperiment
from tuner.core.trial import AppliedExploit, Intention
from tuner.storage import strict_json
from tuner.storage.control_requests import ControlReply, ControlRequest
from tuner.storage.lock import Owner
from tuner.storage.manifest import Manifest, Provenance
from tuner.storage.origin import Origin
from tuner.wire.declared import (
    CONFIG,
    FLAT,
    LIST,
    NEVER,
    OPTIONAL,
    Form,
    Key,
    Malformed,
    Tagged,
    decode,
    encode,
    tagged,
)

DECLARED = []
for cls in (*get_args(Event), *get_args(Decision), StopExperiment, AppliedExploit, Intention):
    records_in(cls, DECLARED)
for cls in (ControlRequest, ControlReply, Owner, Origin, Provenance, Manifest):
    records_in(cls, DECLARED)


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
@given(st.data())
def test_every_declared_record_comes_back_from_its_text(cls, data):
    record = data.draw(instances(cls))
    assert decode(cls, strict_json.loads(strict_json.dumps(encode(record)))) == record


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: Annotated[float, OPTIONAL] = 0.0


@tagged("shape")
@dataclass(frozen=True, slots=True)
class Shape:
    name: Annotated[str, Key("n")]
    colour: Colour
    origin: Annotated[Point, LIST]
    place: Annotated[Point, FLAT]
    config: Annotated[Mapping[str, Any], CONFIG]
    corners: tuple[Point, ...] = ()
    pair: tuple[int, str] = (0, "")
    sizes: Mapping[int, float] = field(default_factory=dict)
    limit: int | None = None
    value: int | str = 0
    path: Annotated[str, NEVER] = ""
    odd: Annotated[complex, Form(str, complex)] = 0j


@tagged("dot")
@dataclass(frozen=True, slots=True)
class Dot:
    at: Point | None = None


SHAPE = Shape("s", Colour.RED, Point(1), Point(2, 3.0), {"a": 1}, (Point(4),), (5, "t"), {6: 7.5})
BODY = {
    "n": "s",
    "colour": "red",
    "origin": [1, 0.0],
    "x": 2,
    "y": 3.0,
    "config": {"a": 1},
    "corners": [{"x": 4}],
    "pair": [5, "t"],
    "sizes": {"6": 7.5},
    "limit": None,
    "value": 0,
    "odd": "0j",
}


def test_fields_are_written_in_their_order_as_their_types_and_marks_say():
    assert encode(SHAPE) == BODY
    assert list(encode(SHAPE)) == list(BODY)
    assert decode(Shape, BODY) == SHAPE


def test_configurations_are_translated():
    def translate(config):
        return {key: value + 1 for key, value in config.items()}

    assert encode(SHAPE, translate)["config"] == {"a": 2}
    assert decode(Shape, BODY, translate).config == {"a": 2}


def test_a_missing_key_stands_for_the_default():
    fields = {key: BODY[key] for key in ("n", "colour", "origin", "x", "config")}
    assert decode(Shape, fields) == Shape("s", Colour.RED, Point(1), Point(2), {"a": 1})


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ({"n": 1}, "n must be a text, got 1"),
        ({"x": "2"}, "x must be an integer, got '2'"),
        ({"colour": "green"}, "colour must be one of 'red', 'blue', got 'green'"),
        ({"origin": [1]}, "origin must have 2 values, got [1]"),
        ({"origin": ["1", 0]}, "origin.x must be an integer, got '1'"),
        ({"config": [1]}, "config must be an object, got [1]"),
        ({"corners": [{"x": 1}, {"y": 1}]}, "corners.1.x is missing"),
        ({"corners": [{"x": 1, "z": 2}]}, "corners.0 must not have the key 'z'"),
        ({"corners": {}}, "corners must be a list, got {}"),
        ({"pair": [1, 2]}, "pair.1 must be a text, got 2"),
        ({"pair": [1]}, "pair must have 2 values, got [1]"),
        ({"sizes": {"a": 1}}, "sizes.a must have an integer as its key"),
        ({"sizes": {"1": None}}, "sizes.1 must be a number, got None"),
        ({"limit": "no"}, "limit must be an integer or null, got 'no'"),
        ({"value": 1.5}, "value must be an integer or a text, got 1.5"),
        ({"depth": 1}, "must not have the key 'depth'"),
        ({"path": "p"}, "must not have the key 'path'"),
    ],
)
def test_what_is_not_as_declared_is_refused_with_the_field_and_what_is_accepted(change, flaw):
    with pytest.raises(Malformed) as caught:
        decode(Shape, BODY | change)
    assert str(caught.value) == flaw


def test_a_field_without_a_default_has_to_be_there():
    with pytest.raises(Malformed, match=r"^n is missing$"):
        decode(Shape, {key: value for key, value in BODY.items() if key != "n"})
    with pytest.raises(Malformed, match=r"^x is missing$"):
        decode(Shape, {key: value for key, value in BODY.items() if key != "x"})
    with pytest.raises(Malformed, match="must be an object, got 3"):
        decode(Shape, 3)


def test_a_tag_tells_records_apart():
    shapes = Tagged("k", (Shape, Dot))
    assert shapes.encode(SHAPE) == {"k": "shape", **BODY}
    assert shapes.decode({"k": "shape", "q": 7, **BODY}) == SHAPE
    assert shapes.decode(shapes.encode(Dot(Point(1)))) == Dot(Point(1))
    assert shapes.knows("dot")
    for tag in ("line", None, ["dot"]):
        assert not shapes.knows(tag)
        with pytest.raises(Malformed, match="k is of the unknown kind"):
            shapes.decode({"k": tag})


def test_what_is_mutable_is_copied_and_what_is_not_is_shared():
    @dataclass
    class Held:
        shared: Mapping[str, Any]
        own: dict[str, Any]
        listed: list[int]

    globals()["Held"] = Held
    held = Held({"a": 1}, {"b": 2}, [3])
    body = encode(held)
    assert body["shared"] is held.shared
    assert body["own"] is not held.own
    assert body["listed"] is not held.listed
    back = decode(Held, body)
    assert back == held
    assert back.own is not body["own"]


@dataclass(frozen=True)
class Rows:
    names: Sequence[str]


@dataclass(frozen=True)
class Bag:
    names: set[str]


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
def test_a_sequence_is_read_as_a_list(names):
    assert encode(Rows(tuple(names))) == {"names": names}
    assert decode(Rows, {"names": names}) == Rows(names)


def test_a_type_that_cannot_be_written_is_refused():
    with pytest.raises(TypeError, match="cannot have a field of the type <class 'set'>"):
        encode(Bag({"a"}))


@given(
    st.sampled_from(sorted(BODY)), st.none() | st.integers() | st.text() | st.just([]) | st.just({})
)
def test_no_value_makes_reading_fail_otherwise(key, value):
    try:
        decode(Shape, BODY | {key: value})
    except (Malformed, TypeError, ValueError):
        if key != "odd":
            with pytest.raises(Malformed):
                decode(Shape, BODY | {key: value})
