"""Explanations of what happened to a trial, from the decisions recorded in the journal.

They include why a scheduler never compared trials: they ended before its first comparison.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import schedulers
from schedulers.decisions import Reason
from schedulers.metric import as_float
from schedulers.scheduler import Scheduler
from tuner.core.events import Outcome
from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import TerminationReason, Trial
from tuner.errors import StorageError
from tuner.storage.declaration import is_experiment, read_declaration
from tuner.storage.strict_json import Opaque

from .node_history import NodeHistory

_DECISION_TEXTS: Final[Mapping[str, str]] = {
    "stop": "is stopped",
    "pause": "is paused",
    "resume": "is resumed",
    "save": "is asked to save",
    "resize": "is given other resources",
}
_REQUEST_TEXTS: Final[Mapping[str, str]] = {
    "pause_requested": "pause",
    "resume_requested": "continue",
    "trial_stop_requested": "stop",
}
_RESTORED: Final = (
    "the experiment is restored; trials that ran start again from their latest checkpoints"
)
_MAX_VALUES: Final = 8
_WRAPPED: Final = "base_scheduler"
"""Argument with which a scheduler such as ResourceChangingScheduler wraps another one."""
_CLASS: Final = "@"
"""Key of the class's name in a recorded scheduler."""


def explain_trial(
    trial: Trial,
    records: Iterable[Mapping[str, Any]],
    metric: str | None = None,
    why_given_up: str = "",
    history: NodeHistory | None = None,
) -> list[str]:
    """Return what happened to a trial, one line for each event or decision.

    Results without a decision are left out.

    Args:
        trial: The trial.
        records: The experiment's journal, or all of it that concerns the trial.
        metric: The metric shown with each decision, flattened; None for none.
        why_given_up: Why a trial that failed for good was not retried, see
            `RetryPolicy.why_given_up`; empty if that is unknown.
        history: The nodes on which it ran; None where there was only one machine.
    """
    explainer = _TrialExplainer(trial, metric, why_given_up, history)
    lines = [f"{trial.trial_id}: {_status_text(trial)}"]
    restored: list[str] = []  # shown only if the trial continues afterwards
    for record in records:
        at = f"{record['t']:9.2f} s  "
        if record["k"] == "restarted":
            restored = [f"{at}{_RESTORED}"]
        elif event_lines := [f"{at}{line}" for line in explainer.lines(record)]:
            lines += (restored if len(lines) > 1 else []) + event_lines
            restored = []
    return lines


def _status_text(trial: Trial) -> str:
    why = f", {trial.ending}" if trial.ending not in (None, TerminationReason.FAILED) else ""
    reason = f": {trial.reason}" if trial.reason else ""
    return f"{trial.status} after {trial.iteration} iterations{why}{reason}"


class _TrialExplainer:
    """Turns records into lines, keeping what a line needs from earlier records."""

    def __init__(
        self, trial: Trial, metric: str | None, why_given_up: str, history: NodeHistory | None
    ) -> None:
        self._trial_id = trial.trial_id
        self._last_attempt = trial.attempt
        self._why_given_up = why_given_up
        self._is_to_stop = False
        self._metric = metric
        self._places = history.places if history else {}
        self._losses = [
            loss for loss in (history.losses if history else ()) if loss.trial_id == trial.trial_id
        ]
        self._iteration: int | None = None
        self._value: Any = None
        self._config: Mapping[str, Any] = {}
        self._iterations: dict[int, int] = {}
        """The iteration of each checkpoint that was reported with a result."""

    def lines(self, record: Mapping[str, Any]) -> Iterator[str]:
        if record.get("id") == self._trial_id:
            yield from self._event_lines(record)
        for loss in self._losses:
            if loss.node == record.get("node") and loss.at_s == record["t"]:
                yield f"attempt {loss.attempt} is lost with node {loss.node}: {loss.why}"
        for decision in record.get("d", ()):
            if decision.get("id") == self._trial_id:
                yield from self._decision_lines(decision)
            elif decision["k"] == "exploit" and decision["donor"] == self._trial_id:
                yield f"gives its checkpoint to {decision['id']}: {_reason(decision)}"

    def _event_lines(self, record: Mapping[str, Any]) -> Iterator[str]:
        match record["k"]:
            case "suggested":
                self._config = flatten(record["config"])
                why = f" ({record['why']})" if record.get("why") else ""
                yield f"is suggested: {_listed(self._config)}{why}"
            case "started":
                self._is_to_stop = False
                nodes = self._places.get((self._trial_id, record["a"]))
                yield f"attempt {record['a']} begins" + (f" on {', '.join(nodes)}" if nodes else "")
            case "result":
                self._note_result(record)
            case "saved" | "save_failed" | "checkpoint_committed" | "checkpoint_lost":
                yield _checkpoint_line(record)
            case "validation_ended":
                yield self._validation_line(record)
            case "exited":
                yield from self._exit_lines(record)
            case "pause_requested" | "resume_requested" | "trial_stop_requested":
                self._is_to_stop |= record["k"] == "trial_stop_requested"
                yield f"is to {_REQUEST_TEXTS[record['k']]}, as requested by the user"
            case "forked":
                yield (
                    f"is forked from {record['donor']}, its checkpoint {record['checkpoint']}, "
                    f"with {_listed(record['changes'])}"
                )
            case _:
                pass

    def _note_result(self, record: Mapping[str, Any]) -> None:
        flat = flatten(record["m"])
        self._iteration = flat.get(TRAINING_ITERATION)
        self._value = flat.get(self._metric) if self._metric else None
        index = record["c"]["index"] if record["c"] else record.get("upload")
        if index is not None and self._iteration is not None:
            self._iterations[index] = self._iteration

    def _validation_line(self, record: Mapping[str, Any]) -> str:
        index, outcome, failure = record["index"], record["outcome"], record["failure"]
        iteration = self._iterations.get(index)
        which = f"checkpoint {index}" + ("" if iteration is None else f" of iteration {iteration}")
        if outcome == Outcome.COMPLETED and record["metrics"] is not None:
            flat = flatten(record["metrics"])
            # Decisions that this leads to are shown with the checkpoint's iteration.
            self._iteration = iteration
            self._value = flat.get(self._metric) if self._metric else None
            return f"{which} is validated: {_listed(flat) or 'without metrics'}"
        how = "is lost with its process" if outcome == Outcome.LOST else f"ends, {outcome}"
        why = f": {failure['kind']}: {failure['message']}" if failure else ""
        return f"the validation of {which} {how}, try {record['try']}{why}"

    def _exit_lines(self, record: Mapping[str, Any]) -> Iterator[str]:
        failure = record["failure"]
        how = (
            "since it could not be saved"
            if record["outcome"] == Outcome.UNSAVED
            else record["outcome"]
        )
        yield f"attempt {record['a']} ends, {how}" + (
            f": {failure['kind']}: {failure['message']}" if failure else ""
        )
        # A trial that the user has stopped is not retried in any case.
        if (
            failure
            and self._why_given_up
            and record["a"] == self._last_attempt
            and not self._is_to_stop
        ):
            yield f"is not tried again: {self._why_given_up}"

    def _decision_lines(self, decision: Mapping[str, Any]) -> Iterator[str]:
        where = "" if self._iteration is None else f"at iteration {self._iteration}"
        if where and self._value is not None:
            where += f" with {self._metric}={_short(self._value)}"
        where += " " if where else ""
        if decision["k"] != "exploit":
            what = _DECISION_TEXTS.get(decision["k"], decision["k"])
            yield f"{where}{what}: {_reason(decision)}"
            return
        before, self._config = self._config, flatten(decision["config"])
        which = (
            "its latest checkpoint"
            if decision["checkpoint"] is None
            else f"its checkpoint {decision['checkpoint']}"
        )
        yield f"{where}takes over from {decision['donor']}, {which}: {_reason(decision)}"
        yield f"continues with {_changes(before, self._config)}"


def _checkpoint_line(record: Mapping[str, Any]) -> str:
    match record["k"]:
        case "save_failed":
            return f"could not save: {record['failure']['kind']}: {record['failure']['message']}"
        case "checkpoint_lost":
            return f"has lost checkpoint {record['index']}: {record['why']}"
        case kind:
            verb = "saved" if kind == "saved" else "stored"
            checkpoint = record["c"]
            return (
                f"has {verb} checkpoint {checkpoint['index']} of iteration "
                f"{checkpoint['iteration']}"
            )


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = [
        f"{name} {_short(before.get(name))} -> {_short(value)}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return ", ".join(changed) or "an unchanged configuration"


def _reason(decision: Mapping[str, Any]) -> str:
    return str(Reason(decision["rule"], decision["n"]))


def _listed(flat: Mapping[str, Any]) -> str:
    shown = [f"{name}={_short(value)}" for name, value in list(flat.items())[:_MAX_VALUES]]
    return ", ".join(shown) + (", ..." if len(flat) > _MAX_VALUES else "")


def _short(value: Any) -> str:
    value = value.text if isinstance(value, Opaque) else value
    return f"{value:.6g}" if isinstance(value, float) else f"{value!s:.60}"


def why_never_compared(scheduler: Scheduler, trials: Iterable[Trial]) -> str:
    """Return a message if no trial reached the scheduler's first comparison, else "".

    It is also empty if no trial completed.

    Args:
        scheduler: The scheduler.
        trials: All trials of the experiment.
    """
    while isinstance(wrapped := scheduler.declared_arguments.get(_WRAPPED), Scheduler):
        scheduler = wrapped
    trials = list(trials)
    comparison = _FirstComparison.of(type(scheduler), scheduler.declared_arguments)
    if comparison is None or not any(
        trial.ending is TerminationReason.COMPLETED for trial in trials
    ):
        return ""
    return comparison.shortfall_of(trials, "compared no trials: the longest one")


def why_trial_never_compared(trial: Trial, directory: Path) -> str:
    """Return a message if a trial ended before the recorded scheduler's first comparison, else "".

    Args:
        trial: The trial.
        directory: The experiment's directory.
    """
    try:
        recorded = (
            read_declaration(directory)["tune_config"]["scheduler"]
            if is_experiment(directory)
            else None
        )
        while recorded and isinstance(recorded.get(_WRAPPED), Mapping):
            recorded = recorded[_WRAPPED]
        if not recorded or recorded[_CLASS] not in schedulers.__all__:
            return ""
        kind = getattr(schedulers, recorded[_CLASS])
    except (StorageError, KeyError, TypeError):
        return ""  # another release or program wrote the declaration
    comparison = (
        _FirstComparison.of(kind, recorded)
        if isinstance(kind, type) and issubclass(kind, Scheduler)
        else None
    )
    return (
        comparison.shortfall_of([trial], "never compared this trial: it")
        if comparison and trial.is_finished
        else ""
    )


class _FirstComparison:
    """The first comparison of a scheduler: an entry of results, and the value that is required."""

    def __init__(self, kind: type[Scheduler], argument: str, first: float, time_attr: str) -> None:
        self._kind = kind
        self._argument = argument
        self._first = first
        self._time_attr = time_attr

    @classmethod
    def of(cls, kind: type[Scheduler], given: Mapping[str, Any]) -> _FirstComparison | None:
        """Return that of a scheduler with the given arguments; None if it declares none."""
        argument = kind.first_comparison
        arguments = {
            name: parameter.default
            for name, parameter in inspect.signature(kind).parameters.items()
        } | dict(given)
        first, time_attr = arguments.get(argument or ""), arguments.get("time_attr")
        if argument is None or not isinstance(first, int | float) or not isinstance(time_attr, str):
            return None
        return cls(kind, argument, first, time_attr)

    def shortfall_of(self, trials: Iterable[Trial], subject: str) -> str:
        """Return a message if none of the trials reached the first comparison, else "".

        It is also empty if no trial reported its progress.
        """
        times = [as_float(flatten(trial.last_result).get(self._time_attr, "")) for trial in trials]
        longest = max(
            (time for time in times if time is not None and math.isfinite(time)), default=None
        )
        if longest is None or longest >= self._first:
            return ""
        other = (
            ""
            if self._time_attr == TRAINING_ITERATION
            else f", or count in iterations with time_attr={TRAINING_ITERATION!r}"
        )
        return (
            f"{self._kind.__name__} {subject} came to {self._time_attr}={longest:.4g}, and its "
            f"first comparison is at {self._argument}={self._first:g}; give a smaller "
            f"{self._argument}{other}"
        )
