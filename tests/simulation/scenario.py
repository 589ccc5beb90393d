"""Scenarios: an experiment and its faults, drawn from a seed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, Scheduler
from searchers import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from searchers.space import uniform
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.settings import ExperimentSettings, ValidationPolicy
from tuner.core.worker_records import WorkerGroup

from .fault_injection import MEAN_GAPS, Fault, FaultPoint
from .plugins import LapScheduler, RandomScheduler

SchedulerFactory = Callable[[], Scheduler]
"""Makes a scheduler without metric and mode; trials report ``loss`` (smaller is better)."""

METRIC: Final = "loss"
MODE: Final = "min"

_DRIVER_ONLY: Final = frozenset(
    {FaultPoint.STEP, FaultPoint.RENAME, FaultPoint.SYNC, FaultPoint.WRITE}
)

_NODE_WAIT_S: Final = 1000.0
_LOGS_EVERY: Final = 7
"""Log files are written in one experiment in seven; they make it 50 % slower."""
_HANGS: Final = frozenset({Fault.WORKER_HANGS, Fault.START_HANGS, Fault.SAVE_HANGS})
"""Left out where no timeout ends a trial that hangs."""
_POWER_CUTS: Final = frozenset({Fault.POWER_CUT, Fault.POWER_CUT_IN_SYNC})
"""Left out where nothing is synced, so that a power cut may lose anything."""


@dataclasses.dataclass(frozen=True, slots=True)
class Training:
    """What trials do that train over several processes.

    Attributes:
        max_workers: The largest number of processes of a trial; each trial has a smallest and a
            largest number of its own, which follow from its configuration.
        gpu_share: How many GPUs each process occupies; 0 for none.
        upload_rate: Share of the reported checkpoints that are stored after their report.
        loss_rate: Share of these that are never stored.
        placeholder_rate: Share of the reported checkpoints that nothing can continue from.
        lease_rate: Share of the training steps before which a trial asks for a lease.
    """

    max_workers: int
    gpu_share: float
    upload_rate: float
    loss_rate: float
    placeholder_rate: float
    lease_rate: float

    def group_for(self, config: Mapping[str, Any]) -> WorkerGroup:
        """Return the processes of a trial."""
        number = int(float(config["x"]) * 1e6)
        fewest = 1 + number % self.max_workers
        most = min(fewest + number // 7 % 3, self.max_workers)
        share = {"cpu": 1.0} | ({"gpu": self.gpu_share} if self.gpu_share else {})
        return WorkerGroup(most, share, fewest, most)


@dataclasses.dataclass(frozen=True, slots=True)
class Validating:
    """How checkpoints are validated.

    Attributes:
        rate: Share of the results that come with a checkpoint which is to be validated.
        is_late: Whether these results lack the metric, which the validation supplies.
        policy: See `ValidationPolicy`.
    """

    rate: float
    is_late: bool
    policy: ValidationPolicy


@dataclasses.dataclass(frozen=True, slots=True)
class Clustering:
    """The nodes on which trials run.

    Attributes:
        num_nodes: How many there are when none has left.
        mean_life_ticks: How long one is there on average.
        notice_rate: Share of the nodes that drain before they leave.
        max_losses: See `ExperimentSettings`.
        max_validation_losses: See it as well.
        preemption_grace_s: See it as well.
        kinds: Values of the label ``kind``, which the nodes have in turn; empty for no labels.
    """

    num_nodes: int
    mean_life_ticks: int
    notice_rate: float
    max_losses: int | None
    max_validation_losses: int | None
    preemption_grace_s: float | None
    kinds: tuple[str, ...]

    def nodes(self, num_slots: int) -> list[tuple[int, dict[str, str]]]:
        """Return slots and labels of the nodes, which together have so many slots."""
        nodes: list[tuple[int, dict[str, str]]] = []
        for number in range(self.num_nodes, 0, -1):
            labels = {"kind": self.kinds[len(nodes) % len(self.kinds)]} if self.kinds else {}
            share = -(-num_slots // number)
            num_slots -= share
            if share:
                nodes.append((share, labels))
        return nodes


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """An experiment with its faults; the same scenario always gives the same journal.

    Attributes:
        seed: Seed of all random choices.
        make_scheduler: Makes the scheduler.
        scheduler: Its name.
        is_limited: Whether a `ConcurrencyLimiter` stands before the searcher.
        num_trials: How many trials there are.
        num_iterations: How often a trial reports unless it is stopped.
        num_slots: How many trials run at once.
        durability: See ``RunConfig(durability=...)``.
        checkpoint_every: Every how many iterations a trial reports a checkpoint; 0 for never.
        can_save_on_demand: Whether it is the engine that asks for checkpoints, at the same
            iterations and before a pause.
        saves_at_end: Whether it also asks for one at the last result.
        num_to_keep: How many checkpoints of a trial are kept.
        is_scored: Whether those with the best value are kept instead of the latest.
        max_failures: How often a trial may be tried again.
        report_timeout_s: How long a trial may be silent.
        time_budget_s: How long the experiment may run.
        segment_bytes: Size from which on the journal begins another segment.
        num_faults: Largest number of faults.
        mean_gaps: Mean number of passes between two faults at each point.
        has_logs: Whether log files are written, on a real disk.
        requests_every: Mean number of turns between two requests of the user; 0 for none.
        without: Faults that are switched off.
        is_search_slow: Whether the searcher is called asynchronously and takes time.
        max_pending: How many trials are suggested before there is a slot for them.
        training: How trials train over several processes; None for single processes.
        validating: How checkpoints are validated; None for not at all.
        clustering: The nodes on which trials run; None for one machine.
    """

    seed: int
    make_scheduler: SchedulerFactory
    scheduler: str
    is_limited: bool
    num_trials: int
    num_iterations: int
    num_slots: int
    durability: str
    checkpoint_every: int
    can_save_on_demand: bool
    saves_at_end: bool
    num_to_keep: int | None
    is_scored: bool
    max_failures: int
    report_timeout_s: float | None
    time_budget_s: float | None
    segment_bytes: int
    num_faults: int
    mean_gaps: Mapping[FaultPoint, int]
    has_logs: bool = False
    requests_every: int = 0
    without: frozenset[Fault] = frozenset()
    is_search_slow: bool = False
    max_pending: int = 0
    training: Training | None = None
    validating: Validating | None = None
    clustering: Clustering | None = None

    @property
    def capacity(self) -> dict[str, float]:
        """All that trials and leases can occupy together."""
        capacity = {"cpu": float(self.num_slots)}
        if self.training and (share := self.training.gpu_share):
            per_device = int(1 / share) if share < 1 else 1
            devices_each = max(int(share), 1)
            capacity["gpu"] = float(-(-self.num_slots // per_device) * devices_each)
        return capacity

    def labels_for(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the labels of a node that a trial asks for: those of one that can run it."""
        number = int(float(config["x"]) * 1e6)
        if self.clustering is None or number % 3 == 0:
            return {}
        slots = Counter[str]()
        for num, labels in self.clustering.nodes(self.num_slots):
            slots[labels.get("kind", "")] += num
        fewest = self.training.group_for(config).fewest if self.training else 1
        kinds = [kind for kind, num in slots.items() if kind and num >= fewest]
        return {"kind": kinds[number // 3 % len(kinds)]} if kinds else {}

    def group_for(self, config: Mapping[str, Any]) -> WorkerGroup | None:
        """Return the processes of a trial; None for a single one."""
        if self.training is None:
            return None
        return dataclasses.replace(self.training.group_for(config), labels=self.labels_for(config))

    @property
    def stride(self) -> int:
        """Increment of ``training_iteration`` between reports; 3 in every fourth experiment."""
        return 3 if self.seed % 4 == 3 else 1

    @property
    def is_comparable(self) -> bool:
        """True if crashes of the driver must not change the outcome.

        `RandomScheduler` decides by the number of results it got, which depends on crashes.
        """
        has_driver_faults_only = (
            self.time_budget_s is None
            and not self.requests_every
            and set(self.mean_gaps) <= _DRIVER_ONLY
        )
        return (
            self.scheduler != "random"
            and self.num_slots == 1
            and has_driver_faults_only
            and self.validating is None
            and self.clustering is None
        )

    def without_faults(self) -> Scenario:
        """Return the same experiment without faults."""
        return dataclasses.replace(self, num_faults=0)

    def make_searcher(self) -> Searcher:
        """Return a fresh searcher."""
        searcher = BasicVariantGenerator()
        return (
            ConcurrencyLimiter(searcher, max(self.num_slots - 1, 1))
            if self.is_limited
            else searcher
        )

    def settings(self) -> ExperimentSettings:
        """Return what the core has to know."""
        retention = RetentionPolicy(self.num_to_keep, METRIC if self.is_scored else None, MODE)
        frequency = self.checkpoint_every if self.can_save_on_demand else 0
        return ExperimentSettings(
            capacity=self.capacity,
            metric=METRIC,
            mode=MODE,
            max_trials=self.num_trials,
            max_failures=self.max_failures,
            time_budget_s=self.time_budget_s,
            stop_grace_s=0.5,
            report_timeout_s=self.report_timeout_s,
            checkpoints=CheckpointPolicy(
                self.can_save_on_demand, frequency, self.saves_at_end, retention
            ),
            max_pending=self.max_pending,
            max_overtaken_s=1.0 if self.training else None,
            validation=self.validating.policy if self.validating else None,
            **self._settings_of_nodes(),
        )

    def _settings_of_nodes(self) -> dict[str, Any]:
        if self.clustering is None:
            return {}
        names = ("max_losses", "max_validation_losses", "preemption_grace_s")
        return {
            "node_wait_s": _NODE_WAIT_S,
            **{name: getattr(self.clustering, name) for name in names},
        }

    def rng(self, purpose: str) -> Random:
        """Return an independent generator for one purpose."""
        return Random(  # noqa: S311  (no secret)
            int.from_bytes(
                hashlib.blake2b(f"{self.seed}/{purpose}".encode(), digest_size=6).digest()
            )
        )


def _asha(rng: Random) -> SchedulerFactory:
    factor = rng.choice((2, 3, 4))
    max_t = rng.choice((4, 9, 27))
    return lambda: ASHAScheduler(max_t=max_t, reduction_factor=factor, type="stopping")


def _promotion(rng: Random) -> SchedulerFactory:
    factor = rng.choice((2, 3))
    max_t = rng.choice((4, 9))
    return lambda: ASHAScheduler(max_t=max_t, reduction_factor=factor, type="promotion")


def _pbt(rng: Random) -> SchedulerFactory:
    interval, synch = rng.choice((1, 2, 3)), rng.random() < 0.3
    return lambda: PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=interval,
        hyperparam_mutations={"x": uniform(0.1, 1.0)},
        synch=synch,
    )


def _laps(rng: Random) -> SchedulerFactory:
    lap = rng.choice((2, 3, 4, 5))
    return lambda: LapScheduler(lap)


def _random(rng: Random) -> SchedulerFactory:
    seed, num_decisions = rng.randrange(10**6), rng.choice((3, 10, 30))
    return lambda: RandomScheduler(seed, num_decisions)


SCHEDULERS: Final[Mapping[str, Callable[[Random], SchedulerFactory]]] = {
    "fifo": lambda _: FIFOScheduler,
    "asha": _asha,
    "laps": _laps,
    "promotion": _promotion,
    "pbt": _pbt,
    "random": _random,
}
"""By name, what draws a factory of a scheduler."""

_DRAWN: Final = ("fifo", "asha", "laps", "promotion", "pbt", "random", "random", "random")
"""`RandomScheduler` is drawn most, since it reaches the rarest states."""


def scenario(seed: int, scheduler: str | SchedulerFactory | None = None) -> Scenario:
    """Return the random scenario with this number.

    Args:
        seed: The number.
        scheduler: A name of `SCHEDULERS` or a factory; None to draw one.
    """
    rng = Random(seed)  # noqa: S311  (no secret)
    name = rng.choice(_DRAWN) if scheduler is None else scheduler
    make_scheduler = SCHEDULERS[name](rng) if isinstance(name, str) else name
    can_save = name not in {"fifo", "asha"} or rng.random() < 0.5
    is_calm_worker = rng.random() < 0.12
    has_timeout = rng.random() < 0.8
    durability = rng.choice(("group", "group", "strict", "process"))
    num_trials, num_iterations = _size(rng)
    gaps = _mean_gaps(rng, _DRIVER_ONLY if is_calm_worker else frozenset(FaultPoint))
    return Scenario(
        seed=seed,
        make_scheduler=make_scheduler,
        scheduler=name if isinstance(name, str) else "given",
        is_limited=rng.random() < 0.2,
        num_trials=num_trials,
        num_iterations=num_iterations,
        num_slots=1 if is_calm_worker else rng.choice((1, 2, 2, 3, 4)),
        durability=durability,
        checkpoint_every=rng.choice((0, 1, 1, 2, 3, 5)),
        can_save_on_demand=can_save,
        saves_at_end=can_save and rng.random() < 0.5,
        num_to_keep=rng.choice((None, 1, 1, 2)),
        is_scored=rng.random() < 0.3,
        max_failures=rng.choice((0, 1, 3, -1)),
        report_timeout_s=3.0 if has_timeout else None,
        time_budget_s=None if is_calm_worker else rng.choice((None, None, None, 1.0)),
        segment_bytes=rng.choice((1 << 30, 1 << 30, 2_000)),
        num_faults=rng.choice((1, 1, 2, 3, 10)),
        mean_gaps=gaps,
        has_logs=seed % _LOGS_EVERY == _LOGS_EVERY // 2,
        requests_every=0 if is_calm_worker else rng.choice((0, 0, 0, 0, 30, 8)),
        without=(frozenset() if has_timeout else _HANGS)
        | (_POWER_CUTS if durability == "process" else frozenset()),
        is_search_slow=rng.random() < 0.5,
        max_pending=rng.choice((0, 0, 1, 4, 16)),
    )


def training_scenario(seed: int) -> Scenario:
    """Return the random scenario with this number, in which trials train over several processes.

    Functions report their checkpoints themselves. They are paused and continued by the user alone,
    since a scheduler that pauses trials which have yet to save ends the experiment.
    """
    drawn = scenario(seed)
    rng = drawn.rng("training")
    is_function = drawn.scheduler in {"fifo", "asha"}
    num_slots = 1 if drawn.num_slots == 1 else rng.choice((2, 3, 4, 6))
    return dataclasses.replace(
        drawn,
        num_slots=num_slots,
        can_save_on_demand=not is_function,
        saves_at_end=drawn.saves_at_end and not is_function,
        checkpoint_every=rng.choice((1, 1, 2, 3)) if is_function else drawn.checkpoint_every,
        requests_every=rng.choice((0, 8, 30)) if num_slots > 1 else 0,
        training=Training(
            max_workers=rng.randint(1, num_slots),
            gpu_share=rng.choice((0.0, 0.0, 0.5, 0.3, 1.0, 2.0)),
            upload_rate=rng.choice((0.3, 0.8)) if is_function else 0.0,
            loss_rate=rng.choice((0.0, 0.1)),
            placeholder_rate=rng.choice((0.0, 0.2)) if is_function else 0.0,
            lease_rate=rng.choice((0.0, 0.1, 0.3)),
        ),
    )


def validating_scenario(seed: int) -> Scenario:
    """Return the random scenario with this number, in which checkpoints are validated.

    In some of them trials train over several processes.
    """
    drawn = training_scenario(seed) if seed % 4 == 0 else scenario(seed)
    return dataclasses.replace(drawn, has_logs=False, validating=_validating(drawn))


def _validating(drawn: Scenario) -> Validating:
    rng = drawn.rng("validating")
    return Validating(
        rate=rng.choice((0.3, 1.0)),
        is_late=rng.random() < 0.5,
        policy=ValidationPolicy(
            {"cpu": rng.choice((0.0, 1.0, 1.0, 2.0))},
            max_in_flight=rng.choice((1, 1, 2)),
            max_pending=rng.choice((None, 1, 2)),
            max_retries=rng.choice((0, 1, 3)),
            timeout_s=rng.choice((None, 0.5)),
        ),
    )


def clustered_scenario(seed: int) -> Scenario:
    """Return the random scenario with this number, in which trials run on nodes.

    In some of them trials train over several processes, which may be on several nodes, or
    checkpoints are validated.
    """
    kind = seed // 6 % 4
    drawn = (training_scenario if kind in (0, 3) else scenario)(seed)
    if kind in (1, 3):
        drawn = dataclasses.replace(drawn, validating=_validating(drawn), has_logs=False)
    rng = drawn.rng("clustering")
    training = drawn.training and dataclasses.replace(drawn.training, gpu_share=0.0)
    return dataclasses.replace(
        drawn,
        training=training,
        clustering=Clustering(
            num_nodes=rng.choice((1, 2, 2, 3)),
            mean_life_ticks=rng.choice((5, 20, 80, 400)),
            notice_rate=rng.choice((0.0, 0.5, 1.0)),
            max_losses=rng.choice((None, 2, 5)),
            max_validation_losses=rng.choice((None, 2, 4)),
            preemption_grace_s=rng.choice((None, 0.0, 0.2)),
            kinds=rng.choice(((), ("a", "b"), ("a",))),
        ),
    )


def _size(rng: Random) -> tuple[int, int]:
    """Draw numbers of trials and reports, mostly small: most defects show in small experiments."""
    rank = rng.random()
    if rank < 0.85:
        return rng.choice((2, 2, 2, 3)), rng.choice((3, 4, 5, 6))
    if rank < 0.965:
        return rng.choice((2, 3, 4)), rng.choice((6, 8, 10))
    return rng.choice((2, 8)), rng.choice((6, 20))


def _mean_gaps(rng: Random, points: frozenset[FaultPoint]) -> dict[FaultPoint, int]:
    """Draw for each point whether faults occur never, rarely or often."""
    drawn = {point: rng.choice((0, 0, *MEAN_GAPS[point])) for point in FaultPoint}
    return {point: gap for point, gap in drawn.items() if gap and point in points}
