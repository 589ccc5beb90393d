"""What keeps a trainable or a value from being pickled, or makes it huge."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle


def can_be_pickled(value: Any) -> bool:
    """Return whether a value can be pickled."""
    return _pickled_size(value) is not None


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


def described(value: Any) -> str:
    """Return which part keeps a value from being pickled, to stand behind what the value is."""
    path, culprit = _culprit(value, "", {id(value)})
    return f" holds {path!r} ({_type_name(culprit)}), which" if path else f" ({_type_name(value)})"


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
    for name, part in getattr(value, "__dict__", {}).items():
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


def warning_of_size(trainable: Any, size_bytes: int) -> str:
    """Return the warning about a trainable that is huge when pickled."""
    sizes = [(_pickled_size(part) or 0, _joined("", step)) for step, part in _parts(trainable)]
    largest, path = max(sizes, default=(0, ""))
    what = f", of which {path!r} takes {largest / 2**20:.0f} MiB" if path else ""
    return (
        f"{_name(trainable)} is {size_bytes / 2**20:.0f} MiB when pickled{what}; "
        "load large data inside the function, or hand it over once with with_parameters"
    )


def num_parameter_bytes(trainable: Any) -> int:
    """Return how much of a pickled trainable is what `with_parameters` has bound."""
    return _pickled_size(_given_parameters(trainable)) or 0


def _given_parameters(trainable: Any) -> Any:
    if not isinstance(trainable, types.FunctionType):
        return getattr(trainable, "given_parameters", None)
    bound = dict(_captured(trainable)).get("bound")  # see `trainable.bind`
    if isinstance(bound, functools.partial):
        return [bound.keywords, _given_parameters(bound.func)]
    return None


def _pickled_size(value: Any) -> int | None:
    try:
        return len(cloudpickle.dumps(value))
    except Exception:  # noqa: BLE001  (the user's own reduction methods may raise anything)
        return None


def _name(trainable: Any) -> str:
    return str(getattr(trainable, "__name__", type(trainable).__name__))


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
