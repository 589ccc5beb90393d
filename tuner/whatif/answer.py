"""The answer to a what-if: a recorded experiment beside what another scheduler would have made of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from schedulers.decisions import Decision
from tuner.analysis.frames import to_frame
from tuner.analysis.ranking import Mode, rank
from tuner.callbacks.formatting import printable, show

from .outcome import Fate, TrialOutcome
from .run_totals import Account, Moment
from .sentences import aligned, percent, span

if TYPE_CHECKING:
    import pandas as pd


@final
@dataclass(frozen=True, slots=True)
class WhatIf:
    """What another scheduler would have made of a recorded experiment.

    Times are compared on the virtual clock: `in_full` and `replayed` share its slots and its idea of what starts and stops take, and so
    differ by nothing but the scheduler. How far that clock is to be believed, `drift` tells, by what the experiment really took.

    Where curves are cut, since a scheduler or an interruption ended them when they were recorded, see `num_cut` and `num_run_out`.
    None of them ran out: all that the scheduler would have seen was recorded, time and quality are what they are, and only whether a full
    training would have found something better still is not known. Some ran out: the scheduler would have trained on, so `replayed`
    tells the least that it takes, and the least that it finds.

    Attributes:
        experiment: Directory of the recorded experiment.
        scheduler: The other scheduler, as it was constructed.
        metric: What counts as quality, flattened.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        num_slots: How many trials run at once, on the virtual clock.
        recorded: What the experiment really took and found, on the slots that it had; None where it has no journal.
        in_full: What it takes where every trial runs through all that was recorded of it.
        replayed: What it takes under the other scheduler.
        trials: Each trial, in the order of creation.
        decisions: What the scheduler, and the recorded stop criterion, decided about trials, in order, each with its reason.
        supposes_saves: Whether the scheduler pauses trials that saved nothing when they were recorded, so that a real run would refuse.
        drift: By how much `in_full` differs from `recorded` in running time, as a share of it: -0.05 for 5 % less. None where that was
            not on the same slots, or is not known.
        caveats: What keeps the answer from being exact, sentence by sentence.
        remarks: What the scheduler had to say.
        state: What it told of itself in the end.
    """

    experiment: str
    scheduler: str
    metric: str
    mode: Mode
    num_slots: int
    recorded: Account | None
    in_full: Account
    replayed: Account
    trials: Sequence[TrialOutcome]
    decisions: Sequence[Decision]
    supposes_saves: bool
    drift: float | None
    caveats: Sequence[str]
    remarks: Sequence[str]
    state: str

    @property
    def saved_s(self) -> float:
        """Running time saved, in seconds; negative where the scheduler takes longer."""
        return self.in_full.wall_clock_s - self.replayed.wall_clock_s

    @property
    def saved_share(self) -> float:
        """Running time saved, as a share of what it takes in full."""
        return self.saved_s / self.in_full.wall_clock_s if self.in_full.wall_clock_s else 0.0

    @property
    def saved_worker_s(self) -> float:
        """Time of workers saved, all trials together, in seconds."""
        return self.in_full.worker_s - self.replayed.worker_s

    @property
    def regret(self) -> float | None:
        """Quality lost: by how much the last value of the best recorded trial is better than that of the trial chosen here.

        In the metric's units, whatever the mode. Negative where the trial chosen is better, since it, or what would have beaten it, was
        stopped before it got worse. None where no trial has a finite last value.
        """
        found, there_was = self.replayed.best_value, self.in_full.best_value
        if found is None or there_was is None:
            return None
        lost = there_was - found if self.mode == "max" else found - there_was
        return lost or 0.0  # no -0.0

    @property
    def chosen(self) -> TrialOutcome | None:
        """The trial that would have been chosen: that with the best last value in the replay; None where none has a finite one."""
        return next(
            (trial for trial in self.trials if trial.trial_id == self.replayed.best_trial_id), None
        )

    @property
    def best_recorded(self) -> TrialOutcome | None:
        """The trial with the best last value as recorded, and what becomes of it; of equal ones the first. None where there is none.

        It is the one that `ResultGrid.get_best_result` returns.
        """
        scored = [
            (trial.recorded_last, trial) for trial in self.trials if trial.recorded_last is not None
        ]
        return max(scored, key=lambda pair: rank(pair[0], self.mode))[1] if scored else None

    @property
    def chosen_rank(self) -> int | None:
        """Rank of the chosen trial among all by their last recorded values, 1 for the best; equal ones share the better rank.

        None where no trial is chosen, or its last recorded value is not finite.
        """
        chosen = self.chosen
        if chosen is None or chosen.recorded_last is None:
            return None
        own = rank(chosen.recorded_last, self.mode)
        return 1 + sum(
            trial.recorded_last is not None and rank(trial.recorded_last, self.mode) > own
            for trial in self.trials
        )

    @property
    def num_by_fate(self) -> Mapping[Fate, int]:
        """How many trials ended how."""
        counted = Counter(trial.fate for trial in self.trials)
        return {fate: counted[fate] for fate in Fate}

    @property
    def num_pauses(self) -> int:
        """How often a trial was paused."""
        return sum(trial.num_pauses for trial in self.trials)

    @property
    def num_resumes(self) -> int:
        """How often a trial went on after a pause: was promoted, where the scheduler promotes."""
        return sum(trial.num_resumes for trial in self.trials)

    @property
    def num_cut(self) -> int:
        """How many recorded curves end before their trials' own end."""
        return sum(trial.is_cut for trial in self.trials)

    @property
    def num_run_out(self) -> int:
        """How many trials would have trained on beyond what was recorded of them."""
        return self.num_by_fate[Fate.RAN_OUT]

    @property
    def is_bound(self) -> bool:
        """Whether time and quality are only the least that they would have been, since curves ran out."""
        return self.num_run_out > 0

    def dataframe(self) -> pd.DataFrame:
        """Return a table with a row for every trial, in the order of creation; columns are those of `TrialOutcome.as_dict`.

        ``numbers`` is left out, and ``reason`` tells the decision with its numbers as text.
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
            Columns ``run`` (``"recorded"``, ``"in full"`` or ``"replayed"``), ``time_s``, ``value`` and ``trial_id``, in that order of runs
            and ascending in time.
        """
        runs = {"recorded": self.recorded, "in full": self.in_full, "replayed": self.replayed}
        rows = [
            {"run": run, **_fields_of(moment)}
            for run, account in runs.items()
            if account
            for moment in account.progress
        ]
        return to_frame(rows, ["run", "time_s", "value", "trial_id"])

    def lines(self) -> list[str]:
        """Return the answer as text for a terminal, line by line."""
        return [
            f"What if {self.scheduler} had run {printable(self.experiment)}?",
            f"{len(self.trials)} trials, {self.num_slots} at once, {self.metric} to be {self.mode}imised",
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
        """Return the answer as strict JSON values, all names as the attributes' and properties'; None for what is not known.

        Of the decisions those are in it that ended trials.
        """
        chosen, best = self.chosen, self.best_recorded
        fields = {
            **{
                name: getattr(self, name)
                for name in ("experiment", "scheduler", "metric", "mode", "num_slots")
            },
            "recorded": self.recorded and _account_fields(self.recorded),
            "in_full": _account_fields(self.in_full),
            "replayed": _account_fields(self.replayed),
            **{
                name: getattr(self, name)
                for name in ("saved_s", "saved_share", "saved_worker_s", "regret", "chosen_rank")
            },
            "chosen": chosen and chosen.trial_id,
            "best_recorded": best and best.trial_id,
            "num_by_fate": {fate.word: count for fate, count in self.num_by_fate.items()},
            **{
                name: getattr(self, name)
                for name in ("num_pauses", "num_resumes", "num_cut", "num_run_out", "is_bound")
            },
            **{
                name: getattr(self, name)
                for name in ("supposes_saves", "drift", "caveats", "remarks", "state")
            },
            "trials": [trial.as_dict() for trial in self.trials],
        }
        return {name: _strict(value) for name, value in fields.items()}


def _account_fields(account: Account) -> dict[str, Any]:
    names = (
        "wall_clock_s",
        "worker_s",
        "num_iterations",
        "best_value",
        "best_trial_id",
        "best_at_any_iteration",
    )
    return {
        **{name: getattr(account, name) for name in names},
        "progress": [_fields_of(moment) for moment in account.progress],
    }


def _fields_of(moment: Moment) -> dict[str, Any]:
    return {"time_s": moment.time_s, "value": moment.value, "trial_id": moment.trial_id}


def _strict(value: Any) -> Any:
    """Return the value with tuples as lists, and numbers that JSON has none for as their names."""
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
    known = [(name, account) for name, account in columns if account is not None]
    rows = [
        ["", *(name for name, _ in known), "saved"],
        [
            "running time",
            *(span(account.wall_clock_s) for _, account in known),
            f"{span(answer.saved_s)} ({percent(answer.saved_share)})",
        ],
        [
            "time of workers",
            *(span(account.worker_s) for _, account in known),
            _saved_worker(answer),
        ],
        [
            "iterations",
            *(str(account.num_iterations) for _, account in known),
            _saved_iterations(answer),
        ],
        ["best trial", *(_best_id(account) for _, account in known), ""],
        [f"its last {answer.metric}", *(show(account.best_value) for _, account in known), ""],
        [
            "best at any iteration",
            *(show(account.best_at_any_iteration) for _, account in known),
            "",
        ],
    ]
    return aligned(rows)


def _saved_worker(answer: WhatIf) -> str:
    share = answer.saved_worker_s / answer.in_full.worker_s if answer.in_full.worker_s else 0.0
    return f"{span(answer.saved_worker_s)} ({percent(share)})"


def _saved_iterations(answer: WhatIf) -> str:
    saved, there_were = (
        answer.in_full.num_iterations - answer.replayed.num_iterations,
        answer.in_full.num_iterations,
    )
    return f"{saved} ({percent(saved / there_were if there_were else 0.0)})"


def _best_id(account: Account) -> str:
    return account.best_trial_id or "-"


def _conclusions(answer: WhatIf) -> Iterator[str]:
    yield _quality(answer)
    best = answer.best_recorded
    if best is not None and best.fate is Fate.STOPPED:
        where = f"iteration {best.iterations} of {best.recorded_iterations}"
        yield f"The best recorded trial, {best.trial_id}, is stopped at {where}: {best.reason}"
    counts = [f"{count} {fate}" for fate, count in answer.num_by_fate.items() if count]
    paused = (
        f"; {answer.num_pauses} pauses, after {answer.num_resumes} of which the trial went on"
        if answer.num_pauses
        else ""
    )
    yield f"Trials: {', '.join(counts)}{paused}"


def _quality(answer: WhatIf) -> str:
    chosen, regret = answer.chosen, answer.regret
    if chosen is None or regret is None:
        return f"Nothing is found: no trial has a finite last {answer.metric}"
    ranked = (
        f"rank {answer.chosen_rank} of {len(answer.trials)} as recorded"
        if answer.chosen_rank
        else "whose last value was not finite"
    )
    if regret == 0:
        return f"No quality is lost: the trial chosen is {chosen.trial_id}, whose last {answer.metric} is the best recorded one"
    if regret < 0:
        better = f"its last {answer.metric} there is better by {show(-regret)} than the best recorded one"
        return f"No quality is lost: the trial chosen is {chosen.trial_id}, {ranked}; it is stopped earlier, and {better}"
    return f"Quality lost: {show(regret)} of {answer.metric}; the trial chosen is {chosen.trial_id}, {ranked}"
