"""Callback for Comet: one Comet experiment per trial, online or offline."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tuner.callbacks.log_records import Row, Validated
from tuner.core.result import TIMESTAMP, TRAINING_ITERATION, flatten
from tuner.core.trial import Status, Trial
from tuner.storage.disk import open_file
from tuner.storage.origin import origin_of

from .tracker import ExperimentFacts, TrackerCallback, measured, need_library
from .tracker_queue import (
    Begun,
    Ended,
    Outcome,
    Recalled,
    Saved,
    Tracker,
    rows_without,
    validations_without,
)

_UPLOAD_TIMEOUT_S: Final = 300.0
_FOLDER: Final = "comet"
_KEY_LENGTH: Final = 32
_STATUS: Final = "status"
_Point = tuple[str, int, str]
"""A metric, its step, and its value."""
_QUIET: Final[Mapping[str, Any]] = {
    "auto_metric_logging": False,
    "auto_output_logging": False,
    "auto_param_logging": False,
    "display_summary_level": 0,
    "log_code": False,
    "log_env_cpu": False,
    "log_env_details": False,
    "log_env_gpu": False,
    "log_git_metadata": False,
    "log_git_patch": False,
    "log_graph": False,
    "parse_args": False,
}
"""Off: Comet would record this of the driver, not of the trial."""


@final
class CometLoggerCallback(TrackerCallback):
    """Keeps one Comet experiment per trial, written in the background.

    Install it with ``pip install "tuner-hpo[comet]"``.

    An experiment is named after the trial and has the flattened configuration as parameters, and
    each reported number or boolean as a metric under its own name (nested ones as ``a/b``), with
    ``training_iteration`` as the step; texts become "others", lists are left out. It continues over
    pauses, retries, exploits and restores. The "other" ``status`` is FINISHED, FAILED or, if the
    experiment was interrupted, KILLED.

    Args:
        online: Whether to talk to Comet; False writes archives into ``comet/`` in the experiment's
            directory, for ``comet upload``. An archive is closed when a trial pauses or ends; one
            that a killed driver leaves open is rewritten at the restore.
        tags: Tags of every one of Comet's experiments.
        save_checkpoints: Whether checkpoints are uploaded as assets.
        upload_timeout: How many seconds the end of the experiment waits for Comet at most.
        **experiment_kwargs: Passed on to Comet's experiment, e.g. ``project_name`` and
            ``workspace``.

    Raises:
        ImportError: If comet_ml is not installed.
        ValueError: If `upload_timeout` is not a positive number.

    Example:
        >>> from tuner import RunConfig
        >>> comet = CometLoggerCallback(online=False, project_name="digits")
        >>> run_config = RunConfig(callbacks=[comet])

    Departures:
        Ray Tune begins a new Comet experiment when an experiment is restored.
    """

    product = "Comet"
    kind = "comet"

    def __init__(
        self,
        online: bool = True,
        tags: Sequence[str] | None = None,
        save_checkpoints: bool = False,
        upload_timeout: float = _UPLOAD_TIMEOUT_S,
        **experiment_kwargs: Any,
    ) -> None:
        need_library("comet_ml", "comet")
        super().__init__(upload_timeout)
        self._options = _Options(online, tuple(tags or ()), save_checkpoints, experiment_kwargs)

    def tracker(self, experiment: ExperimentFacts) -> Tracker:
        """Return the client for an experiment."""
        return _CometTracker(experiment, self._options)

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that make such a callback, named as ``tuner export`` has them."""
        options, experiment = self._options, self._experiment
        given = dict(options.experiment_kwargs)
        directory = given.pop("offline_directory", None)
        if experiment and not directory and not options.online and origin_of(experiment.path):
            directory = experiment.path / _FOLDER  # not that of the copy that is fetched
        project = given.pop("project_name", None) or (experiment.name if experiment else None)
        return {
            **given,
            "project": project,
            "mode": None if options.online else "offline",
            "dir": None if directory is None else str(Path(directory).absolute()),
            "tags": list(options.tags),
        }


@dataclass(frozen=True, slots=True)
class _Options:
    online: bool
    tags: tuple[str, ...]
    save_checkpoints: bool
    experiment_kwargs: Mapping[str, Any]


@final
class _CometTracker(Tracker):
    """Client of Comet."""

    def __init__(self, experiment: ExperimentFacts, options: _Options) -> None:
        self._experiment = experiment
        self._options = options
        self._comet: Any = None
        self._open: dict[Trial, Any] = {}
        self._known: set[str] = set()
        self._begun: dict[Trial, Begun] = {}
        self._directory = Path(
            options.experiment_kwargs.get("offline_directory") or experiment.path / _FOLDER
        )

    def connect(self) -> None:
        self._comet = importlib.import_module("comet_ml")
        # It logs each archive that it writes.
        logging.getLogger("comet_ml").setLevel(logging.ERROR)
        if not self._options.online:
            self._directory.mkdir(parents=True, exist_ok=True)

    def begin(self, trial: Trial, begun: Begun) -> None:
        self._begun[trial] = begun
        opened = self._open.get(trial)
        if opened is None:
            opened = self._open[trial] = self._opened(trial)
        opened.log_parameters(
            {
                name: value if isinstance(value, bool | int | float) else str(value)
                for name, value in begun.config.items()
            }
        )

    def log(self, trial: Trial, rows: Sequence[Row]) -> None:
        if trial not in self._open:
            self.begin(trial, self._begun[trial])  # it was closed while paused
        for row in rows:
            shown = measured(row.flat)
            shown.setdefault(TIMESTAMP, int(row.at))
            texts = {name: value for name, value in shown.items() if isinstance(value, str)}
            numbers = {name: value for name, value in shown.items() if name not in texts}
            self._open[trial].log_metrics(numbers, step=int(row.result.get(TRAINING_ITERATION, 0)))
            if texts:
                self._open[trial].log_others(texts)

    def log_validation(self, trial: Trial, validated: Validated) -> None:
        if trial not in self._open and trial in self._begun:
            self.begin(trial, self._begun[trial])  # it was closed while paused
        if trial in self._open:
            self._open[trial].log_metrics(_numbers(validated), step=validated.iteration)

    def save(self, trial: Trial, saved: Saved) -> None:
        # Retention may have deleted the checkpoint.
        if self._options.save_checkpoints and trial in self._open and saved.path.is_dir():
            self._open[trial].log_asset_folder(str(saved.path), log_file_name=True)

    def end(self, trial: Trial, ended: Ended) -> None:
        if trial in self._open:
            self._close(trial, ended.outcome)
        self._begun.pop(trial, None)

    def recall(self, trial: Trial, recalled: Recalled) -> None:
        if not self._options.online:  # else the client still sends what it has
            self.complete(trial, recalled)

    def complete(self, trial: Trial, recalled: Recalled) -> None:
        points, status = self._sent(trial) if self._options.online else self._archived(trial)
        known = Counter(
            (int(float(value)), step) for name, step, value in points if name == TIMESTAMP
        )
        rows = rows_without(recalled.rows, known)
        lost = [
            one
            for one in validations_without(rows, recalled.validations)
            if not {_point(name, one.iteration, value) for name, value in _numbers(one).items()}
            <= set(points)
        ]
        if rows or lost or (recalled.ended and status != recalled.ended.outcome.value):
            self.begin(trial, recalled.begun)
            self.log(trial, rows)
            for one in lost:
                self.log_validation(trial, one)
            if recalled.ended:
                self.end(trial, recalled.ended)

    def idle(self) -> None:
        for trial in [trial for trial in self._open if trial.status is Status.PAUSED]:
            self._close(trial, None)

    def close(self) -> None:
        for trial in list(self._open):
            self._close(trial, Outcome.KILLED)

    def is_transient(self, error: Exception) -> bool:
        return isinstance(error, OSError)

    def _key(self, trial: Trial) -> str:
        return hashlib.sha256(self._experiment.run_id(trial).encode()).hexdigest()[:_KEY_LENGTH]

    def _opened(self, trial: Trial) -> Any:
        key = self._key(trial)
        given = {**_QUIET, **self._options.experiment_kwargs}
        given.setdefault("project_name", self._experiment.name)
        if not self._options.online:
            given["offline_directory"] = str(self._directory)
        new, existing = (
            ("Experiment", "ExistingExperiment")
            if self._options.online
            else ("OfflineExperiment", "ExistingOfflineExperiment")
        )
        if key in self._known or (not self._options.online and self._archives(trial)):
            return getattr(self._comet, existing)(previous_experiment=key, **given)
        opened = self._made(key, new, existing, given, may_exist=trial.attempt > 1)
        self._known.add(key)
        opened.set_name(trial.trial_id)
        opened.add_tags([*self._options.tags, self._experiment.name])
        opened.log_other("trial_id", trial.trial_id)
        return opened

    def _made(
        self, key: str, new: str, existing: str, given: Mapping[str, Any], *, may_exist: bool
    ) -> Any:
        if may_exist and self._options.online:
            try:
                return getattr(self._comet, existing)(previous_experiment=key, **given)
            except (ValueError, self._comet.exceptions.CometException):
                pass  # the earlier driver died before it was created
        return getattr(self._comet, new)(experiment_key=key, **given)

    def _close(self, trial: Trial, outcome: Outcome | None) -> None:
        opened = self._open.pop(trial)
        if outcome:
            opened.log_other(_STATUS, outcome.value)
        opened.end()

    def _archives(self, trial: Trial) -> list[Path]:
        return sorted(
            self._directory.glob(f"{self._key(trial)}*.zip"), key=lambda path: path.stat().st_mtime
        )

    def _archived(self, trial: Trial) -> tuple[list[_Point], str]:
        """Return the points in the trial's archives, and its status there."""
        points, status = list[_Point](), ""
        for path in self._archives(trial):
            for kind, payload in _messages(path):
                if kind == "metric_msg":
                    metric = payload["metric"]
                    points.append(
                        _point(metric["metricName"], metric.get("step"), metric["metricValue"])
                    )
                elif kind == "log_other" and payload["key"] == _STATUS:
                    status = str(payload["value"])
        return points, status

    def _sent(self, trial: Trial) -> tuple[list[_Point], str]:
        """Return the points that the server has of the trial, and its status there."""
        given = self._options.experiment_kwargs
        access = {"api_key": given["api_key"]} if "api_key" in given else {}
        try:
            stored = self._comet.APIExperiment(previous_experiment=self._key(trial), **access)
        except self._comet.exceptions.NotFound:
            return [], ""
        self._known.add(self._key(trial))
        points = [
            _point(metric["metricName"], metric["step"], metric["metricValue"])
            for metric in stored.get_metrics() or ()
        ]
        status = stored.get_others_summary(_STATUS) or [""]
        return points, str(status[-1])


def _numbers(validated: Validated) -> dict[str, Any]:
    shown = measured(flatten(validated.metrics))
    return {name: value for name, value in shown.items() if not isinstance(value, str)}


def _point(name: str, step: int | None, value: Any) -> _Point:
    return name, step or 0, repr(float(value))


def _messages(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with (
        open_file(archive) as file,
        zipfile.ZipFile(file) as opened,
        opened.open("messages.json") as lines,
    ):
        for line in lines:
            message = json.loads(line)
            yield message["type"], message["payload"]
