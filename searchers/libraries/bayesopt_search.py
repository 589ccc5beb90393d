"""The library bayesian-optimization as a searcher; it is imported only here, when it is used."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar, Final, final

import numpy as np

from searchers.learning_searcher import FailedTrials
from searchers.seeding import generator
from searchers.space import flat_name, is_word, leaves, nest
from searchers.space.domains import Domain, Float, Integer

from .library_search import LibrarySearch, Observation, Values

DEFAULT_UTILITY: Final = {"kind": "ucb", "kappa": 2.576, "xi": 0.0}
_KINDS: Final = ("ucb", "ei", "poi")
_REFUSED: Final = 1e6
"""What is added to the value, which the library minimises, where the relation does not hold."""
_UTILITY_KEYS: Final = ("kind", "kappa", "xi", "kappa_decay", "kappa_decay_delay")


@final
class BayesOptSearch(LibrarySearch):
    """Searches numeric spaces with a Gaussian process by the library bayesian-optimization.

    Each parameter is searched on its own scale, linear or logarithmic, and integers are rounded. A
    running trial counts with the mean value of the others, a failed one with the worst value so
    far, so that neither is proposed again at once. A trial that a scheduler or stopper ended counts
    with its last value. Where the space has a relation, the acquisition function is maximised among
    what satisfies it.

    Args:
        space: The search space, if ``param_space`` does not define it: a dictionary with domains,
            or with the library's bounds, ``{"x": (0, 1)}``, which are continuous ranges.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are sampled.
        utility_kwargs: The acquisition function: ``kind`` is ``"ucb"`` (the default), ``"ei"`` or
            ``"poi"``; ``kappa`` (at least 0, 2.576 by default) weighs exploration in ``"ucb"``,
            ``xi`` (0.0 by default) in the others. ``kappa`` is multiplied by ``kappa_decay`` at
            each suggestion after the first ``kappa_decay_delay``.
        random_state: Seed of the search; None to take the experiment's.
        random_search_steps: Number of random configurations at the beginning, points to evaluate
            included.
        verbose: Accepted for compatibility and not used: nothing is printed.
        patience: Number of proposals in a row that are known configurations, after which the search
            is finished.
        skip_duplicate: Whether the library is asked again, with another seed, if it proposes a
            known configuration.
        analysis: A `ResultGrid` or `ExperimentAnalysis` of an earlier experiment, whose trials are
            added as evaluated points.
        repeat_float_precision: Number of digits, as parts of their ranges, to which all parameters
            of two configurations have to agree for these to be duplicates.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be
            complete and are not run again.
        failed_trials: ``"worst"`` counts trials that failed, or whose last value is missing, NaN or
            infinite, like the worst one seen so far; ``"ignore"`` learns nothing from them.

    Raises:
        ImportError: If bayesian-optimization is not installed.
        ValueError: If a value is out of range.

    Example:
        >>> from searchers.space import loguniform
        >>> searcher = BayesOptSearch(metric="loss", mode="min", points_to_evaluate=[{"lr": 0.01}])
        >>> searcher.set_search_properties(
        ...     None, None, {"lr": loguniform(1e-4, 1e-1), "epochs": 5}, seed=0
        ... )
        True
        >>> searcher.suggest("a")
        {'lr': 0.01, 'epochs': 5}

    Reference:
        Snoek, Larochelle, Adams. Practical Bayesian Optimization of Machine Learning Algorithms.
        NIPS 2012, arXiv 1206.2944.

        Ginsbourger, Le Riche, Carraro. Kriging Is Well-Suited to Parallelize Optimization. 2010,
        for the values of running trials.

    Departures:
        Ray Tune needs version 1.4 of the library, ignores logarithmic scales and rounding, has 42
        as default seed, and answers a duplicate by "not now".
    """

    extra, library = "bayesopt", "bayes_opt"
    searchable: ClassVar[tuple[type[Domain], ...]] = (Float, Integer)
    remedy = "use ranges of numbers only, or another searcher"

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
        *,
        evaluated_rewards: Sequence[float] | None = None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        super().__init__(
            space=space,
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            seed=random_state,
            failed_trials=failed_trials,
        )
        for name, value in (("random_search_steps", random_search_steps), ("patience", patience)):
            if value < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {value}; the search cannot begin or go on "
                    "without"
                )
        self._utility = _checked_utility({**DEFAULT_UTILITY, **(utility_kwargs or {})})
        self._num_random = random_search_steps
        self._patience = patience
        self._skips_duplicates = skip_duplicate
        self._precision = repeat_float_precision
        self._analysis = analysis

    @classmethod
    def _own_space(cls, space: Any) -> Mapping[str, Any] | None:
        """Return the space with our domains; the library's bounds become continuous ranges.

        Raises:
            TypeError: If it is no dictionary.
            ValueError: If it mixes bounds with domains or constants.
        """
        given = super()._own_space(space)
        bounds = {name: value for name, value in (given or {}).items() if _are_bounds(value)}
        if given is None or not bounds:
            return given
        if len(bounds) < len(given):
            name, (lower, upper) = next(iter(bounds.items()))
            raise ValueError(
                "space must hold either bounds or domains for BayesOptSearch, got both: "
                f"{name!r} is {bounds[name]!r}; write tune.uniform({lower}, {upper}), and put "
                "constants into param_space"
            )
        return nest({name: Float(lower, upper) for name, (lower, upper) in bounds.items()})

    @classmethod
    def convert_search_space(cls, spec: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
        """Return the bounds of a space by flattened names; constants are left out.

        Args:
            spec: A dictionary with ranges.

        Raises:
            ValueError: If a parameter has more than bounds, such as a logarithmic scale.
        """
        bounds = {}
        for path, leaf in leaves(cls._own_space(spec) or {}):
            if is_word(leaf) and (
                not isinstance(leaf, Float) or leaf != Float(leaf.lower, leaf.upper)
            ):
                raise ValueError(
                    "convert_search_space must have uniform ranges for BayesOptSearch, got "
                    f"{leaf!r} for {flat_name(path)!r}, which bounds cannot say; give the space "
                    "itself, as param_space"
                )
            if is_word(leaf):
                bounds[flat_name(path)] = (leaf.lower, leaf.upper)
        return bounds

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed, and load earlier results.

        Raises:
            ValueError: As in other searchers, and if `config` has pairs of numbers and no domain:
                they would be constants there.
        """
        _check_constants(config, has_own_space=self._given_space is not None)
        is_taken = super().set_search_properties(metric, mode, config, **spec)
        if is_taken and self._analysis is not None:
            self.add_evaluated_trials(self._analysis, str(self.metric))
        return is_taken

    def _propose(self, seed: int) -> Values | None:
        known = (
            {self._rounded_units(observation.values) for observation in self._history}
            if self._skips_duplicates
            else set()
        )
        for attempt in range(self._patience):
            values = self._rounded(self._proposed(int(generator(seed, attempt).integers(2**32))))
            if self._rounded_units(values) not in known:
                return values
        return None

    def _proposed(self, seed: int) -> Values:
        """Return a random configuration at first, then the one of greatest utility."""
        parameters = self._parameters
        finished = [
            observation.value for observation in self._history if observation.value is not None
        ]
        if len(self._history) < self._num_random or not finished:
            return self._drawn(generator(seed, 0), {})
        # The library only sees unit intervals: the domains handle logarithmic scales and rounding.
        # Duplicates must be allowed, since points repeat by rounding.
        optimizer = self._module().BayesianOptimization(
            f=None,
            pbounds=dict.fromkeys(parameters, (0.0, 1.0)),
            acquisition_function=self._acquisition(),
            random_state=seed,
            verbose=0,
            allow_duplicate_points=True,
        )
        # The library maximises.
        targets = [self._sign * value for value in finished]
        worst, mean = min(targets), fmean(targets)
        for observation in (each for each in self._history if not self._is_ignored(each)):
            optimizer.register(
                self._units(observation.values), self._target(observation, worst, mean)
            )
        return {
            name: parameters[name].from_unit(float(unit))
            for name, unit in optimizer.suggest().items()
        }

    def _target(self, observation: Observation, worst: float, mean: float) -> float:
        # A running trial gets the mean: the "constant liar" of Ginsbourger et al.
        if observation.value is not None:
            return self._sign * observation.value
        return worst if observation.is_over else mean

    def _acquisition(self) -> Any:
        """Return the acquisition function, which is low where the relation does not hold."""
        acquisition = self._plain_acquisition()
        if self._space.where is not None:
            # The only place where the library compares configurations before it proposes one.
            prepared = acquisition._get_acq  # noqa: SLF001
            acquisition._get_acq = lambda **given: self._restricted(prepared(**given))  # noqa: SLF001
        return acquisition

    def _restricted(self, minimised: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def restricted(units: Any) -> Any:
            rows = units.reshape(-1, len(self._parameters)).tolist()
            values = np.array(minimised(units))
            is_refused = [not self._allows_units(row) for row in rows]
            values[is_refused] = np.abs(values[is_refused]) + _REFUSED
            return values

        return restricted

    def _allows_units(self, units: Sequence[float]) -> bool:
        domains = self._space.domains.items()
        return self._space.allows(
            {
                path: domain.from_unit(unit)
                for (path, domain), unit in zip(domains, units, strict=True)
            }
        )

    def _plain_acquisition(self) -> Any:
        kinds, utility = self._module(".acquisition"), self._utility
        if utility["kind"] == "ei":
            return kinds.ExpectedImprovement(xi=utility["xi"])
        if utility["kind"] == "poi":
            return kinds.ProbabilityOfImprovement(xi=utility["xi"])
        num_decays = max(
            len(self._history) - max(self._num_random, utility.get("kappa_decay_delay", 0)), 0
        )
        return kinds.UpperConfidenceBound(
            kappa=utility["kappa"] * utility.get("kappa_decay", 1.0) ** num_decays
        )

    def _units(self, values: Values) -> dict[str, float]:
        return {name: domain.to_unit(values[name]) for name, domain in self._parameters.items()}

    def _rounded_units(self, values: Values) -> tuple[float, ...]:
        return tuple(round(unit, self._precision) for unit in self._units(values).values())


def _check_constants(config: Mapping[str, Any], *, has_own_space: bool) -> None:
    """Refuse a param_space with the library's bounds and no domain.

    It would run, as a search without parameters.
    """
    bounds = {name: value for name, value in config.items() if _are_bounds(value)}
    if has_own_space or not bounds or any(is_word(leaf) for _, leaf in leaves(config)):
        return
    name, (lower, upper) = next(iter(bounds.items()))
    raise ValueError(
        f"param_space must hold domains for BayesOptSearch, got {bounds[name]!r} for "
        f"{name!r}, which is a constant there; write "
        f"tune.uniform({lower}, {upper}), or BayesOptSearch(space={bounds!r}, ...)"
    )


def _are_bounds(value: Any) -> bool:
    are_two = isinstance(value, list | tuple) and len(value) == 2  # noqa: PLR2004
    return are_two and all(
        isinstance(end, numbers.Real) and not isinstance(end, bool) for end in value
    )


def _checked_utility(utility: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in utility:
        if name not in _UTILITY_KEYS:
            raise ValueError(
                f"utility_kwargs must hold nothing but {', '.join(_UTILITY_KEYS)}, got {name!r}; "
                "leave it out"
            )
    if utility["kind"] not in _KINDS:
        raise ValueError(
            f"utility_kwargs['kind'] must be one of {_KINDS}, got {utility['kind']!r}; 'ucb' is "
            "the default"
        )
    if not utility["kappa"] >= 0:
        raise ValueError(
            f"utility_kwargs['kappa'] must be at least 0, got {utility['kappa']!r}; 0 tries what "
            "is best by expectation"
        )
    if not 0 < utility.get("kappa_decay", 1.0) <= 1:
        raise ValueError(
            "utility_kwargs['kappa_decay'] must be above 0, and 1 at most, got "
            f"{utility['kappa_decay']!r}; 1 is no decay"
        )
    return utility
