"""Records that are cheap to define: frozen dataclasses with slots that share their methods.

`dataclass` writes and compiles the source of six methods for each frozen class, which takes a third
of a millisecond. A search defines a hundred such classes before its first result, and the process
of its workers half of them again. Of a `record` only ``__init__`` is compiled. Type checkers refuse
assignments to fields; at run time nothing does. What users get should be a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass with slots."""
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    declared = fields(made)  # type: ignore[arg-type]  # a dataclass, which mypy does not see
    compared = _values([each.name for each in declared if each.compare])
    shown = [each.name for each in declared if each.repr]

    def __eq__(self: object, other: object) -> bool:  # noqa: N807  (set on the class below)
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(compared(self))

    def __repr__(self: object) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    for method in (__eq__, __hash__, __repr__):
        setattr(made, method.__name__, method)
    return made


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return what gets the values of these fields, of which a tuple compares NaN by identity."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)
