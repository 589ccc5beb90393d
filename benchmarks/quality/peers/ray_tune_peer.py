"""Ray Tune's ASHA, which stops trials, with random search.

The scheduler is called as Ray Tune's controller calls it, without a cluster.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from .dialogue import CONTINUE, STOP, Order, Setting, serve


class RayScheduler:
    """Adapter of a scheduler of Ray Tune, with random configurations."""

    def __init__(self, setting: Setting) -> None:
        np.random.seed(setting.seed)  # noqa: NPY002  (the scheduler draws brackets from the global generator)
        self._rng = np.random.default_rng(setting.seed)
        self._max_epochs = setting.max_epochs
        self._space = {axis["name"]: _domain(axis) for axis in setting.space}
        self._scheduler = AsyncHyperBandScheduler(
            time_attr="epoch",
            metric="loss",
            mode="min",
            max_t=setting.max_epochs,
            grace_period=1,
            reduction_factor=3,
        )
        self._trials: dict[str, SimpleNamespace] = {}

    def ask(self) -> Order:
        """Return a trial with a random configuration, drawn from Ray Tune's domains."""
        config = {
            name: _plain(domain.sample(random_state=self._rng))
            for name, domain in self._space.items()
        }
        trial = SimpleNamespace(trial_id=str(len(self._trials)))
        self._trials[trial.trial_id] = trial
        self._scheduler.on_trial_add(None, trial)
        return Order(trial.trial_id, config, self._max_epochs)

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Report the value and return the decision of the scheduler."""
        if epoch == self._max_epochs:
            return CONTINUE
        decision = self._scheduler.on_trial_result(
            None, self._trials[trial], {"loss": value, "epoch": epoch}
        )
        if decision == TrialScheduler.STOP:
            self._scheduler.on_trial_complete(None, self._trials[trial], {})
            return STOP
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Notify the scheduler that a trial is complete."""
        self._scheduler.on_trial_complete(
            None, self._trials[trial], {"loss": value, "epoch": epoch}
        )


def _domain(axis: dict[str, Any]) -> Any:
    if axis["scale"] == "choice":
        return tune.choice(axis["values"])
    is_log = axis.get("log", False)
    if axis["scale"] == "float":
        return (tune.loguniform if is_log else tune.uniform)(axis["low"], axis["high"])
    return (tune.lograndint if is_log else tune.randint)(axis["low"], axis["high"] + 1)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    serve(RayScheduler, ("ray",))
