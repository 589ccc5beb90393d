"""Codec of declared arguments: write them as JSON values, and construct the same objects again.

Plain values are written as they are, everything else as a dictionary with the key ``"@"``: an
object of one of this product's public classes as its name and its arguments,
``{"@": "ASHAScheduler", "max_t": 81}``. What cannot be written (functions, classes of the
user, arrays) becomes a description for people, ``{"@": "absent", "what": "..."}``, and has to be
given again.

Another kind of value that JSON does not know is a line in `KINDS`: how it is written, constructed
again, and declared in Python.

A file cannot choose which code runs: names are looked up in fixed tables, and never imported or
evaluated.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import schedulers
import searchers
from searchers.plain_values import python_scalar
from searchers.recorded_arguments import Declared
from searchers.space import Branching, Categorical, Float, Integer, Normal, OnlyIf
from searchers.space.declared_space import Space
from searchers.space.domains import PRIOR_FIELDS
from tuner import capabilities
from tuner.core import stoppers
from tuner.core.secret_reference import Secret
from tuner.wire.record import record

from .config import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, TuneConfig

Note = dict[str, Any]
"""A declared value as JSON."""

TAG: Final = "@"
SPACE: Final = "Space"
_ABSENT, _DICT = "absent", "dict"
_WITHHELD: Final[Note] = {TAG: _ABSENT, "what": "not written down"}
_PLAIN = (bool, int, float, str, type(None))
_DOMAINS = (Branching, Categorical, Float, Integer, Normal, OnlyIf)
_CONFIGS = (CheckpointConfig, FailureConfig, RunConfig, TuneConfig)
_OF_TRAINING = ("ScalingConfig", "ValidationConfig", "ValidationTaskConfig")
_PACKAGES: Final = (schedulers, searchers, stoppers)
_SETTINGS: Final[Mapping[str, type]] = {
    kind.__name__: kind for kind in (*_DOMAINS, Secret, *_CONFIGS, LoggingConfig)
}

NOT_DECLARED: Final[Mapping[type, frozenset[str]]] = {
    # The directory itself says where it is, and the seed is recorded apart, because it never
    # changes; each run chooses where trials run and how to show progress; the rest is accepted for
    # compatibility only.
    RunConfig: frozenset(
        {
            "name",
            "storage_path",
            "local_dir",
            "log_to_file",
            "progress_reporter",
            "sync_config",
            "storage_filesystem",
            "cluster",
        }
    ),
    TuneConfig: frozenset({"seed", "reuse_actors", "trial_name_creator", "trial_dirname_creator"}),
}
"""Fields that are not recorded, by class."""


@record
class Absent:
    """Stands for a value that could not be recorded, only described.

    Attributes:
        place: Its place, e.g. ``param_space['model']['loss']``.
        what: Its description, for people.
    """

    place: str
    what: str

    def __str__(self) -> str:
        """Return place and description."""
        return f"{self.place} ({self.what})"


def known_class(name: str) -> type | None:
    """Return the public class of this name if files may construct its objects, else None."""
    if name in _SETTINGS:
        return _SETTINGS[name]
    if name in _OF_TRAINING:
        from . import training_config  # noqa: PLC0415  (most experiments have none of these)

        of_training: type = getattr(training_config, name)
        return of_training
    if name == "StopSearch":
        criterion: type = capabilities.StopSearch
        return criterion
    # Packages import a class when it is first asked for: an experiment that uses one scheduler must
    # not wait for the import of all of them.
    kind: Any = next(
        (getattr(package, name) for package in _PACKAGES if name in _names(package)), None
    )
    is_constructed = (
        isinstance(kind, type)
        and issubclass(kind, Declared)
        and kind is not Declared
        and not inspect.isabstract(kind)
    )
    # Compared with the class's own name, because some classes have another name as well.
    return kind if is_constructed and kind.__name__ == name else None


@functools.cache
def _names(package: Any) -> frozenset[str]:
    public = getattr(package, "__all__", None) or [
        name for name in vars(package) if not name.startswith("_")
    ]
    return frozenset(public)


def note(value: Any) -> Any:
    """Return a declared value as JSON.

    Example:
        >>> note({"lr": Float(0.0, 1.0), "size": (8, 8), "loss": abs})["loss"]
        {'@': 'absent', 'what': 'builtins.abs'}
    """
    value = python_scalar(value)
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [note(item) for item in value]
    if kind is dict and TAG not in value and all(type(key) is str for key in value):
        return {key: note(item) for key, item in value.items()}
    for tag, known in KINDS.items():
        if kind is known.kind:
            return {TAG: tag, **known.fields(value)}
    return _note_of_object(value)


@record
class _Kind:
    """A kind of values that are neither plain nor objects of public classes.

    Attributes:
        kind: Their class.
        fields: Returns what is written of one, beside the tag.
        value: Returns it again, from the fields by name. First comes what constructs a part of it,
            from its note and the part's place in it.
        code: Returns it as a Python expression, from the fields by name. First comes what does so
            with a note.
    """

    kind: type
    fields: Callable[[Any], Note]
    value: Callable[..., Any]
    code: Callable[..., str]


def _tuple_code(code: Callable[[Any], str], items: list[Any]) -> str:
    return f"({', '.join(map(code, items))}{',' if len(items) == 1 else ''})"


def _dict_code(code: Callable[[Any], str], items: Collection[tuple[Any, Any]]) -> str:
    return f"{{{', '.join(f'{code(key)}: {code(item)}' for key, item in items)}}}"


def _space(entries: dict[str, Any], where: Any) -> Any:
    return where if isinstance(where, Absent) else Space(entries, where)


KINDS: Final[Mapping[str, _Kind]] = {
    "tuple": _Kind(
        tuple,
        lambda value: {"items": [note(item) for item in value]},
        lambda construct, items: tuple(
            construct(item, f"[{index}]") for index, item in enumerate(items)
        ),
        _tuple_code,
    ),
    "dict": _Kind(  # with other keys than texts, or one that is like a tag
        dict,
        lambda value: {"items": [[note(key), note(item)] for key, item in value.items()]},
        lambda construct, items: {
            construct(key, ""): construct(item, f"[{key!r}]") for key, item in items
        },
        _dict_code,
    ),
    "timedelta": _Kind(
        dt.timedelta,
        lambda value: {"seconds": value.total_seconds()},
        lambda _, seconds: dt.timedelta(seconds=seconds),
        lambda code, seconds: code(seconds),
    ),
    SPACE: _Kind(
        Space,
        lambda value: {"space": note(dict(value)), "where": note(value.where)},
        lambda construct, space, where: _space(construct(space, ""), construct(where, ".where")),
        lambda code, space, where: f"Space({code(space)}, where={code(where)})",
    ),
    "path": _Kind(
        type(Path()),
        lambda value: {"path": str(value)},
        lambda _, path: Path(path),
        lambda code, path: f"pathlib.Path({code(path)})",
    ),
}


def _note_of_object(value: Any) -> Note:
    kind = type(value)
    if known_class(kind.__name__) is not kind:
        return {TAG: _ABSENT, "what": _described(value)}
    hidden = NOT_DECLARED.get(kind, frozenset())
    return {
        TAG: kind.__name__,
        **{name: item for name, item in _noted_arguments(value) if name not in hidden},
    }


def _noted_arguments(value: Any) -> Iterator[tuple[str, Any]]:
    withheld = value.withheld if isinstance(value, Declared) else frozenset()
    for name, argument in _arguments(value):
        yield name, _WITHHELD if name in withheld and argument is not None else note(argument)


def _arguments(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Declared):
        yield from value.declared_arguments.items()
    else:
        # A domain without a prior is written as before there were priors, so that a comparison with
        # an older declaration finds no difference.
        hidden = PRIOR_FIELDS if getattr(value, "prior", None) is None else frozenset()
        yield from (
            (field.name, getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init and field.name not in hidden
        )


def _described(value: Any) -> str:
    # Not by its repr, which may contain anything, even a password.
    value = getattr(value, "adapted", value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', None) or '?'}.{named.__qualname__}"


def constructed(noted: Any, place: str, absent: list[Absent]) -> Any:
    """Return the value that a note describes.

    Args:
        noted: What `note` returned, read from a file with any content.
        place: Its place, for messages.
        absent: Collects what has to be given again; in the value, an `Absent` stands for it.
    """
    if isinstance(noted, list):
        return [constructed(item, f"{place}[{index}]", absent) for index, item in enumerate(noted)]
    if not isinstance(noted, dict):
        return noted
    if TAG not in noted:
        return {key: constructed(item, f"{place}[{key!r}]", absent) for key, item in noted.items()}
    return _Construction(place, absent).of(noted)


@record
class _Construction:
    """Constructs the object of one tagged note."""

    place: str
    absent: list[Absent]

    def of(self, noted: Note) -> Any:
        name, fields = noted[TAG], fields_of(noted)
        try:
            if name == _ABSENT:
                return self._missing(**fields)
            if name in KINDS:
                return KINDS[name].value(self._part, **fields)
            return self._object(str(name), fields)
        except (TypeError, ValueError, AttributeError, OverflowError, ImportError) as refusal:
            return self._missing(f"{name}: {refusal}")

    def _part(self, noted: Any, step: str) -> Any:
        return constructed(noted, self.place + step, self.absent)

    def _missing(self, what: str) -> Absent:
        missing = Absent(self.place, what)
        self.absent.append(missing)
        return missing

    def _object(self, name: str, fields: Mapping[str, Any]) -> Any:
        kind = known_class(name)
        if kind is None:
            return self._missing(f"{name}, which is no class of this release")
        # An object with an absent argument cannot be constructed, so it is absent as a whole.
        num_absent = len(self.absent)
        arguments = {key: self._argument(kind, key, item) for key, item in fields.items()}
        return (
            self.absent[num_absent] if len(self.absent) > num_absent else _called(kind, arguments)
        )

    def _argument(self, kind: type, name: str, noted: Any) -> Any:
        if noted is not None and issubclass(kind, Declared) and name in kind.withheld:
            noted = _WITHHELD  # even if a file has it
        return constructed(noted, f"{self.place}.{name}", self.absent)


def _called(kind: type, arguments: Mapping[str, Any]) -> Any:
    several = name_of_several(kind)
    named = {name: item for name, item in arguments.items() if name != several}
    return kind(*arguments.get(several, ()), **named)


def name_of_several(kind: type) -> str:
    """Return the name of a class's ``*arguments``, which cannot be given by name; empty without."""
    parameters = inspect.signature(kind).parameters.items()
    several = (
        name for name, parameter in parameters if parameter.kind is inspect.Parameter.VAR_POSITIONAL
    )
    return next(several, "")


def constructed_config(
    noted: Any, place: str, given: Mapping[str, Any], absent: list[Absent]
) -> Any:
    """Return the settings that a note describes, with some fields replaced.

    Args:
        noted: What `note` returned for a dataclass of settings.
        place: Its place, for messages.
        given: Fields that replace the noted ones.
        absent: Collects what has to be given again; if there is any, None is returned.

    Raises:
        ValueError: If the note does not describe settings, or a value is out of range.
    """
    kind = (
        known_class(noted[TAG])
        if isinstance(noted, dict) and isinstance(noted.get(TAG), str)
        else None
    )
    if kind not in _CONFIGS:
        raise ValueError(f"{place} must be noted as settings, got {noted!r:.80}")
    hidden = {TAG, *NOT_DECLARED.get(kind, ()), *given}
    num_absent = len(absent)
    fields = {
        name: constructed(item, f"{place}.{name}", absent)
        for name, item in noted.items()
        if name not in hidden
    }
    return None if len(absent) > num_absent else kind(**fields, **given)


def replaced(config: Any, given: Mapping[str, Any]) -> Any:
    """Return settings with some fields replaced."""
    return dataclasses.replace(config, **given) if given else config


def differences(then: Any, now: Any, place: str) -> Iterator[str]:
    """Yield each place at which two notes differ, with the old and the new value.

    Example:
        >>> then, now = note({"x": 1, "y": 2}), note({"x": 1, "y": Normal(0, 1)})
        >>> list(differences(then, now, "param_space"))
        ["param_space['y']: 2 -> Normal(mean=0.0, sd=1.0)"]
    """
    if _is_space(then) is not _is_space(now):
        then, now = (each if _is_space(each) else _as_space(each) for each in (then, now))
    if _is_tree(then) and _is_tree(now):
        # A field that an older release did not have counts as its default, and so does None where
        # it stands for default settings.
        if then.get(TAG) == now.get(TAG) in _SETTINGS:
            defaults = default_note(then[TAG])
            then, now = ({**defaults, **_without_unset(side, defaults)} for side in (then, now))
        for key in [*then, *(key for key in now if key not in then)]:
            inner = f"{place}.{key}" if TAG in then else f"{place}[{key!r}]"
            inner = place if _is_space(then) and key == "space" else inner
            yield from (
                differences(then.get(key), now.get(key), inner)
                if key in then and key in now
                else _one_sided(then, now, key, inner)
            )
    # NaN does not equal itself, but its text does.
    elif then != now and repr(then) != repr(now):
        yield f"{place}: {shown(then)} -> {shown(now)}"


def _without_unset(noted: Note, defaults: Note) -> Note:
    return {
        name: item
        for name, item in noted.items()
        if item is not None or not _is_tree(defaults.get(name))
    }


@functools.cache
def default_note(name: str) -> Note:
    """Return the note of a class of settings with all defaults."""
    return _note_of_object(_SETTINGS[name]())


def _one_sided(then: Note, now: Note, key: str, place: str) -> Iterator[str]:
    old, new = (shown(side[key]) if key in side else "nothing" for side in (then, now))
    yield f"{place}: {old} -> {new}"


def _is_tree(noted: Any) -> bool:
    trees = {SPACE, *(kind.__name__ for kind in _CONFIGS)}
    return isinstance(noted, dict) and (TAG not in noted or noted[TAG] in trees)


def _is_space(noted: Any) -> bool:
    return isinstance(noted, dict) and noted.get(TAG) == SPACE


def _as_space(noted: Any) -> Any:
    """Return the note of a plain space as that of one with no relation."""
    is_plain = isinstance(noted, dict) and TAG not in noted
    return {TAG: SPACE, "space": noted, "where": None} if is_plain else noted


def shown(noted: Any) -> str:
    """Return a note as text for people, e.g. ``Float(lower=0.0, upper=1.0)``."""
    match noted:
        case {"@": "absent", "what": what}:
            return str(what)
        case {"@": str(name)} if name not in KINDS:
            given = (
                f"{key}={shown(item)}"
                for key, item in fields_of(noted).items()
                if item is not None and item is not False
            )
            return f"{name}({', '.join(given)})"
        case _:
            return code_of(noted, shown)


def fields_of(noted: Note) -> Note:
    """Return what a tagged note has beside its tag."""
    return {name: item for name, item in noted.items() if name != TAG}


def code_of(noted: Any, code: Callable[[Any], str]) -> str:
    """Return a note of anything but an object as a Python expression.

    Args:
        noted: The note.
        code: Returns the expression of a part of it.

    Example:
        >>> code_of(note({"x": (1, Path("a")), "y": [None]}), shown)
        "{'x': (1, pathlib.Path('a')), 'y': [None]}"
    """
    match noted:
        case {"@": str(name)} if name in KINDS:
            return KINDS[name].code(code, **fields_of(noted))
        case dict():
            return _dict_code(code, noted.items())
        case list():
            return f"[{', '.join(map(code, noted))}]"
        case _:
            return repr(noted)
