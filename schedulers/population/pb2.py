"""PB2: population based training with hyperparameters chosen by a time-varying GP."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from importlib.util import find_spec
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar, final

from schedulers.decisions import Number
from schedulers.scheduler import TrialView
from searchers.space import Float, Integer, Path, SearchSpace, flat_name

from .explore import (
    MAX_TRIES,
    CustomExplore,
    checked_explore,
    customised,
    named_generator,
    replaced,
    satisfying,
    with_missing,
)
from .members import Member
from .population_scheduler import LIVE, PopulationScheduler

if TYPE_CHECKING:
    from numpy.random import Generator

    from searchers.space.relations import Relation

MAX_ROWS = 1000
"""How many of the latest intervals the model is fitted to."""
_MIN_ROWS = 3
"""How many intervals are needed to fit the model; before, hyperparameters are random."""


@final
class PB2(PopulationScheduler):
    """PB2: PBT in which a Gaussian process chooses a clone's hyperparameters.

    For each interval of each member, the hyperparameters and the improvement of the score are
    recorded. A clone gets the hyperparameters with the largest upper confidence bound of the
    improvement, given the time and score at which it begins and what the other members are trying.
    The first few clones get random hyperparameters. PB2 is made for small populations.

    For pauses, donors and missing values see `PopulationScheduler`.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow, and
            continue from its value in a checkpoint.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        perturbation_interval: How long members train from turn to turn, in units of `time_attr`;
            more than 0.
        hyperparam_bounds: ``[low, high]`` for each hyperparameter to be chosen, nested as in the
            configuration; both ends included. Whole where the bounds are and the donor's value is
            whole. One that ``param_space`` lacks is sampled uniformly, as a float: put ``randint``
            there for a whole number.
        quantile_fraction: Which part of the population becomes clones, and which is cloned; from 0,
            for none, to 0.5.
        log_config: Whether the engine logs which member becomes a clone of which.
        require_attrs: Whether to warn the user about results without `time_attr` or the metric;
            nothing is decided on those.
        synch: Whether members wait for each other at each interval, and are compared all together.
        custom_explore_fn: Takes the new configuration and returns the one to continue with.

    Raises:
        ImportError: If scikit-learn is not installed.
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.

    Example:
        >>> PB2("training_iteration", "reward", "max", 5, {"lr": [1e-4, 1e-1]}).debug_string()
        'PB2: 0 members, 0 clones, 0 waiting; 0 intervals recorded'

    Reference:
        Parker-Holder, Nguyen, Roberts. Provably Efficient Online Hyperparameter Optimization with
        Population-Based Bandits. NeurIPS 2020, arXiv 2002.02518.

    Departures:
        From the paper, as from Ray Tune: the acquisition function is searched with 1000 random
        points and 300 around the best of them, all at once, rather than by gradient steps from a
        few. From Ray Tune: as `PopulationBasedTraining`, except for `Explorer`.
    """

    prefix: ClassVar[str] = "pb2"

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: Number = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: CustomExplore | None = None,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            quantile_fraction=quantile_fraction,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        if not hyperparam_bounds:
            raise ValueError(
                f"hyperparam_bounds must name a hyperparameter, got {hyperparam_bounds!r}; give "
                "e.g. {'lr': [1e-4, 1e-1]}"
            )
        self._bounds = dict(_bounds(hyperparam_bounds, ()))
        self._custom_explore_fn = checked_explore(custom_explore_fn)
        self._rows: list[list[float]] = []
        self._gains: list[float] = []
        self._assigned: dict[str, list[float]] = {}
        self._where: Relation | None = None
        _check_installed()

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space with missing entries of `hyperparam_bounds` added, as floats."""
        completed = with_missing(
            space, replaced({}, {path: bound.floats for path, bound in self._bounds.items()})
        )
        self._where = SearchSpace(completed).where
        return completed

    def _on_turn(self, trial: TrialView, member: Member, begin: float) -> None:
        """Record the interval that has ended."""
        self._assigned.pop(member.trial_id, None)
        units = self._units(trial.config)
        # The first interval begins at the first score: there is none at time 0.
        begin = max(begin, member.curve.points[0].time)
        before, after = member.curve.at(begin), member.curve.score
        if (
            units is None
            or begin >= member.time
            or not (math.isfinite(before) and math.isfinite(after))
        ):
            return
        # Per interval, since members that report rarely have longer ones.
        gain = (after - before) / (member.time - begin) * self._interval
        # Rows are not tied to members: what one has tried is known to all.
        self._rows.append([begin / self._interval, before, *units])
        self._gains.append(gain if self.mode == "max" else -gain)
        del self._rows[:-MAX_ROWS], self._gains[:-MAX_ROWS]

    def _new_config(self, target: Member, donor: Member, event: str) -> Mapping[str, Any]:
        rng = named_generator(f"{self._seed}/{event}/{target.trial_id}/explore")
        config, units = self._config_of(donor), list[float]()
        is_modelled = len(self._rows) >= _MIN_ROWS

        def varied() -> dict[str, Any]:
            units[:] = (
                self._proposed(target, donor, config, rng)
                if is_modelled
                else [float(unit) for unit in rng.random(len(self._bounds))]
            )
            return customised(self._with_units(config, units), self._custom_explore_fn)

        # The model itself leaves out what violates the relation, and need not be asked again.
        new = satisfying(self._where, config, varied, 1 if is_modelled else MAX_TRIES)
        # Until the trial has this configuration, others must know what it is about to try.
        self._assigned[target.trial_id] = self._units(new) or units
        return new

    def _proposed(
        self, target: Member, donor: Member, config: Mapping[str, Any], rng: Generator
    ) -> list[float]:
        """Return the hyperparameters that the model chooses, scaled to their bounds."""
        # Here, not at the top: scikit-learn takes a second to load.
        from .time_varying_gp import propose  # noqa: PLC0415

        where = self._where
        allows = (
            None if where is None else lambda units: where.holds(self._with_units(config, units))
        )
        now = [donor.time / self._interval, donor.curve.score]
        busy = list(self._busy(target))
        return propose(self._rows, self._gains, now, busy, rng, allows=allows)

    def _with_units(self, config: Mapping[str, Any], units: Sequence[float]) -> dict[str, Any]:
        values = {
            path: bound.value(unit, _at(config, path))
            for (path, bound), unit in zip(self._bounds.items(), units, strict=True)
        }
        return replaced(config, values)

    def _busy(self, target: Member) -> Iterator[list[float]]:
        """Yield a row for what each of the others is trying at the moment."""
        for trial_id, member in self._members.items():
            trial = self.experiment.trials.get(trial_id)
            if (
                member is target
                or trial is None
                or trial.status not in LIVE
                or not member.curve.points
            ):
                continue
            # A clone may still show its former configuration, until its exploit is carried out.
            units = self._assigned.get(trial_id) or self._units(trial.config)
            score = member.curve.at(member.turn_time)
            if units is not None and math.isfinite(score):
                yield [member.turn_time / self._interval, score, *units]

    def _units(self, config: Mapping[str, Any]) -> list[float] | None:
        """Return the hyperparameters scaled to their bounds; None if one is no number."""
        try:
            return [bound.unit(_at(config, path)) for path, bound in self._bounds.items()]
        except (TypeError, ValueError):
            return None

    def _settings(self) -> dict[str, Any]:
        return {
            **super()._settings(),
            "hyperparameters": [flat_name(path) for path in self._bounds],
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, as JSON values."""
        rows = [list(row) for row in self._rows]
        assigned = {trial_id: list(units) for trial_id, units in self._assigned.items()}
        return {
            **super().state_dict(),
            "rows": rows,
            "gains": list(self._gains),
            "assigned": assigned,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler that measures otherwise or chooses other
                hyperparameters.
        """
        super().load_state_dict(state)
        self._rows = [list(row) for row in state["rows"]]
        self._gains = list(state["gains"])
        self._assigned = {trial_id: list(units) for trial_id, units in state["assigned"].items()}

    def debug_string(self) -> str:
        """Return the base class's line and the number of recorded intervals."""
        return f"{super().debug_string()}; {len(self._rows)} intervals recorded"


@final
class _Bound:
    """The range of one hyperparameter."""

    __slots__ = ("_integers", "floats")

    def __init__(self, low: Number, high: Number) -> None:
        self.floats = Float(low, high)
        self._integers = (
            Integer(low, high) if isinstance(low, int) and isinstance(high, int) else None
        )

    def unit(self, value: Any) -> float:
        return self.floats.to_unit(value)

    def value(self, unit: float, current: Any) -> Any:
        """Return the value at a position from 0 to 1, whole if bounds and current value are."""
        value = self.floats.from_unit(unit)
        is_whole = current is None or (isinstance(current, int) and not isinstance(current, bool))
        return self._integers.clip(value) if self._integers and is_whole else value


def _bounds(spec: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, _Bound]]:
    for key, bound in spec.items():
        here = (*path, key)
        if isinstance(bound, Mapping):
            yield from _bounds(bound, here)
            continue
        is_pair = isinstance(bound, list | tuple) and len(bound) == 2  # noqa: PLR2004
        if not is_pair or not all(
            isinstance(end, int | float) and not isinstance(end, bool) for end in bound
        ):
            raise TypeError(
                f"hyperparam_bounds must hold two numbers, got {bound!r} for {flat_name(here)!r}; "
                "give [low, high]"
            )
        low, high = bound
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(
                f"hyperparam_bounds must be finite, the lower one first, got {bound!r} for "
                f"{flat_name(here)!r}; give [low, high]"
            )
        yield here, _Bound(low, high)


def _at(config: Any, path: Path) -> Any:
    try:
        return reduce(getitem, path, config)
    except (IndexError, KeyError, TypeError):
        return None


def _check_installed() -> None:
    if find_spec("sklearn") is None:
        raise ImportError(
            "PB2 needs scikit-learn for its model; install it with: pip install "
            '"tuner-hpo[sklearn]"'
        )
