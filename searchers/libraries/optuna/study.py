"""Optuna studies: the one in memory that samplers use, and its copy in the user's storage.

This module imports Optuna at the top, since its classes derive from Optuna's. It is itself imported
only when a study is opened.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, final

import optuna
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

TRIAL_ID = "trial_id"
"""User attribute: the id of the experiment's trial."""

_FAILED = "tuner:failed"
"""System attribute of a trial that failed or has no finite value, and counts as worst."""

_EARLIER = "tuner:earlier"
"""System attribute of a trial that no sampler of this search has proposed."""

_WHERE = "where"
"""The constraint that stands for the relation of the space: above 0 where it does not hold."""

EXPERIMENT = "experiment"
"""User attribute, in a storage: the id of the experiment that a trial belongs to."""


@final
class StudyView(optuna.Study):
    """A study in memory, in which paused trials are shown as PRUNED until they continue.

    Optuna's final states cannot be changed, and it has no state for a trial that may continue. So
    trials are stored as RUNNING until they are over, and only what reads of the study return
    differs. Trials are identified by their numbers.

    Args:
        name: Its name.
        modes: ``"min"`` or ``"max"`` for each objective: the direction in which it is optimised.
    """

    def __init__(self, name: str, modes: Sequence[str]) -> None:
        self._view = _ViewStorage()
        directions = [
            StudyDirection.MAXIMIZE if mode == "max" else StudyDirection.MINIMIZE for mode in modes
        ]
        with quiet():
            self._view.create_new_study(directions, name)
            super().__init__(name, self._view, pruner=optuna.pruners.NopPruner())

    def stop(self) -> None:
        """Do nothing: the end of a sampler's grid is detected at its next proposal."""

    def actual_trial(self, number: int) -> FrozenTrial:
        """Return a trial as it is stored, whether paused or not."""
        return self._view.actual_trial(number)

    def set_trial_id(self, number: int, trial_id: str) -> None:
        """Record the id of the experiment's trial."""
        self._view.set_trial_user_attr(number, TRIAL_ID, trial_id)

    def report(self, number: int, step: int, value: float) -> None:
        """Record an intermediate value, replacing one of the same step; a paused trial resumes."""
        self._view.shown.pop(number, None)
        self._view.set_trial_intermediate_value(number, step, value)

    def show_paused(self, number: int, constraints: Mapping[str, float]) -> None:
        """Show a trial as PRUNED at its last intermediate value, with its constraints."""
        self._view.shown[number] = dict(constraints)

    def end(
        self,
        number: int,
        state: TrialState,
        values: Sequence[float] | None,
        constraints: Mapping[str, float],
    ) -> None:
        """End a trial.

        Raises:
            Exception: What the sampler raises when it is notified; the trial has ended
                nevertheless.
        """
        self._view.shown.pop(number, None)
        for name, value in constraints.items():
            self._view.set_trial_system_attr(number, _constraint(name), value)
        if _EARLIER in self._view.actual_trial(number).system_attrs:
            # The sampler has not proposed it.
            self._view.set_trial_state_values(number, state, values)
            return
        with quiet():
            self.tell(number, values, state=state)

    def mark_failed(self, number: int) -> None:
        """Mark a trial, before its end, to count as one of the worst."""
        self._view.set_trial_system_attr(number, _FAILED, True)

    @contextmanager
    def showing_failures_as_worst(self, *, as_pruned: bool) -> Iterator[None]:
        """Show failed trials as the worst ones for the duration, if there is a value at all.

        Args:
            as_pruned: Whether they are shown as PRUNED without a value, instead of COMPLETE with
                the worst values so far.
        """
        trials = [
            trial
            for trial in self._view.get_all_trials(0, deepcopy=False)
            if _FAILED not in trial.system_attrs
        ]
        values = [
            trial.values
            for trial in trials
            if trial.values is not None and all(map(math.isfinite, trial.values))
        ]
        if as_pruned and (values or any(trial.state is TrialState.PRUNED for trial in trials)):
            self._view.failed_as = {
                "state": TrialState.PRUNED,
                "values": None,
                "intermediate_values": {},
            }
        elif values:
            worst = [
                (max if direction is StudyDirection.MINIMIZE else min)(each)
                for direction, each in zip(self.directions, zip(*values, strict=True), strict=True)
            ]
            self._view.failed_as = {"state": TrialState.COMPLETE, "values": worst}
            self._view.worst_constraints = _worst_constraints(trials)
        try:
            yield
        finally:
            self._view.failed_as, self._view.worst_constraints = {}, {}

    def refuse(self, number: int, *, is_learnt: bool) -> None:
        """Hide a trial that violates the relation of the space.

        Args:
            number: Its number.
            is_learnt: Whether it is shown within `showing_refusals`.
        """
        self.hide(number)
        if is_learnt:
            self._view.refused.append(number)

    @contextmanager
    def showing_refusals(self) -> Iterator[None]:
        """Show the newest refused trials as infeasible ones for the duration, and mean values.

        They are no more than those that have values: others would take the place of the sampler's
        first random trials, and make it slow.
        """
        trials = [
            trial
            for trial in self._view.actual_trials()
            if trial.values is not None and all(map(math.isfinite, trial.values))
        ]
        values = [trial.values for trial in trials]
        if values:
            self._view.refused_values = [fmean(each) for each in zip(*values, strict=True)]
            self._view.refused_attributes = dict.fromkeys(_worst_constraints(trials), 0.0)
            self._view.refused_shown = set(self._view.refused[-len(values) :])
        try:
            yield
        finally:
            self._view.refused_shown = set()

    def fail_newest(self) -> None:
        """Mark the newest trial, whose suggestion failed, as FAIL; re-enqueue its point."""
        failed = [
            trial
            for trial in self._view.actual_trials()
            if trial.state is TrialState.RUNNING and TRIAL_ID not in trial.user_attrs
        ]
        for trial in failed:
            self._view.set_trial_state_values(trial.number, TrialState.FAIL)
            # An initial point is not lost: the next suggestion gets it.
            if "fixed_params" in trial.system_attrs:
                self.enqueue_trial(trial.system_attrs["fixed_params"], user_attrs=trial.user_attrs)

    def own_trial_numbers(self) -> list[int]:
        """Return the numbers of the trials of this search."""
        return [
            trial.number
            for trial in self._view.actual_trials()
            if TRIAL_ID in trial.user_attrs and EXPERIMENT not in trial.user_attrs
        ]

    @property
    def is_waiting(self) -> bool:
        """Whether a trial waits to be run."""
        return any(trial.state is TrialState.WAITING for trial in self._view.actual_trials())

    @property
    def earlier_params(self) -> list[dict[str, Any]]:
        """The parameters of trials that were run as the experiment was declared before."""
        trials = self._view.actual_trials()
        return [trial.params for trial in trials if _EARLIER in trial.system_attrs]

    def add_earlier(
        self,
        trial_id: str,
        params: Mapping[str, Any],
        distributions: Mapping[str, Any],
        attributes: Mapping[str, Any],
    ) -> int:
        """Add a trial that runs as the experiment was declared before; return its number."""
        trial = create_trial(
            state=TrialState.RUNNING,
            params={name: params[name] for name in distributions},
            distributions=dict(distributions),
            user_attrs={TRIAL_ID: trial_id},
            system_attrs={**attributes, _EARLIER: True},
        )
        with quiet():
            self.add_trial(trial)
        return self._view.num_trials - 1

    def others(self, number: int) -> list[FrozenTrial]:
        """Return all trials but one."""
        return [trial for trial in self.get_trials(deepcopy=False) if trial.number != number]

    def hide(self, number: int) -> None:
        """Hide a trial that will never be run."""
        self._view.hidden.add(number)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the study that samplers have set."""
        return self._view.get_study_system_attrs(self._study_id)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Restore attributes of the study that samplers have set."""
        for name, value in attributes.items():
            self._view.set_study_system_attr(self._study_id, name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return the study as JSON values."""
        return {
            "trials": [_fields_of(trial) for trial in self._view.every_trial()],
            "hidden": sorted(self._view.hidden),
            "refused": list(self._view.refused),
            "attributes": dict(self.attributes),
            "paused": [[number, constraints] for number, constraints in self._view.shown.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned, into an empty study."""
        with quiet():
            self.add_trials(_trial_of(fields) for fields in state["trials"])
        self.set_attributes(state["attributes"])
        self._view.hidden.update(state["hidden"])
        self._view.refused.extend(state.get("refused", ()))  # earlier versions lack them
        self._view.shown.update((number, constraints) for number, constraints in state["paused"])


class _ViewStorage(InMemoryStorage):
    """A storage in memory with one study, whose trials have their numbers as ids.

    Attributes:
        shown: The constraints of paused trials, by number.
        hidden: Numbers of trials that reads leave out.
        refused: Numbers of hidden trials that violate the relation of the space, to be learnt.
        refused_shown: Those of them that are shown as infeasible, with `refused_values` and
            `refused_attributes`.
        failed_as: Attributes that failed trials are shown with; empty to show them unchanged.
        worst_constraints: System attributes with the constraints that failed trials without their
            own are then shown with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[int, dict[str, float]] = {}
        self.hidden: set[int] = set()
        self.refused: list[int] = []
        self.refused_shown: set[int] = set()
        self.refused_values: list[float] = []
        self.refused_attributes: dict[str, float] = {}
        self.failed_as: dict[str, Any] = {}
        self.worst_constraints: dict[str, float] = {}

    def actual_trial(self, number: int) -> FrozenTrial:
        """Return a trial as it is stored."""
        return super().get_trial(number)

    def every_trial(self) -> list[FrozenTrial]:
        return super().get_all_trials(0, deepcopy=False)

    @property
    def num_trials(self) -> int:
        return len(self.every_trial())

    def actual_trials(self) -> list[FrozenTrial]:
        return [trial for trial in self.every_trial() if trial.number not in self.hidden]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._as_shown(super().get_trial(trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if not self.shown and not self.hidden and not self.failed_as:
            return super().get_all_trials(study_id, deepcopy, states)
        if self.refused_shown:
            trials = list(self._with_refusals())
        else:
            trials = [self._as_shown(trial) for trial in self.actual_trials()]
        wanted = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(wanted) if deepcopy else wanted

    def _with_refusals(self) -> Iterator[FrozenTrial]:
        """Yield trials as they are shown, with refused ones and the constraint of all."""
        for trial in self.every_trial():
            is_refused = trial.number in self.refused_shown
            if trial.number in self.hidden and not is_refused:
                continue
            shown = copy.copy(self._as_shown(trial))
            if is_refused:
                shown.state = TrialState.COMPLETE
                shown.values = list(self.refused_values)
                shown.datetime_complete = trial.datetime_start
                shown.system_attrs = {**self.refused_attributes, **trial.system_attrs}
            if shown.state.is_finished():
                excess = 1.0 if is_refused else -1.0
                shown.system_attrs = {**shown.system_attrs, _constraint(_WHERE): excess}
            yield shown

    def _as_shown(self, trial: FrozenTrial) -> FrozenTrial:
        if self.failed_as and _FAILED in trial.system_attrs and trial.state.is_finished():
            failed = copy.copy(trial)
            for name, value in self.failed_as.items():
                setattr(failed, name, value)
            failed.system_attrs = {**self.worst_constraints, **trial.system_attrs}
            return failed
        constraints = self.shown.get(trial.number)
        if constraints is None or trial.last_step is None:
            return trial
        paused = copy.copy(trial)
        paused.state = TrialState.PRUNED
        value = trial.intermediate_values[trial.last_step]
        paused.values = None if math.isnan(value) else [value]
        paused.datetime_complete = trial.datetime_start
        paused.system_attrs = {
            **trial.system_attrs,
            **{_constraint(name): violation for name, violation in constraints.items()},
        }
        return paused


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's logs and its warnings about infinite values for the duration."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(verbosity, optuna.logging.ERROR))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def finished_trial(
    params: Mapping[str, Any],
    distributions: Mapping[str, Any],
    values: Sequence[float] | None,
    state: TrialState = TrialState.COMPLETE,
    intermediate_values: Sequence[float] = (),
    *,
    constraints: Mapping[str, float] | None = None,
    is_failed: bool = False,
) -> FrozenTrial:
    """Return a finished trial for an externally evaluated configuration."""
    violations = {_constraint(name): value for name, value in (constraints or {}).items()}
    return create_trial(
        state=state,
        params={name: params[name] for name in distributions},
        distributions=dict(distributions),
        values=None if values is None else list(values),
        intermediate_values={
            step: float(value) for step, value in enumerate(intermediate_values, start=1)
        },
        system_attrs={**violations, **({_FAILED: True} if is_failed else {})},
    )


def copy_trials(trials: Iterable[FrozenTrial]) -> Iterator[FrozenTrial]:
    """Yield copies of another study's trials, without the ids that they have there."""
    return (_trial_of(_fields_of(trial)) for trial in trials)


def check_grid(trial: FrozenTrial) -> None:
    """Refuse a grid that names other parameters than the space, or holds values outside of it.

    Raises:
        ValueError: If it does.
    """
    grid = trial.system_attrs.get("search_space")
    if grid is None:
        return
    if grid.keys() != trial.distributions.keys():
        raise ValueError(f"the grid names {sorted(grid)}, the space {sorted(trial.distributions)}")
    for name, distribution in trial.distributions.items():
        for value in grid[name]:
            # The check that Optuna itself makes.
            if not distribution._contains(distribution.to_internal_repr(value)):  # noqa: SLF001
                raise ValueError(
                    f"the grid holds {value!r} for {name!r}, which must lie in {distribution}"
                )


@final
class _PointTrial(optuna.Trial):
    """A trial that refuses values given to it which lie outside of their ranges."""

    def __init__(self, study: optuna.Study, number: int, given: Mapping[str, Any]) -> None:
        super().__init__(study, number)
        self._given = given

    def _suggest(self, name: str, distribution: Any) -> Any:
        given = self._given
        if name in given and not _holds(distribution, given[name]):
            raise ValueError(
                f"{name!r} must lie in {distribution}, got {given[name]!r}; correct the point, or "
                "widen the range in the space function"
            )
        return super()._suggest(name, distribution)


def trial_with(params: Mapping[str, Any], seed: int) -> optuna.Trial:
    """Return a trial of no study that is given these parameters; others are drawn at random."""
    view = StudyView("tried out", ["min"])
    view.sampler = random_sampler(seed)
    with quiet():
        view.enqueue_trial(dict(params))
        return _PointTrial(view, view.ask().number, params)


def _holds(distribution: Any, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))  # noqa: SLF001
    except (TypeError, ValueError):  # a value of another type
        return False


def random_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Return a sampler that supports every space."""
    return optuna.samplers.RandomSampler(seed=seed)


def _constraint(name: str) -> str:
    # As optuna.Trial.set_constraint writes it.
    return f"constraints:{name}"


def _worst_constraints(trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """Return the largest violation of each constraint among the trials, as system attributes."""
    worst: dict[str, float] = {}
    for trial in trials:
        for name, value in trial.system_attrs.items():
            if name.startswith(_constraint("")):
                worst[name] = max(value, worst.get(name, value))
    return worst


def _fields_of(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "distributions": {
            name: distribution_to_json(distribution)
            for name, distribution in trial.distributions.items()
        },
        "intermediate_values": list(map(list, trial.intermediate_values.items())),
        "user_attrs": trial.user_attrs,
        "system_attrs": trial.system_attrs,
    }


def _trial_of(fields: Mapping[str, Any]) -> FrozenTrial:
    return create_trial(
        state=TrialState[fields["state"]],
        values=fields["values"],
        params=fields["params"],
        distributions={
            name: json_to_distribution(text) for name, text in fields["distributions"].items()
        },
        intermediate_values=dict(fields["intermediate_values"]),
        user_attrs=fields["user_attrs"],
        system_attrs=fields["system_attrs"],
    )


QUEUED = "queued_as"
"""User attribute: the number that a trial had in the storage, where it was waiting."""

_SHARED = "qmc:"
"""Prefix of study attributes that a later search in the same study continues from."""


@dataclass(frozen=True, slots=True)
class StudyStart:
    """The study when a search began, recorded so that the search can be replayed.

    Attributes:
        num_trials: Number of trials.
        queued: Numbers and parameters of waiting trials.
        attributes: Attributes of the study that samplers had set.
    """

    num_trials: int
    queued: Sequence[tuple[int, Mapping[str, Any]]]
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class _StoredTrial:
    """A trial in the storage, with what has been written of it.

    Attributes:
        trial_id: Its id there.
        is_over: Whether it has ended there, so that it cannot be changed.
        steps: Its intermediate values.
        attributes: Its system attributes.
    """

    trial_id: int
    is_over: bool = False
    steps: dict[int, float] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


@final
class Mirror:
    """Writes trials to a study in a storage, and of each only what has changed.

    An error of the storage does not end the search: it causes one warning, and what is missing is
    written with the next change. Trials that are over in the storage are not changed.

    Args:
        given: The storage, or its URL.
        name: Name of the study, which is created if there is none.
        modes: ``"min"`` or ``"max"`` for each objective: the direction in which it is optimised.
        experiment: The id of the experiment, by which a restored one finds its trials.

    Raises:
        ValueError: If the study has other directions.
    """

    def __init__(
        self,
        given: optuna.storages.BaseStorage | str,
        name: str,
        modes: Sequence[str],
        experiment: str,
    ) -> None:
        directions = [
            StudyDirection.MAXIMIZE if mode == "max" else StudyDirection.MINIMIZE for mode in modes
        ]
        self._storage = optuna.storages.get_storage(given)
        with quiet():
            study = optuna.create_study(
                storage=self._storage, study_name=name, directions=directions, load_if_exists=True
            )
        if len(study.directions) != len(directions):
            raise ValueError(
                f"metric must name as many metrics as the stored study {name!r} has objectives, "
                f"{len(study.directions)}, got {len(directions)}; write OptunaSearch(metric=[...], "
                "mode=[...]) without TuneConfig(metric=..., mode=...), or choose another study_name"
            )
        if study.directions != directions:
            raise ValueError(
                f"mode must be that of the stored study {name!r}, got {', '.join(modes)!r}; choose "
                "another study_name"
            )
        self._study_id = self._storage.get_study_id_from_name(name)
        self._experiment = experiment
        self._written: dict[int, _StoredTrial] = {}
        self._pending: dict[int, FrozenTrial] = {}
        self._known = {
            trial.user_attrs[TRIAL_ID]: trial
            for trial in self._trials()
            if self._is_own(trial) and TRIAL_ID in trial.user_attrs
        }
        self._shared: dict[str, Any] = {}
        self._has_failed = False

    def start_of_search(self) -> StudyStart:
        """Return the study as it was when this experiment began, and record that if it is now."""
        key = f"tuner:{self._experiment}"
        # Recorded once: a restored search must not find trials that were added since.
        recorded = self._storage.get_study_user_attrs(self._study_id).get(key)
        if recorded is None:
            trials = self._trials()
            queued = [
                [trial.number, trial.system_attrs.get("fixed_params", {})]
                for trial in trials
                if trial.state is TrialState.WAITING
            ]
            attributes = self._storage.get_study_system_attrs(self._study_id)
            shared = {name: value for name, value in attributes.items() if name.startswith(_SHARED)}
            recorded = {"num_trials": len(trials), "queued": queued, "attributes": shared}
            self._storage.set_study_user_attr(self._study_id, key, recorded)
        return StudyStart(
            recorded["num_trials"],
            [(number, params) for number, params in recorded["queued"]],
            recorded["attributes"],
        )

    def earlier(self, start: StudyStart) -> list[FrozenTrial]:
        """Return the trials that were over when the search began, in their order."""
        return [
            trial
            for trial in self._trials()[: start.num_trials]
            if trial.state.is_finished() and not self._is_own(trial)
        ]

    def write(self, trial: FrozenTrial, attributes: Mapping[str, Any]) -> None:
        """Write a trial's current state to the storage.

        Args:
            trial: The trial in its current state.
            attributes: Attributes of the study that samplers have set.
        """
        self._pending[trial.number] = trial
        try:
            self._write_attributes(attributes)
            for pending in list(self._pending.values()):
                self._update(pending)
                del self._pending[pending.number]
        # A database may raise anything, and the search itself does not need it.
        except Exception as error:  # noqa: BLE001
            if not self._has_failed:
                message = (
                    f"Optuna's storage cannot be written to ({type(error).__name__}: {error}); it "
                    "is tried again with the next result"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            self._has_failed = True
        else:
            self._has_failed = False

    def withdraw(self, number: int) -> None:
        """End a trial that is not run, unless it stands for one of an earlier session."""
        written = self._written.pop(number, None)
        self._pending.pop(number, None)
        known = {trial._trial_id for trial in self._known.values()}  # noqa: SLF001
        if written is not None and not written.is_over and written.trial_id not in known:
            self._storage.set_trial_state_values(written.trial_id, TrialState.FAIL)

    def _trials(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study_id, deepcopy=False)

    def _is_own(self, trial: FrozenTrial) -> bool:
        return bool(trial.user_attrs.get(EXPERIMENT) == self._experiment)

    def _write_attributes(self, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            if name.startswith(_SHARED) and self._shared.get(name) != value:
                self._storage.set_study_system_attr(self._study_id, name, value)
                self._shared[name] = value

    def _update(self, trial: FrozenTrial) -> None:
        written = (
            self._written.get(trial.number) or self._stored_record(trial) or self._new_record(trial)
        )
        self._written[trial.number] = written
        if written.is_over:
            return
        for step, value in trial.intermediate_values.items():
            # By their representation, since NaN does not equal itself.
            if repr(written.steps.get(step)) != repr(value):
                self._storage.set_trial_intermediate_value(written.trial_id, step, value)
                written.steps[step] = value
        for name, attribute in trial.system_attrs.items():
            if written.attributes.get(name) != attribute:
                self._storage.set_trial_system_attr(written.trial_id, name, attribute)
                written.attributes[name] = attribute
        if trial.state.is_finished():
            self._storage.set_trial_state_values(written.trial_id, trial.state, trial.values)
            written.is_over = True

    def _stored_record(self, trial: FrozenTrial) -> _StoredTrial | None:
        """Return the record of a trial that is in the storage already, or None."""
        stored = self._known.get(trial.user_attrs[TRIAL_ID])
        if stored is None and QUEUED in trial.user_attrs:
            stored = self._claim_waiting(trial, trial.user_attrs[QUEUED])
        if stored is None:
            return None
        return _StoredTrial(
            stored._trial_id,  # noqa: SLF001  (no public attribute has it)
            stored.state.is_finished(),
            dict(stored.intermediate_values),
            dict(stored.system_attrs),
        )

    def _claim_waiting(self, trial: FrozenTrial, number: int) -> FrozenTrial | None:
        """Set a waiting trial of the storage to RUNNING; None if another process has."""
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return None
        for name, distribution in trial.distributions.items():
            self._storage.set_trial_param(
                trial_id, name, distribution.to_internal_repr(trial.params[name]), distribution
            )
        for name, value in self._user_attributes(trial).items():
            self._storage.set_trial_user_attr(trial_id, name, value)
        return self._storage.get_trial(trial_id)

    def _new_record(self, trial: FrozenTrial) -> _StoredTrial:
        template = create_trial(
            state=TrialState.RUNNING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=self._user_attributes(trial),
            system_attrs=trial.system_attrs,
        )
        trial_id = self._storage.create_new_trial(self._study_id, template_trial=template)
        return _StoredTrial(trial_id, attributes=dict(trial.system_attrs))

    def _user_attributes(self, trial: FrozenTrial) -> dict[str, Any]:
        return {**trial.user_attrs, EXPERIMENT: self._experiment}
