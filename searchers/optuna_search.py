"""Optuna's samplers as a searcher.

Optuna is imported in this file and in `optuna_space`, nowhere else, and only inside the functions that use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, final

from .optuna_space import DeclaredSpace, Define, DefinedSpace, OptunaSpace
from .searcher import MODES, Searcher
from .seeding import fresh_seed, generator, seed_of
from .space import is_word, leaves, merge

if TYPE_CHECKING:
    import optuna  # an extra: at run time imported where it is used
    from optuna.trial import FrozenTrial

TIME_ATTR = "training_iteration"


@final
class OptunaSearch(Searcher):
    """Searches with any of Optuna's samplers, through an Optuna study of its own.

    Trials that a scheduler or stopper ends early are told as PRUNED with their intermediate values, so that the sampler does not take
    their last value for a final one; failed trials, and those whose final value is missing or NaN, are told as FAIL.

    Args:
        space: What to search, where ``param_space`` does not say it: a dictionary with search-space words or Optuna distributions, or
            a function of an Optuna trial that returns constants or None. Names such as ``"a/b"`` become nested dictionaries.
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. The sampler chooses parameters left out.
        sampler: An Optuna sampler, seeded by you; None for TPE, seeded by `seed`.
        study_name: Name of the study in the storage; None for a new name.
        storage: An Optuna storage or its URL; None to keep the study in memory.
        seed: Seed of the default sampler; None to take the experiment's.
        evaluated_rewards: The metric of each of `points_to_evaluate`, which then have to be complete and are not run again.

    Raises:
        ImportError: If Optuna is not installed.
        ValueError: If arguments contradict each other.

    Example:
        >>> from searchers.space import loguniform
        >>> searcher = OptunaSearch(metric="loss", mode="min", points_to_evaluate=[{"lr": 0.01}])
        >>> searcher.set_search_properties(None, None, {"lr": loguniform(1e-4, 1e-1), "epochs": 5}, seed=0)
        True
        >>> searcher.suggest("a")
        {'lr': 0.01, 'epochs': 5}

    Reference:
        Akiba, Sano, Yanase, Ohta, Koyama. Optuna: A Next-generation Hyperparameter Optimization Framework. KDD 2019, arXiv 1907.10902.

    Departures:
        Ray Tune tells trials that were stopped early as COMPLETE, and forgets `q` on logarithmic scales.
    """

    # A URL may hold a password, and nothing is to be connected to because a file says so.
    withheld = frozenset({"storage"})

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        space: Mapping[str, Any] | Define | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        study_name: str | None = None,
        storage: optuna.storages.BaseStorage | str | None = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        _require_optuna()
        points, rewards = list(points_to_evaluate or ()), list(evaluated_rewards or ())
        if sampler is not None and seed is not None:
            raise ValueError(f"seed must be None beside a sampler, got {seed}; give the seed to the sampler")
        if rewards and len(rewards) != len(points):
            raise ValueError(f"evaluated_rewards must hold one value per point, got {len(rewards)} for {len(points)}; add what is missing")
        self.metric = metric
        self.mode = mode
        self._given_space = space
        self._points = points
        self._rewards = rewards
        self._sampler = sampler
        self._study_name = study_name
        self._given_storage = storage
        self._own_seed = None if seed is None else seed_of(seed)
        self._seed = 0
        self._constants: Mapping[str, Any] = {}
        self._space: OptunaSpace | None = None
        self._queued: list[dict[str, Any]] = []
        self._evaluated: list[FrozenTrial] = []
        self._opened: _OpenedStudy | None = None
        self._num_suggested = 0
        self._numbers: dict[str, int] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any) -> bool:
        """Take over metric, mode, space and seed.

        Args:
            metric: Name of the metric, flattened, unless the searcher has one.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised, unless the searcher has one.
            config: The space, or what stays constant beside the searcher's own space.
            **spec: ``seed``, for the default sampler.

        Returns:
            False where the searcher already has a metric, mode or space and another one is given.

        Raises:
            ValueError: If metric or mode is missing, Optuna cannot search a parameter, or a point to evaluate does not fit.
        """
        given = self._given_space
        if given is not None and any(is_word(leaf) for _, leaf in leaves(config)):
            return False
        if not super().set_search_properties(metric, mode, config, **spec):
            return False
        _check_objective(self.metric, self.mode)
        seed = spec.get("seed") if self._own_seed is None else self._own_seed
        self._seed = fresh_seed() if seed is None else seed_of(seed)
        self._constants = {} if given is None else config
        self._space = DefinedSpace(given) if callable(given) else DeclaredSpace(config if given is None else given)
        queued = [self._space.encoded(point) for point in self._points]
        self._evaluated = [_evaluated(self._space, *pair) for pair in zip(queued, self._rewards, strict=True)] if self._rewards else []
        self._queued = [] if self._rewards else queued
        return True

    @property
    def study(self) -> optuna.Study:
        """The study, to look at; opened with the first suggestion.

        Raises:
            RuntimeError: If there is none yet, because metric, mode and space are not known.
        """
        return self._open().study

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return what the sampler proposes; points to evaluate come first."""
        space, study = self._known_space, self.study
        if self._sampler is None:
            study.sampler = _default_sampler(self._seed, self._num_suggested)
        with _quiet():
            number, config = space.ask(study)
        self._num_suggested += 1
        self._numbers[trial_id] = number
        return merge(self._constants, config)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Report an intermediate value at its ``training_iteration``; without one of the two, nothing."""
        step, value = result.get(TIME_ATTR), self._value_in(result)
        if trial_id in self._numbers and value is not None and isinstance(step, int) and step >= 0:
            self._open().report(self._numbers[trial_id], step, value)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False, stopped: bool = False) -> None:
        """Tell the study how the trial ended: COMPLETE, PRUNED or FAIL."""
        from optuna.trial import TrialState  # noqa: PLC0415  (an extra)

        if trial_id not in self._numbers:
            return
        self.on_trial_result(trial_id, result or {})
        number, value = self._numbers.pop(trial_id), self._value_in(result or {})
        is_valued = value is not None and not math.isnan(value)
        if stopped and not error:
            self.study.tell(number, state=TrialState.PRUNED)
        elif error or not is_valued:
            self.study.tell(number, state=TrialState.FAIL)
        else:
            self.study.tell(number, value, state=TrialState.COMPLETE)

    def state_dict(self) -> dict[str, Any]:
        """Return the open suggestions and, unless a storage keeps it, the whole study.

        A sampler of the user's own is not part of it: after a restore it draws from where it stands.
        """
        is_kept = self._opened is not None and self._given_storage is None
        return {
            "seed": self._seed,
            "num_suggested": self._num_suggested,
            "numbers": dict(self._numbers),
            "study_name": self.study.study_name if self._opened else None,
            "trials": [_state_of(trial) for trial in self.study.get_trials(deepcopy=False)] if is_kept else [],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called, with the study as it was; metric, mode and space have to be known already."""
        self._seed = state["seed"]
        self._num_suggested = state["num_suggested"]
        self._numbers = dict(state["numbers"])
        self._opened = None
        if state["study_name"] is None:
            return
        self._opened = self._opened_study(state["study_name"])
        for trial in state["trials"]:
            self.study.add_trial(_trial_of(trial))

    @property
    def _known_space(self) -> OptunaSpace:
        if self._space is None:
            raise RuntimeError("metric, mode and space must be known before the first suggestion; call set_search_properties first")
        return self._space

    def _open(self) -> _OpenedStudy:
        if self._opened is None:
            self._opened = self._opened_study(self._study_name)
            self._num_suggested = len(self.study.get_trials(deepcopy=False))
            self._add_points(self.study)
        return self._opened

    def _opened_study(self, name: str | None) -> _OpenedStudy:
        _, mode = _check_objective(self.metric, self.mode)
        return _opened_study(self._given_storage, name, mode, self._sampler)

    def _add_points(self, study: optuna.Study) -> None:
        # A stored study that is opened again has them already.
        known = [trial.params for trial in study.get_trials(deepcopy=False)]
        with _quiet():
            study.add_trials(trial for trial in self._evaluated if trial.params not in known)
            for params in self._queued:
                study.enqueue_trial(params, skip_if_exists=bool(known))

    def _value_in(self, result: Mapping[str, Any]) -> float | None:
        return _as_float(result.get(self.metric or ""))


@dataclass(frozen=True, slots=True)
class _OpenedStudy:
    """A study with the storage that keeps it, because only the storage takes reports about a trial by its number."""

    study: optuna.Study
    storage: optuna.storages.BaseStorage
    study_id: int

    def report(self, number: int, step: int, value: float) -> None:
        """Put down an intermediate value; a repeated step replaces the older value."""
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(self.study_id, number)
        self.storage.set_trial_intermediate_value(trial_id, step, value)


def _require_optuna() -> None:
    try:
        import optuna  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        raise ImportError('OptunaSearch needs Optuna, which is not installed; pip install "tuner-hpo[optuna]"') from error


def _check_objective(metric: str | None, mode: str | None) -> tuple[str, str]:
    if not isinstance(metric, str) or not metric:
        raise ValueError(f"metric must be the name of one metric for OptunaSearch, got {metric!r}; set TuneConfig(metric=...)")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES} for OptunaSearch, got {mode!r}; set TuneConfig(mode=...)")
    return metric, mode


def _evaluated(space: OptunaSpace, params: dict[str, Any], reward: float) -> FrozenTrial:
    from optuna.trial import create_trial  # noqa: PLC0415  (an extra)

    value = _as_float(reward)
    if value is None or math.isnan(value):
        raise ValueError(f"evaluated_rewards must hold numbers, got {reward!r}; leave out points without a result")
    distributions = space.distributions(params)
    return create_trial(params={name: params[name] for name in distributions}, distributions=distributions, value=value)


def _default_sampler(seed: int, num_suggested: int) -> optuna.samplers.BaseSampler:
    """Return a sampler for one suggestion: with its chance bound to the suggestion, a restored search goes on as if uninterrupted."""
    from optuna.samplers import TPESampler  # noqa: PLC0415  (an extra)

    return TPESampler(seed=int(generator(seed, num_suggested).integers(2**32)))


def _opened_study(
    given: optuna.storages.BaseStorage | str | None, name: str | None, mode: str, sampler: optuna.samplers.BaseSampler | None
) -> _OpenedStudy:
    import optuna  # noqa: PLC0415  (an extra)

    direction = optuna.study.StudyDirection.MAXIMIZE if mode == "max" else optuna.study.StudyDirection.MINIMIZE
    with _quiet():
        storage = optuna.storages.RDBStorage(given) if isinstance(given, str) else given or optuna.storages.InMemoryStorage()
        study = optuna.create_study(
            storage=storage,
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
            study_name=name,
            direction=direction,
            load_if_exists=True,
        )
    if study.direction != direction:
        raise ValueError(f"mode must be that of the stored study {study.study_name!r}, got {mode!r}; choose another study_name")
    return _OpenedStudy(study, storage, storage.get_study_id_from_name(study.study_name))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from telling about studies and trials, and leave its verbosity as it was."""
    from optuna import logging  # noqa: PLC0415  (an extra)

    verbosity = logging.get_verbosity()
    logging.set_verbosity(max(verbosity, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _as_float(value: Any) -> float | None:
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _state_of(trial: FrozenTrial) -> dict[str, Any]:
    from optuna.distributions import distribution_to_json  # noqa: PLC0415  (an extra)

    return {
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "distributions": {name: distribution_to_json(distribution) for name, distribution in trial.distributions.items()},
        "intermediate_values": list(map(list, trial.intermediate_values.items())),
        "user_attrs": trial.user_attrs,
        "system_attrs": trial.system_attrs,
    }


def _trial_of(state: Mapping[str, Any]) -> FrozenTrial:
    from optuna.distributions import json_to_distribution  # noqa: PLC0415  (an extra)
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415  (an extra)

    return create_trial(
        state=TrialState[state["state"]],
        values=state["values"],
        params=state["params"],
        distributions={name: json_to_distribution(text) for name, text in state["distributions"].items()},
        intermediate_values={step: value for step, value in state["intermediate_values"]},  # noqa: C416  (pairs come back as lists)
        user_attrs=state["user_attrs"],
        system_attrs=state["system_attrs"],
    )
