"""Base class of searchers that learn from results, for what they have in common.

These are their arguments: a search space of their own, initial points, a seed, and how failed
trials count.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from .pending_points import checked_points
from .searcher import MODES, Searcher
from .seeding import chosen_seed, seed_of
from .space import is_word, leaves
from .space.declared_space import where_of

FailedTrials = Literal["worst", "ignore"]
"""How a failed trial counts: as bad as the worst one so far, or not at all."""

FAILED_TRIALS: Final[tuple[FailedTrials, ...]] = ("worst", "ignore")


class LearningSearcher(Searcher, ABC):
    """Base class of searchers that learn from results.

    Args:
        space: The search space, checked by the subclass, or a function that defines it; None if
            ``param_space`` does.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be
            complete and are not run.
        seed: Seed of the search; None to take the experiment's.
        failed_trials: ``"worst"`` counts failed trials like the worst one; ``"ignore"`` learns
            nothing from them.

    Raises:
        TypeError: If `seed` is no integer.
        ValueError: If `failed_trials` is neither of the two, or there is not one reward per point.
    """

    def __init__(
        self,
        *,
        space: Mapping[str, Any] | Callable[[Any], Any] | None,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        evaluated_rewards: Sequence[Any] | None,
        seed: int | None,
        failed_trials: FailedTrials,
    ) -> None:
        if failed_trials not in FAILED_TRIALS:
            raise ValueError(
                f"failed_trials must be one of {FAILED_TRIALS}, got {failed_trials!r}; 'worst' "
                "keeps the search away from them"
            )
        self._failed_trials = failed_trials
        self._given_points = checked_points(points_to_evaluate)
        self._rewards = list(evaluated_rewards or ())
        if self._rewards and len(self._rewards) != len(self._given_points):
            raise ValueError(
                "evaluated_rewards must hold one value per point, got "
                f"{len(self._rewards)} for {len(self._given_points)}; add what is missing"
            )
        # Without the checks in the constructor of Searcher: see `_check_objective`.
        self.metric = metric
        self.mode = mode
        self._given_space: Any = space
        self._constants: Mapping[str, Any] = {}
        self._own_seed = None if seed is None else seed_of(seed)
        self._seed = 0

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode and seed; where the searcher has its own space, `config` is constant.

        Returns:
            False where the searcher already has a metric, mode or space and another one is given.
        """
        has_own_space = self._given_space is not None
        if has_own_space and any(is_word(leaf) for _, leaf in leaves(config)):
            return False
        if has_own_space and (where := where_of(config)) is not None:
            kind = type(self).__name__
            raise ValueError(
                f"param_space must have no where beside the space of {kind}, got {where!r}; write "
                f"{kind}(space=tune.Space({{...}}, where=...)), with a dictionary"
            )
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        self._constants = config if has_own_space else {}
        self._seed = chosen_seed(self._own_seed, spec.get("seed"))
        return True

    def _searched_part(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a trial's configuration without the constants beside the searcher's own space."""
        if not isinstance(self._given_space, Mapping):
            return config
        return {name: value for name, value in config.items() if name in self._given_space}

    def _check_objective(self) -> None:
        """Check that there is one metric with its direction, here or in ``TuneConfig``.

        Raises:
            ValueError: If one of them is missing.
        """
        kind = type(self).__name__
        if len(self.objectives) > 1 and self.takes_several_metrics:
            return
        if not isinstance(self.metric, str) or not self.metric:
            raise ValueError(
                f"metric must be the name of one metric for {kind}, got {self.metric!r}; set "
                "TuneConfig(metric=...)"
            )
        if self.mode not in MODES:
            raise ValueError(
                f"mode must be one of {MODES} for {kind}, got {self.mode!r}; set "
                "TuneConfig(mode=...)"
            )

    def _take_own_space(self) -> None:
        """Set the search properties of a searcher that is used without an experiment.

        Raises:
            RuntimeError: If it has no space of its own.
        """
        if self._given_space is None:
            raise RuntimeError(
                "metric, mode and space must be known before the first suggestion; give them, or "
                "call set_search_properties"
            )
        self.set_search_properties(None, None, {})
