"""Base classes of searchers that wrap a library: by history, or with one incremental optimiser."""

from __future__ import annotations

import importlib
import math
import random
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from searchers.searcher import (
    FailedTrials,
    Searcher,
    check_failed_trials,
    check_objective,
    check_rewards,
)
from searchers.seeding import chosen_seed, generator, seed_of
from searchers.space import Path, SearchSpace, flat_name, is_word, leaves, merge
from searchers.space.domains import Categorical, Domain
from searchers.space.search_space import check_own_space

Values = dict[str, Any]
"""Searched parameters by flattened name: numbers as they are, categories by index."""


@dataclass(slots=True)
class Observation:
    """A configuration that was proposed, and what is known of it.

    Attributes:
        values: Its parameters.
        value: The metric, in its own direction; None while the trial runs and where it failed.
        is_over: Whether the trial is over.
        is_discarded: Whether it was never run, so that nothing is known of it.
    """

    values: Values
    value: float | None = None
    is_over: bool = False
    is_discarded: bool = False

    @property
    def is_failed(self) -> bool:
        """Whether the trial was run and came to nothing."""
        return self.is_over and self.value is None and not self.is_discarded


class LibrarySearch(Searcher, ABC):
    """Base class of searchers that compute each proposal from the history and the seed.

    A subclass asks its library in `_propose`, with random numbers from the seed that it is given
    there. Points to evaluate come first, those with a reward are not run. A trial that a scheduler
    or stopper ended counts with its last value; one that failed, or whose last value is missing,
    NaN or infinite, as failed. One that was stopped before it reported a value tells nothing.

    Args:
        space: The search space, if ``param_space`` does not define it.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are sampled.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be
            complete and are not run again.
        seed: Seed of the search; None to take the experiment's.
        failed_trials: ``"worst"`` counts failed trials like the worst one seen so far; ``"ignore"``
            learns nothing from them.

    Attributes:
        extra: The extra that installs the library.
        library: The module to import.
        hidden: Modules that look as if they were not installed while it is imported.
        searchable: The kinds of domains that it takes.
        remedy: What to do about another one.
    """

    extra: ClassVar[str]
    library: ClassVar[str]
    hidden: ClassVar[tuple[str, ...]] = ()
    searchable: ClassVar[tuple[type[Domain], ...]]
    remedy: ClassVar[str]

    def __init__(  # noqa: PLR0917  (Ray Tune's order)
        self,
        space: Mapping[str, Any] | None,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        evaluated_rewards: Sequence[float] | None,
        seed: int | None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        self._module()
        self._failed_trials = check_failed_trials(failed_trials)
        self._points, self._rewards = list(points_to_evaluate or ()), list(evaluated_rewards or ())
        check_rewards(self._points, self._rewards)
        self.metric = metric
        self.mode = mode
        self._given_space = self._own_space(space)
        self._own_seed = None if seed is None else seed_of(seed)
        self._seed = 0
        self._constants: Mapping[str, Any] = {}
        self._taken_space: SearchSpace | None = None
        self._queue: list[dict[Path, Any]] = []
        self._history: list[Observation] = []
        self._num_suggested = 0
        self._open: dict[str, int] = {}

    @classmethod
    def convert_search_space(cls, spec: Mapping[str, Any]) -> Any:
        """Return a space as the argument `space` takes it.

        Args:
            spec: A dictionary with search-space words.

        Raises:
            TypeError: If it is no dictionary.
            ValueError: If it is written in the words of a library.

        Departures:
            Ray Tune returns the space in the library's own words.
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
            config: The space, or what stays constant beside the searcher's own space.
            **spec: ``seed``.

        Returns:
            False where the searcher already has a metric, mode or space and another one is given.

        Raises:
            ValueError: If metric or mode is missing, the library cannot search a parameter, or a
                point to evaluate does not fit.
        """
        given = self._given_space
        if given is not None and any(is_word(leaf) for _, leaf in leaves(config)):
            return False
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        check_objective(self)
        self._seed = chosen_seed(self._own_seed, spec.get("seed"))
        self._constants = {} if given is None else config
        self._taken_space = SearchSpace(config if given is None else given)
        self._check_space(self._taken_space)
        queue = [self._taken_space.assignments(point) for point in self._points]
        self._queue = [] if self._rewards else queue
        for point, reward in zip(self._points, self._rewards, strict=False):
            self.add_evaluated_point(point, reward)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next point to evaluate, or what the library proposes."""
        space, number = self._space, self._num_suggested
        rng = generator(self._seed, number)
        if number < len(self._queue):
            sampled = {path: domain.sample(rng) for path, domain in space.domains.items()}
            values = self._encoded({**sampled, **self._queue[number]})
        else:
            seed = int(rng.integers(2**32))
            with seeded_global_rngs(seed):
                proposed = self._propose(seed)
            if proposed is None:
                return self.FINISHED
            values = self._rounded(proposed)
        self._num_suggested += 1
        self._open[trial_id] = len(self._history)
        self._history.append(Observation(values))
        return merge(self._constants, space.resolve(self._decoded(values), None))

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
        value = (result or {}).get(self.metric or "")
        observation.is_over = True
        observation.is_discarded = stopped and not error and value is None
        observation.value = None if error else _finite(value)

    def on_trial_discard(self, trial_id: str) -> None:
        """Record that the configuration is not run."""
        if trial_id in self._open:
            observation = self._history[self._open.pop(trial_id)]
            observation.is_over = observation.is_discarded = True

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add an externally evaluated configuration to the history, without intermediates."""
        assignments = self._space.assignments(parameters)
        if missing := sorted(map(flat_name, self._space.domains.keys() - assignments.keys())):
            raise ValueError(
                f"points with a value must be complete, got none of {missing}; add their values"
            )
        if not error and _finite(value) is None:
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
            "open": dict(self._open),
            "history": [asdict(observation) for observation in self._history],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; metric, mode and space must be known already."""
        assert self._space  # noqa: S101  (one that is used without an experiment takes its own space here)
        self._seed = state["seed"]
        self._num_suggested = state["num_suggested"]
        self._open = dict(state["open"])
        self._history = [Observation(**observation) for observation in state["history"]]

    @abstractmethod
    def _propose(self, seed: int) -> Values | None:
        """Return the parameters to try next, or None; the seed is from 0 to 2**32 - 1."""

    @classmethod
    def _own_space(cls, space: Any) -> Mapping[str, Any] | None:
        """Return a space that was given to the searcher itself, in our words.

        Raises:
            TypeError: If it is no dictionary.
            ValueError: If it is written in the words of a library.
        """
        check_own_space(space, cls.__name__)
        return space if space is None else dict(space)

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
        if self._taken_space is None and self._given_space is not None:
            self.set_search_properties(None, None, {})  # it is used without an experiment
        if self._taken_space is None:
            raise RuntimeError(
                "metric, mode and space must be known before the first suggestion; give them, or "
                "call set_search_properties"
            )
        return self._taken_space

    @property
    def _parameters(self) -> dict[str, Domain]:
        """The domains by flattened name."""
        return {flat_name(path): domain for path, domain in self._space.domains.items()}

    @property
    def _sign(self) -> int:
        """1 if larger values are better, -1 if smaller ones are."""
        return 1 if self.mode == "max" else -1

    def _tells_nothing(self, observation: Observation) -> bool:
        """Whether the library is to hear nothing of what a configuration that is over came to."""
        return observation.is_discarded or (
            observation.is_failed and self._failed_trials == "ignore"
        )

    def _worst_place(self) -> int | None:
        """Return the index of the worst value in the history; None without any value."""
        known = [
            place
            for place, observation in enumerate(self._history)
            if observation.value is not None
        ]
        return min(
            known, key=lambda place: self._sign * (self._history[place].value or 0.0), default=None
        )

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
        """Return what the library proposes as values of the domains, as Python's own numbers."""
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


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class IncrementalSearch(LibrarySearch, ABC):
    """A `LibrarySearch` whose library keeps an optimiser that is told only what is new.

    The state of the library's optimiser is not
    saved, so a restore replays all suggestions and results.

    A subclass says in `_attach` and `_finish` how a configuration is reported to the library and of
    its value; in `_propose` it calls `_report_new_results` before it asks, and `_record_proposal`
    of what it gets.

    Args:
        space: See `LibrarySearch`, as for the others.
        metric: See there.
        mode: See there.
        points_to_evaluate: See there.
        evaluated_rewards: See there.
        seed: See there.
        failed_trials: See there.
    """

    def __init__(  # noqa: PLR0917  (the order of its base)
        self,
        space: Mapping[str, Any] | None,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        evaluated_rewards: Sequence[float] | None,
        seed: int | None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        super().__init__(
            space, metric, mode, points_to_evaluate, evaluated_rewards, seed, failed_trials
        )
        self._unfinished: dict[int, Any] = {}
        """The library's ids of unfinished configurations, by index in the history."""
        self._num_known = 0
        """How much of the history the library knows of."""

    @property
    def keeps_state(self) -> bool:
        """False: what has become of the library's search is not put into words."""
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
    def _finish(self, place: int | None, known_as: Any) -> None:
        """Report a configuration's value to the library.

        Args:
            place: Where in the history its value stands: its own place, that of the worst value if
                it failed, or None for nothing.
            known_as: What the library knows it by.
        """

    def _report_new_results(self) -> None:
        """Report new results to the library, in the order of the suggestions."""
        for place in range(self._num_known, len(self._history)):
            self._unfinished[place] = self._attach(self._history[place].values)
        self._num_known = len(self._history)
        worst = self._worst_place()
        for place in [place for place in self._unfinished if self._history[place].is_over]:
            observation = self._history[place]
            if self._tells_nothing(observation):
                self._finish(None, self._unfinished.pop(place))
            elif not observation.is_failed:
                self._finish(place, self._unfinished.pop(place))
            elif worst is not None:  # else it waits until there is a value that it can count like
                self._finish(worst, self._unfinished.pop(place))

    def _record_proposal(self, known_as: Any) -> None:
        """Record the library's id of its proposal, which is next in the history."""
        self._unfinished[len(self._history)] = known_as
        self._num_known = len(self._history) + 1

    def _check_parameters(self, parameters: Mapping[str, Domain]) -> None:
        """Check that there is something to search.

        Raises:
            ValueError: If there is not.
        """
        if not parameters:
            kind, given = type(self).__name__, list(self._space.space)
            raise ValueError(
                f"space must hold a parameter to search for {kind}, got {given}; give one at least "
                "a range"
            )


@contextmanager
def seeded_global_rngs(seed: int) -> Iterator[None]:
    """Seed the global generators for the duration, and restore their states afterwards.

    Args:
        seed: From 0 to 2**32 - 1.

    Example:
        >>> import numpy as np
        >>> before = np.random.get_state()[1].copy()
        >>> with seeded_global_rngs(3):
        ...     drawn = np.random.uniform()
        >>> bool((np.random.get_state()[1] == before).all())
        True
    """
    restores = [take(seed) for take in (_python, _numpy, _torch)]
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _python(seed: int) -> Callable[[], Any]:
    state = random.getstate()
    random.setstate(random.Random(seed).getstate())  # noqa: S311  (nothing secret is drawn)
    return lambda: random.setstate(state)


def _numpy(seed: int) -> Callable[[], Any]:
    state = np.random.get_state()  # noqa: NPY002  (the global generator is what this is about)
    np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002  (likewise)
    return lambda: np.random.set_state(state)  # noqa: NPY002  (likewise)


def _torch(seed: int) -> Callable[[], Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    state = torch.random.get_rng_state()
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    return lambda: torch.random.set_rng_state(state)
