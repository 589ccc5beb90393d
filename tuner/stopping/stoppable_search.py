"""The searcher's adapter of an experiment whose search may end before all samples are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, final

from searchers.searcher import unwrapped
from searchers.space import SearchSpace, flat_name
from tuner.core.commands import Notice
from tuner.core.events import SearchEnded
from tuner.restore.search_adapter import Answer, Call, SearchAdapter

from .stop_search import StopSearch
from .watch import Goals, SearchWatch, Turn, turn_of

if TYPE_CHECKING:
    from tuner.spec.experiment_spec import ExperimentSpec


@final
class StoppableSearch(SearchAdapter):
    """A `SearchAdapter` that asks a `StopSearch` before each suggestion whether there is to be one.

    The answer that ends the search is recorded with its numbers. A restored experiment stays
    stopped for as long as it is declared alike.

    Args:
        spec: What is declared, connected.
        declaration: See `SearchAdapter`.
    """

    def __init__(self, spec: ExperimentSpec, declaration: str) -> None:
        super().__init__(
            spec.searcher,
            spec.space,
            spec.request_for,
            spec.group_for,
            spec.labels_for,
            declaration=declaration,
        )
        criterion, num_samples = criterion_of(spec), spec.tune.num_samples
        objectives = spec.several_objectives or ((str(spec.metric), str(spec.mode)),)
        self._goals = Goals(objectives, spec.constraints)
        self._watch = SearchWatch(criterion, unwrapped(spec.searcher).num_first_points(num_samples))
        self._shown: dict[str, int | str] = {
            "num_samples": -1 if (total := self.num_trials_for(num_samples)) is None else total,
            "stop_search": shown(spec.tune.stop_search),
            **self._goals.shown,
        }

    def ask(self, trial_id: str) -> Answer:
        """Ask the searcher for the configuration of a trial, unless the search has ended."""
        reason = self._watch.reason_to_stop()
        if reason is None:
            return super().ask(trial_id)
        self._watch.note_end()
        numbers = {"num_trials": self.num_suggested, **reason.numbers, **self._shown}
        return SearchEnded(self.declaration, type(reason)(reason.rule, numbers))

    def replay(self, recorded: Answer) -> Answer:
        """Ask the searcher again for a recorded answer, and return the recorded one."""
        if isinstance(recorded, SearchEnded) and recorded.why:
            self._watch.note_end()
        return super().replay(recorded)

    def call_for(self, notice: Notice) -> Call | None:
        """Return the call that a notice leads to, None if it concerns neither of the two."""
        call, turn = super().call_for(notice), turn_of(notice, self._goals)
        return call if turn is None else partial(self._take, turn, call)

    def _take(self, turn: Turn, call: Call | None) -> None:
        self._watch.take(turn)
        if call:
            call()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of searcher, desk and watch, as JSON values."""
        return {**super().state_dict(), "stop_search": self._watch.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        super().load_state_dict(state)
        self._watch.load_state_dict(state["stop_search"])


def criterion_of(spec: ExperimentSpec) -> StopSearch:
    """Return when the search of an experiment ends that declares it."""
    given = spec.tune.stop_search
    return given if isinstance(given, StopSearch) else StopSearch()


def shown(stop_search: Any) -> str:
    """Return a `TuneConfig.stop_search` as code.

    Example:
        >>> shown("auto"), shown(StopSearch(patience=30))
        ("'auto'", 'StopSearch(patience=30)')
    """
    if not isinstance(stop_search, StopSearch):
        return repr(stop_search)
    given = ", ".join(f"{name}={item!r}" for name, item in stop_search.declared_arguments.items())
    return f"StopSearch({given})"


def check_stop_search(spec: ExperimentSpec) -> None:
    """Check that a search can end by what its trials have reached.

    Raises:
        ValueError: If there is no metric, or all trials are wanted.
    """
    given = f"got {shown(spec.tune.stop_search)}"
    kind = type(spec.scheduler).__name__
    if axes := SearchSpace(spec.space).grid_axes:
        listed = ", ".join(map(flat_name, axes))
        raise ValueError(
            f"stop_search must be None with grid_search, {given} and a grid over {listed}; every "
            "point of a grid is run, so write choice(...) for a search that may end earlier"
        )
    if getattr(spec.scheduler, "needs_population", False):
        raise ValueError(
            f"stop_search must be None with {kind}, {given}; all members of its population are "
            "there from the beginning"
        )
    if not (spec.several_objectives or (spec.metric and spec.mode)):
        raise ValueError(
            f"stop_search needs a metric and its mode, {given} without; set "
            "TuneConfig(metric=..., mode=...)"
        )
