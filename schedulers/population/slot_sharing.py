"""Slots that trials take turns in: whether one has to make room for another."""

from __future__ import annotations

from schedulers.scheduler import ExperimentView, TrialView

LIVE = ("PENDING", "RUNNING", "PAUSED")
"""Statuses of trials that are not over."""


def has_to_share(trial: TrialView, experiment: ExperimentView) -> bool:
    """Return whether somebody waits for a slot, and not all trials that are there or still to come fit in at once.

    Trials to come are taken to need what this one needs. An experiment that does not tell what trials can occupy is taken to be full.

    Args:
        trial: The trial that might make room.
        experiment: The experiment.
    """
    live = [other for other in experiment.trials.values() if other.status in LIVE]
    num_to_come = (
        0
        if experiment.no_more_trials
        else max(0, (experiment.max_trials or 0) - len(experiment.trials))
    )
    if not num_to_come and all(
        other.status == "RUNNING" or other.trial_id == trial.trial_id for other in live
    ):
        return False
    demand: dict[str, float] = {}
    for resources in (*(other.resources for other in live), *[trial.resources] * num_to_come):
        for name, amount in resources.items():
            demand[name] = demand.get(name, 0.0) + amount
    supply = experiment.resources
    # Tenths do not add up to 1 in binary.
    return not supply or any(
        amount > supply.get(name, 0.0) + 1e-9 for name, amount in demand.items()
    )
