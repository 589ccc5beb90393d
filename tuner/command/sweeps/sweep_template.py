"""A sweep file to begin with: commented YAML or TOML, from what is known of a program."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

_RESERVED: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_PLAIN: Final = re.compile(r"(?:[A-Za-z_/]|\.{1,2}/)[^\n\r\t]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_DOTTED: Final = re.compile(rf"{_NAME.pattern}(?:\.[A-Za-z0-9_-]+)*")
_MAX_ALIGNED: Final = 44
_MAX_LINE: Final = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a sweep file: a key with its value, or a comment.

    Attributes:
        key: The key; empty for a comment.
        value: Its value: text, number, list or mapping, or `Entry` objects of a section.
        note: What it means, in a few words.
        is_active: Whether it is in effect, and not commented out.
    """

    key: str = ""
    value: Any = None
    note: str = ""
    is_active: bool = True

    @property
    def is_section(self) -> bool:
        """Whether its value is a section of entries."""
        return isinstance(self.value, tuple)


Paragraph = Sequence[Entry]


def as_yaml(head: Sequence[str], paragraphs: Sequence[Paragraph]) -> str:
    """Return the text of a sweep file in YAML.

    Args:
        head: Lines of comment above all.
        paragraphs: Entries that belong together; a blank line separates them.

    Example:
        >>> print(as_yaml(["A sweep."], [[Entry("mode", "min", "less is better")]]), end="")
        # A sweep.
        <BLANKLINE>
        mode: min  # less is better
    """
    blocks = [[*map(_comment, head)], *([*_yaml_lines(one)] for one in paragraphs)]
    return _joined(blocks)


def as_toml(head: Sequence[str], paragraphs: Sequence[Paragraph]) -> str:
    """Return the text of a sweep file in TOML, where sections come last.

    Args:
        head: Lines of comment above all.
        paragraphs: Entries that belong together; a blank line separates them.

    Example:
        >>> print(as_toml(["A sweep."], [[Entry("mode", "min", "less is better")]]), end="")
        # A sweep.
        <BLANKLINE>
        mode = "min"  # less is better
    """
    blocks = [[*map(_comment, head)]]
    tables: list[list[str]] = []
    for paragraph in paragraphs:
        plain: list[Entry] = []
        for entry in paragraph:
            if not entry.is_section:
                plain.append(entry)
                continue
            # Comments directly above a section go with it.
            cut = len(plain) - next(
                (count for count, one in enumerate(reversed(plain)) if one.key), len(plain)
            )
            above, plain = plain[cut:], plain[:cut]
            table = f"{'' if entry.is_active else '# '}[{entry.key}]"
            inner = [
                replace(one, is_active=one.is_active and entry.is_active) for one in entry.value
            ]
            tables.append(
                [*_toml_lines(above), *_with_note(table, entry.note), *_toml_lines(inner)]
            )
        blocks.append([*_toml_lines(plain)])
    return _joined([*blocks, *tables])


def _joined(blocks: Sequence[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _yaml_lines(entries: Sequence[Entry], indent: str = "") -> Iterator[str]:
    pending: list[tuple[str, str]] = []
    for entry in entries:
        prefix = indent + ("" if entry.is_active else "# ")
        key = f"{prefix}{_yaml_text(entry.key, _DOTTED)}:"
        if not entry.key:
            pending += [(f"{indent}{line}", "") for line in _comments(entry.note)]
        elif entry.is_section or (isinstance(entry.value, list) and entry.value):
            yield from _aligned(pending)
            pending = []
            yield from _with_note(key, entry.note)
            if entry.is_section:
                yield from _yaml_lines(entry.value, f"{prefix}  ")
            else:
                yield from (f"{prefix}  - {_yaml(item)}" for item in entry.value)
        else:
            pending.append((f"{key} {_yaml(entry.value)}", entry.note))
    yield from _aligned(pending)


def _toml_lines(entries: Sequence[Entry]) -> Iterator[str]:
    lines: list[tuple[str, str]] = []
    for entry in entries:
        if not entry.key:
            lines += [(line, "") for line in _comments(entry.note)]
            continue
        prefix = "" if entry.is_active else "# "
        lines.append((f"{prefix}{_toml_key(entry.key)} = {_toml(entry.value)}", entry.note))
    yield from _aligned(lines)


def _aligned(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield lines with their notes one below the other."""
    given = list(lines)
    widths = [len(text) for text, note in given if note and len(text) <= _MAX_ALIGNED]
    width = max(widths, default=0)
    for text, note in given:
        has_room = note and width + len(note) + len("  # ") <= _MAX_LINE
        yield from _with_note(text.ljust(width) if has_room else text, note)


def _with_note(text: str, note: str) -> Iterator[str]:
    """Yield a line with its note behind it, or above it where there is no room."""
    comment = _comment(note)
    if not note:
        yield text
    elif len(text) + len(comment) + 2 <= _MAX_LINE:
        yield f"{text}  {comment}"
    else:
        indent = text[: len(text) - len(text.lstrip())]
        yield f"{indent}{comment}"
        yield text.rstrip()


def _comments(text: str) -> list[str]:
    return [_comment(line) for line in textwrap.wrap(text, _MAX_LINE - 4)]


def _comment(text: str) -> str:
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    return f"# {shown}".rstrip()


def _yaml(value: Any) -> str:
    match value:
        case str():
            return _yaml_text(value, _PLAIN)
        case Mapping():
            inner = (f"{_flow(key)}: {_flow(one)}" for key, one in value.items())
            return f"{{{', '.join(inner)}}}"
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case float():
            return _number(value)
        case _:
            return json.dumps(value)


def _flow(value: Any) -> str:
    """Return a value inside brackets, where more signs have a meaning."""
    return _yaml_text(value, _DOTTED) if isinstance(value, str) else _yaml(value)


def _yaml_text(text: str, plain: re.Pattern[str]) -> str:
    if not all(sign.isprintable() for sign in text):
        return _quoted(text)
    is_plain = (
        plain.fullmatch(text)
        and text.lower() not in _RESERVED
        and ": " not in text
        and " #" not in text
        and text.strip() == text
        and not text.endswith(":")
    )
    return text if is_plain else "'" + text.replace("'", "''") + "'"


def _toml_key(key: str) -> str:
    return key if _NAME.fullmatch(key) else _quoted(key)


def _toml(value: Any) -> str:
    match value:
        case str():
            has_signs = "\\" in value or '"' in value
            is_literal = has_signs and "'" not in value and value.isprintable()
            return f"'{value}'" if is_literal else _quoted(value)
        case Mapping():
            inner = (f"{_toml_key(str(key))} = {_toml(one)}" for key, one in value.items())
            return f"{{{', '.join(inner)}}}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case float():
            return _number(value)
        case _:
            return json.dumps(value)


def _number(value: float) -> str:
    """Return a float as both YAML and TOML read it: 1e-05 needs a point in YAML 1.1."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}e{exponent}" if e else text


def _quoted(text: str) -> str:
    """Return a text in double quotes, as JSON, YAML and TOML read it."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        sign
        if sign.isprintable()
        else f"\\u{ord(sign):04x}"
        if ord(sign) <= 0xFFFF  # noqa: PLR2004  (what four digits hold)
        else f"\\U{ord(sign):08x}"
        for sign in quoted
    )
