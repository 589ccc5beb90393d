"""Records that are declared once: dataclasses that are written as JSON values and read back.

How a field is written follows from its type, and from what `Annotated` adds to it::

    @tagged("exited")
    @record
    class WorkerExited:
        trial_id: Annotated[str, Key("id")]
        outcome: Outcome  # under its own name, by its value
        failure: Failure | None = None  # a record in the record, or null
        node: Annotated[str, OPTIONAL] = ""  # left out where it has its default

Fields are written in their order; one that later releases add has to be `OPTIONAL`, so that earlier
ones read what does not use it. Reading checks the type of every field, those of nested records
included: a key that is missing stands for the default, one that is not declared is refused.

A type is a text, a number, a truth value, an enumeration, another record, a mapping with texts or
integers as keys, a list or tuple, any of these or None, or ``Any``, which is not looked at. A value
declared as ``Mapping`` is shared with what is written or read, one declared as ``dict`` is copied;
one declared as ``Sequence`` is read as a list.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from itertools import repeat
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

Body = dict[str, Any]
"""A record as JSON values; floats need not be finite."""

Translate = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Puts a configuration into JSON values, or brings it back from them."""

_T = TypeVar("_T")
_Convert = Callable[[Any, Translate], Any]


class Mark(enum.Enum):
    """How a field is written, where its type does not tell; by the names below."""

    OPTIONAL = "optional"
    NEVER = "never"
    FLAT = "flat"
    LIST = "list"
    CONFIG = "config"


OPTIONAL: Final = Mark.OPTIONAL
"""The field is left out where it has its default."""
NEVER: Final = Mark.NEVER
"""The field is not written."""
FLAT: Final = Mark.FLAT
"""The fields of the record in this field stand among those of the record around it."""
LIST: Final = Mark.LIST
"""The record in this field is written as the list of its values."""
CONFIG: Final = Mark.CONFIG
"""The field is a configuration, which whoever writes or reads the record translates."""


@dataclass(frozen=True, slots=True)
class Key:
    """The key under which a field is written, where that is not its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Form:
    """How a field is written whose type is none of those above, or which looks otherwise.

    Attributes:
        write: Returns the JSON value of one that is not None.
        read: Returns the value of a JSON value that is not null.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Malformed(ValueError):
    """What was read is not as the record is declared; says in which field, and what is accepted."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(f"{path} {what}" if path else what)
        self._what, self._path = what, path

    def inside(self, key: object) -> Malformed:
        """Return the same of a record that lies under this key of another one."""
        return Malformed(self._what, f"{key}.{self._path}" if self._path else f"{key}")


def tagged(tag: str) -> Callable[[type[_T]], type[_T]]:
    """Give a record the tag by which `Tagged` tells it from others."""

    def give(cls: type[_T]) -> type[_T]:
        _TAGS[cls] = tag
        return cls

    return give


def declare(cls: type[Any], tag: str = "", **marks: Any) -> None:
    """Declare how a record is written that is defined where nothing is known of that.

    Args:
        cls: Its class.
        tag: See `tagged`.
        **marks: What `Annotated` would add to a field, by its name; several as a tuple. These
            fields are written in this order, and after them the others.
    """
    _MARKS[cls] = {
        name: mark if isinstance(mark, tuple) else (mark,) for name, mark in marks.items()
    }
    if tag:
        _TAGS[cls] = tag


def tag_of(cls: type[Any]) -> str:
    """Return the tag of a record."""
    return _TAGS[cls]


def encode(record: Any, translate: Translate = dict) -> Body:
    """Return a record as JSON values.

    Args:
        record: The record.
        translate: Puts configurations in it into JSON values.
    """
    return _layout(type(record)).put(record, {}, translate)


def decode(cls: type[_T], body: Any, translate: Translate = dict, *, is_whole: bool = True) -> _T:
    """Return the record that `encode` has written.

    Args:
        cls: Its class.
        body: The JSON values.
        translate: Brings configurations in it back from JSON values.
        is_whole: Whether to refuse keys that are not declared.

    Raises:
        Malformed: If it is no such record.
    """
    if not isinstance(body, dict):
        raise Malformed(f"must be an object, got {body!r:.80}")
    record: _T = _layout(cls).take(body, translate, is_whole=is_whole)
    return record


@final
class Tagged(Generic[_T]):
    """Records of several classes, with a tag that tells them apart.

    Args:
        key: The key of the tag.
        classes: The classes, see `tagged`.
    """

    def __init__(self, key: str, classes: Iterable[type[Any]]) -> None:
        self._key = key
        self._classes = {_TAGS[cls]: cls for cls in classes}

    def encode(self, record: _T, translate: Translate = dict) -> Body:
        """Return a record as JSON values, the tag first."""
        return self.put(record, {}, translate)

    def put(self, record: _T, body: Body, translate: Translate = dict) -> Body:
        """Write a record into a body that has other keys, and return it."""
        body[self._key] = _TAGS[type(record)]
        return _layout(type(record)).put(record, body, translate)

    def decode(self, body: Mapping[str, Any], translate: Translate = dict) -> _T:
        """Return the record that `encode` has written, with whatever other keys there are.

        Raises:
            Malformed: If it is no such record.
        """
        tag = body.get(self._key)
        cls = self._classes.get(tag) if isinstance(tag, str) else None
        if cls is None:
            raise Malformed(f"is of the unknown kind {tag!r:.80}", self._key)
        record: _T = _layout(cls).take(body, translate, is_whole=False)
        return record

    def knows(self, tag: object) -> bool:
        """Return whether one of the records has this tag."""
        return isinstance(tag, str) and tag in self._classes


class _Form(NamedTuple):
    """How the values of a type are written.

    Attributes:
        kinds: The classes of its JSON values.
        accepted: The same in words.
        write: Makes a JSON value of one that is not None; None where it is one already.
        read: Makes the value of it again; None likewise.
    """

    kinds: tuple[type[Any], ...]
    accepted: str
    write: _Convert | None = None
    read: _Convert | None = None

    def written(self, value: Any, translate: Translate) -> Any:
        return value if self.write is None or value is None else self.write(value, translate)

    def taken(self, value: Any, translate: Translate) -> Any:
        if not isinstance(value, self.kinds):
            raise self.misfit(value)
        return value if self.read is None or value is None else self.read(value, translate)

    def misfit(self, value: Any) -> Malformed:
        return Malformed(f"must be {self.accepted}, got {value!r:.80}")


class _Field(NamedTuple):
    """How a field is written.

    Attributes:
        name: Its name.
        key: Its key; None where it has none of its own.
        form: How its values are written.
        default: Its default; `_NONE` for none, and for one that is made for each record.
        absent: Makes the value for a record without the key, where the default is `_NONE`.
        omitted: The value for which it is left out; `_NONE` for none.
    """

    name: str
    key: str | None
    form: _Form
    default: Any
    absent: _Convert
    omitted: Any


_NONE: Final = object()
_TAGS: Final[dict[type[Any], str]] = {}
_MARKS: Final[dict[type[Any], dict[str, tuple[Any, ...]]]] = {}
_LAYOUTS: Final[dict[type[Any], _Layout]] = {}


def _layout(cls: type[Any]) -> _Layout:
    layout = _LAYOUTS.get(cls)
    if layout is None:
        layout = _LAYOUTS[cls] = _Layout(cls)
    return layout


@final
class _Layout:
    """How the records of a class are written; made when the first one is.

    Attributes:
        keys: The keys of its fields, those of flat ones included.
    """

    def __init__(self, cls: type[Any]) -> None:
        hints, elsewhere = get_type_hints(cls, include_extras=True), _MARKS.get(cls, {})
        marks = {
            field.name: (
                *elsewhere.get(field.name, ()),
                *getattr(hints[field.name], "__metadata__", ()),
            )
            for field in fields(cls)
        }
        by_name = {
            field.name: _field(field, hints[field.name], marks[field.name]) for field in fields(cls)
        }
        self._cls = cls
        self._written = [
            by_name[name] for name in {**elsewhere, **by_name} if NEVER not in marks[name]
        ]
        self._values = _getter([field.name for field in self._written])
        self._puts = [(field.key, field.form.write, field.omitted) for field in self._written]
        self._taken = [
            (field.key, field.default, field.form.kinds, field.form.read, field.absent)
            for field in by_name.values()
        ]
        self.keys: set[str | None] = {field.key for field in self._written}.union(
            *(_layout(_bare(hints[name])).keys for name in marks if FLAT in marks[name])
        )

    def put(self, record: Any, body: Body, translate: Translate) -> Body:
        """Write a record into a body, and return it."""
        none = _NONE
        for value, (key, write, omitted) in zip(self._values(record), self._puts, strict=True):
            if omitted is not none and value == omitted:
                continue
            written = value if write is None or value is None else write(value, translate)
            if key is None:
                body |= written
            else:
                body[key] = written
        return body

    def take(self, body: Mapping[str, Any], translate: Translate, *, is_whole: bool) -> Any:
        """Return the record in a body."""
        if is_whole and not body.keys() <= self.keys:
            raise Malformed(f"must not have the key {min(body.keys() - self.keys)!r:.80}")
        values, key = [], None
        try:
            for key, default, kinds, read, absent in self._taken:
                value = body.get(key, default)  # type: ignore[arg-type]  # None is never there
                if value is default:
                    if value is _NONE:
                        value = absent(body, translate)
                elif not isinstance(value, kinds):
                    raise next(each for each in self._written if each.key == key).form.misfit(value)
                elif read is not None and value is not None:
                    value = read(value, translate)
                values.append(value)
        except Malformed as flaw:
            raise (flaw if key is None else flaw.inside(key)) from None
        return self._cls(*values)

    def put_list(self, record: Any, translate: Translate) -> list[Any]:
        """Return the values of a record."""
        values = zip(self._values(record), self._written, strict=True)
        return [field.form.written(value, translate) for value, field in values]

    def take_list(self, values: list[Any], translate: Translate) -> Any:
        """Return the record of these values."""
        if len(values) != len(self._written):
            raise Malformed(f"must have {len(self._written)} values, got {values!r:.80}")
        keyed = zip(self._written, values, strict=True)
        return self.take({field.key: value for field, value in keyed}, translate, is_whole=True)  # type: ignore[misc]


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _field(field: Field[Any], hint: Any, marks: tuple[Any, ...]) -> _Field:
    key = next((mark.name for mark in marks if isinstance(mark, Key)), field.name)
    default = omitted = _NONE if field.default is MISSING else field.default
    absent: _Convert = _required
    if FLAT in marks:
        inner = _layout(_bare(hint))
        absent = lambda body, translate: inner.take(body, translate, is_whole=False)  # noqa: E731
    elif field.default_factory is not MISSING:
        make, omitted = field.default_factory, field.default_factory()
        absent = lambda *_: make()  # noqa: E731
    return _Field(
        field.name,
        None if FLAT in marks or NEVER in marks else key,
        _Form((object,), "") if NEVER in marks else _form(hint, marks),
        default,
        absent,
        omitted if OPTIONAL in marks else _NONE,
    )


def _required(_body: Any, _translate: Translate) -> Any:
    raise Malformed("is missing")


def _bare(hint: Any) -> type[Any]:
    """Return the class in a hint like ``Annotated[Reason, FLAT]``."""
    cls: type[Any] = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return cls


def _form(hint: Any, marks: tuple[Any, ...] = ()) -> _Form:
    """Return how the values of a type are written."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _form(arguments[0], (*marks, *arguments[1:]))
    if own := next((mark for mark in marks if isinstance(mark, Form)), None):
        return _Form(
            (object,), "", lambda value, _: own.write(value), lambda value, _: own.read(value)
        )
    if origin in (Union, UnionType):
        return _union(arguments, marks)
    if CONFIG in marks:
        return _Form((dict,), "an object", _translated, _translated)
    return _compound(origin, arguments) if origin else _simple(hint, is_list=LIST in marks)


def _compound(origin: Any, arguments: tuple[Any, ...]) -> _Form:
    each = [_form(argument) for argument in arguments if argument is not ...]
    if origin in (dict, Mapping):
        return _mapping(origin, *each)
    if origin in (list, Sequence):
        return _sequence(list, *each)
    if origin is not tuple:
        raise TypeError(f"a declared record cannot have a field of the type {origin}")
    return _sequence(tuple, *each) if ... in arguments else _fixed(each)


def _simple(hint: Any, *, is_list: bool) -> _Form:
    if hint in _SCALARS:
        return _SCALARS[hint]
    return _enumeration(hint) if issubclass(hint, enum.Enum) else _nested(hint, is_list=is_list)


_SCALARS: Final[dict[Any, _Form]] = {
    Any: _Form((object,), "anything"),
    str: _Form((str,), "a text"),
    bool: _Form((bool,), "true or false"),
    int: _Form((int,), "an integer"),
    float: _Form((int, float), "a number"),
}


def _translated(value: Any, translate: Translate) -> Any:
    return translate(value)


def _union(arguments: tuple[Any, ...], marks: tuple[Any, ...]) -> _Form:
    forms = [_form(each, marks) for each in arguments if each is not NoneType]
    kinds = tuple(kind for form in forms for kind in form.kinds)
    accepted = " or ".join(form.accepted for form in forms)
    if NoneType in arguments:
        kinds, accepted = (*kinds, NoneType), f"{accepted} or null"
    if len(forms) == 1:
        return forms[0]._replace(kinds=kinds, accepted=accepted)
    if any(form.write or form.read for form in forms):
        raise TypeError(f"a declared record cannot have a field of one of {arguments}")
    return _Form(kinds, accepted)


def _mapping(origin: Any, key: _Form, each: _Form) -> _Form:
    has_numbers, is_copied = key is _SCALARS[int], origin is dict
    is_plain = not (has_numbers or each.write or each.read)

    def write(value: Mapping[Any, Any], translate: Translate) -> Any:
        if is_plain:
            return dict(value) if is_copied or value.__class__ is not dict else value
        return {
            str(key) if has_numbers else key: each.written(item, translate)
            for key, item in value.items()
        }

    def read(value: Body, translate: Translate) -> Any:
        if is_plain and all(isinstance(item, each.kinds) for item in value.values()):
            return dict(value) if is_copied else value
        found, name = {}, ""
        try:
            for name, item in value.items():
                found[_number(name) if has_numbers else name] = each.taken(item, translate)
        except Malformed as flaw:
            raise flaw.inside(name) from None
        return found

    is_anything = each is _SCALARS[Any] and is_plain and not is_copied
    return _Form((dict,), "an object", write, None if is_anything else read)


def _number(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise Malformed("must have an integer as its key") from None


def _copied(value: Body, _translate: Translate) -> Body:
    return dict(value)


def _sequence(make: Callable[[Iterable[Any]], Any], each: _Form) -> _Form:
    def write(value: Iterable[Any], translate: Translate) -> list[Any]:
        return [each.written(item, translate) for item in value]

    def read(value: list[Any], translate: Translate) -> Any:
        return make(_items(repeat(each), value, translate))

    return _Form((list,), "a list", write, read)


def _fixed(forms: list[_Form]) -> _Form:
    """Return the form of a tuple with a type for each place."""

    def write(value: tuple[Any, ...], translate: Translate) -> list[Any]:
        return [form.written(item, translate) for form, item in zip(forms, value, strict=True)]

    def read(value: list[Any], translate: Translate) -> Any:
        if len(value) != len(forms):
            raise Malformed(f"must have {len(forms)} values, got {value!r:.80}")
        return tuple(_items(forms, value, translate))

    return _Form((list,), "a list", write, read)


def _items(forms: Iterable[_Form], values: list[Any], translate: Translate) -> list[Any]:
    found: list[Any] = []
    try:
        for form, value in zip(forms, values, strict=False):
            found.append(form.taken(value, translate))
    except Malformed as flaw:
        raise flaw.inside(len(found)) from None
    return found


def _enumeration(cls: type[enum.Enum]) -> _Form:
    members = {member.value: member for member in cls}
    accepted = "one of " + ", ".join(map(repr, members))

    def read(value: Any, _translate: Translate) -> Any:
        if value not in members:
            raise Malformed(f"must be {accepted}, got {value!r:.80}")
        return members[value]

    kinds = tuple({type(value) for value in members})
    return _Form(kinds, accepted, lambda value, _: value.value, read)


def _nested(cls: type[Any], *, is_list: bool) -> _Form:
    # The layout is made when it is first used, since a record may contain others of its class.
    if is_list:
        return _Form(
            (list,),
            "a list",
            lambda value, translate: _layout(cls).put_list(value, translate),
            lambda value, translate: _layout(cls).take_list(value, translate),
        )
    return _Form(
        (dict,),
        "an object",
        lambda value, translate: _layout(cls).put(value, {}, translate),
        lambda value, translate: _layout(cls).take(value, translate, is_whole=True),
    )
