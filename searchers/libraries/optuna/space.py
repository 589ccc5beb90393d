"""Search spaces as Optuna sees them: declared with our words or its distributions, or defined by a function of a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from searchers.space import (
    Categorical,
    Conditional,
    Domain,
    Float,
    Integer,
    Normal,
    SampleFrom,
    SearchSpace,
    assign,
    copied,
    every_leaf,
    flat_name,
    is_word,
    leaves,
    match,
    merge,
    nest,
)
from searchers.space.foreign_spaces import foreign_library

if TYPE_CHECKING:
    import optuna  # an extra: at run time imported where it is used
    from optuna.distributions import BaseDistribution

Define = Callable[["optuna.Trial"], Mapping[str, Any] | None]
"""A space as a function: it asks the trial for parameters and returns constants, if any."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A searched parameter as Optuna knows it.

    Attributes:
        distribution: Optuna's domain.
        domain: Ours, None where the user gave Optuna's.
        is_indexed: Whether Optuna sees numbers in place of categories, because it cannot store these or tell them apart.
    """

    distribution: BaseDistribution
    domain: Domain | None = None
    is_indexed: bool = False

    def decode(self, value: Any) -> Any:
        """Return the value for a configuration, rounded by the domain, since Optuna does not round on logarithmic scales."""
        if self.is_indexed and isinstance(self.domain, Categorical):
            return self.domain.categories[value]
        return value if self.domain is None else self.domain.clip(value)

    def encode(self, name: str, value: Any) -> Any:
        """Return a given value as Optuna knows it."""
        if self.domain is None:
            return value
        if not self.domain.contains(value):
            raise ValueError(
                f"{name!r} must lie in {self.domain!r}, got {value!r}; widen the space or leave the parameter out"
            )
        return (
            self.domain.index(value)
            if self.is_indexed and isinstance(self.domain, Categorical)
            else self.domain.cast(value)
        )


@final
class DeclaredSpace:
    """A space given as a dictionary.

    In a conditional space Optuna is asked for one parameter after the other, each only where it exists beside the values that it has
    given already, as if a function of a trial had defined the space.

    Raises:
        ValueError: If Optuna cannot search a parameter.
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._space = dict(space)
        self._conditional = _conditional(self._space)
        self._paths = {
            flat_name(path): path for path, leaf in leaves(self._space) if _is_searched(leaf)
        }
        if self._conditional is None:
            self._parameters = {
                flat_name(path): _parameter(flat_name(path), leaf)
                for path, leaf in leaves(self._space)
                if _is_searched(leaf)
            }
        else:
            self._parameters = {
                found.name: _parameter(found.name, found.domain)
                for found in self._conditional.parameters
            }

    def as_distributions(self) -> dict[str, BaseDistribution]:
        """Return the distribution of each searched parameter.

        Raises:
            ValueError: If the space is conditional, or has categories that Optuna cannot store.
        """
        if self._conditional is not None:
            raise ValueError(
                "convert_search_space must have a space without conditions; give the space itself, as param_space"
            )
        for name, parameter in self._parameters.items():
            if parameter.is_indexed:
                raise ValueError(
                    f"convert_search_space must have categories that Optuna can store, got {parameter.domain!r} for {name!r}; "
                    "give the space itself, as param_space"
                )
        return {name: parameter.distribution for name, parameter in self._parameters.items()}

    def ask(self, study: optuna.Study) -> tuple[int, dict[str, Any]]:
        """Return the number of a new trial and its configuration."""
        if self._conditional is not None:
            return self._ask_by_and_by(study, self._conditional)
        trial = study.ask(
            {name: parameter.distribution for name, parameter in self._parameters.items()}
        )
        values = {
            self._paths[name]: parameter.decode(trial.params[name])
            for name, parameter in self._parameters.items()
        }
        return trial.number, assign(copied(self._space), values)

    def encoded(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a configuration gives for parameters, by name and as Optuna knows them."""
        if self._conditional is not None:
            given = self._conditional.values_of(point)
        else:
            given = {
                flat_name(path): value for path, value in match(self._space, point, _is_searched)
            }
        return {name: self._parameters[name].encode(name, value) for name, value in given.items()}

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """Return the distributions of a complete set of parameters."""
        names = set(self._parameters)
        if self._conditional is not None:
            values = {name: self._parameters[name].decode(value) for name, value in params.items()}
            names = {parameter.name for parameter in self._conditional.active(values)}
        if missing := sorted(names - params.keys()):
            raise ValueError(
                f"points with evaluated_rewards must be complete, got none of {missing}; add their values"
            )
        return {
            name: parameter.distribution
            for name, parameter in self._parameters.items()
            if name in names
        }

    def _ask_by_and_by(self, study: optuna.Study, space: SearchSpace) -> tuple[int, dict[str, Any]]:
        trial = study.ask()
        values: dict[str, Any] = {}
        for found in space.parameters:
            if found.is_active(values):
                parameter = self._parameters[found.name]
                values[found.name] = parameter.decode(
                    _suggested(trial, found.name, parameter.distribution)
                )
        return trial.number, space.config_of(values, rng=None)


@final
class DefinedSpace:
    """A space given as a function of an Optuna trial."""

    def __init__(self, define: Define) -> None:
        self._define = define

    def ask(self, study: optuna.Study) -> tuple[int, dict[str, Any]]:
        """Return the number of a new trial and its configuration."""
        trial = study.ask()
        constants = self._define(trial)
        if constants is not None and not isinstance(constants, Mapping):
            raise TypeError(
                f"a space function must return a dictionary of constants or None, got {constants!r}; ask the trial for the rest"
            )
        return trial.number, _with_constants(trial.params, constants or {})

    def encoded(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a configuration gives, by name; only the function knows which are parameters."""
        return {flat_name(path): value for path, value in leaves(dict(point))}

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """Return the distributions that the function asks for when it is given these parameters."""
        from optuna.trial import FixedTrial  # noqa: PLC0415  (an extra)

        trial = FixedTrial(dict(params))
        self._define(trial)  # type: ignore[arg-type]  # made by Optuna to stand in for a trial
        return trial.distributions


OptunaSpace = DeclaredSpace | DefinedSpace


def with_nested_names(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space in which Optuna's distributions under flattened names, as it has them itself, are where those names lead."""
    flattened = {
        name for name, leaf in space.items() if "/" in name and foreign_library(leaf) == "optuna"
    }
    named = nest({name: space[name] for name in flattened})
    return (
        merge({name: leaf for name, leaf in space.items() if name not in flattened}, named)
        if flattened
        else dict(space)
    )


def _with_constants(params: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    taken = sorted(params.keys() & {flat_name(path) for path, _ in leaves(dict(constants))})
    if taken:
        raise ValueError(
            f"a space function must not return constants for what it asks the trial for, got {taken}; ask for it or return it"
        )
    config = nest(params)
    for name, value in constants.items():
        config = merge(config, nest({name: value}))
    return config


def _is_searched(leaf: Any) -> bool:
    from optuna.distributions import BaseDistribution  # noqa: PLC0415  (an extra)

    return is_word(leaf) or isinstance(leaf, BaseDistribution)


def _conditional(space: Mapping[str, Any]) -> SearchSpace | None:
    """Return the space taken apart where it is conditional, None where it is flat.

    Raises:
        ValueError: If it is conditional and has what Optuna cannot search.
    """
    from optuna.distributions import BaseDistribution  # noqa: PLC0415  (an extra)

    if not any(isinstance(leaf, Conditional) for _, leaf in leaves(space)):
        return None
    taken = SearchSpace(space)
    for path in taken.dependents:
        raise _unsearchable(
            flat_name(path), "sample_from", "compute the value in the training code"
        )
    for path in taken.grid_axes:
        raise _unsearchable(
            flat_name(path), "grid_search", "use choice, or leave the searcher out for a grid"
        )
    for path, leaf in every_leaf(space):
        if isinstance(leaf, BaseDistribution):
            raise _unsearchable(
                flat_name(path),
                f"{leaf!r} in a conditional space",
                "use the words of this package there, such as uniform",
            )
    return taken


def _suggested(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> Any:
    from optuna import distributions as optunas  # noqa: PLC0415  (an extra)

    match distribution:
        case optunas.FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case optunas.IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case optunas.CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
        case _:
            raise TypeError(
                f"{name!r} must have a distribution of floats, integers or categories, got {distribution!r}"
            )


def _parameter(name: str, leaf: Any) -> _Parameter:
    from optuna import distributions as optunas  # noqa: PLC0415  (an extra)

    match leaf:
        case Float(lower, upper, q, is_log):
            return _Parameter(
                optunas.FloatDistribution(lower, upper, log=is_log, step=None if is_log else q),
                leaf,
            )
        case Integer(lower, upper, q, is_log):
            return _Parameter(
                optunas.IntDistribution(lower, upper, log=is_log, step=1 if is_log else q), leaf
            )
        case Categorical(categories) if _is_storable(categories):
            return _Parameter(optunas.CategoricalDistribution(categories), leaf)
        case Categorical(categories):
            return _Parameter(
                optunas.CategoricalDistribution(range(len(categories))), leaf, is_indexed=True
            )
        case optunas.BaseDistribution():
            return _Parameter(leaf)
        case Normal():
            raise _unsearchable(name, "randn", "use uniform over the range that matters")
        case SampleFrom():
            raise _unsearchable(name, "sample_from", "compute the value in the training code")
        case _:
            raise _unsearchable(
                name, "grid_search", "use choice, or leave the searcher out for a grid"
            )


def _unsearchable(name: str, word: str, remedy: str) -> ValueError:
    return ValueError(
        f"{name!r} must be a range of floats or integers or a choice for OptunaSearch, got {word}; {remedy}"
    )


def _is_storable(categories: tuple[Any, ...]) -> bool:
    """Return whether Optuna can store the categories and tell them apart, which it does by equality."""
    are_plain = all(
        category is None or isinstance(category, bool | int | float | str)
        for category in categories
    )
    return are_plain and len(set(categories)) == len(categories)
