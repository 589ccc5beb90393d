from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.space.tree import assign, copied, flat_name, leaves, match, merge, nest

trees = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda inner: (
        st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


class Shape(NamedTuple):
    width: int
    depth: int


@given(trees)
def test_assigning_all_leaves_gives_the_same_tree(tree):
    assert assign(tree, dict(leaves(tree))) == tree


@given(trees)
def test_assigned_leaves_are_found_at_their_paths(tree):
    values = {path: object() for path, _ in leaves(tree)}
    assert dict(leaves(assign(tree, values))) == values


def test_assigning_does_not_change_the_tree_and_shares_other_parts():
    tree = {"a": {"b": 1}, "c": {"d": [1]}}
    changed = assign(tree, {("a", "b"): 2})
    assert tree == {"a": {"b": 1}, "c": {"d": [1]}}
    assert changed == {"a": {"b": 2}, "c": {"d": [1]}}
    assert changed["c"] is tree["c"]


@given(trees)
def test_copies_are_equal(tree):
    assert copied(tree) == tree


def test_copies_have_new_containers_and_the_same_leaves():
    own, array = Shape(1, 2), np.zeros(1)
    tree = {"a": [{"b": array}], "c": (own,)}
    copy = copied(tree)
    assert copy["a"] is not tree["a"]
    assert copy["a"][0] is not tree["a"][0]
    assert copy["a"][0]["b"] is array
    assert copy["c"][0] is own


def test_merging_shares_no_containers_of_the_base():
    base = {"a": {"x": [1]}, "b": [1]}
    merged = merge(base, {"a": {"y": 2}})
    merged["a"]["x"].append(2)
    merged["b"].append(2)
    assert base == {"a": {"x": [1]}, "b": [1]}


def test_named_tuples_stay_named_tuples():
    assert assign({"shape": Shape(1, 2)}, {("shape", 1): 3}) == {"shape": Shape(1, 3)}
    assert type(assign(Shape(1, 2), {(0,): 5})) is Shape


def test_a_grid_is_a_leaf():
    assert list(leaves({"a": {"grid_search": [1, 2]}})) == [(("a",), {"grid_search": [1, 2]})]


def test_flat_names_join_keys_and_indices():
    assert flat_name(("a", 0, "b")) == "a/0/b"
    assert flat_name(()) == ""


def test_merging_replaces_all_but_dictionaries():
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merge(base, {"a": {"y": [3]}, "b": {"z": 1}, "c": 2}) == {
        "a": {"x": 1, "y": [3]},
        "b": {"z": 1},
        "c": 2,
    }
    assert base == {"a": {"x": 1, "y": [1, 2]}, "b": 1}


def test_merging_replaces_a_grid_as_a_whole():
    assert merge({"a": {"grid_search": [1]}}, {"a": {"grid_search": [2]}}) == {
        "a": {"grid_search": [2]}
    }
    assert merge({"a": {"grid_search": [1]}}, {"a": {"b": 2}}) == {"a": {"b": 2}}


def test_names_with_slashes_become_nested_dictionaries():
    assert nest({"a/b": 1, "a/c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}


SPACE = {
    "lr": None,
    "model": {"depth": None, "layers": [None, {"units": None}], "kind": "mlp"},
    "data": np.zeros(2),
}


def matched(given_config):
    return dict(match(SPACE, given_config, lambda leaf: leaf is None))


@pytest.mark.parametrize(
    ("given_config", "expected"),
    [
        ({"lr": 1}, {("lr",): 1}),
        ({}, {}),
        ({"model": {"depth": 2}}, {("model", "depth"): 2}),
        ({"model/depth": 2}, {("model", "depth"): 2}),
        (
            {"model": {"layers": [1, {"units": 3}]}},
            {("model", "layers", 0): 1, ("model", "layers", 1, "units"): 3},
        ),
        ({"model/layers/1/units": 3}, {("model", "layers", 1, "units"): 3}),
        ({"lr": {"any": ["value"]}}, {("lr",): {"any": ["value"]}}),
        ({"model": {"kind": "mlp"}, "data": SPACE["data"]}, {}),
    ],
)
def test_configurations_match_nested_or_by_flat_names(given_config, expected):
    assert matched(given_config) == expected


@pytest.mark.parametrize(
    ("given_config", "message"),
    [
        ({"lrr": 1}, "'lrr' must be a name in the space, which has .*'lr'"),
        ({"model/width": 1}, "'model/width' must be a name in the space"),
        ({"model/layers/2": 1}, "'model/layers/2' must be a name in the space"),
        (
            {"model": {"kind": "cnn"}},
            "'model/kind' must be 'mlp' as in the space, got 'cnn'; change the space",
        ),
        ({"model": {"layers": [1]}}, "'model/layers' must be"),
        ({"data": np.ones(2)}, "'data' must be"),
    ],
)
def test_an_entry_that_does_not_match_is_named(given_config, message):
    with pytest.raises(ValueError, match=message):
        matched(given_config)
