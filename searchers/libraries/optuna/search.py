"""Searcher that asks Optuna's samplers."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, final

from searchers.learning_searcher import FailedTrials, LearningSearcher
from searchers.libraries.library_search import refused
from searchers.objectives.newest_values import NewestValues
from searchers.pending_points import PendingPoints
from searchers.seeding import fresh_seed, generator
from searchers.space import flat_name, leaves, merge
from searchers.space.foreign_domains import check_own_space

from .samplers import SamplerSource, check_sampler
from .space import (
    Constraints,
    DeclaredSpace,
    Define,
    DefinedSpace,
    Objective,
    OptunaSpace,
    as_tuple,
    bounds_of,
    objective_of,
    with_nested_names,
)

if TYPE_CHECKING:
    # An extra: at run time it is imported where it is used, as is `study`, which imports it.
    import optuna
    from optuna.trial import TrialState

    from .study import Mirror, StudyView


TIME_ATTR = "training_iteration"
_MAX_TRIES = 20
"""How often a sampler is asked again that proposes what an earlier declaration has run, or what
violates the relation of the space."""
_RETRIES = 2**33
"""Distance of the numbers of their generators, beyond those of all suggestions."""


@final
class OptunaSearch(LearningSearcher):
    """Searches with any of Optuna's samplers, for one or several metrics and constraints.

    The sampler sees a study that is kept in memory. Trials that a scheduler or stopper ends early
    are reported as PRUNED with their intermediate values, so that the sampler does not take their
    last value for a final one. A paused trial, which may be resumed, is shown as PRUNED at its rung
    until it reports again: Optuna has no state for it and treats reported states as final.

    Failed trials, and those whose final value is missing or NaN, are FAIL in the study. Samplers
    ignore such trials, and would propose failing configurations again and again. So to the sampler
    these trials, and those with infinite values, are shown as COMPLETE with the worst value seen so
    far of each metric and constraint; to TPE with one metric as PRUNED without a value, which it
    ranks behind all others. As long as there is no value at all, they are shown as FAIL.

    With a `storage` the study is written through to it, result by result, for ``optuna-dashboard``
    and for later searches: states, values, intermediate values, parameters, constraints, and the
    user attributes ``trial_id`` and ``experiment``. Paused trials stay RUNNING there, since PRUNED
    is final in a storage. An existing study is continued: the search learns from its finished
    trials, and runs its waiting ones first. Trials that other processes add meanwhile are ignored,
    so that a restored search finds the same trials.

    With several metrics, `study.best_trials` is the Pareto front. Optuna accepts no intermediate
    values then, so that the sampler ignores stopped trials, and paused ones stay RUNNING until they
    end.

    Metrics and constraints are best given to `TuneConfig`, as for every searcher. Constraints are
    used by TPE, GP, NSGA-II and NSGA-III; other samplers ignore them. The newest value of a metric
    counts, where it is bounded or one of several. A trial that has not reported it is FAIL, and
    counts as failed unless it was stopped early.

    What violates the relation of the space is refused, hidden from the study, and asked for again.
    TPE and GP, which would propose the like, are shown the newest refused trials as COMPLETE with
    the mean of all values and a constraint that they violate.

    Each suggestion of one of Optuna's own samplers is drawn by a copy that is seeded with its
    number, see `SamplerSource`; a ``QMCSampler(scramble=True)`` needs its own seed. Parameters that
    a sampler cannot model (categories in CMA-ES, say) are drawn by its independent sampler; if it
    raises during a search, that suggestion is drawn at random, with a warning. The extra ``optuna``
    has all dependencies of the samplers except torch, for `GPSampler`: ``pip install
    "tuner-hpo[optuna,torch]"``.

    Args:
        space: The search space, if ``param_space`` does not define it: a dictionary with domains or
            Optuna distributions, or a function of an Optuna trial that returns constants or None.
            Names such as ``"a/b"`` become nested dictionaries.
        metric: Name of the metric, flattened, or a list of several; None to take
            ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised, or a list with
            one for each; None to take ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. The sampler chooses
            parameters left out.
        sampler: An Optuna sampler, with or without its own seed; it is copied. None for TPE, or the
            sampler of `study`.
        study_name: Name of the study in the storage; None for a new name.
        storage: An Optuna storage or its URL; None to keep the study in memory.
        seed: Seed of the default sampler; None to take the experiment's.
        evaluated_rewards: The metric of each of `points_to_evaluate`, or a list with all metrics of
            each, or a dictionary of these and what is bounded. The points then have to be complete
            and are not run again.
        constraints: Names of metrics that have to be 0 or less, as in ``TuneConfig(constraints={
            name: "<= 0"})``; or a function of a trial's last result, flattened, that returns a
            sequence of numbers which have to be. What a function says only the search knows: to the
            results, the console and the report, all trials are feasible.
        study: A study to continue, in place of its name and storage.
        failed_trials: ``"worst"`` counts failed trials, and values that are NaN or infinite, like
            the worst one seen so far, as described above; ``"ignore"`` hides them from the sampler.

    Raises:
        ImportError: If Optuna is not installed.
        ValueError: If arguments contradict each other.
        TypeError: If one has a wrong type.

    Example:
        >>> from searchers.space import loguniform
        >>> searcher = OptunaSearch(metric="loss", mode="min", points_to_evaluate=[{"lr": 0.01}])
        >>> searcher.set_search_properties(
        ...     None, None, {"lr": loguniform(1e-4, 1e-1), "epochs": 5}, seed=0
        ... )
        True
        >>> searcher.suggest("a")
        {'lr': 0.01, 'epochs': 5}

    Reference:
        Akiba, Sano, Yanase, Ohta, Koyama. Optuna: A Next-generation Hyperparameter Optimization
        Framework. KDD 2019, arXiv 1907.10902.

    Departures:
        Optuna's samplers ignore failed trials, in Ray Tune as well. Ray Tune reports trials that
        were stopped early as COMPLETE and paused ones as RUNNING, ignores `q` on logarithmic
        scales, and has no constraints.
    """

    takes_several_metrics = True
    takes_constraints = True
    takes_where = True
    # A URL may contain a password, and a restore must not open connections named in a file.
    withheld = frozenset({"storage", "study"})

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        space: Mapping[str, Any] | Define | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        study_name: str | None = None,
        storage: optuna.storages.BaseStorage | str | None = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        constraints: Constraints | None = None,
        study: optuna.Study | None = None,
        *,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        _require_optuna()
        if not callable(space):
            check_own_space(space, "OptunaSearch", accepts="optuna")
        # Several metrics are handled here: `metric` and `mode` of a searcher are single ones.
        self._metrics, self._modes = as_tuple(metric), as_tuple(mode)
        super().__init__(
            space=space if space is None or callable(space) else with_nested_names(space),
            metric=self._metrics[0] if len(self._metrics) == 1 else None,
            mode=self._modes[0] if len(self._modes) == 1 else None,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            seed=seed,
            failed_trials=failed_trials,
        )
        if callable(space):
            for point in self._given_points:
                DefinedSpace(space).encoded(point)
        if sampler is not None and seed is not None:
            raise ValueError(
                f"seed must be None beside a sampler, got {seed}; give the seed to the sampler"
            )
        if study is not None and (storage is not None or study_name is not None):
            raise ValueError(
                f"study must be given without study_name={study_name!r} and storage, got both; it "
                "has them already"
            )
        if len(self._metrics) > 1:
            self._several_objectives = tuple(zip(self._metrics, self._modes, strict=False))
        self.constraints = bounds_of(constraints)
        self._constraint_function = constraints if callable(constraints) else None
        check_study(study)
        self._sampler = study.sampler if sampler is None and study is not None else sampler
        self._study_name = study_name if study is None else study.study_name
        # A study has its storage in no public attribute.
        self._storage = storage if study is None else study._storage  # noqa: SLF001
        check_sampler(self._sampler, is_constrained=constraints is not None)
        self._setup: SearchSetup | None = None
        self._opened: OpenedStudy | None = None
        self._num_suggested = 0
        self._numbers: dict[str, int] = {}
        self._newest = NewestValues()
        self._has_finished = False
        self._explanation = ""
        self._points = PendingPoints([])

    @classmethod
    def convert_search_space(cls, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a space as Optuna's distributions by flattened names; constants are left out.

        Args:
            spec: A dictionary with domains.

        Raises:
            ValueError: If a parameter has no equivalent distribution.
        """
        return DeclaredSpace(spec).as_distributions()

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set metric, mode, space and seed.

        Args:
            metric: Name of the metric, flattened, unless the searcher has one.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised, unless the
                searcher has one.
            config: The space, or the constants beside the searcher's own space.
            **spec: ``seed``, for the default sampler; ``experiment``, an id that distinguishes
                experiments in one study; ``objectives`` and ``constraints``, see `Searcher`.

        Returns:
            False where the searcher already has a metric, mode or space and another one is given.

        Raises:
            ValueError: If metric or mode is missing, Optuna cannot search a parameter, a point to
                evaluate does not fit, or the sampler cannot search the space, for these metrics and
                constraints.
        """
        if len(self._metrics) > 1 and (metric or mode):
            raise ValueError(
                f"metric and mode must be the same everywhere, got metric={metric!r}, "
                f"mode={mode!r} in TuneConfig and metric={list(self._metrics)}, "
                f"mode={list(self._modes)} in OptunaSearch; give all of them in TuneConfig, a "
                "scheduler can have a metric of its own"
            )
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        function = self._constraint_function
        metrics: Any = self._metrics or self.metric
        modes: Any = self._modes or self.mode
        if len(self.objectives) > 1:
            metrics, modes = zip(*self.objectives, strict=True)
        objective = objective_of(metrics, modes, self.constraints, function)
        check_sampler(self._sampler, is_constrained=bool(self.constraints or function))
        given = self._given_space
        space: OptunaSpace = (
            DefinedSpace(given)
            if callable(given)
            else DeclaredSpace(config if given is None else given)
        )
        setup = SearchSetup(
            objective,
            space,
            SamplerSource(self._sampler, self._seed),
            str(spec.get("experiment") or f"{fresh_seed():x}"),
            tuple(space.encoded(point, self._constants) for point in self._given_points),
            counts_failures=self._failed_trials == "worst",
        )
        if not self._rewards:
            space.check_points(self._given_points)
        # Errors in points, in the user's sampler and space function are raised now, not in the
        # course of the experiment.
        for point, reward in zip(setup.points, self._rewards, strict=False):
            objective.rewards(reward)
            space.distributions(point)
        if self._sampler is not None or callable(given):
            setup.try_sampler()
        self._setup = setup
        self._newest = NewestValues(objective.remembered)
        self._points = PendingPoints([] if self._rewards else setup.points)
        return True

    @property
    def study(self) -> optuna.Study:
        """The study as the sampler sees it, except that failed trials are FAIL; read-only.

        Raises:
            RuntimeError: If metric, mode and space are not known yet.
        """
        return self._open().view

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return points to evaluate, then the sampler's proposals, `FINISHED` at a grid's end."""
        setup, opened = self._known, self._open()
        if self._has_finished:
            return self.FINISHED
        # Waiting trials of the study come first; then there is none but the point.
        is_next = self._points.num_left(-1) > 0 and not opened.view.is_waiting
        if is_next and (point := self._points.take(trial_id)) is not None:
            opened.view.enqueue_trial(dict(self._points[point]))
        found = setup.ask_for_new(opened.view, self._num_suggested)
        if found is None:
            self._has_finished = True
            return self.FINISHED
        number, config, self._explanation = found
        self._num_suggested += 1
        self._numbers[trial_id] = number
        opened.view.set_trial_id(number, trial_id)
        opened.write(number)
        return merge(self._constants, config)

    def explain_suggestion(self) -> str:
        """Return how many proposals were refused for the last suggestion; empty for none."""
        return self._explanation

    def num_points_left(self, num_samples: int) -> int:
        """Return how many points to evaluate are still to be run."""
        return self._points.num_left(num_samples)

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Put into the study what the trial runs, in place of the suggestion."""
        opened, number = self._open(), self._numbers.pop(trial_id, None)
        if number is not None:
            opened.withdraw(number)
        elif config is not None:
            self._num_suggested += 1  # so that no later one repeats what the trial has drawn
        self._has_finished = False
        if config is None:
            self._points.replace(trial_id, None)
            return False
        try:
            values = self._known.space.encoded(self._searched_part(config), self._constants)
            distributions = self._known.space.distributions(values)
        except ValueError:  # it is not a configuration of this space
            values, distributions = {flat_name(path): leaf for path, leaf in leaves(config)}, None
        self._points.replace(trial_id, values)
        if distributions is None:
            return False
        attributes = self._known.source.attributes_of(values)
        added = opened.view.add_earlier(trial_id, values, distributions, attributes)
        self._numbers[trial_id] = added
        opened.write(added)
        return True

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Report an intermediate value to the study.

        Nothing is reported without a value or a ``training_iteration``, or with several metrics.
        """
        if trial_id not in self._numbers:
            return
        self._newest.completed(trial_id, result)
        if self._report(self._numbers[trial_id], result):
            self._open().write(self._numbers[trial_id])

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Show the trial as PRUNED at its last intermediate value, until it reports again."""
        if trial_id not in self._numbers or not self._known.objective.is_single:
            return
        number = self._numbers[trial_id]
        constraints = self._known.objective.violations(self._newest.completed(trial_id, result))
        self.on_trial_result(trial_id, result or {})
        if constraints is not None:
            self._open().view.show_paused(number, constraints)

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Report to the study how the trial ended: COMPLETE, PRUNED or FAIL."""
        from optuna.trial import TrialState  # noqa: PLC0415  (an extra)

        if trial_id not in self._numbers:
            return
        number, opened, objective = self._numbers.pop(trial_id), self._open(), self._known.objective
        self._report(number, result or {})
        newest = self._newest.completed(trial_id, result)
        self._newest.forget(trial_id)
        values = objective.values(newest)
        constraints = None if error else objective.violations(newest)
        if constraints is None or (values is None and not stopped):
            ending = TrialState.FAIL
        else:
            ending = TrialState.PRUNED if stopped else TrialState.COMPLETE
        if error or objective.is_bad(newest) or (ending is TrialState.FAIL and not stopped):
            opened.view.mark_failed(number)
        self._end(
            number, ending, values if ending is TrialState.COMPLETE else None, constraints or {}
        )

    def on_trial_discard(self, trial_id: str) -> None:
        """Report the trial to the study as FAIL, which samplers ignore."""
        from optuna.trial import TrialState  # noqa: PLC0415  (an extra)

        if trial_id in self._numbers:
            number = self._numbers.pop(trial_id)
            self._newest.forget(trial_id)
            self._end(number, TrialState.FAIL, None, {})

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float | Sequence[float],
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add an externally evaluated configuration; metric, mode and space must be known.

        It is part of `state_dict`, but is not written to a storage. In an experiment that is
        restored without a state, as with samplers for which `keeps_state` is False, it has to be
        added again.

        Args:
            parameters: The configuration, complete, nested or with names such as ``"a/b"``.
            value: The metric's value, in its own direction; a list of values if there are several
                metrics. A dictionary of these and what is bounded; without it, the trial has no
                constraints.
            error: Whether the run failed, so that the trial is FAIL.
            pruned: Whether it was stopped before it was done, so that the trial is PRUNED. Samplers
                rank it by its intermediate values; without these it is one of the worst.
            intermediate_values: Its intermediate values, from the first training iteration on; not
                used with several metrics.

        Raises:
            ValueError: If the configuration does not fit the space or is not complete, or a value
                is no number.
        """
        from optuna.trial import TrialState  # noqa: PLC0415  (an extra)

        from .study import finished_trial, quiet  # noqa: PLC0415  (imports Optuna)

        setup = self._known
        params = setup.space.encoded(parameters, self._constants)
        distributions = setup.space.distributions(params)
        values = None if error else setup.objective.rewards(value)
        state = TrialState.FAIL if error else TrialState.PRUNED if pruned else TrialState.COMPLETE
        steps = (intermediate_values or ()) if setup.objective.is_single else ()
        with quiet():
            self._open().view.add_trial(
                finished_trial(
                    params,
                    distributions,
                    values,
                    state,
                    steps,
                    constraints=setup.objective.violations_of(value),
                    is_failed=error,
                )
            )

    @property
    def keeps_state(self) -> bool:
        """Whether the study holds the sampler's whole state; else a restore replays the search."""
        return self._setup is None or self._setup.source.is_portable

    def state_dict(self) -> dict[str, Any]:
        """Return unfinished suggestions and the study; nothing if the sampler has hidden state."""
        if (self._setup is None and self._given_space is None) or not self.keeps_state:
            return {}
        return {
            "seed": self._known.source.seed,
            "experiment": self._known.experiment,
            "num_suggested": self._num_suggested,
            "has_finished": self._has_finished,
            "points": self._points.taken,
            "numbers": dict(self._numbers),
            "newest": self._newest.state_dict(),
            "study": None if self._opened is None else self._opened.view.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict` with its study; metric, mode and space must be known.

        Raises:
            ValueError: If there is a state although this sampler's cannot be saved: it must be
                another searcher's.
        """
        if not state:
            return
        if not self.keeps_state:
            # CMA-ES would unpickle attributes of the study, which come from a file here.
            raise ValueError(
                f"state must be empty with this sampler, got {sorted(state)}; replay the search "
                "instead"
            )
        self._known.source.seed = state["seed"]
        self._known.experiment = state["experiment"]
        self._num_suggested = state["num_suggested"]
        self._has_finished = state["has_finished"]
        self._points.mark_taken(state["points"])
        self._numbers = dict(state["numbers"])
        self._newest.load_state_dict(state.get("newest", {}))  # states of earlier versions lack it
        self._opened = None
        if state["study"] is not None:
            self._opened = self._opened_study()
            self._opened.view.load_state_dict(state["study"])
            self._opened.write_all()

    @property
    def _known(self) -> SearchSetup:
        if self._setup is None:
            self._take_own_space()
        return cast("SearchSetup", self._setup)

    def _open(self) -> OpenedStudy:
        if self._opened is None:
            self._opened = self._opened_study()
            # Another search in the same study must not repeat the random numbers of the first.
            known = self._opened.fill(self._known, self._rewards)
            self._num_suggested = len(known)
            self._points.mark_taken(
                number for number, point in enumerate(self._known.points) if point in known
            )
        return self._opened

    def _opened_study(self) -> OpenedStudy:
        from .study import Mirror, StudyView  # noqa: PLC0415  (imports Optuna)

        name = self._study_name or f"tuner-{self._known.experiment}"
        modes = self._known.objective.modes
        mirror = (
            None
            if self._storage is None
            else Mirror(self._storage, name, modes, self._known.experiment)
        )
        return OpenedStudy(StudyView(name, modes), mirror)

    def _end(
        self,
        number: int,
        ending: TrialState,
        values: Sequence[float] | None,
        constraints: Mapping[str, float],
    ) -> None:
        opened = self._open()
        try:
            opened.view.end(number, ending, values, constraints)
        # A sampler may raise anything; the trial has ended nevertheless.
        except Exception as cause:  # noqa: BLE001
            warnings.warn(
                f"the sampler raised {type(cause).__name__} at the end of a trial: {cause}",
                RuntimeWarning,
                stacklevel=3,
            )
        opened.write(number)

    def _report(self, number: int, result: Mapping[str, Any]) -> bool:
        """Record an intermediate value and return True, if the result has one."""
        objective, step = self._known.objective, result.get(TIME_ATTR)
        value = objective.value(result) if objective.is_single else None
        if value is None or not isinstance(step, int) or step < 0:
            return False
        self._open().view.report(number, step, value)
        return True


def _require_optuna() -> None:
    try:
        import optuna  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        raise ImportError(
            'OptunaSearch needs Optuna, which is not installed; pip install "tuner-hpo[optuna]"'
        ) from error


@dataclass(slots=True)
class SearchSetup:
    """Everything that suggestions depend on besides the study.

    Attributes:
        objective: Metrics and constraints.
        space: The search space.
        source: The source of samplers.
        experiment: An id that distinguishes experiments in one study.
        points: Configurations to begin with, as Optuna represents them.
        counts_failures: Whether failed trials count like the worst ones, or are ignored.
    """

    objective: Objective
    space: OptunaSpace
    source: SamplerSource
    experiment: str
    points: tuple[dict[str, Any], ...]
    counts_failures: bool = True

    def ask(self, view: StudyView, number: int) -> tuple[int, dict[str, Any]]:
        """Return a new trial's number and configuration, drawn at random if the sampler raises.

        Raises:
            Exception: What the user's space function raises.
        """
        from .study import quiet, random_sampler  # noqa: PLC0415  (imports Optuna)

        view.sampler = self.source.sampler_for(number)
        # Optuna's samplers ignore FAIL trials, and would propose the same configurations again.
        failures_shown = view.showing_failures_as_worst(
            as_pruned=self.source.ranks_pruned and self.objective.is_single
        )
        with (
            quiet(),
            failures_shown if self.counts_failures else nullcontext(),
            view.showing_refusals() if self.source.learns_refusals else nullcontext(),
        ):
            try:
                return self.space.ask(view)
            # A sampler may raise anything. If it is the space function, it raises again below.
            except Exception as error:  # noqa: BLE001
                view.fail_newest()
                view.sampler = random_sampler(
                    int(generator(self.source.seed, number).integers(2**32))
                )
                asked = self.space.ask(view)
                message = (
                    f"the sampler raised {type(error).__name__}: {error}; this suggestion is drawn "
                    "at random"
                )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        return asked

    def ask_for_new(self, view: StudyView, number: int) -> tuple[int, dict[str, Any], str] | None:
        """Return a new trial's number and configuration, and how proposals before were refused.

        It satisfies the relation of the space. If possible it is none that was run as the
        experiment was declared before. Points to evaluate may be equal.

        Returns:
            None at the end of an exhaustive sampler.

        Raises:
            ValueError: If nothing that is drawn satisfies the relation.
        """
        earlier, num_refused, num_known = view.earlier_params, 0, 0
        for attempt in itertools.count():
            asked, config = self.ask(view, number + attempt * _RETRIES)
            trial = view.actual_trial(asked)
            if self.source.is_exhaustive and self.source.repeats(trial, view.others(asked)):
                view.hide(asked)
                return None
            is_given = "fixed_params" in trial.system_attrs
            is_known = not is_given and trial.params in earlier
            if not self.space.allows(config):
                num_refused += 1
                self._refuse(view, asked, num_refused)
            elif is_known and num_known < len(earlier) + _MAX_TRIES - 1:
                num_known += 1
                view.hide(asked)
            else:
                break
        explanation = ""
        if num_refused:
            is_drawn = is_given and num_refused > _MAX_TRIES
            explanation = refused(num_refused, self.space.where, is_drawn=is_drawn)
        return asked, config, explanation

    def _refuse(self, view: StudyView, number: int, num_refused: int) -> None:
        """Refuse a proposal that violates the relation; at last enqueue one that satisfies it."""
        from optuna.trial import TrialState  # noqa: PLC0415  (an extra)

        trial = view.actual_trial(number)
        given = trial.system_attrs.get("fixed_params")
        if self.source.is_exhaustive and given is None:
            view.end(number, TrialState.FAIL, None, {})  # else it would be enumerated again
            return
        view.refuse(number, is_learnt=self.source.learns_refusals and given is None)
        if given is not None or num_refused > _MAX_TRIES:
            rng = generator(self.source.seed, trial.number)
            view.enqueue_trial(self.space.completed(given or {}, rng), user_attrs=trial.user_attrs)

    def try_sampler(self) -> None:
        """Check in another study that the sampler can complete the initial points and suggest.

        Raises:
            ValueError: If it cannot, or a value lies outside of its parameter's range.
            TypeError: If a space function returns anything but constants.
        """
        from .study import StudyView, check_grid, quiet  # noqa: PLC0415  (imports Optuna)

        view = StudyView("tried out", self.objective.modes)
        view.sampler = copy.deepcopy(self.source.sampler_for(0))
        try:
            with quiet(), warnings.catch_warnings():
                # Optuna only warns about a value outside of its parameter's range.
                warnings.simplefilter("error", UserWarning)
                for point in self.points:
                    view.enqueue_trial(point)
                    self.space.ask(view)
                number, _ = self.space.ask(view)
                check_grid(view.actual_trial(number))
        except (TypeError, ImportError):
            raise
        except Exception as error:
            kind, num_metrics = type(view.sampler).__name__, len(self.objective.metrics)
            raise ValueError(
                f"sampler must be able to search the space for {num_metrics} metrics, {kind} "
                f"cannot: {error}; take another sampler or space"
            ) from error


@dataclass(frozen=True, slots=True)
class OpenedStudy:
    """The study that the sampler sees, and the one in the user's storage, if any."""

    view: StudyView
    mirror: Mirror | None

    def fill(self, setup: SearchSetup, rewards: Sequence[Any]) -> list[dict[str, Any]]:
        """Add earlier trials and points with rewards; return the earlier trials' parameters."""
        from .study import QUEUED, copy_trials, finished_trial, quiet  # noqa: PLC0415

        known: list[dict[str, Any]] = []
        start = None if self.mirror is None else self.mirror.start_of_search()
        queued = [each for each in start.queued if _may_run(setup, *each)] if start else []
        with quiet():
            if self.mirror is not None and start is not None:
                earlier = self.mirror.earlier(start)
                self.view.add_trials(copy_trials(earlier))
                self.view.set_attributes(start.attributes)
                for number, params in queued:
                    self.view.enqueue_trial(dict(params), user_attrs={QUEUED: number})
                known = [trial.params for trial in earlier]
            for point, reward in zip(setup.points, rewards, strict=False):
                if point not in known:
                    self.view.add_trial(
                        finished_trial(
                            point,
                            setup.space.distributions(point),
                            setup.objective.rewards(reward),
                            constraints=setup.objective.violations_of(reward),
                        )
                    )
        return known

    def withdraw(self, number: int) -> None:
        """Remove a suggestion that is not run."""
        self.view.hide(number)
        if self.mirror is not None:
            self.mirror.withdraw(number)

    def write_all(self) -> None:
        """Write all trials of this experiment to the user's storage, e.g. after a restore."""
        for number in self.view.own_trial_numbers() if self.mirror else ():
            self.write(number)

    def write(self, number: int) -> None:
        """Write a trial's current state to the user's storage."""
        if self.mirror is not None:
            self.mirror.write(self.view.actual_trial(number), self.view.attributes)


def _may_run(setup: SearchSetup, number: int, params: Mapping[str, Any]) -> bool:
    """Return whether a waiting trial satisfies the relation of the space, or can be completed so.

    If not, it stays waiting in its study, with a warning.
    """
    if setup.space.where is None:
        return True
    try:
        setup.space.completed(params, generator(0, number))
    except ValueError as error:
        message = f"trial {number} of the study, which is waiting, is not run: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return True


def check_study(study: Any) -> None:
    """Check that an argument is a study.

    Raises:
        TypeError: If it is none.
    """
    from optuna import Study  # noqa: PLC0415  (an extra)

    if not isinstance(study, Study | None):
        raise TypeError(
            f"study must be an optuna.Study, got {study!r}; load it first, or give its study_name "
            "and storage"
        )
