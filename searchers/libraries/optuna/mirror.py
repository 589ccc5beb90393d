"""A study in the user's storage, to which a search is written through, so that others can look at it while it runs.

This file imports Optuna outright; it is itself imported only when a study is opened.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from .study import EXPERIMENT, TRIAL_ID, quiet

QUEUED = "queued_as"
"""User attribute: the number under which a trial had been waiting in the storage."""

_SHARED = "qmc:"
"""What begins the names of those attributes of a study that another search in the same study has to go on from."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a search found in the study when it began, so that it can be lived through again.

    Attributes:
        num_trials: How many trials there were.
        queued: Numbers and parameters of those that were waiting to be run.
        attributes: What samplers had put down about the study.
    """

    num_trials: int
    queued: Sequence[tuple[int, Mapping[str, Any]]]
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class _Written:
    """What of a trial stands in the storage.

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

    A storage that fails ends nothing: a warning says so once, and what is missing is written with the next change. What cannot be written
    because the trial is over there stays as it is.

    Args:
        given: The storage, or its URL.
        name: Name of the study, which is made where there is none.
        modes: ``"min"`` or ``"max"`` for each objective: the direction in which it is optimised.
        experiment: Which experiment writes; another one of the same name would take its trials for its own.

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
                f"mode must be that of the stored study {name!r}, got {', '.join(modes)!r}; choose another study_name"
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
        """Bring the storage to where a trial stands.

        Args:
            trial: The trial as it stands in the view.
            attributes: What samplers have put down about the study.
        """
        self._due[trial.number] = trial
        try:
            self._write_attributes(attributes)
            for due in list(self._due.values()):
                self._bring_up(due)
                del self._due[due.number]
        except Exception as error:  # noqa: BLE001  (a database may raise anything; the search itself does not need it)
            if not self._has_failed:
                said = f"Optuna's storage cannot be written to ({type(error).__name__}: {error}); it is tried again with the next result"
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
        """Return the trial as an earlier session has left it in the storage, or as it has waited there; None where it is new."""
        stored = self._known.get(trial.user_attrs[TRIAL_ID])
        if stored is None and QUEUED in trial.user_attrs:
            stored = self._taken(trial, trial.user_attrs[QUEUED])
        if stored is None:
            return None
        return _Written(
            stored._trial_id,  # noqa: SLF001  (Optuna tells a trial's id nowhere else)
            stored.state.is_finished(),
            dict(stored.intermediate_values),
            dict(stored.system_attrs),
        )

    def _taken(self, trial: FrozenTrial, number: int) -> FrozenTrial | None:
        """Run a trial that has been waiting in the storage, unless somebody else does."""
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
