"""Parameters as axes: what each trial was tried with, as numbers or as categories, beside what it came to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tuner.analysis.importances import (
    At,
    Evaluator,
    Importances,
    evaluated_trials,
    importances,
    is_logarithmic,
    require_optuna,
)
from tuner.analysis.ranking import is_finite, rank
from tuner.core.trial import Trial
from tuner.storage.strict_json import Opaque, describe

from .downsample import spread
from .source import Source, state_of

Scale = Literal["linear", "log", "category"]
"""How the values of a parameter are laid out: as numbers on one of two scales, or as categories."""

MAX_CATEGORIES: Final = 12
"""More categories than this, the rarest ones, are drawn as one."""
OTHERS: Final = "others"
_MAX_MARKS: Final = 8
_MAX_IMPORTANCE_TRIALS: Final = 1000


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter that differs between trials.

    Attributes:
        name: The parameter, flattened, e.g. ``"model/depth"``.
        scale: How its values are laid out.
        low: The smallest number; 0 for categories.
        high: The largest number; the place of the last one for categories.
        categories: The categories in their order, as text; empty for numbers.
        marks: The numbers themselves where there are no more than eight, which come again and again; else empty.
    """

    name: str
    scale: Scale
    low: float
    high: float
    categories: Sequence[str] = ()
    marks: Sequence[float] = ()

    def place(self, value: Any) -> float | None:
        """Return where a value lies between the ends of the axis, 0 to 1; None where it is none of the axis."""
        if self.scale == "category":
            text = as_text(value)
            known = text if text in self.categories else OTHERS
            return (
                self.categories.index(known) / max(1, len(self.categories) - 1)
                if known in self.categories
                else None
            )
        if not is_finite(value):
            return None
        low, high, at = (
            (math.log(number) for number in (self.low, self.high, value))
            if self.scale == "log"
            else (self.low, self.high, value)
        )
        return (at - low) / (high - low) if high > low else 0.5

    def shown(self, value: Any) -> Any:
        """Return a value as it is drawn: a number, or the text of its category."""
        if self.scale != "category":
            return value
        text = as_text(value)
        return text if text in self.categories else OTHERS


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial as its parameters and its outcome.

    Attributes:
        trial_id: Which.
        state: Where it stands, see `state_of`.
        value: Its last value of the metric, NaN for none.
        is_best: Whether it is the best one.
        config: The flattened configuration in force at that value, without parameters that are the same in all trials.
    """

    trial_id: str
    state: str
    value: float
    is_best: bool
    config: Mapping[str, Any]


def as_text(value: Any) -> str:
    """Return the name of a category: a text as it is, lists as they are written, objects by their description."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, Opaque) else describe(value)


def axes(source: Source) -> list[Axis]:
    """Return the parameters that differ between the trials, in the order in which they first appear.

    A parameter that some trials lack is one of them. Numbers are laid out on that scale, linear or logarithmic, on which they lie more
    evenly; what is not a finite number makes the parameter one of categories.
    """
    configs = [source.config_of(trial) for trial in source.trials]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {name: [config[name] for config in configs if name in config] for name in names}
    return [
        _axis(name, values) for name, values in columns.items() if _is_varied(values, len(configs))
    ]


def _is_varied(values: Sequence[Any], num_trials: int) -> bool:
    return len(values) < num_trials or len({as_text(value) for value in values}) > 1


def _axis(name: str, values: Sequence[Any]) -> Axis:
    numbers = [float(value) for value in values if is_finite(value)]
    if len(numbers) == len(values):
        marks = sorted(set(numbers))
        scale: Scale = "log" if is_logarithmic(marks) else "linear"
        is_few = (
            len(marks) <= _MAX_MARKS and 2 * len(marks) <= len(numbers) + 1
        )  # and not merely since there are few trials
        return Axis(name, scale, marks[0], marks[-1], marks=marks if is_few else ())
    counts = Counter(as_text(value) for value in values)
    common = [text for text, _ in counts.most_common(MAX_CATEGORIES)]
    shown = sorted(common if len(counts) <= MAX_CATEGORIES else common[:-1])
    categories = (
        (*shown, OTHERS) if len(counts) > MAX_CATEGORIES and OTHERS not in shown else tuple(shown)
    )
    return Axis(name, "category", 0, len(categories) - 1, categories)


def tried(source: Source, max_trials: int | None = None) -> list[Tried]:
    """Return the trials with what they were tried with, in the order of their creation.

    Args:
        source: The experiment.
        max_trials: How many at most, spread evenly over the ranks of those that have a value, the best one among them; None for all.
    """
    names = [axis.name for axis in axes(source)]
    trials: Sequence[Trial] = source.trials
    if max_trials is not None and len(trials) > max_trials:
        chosen = {trial.trial_id for trial in spread(source.ranked(), max_trials)}
        trials = [trial for trial in trials if trial.trial_id in chosen]
    return [_tried(source, trial, names) for trial in trials]


def _tried(source: Source, trial: Trial, names: Sequence[str]) -> Tried:
    config = source.config_of(trial)
    shown = {name: config[name] for name in names if name in config}
    return Tried(
        trial.trial_id, state_of(trial), source.value_of(trial), trial is source.best, shown
    )


def param_importances(
    source: Source,
    evaluator: Evaluator = "ped_anova",
    at: At = "common",
    *,
    with_errors: bool = False,
) -> Importances:
    """Return how much each parameter mattered; see `ResultGrid.get_param_importances`.

    Of more than 1,000 trials as many are taken, spread evenly over their ranks.

    Raises:
        ImportError: If Optuna or, for the forests, scikit-learn is not installed.
        ValueError: If there are too few trials, no parameter differs, or the experiment has no metric and no other one is named.
    """
    require_optuna()
    metric, mode = source.objective
    trials, iteration = evaluated_trials(source.trials, source.rows, metric, at)
    ranked = sorted(trials, key=lambda trial: rank(trial.value, mode), reverse=True)
    return importances(
        spread(ranked, _MAX_IMPORTANCE_TRIALS), mode, evaluator, iteration, with_errors=with_errors
    )
