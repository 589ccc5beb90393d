"""Every scheduler with randomly drawn arguments of every kind.

`schedulers_at_large` describes what the trials report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import schedulers
import tuner as tune

TIMES = ("training_iteration", "training_iteration", "epoch", "time_total_s")


def _levels(chance):
    """Draw how long trials train and where they are compared."""
    factor, max_t = chance.choice([2, 3, 4, 2.5]), chance.choice([4, 9, 16, 27])
    return {"time_attr": chance.choice(TIMES), "max_t": max_t, "reduction_factor": factor}


def _asha(chance, type_):
    levels = _levels(chance)
    grace_period = chance.choice([1, 1, 2, 3])
    has_two = grace_period * levels["reduction_factor"] < levels["max_t"]
    return functools.partial(
        schedulers.ASHAScheduler,
        **levels,
        type=type_,
        grace_period=grace_period,
        brackets=chance.choice([1, 1, 2]) if has_two else 1,
        stop_last_trials=chance.random() < 0.7,
    )


def _pasha(chance):
    return functools.partial(
        schedulers.PASHAScheduler,
        **_levels(chance),
        grace_period=chance.choice([1, 2]),
        epsilon=chance.choice([None, 0.1]),
    )


def _moasha(chance, type_):
    options = {"grace_period": chance.choice([1, 2]), "stop_last_trials": chance.random() < 0.7}
    return functools.partial(
        schedulers.MOASHAScheduler,
        chance.choice([None, {"loss": "min", "nested/size": "max"}]),
        **_levels(chance),
        **options,
        type=type_,
    )


def _hyperband(chance):
    kind = chance.choice(
        [schedulers.HyperBandScheduler, schedulers.HyperBandScheduler, schedulers.HyperBandForBOHB]
    )
    return functools.partial(kind, **_levels(chance), stop_last_trials=chance.random() < 0.7)


def _median(chance, *, is_hard):
    return functools.partial(
        schedulers.MedianStoppingRule,
        time_attr=chance.choice(TIMES),
        grace_period=chance.choice([0, 1, 3]),
        min_samples_required=chance.choice([1, 2, 3]),
        min_time_slice=chance.choice([0, 3]),
        hard_stop=is_hard,
    )


def _mutations(chance):
    return chance.choice(
        [
            {"start": tune.uniform(0.0, 1.0)},
            {
                "start": tune.loguniform(1e-3, 1.0),
                "width": [1, 2, 4],
                "model": {"depth": tune.randint(1, 6)},
            },
            {"start": lambda: 0.5, "width": tune.choice([1, 2, 4])},
            {
                "width": (1, 2, 4),
                "model": {"depth": tune.sample_from(lambda spec: 1 + spec.config.width)},
            },
        ]
    )


def _explore(config):
    return {**config, "start": min(config["start"], 0.9)}


def _turns(chance, *, is_sync):
    return {
        "time_attr": chance.choice(TIMES),
        "perturbation_interval": chance.choice([1, 2, 3, 5]),
        "synch": is_sync,
        "require_attrs": chance.random() < 0.5,
        "custom_explore_fn": chance.choice([None, None, _explore]),
    }


def _pbt(chance, *, is_sync):
    return functools.partial(
        schedulers.PopulationBasedTraining,
        **_turns(chance, is_sync=is_sync),
        burn_in_period=chance.choice([0, 0, 4]),
        hyperparam_mutations=_mutations(chance),
        quantile_fraction=chance.choice([0.25, 0.25, 0.5, 0.0]),
        resample_probability=chance.choice([0.0, 0.25, 1.0]),
    )


def _patient_pbt(chance):
    return functools.partial(
        schedulers.PatientPopulationBasedTraining,
        **_turns(chance, is_sync=chance.random() < 0.4),
        max_t=chance.choice([4, 9, 27]),
        hyperparam_mutations=chance.choice([None, _mutations(chance)]),
    )


def _mf_pbt(chance):
    return functools.partial(
        schedulers.MFPopulationBasedTraining,
        **_turns(chance, is_sync=chance.random() < 0.4),
        burn_in_period=chance.choice([0, 0, 4]),
        hyperparam_mutations=chance.choice([None, _mutations(chance)]),
        frequencies=chance.choice([(1, 10), (1, 2), (1, 2, 4), (2,)]),
    )


def _pb2(chance):
    options = {**_turns(chance, is_sync=chance.random() < 0.4), "perturbation_interval": 6}
    bounds = {"start": [0.0, 1.0], "model": {"depth": [1, 6]}}
    return functools.partial(schedulers.PB2, **options, hyperparam_bounds=bounds)


def _replay(chance):
    configs = [
        {
            "start": 0.1 * number,
            "width": 2,
            "model": {"depth": number},
            "fate": chance.randrange(2**31),
        }
        for number in range(1, 5)
    ]
    times = sorted(chance.sample(range(1, 20), 3))
    lines = [
        [
            str(number),
            str(number - 1),
            times[number - 1],
            times[number - 1],
            *configs[number - 1 : number + 1],
        ]
        for number in (1, 2, 3)
    ]
    # Read from its end: each line is about the donor of the one behind it.
    return functools.partial(schedulers.PopulationBasedTrainingReplay, lines)


def _allocation(chance):
    reserve, times = chance.choice([None, {"cpu": 1}]), chance.choice([-1, 1, 2])
    options = {
        "add_bundles": chance.random() < 0.5,
        "increase_by_times": times,
        "reserve_resources": reserve,
    }
    kind = chance.choice(["even", "even", "best", "wild", None])
    if kind == "wild":
        return lambda: _wild
    makers = {
        "even": schedulers.DistributeResources,
        "best": functools.partial(
            schedulers.DistributeResourcesToTopJob, metric="loss", mode="min"
        ),
    }
    return functools.partial(makers[kind], **options) if kind else lambda: None


def _wild(view, trial, result, books):
    """Request other resources at each result, unless that would discard unsaved training.

    Else the experiment might never end: a resize restarts the trial from its last checkpoint.
    """
    costs_nothing = (
        view.can_save_on_demand or trial.checkpoint_iteration == result["training_iteration"]
    )
    return (
        {"cpu": 0.5 * (1 + (7 * result["training_iteration"] + len(view.trials)) % 4)}
        if costs_nothing
        else None
    )


def _around(make, make_allocation):
    return schedulers.ResourceChangingScheduler(make(), make_allocation())


KINDS: Mapping[str, Callable[[Any], Callable[[], Any]]] = {
    "fifo": lambda _: schedulers.FIFOScheduler,
    "asha stopping": functools.partial(_asha, type_="stopping"),
    "asha promotion": functools.partial(_asha, type_="promotion"),
    "asha auto": functools.partial(_asha, type_="auto"),
    "pasha": _pasha,
    "moasha stopping": functools.partial(_moasha, type_="stopping"),
    "moasha promotion": functools.partial(_moasha, type_="promotion"),
    "moasha auto": functools.partial(_moasha, type_="auto"),
    "hyperband": _hyperband,
    "median hard": functools.partial(_median, is_hard=True),
    "median soft": functools.partial(_median, is_hard=False),
    "pbt": functools.partial(_pbt, is_sync=False),
    "pbt sync": functools.partial(_pbt, is_sync=True),
    "patient-pbt": _patient_pbt,
    "mf-pbt": _mf_pbt,
    "pb2": _pb2,
    "replay": _replay,
}
"""By name, what draws a factory of a scheduler."""
POPULATIONS = {"pbt", "pbt sync", "patient-pbt", "mf-pbt", "pb2"}
DRAWN = [*3 * [kind for kind in KINDS if kind not in {"fifo", "pb2"}], "fifo", "pb2"]


def scheduler(kind, chance):
    """Draw a factory of the scheduler with this name, now and then with resources that change."""
    make = KINDS[kind](chance)
    if chance.random() > 0.2:
        return make
    return functools.partial(_around, make, _allocation(chance))
