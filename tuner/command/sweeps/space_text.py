"""Search spaces as text: ``lr=loguniform(1e-5, 1e-1)`` in, names and domains out.

Nothing is evaluated: a text is a call of a search-space function with literals, or a constant.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import searchers.space as spaces
from searchers.space import Path, flat_name

_USAGE: Final = {
    "uniform": "uniform(LOWER, UPPER)",
    "quniform": "quniform(LOWER, UPPER, STEP)",
    "loguniform": "loguniform(LOWER, UPPER)",
    "qloguniform": "qloguniform(LOWER, UPPER, STEP)",
    "randint": "randint(LOWER, UPPER), which leaves UPPER out",
    "qrandint": "qrandint(LOWER, UPPER, STEP)",
    "lograndint": "lograndint(LOWER, UPPER), which leaves UPPER out",
    "qlograndint": "qlograndint(LOWER, UPPER, STEP)",
    "randn": "randn(MEAN, SD)",
    "qrandn": "qrandn(MEAN, SD, STEP)",
    "choice": "choice(VALUE, ...)",
    "grid_search": "grid_search(VALUE, ...)",
}
_LISTING: Final = ("choice", "grid_search")
"""Functions of a list, whose values may be given one by one."""
_ALIASES: Final = {"grid": "grid_search"}
_MEANT: Final = {
    "categorical": "choice",
    "int": "randint",
    "integer": "randint",
    "lognormal": "loguniform",
    "normal": "randn",
    "one_of": "choice",
    "float": "uniform",
    "range": "randint",
    "values": "choice",
}
"""What other tools call these functions."""
_WORDS: Final = {"true": True, "false": False, "null": None, "none": None}
"""Constants that are written otherwise in YAML and JSON than in Python."""
_CALL: Final = re.compile(r"(?:tune\.)?([A-Za-z_]\w*)\s*\((.*)\)", re.DOTALL)
_UNCLOSED: Final = re.compile(r"(?:tune\.)?([A-Za-z_]\w*)\s*\([^)]*")
_KEYWORD: Final = re.compile(r"([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)
_STEP: Final = re.compile(r"[^\s./{}=:,'\"]+")
_NUMBERS: Final = re.compile(r"[-+\d.eE]+(\s*,\s*[-+\d.eE]+)+")
"""Values as Hydra takes them in a sweep."""
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\""


def assignment(text: str) -> tuple[Path, Any]:
    """Return the path and the value of ``NAME=VALUE``.

    Args:
        text: The name, nested ones with dots or slashes, and the value as in `value_of`.

    Raises:
        ValueError: If it has another form, or its value is no domain.

    Example:
        >>> assignment("model.width=choice(64, 128)")[0], assignment("epochs=3")
        (('model', 'width'), (('epochs',), 3))
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(
            f"a parameter must be NAME=DOMAIN, got {text!r}; write for example "
            f"{text.strip() or 'lr'}=uniform(0, 1)"
        )
    path = path_of(name.strip())
    if not value.strip():
        raise ValueError(f"{name.strip()} has no value; write '' for an empty text")
    try:
        return path, value_of(value)
    except ValueError as error:
        raise ValueError(f"{name.strip()}: {error}") from error


def path_of(name: str) -> Path:
    """Return the steps of a nested name, which are separated by dots or slashes.

    Raises:
        ValueError: If a step is empty, or has characters that placeholders cannot have.

    Example:
        >>> path_of("model.width"), path_of("model/width")
        (('model', 'width'), ('model', 'width'))
    """
    steps = tuple(re.split(r"[./]", name))
    if not all(_STEP.fullmatch(step) for step in steps):
        raise ValueError(
            f"a parameter's name must have no spaces, quotes, braces or signs such as = , and :, "
            f"got {name!r}; nested names are written model.width"
        )
    return steps


def space_of(values: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    """Return the nested space of paths and values.

    Raises:
        ValueError: If a name is given twice, or is both a value and the beginning of others.

    Example:
        >>> space_of([(("model", "width"), 64), (("lr",), 0.1)])
        {'model': {'width': 64}, 'lr': 0.1}
    """
    given: dict[Path, Any] = {}
    for path, value in values:
        for other in given:
            depth = min(len(path), len(other))
            if path[:depth] == other[:depth]:
                raise ValueError(_twice(path, other))
        given[path] = value
    return _nested(given)


def _nested(given: Mapping[Path, Any]) -> dict[str, Any]:
    space: dict[str, Any] = {}
    for path, value in given.items():
        inner = space
        for step in path[:-1]:
            inner = inner.setdefault(str(step), {})
        inner[str(path[-1])] = value
    return space


def _twice(path: Path, other: Path) -> str:
    if path == other:
        return f"{dotted(path)} is given twice; give it once"
    short, long = sorted((path, other), key=len)
    return f"{dotted(short)} is a value, and the beginning of {dotted(long)}; rename one of them"


def dotted(path: Path) -> str:
    """Return a path as it is written in a command line.

    Example:
        >>> dotted(("model", "width"))
        'model.width'
    """
    return flat_name(path).replace("/", ".")


def value_of(text: str) -> Any:
    """Return the domain or the constant that a text stands for.

    A domain is a call of a search-space function: ``loguniform(1e-5, 1e-1)``, ``choice(64, 128)``
    or ``choice([64, 128])``, with ``grid`` for ``grid_search``. Anything else is a constant: a
    number, a list, ``true``, ``null``, a text in quotes, or any other text as it is.

    Raises:
        ValueError: If it calls another function, or one with other arguments.

    Example:
        >>> value_of("choice(adam, 'sgd', 3)").categories
        ('adam', 'sgd', 3)
        >>> value_of("1e-3"), value_of("true"), value_of("resnet-18"), value_of("[1, a]")
        (0.001, True, 'resnet-18', [1, 'a'])
    """
    text = text.strip()
    if call := _CALL.fullmatch(text):
        return _called(call[1], call[2], text)
    if (begun := _UNCLOSED.fullmatch(text)) and _name_of(begun[1]) in _USAGE:
        raise ValueError(f"{text!r} has no closing bracket; write {_usage(_name_of(begun[1]))}")
    if text.startswith("[") and text.endswith("]"):
        return [value_of(item) for item in _items(text[1:-1], text)]
    if _NUMBERS.fullmatch(text):
        raise ValueError(
            f"{text!r} is several values; write choice({text}), which draws one of them, "
            f"grid_search({text}), which tries all, or the text in quotes"
        )
    return _constant(text)


def written(value: Any) -> Any:
    """Return a constant as it is written in a sweep file, so that `value_of` returns it again.

    Example:
        >>> written("adam"), written("null"), written("f(x)"), written([1, "a"]), written(0.1)
        ('adam', "'null'", "'f(x)'", "[1, 'a']", 0.1)
    """
    if isinstance(value, list | tuple | dict):
        return repr(value)
    if not isinstance(value, str):
        return value
    try:
        is_itself = value_of(value) == value
    except ValueError:
        is_itself = False
    return value if is_itself and value else repr(value)


def _constant(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if _is_plain(value) else text


def _is_plain(value: Any) -> bool:
    """Return whether a value is one that a file with a configuration can hold."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | None)


def _name_of(name: str) -> str:
    return _ALIASES.get(name, name)


def _called(name: str, inside: str, text: str) -> Any:
    word = _name_of(name)
    if word not in _USAGE:
        raise ValueError(f"{text!r} is no domain; {_meant(name, text)}")
    given: list[Any] = []
    named: dict[str, Any] = {}
    for item in _items(inside, text):
        if keyword := _KEYWORD.fullmatch(item):
            named[keyword[1]] = value_of(keyword[2])
        elif named:
            raise ValueError(f"{text!r} has {item!r} behind {[*named][-1]}=; put it first")
        else:
            given.append(value_of(item))
    function: Callable[..., Any] = getattr(spaces, word)
    if word in _LISTING:
        given = given if len(given) == 1 and isinstance(given[0], list) else [given]
    elif odd := [one for one in given if isinstance(one, bool) or not isinstance(one, int | float)]:
        raise ValueError(f"{text!r} must have numbers, got {odd[0]!r}; write {_usage(word)}")
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError as error:
        raise ValueError(f"{text!r} cannot be used: {error}; write {_usage(word)}") from error
    try:
        return function(*given, **named)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} cannot be used: {error}") from error


def _meant(name: str, text: str) -> str:
    known = [*_USAGE, *_ALIASES]
    meant = _MEANT.get(name.lower()) or next(
        iter(difflib.get_close_matches(name.lower(), known, n=1)), None
    )
    if meant:
        return f"did you mean {_usage(_name_of(meant))}?"
    if name == "sample_from":
        return "sample_from needs Python, see tune.sample_from; write a script with tune.Tuner"
    return (
        f"there are {', '.join(sorted(_USAGE))}; put a text in quotes that looks like a call: "
        f'"{text}"'
    )


def _usage(word: str) -> str:
    return _USAGE[word]


def _items(inside: str, text: str) -> Iterator[str]:
    """Yield what is between the commas that are neither in brackets nor in quotes."""
    if not inside.strip():
        return
    begin = depth = 0
    quote = before = ""
    for place, sign in enumerate(inside):
        if quote and before == "\\":
            sign = ""  # noqa: PLW2901  (escaped, and no sign by itself)
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES and (not before.strip() or before in f"{_OPENING},=:"):
            quote = sign  # elsewhere it is an apostrophe
        elif sign in _OPENING or sign in _CLOSING:
            depth += 1 if sign in _OPENING else -1
        elif sign == "," and depth == 0:
            yield _item(inside[begin:place], text)
            begin = place + 1
        before = sign
    if depth or quote:
        missing = "quote" if quote else "bracket"
        raise ValueError(f"{text!r} has a {missing} without its counterpart; close it")
    if inside[begin:].strip():  # a comma may end the list
        yield _item(inside[begin:], text)


def _item(item: str, text: str) -> str:
    if not item.strip():
        raise ValueError(f"{text!r} has nothing between two commas; write '' for an empty text")
    return item.strip()
