"""What an object was constructed with, kept so that an equal one can be constructed later, by today's code and from JSON alone.

And objects constructed by a short name, as from a command line.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

_GIVEN = "_given_arguments"
_Kind = TypeVar("_Kind")
_Found = TypeVar("_Found")


class Declared:
    """Remembers the arguments that each object of its subclasses is constructed with.

    Nothing is asked of a subclass: its constructor is wrapped when the class is made. What is remembered are the objects that were
    given, not copies.

    Attributes:
        withheld: Names of arguments that must not be written down, e.g. since they may hold a password.

    Example:
        >>> class Limit(Declared):
        ...     def __init__(self, limit: int = 3, *, is_hard: bool = False) -> None:
        ...         self.limit = limit
        >>> Limit(4).declared_arguments
        {'limit': 4}
    """

    withheld: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor of a class that has one of its own."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", _remembering(vars(cls)["__init__"]))  # noqa: B010  (mypy lets no method be assigned to)

    @property
    def declared_arguments(self) -> dict[str, Any]:
        """The arguments that were given, by name; those of ``*arguments`` as a tuple, those of ``**keywords`` by their own names."""
        given, keywords = getattr(self, _GIVEN, ((), {}))
        signature = inspect.signature(type(self))
        arguments = dict(signature.bind(*given, **keywords).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
        return arguments


def _remembering(construct: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(construct)
    def remember(self: Any, /, *given: Any, **keywords: Any) -> None:
        # A constructor may call that of its base class; what the user gave came first.
        if not hasattr(self, _GIVEN):
            object.__setattr__(self, _GIVEN, (given, keywords))
        construct(self, *given, **keywords)

    return remember


def found_by_name(name: str, known: Mapping[str, _Found]) -> _Found:
    """Return what goes by a short name.

    Raises:
        ValueError: If nothing does; names the nearest that exists.

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

    Args:
        kind: The class.
        arguments: By name.

    Raises:
        TypeError: If the class has no such argument; names the nearest that it has.
    """
    accepted = inspect.signature(kind).parameters
    is_open = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values()
    )
    for argument in () if is_open else arguments:
        if argument not in accepted:
            takes = f"the arguments {_listed(accepted)}" if accepted else "no arguments"
            raise TypeError(
                f"{getattr(kind, '__name__', kind)} takes {takes}, got {argument!r}{_suggestion(argument, accepted)}"
            )
    return kind(**arguments)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
