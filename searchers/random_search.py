"""Grid and random search, the default searcher."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, count, product
from math import prod
from typing import Any, Final, final

from .searcher import Searcher
from .seeding import chosen_seed, generator, seed_of
from .space import Path, SearchSpace, is_word
from .space.tree import assign, has_keys_of, has_values, is_same_value, match


@final
class BasicVariantGenerator(Searcher):
    """Crosses the full grid with random samples.

    The experiment consists of ``num_samples`` samples, each of which is run at every point of the
    grid. Points to evaluate come first and count as one sample each; grid axes that they leave open
    are crossed as well. The first axis varies fastest.

    Every suggestion depends on the seed and its number alone: the same seed gives the same
    suggestions, no grid is computed in advance, and a larger ``num_samples`` later only appends.
    Points of the grid that violate the ``where`` of a `Space` are left out, and what is drawn is
    drawn until it holds.
    Where an experiment is restored with another space or other points, what it has run already
    takes the place of equal suggestions, and only the others are made.

    Args:
        points_to_evaluate: Configurations to begin with, nested or with names such as ``"a/b"``.
            Parameters left out are sampled.
        max_concurrent: How many trials may be unfinished at a time, 0 for any number.
        constant_grid_search: Whether the random values of a sample stay the same over the grid,
            instead of being drawn at every point.
        random_state: A seed or numpy generator to use instead of the experiment's seed.

    Raises:
        TypeError: If `random_state` is neither a seed nor a generator.
        ValueError: If a number is negative; with the space, if a point does not fit it, or nothing
            satisfies its ``where``.

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

    takes_several_metrics = True
    takes_constraints = True
    takes_where = True

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
        self._points_to_evaluate: list[Mapping[str, Any]] = []
        if points_to_evaluate is not None:
            from .pending_points import checked_points  # noqa: PLC0415  (most searches have none)

            self._points_to_evaluate = checked_points(points_to_evaluate)
        self._is_constant_over_grid = constant_grid_search
        self._own_seed = None if random_state is None else seed_of(random_state)
        self._seed = 0
        self._num_suggested = 0
        self._unfinished: set[str] = set()
        self._variants: _VariantList | None = None
        # The number of the next variant. Those in `_run` are passed over: trials of an earlier
        # declaration stand for them. `_strays` stand for none.
        self._next = 0
        self._run: dict[int, str] = {}
        self._strays: list[str] = []
        self._newest = ""

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set the space, the seed and the number of samples; metric and mode are ignored.

        Raises:
            ValueError: If a point to evaluate does not fit the space, or nothing satisfies its
                ``where``.
        """
        space = SearchSpace(config)
        points = [space.assignments(point) for point in self._points_to_evaluate]
        if space.where is not None:
            space.check_satisfiable()
            space.check_points(points)
        self._variants = _VariantList(space, points)
        self._num_samples = spec.get("num_samples", 1)
        self._seed = chosen_seed(self._own_seed, spec.get("seed"))
        return super().set_search_properties(metric, mode, config, **spec)

    @property
    def calls_functions(self) -> bool:
        """Whether values of the space are computed by functions, which may take long."""
        return bool(self._known_variants.space.dependents)

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return the number of suggestions, samples times grid points; None for endless.

        Trials of an experiment that are not among them, since it was declared otherwise before,
        count as well.
        """
        if num_samples < 0:
            return None
        return self._known_variants.num_declared(num_samples) + len(
            self.surplus_trials(num_samples)
        )

    def surplus_trials(self, num_samples: int) -> Collection[str]:
        """Return the trials outside of the grid, and those of which it wants no more."""
        if num_samples < 0:
            return list(self._strays)
        end = self._known_variants.num_declared(num_samples)
        return [*self._strays, *(name for number, name in self._run.items() if number >= end)]

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration, `FINISHED`, or None at the limit of unfinished trials."""
        while self._next in self._run:
            self._next += 1
        num_samples = 1 if self._num_samples is None else self._num_samples
        if num_samples >= 0 and self._next >= self._known_variants.num_declared(num_samples):
            return self.FINISHED
        if self.max_concurrent and len(self._unfinished) >= self.max_concurrent:
            return None
        config = self._variant(self._next)
        self._next += 1
        self._num_suggested += 1
        self._newest = trial_id
        self._unfinished.add(trial_id)
        return config

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Take the suggestion back, and pass over the one that the trial's configuration equals."""
        if trial_id == self._newest:
            self._next -= 1
            self._newest = ""
        elif config is not None:
            self._num_suggested += 1  # so that no later one repeats what the trial has drawn
        if config is None:
            return False
        numbers = self._known_variants.numbers_for(config, self._next)
        free = (each for each in numbers if each >= self._next and each not in self._run)
        number = next(free, None)
        if number is None:
            self._strays.append(trial_id)
        else:
            self._run[number] = trial_id
        return False  # there is nothing to learn

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
        """Return the seed, what has been suggested or run before, and the unfinished trials."""
        return {
            "seed": self._seed,
            "num_suggested": self._num_suggested,
            "unfinished": sorted(self._unfinished),
            "next": self._next,
            "run": [[number, trial_id] for number, trial_id in self._run.items()],
            "strays": list(self._strays),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._seed = state["seed"]
        self._num_suggested = state["num_suggested"]
        self._unfinished = set(state["unfinished"])
        self._next = state["next"]
        self._run = dict(state["run"])
        self._strays = list(state["strays"])
        self._newest = ""

    @property
    def _known_variants(self) -> _VariantList:
        if self._variants is None:
            raise RuntimeError(
                "the space must be known before the first suggestion; call set_search_properties "
                "first"
            )
        return self._variants

    def _variant(self, number: int) -> dict[str, Any]:
        variants = self._known_variants
        sample, assignments = variants.at(number)
        # All suggestions of a sample draw the same values if they share its generator.
        stream = sample if self._is_constant_over_grid else self._num_suggested
        return variants.space.resolve(assignments, generator(self._seed, stream))


@final
class _VariantList:
    """The variants of a space by number; none of them is computed in advance.

    Points to evaluate come first, each at every point of the grid axes that it leaves open. Then
    each sample takes the whole grid before the next one begins. The first axis varies fastest.

    Args:
        space: The space.
        points: The values of the points to evaluate, by path.

    Attributes:
        space: See above.
        num_preset: How many variants come from points to evaluate.
    """

    def __init__(self, space: SearchSpace, points: Sequence[Mapping[Path, Any]]) -> None:
        self.space = space
        self._points = points
        self._grid = _Grid(space, {})
        self._of_points = [_Grid(space, point) for point in points]
        self._ends = list(accumulate(grid.size for grid in self._of_points))
        self.num_preset = self._ends[-1] if self._ends else 0

    def num_declared(self, num_samples: int) -> int:
        """Return how many variants there are with a number of samples, 0 or more."""
        return self.num_preset + max(num_samples - len(self._points), 0) * self._grid.size

    def at(self, number: int) -> tuple[int, dict[Path, Any]]:
        """Return the number of a variant's sample, and its values but for those to be drawn."""
        if number < self.num_preset:
            sample = bisect_right(self._ends, number)
            return sample, self._of_points[sample].at(number - self._start(sample))
        sample, place = divmod(number - self.num_preset, self._grid.size)
        return sample + len(self._points), self._grid.at(place)

    def numbers_for(self, config: Mapping[str, Any], first: int) -> Iterator[int]:
        """Yield the numbers of the variants that a configuration can stand for, the best first.

        Those are points to evaluate, the ones that name most of its values first, then samples in
        their order, without end. Nothing is yielded for a configuration outside of the grid.
        Without a grid, each configuration can stand for a sample.

        Args:
            config: A configuration, perhaps of another space.
            first: Samples before this number are left out.
        """
        values = self._values(config)
        if values is None:
            return
        by_size = sorted(range(len(self._points)), key=lambda number: -len(self._points[number]))
        for sample in by_size:
            point = self._points[sample]
            if has_values(values, point):
                start = self._start(sample)
                yield from (start + each for each in self._of_points[sample].places(values))
        places, size = sorted(self._grid.places(values)), self._grid.size
        for sample in count(max(first - self.num_preset, 0) // size) if places else ():
            yield from (self.num_preset + sample * size + place for place in places)

    def _values(self, config: Mapping[str, Any]) -> Mapping[Path, Any] | None:
        """Return the values of a configuration by path; None if it is not one of the grid."""
        space = self.space
        if not space.grid_axes:
            return space.values_in(config)
        try:
            # What was drawn may lie outside of what is drawn from now.
            found = (
                space.assignments(config)
                if space.is_conditional
                else dict(match(space.space, config, is_word))
            )
            whole = (
                space.resolve(found, None)
                if space.is_conditional
                else assign(space.space, {path: found[path] for path in space.words})
            )
        except (LookupError, TypeError, ValueError):
            return None
        return found if has_keys_of(config, whole) else None

    def _start(self, sample: int) -> int:
        return self._ends[sample - 1] if sample else 0


MAX_CHECKED: Final = 1_000_000
"""Largest grid of which every point is checked against a relation."""


@final
class _Grid:
    """The points of the grid axes that a point to evaluate leaves open.

    Points that violate the relation of the space have no place, whatever else is drawn.

    Args:
        space: The space.
        point: The values of the point, by path; empty for the whole grid.

    Attributes:
        size: How many there are.

    Raises:
        ValueError: If there is a relation, and too large a grid for it, or none is left.
    """

    def __init__(self, space: SearchSpace, point: Mapping[Path, Any]) -> None:
        self._point = point
        self._axes = {path: axis for path, axis in space.grid_axes.items() if path not in point}
        self.size = prod(len(values) for values in self._axes.values())
        self._allowed: list[int] | None = None
        if space.where is not None and self._axes:
            self._allowed = self._checked(space)
            self.size = len(self._allowed)

    def at(self, place: int) -> dict[Path, Any]:
        """Return the values at a place, those of the point to evaluate included."""
        return self._values(place if self._allowed is None else self._allowed[place])

    def places(self, values: Mapping[Path, Any]) -> Iterator[int]:
        """Yield the places with these values; several if an axis repeats one."""
        found = _places(self._axes, values)
        if self._allowed is None:
            return found
        order = {place: number for number, place in enumerate(self._allowed)}
        return (order[place] for place in found if place in order)

    def _values(self, place: int) -> dict[Path, Any]:
        # The place in the grid as a number of mixed radix, with a digit for each axis.
        values = dict(self._point)
        for path, axis in self._axes.items():
            place, index = divmod(place, len(axis))
            values[path] = axis[index]
        return values

    def _checked(self, space: SearchSpace) -> list[int]:
        if self.size > MAX_CHECKED:
            raise ValueError(
                f"a grid with a relation must have {MAX_CHECKED:,} points at most, got "
                f"{self.size:,} with {space.where}; use choice instead of grid_search"
            )
        allowed = [place for place in range(self.size) if space.is_feasible(self._values(place))]
        if not allowed:
            raise ValueError(
                f"the grid must have a point that satisfies {space.where}, got none among "
                f"{self.size:,}; relax it, or add values"
            )
        return allowed


def _places(axes: Mapping[Path, list[Any]], values: Mapping[Path, Any]) -> Iterator[int]:
    """Yield the places in the grid with these values; several if an axis repeats one."""
    weights = list(accumulate((len(axis) for axis in axes.values()), lambda a, b: a * b, initial=1))
    digits = [
        [index * weight for index, value in enumerate(axis) if is_same_value(value, values[path])]
        for (path, axis), weight in zip(axes.items(), weights, strict=False)
    ]
    return map(sum, product(*digits))
