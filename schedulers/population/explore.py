"""Explore step of population based training: vary hyperparameters within their domains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, final

from numpy.random import PCG64, Generator, SeedSequence

from schedulers.arguments import plain_number
from searchers.space import (
    Categorical,
    Conditional,
    ConfigView,
    Domain,
    Path,
    SampleFrom,
    SearchSpace,
    choice,
    copied,
    flat_name,
    is_grid,
)
from searchers.space.declared_space import like
from searchers.space.foreign_domains import check_no_foreign_domains

if TYPE_CHECKING:
    from searchers.space.relations import Relation

MAX_TRIES: Final = 100
"""How often a variation is made anew that violates a relation."""
CustomExplore = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A user's function that may change each new configuration."""

_Tree = dict[str, Any]
"""Mutations with lists turned into ordered categories; leaves are domains and functions."""


@final
class Explorer:
    """Varies the hyperparameters of a configuration.

    How a hyperparameter is varied depends on its mutation:

    * a **domain** of numbers: moved up or down on its own scale, by the part of the unit interval
      that a factor is away from 1 (1.2: up by a fifth of the whole scale), stopping at the ends;
      integers and multiples of `q` move by one step at least;
    * a **list or tuple**, or ``choice(..., ordered=True)``: its right neighbour if the factor is
      above 1, else the left one; at an end, the only neighbour;
    * ``choice(...)``: any of its categories, since unordered categories have no neighbours;
    * a **function**: a number is multiplied by the factor, without limits since no domain is known;
      integers move by 1 at least. Other values, and numbers that would not change, are drawn by
      calling the function, whose own random numbers are not covered by the seed;
    * ``sample_from(...)``: always computed anew, after all others;
    * a **dictionary**: each of its entries likewise.

    In a space with a relation (`Space`), a variation that violates it is made anew, and after
    `MAX_TRIES` of them the configuration stays as it is.

    With `resample_probability` a value is drawn afresh instead, as it always is if the
    configuration has no value or one of a type that the domain does not have. Only dictionaries on
    the way to a mutated value are new; all other values are the same objects as before.

    Args:
        mutations: How each hyperparameter may mutate, nested as in the configuration. Other
            hyperparameters are never changed.
        resample_probability: How likely a value is drawn afresh, from 0 to 1.
        factors: Up and down: one of them, each equally likely, determines how far a value moves.
        custom_explore_fn: Called with a deep copy of the new configuration, and returns the one to
            take.

    Raises:
        TypeError: If a mutation has an unsupported type.
        ValueError: If it leaves no values.

    Example:
        >>> from searchers.space import loguniform
        >>> explorer = Explorer(
        ...     {"lr": loguniform(1e-4, 1), "depth": [2, 3, 4]}, resample_probability=0
        ... )
        >>> config = explorer({"lr": 0.01, "depth": 2, "epochs": 5}, named_generator("an example"))
        >>> config["depth"], config["epochs"], round(config["lr"], 4) in (0.0016, 0.0631)
        (3, 5, True)

    Departures:
        Ray Tune multiplies all values by 1.2 or 0.8, those of ``choice([16, 32])`` included,
        beyond the ends of the domain, never away from 0, and by the same tiny step on a logarithmic
        scale; and a neighbour beyond the end of a list is the value itself.
    """

    def __init__(
        self,
        mutations: Mapping[str, Any] | None,
        resample_probability: float = 0.25,
        factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: CustomExplore | None = None,
    ) -> None:
        self._tree = _parsed({} if mutations is None else mutations, ())
        self._resample_probability = _probability(resample_probability)
        self._factors = _checked_factors(factors)
        self._custom_explore_fn = checked_explore(custom_explore_fn)
        self._where: Relation | None = None

    def __call__(self, config: Mapping[str, Any], rng: Generator) -> dict[str, Any]:
        """Return a variation of a configuration, which itself is not changed.

        Raises:
            TypeError: If `custom_explore_fn` returns anything but a dictionary.
        """
        return satisfying(self._where, config, lambda: self._varied(config, rng))

    def _varied(self, config: Mapping[str, Any], rng: Generator) -> dict[str, Any]:
        new = self._mutated(self._tree, config, rng)
        # Dependent values last, and from one to the next: they may read each other.
        for path, dependent in _dependents(self._tree, ()):
            value = dependent.call(ConfigView(new))
            new = replaced(new, {path: value.sample(rng) if isinstance(value, Domain) else value})
        return customised(new, self._custom_explore_fn)

    def completed_space(self, space: Mapping[str, Any]) -> dict[str, Any]:
        """Return a search space with missing mutated hyperparameters added, to be sampled.

        Variations satisfy its relation from now on.

        Example:
            >>> from searchers.space import uniform
            >>> explorer = Explorer({"lr": uniform(0, 1), "model": {"depth": [1, 2]}})
            >>> explorer.completed_space({"lr": 0.5, "model": {"width": 8}})
            {'lr': 0.5, 'model': {'width': 8, 'depth': Categorical(categories=(1, 2), ...)}}
        """
        completed = with_missing(space, self._tree)
        self._where = SearchSpace(completed).where
        return completed

    def _mutated(self, tree: _Tree, config: Any, rng: Generator) -> dict[str, Any]:
        new = dict(config) if isinstance(config, Mapping) else {}
        for key, gene in tree.items():
            if isinstance(gene, dict):
                new[key] = self._mutated(gene, new.get(key), rng)
            elif not isinstance(gene, SampleFrom):
                # Drawn in any case, so that one hyperparameter's draws do not change the others'.
                is_fresh = bool(rng.random() < self._resample_probability)
                factor = self._factors[int(rng.integers(len(self._factors)))]
                new[key] = (
                    _fresh(gene, rng)
                    if is_fresh or key not in new
                    else _moved(gene, new[key], factor, rng)
                )
        return new


def satisfying(
    where: Relation | None,
    config: Mapping[str, Any],
    vary: Callable[[], dict[str, Any]],
    max_tries: int = MAX_TRIES,
) -> dict[str, Any]:
    """Return the first variation that satisfies a relation, after many tries a copy as it was.

    Args:
        where: The relation; None for none.
        config: The configuration.
        vary: Returns another variation of it with each call.
        max_tries: How often it is called.
    """
    if where is None:
        return vary()
    tried = (vary() for _ in range(max_tries))
    return next((new for new in tried if where.holds(new)), dict(config))


def customised(config: dict[str, Any], custom_explore_fn: CustomExplore | None) -> dict[str, Any]:
    """Return the configuration after the user's function, if there is one.

    Raises:
        TypeError: If the function returns anything but a dictionary.
    """
    if custom_explore_fn is None:
        return config
    # A copy, since it may be modified in place, and the donor still trains with the original.
    new = custom_explore_fn(copied(config))
    if not isinstance(new, Mapping):
        raise TypeError(
            f"custom_explore_fn must return a configuration, got {new!r}; let it return the "
            "dictionary it was given"
        )
    return dict(new)


def replaced(config: Any, values: Mapping[Path, Any]) -> dict[str, Any]:
    """Return a copy of the configuration with values set at paths.

    Dictionaries on the way are new, and made where there are none.

    Example:
        >>> replaced({"model": {"depth": 3}, "epochs": 5}, {("model", "lr"): 0.1})
        {'model': {'depth': 3, 'lr': 0.1}, 'epochs': 5}
    """
    new = dict(config) if isinstance(config, Mapping) else {}
    below: dict[Any, dict[Path, Any]] = {}
    for (head, *rest), value in values.items():
        if rest:
            below.setdefault(head, {})[tuple(rest)] = value
        else:
            new[head] = value
    return {**new, **{head: replaced(new.get(head), inner) for head, inner in below.items()}}


def with_missing(space: Mapping[str, Any], genes: _Tree) -> dict[str, Any]:
    """Return a search space with missing hyperparameters added; existing entries stay.

    Args:
        space: The search space.
        genes: Domains, `SampleFrom` and functions without arguments, nested as in the space.
    """
    new = like(space, dict(space))
    for key, gene in genes.items():
        if not isinstance(gene, dict):
            new.setdefault(
                key, gene if isinstance(gene, Domain | SampleFrom) else _sampled_by(gene)
            )
        elif isinstance(inner := new.get(key, {}), Mapping) and not is_grid(inner):
            new[key] = with_missing(inner, gene)
    return new


def _sampled_by(function: Callable[[], Any]) -> SampleFrom:
    # A wrapper without parameters: if the function has optional ones, `SampleFrom` would pass the
    # configuration as the first of them.
    def drawn() -> Any:
        return function()

    return SampleFrom(drawn)


def named_generator(name: str) -> Generator:
    """Return the random number generator of a name such as ``"seed/trial/turn"``.

    Example:
        >>> named_generator("0/t00001/3").random() == named_generator("0/t00001/3").random()
        True
    """
    # Not `hash`, which differs from process to process; and all of the name counts.
    return Generator(PCG64(SeedSequence(int.from_bytes(name.encode(), "big"))))


def _fresh(gene: Any, rng: Generator) -> Any:
    return gene.sample(rng) if isinstance(gene, Domain) else gene()


def _moved(gene: Any, value: Any, factor: float, rng: Generator) -> Any:
    if not isinstance(gene, Domain):
        return _scaled(gene, value, factor)
    if isinstance(gene, Categorical) and not gene.is_ordered:
        return gene.sample(rng)
    # Clipped first: a donor's value may lie outside, e.g. after `custom_explore_fn`.
    try:
        return gene.perturb(gene.clip(value), rng, factor=factor)
    except (OverflowError, TypeError, ValueError):
        # The value is of a type that the domain does not have.
        return gene.sample(rng)


def _scaled(function: Callable[[], Any], value: Any, factor: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        return function()
    if isinstance(value, Integral):
        moved = round(int(value) * factor)
        # Rounding must not keep a small integer where it is: by 1 at least.
        return moved if moved != value or factor == 1 else int(value) + (1 if factor > 1 else -1)
    scaled = float(value) * factor
    # 0, an infinity and NaN stay what they are under multiplication.
    return function() if scaled == value or math.isnan(scaled) else scaled


def _parsed(mutations: Any, path: Path) -> _Tree:
    if not isinstance(mutations, Mapping):
        raise TypeError(
            f"hyperparam_mutations must be a dictionary, got {mutations!r}; give each "
            "hyperparameter by name"
        )
    if not path:
        check_no_foreign_domains(mutations, "hyperparam_mutations")
    return {key: _gene(spec, (*path, key)) for key, spec in mutations.items()}


def _gene(spec: Any, path: Path) -> Any:
    if is_grid(spec):
        raise ValueError(
            f"hyperparam_mutations must have no grid, got {spec!r} for {flat_name(path)!r}; give "
            "the list of values alone"
        )
    if isinstance(spec, Mapping):
        return _parsed(spec, path)
    if isinstance(spec, list | tuple):
        spec = choice(spec, ordered=True)
    if isinstance(spec, Conditional):
        raise ValueError(  # noqa: TRY004  (its type is known, it just cannot vary)
            f"hyperparam_mutations must have no conditional space, got {spec!r} for "
            f"{flat_name(path)!r}; name hyperparameters that every trial has"
        )
    if isinstance(spec, Domain | SampleFrom) or callable(spec):
        return spec
    raise TypeError(
        "hyperparam_mutations must hold lists, domains such as uniform(0, 1), functions and "
        f"dictionaries, got {spec!r} for {flat_name(path)!r}; leave out what must not change"
    )


def _dependents(tree: _Tree, path: Path) -> Iterator[tuple[Path, SampleFrom]]:
    for key, gene in tree.items():
        if isinstance(gene, dict):
            yield from _dependents(gene, (*path, key))
        elif isinstance(gene, SampleFrom):
            yield (*path, key), gene


def _probability(value: Any) -> float:
    probability = plain_number("resample_probability", value)
    if not 0 <= probability <= 1:
        raise ValueError(
            f"resample_probability must be between 0 and 1, got {value}; 0.25 draws one value in "
            "four afresh"
        )
    return probability


def _checked_factors(factors: Any) -> tuple[float, ...]:
    # One factor moves up, the other down.
    is_list = isinstance(factors, Sequence) and not isinstance(factors, str)
    if not is_list or len(factors) != 2:  # noqa: PLR2004
        raise ValueError(
            f"perturbation_factors must be two numbers, got {factors!r}; the default is (1.2, 0.8)"
        )
    checked = tuple(float(plain_number("perturbation_factors", factor)) for factor in factors)
    if not all(0 < factor < math.inf for factor in checked):
        raise ValueError(
            f"perturbation_factors must be more than 0 and finite, got {factors!r}; the default is "
            "(1.2, 0.8)"
        )
    return checked


def checked_explore(function: Any) -> CustomExplore | None:
    """Return the argument if it is a function or None.

    Raises:
        TypeError: If it is neither.
    """
    if function is not None and not callable(function):
        raise TypeError(
            f"custom_explore_fn must be a function or None, got {function!r}; it takes and returns "
            "a configuration"
        )
    checked: CustomExplore | None = function
    return checked
