"""Experiments in virtual time, whose training is replaced by learning curves."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from schedulers.decisions import Decision
from tuner.analysis.result_grid import ResultGrid
from tuner.callbacks.callback_list import CallbackList
from tuner.core.events import Event, ResultReported, ValidationEnded
from tuner.core.experiment import Experiment
from tuner.core.recorded_decisions import RecordedDecision, StopExperiment
from tuner.core.result import merged
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial
from tuner.driver.assembly import assemble
from tuner.driver.driver import VIRTUAL_TIME
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.execution.trainable import is_class_trainable
from tuner.journal.rows import History, MemoryRows, histories_of
from tuner.restore.snapshot_state import search_adapter_for
from tuner.spec.config import RunConfig, TuneConfig
from tuner.spec.experiment_spec import ExperimentSpec, make_spec
from tuner.virtual.executor import Curves, Duration, SimulatedExecutor, Validate

NOWHERE = Path("simulated")
"""Path in place of the experiment's directory; it is never created."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an experiment's history, as in a journal.

    Attributes:
        event: The event.
        at_s: Its time, in virtual seconds since the start.
        recorded: The decisions that followed from it, with their sources.
    """

    event: Event
    at_s: float
    recorded: Sequence[RecordedDecision]

    @property
    def decisions(self) -> Sequence[Decision]:
        """The decisions about trials, without those that stop the experiment."""
        return tuple(
            record.decision
            for record in self.recorded
            if not isinstance(record.decision, StopExperiment)
        )


@final
class MemoryLog:
    """Event log in memory.

    Attributes:
        history: Everything that happened, in order.
    """

    def __init__(self) -> None:
        self.history: list[Entry] = []

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Append an event."""
        self.history.append(Entry(event, at_s, tuple(recorded)))

    def flush(self) -> None:
        """Do nothing."""

    def rows(self, trials: Sequence[Trial]) -> MemoryRows:
        """Return what the trials have reported."""
        histories = histories_of(trials)
        reported: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        branches: defaultdict[str, list[int]] = defaultdict(list)
        places: dict[tuple[str, int], int] = {}
        for entry in self.history:
            event = entry.event
            if isinstance(event, ValidationEnded) and event.metrics is not None:
                place = places[event.trial_id, event.index]
                row = reported[event.trial_id][place]
                reported[event.trial_id][place] = merged(row, event.metrics)
            elif isinstance(event, ResultReported):
                if event.checkpoint:
                    places[event.trial_id, event.checkpoint.index] = len(reported[event.trial_id])
                reported[event.trial_id].append(event.metrics)
                branches[event.trial_id].append(
                    histories.get(event.trial_id, History()).branch_of(event.attempt)
                )
        return MemoryRows(reported, branches)


@dataclasses.dataclass(frozen=True, slots=True)
class Simulation:
    """Results of a simulated experiment.

    Attributes:
        grid: The results of all trials. Its paths and checkpoints do not exist.
        elapsed_s: How long the experiment took, in virtual seconds.
        history: Everything that happened, in order.
        stall: Why it ended with unfinished work; empty if it finished.
    """

    grid: ResultGrid
    elapsed_s: float
    history: Sequence[Entry]
    stall: str = ""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decisions of scheduler and stop criterion, in order, with their reasons."""
        return tuple(decision for entry in self.history for decision in entry.decisions)


def simulate(
    curves: Curves,
    *,
    param_space: Mapping[str, Any] | None = None,
    tune_config: TuneConfig | None = None,
    run_config: RunConfig | None = None,
    num_slots: int = 4,
    duration_s: Duration = 1.0,
    validate: Validate | None = None,
    validation_s: Duration = 0.0,
) -> Simulation:
    """Run an experiment in virtual time, without processes and files.

    Scheduler, searcher, stopper and callbacks are called as in a real run, in the same order.
    Trials save whenever they are asked to and resume where they were paused.

    Args:
        curves: Yields, for a configuration, the metrics of one iteration after the other:
            dictionaries or numbers. One that raises is a failed attempt. Something has to end each
            trial: the curve, the scheduler, ``RunConfig(stop=...)`` or the time budget.
        param_space: See `Tuner`.
        tune_config: See `Tuner`; its time budget is one of virtual seconds. Give a seed to get the
            same simulation each time.
        run_config: See `Tuner`; only `stop`, `failure_config`, `checkpoint_config`, `callbacks` and
            `resources` matter.
        num_slots: How many CPUs there are, unless ``RunConfig(resources=...)`` sets them.
        duration_s: How many virtual seconds an iteration takes, at least 0, or a function of
            configuration and ``training_iteration``.
        validate: Returns, for a configuration and ``training_iteration``, what the validation of a
            checkpoint returns. With it, every result comes with a checkpoint that is validated.
        validation_s: How many virtual seconds a validation takes, at least 0, or a function like
            `duration_s`.

    Raises:
        TypeError: If `curves` is no function of a configuration, or a setting has the wrong type.
        ValueError: If a setting is out of range or two contradict each other.

    Example:
        >>> import tuner as tune
        >>> from schedulers import ASHAScheduler
        >>> scheduler = ASHAScheduler(max_t=8, reduction_factor=2, type="stopping")
        >>> def losses(config):
        ...     for step in range(1, 9):
        ...         yield {"loss": config["x"] / step}
        >>> simulation = simulate(
        ...     losses,
        ...     param_space={"x": tune.grid_search([1.0, 2.0, 3.0])},
        ...     tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        ...     duration_s=60.0,
        ... )
        >>> simulation.grid.get_best_result().config, simulation.elapsed_s
        ({'x': 1.0}, 480.0)
        >>> decisions = [each for each in simulation.decisions if each.trial_id == "t00001"]
        >>> [str(decision.reason) for decision in decisions]
        ['asha.rung (rung=1, value=2, cutoff=1, rank=2, num_recorded=2, ...)']
    """
    spec = make_spec(curves, param_space, tune_config, run_config)
    if is_class_trainable(spec.trainable):
        raise TypeError(
            f"curves must be a function that yields metrics, got the class {spec.name}; "
            "simulate what it would report"
        )
    spec.connect()
    executor = SimulatedExecutor(
        spec.trainable,
        capacity={"cpu": num_slots, **(spec.run.resources or {})},
        duration_s=duration_s,
        validate=validate,
        validation_s=validation_s,
    )
    experiment = Experiment(
        simulated_settings(spec, executor.capacity()), spec.scheduler, spec.stopper
    )
    log = MemoryLog()
    elapsed_s = _drive(spec, experiment, executor, log)
    return Simulation(_grid(experiment, log), elapsed_s, log.history, experiment.stall_reason)


def simulated_settings(spec: ExperimentSpec, capacity: Mapping[str, float]) -> ExperimentSettings:
    """Return the settings for trials that save on demand and run here, as simulated ones do."""
    settings = spec.settings(capacity)
    return dataclasses.replace(
        settings,
        checkpoints=dataclasses.replace(settings.checkpoints, can_save_on_demand=True),
        node_wait_s=None,
    )


def _drive(
    spec: ExperimentSpec, experiment: Experiment, executor: SimulatedExecutor, log: MemoryLog
) -> float:
    """Run the experiment to its end; return how long it took, in virtual seconds."""
    settings = experiment.settings
    suggestions = SuggestionQueue(search_adapter_for(spec))
    assembly = assemble(
        experiment,
        executor,
        log,
        suggestions,
        CallbackList(spec.run.callbacks or ()),
        NOWHERE,
        timing=VIRTUAL_TIME,
    )
    assembly.event_dispatch.begin_experiment(
        stop=spec.run.stop,
        num_samples=spec.tune.num_samples,
        total_num_samples=settings.max_trials,
        mode=settings.mode,
        space=spec.space,
    )
    try:
        assembly.driver.run()
    finally:
        assembly.event_dispatch.end_experiment()
    return assembly.driver.elapsed_s


def _grid(experiment: Experiment, log: MemoryLog) -> ResultGrid:
    settings = experiment.settings
    mode: Any = settings.mode
    retention = settings.checkpoints.retention
    return ResultGrid(
        experiment.trials,
        str(NOWHERE),
        log.rows(experiment.trials),
        settings.metric,
        mode,
        retention=retention,
        several=settings.several_objectives,
        constraints=settings.constraints,
    )
