"""Pickle the trainable and values for workers; see `unpicklable` for what cannot be pickled."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle

from tuner.errors import TrainableNotPicklable

HUGE_BYTES = 100 * 2**20
"""Size of a pickled trainable above which a warning is logged."""

_log = logging.getLogger(__name__)


def pickle_trainable(trainable: Any) -> bytes:
    """Return the pickled trainable.

    What other processes cannot import (scripts, notebooks, closures) is pickled by value. Logs a
    warning above 100 MiB, without the objects bound by `with_parameters`.

    Args:
        trainable: A function or class.

    Raises:
        TrainableNotPicklable: If it cannot be pickled; the message names the captured variable that
            is the cause.

    Example:
        >>> rate = 0.1
        >>> pickle.loads(pickle_trainable(lambda config: rate * config["x"]))({"x": 2})
        0.2
    """
    try:
        data = _pickled(trainable)
    except Exception as error:
        from .unpicklable import explanation  # noqa: PLC0415

        raise TrainableNotPicklable(explanation(trainable, error)) from error
    if len(data) > HUGE_BYTES:
        from .unpicklable import num_parameter_bytes, warning_of_size  # noqa: PLC0415

        # What `with_parameters` has bound may be large: it is there to be shared.
        if len(data) - num_parameter_bytes(trainable) > HUGE_BYTES:
            _log.warning("%s", warning_of_size(trainable, len(data)))
    return data


def check_picklable(place: str, value: Any) -> None:
    """Check that a value of a search space can be sent to a worker process.

    Args:
        place: Where it stands, for the message.
        value: The value.

    Raises:
        TypeError: If it cannot be pickled; the message names the part that is the cause.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return
    try:
        # Only whether it works matters: large arrays are not read, and nothing is kept.
        cloudpickle.Pickler(
            _Sink(), protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=lambda _: None
        ).dump(value)
    except Exception as error:
        from .unpicklable import described  # noqa: PLC0415

        raise TypeError(
            f"{place}{described(value)} cannot be carried to a worker process ({error}); "
            "create it inside the training function"
        ) from error


class _Sink:
    """A file that discards what is written."""

    def write(self, data: Any) -> int:
        return len(data)


def _pickled(trainable: Any) -> bytes:
    with pickling_by_value(trainable):
        return bytes(cloudpickle.dumps(trainable))


@contextlib.contextmanager
def pickling_by_value(definition: Any) -> Iterator[None]:
    """Have cloudpickle pickle by value what is defined in a module that nothing else can import."""
    module = sys.modules.get(getattr(definition, "__module__", None) or "")
    if module is None or _is_importable(module.__name__):
        yield
        return
    # E.g. a test module that was imported by its path: no process could import it by its name.
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_importable(name: str) -> bool:
    """Return whether another process could import the module.

    True for ``__main__``, which cloudpickle pickles by value anyway.
    """
    parent = name.rpartition(".")[0]
    if name == "__main__" or (parent and not _is_importable(parent)):
        return name == "__main__"
    path = getattr(sys.modules.get(parent), "__path__", None)
    return any(finder.find_spec(name, path) for finder in sys.meta_path)
