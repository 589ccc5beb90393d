"""Optuna studies: the one in memory that samplers see, and its copy in the user's storage.

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
from typing import Any, final

import optuna
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

TRIAL_ID = "trial_id"
"""User attribute: which of the tuner's trials it is."""

_FAILED = "tuner:failed"
"""System attribute of a failed trial or one without a finite value, which counts as worst."""

EXPERIMENT = "experiment"
"""User attribute, in a storage: which experiment of the tuner a trial belongs to."""


@final
class StudyView(optuna.Study):
    """A study of our own in memory, in which paused trials are PRUNED until they continue.

    Optuna's states are final once told, and it has none for a trial that may yet continue. So the
    trials themselves stay RUNNING here until they are over, and those that are paused are only
    shown otherwise. Trials are known by their numbers.

    Args:
        name: Its name.
        modes: ``"min"`` or ``"max"`` for each objective: the direction in which it is optimised.
    """

    def __init__(self, name: str, modes: Sequence[str]) -> None:
        self._view = _PausingStorage()
        directions = [
            StudyDirection.MAXIMIZE if mode == "max" else StudyDirection.MINIMIZE for mode in modes
        ]
        with quiet():
            self._view.create_new_study(directions, name)
            super().__init__(name, self._view, pruner=optuna.pruners.NopPruner())

    def stop(self) -> None:
        """Do nothing: the end of a sampler's grid is detected at its next proposal."""

    def standing(self, number: int) -> FrozenTrial:
        """Return a trial as it is, be it paused or not."""
        return self._view.standing(number)

    def note(self, number: int, trial_id: str) -> None:
        """Record which trial of the experiment it is."""
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
        """Tell how a trial ended.

        Raises:
            Exception: What the sampler raises when it is notified; the trial has ended all the
                same.
        """
        self._view.shown.pop(number, None)
        for name, value in constraints.items():
            self._view.set_trial_system_attr(number, _constraint(name), value)
        with quiet():
            self.tell(number, values, state=state)

    def mark_failed(self, number: int) -> None:
        """Mark a trial, which is about to end, to count as one of the worst."""
        self._view.set_trial_system_attr(number, _FAILED, True)

    @contextmanager
    def counting_failures(self, *, as_pruned: bool) -> Iterator[None]:
        """Show failed trials as the worst ones, once there is a value to compare them with.

        Args:
            as_pruned: Whether they are shown as PRUNED without any value, instead of COMPLETE with
                the worst values seen.
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

    def give_up_newest(self) -> None:
        """Mark the newest trial, whose suggestion failed, as FAIL; re-enqueue its point."""
        given_up = [
            trial
            for trial in self._view.standing_trials()
            if trial.state is TrialState.RUNNING and TRIAL_ID not in trial.user_attrs
        ]
        for trial in given_up:
            self._view.set_trial_state_values(trial.number, TrialState.FAIL)
            if "fixed_params" in trial.system_attrs:
                self.enqueue_trial(trial.system_attrs["fixed_params"], user_attrs=trial.user_attrs)

    def numbers_of_ours(self) -> list[int]:
        """Return the numbers of the trials that this search has proposed."""
        return [
            trial.number
            for trial in self._view.standing_trials()
            if TRIAL_ID in trial.user_attrs and EXPERIMENT not in trial.user_attrs
        ]

    def forget(self, number: int) -> None:
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
        trials = self._view.standing_trials()
        return {
            "trials": [_fields_of(trial) for trial in trials],
            "attributes": dict(self.attributes),
            "paused": [[number, constraints] for number, constraints in self._view.shown.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned, into an empty study."""
        with quiet():
            self.add_trials(_trial_of(fields) for fields in state["trials"])
        self.set_attributes(state["attributes"])
        self._view.shown.update((number, constraints) for number, constraints in state["paused"])


class _PausingStorage(InMemoryStorage):
    """A storage in memory with one study, whose trials have their numbers as ids.

    Attributes:
        shown: Paused trials, with their constraints.
        hidden: Trials that are not to be seen.
        failed_as: What is shown of failed trials in place of what they are; empty where they are to
            be seen as they are.
        worst_constraints: System attributes with constraints that are then shown of those that have
            none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[int, dict[str, float]] = {}
        self.hidden: set[int] = set()
        self.failed_as: dict[str, Any] = {}
        self.worst_constraints: dict[str, float] = {}

    def standing(self, number: int) -> FrozenTrial:
        return super().get_trial(number)

    def standing_trials(self) -> list[FrozenTrial]:
        return [
            trial
            for trial in super().get_all_trials(0, deepcopy=False)
            if trial.number not in self.hidden
        ]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._as_shown(super().get_trial(trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if not self.shown and not self.hidden and not self.failed_as:
            return super().get_all_trials(study_id, deepcopy, states)
        trials = [self._as_shown(trial) for trial in self.standing_trials()]
        wanted = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(wanted) if deepcopy else wanted

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


def ended(
    params: Mapping[str, Any],
    distributions: Mapping[str, Any],
    values: Sequence[float] | None,
    state: TrialState = TrialState.COMPLETE,
    intermediate_values: Sequence[float] = (),
    *,
    is_failed: bool = False,
) -> FrozenTrial:
    """Return a finished trial for an externally evaluated configuration; no values: failed."""
    return create_trial(
        state=state,
        params={name: params[name] for name in distributions},
        distributions=dict(distributions),
        values=None if values is None else list(values),
        intermediate_values={
            step: float(value) for step, value in enumerate(intermediate_values, start=1)
        },
        system_attrs={_FAILED: True} if is_failed else None,
    )


def copies(trials: Iterable[FrozenTrial]) -> Iterator[FrozenTrial]:
    """Yield trials of another study as they can be added to a view."""
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
            if not distribution._contains(distribution.to_internal_repr(value)):  # noqa: SLF001  (what Optuna itself asks)
                raise ValueError(
                    f"the grid holds {value!r} for {name!r}, which must lie in {distribution}"
                )


def random_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Return a sampler that can search anything."""
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
        intermediate_values={step: value for step, value in fields["intermediate_values"]},  # noqa: C416  (pairs come back as lists)
        user_attrs=fields["user_attrs"],
        system_attrs=fields["system_attrs"],
    )


QUEUED = "queued_as"
"""User attribute: the number under which a trial had been waiting in the storage."""

_SHARED = "qmc:"
"""Prefix of study attributes that other searches in the same study continue from."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a search found in the study when it began, so that it can be replayed.

    Attributes:
        num_trials: How many trials there were.
        queued: Numbers and parameters of those that were waiting to be run.
        attributes: Attributes of the study that samplers had set.
    """

    num_trials: int
    queued: Sequence[tuple[int, Mapping[str, Any]]]
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class _Written:
    """State of a trial in the storage.

    Attributes:
        trial_id: Its id there.
        is_over: Whether it has ended there; nothing can be changed then.
        steps: Its intermediate values.
        attributes: Its system attributes.
    """

    trial_id: int
    is_over: bool = False
    steps: dict[int, float] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


@final
class Mirror:
    """Writes trials to a study in a storage; what stands there already is not written again.

    A storage that fails ends nothing: a warning says so once, and what is missing is written with
    the next change. What cannot be written because the trial is over there stays as it is.

    Args:
        given: The storage, or its URL.
        name: Name of the study, which is made where there is none.
        modes: ``"min"`` or ``"max"`` for each objective: the direction in which it is optimised.
        experiment: Which experiment writes; another one of the same name would take its trials for
            its own.

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
        if study.directions != directions:
            raise ValueError(
                f"mode must be that of the stored study {name!r}, got {', '.join(modes)!r}; choose "
                "another study_name"
            )
        self._study_id = self._storage.get_study_id_from_name(name)
        self._experiment = experiment
        self._written: dict[int, _Written] = {}
        self._due: dict[int, FrozenTrial] = {}
        self._known = {
            trial.user_attrs[TRIAL_ID]: trial
            for trial in self._trials()
            if self._is_own(trial) and TRIAL_ID in trial.user_attrs
        }
        self._shared: dict[str, Any] = {}
        self._has_failed = False

    def begin(self) -> Beginning:
        """Return what the study held when this experiment began, and put it down if that is now."""
        key = f"tuner:{self._experiment}"
        noted = self._storage.get_study_user_attrs(self._study_id).get(key)
        if noted is None:
            trials = self._trials()
            queued = [
                [trial.number, trial.system_attrs.get("fixed_params", {})]
                for trial in trials
                if trial.state is TrialState.WAITING
            ]
            attributes = self._storage.get_study_system_attrs(self._study_id)
            shared = {name: value for name, value in attributes.items() if name.startswith(_SHARED)}
            noted = {"num_trials": len(trials), "queued": queued, "attributes": shared}
            self._storage.set_study_user_attr(self._study_id, key, noted)
        return Beginning(
            noted["num_trials"],
            [(number, params) for number, params in noted["queued"]],
            noted["attributes"],
        )

    def earlier(self, beginning: Beginning) -> list[FrozenTrial]:
        """Return the trials that were over before, in their order."""
        return [
            trial
            for trial in self._trials()[: beginning.num_trials]
            if trial.state.is_finished() and not self._is_own(trial)
        ]

    def write(self, trial: FrozenTrial, attributes: Mapping[str, Any]) -> None:
        """Write a trial's current state to the storage.

        Args:
            trial: The trial in its current state.
            attributes: Attributes of the study that samplers have set.
        """
        self._due[trial.number] = trial
        try:
            self._write_attributes(attributes)
            for due in list(self._due.values()):
                self._bring_up(due)
                del self._due[due.number]
        except Exception as error:  # noqa: BLE001  (a database may raise anything; the search itself does not need it)
            if not self._has_failed:
                said = (
                    f"Optuna's storage cannot be written to ({type(error).__name__}: {error}); it "
                    "is tried again with the next result"
                )
                warnings.warn(said, RuntimeWarning, stacklevel=2)
            self._has_failed = True
        else:
            self._has_failed = False

    def _trials(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study_id, deepcopy=False)

    def _is_own(self, trial: FrozenTrial) -> bool:
        return bool(trial.user_attrs.get(EXPERIMENT) == self._experiment)

    def _write_attributes(self, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            if name.startswith(_SHARED) and self._shared.get(name) != value:
                self._storage.set_study_system_attr(self._study_id, name, value)
                self._shared[name] = value

    def _bring_up(self, trial: FrozenTrial) -> None:
        written = self._written.get(trial.number) or self._found(trial) or self._added(trial)
        self._written[trial.number] = written
        if written.is_over:
            return
        for step, value in trial.intermediate_values.items():
            if repr(written.steps.get(step)) != repr(value):  # NaN equals nothing, itself included
                self._storage.set_trial_intermediate_value(written.trial_id, step, value)
                written.steps[step] = value
        for name, attribute in trial.system_attrs.items():
            if written.attributes.get(name) != attribute:
                self._storage.set_trial_system_attr(written.trial_id, name, attribute)
                written.attributes[name] = attribute
        if trial.state.is_finished():
            self._storage.set_trial_state_values(written.trial_id, trial.state, trial.values)
            written.is_over = True

    def _found(self, trial: FrozenTrial) -> _Written | None:
        """Return the trial's record in the storage, from earlier or from its queue; None if new."""
        stored = self._known.get(trial.user_attrs[TRIAL_ID])
        if stored is None and QUEUED in trial.user_attrs:
            stored = self._taken_from_queue(trial, trial.user_attrs[QUEUED])
        if stored is None:
            return None
        return _Written(
            stored._trial_id,  # noqa: SLF001  (Optuna tells a trial's id nowhere else)
            stored.state.is_finished(),
            dict(stored.intermediate_values),
            dict(stored.system_attrs),
        )

    def _taken_from_queue(self, trial: FrozenTrial, number: int) -> FrozenTrial | None:
        """Run a trial that has been waiting in the storage, unless another process does."""
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return None
        for name, distribution in trial.distributions.items():
            self._storage.set_trial_param(
                trial_id, name, distribution.to_internal_repr(trial.params[name]), distribution
            )
        for name, value in self._marks(trial).items():
            self._storage.set_trial_user_attr(trial_id, name, value)
        return self._storage.get_trial(trial_id)

    def _added(self, trial: FrozenTrial) -> _Written:
        template = create_trial(
            state=TrialState.RUNNING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=self._marks(trial),
            system_attrs=trial.system_attrs,
        )
        trial_id = self._storage.create_new_trial(self._study_id, template_trial=template)
        return _Written(trial_id, attributes=dict(trial.system_attrs))

    def _marks(self, trial: FrozenTrial) -> dict[str, Any]:
        return {**trial.user_attrs, EXPERIMENT: self._experiment}
