"""Grid and random search, the default searcher."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, final

from .initial_points import checked_points
from .searcher import Searcher
from .seeding import chosen_seed, generator, seed_of
from .space import Path, SearchSpace


@final
class BasicVariantGenerator(Searcher):
    """Crosses the full grid with random samples.

    The experiment consists of ``num_samples`` samples, each of which is run at every point of the
    grid. Points to evaluate come first and count as one sample each; grid axes that they leave open
    are crossed as well. The first axis varies fastest.

    Every suggestion depends on the seed and its number alone: the same seed gives the same
    suggestions, no grid is computed in advance, and a larger ``num_samples`` later only appends.

    Args:
        points_to_evaluate: Configurations to begin with, nested or with names such as ``"a/b"``.
            Parameters left out are sampled.
        max_concurrent: How many trials may be unfinished at a time, 0 for any number.
        constant_grid_search: Whether the random values of a sample stay the same over the grid,
            instead of being drawn at every point.
        random_state: A seed or numpy generator to use instead of the experiment's seed.

    Raises:
        TypeError: If `random_state` is neither a seed nor a generator.
        ValueError: If a number is negative; with the space, if a point does not fit it.

    Example:
        >>> from .space import grid_search, uniform
        >>> searcher = BasicVariantGenerator(points_to_evaluate=[{"lr": 0.5}])
        >>> searcher.set_search_properties(
        ...     None,
        ...     None,
        ...     {"lr": uniform(0, 1), "depth": grid_search([2, 3])},
        ...     seed=0,
        ...     num_samples=2,
        ... )
        True
        >>> searcher.total_samples
        4
        >>> searcher.suggest("a"), searcher.suggest("b")
        ({'lr': 0.5, 'depth': 2}, {'lr': 0.5, 'depth': 3})

    Departures:
        Ray Tune warns about points outside the space and runs them, and without a seed draws from
        numpy's global generator.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        if max_concurrent < 0:
            raise ValueError(
                f"max_concurrent must be 0 or more, got {max_concurrent}; 0 sets no limit"
            )
        self.max_concurrent = max_concurrent
        self._points_to_evaluate = checked_points(points_to_evaluate)
        self._is_constant_over_grid = constant_grid_search
        self._own_seed = None if random_state is None else seed_of(random_state)
        self._seed = 0
        self._num_suggested = 0
        self._unfinished: set[str] = set()
        self._space: SearchSpace | None = None
        self._points: list[dict[Path, Any]] = []
        self._point_ends: list[int] = []

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set the space, the seed and the number of samples; metric and mode are ignored.

        Raises:
            ValueError: If a point to evaluate does not fit the space.
        """
        self._space = SearchSpace(config)
        self._points = [self._space.assignments(point) for point in self._points_to_evaluate]
        self._point_ends = list(
            accumulate(_grid_size(_open_axes(self._space, point)) for point in self._points)
        )
        self._num_samples = spec.get("num_samples", 1)
        self._seed = chosen_seed(self._own_seed, spec.get("seed"))
        return super().set_search_properties(metric, mode, config, **spec)

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return the number of suggestions, samples times grid points; None for endless."""
        if num_samples < 0:
            return None
        num_random = max(num_samples - len(self._points), 0)
        return self._num_preset + num_random * _grid_size(self._known_space.grid_axes)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration, `FINISHED`, or None at the limit of unfinished trials."""
        total = self.num_trials_for(1 if self._num_samples is None else self._num_samples)
        if total is not None and self._num_suggested >= total:
            return self.FINISHED
        if self.max_concurrent and len(self._unfinished) >= self.max_concurrent:
            return None
        config = self._variant(self._num_suggested)
        self._num_suggested += 1
        self._unfinished.add(trial_id)
        return config

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Make room for another trial."""
        self._unfinished.discard(trial_id)

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, the number of suggestions and the unfinished trials."""
        return {
            "seed": self._seed,
            "num_suggested": self._num_suggested,
            "unfinished": sorted(self._unfinished),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._seed = state["seed"]
        self._num_suggested = state["num_suggested"]
        self._unfinished = set(state["unfinished"])

    @property
    def _known_space(self) -> SearchSpace:
        if self._space is None:
            raise RuntimeError(
                "the space must be known before the first suggestion; call set_search_properties "
                "first"
            )
        return self._space

    @property
    def _num_preset(self) -> int:
        """Number of suggestions that come from points to evaluate."""
        return self._point_ends[-1] if self._point_ends else 0

    def _variant(self, number: int) -> dict[str, Any]:
        space = self._known_space
        sample, point, place = self._locate(number)
        assignments = {**point, **_grid_point(_open_axes(space, point), place)}
        # All suggestions of a sample draw the same values if they share its generator.
        return space.resolve(
            assignments, generator(self._seed, sample if self._is_constant_over_grid else number)
        )

    def _locate(self, number: int) -> tuple[int, dict[Path, Any], int]:
        """Return a suggestion's sample number, its initial point, and its place in the grid."""
        if number < self._num_preset:
            sample = bisect_right(self._point_ends, number)
            return (
                sample,
                self._points[sample],
                number - (self._point_ends[sample - 1] if sample else 0),
            )
        # Beyond the points each sample takes the whole grid before the next one begins.
        sample, place = divmod(number - self._num_preset, _grid_size(self._known_space.grid_axes))
        return len(self._points) + sample, {}, place


def _open_axes(space: SearchSpace, point: Mapping[Path, Any]) -> dict[Path, list[Any]]:
    return {path: values for path, values in space.grid_axes.items() if path not in point}


def _grid_size(axes: Mapping[Path, list[Any]]) -> int:
    return prod(len(values) for values in axes.values())


def _grid_point(axes: Mapping[Path, list[Any]], place: int) -> dict[Path, Any]:
    # The place in the grid as a number of mixed radix, with a digit for each axis.
    point = {}
    for path, values in axes.items():
        place, index = divmod(place, len(values))
        point[path] = values[index]
    return point
