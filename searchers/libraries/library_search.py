"""Base classes of searchers that wrap a library: by history, or with one incremental optimiser."""

from __future__ import annotations

import importlib
import math
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from searchers.learning_searcher import FailedTrials, LearningSearcher
from searchers.pending_points import PendingPoints
from searchers.seeding import generator, seeded_global_rngs
from searchers.space import Path, SearchSpace, flat_name, merge
from searchers.space.declared_space import like
from searchers.space.domains import Categorical, Domain
from searchers.space.foreign_domains import check_own_space
from searchers.space.relations import MAX_DRAWS, Relation

if TYPE_CHECKING:
    from numpy.random import Generator

Values = dict[str, Any]
"""Searched parameters by flattened name: numbers unchanged, categories by index."""


@dataclass(slots=True)
class Observation:
    """A configuration that was proposed, and its result.

    Attributes:
        values: Its parameters.
        value: The metric, or the first of several, in its own direction; None while the trial runs,
            and if it failed.
        is_over: Whether the trial is over.
        is_discarded: Whether it was never run, or stopped before its first value.
        is_earlier: Whether it was run as the experiment was declared before, and is not learnt.
    """

    values: Values
    value: float | None = None
    is_over: bool = False
    is_discarded: bool = False
    is_earlier: bool = False

    @property
    def is_failed(self) -> bool:
        """Whether the trial was run and ended without a value."""
        return self.is_over and self.value is None and not self.is_discarded


class LibrarySearch(LearningSearcher, ABC):
    """Base class of searchers that compute each proposal from the history and the seed.

    A subclass asks its library in `_propose`, with random numbers from the seed that it gets
    there. Points to evaluate come first; those with a reward are not run. A trial that a scheduler
    or stopper ended counts with its last value; one that failed, or whose last value is missing,
    NaN or infinite, as failed. One that was stopped before it reported a value is ignored.

    A proposal that violates the relation of the space is refused: the library is told in
    `_refuse_proposal`, and asked again, `num_tries` times; then one is drawn at random.

    Args: See `LearningSearcher`.

    Attributes:
        extra: The extra that installs the library.
        library: The module to import.
        hidden: Modules that cannot be imported while the library is.
        searchable: The kinds of domains that it supports.
        remedy: What to do about another one, for the message.
        num_tries: How often the library is asked again that proposes what an earlier declaration
            has run, or what violates the relation of the space.
    """

    takes_where = True
    extra: ClassVar[str]
    library: ClassVar[str]
    hidden: ClassVar[tuple[str, ...]] = ()
    searchable: ClassVar[tuple[type[Domain], ...]]
    remedy: ClassVar[str]
    num_tries: ClassVar[int] = 20

    def __init__(
        self,
        *,
        space: Any,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        evaluated_rewards: Sequence[Any] | None,
        seed: int | None,
        failed_trials: FailedTrials,
    ) -> None:
        # First of all: without the library, no other error matters.
        self._module()
        super().__init__(
            space=self._own_space(space),
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            seed=seed,
            failed_trials=failed_trials,
        )
        self._parsed_space: SearchSpace | None = None
        self._points = PendingPoints([])
        self._history: list[Observation] = []
        self._num_suggested = 0
        self._open: dict[str, int] = {}
        self._explanation = ""

    @classmethod
    def convert_search_space(cls, spec: Mapping[str, Any]) -> Any:
        """Return a space as the argument `space` takes it.

        Args:
            spec: A dictionary with domains.

        Raises:
            TypeError: If it is no dictionary.
            ValueError: If it contains domains of a library.

        Departures:
            Ray Tune returns the library's own domains.
        """
        return dict(cls._own_space(spec) or {})

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed.

        Args:
            metric: Name of the metric, flattened, unless the searcher has one.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised, unless the
                searcher has one.
            config: The space, or the constants beside the searcher's own space.
            **spec: ``seed``.

        Returns:
            False where the searcher already has a metric, mode or space and another one is given.

        Raises:
            ValueError: If metric or mode is missing, the library cannot search a parameter, or a
                point to evaluate does not fit.
        """
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        self._check_objective()
        self._parsed_space = space = SearchSpace(
            config if self._given_space is None else self._given_space
        )
        self._check_space(space)
        points = [space.assignments(point) for point in self._given_points]
        if not self._rewards:
            space.check_satisfiable()
            space.check_points(points)
        self._points = PendingPoints([] if self._rewards else points)
        for point, reward in zip(self._given_points, self._rewards, strict=False):
            self.add_evaluated_point(point, reward)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next point to evaluate, or what the library proposes."""
        space = self._space
        rng = generator(self._seed, self._num_suggested)
        self._explanation = ""
        if (number := self._points.take(trial_id)) is not None:
            values = self._drawn(rng, self._points[number])
        else:
            proposed = self._new_proposal(rng)
            if proposed is None:
                return self.FINISHED
            values = proposed
        self._num_suggested += 1
        self._open[trial_id] = len(self._history)
        self._history.append(Observation(values))
        return merge(self._constants, space.resolve(self._decoded(values), None))

    def explain_suggestion(self) -> str:
        """Return how many proposals were refused for the last suggestion; empty for none."""
        return self._explanation

    def _drawn(self, rng: Generator, point: Mapping[Path, Any]) -> Values:
        """Return a point with what it leaves out drawn, so that the relation of the space holds."""
        space = self._space
        for _ in range(MAX_DRAWS if space.where else 1):
            sampled = {path: domain.sample(rng) for path, domain in space.domains.items()}
            if space.allows(assignments := {**sampled, **point}):
                return self._encoded(assignments)
        raise cast("Relation", space.where).unsatisfied(MAX_DRAWS)

    def _new_proposal(self, rng: Generator) -> Values | None:
        """Return what the library proposes; beside trials of an earlier declaration a new one."""
        has_new, where = self._has_new(), self._space.where
        num_tries = self.num_tries if has_new or where else 0
        num_refused = 0
        for is_last in [*[False] * num_tries, True]:
            seed = int(rng.integers(2**32))
            # Libraries draw from the global generators as well, even if they are given a seed.
            with seeded_global_rngs(seed):
                proposed = self._propose(seed)
            if proposed is None:
                return None
            values = self._rounded(proposed)
            if where is not None and not self._space.allows(self._decoded(values)):
                num_refused += 1
                self._explanation = refused(num_refused, where)
                self._refuse_proposal()
                continue
            is_known = has_new and any(each.values == values for each in self._history)
            if is_last or not is_known:
                return values
            self._drop_proposal()
        self._explanation = refused(num_refused, where, is_drawn=True)
        return self._drawn(rng, {})

    def _has_new(self) -> bool:
        """Return whether there are configurations that no earlier declaration has run."""
        if not any(each.is_earlier for each in self._history):
            return False
        num_all = self._space.num_configurations()
        known = {tuple(each.values.values()) for each in self._history}
        return num_all is None or len(known) < num_all

    def _drop_proposal(self) -> None:
        """Forget the newest proposal, which is not in the history yet."""

    def _refuse_proposal(self) -> None:
        """Tell the library that its newest proposal violates the relation of the space."""
        self._drop_proposal()

    def num_points_left(self, num_samples: int) -> int:
        """Return how many points to evaluate are still to be run."""
        return self._points.num_left(num_samples)

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Put into the history what the trial runs, in place of the suggestion."""
        is_suggested = trial_id in self._open
        if is_suggested:
            self._open.pop(trial_id)
            self._drop_newest()
        elif config is not None:
            self._num_suggested += 1  # so that no later one repeats what the trial has drawn
        self._points.replace(trial_id, None if config is None else self._space.values_in(config))
        searched = {} if config is None else self._searched_part(config)
        if config is None or not self._space.holds(searched):
            return False
        self._open[trial_id] = len(self._history)
        values = self._encoded(self._space.assignments(searched))
        self._history.append(Observation(values, is_earlier=True))
        return True

    def _drop_newest(self) -> None:
        """Forget the newest suggestion."""
        self._history.pop()

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Add to the history how the trial ended."""
        if trial_id not in self._open:
            return
        observation = self._history[self._open.pop(trial_id)]
        value = (result or {}).get(self.objectives[0][0])
        observation.is_over = True
        observation.is_discarded = stopped and not error and value is None
        observation.value = None if error else finite(value)

    def on_trial_discard(self, trial_id: str) -> None:
        """Record that the configuration is not run."""
        if trial_id in self._open:
            observation = self._history[self._open.pop(trial_id)]
            observation.is_over = observation.is_discarded = True

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add an externally evaluated configuration to the history, without intermediates."""
        assignments = self._space.assignments(parameters)
        value = value.get(self.metric) if isinstance(value, Mapping) else value
        if missing := sorted(map(flat_name, self._space.domains.keys() - assignments.keys())):
            raise ValueError(
                f"points with a value must be complete, got none of {missing}; add their values"
            )
        if not error and finite(value) is None:
            raise ValueError(
                f"values of evaluated points must be finite numbers, got {value!r}; leave out "
                "points without a result"
            )
        self._history.append(
            Observation(self._encoded(assignments), None if error else float(value), is_over=True)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, the history and the open suggestions."""
        return {
            "seed": self._seed,
            "num_suggested": self._num_suggested,
            "points": self._points.taken,
            "open": dict(self._open),
            "history": [asdict(observation) for observation in self._history],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; metric, mode and space must be known already."""
        if self._parsed_space is None:
            self._take_own_space()
        self._seed = state["seed"]
        self._num_suggested = state["num_suggested"]
        self._points.mark_taken(state["points"])
        self._open = dict(state["open"])
        self._history = [Observation(**observation) for observation in state["history"]]

    @abstractmethod
    def _propose(self, seed: int) -> Values | None:
        """Return the parameters to try next, or None; the seed is from 0 to 2**32 - 1."""

    @classmethod
    def _own_space(cls, space: Any) -> Mapping[str, Any] | None:
        """Return the checked argument `space`, with our domains.

        Raises:
            TypeError: If it is no dictionary.
            ValueError: If it contains domains of a library.
        """
        check_own_space(space, cls.__name__)
        return space if space is None else like(space, dict(space))

    @classmethod
    def _module(cls, name: str = "") -> ModuleType:
        """Return the library, or a module of it.

        Raises:
            ImportError: If it is not installed; names the extra.
        """
        if known := sys.modules.get(cls.library + name):
            return known
        try:
            # Some libraries draw random numbers when imported, or use deprecated functions of
            # others.
            with seeded_global_rngs(0), _looking_absent(cls.hidden), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return importlib.import_module(cls.library + name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] != cls.library:
                raise
            raise ImportError(
                f"{cls.__name__} needs {cls.library}, which is not installed; pip install "
                f'"tuner-hpo[{cls.extra}]"',
                name=error.name,
            ) from error

    @property
    def _space(self) -> SearchSpace:
        if self._parsed_space is None:
            self._take_own_space()
        return cast("SearchSpace", self._parsed_space)

    @property
    def _parameters(self) -> dict[str, Domain]:
        """The domains by flattened name."""
        return {flat_name(path): domain for path, domain in self._space.domains.items()}

    @property
    def _sign(self) -> int:
        """1 if larger values of the (first) metric are better, -1 if smaller ones are."""
        return 1 if self.objectives[0][1] == "max" else -1

    def _is_ignored(self, observation: Observation) -> bool:
        """Whether the result of a trial that is over is kept from the library."""
        return observation.is_discarded or (
            observation.is_failed and self._failed_trials == "ignore"
        )

    def _index_of_worst(self) -> int | None:
        """Return the index of the worst value in the history; None without any value."""
        values = {
            index: self._sign * observation.value
            for index, observation in enumerate(self._history)
            if observation.value is not None
        }
        return min(values, key=values.__getitem__, default=None)

    def _check_space(self, space: SearchSpace) -> None:
        kind = type(self).__name__
        for path, word in space.words.items():
            name = flat_name(path)
            if path in space.grid_axes:
                raise ValueError(
                    f"{name!r} must not be a grid for {kind}, got grid_search; use choice, or "
                    "leave the searcher out for a grid"
                )
            if path in space.dependents:
                raise ValueError(
                    f"{name!r} must not depend on others for {kind}, got sample_from; compute the "
                    "value in the training code"
                )
            if not isinstance(word, self.searchable):
                raise ValueError(  # noqa: TRY004  (of a value)
                    f"{name!r} must be searchable for {kind}, got {word!r}; {self.remedy}"
                )

    def _encoded(self, assignments: Mapping[Path, Any]) -> Values:
        domains = self._space.domains
        return {
            flat_name(path): domain.index(assignments[path])
            if isinstance(domain, Categorical)
            else domain.cast(assignments[path])
            for path, domain in domains.items()
        }

    def _decoded(self, values: Values) -> dict[Path, Any]:
        found: dict[Path, Any] = {}
        for path, domain in self._space.domains.items():
            value = values[flat_name(path)]
            found[path] = domain.categories[value] if isinstance(domain, Categorical) else value
        return found

    def _rounded(self, values: Values) -> Values:
        """Return a library's proposal as values of the domains; numpy's numbers become Python's."""
        return {
            name: int(values[name])
            if isinstance(domain, Categorical)
            else domain.clip(float(values[name]))
            for name, domain in self._parameters.items()
        }


@contextmanager
def _looking_absent(names: Sequence[str]) -> Iterator[None]:
    """Hide modules from import for the duration."""
    known = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    # The documented way to make an import fail.
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(known)


def refused(num_refused: int, where: Relation | None, *, is_drawn: bool = False) -> str:
    """Return how a suggestion was found in spite of refused proposals, as an explanation.

    Args:
        num_refused: How many proposals violated the relation.
        where: The relation.
        is_drawn: Whether the suggestion was drawn at random after them.
    """
    proposals = "one proposal" if num_refused == 1 else f"{num_refused} proposals"
    ending = "; drawn at random" if is_drawn else ""
    return f"after {proposals} that violated {where}{ending}"


def finite(value: Any) -> float | None:
    """Return a finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class IncrementalSearch(LibrarySearch, ABC):
    """A `LibrarySearch` whose library keeps an optimiser that only gets new results.

    The state of the library's optimiser is not saved, so a restore replays all suggestions and
    results.

    In `_attach` and `_finish` a subclass reports a configuration and its value to the library; in
    `_propose` it first calls `_report_new_results`, then asks the library, then calls
    `_record_proposal`.

    Args: See `LearningSearcher`.
    """

    # The library's ids of unfinished configurations, by index in the history.
    _unfinished: dict[int, Any]
    # How many configurations of the history the library knows.
    _num_known: int

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed."""
        self._unfinished, self._num_known = {}, 0
        return super().set_search_properties(metric, mode, config, **spec)

    @property
    def keeps_state(self) -> bool:
        """False: the state of the library's optimiser cannot be saved."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, see `keeps_state`."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing, see `keeps_state`."""

    def get_state(self) -> dict[str, Any]:
        """Return the whole history for `save`; a restore reports all of it to the library."""
        return super().state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a history; proposals may differ from those of an uninterrupted search."""
        super().load_state_dict(state)
        self._unfinished, self._num_known = {}, 0

    @abstractmethod
    def _attach(self, values: Values) -> Any:
        """Report a configuration that the library did not propose; return its id there."""

    @abstractmethod
    def _finish(self, index: int | None, library_id: Any) -> None:
        """Report the end of a configuration to the library.

        Args:
            index: Where in the history its value is: its own index, that of the worst value if it
                failed, or None for no value.
            library_id: The library's id of the configuration.
        """

    def _report_new_results(self) -> None:
        """Report new configurations and results to the library, in the order of suggestions."""
        for index in range(self._num_known, len(self._history)):
            self._unfinished[index] = self._attach(self._history[index].values)
        self._num_known = len(self._history)
        worst = self._index_of_worst()
        for index in [index for index in self._unfinished if self._history[index].is_over]:
            observation = self._history[index]
            if self._is_ignored(observation):
                self._finish(None, self._unfinished.pop(index))
            elif not observation.is_failed:
                self._finish(index, self._unfinished.pop(index))
            elif worst is not None:  # else it stays open until there is a value to give it
                self._finish_failed(worst, self._unfinished.pop(index))

    def _finish_failed(self, worst: int, library_id: Any) -> None:
        """Report a failed configuration, which counts like the worst one.

        Args:
            worst: Where in the history the worst value is.
            library_id: The library's id of the configuration.
        """
        self._finish(worst, library_id)

    def _drop_newest(self) -> None:
        super()._drop_newest()
        self._drop_proposal()

    def _drop_proposal(self) -> None:
        index = len(self._history)
        self._num_known = min(self._num_known, index)
        if index in self._unfinished:
            self._finish(None, self._unfinished.pop(index))

    def _record_proposal(self, library_id: Any) -> None:
        """Record the library's id of its proposal, which is next in the history."""
        self._unfinished[len(self._history)] = library_id
        self._num_known = len(self._history) + 1

    def _check_not_empty(self, parameters: Mapping[str, Domain]) -> None:
        """Check that there is a parameter to search.

        Raises:
            ValueError: If there is none.
        """
        if not parameters:
            kind, given = type(self).__name__, list(self._space.space)
            raise ValueError(
                f"space must hold a parameter to search for {kind}, got {given}; give one at least "
                "a range"
            )
