"""Domains sampled outside of an experiment, as scripts for Ray Tune do it."""

import numpy as np
import pytest

from searchers.space import Categorical, Float, Integer, Normal, choice, randint, randn, uniform

DOMAINS = [
    Float(0.0, 1.0),
    Float(1e-4, 1.0, is_log=True),
    Integer(1, 10**9),
    Integer(1, 10**9, is_log=True),
    Normal(),
    choice(range(10**6)),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_without_a_generator_each_call_draws_anew_and_leaves_numpy_alone(domain):
    before = np.random.get_state()[1].tolist()  # noqa: NPY002  (what must not be used)
    first, second = domain.sample(size=3), domain.sample(size=3)
    assert first != second
    assert len(first) == len(second) == 3
    assert all(domain.is_valid(value) for value in [*first, *second, domain.sample()])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_a_seed_or_generator_repeats_the_draws(domain):
    expected = domain.sample(size=3, random_state=7)
    assert domain.sample(size=3, random_state=7) == expected
    assert domain.sample(size=3, random_state=np.random.default_rng(7)) == expected
    assert domain.sample(random_state=7) == expected[0] == domain.sample(np.random.default_rng(7))
    assert domain.sample(np.random.default_rng(7), size=3) == expected


def test_impossible_samples_are_refused():
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        uniform(0, 1).sample(size=0)
    with pytest.raises(TypeError, match="rng and random_state must not be given together"):
        uniform(0, 1).sample(np.random.default_rng(0), random_state=1)


def test_is_valid_knows_ends_types_and_categories():
    assert [uniform(0, 1).is_valid(value) for value in (0.5, 1.5, "a")] == [True, False, False]
    assert [randint(1, 8).is_valid(value) for value in (7, 8, 2.5)] == [True, False, False]
    assert [Integer(1, 8).is_valid(value) for value in (8, 9)] == [True, False]
    assert [Categorical(("a", "b")).is_valid(value) for value in ("a", "c")] == [True, False]
    assert randn().is_valid(12.0)


def test_scale_and_rounding_are_changed_on_a_copy():
    domain = Float(1.0, 10.0)
    assert domain.loguniform() == Float(1.0, 10.0, is_log=True)
    assert domain.loguniform().uniform() == domain.uniform() == domain == Float(1.0, 10.0)
    assert domain.quantized(0.5) == Float(1.0, 10.0, q=0.5)
    assert Integer(2, 8).quantized(2) == Integer(2, 8, q=2)
    assert Integer(1, 8).loguniform() == Integer(1, 8, is_log=True)
    with pytest.raises(ValueError, match="lower must be greater than 0 on a logarithmic scale"):
        Float(0, 1).loguniform()
    with pytest.raises(ValueError, match="lower must be divisible by q"):
        Float(0.1, 1).quantized(0.5)
