"""Python files that are read, never run: their syntax trees, and values known from these."""

from __future__ import annotations

import ast
import enum
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard, final

_MAX_POWER: Final = 64
_OPERATIONS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_NUMBERS: Final = {"int": int, "float": float}


class Unknown(enum.Enum):
    """A value that only running the script would tell."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


def parse_file(path: Path) -> ast.Module:
    """Return a Python file as a syntax tree.

    Raises:
        ValueError: If it is none; says where.
    """
    text = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of escapes, which are the script's business
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise ValueError(
            f"{path}{f':{line}' if line else ''}: this is no Python that can be read: "
            f"{getattr(error, 'msg', error)}; for another program, write its command after --"
        ) from error


def imported_files(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that a script imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            for file in (
                folder.joinpath(*name.split(".")).with_suffix(".py"),
                folder.joinpath(*name.split("."), "__init__.py"),
            ):
                if file.is_file():
                    yield file


@final
class Constants:
    """Values that are known without running the script.

    Args:
        tree: The script.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[str, Any] = {}
        self._enums: dict[str, tuple[Any, ...]] = {}
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._known[name] = self.value(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._known[name] = self.value(value)
                case ast.ClassDef() if any("Enum" in last_name(base) for base in node.bases):
                    self._enums[node.name] = tuple(self._members(node))

    def _members(self, node: ast.ClassDef) -> Iterator[Any]:
        for line in node.body:
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    known = self.value(value)
                    self._known[f"{node.name}.{name}"] = known
                    yield known

    def options_of_enum(self, name: str) -> tuple[Any, ...] | None:
        """Return the values of an enumeration of the script, None if there is none."""
        return self._enums.get(name)

    def value(self, node: ast.expr | None) -> Any:  # noqa: C901, PLR0911  (a line per kind)
        """Return the value of an expression, `UNKNOWN` if only running it would tell."""
        match node:
            case None:
                return None
            case ast.Constant(value=value):
                return UNKNOWN if value is ... or isinstance(value, bytes) else value
            case ast.Name(id=name):
                return self._known.get(name, UNKNOWN)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return self._known.get(f"{owner}.{name}", UNKNOWN)
            case ast.Attribute(value=inner, attr="value"):
                return self.value(inner)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.value(operand)
                return -number if is_number(number) else UNKNOWN
            case ast.BinOp():
                return self._computed(node)
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return self._listed(elements)
            case ast.Dict(keys=keys):
                return self._listed(keys)
            case ast.Call():
                return self._called(node)
        return UNKNOWN

    def _listed(self, elements: Sequence[ast.expr | None]) -> Any:
        values = tuple(self.value(element) for element in elements)
        return UNKNOWN if UNKNOWN in values or None in elements else values

    def _computed(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, tuple) and isinstance(right, tuple):
            return left + right
        if not (is_number(left) and is_number(right)):
            return UNKNOWN
        if isinstance(node.op, ast.Pow):
            return left**right if abs(right) <= _MAX_POWER and left else UNKNOWN
        try:
            return _OPERATIONS[type(node.op)](left, right)
        except (KeyError, ArithmeticError):
            return UNKNOWN

    def _called(self, node: ast.Call) -> Any:  # noqa: PLR0911  (a line per function)
        name = last_name(node.func)
        match node.func, node.args:
            case ast.Name(id="list" | "tuple" | "sorted" | "set"), [ast.Name(id=enumeration)] if (
                enumeration in self._enums
            ):
                return self._enums[enumeration]
            case ast.Name(id="list" | "tuple" | "sorted" | "set"), [inner]:
                value = self.value(inner)
                if not isinstance(value, tuple):
                    return UNKNOWN
                return tuple(sorted(value, key=repr)) if name == "sorted" else value
            case ast.Name(id="range"), arguments:
                ends = [self.value(argument) for argument in arguments]
                is_small = all(isinstance(end, int) and abs(end) <= 10_000 for end in ends)  # noqa: PLR2004
                return tuple(range(*ends)) if ends and is_small and 0 not in ends[2:] else UNKNOWN
            case ast.Name(id="int" | "float" as kind), [inner]:
                number = self.value(inner)
                return _NUMBERS[kind](number) if is_number(number) else UNKNOWN
            case ast.Name(id="Path"), [inner]:
                return self.value(inner)
            case ast.Attribute(value=inner, attr="keys"), []:
                return self.value(inner)
            case ast.Attribute(value=ast.Name(id="os"), attr="getenv"), [_, fallback]:
                return self.value(fallback)
        return UNKNOWN


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes inside a node, in the order of the file."""
    ahead = [*ast.iter_child_nodes(node)][::-1]  # no recursion: chains of elif are deep
    while ahead:
        child = ahead.pop()
        yield child
        ahead += [*ast.iter_child_nodes(child)][::-1]


def last_name(node: ast.AST | None) -> str:
    """Return the last name of ``a.b.name``, also where it is called; empty for all else."""
    match node:
        case ast.Call(func=func):
            return last_name(func)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def dotted_name(node: ast.AST | None) -> str:
    """Return ``a.b.name`` as it is written; empty for all else."""
    match node:
        case ast.Attribute(value=value, attr=name):
            return f"{dotted_name(value)}.{name}"
        case ast.Name(id=name):
            return name
    return ""


def imports(tree: ast.Module, library: str) -> bool:
    """Return whether a file imports a library, or names of it."""
    return any(
        (isinstance(node, ast.Import) and any(one.name == library for one in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == library)
        for node in ast.walk(tree)
    )


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)
