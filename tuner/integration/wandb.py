"""Weights & Biases: a callback that logs trials from the driver, and `setup_wandb`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from tuner.callbacks.trackers.tracker import need_library
from tuner.callbacks.trackers.wandb_logger import WandbLoggerCallback, check_access, read_key
from tuner.errors import missing_name

from .trial_run import current_trial_run, flat_config

__all__ = ["WandbLoggerCallback", "setup_wandb"]

_REPLACEMENTS = {
    "wandb_mixin": "call setup_wandb(config) in the training function or in setup",
    "WandbTrainableMixin": "call setup_wandb(config) in the training function or in setup",
    "WandbLogger": "pass WandbLoggerCallback(...) in RunConfig(callbacks=[...])",
}
"""Names of Ray Tune 1 that do not exist here, each with the alternative."""


def setup_wandb(
    config: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,  # noqa: ARG001  (accepted for compatibility)
    **kwargs: Any,
) -> Any:
    """Start a run of Weights & Biases for the calling trial, or continue the trial's run.

    The run is named after the trial and grouped by the experiment, like that of
    `WandbLoggerCallback`; use one of the two. It ends with the trial's process. Outside a trial it
    is an ordinary run.

    Args:
        config: The trial's configuration; `Secret` values are logged by name.
        api_key: The key; None for ``WANDB_API_KEY``, or else the key stored by ``wandb login``.
        api_key_file: A file that holds the key.
        rank_zero_only: Accepted for compatibility: a trial is one process.
        **kwargs: Passed on to ``wandb.init``; they take precedence over what is chosen here.

    Returns:
        The ``wandb`` run.

    Raises:
        ImportError: If wandb is not installed.
        ValueError: If a key is given twice, its file cannot be read or is empty, or W&B is online
            and has no key.

    Example:
        >>> def train(config):
        ...     run = setup_wandb(config, project="digits", mode="offline")
        ...     for epoch in range(10):
        ...         run.log({"loss": config["lr"] / (epoch + 1)})

    Departures:
        Ray Tune starts a new run with each attempt.
    """
    need_library("wandb", "wandb")
    key = read_key(api_key, api_key_file)
    check_access(key, kwargs.get("mode"))
    chosen: dict[str, Any] = {"config": flat_config(config), "reinit": "finish_previous"}
    if trial := current_trial_run():
        # The driver may have started a W&B service, and its processes inherit the address. A trial
        # that is killed would leave an open run in it.
        os.environ.pop("WANDB_SERVICE", None)
        chosen |= {
            "id": trial.run_id,
            "name": trial.trial_id,
            "group": os.environ.get("WANDB_RUN_GROUP") or trial.experiment_name,
            "project": os.environ.get("WANDB_PROJECT") or trial.experiment_name,
            "dir": os.environ.get("WANDB_DIR") or str(trial.experiment_path),
        }
    wandb = importlib.import_module("wandb")
    if key:
        wandb.login(key=key)
    if trial and kwargs.get("mode", wandb.setup().settings.mode) == "online":
        chosen["resume"] = "allow"  # offline, wandb cannot look up whether the run exists
    return wandb.init(**{**chosen, **kwargs})


def __getattr__(name: str) -> Any:
    raise missing_name(f"module {__name__!r}", name, _REPLACEMENTS)
