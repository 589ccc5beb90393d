"""Repeater: run each configuration several times and report the mean."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Final, final

from searchers.objectives.newest_values import NewestValues
from searchers.searcher import Searcher, report_end, unwrapped
from searchers.space.configurations import decode_configuration, record
from searchers.space.tree import copied, is_same_constant

from .wrapper import SearcherWrapper

TRIAL_INDEX: Final = "__trial_index__"
"""Entry of a configuration: the number of the trial among its repeats, from 0."""


@final
class Repeater(SearcherWrapper):
    """Runs each configuration of a searcher several times and reports the mean result to it.

    ``num_samples`` counts trials, repeats included. The searcher gets no results until all repeats
    of a configuration are over, and then one final result: the mean of each number of their last
    results, NaN and missing values left out; of bounded metrics, and of several that are optimised,
    the mean of their newest values. Failed repeats do not count; the configuration has
    failed if all of them have. Repeats that a scheduler or stopper ended early do not count either,
    unless all were, since their values are not final. A `ConcurrencyLimiter` inside this wrapper
    counts configurations, one around it counts trials.

    Args:
        searcher: The searcher, which gives metric, mode and space.
        repeat: How often each configuration is run, at least 1.
        set_index: Whether each trial's configuration has the number of the repeat (0 to
            ``repeat - 1``) as ``config["__trial_index__"]``, e.g. for a seed of its own.

    Raises:
        TypeError: If `searcher` is no searcher.
        ValueError: If `repeat` is less than 1; with the number of samples, if that is not a
            multiple of it.

    Example:
        >>> from searchers import BasicVariantGenerator
        >>> from searchers.space import randint
        >>> searcher = Repeater(BasicVariantGenerator(), repeat=2)
        >>> searcher.set_search_properties(
        ...     "loss", "min", {"depth": randint(2, 9)}, seed=0, num_samples=4
        ... )
        True
        >>> searcher.suggest("a"), searcher.suggest("b")
        ({'depth': 7, '__trial_index__': 0}, {'depth': 7, '__trial_index__': 1})

    Departures:
        If ``num_samples`` is not a multiple of `repeat`, Ray Tune drops the remainder; here that is
        an error. Ray Tune treats values of stopped repeats as final. Repeats are best used without
        a scheduler that stops trials early, since which repeat is stopped is random.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ValueError(
                f"repeat must be a whole number of at least 1, got {repeat!r}; with 1 each "
                "configuration is run once"
            )
        self.repeat = repeat
        self.set_index = set_index
        self._space: Mapping[str, Any] = {}
        self._groups: dict[str, _Group] = {}
        # Configurations that lack repeats, in order; several only after a restore.
        self._filling: list[str] = []
        # How many trials belong to no configuration, since it has all its repeats without them.
        self._num_beyond = 0
        # By trial id: the name of its group, which is the id of its first trial, and the number of
        # the repeat.
        self._places: dict[str, tuple[str, int]] = {}
        self._newest = NewestValues()

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Pass everything on, with the number of configurations instead of trials.

        Raises:
            ValueError: If the number of samples is no multiple of the repeats.
        """
        self._space = config
        if "num_samples" in spec:
            spec["num_samples"] = self._num_groups(spec["num_samples"])
        is_taken = super().set_search_properties(metric, mode, config, **spec)
        several = [name for name, _ in self.objectives if len(self.objectives) > 1]
        bounded = [each.metric for each in unwrapped(self.searcher).constraints]
        self._newest = NewestValues([*several, *bounded])
        return is_taken

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return the searcher's number of configurations times repeats; None for endless."""
        num_groups = self.searcher.num_trials_for(self._num_groups(num_samples))
        if num_groups is None:
            return None
        surplus = self.searcher.surplus_trials(self._num_groups(num_samples))
        num_unwanted = sum(self._num_missing(name) for name in self._filling if name in surplus)
        return num_groups * self.repeat + self._num_beyond - num_unwanted

    def surplus_trials(self, num_samples: int) -> Collection[str]:
        """Return the running repeats of the searcher's surplus configurations."""
        surplus = self.searcher.surplus_trials(self._num_groups(num_samples))
        return [trial_id for trial_id, (name, _) in self._places.items() if name in surplus]

    def num_points_left(self, num_samples: int) -> int:
        """Return how many repeats of points to evaluate are still to be run."""
        num_points = self.searcher.num_points_left(self._num_groups(num_samples))
        return num_points * self.repeat + sum(map(self._num_missing, self._filling))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Pass on the limit in configurations; this wrapper itself enforces none."""
        self.searcher.set_max_concurrency(-(-max_concurrent // self.repeat))
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the configuration that is being repeated, or the searcher's next answer."""
        name = self._next_to_repeat()
        if name is None:
            suggestion = self.searcher.suggest(trial_id)
            if not isinstance(suggestion, dict):
                return suggestion
            name = trial_id
            self._groups[name] = _Group(suggestion)
            self._filling.append(name)
        place = self._put(trial_id, name)
        config: dict[str, Any] = copied(self._groups[name].config)
        return {**config, TRIAL_INDEX: place} if self.set_index else config

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Count what the trial runs as a repeat of its configuration, which may be a new one.

        Nothing is learnt from it: a mean over some of the repeats would not be comparable.
        """
        is_suggested = trial_id in self._places
        is_asked = is_suggested and self._withdraw(trial_id)
        given = None if config is None else dict(config)
        place = (given or {}).pop(TRIAL_INDEX, None)
        name = None if given is None else self._lacking(given, place)
        if name is None and given is not None and not place:
            name = trial_id
            self.searcher.on_trial_replaced(name, given)
            self._groups[name] = _Group(given)
            self._filling.append(name)
        elif is_asked:
            self.searcher.on_trial_replaced(trial_id, None)
            self.searcher.on_trial_discard(trial_id)
        if name is not None:
            self._put(trial_id, name)
            if not is_suggested:  # so that its end is not reported to the searcher
                self._record_end(trial_id, {})
        elif given is not None:
            self._num_beyond += 1
        return False

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Remember what the last result may lack, such as a size that is reported once."""
        if trial_id in self._places:
            self._newest.completed(trial_id, result)

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Do nothing: the searcher knows configurations, not repeats."""

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Record the repeat's end; after the last one, report the configuration's."""
        known = self._newest.completed(trial_id, result)
        self._record_end(
            trial_id,
            {
                "result": None if result is None else known,
                "error": error,
                "stopped": stopped,
            },
        )

    def on_trial_discard(self, trial_id: str) -> None:
        """Drop the repeat; if all of them are dropped, discard the configuration."""
        self._record_end(trial_id, {})

    def state_dict(self) -> dict[str, Any]:
        """Return the configurations with unfinished repeats, and the searcher's state."""
        return {
            "groups": [
                [name, self._recorded(name), group.endings.copy()]
                for name, group in self._groups.items()
            ],
            "filling": list(self._filling),
            "num_beyond": self._num_beyond,
            "places": {trial_id: list(place) for trial_id, place in self._places.items()},
            "newest": self._newest.state_dict(),
            "searcher": self.searcher.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If a configuration contains an object that is not in the space.
        """
        self._groups = {
            name: _Group(decode_configuration(self._space, config), list(endings))
            for name, config, endings in state["groups"]
        }
        self._filling = list(state["filling"])
        self._num_beyond = state["num_beyond"]
        self._places = {
            trial_id: (name, place) for trial_id, (name, place) in state["places"].items()
        }
        self._newest.load_state_dict(state.get("newest", {}))  # states of earlier versions lack it
        self.searcher.load_state_dict(state["searcher"])

    def _record_end(self, trial_id: str, ending: dict[str, Any]) -> None:
        self._newest.forget(trial_id)
        if trial_id not in self._places:
            return
        name, place = self._places.pop(trial_id)
        endings = self._groups[name].endings
        endings[place] = ending
        # The group lacks suggestions, or results.
        if name in self._filling or None in endings:
            return
        del self._groups[name]
        # An empty ending is that of a discarded repeat.
        if counted := [each for each in endings if each]:
            report_end(self.searcher, name, **_summary(counted))
        else:
            self.searcher.on_trial_discard(name)

    def _recorded(self, name: str) -> Any:
        # After the last repeat has been suggested, the configuration is not needed any more.
        return record(self._space, self._groups[name].config) if name in self._filling else None

    def _next_to_repeat(self) -> str | None:
        """Return the configuration to be repeated next, None if each has its repeats."""
        if not self._filling:
            return None
        surplus = self.searcher.surplus_trials(self._num_groups_wanted)
        return next((name for name in self._filling if name not in surplus), None)

    def _lacking(self, config: Mapping[str, Any], place: int | None) -> str | None:
        """Return the group of a configuration that lacks this repeat, None if there is none."""
        for name in self._filling:
            group = self._groups[name]
            is_next = place is None or place == len(group.endings)
            if is_next and is_same_constant(group.config, config):
                return name
        return None

    def _put(self, trial_id: str, name: str) -> int:
        """Make a trial the next repeat of a group, and return its number."""
        endings = self._groups[name].endings
        endings.append(None)
        self._places[trial_id] = name, len(endings) - 1
        if len(endings) == self.repeat:
            self._filling.remove(name)
        return len(endings) - 1

    def _withdraw(self, trial_id: str) -> bool:
        """Take a repeat back; return whether the searcher was asked for its configuration."""
        name, _ = self._places.pop(trial_id)
        if name not in self._filling:
            self._filling.insert(0, name)
        self._groups[name].endings.pop()
        if self._groups[name].endings:
            return False
        self._filling.remove(name)
        del self._groups[name]
        return True

    def _num_missing(self, name: str) -> int:
        return self.repeat - len(self._groups[name].endings)

    @property
    def _num_groups_wanted(self) -> int:
        return -1 if self._num_samples is None else self._num_groups(self._num_samples)

    def _num_groups(self, num_samples: int) -> int:
        if num_samples < 0:
            return num_samples
        num_groups, left = divmod(num_samples, self.repeat)
        if left:
            nearest = (num_groups + 1) * self.repeat
            raise ValueError(
                f"num_samples must be a multiple of repeat={self.repeat}, got {num_samples}; make "
                f"it {nearest}, say"
            )
        return num_groups


@dataclass(slots=True)
class _Group:
    """A configuration and the ends of its repeats, None for unfinished ones."""

    config: Any
    endings: list[dict[str, Any] | None] = field(default_factory=list)


def _summary(endings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arguments of `report_end` for a configuration."""
    successful = [ending for ending in endings if not ending["error"]]
    finished = [ending for ending in successful if not ending["stopped"]]
    if not successful:
        return {"result": None, "error": True, "stopped": False}
    results = [ending["result"] for ending in finished or successful if ending["result"]]
    return {"result": _mean(results) if results else None, "error": False, "stopped": not finished}


def _mean(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of each entry over the results; if it is not a number, its first value."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for result in results for name in result):
        values = [result[name] for result in results if name in result]
        merged[name] = _mean_value(values)
    return merged


def _mean_value(values: Sequence[Any]) -> Any:
    numbers = list(_numbers(values))
    if not numbers or (len(numbers) == len(values) and len(set(numbers)) == 1):
        return values[0]  # so that an integer stays one
    valid = [number for number in numbers if not math.isnan(number)] or numbers
    return sum(valid) / len(valid)


def _numbers(values: Iterable[Any]) -> Iterable[float]:
    for value in values:
        if isinstance(value, Real) and not isinstance(value, bool):
            try:
                yield float(value)
            except OverflowError:
                continue
