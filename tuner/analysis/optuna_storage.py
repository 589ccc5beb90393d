"""An experiment's directory as Optuna sees one of its storages: for its dashboard and its plots, which may read and not write.

Trials are translated each time they are asked for and something has been written since: a running experiment is seen as it runs, and its
driver does nothing for it.
"""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from tuner.core.result import TIME_THIS_ITER_S, TIMESTAMP, TRAINING_ITERATION, flatten
from tuner.core.trial import Ending, Status, Trial
from tuner.storage.segments import journal_directory

from .directories import Found, read_directory
from .frames import value_at
from .importances import Evaluated, observed_columns
from .ranking import Mode, check_mode, is_number, rank
from .rows import Row

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_STUDY: Final = 0
_MAX_VALUES: Final = 200
"""More intermediate values of a trial than this are thinned out: each look of a browser at a study transfers all of them."""


@final
class ExperimentStorage(BaseStorage):
    """A storage with one study, whose trials are those of an experiment.

    The value of a trial is the best one it has reported. What Optuna has no word for is put into the nearest: a trial that was stopped
    early is PRUNED, one that is paused or was interrupted is RUNNING, and one that completed without a finite value has FAILED.

    Args:
        path: The experiment's directory.
        metric: What is optimised, where the directory does not say, or another than it says.
        mode: ``"min"`` if smaller values of it are better, ``"max"`` if larger ones are.

    Raises:
        FileNotFoundError: If there is no experiment.
        StorageError: If it cannot be read.
        ValueError: If nothing says what is optimised.
    """

    def __init__(self, path: Path, metric: str | None = None, mode: Mode | None = None) -> None:
        found = read_directory(path)
        if not (metric or found.metric):
            raise ValueError(f"{str(path)!r} does not say what is optimised; name the metric")
        self._path = path
        self._metric = str(metric or found.metric)
        self._mode = check_mode(mode or found.mode)
        self._lock = threading.Lock()
        self._stamp: float | None = None
        self._trials: list[FrozenTrial] = []

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None) -> list[FrozenTrial]:
        """Return the trials as they are now."""
        with self._lock:
            stamp = _stamp_of(self._path)
            if self._stamp is None or stamp != self._stamp:
                self._trials = _translated(read_directory(self._path), self._metric, self._mode)
                self._stamp = stamp
            return [trial for trial in self._trials if states is None or trial.state in states]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial by its number, which is its id."""
        trials = self.get_all_trials(_STUDY)
        if not 0 <= trial_id < len(trials):
            raise KeyError(f"there is no trial {trial_id}")
        return trials[trial_id]

    def get_all_studies(self) -> list[FrozenStudy]:
        """Return the one study there is."""
        attributes = self.get_study_user_attrs(_STUDY), self.get_study_system_attrs(_STUDY)
        return [FrozenStudy(self._path.name, None, *attributes, _STUDY, directions=self.get_study_directions(_STUDY))]

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return the study's id."""
        if study_name != self._path.name:
            raise KeyError(f"there is no study {study_name!r}")
        return _STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        """Return the experiment's name."""
        return self._path.name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Return the direction of optimisation."""
        return [StudyDirection.MAXIMIZE if self._mode == "max" else StudyDirection.MINIMIZE]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return where the experiment lies."""
        return {"path": str(self._path)}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return what the metric is called."""
        return {"study:metric_names": [self._metric]}

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{self._path} is only looked at; what is changed here would be known to nobody")

    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse
    create_new_trial = set_trial_param = set_trial_state_values = set_trial_intermediate_value = _refuse
    set_trial_user_attr = set_trial_system_attr = _refuse


def _stamp_of(path: Path) -> float:
    """Return when the journal was last written to; of an experiment without one nothing is expected to change."""
    return max((file.stat().st_mtime for file in journal_directory(path).glob("*.log")), default=0.0)


def _translated(found: Found, metric: str, mode: Mode) -> list[FrozenTrial]:
    columns = observed_columns([Evaluated(flatten(trial.config), 0.0) for trial in found.trials])
    varied = {name: column for name, column in columns.items() if column.is_varied}
    distributions = {name: column.distribution() for name, column in varied.items()}
    return [
        _frozen(
            number,
            trial,
            found.rows.of(trial.trial_id),
            (metric, mode),
            {name: varied[name].seen(value) for name, value in flatten(trial.config).items() if name in varied},
            distributions,
        )
        for number, trial in enumerate(found.trials)
    ]


def _frozen(  # noqa: PLR0917  (one trial in Optuna's terms)
    number: int,
    trial: Trial,
    rows: Sequence[Row],
    objective: tuple[str, Mode],
    params: dict[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    metric, mode = objective
    reported = [(int(row.get(TRAINING_ITERATION, step)), value_at(row, metric)) for step, row in enumerate(rows, start=1)]
    curve = {step: float(value) for step, value in reported if is_number(value) and math.isfinite(value)}
    state = _state(trial, has_value=bool(curve))
    best = max(curve.values(), key=lambda value: rank(value, mode)) if curve else None
    start, end = _times(rows)
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=state,
        value=best if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
        datetime_start=start or (dt.datetime.now() if state is not TrialState.WAITING else None),  # noqa: DTZ005  (Optuna's are local)
        datetime_complete=(end or dt.datetime.now()) if state.is_finished() else None,  # noqa: DTZ005
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs=_attributes(trial),
        system_attrs={},
        intermediate_values=_thinned(curve),
    )


def _state(trial: Trial, *, has_value: bool) -> TrialState:
    match trial.status, trial.ending:
        case Status.PENDING, _:
            return TrialState.WAITING
        case Status.ERROR, _:
            return TrialState.FAIL
        case Status.RUNNING | Status.PAUSED, _:
            return TrialState.RUNNING
        case _, Ending.INTERRUPTED:
            return TrialState.RUNNING
        case _, Ending.STOPPED_EARLY:
            return TrialState.PRUNED
        case _:
            return TrialState.COMPLETE if has_value else TrialState.FAIL


def _times(rows: Sequence[Row]) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return when the first result was begun and the last one reported, as local times without a zone, which Optuna's are."""
    stamps = [(row[TIMESTAMP], row.get(TIME_THIS_ITER_S) or 0.0) for row in rows if is_number(row.get(TIMESTAMP))]
    if not stamps:
        return None, None
    return dt.datetime.fromtimestamp(stamps[0][0] - stamps[0][1]), dt.datetime.fromtimestamp(stamps[-1][0])  # noqa: DTZ006


def _attributes(trial: Trial) -> dict[str, Any]:
    told = {
        "trial_id": trial.trial_id,
        "state": str(trial.ending) if trial.ending else trial.status.lower(),
        "reason": str(trial.reason) if trial.reason else "",
        "error": str(trial.failures[-1]) if trial.failures else "",
        "path": trial.local_path,
    }
    return {name: text for name, text in told.items() if text}


def _thinned(curve: Mapping[int, float]) -> dict[int, float]:
    """Return at most so many values, evenly spaced, the last one among them."""
    steps = list(curve)
    stride = math.ceil(len(steps) / _MAX_VALUES) or 1
    return {step: curve[step] for step in reversed(steps[::-1][::stride])}
