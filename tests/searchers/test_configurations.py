import json
from typing import NamedTuple

import numpy as np
import pytest

from searchers.seeding import generator
from searchers.space import (
    SearchSpace,
    choice,
    grid_search,
    loguniform,
    randint,
    sample_from,
    uniform,
)
from searchers.space.configurations import decode_configuration, key_of, record


class Shape(NamedTuple):
    width: int
    depth: int


LOSS = np.ones(3)
SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "size": choice([(8, 8), [16, 16], {"width": 3}]),
    "object": choice([abs, LOSS, None]),
    "grid": grid_search([len, 2]),
    "layers": [{"units": randint(1, 9)}, (uniform(0, 1), "relu")],
    "shape": Shape(uniform(0, 1), 3),
    "array": np.zeros(2),
    "nothing": {},
}


def no_name(value):
    raise AssertionError(value)


@pytest.mark.parametrize("seed", range(5))
def test_a_recorded_configuration_decodes_to_the_same(seed):
    config = SearchSpace(SPACE).resolve({("grid",): len}, generator(seed, 0))
    again = decode_configuration(SPACE, json.loads(json.dumps(record(SPACE, config))))
    assert again["array"] is SPACE["array"]
    assert again["object"] is config["object"]
    assert type(again["shape"]) is Shape
    assert key_of(SPACE, again, no_name) == key_of(SPACE, config, no_name)
    assert {name: value for name, value in again.items() if name not in ("array", "object")} == {
        name: value for name, value in config.items() if name not in ("array", "object")
    }


def test_an_object_outside_the_space_cannot_be_decoded():
    space = {"loss": sample_from(object)}
    recorded = record(space, SearchSpace(space).resolve({}, None))
    with pytest.raises(
        ValueError,
        match=r"must be found in the space, got {'object': 'builtins.object'}; the space has "
        r"changed since",
    ):
        decode_configuration(space, recorded)


def test_a_category_that_was_removed_cannot_be_decoded():
    recorded = record({"f": choice([abs, len])}, {"f": len})
    with pytest.raises(ValueError, match="the space has changed since"):
        decode_configuration({"f": choice([abs])}, recorded)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"a": 0.1}, {"a": 0.1}, True),
        ({"a": 0.1}, {"a": 0.1 + 1e-18}, True),
        ({"a": 0.1}, {"a": 0.10000000000000002}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": float("nan")}, {"a": float("nan")}, True),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}, True),
        ({"a": [1, 2]}, {"a": (1, 2)}, False),
        ({"a": {}}, {"a": {"b": None}}, False),
        ({"a": "1"}, {"a": 1}, False),
    ],
)
def test_keys_are_the_same_for_equal_configurations_alone(one, other, is_same):
    assert (key_of({}, one, no_name) == key_of({}, other, no_name)) == is_same
