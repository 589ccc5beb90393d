"""Records of a trial's log files: starts of attempts, results, validations, the trial's end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, assert_never, final

from tuner.core.result import (
    CONFIG,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
    flatten,
)
from tuner.core.trial import TerminationReason, Trial
from tuner.storage.checkpoints import Checkpoint
from tuner.wire.declared import NEVER, Key
from tuner.wire.record import record


class Begin(NamedTuple):
    """Log record: an attempt of the trial has started.

    Attributes:
        config: Its hyperparameters.
        is_first: Whether existing files of this trial are replaced.
        is_anew: Whether no earlier row counts.
        at: Unix time.
    """

    config: Mapping[str, Any]
    is_first: bool
    is_anew: bool
    at: float


@final
class Row:
    """A result without its configuration, and the Unix time at which the driver received it.

    Args:
        result: The result; it is copied, since other callbacks may still change it.
        at: Unix time.
        number: Its position among the trial's results that count, from 1, see `Trial.num_rows`: it
            supersedes earlier ones from there on. 0 where that is not asked for.

    Attributes:
        result: The result, nested as reported.
        at: Unix time.
        number: See above.
    """

    __slots__ = ("_flat", "at", "number", "result")

    def __init__(self, result: Mapping[str, Any], at: float, number: int = 0) -> None:
        self.number = number
        self.result = dict(result)
        self.result.pop(CONFIG, None)
        self.at = at
        self._flat: dict[str, Any] | None = None

    @property
    def flat(self) -> dict[str, Any]:
        """The result with nested keys joined to ``"a/b"``; computed once for all files."""
        if self._flat is None:
            self._flat = flatten(self.result)
        return self._flat


class End(NamedTuple):
    """Log record: the trial is over and will not be continued.

    Attributes:
        has_failed: Whether it ended in ERROR.
        at: Unix time.
    """

    has_failed: bool
    at: float


@record
class Validated:
    """Log record: the validation of a checkpoint has ended.

    Attributes:
        checkpoint: Name of the checkpoint's directory.
        iteration: ``training_iteration`` of its result.
        status: Public name of the outcome, e.g. ``"VALIDATED"``.
        metrics: What the validation function returned, nested; empty unless it completed.
        error: What went wrong; empty for nothing.
        at: Unix time.
        step: ``timesteps_total`` of its result, None where the trial does not count them.
    """

    checkpoint: str
    iteration: Annotated[int, Key("training_iteration")]
    status: str
    metrics: Mapping[str, Any]
    error: str
    at: Annotated[float, Key("time")]
    step: Annotated[int | None, NEVER] = None


Entry = Begin | Row | Validated | End


@dataclass(slots=True)
class Segment:
    """The log records of one attempt within one batch, written in one piece.

    Attributes:
        begin: How the attempt began, None where it had begun before.
        rows: What was reported.
        validations: Validations that have ended, also those of earlier attempts.
        end: How it ended, None where it continues.
    """

    begin: Begin | None = None
    rows: list[Row] = field(default_factory=list)
    validations: list[Validated] = field(default_factory=list)
    end: End | None = None

    @property
    def entries(self) -> list[Entry]:
        """Everything in it, oldest first."""
        entries = (self.begin, *self.rows, *self.validations, self.end)
        return [entry for entry in entries if entry is not None]


def segments_of(entries: Iterable[Entry]) -> list[Segment]:
    """Split log records into attempts, the first of which may have begun in an earlier batch."""
    segments: list[Segment] = []
    rows: list[Row] = []
    for entry in entries:
        if entry.__class__ is Row and segments:
            rows.append(entry)
            continue
        if not segments or isinstance(entry, Begin):
            segments.append(Segment())
            rows = segments[-1].rows
        match entry:
            case Begin():
                segments[-1].begin = entry
            case End():
                segments[-1].end = entry
            case Validated():
                segments[-1].validations.append(entry)
            case Row():
                rows.append(entry)
            case _:
                assert_never(entry)
    return segments


def begin_of(trial: Trial) -> Begin:
    """Return the log record of the attempt with which a trial starts or continues."""
    is_anew = trial.attempt <= trial.superseded_attempt + 1
    return Begin(trial.config, trial.attempt <= 1, is_anew, time.time())


def validated(
    trial: Trial,
    checkpoint: Checkpoint,
    status: str,
    metrics: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    error: str = "",
    at: float | None = None,
) -> Validated:
    """Return the log record of a validation that has ended.

    Args:
        trial: The trial.
        checkpoint: The checkpoint.
        status: See `Validated`.
        metrics: See `Validated`.
        result: The checkpoint's result.
        error: See `Validated`.
        at: Unix time; None for now.
    """
    step = result.get(TIMESTEPS_TOTAL)
    return Validated(
        os.path.relpath(checkpoint.path, trial.local_path),
        int(result.get(TRAINING_ITERATION) or 0),
        status,
        metrics,
        error,
        time.time() if at is None else at,
        step if isinstance(step, int) else None,
    )


def ended_validations(trial: Trial, known: Iterable[Validated] = ()) -> list[Validated]:
    """Return the log records of a trial's validations that have ended, for a file written anew.

    Args:
        trial: The trial.
        known: Those that have been logged before, which have the metrics of checkpoints that
            retention has deleted since.
    """
    before = {(one.checkpoint, one.iteration): one for one in known}
    ended = []
    for validation in trial.validations.values():
        if validation.is_open:
            continue
        checkpoint, failure = validation.checkpoint, validation.failure
        logged = before.get((checkpoint.directory, checkpoint.iteration))
        same = logged if logged and logged.status == validation.status else None
        ended.append(
            Validated(
                checkpoint.directory,
                checkpoint.iteration,
                validation.status,
                validation.metrics or (same.metrics if same else {}),
                str(failure or ""),
                same.at if same else time.time(),
                checkpoint.counters.get(TIMESTEPS_TOTAL),
            )
        )
    return ended


def is_over(trial: Trial) -> bool:
    """Return whether nothing more can be logged of the trial.

    One that was interrupted may be continued, and open validations end later.
    """
    is_interrupted = trial.ending is TerminationReason.INTERRUPTED
    return trial.is_finished and not is_interrupted and not trial.has_open_validation
