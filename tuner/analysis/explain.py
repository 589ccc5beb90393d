"""Explanations of what happened to a trial, from the decisions recorded in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from schedulers.decisions import Reason
from tuner import capabilities
from tuner.core import policies
from tuner.core.events import Outcome
from tuner.core.experiment import Experiment
from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.journal.reader import read
from tuner.storage.declaration import is_experiment
from tuner.storage.strict_json import Opaque

from .node_history import NodeHistory, read_nodes
from .open_experiment import StoredExperiment, read_stored
from .shortfalls import why_trial_never_compared

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


def explain_stored(
    trial: Trial, directory: Path, metric: str | None, why_infeasible: str = ""
) -> list[str]:
    """Return what happened to a trial, from the directory of its experiment.

    Args:
        trial: The trial.
        directory: The experiment's directory, or that of a copy.
        metric: See `explain_trial`.
        why_infeasible: Which constraints it misses; empty for none.

    Raises:
        StorageError: If the journal cannot be read.
    """
    why = ""
    if trial.status is Status.ERROR and is_experiment(directory):
        why = read_stored(directory).experiment.settings.retries.why_given_up(trial)
    history = read_nodes(directory)[1] if any(trial.nodes) else None
    lines = explain_trial(trial, read(directory), metric, why, history)
    never_compared = why_trial_never_compared(trial, directory)
    infeasible = f"infeasible: {why_infeasible}" if why_infeasible else ""
    return [*lines, *filter(None, [infeasible, never_compared])]


def explain_end(stored: StoredExperiment) -> str:
    """Return how far an experiment is, and why it has ended if it has."""
    experiment = stored.experiment
    if why := why_search_ended(experiment):
        return why
    progress = stored.progress()
    of = "" if progress.num_total is None else f" of {progress.num_total}"
    done = f"{progress.num_finished}{of} trials have ended"
    return f"{done}; {_why_stopped(reason)}" if (reason := experiment.stop_reason) else done


def _why_stopped(reason: Reason) -> str:
    match reason.rule:
        case policies.TIME_BUDGET:
            return f"the time budget of {reason.numbers['budget_s']:g} s is used up"
        case policies.BUDGET:
            return f"the budget of {reason.numbers['budget']:g} {reason.numbers['unit']} is used up"
        case _:
            return f"it stopped for {reason}"


def why_search_ended(experiment: Experiment) -> str:
    """Return why no further trials are started although there could be some; empty if it is not so.

    See ``TuneConfig(stop_search=...)``.
    """
    why = experiment.suggestion_budget.why_ended
    return str(capabilities.why_search_ended(why)) if why else ""


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
