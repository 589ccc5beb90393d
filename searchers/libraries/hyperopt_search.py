"""Hyperopt's TPE as a searcher; Hyperopt is imported only here, when the searcher is used."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from searchers.learning_searcher import FailedTrials
from searchers.space.domains import Categorical, Domain, Float, Integer, Normal

from .library_search import LibrarySearch, Observation, Values


@final
class HyperOptSearch(LibrarySearch):
    """Searches with Hyperopt's tree-structured Parzen estimator (TPE).

    A trial that a scheduler or stopper ended counts with its last value. One that is running or has
    failed counts as worse than all others: the estimator uses the order of values only. It is asked
    again, up to 20 times, for what satisfies the ``where`` of a `Space`, which is drawn at random
    else.

    Args:
        space: The search space, if ``param_space`` does not define it: a dictionary
            with domains.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are sampled.
        n_initial_points: Number of random configurations before those of the estimator, points to
            evaluate included.
        random_state_seed: Seed of the search; None to take the experiment's.
        gamma: Share of configurations that count as good, between 0 and 1: the best ``gamma *
            sqrt(n)`` of `n`.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be
            complete and are not run again.
        failed_trials: ``"worst"`` counts trials that failed, or whose last value is missing, NaN or
            infinite, as worse than all others; ``"ignore"`` learns nothing from them.

    Raises:
        ImportError: If Hyperopt is not installed.
        ValueError: If a value is out of range.

    Example:
        >>> from searchers.space import loguniform
        >>> searcher = HyperOptSearch(metric="loss", mode="min", points_to_evaluate=[{"lr": 0.01}])
        >>> searcher.set_search_properties(
        ...     None, None, {"lr": loguniform(1e-4, 1e-1), "epochs": 5}, seed=0
        ... )
        True
        >>> searcher.suggest("a")
        {'lr': 0.01, 'epochs': 5}

    Reference:
        Bergstra, Bardenet, Bengio, Kégl. Algorithms for Hyper-Parameter Optimization. NIPS 2011.

        Bergstra, Yamins, Cox. Making a Science of Model Search: Hyperparameter Optimization in
        Hundreds of Dimensions for Vision Architectures. ICML 2013, arXiv 1209.5111.

    Departures:
        Ray Tune also accepts Hyperopt's own spaces, conditional ones among them; they are refused
        here. Without a seed it draws one, so that even an experiment with a seed is not
        reproducible.
    """

    extra = library = "hyperopt"
    searchable: ClassVar[tuple[type[Domain], ...]] = (Categorical, Float, Integer, Normal)
    remedy = "use a range or a choice"

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
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
            seed=random_state_seed,
            failed_trials=failed_trials,
        )
        if n_initial_points < 1:
            raise ValueError(
                f"n_initial_points must be at least 1, got {n_initial_points}; the estimator has "
                "to begin with something"
            )
        if not 0 < gamma < 1:
            raise ValueError(
                f"gamma must lie between 0 and 1, got {gamma}; it is a share of the configurations"
            )
        self._num_initial_points = n_initial_points
        self._gamma = gamma

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed."""
        # The cached property of another space, if there is one.
        self.__dict__.pop("_domain", None)
        return super().set_search_properties(metric, mode, config, **spec)

    @functools.cached_property
    def _domain(self) -> Any:
        expressions = {
            name: self._expression(name, domain) for name, domain in self._parameters.items()
        }
        return self._module(".base").Domain(_unused, expressions)

    def _propose(self, seed: int) -> Values | None:
        base, tpe = self._module(".base"), self._module(".tpe")
        known = [observation for observation in self._history if not self._is_ignored(observation)]
        documents = [self._document(tid, observation) for tid, observation in enumerate(known)]
        # Not validated: the documents lack fields of Hyperopt's own loop, such as owner and times.
        trials = base.trials_from_docs(documents, validate=False)
        settings = {
            "n_startup_jobs": self._num_initial_points,
            "gamma": self._gamma,
            "verbose": False,
        }
        (document,) = tpe.suggest([len(documents)], self._domain, trials, seed, **settings)
        return {name: values[0] for name, values in document["misc"]["vals"].items()}

    def _document(self, tid: int, observation: Observation) -> dict[str, Any]:
        """Return a trial's document as Hyperopt stores it, which minimises the loss."""
        base = self._module(".base")
        loss = None if observation.value is None else -self._sign * observation.value
        return {
            "tid": tid,
            "state": base.JOB_STATE_DONE if observation.is_over else base.JOB_STATE_RUNNING,
            # TPE takes the loss of a trial whose status is not "ok" for infinite.
            "result": {"status": "new"} if loss is None else {"status": "ok", "loss": loss},
            "misc": {
                "tid": tid,
                "idxs": {name: [tid] for name in observation.values},
                "vals": {name: [value] for name, value in observation.values.items()},
            },
        }

    def _expression(self, name: str, domain: Domain) -> Any:
        """Return Hyperopt's expression for a domain."""
        hp = self._module(".hp")
        match domain:
            case Categorical(categories):
                return hp.randint(name, len(categories))
            case Normal(mean, sd, q):
                return hp.normal(name, mean, sd) if q is None else hp.qnormal(name, mean, sd, q)
            case Float(lower, upper, q, is_log) | Integer(lower, upper, q, is_log):
                # Half a step beyond the ends, so that after rounding these are as likely as the
                # other values.
                margin = (q or 0) / 2
                ends = (lower - margin, upper + margin)
                if is_log:
                    logarithms = (math.log(ends[0]), math.log(ends[1]))
                    return (
                        hp.loguniform(name, *logarithms)
                        if q is None
                        else hp.qloguniform(name, *logarithms, q)
                    )
                return hp.uniform(name, *ends) if q is None else hp.quniform(name, *ends, q)
        raise AssertionError(f"an unknown domain, {domain!r}, has passed the check")


def _unused(config: Any) -> float:
    # Hyperopt's Domain requires an objective function, and never calls it to make a suggestion.
    raise NotImplementedError("trials are run elsewhere")
