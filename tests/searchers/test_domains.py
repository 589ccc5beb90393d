import math
import pickle
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.space import choice, randint, randn, uniform
from searchers.space.domains import Categorical, Float, Integer, Normal

finite = st.floats(-1e6, 1e6)
positive = st.floats(1e-6, 1e6)
steps = st.sampled_from([0.001, 0.1, 0.25, 0.5, 1.0, 3.0, 1e-5])


@st.composite
def floats(draw, scales=(False, True)):
    on_log = draw(st.sampled_from(scales))
    low, high = sorted(
        draw(
            st.tuples(*[positive if on_log else finite] * 2).filter(lambda ends: ends[0] != ends[1])
        )
    )
    return Float(low, high, is_log=on_log)


@st.composite
def rounded_floats(draw):
    q, on_log = draw(steps), draw(st.booleans())
    first = draw(st.integers(1 if on_log else -1000, 1000))
    return Float(first * q, (first + draw(st.integers(1, 1000))) * q, q, is_log=on_log)


@st.composite
def integers(draw):
    q, on_log = draw(st.integers(1, 7)), draw(st.booleans())
    first = draw(st.integers(1 if on_log else -(10**9), 10**9))
    return Integer(first * q, (first + draw(st.integers(0, 10**6))) * q, q, is_log=on_log)


ordered_or_not = st.builds(
    Categorical,
    st.lists(st.text(max_size=3) | st.integers(), min_size=1, max_size=6, unique=True).map(tuple),
    st.booleans(),
)
normals = st.builds(Normal, finite, positive, st.none() | steps)
bounded = floats() | rounded_floats() | integers() | ordered_or_not
every = bounded | normals
generators = st.integers(0, 2**32).map(np.random.default_rng)


@given(every, generators)
def test_samples_lie_in_the_domain_and_are_plain_python(domain, rng):
    for _ in range(5):
        value = domain.sample(rng)
        assert domain.contains(value)
        assert type(value) in {float, int, str}


@given(every, generators)
def test_samples_are_of_the_type_that_the_domain_promises(domain, rng):
    promised = {Float: float, Normal: float, Integer: int}.get(type(domain))
    value = domain.sample(rng)
    assert promised is None or type(value) is promised


@given(every, generators, st.none() | st.floats(-3, 5))
def test_perturbing_never_leaves_the_domain(domain, rng, factor):
    value = domain.sample(rng)
    for _ in range(5):
        value = domain.perturb(value, rng, factor=factor)
        assert domain.contains(value)


@given(floats() | rounded_floats() | integers(), finite, generators)
def test_perturbing_starts_at_the_nearest_value_of_the_domain(domain, stranger, rng):
    assert domain.contains(domain.perturb(stranger, rng))


@given(every, generators)
def test_same_generator_state_gives_the_same_perturbation(domain, rng):
    value, seed = domain.sample(rng), int(rng.integers(2**32))
    again = [domain.perturb(value, np.random.default_rng(seed)) for _ in range(2)]
    assert again[0] == again[1]


@given(rounded_floats() | integers() | ordered_or_not, generators)
def test_rounded_values_survive_the_unit_interval_exactly(domain, rng):
    value = domain.sample(rng)
    assert domain.from_unit(domain.to_unit(value)) == value


@given(floats(), st.floats(0, 1))
def test_real_values_survive_the_unit_interval_up_to_rounding(domain, unit):
    value = domain.from_unit(unit)
    again = domain.from_unit(domain.to_unit(value))
    assert again == pytest.approx(value, rel=1e-9, abs=1e-9 * (domain.upper - domain.lower))


@given(st.builds(Normal, st.just(0.0), positive), st.floats(0.001, 0.999))
def test_normal_values_survive_the_unit_interval_up_to_rounding(domain, unit):
    assert domain.to_unit(domain.from_unit(unit)) == pytest.approx(unit, rel=1e-6)


@given(every, st.floats(allow_nan=False))
def test_every_place_gives_a_value_of_the_domain_and_every_value_a_place(domain, unit):
    value = domain.from_unit(unit)
    assert domain.contains(value)
    assert 0 <= domain.to_unit(value) <= 1


@given(floats() | rounded_floats() | integers(), st.floats(0, 1), st.floats(0, 1))
def test_the_unit_interval_keeps_the_order_of_numbers(domain, one, other):
    low, high = sorted((one, other))
    assert domain.from_unit(low) <= domain.from_unit(high)


@given(floats() | rounded_floats() | integers(), st.floats(allow_nan=False))
def test_clipping_gives_a_value_of_the_domain_and_changes_no_such_value(domain, number):
    clipped = domain.clip(number)
    assert domain.contains(clipped)
    assert domain.clip(clipped) == clipped


@given(floats() | rounded_floats() | integers())
def test_clipping_stops_at_the_ends(domain):
    assert domain.clip(-math.inf) == domain.lower
    assert domain.clip(math.inf) == domain.upper


@given(every, generators)
def test_casting_keeps_a_value_of_the_domain(domain, rng):
    value = domain.sample(rng)
    assert domain.cast(value) == value


@given(every)
def test_domains_survive_pickling_and_compare_by_content(domain):
    assert pickle.loads(pickle.dumps(domain)) == domain  # noqa: S301  (made here)


@given(bounded | normals)
def test_domains_are_frozen(domain):
    name = type(domain).__slots__[0]
    with pytest.raises(AttributeError):
        setattr(domain, name, None)


@pytest.mark.parametrize(
    "domain", [Float(0, 1), Float(0, 1, 0.25), Integer(1, 9), Normal(), Normal(q=0.5)]
)
def test_nan_is_refused(domain):
    assert not domain.contains(math.nan)
    with pytest.raises(ValueError, match="must be a"):
        domain.cast(math.nan)
    with pytest.raises(ValueError, match="must be a"):
        domain.clip(math.nan)


@pytest.mark.parametrize("domain", [Float(0, 5), Integer(0, 5), Normal()])
@pytest.mark.parametrize("value", [True, None, "1", [1]])
def test_only_numbers_are_contained_in_domains_of_numbers(domain, value):
    assert not domain.contains(value)


def test_numpy_numbers_are_contained_and_become_plain():
    assert Float(0, 5).contains(np.float32(2.5))
    assert Integer(0, 5).contains(np.int64(3))
    assert type(Float(0, 5).cast(np.float64(2.5))) is float
    assert type(Integer(0, 5).cast(np.int64(3))) is int
    assert type(Integer(0, 6, 2).clip(np.int64(3))) is int


def test_multiples_are_the_numbers_that_people_write():
    assert [Float(0.0, 0.5, 0.1).from_unit(place / 5) for place in range(6)] == [
        0.0,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
    ]


def test_multiples_are_recognised_in_spite_of_rounding_errors():
    assert Float(0.0, 0.3, 0.1).contains(3 * 0.1)
    assert Float(0.0, 3 * 0.1, 0.1).upper == 0.3


def test_all_multiples_are_equally_likely_ends_included():
    rng = np.random.default_rng(0)
    drawn = [Float(0, 1, 0.25).sample(rng) for _ in range(5000)]
    assert {value: round(drawn.count(value) / 5000, 1) for value in set(drawn)} == dict.fromkeys(
        [0.0, 0.25, 0.5, 0.75, 1.0], 0.2
    )


def test_orders_of_magnitude_are_equally_likely_on_a_logarithmic_scale():
    rng = np.random.default_rng(0)
    logs = [math.log10(Float(1e-4, 1.0, is_log=True).sample(rng)) for _ in range(5000)]
    assert mean(logs) == pytest.approx(-2, abs=0.1)
    assert sum(log < -3 for log in logs) / 5000 == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    "domain", [Float(1e-6, 1.0000000000000002e-06, is_log=True), Integer(2**60, 2**60)]
)
def test_bounds_closer_than_the_resolution_of_the_scale_do_no_harm(domain):
    assert domain.to_unit(domain.lower) == 0.5
    assert domain.contains(domain.from_unit(0.5))


def test_integers_beyond_the_precision_of_floats_are_drawn_exactly():
    drawn = [Integer(0, 2**62).sample(np.random.default_rng(seed)) for seed in range(20)]
    assert any(value % 2 for value in drawn)
    assert Integer(0, 2**62).cast(2**61 + 1) == 2**61 + 1


@given(st.integers(0, 100), generators)
def test_integers_move_by_one_at_least(value, rng):
    domain = Integer(0, 100)
    assert domain.perturb(value, rng, factor=1.0001) == min(value + 1, 100)
    assert domain.perturb(value, rng, factor=0.9999) == max(value - 1, 0)


@given(floats(scales=(False,)), st.floats(0, 1), generators)
def test_real_numbers_move_by_the_factors_share_of_the_width_and_stop_at_the_end(domain, unit, rng):
    start = domain.from_unit(unit)
    width = domain.upper - domain.lower
    assert domain.perturb(start, rng, factor=1.2) == pytest.approx(
        min(start + 0.2 * width, domain.upper), abs=1e-6 * width + 1e-9
    )


def test_steps_on_a_logarithmic_scale_are_factors():
    assert Float(1e-4, 1.0, is_log=True).perturb(
        1e-3, np.random.default_rng(0), factor=1.25
    ) == pytest.approx(1e-2)


def test_zero_and_negative_numbers_move_too():
    rng = np.random.default_rng(0)
    assert Float(-1, 1).perturb(0.0, rng, factor=1.2) == pytest.approx(0.4)
    assert Float(-1, 1).perturb(-0.3, rng, factor=1.2) == pytest.approx(0.1)


def test_normal_values_move_by_parts_of_four_standard_deviations():
    rng = np.random.default_rng(0)
    assert Normal(0, 2).perturb(1.0, rng, factor=1.25) == pytest.approx(3.0)
    assert Normal(0, 1, q=5).perturb(0.0, rng, factor=0.8) == -5.0


def test_default_factors_are_up_and_down_by_a_fifth():
    rng = np.random.default_rng(0)
    moved = {round(Float(0, 1).perturb(0.5, rng), 6) for _ in range(50)}
    assert moved == {0.3, 0.7}


def test_ordered_categories_move_to_a_neighbour():
    sizes, rng = Categorical((16, 32, 64), is_ordered=True), np.random.default_rng(0)
    assert sizes.perturb(32, rng, factor=1.2) == 64
    assert sizes.perturb(32, rng, factor=0.8) == 16
    assert sizes.perturb(64, rng, factor=1.2) == 32
    assert {sizes.perturb(32, rng) for _ in range(50)} == {16, 64}


@given(ordered_or_not, generators)
def test_categories_change_whenever_there_is_another(domain, rng):
    value = domain.sample(rng)
    assert (domain.perturb(value, rng) == value) == (len(domain.categories) == 1)


def test_unordered_categories_move_to_all_others():
    rng = np.random.default_rng(0)
    assert {Categorical(tuple("abcd")).perturb("b", rng) for _ in range(100)} == {"a", "c", "d"}


def test_a_value_that_is_no_category_is_replaced_by_one():
    assert Categorical(("a", "b")).perturb("z", np.random.default_rng(0)) in {"a", "b"}


def test_categories_are_found_by_identity_type_and_equality_in_this_order():
    arrays = (np.zeros(2), np.zeros(2))
    assert Categorical((1, True, 1.0)).index(True) == 1
    assert Categorical((1, True, 1.0)).index(1.0) == 2
    assert Categorical((1, 2)).cast(2.0) == 2
    assert Categorical(arrays).index(arrays[1]) == 1
    assert not Categorical(arrays).contains(np.zeros(2))


def test_categories_are_returned_not_copied():
    layers = [64, 64]
    assert Categorical((layers,)).sample(np.random.default_rng(0)) is layers


def test_an_unknown_category_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"must be one of \[1, 2\], got 3; add it"):
        Categorical((1, 2)).clip(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(1, 1), "lower must be less than upper=1.0, got 1.0; give"),
        (lambda: Float(2, 1), "lower must be less than upper=1.0, got 2.0; give"),
        (lambda: Float(0, math.inf), "upper must be finite, got inf; use"),
        (lambda: Float(math.nan, 1), "lower must be finite, got nan; use"),
        (
            lambda: Float(-1e308, 1e308),
            "lower must be nearer to upper=1e\\+308 than the largest float, got -1e\\+308",
        ),
        (
            lambda: Float(0, 1, is_log=True),
            "lower must be greater than 0 on a logarithmic scale, got 0.0; use",
        ),
        (lambda: Float(0, 1, 0.3), "upper must be divisible by q=0.3, got 1.0; move"),
        (lambda: Float(0.1, 0.6, 0.3), "lower must be divisible by q=0.3, got 0.1; move"),
        (lambda: Float(0, 1, 0), "q must be greater than 0, got 0; give"),
        (lambda: Float(0, 1, -0.1), "q must be greater than 0, got -0.1; give"),
        (
            lambda: Integer(3, 2),
            "there must be a multiple of q=1 from lower=3 to 2, got none; move",
        ),
        (
            lambda: Integer(1, 9, 10),
            "there must be a multiple of q=10 from lower=1 to 9, got none; move",
        ),
        (
            lambda: Integer(0, 10, is_log=True),
            "lower must be greater than 0 on a logarithmic scale, got 0; use",
        ),
        (lambda: Integer(0.5, 3), "lower must be a whole number, got 0.5; use"),
        (lambda: Integer(0, 2**63), "must hold fewer than 2\\*\\*63 values"),
        (lambda: Integer(0, 10**400), "upper must be finite"),
        (lambda: Integer(0, 3, 0), "q must be greater than 0, got 0"),
        (lambda: Normal(0, 0), "sd must be greater than 0, got 0; give"),
        (lambda: Normal(0, 1, -1), "q must be greater than 0, got -1; give"),
        (lambda: Categorical(()), "categories must hold one object at least, got none; leave"),
    ],
)
def test_impossible_bounds_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Float("0", 1),
        lambda: Integer(None, 1),
        lambda: Normal(True),
        lambda: Float(0, 1, q="x"),
    ],
)
def test_bounds_that_are_not_numbers_are_refused_at_once(make):
    with pytest.raises(TypeError, match="must be a number, got"):
        make()


def test_whole_floats_serve_as_bounds_of_integers():
    assert Integer(1, 1e3) == Integer(1, 1000)
    assert type(Integer(1, 1e3).upper) is int


SAMPLED_ALONE = [
    Float(0.0, 1.0),
    Float(1e-4, 1.0, is_log=True),
    Integer(1, 10**9),
    Integer(1, 10**9, is_log=True),
    Normal(),
    choice(range(10**4)),
]


@pytest.mark.parametrize("domain", SAMPLED_ALONE, ids=repr)
def test_without_a_generator_each_call_draws_anew_and_leaves_numpy_alone(domain):
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second = domain.sample(size=3), domain.sample(size=3)
    assert first != second
    assert len(first) == len(second) == 3
    assert all(domain.is_valid(value) for value in [*first, *second, domain.sample()])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("domain", SAMPLED_ALONE, ids=repr)
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


def test_is_valid_checks_bounds_types_and_categories():
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
