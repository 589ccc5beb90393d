"""Settings of the processes of an experiment: what they log, and the variables of workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .checked_settings import Settings


@dataclass(slots=True)
class LoggingConfig(Settings):
    """How much tuner logs, on its logger ``tuner``, in the driver's process and the workers.

    Attributes:
        log_level: Name of a level of the module `logging`; messages below it are dropped. The
            default is ``"INFO"``.

    Raises:
        ValueError: If there is no such level.
    """

    log_level: str = "INFO"

    def _check(self) -> None:
        levels = sorted(logging.getLevelNamesMapping())
        if not isinstance(self.log_level, str) or self.log_level.upper() not in levels:
            raise ValueError(
                f"log_level must be one of {', '.join(map(repr, levels))}, got {self.log_level!r}"
            )
        object.__setattr__(self, "log_level", self.log_level.upper())


def checked_environment(given: Any) -> dict[str, str]:
    """Return the variables of a ``worker_runtime_env``.

    Raises:
        TypeError: If it is no dictionary of variables.
        ValueError: If it asks for anything else, such as packages.

    Example:
        >>> checked_environment({"env_vars": {"NCCL_DEBUG": "INFO"}})
        {'NCCL_DEBUG': 'INFO'}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"worker_runtime_env must be a dictionary such as {{'env_vars': {{...}}}}, got "
            f"{given!r}"
        )
    if others := [name for name, value in given.items() if name != "env_vars" and value]:
        raise ValueError(
            f"worker_runtime_env must have the key 'env_vars' only, got "
            f"{', '.join(map(repr, others))}; workers run with the packages and files of this "
            "environment"
        )
    variables = given.get("env_vars") or {}
    if not isinstance(variables, Mapping) or not all(
        isinstance(text, str) for pair in variables.items() for text in pair
    ):
        raise TypeError(f"env_vars must be strings by name, got {variables!r}")
    return dict(variables)
