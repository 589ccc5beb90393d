"""Ray Tune's import path of ``flatten_dict`` and ``validate_save_restore``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .execution.trainable import Trainable

__all__ = ["flatten_dict", "validate_save_restore"]


def flatten_dict(
    dt: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False
) -> dict[str, Any]:
    """Return a dictionary with the keys of nested ones joined; empty ones and lists stay as they are.

    Args:
        dt: The dictionary.
        delimiter: What stands between the keys.
        prevent_delimiter: Whether a key that holds the delimiter is refused.

    Raises:
        ValueError: If a key holds the delimiter and that is to be prevented.

    Example:
        >>> flatten_dict({"a": {"b": 1, "c": {"d": 2}}, "e": {}})
        {'a/b': 1, 'a/c/d': 2, 'e': {}}
    """
    flat: dict[str, Any] = {}
    for key, value in dt.items():
        if prevent_delimiter and delimiter in str(key):
            raise ValueError(
                f"keys must not hold {delimiter!r}, got {key!r}; rename it or give another "
                "delimiter"
            )
        if isinstance(value, Mapping) and value:
            inner = flatten_dict(value, delimiter, prevent_delimiter)
            flat.update({f"{key}{delimiter}{name}": item for name, item in inner.items()})
        else:
            flat[key] = value
    return flat


def validate_save_restore(
    trainable_cls: type[Trainable],
    config: Mapping[str, Any] | None = None,
    num_gpus: int = 0,  # noqa: ARG001  (older code gives it)
) -> bool:
    """Train a class three steps, save it, load the checkpoint into a second object, and train that on.

    Args:
        trainable_cls: A subclass of `Trainable`.
        config: The configuration to train with.
        num_gpus: Accepted for compatibility: it runs in this process, which has the GPUs that it
            has.

    Returns:
        True.

    Raises:
        TypeError: If it is no subclass of `Trainable`.
        AssertionError: If the second object does not go on at the iteration at which the first one
            was saved.
        Exception: What the class itself raises where it cannot be saved or loaded.
    """
    if not (isinstance(trainable_cls, type) and issubclass(trainable_cls, Trainable)):
        raise TypeError(
            f"trainable_cls must be a subclass of Trainable, got {trainable_cls!r}; a "
            "function reports its checkpoints itself"
        )
    first, second = trainable_cls(dict(config or {})), trainable_cls(dict(config or {}))
    try:
        for _ in range(3):
            first.train()
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = first.save(Path(directory, "checkpoint"))
            second.restore(checkpoint)
        if second.iteration != first.iteration:
            raise AssertionError(
                f"{trainable_cls.__name__} was saved at iteration {first.iteration} and goes "
                f"on at {second.iteration}"
            )
        second.train()
    finally:
        first.stop()
        second.stop()
    return True
