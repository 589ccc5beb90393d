"""Ax as a searcher; Ax is imported only here, when the searcher is used."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Final, Literal, final

from searchers.learning_searcher import FailedTrials
from searchers.objectives.newest_values import NewestValues
from searchers.objectives.outcome_constraint import (
    OutcomeConstraint,
    comparisons,
    outcome_constraints,
)
from searchers.seeding import seeded_global_rngs
from searchers.space import flat_name
from searchers.space.domains import Categorical, Domain, Float, Integer
from searchers.space.linear_parts import linear_parts
from searchers.space.parameters import num_values

from .library_search import IncrementalSearch, Values, finite

_OBJECTIVE: Final = "objective"
_BOUND: Final = re.compile(
    r"\s*([A-Za-z_]\w*)\s*([<>]=\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*", re.IGNORECASE
)
"""A constraint on one metric; others are sums, or relative to a baseline."""
_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_MARGIN: Final = 1e-6
"""Distance from the end of a linear inequality, as a part of the range of each number: the model
proposes ends themselves, and a little more."""
_WARNING: Final = 30
"""``logging.WARNING``: searchers do not import logging."""

_CLIENT_ARGUMENTS: Final = {
    "generation_strategy": "give method and initialization_budget",
    "choose_generation_strategy_kwargs": "give method and initialization_budget",
    "enforce_sequential_optimization": "leave it out, trials that run at once are always allowed",
    "verbose_logging": "leave it out, Ax is always quiet here",
}
"""Arguments of Ax's older client that have no meaning here, and what to do instead."""


def _seed_among(ax_kwargs: Mapping[str, Any], seed: int | None) -> int | None:
    """Return the seed, which may be given under its name in Ax's older client.

    Raises:
        TypeError: If another argument is given.
        ValueError: If there are two seeds.
    """
    for name in ax_kwargs:
        if name != "random_seed":
            remedy = _CLIENT_ARGUMENTS.get(name, "leave it out")
            raise TypeError(
                f"AxSearch takes no argument {name!r}, which belongs to Ax's older AxClient; "
                f"{remedy}"
            )
    other = ax_kwargs.get("random_seed")
    if seed is not None and other is not None:
        raise ValueError(
            f"seed and random_seed must not both be given, got {seed!r} and {other!r}; leave one "
            "out"
        )
    return other if seed is None else seed


@final
class AxSearch(IncrementalSearch):
    """Searches with Ax: quasi-random configurations first, then Bayesian optimization by BoTorch.

    Several metrics and constraints come from `TuneConfig`. Of bounded metrics, and of each of
    several, the newest value of a trial counts, of a single metric the last one; also if a
    scheduler or stopper ended the trial. One that failed, or lacks a value, counts with the worst
    value of each that is known when Ax is asked next. Each suggestion of the model takes seconds. A
    restore replays all suggestions and results, which takes as long as they took.

    Of the relation of the space, linear inequalities of numbers on linear scales are parameter
    constraints of Ax, which make its model much slower. A proposal that violates another part
    counts as one that failed, or is abandoned.

    Args:
        space: The search space, if ``param_space`` does not define it: a dictionary with domains,
            or Ax's list of dictionaries, ``[{"name": "x", "type": "range", "bounds": [0.0,
            1.0]}]``.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are sampled.
        parameter_constraints: Linear inequalities that configurations satisfy: ``"x1 + 2*x2 <=
            1.5"``. Nested parameters have their flattened names. `points_to_evaluate` may violate
            them.
        outcome_constraints: Inequalities of reported metrics that results should satisfy:
            ``"size <= 3"``, as in ``TuneConfig(constraints={"size": "<= 3"})``, or sums such as
            ``"size + cache <= 3"``, which only the search knows: to the results, the console and
            the report, all trials satisfy them. The metrics must not be nested.
        method: ``"fast"`` (the default), ``"quality"`` for a slower, more careful model, or
            ``"random_search"`` for no model.
        initialization_budget: Number of quasi-random configurations at the beginning; None lets Ax
            derive it from the space.
        ax_client: Must be None; Ray Tune accepts a client here.
        seed: Seed of the search; None to take the experiment's.
        evaluated_rewards: The metric of each of `points_to_evaluate`, or a list with all metrics of
            each, or a dictionary of these and what is bounded. The points then have to be complete
            and are not run again.
        failed_trials: ``"worst"`` counts trials that failed, or whose last value is missing, NaN or
            infinite, like the worst one seen so far; ``"ignore"`` learns nothing from them.
        **ax_kwargs: Ray Tune's arguments for Ax's older client: ``random_seed`` is another name of
            `seed`; all others are refused, each with a remedy.

    Raises:
        ImportError: If Ax is not installed.
        TypeError: If an argument has no meaning here.
        ValueError: If arguments contradict each other, or `ax_client` is given.

    Example:
        >>> from searchers.space import loguniform
        >>> searcher = AxSearch(metric="loss", mode="min", points_to_evaluate=[{"lr": 0.01}])
        >>> searcher.set_search_properties(
        ...     None, None, {"lr": loguniform(1e-4, 1e-1), "epochs": 5}, seed=0
        ... )
        True
        >>> searcher.suggest("a")
        {'lr': 0.01, 'epochs': 5}

    Reference:
        Olson et al. Ax: A Platform for Adaptive Experimentation. AutoML 2025 (ABCD track).

        Balandat et al. BoTorch: A Framework for Efficient Monte-Carlo Bayesian Optimization.
        NeurIPS 2020, arXiv 1910.06403.

    Departures:
        Ray Tune works with Ax before 1.0. It accepts a client (``ax_client``), which a restored
        experiment could not construct again, and passes further arguments to Ax unchecked; here
        there are `method` and `initialization_budget` instead.
    """

    takes_several_metrics = True
    takes_constraints = True
    extra = library = "ax"
    searchable: ClassVar[tuple[type[Domain], ...]] = (Categorical, Float, Integer)
    remedy = "use uniform over the range that matters"
    num_tries = 5  # each takes seconds

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        space: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parameter_constraints: Sequence[str] | None = None,
        outcome_constraints: Sequence[str] | None = None,
        ax_client: None = None,
        *,
        method: Literal["fast", "quality", "random_search"] = "fast",
        initialization_budget: int | None = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        failed_trials: FailedTrials = "worst",
        **ax_kwargs: Any,
    ) -> None:
        if ax_client is not None:
            raise ValueError(
                f"ax_client must be None, got {ax_client!r}; a restore could not make it again, "
                "give space, metric and mode"
            )
        seed = _seed_among(ax_kwargs, seed)
        super().__init__(
            space=space,
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            seed=seed,
            failed_trials=failed_trials,
        )
        if method not in ("fast", "quality", "random_search"):
            raise ValueError(
                f"method must be 'fast', 'quality' or 'random_search', got {method!r}; 'fast' is "
                "the default"
            )
        if initialization_budget is not None and initialization_budget < 1:
            raise ValueError(
                f"initialization_budget must be at least 1, got {initialization_budget}; None "
                "leaves it to Ax"
            )
        for constraint in outcome_constraints or ():
            if "/" in constraint:
                raise ValueError(
                    "outcome_constraints must name metrics that are not nested, got "
                    f"{constraint!r}; report the metric flat"
                )
        self._parameter_constraints = list(parameter_constraints or ())
        self.constraints, self._relations = _divided(outcome_constraints or ())
        self._strategy = {"method": method, "initialization_budget": initialization_budget}
        self._related = {
            name for each in self._relations for name in _NAME.findall(each) if name != "baseline"
        }
        self._newest = NewestValues()
        self._client: Any = None
        self._num_refused = 0
        self._outcomes: dict[int, dict[str, float]] = {}

    @classmethod
    def _own_space(cls, space: Any) -> Mapping[str, Any] | None:
        """Return the space with our domains; it may be given as Ax's list of dictionaries.

        Raises:
            TypeError: If it is neither a dictionary nor such a list.
            ValueError: If an entry of the list has an unknown key.
        """
        is_list = (
            isinstance(space, list)
            and bool(space)
            and all(isinstance(each, dict) and "name" in each for each in space)
        )
        return (
            {each["name"]: _domain_or_constant(each) for each in space}
            if is_list
            else super()._own_space(space)
        )

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metrics, modes, constraints, space and seed, and create Ax's client.

        Raises:
            ValueError: If metric or mode is missing, Ax cannot search a parameter or use a
                constraint, or a point does not fit.
        """
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        self._check_not_empty(self._varied)
        first = [name for name, _ in self.objectives[:1] if len(self.objectives) > 1]
        self._newest = NewestValues([*first, *self._other_metrics])
        with seeded_global_rngs(self._seed % 2**32), _quiet(self):
            self._client = self._new_client()
        self._num_refused = 0
        return True

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Add the trial's end to the history, with all metrics that matter."""
        if trial_id not in self._open:
            return
        index, newest = self._open[trial_id], self._newest.completed(trial_id, result)
        self._newest.forget(trial_id)
        super().on_trial_complete(trial_id, newest, error, stopped)
        self._outcomes[index] = outcomes = {
            name: value
            for name in self._other_metrics
            if (value := finite(newest.get(name))) is not None
        }
        if outcomes.keys() != self._other_metrics:
            observation = self._history[index]
            observation.value = None
            observation.is_discarded = stopped and not error

    def on_trial_discard(self, trial_id: str) -> None:
        """Record that the configuration is not run."""
        self._newest.forget(trial_id)
        super().on_trial_discard(trial_id)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float | Sequence[float] | Mapping[str, float],
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add an externally evaluated configuration, without intermediate values.

        Where there are constraints, Ax learns from a dictionary alone, which has values of all that
        is bounded.

        Args:
            parameters: The configuration, complete, nested or with names such as ``"a/b"``.
            value: The metric's value, in its own direction; a list of values if there are several
                metrics; a dictionary of these and what is bounded.
            error: Whether the run failed.
            pruned: Whether it was stopped before it was done.
            intermediate_values: Not used.

        Raises:
            ValueError: If the configuration does not fit the space or is not complete, or there is
                not one finite number for each metric.
        """
        bounded: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        values: list[Any] = (
            [value]
            if isinstance(value, int | float)
            else [value.get(metric) for metric, _ in self.objectives]
            if isinstance(value, Mapping)
            else list(value)
        )
        if not error and (
            len(values) != len(self.objectives) or any(finite(each) is None for each in values)
        ):
            each = f", {len(self.objectives)} for each" if len(self.objectives) > 1 else ""
            raise ValueError(
                f"values of evaluated points must be finite numbers{each}, got {value!r}; leave "
                "out points without a result"
            )
        super().add_evaluated_point(parameters, values[0], error)
        self._outcomes[len(self._history) - 1] = {
            metric: float(each)
            for (metric, _), each in zip(self.objectives[1:], values[1:], strict=False)
        } | {
            name: known
            for name in self._other_metrics
            if (known := finite(bounded.get(name))) is not None
        }

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Remember what later results may lack, such as a size that is reported once."""
        if trial_id in self._open:
            self._newest.completed(trial_id, result)

    def get_state(self) -> dict[str, Any]:
        """Return the whole history, with all metrics that matter."""
        return {
            **super().get_state(),
            "outcomes": [[index, outcomes] for index, outcomes in self._outcomes.items()],
            "newest": self._newest.state_dict(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a history, see `IncrementalSearch.set_state`."""
        super().set_state(state)
        self._outcomes = {index: dict(outcomes) for index, outcomes in state["outcomes"]}
        self._newest.load_state_dict(state.get("newest", {}))  # states of earlier versions lack it

    def _check_objective(self) -> None:
        if len(self.objectives) < 2:  # noqa: PLR2004  (several)
            super()._check_objective()

    @property
    def _other_metrics(self) -> set[str]:
        """What a trial has to report besides the metric, or the first of several."""
        others = {metric for metric, _ in self.objectives[1:]}
        return others | {each.metric for each in self.constraints} | self._related

    def _new_client(self) -> Any:
        """Return a client configured with the space and the objectives, without trials."""
        client = self._module(".api.client").Client(random_seed=self._seed % 2**31)
        if len(self.objectives) > 1:
            _leave_uncompiled()
        client.configure_experiment(
            parameters=[self._parameter(name, domain) for name, domain in self._varied.items()],
            parameter_constraints=[
                *(self._renamed(constraint) for constraint in self._parameter_constraints),
                *self._linear_constraints(),
            ],
        )
        # Under names of our own: Ax takes no nested ones, nor bounds of the only objective.
        bounds = [
            f"{_limited(number)} {each.operator} {each.bound!r}"
            for number, each in enumerate(self.constraints)
        ]
        client.configure_optimization(
            objective=", ".join(
                f"{'' if mode == 'max' else '-'}{_objective(number)}"
                for number, (_, mode) in enumerate(self.objectives)
            ),
            outcome_constraints=[*bounds, *self._relations] or None,
        )
        client.configure_generation_strategy(
            **self._strategy,
            initialization_random_seed=self._seed % 2**31,
            # Otherwise Ax raises if it is asked again while the initial trials still run.
            allow_exceeding_initialization_budget=True,
        )
        return client

    def _linear_constraints(self) -> Iterator[str]:
        """Yield what Ax can take of the relation of the space; it refuses logarithmic scales."""
        where, varied = self._space.where, self._varied
        if where is None or where.text is None:
            return
        for part in linear_parts(where.text, self._space.space):
            domains = {path: self._space.domains[path] for path in part.factors}
            terms, most = [], part.most
            for path, domain in domains.items():
                factor, name = part.factors[path], flat_name(path)
                if not isinstance(domain, Float | Integer) or domain.is_log:
                    break
                if name in varied:
                    terms.append(f"{factor!r} * {_ax_name(name)}")
                    if isinstance(domain, Float):
                        most -= _MARGIN * abs(factor) * (domain.upper - domain.lower)
                else:
                    most -= factor * domain.from_unit(0)
            else:
                if terms:
                    yield f"{' + '.join(terms)} <= {most!r}"

    def _refuse_proposal(self) -> None:
        number, worst = self._unfinished.pop(len(self._history)), self._index_of_worst()
        self._num_known = len(self._history)
        num_values = sum(each.value is not None for each in self._history)
        with _quiet(self):
            # An abandoned trial hardly keeps the model from proposing its neighbours; but more
            # results than these would take the place of Ax's initial trials, and make it slow.
            if worst is not None and self._num_refused < num_values:
                self._num_refused += 1
                self._finish_failed(worst, number)
            else:
                self._client.mark_trial_abandoned(number)

    def _propose(self, seed: int) -> Values | None:
        with _quiet(self):
            self._report_new_results()
            try:
                ((number, parameters),) = self._client.get_next_trials(max_trials=1).items()
            except self._module(".exceptions.core").SearchSpaceExhausted:
                return None
        self._record_proposal(number)
        # A parameter that Ax does not know has only one value.
        values: Values = {}
        for name, domain in self._parameters.items():
            proposed = parameters.get(_ax_name(name))
            if isinstance(domain, Categorical):
                values[name] = 0 if proposed is None else int(proposed)
            else:
                values[name] = domain.from_unit(0) if proposed is None else proposed
        return values

    def _attach(self, values: Values) -> int | None:
        parameters = {
            _ax_name(name): _ax_category(domain, values[name])
            if isinstance(domain, Categorical)
            else values[name]
            for name, domain in self._varied.items()
        }
        try:
            return int(self._client.attach_trial(parameters))
        except ValueError:
            return None  # Ax takes nothing that violates a parameter constraint, nor learns from it

    def _finish(self, index: int | None, library_id: Any) -> None:
        outcomes = {} if index is None else self._outcomes.get(index, {})
        self._tell(library_id, None if index is None else self._history[index].value, outcomes)

    def _finish_failed(self, worst: int, library_id: Any) -> None:
        outcomes = dict(self._outcomes.get(worst, {}))
        bounded = {each.metric for each in self.constraints}
        for name in bounded.union(metric for metric, _ in self.objectives[1:]):
            known = [each[name] for each in self._outcomes.values() if name in each]
            if known:
                outcomes[name] = max(known, key=partial(self._badness, name))
        self._tell(library_id, self._history[worst].value, outcomes)

    def _badness(self, metric: str, value: float) -> float:
        """Return by how much a value misses the metric's bounds; the larger, the worse."""
        missed = [each.excess(value) for each in self.constraints if each.metric == metric]
        is_min = (metric, "min") in self.objectives
        return max(missed, default=value if is_min else -value)

    def _tell(self, library_id: Any, value: float | None, outcomes: Mapping[str, float]) -> None:
        """Report the end of a configuration to Ax, as failed where an outcome is missing."""
        if library_id is None:
            return
        if value is None or outcomes.keys() != self._other_metrics:
            self._client.mark_trial_failed(library_id)
            return
        others = [outcomes[metric] for metric, _ in self.objectives[1:]]
        data = {_objective(number): each for number, each in enumerate([value, *others])}
        data |= {
            _limited(number): outcomes[each.metric] for number, each in enumerate(self.constraints)
        }
        data |= {name: outcomes[name] for name in self._related}
        self._client.complete_trial(library_id, raw_data=data)

    @property
    def _varied(self) -> dict[str, Domain]:
        """The parameters that have more than one value; Ax refuses others."""
        return {
            name: domain for name, domain in self._parameters.items() if num_values(domain) != 1
        }

    def _parameter(self, name: str, domain: Domain) -> Any:
        configs = self._module(".api.configs")
        match domain:
            case Float(lower, upper, q, is_log):
                scaling = "log" if is_log else "linear"
                step = None if is_log else q
                return configs.RangeParameterConfig(
                    _ax_name(name), (lower, upper), "float", step_size=step, scaling=scaling
                )
            case Integer(lower, upper, q, is_log):
                scaling = "log" if is_log else "linear"
                step = None if is_log or q == 1 else q
                return configs.RangeParameterConfig(
                    _ax_name(name), (lower, upper), "int", step_size=step, scaling=scaling
                )
            case Categorical(categories, is_ordered):
                values = [_ax_category(domain, index) for index in range(len(categories))]
                return configs.ChoiceParameterConfig(
                    _ax_name(name), values, "int" if is_ordered else "str", is_ordered=is_ordered
                )
        raise AssertionError(f"an unknown domain, {domain!r}, has passed the check")

    def _renamed(self, constraint: str) -> str:
        """Return a constraint with Ax's names of parameters."""
        # Longer names first: they may contain shorter ones.
        for name in sorted(self._parameters, key=len, reverse=True):
            constraint = constraint.replace(name, _ax_name(name))
        return constraint


def _divided(constraints: Sequence[str]) -> tuple[tuple[OutcomeConstraint, ...], list[str]]:
    """Return the bounds of one metric each, and all other constraints as Ax takes them."""
    bounds: dict[tuple[str, str], OutcomeConstraint] = {}
    relations: list[str] = []
    for given in constraints:
        found = _BOUND.fullmatch(given)
        bound = outcome_constraints({found[1]: found[2]})[0] if found else None
        # Not a second upper or lower bound of a metric: an experiment has one of each.
        if bound and (bound.metric, bound.operator) not in bounds:
            bounds[bound.metric, bound.operator] = bound
        else:
            relations.append(given)
    return outcome_constraints(comparisons(tuple(bounds.values()))), relations


def _objective(number: int) -> str:
    return f"{_OBJECTIVE}_{number}" if number else _OBJECTIVE


def _limited(number: int) -> str:
    return f"limited_{number}"


def _domain_or_constant(parameter: Mapping[str, Any]) -> Any:
    """Return the domain or constant of an Ax parameter dictionary."""
    given = dict(parameter)
    name, kind = given.pop("name"), given.pop("type", None)
    if kind == "range" and isinstance(given.get("bounds"), list | tuple):
        lower, upper = given.pop("bounds")
        are_whole = isinstance(lower, int) and isinstance(upper, int)
        value_type, is_log = (
            given.pop("value_type", "int" if are_whole else "float"),
            bool(given.pop("log_scale", False)),
        )
        if not given and value_type in ("int", "float"):
            return (
                Integer(lower, upper, is_log=is_log)
                if value_type == "int"
                else Float(lower, upper, is_log=is_log)
            )
    if kind == "choice" and isinstance(given.get("values"), list | tuple):
        values, is_ordered = given.pop("values"), bool(given.pop("is_ordered", False))
        given.pop("value_type", None)
        if not given:
            return Categorical(tuple(values), is_ordered)
    if kind == "fixed" and "value" in given:
        value = given.pop("value")
        given.pop("value_type", None)
        if not given:
            return value
    raise ValueError(
        f"{name!r} must be a range with bounds, value_type and log_scale, a choice with values and "
        "is_ordered, or fixed with a value, "
        f"got {dict(parameter)!r}; write the space with functions such as {{{name!r}: "
        "tune.uniform(0, 1)}"
    )


def _ax_name(name: str) -> str:
    # Ax parses names as expressions, in which a slash divides.
    return name.replace("/", "__")


def _ax_category(domain: Categorical, index: int) -> int | str:
    # Strings have no order for Ax.
    return index if domain.is_ordered else str(index)


def _leave_uncompiled() -> None:
    """Keep BoTorch from compiling its expected hypervolume, which it computes in Python as well.

    The build takes minutes, waits for ever for one that was interrupted, and makes suggestions
    depend on whether a machine has a compiler.
    """
    with suppress(ImportError):  # of a version that has it elsewhere
        module: Any = importlib.import_module("botorch.acquisition.multi_objective.logei")
        module._load_attempted = True  # noqa: SLF001  (there is no setting)


@contextmanager
def _quiet(searcher: AxSearch) -> Iterator[None]:
    """Silence Ax's logs and warnings for the duration."""
    handler = searcher._module(".utils.common.logger").ROOT_STREAM_HANDLER  # noqa: SLF001
    level = handler.level
    handler.setLevel(max(level, _WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        handler.setLevel(level)
