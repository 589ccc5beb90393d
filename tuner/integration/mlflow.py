"""MLflow: a callback that logs trials from the driver, and `setup_mlflow` for training code."""

from __future__ import annotations

import atexit
import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tuner.callbacks.trackers.mlflow_logger import (
    EXPERIMENT_TAG,
    TRIAL_TAG,
    MLflowLoggerCallback,
    find_or_make_experiment,
    legal_name,
    make_sqlite_store,
)
from tuner.callbacks.trackers.tracker import need_library
from tuner.errors import missing_name

from .trial_run import current_trial_run, flat_config

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]

_REPLACEMENTS = {
    "mlflow_mixin": "call setup_mlflow(config) in the training function or in setup",
    "MLflowTrainableMixin": "call setup_mlflow(config) in the training function or in setup",
    "MLflowLogger": "pass MLflowLoggerCallback(...) in RunConfig(callbacks=[...])",
}
"""Names of Ray Tune 1 that do not exist here, each with the alternative."""


def setup_mlflow(  # noqa: PLR0917  (Ray Tune's signature)
    config: Mapping[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: Mapping[str, Any] | None = None,
    rank_zero_only: bool = True,  # noqa: ARG001  (accepted for compatibility)
) -> ModuleType:
    """Start an MLflow run for the calling trial, or continue the trial's run; return ``mlflow``.

    The run is named and tagged after the trial, like that of `MLflowLoggerCallback`; use one of the
    two. It ends with the trial's process, or by ``mlflow.end_run``. Outside a trial it is an
    ordinary run.

    Args:
        config: The trial's configuration, logged as parameters; `Secret` values are logged by name.
        tracking_uri: Where runs are stored; None for ``MLFLOW_TRACKING_URI``, or else MLflow's
            default.
        registry_uri: Where MLflow's model registry is; None for the same place.
        experiment_id: Id of an MLflow experiment; takes precedence over its name.
        experiment_name: Its name; None for ``MLFLOW_EXPERIMENT_NAME``, or else MLflow's default
            experiment.
        tracking_token: A token for the server; sets the environment variable
            ``MLFLOW_TRACKING_TOKEN`` of the trial.
        artifact_location: Where artifacts are stored if the experiment is created.
        run_name: Name of the run; None for the trial's id.
        create_experiment_if_not_exists: Whether to create the experiment if it does not exist.
        tags: Tags of the run.
        rank_zero_only: Accepted for compatibility: a trial is one process.

    Returns:
        The module ``mlflow``, with an active run: ``mlflow.log_metric``, ``mlflow.log_metrics`` and
        so on.

    Raises:
        ImportError: If MLflow is not installed.
        ValueError: If there is no such experiment.

    Example:
        >>> options = {"experiment_name": "digits", "create_experiment_if_not_exists": True}
        >>> def train(config):
        ...     mlflow = setup_mlflow(config, "sqlite:////data/mlflow.db", **options)
        ...     for epoch in range(10):
        ...         mlflow.log_metrics({"loss": config["lr"] / (epoch + 1)}, step=epoch)

    Departures:
        Ray Tune starts a new run with each attempt.
    """
    need_library("mlflow", "mlflow")
    if tracking_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    mlflow = _connected(tracking_uri, registry_uri)
    client = mlflow.MlflowClient()
    name = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
    if not experiment_id and name:
        experiment_id = _experiment_of(
            client, name, artifact_location, may_make=create_experiment_if_not_exists
        )
    # "0" is MLflow's default experiment.
    experiment_id = experiment_id or os.environ.get("MLFLOW_EXPERIMENT_ID") or "0"
    mlflow.set_experiment(experiment_id=experiment_id)
    _begin(
        mlflow,
        client,
        experiment_id,
        run_name,
        {legal_name(str(key)): str(value) for key, value in (tags or {}).items()},
    )
    _log_params(
        mlflow, client, {legal_name(key): str(value) for key, value in flat_config(config).items()}
    )
    return mlflow  # type: ignore[no-any-return]


def _connected(tracking_uri: str | None, registry_uri: str | None) -> Any:
    mlflow = importlib.import_module("mlflow")
    make_sqlite_store(tracking_uri or mlflow.get_tracking_uri(), mlflow.MlflowClient)
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    return mlflow


def _experiment_of(client: Any, name: str, artifact_location: str | None, *, may_make: bool) -> str:
    if not may_make and client.get_experiment_by_name(name) is None:
        raise ValueError(
            f"experiment_name must be that of an MLflow experiment, got {name!r}; make it, or "
            "pass create_experiment_if_not_exists=True"
        )
    return find_or_make_experiment(client, name, artifact_location)


def _begin(
    mlflow: Any, client: Any, experiment_id: str, run_name: str | None, tags: dict[str, str]
) -> None:
    if mlflow.active_run():  # of a trial before this one in the same process
        mlflow.end_run()
    trial = current_trial_run()
    if trial is None:
        mlflow.start_run(run_name=run_name, tags=tags)
        return
    tags |= {
        TRIAL_TAG: trial.trial_id,
        "experiment_name": trial.experiment_name,
        EXPERIMENT_TAG: trial.experiment_id,
    }
    condition = (
        f"tags.`{EXPERIMENT_TAG}` = '{trial.experiment_id}' "
        f"and tags.{TRIAL_TAG} = '{trial.trial_id}'"
    )
    if found := client.search_runs([experiment_id], condition, max_results=1):
        mlflow.start_run(run_id=found[0].info.run_id, tags=tags)
    else:
        mlflow.start_run(run_name=run_name or trial.trial_id, tags=tags)
    # MLflow's own exit handler is lost in a forked worker, which drops those of the zygote.
    atexit.register(mlflow.end_run)


def _log_params(mlflow: Any, client: Any, params: dict[str, str]) -> None:
    # MLflow does not allow a parameter to change: values changed by an exploit become tags.
    logged = client.get_run(mlflow.active_run().info.run_id).data.params
    mlflow.log_params({name: value for name, value in params.items() if name not in logged})
    mlflow.set_tags(
        {
            f"config/{name}": value
            for name, value in params.items()
            if logged.get(name, value) != value
        }
    )


def __getattr__(name: str) -> Any:
    raise missing_name(f"module {__name__!r}", name, _REPLACEMENTS)
