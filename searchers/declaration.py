"""What an object was constructed with, kept so that an equal one can be constructed later, by today's code and from JSON alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

_GIVEN = "_given_arguments"


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
        """The arguments that were given, by name; those of ``*arguments`` as a tuple."""
        given, keywords = getattr(self, _GIVEN, ((), {}))
        return dict(inspect.signature(type(self)).bind(*given, **keywords).arguments)


def _remembering(construct: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(construct)
    def remember(self: Any, /, *given: Any, **keywords: Any) -> None:
        # A constructor may call that of its base class; what the user gave came first.
        if not hasattr(self, _GIVEN):
            object.__setattr__(self, _GIVEN, (given, keywords))
        construct(self, *given, **keywords)

    return remember
