"""Recording of the arguments of an object, and construction by class name and arguments."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

_Kind = TypeVar("_Kind")
_Found = TypeVar("_Found")


_OLDER: Mapping[str, str] = {
    "max_concurrent": "write TuneConfig(max_concurrent_trials=...)",
    "reward_attr": 'write metric=... and mode="max"',
}
"""Arguments of Ray Tune's first schedulers and searchers, each with the alternative."""


class Declared:
    """Base class of objects that record the arguments they were constructed with.

    With these a restored experiment constructs them again. `__new__` records them, so that
    subclasses need no code, nor call to this constructor. The arguments themselves are kept, not
    copies.

    Attributes:
        withheld: Names of arguments that must not be written to disk, e.g. because they may hold a
            password.

    Example:
        >>> class Limit(Declared):
        ...     def __init__(self, limit: int = 3, *, is_hard: bool = False) -> None:
        ...         self.limit = limit
        >>> Limit(4).declared_arguments
        {'limit': 4}
    """

    withheld: ClassVar[frozenset[str]] = frozenset()
    _given_arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *given: Any, **keywords: Any) -> Self:
        """Record the arguments of the call."""
        for name in keywords.keys() & _OLDER.keys():
            if name not in inspect.signature(cls).parameters and not _is_open(cls):
                raise TypeError(f"{cls.__name__} has no argument {name!r}; {_OLDER[name]}")
        # `object.__init__` refuses them only if a class does not override `__new__`.
        if (given or keywords) and cls.__init__ is object.__init__:
            raise TypeError(f"{cls.__name__}() takes no arguments")
        self = super().__new__(cls)
        # Frozen dataclasses have no other way to set an attribute.
        object.__setattr__(self, "_given_arguments", (given, keywords))
        return self

    @property
    def declared_arguments(self) -> dict[str, Any]:
        """The given arguments by name; ``*arguments`` as a tuple, ``**keywords`` one by one."""
        given, keywords = self._given_arguments
        signature = inspect.signature(type(self))
        arguments = dict(signature.bind(*given, **keywords).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
        return arguments


def found_by_name(name: str, known: Mapping[str, _Found]) -> _Found:
    """Return the object with a short name.

    Raises:
        ValueError: If there is none; suggests a similar name.

    Example:
        >>> found_by_name("fifo", {"fifo": 1})
        1
    """
    if name not in known:
        raise ValueError(
            f"name must be one of {_listed(known)}, got {name!r}{_suggestion(name, known)}"
        )
    return known[name]


def constructed_with(kind: Callable[..., _Kind], arguments: Mapping[str, Any]) -> _Kind:
    """Return an object of a class, constructed with named arguments.

    Raises:
        TypeError: If the class does not have one of the arguments; suggests a similar name.
    """
    accepted = inspect.signature(kind).parameters
    for argument in () if _is_open(kind) else arguments:
        if argument not in accepted:
            takes = f"the arguments {_listed(accepted)}" if accepted else "no arguments"
            raise TypeError(
                f"{getattr(kind, '__name__', kind)} takes {takes}, got "
                f"{argument!r}{_suggestion(argument, accepted)}"
            )
    return kind(**arguments)


def _is_open(kind: Callable[..., Any]) -> bool:
    """Return whether a class takes any named argument."""
    accepted = inspect.signature(kind).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
