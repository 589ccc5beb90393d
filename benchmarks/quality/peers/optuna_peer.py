"""Optuna through ask and tell; a pruner may end a trial after any epoch."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from .dialogue import CONTINUE, STOP, Order, Setting, serve


class OptunaStudy:
    """Adapter of a study of Optuna."""

    def __init__(self, setting: Setting) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._setting = setting
        self._space = {axis["name"]: distribution(axis) for axis in setting.space}
        # A Gaussian process needs the same parameters in all trials; it gets inactive ones as well.
        self._is_by_run = setting.method != "gp" and any("when" in axis for axis in setting.space)
        # The pruner draws a trial's bracket from the study's name.
        self._study = optuna.create_study(
            study_name=f"study-{setting.seed}", sampler=_sampler(setting), pruner=_pruner(setting)
        )
        self._trials: dict[str, optuna.Trial] = {}

    def ask(self) -> Order:
        """Return a trial with a configuration of the sampler."""
        if self._is_by_run:
            trial = self._study.ask()
            self._suggest_active(trial)
        else:
            trial = self._study.ask(self._space)
        self._trials[str(trial.number)] = trial
        return Order(str(trial.number), trial.params, self._setting.max_epochs)

    def _suggest_active(self, trial: optuna.Trial) -> None:
        for axis in self._setting.space:
            parent, values = axis.get("when", (None, ()))
            if parent is None or (parent in trial.params and trial.params[parent] in values):
                _suggest(trial, axis)

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Report the value and ask the pruner whether to stop."""
        self._trials[trial].report(value, epoch)
        if epoch == self._setting.max_epochs or not self._trials[trial].should_prune():
            return CONTINUE
        self._study.tell(self._trials[trial], state=optuna.trial.TrialState.PRUNED)
        return STOP

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Report the final value."""
        self._study.tell(self._trials[trial], value)


def _sampler(setting: Setting) -> optuna.samplers.BaseSampler:
    if setting.method == "gp":
        return optuna.samplers.GPSampler(seed=setting.seed)
    return optuna.samplers.TPESampler(seed=setting.seed)


def _pruner(setting: Setting) -> optuna.pruners.BasePruner:
    if setting.method != "tpe-hyperband":
        return optuna.pruners.NopPruner()
    return optuna.pruners.HyperbandPruner(
        min_resource=1, max_resource=setting.max_epochs, reduction_factor=3
    )


def _suggest(trial: optuna.Trial, axis: dict[str, Any]) -> None:
    if axis["scale"] == "choice":
        trial.suggest_categorical(axis["name"], axis["values"])
        return
    suggest = trial.suggest_float if axis["scale"] == "float" else trial.suggest_int
    suggest(axis["name"], axis["low"], axis["high"], log=axis.get("log", False))


def distribution(axis: dict[str, Any]) -> BaseDistribution:
    """Return the distribution of an axis, see `Setting.space`."""
    if axis["scale"] == "choice":
        return CategoricalDistribution(axis["values"])
    kind = FloatDistribution if axis["scale"] == "float" else IntDistribution
    return kind(axis["low"], axis["high"], log=axis.get("log", False))


if __name__ == "__main__":
    serve(OptunaStudy, ("optuna",))
