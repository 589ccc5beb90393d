"""The flattened form of a result."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.core.result import AUTO_FILLED, SUPPLIED_BY_USER, flatten

NAMES = st.text("abc", min_size=1, max_size=3)
LEAVES = st.one_of(st.integers(), st.booleans(), st.none(), st.lists(st.integers(), max_size=2))
TREES = st.dictionaries(
    NAMES,
    st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=8),
    max_size=4,
)


def test_nested_dictionaries_become_names_with_slashes():
    assert flatten({"a": {"b": {"c": 1}, "d": 2}, "e": 3}) == {"a/b/c": 1, "a/d": 2, "e": 3}


def test_an_empty_dictionary_leaves_no_key():
    assert flatten({"a": {}, "b": 1}) == {"b": 1}
    assert flatten({}) == {}


def test_lists_are_values():
    assert flatten({"a": {"b": [1, {"c": 2}]}}) == {"a/b": [1, {"c": 2}]}


def test_the_flat_form_is_a_copy():
    result = {"a": 1}
    flatten(result)["a"] = 2
    assert result == {"a": 1}


@given(TREES)
def test_every_leaf_is_found_under_its_path_and_in_its_order(tree):
    def leaves(node, path=()):
        for key, value in node.items():
            if isinstance(value, dict):
                yield from leaves(value, (*path, key))
            else:
                yield "/".join((*path, key)), value

    assert list(flatten(tree).items()) == list(leaves(tree))


@given(TREES)
def test_what_is_flat_stays_as_it_is(tree):
    assert flatten(flatten(tree)) == flatten(tree)


def test_what_a_user_may_supply_is_among_what_the_engine_fills_in():
    assert SUPPLIED_BY_USER < AUTO_FILLED
