"""SMAC3 through ask and tell.

``multi-fidelity`` is its facade with a random forest inside Hyperband, where a configuration that
is suggested again continues where it stopped. ``hpo`` and ``black-box`` are those for full
trainings, with a random forest and with a Gaussian process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from smac import (
    BlackBoxFacade,
    HyperparameterOptimizationFacade,
    MultiFidelityFacade,
    Scenario,
)
from smac.main.exceptions import ConfigurationSpaceExhaustedException
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from .dialogue import CONTINUE, Finished, Order, Setting, serve
from .spaces import configuration_space, plain

NUM_TRIALS = 500
"""Approximate number of evaluations in a budget of time, which sets the size of the initial
design."""
FACADES = {"hpo": HyperparameterOptimizationFacade, "black-box": BlackBoxFacade}


class SmacFacade:
    """Adapter of a facade of SMAC3."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        is_full = setting.method in FACADES
        scenario = Scenario(
            configuration_space(setting.space, setting.seed),
            output_directory=Path(tempfile.mkdtemp(dir=".")),
            deterministic=True,
            n_trials=setting.num_trials or NUM_TRIALS,
            min_budget=None if is_full else 1,
            max_budget=None if is_full else setting.max_epochs,
            seed=setting.seed,
        )
        facade = FACADES.get(setting.method, MultiFidelityFacade)
        intensifier = (
            facade.get_intensifier(scenario)
            if is_full
            else MultiFidelityFacade.get_intensifier(scenario, eta=3)
        )
        self._facade = facade(
            scenario, _never_called, intensifier=intensifier, overwrite=True, logging_level=50
        )
        self._names: dict[str, str] = {}
        self._running: dict[str, TrialInfo] = {}

    def ask(self) -> Order:
        """Return the next evaluation.

        Raises:
            Finished: If all configurations have been tried.
        """
        try:
            info = self._facade.ask()
        except ConfigurationSpaceExhaustedException as error:
            raise Finished from error
        config = plain(info.config, self._setting.space)
        name = self._names.setdefault(repr(config), str(len(self._names)))
        # The same configuration may be asked for while it runs; the second trial starts anew.
        while name in self._running:
            name += "+"
        self._running[name] = info
        return Order(name, config, round(info.budget or self._setting.max_epochs))

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Continue: SMAC3 receives only the value at the end of a budget."""
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Report the value at the end of a budget."""
        self._facade.tell(self._running.pop(trial), TrialValue(cost=value, time=cost_s), save=False)


def _never_called(config: object, seed: int, budget: float) -> float:  # noqa: ARG001  (the signature that SMAC3 expects)
    raise AssertionError("SMAC3 is used through ask and tell alone")


if __name__ == "__main__":
    serve(SmacFacade, ("smac", "ConfigSpace"))
