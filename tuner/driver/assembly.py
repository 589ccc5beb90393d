"""Puts a driver together with what dispatches its notices and takes the user's requests.

Drivers of real trials, of virtual time and of the fault simulation are all assembled here. They
differ in the executor, which also brings the clock, in the use of that clock, the log, the caller
of the searcher, the callbacks, and the files of checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from schedulers.fifo import FIFOScheduler
from tuner.callbacks.callback_list import CallbackList
from tuner.core.experiment import Experiment
from tuner.execution.executor import Executor
from tuner.wire.record import record

from .control import RequestHandler, Source
from .driver import NO_CHECKPOINT_FILES, REAL_TIME, CheckpointFiles, Driver, EventLog, Timing
from .event_dispatch import EventDispatch
from .suggestion_queue import SuggestionQueue


@record
class Assembly:
    """A driver and the parts around it that its caller needs.

    Attributes:
        driver: The driver.
        event_dispatch: Dispatches its notices to searcher and callbacks.
        control: Turns the user's control requests into events.
    """

    driver: Driver
    event_dispatch: EventDispatch
    control: RequestHandler


def assemble(  # noqa: PLR0917  (the parts, each given once)
    experiment: Experiment,
    executor: Executor,
    log: EventLog,
    suggestions: SuggestionQueue,
    callbacks: CallbackList,
    directory: Path,
    *,
    timing: Timing = REAL_TIME,
    elapsed_s: float = 0.0,
    checkpoint_files: CheckpointFiles = NO_CHECKPOINT_FILES,
    take_snapshot: Callable[[float], None] | None = None,
    request_sources: Sequence[Source] = (),
    trainable: Any = None,
    print_notice: Callable[[str], None] | None = None,
) -> Assembly:
    """Return a driver for an experiment, new or restored.

    Args:
        experiment: The state machine.
        executor: Where trials run; the driver uses its clock.
        log: Where events are recorded before they have effects.
        suggestions: Calls the searcher.
        callbacks: The user's callbacks, the loggers and the console.
        directory: The experiment's directory, to which paths in notices refer.
        timing: How the executor's clock is used.
        elapsed_s: Running time of earlier sessions, in seconds.
        checkpoint_files: The files of checkpoints; none by default, as in virtual time.
        take_snapshot: See `Driver`.
        request_sources: Where control requests of the user come from.
        trainable: The trainable, named in log files and warnings; None where curves replace it.
        print_notice: Shows the user a sentence on the console; None for no console.
    """
    event_dispatch = EventDispatch(
        suggestions,
        callbacks,
        experiment.trials,
        directory,
        experiment.settings.metric,
        score_attribute=experiment.settings.checkpoints.retention.score_attribute,
        trainable=trainable,
        has_scheduler=not isinstance(experiment.policies.scheduler, FIFOScheduler),
        print_notice=print_notice,
    )
    control = RequestHandler(experiment, suggestions.search_adapter, request_sources)
    driver = Driver(
        experiment,
        executor,
        log,
        suggestions,
        event_dispatch,
        checkpoint_files,
        timing=timing,
        elapsed_s=elapsed_s,
        take_snapshot=take_snapshot,
        control=control,
    )
    return Assembly(driver, event_dispatch, control)
