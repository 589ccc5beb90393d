"""Random instances of declared records, drawn from the types of their fields."""

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from hypothesis import strategies as st

from searchers.objectives import OutcomeConstraint
from tuner.wire.declared import NEVER, Form

FLOATS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
SCALARS = {
    str: st.text(max_size=8),
    int: st.integers(0, 10**9),
    float: FLOATS,
    bool: st.booleans(),
    None: st.none(),
    types.NoneType: st.none(),
    typing.Any: JSON,
}


CONSTRAINTS = st.builds(
    OutcomeConstraint,
    st.text(min_size=1, max_size=8),
    st.sampled_from(["<=", ">="]),
    st.floats(allow_nan=False, allow_infinity=False),
)


def instances(cls, depth=0):
    """Draw every field that is written, also those with defaults."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return st.builds(
        cls,
        **{
            field.name: of_type(hints[field.name], depth + 1)
            for field in fields(cls)
            if NEVER not in typing.get_args(hints[field.name])
        },
    )


def of_type(hint, depth=0):  # noqa: PLR0911  (a case each)
    """Draw a value of a type that a declared record may have."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin is typing.Annotated:
        return of_type(arguments[0], depth)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([of_type(each, depth) for each in arguments])
    max_size = 2 if depth < 4 else 0  # a failure holds those of other workers
    if origin in (Mapping, dict):
        return st.dictionaries(*(of_type(each, depth) for each in arguments), max_size=max_size)
    if origin is tuple and ... not in arguments:
        return st.tuples(*(of_type(each, depth) for each in arguments))
    if origin in (tuple, list):
        if arguments[0] is OutcomeConstraint:
            return st.lists(CONSTRAINTS, max_size=2, unique_by=lambda one: one.metric).map(tuple)
        each = of_type(arguments[0], depth + 1) if max_size else st.nothing()
        return st.lists(each, max_size=max_size).map(origin)
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return instances(hint, depth)


def records_in(cls, found):
    """Add a declared record to those found, and all that are nested in it."""
    if cls in found:
        return found
    found.append(cls)
    for hint in typing.get_type_hints(cls, include_extras=True).values():
        for inner in _classes_in(hint):
            records_in(inner, found)
    return found


def _classes_in(hint):
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    arguments = typing.get_args(hint)
    if not any(isinstance(each, Form) for each in arguments):
        for each in arguments:
            yield from _classes_in(each)
