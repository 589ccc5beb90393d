"""Ray Tune's import path of ``flatten_dict`` and ``validate_save_restore``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .execution.class_trainable import Trainable

__all__ = ["flatten_dict", "validate_save_restore"]


def flatten_dict(
    dt: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False
) -> dict[str, Any]:
    """Flatten nested dictionaries by joining their keys; keep empty dictionaries and lists.

    Args:
        dt: The dictionary.
        delimiter: The string between joined keys.
        prevent_delimiter: Whether a key that contains the delimiter is an error.

    Raises:
        ValueError: If a key contains the delimiter and `prevent_delimiter` is set.

    Example:
        >>> flatten_dict({"a": {"b": 1, "c": {"d": 2}}, "e": {}})
        {'a/b': 1, 'a/c/d': 2, 'e': {}}
    """
    flat: dict[str, Any] = {}
    for key, value in dt.items():
        if prevent_delimiter and delimiter in str(key):
            raise ValueError(
                f"keys must not contain {delimiter!r}, got {key!r}; rename the key or pass another "
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
    num_gpus: int = 0,  # noqa: ARG001  (older code passes it)
) -> bool:
    """Check that a class can be saved and restored.

    Trains an object for three steps, saves it, loads the checkpoint into a second object, and
    trains that for another step.

    Args:
        trainable_cls: A subclass of `Trainable`.
        config: The configuration to train with.
        num_gpus: Accepted for compatibility; the check runs in this process with all its GPUs.

    Returns:
        True.

    Raises:
        TypeError: If `trainable_cls` is no subclass of `Trainable`.
        AssertionError: If the second object does not continue at the iteration at which the first
            was saved.
        Exception: Any exception that the class raises in saving or loading.
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
                f"{trainable_cls.__name__} was saved at iteration {first.iteration} and "
                f"continues at {second.iteration}"
            )
        second.train()
    finally:
        first.stop()
        second.stop()
    return True
