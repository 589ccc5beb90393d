"""Base class of searchers that fit a model: initial points, observations, and no duplicates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from searchers.learning_searcher import FailedTrials, LearningSearcher
from searchers.objectives.outcome_constraint import number_of
from searchers.pending_points import PendingPoints
from searchers.seeding import generator
from searchers.space import Path, merge
from searchers.space.foreign_domains import check_own_space

from .branches import starved_branch
from .candidates import latin, without_repeated_numbers
from .encoding import Encoding, key
from .observations import Observations, Table, extrapolate_final_scores, number_in
from .prior_band import PriorBand
from .tradeoffs import Tradeoffs, drawn_weights

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]

NUM_INITIAL = 10
NUM_FRESH = 8
"""Number of random points that are drawn for one suggestion: some may be known already."""
_DESIGN = 2**32
"""Number of the generator of the initial design, beyond those of the suggestions."""
MIN_OBSERVED = 4
"""With results of fewer trials no model is fitted, and suggestions are random."""


class ModelSearch(LearningSearcher):
    """Base class of searchers that fit a model to the results so far.

    A subclass returns its preferred vectors from `propose`. This class chooses the initial points,
    keeps the observations, and ensures that no configuration is suggested twice while there are
    others, and that no option with parameters of its own is forgotten (see `starved_branch`).

    Args:
        n_initial_points: How many suggestions are spread evenly over the space before the model is
            asked; None for 10, or a quarter of ``num_samples`` if that is less.
        random_fraction: Share of the later suggestions that are random, between 0 and 1.
        time_attr: Entry of a result that says how long the trial has trained.
        space: See `LearningSearcher`, as for the other arguments.

    Raises:
        TypeError: If `seed` is no integer.
        ValueError: If an argument is out of range or two contradict each other.
    """

    takes_where = True

    def __init__(  # noqa: PLR0917  (the order of its peers)
        self,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        n_initial_points: int | None = None,
        random_fraction: float = 0.0,
        time_attr: str = "training_iteration",
        seed: int | None = None,
        *,
        space: Mapping[str, Any] | None = None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        _check_arguments(n_initial_points, random_fraction, time_attr)
        check_own_space(space, type(self).__name__)
        super().__init__(
            space=space,
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            seed=seed,
            failed_trials=failed_trials,
        )
        self._given_num_initial = n_initial_points
        self._random_fraction = random_fraction
        self._time_attr = time_attr
        self._num_initial = NUM_INITIAL
        self._num_suggested = 0
        self._sign = 1.0
        self._encoding: Encoding | None = None
        self._points = PendingPoints([])
        self._seen: set[tuple[float | None, ...]] = set()
        self._why = ""
        self.observations = Observations()
        self.tradeoffs: Tradeoffs | None = None
        self._weights: Sequence[float] = ()

    def fresh(self, encoding: Encoding, rng: Generator, num_points: int, table: Table) -> Array:
        """Return vectors not chosen by a model: random ones, or drawn from priors."""
        return PriorBand(encoding).sample(rng, num_points, table)

    @property
    def weighing(self) -> str:
        """How several metrics are weighed for the next suggestion, after the name of a model."""
        if len(self._weights) < 2:  # noqa: PLR2004
            return ""
        metrics = (metric for metric, _ in self.objectives)
        shares = [f"{w:.2f} {m}" for w, m in zip(self._weights, metrics, strict=True)]
        return f" of {' + '.join(shares)}"

    @property
    def known_tradeoffs(self) -> Tradeoffs:
        """What trials have reached in several metrics, or under constraints."""
        return cast("Tradeoffs", self.tradeoffs)

    @abstractmethod
    def propose(self, encoding: Encoding, rng: Generator) -> Array:
        """Return vectors, the best first, and note the model with `note_model`."""

    def note_model(self, model: str, num_trials: int, retention: str = "") -> None:
        """Note which model makes the suggestion, for `explain_suggestion`.

        Args:
            model: Its name.
            num_trials: How many trials it is fitted to.
            retention: See `describe_retention`.
        """
        self._why = f"{model}, fitted to {num_trials} trials" + (
            f"; {retention}" if retention else ""
        )

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed.

        Args:
            metric: Name of the metric, flattened, unless the searcher has one.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised, unless the
                searcher has one.
            config: The space, or the constants beside the searcher's own space.
            **spec: ``seed``, and ``num_samples``, on which the number of initial points depends.

        Returns:
            False where the searcher already has a metric, mode or space and another one is given.

        Raises:
            ValueError: If metric or mode is missing, a parameter cannot be searched, or a point to
                evaluate does not fit.
        """
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        self._check_objective()
        self._sign = -1.0 if self.mode == "max" else 1.0
        self._set_tradeoffs()
        self._num_initial = (
            self.num_first_points(spec.get("num_samples", -1))
            if self._given_num_initial is None
            else self._given_num_initial
        )
        space = config if self._given_space is None else self._given_space
        self._encoding = Encoding(space, type(self).__name__)
        points = [self._encoding.assignments(point) for point in self._given_points]
        if not self._rewards:
            self._encoding.check_points(points)
        self._points = PendingPoints([] if self._rewards else points)
        # By number, so that setting the properties again adds no point twice.
        for number, (point, reward) in enumerate(zip(points, self._rewards, strict=False)):
            self._add_evaluated(f"evaluated {number}", point, reward)
        return True

    def _set_tradeoffs(self) -> None:
        if self.tradeoffs is not None and self.tradeoffs.objectives == self.objectives:
            self.tradeoffs.constraints = tuple(self.constraints)  # what trials have reached stays
        elif len(self.objectives) > 1 or self.constraints:
            self.tradeoffs = Tradeoffs(self.objectives, self.constraints)

    def num_first_points(self, num_samples: int) -> int:
        """Return how many of `num_samples` suggestions come before those of the model by default.

        They are 10, or a quarter of the samples if that is less.
        """
        return NUM_INITIAL if num_samples < 0 else min(NUM_INITIAL, max(num_samples // 4, 1))

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a configuration: points to evaluate, then initial points, then the model's.

        No configuration is suggested twice; when all of a finite space have been, the search is
        finished.
        """
        encoding = self._known_encoding
        if encoding.size is not None and len(self._seen) >= encoding.size:
            return self.FINISHED
        rng = generator(self._seed, self._num_suggested)
        fixed: Mapping[Path, Any] = {}
        if (number := self._points.take(trial_id)) is not None:
            fixed = self._points[number]
            vector = encoding.completed(fixed, rng)
            self._why = f"number {number + 1} of points_to_evaluate"
        elif (unseen := self._unseen(encoding, rng)) is not None:
            vector = unseen
        else:
            return self.FINISHED
        self._num_suggested += 1
        self._seen.add(key(vector))
        self.observations.add(trial_id, vector)
        return merge(self._constants, encoding.config(vector, rng, fixed))

    def num_points_left(self, num_samples: int) -> int:
        """Return how many points to evaluate are still to be run."""
        return self._points.num_left(num_samples)

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Take the suggestion back; learn from what the trial runs, and suggest it to no other."""
        encoding, replaced = self._known_encoding, self.observations.trials.get(trial_id)
        if replaced is None and config is not None:
            self._num_suggested += 1  # so that no later one repeats what the trial has drawn
        vector = None
        if config is not None:
            self._points.replace(trial_id, encoding.values_in(config))
            vector = encoding.vector_of(self._searched_part(config))
        else:
            self._points.replace(trial_id, None)
        if replaced is not None:
            self.observations.remove(trial_id)
            if self.tradeoffs:
                self.tradeoffs.forget(trial_id)
            self._seen.discard(key(replaced.vector))
        if vector is not None:
            self._seen.add(key(vector))
            self.observations.add(trial_id, vector)
        return vector is not None

    def explain_suggestion(self) -> str:
        """Return which model made the last suggestion, or why none did."""
        return self._why

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Record a value; a result without the metric is ignored."""
        time = number_in(result, self._time_attr)
        if self.tradeoffs:
            self._record_tradeoff(trial_id, time, result)
            return
        value = number_in(result, self.metric or "")
        if value is not None and (math.isfinite(value) or self._failed_trials == "worst"):
            # Results without a time share one slot, which keeps the last of them.
            self.observations.record(
                trial_id,
                time if time is not None and math.isfinite(time) else 0.0,
                self._sign * value,
            )

    def _record_tradeoff(
        self, trial_id: str, time: float | None, result: Mapping[str, Any]
    ) -> None:
        values = (number_of(result.get(metric)) for metric in self.known_tradeoffs.metrics)
        is_odd = any(value is not None and not math.isfinite(value) for value in values)
        if is_odd and self._failed_trials == "ignore":
            return
        at = time if time is not None and math.isfinite(time) else 0.0
        if self.known_tradeoffs.record(trial_id, at, result):
            # A stand-in until the weights of the next suggestion are drawn.
            self.observations.record(trial_id, at, 0.0)

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Record how a trial ended; one without a value counts as worst, see `failed_trials`."""
        if result and not error:
            self.on_trial_result(trial_id, result)
        if self._failed_trials == "worst":
            self.observations.end(
                trial_id, is_failed=error or not (stopped or self.observations.is_known(trial_id))
            )
        else:
            self.observations.end(trial_id, is_failed=False, drops_values=error)

    def on_trial_discard(self, trial_id: str) -> None:
        """Record that the configuration is not run."""
        self.observations.end(trial_id, is_failed=False, drops_values=True)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add an externally evaluated configuration, which will not be suggested.

        It is a part of `state_dict`. An experiment that is restored without a state has to be given
        it again.

        Args:
            parameters: The configuration, complete, nested or with names such as ``"a/b"``.
            value: The metric's value, in its own direction; a dictionary with the values of all
                where there are constraints, and that or a list where there are several metrics.
            error: Whether the run failed, so that it counts as worst.
            pruned: Whether it was stopped before it was done; not used, since its intermediate
                values show how long it has trained.
            intermediate_values: Its intermediate values, from the first training iteration on; the
                last of them is replaced by `value`. Without any, the value is compared with those
                of the highest level of training.

        Raises:
            ValueError: If the configuration does not fit the space or is not complete, or a value
                is no number.
        """
        point = self._known_encoding.assignments(parameters)
        name = f"evaluated {len(self.observations.trials)}"
        self._add_evaluated(name, point, value, error, intermediate_values or ())

    def _add_evaluated(
        self,
        name: str,
        point: Mapping[Path, Any],
        value: Any,
        error: bool = False,
        intermediate_values: Sequence[float] = (),
    ) -> None:
        encoding = self._known_encoding
        if missing := encoding.missing(point):
            raise ValueError(
                f"points with a value must be complete, got none of {missing}; add their values"
            )
        if isinstance(value, Mapping) and not self.tradeoffs:
            value = value.get(self.metric)
        if self.tradeoffs:
            values = [] if error else [*intermediate_values[:-1], value]
            self._add_evaluated_tradeoff(
                name, encoding.encoded(point), values, is_full=not intermediate_values
            )
            return
        values = [] if error else [*intermediate_values[:-1], value]
        for each in values:
            if not isinstance(each, int | float) or math.isnan(each):
                raise ValueError(
                    f"values of evaluated points must be numbers, got {each!r}; leave out points "
                    "without a result"
                )
        vector = encoding.encoded(point)
        self._seen.add(key(vector))
        if values and not intermediate_values:
            self.observations.add_evaluated(name, vector, self._sign * value)
            return
        self.observations.add(name, vector)
        for time, each in enumerate(values, start=1):
            self.observations.record(name, time, self._sign * each)
        self.observations.end(name, is_failed=error)

    def _add_evaluated_tradeoff(
        self, name: str, vector: list[float], values: Sequence[Any], *, is_full: bool
    ) -> None:
        """Add a point by its values from the first iteration on, or after a full training."""
        tradeoffs = self.known_tradeoffs
        reached = [tradeoffs.evaluated(each) for each in values]
        self._seen.add(key(vector))
        if reached and is_full:
            tradeoffs.add_evaluated(name, reached[0])
            self.observations.add_evaluated(name, vector, 0.0)
            return
        self.observations.add(name, vector)
        for time, each in enumerate(reached, start=1):
            self._record_tradeoff(name, time, each)
        self.observations.end(name, is_failed=not reached)

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, how far the search has come, and all observations."""
        return {
            "seed": self._seed,
            "num_suggested": self._num_suggested,
            "num_initial": self._num_initial,
            "points": self._points.taken,
            "trials": self.observations.state_dict(),
            "times": list(self.observations.times.items()),
            **({"tradeoffs": self.tradeoffs.state_dict()} if self.tradeoffs else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; metric, mode and space must be known already."""
        if self._encoding is None:
            self._take_own_space()
        self._seed = state["seed"]
        self._num_suggested = state["num_suggested"]
        self._num_initial = state["num_initial"]
        self._points.mark_taken(state["points"])
        self.observations = Observations()
        self.observations.load_state_dict(state["trials"])
        self.observations.times.update(state["times"])
        self._seen = {key(trial.vector) for trial in self.observations.trials.values()}
        if self.tradeoffs:
            self.tradeoffs.load_state_dict(state["tradeoffs"])

    @property
    def _known_encoding(self) -> Encoding:
        if self._encoding is None:
            self._take_own_space()
        return cast("Encoding", self._encoding)

    def _unseen(self, encoding: Encoding, rng: Generator) -> list[float] | None:
        """Return the best proposed vector that was not suggested before, or None."""
        for proposed in (
            self._proposals(encoding, rng),
            encoding.from_cube(rng.random((32, len(encoding.columns)))),
        ):
            for row in proposed.tolist():
                # Most are known where there are few configurations, and settling takes longer.
                if key(row) in self._seen:
                    continue
                vector = encoding.settled(row)
                if key(vector) not in self._seen:
                    known = self.observations.vectors()
                    return without_repeated_numbers(vector, known, encoding, rng)
            self._why = "random, since all that was proposed had been suggested before"
        if not encoding.is_finite:
            return encoding.settled(row)
        # Nearly all have been suggested: enumerate the space from a random start.
        return next(
            (vector for vector in encoding.each(rng) if key(vector) not in self._seen), None
        )

    def _proposals(self, encoding: Encoding, rng: Generator) -> Array:
        number = self._num_suggested - len(self._points)
        if number < self._num_initial:
            self._why = f"initial point {number + 1} of {self._num_initial}"
            return self._first(encoding, rng, number)
        has_few = self.observations.num_observed < MIN_OBSERVED
        if has_few or rng.random() < self._random_fraction:
            self._why = (
                f"random, since fewer than {MIN_OBSERVED} trials have results"
                if has_few
                else f"random, drawn with random_fraction={self._random_fraction:g}"
            )
            return self.fresh(encoding, rng, NUM_FRESH, self.observations.table())
        if self.tradeoffs:
            self._weights = drawn_weights(len(self.objectives), rng)
            self.tradeoffs.scalarise(self.observations, self._weights)
        if encoding.branches:
            table = extrapolate_final_scores(self.observations.table(), encoding.num_categories)
            branch = starved_branch(table, self.observations.vectors(), encoding)
            proposed = None if branch is None else self._proposed_in(branch, encoding, rng)
            if proposed is not None:
                return proposed
        return self.propose(encoding, rng)

    def _proposed_in(
        self, branch: tuple[int, float], encoding: Encoding, rng: Generator
    ) -> Array | None:
        """Return vectors of a branch, by a model of its trials; None if it is exhausted."""
        everything, (place, entry) = self.observations, branch
        self.observations = everything.restricted_to(place, entry)
        inside = encoding.within(branch)
        try:
            if self.observations.num_observed < MIN_OBSERVED:
                self._why = f"random, since fewer than {MIN_OBSERVED} trials have results"
                proposed = self.fresh(inside, rng, NUM_FRESH, self.observations.table())
            else:
                proposed = self.propose(inside, rng)
        finally:
            self.observations = everything
        column = encoding.columns[place]
        self._why += f"; within {column.name}={column.decode(entry)!r}, which had too few trials"
        is_new = (
            key(row) not in self._seen and key(encoding.settled(row)) not in self._seen
            for row in proposed.tolist()
        )
        return proposed if any(is_new) else None

    def _first(self, encoding: Encoding, rng: Generator, number: int) -> Array:
        """Return an initial point by number; half of them follow priors if there are any."""
        band = PriorBand(encoding)
        # The prior itself first, then every second point: a bad prior must not take all of them.
        if encoding.has_prior and number == 0:
            return band.expected(rng)
        if encoding.has_prior and number % 2 == 0:
            return band.prior.sample(rng, NUM_FRESH)
        design = latin(generator(self._seed, _DESIGN), self._num_initial, len(encoding.columns))
        return encoding.from_cube(design[[number]])


def _check_arguments(n_initial_points: int | None, random_fraction: float, time_attr: str) -> None:
    is_count = (
        isinstance(n_initial_points, int)
        and not isinstance(n_initial_points, bool)
        and n_initial_points >= 0
    )
    if n_initial_points is not None and not is_count:
        raise ValueError(
            f"n_initial_points must be a whole number from 0, got {n_initial_points!r}; None takes "
            "10, or a quarter of num_samples if that is less"
        )
    if not isinstance(random_fraction, int | float) or not 0 <= random_fraction <= 1:
        raise ValueError(
            f"random_fraction must be between 0 and 1, got {random_fraction!r}; 0 asks the model "
            "each time"
        )
    if not isinstance(time_attr, str) or not time_attr:
        raise ValueError(
            f"time_attr must be the name of an entry of results, got {time_attr!r}; use "
            "'training_iteration'"
        )
