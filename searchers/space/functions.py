"""Functions that declare a search space: domains, grids, computed and conditional parameters.

A ``prior`` is the value that the user expects to be best, and ``prior_confidence`` (``"low"``,
``"medium"`` or ``"high"``) how sure the user is. Searchers that support priors try it first; all
others, random search among them, ignore it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .conditions import Branching, OnlyIf, holds_words, listed, plain_values
from .domains import DEFAULT_CONFIDENCE, Categorical, Float, Integer, Normal
from .tree import GRID_KEY


def uniform(
    lower: float,
    upper: float | None = None,
    *,
    prior: float | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Float:
    """Return uniform floats from `lower` to `upper`; `upper` is practically never sampled.

    Example:
        >>> uniform(0, 1)
        Float(lower=0.0, upper=1.0, q=None, is_log=False)
    """
    if upper is None:
        raise _one_end("uniform", lower)
    return Float(lower, upper, prior=prior, prior_confidence=prior_confidence)


def quniform(
    lower: float,
    upper: float,
    q: float,
    *,
    prior: float | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Float:
    """Return multiples of `q` from `lower` to `upper`, both included and all equally likely.

    Departures:
        Ray Tune rounds uniform numbers, so that the two bounds are half as likely as the others.

    Example:
        >>> quniform(0, 1, 0.25).from_unit(0.3)
        0.25
    """
    return Float(lower, upper, q, prior=prior, prior_confidence=prior_confidence)


def loguniform(
    lower: float,
    upper: float,
    base: float = 10,
    *,
    prior: float | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Float:
    """Return log-uniform floats from `lower`, which must be positive, to `upper`.

    Args:
        lower: Lower end.
        upper: Upper end, practically never sampled.
        base: Accepted as in Ray Tune, without effect: logarithms of any base give the same
            distribution.
        prior: The value expected to be best.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Example:
        >>> loguniform(1e-4, 1).to_unit(1e-2)
        0.5
    """
    _check_base(base)
    return Float(lower, upper, is_log=True, prior=prior, prior_confidence=prior_confidence)


def qloguniform(
    lower: float,
    upper: float,
    q: float,
    base: float = 10,
    *,
    prior: float | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Float:
    """Return log-uniform multiples of `q` from `lower` (positive) to `upper`, both included.

    Args:
        lower: Lower end.
        upper: Upper end, included.
        q: Values are multiples of it.
        base: Accepted as in Ray Tune, without effect: logarithms of any base give the same
            distribution.
        prior: The value expected to be best.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Example:
        >>> qloguniform(0.1, 10, 0.1).cast(3.14159)
        3.1
    """
    _check_base(base)
    return Float(lower, upper, q, is_log=True, prior=prior, prior_confidence=prior_confidence)


def randint(
    lower: int,
    upper: int | None = None,
    *,
    prior: int | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Integer:
    """Return integers from `lower` to ``upper - 1``, all equally likely.

    Example:
        >>> randint(0, 10).contains(9), randint(0, 10).contains(10)
        (True, False)
    """
    if upper is None:
        raise _one_end("randint", lower)
    return _exclusive(lower, upper, prior=prior, prior_confidence=prior_confidence)


def qrandint(
    lower: int,
    upper: int,
    q: int = 1,
    *,
    prior: int | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Integer:
    """Return uniform multiples of `q`; `upper` is included unless `q` is 1.

    Departures:
        Ray Tune rounds, so that values may exceed bounds that are no multiples of `q`.

    Example:
        >>> qrandint(8, 64, 8).contains(64), qrandint(8, 64).contains(64)
        (True, False)
    """
    if q == 1:
        return _exclusive(lower, upper, prior=prior, prior_confidence=prior_confidence)
    return Integer(lower, upper, q, prior=prior, prior_confidence=prior_confidence)


def lograndint(
    lower: int,
    upper: int,
    base: float = 10,
    *,
    prior: int | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Integer:
    """Return log-uniform integers from `lower`, which must be positive, to ``upper - 1``.

    Args:
        lower: Lower end.
        upper: Upper end, left out.
        base: Accepted as in Ray Tune, without effect: logarithms of any base give the same
            distribution.
        prior: The value expected to be best.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Departures:
        Each integer has the interval of the logarithmic scale that rounds to it, where Ray Tune
        cuts off decimals, so that small ones are more likely.

    Example:
        >>> lograndint(1, 1000).contains(1000)
        False
    """
    _check_base(base)
    return _exclusive(lower, upper, is_log=True, prior=prior, prior_confidence=prior_confidence)


def qlograndint(
    lower: int,
    upper: int,
    q: int,
    base: float = 10,
    *,
    prior: int | None = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Integer:
    """Return log-uniform multiples of `q` from `lower`, which must be positive, to `upper`.

    Args:
        lower: Lower end.
        upper: Upper end, included except where `q` is 1.
        q: Values are multiples of it.
        base: Accepted as in Ray Tune, without effect: logarithms of any base give the same
            distribution.
        prior: The value expected to be best.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.

    Example:
        >>> qlograndint(8, 64, 8).clip(1000)
        64
    """
    _check_base(base)
    if q == 1:
        return _exclusive(lower, upper, is_log=True, prior=prior, prior_confidence=prior_confidence)
    return Integer(lower, upper, q, is_log=True, prior=prior, prior_confidence=prior_confidence)


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


def choice(
    categories: Iterable[Any],
    *others: Any,
    ordered: bool = False,
    prior: Any = None,
    prior_confidence: str = DEFAULT_CONFIDENCE,
) -> Categorical | Branching:
    """Return a domain of equally likely objects, which may be sub-spaces with domains.

    Args:
        categories: The objects, of any type. Those that contain domains, at any depth,
            are sub-spaces: the configuration has the parameters of the chosen one alone. None of
            them may contain a grid.
        *others: Not accepted; only there for an error message that asks for a list.
        ordered: Whether neighbours in the list are similar, so that population based training moves
            between them.
        prior: The object expected to be best; a sub-space by its number in the list. None for no
            prior.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``: how sure that is.

    Returns:
        A domain, or a `Branching` if an object contains domains.

    Raises:
        TypeError: If they are not a list or another ordered iterable.
        ValueError: If there are none, or one contains a grid, or the prior is none of them.

    Example:
        >>> choice(["adam", "sgd"]).grid()
        {'grid_search': ['adam', 'sgd']}
        >>> choice([{"name": "sgd", "momentum": uniform(0, 1)}, "none"]).options[1]
        'none'
    """
    _check_one_list("choice", categories, others)
    options = tuple(listed("choice", categories))
    kind = Branching if holds_words(options) else Categorical
    return kind(options, ordered, prior, prior_confidence)


def only_if(conditions: Mapping[str, Any], node: Any) -> OnlyIf:
    """Return a dictionary entry that is only there under conditions; else its key is missing.

    Names of parameters are looked up beside the entry first, then one level further out, and so on
    to the root, where they are full names such as ``"model/depth"``. A condition on a parameter
    that is missing itself does not hold. The value of a choice between sub-spaces is the number of
    its option.

    Args:
        conditions: For each parameter, by name: a value, a list of values, or a function of the
            value that returns whether the condition holds. All of them have to hold.
        node: The entry: a word, a dictionary with words or a constant, but no grid.

    Raises:
        TypeError: If the conditions are not a dictionary with names.
        ValueError: If there is none, or `node` contains a grid. With the space, if a parameter is
            unknown or cannot have the value, or if conditions depend on each other in a circle.

    Example:
        >>> from searchers.space import SearchSpace
        >>> space = SearchSpace(
        ...     {
        ...         "optimizer": choice(["sgd", "adam"]),
        ...         "momentum": only_if({"optimizer": "sgd"}, uniform(0, 1)),
        ...     }
        ... )
        >>> space.config_of({"optimizer": "adam"}, rng=None)
        {'optimizer': 'adam'}
    """
    return OnlyIf(conditions, node)


def grid_search(values: Iterable[Any], *others: Any) -> dict[str, list[Any]]:
    """Return an axis of the grid: each value is combined with each value of all other axes.

    Args:
        values: The values, of any type except domains.
        *others: Not accepted; only there for an error message that asks for a list.

    Raises:
        TypeError: If they are not a list or another ordered iterable.

    Example:
        >>> grid_search([0.1, 0.01])
        {'grid_search': [0.1, 0.01]}
    """
    _check_one_list("grid_search", values, others)
    return {GRID_KEY: plain_values("grid_search", values)}


def _check_one_list(word: str, first: Any, others: tuple[Any, ...]) -> None:
    if others:
        listed = ", ".join(map(repr, (first, *others)))
        raise TypeError(
            f"{word} must be given one list, got {1 + len(others)} arguments; pass a list: "
            f"{word}([{listed}])"
        )


def _one_end(word: str, given: Any) -> TypeError:
    return TypeError(
        f"{word} must be given lower and upper, got {given!r} alone; write {word}(0, {given!r})"
    )


def _check_base(base: Any) -> None:
    if isinstance(base, bool) or not isinstance(base, int | float) or not base > 1:
        raise ValueError(
            f"base must be a number above 1, got {base!r}; leave it out, since any base gives the "
            "same distribution"
        )


def _exclusive(lower: int, upper: int, *, is_log: bool = False, **prior: Any) -> Integer:
    if not lower < upper:
        raise ValueError(
            f"lower must be less than upper={upper}, which is left out, got {lower}; move upper up "
            "by one to include it"
        )
    return Integer(lower, upper - 1, is_log=is_log, **prior)
