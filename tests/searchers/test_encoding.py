import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.models.encoding import Encoding, key
from searchers.space import (
    Categorical,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qloguniform,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tests.tiers import examples

SPACE = {
    "lr": loguniform(1e-4, 1.0),
    "layers": [{"units": lograndint(4, 65)}, {"units": randint(1, 5)}],
    "drop": quniform(0.0, 0.5, 0.1),
    "decay": qloguniform(0.1, 1.0, 0.1),
    "act": choice(["relu", "tanh", "gelu"]),
    "size": Categorical((16, 32, 64), is_ordered=True),
    "offset": randn(1.0, 2.0),
    "epochs": 5,
}


def vector_of(encoding, config):
    return encoding.encoded(encoding.assignments(config))


def encoding_of(space=SPACE):
    return Encoding(space, "TreeSearch")


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32))
def test_snapped_vectors_equal_those_of_their_configurations(seed):
    encoding = encoding_of()
    for row in encoding.from_cube(np.random.default_rng(seed).random((5, len(encoding.columns)))):
        assert encoding.settled(row.tolist()) == pytest.approx(row.tolist(), abs=1e-6)
        config = encoding.config(row.tolist(), None)
        assert vector_of(encoding, config) == pytest.approx(row.tolist(), abs=1e-6)


def test_numbers_are_encoded_as_positions_and_categories_as_indices():
    encoding = encoding_of(
        {"lr": loguniform(1e-4, 1.0), "act": choice(["relu", "tanh"]), "size": SPACE["size"]}
    )
    assert vector_of(encoding, {"lr": 0.01, "act": "tanh", "size": 32}) == [0.5, 1.0, 0.5]
    assert encoding.num_categories == (0, 2, 0)


def test_each_value_of_a_rounded_parameter_is_as_likely_as_its_interval_is_long():
    encoding = encoding_of({"n": randint(0, 4)})
    found = encoding.from_cube(np.linspace(0, 1, 4001)[:, None])[:, 0]
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == pytest.approx([0.125, 0.375, 0.625, 0.875])
    assert counts.tolist() == [1000, 1000, 1000, 1001]


def test_inactive_parameters_are_nan_and_not_in_the_configuration():
    encoding = encoding_of({"a": uniform(0, 1), "b": uniform(0, 1)})
    vector = vector_of(encoding, {"a": 0.5})
    assert vector[0] == 0.5
    assert math.isnan(vector[1])
    assert encoding.decoded(vector) == {("a",): 0.5}
    assert key(vector) == key(vector) == (0.5, None)
    assert np.isnan(encoding.snapped(np.array([vector]))[0, 1])


def test_a_finite_space_has_a_size_and_numbered_points():
    encoding = encoding_of(
        {
            "n": randint(0, 4),
            "act": choice(["a", "b", "c"]),
            "size": SPACE["size"],
            "drop": SPACE["drop"],
        }
    )
    assert encoding.size == 4 * 3 * 3 * 6
    assert len({key(encoding.numbered(number)) for number in range(encoding.size)}) == encoding.size
    assert encoding.numbered(encoding.size) == encoding.numbered(0)


@pytest.mark.parametrize(
    "more", [{"x": uniform(0, 1)}, {"x": sample_from(lambda: 1)}, {"x": randn()}]
)
def test_other_spaces_have_no_size(more):
    assert encoding_of({"n": randint(0, 4), **more}).size is None


def test_a_large_range_needs_no_table():
    encoding = encoding_of({"n": randint(0, 10**12), "m": lograndint(1, 10**12)})
    assert encoding.size == 10**12 * (10**12 - 1)
    assert all(column.edges is None for column in encoding.columns)
    assert 0 <= encoding.config([0.5, 0.5], None)["n"] < 10**12


def test_a_grid_is_refused():
    with pytest.raises(
        ValueError,
        match="'n' must be a range of numbers or a choice for TreeSearch, got grid_search",
    ):
        encoding_of({"n": grid_search([1, 2])})


def test_computed_parameters_follow_the_others():
    config = encoding_of(
        {"x": uniform(0, 1), "twice": sample_from(lambda config: 2 * config["x"])}
    ).config([0.25], None)
    assert config == {"x": 0.25, "twice": 0.5}
