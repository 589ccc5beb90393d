"""SMAC3's multi-fidelity facade through ask and tell: a random forest inside Hyperband. A configuration that comes again goes on."""

from __future__ import annotations

import tempfile
from pathlib import Path

from smac import MultiFidelityFacade, Scenario
from smac.main.exceptions import ConfigurationSpaceExhaustedException
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from .dialogue import CONTINUE, Finished, Order, Setting, serve
from .spaces import configuration_space, plain

NUM_TRIALS = 500
"""About how many evaluations the budget allows; SMAC3 makes its initial design from it."""


class SmacFacade:
    """A facade that is asked for trials."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        scenario = Scenario(
            configuration_space(setting.space, setting.seed),
            output_directory=Path(tempfile.mkdtemp(dir=".")),
            deterministic=True,
            n_trials=NUM_TRIALS,
            min_budget=1,
            max_budget=setting.max_epochs,
            seed=setting.seed,
        )
        intensifier = MultiFidelityFacade.get_intensifier(scenario, eta=3)
        self._facade = MultiFidelityFacade(
            scenario, _never_called, intensifier=intensifier, overwrite=True, logging_level=50
        )
        self._names: dict[str, str] = {}
        self._running: dict[str, TrialInfo] = {}

    def ask(self) -> Order:
        """Return what the facade wants to be evaluated; it ends where it has tried all there is."""
        try:
            info = self._facade.ask()
        except ConfigurationSpaceExhaustedException as error:
            raise Finished from error
        config = plain(info.config, self._setting.space)
        name = self._names.setdefault(repr(config), str(len(self._names)))
        # Asked for twice at once; one of them has to start from nothing.
        while name in self._running:
            name += "+"
        self._running[name] = info
        return Order(name, config, round(info.budget))

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Let it train: only what a budget comes to is of interest."""
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Tell the facade what a budget has come to."""
        self._facade.tell(self._running.pop(trial), TrialValue(cost=value, time=cost_s), save=False)


def _never_called(config: object, seed: int, budget: float) -> float:  # noqa: ARG001  (the signature that is asked for)
    raise AssertionError("it is only asked and told")


if __name__ == "__main__":
    serve(SmacFacade, ("smac", "ConfigSpace"))
