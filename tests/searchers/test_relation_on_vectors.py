"""A relation decided on vectors says what it says of their configurations."""

import numpy as np
import pytest

from searchers.models.encoding import Encoding
from searchers.space import Space, choice, loguniform, only_if, quniform, randint, uniform
from searchers.space.relations import Relation

ENTRIES = {
    "low": uniform(0, 1),
    "depth": randint(1, 9),
    "step": quniform(0, 1, 0.25),
    "kind": choice(["a", "b", None]),
    "size": choice([16, 32, 64], ordered=True),
    "limit": 0.75,
    "optimizer": choice(
        [
            {"name": "sgd", "lr": loguniform(1e-3, 1), "nested": choice([{"m": uniform(0, 1)}, 3])},
            {"name": "adam", "lr": loguniform(1e-4, 0.1), "weights": [1, uniform(0, 1)]},
            "none",
        ]
    ),
    "extra": only_if({"kind": "a"}, uniform(0, 1)),
    "bound": only_if({"depth": lambda depth: depth > 4}, 0.5),
}


@pytest.mark.parametrize(
    "where",
    [
        "low < limit and depth * size <= 256",
        "step <= low or kind == None",
        "optimizer.lr < 0.05",
        "optimizer.name != 'adam' or optimizer.weights[1] > 0.5",
        "optimizer.weights[0] == 1 and optimizer.nested.m < low",
        "optimizer.nested == 3 or low < 0.5",
        "optimizer != 'none'",
        "optimizer == optimizer and low < 0.5",
        "optimizer == optimizer.nested or low < 0.5",
        "extra < 0.3",
        "extra > 0.3 and kind in ['a', 'b']",
        "low < bound",
        "not (bound == 0.5 and optimizer.name == 'sgd')",
        lambda config: config.low < 0.5 or config.optimizer == "none",
        lambda config: "extra" not in config or config["extra"] < config.low,
    ],
)
def test_a_relation_on_vectors_is_that_of_their_configurations(where):
    encoding = Encoding(Space(ENTRIES, where), "me")
    vectors = Encoding(ENTRIES, "me").from_cube(
        np.random.default_rng(1).random((60, len(encoding.columns)))
    )
    relation = Relation(where, ENTRIES)
    expected = [relation.holds(encoding.config(vector, None)) for vector in vectors.tolist()]
    assert [encoding.allows(vector) for vector in vectors.tolist()] == expected
    assert encoding._region.are_allowed(vectors).tolist() == expected
    assert True in expected


def test_a_vector_without_an_active_parameter_is_not_allowed():
    encoding = Encoding(Space(ENTRIES, "low >= 0"), "me")
    whole = encoding.encoded(
        {
            **encoding.decoded([0.5] * len(encoding.columns)),
            **encoding.assignments({"kind": "b", "optimizer": "none"}),
        }
    )
    assert encoding.allows(whole)
    place = next(place for place, column in enumerate(encoding.columns) if column.name == "low")
    assert not encoding.allows([*whole[:place], float("nan"), *whole[place + 1 :]])


def test_an_error_of_a_relation_is_that_of_a_configuration():
    space = Space({"k": choice(["a", "b"]), "x": uniform(0, 1)}, "k + x < 1")
    with pytest.raises(ValueError, match=r"computes with '[ab]', which is no number"):
        Encoding(space, "me")
