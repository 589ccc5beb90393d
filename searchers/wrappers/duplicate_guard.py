"""DuplicateGuard: skip, replace or reuse configurations that a searcher proposes again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

from searchers.searcher import POLICIES, Duplicates, Searcher, report_end
from searchers.space import SearchSpace
from searchers.space.configurations import key_of
from searchers.space.domains import Categorical

from .repeater import Repeater
from .wrapper import SearcherWrapper


@final
class DuplicateGuard(SearcherWrapper):
    """Detects configurations that a searcher has proposed before.

    Two configurations are equal if all their entries are: floats exactly, 1 and 1.0 different,
    nested entries in any order, objects by identity or equality. Configurations of failed trials
    are included.

    If one is proposed again, ``"repeat"`` runs it. ``"skip"`` discards the suggestion and asks for
    another. ``"reuse"`` reports the earlier trial's results and end to the searcher, as if the
    configuration had been run again, and asks for another; if the earlier trial is still running,
    the searcher gets its results for both as they arrive. Duplicates that are not run do not count
    towards ``num_samples``.

    After `max_tries` duplicates in a row the next one is run, unless every configuration of a
    finite space has been proposed: then the search is finished. A searcher that proposes the best
    configuration until a better result is reported (`BayesOptSearch`) needs ``"reuse"``.

    Args:
        searcher: The searcher, which gives metric, mode and space.
        duplicates: ``"skip"``, ``"reuse"`` or ``"repeat"``.
        max_tries: How many duplicates in a row are rejected, at least 1.

    Raises:
        TypeError: If `searcher` is no searcher.
        ValueError: If `duplicates` or `max_tries` is none of the accepted values, or the searcher
            repeats configurations on purpose.

    Example:
        >>> from searchers import BasicVariantGenerator
        >>> from searchers.space import choice
        >>> searcher = DuplicateGuard(BasicVariantGenerator(), "skip")
        >>> searcher.set_search_properties(
        ...     None, None, {"depth": choice([2, 3])}, seed=0, num_samples=10
        ... )
        True
        >>> [searcher.suggest(name) for name in "abc"]
        [{'depth': 3}, {'depth': 2}, 'FINISHED']

    Departures:
        Ray Tune has no such policy, except for an argument of its BayesOptSearch. `"reuse"` keeps
        every number that trials report until the end of the experiment.
    """

    def __init__(
        self, searcher: Searcher, duplicates: Duplicates = "skip", max_tries: int = 100
    ) -> None:
        super().__init__(searcher)
        if duplicates not in POLICIES:
            raise ValueError(
                f"duplicates must be one of {POLICIES}, got {duplicates!r}; 'repeat' lets them run"
            )
        if isinstance(max_tries, bool) or not isinstance(max_tries, int) or max_tries < 1:
            raise ValueError(
                f"max_tries must be a whole number of at least 1, got {max_tries!r}; use 'repeat' "
                "to turn none down"
            )
        if duplicates != "repeat" and any(
            isinstance(each, Repeater) and not each.set_index for each in _chain(searcher)
        ):
            raise ValueError(
                "duplicates must be 'repeat' around a Repeater without set_index, got "
                f"{duplicates!r}; put the DuplicateGuard inside: Repeater(DuplicateGuard(searcher))"
            )
        self.duplicates = duplicates
        # The searcher gets a new trial id for each further suggestion of a trial. A nested guard
        # gets such ids from the outer one, and has to derive different ones from them.
        self._mark = "+" * sum(isinstance(each, DuplicateGuard) for each in _chain(self))
        self.max_tries = max_tries
        self._space: Mapping[str, Any] = {}
        self._num_points: int | None = None
        self._num_suggested = 0
        self._is_exhausted = False
        self._known: dict[str, _Known] = {}
        self._open: dict[str, tuple[str, str]] = {}
        self._num_rejected: dict[str, int] = {}
        self._objects: list[Any] = []

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Pass everything on except the number of samples, which duplicates would use up."""
        self._space = config
        self._num_points = SearchSpace(config).num_configurations()
        self._num_samples = spec.get("num_samples")
        # The searcher must not finish early because of suggestions that are not run.
        if "num_samples" in spec and self.duplicates != "repeat":
            spec["num_samples"] = -1
        return super().set_search_properties(metric, mode, config, **spec)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Pass the point on, and count it as proposed if it is complete."""
        super().add_evaluated_point(parameters, value, error, pruned, intermediate_values)
        space = SearchSpace(self._space)
        try:
            values = space.values_of(parameters)
        except ValueError:  # the searcher has another space, in which the point is valid
            return
        if not space.dependents and len(values) == len(space.active(values)):
            key = key_of(self._space, space.config_of(values, None), self._name_object)
            values_of_metrics = value if isinstance(value, Sequence) else [value]
            result = None if error else dict(zip(self._metrics, values_of_metrics, strict=False))
            self._known.setdefault(
                key, _Known("", ending={"result": result, "error": error, "stopped": pruned})
            )

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the searcher's next suggestion that is no duplicate, or its other answer."""
        if self.duplicates == "repeat":
            return self.searcher.suggest(trial_id)
        if self._is_exhausted or self._num_suggested >= self._num_wanted():
            return self.FINISHED
        # After `max_tries` rejected duplicates the next one is run, unless all are known.
        for is_last in [*[False] * self.max_tries, True]:
            name = self._name_for(trial_id)
            suggestion = self.searcher.suggest(name)
            if not isinstance(suggestion, dict):
                return suggestion
            key = key_of(self._space, suggestion, self._name_object)
            if key not in self._known or (is_last and not self._has_seen_all()):
                return self._accept(trial_id, name, key, suggestion)
            self._reject(trial_id, name, self._known[key])
        self._is_exhausted = True
        return self.FINISHED

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Pass on what the trial runs, and count that as proposed instead of the suggestion."""
        if self.duplicates == "repeat":
            return self.searcher.on_trial_replaced(trial_id, config)
        name, key = self._open.pop(trial_id, ("", ""))
        known = self._known.get(key)
        if known is not None and known.trial_id == trial_id:
            del self._known[key]
        self._num_suggested += (config is not None) - bool(name)
        self._is_exhausted = False
        inner = name or self._name_for(trial_id)
        is_learnt = self.searcher.on_trial_replaced(inner, config)
        if name or is_learnt:
            self._open[trial_id] = inner, ""
        if config is not None and SearchSpace(self._space).holds(config):
            key = key_of(self._space, config, self._name_object)
            # Its results are not known here, as those of a trial that was stopped at once.
            ending = {"result": None, "error": False, "stopped": True}
            self._known.setdefault(key, _Known("", ending=ending))
        return is_learnt

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Pass the result on, also for duplicates of the trial."""
        name, key = self._open.get(trial_id, (trial_id, ""))
        self.searcher.on_trial_result(name, result)
        known = self._known.get(key)
        if known is not None and known.trial_id == trial_id and self.duplicates == "reuse":
            known.results.append(_only_numbers(result))
            for follower in known.followers:
                self.searcher.on_trial_result(follower, result)

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Pass the pause on; it does not concern duplicates of the trial."""
        self.searcher.on_trial_pause(self._open.get(trial_id, (trial_id, ""))[0], result)

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Pass the end on, also for duplicates of the trial."""
        name, key = self._open.pop(trial_id, (trial_id, ""))
        report_end(self.searcher, name, result, error=error, stopped=stopped)
        known = self._known.get(key)
        if known is None or known.trial_id != trial_id:
            return
        known.trial_id = ""
        if self.duplicates == "reuse":
            known.ending = {
                "result": None if result is None else _only_numbers(result),
                "error": error,
                "stopped": stopped,
            }
        for follower in known.followers:
            report_end(self.searcher, follower, result, error=error, stopped=stopped)
        known.followers.clear()

    def on_trial_discard(self, trial_id: str) -> None:
        """Pass the end on, also for the trial's duplicates; forget the configuration."""
        name, key = self._open.pop(trial_id, (trial_id, ""))
        self.searcher.on_trial_discard(name)
        known = self._known.get(key)
        if known is not None and known.trial_id == trial_id:
            del self._known[key]
            for follower in known.followers:
                self.searcher.on_trial_discard(follower)

    def state_dict(self) -> dict[str, Any]:
        """Return the configurations so far, with results to reuse, and the searcher's state."""
        return {
            "num_suggested": self._num_suggested,
            "is_exhausted": self._is_exhausted,
            "known": {key: asdict(known) for key, known in self._known.items()},
            "open": {trial_id: list(names) for trial_id, names in self._open.items()},
            "turned_down": dict(self._num_rejected),
            "num_objects": len(self._objects),
            "searcher": self.searcher.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If configurations contained objects that are not in the space, so that they
                cannot be compared any more.
        """
        if state["num_objects"]:
            raise ValueError(
                f"objects in configurations must stand in the space, got {state['num_objects']} "
                "others; use choice for them"
            )
        self._num_suggested = state["num_suggested"]
        self._is_exhausted = state["is_exhausted"]
        self._known = {key: _Known(**known) for key, known in state["known"].items()}
        self._open = {trial_id: (name, key) for trial_id, (name, key) in state["open"].items()}
        self._num_rejected = dict(state["turned_down"])
        self.searcher.load_state_dict(state["searcher"])

    @property
    def _metrics(self) -> list[str]:
        return [metric for metric, _ in self.objectives] or [str(self.metric)]

    def _num_wanted(self) -> float:
        """Return how many trials there are to be in all."""
        total = None if self._num_samples is None else self.total_samples
        if self._num_samples is None or total is None:
            return math.inf
        return max(total, self._num_suggested + self.num_points_left(self._num_samples))

    def _name_for(self, trial_id: str) -> str:
        """Return the id for the searcher's next suggestion for a trial."""
        number = self._num_rejected.get(trial_id, 0)
        return f"{trial_id}{self._mark}{number}" if number else trial_id

    def _accept(
        self, trial_id: str, name: str, key: str, suggestion: dict[str, Any]
    ) -> dict[str, Any]:
        self._num_suggested += 1
        self._num_rejected.pop(trial_id, None)
        self._open[trial_id] = name, key
        self._known.setdefault(key, _Known(trial_id))
        return suggestion

    def _reject(self, trial_id: str, name: str, known: _Known) -> None:
        self._num_rejected[trial_id] = self._num_rejected.get(trial_id, 0) + 1
        if self.duplicates == "skip":
            self.searcher.on_trial_discard(name)
            return
        for result in known.results:
            self.searcher.on_trial_result(name, result)
        if known.ending is None:
            known.followers.append(name)
        else:
            report_end(self.searcher, name, **known.ending)

    def _has_seen_all(self) -> bool:
        return self._num_points is not None and len(self._known) >= self._num_points

    def _name_object(self, value: Any) -> int:
        """Return a number that is the same for equal objects."""
        known = Categorical((None, *self._objects))
        if known.contains(value):
            return known.index(value)
        self._objects.append(value)
        return len(self._objects)


@dataclass(slots=True)
class _Known:
    """A configuration that was proposed.

    Attributes:
        trial_id: The trial that runs it; empty once that is over.
        results: Its results, to report them again.
        ending: The arguments of `report_end` for it, likewise; None before its end.
        followers: Ids of duplicates, for which the searcher gets the same results.
    """

    trial_id: str
    results: list[dict[str, Any]] = field(default_factory=list)
    ending: dict[str, Any] | None = None
    followers: list[str] = field(default_factory=list)


def _chain(searcher: Searcher) -> Iterator[Searcher]:
    """Yield a searcher and those that it wraps, from the outside in."""
    inner: Any = searcher
    while isinstance(inner, Searcher):
        yield inner
        inner = getattr(inner, "searcher", None)


def _only_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a result: searchers read nothing else."""
    return {name: value for name, value in result.items() if isinstance(value, int | float)}
