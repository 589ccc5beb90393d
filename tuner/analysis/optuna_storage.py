"""Read-only Optuna storage over an experiment's directory, for Optuna's dashboard and plots.

Trials are translated again whenever the journal has been written to, so a running experiment can be
watched without any work for its driver.
"""

from __future__ import annotations

import datetime as dt
import sys
import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from searchers.objectives.outcome_constraint import Constraints
from tuner.core.feasibility import newest
from tuner.core.near_misses import why_none_feasible
from tuner.core.pareto import Objectives
from tuner.core.result import TIME_THIS_ITER_S, TIMESTAMP, TRAINING_ITERATION, flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.journal.rows import Row
from tuner.storage.layout import journal_directory

from .charts.downsample import spread
from .charts.importance import param_importances
from .charts.source import Source
from .flat_results import value_at
from .importances import Evaluated, Importances, observed_columns
from .open_experiment import OpenedExperiment, read_directory
from .ranking import Mode, check_mode, config_of, is_finite, mode_for, objective_of, rank, value_of

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_STUDY: Final = 0
_CONSTRAINTS: Final = "constraints"
"""Key under which Optuna keeps how much a trial misses each constraint; 0 for one that it keeps."""
_MAX_VALUES: Final = 200
"""Most intermediate values of a trial, since a browser transfers all of them at each update."""


@dataclass(frozen=True, slots=True)
class _StudySnapshot:
    """State of an experiment when its journal was last written to.

    Attributes:
        stamp: Time of that write, in seconds since the epoch.
        found: Content of the directory.
        trials: Its trials, translated.
    """

    stamp: float
    found: OpenedExperiment
    trials: list[FrozenTrial]


@final
class ExperimentStorage(BaseStorage):
    """A storage with one study, whose trials are those of an experiment.

    The values of a trial are the newest ones that it has reported, by which
    `ResultGrid.get_best_result` compares trials. States that Optuna lacks are mapped to the nearest
    one: a trial that was stopped early is PRUNED, one that is paused or was interrupted is RUNNING,
    and one that completed without a finite value is FAIL. With several objectives, for which Optuna
    has no pruning, a trial that was stopped early is COMPLETE and has no intermediate values.

    Args:
        path: The experiment's directory.
        metric: The metric, if the directory does not name one, or to replace the one that it
            names; or one of several objectives.
        mode: ``"min"`` if smaller values of it are better, ``"max"`` if larger ones are.

    Raises:
        FileNotFoundError: If there is no experiment.
        StorageError: If it cannot be read.
        ValueError: If no metric is known.
    """

    def __init__(self, path: Path, metric: str | None = None, mode: Mode | None = None) -> None:
        self._path = path
        self._objectives = _objectives_of(read_directory(path), path, metric, mode)
        self._lock = threading.Lock()
        self._last_seen: _StudySnapshot | None = None

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials in their current state."""
        return [trial for trial in self._seen().trials if states is None or trial.state in states]

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the completed or pruned trial with the best newest value; first of equals.

        Trials that miss a constraint are left out.
        """
        (_, mode), *others = self._objectives
        if others:
            raise RuntimeError(
                f"there is no best trial for {len(self._objectives)} objectives; ask for the "
                f"Pareto front"
            )
        valued = [
            (trial, trial.value)
            for trial in self._seen().trials
            if trial.value is not None and not any(trial.system_attrs.get(_CONSTRAINTS, ()))
        ]
        if not valued:
            seen = self._seen().found
            raise ValueError(
                why_none_feasible(seen.trials, seen.constraints)
                or "no trial has completed or was stopped early with a finite value yet"
            )
        return max(valued, key=lambda pair: rank(pair[1], check_mode(mode)))[0]

    def param_importances(self) -> list[Importances]:
        """Return the importances for each objective, as by `ResultGrid.get_param_importances`.

        Raises:
            ValueError: If too few trials can be compared, or no parameter differs between them.
        """
        found = self._seen().found
        sources = [
            Source(found.trials, found.rows, str(self._path), metric, check_mode(mode))
            for metric, mode in self._objectives
        ]
        return [param_importances(source) for source in sources]

    def _seen(self) -> _StudySnapshot:
        with self._lock:
            # Requests may come from several threads: one of them reads, the others wait for it.
            stamp = _stamp_of(self._path)
            if self._last_seen is None or stamp != self._last_seen.stamp:
                found = read_directory(self._path)
                self._last_seen = _StudySnapshot(stamp, found, _translated(found, self._objectives))
            return self._last_seen

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial by its number, which is its id."""
        trials = self.get_all_trials(_STUDY)
        if not 0 <= trial_id < len(trials):
            raise KeyError(f"there is no trial {trial_id}")
        return trials[trial_id]

    def get_all_studies(self) -> list[FrozenStudy]:
        """Return the only study."""
        attributes = self.get_study_user_attrs(_STUDY), self.get_study_system_attrs(_STUDY)
        return [
            FrozenStudy(
                self._path.name,
                None,
                *attributes,
                _STUDY,
                directions=self.get_study_directions(_STUDY),
            )
        ]

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return the study's id."""
        if study_name != self._path.name:
            raise KeyError(f"there is no study {study_name!r}")
        return _STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        """Return the experiment's name."""
        return self._path.name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Return the direction in which each metric is optimised."""
        return [
            StudyDirection.MAXIMIZE if mode == "max" else StudyDirection.MINIMIZE
            for _, mode in self._objectives
        ]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the path of the experiment."""
        return {"path": str(self._path)}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the names of the metrics."""
        return {"study:metric_names": [metric for metric, _ in self._objectives]}

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            f"{self._path} is read-only; a change made here would not be saved"
        )

    # All methods of Optuna that write; its base class has them abstract.
    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse
    create_new_trial = set_trial_param = set_trial_state_values = set_trial_intermediate_value = (
        _refuse
    )
    set_trial_user_attr = set_trial_system_attr = _refuse


def _stamp_of(path: Path) -> float:
    """Return when the journal was last written to; 0 without a journal."""
    return max(
        (file.stat().st_mtime for file in journal_directory(path).glob("*.log")), default=0.0
    )


def _objectives_of(
    found: OpenedExperiment, path: Path, metric: str | None, mode: Mode | None
) -> Objectives:
    """Return the objectives: the given metric, or else those recorded in the directory."""
    if metric is None and found.several:
        if mode is not None:
            names = ", ".join(name for name, _ in found.several)
            raise ValueError(
                f"mode {mode!r} needs a metric, as the experiment has {len(found.several)} "
                f"objectives: {names}"
            )
        return found.several
    name = metric or found.metric
    if not name:
        raise ValueError(f"{str(path)!r} does not say what is optimised; name the metric")
    return (objective_of(name, mode or mode_for(name, found.metric, found.mode, found.several)),)


def _translated(found: OpenedExperiment, objectives: Objectives) -> list[FrozenTrial]:
    metric = objectives[0][0] if len(objectives) == 1 else None
    configs = [flatten(config_of(trial, found.rows, metric)) for trial in found.trials]
    # Optuna wants domains, but the search space may be unknown: it is guessed from the values.
    columns = observed_columns([Evaluated(config, 0.0) for config in configs])
    varied = {name: column for name, column in columns.items() if column.is_varied}
    longest = max((trial.iteration for trial in found.trials), default=0)
    distributions = {name: column.distribution() for name, column in varied.items()}
    return [
        _frozen(
            number,
            trial,
            found,
            objectives,
            {
                name: varied[name].as_param(value)
                for name, value in config.items()
                if name in varied
            },
            distributions,
            longest,
        )
        for number, (trial, config) in enumerate(zip(found.trials, configs, strict=True))
    ]


def _frozen(  # noqa: PLR0917  (everything that Optuna keeps of a trial)
    number: int,
    trial: Trial,
    found: OpenedExperiment,
    objectives: Objectives,
    params: dict[str, Any],
    distributions: Mapping[str, BaseDistribution],
    longest: int,
) -> FrozenTrial:
    rows = found.rows.of(trial.trial_id)
    newest = [value_of(trial, found.rows, metric, check_mode(mode)) for metric, mode in objectives]
    values = newest if all(map(is_finite, newest)) else None
    has_several = len(objectives) > 1
    state = _state(
        trial,
        has_values=values is not None,
        has_several=has_several,
        is_short=trial.iteration < longest,
    )
    start, end = _times(rows)
    now = dt.datetime.now()  # noqa: DTZ005  (Optuna's times are local)
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=state,
        value=None,
        values=values if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
        datetime_start=start or (now if state is not TrialState.WAITING else None),
        datetime_complete=(end or now) if state.is_finished() else None,
        params=params,
        distributions={name: distributions[name] for name in params},
        user_attrs=_attributes(trial),
        system_attrs=_violations(trial, found.constraints),
        intermediate_values={} if has_several else _curve(rows, objectives[0][0]),
    )


def _violations(trial: Trial, constraints: Constraints) -> dict[str, Any]:
    """Return by how much a trial misses each constraint, as Optuna's samplers record it."""
    if not constraints:
        return {}
    missed_by = [each.violation(newest(trial, each.metric)) for each in constraints]
    # JSON, in which the dashboard gets them, has no infinity.
    return {_CONSTRAINTS: [min(one, sys.float_info.max) for one in missed_by]}


def _curve(rows: Sequence[Row], metric: str) -> dict[int, float]:
    """Return evenly spaced values of a metric by iteration, the last one among them."""
    reported = [
        (int(row.get(TRAINING_ITERATION, step)), value_at(row, metric))
        for step, row in enumerate(rows, start=1)
    ]
    finite = [(step, float(value)) for step, value in reported if is_finite(value)]
    return dict(spread(finite, _MAX_VALUES))


def _state(trial: Trial, *, has_values: bool, has_several: bool, is_short: bool) -> TrialState:
    match trial.status, trial.ending:
        case Status.PENDING, _:
            return TrialState.WAITING
        case Status.ERROR, _:
            return TrialState.FAIL
        case (Status.RUNNING | Status.PAUSED, _) | (_, TerminationReason.INTERRUPTED):
            return TrialState.RUNNING
        case _, TerminationReason.STOPPED_EARLY if not has_several:
            return TrialState.PRUNED
        # Of a trial of Ray Tune it may be unknown whether it was trained to its end.
        case _, None if is_short and not has_several:
            return TrialState.PRUNED
        case _:
            return TrialState.COMPLETE if has_values else TrialState.FAIL


def _times(rows: Sequence[Row]) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return the start of the first result and the time of the last, as naive local times.

    Optuna uses local times without a time zone.
    """
    stamps = [
        (row[TIMESTAMP], row.get(TIME_THIS_ITER_S) or 0.0)
        for row in rows
        if is_finite(row.get(TIMESTAMP))
    ]
    if not stamps:
        return None, None
    (first_s, took_s), (last_s, _) = stamps[0], stamps[-1]
    local = dt.datetime.fromtimestamp  # naive, as Optuna expects
    return local(first_s - took_s), local(last_s)


def _attributes(trial: Trial) -> dict[str, Any]:
    attributes = {
        "trial_id": trial.trial_id,
        "state": str(trial.ending) if trial.ending else trial.status.lower(),
        "reason": str(trial.reason) if trial.reason else "",
        "error": str(trial.failures[-1]) if trial.failures else "",
        "path": trial.local_path,
    }
    return {name: text for name, text in attributes.items() if text}
