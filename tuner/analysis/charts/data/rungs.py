"""Rungs and brackets: where trials of equal age were compared, who went on and who did not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tuner.core.trial import Status, Trial

from .source import Source
from .timeline import Chronicle, Decided

Fate = Literal["went on", "stopped", "waits", "fully trained"]
"""What became of a trial at a rung."""

_PLACES = ("rung", "level")
_COMPARED = ("num_recorded", "num_compared")


@dataclass(frozen=True, slots=True)
class RungEntry:
    """A trial at a rung.

    Attributes:
        bracket: Number of the bracket, counted from 0.
        level: The rung: an amount of training in the scheduler's ``time_attr``.
        trial_id: Which trial.
        value: The metric that it was compared by, NaN where that was no number.
        fate: What became of it there.
        cutoff: The worst value that went on when it was last judged, None where nothing was decided about it there.
        rank: Its rank then, 1 for the best; None likewise.
        num_compared: Of how many; None likewise.
        rule: Why, e.g. ``"asha.rung"``; empty where nothing was decided.
        time_s: When that was decided or, where nothing was, when it reached the rung; in seconds of experiment time.
    """

    bracket: int
    level: float
    trial_id: str
    value: float
    fate: Fate
    cutoff: float | None
    rank: int | None
    num_compared: int | None
    rule: str
    time_s: float


@dataclass(slots=True)
class _Heard:
    """All that was decided in one experiment that names a rung.

    Attributes:
        brackets: In which bracket each trial is.
        levels: The levels of each bracket.
        said: What was decided about a trial at a rung, the latest last.
        tops: The amount of a full training, by bracket.
    """

    brackets: dict[str, int] = field(default_factory=dict)
    levels: dict[int, set[float]] = field(default_factory=dict)
    said: dict[tuple[str, float], list[Decided]] = field(default_factory=dict)
    tops: dict[int, float] = field(default_factory=dict)

    def hear(self, decided: Decided) -> None:
        if decided.number("bracket") is None:
            return
        bracket = int(decided.number("bracket") or 0)
        top, level = decided.number("max_t"), decided.number(*_PLACES)
        if top is not None:
            self.tops[bracket] = top
        level = top if level is None else level
        if level is None:
            return
        self.brackets[decided.trial_id] = bracket
        self.levels.setdefault(bracket, set()).add(level)
        self.said.setdefault((decided.trial_id, level), []).append(decided)


def rungs(source: Source) -> list[RungEntry]:
    """Return who stood at which rung, by bracket, level and trial; empty where no scheduler compared trials at rungs.

    What was decided is taken from the journal with its numbers. Where nothing was decided since the trial simply went on, the value is that
    of the first result at the level; if levels are counted in something else than ``training_iteration``, such a trial is left out there.
    """
    chronicle = source.chronicle
    heard = _Heard()
    for decided in chronicle.decided:
        heard.hear(decided)
    if (
        len(heard.levels) == 1
    ):  # then there is no doubt where those are about whom nothing was decided
        heard.brackets = {
            **dict.fromkeys((trial.trial_id for trial in source.trials), next(iter(heard.levels))),
            **heard.brackets,
        }
    is_by_iteration = all(_is_at_iteration(decided) for decided in chronicle.decided)
    entries = [
        entry
        for trial in source.trials
        for entry in _entries(trial, heard, chronicle, is_by_iteration=is_by_iteration)
    ]
    return sorted(entries, key=lambda entry: (entry.bracket, entry.level, entry.trial_id))


def _is_at_iteration(decided: Decided) -> bool:
    time = decided.number("time")
    return time is None or decided.number("bracket") is None or time == decided.iteration


def _entries(
    trial: Trial, heard: _Heard, chronicle: Chronicle, *, is_by_iteration: bool
) -> Iterator[RungEntry]:
    bracket = heard.brackets.get(trial.trial_id)
    if bracket is None:
        return
    reports = chronicle.reports.get(trial.trial_id)
    levels = sorted(heard.levels[bracket])
    known = {level: heard.said.get((trial.trial_id, level), []) for level in levels}
    reached = {level: reports.at(level) for level in levels} if reports and is_by_iteration else {}
    there = [level for level in levels if known[level] or reached.get(level)]
    for level in there:
        fate = _fate(
            trial,
            known[level],
            is_highest=level == there[-1],
            is_top=level == heard.tops.get(bracket),
        )
        entry = RungEntry(
            bracket, level, trial.trial_id, math.nan, fate, None, None, None, "", math.nan
        )
        yield _with_numbers(entry, known[level], reached.get(level))


def _fate(trial: Trial, said: Iterable[Decided], *, is_highest: bool, is_top: bool) -> Fate:
    if is_top:
        return "fully trained"
    kinds = [decided.kind for decided in said]
    if not is_highest or (kinds and kinds[-1] == "resume"):
        return "went on"
    if trial.status is Status.PAUSED:
        return "waits"
    return "stopped" if "stop" in kinds else "went on"


def _with_numbers(
    entry: RungEntry, said: Sequence[Decided], reached: tuple[float, float] | None
) -> RungEntry:
    """Return the entry with what was decided there, or else with what the trial reported."""
    time_s, value = reached or (math.nan, math.nan)
    if not said:
        return replace(entry, value=value, time_s=time_s)
    latest = _merged(said)
    rank, compared = (
        latest.get("rank"),
        next((latest[name] for name in _COMPARED if name in latest), None),
    )
    return replace(
        entry,
        value=latest.get("value", value),
        cutoff=latest.get("cutoff"),
        rank=None if rank is None else int(rank),
        num_compared=None if compared is None else int(compared),
        rule=said[-1].rule,
        time_s=said[-1].time_s,
    )


def _merged(said: Iterable[Decided]) -> Mapping[str, float]:
    """Return the numbers of all that was decided about one trial at one rung, later ones in the place of earlier ones."""
    return {
        name: number
        for decided in said
        for name in decided.numbers
        if (number := decided.number(name)) is not None
    }
