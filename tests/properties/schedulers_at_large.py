"""Random whole experiments with every scheduler, each determined by its number alone.

::

    python -m tests.properties.schedulers_at_large --experiments 10000    # at night
    python -m tests.properties.schedulers_at_large --seed 4711            # one again

The exit code is 1 if an experiment did not end as it should.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import tuner as tune
from searchers import BasicVariantGenerator, ConcurrencyLimiter
from tests.properties.every_scheduler import DRAWN, KINDS, POPULATIONS, scheduler
from tests.properties.watched import Troubles, Watch
from tests.properties.world import chance_from

SPACE = {
    "start": tune.uniform(0.0, 1.0),
    "width": tune.choice([1, 2, 4]),
    "model": {"depth": tune.randint(1, 6)},
    "fate": tune.randint(0, 2**31),
}


class Curves:
    """Learning curves of every kind: short, long, sparse or broken, some with crashes.

    They report time in several units.
    """

    def __init__(self):
        self._num_starts = Counter()

    def __call__(self, config):
        fate = config["fate"]
        self._num_starts[fate] += 1
        chance = chance_from(fate)
        length, crash_rate = (
            chance.choice([0, 1, 3, 8, 15, 30]),
            chance.choice([0.0, 0.0, 0.0, 0.1, 1.0]),
        )
        stride, is_timeless = chance.choice([1, 1, 2, 7]), chance.random() < 0.05
        luck = chance_from(f"{fate}/{self._num_starts[fate]}")
        oddities = chance_from(f"{fate}/values")
        for step in range(1, length + 1):
            if luck.random() < crash_rate and self._num_starts[fate] < 6:
                raise ValueError(f"crash at step {step}")
            result = {
                "loss": (0.1 + config["start"]) / step,
                "nested": {"size": config["width"] * config["model"]["depth"]},
            }
            result |= {"epoch": stride * step, "cost": 0.5 * step * config["width"]}
            self._spoil(result, oddities)
            if is_timeless:
                result.pop("epoch", None)
            yield result

    @staticmethod
    def _spoil(result, chance):
        match chance.randrange(24):
            case 0:
                result["loss"] = chance.choice([math.nan, math.inf, -math.inf, None])
            case 1:
                result.pop(chance.choice(["loss", "nested", "epoch", "cost"]))
            case 2:
                result["done"] = chance.random() < 0.5
            case 3:
                result["should_checkpoint"] = True
            case 4:
                result[chance.choice(["loss", "epoch", "cost"])] = chance.choice([math.nan, None])


class EndingSearcher(BasicVariantGenerator):
    """Ends before all requested trials have been suggested."""

    def __init__(self, num):
        super().__init__()
        self._num_left = num

    def suggest(self, trial_id):
        self._num_left -= 1
        return super().suggest(trial_id) if self._num_left >= 0 else self.FINISHED


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment that can be simulated repeatedly.

    Attributes:
        seed: What everything follows from.
        kind: The scheduler's name.
        make_scheduler: Makes a fresh one.
        make_searcher: Makes a fresh searcher.
        tune: Further arguments of `TuneConfig`.
        run: Arguments of `RunConfig`.
        request: What a trial asks for.
        num_slots: How many CPUs there are.
        duration_s: How long an iteration takes.
        troubles: What befalls it.
    """

    seed: int
    kind: str
    make_scheduler: Callable[[], Any]
    make_searcher: Callable[[], Any]
    tune: Mapping[str, Any]
    run: Mapping[str, Any]
    request: Any
    num_slots: int
    duration_s: Any
    troubles: Troubles

    def simulate(self):
        """Run the experiment and check it; return the watch and the outcome."""
        parts = {"scheduler": self.make_scheduler(), "search_alg": self.make_searcher()}
        tune_config = tune.TuneConfig(**self.tune, **parts, seed=self.seed)
        watch = Watch(self.troubles)
        outcome = watch.simulate(
            tune.with_resources(Curves(), self.request),
            param_space=SPACE,
            tune_config=tune_config,
            run_config=tune.RunConfig(**self.run),
            num_slots=self.num_slots,
            duration_s=self.duration_s,
        )
        watch.check_end(outcome)
        return watch, outcome


def experiment(seed: int, kind: str | None = None) -> Experiment:
    """Return the random experiment of `seed`; `kind` is a key of `KINDS`, None to draw one."""
    chance = chance_from(f"{seed}/at large")
    kind = kind or chance.choice(DRAWN)
    is_population, is_single = kind in POPULATIONS, kind == "replay"
    max_failures = chance.choice([0, 0, 1, 3, -1])
    num_slots = chance.choice([1, 2, 3, 5])
    num_samples = 1 if is_single else chance.choice([1, 2, 4, 6, 9, 16])
    is_endless = not (is_population or is_single) and chance.random() < 0.06
    return Experiment(
        seed=seed,
        kind=kind,
        make_scheduler=scheduler(kind, chance),
        make_searcher=BasicVariantGenerator if is_population or is_single else _searcher(chance),
        tune={
            "num_samples": -1 if is_endless else num_samples,
            "max_concurrent_trials": chance.choice([None, None, None, 1, 2, 3]),
            "time_budget_s": 25.0 if is_endless else chance.choice([None, None, None, None, 12.0]),
            **_goals(seed, kind),
        },
        run=_run(chance, max_failures, num_slots),
        request=chance.choice(
            [
                {"cpu": 1},
                {"cpu": 1},
                {"cpu": 1},
                {"cpu": 0.5},
                {"cpu": 1, "gpu": 0.5},
                {"cpu": num_slots},
                _by_width,
            ]
        ),
        num_slots=num_slots,
        duration_s=chance.choice([1.0, 0.25 if is_endless else 0.0, _uneven, _slowing]),
        troubles=Troubles(
            seed=seed,
            can_save=chance.random() < 0.75,
            reports_every=chance.choice([0, 1, 1, 1, 2, 3]),
            failing_saves=chance.choice([0.0, 0.0, 0.1, 0.5]),
            damaged=chance.choice([0.0, 0.0, 0.1, 0.5]),
            interrupted_at=chance.randrange(1, 60) if chance.random() < 0.1 else None,
            is_urgent=chance.random() < 0.5,
        ),
    )


def _goals(seed, kind):
    # Drawn apart, so that experiments of a number stay what they were.
    chance = chance_from(f"{seed}/goals")
    constraints = chance.choice(
        [None, None, {"nested/size": "<= 8"}, {"cost": "<= 4", "nested/size": ">= 3"}]
    )
    if kind.startswith("moasha"):
        metrics = {"metric": ["loss", "nested/size"], "mode": ["min", "max"]}
    else:
        metrics = {"metric": "loss", "mode": "min"}
    return {**metrics, "constraints": constraints}


def _run(chance, max_failures, num_slots):
    return {
        "stop": chance.choice(
            [
                None,
                None,
                None,
                {"training_iteration": 9},
                {"loss": "<= 0.02"},
                tune.TimeoutStopper(40.0),
            ]
        ),
        "failure_config": tune.FailureConfig(
            max_failures=max_failures,
            fail_fast=chance.random() < 0.2 and max_failures == 0,
            # Who is killed for being slow is so again the next time, and with endless retries for
            # ever.
            report_timeout_s=chance.choice([None, None, 5.0]) if max_failures >= 0 else None,
            stop_grace_s=chance.choice([0.0, 3.0]),
        ),
        "checkpoint_config": tune.CheckpointConfig(
            num_to_keep=chance.choice([None, 1, 1, 2]),
            checkpoint_score_attribute=chance.choice([None, None, "loss"]),
        ),
        "resources": {"cpu": num_slots, "gpu": chance.choice([1, 2])},
    }


def _by_width(config):
    return {"cpu": 0.5 if config.get("width") == 1 else 1.0}


def _uneven(config, iteration):
    return 0.5 + config["fate"] % 7


def _slowing(config, iteration):
    return float(iteration)


def _searcher(chance):
    limit, num, is_batch = (
        chance.choice([1, 2, 3, 5]),
        chance.choice([0, 1, 3, 7]),
        chance.random() < 0.5,
    )
    return chance.choice(
        [
            BasicVariantGenerator,
            BasicVariantGenerator,
            BasicVariantGenerator,
            lambda: EndingSearcher(num),
            lambda: ConcurrencyLimiter(BasicVariantGenerator(), limit, batch=is_batch),
            lambda: ConcurrencyLimiter(EndingSearcher(num), limit, batch=is_batch),
        ]
    )


# The command line.


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.schedulers_at_large")
    parser.add_argument("--experiments", type=int, default=10_000, help="how many to simulate")
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, help="simulate this one alone")
    parser.add_argument("--scheduler", choices=sorted(KINDS), help="only with this one")
    options = parser.parse_args(arguments)
    logging.getLogger("tuner").setLevel(logging.ERROR)
    if options.seed is not None:
        print(experiment(options.seed, options.scheduler))
        watch, outcome = experiment(options.seed, options.scheduler).simulate()
        print(dict(watch.seen), *outcome.grid.trials, sep="\n")
        return 0
    began, seen, failed = time.monotonic(), Counter(), []
    for seed in range(options.first_seed, options.first_seed + options.experiments):
        try:
            watch, outcome = experiment(seed, options.scheduler).simulate()
        except Exception:  # noqa: BLE001  (whatever it is, it is what we look for)
            failed.append(seed)
            print(
                f"seed {seed}, {experiment(seed, options.scheduler).kind}:",
                traceback.format_exc(limit=-3),
                flush=True,
            )
        else:
            seen.update(counted(seed, options.scheduler, watch, outcome))
    for name, number in sorted(seen.items()):
        print(f"{number:>10}  {name}")
    print(
        f"{options.experiments} experiments in {time.monotonic() - began:.0f} s, "
        f"{len(failed)} did not end as they should: {failed}"
    )
    return 1 if failed else 0


def counted(seed, kind, watch, outcome):
    """Return the number of occurrences of each kind of event."""
    seen = Counter(+watch.seen)
    seen[f"with {experiment(seed, kind).kind}"] += 1
    seen.update(f"decision: {type(decision).__name__}" for decision in outcome.decisions)
    seen.update(f"trial {trial.ending}" for trial in outcome.grid.trials)
    seen.update(
        f"left to the engine by {experiment(seed, kind).kind}"
        for trial in outcome.grid.trials
        if str(trial.reason) == "idle"
    )
    seen["grafts"] += sum(len(trial.grafts) for trial in outcome.grid.trials)
    seen["ended with a reason why it cannot"] += bool(watch.experiment.fatal_error)
    seen["turns"] += watch.num_turns
    return seen


if __name__ == "__main__":
    sys.exit(main())
