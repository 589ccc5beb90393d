import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.space.conditions import Branching
from searchers.space.domains import Categorical, Float, Integer, Normal
from searchers.space.functions import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    only_if,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    uniform,
)
from searchers.space.sample_from import sample_from


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


def test_randint_and_lograndint_exclude_the_upper_bound():
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
    with pytest.raises(
        ValueError,
        match="lower must be less than upper=3, which is left out, got 3; move upper up by one",
    ):
        word(3, 3)


def test_choice_keeps_python_types_and_makes_numpy_scalars_plain():
    assert [type(value) for value in choice([True, 1, 1.0, "1", None]).categories] == [
        bool,
        int,
        float,
        str,
        type(None),
    ]
    assert [type(value) for value in choice(np.array([1, 2])).categories] == [int, int]
    assert [type(value) for value in grid_search(np.linspace(0, 1, 2))["grid_search"]] == [
        float,
        float,
    ]


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
def test_values_without_order_are_refused(word, values):
    with pytest.raises(
        TypeError,
        match=f"{word.__name__} must be given a list, got .*; put the values in square brackets",
    ):
        word(values)


@pytest.mark.parametrize("word", [choice, grid_search])
def test_an_empty_list_is_refused(word):
    with pytest.raises(
        ValueError,
        match=f"{word.__name__} must be given one value at least, got none; leave the "
        "parameter out",
    ):
        word([])


INNER = [
    uniform(0, 1),
    [uniform(0, 1)],
    {"lr": uniform(0, 1)},
    sample_from(int),
    choice([1]),
    choice([uniform(0, 1)]),
]


@pytest.mark.parametrize("inner", [*INNER, grid_search([1]), only_if({"a": 1}, 1)])
def test_domains_inside_a_grid_are_refused_with_a_remedy(inner):
    with pytest.raises(
        ValueError,
        match=r"must be given plain values, got .*; use sample_from\(lambda config.*, or only_if",
    ):
        grid_search(["plain", inner])


@pytest.mark.parametrize("inner", INNER)
def test_domains_inside_a_choice_make_it_one_between_sub_spaces(inner):
    word = choice(["plain", inner], ordered=True, prior="plain", prior_confidence="high")
    assert word == Branching(
        ("plain", inner), is_ordered=True, prior="plain", prior_confidence="high"
    )
    assert word.selector == Categorical((0, 1), is_ordered=True, prior=0, prior_confidence="high")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: choice([uniform(0, 1), grid_search([1])]),
            "choice must hold no grid, got one inside .*; a grid has no points|use choice",
        ),
        (
            lambda: choice([{"a": {"b": grid_search([1])}, "c": uniform(0, 1)}]),
            "choice must hold no grid, got one at 'a/b' inside",
        ),
        (
            lambda: choice([1, only_if({"a": 1}, uniform(0, 1))]),
            "always there, got only_if as option 1; put the choice into only_if",
        ),
        (
            lambda: choice([uniform(0, 1), "a"], prior="b"),
            "prior must be one of the options, got 'b'; .* its number, 0 to 1",
        ),
        (lambda: choice([uniform(0, 1), "a"], prior=2), "prior must be one of the options, got 2"),
        (
            lambda: only_if({"a": 1}, {"x": grid_search([1])}),
            "only_if must hold no grid, got one at 'x'",
        ),
        (
            lambda: only_if({}, 1),
            "only_if must be given one condition at least, got none; leave only_if out",
        ),
        (lambda: Branching(()), "choice must be given one value at least"),
    ],
)
def test_impossible_choices_and_conditions_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("conditions", ["a", [("a", 1)], {1: 2}])
def test_conditions_are_a_dictionary_with_names(conditions):
    with pytest.raises(
        TypeError, match="only_if must be given a dictionary from names to values, got"
    ):
        only_if(conditions, uniform(0, 1))


@pytest.mark.parametrize(
    ("make", "prior"),
    [
        (lambda **prior: uniform(0, 1, **prior), 0.3),
        (lambda **prior: quniform(0, 1, 0.25, **prior), 0.5),
        (lambda **prior: loguniform(1e-4, 1, **prior), 1e-2),
        (lambda **prior: qloguniform(0.5, 8, 0.5, **prior), 2.5),
        (lambda **prior: randint(0, 5, **prior), 4),
        (lambda **prior: lograndint(1, 5, **prior), 2),
        (lambda **prior: qrandint(0, 6, 2, **prior), 6),
        (lambda **prior: qrandint(0, 6, **prior), 5),
        (lambda **prior: qlograndint(2, 6, 2, **prior), 2),
        (lambda **prior: qlograndint(2, 6, 1, **prior), 3),
        (lambda **prior: choice(["tanh", "relu"], **prior), "relu"),
        (lambda **prior: choice([{"a": uniform(0, 1)}, "none"], **prior), "none"),
        (lambda **prior: choice([{"a": uniform(0, 1)}, "none"], **prior), 0),
    ],
)
def test_every_bounded_word_takes_a_prior(make, prior):
    domain, plain = make(prior=prior, prior_confidence="low"), make()
    assert (domain.prior, domain.prior_confidence) == (prior, "low")
    assert type(domain.prior) is type(prior)
    assert (plain.prior, plain.prior_confidence) == (None, "medium")
    assert make(prior=prior) == make(prior=prior, prior_confidence="medium") != domain != plain
    assert f"prior={prior!r}, prior_confidence='low'" in repr(domain)
    assert "prior" not in repr(plain)
    assert copy.deepcopy(domain) == domain


def test_sample_from_takes_functions_only():
    with pytest.raises(
        TypeError, match="sample_from must be given a function, got 3; give a constant as it is"
    ):
        sample_from(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: uniform(0, 1, prior=2),
            (
                r"prior must lie in Float\(lower=0.0, upper=1.0, q=None, is_log=False\), got "
                r"2; widen "
                r"the domain"
            ),
        ),
        (lambda: uniform(0, 1, prior="x"), "prior must lie in .*, got 'x'"),
        (lambda: quniform(0, 1, 0.25, prior=0.3), "prior must lie in .*q=0.25.*, got 0.3"),
        (lambda: randint(0, 5, prior=5), "prior must lie in Integer.*, got 5"),
        (lambda: randint(0, 5, prior=1.5), "prior must lie in Integer.*, got 1.5"),
        (lambda: choice(["a", "b"], prior="c"), "prior must lie in Categorical.*, got 'c'"),
        (
            lambda: uniform(0, 1, prior=0.5, prior_confidence="sure"),
            "prior_confidence must be one of .*, got 'sure'; the default is 'medium'",
        ),
        (
            lambda: uniform(0, 1, prior_confidence="high"),
            "prior_confidence must come with a prior, got 'high' alone; add prior=",
        ),
    ],
)
def test_priors_outside_the_domain_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_prior_changes_nothing_about_sampling():
    draws = [
        [word.sample(np.random.default_rng(3)) for _ in range(5)]
        for word in (uniform(0, 1), uniform(0, 1, prior=0.9))
    ]
    assert draws[0] == draws[1]


def test_normal_words_take_no_prior():
    for make in (lambda: randn(0, 1, prior=0.5), lambda: qrandn(0, 1, 0.5, prior=0.5)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'prior'"):
            make()
    assert (randn().prior, randn().prior_confidence) == (None, "medium")


@pytest.mark.parametrize("word", [choice, grid_search])
def test_several_arguments_instead_of_a_list_are_refused_with_a_remedy(word):
    with pytest.raises(
        TypeError,
        match=rf"{word.__name__} must be given one list, got 2 arguments; pass a list: "
        rf"{word.__name__}\(\['adam', 'sgd'\]\)",
    ):
        word("adam", "sgd")
    assert word(["adam", "sgd"])
