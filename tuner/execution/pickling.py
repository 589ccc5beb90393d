"""Pickle the trainable and values for workers; explain what cannot be pickled."""

from __future__ import annotations

import contextlib
import dis
import functools
import logging
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
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
        >>> import pickle
        >>> rate = 0.1
        >>> pickle.loads(pickle_trainable(lambda config: rate * config["x"]))({"x": 2})
        0.2
    """
    try:
        data = _pickled(trainable)
    except Exception as error:
        raise TrainableNotPicklable(explanation(trainable, error)) from error
    # What `with_parameters` has bound may be large: it is there to be shared.
    if len(data) > HUGE_BYTES and len(data) - _num_parameter_bytes(trainable) > HUGE_BYTES:
        _log.warning("%s", _warning(trainable, len(data)))
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
        path, culprit = _culprit(value, "", {id(value)})
        inside = (
            f" holds {path!r} ({_type_name(culprit)}), which" if path else f" ({_type_name(value)})"
        )
        raise TypeError(
            f"{place}{inside} cannot be carried to a worker process ({error}); "
            "create it inside the training function"
        ) from error


class _Sink:
    """A file that discards what is written."""

    def write(self, data: Any) -> int:
        return len(data)


def can_be_pickled(value: Any) -> bool:
    """Return whether a value can be pickled."""
    return _pickled_size(value) is not None


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


def explanation(trainable: Any, error: Exception) -> str:
    """Return which captured variable keeps a function or class from being pickled."""
    path, culprit = _culprit(trainable, "", {id(trainable)})
    name = _name(trainable)
    if not path:
        return (
            f"{name} ({_type_name(trainable)}) cannot be pickled: {error}; "
            "define it as a function or class of a module"
        )
    return (
        f"{name} captures {path!r} ({_type_name(culprit)}), "
        f"which cannot be carried to a worker process ({error}); "
        "create it inside the function, or pass what it is made from with with_parameters"
    )


def _culprit(value: Any, path: str, seen: set[int]) -> tuple[str, Any]:
    """Return path and value of the innermost part that cannot be pickled."""
    # By trial: each part that can be pickled alone is innocent. Slow, but only after a failure.
    for step, part in _parts(value):
        if id(part) in seen or _pickled_size(part) is not None:
            continue
        seen.add(id(part))
        return _culprit(part, _joined(path, step), seen)
    return path, value


def _joined(path: str, step: str) -> str:
    if not path:
        return step.removeprefix(".")
    return path + (step if step[0] in ".[" else f" -> {step}")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield parts of a value with their paths: captured ``name``, ``.attribute``, ``[item]``."""
    match value:
        case types.FunctionType():
            yield from _captured(value)
        case types.MethodType():
            yield ".__self__", value.__self__
        case functools.partial():
            yield ".func", value.func
            yield from ((f".args[{index}]", part) for index, part in enumerate(value.args))
            yield from ((f".keywords[{key!r}]", part) for key, part in value.keywords.items())
        case dict():
            yield from ((f"[{key!r}]", part) for key, part in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"[{index}]", part) for index, part in enumerate(value))
        case _:
            yield from _attributes(value)


def _captured(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    # What cloudpickle pickles with a function: free variables, globals, defaults, attributes.
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet bound
            continue
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from (
        (f".__defaults__[{index}]", part) for index, part in enumerate(function.__defaults__ or ())
    )
    yield from (
        (f".__kwdefaults__[{key!r}]", part) for key, part in (function.__kwdefaults__ or {}).items()
    )
    yield from ((f".{name}", part) for name, part in vars(function).items())


def _global_names(code: types.CodeType) -> set[str]:
    names = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"
    }
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return names.union(*map(_global_names, inner))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    held: Mapping[str, Any] = getattr(value, "__dict__", {})
    for name, part in held.items():
        match part:
            case staticmethod() | classmethod():
                yield f".{name}", part.__func__
            case property():
                yield f".{name}", part.fget
            case types.GetSetDescriptorType() | types.MemberDescriptorType():
                continue
            case _:
                yield f".{name}", part
    slots = (name for kind in type(value).__mro__ for name in _slots(kind))
    yield from ((f".{name}", getattr(value, name)) for name in slots if hasattr(value, name))


def _slots(kind: type) -> tuple[str, ...]:
    declared = kind.__dict__.get("__slots__", ())
    names = (declared,) if isinstance(declared, str) else tuple(declared)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _warning(trainable: Any, size_bytes: int) -> str:
    sizes = [(_pickled_size(part) or 0, _joined("", step)) for step, part in _parts(trainable)]
    largest, path = max(sizes, default=(0, ""))
    what = f", of which {path!r} takes {largest / 2**20:.0f} MiB" if path else ""
    return (
        f"{_name(trainable)} is {size_bytes / 2**20:.0f} MiB when pickled{what}; "
        "load large data inside the function, or hand it over once with with_parameters"
    )


def _num_parameter_bytes(trainable: Any) -> int:
    return _pickled_size(_given_parameters(trainable)) or 0


def _given_parameters(trainable: Any) -> Any:
    if not isinstance(trainable, types.FunctionType):
        return getattr(trainable, "given_parameters", None)
    bound = dict(_captured(trainable)).get("bound")  # see `trainable.bind`
    return (
        [bound.keywords, _given_parameters(bound.func)]
        if isinstance(bound, functools.partial)
        else None
    )


def _pickled_size(value: Any) -> int | None:
    try:
        return len(cloudpickle.dumps(value))
    except Exception:  # noqa: BLE001  (the user's own reduction methods may raise anything)
        return None


def _name(trainable: Any) -> str:
    return str(getattr(trainable, "__name__", type(trainable).__name__))


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
