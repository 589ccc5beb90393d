"""The words a search space is written in: functions that return domains, grid axes and computed parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from .dependent import SampleFrom
from .domains import Categorical, Domain
from .numeric import Float, Integer, Normal
from .tree import GRID_KEY, is_grid, leaves


def uniform(lower: float, upper: float) -> Float:
    """Return floats from `lower` to `upper`, all equally likely; `upper` itself is practically never sampled.

    Example:
        >>> uniform(0, 1)
        Float(lower=0.0, upper=1.0, q=None, is_log=False)
    """
    return Float(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Float:
    """Return multiples of `q` from `lower` to `upper`, both included and all equally likely.

    Departures:
        Ray Tune rounds uniform numbers, so that the two ends come up half as often as the others.

    Example:
        >>> quniform(0, 1, 0.25).from_unit(0.3)
        0.25
    """
    return Float(lower, upper, q)


def loguniform(lower: float, upper: float) -> Float:
    """Return floats from `lower`, which must be positive, to `upper`, all orders of magnitude equally likely.

    Example:
        >>> loguniform(1e-4, 1).to_unit(1e-2)
        0.5
    """
    return Float(lower, upper, is_log=True)


def qloguniform(lower: float, upper: float, q: float) -> Float:
    """Return multiples of `q` from `lower`, which must be positive, to `upper`, both included, equally likely by magnitude.

    Example:
        >>> qloguniform(0.1, 10, 0.1).cast(3.14159)
        3.1
    """
    return Float(lower, upper, q, is_log=True)


def randint(lower: int, upper: int) -> Integer:
    """Return integers from `lower` to ``upper - 1``, all equally likely.

    Example:
        >>> randint(0, 10).contains(9), randint(0, 10).contains(10)
        (True, False)
    """
    return _exclusive(lower, upper, is_log=False)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Return multiples of `q` from `lower` to `upper`, all equally likely; `upper` is included except where `q` is 1.

    Departures:
        Ray Tune rounds, which leaves the bounds where these are no multiples of `q`.

    Example:
        >>> qrandint(8, 64, 8).contains(64), qrandint(8, 64).contains(64)
        (True, False)
    """
    return _exclusive(lower, upper, is_log=False) if q == 1 else Integer(lower, upper, q)


def lograndint(lower: int, upper: int) -> Integer:
    """Return integers from `lower`, which must be positive, to ``upper - 1``, all orders of magnitude equally likely.

    Departures:
        Each integer takes what rounds to it on the logarithmic scale, where Ray Tune cuts off decimals: small ones come up more often.

    Example:
        >>> lograndint(1, 1000).contains(1000)
        False
    """
    return _exclusive(lower, upper, is_log=True)


def qlograndint(lower: int, upper: int, q: int) -> Integer:
    """Return multiples of `q` from `lower`, which must be positive, to `upper`, equally likely by magnitude.

    `upper` is included except where `q` is 1.

    Example:
        >>> qlograndint(8, 64, 8).clip(1000)
        64
    """
    return _exclusive(lower, upper, is_log=True) if q == 1 else Integer(lower, upper, q, is_log=True)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """Return normally distributed floats.

    Example:
        >>> randn(10, 2).contains(-3.5)
        True
    """
    return Normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """Return normally distributed floats, rounded to multiples of `q`.

    Example:
        >>> qrandn(10, 2, 0.5).cast(9.8)
        10.0
    """
    return Normal(mean, sd, q)


def choice(categories: Iterable[Any], *, ordered: bool = False) -> Categorical:
    """Return the given objects, all equally likely.

    Args:
        categories: The objects, of any type but search-space words.
        ordered: Whether neighbours in the list are similar, so that population based training moves between them.

    Example:
        >>> choice(["adam", "sgd"]).grid()
        {'grid_search': ['adam', 'sgd']}
    """
    return Categorical(tuple(plain_values("choice", categories)), ordered)


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Return an axis of the grid: each value is combined with each value of all other axes.

    Args:
        values: The values, of any type but search-space words.

    Example:
        >>> grid_search([0.1, 0.01])
        {'grid_search': [0.1, 0.01]}
    """
    return {GRID_KEY: plain_values("grid_search", values)}


def sample_from(function: Callable[..., Any]) -> SampleFrom:
    """Return what a function computes, from the values of other parameters if it takes an argument.

    The function is called in each trial's turn with the configuration so far (see `ConfigView`), and put off while it reads what is
    not yet known. It may return search-space words, from which is then sampled: that makes a space conditional. Chance of its own is
    not covered by the experiment's seed. Searchers that build a model of the space refuse such parameters.

    Args:
        function: ``function()`` or ``function(config)``.

    Example:
        >>> from searchers.space import ConfigView
        >>> space = {"batch": 32, "lr": sample_from(lambda config: config.batch / 1000)}
        >>> space["lr"].call(ConfigView(space))
        0.032
    """
    return SampleFrom(function)


def is_word(leaf: Any) -> bool:
    """Return whether the leaf of a space is to be replaced by a value, as a domain, function or grid axis is."""
    return isinstance(leaf, Domain | SampleFrom) or is_grid(leaf)


def plain_values(word: str, values: Iterable[Any]) -> list[Any]:
    """Return what may be chosen from as a list, with numpy scalars as Python numbers.

    Args:
        word: Who asks, for the message.
        values: The values.

    Raises:
        TypeError: If they are not a list or another iterable with an order.
        ValueError: If there are none, or search-space words among them.
    """
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not isinstance(values, Iterable):
        raise TypeError(f"{word} must be given a list, got {values!r}; put the values in square brackets")
    listed = [_as_python(value) for value in values]
    if not listed:
        raise ValueError(f"{word} must be given one value at least, got none; leave the parameter out where there is no choice")
    if any(is_word(leaf) for _, leaf in leaves(listed)):
        raise ValueError(
            f"{word} must be given plain values, got search-space words inside {listed!r}; "
            "use sample_from(lambda config: ...), which may return a word depending on other parameters"
        )
    return listed


def _as_python(value: Any) -> Any:
    is_numpy_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_numpy_scalar else value


def _exclusive(lower: int, upper: int, *, is_log: bool) -> Integer:
    if not lower < upper:
        raise ValueError(f"lower must be less than upper={upper}, which is left out, got {lower}; move upper up by one to include it")
    return Integer(lower, upper - 1, is_log=is_log)
