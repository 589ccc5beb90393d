"""What one hyperparameter may be: domains that sample, check, round and perturb their own values.

Every domain maps its values to the unit interval and back. Numeric domains do so on their own scale: on a logarithmic one, equal
steps of the interval are equal factors of the value. Rounded domains (integers, multiples of `q`) give each value the stretch of
the scale that rounds to it, the two ends included, so that ``from_unit(to_unit(value)) == value``.

Chance comes from the generator that is passed in; only `Domain.sample` makes one where it is given none, for use outside of experiments.
Values are plain Python objects, never numpy scalars.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from .priors import DEFAULT_CONFIDENCE, checked_prior, shown

if TYPE_CHECKING:
    from numpy.random import (
        Generator,
    )  # for annotations only, so that importing the space words stays cheap

DEFAULT_FACTORS = (1.2, 0.8)
"""Up and down: how far a value is perturbed where nothing else is asked for."""


class Domain(ABC):
    """The values that a hyperparameter may take.

    Attributes:
        prior: The value presumed best, None where nothing is presumed. Sampling takes no notice of it; what it is worth is the searchers'
            to decide.
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
            rng: Source of chance.
            size: How many values to draw.
            random_state: Source of chance in Ray Tune's word: a generator, or the seed of a new one. With neither this nor `rng`, a new
                generator is seeded by the operating system, so that each call draws other values; numpy's global generator is not used.

        Returns:
            One value where `size` is 1, otherwise a list of them.

        Raises:
            TypeError: If `rng` and `random_state` are both given.
            ValueError: If `size` is less than 1.

        Departures:
            Ray Tune's first argument is a configuration, its seedless draws come from numpy's global generator, and `random_state` may be
            a ``RandomState``.
        """
        if rng is None or random_state is not None or size != 1:
            return self._sample_alone(rng, size, random_state)
        return self._draw(rng)

    def is_valid(self, value: Any) -> bool:
        """Return whether the value is one of the domain's: Ray Tune's name for `contains`."""
        return self.contains(value)

    def _sample_alone(
        self, rng: Generator | None, size: int, random_state: int | Generator | None
    ) -> Any:
        if rng is not None and random_state is not None:
            raise TypeError(
                f"rng and random_state must not be given together, got {rng!r} and {random_state!r}; leave one out"
            )
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}; leave it out for one value")
        if rng is None:
            import numpy as np  # noqa: PLC0415  (importing the space words stays cheap)

            rng = np.random.default_rng(random_state)
        return self._draw(rng) if size == 1 else [self._draw(rng) for _ in range(size)]

    def _draw(self, rng: Generator) -> Any:
        """Draw one value; a class outside of this package may override `sample` itself instead."""
        raise NotImplementedError(f"{type(self).__name__} must override _draw, or sample")

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Return whether the value is one of the domain's."""

    @abstractmethod
    def cast(self, value: Any) -> Any:
        """Return the value in the domain's type and rounding, which may still lie beyond its ends.

        Raises:
            ValueError: If that is impossible, e.g. for NaN.
        """

    @abstractmethod
    def clip(self, value: Any) -> Any:
        """Return the domain's value nearest to the given one.

        Raises:
            ValueError: If no value is near, as with an unknown category.
        """

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """Return where the value, clipped, lies between 0 and 1."""

    @abstractmethod
    def from_unit(self, unit: float) -> Any:
        """Return the value at a place between 0 and 1; what lies outside counts as the nearer end."""

    @abstractmethod
    def perturb(self, value: Any, rng: Generator, *, factor: float | None = None) -> Any:
        """Return a neighbouring value, which never leaves the domain.

        Args:
            value: Where to start; clipped first.
            rng: Source of chance.
            factor: How far to move: 1.2 goes up by 0.2 of the unit interval, 0.8 down by 0.2. None draws one of these two.
        """


@final
@dataclass(frozen=True, slots=True)
class Categorical(Domain):
    """One of several objects.

    Attributes:
        categories: The objects, at least one. They are handed out themselves, not copies.
        is_ordered: Whether neighbours in the list are similar, so that perturbing moves to one of them.
        prior: The category presumed best, None where nothing is presumed: a category None cannot be one.
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
        """Refuse to choose from nothing."""
        object.__setattr__(self, "categories", tuple(self.categories))
        if not self.categories:
            raise ValueError(
                "categories must hold one object at least, got none; leave the parameter out where there is no choice"
            )
        object.__setattr__(self, "prior", checked_prior(self))

    def __repr__(self) -> str:
        return shown(self)

    def grid(self) -> dict[str, list[Any]]:
        """Return a grid over the same objects, so that each is tried."""
        return {"grid_search": list(self.categories)}

    def index(self, value: Any) -> int:
        """Return the place of the value among the categories.

        What is the same object counts first, then what is equal and of the same type, then what is equal: True is not taken for 1
        where both are categories.

        Raises:
            ValueError: If it is none of them.
        """
        for is_match in (_is_same, _is_equal_in_type, _is_equal):
            for place, category in enumerate(self.categories):
                if is_match(category, value):
                    return place
        raise ValueError(
            f"a value must be one of {list(self.categories)!r}, got {value!r}; add it to the categories"
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
        """Return the category that equals the value, since unequal ones have no distance."""
        return self.cast(value)

    def to_unit(self, value: Any) -> float:
        """Return the middle of the value's share of the unit interval."""
        return (self.index(value) + 0.5) / len(self.categories)

    def from_unit(self, unit: float) -> Any:
        """Return the category to whose share of the unit interval the place belongs."""
        return self.categories[
            min(int(clamp(unit) * len(self.categories)), len(self.categories) - 1)
        ]

    def perturb(self, value: Any, rng: Generator, *, factor: float | None = None) -> Any:
        """Return another category: where they are ordered a neighbour, on the side that `factor` says if there is one.

        With a single category there is no other; a value that is none of them is replaced by any.
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
    """Return the signed part of the unit interval that a factor moves by, e.g. 0.2 for 1.2; by chance up or down without one."""
    if factor is None:
        factor = DEFAULT_FACTORS[int(rng.integers(2))]
    return factor - 1


def clamp(unit: float) -> float:
    """Return the nearest place between 0 and 1."""
    return min(max(unit, 0.0), 1.0)


def _is_same(category: Any, value: Any) -> bool:
    return category is value


def _is_equal_in_type(category: Any, value: Any) -> bool:
    return type(category) is type(value) and _is_equal(category, value)


def _is_equal(category: Any, value: Any) -> bool:
    try:
        return bool(category == value)
    except ValueError:  # arrays, which compare element by element: only the same object counts
        return False
