"""Several what-ifs of one recording, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tuner.analysis.frames import to_frame
from tuner.callbacks.formatting import printable, show

from .answer import WhatIf
from .outcome import Fate
from .sentences import aligned, percent, span

if TYPE_CHECKING:
    import pandas as pd


@final
@dataclass(frozen=True, slots=True)
class WhatIfComparison(Mapping[str, WhatIf]):
    """What several schedulers would have made of one recorded experiment, by the names that they were given.

    Attributes:
        answers: The answers, in the order in which they were asked for; at least one.
    """

    answers: Mapping[str, WhatIf]

    def __getitem__(self, name: str) -> WhatIf:
        return self.answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def dataframe(self) -> pd.DataFrame:
        """Return a table with a row for every scheduler, in the order in which they were asked for.

        Returns:
            Columns: ``name``, ``scheduler``, ``wall_clock_s`` (running time in seconds), ``saved_s``, ``saved_share``, ``worker_s``,
            ``num_iterations``, ``best_value`` (the last value of the trial chosen), ``regret`` (quality lost, in the metric's units),
            ``chosen``, ``chosen_rank``,
            ``num_stopped``, ``num_pauses``, ``num_resumes``, ``num_run_out`` and ``is_bound``; see `WhatIf`.
        """
        return to_frame([_row(name, answer) for name, answer in self.answers.items()])

    def lines(self) -> list[str]:
        """Return a table for a terminal, line by line, with what has to be noted about all of them."""
        first = next(iter(self.answers.values()))
        head = [
            f"What if another scheduler had run {printable(first.experiment)}?",
            f"{len(first.trials)} trials, {first.num_slots} at once, {first.metric} to be {first.mode}imised",
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
        return [*head, "", *aligned(rows), "", *(f"note: {caveat}" for caveat in notes)]

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
        "num_stopped": answer.num_by_fate[Fate.STOPPED],
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
        str(answer.num_by_fate[Fate.STOPPED]),
        str(answer.num_pauses),
    ]
