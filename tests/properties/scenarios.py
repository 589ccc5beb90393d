"""Random experiments, each determined by its number alone."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter
from tests.properties.world import TEMPERS, WhimsicalScheduler, chance_from
from tuner.spec.experiment_spec import ExperimentSpec, make_spec
from tuner.testing.simulation import Simulation, simulate

SPACE = {"start": tune.uniform(0.0, 1.0), "fate": tune.randint(0, 2**31)}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """An experiment that can be simulated repeatedly.

    Attributes:
        seed: What everything follows from.
        make_scheduler: Makes a fresh scheduler.
        make_searcher: Makes a fresh searcher.
        tune: Arguments of `TuneConfig`.
        run: Arguments of `RunConfig`.
        num_slots: How many CPUs there are.
        duration_s: How long an iteration takes.
    """

    seed: int
    make_scheduler: Callable[[], Any]
    make_searcher: Callable[[], Any]
    tune: Mapping[str, Any]
    run: Mapping[str, Any]
    num_slots: int
    duration_s: Any

    @property
    def may_end_early(self) -> bool:
        """True if the experiment may end before all trials have been suggested."""
        is_timed = self.tune["time_budget_s"] is not None or isinstance(
            self.run["stop"], tune.TimeoutStopper
        )
        return is_timed or bool(self.run["failure_config"].fail_fast)

    def arguments(self) -> dict[str, Any]:
        """Return what `simulate` and `make_spec` have in common."""
        tune_config = tune.TuneConfig(
            **self.tune,
            seed=self.seed,
            scheduler=self.make_scheduler(),
            search_alg=self.make_searcher(),
            metric="loss",
            mode="min",
        )
        return {
            "param_space": SPACE,
            "tune_config": tune_config,
            "run_config": tune.RunConfig(**self.run),
        }

    def simulate(self) -> Simulation:
        """Run the experiment."""
        return simulate(
            Curves(), **self.arguments(), num_slots=self.num_slots, duration_s=self.duration_s
        )

    def spec(self) -> ExperimentSpec:
        """Return a fresh specification of the same experiment, ready to be run or replayed."""
        spec = make_spec(Curves(), **self.arguments())
        spec.connect()
        return spec


class Curves:
    """Learning curves of every kind: short, long, sparse or broken, some with crashes."""

    def __init__(self):
        self._num_starts = Counter()

    def __call__(self, config):
        fate = config["fate"]
        self._num_starts[fate] += 1
        chance = chance_from(fate)
        length, crash_rate = (
            chance.choice([0, 1, 3, 8, 15]),
            chance.choice([0.0, 0.0, 0.0, 0.2, 1.0]),
        )
        luck = chance_from(f"{fate}/{self._num_starts[fate]}")
        oddities = chance_from(f"{fate}/values")
        for step in range(1, length + 1):
            if luck.random() < crash_rate and self._num_starts[fate] < 6:
                raise ValueError(f"crash at step {step}")
            yield self._result(config["start"] / step, oddities)

    @staticmethod
    def _result(loss, chance):
        result = {"loss": loss, "nested": {"loss": loss}}
        match chance.randrange(16):
            case 0:
                result["loss"] = chance.choice([math.nan, math.inf, -math.inf, None])
            case 1:
                del result["loss"]
            case 2:
                result["done"] = True
            case 3:
                result["should_checkpoint"] = True
        return result


def scenario(seed: int) -> Scenario:
    """Return the random experiment with this number."""
    chance = chance_from(seed)
    num_samples = chance.choice([1, 2, 4, 6, 9])
    max_failures = chance.choice([0, 0, 1, 3, -1])
    return Scenario(
        seed=seed,
        make_scheduler=_scheduler(chance),
        make_searcher=_searcher(chance),
        tune={
            "num_samples": num_samples,
            "max_concurrent_trials": chance.choice([None, None, 1, 2, 3]),
            "time_budget_s": chance.choice([None, None, None, 12.0]),
        },
        run={
            "stop": chance.choice(
                [
                    None,
                    None,
                    {"training_iteration": 6},
                    {"nested/loss": "<= 0.05"},
                    tune.TimeoutStopper(20.0),
                ]
            ),
            "failure_config": tune.FailureConfig(
                max_failures=max_failures,
                fail_fast=chance.random() < 0.3 and max_failures == 0,
                # Who is killed for being slow is so again the next time, and with endless retries
                # for ever.
                report_timeout_s=chance.choice([None, 5.0]) if max_failures >= 0 else None,
                stop_grace_s=chance.choice([0.0, 3.0]),
            ),
            "checkpoint_config": tune.CheckpointConfig(
                num_to_keep=chance.choice([None, 1, 2]),
                checkpoint_score_attribute=chance.choice([None, "loss"]),
            ),
        },
        num_slots=chance.choice([1, 2, 3, 5]),
        duration_s=chance.choice([1.0, 0.0, _uneven, _slowing]),
    )


def _uneven(config, iteration):
    return 0.5 + config["fate"] % 7


def _slowing(config, iteration):
    return float(iteration)


def _scheduler(chance):
    seed, temper = chance.randrange(10**6), chance.choice(sorted(TEMPERS))
    max_t, grace_period, factor = (
        chance.choice([4, 9, 16]),
        chance.choice([1, 2, 4]),
        chance.choice([2, 3, 4]),
    )
    brackets, is_last = chance.choice([1, 1, 2]), chance.random() < 0.7
    return chance.choice(
        [
            FIFOScheduler,
            lambda: ASHAScheduler(
                max_t=max_t,
                grace_period=min(grace_period, max_t // 2),
                reduction_factor=factor,
                brackets=brackets,
                stop_last_trials=is_last,
            ),
            lambda: WhimsicalScheduler(seed, temper),
        ]
    )


def _searcher(chance):
    limit = chance.choice([1, 2, 3])
    is_batch = chance.random() < 0.5
    return chance.choice(
        [
            BasicVariantGenerator,
            lambda: ConcurrencyLimiter(BasicVariantGenerator(), limit, batch=is_batch),
        ]
    )
