"""Optuna with several objectives and constraints, through ask and tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import optuna

from .dialogue import Order, Setting, serve
from .optuna_peer import distribution

SAMPLERS = {
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
}


class OptunaStudy:
    """Adapter of a study of Optuna."""

    def __init__(self, setting: Setting) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._setting = setting
        self._space = {axis["name"]: distribution(axis) for axis in setting.space}
        self._study = optuna.create_study(
            directions=["minimize"] * setting.num_objectives,
            sampler=SAMPLERS[setting.method](seed=setting.seed),
        )
        self._trials: dict[str, optuna.Trial] = {}

    def ask(self) -> Order:
        """Return a trial with a configuration of the sampler."""
        trial = self._study.ask(self._space)
        self._trials[str(trial.number)] = trial
        return Order(str(trial.number), trial.params, self._setting.max_epochs)

    def tell(
        self,
        trial: str,
        metrics: Mapping[str, float],
        costs: Sequence[float],
        excesses: Sequence[float],
    ) -> None:
        """Report the objectives and by how much each bound is missed."""
        for number, excess in enumerate(excesses):
            self._trials[trial].set_constraint(f"constraint{number}", excess)
        self._study.tell(self._trials[trial], costs)


if __name__ == "__main__":
    serve(OptunaStudy, ("optuna",))
