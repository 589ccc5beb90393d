"""AxSearch: Ax as a searcher; Ax is imported only here, when the searcher is used."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Literal, final

from searchers.searcher import FailedTrials
from searchers.space.domains import Categorical, Domain, Float, Integer

from .library_search import IncrementalSearch, Values, seeded_global_rngs

_OBJECTIVE: Final = "objective"
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WARNING: Final = 30
"""The level of warnings in Python's logging."""


_CLIENT_ARGUMENTS: Final = {
    "generation_strategy": "give method and initialization_budget",
    "choose_generation_strategy_kwargs": "give method and initialization_budget",
    "enforce_sequential_optimization": "leave it out, trials that run at once are always allowed",
    "verbose_logging": "leave it out, Ax is always quiet here",
}
"""Arguments of Ax's older client that have no meaning here, and what to do instead."""


def _seed_among(ax_kwargs: Mapping[str, Any], seed: int | None) -> int | None:
    """Return the seed, which may be given as Ax's older client has it.

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

    A trial that a scheduler or stopper ended counts with its last value, one that failed with the
    worst value seen when Ax is asked next, and with the outcomes beside that. Each suggestion of
    the model takes seconds. A restore has Ax live through all suggestions and results again, which
    takes as long as they took.

    Args:
        space: The search space, if ``param_space`` does not define it: a dictionary with domains,
            or Ax's list of dictionaries, ``[{"name": "x", "type": "range", "bounds": [0.0,
            1.0]}]``.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are sampled.
        parameter_constraints: What configurations have to fulfil, as linear inequalities: ``"x1 +
            2*x2 <= 1.5"``. Nested parameters go by their flattened names. Given points are not held
            to it.
        outcome_constraints: What results have to fulfil, as inequalities of reported metrics, e.g.
            ``"size <= 3"``; their names must not be nested.
        method: ``"fast"`` (the default), ``"quality"`` for a slower, more careful model, or
            ``"random_search"`` for no model.
        initialization_budget: How many quasi-random configurations come first; None leaves it to
            Ax, which takes it from the space.
        ax_client: None; Ray Tune takes a client here.
        seed: Seed of the search; None to take the experiment's.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be
            complete and are not run again.
        failed_trials: ``"worst"`` counts trials that failed, or whose last value is missing, NaN or
            infinite, like the worst one seen so far; ``"ignore"`` learns nothing from them.
        **ax_kwargs: What Ray Tune hands to Ax's older client: ``random_seed`` is taken for `seed`,
            all else is refused by name.

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
        Ray Tune works with Ax before 1.0. It takes a client of the user's own (``ax_client``),
        which a restored experiment could not make again, and hands further arguments to Ax unseen;
        here `method` and `initialization_budget` are taken.
    """

    extra = library = "ax"
    searchable: ClassVar[tuple[type[Domain], ...]] = (Categorical, Float, Integer)
    remedy = "use uniform over the range that matters"

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
        evaluated_rewards: Sequence[float] | None = None,
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
            self._own_space(space),
            metric,
            mode,
            points_to_evaluate,
            evaluated_rewards,
            seed,
            failed_trials,
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
        self._outcome_constraints = list(outcome_constraints or ())
        self._strategy = {"method": method, "initialization_budget": initialization_budget}
        self._opened: Any = None
        self._outcomes: dict[int, dict[str, float]] = {}

    @classmethod
    def _own_space(cls, space: Any) -> Mapping[str, Any] | None:
        """Return the space in our words, which may be given as Ax's list of dictionaries.

        Raises:
            TypeError: If it is neither a dictionary nor such a list.
            ValueError: If an entry of the list has what is not known here.
        """
        is_list = (
            isinstance(space, list)
            and bool(space)
            and all(isinstance(each, dict) and "name" in each for each in space)
        )
        return (
            {each["name"]: _word(each) for each in space} if is_list else super()._own_space(space)
        )

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed, and create Ax's client.

        Raises:
            ValueError: If metric or mode is missing, Ax cannot search a parameter or meet a
                constraint, or a point does not fit.
        """
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        self._check_parameters(self._varied)
        with seeded_global_rngs(self._seed % 2**32), _quiet(self):
            self._opened = self._client()
        return True

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Add to the history how the trial ended, what the outcome constraints ask for included."""
        if trial_id in self._open:
            names = {
                name
                for constraint in self._outcome_constraints
                for name in _NAME.findall(constraint)
            }
            given = {name: (result or {}).get(name) for name in names}
            self._outcomes[self._open[trial_id]] = {
                name: float(value)
                for name, value in given.items()
                if isinstance(value, int | float)
            }
        super().on_trial_complete(trial_id, result, error, stopped)

    def get_state(self) -> dict[str, Any]:
        """Return the whole history, with the outcomes that constraints ask for."""
        return {
            **super().get_state(),
            "outcomes": [[place, outcomes] for place, outcomes in self._outcomes.items()],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a history, see `IncrementalSearch.set_state`."""
        super().set_state(state)
        self._outcomes = {place: dict(outcomes) for place, outcomes in state["outcomes"]}

    def _client(self) -> Any:
        """Return a new client that knows the space and the objective, without a trial."""
        client = self._module(".api.client").Client(random_seed=self._seed % 2**31)
        client.configure_experiment(
            parameters=[self._configured(name, domain) for name, domain in self._varied.items()],
            parameter_constraints=[
                self._renamed(constraint) for constraint in self._parameter_constraints
            ],
        )
        sign = "" if self.mode == "max" else "-"
        client.configure_optimization(
            objective=f"{sign}{_OBJECTIVE}", outcome_constraints=self._outcome_constraints or None
        )
        client.configure_generation_strategy(
            **self._strategy,
            initialization_random_seed=self._seed % 2**31,
            allow_exceeding_initialization_budget=True,
        )
        return client

    def _propose(self, seed: int) -> Values | None:
        with _quiet(self):
            self._report_new_results()
            try:
                ((number, parameters),) = self._opened.get_next_trials(max_trials=1).items()
            except self._module(".exceptions.core").SearchSpaceExhausted:
                return None
        self._record_proposal(number)
        values = {name: int(parameters[_ax_name(name)]) if isinstance(domain, Categorical) else parameters[_ax_name(name)]
                  for name, domain in self._varied.items()}  # fmt: skip
        return {
            **{
                name: 0 if isinstance(domain, Categorical) else domain.from_unit(0)
                for name, domain in self._parameters.items()
            },
            **values,
        }

    def _attach(self, values: Values) -> int:
        return int(self._opened.attach_trial(self._ax_values(values)))

    def _finish(self, place: int | None, known_as: Any) -> None:
        outcomes = {} if place is None else self._outcomes.get(place, {})
        num_wanted = len(
            {name for constraint in self._outcome_constraints for name in _NAME.findall(constraint)}
        )
        if place is None or len(outcomes) < num_wanted:
            self._opened.mark_trial_failed(known_as)
        else:
            self._opened.complete_trial(
                known_as, raw_data={_OBJECTIVE: self._history[place].value, **outcomes}
            )

    @property
    def _varied(self) -> dict[str, Domain]:
        """The parameters that have more than one value; Ax takes no others."""
        return {name: domain for name, domain in self._parameters.items() if _is_open(domain)}

    def _ax_values(self, values: Values) -> dict[str, Any]:
        return {
            _ax_name(name): _choice(domain, values[name])
            if isinstance(domain, Categorical)
            else values[name]
            for name, domain in self._varied.items()
        }

    def _configured(self, name: str, domain: Domain) -> Any:
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
                places = [_choice(domain, place) for place in range(len(categories))]
                return configs.ChoiceParameterConfig(
                    _ax_name(name), places, "int" if is_ordered else "str", is_ordered=is_ordered
                )
        raise AssertionError(f"an unknown domain, {domain!r}, has passed the check")

    def _renamed(self, constraint: str) -> str:
        """Return a constraint with Ax's names; longer names are replaced first."""
        for name in sorted(self._parameters, key=len, reverse=True):
            constraint = constraint.replace(name, _ax_name(name))
        return constraint


def _word(parameter: Mapping[str, Any]) -> Any:
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
        f"got {dict(parameter)!r}; write the space with search-space words, such as {{{name!r}: "
        "tune.uniform(0, 1)}"
    )


def _ax_name(name: str) -> str:
    return name.replace("/", "__")  # Ax reads names as expressions


def _choice(domain: Categorical, place: int) -> int | str:
    return place if domain.is_ordered else str(place)


def _is_open(domain: Domain) -> bool:
    match domain:
        case Categorical(categories):
            return len(categories) > 1
        case Integer(lower, upper):
            return lower < upper
        case _:
            return True


@contextmanager
def _quiet(searcher: AxSearch) -> Iterator[None]:
    """Silence Ax's logs and warnings for the duration."""
    handler = searcher._module(".utils.common.logger").ROOT_STREAM_HANDLER  # noqa: SLF001  (of the class above)
    level = handler.level
    handler.setLevel(max(level, _WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        handler.setLevel(level)
