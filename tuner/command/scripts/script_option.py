"""An option or argument of a script."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from .python_source import Unknown

_HINTS: Final = ("int", "float", "bool", "str", "path")


class Takes(enum.Enum):
    """What is written after an option."""

    VALUE = "a value"
    VALUES = "several values"
    NOTHING = "nothing, it is a flag"
    OR_NO = "nothing, it has an opposite"


@dataclass(frozen=True, slots=True)
class Option:
    """An option or argument of a script.

    Attributes:
        name: Its name without hyphens before it: ``batch-size``.
        flag: How it is written: ``--batch-size``; empty for a positional argument.
        off_flag: How its opposite is written, for a pair such as ``--amp`` and ``--no-amp``.
        kind: ``"int"``, ``"float"``, ``"bool"``, ``"str"`` or ``"path"``; empty if not known.
        default: Its default, None for none, `UNKNOWN` if it is computed.
        choices: What it accepts, if that is listed; `UNKNOWN` if it is computed.
        lower: The least number that it accepts, if it says so.
        upper: The greatest one.
        takes: What follows it.
        is_required: Whether the script asks for it.
        truth_of_text: Whether it converts texts by ``bool``, for which "False" is true.
        help: What it says about itself.
        command: The subcommand that it belongs to, empty for the script's own.
        line: Where it is declared.
    """

    name: str
    flag: str
    kind: str = ""
    default: Any = None
    choices: tuple[Any, ...] | Unknown | None = None
    lower: float | None = None
    upper: float | None = None
    takes: Takes = Takes.VALUE
    off_flag: str = ""
    is_required: bool = False
    truth_of_text: bool = False
    help: str = ""
    command: str = ""
    line: int = 0

    @property
    def is_positional(self) -> bool:
        """Whether it is told by its place."""
        return not self.flag


def kind_of(converter: str, default: Any, choices: Any) -> str:
    """Return what kind of value an option has, by its converter, or else its default."""
    name = converter.lower()
    for kind, words in (
        ("bool", ("bool",)),
        ("path", ("path", "file", "dir")),
        ("float", ("float",)),
        ("int", ("int",)),
        ("str", ("str",)),
    ):
        if any(word in name for word in words):
            return kind
    sample = choices[0] if isinstance(choices, tuple) and choices else default
    return type(sample).__name__ if type(sample).__name__ in _HINTS else ""


def first_long(names: Sequence[str]) -> str:
    """Return the name of an option that its value goes by: the first one with two hyphens."""
    return next((name for name in names if name.startswith("--")), names[0])


def text_of(value: Any) -> str:
    """Return a text in one line, empty for a value of another type."""
    return " ".join(value.split()) if isinstance(value, str) else ""
