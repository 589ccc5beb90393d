"""How a recorded experiment would have gone if its search had ended early."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast, final

from schedulers.decisions import Reason
from searchers.searcher import Searcher, unwrapped
from tuner.analysis.open_experiment import StoredExperiment, read_stored
from tuner.analysis.ranking import Mode, check_mode, mode_for
from tuner.callbacks.formatting import printable, show
from tuner.callbacks.tables import text_table
from tuner.core.commands import (
    AttemptFailed,
    Effects,
    Notice,
    TrialEnded,
    TrialPaused,
    TrialStarted,
)
from tuner.core.events import Event
from tuner.core.pareto import Objectives, best_trials
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial
from tuner.core.trial_metrics import sign_of
from tuner.spec.argument_codec import constructed
from tuner.stopping.reached import ReachedFront
from tuner.stopping.stop_search import StopSearch
from tuner.stopping.stoppable_search import shown
from tuner.stopping.telling import why_search_ended
from tuner.stopping.watch import Goals, SearchWatch, point_of, turn_of
from tuner.storage.declaration import read_declaration

from .answer import percent, span

_Amount = TypeVar("_Amount", int, float)


@final
@dataclass(frozen=True, slots=True)
class SearchTotals:
    """What a search took and found.

    Attributes:
        num_trials: How many trials were started.
        elapsed_s: Its running time in seconds, to the end of the last of them.
        worker_s: Time that they occupied workers, in seconds.
        best_trial_id: The trial whose last value is best; None without one that counts, or with
            several metrics.
        best_value: That value. With several metrics it is the hypervolume of the front, in parts of
            that of all recorded trials.
        front: The trials on that front, best in the first metric first.
    """

    num_trials: int
    elapsed_s: float
    worker_s: float
    best_trial_id: str | None
    best_value: float | None
    front: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the totals as JSON values."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**found, "front": list(self.front)}


@final
@dataclass(frozen=True, slots=True)
class ShorterSearch:
    """A recorded experiment, and the part of it that would have been run.

    Attributes:
        experiment: Directory of the recorded experiment.
        stop_search: The criterion, as code.
        objectives: The metrics that measure quality, flattened, and for each of them ``"min"`` or
            ``"max"``, the direction in which it is optimised.
        why: Why the search would have ended, with the numbers; None if it would not.
        recorded: Totals of the experiment as it ran.
        shorter: Totals of the trials that would have been started.
    """

    experiment: str
    stop_search: str
    objectives: Objectives
    why: Reason | None
    recorded: SearchTotals
    shorter: SearchTotals

    @property
    def saved_trials(self) -> int:
        """How many trials would have been saved."""
        return self.recorded.num_trials - self.shorter.num_trials

    @property
    def saved_s(self) -> float:
        """Running time that would have been saved, in seconds."""
        return self.recorded.elapsed_s - self.shorter.elapsed_s

    @property
    def saved_worker_s(self) -> float:
        """Time of workers that would have been saved, in seconds."""
        return self.recorded.worker_s - self.shorter.worker_s

    @property
    def regret(self) -> float | None:
        """Quality lost, at least 0 and in the unit of `SearchTotals.best_value`; None without."""
        best, found = self.recorded.best_value, self.shorter.best_value
        return None if best is None or found is None else abs(best - found)

    def lines(self) -> list[str]:
        """Return the answer as text for a terminal, line by line."""
        aims = " and ".join(f"{metric} to be {mode}imised" for metric, mode in self.objectives)
        return [
            f"What if stop_search={self.stop_search} had ended {printable(self.experiment)}?",
            f"{self.recorded.num_trials} trials, {aims}",
            "",
            *(f"  {line}" for line in text_table(list(self._rows()), align_right=True)),
            "",
            f"It would have {why_search_ended(self.why)}"
            if self.why
            else "It would not have ended earlier.",
            f"Quality lost: {self._shown(self.regret)} of {self._quality}",
        ]

    def _rows(self) -> Iterator[Sequence[str]]:
        then, now = self.recorded, self.shorter
        yield ["", "as it ran", "shorter", "saved"]
        yield ["trials", *_compared(then.num_trials, now.num_trials, str)]
        yield ["running time", *_compared(then.elapsed_s, now.elapsed_s, span)]
        yield ["time of workers", *_compared(then.worker_s, now.worker_s, span)]
        if len(self.objectives) == 1:
            yield ["best trial", then.best_trial_id or "-", now.best_trial_id or "-", ""]
            name = f"its last {self._quality}"
        else:
            yield ["trials on the front", str(len(then.front)), str(len(now.front)), ""]
            name = self._quality
        yield [name, self._shown(then.best_value), self._shown(now.best_value), ""]

    @property
    def _quality(self) -> str:
        return self.objectives[0][0] if len(self.objectives) == 1 else "the hypervolume"

    def _shown(self, value: float | None) -> str:
        if value is None or len(self.objectives) == 1:
            return show(value)
        return f"{100 * value:.3g} %"

    def __str__(self) -> str:
        """Return `lines` as one text."""
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as JSON values, named as the attributes and properties."""
        return {
            "experiment": self.experiment,
            "stop_search": self.stop_search,
            "objectives": list(map(list, self.objectives)),
            "why": None if self.why is None else self.why.state_dict(),
            "recorded": self.recorded.as_dict(),
            "shorter": self.shorter.as_dict(),
            "saved_trials": self.saved_trials,
            "saved_s": self.saved_s,
            "saved_worker_s": self.saved_worker_s,
            "regret": self.regret,
        }


def shorter_search(
    directory: Path, address: str, stop_search: Any, metric: str | None, mode: str | None
) -> ShorterSearch:
    """Return how a recorded experiment would have gone if its search had ended early.

    Args:
        directory: The experiment's directory, or that of a copy.
        address: What the user calls it.
        stop_search: ``"auto"`` or a `StopSearch`.
        metric: The metric, flattened; None for that of the experiment, or all of several.
        mode: Its direction, ``"min"`` or ``"max"``; None for that of the experiment.

    Raises:
        TypeError: If `stop_search` is neither.
        ValueError: If metric or mode are missing, or trials continued from others' checkpoints.
        StorageError: If the experiment cannot be read.
    """
    if stop_search != "auto" and not isinstance(stop_search, StopSearch):
        raise TypeError(f"stop_search must be 'auto' or a StopSearch, got {stop_search!r}")
    declaration = read_declaration(directory)
    goals = _goals(ExperimentSettings.from_fields(declaration["settings"]), metric, mode)
    criterion = stop_search if isinstance(stop_search, StopSearch) else StopSearch()
    course = _Course(goals, SearchWatch(criterion, _num_first(declaration)))
    stored = read_stored(directory, observe=course.observe)
    if any(trial.grafts for trial in stored.experiment.trials):
        raise ValueError(
            f"{address} must have trials of their own, got some that continued from others' "
            "checkpoints; what the search of a population would have found without its later "
            "members is not recorded"
        )
    return course.answer(stored, address, shown(stop_search))


def _goals(settings: ExperimentSettings, metric: str | None, mode: str | None) -> Goals:
    if not (metric or mode) and settings.several_objectives:
        return Goals(settings.several_objectives, settings.constraints)
    name = metric or settings.metric
    if not name:
        raise ValueError(
            "metric must be given, as the recorded experiment names none, or several without this "
            "mode; name one with its mode"
        )
    own = cast("Mode | None", settings.mode)
    direction = mode or mode_for(name, settings.metric, own, settings.several_objectives)
    if direction is None:
        raise ValueError(
            f"mode must be given with metric={name!r}, got None; the recorded experiment "
            f"optimised {', '.join(settings.objective_metrics)}"
        )
    return Goals(((name, check_mode(direction)),), settings.constraints)


def _num_first(declaration: Mapping[str, Any]) -> int:
    """Return how many trials came before those of a model, 0 where that is not known."""
    declared = declaration.get("tune_config") or {}
    searcher = constructed(declared.get("search_alg"), "search_alg", [])
    if not isinstance(searcher, Searcher):
        return 0
    return unwrapped(searcher).num_first_points(int(declared.get("num_samples") or -1))


class _Course:
    """Follows the events of an experiment, up to where its search would have ended."""

    def __init__(self, goals: Goals, watch: SearchWatch) -> None:
        self._goals = goals
        self._watch = watch
        self._why: Reason | None = None
        self._kept: set[str] = set()
        self._started: set[str] = set()
        self._began_s: dict[str, float] = {}
        self._worker_s: defaultdict[str, float] = defaultdict(float)
        self._end_s: dict[str, float] = {}

    def observe(self, _: Event, effects: Effects, at_s: float) -> None:
        """Take notice of an event, and of what followed from it."""
        for notice in effects.notices:
            self._note_time(notice, at_s)
            if turn := turn_of(notice, self._goals):
                self._watch.take(turn)
            elif isinstance(notice, TrialStarted) and notice.trial.trial_id not in self._started:
                self._begin(notice.trial.trial_id)

    def _begin(self, trial_id: str) -> None:
        self._started.add(trial_id)
        if self._why is None:
            self._why = self._watch.reason_to_stop()
        if self._why is None:
            self._kept.add(trial_id)

    def _note_time(self, notice: Notice, at_s: float) -> None:
        match notice:
            case TrialStarted(trial):
                self._began_s[trial.trial_id] = at_s
            case TrialEnded(trial) | TrialPaused(trial) | AttemptFailed(trial):
                began_s = self._began_s.pop(trial.trial_id, at_s)
                self._worker_s[trial.trial_id] += at_s - began_s
                self._end_s[trial.trial_id] = at_s
            case _:
                pass

    def answer(self, stored: StoredExperiment, address: str, stop_search: str) -> ShorterSearch:
        """Return the answer, once all events were observed."""
        goals, why = self._goals, self._why
        experiment = stored.experiment
        trials = [trial for trial in experiment.trials if trial.trial_id in self._started]
        kept = [trial for trial in trials if trial.trial_id in self._kept]
        if why is not None:
            total = experiment.settings.max_trials
            more: dict[str, int | str] = {
                "num_samples": -1 if total is None else total,
                "stop_search": stop_search,
                **goals.shown,
            }
            why = Reason(why.rule, {"num_trials": len(kept), **why.numbers, **more})
        return ShorterSearch(
            address,
            stop_search,
            goals.objectives,
            why,
            self._totals(trials, trials),
            self._totals(kept, trials),
        )

    def _totals(self, some: Sequence[Trial], recorded: Sequence[Trial]) -> SearchTotals:
        goals = self._goals
        return SearchTotals(
            len(some),
            max((self._end_s.get(trial.trial_id, 0.0) for trial in some), default=0.0),
            math.fsum(self._worker_s[trial.trial_id] for trial in some),
            *(_best(some, goals) if len(goals.objectives) == 1 else _front(some, recorded, goals)),
        )


def _best(trials: Sequence[Trial], goals: Goals) -> tuple[str | None, float | None]:
    """Return the best trial and its value."""
    [(_, mode)] = goals.objectives
    costs = {
        trial.trial_id: point[0]
        for trial in trials
        if (point := point_of(trial, goals)) is not None
    }
    best = min(costs, key=costs.__getitem__, default=None)
    return best, None if best is None else sign_of(mode) * costs[best]


def _front(
    some: Sequence[Trial], recorded: Sequence[Trial], goals: Goals
) -> tuple[None, float | None, tuple[str, ...]]:
    """Return None for the best trial, the hypervolume, and the front."""
    points = [point_of(trial, goals) for trial in recorded]
    if not any(points):
        return None, None, ()
    front = best_trials(some, goals.objectives, constraints=goals.constraints)
    chosen = {trial.trial_id for trial in some}
    is_chosen = [trial.trial_id in chosen for trial in recorded]
    volume = ReachedFront(points).part_of(is_chosen)
    return None, volume, tuple(trial.trial_id for trial in front)


def _compared(then: _Amount, now: _Amount, text: Callable[[_Amount], str]) -> Sequence[str]:
    saved = then - now
    share = percent(saved / then if then else 0.0)
    return text(then), text(now), f"{text(saved)} ({share})"
