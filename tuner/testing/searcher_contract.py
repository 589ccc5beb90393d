"""Contract tests for searchers."""
# ruff: noqa: S101  (these are tests)

from __future__ import annotations

import copy
import json
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from searchers import Searcher
from searchers.objectives.outcome_constraint import OutcomeConstraint
from searchers.space import (
    Domain,
    Float,
    Integer,
    SampleFrom,
    SearchSpace,
    Space,
    choice,
    flat_name,
    is_grid,
    leaves,
    loguniform,
    only_if,
    randint,
    uniform,
)
from searchers.space.relations import Relation, spelling
from searchers.space.tree import GRID_KEY, Path


class SearcherContract(ABC):
    """Tests that every searcher has to pass; name a subclass ``Test...``.

    The trials of the contract report ``score`` (larger is better), three of them run at once, and
    `num_samples` are asked for.

    Attributes:
        num_samples: How many suggestions are asked for; fewer for a searcher that takes seconds for
            each.

    Example:
        >>> from searchers import BasicVariantGenerator
        >>> class TestRandom(SearcherContract):
        ...     def make_searcher(self):
        ...         return BasicVariantGenerator()
        >>> TestRandom().test_the_same_seed_gives_the_same_suggestions()
    """

    num_samples: ClassVar[int] = 20

    @abstractmethod
    def make_searcher(self) -> Searcher:
        """Return a new searcher without space, metric, mode and seed."""

    def space(self) -> dict[str, Any]:
        """Return the search space; override for a searcher that needs another."""
        return {
            "lr": loguniform(1e-4, 1e-1),
            "layer": {"units": randint(8, 65), "dropout": uniform(0.0, 0.5)},
            "activation": choice(["relu", "gelu", "tanh"]),
            "epochs": 10,
        }

    def conditional_space(self) -> dict[str, Any]:
        """Return a conditional search space; override for a searcher that needs another."""
        sgd = {"name": "sgd", "momentum": uniform(0.0, 0.9), "nesterov": choice([True, False])}
        return {
            "lr": loguniform(1e-4, 1.0),
            "optimizer": choice([sgd, {"name": "adam", "beta": uniform(0.8, 0.999)}, "none"]),
            "schedule": choice(["constant", "cosine"]),
            "warmup": only_if({"schedule": "cosine"}, randint(1, 10)),
            "epochs": 10,
        }

    def _ready(self, seed: int = 0) -> Searcher:
        searcher = self.make_searcher()
        taken = searcher.set_search_properties(
            "score", "max", config=self.space(), seed=seed, num_samples=self.num_samples
        )
        assert taken, "make_searcher must give no space, metric and mode"
        return searcher

    def test_suggestions_lie_in_the_space(self) -> None:
        """Suggest every entry of the space, nested as there, each inside its domain."""
        suggestions = _SearchRun(self._ready()).run(self.num_samples)
        assert suggestions, "a searcher must suggest something"
        for config in suggestions:
            wrong = list(_deviations(self.space(), config))
            assert not wrong, (
                f"a suggestion must lie in the space, got {config}: {'; '.join(wrong)}"
            )

    def test_a_conditional_space_is_searched_or_refused_with_the_space(self) -> None:
        """Suggest the active parameters only, or raise ValueError in `set_search_properties`."""
        searcher = self.make_searcher()
        try:
            searcher.set_search_properties(
                "score",
                "max",
                config=self.conditional_space(),
                seed=0,
                num_samples=self.num_samples,
            )
        except ValueError:
            return
        space = SearchSpace(self.conditional_space())
        for config in _SearchRun(searcher).run(self.num_samples):
            wrong = _misfit(space, config)
            assert not wrong, (
                f"a suggestion must be a configuration of the space, got {config}: {wrong}"
            )

    def test_a_relation_is_satisfied_or_refused(self) -> None:
        """Suggest what satisfies the ``where`` of a `Space`, or raise ValueError.

        A searcher that does neither leaves `takes_where` False: `Tuner` refuses it then.
        """
        limits = [
            f"{spelling(path)} <= {domain.from_unit(0.5)}"
            for path, domain in SearchSpace(self.space()).domains.items()
            if isinstance(domain, Float | Integer)
        ]
        space = Space(self.space(), where=next(iter(limits), "True"))
        searcher = self.make_searcher()
        if not searcher.takes_where:
            return
        try:
            searcher.set_search_properties(
                "score", "max", config=space, seed=0, num_samples=self.num_samples
            )
        except ValueError:
            return
        relation = Relation(str(space.where), space)
        for config in _SearchRun(searcher).run(self.num_samples // 2):
            assert relation.holds(config), f"a suggestion must satisfy {relation}, got {config}"

    def test_the_same_seed_gives_the_same_suggestions(self) -> None:
        """Draw random numbers from the seed alone."""
        first, second = (_SearchRun(self._ready(seed=5)).run(self.num_samples) for _ in range(2))
        assert first == second, "suggestions must follow from the seed"

    def test_no_suggestion_shares_anything_with_another(self) -> None:
        """Give each trial its own configuration, which it may change."""
        searcher = self._ready()
        first = searcher.suggest("t00000")
        assert isinstance(first, dict), (
            f"the first suggestion must be a configuration, got {first!r}"
        )
        before = copy.deepcopy(first)
        second = searcher.suggest("t00001")
        if isinstance(second, dict):
            _erase(second)
        assert first == before, "a configuration must not change when another one does"

    def test_a_suggestion_is_explained_with_a_text(self) -> None:
        """Explain each suggestion with a string, which may be empty."""
        searcher = self._ready()
        searcher.suggest("t00000")
        why = searcher.explain_suggestion()
        assert isinstance(why, str), f"an explanation must be a string, got {why!r}"

    def test_finished_stays_finished(self) -> None:
        """Suggest nothing more after FINISHED."""
        searcher = self._ready()
        _SearchRun(searcher).run(searcher.num_trials_for(self.num_samples) or self.num_samples)
        has_finished = [
            searcher.suggest(f"late{number}") == Searcher.FINISHED for number in range(5)
        ]
        assert has_finished == sorted(has_finished), (
            f"nothing but FINISHED may follow FINISHED, got {has_finished}"
        )

    def test_failures_and_odd_results_never_raise(self) -> None:
        """Accept trials that fail, never report, are stopped, or report no finite score."""
        results: list[Mapping[str, Any] | None] = [
            {"score": value} for value in (math.nan, math.inf, -math.inf, None, "0.5")
        ]
        results += [{}, None]
        endings: tuple[Mapping[str, bool], ...] = ({}, {"error": True}, {"stopped": True})
        for ending in endings:
            left = [(result, ending) for result in results]
            while left:
                before = list(left)
                search_run = _SearchRun(self._ready(), left)
                suggested = search_run.run(self.num_samples)
                ended = before[: len(before) - len(left)]
                assert len(suggested) > 1, (
                    f"a searcher must continue after trials that ended with {ended}"
                )
                search_run.end_all()

    def test_repeated_results_never_raise(self) -> None:
        """Accept repeated results, as after a crash."""
        searcher = self._ready()
        config = searcher.suggest("t00000")
        assert isinstance(config, dict), (
            f"the first suggestion must be a configuration, got {config!r}"
        )
        for _ in range(2):
            searcher.on_trial_result("t00000", {"score": 0.5, "training_iteration": 1})
        searcher.on_trial_complete("t00000", {"score": 0.5, "training_iteration": 1})

    def test_pauses_never_raise(self) -> None:
        """Accept trials that are paused and then continue, fail or end, and unknown trials."""
        searcher = self._ready()
        for result in (
            {"score": 0.5, "training_iteration": 1},
            {"score": math.nan, "training_iteration": 2},
            {"score": None},
            {},
            None,
        ):
            for number, ending in enumerate(({}, {"error": True}, {"stopped": True})):
                trial_id = f"{result}{number}"
                if not isinstance(searcher.suggest(trial_id), dict):
                    continue
                for _ in range(2):
                    searcher.on_trial_result(trial_id, result or {})
                    searcher.on_trial_pause(trial_id, result)
                    searcher.on_trial_pause(trial_id, result)
                searcher.on_trial_complete(
                    trial_id, None if ending.get("error") else result, **ending
                )
                searcher.on_trial_pause(trial_id, result)
        searcher.on_trial_pause("never suggested", {"score": 0.5})

    def test_the_same_metric_and_mode_are_accepted_again(self) -> None:
        """Accept the metric and mode that are already set; return False for others."""
        searcher = self._ready()
        assert not searcher.set_search_properties("other", "max", config=self.space(), seed=0), (
            "another metric must be answered with False"
        )
        assert not searcher.set_search_properties("score", "min", config=self.space(), seed=0), (
            "another mode must be answered with False"
        )
        again = searcher.set_search_properties(
            "score", "max", config=self.space(), seed=0, num_samples=self.num_samples
        )
        assert again, "the same metric and mode must be accepted"

    def test_a_saved_searcher_continues(self) -> None:
        """Suggest something after ``restore(save())``, if the searcher can be saved."""
        original = _SearchRun(self._ready())
        original.run(self.num_samples // 2)
        restored = original.continued_by(self._ready())
        with tempfile.TemporaryDirectory() as folder:
            # A string, not a Path: this is what scripts pass.
            path = os.path.join(folder, "searcher.json")  # noqa: PTH118
            try:
                original.searcher.save(path)
            except NotImplementedError:
                return
            restored.searcher.restore(path)
        assert restored.run(self.num_samples), "a restored searcher must continue"

    def test_discarded_suggestions_never_raise(self) -> None:
        """Accept that suggestions are not run, all of them or each third, and unknown trials."""
        searcher = self._ready()
        searcher.on_trial_discard("never suggested")
        num_suggested = 0
        for number in range(self.num_samples):
            trial_id = f"t{number:05d}"
            if isinstance(searcher.suggest(trial_id), dict):
                num_suggested += 1
                if number % 3:
                    searcher.on_trial_discard(trial_id)
                else:
                    searcher.on_trial_complete(
                        trial_id, {"score": number / 10, "training_iteration": 1}
                    )
        assert num_suggested > 1, "a searcher must continue after suggestions that are not run"

    def test_a_restored_state_continues_where_it_was(self) -> None:
        """Suggest the same after ``load_state_dict(state_dict())``, unless the state is empty."""
        original = _SearchRun(self._ready())
        original.run(self.num_samples // 2)
        state = json.dumps(original.searcher.state_dict())
        if state == "{}":
            return
        restored = original.continued_by(self._ready())
        restored.searcher.load_state_dict(json.loads(state))
        assert restored.run(self.num_samples) == original.run(self.num_samples), (
            "a restored searcher must suggest what the original suggests"
        )

    def test_trade_offs_are_searched_with_each_result(self) -> None:
        """Search with several metrics and constraints, if the class says that it takes them.

        Trials may fail, lack a metric, or report one that is no number. A restored state continues
        where it was.
        """
        goals: dict[str, Any] = {}
        parts = list(_chain(self.make_searcher()))
        if all(part.takes_several_metrics for part in parts):
            goals["objectives"] = (("score", "max"), ("cost", "min"))
        if all(part.takes_constraints for part in parts) and not any(
            part.constraints for part in parts
        ):
            goals["constraints"] = (OutcomeConstraint("cost", "<=", 0.6),)
        if not goals:
            return
        original = self._run_of_trade_offs(goals)
        if original is None:
            return
        suggested = original.run(self.num_samples // 2)
        again = self._run_of_trade_offs(goals)
        assert again is not None
        assert again.run(self.num_samples // 2) == suggested, (
            "suggestions must follow from the seed"
        )
        state = json.dumps(original.searcher.state_dict())
        if state == "{}":
            assert original.run(self.num_samples), "a searcher must continue"
            return
        restored = self._run_of_trade_offs(goals, continued=original)
        assert restored is not None
        restored.searcher.load_state_dict(json.loads(state))
        assert restored.run(self.num_samples) == original.run(self.num_samples), (
            "a restored searcher must suggest what the original suggests"
        )

    def _run_of_trade_offs(
        self, goals: Mapping[str, Any], continued: _SearchRun | None = None
    ) -> _SearchRun | None:
        """Return a search with these goals; None if a part of the searcher does not take them."""
        searcher = self.make_searcher()
        metric, mode = (None, None) if "objectives" in goals else ("score", "max")
        try:
            taken = searcher.set_search_properties(
                metric, mode, self.space(), seed=0, num_samples=self.num_samples, **goals
            )
        except ValueError:
            return None
        assert taken, "make_searcher must give no space, metric and mode"
        if continued is not None:
            return continued.continued_by(searcher)
        return _SearchRun(
            searcher,
            [
                ({"score": 0.5}, {}),
                ({"score": math.nan, "cost": 0.1}, {}),
                (None, {"error": True}),
                ({"score": 0.2, "cost": math.inf}, {"stopped": True}),
            ],
        )


class _SearchRun:
    """Runs an experiment with up to three concurrent trials; every other one may end oddly.

    Args:
        searcher: The searcher.
        odd: Results and endings, each of which is taken away and used for one trial.
    """

    NUM_SLOTS = 3

    def __init__(
        self,
        searcher: Searcher,
        odd: list[tuple[Mapping[str, Any] | None, Mapping[str, bool]]] | None = None,
    ) -> None:
        self.searcher = searcher
        self._odd = [] if odd is None else odd
        self._running: list[str] = []
        self._num_suggested = 0

    def continued_by(self, searcher: Searcher) -> _SearchRun:
        """Return the experiment at the same point, with another searcher."""
        search_run = _SearchRun(searcher, list(self._odd))
        search_run._running = list(self._running)
        search_run._num_suggested = self._num_suggested
        return search_run

    def run(self, num_samples: int) -> list[dict[str, Any]]:
        """Return what the searcher suggests until it has `num_samples` in all or has finished."""
        suggested: list[dict[str, Any]] = []
        while self._num_suggested < num_samples:
            trial_id = f"t{self._num_suggested:05d}"
            answer = self.searcher.suggest(trial_id)
            if answer == Searcher.FINISHED:
                break
            if isinstance(answer, dict):
                suggested.append(copy.deepcopy(answer))
                self._running.append(trial_id)
                self._num_suggested += 1
            else:
                assert answer is None, (
                    f"suggest must return a configuration, FINISHED or None, got {answer!r}"
                )
                assert self._running, "a searcher must not postpone when no trial is running"
            if answer is None or len(self._running) == self.NUM_SLOTS:
                self._end_oldest()
        return suggested

    def end_all(self) -> None:
        """End the trials that are running."""
        while self._running:
            self._end_oldest()

    def _end_oldest(self) -> None:
        trial_id = self._running.pop(0)
        number = int(trial_id[1:])
        result: Mapping[str, Any] | None = {
            "score": number * 7 % 11 / 11,
            "cost": number * 5 % 13 / 13,
            "training_iteration": 1,
        }
        ending: Mapping[str, bool] = {}
        if self._odd and number % 2 == 0:
            result, ending = self._odd.pop(0)
        if result is not None:
            self.searcher.on_trial_result(trial_id, result)
        # As under a scheduler that promotes from rung to rung.
        if number % 3 == 1:
            self.searcher.on_trial_pause(trial_id, result)
        self.searcher.on_trial_complete(trial_id, None if ending.get("error") else result, **ending)


def _chain(searcher: Searcher | None) -> Iterator[Searcher]:
    """Yield a searcher, and the one inside each wrapper."""
    while searcher is not None:
        yield searcher
        searcher = searcher._wrapped  # noqa: SLF001  (as an experiment follows wrappers)


def _deviations(space: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a description of each deviation of a configuration from its space."""
    if set(config) != set(space):
        yield f"entries must be {sorted(space)}, got {sorted(config)}"
    for path, domain in leaves(space):
        try:
            value = _at(path, config)
        except (LookupError, TypeError):
            yield f"{flat_name(path)} must be there"
        else:
            if not _fits(domain, value):
                yield f"{flat_name(path)} must be {domain!r}, got {value!r}"


def _misfit(space: SearchSpace, config: Mapping[str, Any]) -> str:
    """Return why a configuration is not a complete one of its space, empty if it is."""
    try:
        whole = space.config_of(space.values_of(config), rng=None)
    except ValueError as refusal:
        return str(refusal)
    return "" if whole == config else f"its values belong to {whole}"


def _at(path: Path, config: Any) -> Any:
    for step in path:
        config = config[step]
    return config


def _fits(domain: Any, value: Any) -> bool:
    if isinstance(domain, Domain):
        return domain.contains(value)
    if is_grid(domain):
        return value in domain[GRID_KEY]
    return isinstance(domain, SampleFrom) or bool(domain == value)


def _erase(config: dict[str, Any]) -> None:
    for name, value in config.items():
        if isinstance(value, dict):
            _erase(value)
        else:
            config[name] = None
