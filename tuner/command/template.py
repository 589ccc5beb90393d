"""A command with placeholders: checked against a search space, filled in for a configuration."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from searchers.space import flat_name, leaves
from tuner.storage.readable_json import plain
from tuner.utils import flatten_dict

_PLACEHOLDER: Final = re.compile(
    r"\{\{|\}\}"  # a brace
    r"|(?<!\$)\{(?P<name>[^\W\d][\w./-]*)\}"  # not ${name}, a variable of the shell
)
_SHELL: Final = re.compile(rf"{_PLACEHOLDER.pattern}|\\[\\\"'`$#()]|(?<![^\s;&|(])#|\$\(|[\"'`()]")
"""Placeholders in a line for a shell, and what decides whether they are in quotes."""
_PLAIN_QUOTED: Final = re.compile(r"[\w@%+=:,./ -]*", re.ASCII)
"""What means the same in quotes of both kinds."""
LISTS: Final = ("args", "hydra")
"""Placeholders for all parameters that no other one names, as several words."""
PATHS: Final = ("json", "trial_dir", "checkpoint_dir", "resume_dir")
FACTS: Final = (*PATHS, "trial_id", "seed")
"""Placeholders for what the trial knows beside its parameters."""
_PLAIN_HYDRA: Final = re.compile(r"[\w./:+@%-][\w./:+@% -]*(?<! )")
"""Strings that Hydra's grammar takes without quotes; others are quoted."""
_HYDRA_WORDS: Final = frozenset({"true", "false", "null", "nan", "inf"})


@final
@dataclass(frozen=True, slots=True)
class Template:
    """The words of a command, or one line for a shell, with placeholders.

    ``{lr}`` is the value of a parameter; that of a nested one is ``{model.width}``. ``{args}``
    stands for all parameters that no placeholder names, as ``--lr 0.01 --model.width 64``, and
    ``{hydra}`` likewise for ``lr=0.01 model.width=64``. ``{json}`` is the path of a file with the
    whole configuration. Where there is no parameter of this name, ``{trial_id}``, ``{trial_dir}``,
    ``{seed}``, ``{checkpoint_dir}`` and ``{resume_dir}`` are what the trial knows. ``{{`` and
    ``}}`` are braces; braces around anything that is no name stay as they are, and so does
    ``${name}``.

    A word whose placeholder has no value is left out, and so is an option directly before it:
    ``--resume {resume_dir}`` at the beginning of a trial, or ``--momentum {momentum}`` where the
    space has a momentum under a condition only.

    Attributes:
        words: The words; a single one for a shell.
        is_line: Whether this is a line for a shell, in which values are quoted, be it in quotes of
            the line or not.
    """

    words: Sequence[str]
    is_line: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The names of all placeholders."""
        return frozenset(
            found["name"]
            for word in self.words
            for found in _PLACEHOLDER.finditer(word)
            if found["name"]
        )

    @property
    def takes_all(self) -> bool:
        """Whether a placeholder stands for all parameters."""
        return bool(self.names & {*LISTS, "json"})

    def check(self, space: Mapping[str, Any], *, allow_unused: bool = False) -> None:
        """Check the placeholders against the parameters of a search space.

        Args:
            space: The search space, possibly nested.
            allow_unused: Whether the program may get parameters otherwise.

        Raises:
            ValueError: If a placeholder names no parameter, a parameter is used nowhere, or
                ``{args}`` or ``{hydra}`` is only a part of a word.
        """
        declared = [flat_name(path) for path, _ in leaves(space)]
        known = {spelling: name for name in declared for spelling in _spellings(name)}
        inner = {above for name in declared for above in _above(name)}
        given = ", ".join(map(repr, sorted({_dotted(name) for name in declared}))) or "none"
        for name in sorted(self.names):
            if name in known or name.replace(".", "/") in inner or name in (*LISTS, *FACTS):
                continue
            close = difflib.get_close_matches(name, [*known, *LISTS, *FACTS], n=1, cutoff=0.5)
            hint = f"did you mean {{{close[0]}}}?" if close else f"write {{{{{name}}}}} for braces"
            raise ValueError(
                f"the placeholder {{{name}}} names no parameter of the space, which has {given}; "
                f"{hint}"
            )
        for word in () if self.is_line else self.words:
            for found in _PLACEHOLDER.finditer(word):
                if found["name"] in LISTS and found["name"] not in known and found[0] != word:
                    raise ValueError(
                        f"{found[0]} must be a word of its own, since it becomes several, got "
                        f"{word!r}; put spaces around it"
                    )
        if not allow_unused:
            self.check_used(declared)

    def check_used(self, declared: Sequence[str]) -> None:
        """Check that each parameter is used.

        Args:
            declared: The names of the parameters.

        Raises:
            ValueError: If one is used nowhere.
        """
        unused = self._unnamed(declared)
        if unused and not self.takes_all:
            name = _dotted(unused[0])
            others = sorted(self.names - {_dotted(one) for one in declared} - {*LISTS, *FACTS})
            raise ValueError(
                f"the parameter {name!r} is used nowhere in the command"
                f"{f', which names {others}' if others else ''}; write {{{name}}} or {{args}} in "
                "it, or, if the program reads the file that TUNER_CONFIG names or its variables "
                "TUNER_PARAM_..., say so with allow_unused (--allow-unused) or variables "
                "(--variables)"
            )

    def _unnamed(self, parameters: Iterable[str]) -> list[str]:
        """Return the parameters that no placeholder names, nor a dictionary that they lie in."""
        named = {name.replace(".", "/") for name in self.names}
        return [
            name
            for name in parameters
            if not ({name, name.replace(".", "/"), *_above(name)} & named)
        ]

    def filled(self, config: Mapping[str, Any], facts: Mapping[str, str | None]) -> list[str]:
        """Return the words for a configuration; a single one for a shell.

        Args:
            config: The configuration.
            facts: Values of `FACTS`; None for what is not there, such as a checkpoint to resume
                from.
        """
        values = flatten_dict(config)
        rest = {name: values[name] for name in self._unnamed(values)}
        look_up = _Lookup(config, values, rest, facts)
        if self.is_line:
            return [_replaced_in_shell(self.words[0], look_up.several_or_text)]
        words: list[str] = []
        for before, word in zip(["", *self.words], self.words, strict=False):
            found = _PLACEHOLDER.fullmatch(word)
            if found and found["name"] in LISTS and not look_up.has_parameter(found["name"]):
                words += look_up.several(found["name"])
            elif any(
                found["name"] and look_up.value(found["name"]) is None
                for found in _PLACEHOLDER.finditer(word)
            ):
                # Without what it is the value of: `--resume {resume_dir}`.
                if found and _is_option(before):
                    words.pop()
            else:
                words.append(_replaced(word, look_up.text))
        return words


@dataclass(frozen=True, slots=True)
class _Lookup:
    config: Mapping[str, Any]
    values: Mapping[str, Any]
    rest: Mapping[str, Any]
    facts: Mapping[str, str | None]

    def has_parameter(self, name: str) -> bool:
        return self._parameter(name) is not None

    def _parameter(self, name: str) -> Any:
        if name in self.config:
            return self.config[name]
        found: Any = self.config
        for part in re.split(r"[./]", name):
            if not isinstance(found, Mapping) or part not in found:
                return self.values.get(name)
            found = found[part]
        return found

    def value(self, name: str) -> Any:
        """Return what a placeholder stands for; None where that is not there."""
        parameter = self._parameter(name)
        if parameter is not None:
            return parameter
        return self.several(name) if name in LISTS else self.facts.get(name)

    def text(self, name: str) -> str:
        return as_text(self.value(name))

    def several_or_text(self, name: str) -> list[str] | str | None:
        """Return what a placeholder stands for in a line for a shell, not quoted."""
        value = self.value(name)
        if value is None or (name in LISTS and not self.has_parameter(name)):
            several: list[str] | None = value
            return several
        return as_text(value)

    def several(self, name: str) -> list[str]:
        if name == "hydra":
            return [f"{_dotted(key)}={hydra_text(value)}" for key, value in self.rest.items()]
        return [
            word
            for key, value in self.rest.items()
            if value is not None
            for word in _option(_dotted(key), as_text(value))
        ]


def _option(name: str, text: str) -> list[str]:
    # Or it would be taken for another option.
    if text.startswith("-") and not _is_number(text):
        return [f"--{name}={text}"]
    return [f"--{name}", text]


def as_text(value: Any) -> str:
    """Return a value as a word of a command: numbers and strings plainly, all else as JSON.

    Example:
        >>> as_text(1e-05), as_text(True), as_text("adam"), as_text([1, 2])
        ('1e-05', 'True', 'adam', '[1, 2]')
    """
    value = plain(value, is_strict=False)
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def hydra_text(value: Any) -> str:
    """Return a value as an override of Hydra takes it.

    Example:
        >>> hydra_text("a, b"), hydra_text(None), hydra_text({"b": [1, "x"]})
        ("'a, b'", 'null', '{b:[1,x]}')
    """
    value = plain(value, is_strict=False)
    match value:
        case str():
            return _hydra_string(value)
        case dict():
            inner = (f"{hydra_text(key)}:{hydra_text(one)}" for key, one in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join(map(hydra_text, value))}]"
        case None | bool():
            return json.dumps(value)
    return str(value)


def _hydra_string(text: str) -> str:
    is_plain = _PLAIN_HYDRA.fullmatch(text) and text.lower() not in _HYDRA_WORDS
    if is_plain and not _is_number(text):
        return text
    # A backslash counts double only before a quote.
    doubled = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + found[2], text)
    return "'" + doubled.replace("'", r"\'") + "'"


def variable_names(names: Iterable[str]) -> dict[str, str]:
    """Return the variable of the environment for each parameter: ``TUNER_PARAM_MODEL_WIDTH``.

    Raises:
        ValueError: If two parameters would have the same one.
    """
    variables: dict[str, str] = {}
    for name in names:
        variable = "TUNER_PARAM_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        if variable in variables:
            raise ValueError(
                f"the parameters {_dotted(variables[variable])!r} and {_dotted(name)!r} would both "
                f"be the variable {variable}; rename one of them"
            )
        variables[variable] = name
    return {name: variable for variable, name in variables.items()}


def _spellings(name: str) -> tuple[str, str]:
    return name, _dotted(name)


def _above(name: str) -> Iterator[str]:
    """Yield the names of the dictionaries that a nested parameter lies in."""
    parts = re.split(r"[./]", name)
    for end in range(1, len(parts)):
        yield "/".join(parts[:end])


def _dotted(name: str) -> str:
    return name.replace("/", ".")


def _is_option(word: str) -> bool:
    return word.startswith("-") and "=" not in word and not Template([word]).names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _replaced(word: str, text: Callable[[str], str]) -> str:
    def replacement(found: re.Match[str]) -> str:
        return text(found["name"]) if found["name"] else found[0][0]

    return _PLACEHOLDER.sub(replacement, word)


def _replaced_in_shell(line: str, look_up: Callable[[str], list[str] | str | None]) -> str:
    """Return a line in which each value is one word, or a part of one, whatever is in it."""
    parts: list[str] = []
    inside = [""]  # quotes and brackets, the innermost last
    end = 0
    while found := _SHELL.search(line, end):
        parts.append(line[end : found.start()])
        mark, around = found[0], inside[-1]
        end = found.end()
        if name := found["name"]:
            mark = _quoted(look_up(name), around)
        elif mark in ("{{", "}}"):
            mark = mark[0]
        elif around == "'":
            if mark == "'":
                inside.pop()
            mark = mark[0]
            end = found.start() + 1
        elif mark == "#" and around != '"':  # a comment, in which quotes are apostrophes
            end = line.find("\n", end) % (len(line) + 1)
            mark = line[found.start() : end]
        elif mark == around or (mark == ")" and around == "("):
            inside.pop()
        elif mark == "$(" or (mark == "(" and around != '"'):
            inside.append("(")
        elif mark in ('"', "`") or (mark == "'" and around != '"'):
            inside.append(mark)
        parts.append(mark)
    return "".join([*parts, line[end:]])


def _quoted(value: list[str] | str | None, around: str) -> str:
    """Return a value for a line for a shell, in which these quotes are around it."""
    if value is None:
        return ""
    if around not in ("'", '"'):
        return shlex.quote(value) if isinstance(value, str) else shlex.join(value)
    text = value if isinstance(value, str) else shlex.join(value)
    # Closed before what means something in them, and opened again.
    return text if _PLAIN_QUOTED.fullmatch(text) else f"{around}{shlex.quote(text)}{around}"
