"""Domains of hyperparameters: sample, check, round and perturb values; with priors.

Every domain maps its values to the unit interval and back. Numeric domains do so on their own
scale: on a logarithmic one, equal steps of the interval are equal factors of the value. Rounded
domains (integers, multiples of `q`) give each value the interval of the scale that rounds to it,
the two ends included, so that ``from_unit(to_unit(value)) == value``.

Random numbers come from the generator that is passed in; only `Domain.sample` creates one if it
gets none, for use outside of experiments. Values are plain Python objects, never numpy scalars.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Self, final

if TYPE_CHECKING:
    # For annotations only, so that importing the functions of search spaces stays cheap.
    from numpy.random import Generator


CONFIDENCES: Final = ("low", "medium", "high")
DEFAULT_CONFIDENCE: Final = "medium"
PRIOR_FIELDS: Final = frozenset({"prior", "prior_confidence"})
"""Fields of a domain that are shown and stored only if there is a prior."""

DEFAULT_FACTORS = (1.2, 0.8)
"""Default factors of a perturbation, up and down."""


class Domain(ABC):
    """The values that a hyperparameter may take.

    Attributes:
        prior: The value expected to be best, None for no prior. Sampling ignores it; searchers
            decide how to use it.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``: how sure that is.
    """

    __slots__ = ()

    prior: Any = None
    prior_confidence: str = DEFAULT_CONFIDENCE

    def sample(
        self,
        rng: Generator | None = None,
        *,
        size: int = 1,
        random_state: int | Generator | None = None,
    ) -> Any:
        """Draw a value, or a list of values.

        Args:
            rng: Random number generator.
            size: How many values to draw.
            random_state: Ray Tune's name for `rng`: a generator, or the seed of a new one. With
                neither, a new generator is seeded by the operating system, so that each call draws
                other values; numpy's global generator is not used.

        Returns:
            One value where `size` is 1, otherwise a list of them.

        Raises:
            TypeError: If `rng` and `random_state` are both given.
            ValueError: If `size` is less than 1.

        Departures:
            Ray Tune's first argument is a configuration, its seedless draws come from numpy's
            global generator, and `random_state` may be a ``RandomState``.
        """
        if rng is None or random_state is not None or size != 1:
            return self._sample_alone(rng, size, random_state)
        return self._draw(rng)

    def is_valid(self, value: Any) -> bool:
        """Return whether the domain contains the value: Ray Tune's name for `contains`."""
        return self.contains(value)

    def _sample_alone(
        self, rng: Generator | None, size: int, random_state: int | Generator | None
    ) -> Any:
        if rng is not None and random_state is not None:
            raise TypeError(
                f"rng and random_state must not be given together, got {rng!r} and "
                f"{random_state!r}; leave one out"
            )
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}; leave it out for one value")
        if rng is None:
            import numpy as np  # noqa: PLC0415  (importing the space words stays cheap)

            rng = np.random.default_rng(random_state)
        return self._draw(rng) if size == 1 else [self._draw(rng) for _ in range(size)]

    def _draw(self, rng: Generator) -> Any:
        """Draw one value; a user's class may override `sample` instead."""
        raise NotImplementedError(f"{type(self).__name__} must override _draw, or sample")

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Return whether the domain contains the value."""

    @abstractmethod
    def cast(self, value: Any) -> Any:
        """Return the value in the domain's type, rounded; it may still lie outside the bounds.

        Raises:
            ValueError: If that is impossible, e.g. for NaN.
        """

    @abstractmethod
    def clip(self, value: Any) -> Any:
        """Return the domain's nearest value.

        Raises:
            ValueError: If there is none, as for an unknown category.
        """

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """Return the value's position between 0 and 1, clipped."""

    @abstractmethod
    def from_unit(self, unit: float) -> Any:
        """Return the value at a position between 0 and 1, which is clipped."""

    @abstractmethod
    def perturb(self, value: Any, rng: Generator, *, factor: float | None = None) -> Any:
        """Return a neighbouring value of the domain.

        Args:
            value: The value to start from; clipped first.
            rng: Random number generator.
            factor: How far to move: 1.2 goes up by 0.2 of the unit interval, 0.8 down by 0.2. None
                draws one of these two.
        """


@final
@dataclass(frozen=True, slots=True)
class Categorical(Domain):
    """One of several objects.

    Attributes:
        categories: The objects, at least one. The objects themselves are returned, not copies.
        is_ordered: Whether neighbours in the list are similar, so that perturbing moves to one of
            them.
        prior: The category expected to be best, None for no prior: a category None cannot be one.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Raises:
        ValueError: If there is no category, or the prior is none of them.

    Example:
        >>> sizes = Categorical((16, 32, 64), is_ordered=True)
        >>> sizes.from_unit(0.99), sizes.contains(48), sizes.grid()
        (64, False, {'grid_search': [16, 32, 64]})
    """

    categories: tuple[Any, ...]
    is_ordered: bool = False
    prior: Any = None
    prior_confidence: str = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        """Check the categories and the prior."""
        object.__setattr__(self, "categories", tuple(self.categories))
        if not self.categories:
            raise ValueError(
                "categories must hold one object at least, got none; leave the parameter out where "
                "there is no choice"
            )
        object.__setattr__(self, "prior", checked_prior(self))

    def __repr__(self) -> str:
        return shown(self)

    def grid(self) -> dict[str, list[Any]]:
        """Return a grid over the same objects, so that each is tried."""
        return {"grid_search": list(self.categories)}

    def index(self, value: Any) -> int:
        """Return the index of the category that equals the value.

        Raises:
            ValueError: If there is none.
        """
        # The same object first, then an equal one of the same type, then any equal one: True must
        # not be found as 1 if both are categories.
        for is_match in (_is_same, _is_equal_in_type, _is_equal):
            for place, category in enumerate(self.categories):
                if is_match(category, value):
                    return place
        raise ValueError(
            f"a value must be one of {list(self.categories)!r}, got {value!r}; add it to the "
            "categories"
        )

    def _draw(self, rng: Generator) -> Any:
        """Draw a category, each equally likely."""
        return self.categories[int(rng.integers(len(self.categories)))]

    def contains(self, value: Any) -> bool:
        """Return whether the value equals a category."""
        return any(
            _is_same(category, value) or _is_equal(category, value) for category in self.categories
        )

    def cast(self, value: Any) -> Any:
        """Return the category that equals the value."""
        return self.categories[self.index(value)]

    def clip(self, value: Any) -> Any:
        """Return the category that equals the value: different ones have no distance."""
        return self.cast(value)

    def to_unit(self, value: Any) -> float:
        """Return the middle of the value's share of the unit interval."""
        return (self.index(value) + 0.5) / len(self.categories)

    def from_unit(self, unit: float) -> Any:
        """Return the category whose share of the unit interval contains the position."""
        return self.categories[
            min(int(clamp(unit) * len(self.categories)), len(self.categories) - 1)
        ]

    def perturb(self, value: Any, rng: Generator, *, factor: float | None = None) -> Any:
        """Return another category; a neighbour if ordered, on the side of `factor` if possible.

        If there is only one category, it is returned. A value that is no category is replaced by a
        random one.
        """
        last = len(self.categories) - 1
        if not self.contains(value):
            return self._draw(rng)
        if last == 0:
            return self.categories[0]
        place = self.index(value)
        if not self.is_ordered:
            return self.categories[(place + 1 + int(rng.integers(last))) % (last + 1)]
        direction = 1 if step_from(factor, rng) >= 0 else -1
        return self.categories[
            place + direction if 0 <= place + direction <= last else place - direction
        ]


def step_from(factor: float | None, rng: Generator) -> float:
    """Return the signed step of a factor, e.g. 0.2 for 1.2; of a random default if None."""
    if factor is None:
        factor = DEFAULT_FACTORS[int(rng.integers(2))]
    return factor - 1


def clamp(unit: float) -> float:
    """Return the nearest number between 0 and 1."""
    return min(max(unit, 0.0), 1.0)


def _is_same(category: Any, value: Any) -> bool:
    return category is value


def _is_equal_in_type(category: Any, value: Any) -> bool:
    return type(category) is type(value) and _is_equal(category, value)


def _is_equal(category: Any, value: Any) -> bool:
    try:
        # NaN does not equal itself, and one that was read from a file is another object.
        return bool(category == value) or (_is_nan(category) and _is_nan(value))
    except ValueError:  # arrays, which compare element by element, are only found by identity
        return False


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


MAX_NUM_INTEGERS = 2**63 - 1
"""The most integers that numpy's generators can draw from."""
_TAIL = 1e-12


class _Interval(Domain):
    """Numbers between two bounds, both included, on a linear or logarithmic scale.

    They are rounded to multiples of `q`, if it is given.
    """

    __slots__ = ()

    lower: float
    upper: float
    q: float | None
    is_log: bool

    def _draw(self, rng: Generator) -> Any:
        """Draw a value, equally likely anywhere on the domain's scale."""
        return self.from_unit(rng.random())

    def clip(self, value: Any) -> Any:
        """Return the nearest value of the domain."""
        if value <= self.lower:
            return self.lower
        if value >= self.upper:
            return self.upper
        return self.cast(value)

    def to_unit(self, value: Any) -> float:
        """Return the value's position between 0 and 1 on the domain's scale, clipped."""
        low, high = self._ends()
        if low == high:  # bounds that differ by less than the resolution of floats on this scale
            return 0.5
        return clamp((self._scaled(self.clip(value)) - low) / (high - low))

    def from_unit(self, unit: float) -> Any:
        """Return the value at a position between 0 and 1 on the domain's scale."""
        low, high = self._ends()
        place = low + clamp(unit) * (high - low)
        return self.clip(math.exp(place) if self.is_log else place)

    def perturb(self, value: Any, rng: Generator, *, factor: float | None = None) -> Any:
        """Return a value moved along the scale, by at least `q`, clipped to the bounds."""
        step = step_from(factor, rng)
        start = self.clip(value)
        moved = self.from_unit(self.to_unit(start) + step)
        if self.q and step and moved == start:
            return self.clip(start + (self.q if step > 0 else -self.q))
        return moved

    def uniform(self) -> Self:
        """Return the same domain on a linear scale."""
        # The subclasses are dataclasses.
        return replace(self, is_log=False)  # type: ignore[type-var]

    def loguniform(self) -> Self:
        """Return the same domain on a logarithmic scale.

        Raises:
            ValueError: If `lower` is not greater than 0.
        """
        return replace(self, is_log=True)  # type: ignore[type-var]

    def quantized(self, q: float) -> Self:
        """Return the same domain with its values rounded to multiples of `q`.

        Raises:
            ValueError: If `q` is not greater than 0, or the ends do not fit it.
        """
        return replace(self, q=q)  # type: ignore[type-var]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.is_log else value

    def _ends(self) -> tuple[float, float]:
        # Half a step beyond the bounds, so that as many positions round to them as to other values.
        margin = self.q / 2 if self.q else 0
        return self._scaled(self.lower - margin), self._scaled(self.upper + margin)


@final
@dataclass(frozen=True, slots=True)
class Float(_Interval):
    """Real numbers between two bounds.

    Attributes:
        lower: The least value.
        upper: The greatest value. Without `q`, it is practically never sampled.
        q: Values are multiples of it; None for all real numbers. `lower` and `upper` must be
            multiples as well.
        is_log: Whether the scale is logarithmic.
        prior: The value expected to be best, None for no prior.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Raises:
        TypeError: If a bound is not a number.
        ValueError: If the bounds are not finite, leave no room between them, or do not fit `q` or
            the scale; if the prior lies outside.

    Example:
        >>> domain = Float(0.0, 1.0, q=0.1)
        >>> domain.clip(1.7), domain.cast(0.33), domain.contains(0.35)
        (1.0, 0.3, False)
        >>> Float(1e-4, 1.0, is_log=True).to_unit(0.01)
        0.5
    """

    lower: float
    upper: float
    q: float | None = None
    is_log: bool = False
    prior: Any = None
    prior_confidence: str = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        """Check the bounds."""
        lower, upper = _number("lower", self.lower), _number("upper", self.upper)
        if not lower < upper:
            raise ValueError(
                f"lower must be less than upper={upper}, got {lower}; give the number itself where "
                "it is not to vary"
            )
        if not math.isfinite(upper - lower):
            raise ValueError(
                f"lower must be nearer to upper={upper} than the largest float, got {lower}; move "
                "the bounds together"
            )
        _check_log(lower, is_log=self.is_log)
        object.__setattr__(self, "q", self.q if self.q is None else _positive("q", self.q))
        for name, bound in (("lower", lower), ("upper", upper)):
            if self.q is not None and not _is_multiple(bound, self.q):
                raise ValueError(
                    f"{name} must be divisible by q={self.q}, got {bound}; move {name} to a "
                    "multiple of q"
                )
            object.__setattr__(self, name, self.cast(bound))
        object.__setattr__(self, "prior", checked_prior(self))

    def __repr__(self) -> str:
        return shown(self)

    def contains(self, value: Any) -> bool:
        """Return whether the value is within bounds and, up to rounding, a multiple of `q`."""
        if not _is_number(value) or not math.isfinite(value):
            return False
        return self.lower <= self.cast(value) <= self.upper and (
            self.q is None or _is_multiple(float(value), self.q)
        )

    def cast(self, value: Any) -> float:
        """Return the value as a float, rounded to a multiple of `q`."""
        number = float(value)
        if math.isnan(number):
            raise ValueError(
                "a value must be a number, got nan; leave the parameter out to have it sampled"
            )
        return number if self.q is None else _multiple(round(number / self.q), self.q)


@final
@dataclass(frozen=True, slots=True)
class Integer(_Interval):
    """Integers between two bounds, both included.

    Attributes:
        lower: The least value.
        upper: The greatest value, although `randint` and the like exclude their upper bound.
        q: Values are multiples of it. Bounds that are not move inwards to the next multiple.
        is_log: Whether the scale is logarithmic.
        prior: The value expected to be best, None for no prior.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Raises:
        TypeError: If a bound is not a number.
        ValueError: If a bound is not whole, no value lies between them, or they do not fit the
            scale; if the prior lies outside.

    Example:
        >>> Integer(1, 100, q=25)
        Integer(lower=25, upper=100, q=25, is_log=False)
        >>> Integer(1, 8).clip(12), Integer(1, 8).contains(2.5)
        (8, False)

    Departures:
        Ray Tune's ``Integer(1, 8)`` leaves 8 out unless it is quantized.
    """

    lower: int
    upper: int
    q: int = 1
    is_log: bool = False
    prior: Any = None
    prior_confidence: str = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        """Check the bounds."""
        lower, upper, q = (
            _whole("lower", self.lower),
            _whole("upper", self.upper),
            _whole("q", self.q),
        )
        _positive("q", q)
        _check_log(lower, is_log=self.is_log)
        first, last = -(-lower // q) * q, upper // q * q
        if first > last:
            raise ValueError(
                f"there must be a multiple of q={q} from lower={lower} to {upper}, got none; move "
                "the bounds apart"
            )
        if (last - first) // q >= MAX_NUM_INTEGERS:
            raise ValueError(
                f"lower and upper must hold fewer than 2**63 values, got {lower} and {upper}; move "
                "them together"
            )
        for name, value in (("lower", first), ("upper", last), ("q", q)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "prior", checked_prior(self))

    def __repr__(self) -> str:
        return shown(self)

    def _draw(self, rng: Generator) -> int:
        """Draw a value, equally likely anywhere on the domain's scale."""
        if self.is_log:
            return int(self.from_unit(rng.random()))
        # Not by `from_unit`: floats cannot represent all integers beyond 2**53.
        return self.lower + self.q * int(
            rng.integers((self.upper - self.lower) // self.q, endpoint=True)
        )

    def contains(self, value: Any) -> bool:
        """Return whether the value is a whole number within bounds and a multiple of `q`."""
        return _is_number(value) and bool(self.lower <= value <= self.upper and value % self.q == 0)

    def cast(self, value: Any) -> int:
        """Return the nearest multiple of `q`."""
        if isinstance(value, int):
            # Exact, where dividing would round large integers.
            return (2 * value + self.q) // (2 * self.q) * self.q
        if not math.isfinite(value):
            raise ValueError(
                f"a value must be a finite number, got {value}; leave the parameter out to have it "
                "sampled"
            )
        return round(float(value) / self.q) * self.q


@final
@dataclass(frozen=True, slots=True)
class Normal(Domain):
    """Normally distributed numbers. Few searchers can model them; they have no prior.

    Attributes:
        mean: Centre of the distribution.
        sd: Its standard deviation, greater than 0.
        q: Values are rounded to multiples of it; None for all real numbers.

    Example:
        >>> Normal(0.0, 2.0).to_unit(0.0)
        0.5
    """

    mean: float = 0.0
    sd: float = 1.0
    q: float | None = None

    def __post_init__(self) -> None:
        """Check the standard deviation."""
        object.__setattr__(self, "mean", _number("mean", self.mean))
        object.__setattr__(self, "sd", _positive("sd", self.sd))
        object.__setattr__(self, "q", self.q if self.q is None else _positive("q", self.q))

    def _draw(self, rng: Generator) -> float:
        """Draw a value."""
        return self.cast(rng.normal(self.mean, self.sd))

    def contains(self, value: Any) -> bool:
        """Return whether the value is finite and, up to rounding, a multiple of `q`."""
        return (
            _is_number(value)
            and math.isfinite(value)
            and (self.q is None or _is_multiple(float(value), self.q))
        )

    def cast(self, value: Any) -> float:
        """Return the value as a float, rounded to a multiple of `q`."""
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(
                f"a value must be a finite number, got {number}; leave the parameter out to have "
                "it sampled"
            )
        return number if self.q is None else _multiple(round(number / self.q), self.q)

    def clip(self, value: Any) -> float:
        """Return the value rounded: there are no bounds."""
        return self.cast(value)

    def to_unit(self, value: Any) -> float:
        """Return the share of the distribution that lies below the value."""
        return NormalDist(self.mean, self.sd).cdf(self.cast(value))

    def from_unit(self, unit: float) -> float:
        """Return the quantile, at most seven standard deviations from the mean."""
        return self.cast(NormalDist(self.mean, self.sd).inv_cdf(min(max(unit, _TAIL), 1 - _TAIL)))

    def perturb(self, value: Any, rng: Generator, *, factor: float | None = None) -> float:
        """Return a value moved by a part of four standard deviations (95 % of the distribution)."""
        step = step_from(factor, rng)
        start = self.cast(value)
        moved = self.cast(start + step * 4 * self.sd)
        if self.q and step and moved == start:
            return self.cast(start + (self.q if step > 0 else -self.q))
        return moved


def _multiple(count: int, q: float) -> float:
    # In decimal: 3 * 0.1 is not 0.3 in binary, and people read these numbers.
    return float(count * Decimal(repr(q)))


def _is_multiple(value: float, q: float) -> bool:
    count = value / q
    return math.isfinite(count) and math.isclose(count, round(count), rel_tol=1e-9, abs_tol=1e-9)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _number(name: str, value: Any) -> float:
    if not _is_number(value):
        raise TypeError(f"{name} must be a number, got {value!r}; use choice for anything else")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(
            f"{name} must be finite, got {value}; use the widest range that makes sense"
        )
    return number


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if not number.is_integer():
        raise ValueError(
            f"{name} must be a whole number, got {value}; use a function for floats, such as "
            "uniform or quniform"
        )
    return int(value)


def _positive(name: str, value: Any) -> float:
    number = _number(name, value)
    if number <= 0:
        raise ValueError(
            f"{name} must be greater than 0, got {value}; give its size without a sign"
        )
    return number


def _check_log(lower: float, *, is_log: bool) -> None:
    if is_log and lower <= 0:
        raise ValueError(
            f"lower must be greater than 0 on a logarithmic scale, got {lower}; use a linear scale "
            "for zero and below"
        )


def checked_prior(domain: Any) -> Any:
    """Return a domain's prior in the domain's type, None if it has none.

    Args:
        domain: A domain, complete except for its prior, which may be of another type.

    Raises:
        ValueError: If the prior lies outside the domain, or the confidence is none of `CONFIDENCES`
            or is given without a prior.
    """
    prior, confidence = domain.prior, domain.prior_confidence
    if confidence not in CONFIDENCES:
        raise ValueError(
            f"prior_confidence must be one of {CONFIDENCES}, got {confidence!r}; the default is "
            f"{DEFAULT_CONFIDENCE!r}"
        )
    if prior is None:
        if confidence != DEFAULT_CONFIDENCE:
            raise ValueError(
                f"prior_confidence must come with a prior, got {confidence!r} alone; add prior=, "
                "the value presumed best"
            )
        return None
    if not domain.contains(prior):
        without = shown(domain, hidden=PRIOR_FIELDS)
        raise ValueError(
            f"prior must lie in {without}, got {prior!r}; widen the domain or move the prior into "
            "it"
        )
    return domain.cast(prior)


def checked_value(name: str, domain: Domain, value: Any) -> Any:
    """Return a parameter's value in the domain's type; the category for its recorded form.

    Raises:
        ValueError: If it lies outside the domain.
    """
    if not domain.contains(value):
        if isinstance(domain, Categorical):
            from .recorded_forms import recorded_index  # noqa: PLC0415  (values out of files only)

            place = recorded_index(domain.categories, value)
            if place is not None:
                return domain.categories[place]
        raise ValueError(
            f"{name!r} must lie in {domain!r}, got {value!r}; widen the space or leave the "
            "parameter out"
        )
    return domain.cast(value)


def sample(domain: Domain, rng: Generator | None) -> Any:
    """Draw a value of the domain.

    Raises:
        ValueError: If there is no generator to draw from.
    """
    if rng is None:
        raise ValueError(
            f"rng must be a numpy generator to sample from {domain!r}, got None; see "
            "numpy.random.default_rng"
        )
    return domain.sample(rng)


def shown(domain: Any, hidden: frozenset[str] | None = None) -> str:
    """Return the representation of a domain, without a prior if it has none.

    Args:
        domain: A dataclass with a prior.
        hidden: Fields to leave out; None for those of a missing prior.
    """
    if hidden is None:
        hidden = PRIOR_FIELDS if domain.prior is None else frozenset()
    fields = (field.name for field in dataclasses.fields(domain) if field.name not in hidden)
    shown_fields = (f"{name}={getattr(domain, name)!r}" for name in fields)
    return f"{type(domain).__qualname__}({', '.join(shown_fields)})"
