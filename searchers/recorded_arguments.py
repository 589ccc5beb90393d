"""Recording of the arguments that an object was constructed with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

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
            if name not in inspect.signature(cls).parameters and not takes_any(cls):
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


def takes_any(kind: Callable[..., Any]) -> bool:
    """Return whether a class takes any named argument."""
    accepted = inspect.signature(kind).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted)
