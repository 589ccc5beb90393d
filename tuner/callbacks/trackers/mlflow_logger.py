"""Callback for MLflow: one run per trial, with metrics and parameters."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import socket
import sqlite3
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

from tuner.callbacks.log_records import Row, Validated
from tuner.core.result import TIMESTAMP, TRAINING_ITERATION, as_float, flatten
from tuner.core.trial import Trial

from .tracker import ExperimentFacts, TrackerCallback, measured, need_library
from .tracker_queue import (
    Begun,
    Ended,
    Outcome,
    Recalled,
    Tracker,
    without,
    without_password,
)

_UPLOAD_TIMEOUT_S: Final = 300.0
EXPERIMENT_TAG: Final = "tuner.experiment_id"
TRIAL_TAG: Final = "trial_id"
_ILLEGAL: Final = re.compile(r"[^\w.\-/: ]")
_MAX_NAME: Final = 250
_MAX_VALUE: Final = 6000
_METRICS_PER_BATCH: Final = 1000
_PARAMS_PER_BATCH: Final = 100
_RUNS_PER_PAGE: Final = 1000
_SETTLING_S: Final = 2.5
"""How long a trial's log files may still grow after its end."""

_TRANSIENT: Final = frozenset(
    {
        "TEMPORARILY_UNAVAILABLE",
        "INTERNAL_ERROR",
        "REQUEST_LIMIT_EXCEEDED",
        "DEADLINE_EXCEEDED",
        "CANCELLED",
    }
)

_SCHEME: Final = "sqlite:///"
_PORTS: Final = {"http": 80, "https": 443}
_KNOCK_S: Final = 10.0
_LARGEST: Final = sys.float_info.max

_log = logging.getLogger("tuner")


@final
class MLflowLoggerCallback(TrackerCallback):
    """Keeps one MLflow run per trial, written in the background.

    Install it with ``pip install "tuner-hpo[mlflow]"``.

    A run is named after its trial and has the flattened configuration as parameters, each reported
    number or boolean as a metric under its own name (nested ones as ``a/b``), and ``time_total_s``,
    ``timestamp`` and ``training_iteration``. The step is ``training_iteration``; metrics of a
    checkpoint's validation have that of the checkpoint. NaN and infinite values are written as
    MLflow represents them; texts and lists are left out, our own files have them. Parameters of a
    run never change, so changes by an exploit become tags, ``config/<name>``. A run continues over
    pauses, retries, exploits and restores, and is FINISHED, FAILED or, if the experiment was
    interrupted, KILLED.

    A server that cannot be reached is retried as long as the experiment runs, and never delays a
    trial.

    Args:
        tracking_uri: Where runs are kept, e.g. ``"sqlite:///mlflow.db"`` or ``"http://host:5000"``;
            None for what the environment variable ``MLFLOW_TRACKING_URI`` says, or MLflow's own
            default.
        registry_uri: Where MLflow's model registry is; None for the same place.
        experiment_name: MLflow experiment, made if it does not exist; None for what
            ``MLFLOW_EXPERIMENT_NAME`` says, or the name of ours.
        tags: Tags of every run.
        tracking_token: A token for the server, put into the environment variable
            ``MLFLOW_TRACKING_TOKEN`` and nowhere else.
        save_artifact: Whether a trial's directory, checkpoints included, is copied to MLflow when
            the trial has ended.
        log_params_on_trial_end: Whether the parameters are written when a trial ends instead of
            when it starts.
        upload_timeout: How many seconds the end of the experiment waits for MLflow.

    Raises:
        ImportError: If MLflow is not installed.
        ValueError: If `upload_timeout` is not a positive number.

    Example:
        >>> from tuner import RunConfig
        >>> mlflow = MLflowLoggerCallback("sqlite:///mlflow.db", experiment_name="digits")
        >>> run_config = RunConfig(callbacks=[mlflow])

    Departures:
        Ray Tune writes in the driver's thread, one metric at a time, ends with the experiment when
        the server fails, begins a new run where an experiment is restored, and writes every key
        that it adds to a result. Here the default name of the MLflow experiment is that of ours.
    """

    product = "MLflow"
    kind = "mlflow"

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: Mapping[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
        upload_timeout: float = _UPLOAD_TIMEOUT_S,
    ) -> None:
        need_library("mlflow", "mlflow")
        super().__init__(upload_timeout)
        self._options = _Options(
            tracking_uri,
            registry_uri,
            experiment_name,
            dict(tags or {}),
            save_artifact,
            log_params_on_trial_end,
        )
        self._token = tracking_token

    def tracker(self, experiment: ExperimentFacts) -> Tracker:
        """Return the client for an experiment."""
        if self._token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self._token
        return _MLflowTracker(experiment, self._options)

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that make such a callback; what the environment says is included."""
        uri = self._options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri and (mlflow := sys.modules.get("mlflow")):
            uri = mlflow.get_tracking_uri()
        name = self._experiment.name if self._experiment else None
        return {
            "tracking_uri": _lasting(uri) if uri else None,
            "registry_uri": self._options.registry_uri,
            "experiment_name": _experiment_name(self._options) or name,
            "tags": self._options.tags,
            "save_artifact": self._options.save_artifact or None,
        }


@dataclass(frozen=True, slots=True)
class _Options:
    tracking_uri: str | None
    registry_uri: str | None
    experiment_name: str | None
    tags: Mapping[str, Any]
    save_artifact: bool
    params_at_end: bool


@dataclass(slots=True)
class _Run:
    """A run of MLflow.

    Attributes:
        run_id: Its id in MLflow.
        status: Its status there.
        params: Its parameters there.
        config: The trial's present configuration, as texts.
        is_in_doubt: Whether a request may have failed or succeeded.
    """

    run_id: str = ""
    status: str = ""
    params: dict[str, str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    is_in_doubt: bool = False


@final
class _MLflowTracker(Tracker):
    """Client of MLflow.

    Args:
        experiment: Our experiment.
        options: The user's options.
    """

    def __init__(self, experiment: ExperimentFacts, options: _Options) -> None:
        self._experiment = experiment
        self._options = options
        self._client: Any = None
        self._entities: Any = None
        self._experiment_id = ""
        self._runs: dict[str, _Run] = {}
        self._artifacts: list[tuple[float, Trial, str]] = []

    def connect(self) -> None:
        for name in ("mlflow.store.db.utils", "alembic"):
            # They log each table that they create.
            logging.getLogger(name).setLevel(logging.WARNING)
        mlflow = importlib.import_module("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        uri = self._options.tracking_uri or mlflow.get_tracking_uri()
        _knock(uri)
        make_sqlite_store(uri, mlflow.MlflowClient)
        self._client = mlflow.MlflowClient(self._options.tracking_uri, self._options.registry_uri)
        name = _experiment_name(self._options) or self._experiment.name
        self._experiment_id = find_or_make_experiment(self._client, name)
        for run in self._search(f"tags.`{EXPERIMENT_TAG}` = '{self._experiment.experiment_id}'"):
            self._runs[run.data.tags[TRIAL_TAG]] = self._known(run)

    def begin(self, trial: Trial, begun: Begun) -> None:
        run = self._run_of(trial, begun)
        if run.status != "RUNNING":
            self._client.update_run(run.run_id, status="RUNNING")
            run.status = "RUNNING"
        run.config = {
            legal_name(name): str(value)[:_MAX_VALUE] for name, value in begun.config.items()
        }
        if run.params:
            changed = {
                name: value
                for name, value in run.config.items()
                if run.params.get(name, value) != value
            }
            self._batch(
                run,
                tags=[
                    self._entities.RunTag(f"config/{name}"[:_MAX_NAME], value)
                    for name, value in changed.items()
                ],
            )
        elif not self._options.params_at_end:
            self._log_params(run)

    def log(self, trial: Trial, rows: Sequence[Row]) -> None:
        metrics = [metric for row in rows for metric in self._metrics(row)]
        self._batch(self._runs[trial.trial_id], metrics=metrics)

    def log_validation(self, trial: Trial, validated: Validated) -> None:
        run = self._runs.get(trial.trial_id)
        if run and run.run_id:
            values = measured(flatten(validated.metrics))
            at_ms = int(validated.at * 1000)
            self._batch(run, metrics=[*self._metrics_of(values, at_ms, validated.iteration)])

    def end(self, trial: Trial, ended: Ended) -> None:
        run = self._runs.get(trial.trial_id)
        if run is None:
            return
        if self._options.params_at_end and not run.params:
            self._log_params(run)
        self._client.set_terminated(run.run_id, ended.outcome.value, int(ended.at * 1000))
        run.status = ended.outcome.value
        if self._options.save_artifact:
            self._artifacts.append((time.monotonic() + _SETTLING_S, trial, run.run_id))

    def recall(self, trial: Trial, recalled: Recalled) -> None:
        run = self._runs.get(trial.trial_id)
        wanted = [metric for row in recalled.rows for metric in self._metrics(row)]
        wanted += self._validated(recalled)
        missing = self._missing(run, wanted) if run and run.run_id else wanted
        status = recalled.ended.outcome.value if recalled.ended else ""
        if run and not missing and (not status or run.status == status):
            return
        self.begin(trial, recalled.begun)
        self._batch(self._runs[trial.trial_id], metrics=missing)
        if recalled.ended:
            self.end(trial, recalled.ended)

    def idle(self) -> None:
        while self._artifacts and self._artifacts[0][0] <= time.monotonic():
            _, trial, run_id = self._artifacts.pop(0)
            try:
                self._client.log_artifacts(run_id, trial.local_path)
            except Exception as error:  # noqa: BLE001  (metrics must not wait for files)
                _log.warning(
                    "the directory of trial %s could not be copied to MLflow: %s",
                    trial.trial_id,
                    error,
                )

    def close(self) -> None:
        for run in () if self._experiment.is_running else self._runs.values():
            if run.status == "RUNNING":
                self._client.set_terminated(run.run_id, Outcome.KILLED.value)
                run.status = Outcome.KILLED.value
        while self._artifacts:
            time.sleep(max(0.0, self._artifacts[0][0] - time.monotonic()))
            self.idle()

    def is_transient(self, error: Exception) -> bool:
        return isinstance(error, OSError) or getattr(error, "error_code", "") in _TRANSIENT

    def _run_of(self, trial: Trial, begun: Begun) -> _Run:
        run = self._runs.get(trial.trial_id)
        if run and run.is_in_doubt:
            found = list(
                self._search(
                    f"tags.`{EXPERIMENT_TAG}` = '{self._experiment.experiment_id}' and "
                    f"tags.{TRIAL_TAG} = '{trial.trial_id}'"
                )
            )
            run = self._runs[trial.trial_id] = (
                self._known(found[0]) if found else _Run(is_in_doubt=True)
            )
        if run and run.run_id:
            return run
        run = self._runs[trial.trial_id] = _Run(is_in_doubt=True)
        tags = {
            **{legal_name(str(name)): str(value) for name, value in self._options.tags.items()},
            TRIAL_TAG: trial.trial_id,
            "experiment_name": self._experiment.name,
            EXPERIMENT_TAG: self._experiment.experiment_id,
        }
        made = self._client.create_run(
            self._experiment_id, start_time=int(begun.at * 1000), tags=tags, run_name=trial.trial_id
        )
        run.run_id, run.status, run.is_in_doubt = made.info.run_id, "RUNNING", False
        return run

    def _search(self, condition: str) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id], condition, max_results=_RUNS_PER_PAGE, page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    @staticmethod
    def _known(run: Any) -> _Run:
        return _Run(run.info.run_id, run.info.status, dict(run.data.params))

    def _validated(self, recalled: Recalled) -> Iterator[Any]:
        """Yield the metrics of validations that the results do not have."""
        known = {
            (row.result.get(TRAINING_ITERATION), name) for row in recalled.rows for name in row.flat
        }
        for one in recalled.validations:
            values = {
                name: value
                for name, value in measured(flatten(one.metrics)).items()
                if (one.iteration, name) not in known
            }
            yield from self._metrics_of(values, int(one.at * 1000), one.iteration)

    def _missing(self, run: _Run, wanted: Sequence[Any]) -> list[Any]:
        """Return the metrics that MLflow lacks.

        Each is compared, since a request may have been cut off between those of one result.
        """
        known = Counter(
            _key_of(metric)
            for name in {metric.key for metric in wanted}
            for metric in self._client.get_metric_history(run.run_id, name)
        )
        return without(wanted, known, _key_of)

    def _metrics(self, row: Row) -> Iterator[Any]:
        at_ms, step = int(row.at * 1000), int(row.result.get(TRAINING_ITERATION, 0))
        shown = measured(row.flat)
        shown.setdefault(TIMESTAMP, row.at)
        yield from self._metrics_of(shown, at_ms, step)

    def _metrics_of(
        self, values: Mapping[str, bool | float | str], at_ms: int, step: int
    ) -> Iterator[Any]:
        for name, value in values.items():
            if not isinstance(value, str):
                yield self._entities.Metric(legal_name(name), as_float(value), at_ms, step)

    def _log_params(self, run: _Run) -> None:
        self._batch(
            run, params=[self._entities.Param(name, value) for name, value in run.config.items()]
        )
        run.params = dict(run.config)

    def _batch(
        self,
        run: _Run,
        *,
        metrics: Sequence[Any] = (),
        params: Sequence[Any] = (),
        tags: Sequence[Any] = (),
    ) -> None:
        for name, items, limit in (
            ("metrics", metrics, _METRICS_PER_BATCH),
            ("params", params, _PARAMS_PER_BATCH),
            ("tags", tags, 100),
        ):
            rest = iter(items)
            while part := list(islice(rest, limit)):
                self._client.log_batch(run.run_id, **{name: part})


def _key_of(metric: Any) -> tuple[str, int, str]:
    """Return what identifies a point of a curve; a validation's time is not that of its result."""
    value = max(-_LARGEST, min(metric.value, _LARGEST))  # as a store keeps infinite ones
    return metric.key, metric.step, repr(float(value))


def _experiment_name(options: _Options) -> str | None:
    return options.experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")


def _lasting(uri: str) -> str:
    """Return a tracking URI that means the same in every directory, without a password."""
    scheme, path = (_SCHEME, uri.removeprefix(_SCHEME)) if uri.startswith(_SCHEME) else ("", uri)
    if scheme or not re.match(r"[\w+-]+:", uri):
        return f"{scheme}{Path(path).absolute()}"
    return without_password(uri)


def _knock(uri: str) -> None:
    """Raise an `OSError` if no server listens at an address.

    The client would try for minutes before it says so.
    """
    place = urllib.parse.urlsplit(uri)
    host = place.hostname or ""
    if place.scheme not in _PORTS or not host:
        return
    if place.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return
    address = (host, place.port or _PORTS[place.scheme])
    with socket.create_connection(address, timeout=_KNOCK_S):
        pass


def make_sqlite_store(uri: str, client: Callable[[str], Any]) -> None:
    """Create the SQLite file that a tracking URI names, unless it exists, all or nothing.

    MLflow creates some sixty tables one by one and cannot open a file that lacks some of them, as a
    killed process leaves it. Here they are created beside it, and the complete file is linked into
    its place.

    Args:
        uri: The tracking URI.
        client: Connects to a URI, and creates missing tables.

    Raises:
        OSError: If it cannot be written.
    """
    if not uri.startswith(_SCHEME) or uri == _SCHEME or ":memory:" in uri or "?" in uri:
        return
    path = Path(uri.removeprefix(_SCHEME))
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as place:
        begun, whole = Path(place, "begun.db"), Path(place, "whole.db")
        client(f"{_SCHEME}{begun}")
        with (
            contextlib.closing(sqlite3.connect(begun)) as source,
            contextlib.closing(sqlite3.connect(whole)) as target,
        ):
            # A copy by SQLite: the client has the file open, with pages it has not written.
            source.backup(target)
        with contextlib.suppress(FileExistsError):  # another process has created it
            os.link(whole, path)


def find_or_make_experiment(client: Any, name: str, artifact_location: str | None = None) -> str:
    """Return the id of the MLflow experiment with this name, created if necessary.

    Raises:
        RuntimeError: If it was deleted.
    """
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifact_location))
        except Exception:
            found = client.get_experiment_by_name(name)  # another trial may have created it
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        raise RuntimeError(
            "experiment_name must be that of an MLflow experiment that is not deleted, got "
            f"{name!r}; restore it there"
        )
    return str(found.experiment_id)


def legal_name(name: str) -> str:
    """Return the name of a metric or a parameter in MLflow's syntax.

    Example:
        >>> legal_name("val/loss"), legal_name("top@5 (%)"), legal_name("/a//b/..")
        ('val/loss', 'top_5 ___', 'a/b/__')
    """
    # Names become file names, so none may point to another directory.
    parts = (
        re.sub(r"^\.\.?", lambda dots: "_" * len(dots.group()), part)
        for part in _ILLEGAL.sub("_", name).split("/")
        if part
    )
    return "/".join(parts)[:_MAX_NAME].rstrip("/") or "_"
