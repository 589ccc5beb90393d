"""Arguments of validations: as JSON values in the journal, as a pickle in a payload, and back.

What is no JSON value is described in the journal by one of these::

    {"$config": ["train_loop_config", "dataset"]}   an object of the configuration, by its place
    {"$secret": "API_KEY"}                          the value of an environment variable
    {"$tuple": [...]}                               a tuple
    {"$object": "<Model>"}                          anything else, which only the payload holds

A dictionary of the user's that looks like one of them gets one more dollar sign.
"""

from __future__ import annotations

import io
import numbers
import os
import pickle
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

import cloudpickle

from searchers.plain_values import describe, plain_scalar
from tuner.storage import strict_json

from .pickling import pickling_by_value
from .secrets import named_secret, redact
from .unpicklable import can_be_pickled, explanation
from .validation_assignment import ValidationError, Validator

_MAX_ARGUMENT_BYTES: Final = 1 << 14
"""Longest argument that is written into the journal."""
_CONFIG, _SECRET, _TUPLE, _OBJECT = "$config", "$secret", "$tuple", "$object"
_SHARED: Final = "datasets"
"""The part of a trainer's declaration whose objects a payload names instead of holding them."""

Place = tuple[str | int, ...]


@final
class ArgumentPacker:
    """Describes and pickles the arguments of one validation.

    Args:
        sources: The objects that training code has been given, by where they were declared.

    Attributes:
        is_lossy: Whether an argument is described by something that may be lost on a restart.
    """

    def __init__(self, sources: Mapping[str, Any]) -> None:
        self._places = dict(_objects_in(sources, ()))
        self.is_lossy = False

    def described(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON values."""
        return {str(name): self._argument(value) for name, value in kwargs.items()}

    def _argument(self, value: Any) -> Any:
        described = self._value(value)
        # The journal is no place for data.
        is_large = len(strict_json.dumps(described)) > _MAX_ARGUMENT_BYTES
        return self._lost(redact(describe(value))) if is_large else described

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float):
            return value
        if kind is str:
            return self._text(value)
        if kind is dict and all(type(key) is str for key in value):
            return {_escaped(key, value): self._value(part) for key, part in value.items()}
        if kind is list:
            return [self._value(part) for part in value]
        if kind is tuple:
            return {_TUPLE: [self._value(part) for part in value]}
        return self._other(value)

    def _text(self, value: str) -> Any:
        if secret := named_secret(value):
            return {_SECRET: secret}
        # A secret may also be a part of it, and must not reach the journal.
        return value if redact(value) == value else self._lost(redact(value))

    def _other(self, value: Any) -> Any:
        if isinstance(value, numbers.Real) and type(number := plain_scalar(value)) in (int, float):
            return number
        if (place := self._places.get(id(value))) is None:
            return self._lost(redact(describe(value)))
        # Training code may have changed the object, such as a model, since it was given it. What is
        # in `datasets` is only read, and often large.
        self.is_lossy |= place[0] != _SHARED
        return {_CONFIG: list(place)}

    def _lost(self, text: str) -> dict[str, Any]:
        self.is_lossy = True
        return {_OBJECT: text}

    def pickled(self, function: Validator | None, kwargs: Mapping[str, Any]) -> bytes:
        """Return the pickled function and arguments."""
        shared = {key: place for key, place in self._places.items() if place[0] == _SHARED}
        file = io.BytesIO()
        try:
            with pickling_by_value(function):
                _Pickler(file, shared).dump((function, kwargs))
        except Exception as error:  # the user's own reduction methods may raise anything
            for name, value in kwargs.items():
                if not can_be_pickled(value):
                    raise ValueError(
                        f"the argument {name!r} of the validation function "
                        f"({type(value).__name__}) cannot be carried to another process "
                        f"({error}); pass what it is made from"
                    ) from error
            raise ValueError(explanation(function, error)) from error
        return file.getvalue()


@final
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes references to shared objects and secrets."""

    def __init__(self, file: io.BytesIO, shared: Mapping[int, Place]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, value: Any) -> tuple[str, Any] | None:
        if (place := self._shared.get(id(value))) is not None:
            return _CONFIG, place
        if type(value) is str and (secret := named_secret(value)):
            return _SECRET, secret
        return None


def _objects_in(node: Any, place: Place) -> Iterator[tuple[int, Place]]:
    """Yield identity and place of the objects of a declaration that JSON cannot hold."""
    match node:
        case None | bool() | int() | float() | str():
            return
        case dict() | types.MappingProxyType():
            for key, part in node.items():
                if isinstance(key, str | int):
                    yield from _objects_in(part, (*place, key))
        case list() | tuple():
            for index, part in enumerate(node):
                yield from _objects_in(part, (*place, index))
        case _:
            yield id(node), place


def _escaped(key: str, mapping: Mapping[str, Any]) -> str:
    return f"${key}" if len(mapping) == 1 and key.startswith("$") else key


def unpickled(data: bytes, sources: Mapping[str, Any]) -> tuple[Validator | None, dict[str, Any]]:
    """Return function and arguments that `ArgumentPacker.pickled` has written.

    Raises:
        ValidationError: If an object that they refer to is not there any more.
        Exception: Whatever the user's classes raise.
    """
    function, kwargs = _Unpickler(io.BytesIO(data), sources).load()
    return function, kwargs


def restored(described: Mapping[str, Any], sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `ArgumentPacker.described` has written.

    Raises:
        ValidationError: If one was not stored, or refers to what is not there any more.
    """
    return {name: _found(value, name, sources) for name, value in described.items()}


@final
class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, sources: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._sources = sources

    def persistent_load(self, reference: tuple[str, Any]) -> Any:
        kind, what = reference
        return _secret(what, what) if kind == _SECRET else _at(self._sources, what, "")


def _found(stored: Any, argument: str, sources: Mapping[str, Any]) -> Any:
    match stored:
        case list():
            return [_found(part, argument, sources) for part in stored]
        case dict() if len(stored) == 1:
            ((key, value),) = stored.items()
            return _untagged(key, value, argument, sources)
        case Mapping():
            return {key: _found(part, argument, sources) for key, part in stored.items()}
        case _:
            return stored


def _untagged(key: str, value: Any, argument: str, sources: Mapping[str, Any]) -> Any:
    match key:
        case "$config":
            return _at(sources, value, argument)
        case "$secret":
            return _secret(value, argument)
        case "$tuple":
            return tuple(_found(part, argument, sources) for part in value)
        case "$object":
            raise ValidationError(
                f"the argument {argument!r} of the validation function was an object ({value}) "
                "that is not stored, and the experiment has been restarted since it was reported; "
                "pass it in the configuration of the trial or of the trainer, or as a default "
                "argument with validation_config="
            )
        case _:
            plain = key.removeprefix("$") if key.startswith("$$") else key
            return {plain: _found(value, argument, sources)}


def _at(sources: Mapping[str, Any], place: Any, argument: str) -> Any:
    node: Any = sources
    try:
        for step in place:
            node = node[step]
    except (KeyError, IndexError, TypeError):
        where = "".join(f"[{step!r}]" for step in place[1:])
        raise ValidationError(
            f"the argument {argument!r} of the validation function was {place[0]}{where}, which is "
            "not there any more; restore with the configuration that the experiment was run with"
        ) from None
    return node


def _secret(name: str, argument: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValidationError(
            f"the argument {argument!r} of the validation function is the environment variable "
            f"{name!r}, which is not set; set it where the experiment is started"
        )
    return value
