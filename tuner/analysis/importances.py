"""Hyperparameter importances by Optuna's evaluators.

Optuna is imported in this module alone, when importances are requested.
"""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import Trial
from tuner.journal.rows import Rows

from .flat_results import value_at
from .ranking import Mode, config_at, config_of, is_finite, value_of

if TYPE_CHECKING:
    # An extra: at run time imported where it is used.
    from optuna.distributions import BaseDistribution
    from optuna.importance import BaseImportanceEvaluator
    from optuna.study import Study

Evaluator = Literal["ped_anova", "fanova", "mdi"]
"""How importance is measured."""

EVALUATORS: Final[tuple[Evaluator, ...]] = get_args(Evaluator)

MIN_TRIALS: Final = 20
"""With fewer trials, estimates of importance are mostly noise."""

MIN_BEST: Final = 5
"""Minimum number of best trials for PED-ANOVA, as recommended by Optuna."""

At = int | Literal["common", "last"]
"""Iteration at which trials are compared: a number, a common one, or each trial's last result."""

_COMMON_SHARE: Final = 0.75
"""Share of the trials that must have reached the common iteration."""

_NUM_RESAMPLES: Final = 20

_MIN_LOG_RATIO: Final = 10.0
"""Within a smaller ratio, values look alike on a linear and on a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Configuration and value with which a trial is compared.

    Attributes:
        config: Its flattened configuration.
        value: The finite value of its metric.
    """

    config: Mapping[str, Any]
    value: float


@dataclass(frozen=True, slots=True)
class Importances:
    """Importance of each parameter, and the basis of the comparison.

    Attributes:
        shares: The importance of each parameter, in descending order; they add up to 1.
        std_errors: The standard error of each, by a bootstrap over the trials; NaN if it was not
            estimated.
        num_trials: How many trials were compared.
        iteration: The ``training_iteration`` at which they were compared; None for each trial's
            last result.
    """

    shares: Mapping[str, float]
    std_errors: Mapping[str, float]
    num_trials: int
    iteration: int | None


def evaluated_trials(
    trials: Sequence[Trial], rows: Rows, metric: str, at: At = "common"
) -> tuple[list[Evaluated], int | None]:
    """Return the trials that can be compared, and the iteration at which they are compared.

    The iteration is None if each is compared at its last result. Otherwise a trial's value is the
    newest one up to the iteration; trials that ended before it, or have no finite value, are left
    out.

    Args:
        trials: The trials.
        rows: Their results; read only of trials that went beyond the iteration.
        metric: Name of the metric, flattened.
        at: An iteration; ``"common"`` for the largest one that three quarters of the trials
            reached; ``"last"`` for each trial's last result.

    Raises:
        ValueError: If `at` is none of them.
    """
    if at not in ("common", "last") and not (isinstance(at, int) and at >= 1):
        raise ValueError(
            f"iteration must be at least 1, 'common' or 'last', got {at!r}; 'common' is the "
            f"largest iteration that most trials reached"
        )
    known = [trial for trial in trials if metric in trial.summary]
    iteration: int | None
    match at:
        case "common":
            iteration = common_iteration([trial.iteration for trial in known])
        case "last":
            iteration = None
        case _:
            iteration = int(at)
    found = [
        _evaluated(trial, rows, metric, iteration)
        for trial in known
        if iteration is None or trial.iteration >= iteration
    ]
    return [
        Evaluated(flatten(config), value) for config, value in found if is_finite(value)
    ], iteration


def common_iteration(reached: Sequence[int]) -> int | None:
    """Return the largest iteration that at least three quarters of the trials reached.

    None without trials.

    Example:
        >>> common_iteration([1, 1, 3, 9, 27]), common_iteration([3, 9, 9, 9])
        (1, 9)
    """
    if not reached:
        return None
    return sorted(reached, reverse=True)[math.ceil(_COMMON_SHARE * len(reached)) - 1]


def _evaluated(
    trial: Trial, rows: Rows, metric: str, iteration: int | None
) -> tuple[Mapping[str, Any], Any]:
    """Return the configuration and newest value of a metric up to an iteration.

    The value is None if there is none.
    """
    if iteration is None or trial.iteration == iteration:
        # The summary that the engine keeps suffices; results are read only of longer trials.
        return config_of(trial, rows, metric), value_of(trial, rows, metric, None)
    results = rows.of(trial.trial_id)
    for place in range(len(results), 0, -1):
        result = results[place - 1]
        if (
            result.get(TRAINING_ITERATION, 0) <= iteration
            and (value := value_at(result, metric)) is not None
        ):
            return config_at(trial, rows, place), value
    return trial.config, None


def num_best_of(num_trials: int) -> int:
    """Return how many trials PED-ANOVA counts as best: a tenth, but at least `MIN_BEST`."""
    return max(MIN_BEST, math.ceil(num_trials / 10))


def importances(
    trials: Sequence[Evaluated],
    mode: Mode,
    evaluator: str,
    iteration: int | None = None,
    *,
    with_errors: bool = False,
) -> Importances:
    """Return the importance of each parameter; see `ResultGrid.get_param_importances`.

    Args:
        trials: The trials.
        mode: ``"min"`` or ``"max"``: the direction in which the value is optimised.
        evaluator: One of `EVALUATORS`.
        iteration: The iteration at which they are compared, for the messages.
        with_errors: Whether to estimate standard errors; only with PED-ANOVA, since growing
            forests for each bootstrap sample takes too long.

    Raises:
        ImportError: If Optuna or, for the forests, scikit-learn is not installed.
        ValueError: If there is no such evaluator, there are too few trials, or no parameter differs
            between them.
    """
    if evaluator not in EVALUATORS:
        raise ValueError(f"evaluator must be one of {', '.join(EVALUATORS)}, got {evaluator!r}")
    if len(trials) < MIN_TRIALS:
        where = "" if iteration is None else f" at iteration {iteration}"
        raise ValueError(
            f"importances need at least {MIN_TRIALS} trials with a finite value{where}, got "
            f"{len(trials)}; run more of them"
        )
    columns = observed_columns(trials)
    varied = {name: column for name, column in columns.items() if column.is_varied}
    if not varied:
        raise ValueError(
            f"a parameter must differ between trials to have an importance, got the same value "
            f"in all trials of each: {', '.join(sorted(columns))}"
        )
    found = {
        name: float(share)
        for name, share in _evaluate(_study(trials, varied, mode), evaluator).items()
    }
    # A parameter with a single value cannot have mattered.
    constants = dict.fromkeys((name for name in columns if name not in varied), 0.0)
    shares = dict(sorted({**found, **constants}.items(), key=lambda item: (-item[1], item[0])))
    has_errors = with_errors and evaluator == "ped_anova"
    errors = _std_errors(trials, varied, mode) if has_errors else dict.fromkeys(found, math.nan)
    return Importances(
        shares, {name: errors.get(name, 0.0) for name in shares}, len(trials), iteration
    )


def _std_errors(
    trials: Sequence[Evaluated], varied: Mapping[str, Column], mode: Mode
) -> dict[str, float]:
    """Return the standard deviation of each parameter's share over bootstrap samples."""
    # A fixed seed: the same results always give the same errors.
    rng = random.Random(0)  # noqa: S311  (statistics)
    resampled = [
        _evaluate(_study(rng.choices(trials, k=len(trials)), varied, mode), "ped_anova")
        for _ in range(_NUM_RESAMPLES)
    ]
    return {
        name: statistics.stdev(float(shares.get(name, 0.0)) for shares in resampled)
        for name in varied
    }


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one parameter in all trials that have it.

    Attributes:
        values: The values of the trials that have the parameter.
        is_categorical: Whether they are compared as categories, by their text, since some are not
            finite numbers.
        num_trials: How many trials there are, with or without the parameter.
    """

    values: Sequence[Any]
    is_categorical: bool
    num_trials: int

    @property
    def is_varied(self) -> bool:
        """Whether trials differ in the parameter, also by lacking it."""
        return len(set(map(self.as_param, self.values))) > 1 or len(self.values) < self.num_trials

    def as_param(self, value: Any) -> Any:
        """Return a value as a parameter's value for Optuna: a number or a text."""
        return repr(value) if self.is_categorical else value

    def distribution(self) -> BaseDistribution:
        """Return the smallest domain that holds all values."""
        from optuna.distributions import (  # noqa: PLC0415  (an extra)
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

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
    return {
        name: Column(values, not all(map(is_finite, values)), len(configs))
        for name, values in columns.items()
    }


def is_logarithmic(values: Sequence[float]) -> bool:
    """Return whether numbers are spread more evenly on a logarithmic scale than on a linear one.

    This is a guess: an experiment of which only results are left does not record the scale.
    """
    if min(values) <= 0 or max(values) < _MIN_LOG_RATIO * min(values):
        return False
    return _unevenness([math.log(value) for value in values]) < _unevenness(values)


def _unevenness(values: Sequence[float]) -> float:
    """Return the largest distance between the values' distribution and the uniform one."""
    # The Kolmogorov-Smirnov statistic, with the empirical distribution taken in mid-step.
    low, width = min(values), max(values) - min(values)
    return max(
        abs((value - low) / width - (rank + 0.5) / len(values))
        for rank, value in enumerate(sorted(values))
    )


def _study(trials: Sequence[Evaluated], varied: Mapping[str, Column], mode: Mode) -> Study:
    import optuna  # noqa: PLC0415  (an extra)

    from searchers.libraries.optuna.study import quiet  # noqa: PLC0415  (needs it)

    with quiet():
        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
    distributions = {name: column.distribution() for name, column in varied.items()}
    for trial in trials:
        params = {
            name: varied[name].as_param(value)
            for name, value in trial.config.items()
            if name in varied
        }
        known = {name: distributions[name] for name in params}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=known, value=trial.value)
        )
    return study


def _evaluate(study: Study, evaluator: str) -> dict[str, float]:
    from optuna.importance import get_param_importances  # noqa: PLC0415  (an extra)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna warns that its evaluators are experimental
        return get_param_importances(
            study, evaluator=_evaluator(evaluator, len(study.get_trials(deepcopy=False)))
        )


def _evaluator(name: str, num_trials: int) -> BaseImportanceEvaluator:
    from optuna import importance  # noqa: PLC0415  (an extra)

    if name == "ped_anova":
        return importance.PedAnovaImportanceEvaluator(
            target_quantile=num_best_of(num_trials) / num_trials
        )
    kind = (
        importance.FanovaImportanceEvaluator
        if name == "fanova"
        else importance.MeanDecreaseImpurityImportanceEvaluator
    )
    try:
        return kind(seed=0)
    except ImportError as error:
        raise ImportError(
            f"{name} needs scikit-learn, which is not installed; pip install "
            f'"tuner-hpo[optuna,sklearn]"'
        ) from error


def require_optuna() -> None:
    """Raise if Optuna is not installed.

    Raises:
        ImportError: If it is not.
    """
    try:
        import optuna  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        raise ImportError(
            "get_param_importances needs Optuna, which is not installed; pip install "
            '"tuner-hpo[optuna]"'
        ) from error
