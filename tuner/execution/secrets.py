"""Secrets in a worker: resolved for training code, redacted in all that leaves the process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from tuner.core.secret_reference import Secret

_MIN_LENGTH: Final = 4
"""Shorter values are not redacted: they would occur in texts by chance."""

_known_values: dict[str, Secret] = {}
"""The secrets that training code of this process has been given, by value."""


def resolve_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with each secret reference replaced by its value.

    Raises:
        LookupError: If an environment variable is missing; names it and the place of the secret.
    """
    return {key: _resolved(value, f"config[{_quoted(key)}]") for key, value in config.items()}


def _resolved(node: Any, place: str) -> Any:
    match node:
        case Secret(name):
            return _value_of(node, name, place)
        case dict() if type(node) is dict:
            return {key: _resolved(part, f"{place}[{_quoted(key)}]") for key, part in node.items()}
        case list() | tuple() if type(node) in (list, tuple):
            return type(node)(
                _resolved(part, f"{place}[{index}]") for index, part in enumerate(node)
            )
        case _:
            return node


def _value_of(secret: Secret, name: str, place: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise LookupError(
            f"{place} is the environment variable {name!r}, which is not set; "
            "set it where the experiment is started"
        )
    if len(value) >= _MIN_LENGTH:
        _known_values[value] = secret
    return value


def _quoted(key: Any) -> str:
    return json.dumps(key) if isinstance(key, str) else repr(key)


def named_secret(value: str) -> str:
    """Return the name of the variable whose resolved value this is; empty for any other text."""
    secret = _known_values.get(value)
    return secret.name if secret else ""


def redact(text: str) -> str:
    """Return the text with the value of each resolved secret replaced by its reference."""
    # Longest first: a secret may be part of another one.
    for value in sorted(_known_values, key=len, reverse=True):
        text = text.replace(value, repr(_known_values[value]))
    return text
