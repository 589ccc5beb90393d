"""Codec of declared arguments: write them as JSON values, and construct the same objects again.

Plain values are written as they are, everything else as a dictionary with the key ``"@"``: an
object of one of this product's public classes as its name and its arguments,
``{"@": "ASHAScheduler", "max_t": 81}``. What cannot be written (functions, classes of the
user, arrays) becomes a description for people, ``{"@": "absent", "what": "..."}``, and has to be
given again.

A file cannot choose which code runs: names are looked up in a fixed table of classes, and never
imported or evaluated.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import schedulers
import searchers
from searchers.recorded_arguments import Declared
from searchers.space import Branching, Categorical, Float, Integer, Normal, OnlyIf
from searchers.space.domains import PRIOR_FIELDS
from tuner import capabilities
from tuner.core import stoppers
from tuner.core.secret_reference import Secret

from .config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from .worker_config import LoggingConfig

Note = dict[str, Any]
"""A declared value as JSON."""

TAG: Final = "@"
_ABSENT, _TUPLE, _DICT, _DURATION, _PATH = "absent", "tuple", "dict", "timedelta", "path"
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


@dataclass(frozen=True, slots=True)
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
        of_training: type = getattr(capabilities, name)
        return of_training
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
    # Compared with the class's own name, because some classes have an older name as well.
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
    value = _as_python(value)
    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return [note(item) for item in value]
    if type(value) is tuple:
        return {TAG: _TUPLE, "items": [note(item) for item in value]}
    if type(value) is dict:
        return _note_of_dict(value)
    if type(value) is dt.timedelta:
        return {TAG: _DURATION, "seconds": value.total_seconds()}
    return _note_of_object(value)


def _as_python(value: Any) -> Any:
    is_numpy_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_numpy_scalar else value


def _note_of_dict(value: dict[Any, Any]) -> Note:
    if all(type(key) is str for key in value) and TAG not in value:
        return {key: note(item) for key, item in value.items()}
    return {TAG: _DICT, "items": [[note(key), note(item)] for key, item in value.items()]}


def _note_of_object(value: Any) -> Note:
    kind = type(value)
    if kind is type(Path()):
        return {TAG: _PATH, "path": str(value)}
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


@dataclass(frozen=True, slots=True)
class _Construction:
    """Constructs the object of one tagged note."""

    place: str
    absent: list[Absent]

    def of(self, noted: Note) -> Any:
        fields = {name: item for name, item in noted.items() if name != TAG}
        special: Mapping[str, Callable[..., Any]] = {
            _TUPLE: self._tuple,
            _DICT: self._dict,
            _DURATION: self._duration,
            _PATH: self._path,
            _ABSENT: self._missing,
        }
        name = noted[TAG]
        try:
            return special[name](**fields) if name in special else self._object(str(name), fields)
        except (TypeError, ValueError, AttributeError, OverflowError, ImportError) as refusal:
            return self._missing(f"{name}: {refusal}")

    def _tuple(self, items: list[Any]) -> Any:
        return tuple(constructed(items, self.place, self.absent))

    def _dict(self, items: list[Any]) -> Any:
        return {
            constructed(key, self.place, self.absent): constructed(
                item, f"{self.place}[{key!r}]", self.absent
            )
            for key, item in items
        }

    def _duration(self, seconds: float) -> dt.timedelta:
        return dt.timedelta(seconds=seconds)

    def _path(self, path: str) -> Path:
        return Path(path)

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
    # ``*args`` cannot be given by name.
    parameters = inspect.signature(kind).parameters
    several = [
        name
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL
    ]
    positional = [item for name in several for item in arguments.get(name, ())]
    return kind(
        *positional, **{name: item for name, item in arguments.items() if name not in several}
    )


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
    if _is_tree(then) and _is_tree(now):
        # A field that an older release did not have counts as its default, and so does None where
        # it stands for default settings.
        if TAG in then and then[TAG] == now.get(TAG):
            defaults = _default_note(then[TAG])
            then, now = ({**defaults, **_without_unset(side, defaults)} for side in (then, now))
        for key in [*then, *(key for key in now if key not in then)]:
            inner = f"{place}.{key}" if TAG in then else f"{place}[{key!r}]"
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
def _default_note(name: str) -> Note:
    """Return the note of a class of settings with all defaults."""
    return _note_of_object(_SETTINGS[name]())


def _one_sided(then: Note, now: Note, key: str, place: str) -> Iterator[str]:
    old, new = (shown(side[key]) if key in side else "nothing" for side in (then, now))
    yield f"{place}: {old} -> {new}"


def _is_tree(noted: Any) -> bool:
    return isinstance(noted, dict) and (
        TAG not in noted or noted[TAG] in {kind.__name__ for kind in _CONFIGS}
    )


def shown(noted: Any) -> str:
    """Return a note as text for people, e.g. ``Float(lower=0.0, upper=1.0)``."""
    match noted:
        case {"@": "absent", "what": what}:
            return str(what)
        case {"@": "path", "path": path}:
            return f"Path({path!r})"
        case {"@": str(name), **fields}:
            return shown(fields.get("items")) if name == _TUPLE else _shown_object(name, fields)
        case dict():
            return f"{{{', '.join(f'{key!r}: {shown(item)}' for key, item in noted.items())}}}"
        case list():
            return f"[{', '.join(map(shown, noted))}]"
        case _:
            return repr(noted)


def _shown_object(name: str, fields: Mapping[Any, Any]) -> str:
    given = ((key, item) for key, item in fields.items() if item is not None and item is not False)
    return f"{name}({', '.join(f'{key}={shown(item)}' for key, item in given)})"
