"""How much each hyperparameter mattered, by Optuna's evaluators; Optuna is imported in this file alone, when it is asked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from .ranking import Mode, is_finite

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution  # an extra: at run time imported where it is used
    from optuna.importance import BaseImportanceEvaluator
    from optuna.study import Study

Evaluator = Literal["ped_anova", "fanova", "mdi"]
"""How importance is measured."""

EVALUATORS: Final[tuple[Evaluator, ...]] = get_args(Evaluator)

MIN_TRIALS: Final = 10
"""Fewer trials than this say nothing about importance."""

_MIN_LOG_RATIO: Final = 10.0
"""Values that lie closer together look the same on both scales."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A trial as it is compared.

    Attributes:
        config: Its flattened configuration.
        value: The finite value of its metric.
    """

    config: Mapping[str, Any]
    value: float


def importances(trials: Sequence[Evaluated], mode: Mode, evaluator: str) -> dict[str, float]:
    """Return the importance of each parameter, in descending order; see `ResultGrid.get_param_importances`.

    Args:
        trials: The trials.
        mode: ``"min"`` or ``"max"``: the direction in which the value is optimised.
        evaluator: One of `EVALUATORS`.

    Raises:
        ImportError: If Optuna or, for the forests, scikit-learn is not installed.
        ValueError: If there is no such evaluator, there are too few trials, or no parameter differs between them.
    """
    if evaluator not in EVALUATORS:
        raise ValueError(f"evaluator must be one of {', '.join(EVALUATORS)}, got {evaluator!r}")
    if len(trials) < MIN_TRIALS:
        raise ValueError(f"importances need at least {MIN_TRIALS} trials with a finite value, got {len(trials)}; run more of them")
    columns = observed_columns(trials)
    varied = {name: column for name, column in columns.items() if column.is_varied}
    if not varied:
        raise ValueError(
            f"a parameter must differ between trials to have an importance, got the same of each: {', '.join(sorted(columns))}"
        )
    found = _evaluate(_study(trials, varied, mode), evaluator)
    constants = dict.fromkeys((name for name in columns if name not in varied), 0.0)
    ranked = sorted({**found, **constants}.items(), key=lambda item: (-item[1], item[0]))
    return {name: float(value) for name, value in ranked}


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one parameter in all trials that have it.

    Attributes:
        values: What they are, without those that are missing.
        is_categorical: Whether they are compared as categories, by their text: some are no finite numbers.
        num_trials: How many trials there are, with this parameter or without.
    """

    values: Sequence[Any]
    is_categorical: bool
    num_trials: int

    @property
    def is_varied(self) -> bool:
        """Whether trials differ in it."""
        return len(set(map(self.seen, self.values))) > 1 or len(self.values) < self.num_trials

    def seen(self, value: Any) -> Any:
        """Return a value as Optuna may know it."""
        return repr(value) if self.is_categorical else value

    def distribution(self) -> BaseDistribution:
        """Return the smallest domain that holds all values."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: PLC0415  (an extra)

        if self.is_categorical:
            return CategoricalDistribution(sorted({repr(value) for value in self.values}))
        low, high, is_log = min(self.values), max(self.values), is_logarithmic(self.values)
        if all(isinstance(value, int) for value in self.values):
            return IntDistribution(low, high, log=is_log)
        return FloatDistribution(float(low), float(high), log=is_log)


def observed_columns(trials: Iterable[Evaluated]) -> dict[str, Column]:
    """Return the values of each parameter, by its name."""
    configs = [trial.config for trial in trials]
    names = {name: None for config in configs for name in config}
    columns = {name: [config[name] for config in configs if name in config] for name in names}
    return {name: Column(values, not all(map(is_finite, values)), len(configs)) for name, values in columns.items()}


def is_logarithmic(values: Sequence[float]) -> bool:
    """Return whether numbers lie more evenly on a logarithmic scale than on a linear one: which one was searched is not written down."""
    if min(values) <= 0 or max(values) < _MIN_LOG_RATIO * min(values):
        return False
    return _unevenness([math.log(value) for value in values]) < _unevenness(values)


def _unevenness(values: Sequence[float]) -> float:
    """Return the greatest distance of the values' distribution from the uniform one over their range."""
    low, width = min(values), max(values) - min(values)
    return max(abs((value - low) / width - (rank + 0.5) / len(values)) for rank, value in enumerate(sorted(values)))


def _study(trials: Sequence[Evaluated], varied: Mapping[str, Column], mode: Mode) -> Study:
    import optuna  # noqa: PLC0415  (an extra)

    from searchers.optuna_study import quiet  # noqa: PLC0415  (needs it)

    with quiet():
        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
    distributions = {name: column.distribution() for name, column in varied.items()}
    for trial in trials:
        params = {name: varied[name].seen(value) for name, value in trial.config.items() if name in varied}
        known = {name: distributions[name] for name in params}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=known, value=trial.value))
    return study


def _evaluate(study: Study, evaluator: str) -> dict[str, float]:
    from optuna.importance import get_param_importances  # noqa: PLC0415  (an extra)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about experimental evaluators
        return get_param_importances(study, evaluator=_evaluator(evaluator))


def _evaluator(name: str) -> BaseImportanceEvaluator:
    from optuna import importance  # noqa: PLC0415  (an extra)

    if name == "ped_anova":
        return importance.PedAnovaImportanceEvaluator()
    kind = importance.FanovaImportanceEvaluator if name == "fanova" else importance.MeanDecreaseImpurityImportanceEvaluator
    try:
        return kind(seed=0)
    except ImportError as error:
        raise ImportError(f'{name} needs scikit-learn, which is not installed; pip install "tuner-hpo[optuna,sklearn]"') from error


def require_optuna() -> None:
    """Raise if Optuna is not installed.

    Raises:
        ImportError: If it is not.
    """
    try:
        import optuna  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        raise ImportError('get_param_importances needs Optuna, which is not installed; pip install "tuner-hpo[optuna]"') from error
