import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.domains import Categorical
from searchers.numeric import Float, Integer, Normal
from searchers.words import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (uniform(0, 2), Float(0.0, 2.0)),
        (quniform(0, 2, 0.5), Float(0.0, 2.0, 0.5)),
        (loguniform(1e-3, 1), Float(1e-3, 1.0, is_log=True)),
        (qloguniform(0.5, 8, 0.5), Float(0.5, 8.0, 0.5, is_log=True)),
        (randint(0, 5), Integer(0, 4)),
        (lograndint(1, 5), Integer(1, 4, is_log=True)),
        (qrandint(0, 6, 2), Integer(0, 6, 2)),
        (qrandint(0, 6, 1), Integer(0, 5)),
        (qrandint(0, 6), Integer(0, 5)),
        (qlograndint(2, 6, 2), Integer(2, 6, 2, is_log=True)),
        (qlograndint(2, 6, 1), Integer(2, 5, is_log=True)),
        (randn(1, 2), Normal(1.0, 2.0)),
        (randn(), Normal(0.0, 1.0)),
        (qrandn(1, 2, 0.5), Normal(1.0, 2.0, 0.5)),
        (choice(["a", 1]), Categorical(("a", 1))),
        (choice([1, 2], ordered=True), Categorical((1, 2), is_ordered=True)),
    ],
)
def test_each_word_returns_its_domain(domain, expected):
    assert domain == expected


def all_samples(domain):
    rng = np.random.default_rng(0)
    return {domain.sample(rng) for _ in range(500)}


def test_randint_and_lograndint_leave_the_upper_end_out():
    assert all_samples(randint(-1, 3)) == {-1, 0, 1, 2}
    assert all_samples(lograndint(1, 4)) == {1, 2, 3}


def test_quantised_integers_include_the_upper_end_except_where_q_is_one():
    assert all_samples(qrandint(0, 6, 3)) == {0, 3, 6}
    assert all_samples(qlograndint(3, 9, 3)) == {3, 6, 9}
    assert all_samples(qrandint(0, 2, 1)) == {0, 1}
    assert all_samples(qlograndint(1, 3, 1)) == {1, 2}


def test_quantised_integers_stay_between_bounds_that_are_no_multiples():
    assert all_samples(qrandint(1, 10, 4)) == {4, 8}


def test_quantised_floats_include_the_upper_end():
    assert all_samples(quniform(0, 0.3, 0.1)) == {0.0, 0.1, 0.2, 0.3}
    assert all_samples(qloguniform(0.1, 0.3, 0.1)) == {0.1, 0.2, 0.3}


@given(st.integers(0, 2**32))
def test_uniform_floats_stay_below_the_upper_end(seed):
    rng = np.random.default_rng(seed)
    assert uniform(0, 1).sample(rng) < 1
    assert loguniform(0.1, 1).sample(rng) < 1


@pytest.mark.parametrize("word", [randint, lograndint, qrandint])
def test_integers_need_room_below_the_upper_end(word):
    with pytest.raises(ValueError, match="lower must be less than upper=3, which is left out, got 3; move upper up by one"):
        word(3, 3)


def test_choice_keeps_python_types_and_makes_numpy_scalars_plain():
    assert [type(value) for value in choice([True, 1, 1.0, "1", None]).categories] == [bool, int, float, str, type(None)]
    assert [type(value) for value in choice(np.array([1, 2])).categories] == [int, int]
    assert [type(value) for value in grid_search(np.linspace(0, 1, 2))["grid_search"]] == [float, float]


def test_choice_takes_ranges_and_generators():
    assert choice(range(2, 4)).categories == (2, 3)
    assert choice(name for name in "ab").categories == ("a", "b")


def test_choice_keeps_objects_of_any_type_themselves():
    one, other = np.zeros(3), {"nested": [1]}
    assert choice([one, other]).categories[0] is one
    assert choice([one, other]).categories[1] is other


def test_grid_of_a_choice_tries_each_category():
    assert choice(["a", "b"]).grid() == grid_search(["a", "b"]) == {"grid_search": ["a", "b"]}


@pytest.mark.parametrize("values", ["abc", {"a", "b"}, {"a": 1}, 3, None])
@pytest.mark.parametrize("word", [choice, grid_search])
def test_what_has_no_order_or_no_elements_is_refused(word, values):
    with pytest.raises(TypeError, match=f"{word.__name__} must be given a list, got .*; put the values in square brackets"):
        word(values)


@pytest.mark.parametrize("word", [choice, grid_search])
def test_nothing_to_choose_from_is_refused(word):
    with pytest.raises(ValueError, match=f"{word.__name__} must be given one value at least, got none; leave the parameter out"):
        word([])


@pytest.mark.parametrize("inner", [uniform(0, 1), [uniform(0, 1)], {"lr": uniform(0, 1)}, grid_search([1]), sample_from(int), choice([1])])
@pytest.mark.parametrize("word", [choice, grid_search])
def test_words_inside_a_choice_or_grid_are_refused_with_the_way_out(word, inner):
    with pytest.raises(ValueError, match=r"must be given plain values, got .*; use sample_from\(lambda config"):
        word(["plain", inner])


def test_sample_from_takes_functions_only():
    with pytest.raises(TypeError, match="sample_from must be given a function, got 3; give a constant as it is"):
        sample_from(3)
