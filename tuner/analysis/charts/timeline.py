"""Timeline of an experiment from its journal: attempts, decisions, improvements, reports."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from schedulers.decisions import Number
from tuner.analysis.flat_results import value_at
from tuner.analysis.ranking import Mode, is_number, rank
from tuner.core.result import TRAINING_ITERATION

Body = Mapping[str, Any]
_SAVE: Final = "save"


@dataclass(frozen=True, slots=True)
class TimedAttempt:
    """One run of a trial on a slot.

    Attributes:
        trial_id: The trial.
        attempt: Number of the attempt, from 1.
        start_s: When its worker was ready, in seconds of experiment time.
        end_s: When its worker exited; if it did not, the time of the last record.
        outcome: How the worker ended: ``"completed"``, ``"stopped"``, ``"failed"``, ``"unsaved"``,
            ``"killed"`` or ``"lost"``; ``""`` if it did not.
        last_decision: Latest decision about the trial, e.g. ``"pause"``; ``""`` for none.
        is_complete: Whether that decision ended a full training.
    """

    trial_id: str
    attempt: int
    start_s: float
    end_s: float
    outcome: str = ""
    last_decision: str = ""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class TimedDecision:
    """A decision about a trial, with its time.

    Attributes:
        trial_id: The trial.
        time_s: Time of the decision, in seconds of experiment time.
        iteration: Last ``training_iteration`` that the trial had reported, 0 for none.
        kind: ``"stop"``, ``"pause"``, ``"resume"``, ``"exploit"`` or ``"resize"``.
        rule: Its rule, a dotted name.
        numbers: The numbers that were compared, including NaN and infinities as floats.
    """

    trial_id: str
    time_s: float
    iteration: int
    kind: str
    rule: str
    numbers: Mapping[str, Number | str]

    def number(self, *names: str) -> float | None:
        """Return the first of these numbers that exists, None without one."""
        return next(
            (float(value) for name in names if is_number(value := self.numbers.get(name))), None
        )


@dataclass(frozen=True, slots=True)
class Improvement:
    """A result that was better than all earlier results of any trial.

    Attributes:
        time_s: When it was reported, in seconds of experiment time.
        trial_id: The trial that reported it.
        training_iteration: The iteration at which it was reported.
        value: The metric's value.
    """

    time_s: float
    trial_id: str
    training_iteration: int
    value: float


@dataclass(frozen=True, slots=True)
class Reports:
    """Results of one trial, all attempts in order, as arrays since there may be millions.

    Attributes:
        times_s: Times of the results, in seconds of experiment time.
        iterations: Their ``training_iteration``.
        values: Their values of the metric, NaN if it is missing.
    """

    times_s: array[float] = field(default_factory=lambda: array("d"))
    iterations: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def at(self, level: float) -> tuple[float, float] | None:
        """Return time and value of the first result that reached a level; None if none did."""
        return next(
            (
                (self.times_s[i], self.values[i])
                for i, reached in enumerate(self.iterations)
                if reached >= level
            ),
            None,
        )


@final
class Timeline:
    """Events of an experiment, in seconds of experiment time, which continues over restarts.

    Args:
        records: The journal, in its order.
        trial_ids: The trials to include.
        metric: The metric, flattened; None for none.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None for none.
        infeasible: The trials of which no result is an improvement.

    Attributes:
        attempts: Each run of each trial, in the order of their ends.
        decisions: Decisions in order, without requests to save.
        improvements: The results that were better than all before them.
        reports: What each trial reported.
        end_s: Time of the last record.
    """

    def __init__(
        self,
        records: Iterable[Body],
        trial_ids: Collection[str],
        metric: str | None = None,
        mode: Mode | None = None,
        *,
        infeasible: Collection[str] = (),
    ) -> None:
        self.attempts: list[TimedAttempt] = []
        self.decisions: list[TimedDecision] = []
        self.improvements: list[Improvement] = []
        self.reports: dict[str, Reports] = {}
        self.end_s = 0.0
        self._trial_ids = frozenset(trial_ids)
        self._metric = metric
        self._mode = mode
        self._infeasible = frozenset(infeasible)
        self._started: dict[str, tuple[int, float]] = {}
        self._latest_decisions: dict[str, tuple[str, bool]] = {}
        for record in records:
            self._add_record(record)
        for trial_id in list(self._started):
            self._end_attempt(trial_id, self.end_s, "")

    def _add_record(self, record: Body) -> None:
        if record["k"] == "restarted":
            # The driver died with these workers; their attempts end at its last record.
            for trial_id in list(self._started):
                self._end_attempt(trial_id, self.end_s, "")
        self.end_s = record["t"]
        if record.get("id") in self._trial_ids:
            self._add_trial_record(record, record["id"])
        for decision in record.get("d", ()):
            if decision["k"] != _SAVE and decision.get("id") in self._trial_ids:
                self._add_decision(decision)

    def _add_trial_record(self, record: Body, trial_id: str) -> None:
        match record["k"]:
            case "result":
                self._add_result(trial_id, record["m"])
            case "started":
                # An attempt without a recorded exit ends where the next one begins.
                self._end_attempt(trial_id, self.end_s, "stopped")
                self._started[trial_id] = record["a"], self.end_s
                self._latest_decisions.pop(trial_id, None)
            case "pause_requested" | "trial_stop_requested":  # by the user
                self._latest_decisions[trial_id] = (
                    "pause" if record["k"] == "pause_requested" else "stop",
                    False,
                )
            case "exited":
                self._end_attempt(trial_id, self.end_s, record["outcome"])
            case _:
                pass

    def _end_attempt(self, trial_id: str, end_s: float, outcome: str) -> None:
        if trial_id in self._started:
            number, start_s = self._started.pop(trial_id)
            self.attempts.append(
                TimedAttempt(
                    trial_id,
                    number,
                    start_s,
                    end_s,
                    outcome,
                    *self._latest_decisions.get(trial_id, ("", False)),
                )
            )

    def _add_result(self, trial_id: str, metrics: Body) -> None:
        reports = self.reports.setdefault(trial_id, Reports())
        iteration = metrics.get(TRAINING_ITERATION, 0)
        value = value_at(metrics, self._metric) if self._metric else None
        reports.times_s.append(self.end_s)
        reports.iterations.append(iteration)
        reports.values.append(value if is_number(value) else math.nan)
        if (
            self._mode
            and trial_id not in self._infeasible
            and is_number(value)
            and math.isfinite(value)
            and self._is_better(value, self._mode)
        ):
            self.improvements.append(Improvement(self.end_s, trial_id, iteration, float(value)))

    def _is_better(self, value: float, mode: Mode) -> bool:
        return not self.improvements or rank(value, mode) > rank(self.improvements[-1].value, mode)

    def _add_decision(self, decision: Body) -> None:
        trial_id = decision["id"]
        # A stop ends the attempt: later decisions, before the worker has exited, change nothing.
        if (
            decision["k"] != "resume"
            and self._latest_decisions.get(trial_id, ("", False))[0] != "stop"
        ):
            self._latest_decisions[trial_id] = decision["k"], bool(decision.get("is_complete"))
        iterations = self.reports[trial_id].iterations if trial_id in self.reports else ()
        numbers = {name: _as_number(value) for name, value in decision["n"].items()}
        self.decisions.append(
            TimedDecision(
                trial_id,
                self.end_s,
                int(iterations[-1]) if iterations else 0,
                decision["k"],
                decision["rule"],
                numbers,
            )
        )


def _as_number(value: Number | str) -> Number | str:
    """Return the text of a number that JSON lacks, e.g. ``"NaN"``, as a float."""
    return (
        float(value)
        if isinstance(value, str)
        and value.lower() in ("nan", "inf", "-inf", "infinity", "-infinity")
        else value
    )
