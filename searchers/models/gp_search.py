"""Expected improvement of a Gaussian process, and its alternation with randomised trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from .candidates import around_best, mutants
from .encoding import Encoding
from .expected_gain import CLIP, MAX_ROWS, TEMPER, ExpectedGain
from .gaussian_process import log_expected_improvement, one_blas_thread
from .level_rows import spans_levels
from .observations import Table, best_and_others, describe_retention
from .process_search import ProcessSearch
from .tree_search import candidates_by_trees

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator

Array = np.ndarray[Any, Any]

NUM_FRESH = 200
"""Number of candidates besides the variations of the best configurations."""
REFINEMENTS = ((0.1, 0.5), (0.03, 1.0), (0.01, 1.0), (0.003, 1.0))
"""Rounds in which the best candidates are varied: standard deviation of a change as a part of the
unit interval, and the probability that an entry changes."""
NUM_REFINED = 5
NUM_VARIATIONS = 30
# Chosen by measurement, with benchmarks/quality.
GP_SHARE = 0.5
"""Share of the models' suggestions of `AutoSearch` that come from the Gaussian process."""
GP_SHARE_OF_TRADEOFFS = 0.8
"""That share with several metrics or constraints."""
GP_SHARE_OF_SEVERAL_LEVELS = 0.2
"""That share when trials have been measured at several levels of training."""


@final
class GPSearch(ProcessSearch):
    """Suggests the candidate with the largest expected improvement of a Gaussian process.

    The process has a Matern kernel with a lengthscale for each parameter, categories and inactive
    parameters included (see `GaussianProcess`). While all trials have been measured at the same
    level of training, it is fitted to the values of the metric, those of the worst trials clipped.
    With several levels it is fitted to the values of all levels, warped (see `level_rows`), and the
    improvement is that after a full training. Running trials count with their predicted values. The
    best of several hundred candidates, variations of the best configurations and random ones, are
    refined in four rounds with smaller and smaller steps.

    With several metrics, each has a process of its own, and the candidate is suggested that is
    expected to add most hypervolume to the feasible front. Each constraint has a process of the
    excess over its bound; what a candidate adds counts with the probability that it keeps all of
    them, and as long as no trial is feasible that probability is all that counts.

    Args:
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``, which may
            name several.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are drawn at random.
        evaluated_rewards: The metric of each of `points_to_evaluate` after a full training, a
            dictionary where there are several metrics or constraints; they have to be complete and
            are not run.
        n_initial_points: How many suggestions are spread evenly over the space before the model is
            asked; None for 10, or a quarter of ``num_samples`` if that is less.
        random_fraction: Share of the later suggestions that are random, between 0 and 1.
        time_attr: Entry of a result that says how long the trial has trained.
        seed: Seed of all random numbers; None to take the experiment's.
        space: The search space, if ``param_space`` does not define it: a dictionary
            with domains.
        failed_trials: ``"worst"`` counts trials that failed or ended without a value, and values
            that are NaN or infinite, as worse than all others; ``"ignore"`` learns nothing from
            them.

    Raises:
        TypeError: If `seed` is no integer.
        ValueError: If an argument is out of range or two contradict each other.

    Example:
        >>> from searchers.space import uniform
        >>> searcher = GPSearch(metric="loss", mode="min", n_initial_points=4)
        >>> searcher.set_search_properties(None, None, {"x": uniform(0, 1)}, seed=0)
        True
        >>> for number in range(12):
        ...     x = searcher.suggest(f"t{number}")["x"]
        ...     result = {"loss": (x - 0.3) ** 2, "training_iteration": 1}
        ...     searcher.on_trial_complete(f"t{number}", result)
        >>> min(
        ...     abs(trial.vector[0] - 0.3) for trial in searcher.observations.trials.values()
        ... ) < 0.01
        True

    Reference:
        Jones, Schonlau, Welch. Efficient Global Optimization of Expensive Black-Box Functions.
        Journal of Global Optimization 13, 1998.

        Kandasamy, Dasarathy, Schneider, Poczos. Multi-fidelity Bayesian Optimisation with
        Continuous Approximations. ICML 2017, arXiv 1703.06240 (one process over configurations and
        fidelities).

        Daulton, Balandat, Bakshy. Differentiable Expected Hypervolume Improvement for Parallel
        Multi-Objective Bayesian Optimization. NeurIPS 2020, arXiv 2006.05078.

        Gardner, Kusner, Xu, Weinberger, Cunningham. Bayesian Optimization with Inequality
        Constraints. ICML 2014.

    Departures:
        The improvement is over the least mean that the process predicts for a trial, since values
        may be noisy. It is maximised by random variation rather than by gradients, which categories
        and integers do not have. Of more than 200 trials, the process is fitted to the best 100 and
        100 others. With several levels, deviations count less than in the paper (see `TEMPER`), and
        the scheduler chooses the level rather than the searcher.
    """

    def propose(self, encoding: Encoding, rng: Generator) -> Array:
        """Return candidates, those with the largest expected improvement first."""
        return _candidates_by_process(self, self.observations.table(), encoding, rng)


@final
class AutoSearch(ProcessSearch):
    """Suggests in turn with a Gaussian process and with randomised trees: the default search.

    Which of `GPSearch` and `TreeSearch` makes a suggestion is drawn, and both learn from all
    results. A smooth metric suits the process, which comes much closer to the best values; many
    choices, steps and noise suit the trees. While all trials have been measured at the same level
    of training, half of the suggestions are the process's. With several levels, one in five is, and
    the trees are fitted to the final ranks that the process expects of all trials. With several
    metrics or constraints, at one level, four in five are, since there the process was better on
    the development problems of benchmarks/quality/tradeoffs.

    Args:
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``, which may
            name several.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are drawn at random.
        evaluated_rewards: The metric of each of `points_to_evaluate` after a full training, a
            dictionary where there are several metrics or constraints; they have to be complete and
            are not run.
        n_initial_points: How many suggestions are spread evenly over the space before the models
            are asked; None for 10, or a quarter of ``num_samples`` if that is less.
        random_fraction: Share of the later suggestions that are random, between 0 and 1.
        time_attr: Entry of a result that says how long the trial has trained.
        seed: Seed of all random numbers; None to take the experiment's.
        space: The search space, if ``param_space`` does not define it: a dictionary
            with domains.
        failed_trials: ``"worst"`` counts trials that failed or ended without a value, and values
            that are NaN or infinite, as worse than all others; ``"ignore"`` learns nothing from
            them.

    Raises:
        TypeError: If `seed` is no integer.
        ValueError: If an argument is out of range or two contradict each other.

    Example:
        >>> from searchers.space import choice, uniform
        >>> searcher = AutoSearch(metric="loss", mode="min", n_initial_points=4)
        >>> space = {"x": uniform(0, 1), "kind": choice(["a", "b"])}
        >>> searcher.set_search_properties(None, None, space, seed=0)
        True
        >>> for number in range(20):
        ...     config = searcher.suggest(f"t{number}")
        ...     loss = (config["x"] - 0.3) ** 2 + (config["kind"] == "a")
        ...     result = {"loss": loss, "training_iteration": 1}
        ...     searcher.on_trial_complete(f"t{number}", result)
        >>> near = [
        ...     trial.vector[0] for trial in searcher.observations.trials.values()
        ...     if trial.vector[1] == 1 and abs(trial.vector[0] - 0.3) < 0.01
        ... ]
        >>> len(near) > 3
        True

    Reference:
        Hoffman, Brochu, de Freitas. Portfolio Allocation for Bayesian Optimization. UAI 2011, arXiv
        1009.5419 (several ways to choose the next point, one drawn for each).

    Departures:
        Fixed probabilities. Drawing by how well each model predicts left-out trials was tried, and
        was worse on the development functions of benchmarks/quality: few trials do not tell which
        model is better.
    """

    def propose(self, encoding: Encoding, rng: Generator) -> Array:
        """Return the candidates of one of the two models, the best first."""
        table = self.observations.table()
        share = GP_SHARE if self.tradeoffs is None else GP_SHARE_OF_TRADEOFFS
        if len(table.levels) != 1:
            share = GP_SHARE_OF_SEVERAL_LEVELS
        if rng.random() < share:
            return _candidates_by_process(self, table, encoding, rng)
        if spans_levels(table):
            with one_blas_thread():
                _, table, _ = self.process_of_levels(table, encoding.num_categories)
        return candidates_by_trees(self, table, encoding, rng)


def _candidates_by_process(
    searcher: ProcessSearch, table: Table, encoding: Encoding, rng: Generator
) -> Array:
    """Return candidates, those with the largest expected improvement first."""
    with one_blas_thread():
        if searcher.tradeoffs is not None:
            gain = ExpectedGain(searcher, table, encoding, rng)
            candidates = _refined(searcher, gain, table, encoding, rng)
            gain.explain(searcher, candidates[0])
            return candidates
        improvement, table = _expected_improvement(searcher, table, encoding, rng)
        return _refined(searcher, improvement, table, encoding, rng)


def _expected_improvement(
    searcher: ProcessSearch, table: Table, encoding: Encoding, rng: Generator
) -> tuple[Callable[[Array], Array], Table]:
    has_levels = spans_levels(table)
    if has_levels:
        process, table, num_fitted = searcher.process_of_levels(table, encoding.num_categories)
        best = float(process.predict(table.vectors, np.arange(len(table.names)))[0].min())
    else:
        kept = best_and_others(table, MAX_ROWS, rng)
        process = searcher.process(
            table.vectors[kept], _targets(table)[kept], encoding.num_categories
        )
        best = float(process.means().min())
        num_fitted = len(kept)
    searcher.note_model("Gaussian process", num_fitted, describe_retention(table))
    running = searcher.observations.running_vectors()
    if len(running):
        process.believe(running)

    def improvement(points: Array) -> Array:
        means, deviations = process.predict(points)
        return log_expected_improvement(means, deviations * (TEMPER if has_levels else 1), best)

    return improvement, table


def _refined(
    searcher: ProcessSearch,
    improvement: Callable[[Array], Array],
    table: Table,
    encoding: Encoding,
    rng: Generator,
) -> Array:
    """Return candidates and refined ones, those with the largest improvement first."""
    pool = np.concatenate(
        [around_best(table, encoding, rng), searcher.fresh(encoding, rng, NUM_FRESH, table)]
    )
    order = np.argsort(-improvement(pool), kind="stable")
    for step, probability in REFINEMENTS:
        parents = np.repeat(pool[order[:NUM_REFINED]], NUM_VARIATIONS, axis=0)
        steps = np.full(len(parents), step)
        # The parents come first and stay the best where no variation is better.
        varied = mutants(rng, encoding, parents, steps, probability)
        pool = np.concatenate([pool[order[:NUM_REFINED]], varied])
        order = np.argsort(-improvement(pool), kind="stable")
    return pool[order]


def _targets(table: Table) -> Array:
    """Return what the process is fitted to where all trials count alike, standardised."""
    values = table.last_values
    known = values[np.isfinite(values)]
    # Values of several levels do not compare. Ranks would bend a smooth function where it is best.
    if len(table.levels) > 1 or len(known) == 0 or known.min() == known.max():
        return table.scores
    middle = float(np.median(known))
    worst = min(float(known.max()), middle + CLIP * (middle - float(known.min())))
    clipped = np.minimum(values, worst)
    targets: Array = (clipped - clipped.mean()) / max(float(clipped.std()), 1e-300)
    return targets
