"""Ax with several objectives and outcome constraints, through its client."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from .dialogue import Order, Setting, serve


class AxClient:
    """Adapter of a client of Ax with its default strategy."""

    def __init__(self, setting: Setting) -> None:
        logging.disable(logging.WARNING)
        self._setting = setting
        self._client = Client(random_seed=setting.seed)
        self._client.configure_experiment(parameters=list(map(_parameter, setting.space)))
        objectives = ", ".join(f"-cost{number}" for number in range(setting.num_objectives))
        constraints = [f"excess{number} <= 0" for number in range(setting.num_constraints)]
        self._client.configure_optimization(
            objective=objectives, outcome_constraints=constraints or None
        )
        self._client.configure_generation_strategy(
            initialization_random_seed=setting.seed,
            # Otherwise it cannot be asked while the initial trials still run.
            allow_exceeding_initialization_budget=True,
        )

    def ask(self) -> Order:
        """Return a trial with a configuration."""
        ((index, config),) = self._client.get_next_trials(max_trials=1).items()
        return Order(str(index), config, self._setting.max_epochs)

    def tell(
        self,
        trial: str,
        metrics: Mapping[str, float],
        costs: Sequence[float],
        excesses: Sequence[float],
    ) -> None:
        """Report the objectives and by how much each bound is missed."""
        values = {f"cost{number}": float(cost) for number, cost in enumerate(costs)}
        missed = {f"excess{number}": float(excess) for number, excess in enumerate(excesses)}
        self._client.complete_trial(int(trial), raw_data={**values, **missed})


def _parameter(axis: dict[str, Any]) -> RangeParameterConfig | ChoiceParameterConfig:
    if axis["scale"] == "choice":
        return ChoiceParameterConfig(
            name=axis["name"], values=axis["values"], parameter_type="str", is_ordered=False
        )
    return RangeParameterConfig(
        name=axis["name"],
        bounds=(axis["low"], axis["high"]),
        parameter_type="float" if axis["scale"] == "float" else "int",
        scaling="log" if axis["log"] else "linear",
    )


if __name__ == "__main__":
    serve(AxClient, ("ax-platform", "botorch"))
