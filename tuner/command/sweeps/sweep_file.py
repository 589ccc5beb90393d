"""Sweep files: YAML or TOML in, nested mappings that know the line of each key out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

YAML_ENDINGS: Final = (".yaml", ".yml")
TOML_ENDINGS: Final = (".toml",)
ENDINGS: Final = (*YAML_ENDINGS, *TOML_ENDINGS)
_PLAIN: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "timestamp")
)
_TEXT: Final = "tag:yaml.org,2002:str"
_AS_WRITTEN: Final = "tag:yaml.org,2002:timestamp"
_MAPPING: Final = "tag:yaml.org,2002:map"
_LIST: Final = "tag:yaml.org,2002:seq"
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+")
"""A number with an exponent, which YAML 1.1 takes for a text where it has no point or sign."""
_TOML_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


@final
class Section(dict[str, Any]):
    """A mapping that a file contains, with the line of each key.

    Mappings inside it, also those in lists, are sections too.

    Args:
        entries: The mapping.
        path: The file.
        lines: The lines of its keys, counted from 1, where they are known.

    Attributes:
        path: See above.
        lines: See above.
    """

    def __init__(
        self, entries: Mapping[str, Any], path: Path, lines: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(entries)
        self.path = path
        self.lines = dict(lines or {})

    def place(self, key: str | None = None) -> str:
        """Return file and line of a key, for the beginning of a message."""
        line = self.lines.get(key) if key is not None else None
        return str(self.path) if line is None else f"{self.path}:{line}"

    def refusal(self, key: str | None, what: str) -> ValueError:
        """Return the error for what is wrong with a key, or with the whole file."""
        return ValueError(f"{self.place(key)}: {what}")


def plain(value: Any) -> Any:
    """Return a value of a file with plain dictionaries in place of sections."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def parsed(path: Path) -> Section:
    """Return what a sweep file contains, as it is written.

    YAML is read with its plain types alone: texts, numbers, booleans, nulls, lists and mappings.
    ``1e-3`` is a number, as in YAML 1.2, and a date stays a text.

    Args:
        path: The file, whose ending says what it is.

    Raises:
        ValueError: If the ending is another, the file is not well-formed, repeats a key or has
            values of other types; begins with file and line.
        OSError: If it cannot be read.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(
            f"{path}: a sweep file must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}; write "
            f"-- before a command, as in tuner run ... -- python {path}"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    return _parsed_toml(text, path) if ending in TOML_ENDINGS else _parsed_yaml(text, path)


def _parsed_yaml(text: str, path: Path) -> Section:
    import yaml  # noqa: PLC0415  (only files need it)

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        value = Section({}, path) if root is None else _YamlReader(loader, path).value_of(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ValueError(
            f"{place}: this is no YAML: {error.problem or error.context}; put texts with special "
            "characters in single quotes, and indent with spaces"
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: this is no YAML: {error}; save the file as text") from error
    if isinstance(value, Section):
        return value
    raise ValueError(f"{path}: a sweep file has lines KEY: VALUE, got {value!r:.60}")


class _YamlReader:
    """Makes values of YAML's nodes."""

    def __init__(self, loader: Any, path: Path) -> None:
        self._loader = loader
        self._path = path
        self._values: dict[int, Any] = {}
        """Values by their nodes, which aliases share: a short file may stand for a huge value."""
        self._open: set[int] = set()

    def value_of(self, node: Any) -> Any:
        if id(node) in self._open:
            raise self._refusal(node, "a value must not contain itself; write it out")
        if id(node) not in self._values:
            self._open.add(id(node))
            self._values[id(node)] = self._made_of(node)
            self._open.remove(id(node))
        return self._values[id(node)]

    def _made_of(self, node: Any) -> Any:
        if node.tag == _MAPPING and node.id == "mapping":
            return self._section_of(node)
        if node.tag == _LIST and node.id == "sequence":
            return [self.value_of(item) for item in node.value]
        if node.tag not in _PLAIN or node.id != "scalar":
            raise self._refusal(
                node,
                f"a sweep file has texts, numbers, lists and mappings, got the tag {node.tag!r}; "
                "leave the tag out",
            )
        if node.tag == _AS_WRITTEN:
            return node.value
        if node.tag == _TEXT:
            is_number = node.style is None and _NUMBER.fullmatch(node.value)
            return float(node.value) if is_number else node.value
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            raise self._refusal(node, f"{node.value!r} is no value: {error}") from error

    def _section_of(self, node: Any) -> Section:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name = self._name_of(key)
            if name in lines and name != "<<":
                raise self._refusal(
                    key, f"{name!r} is there twice, first in line {lines[name]}; keep one of them"
                )
            lines[name] = key.start_mark.line + 1
        self._loader.flatten_mapping(node)  # what `<<` merges comes first
        entries: dict[str, Any] = {}
        for key, value in node.value:
            entries[self._name_of(key)] = self.value_of(value)
            lines.setdefault(self._name_of(key), key.start_mark.line + 1)
        return Section(entries, self._path, lines)

    def _name_of(self, key: Any) -> str:
        if key.id != "scalar":
            raise self._refusal(key, "a key must be a name; put it in quotes")
        return str(key.value)

    def _refusal(self, node: Any, what: str) -> ValueError:
        return ValueError(f"{self._path}:{node.start_mark.line + 1}: {what}")


def _parsed_toml(text: str, path: Path) -> Section:
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.search(str(error))
        line = found[1] if found and found[1] else len(text.splitlines()) or 1
        what = _TOML_PLACE.sub("", str(error))
        raise ValueError(
            f"{path}:{line}: this is no TOML: {what}; put texts in quotes, as in KEY = 'TEXT'"
        ) from error
    return _with_lines(entries, path, text.splitlines(), 0)


def _with_lines(entries: Mapping[str, Any], path: Path, text: list[str], start: int) -> Section:
    """Return a section whose lines are found by the text of its keys, from a line on."""
    lines = {key: _line_of(key, text, start) for key in entries}
    return Section(
        {key: _lined(value, path, text, lines[key] - 1) for key, value in entries.items()},
        path,
        lines,
    )


def _lined(value: Any, path: Path, text: list[str], start: int) -> Any:
    if isinstance(value, dict):
        return _with_lines(value, path, text, start)
    if isinstance(value, list):
        return [_lined(item, path, text, start) for item in value]
    # Dates and times have types of their own, which a configuration cannot have.
    return value if isinstance(value, str | int | float) else str(value)


def _line_of(key: str, text: list[str], start: int) -> int:
    """Return the first line that gives a key; where there is none, the line to begin with."""
    name = rf"""(?:^|[\s\[{{,.])["']?{re.escape(key)}["']?\s*[=.\]]"""
    found = (
        number
        for number, line in _without_comments(text, start)
        if re.search(name, line) is not None
    )
    return next(found, start) + 1


def _without_comments(text: list[str], start: int) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text[start:], start=start):
        if not line.lstrip().startswith("#"):
            yield number, line
