"""NevergradSearch: Nevergrad's gradient-free optimizers, imported only here, when they are used."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, final

import numpy as np

from searchers.searcher import FailedTrials
from searchers.space.domains import Categorical, Domain, Float, Integer

from .library_search import IncrementalSearch, Values, seeded_global_rngs

DEFAULT_OPTIMIZER: Final = "NGOpt"
DEFAULT_NUM_WORKERS: Final = 4


@final
class NevergradSearch(IncrementalSearch):
    """Searches with one of Nevergrad's gradient-free optimizers, e.g. evolution strategies.

    Numbers are searched on their own scale, logarithmic ones on that, and rounded where the space
    says so; choices are given to Nevergrad as such, ordered ones as ordered. A trial that a
    scheduler or stopper ended counts with its last value, one that failed with the worst value seen
    when Nevergrad is asked next. A restore has Nevergrad live through all suggestions and results
    again, which takes as long as they took, some 20 ms each.

    Args:
        optimizer: Name of an optimizer in Nevergrad's registry, e.g. ``"CMA"``, ``"TwoPointsDE"``
            or ``"OnePlusOne"``; or one of its classes or configured families. None takes
            ``"NGOpt"``, which chooses by space, budget and number of workers.
        optimizer_kwargs: What the optimizer is made with: ``budget``, the number of trials it
            should plan for (``num_samples`` unless that is endless), and ``num_workers``, how many
            may be unfinished at a time (what a `ConcurrencyLimiter` around it says, else 4).
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
        TypeError: If `optimizer` is an optimizer that is already made, which a restored experiment
            could not make again.
        ValueError: If there is no optimizer of this name, or it cannot be made with these
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
        Ray Tune also takes Nevergrad's own parametrizations as `space` and optimizers that are made
        already, and tells Nevergrad nothing of trials that failed.
    """

    extra = library = "nevergrad"
    hidden = ("bayes_opt",)
    """It is imported where it is there, and any release but an old one makes that fail."""
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
            space, metric, mode, points_to_evaluate, evaluated_rewards, seed, failed_trials
        )
        self._optimizer = DEFAULT_OPTIMIZER if optimizer is None else optimizer
        self._kind = self._found(self._optimizer)
        self._optimizer_kwargs = dict(optimizer_kwargs or {})
        self._num_workers = DEFAULT_NUM_WORKERS
        self._made: Any = None

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
        self._check_parameters(self._parameters)
        num_samples = spec.get("num_samples", -1)
        settings = {
            "budget": num_samples if num_samples > 0 else None,
            "num_workers": self._num_workers,
            **self._optimizer_kwargs,
        }
        self._made = self._make(settings)
        return True

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Record how many trials may be unfinished at a time; the limit is enforced elsewhere."""
        self._num_workers = max_concurrent
        return False

    def _found(self, optimizer: Any) -> Any:
        """Return what makes the optimizer that is meant."""
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
                f"{optimizer!r}; it is made anew in each "
                "session, with optimizer_kwargs"
            )
        return optimizer

    def _make(self, settings: Mapping[str, Any]) -> Any:
        """Return the optimizer for the space, whose random numbers come from the seed."""
        if self._kind.no_parallelization and settings["num_workers"] > 1:
            raise ValueError(
                f"optimizer {self._optimizer!r} takes one trial at a time, got "
                f"num_workers={settings['num_workers']}; put "
                "ConcurrencyLimiter(..., max_concurrent=1) around the searcher, or take another "
                "optimizer"
            )
        words = self._module().p
        with seeded_global_rngs(self._seed % 2**32), _quiet():
            parametrization = words.Dict(
                **{name: _described(words, domain) for name, domain in self._parameters.items()}
            )
            parametrization.random_state = np.random.RandomState(self._seed % 2**32)
            try:
                return self._kind(parametrization, **settings)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"optimizer {self._optimizer!r} cannot be made with {dict(settings)}: {error}; "
                    "change optimizer_kwargs"
                ) from error

    def _propose(self, seed: int) -> Values | None:
        with _quiet():
            self._report_new_results()
            candidate = self._made.ask()
        self._record_proposal(candidate)
        return {
            name: self._value(domain, candidate.value[name])
            for name, domain in self._parameters.items()
        }

    def _attach(self, values: Values) -> Any:
        self._made.suggest(self._described_values(values))
        return self._made.ask()

    def _finish(self, place: int | None, known_as: Any) -> None:
        value = None if place is None else self._history[place].value
        if value is not None:
            self._made.tell(known_as, -self._sign * value)

    @staticmethod
    def _value(domain: Domain, told: Any) -> Any:
        return (
            int(told)
            if isinstance(domain, Categorical)
            else domain.from_unit(min(max(float(told), 0.0), 1.0))
        )

    def _described_values(self, values: Values) -> dict[str, Any]:
        return {
            name: values[name] if isinstance(domain, Categorical) else domain.to_unit(values[name])
            for name, domain in self._parameters.items()
        }


def _described(words: Any, domain: Domain) -> Any:
    """Return Nevergrad's parameter for a domain; numbers are scaled to their unit interval."""
    if isinstance(domain, Categorical):
        places = range(len(domain.categories))
        return words.TransitionChoice(places) if domain.is_ordered else words.Choice(places)
    return words.Scalar(lower=0.0, upper=1.0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Nevergrad from advising against what has been chosen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
