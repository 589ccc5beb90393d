"""Syne Tune's schedulers with their searchers, called as its `Tuner` calls them.

Since version 0.14 its ASHA stops trials and never resumes one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from syne_tune import config_space
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer.baselines import ASHA, ASHABORE, ASHACQR, BOHB, BORE
from syne_tune.optimizer.scheduler import SchedulerDecision
from syne_tune.optimizer.schedulers.pbt import PopulationBasedTraining

from .dialogue import CONTINUE, STOP, Order, Setting, serve

SCHEDULERS = {"asha": ASHA, "bohb": BOHB, "bore": ASHABORE, "cqr": ASHACQR}
FULL_TRAININGS = {"bore-full": BORE}
"""Schedulers that train every trial to its end."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class SyneTuneScheduler:
    """Adapter of a scheduler of Syne Tune."""

    def __init__(self, setting: Setting) -> None:
        # Parts of Syne Tune draw from the global generator.
        np.random.seed(setting.seed)  # noqa: NPY002  (see above)
        self._max_epochs = setting.max_epochs
        arguments: dict[str, Any] = {
            "config_space": {axis["name"]: _domain(axis) for axis in setting.space},
            "metric": "loss",
            "do_minimize": True,
            "random_seed": setting.seed,
        }
        self._scheduler = _scheduler(setting, arguments)
        self._trials: dict[str, Trial] = {}

    def ask(self) -> Order:
        """Return a trial with a suggestion of the scheduler."""
        suggestion = self._scheduler.suggest()
        number = len(self._trials)
        trial = Trial(number, suggestion.config, NOW)
        self._trials[str(number)] = trial
        self._scheduler.on_trial_add(trial)
        donor = suggestion.checkpoint_trial_id
        source = None if donor is None else str(donor)
        return Order(str(number), suggestion.config, self._max_epochs, source)

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Report the value and return the decision of the scheduler."""
        decision = self._scheduler.on_trial_result(
            self._trials[trial], {"loss": value, "epoch": epoch}
        )
        if decision == SchedulerDecision.STOP:
            self._scheduler.on_trial_remove(self._trials[trial])
            return STOP
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Notify the scheduler that a trial is complete."""
        self._scheduler.on_trial_complete(self._trials[trial], {"loss": value, "epoch": epoch})


def _scheduler(setting: Setting, arguments: dict[str, Any]) -> Any:
    if setting.method in FULL_TRAININGS:
        return FULL_TRAININGS[setting.method](**arguments)
    if setting.method == "pbt":
        return PopulationBasedTraining(
            **arguments,
            time_attr="epoch",
            max_t=setting.max_epochs,
            population_size=setting.num_workers,
            perturbation_interval=setting.interval,
        )
    return SCHEDULERS[setting.method](
        **arguments,
        time_attr="epoch",
        max_t=setting.max_epochs,
        grace_period=1,
        reduction_factor=3,
    )


def _domain(axis: dict[str, Any]) -> Any:
    if axis["scale"] == "choice":
        return config_space.choice(axis["values"])
    is_log = axis.get("log", False)
    if axis["scale"] == "float":
        kind = config_space.loguniform if is_log else config_space.uniform
    else:
        kind = config_space.lograndint if is_log else config_space.randint
    return kind(axis["low"], axis["high"])


if __name__ == "__main__":
    serve(SyneTuneScheduler, ("syne-tune",))
