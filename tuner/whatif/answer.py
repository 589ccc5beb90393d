"""Answers of `what_if`: a recorded experiment compared with its replays."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from schedulers.decisions import Decision, Reason
from tuner.analysis.flat_results import value_at
from tuner.analysis.frames import to_frame
from tuner.analysis.ranking import Mode, is_number, rank
from tuner.callbacks.formatting import duration, printable, show
from tuner.callbacks.tables import text_table
from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Status, TerminationReason, Trial

from .recording import RecordedTrial
from .replay import ReplayedTrial, RunTotals, TimedValue, last_of, results_until

if TYPE_CHECKING:
    import pandas as pd

    from .trade_off import TradeOff

_MINUTE_S = 60.0


def span(seconds: float) -> str:
    """Return a time span, short ones to the millisecond.

    Example:
        >>> span(7.3), span(0.0123), span(-101.0)
        ('7.3s', '0.012s', '-1m41s')
    """
    if abs(seconds) < _MINUTE_S:
        return f"{round(seconds, 2 if abs(seconds) >= 1 else 3) or 0.0:g}s"
    return ("-" if seconds < 0 else "") + duration(abs(seconds))


def percent(share: float) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.614)
        '61 %'
    """
    return f"{100 * share:.0f} %"


class ReplayEnding(enum.StrEnum):
    """How a trial of a replay ended."""

    COMPLETED = "completed"
    """It trained to its end, or as long as the scheduler lets any trial train."""
    STOPPED = "stopped early"
    """The scheduler ended it before that."""
    FAILED = "failed"
    """It failed where the recorded trial failed, or because it could not be paused."""
    RAN_OUT = "ran out"
    """It would have trained further, but its recorded curve ends here."""

    @property
    def word(self) -> str:
        """The ending as one word, for columns and files: ``"stopped_early"``."""
        return self.value.replace(" ", "_")


@final
@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """One trial, as recorded and as replayed.

    Attributes:
        trial_id: The trial.
        ending: How it ended in the replay.
        reason: The scheduler's decision that ended it in the replay, with its numbers; None if no
            decision did.
        recorded_iterations: ``training_iteration`` of its last recorded result, 0 without one.
        iterations: The largest ``training_iteration`` in the replay.
        recorded_last: The metric's last recorded value, by which trials are compared; None without
            a value, or if it is not finite.
        last: The last value that it reported in the replay; None as above.
        recorded_best: The best finite value recorded at any iteration; None without one.
        best: The best value that it reported in the replay at any iteration; None without one.
        recorded_worker_s: How long it occupies a worker, in seconds, if it runs through its whole
            recorded curve without a pause.
        worker_s: How long it occupied a worker in the replay, in seconds.
        num_pauses: How often it was paused.
        num_resumes: How often it was resumed after a pause; fewer than `num_pauses` if it was
            stopped while it was paused.
        is_cut: Whether the recorded curve ends before the trial would have: a scheduler stopped it,
            or the experiment was interrupted.
        is_feasible: Whether the trial, as recorded, keeps all constraints of the experiment.
    """

    trial_id: str
    ending: ReplayEnding
    reason: Reason | None
    recorded_iterations: int
    iterations: int
    recorded_last: float | None
    last: float | None
    recorded_best: float | None
    best: float | None
    recorded_worker_s: float
    worker_s: float
    num_pauses: int
    num_resumes: int
    is_cut: bool
    is_feasible: bool = True

    @property
    def fate(self) -> ReplayEnding:
        """Former name of `ending`, which `as_dict` and data frames still use."""
        return self.ending

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values; the reason as ``rule`` and ``numbers``."""
        fields = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("ending", "reason")
        }
        return {
            **fields,
            "fate": self.ending.word,
            "rule": self.reason and self.reason.rule,
            "numbers": dict(self.reason.numbers) if self.reason else {},
        }


def outcome_of(
    recorded: RecordedTrial, trial: Trial, replayed: ReplayedTrial, metric: str, mode: Mode
) -> TrialOutcome:
    """Return a trial as recorded and as replayed.

    Args:
        recorded: The recorded trial.
        trial: The trial at the end of the replay.
        replayed: The counts of the replay.
        metric: The metric that measures quality, flattened.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
    """
    results = [point.result for point in recorded.curve.points]
    replayed_results = [*results_until(recorded, replayed.last_iteration)]
    return TrialOutcome(
        trial_id=recorded.trial_id,
        ending=_ending_of(recorded, trial),
        reason=trial.reason,
        recorded_iterations=results[-1][TRAINING_ITERATION] if results else 0,
        iterations=replayed.last_iteration,
        recorded_last=last_of(results, metric),
        last=last_of(replayed_results, metric),
        recorded_best=best_of(results, metric, mode),
        best=best_of(replayed_results, metric, mode),
        recorded_worker_s=length_s(recorded),
        worker_s=replayed.worker_s,
        num_pauses=replayed.num_pauses,
        num_resumes=replayed.num_resumes,
        is_cut=recorded.is_cut,
        is_feasible=recorded.is_feasible,
    )


def best_of(results: Iterable[Mapping[str, Any]], metric: str, mode: Mode) -> float | None:
    """Return the best finite value of a metric, None without one."""
    values = (
        value
        for result in results
        if is_number(value := value_at(result, metric)) and math.isfinite(value)
    )
    return max(values, key=lambda value: rank(value, mode), default=None)


def length_s(recorded: RecordedTrial) -> float:
    """Return how long a worker takes to run a trial's whole recorded curve, in seconds."""
    curve = recorded.curve
    return (
        0.0
        if recorded.refusal
        else curve.start_s + math.fsum(point.took_s for point in curve.points) + curve.exit_s
    )


def _ending_of(recorded: RecordedTrial, replayed: Trial) -> ReplayEnding:
    if replayed.status is Status.ERROR:
        return ReplayEnding.FAILED
    if replayed.ending is TerminationReason.STOPPED_EARLY:
        return ReplayEnding.STOPPED
    # With a reason, a decision ended the trial where its cut curve happens to end.
    has_run_out = recorded.is_cut and replayed.reason is None
    return ReplayEnding.RAN_OUT if has_run_out else ReplayEnding.COMPLETED


@final
@dataclass(frozen=True, slots=True)
class WhatIf:
    """A recorded experiment, replayed under another scheduler.

    Times are compared on the virtual clock: `in_full` and `replayed` use the same slots and the
    same durations of starts and stops, so they differ by the scheduler alone. `drift` is how far
    that clock deviates from the real running time.

    Recorded curves may be cut short by a scheduler or an interruption; `num_cut` counts them and
    `num_run_out` those that the replay used up. If none ran out, the scheduler saw everything it
    would have seen, so time and quality are exact; unknown is only whether a full training would
    have found something better. If some ran out, the scheduler would have trained further, so
    `replayed` is a lower bound of the time it takes and of the quality it finds.

    Attributes:
        experiment: Directory of the recorded experiment.
        scheduler: The call that constructs the other scheduler.
        metric: The metric that measures quality, flattened.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        num_slots: How many trials run at once, on the virtual clock.
        recorded: Totals of the experiment as it really ran, on its own slots; None without a
            journal.
        in_full: Totals if every trial runs through its whole recorded curve.
        replayed: Totals under the other scheduler.
        trials: Each trial, in the order of creation.
        decisions: Decisions of the scheduler and of the recorded stop criterion about trials, in
            order, each with its reason.
        supposes_saves: Whether the scheduler pauses trials that saved nothing when they were
            recorded, so that a real run would refuse.
        drift: By how much `in_full` differs from `recorded` in running time, as a share of it:
            -0.05 for 5 % less. None if the slots differ, or the recorded time is unknown.
        caveats: Why the answer may be inexact, one sentence each.
        remarks: Messages of the scheduler.
        state: The scheduler's `debug_string` at the end.
        trade_off: What is left of the Pareto front, where the experiment optimised several metrics;
            else None.
    """

    experiment: str
    scheduler: str
    metric: str
    mode: Mode
    num_slots: int
    recorded: RunTotals | None
    in_full: RunTotals
    replayed: RunTotals
    trials: Sequence[TrialOutcome]
    decisions: Sequence[Decision]
    supposes_saves: bool
    drift: float | None
    caveats: Sequence[str]
    remarks: Sequence[str]
    state: str
    trade_off: TradeOff | None = None

    @property
    def saved_s(self) -> float:
        """Running time saved, in seconds; negative if the scheduler takes longer."""
        return self.in_full.wall_clock_s - self.replayed.wall_clock_s

    @property
    def saved_share(self) -> float:
        """Running time saved, as a share of that in full."""
        return self.saved_s / self.in_full.wall_clock_s if self.in_full.wall_clock_s else 0.0

    @property
    def saved_worker_s(self) -> float:
        """Worker time saved, summed over all trials, in seconds."""
        return self.in_full.worker_s - self.replayed.worker_s

    @property
    def regret(self) -> float | None:
        """Quality lost: how much better the best recorded trial is than the trial chosen here.

        Their last values are compared, in the metric's units and independent of the mode. It is
        negative if the chosen trial is better, because trials were stopped before they got worse.
        None if no trial has a finite last value.
        """
        found, best = self.replayed.best_value, self.in_full.best_value
        if found is None or best is None:
            return None
        lost = best - found if self.mode == "max" else found - best
        return lost or 0.0  # turns -0.0 into 0.0, which is printed without a sign

    @property
    def chosen(self) -> TrialOutcome | None:
        """The trial with the best last value in the replay; None without a finite value."""
        return next(
            (trial for trial in self.trials if trial.trial_id == self.replayed.best_trial_id), None
        )

    @property
    def best_recorded(self) -> TrialOutcome | None:
        """The trial with the best recorded last value, which `ResultGrid.get_best_result` returns.

        The first of equals; None without one.
        """
        scored = [
            (trial.recorded_last, trial)
            for trial in self.trials
            if trial.recorded_last is not None and trial.is_feasible
        ]
        return max(scored, key=lambda pair: rank(pair[0], self.mode))[1] if scored else None

    @property
    def chosen_rank(self) -> int | None:
        """Rank of the chosen trial by last recorded values of feasible ones; ties share a rank.

        1 is the best. None if no trial is chosen, or its last recorded value is not finite.
        """
        chosen = self.chosen
        if chosen is None or chosen.recorded_last is None:
            return None
        own = rank(chosen.recorded_last, self.mode)
        return 1 + sum(
            trial.recorded_last is not None and rank(trial.recorded_last, self.mode) > own
            for trial in self.trials
            if trial.is_feasible
        )

    @property
    def num_by_ending(self) -> Mapping[ReplayEnding, int]:
        """Number of trials by how they ended."""
        counted = Counter(trial.ending for trial in self.trials)
        return {ending: counted[ending] for ending in ReplayEnding}

    @property
    def num_by_fate(self) -> Mapping[ReplayEnding, int]:
        """Former name of `num_by_ending`, which `as_dict` still uses."""
        return self.num_by_ending

    @property
    def num_pauses(self) -> int:
        """How often a trial was paused."""
        return sum(trial.num_pauses for trial in self.trials)

    @property
    def num_resumes(self) -> int:
        """How often a trial was resumed after a pause, e.g. since it was promoted."""
        return sum(trial.num_resumes for trial in self.trials)

    @property
    def num_cut(self) -> int:
        """How many recorded curves were cut short."""
        return sum(trial.is_cut for trial in self.trials)

    @property
    def num_run_out(self) -> int:
        """How many trials would have trained longer than they were recorded."""
        return self.num_by_ending[ReplayEnding.RAN_OUT]

    @property
    def is_bound(self) -> bool:
        """Whether time and quality are lower bounds, since recorded curves were too short."""
        return self.num_run_out > 0

    def dataframe(self) -> pd.DataFrame:
        """Return a row for every trial, in the order of creation.

        Columns are those of `TrialOutcome.as_dict` without ``numbers``, and ``reason``, the
        decision with its numbers as text.
        """
        rows = [
            {
                **{name: value for name, value in trial.as_dict().items() if name != "numbers"},
                "reason": trial.reason and str(trial.reason),
            }
            for trial in self.trials
        ]
        return to_frame(rows)

    def progress_dataframe(self) -> pd.DataFrame:
        """Return the best value so far over time, as a table of improvements.

        Returns:
            Columns ``run`` (``"recorded"``, ``"in full"`` or ``"replayed"``), ``time_s``, ``value``
            and ``trial_id``, in that order of runs and ascending in time.
        """
        runs = {"recorded": self.recorded, "in full": self.in_full, "replayed": self.replayed}
        rows = [
            {"run": run, **_fields_of(point)}
            for run, totals in runs.items()
            if totals
            for point in totals.progress
        ]
        return to_frame(rows, ["run", "time_s", "value", "trial_id"])

    def lines(self) -> list[str]:
        """Return the answer as text for a terminal, line by line."""
        return [
            f"What if {self.scheduler} had run {printable(self.experiment)}?",
            (
                f"{len(self.trials)} trials, {self.num_slots} at once, {self.metric} to be "
                f"{self.mode}imised"
            ),
            "",
            *_table(self),
            "",
            *_conclusions(self),
            *(f"note: {caveat}" for caveat in self.caveats),
        ]

    def __str__(self) -> str:
        """Return `lines` as one text."""
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as strict JSON values; None for what is unknown.

        Names are those of the attributes and properties. Of the decisions, only those that ended
        trials are included, each with its trial.
        """
        chosen, best = self.chosen, self.best_recorded
        fields = {
            "experiment": self.experiment,
            "scheduler": self.scheduler,
            "metric": self.metric,
            "mode": self.mode,
            "num_slots": self.num_slots,
            "recorded": self.recorded and _totals_fields(self.recorded),
            "in_full": _totals_fields(self.in_full),
            "replayed": _totals_fields(self.replayed),
            "saved_s": self.saved_s,
            "saved_share": self.saved_share,
            "saved_worker_s": self.saved_worker_s,
            "regret": self.regret,
            "chosen_rank": self.chosen_rank,
            "chosen": chosen and chosen.trial_id,
            "best_recorded": best and best.trial_id,
            "num_by_fate": {ending.word: count for ending, count in self.num_by_ending.items()},
            "num_pauses": self.num_pauses,
            "num_resumes": self.num_resumes,
            "num_cut": self.num_cut,
            "num_run_out": self.num_run_out,
            "is_bound": self.is_bound,
            "supposes_saves": self.supposes_saves,
            "drift": self.drift,
            "caveats": self.caveats,
            "remarks": self.remarks,
            "state": self.state,
            **({"trade_off": self.trade_off.as_dict()} if self.trade_off else {}),
            "trials": [trial.as_dict() for trial in self.trials],
        }
        return {name: _strict(value) for name, value in fields.items()}


def _totals_fields(totals: RunTotals) -> dict[str, Any]:
    names = (
        "wall_clock_s",
        "worker_s",
        "num_iterations",
        "best_value",
        "best_trial_id",
        "best_at_any_iteration",
    )
    return {
        **{name: getattr(totals, name) for name in names},
        "progress": [_fields_of(point) for point in totals.progress],
    }


def _fields_of(point: TimedValue) -> dict[str, Any]:
    return {
        "time_s": point.time_s,
        "value": point.value,
        "trial_id": point.trial_id,
    }


def _strict(value: Any) -> Any:
    """Return the value with tuples as lists, and NaN and infinities as text."""
    match value:
        case dict():
            return {key: _strict(item) for key, item in value.items()}
        case list() | tuple():
            return [_strict(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def _table(answer: WhatIf) -> Sequence[str]:
    columns = [
        ("as it ran", answer.recorded),
        ("in full", answer.in_full),
        ("replayed", answer.replayed),
    ]
    known = [(name, totals) for name, totals in columns if totals is not None]
    rows = [
        ["", *(name for name, _ in known), "saved"],
        [
            "running time",
            *(span(totals.wall_clock_s) for _, totals in known),
            f"{span(answer.saved_s)} ({percent(answer.saved_share)})",
        ],
        [
            "time of workers",
            *(span(totals.worker_s) for _, totals in known),
            _saved_worker(answer),
        ],
        [
            "iterations",
            *(str(totals.num_iterations) for _, totals in known),
            _saved_iterations(answer),
        ],
        ["best trial", *(_best_id(totals) for _, totals in known), ""],
        [f"its last {answer.metric}", *(show(totals.best_value) for _, totals in known), ""],
        [
            "best at any iteration",
            *(show(totals.best_at_any_iteration) for _, totals in known),
            "",
        ],
    ]
    return [f"  {line}" for line in text_table(rows, align_right=True)]


def _saved_worker(answer: WhatIf) -> str:
    share = answer.saved_worker_s / answer.in_full.worker_s if answer.in_full.worker_s else 0.0
    return f"{span(answer.saved_worker_s)} ({percent(share)})"


def _saved_iterations(answer: WhatIf) -> str:
    total = answer.in_full.num_iterations
    saved = total - answer.replayed.num_iterations
    return f"{saved} ({percent(saved / total if total else 0.0)})"


def _best_id(totals: RunTotals) -> str:
    return totals.best_trial_id or "-"


def _conclusions(answer: WhatIf) -> Iterator[str]:
    if answer.trade_off:
        yield answer.trade_off.sentence
    yield _quality(answer)
    best = answer.best_recorded
    if best is not None and best.ending is ReplayEnding.STOPPED:
        where = f"iteration {best.iterations} of {best.recorded_iterations}"
        yield f"The best recorded trial, {best.trial_id}, is stopped at {where}: {best.reason}"
    counts = [f"{count} {ending}" for ending, count in answer.num_by_ending.items() if count]
    paused = (
        f"; {answer.num_pauses} pauses, {answer.num_resumes} of them resumed"
        if answer.num_pauses
        else ""
    )
    yield f"Trials: {', '.join(counts)}{paused}"


def _quality(answer: WhatIf) -> str:
    chosen, regret = answer.chosen, answer.regret
    if chosen is None or regret is None:
        if answer.trials and not any(outcome.is_feasible for outcome in answer.trials):
            return "Nothing is found: no trial is feasible"
        return f"Nothing is found: no trial has a finite last {answer.metric}"
    ranked = (
        f"rank {answer.chosen_rank} of {len(answer.trials)} as recorded"
        if answer.chosen_rank
        else "whose last value was not finite"
    )
    if regret == 0:
        return (
            f"No quality is lost: the trial chosen is {chosen.trial_id}, whose last "
            f"{answer.metric} is the best recorded one"
        )
    if regret < 0:
        better = (
            f"its last {answer.metric} there is better by {show(-regret)} than the best "
            f"recorded one"
        )
        return (
            f"No quality is lost: the trial chosen is {chosen.trial_id}, {ranked}; it is "
            f"stopped earlier, and {better}"
        )
    return (
        f"Quality lost: {show(regret)} of {answer.metric}; the trial chosen is "
        f"{chosen.trial_id}, {ranked}"
    )


@final
@dataclass(frozen=True, slots=True)
class WhatIfComparison(Mapping[str, WhatIf]):
    """Answers for several schedulers on one recorded experiment, by name.

    Attributes:
        answers: The answers, in the order of the schedulers; at least one.
    """

    answers: Mapping[str, WhatIf]

    def __getitem__(self, name: str) -> WhatIf:
        return self.answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def dataframe(self) -> pd.DataFrame:
        """Return a table with a row for every scheduler, in their order.

        Returns:
            Columns: ``name``, ``scheduler``, ``wall_clock_s`` (running time in seconds),
            ``saved_s``, ``saved_share``, ``worker_s``, ``num_iterations``, ``best_value`` (last
            value of the chosen trial), ``regret`` (quality lost, in the metric's units),
            ``chosen``, ``chosen_rank``, ``num_stopped``, ``num_pauses``, ``num_resumes``,
            ``num_run_out`` and ``is_bound``; see `WhatIf`.
        """
        return to_frame([_row(name, answer) for name, answer in self.answers.items()])

    def lines(self) -> list[str]:
        """Return a table for a terminal, line by line, with the caveats of all answers."""
        first = next(iter(self.answers.values()))
        head = [
            f"What if another scheduler had run {printable(first.experiment)}?",
            (
                f"{len(first.trials)} trials, {first.num_slots} at once, {first.metric} to be "
                f"{first.mode}imised"
            ),
        ]
        header = [
            "",
            "running time",
            "saved",
            "iterations",
            f"last {first.metric}",
            "lost",
            "chosen",
            "rank",
            "stopped",
            "pauses",
        ]
        full = first.in_full
        rows = [
            header,
            [
                "in full",
                span(full.wall_clock_s),
                "-",
                str(full.num_iterations),
                show(full.best_value),
                "-",
                "-",
                "-",
                "-",
                "-",
            ],
        ]
        rows += [_cells(name, answer) for name, answer in self.answers.items()]
        notes = dict.fromkeys(
            caveat for answer in self.answers.values() for caveat in answer.caveats
        )
        table = [f"  {line}" for line in text_table(rows, align_right=True)]
        return [*head, "", *table, "", *(f"note: {caveat}" for caveat in notes)]

    def __str__(self) -> str:
        """Return `lines` as one text."""
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, Any]:
        """Return the answers by name, as strict JSON values; see `WhatIf.as_dict`."""
        return {name: answer.as_dict() for name, answer in self.answers.items()}


def _row(name: str, answer: WhatIf) -> dict[str, Any]:
    return {
        "name": name,
        "scheduler": answer.scheduler,
        "wall_clock_s": answer.replayed.wall_clock_s,
        "saved_s": answer.saved_s,
        "saved_share": answer.saved_share,
        "worker_s": answer.replayed.worker_s,
        "num_iterations": answer.replayed.num_iterations,
        "best_value": answer.replayed.best_value,
        "regret": answer.regret,
        "chosen": answer.replayed.best_trial_id,
        "chosen_rank": answer.chosen_rank,
        "num_stopped": answer.num_by_ending[ReplayEnding.STOPPED],
        "num_pauses": answer.num_pauses,
        "num_resumes": answer.num_resumes,
        "num_run_out": answer.num_run_out,
        "is_bound": answer.is_bound,
    }


def _cells(name: str, answer: WhatIf) -> list[str]:
    least = "at least " if answer.is_bound else ""
    return [
        name,
        f"{least}{span(answer.replayed.wall_clock_s)}",
        percent(answer.saved_share),
        str(answer.replayed.num_iterations),
        show(answer.replayed.best_value),
        show(answer.regret),
        show(answer.replayed.best_trial_id),
        show(answer.chosen_rank),
        str(answer.num_by_ending[ReplayEnding.STOPPED]),
        str(answer.num_pauses),
    ]
