"""Search spaces, objectives and constraints, translated for Optuna."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, final

from searchers.objectives.outcome_constraint import OutcomeConstraint, number_of
from searchers.searcher import MODES
from searchers.space import (
    Categorical,
    Conditional,
    Domain,
    Float,
    Integer,
    Normal,
    Path,
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
from searchers.space.declared_space import like, where_of
from searchers.space.domains import checked_value
from searchers.space.foreign_domains import library_of
from searchers.space.recorded_forms import is_recorded_form
from searchers.space.tree import is_same_constant

if TYPE_CHECKING:
    import optuna  # an extra: at run time imported where it is used
    from numpy.random import Generator
    from optuna.distributions import BaseDistribution

    from searchers.space.relations import Relation


Define = Callable[["optuna.Trial"], Mapping[str, Any] | None]
"""A space as a function: it asks the trial for parameters and returns constants, if any."""
_NUM_DRAWS = 10
"""How often a space function is called with a point that leaves parameters out, to see what it may
ask for."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A searched parameter with its Optuna distribution.

    Attributes:
        distribution: Optuna's distribution.
        domain: The domain; None if the space has the distribution itself.
        is_indexed: Whether Optuna gets the indices of categories, because it cannot store these or
            distinguish them.
    """

    distribution: BaseDistribution
    domain: Domain | None = None
    is_indexed: bool = False

    def decode(self, value: Any) -> Any:
        """Return the value for a configuration."""
        if self.is_indexed and isinstance(self.domain, Categorical):
            return self.domain.categories[value]
        # Optuna does not round on logarithmic scales.
        return value if self.domain is None else self.domain.clip(value)

    def encode(self, name: str, value: Any) -> Any:
        """Return a value of a configuration as Optuna represents it."""
        if self.domain is None:
            return value
        checked = checked_value(name, self.domain, value)
        if self.is_indexed and isinstance(self.domain, Categorical):
            return self.domain.index(checked)
        return checked


@final
class DeclaredSpace:
    """A space given as a dictionary.

    In a conditional space Optuna is asked for one parameter after the other, and only for active
    ones, as by a space function.

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
        self._related = None if where_of(space) is None else _with_own_domains(space)
        self.where = None if self._related is None else self._related.where

    def allows(self, config: Mapping[str, Any]) -> bool:
        """Return whether a configuration satisfies the relation of the space."""
        return self.where is None or self.where.holds(config)

    def check_points(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Check that configurations, and completions of these points, can satisfy the relation.

        Raises:
            ValueError: If none of many draws does.
        """
        if self._related is not None:
            self._related.check_satisfiable()
            self._related.check_points([self._related.assignments(point) for point in points])

    def completed(self, params: Mapping[str, Any], rng: Generator) -> dict[str, Any]:
        """Return parameters with others drawn so that the relation of the space holds.

        Raises:
            ValueError: If none of many draws satisfies it, or nothing is left to draw.
        """
        space = self._related or SearchSpace(self._space)
        values = {
            name: parameter.decode(params[name])
            for name, parameter in self._parameters.items()
            if name in params
        }
        active = {parameter.name for parameter in space.active(values)}
        config = space.config_of({name: values[name] for name in values if name in active}, rng)
        if self.where is not None and not self.where.holds(config):
            raise self.where.refusal(config)
        return self.encoded(config)

    def as_distributions(self) -> dict[str, BaseDistribution]:
        """Return the distribution of each searched parameter.

        Raises:
            ValueError: If the space is conditional, has a relation, or has categories that Optuna
                cannot store.
        """
        if self.where is not None:
            raise ValueError(
                "convert_search_space must have a space without where, got "
                f"{self.where}, which distributions cannot say; give the space itself, as "
                "param_space"
            )
        if self._conditional is not None:
            raise ValueError(
                "convert_search_space must have a space without conditions; give the space itself, "
                "as param_space"
            )
        for name, parameter in self._parameters.items():
            if parameter.is_indexed:
                raise ValueError(
                    "convert_search_space must have categories that Optuna can store, got "
                    f"{parameter.domain!r} for {name!r}; "
                    "give the space itself, as param_space"
                )
        return {name: parameter.distribution for name, parameter in self._parameters.items()}

    def ask(self, study: optuna.Study) -> tuple[int, dict[str, Any]]:
        """Return the number of a new trial and its configuration."""
        if self._conditional is not None:
            return self._ask_conditional(study, self._conditional)
        trial = study.ask(
            {name: parameter.distribution for name, parameter in self._parameters.items()}
        )
        values = {
            self._paths[name]: parameter.decode(trial.params[name])
            for name, parameter in self._parameters.items()
        }
        return trial.number, assign(copied(self._space), values)

    def encoded(
        self,
        point: Mapping[str, Any],
        constants: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return a configuration's parameter values by name, as Optuna represents them."""
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
                f"points with evaluated_rewards must be complete, got none of {missing}; add their "
                "values"
            )
        return {
            name: parameter.distribution
            for name, parameter in self._parameters.items()
            if name in names
        }

    def _ask_conditional(
        self, study: optuna.Study, space: SearchSpace
    ) -> tuple[int, dict[str, Any]]:
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

    where: Relation | None = None
    """It has no relation: what it asks for is not known in advance."""

    def __init__(self, define: Define) -> None:
        self._define = define

    def allows(self, config: Mapping[str, Any]) -> bool:
        """Return True: there is no relation."""
        return True

    def check_points(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing: there is no relation."""

    def completed(self, params: Mapping[str, Any], rng: Generator) -> dict[str, Any]:
        """Return the parameters: there is no relation that they may violate."""
        return dict(params)

    def ask(self, study: optuna.Study) -> tuple[int, dict[str, Any]]:
        """Return the number of a new trial and its configuration."""
        trial = study.ask()
        constants = self._define(trial)
        if constants is not None and not isinstance(constants, Mapping):
            raise TypeError(
                "a space function must return a dictionary of constants or None, got "
                f"{constants!r}; ask the trial for the rest"
            )
        return trial.number, _with_constants(trial.params, constants or {})

    def encoded(
        self, point: Mapping[str, Any], constants: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a configuration's values by name, without constants, which may be repeated in it.

        The function is called with the point, several times where other parameters are drawn.

        Args:
            point: The configuration, nested or with names such as ``"a/b"``.
            constants: Constants beside the function; None if these are not known yet, in which case
                other names are accepted unless they look like misspelt parameters.

        Raises:
            ValueError: If the function does not ask for a name of it, a value lies outside of its
                range, or a constant has another value.
        """
        given = _flat(point)
        known: dict[str, Any] = _flat(constants or {})
        asked: dict[str, BaseDistribution] = {}
        sometimes: set[str] = set()
        for seed in range(_NUM_DRAWS):
            distributions, returned = self._tried(given, seed)
            sometimes |= (asked.keys() ^ distributions.keys()) if asked else set()
            asked |= distributions
            known |= _flat(returned)
            # Only what is drawn can make the function ask for other names.
            if distributions.keys() <= given.keys():
                break
        for name, value in given.items():
            if name in asked:
                if name in sometimes:
                    raise ValueError(
                        f"{name!r} must come with all that decides whether the space function asks "
                        f"for it, got {dict(point)!r}; add "
                        f"{' or '.join(repr(other) for other in asked if other not in given)}"
                    )
            elif name not in known:
                _check_asked(name, given, asked, is_final=constants is not None)
            elif not (is_same_constant(known[name], value) or is_recorded_form(known[name], value)):
                raise ValueError(
                    f"{name!r} must be {known[name]!r} as in the space, got {value!r}; change the "
                    "space to change a constant"
                )
        return {name: value for name, value in given.items() if name not in known}

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """Return the distributions that the function asks for when it is given these parameters."""
        distributions, _ = self._tried(params, seed=0)
        if missing := sorted(distributions.keys() - params.keys()):
            raise ValueError(
                f"points with evaluated_rewards must be complete, got none of {missing}; add their "
                "values"
            )
        return distributions

    def _tried(
        self, params: Mapping[str, Any], seed: int
    ) -> tuple[dict[str, BaseDistribution], Mapping[str, Any]]:
        """Return what the function asks for beside these parameters, and what it returns."""
        from .study import trial_with  # noqa: PLC0415  (imports Optuna)

        trial = trial_with(params, seed)
        returned = self._define(trial)
        return trial.distributions, returned if isinstance(returned, Mapping) else {}


OptunaSpace = DeclaredSpace | DefinedSpace


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by flattened names; lists are values that a function may suggest."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}/{name}": inner for name, inner in _flat(value).items()}
        else:
            found[str(key)] = value
    return found


def _check_asked(
    name: str, given: Mapping[str, Any], asked: Mapping[str, Any], *, is_final: bool
) -> None:
    free = [known for known in asked if known not in given]
    close = difflib.get_close_matches(name, free, n=1)
    if close or is_final:
        raise ValueError(
            f"{name!r} must be a name that the space function asks the trial for, got a point with "
            f"it beside which it asks for {', '.join(map(repr, asked)) or 'nothing'}; "
            + (f"did you mean {close[0]!r}?" if close else "correct the name or leave it out")
        )


def with_nested_names(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space with Optuna's distributions moved from flattened to nested names."""
    flat = {
        name: leaf for name, leaf in space.items() if "/" in name and library_of(leaf) == "optuna"
    }
    others = {name: leaf for name, leaf in space.items() if name not in flat}
    return like(space, merge(others, nest(flat)) if flat else others)


def _with_constants(params: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    taken = sorted(params.keys() & {flat_name(path) for path, _ in leaves(dict(constants))})
    if taken:
        raise ValueError(
            "a space function must not return constants for what it asks the trial for, got "
            f"{taken}; ask for it or return it"
        )
    config = nest(params)
    for name, value in constants.items():
        config = merge(config, nest({name: value}))
    return config


def _is_searched(leaf: Any) -> bool:
    from optuna.distributions import BaseDistribution  # noqa: PLC0415  (an extra)

    return is_word(leaf) or isinstance(leaf, BaseDistribution)


def _conditional(space: Mapping[str, Any]) -> SearchSpace | None:
    """Return the parsed space if it is conditional, None if it is flat.

    Raises:
        ValueError: If it is conditional and has a leaf that Optuna cannot search.
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
                "use the functions of this package there, such as uniform",
            )
    return taken


def _with_own_domains(space: Mapping[str, Any]) -> SearchSpace:
    """Return a space with domains in place of Optuna's distributions, and with its relation."""
    from optuna import distributions as optunas  # noqa: PLC0415  (an extra)

    domains: dict[Path, Domain] = {}
    for path, leaf in leaves(dict(space)):
        match leaf:
            case optunas.FloatDistribution(low=low, high=high, step=step, log=log):
                domains[path] = Float(low, high, step, log)
            case optunas.IntDistribution(low=low, high=high, step=step, log=log):
                domains[path] = Integer(low, high, step, log)
            case optunas.CategoricalDistribution(choices=choices):
                domains[path] = Categorical(tuple(choices))
    return SearchSpace(like(space, assign(copied(dict(space)), domains)))


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
                f"{name!r} must have a distribution of floats, integers or categories, got "
                f"{distribution!r}"
            )


def _parameter(name: str, leaf: Any) -> _Parameter:
    from optuna import distributions as optunas  # noqa: PLC0415  (an extra)

    match leaf:
        # Optuna takes no step on a logarithmic scale: there `decode` rounds.
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
        f"{name!r} must be a range of floats or integers or a choice for OptunaSearch, got {word}; "
        f"{remedy}"
    )


def _is_storable(categories: tuple[Any, ...]) -> bool:
    """Return whether Optuna can store the categories and distinguish them by equality."""
    # In JSON, and as keys: 1 and True would be the same category.
    are_plain = all(
        category is None or isinstance(category, bool | int | float | str)
        for category in categories
    )
    return are_plain and len(set(categories)) == len(categories)


ConstraintFunction = Callable[[Mapping[str, Any]], Sequence[float]]
"""A function of a flattened result that returns numbers.

A constraint is satisfied at 0 or below.
"""
Constraints = ConstraintFunction | Sequence[str]
"""Such a function, or names of metrics that are satisfied at 0 or below."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One or several metrics with their modes, and the constraints.

    Attributes:
        metrics: Their flattened names.
        modes: ``"min"`` or ``"max"`` for each of them: the direction in which it is optimised.
        bounds: The constraints that are known to the experiment.
        function: Further constraints; None for none.
    """

    metrics: tuple[str, ...]
    modes: tuple[str, ...]
    bounds: tuple[OutcomeConstraint, ...] = ()
    function: ConstraintFunction | None = None

    @property
    def is_single(self) -> bool:
        """Whether there is one metric, whose intermediate values can be reported."""
        return len(self.metrics) == 1

    def value(self, result: Mapping[str, Any]) -> float | None:
        """Return the only metric's value, which may be NaN; None if it is not a number."""
        return as_float(result.get(self.metrics[0]))

    def values(self, result: Mapping[str, Any]) -> list[float] | None:
        """Return the metrics' values in order; None if one is missing, NaN or not a number."""
        values = [as_float(result.get(metric)) for metric in self.metrics]
        numbers = [value for value in values if value is not None and not math.isnan(value)]
        return numbers if len(numbers) == len(values) else None

    def is_bad(self, result: Mapping[str, Any]) -> bool:
        """Return whether a metric was reported that is NaN, infinite or not a number."""
        reported = [
            as_float(result[metric]) for metric in self.metrics if result.get(metric) is not None
        ]
        return any(value is None or not math.isfinite(value) for value in reported)

    def rewards(self, reward: Any) -> list[float]:
        """Return a reward given by the user as values.

        Raises:
            ValueError: If it is no number, or not one for each metric.
        """
        if isinstance(reward, Mapping):
            reward = [reward.get(metric) for metric in self.metrics]
        given = [reward] if self.is_single and isinstance(reward, Real) else reward
        if (
            not isinstance(given, Sequence)
            or isinstance(given, str)
            or len(given) != len(self.metrics)
        ):
            wanted = (
                "numbers"
                if self.is_single
                else f"{len(self.metrics)} numbers for each point, one per metric"
            )
            raise ValueError(
                f"evaluated_rewards must hold {wanted}, got {reward!r}; leave out points without a "
                "result"
            )
        values = self.values(dict(zip(self.metrics, given, strict=True)))
        if values is None:
            raise ValueError(
                f"evaluated_rewards must hold numbers, got {reward!r}; leave out points without a "
                "result"
            )
        return values

    @property
    def remembered(self) -> frozenset[str]:
        """The metrics of which the newest value counts, even if the last result has none."""
        own = () if self.is_single else self.metrics
        return frozenset([*own, *(bound.metric for bound in self.bounds)])

    def violations(self, result: Mapping[str, Any]) -> dict[str, float] | None:
        """Return the constraints' values by metric, or by position in what the function returned.

        Returns:
            None if a value is missing, NaN or not a number, or the function raised. An empty
            dictionary without constraints.
        """
        given = self._computed(result)
        if given is None:
            return None
        values = {name: as_float(value) for name, value in given.items()}
        for name, bound in self._named_bounds():
            value = number_of(result.get(bound.metric))
            values[name] = (
                None if value is None or not math.isfinite(value) else bound.excess(value)
            )
        known = {
            name: value
            for name, value in values.items()
            if value is not None and not math.isnan(value)
        }
        return known if len(known) == len(values) else None

    def violations_of(self, reward: Any) -> dict[str, float] | None:
        """Return the constraints' values where a reward is a dictionary that has all of them."""
        return self.violations(reward) if isinstance(reward, Mapping) else None

    def _named_bounds(self) -> Iterator[tuple[str, OutcomeConstraint]]:
        """Yield each bound under its metric, or in full where it is not the metric's first."""
        seen: set[str] = set()
        for bound in self.bounds:
            yield (str(bound) if bound.metric in seen else bound.metric), bound
            seen.add(bound.metric)

    def _computed(self, result: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self.function is None:
            return {}
        try:
            return {str(number): value for number, value in enumerate(self.function(result))}
        # The user's function: an error in it must not end the other trials.
        except Exception as error:  # noqa: BLE001
            warnings.warn(
                f"constraints raised {type(error).__name__}: {error}; the trial counts as failed",
                RuntimeWarning,
                stacklevel=2,
            )
            return None


def objective_of(
    metric: Any,
    mode: Any,
    bounds: tuple[OutcomeConstraint, ...],
    function: ConstraintFunction | None,
) -> Objective:
    """Return the objective for a user's metric and mode.

    Args:
        metric: A name, or a list of names for several objectives.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; a list of as
            many for several.
        bounds: The constraints that are known to the experiment.
        function: Further constraints; None for none.

    Raises:
        ValueError: If there is no metric, no mode, or not as many of one as of the other.
    """
    metrics, modes = as_tuple(metric), as_tuple(mode)
    if not metrics or not all(isinstance(name, str) and name for name in metrics):
        raise ValueError(
            f"metric must be the name of one metric for OptunaSearch, got {metric!r}; set "
            "TuneConfig(metric=...)"
        )
    if not modes or any(each not in MODES for each in modes):
        raise ValueError(
            f"mode must be one of {MODES} for OptunaSearch, got {mode!r}; set TuneConfig(mode=...)"
        )
    if len(modes) != len(metrics) or len(set(metrics)) != len(metrics):
        raise ValueError(
            f"metric and mode must name as many different metrics as directions, got {metric!r} "
            f"and {mode!r}; give one of each"
        )
    return Objective(metrics, modes, bounds, function)


def as_tuple(given: Any) -> tuple[Any, ...]:
    """Return one name or several as a tuple; nothing for None."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def bounds_of(constraints: Constraints | None) -> tuple[OutcomeConstraint, ...]:
    """Return the constraints on metrics; none of a function, which only the search knows.

    Raises:
        TypeError: If `constraints` are neither a function nor names.
    """
    if constraints is None or callable(constraints):
        return ()
    is_list = isinstance(constraints, Sequence) and not isinstance(constraints, str)
    if (
        not is_list
        or not constraints
        or not all(isinstance(name, str) and name for name in constraints)
    ):
        raise TypeError(
            "constraints must be a function of a result or a list of names of metrics, got "
            f"{constraints!r}; leave them out or name one"
        )
    return tuple(OutcomeConstraint(name, "<=", 0.0) for name in dict.fromkeys(constraints))


def as_float(value: Any) -> float | None:
    """Return a real number as a float, None for anything else."""
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
