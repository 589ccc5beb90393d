"""Lines that a script prints, found by reading it: their texts, and the fields between them."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from .python_source import dotted_name, in_order, last_name

_PRINTING: Final = frozenset({"print", "echo", "secho", "rprint", "info"})
_WRITING: Final = frozenset({"tqdm.write", "sys.stdout.write", "stdout.write", "tqdm.tqdm.write"})
_PERCENT: Final = re.compile(r"%(?:\((?P<key>\w+)\))?(?P<spec>[-+ #0]*\d*(?:\.\d+)?[a-zA-Z%])")
_OF_VALUE: Final = frozenset(
    {"item", "avg", "val", "mean", "value", "compute", "result", "numpy", "cpu", "detach", "sum"}
)


@dataclass(frozen=True, slots=True)
class Field:
    """A value in a printed line.

    Attributes:
        name: The variable, attribute or key that it comes from; empty if there is none.
        spec: How it is formatted.
    """

    name: str
    spec: str = ""

    @property
    def is_padded(self) -> bool:
        """Whether spaces may stand beside it."""
        return re.match(r"(?:.?[<>=^])?[-+ #]*[1-9]", self.spec) is not None


Piece = str | Field


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A line that a script prints.

    Attributes:
        pieces: Its texts and fields.
        line: Where it is printed.
        depth: In how many loops of its function.
    """

    pieces: tuple[Piece, ...]
    line: int
    depth: int


def printed_lines(tree: ast.Module) -> Iterator[PrintedLine]:
    """Yield the lines with fields that a script prints, in their order."""
    reader = _Reader(tree)
    for call, depth in _printing_calls(tree):
        for pieces in _split_lines(reader.printed(call)):
            if any(isinstance(piece, Field) for piece in pieces):
                yield PrintedLine(tuple(pieces), call.lineno, depth)


def _printing_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, int]]:
    """Yield calls that print, with the number of loops of their function around them."""
    ahead: list[tuple[ast.AST, int]] = [(tree, 0)]
    while ahead:
        node, depth = ahead.pop()
        if isinstance(node, ast.Call) and node.args and _is_printing(node.func):
            yield node, depth
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            depth = 0
        depth += isinstance(node, ast.For | ast.While | ast.AsyncFor)
        ahead += [(child, depth) for child in ast.iter_child_nodes(node)][::-1]


def _is_printing(function: ast.expr) -> bool:
    return last_name(function) in _PRINTING or dotted_name(function) in _WRITING


def _split_lines(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces of each line, texts side by side made one."""
    line: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Field):
            line.append(piece)
            continue
        first, *others = piece.split("\n")
        _append(line, first)
        for text in others:
            yield line
            line = []
            _append(line, text)
    yield line


def _append(line: list[Piece], text: str) -> None:
    if text and line and isinstance(line[-1], str):
        line[-1] += text
    elif text:
        line.append(text)


@final
class _Reader:
    """Makes pieces of expressions that make text."""

    def __init__(self, tree: ast.Module) -> None:
        self._assigned: dict[str, ast.expr] = {}
        for node in in_order(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if _makes_text(value):
                    self._assigned[name] = value

    def printed(self, call: ast.Call) -> list[Piece]:
        """Return what a call prints."""
        first, *others = call.args
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and others:
            values = [field_of(other) for other in others]
            if last_name(call.func) == "info":  # logging's own formatting
                return _percent(first.value, values)
        pieces: list[Piece] = []
        for index, argument in enumerate(call.args):
            pieces += ([self._separator(call)] if index else []) + self.pieces(argument)
        return pieces

    def _separator(self, call: ast.Call) -> str:
        for keyword in call.keywords:
            match keyword:
                case ast.keyword(arg="sep", value=ast.Constant(value=str(text))):
                    return text
        return " "

    def pieces(self, node: ast.expr) -> list[Piece]:  # noqa: PLR0911  (a line per kind)
        """Return the pieces of an expression."""
        match node:
            case ast.Constant(value=value):
                return [str(value)]
            case ast.JoinedStr(values=values):
                return [piece for value in values for piece in self._joined(value)]
            case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str(text)), right=right):
                return _percent(text, right)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return [*self.pieces(left), *self.pieces(right)]
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                return _formatted(text, node)
            case ast.Call(func=ast.Attribute(attr="dumps"), args=[ast.Dict() as inner, *_]):
                return _dictionary(inner, '"')
            case ast.Dict():
                return _dictionary(node, "'")
            case ast.Name(id=name) if name in self._assigned:
                # Taken out, so that a text made of itself has an end.
                assigned = self._assigned.pop(name)
                made = self.pieces(assigned)
                self._assigned[name] = assigned
                return made
        return [field_of(node)]

    def _joined(self, node: ast.expr) -> list[Piece]:
        match node:
            case ast.FormattedValue(value=value, format_spec=spec):
                field = field_of(value)
                texts = spec.values if isinstance(spec, ast.JoinedStr) else []
                written = "".join(
                    str(one.value) if isinstance(one, ast.Constant) else "9" for one in texts
                )
                if not written and _makes_text(value):
                    return self.pieces(value)
                return [Field(field.name, written)]
        return self.pieces(node)


def _makes_text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.Dict():
            return True
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str())):
            return True
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _makes_text(left) or _makes_text(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            return True
        case ast.Constant(value=str()):
            return True
    return False


def _percent(text: str, values: ast.expr | list[Field]) -> list[Piece]:
    """Return the pieces of ``text % values``."""
    named: Mapping[str, Field] = {}
    if isinstance(values, list):
        fields = values
    elif isinstance(values, ast.Tuple):
        fields = [field_of(value) for value in values.elts]
    else:
        named = _by_key(values) if isinstance(values, ast.Dict) else {}
        fields = [field_of(values)]
    pieces: list[Piece] = []
    end = number = 0
    for found in _PERCENT.finditer(text):
        pieces.append(text[end : found.start()])
        end = found.end()
        if found["spec"].endswith("%"):
            pieces.append("%")
            continue
        spec = found["spec"]
        spec = f"<{spec[1:]}" if spec.startswith("-") else spec
        field = named.get(found["key"] or "") or (
            fields[number] if number < len(fields) else Field(found["key"] or "")
        )
        pieces.append(Field(field.name, spec))
        number += 1
    return [*pieces, text[end:]]


def _by_key(node: ast.Dict) -> dict[str, Field]:
    return {
        str(key.value): field_of(value)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
    }


def _formatted(text: str, call: ast.Call) -> list[Piece]:
    """Return the pieces of ``text.format(...)``."""
    positional = [field_of(argument) for argument in call.args]
    named = {keyword.arg: field_of(keyword.value) for keyword in call.keywords if keyword.arg}
    pieces: list[Piece] = []
    number = 0
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError:
        return [text]
    for literal, name, spec, _ in parsed:
        pieces.append(literal)
        if name is None:
            continue
        key = re.split(r"[.\[]", name)[0]
        if not key:
            index, number = number, number + 1
        else:
            index = int(key) if key.isdecimal() else -1
        field = named.get(key) or (
            positional[index] if 0 <= index < len(positional) else Field(key)
        )
        inner = re.sub(r"\[|\]", ".", name).strip(".").rpartition(".")[2]
        own = inner if inner != key and inner.isidentifier() else field.name
        pieces.append(Field(own if own not in _OF_VALUE else field.name, spec or ""))
    return pieces


def _dictionary(node: ast.Dict, quote: str) -> list[Piece]:
    pieces: list[Piece] = ["{"]
    for index, key in enumerate(node.keys):
        name = str(key.value) if isinstance(key, ast.Constant) else ""
        pieces += [f"{', ' if index else ''}{quote}{name}{quote}: ", Field(name)]
    return [*pieces, "}"]


def field_of(node: ast.expr) -> Field:
    """Return the field for an expression, named by what it is about."""
    return Field(_name_of(node))


def _name_of(node: ast.AST) -> str:  # noqa: C901, PLR0911  (a line per kind)
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return _name_of(inner) if name in _OF_VALUE else name
        case ast.Subscript(value=inner, slice=key):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                return key.value
            return _name_of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=arguments):
            if name in _OF_VALUE and not (name in ("mean", "sum") and arguments):
                return _name_of(inner)
            return _name_of(arguments[0]) if arguments else ""
        case ast.Call(args=[first, *_]):
            return _name_of(first)
        case ast.BinOp(op=ast.Div(), left=left):
            return _name_of(left)
        case ast.BinOp(left=left, right=right):
            return _name_of(left) or _name_of(right)
        case ast.FormattedValue(value=value) | ast.UnaryOp(operand=value):
            return _name_of(value)
    return ""
