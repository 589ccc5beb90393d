"""Trainables by name, for configuration files and command lines."""

from __future__ import annotations

import difflib
from typing import Any

from .trainable import check_trainable

_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any) -> None:
    """Make a trainable known under a name, which `Tuner` then takes in its place.

    Args:
        name: The name; registering it again replaces what it stood for.
        trainable: A function of the configuration, or a subclass of `Trainable`.

    Raises:
        TypeError: If `name` is no string or `trainable` is not one.

    Example:
        >>> register_trainable("quadratic", lambda config: {"loss": config["x"] ** 2})
        >>> get_trainable("quadratic")({"x": 3})
        {'loss': 9}
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    check_trainable(trainable)
    _registered[name] = trainable


def get_trainable(name: str) -> Any:
    """Return the trainable registered under the name.

    Raises:
        ValueError: If there is none; names the closest ones.
    """
    if name in _registered:
        return _registered[name]
    close = difflib.get_close_matches(str(name), _registered)
    known = (
        f"did you mean {' or '.join(map(repr, close))}"
        if close
        else f"registered are {sorted(_registered) or 'none'}"
    )
    raise ValueError(
        f"no trainable is registered as {name!r}; {known}; call register_trainable({name!r}, trainable) first"
    )
