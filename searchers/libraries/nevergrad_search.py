"""Nevergrad's optimizers as a searcher; Nevergrad is imported only here, when it is used."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, final

import numpy as np

from searchers.learning_searcher import FailedTrials
from searchers.seeding import seeded_global_rngs
from searchers.space.domains import Categorical, Domain, Float, Integer

from .library_search import IncrementalSearch, Values

DEFAULT_OPTIMIZER: Final = "NGOpt"
DEFAULT_NUM_WORKERS: Final = 4


@final
class NevergradSearch(IncrementalSearch):
    """Searches with one of Nevergrad's gradient-free optimizers, e.g. evolution strategies.

    Numbers are searched on their own scale, linear or logarithmic, and rounded as in the space;
    choices are choices for Nevergrad as well, ordered or not. The relation of the space is a cheap
    constraint of Nevergrad's. A trial that a scheduler or stopper ended counts with its last value;
    one that failed with the worst value known when Nevergrad is asked next. A restore replays all
    suggestions and results, which takes some 20 ms each.

    Args:
        optimizer: Name of an optimizer in Nevergrad's registry, e.g. ``"CMA"``, ``"TwoPointsDE"``
            or ``"OnePlusOne"``; or one of its classes or configured families. None takes
            ``"NGOpt"``, which chooses by space, budget and number of workers.
        optimizer_kwargs: Arguments of the optimizer: ``budget``, the number of trials it should
            plan for (default: ``num_samples`` unless that is endless), and ``num_workers``, how
            many may be unfinished at a time (default: the limit of a `ConcurrencyLimiter` around
            it, else 4).
        space: The search space, if ``param_space`` does not define it: a dictionary
            with domains.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are sampled.
        seed: Seed of the search; None to take the experiment's.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be
            complete and are not run again.
        failed_trials: ``"worst"`` counts trials that failed, or whose last value is missing, NaN or
            infinite, like the worst one seen so far; ``"ignore"`` learns nothing from them.

    Raises:
        ImportError: If Nevergrad is not installed.
        TypeError: If `optimizer` is an instance, which a restored experiment could not construct
            again.
        ValueError: If there is no optimizer of this name, or it cannot be constructed with these
            arguments.

    Example:
        >>> from searchers.space import loguniform
        >>> searcher = NevergradSearch(
        ...     "TwoPointsDE", metric="loss", mode="min", points_to_evaluate=[{"lr": 0.01}]
        ... )
        >>> searcher.set_search_properties(
        ...     None, None, {"lr": loguniform(1e-4, 1e-1), "epochs": 5}, seed=0
        ... )
        True
        >>> searcher.suggest("a")
        {'lr': 0.01, 'epochs': 5}

    Reference:
        Rapin, Teytaud. Nevergrad - A gradient-free optimization platform. 2018,
        https://github.com/facebookresearch/nevergrad.

        Meunier et al. Black-Box Optimization Revisited: Improving Algorithm Selection Wizards
        through Massive Benchmarking. IEEE Transactions on Evolutionary Computation 26, 2022, arXiv
        2010.04542 (NGOpt).

    Departures:
        Ray Tune also accepts Nevergrad's own parametrizations as `space` and instances of
        optimizers, and does not report failed trials to Nevergrad.
    """

    extra = library = "nevergrad"
    # Nevergrad imports it where it is installed, which fails with all but old releases of it.
    hidden = ("bayes_opt",)
    searchable: ClassVar[tuple[type[Domain], ...]] = (Categorical, Float, Integer)
    remedy = "use uniform over the range that matters"

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        *,
        seed: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        super().__init__(
            space=space,
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            seed=seed,
            failed_trials=failed_trials,
        )
        self._given_optimizer = DEFAULT_OPTIMIZER if optimizer is None else optimizer
        self._optimizer_class = self._class_of(self._given_optimizer)
        self._optimizer_kwargs = dict(optimizer_kwargs or {})
        self._num_workers = DEFAULT_NUM_WORKERS
        self._optimizer: Any = None

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed, and create the optimizer.

        Raises:
            ValueError: If metric or mode is missing, Nevergrad cannot search a parameter, the
                optimizer cannot be made, or a point does not fit.
        """
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        self._check_not_empty(self._parameters)
        num_samples = spec.get("num_samples", -1)
        self._optimizer = self._new_optimizer(
            {
                "budget": num_samples if num_samples > 0 else None,
                "num_workers": self._num_workers,
                **self._optimizer_kwargs,
            }
        )
        return True

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Record how many trials may be unfinished at a time; the limit is enforced elsewhere."""
        self._num_workers = max_concurrent
        return False

    def _class_of(self, optimizer: Any) -> Any:
        """Return the class or configured family of an optimizer."""
        optimizers = self._module().optimizers
        if isinstance(optimizer, str):
            if optimizer in optimizers.registry:
                return optimizers.registry[optimizer]
            similar = difflib.get_close_matches(optimizer, optimizers.registry) or [
                DEFAULT_OPTIMIZER,
                "CMA",
                "TwoPointsDE",
            ]
            raise ValueError(
                f"optimizer must be a name in Nevergrad's registry, got {optimizer!r}; there are "
                f"{', '.join(similar)} and others"
            )
        if isinstance(optimizer, optimizers.base.Optimizer) or not hasattr(
            optimizer, "no_parallelization"
        ):
            raise TypeError(
                "optimizer must be a name, a class or a configured family of Nevergrad's, got "
                f"{optimizer!r}; it is made anew in each session, with optimizer_kwargs"
            )
        return optimizer

    def _new_optimizer(self, settings: Mapping[str, Any]) -> Any:
        """Return the optimizer for the space, whose random numbers come from the seed."""
        if self._optimizer_class.no_parallelization and settings["num_workers"] > 1:
            raise ValueError(
                f"optimizer {self._given_optimizer!r} takes one trial at a time, got num_workers="
                f"{settings['num_workers']}; put ConcurrencyLimiter(..., max_concurrent=1) around "
                "the searcher, or take another optimizer"
            )
        parameters = self._module().p
        with seeded_global_rngs(self._seed % 2**32), _quiet():
            parametrization = parameters.Dict(
                **{
                    name: _parameter(parameters, domain)
                    for name, domain in self._parameters.items()
                }
            )
            if self._space.where is not None:
                parametrization.register_cheap_constraint(self._is_allowed)
            # RandomState takes seeds of 32 bits only.
            parametrization.random_state = np.random.RandomState(self._seed % 2**32)
            try:
                return self._optimizer_class(parametrization, **settings)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"optimizer {self._given_optimizer!r} cannot be made with {dict(settings)}: "
                    f"{error}; change optimizer_kwargs"
                ) from error

    def _propose(self, seed: int) -> Values | None:
        with _quiet():
            self._report_new_results()
            candidate = self._optimizer.ask()
        self._record_proposal(candidate)
        return self._values_of(candidate.value)

    def _values_of(self, proposed: Mapping[str, Any]) -> Values:
        return {
            name: int(proposed[name])
            if isinstance(domain, Categorical)
            else domain.from_unit(float(proposed[name]))
            for name, domain in self._parameters.items()
        }

    def _is_allowed(self, proposed: Mapping[str, Any]) -> bool:
        """Return whether what Nevergrad is about to propose satisfies the relation of the space."""
        return self._space.allows(self._decoded(self._rounded(self._values_of(proposed))))

    def _attach(self, values: Values) -> Any:
        if not self._space.allows(self._decoded(values)):
            return None  # `ask` would pass it over; it was run before the relation was declared
        # `suggest` queues the point; `ask` returns it as a candidate, which `tell` needs.
        self._optimizer.suggest(
            {
                name: values[name]
                if isinstance(domain, Categorical)
                else domain.to_unit(values[name])
                for name, domain in self._parameters.items()
            }
        )
        return self._optimizer.ask()

    def _finish(self, index: int | None, library_id: Any) -> None:
        value = None if index is None else self._history[index].value
        if value is not None and library_id is not None:
            self._optimizer.tell(library_id, -self._sign * value)


def _parameter(parameters: Any, domain: Domain) -> Any:
    """Return Nevergrad's parameter for a domain; numbers are scaled to the unit interval."""
    if isinstance(domain, Categorical):
        indices = range(len(domain.categories))
        return (
            parameters.TransitionChoice(indices)
            if domain.is_ordered
            else parameters.Choice(indices)
        )
    return parameters.Scalar(lower=0.0, upper=1.0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Nevergrad's warnings, which advise against the chosen settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
