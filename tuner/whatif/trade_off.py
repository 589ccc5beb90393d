"""What a replay leaves of a trade-off: the Pareto front, and the hypervolume that it covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from searchers.objectives import Point, hypervolume, minimised, pareto_front
from tuner.analysis.charts.hypervolume import beyond_worst
from tuner.core.pareto import Objectives

from .recording import RecordedTrial, Recording
from .replay import Replay, ReplayedTrial, last_of, results_until

_Values = dict[str, Point]
"""The last values of feasible trials that have one of each metric."""


@final
@dataclass(frozen=True, slots=True)
class TradeOff:
    """The Pareto front of an experiment with several metrics, in full and in a replay.

    Feasible trials are compared by the last values that they have reported.

    Attributes:
        objectives: Metric and mode (``"min"`` or ``"max"``: the direction of optimisation) of each.
        front_in_full: The trials on the recorded front, the best in the first metric first.
        front: The trials on the front in the replay.
        hypervolume_share: The hypervolume of the latter as a share of that of the former, both from
            the worst values and a tenth of their range beyond; None without a feasible trial.
    """

    objectives: Objectives
    front_in_full: Sequence[str]
    front: Sequence[str]
    hypervolume_share: float | None

    @property
    def sentence(self) -> str:
        """What is left of the front, in words."""
        names = ", ".join(f"{metric} ({mode})" for metric, mode in self.objectives)
        if self.hypervolume_share is None:
            return f"No feasible trial has a finite value of each of {names}"
        num_kept = len({*self.front} & {*self.front_in_full})
        return (
            f"Front of {names}: {self.hypervolume_share:.1%} of the recorded hypervolume, and "
            f"{num_kept} of the {len(self.front_in_full)} trials on the recorded front"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fronts as JSON values."""
        return {
            "objectives": [list(each) for each in self.objectives],
            "front_in_full": list(self.front_in_full),
            "front": list(self.front),
            "hypervolume_share": self.hypervolume_share,
        }


def trade_off_of(recording: Recording, replayed: Replay) -> TradeOff | None:
    """Return what a replay leaves of a trade-off; None where one metric was optimised."""
    objectives = recording.several
    if not objectives:
        return None
    counts = replayed.replayed_trials

    def in_replay(recorded: RecordedTrial, metric: str) -> float | None:
        done = counts.get(recorded.trial_id, ReplayedTrial())
        return last_of(results_until(recorded, done.last_iteration), metric)

    in_full, found = _values(recording, _in_full), _values(recording, in_replay)
    return TradeOff(
        objectives,
        _front(in_full, objectives),
        _front(found, objectives),
        _share(found, in_full, objectives),
    )


def _in_full(recorded: RecordedTrial, metric: str) -> float | None:
    return last_of((point.result for point in recorded.curve.points), metric)


def _values(
    recording: Recording, value_of: Callable[[RecordedTrial, str], float | None]
) -> _Values:
    values = {
        recorded.trial_id: [value_of(recorded, metric) for metric, _ in recording.several]
        for recorded in recording.trials
        if recorded.is_feasible
    }
    known = {name: tuple(one for one in each if one is not None) for name, each in values.items()}
    return {name: each for name, each in known.items() if len(each) == len(recording.several)}


def _front(values: _Values, objectives: Objectives) -> list[str]:
    names = list(values)
    modes = [mode for _, mode in objectives]
    return [names[place] for place in pareto_front(list(values.values()), modes)]


def _share(found: _Values, in_full: _Values, objectives: Objectives) -> float | None:
    if not in_full:
        return None
    modes = [mode for _, mode in objectives]
    columns = zip(*in_full.values(), *found.values(), strict=True)
    worst = [beyond_worst(column, mode) for column, mode in zip(columns, modes, strict=True)]
    (reference,) = minimised([worst], modes)
    total = hypervolume(minimised(list(in_full.values()), modes), reference)
    # Of values that hardly differ, the product of the differences may be too small for a number.
    return hypervolume(minimised(list(found.values()), modes), reference) / total if total else 1.0
