"""Relations between parameters: what `Space` declares as ``where``, parsed and evaluated.

A text is parsed with Python's `ast`, and only the nodes that are named here are evaluated, by
functions of this module: no name is looked up anywhere but in the space, and nothing is called but
the few functions of numbers in `_FUNCTIONS`.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, Final, final

from .parameters import walk
from .sample_from import SampleFrom
from .tree import Path

MAX_DRAWS: Final = 20_000
"""Most configurations that are drawn in search of one that satisfies a relation."""
MAX_LENGTH: Final = 10_000
_MAX_DEPTH: Final = 100
_MAX_BITS: Final = 1024
"""Longest integer that a power is computed as; a longer one is a float, maybe infinite."""
_NUM_SHOWN: Final = 10
_CONFIG: Final = "config"
"""What stands for the whole configuration, to name what is no name in Python."""
UNKNOWN: Final = object()
"""The value of what depends on a parameter that the configuration does not have."""

Read = Callable[[Path], Any]
"""Returns what a configuration has at a path, or `UNKNOWN`."""
_Evaluate = Callable[[Read], Any]
_Where = str | Callable[[Any], Any]


@final
class Relation:
    """A relation that the configurations of a space satisfy.

    Args:
        where: Its text, or a function of a configuration.
        space: The space.

    Attributes:
        text: Its text; None for a function.
        names: The paths in a configuration that it reads; None for a function, which may read any.

    Raises:
        TypeError: If it is neither.
        ValueError: If the text is not well-formed, or names something that is not in the space.

    Example:
        >>> from searchers.space import choice, uniform
        >>> space = {"low": uniform(0, 1), "model": {"kind": choice(["a", "b"])}}
        >>> relation = Relation("low < 0.5 or model.kind == 'a'", space)
        >>> relation.holds({"low": 0.7, "model": {"kind": "b"}})
        False
        >>> relation.holds({"low": 0.7})
        True
    """

    def __init__(self, where: _Where, space: Mapping[str, Any]) -> None:
        self._where = where
        self.text = where if isinstance(where, str) else None
        self.names: tuple[Path, ...] | None = None
        if isinstance(where, str):
            parser = _Parser(where, space)
            self._evaluate = parser.parsed()
            self.names = tuple(parser.found)
        elif callable(where):
            self._evaluate = _called(where)
        else:
            raise TypeError(
                f"where must be a text or a function of the configuration, got {where!r}; write "
                'where="low < high"'
            )

    def __str__(self) -> str:
        return f"where={_shown(self._where)}"

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Return whether a configuration satisfies it; what it lacks is unknown.

        Raises:
            ValueError: If the relation is not true or false, or computes with what is no number.
            Exception: What the user's function raises.
        """
        return self.decide(lambda path: at(config, path))

    def decide(self, read: Read) -> bool:
        """Return whether a configuration satisfies it that is read by a function; see `holds`.

        Args:
            read: Returns what the configuration has at a path; `UNKNOWN` for nothing.
        """
        try:
            truth = _truth(self._evaluate(read))
        except _NoNumber as cause:
            raise ValueError(
                f"{self} computes with {cause.args[0]!r}, which is no number; compare it with == "
                "or in"
            ) from None
        except _NoTruth as cause:
            raise ValueError(
                f"{self} must be true or false, got {cause.args[0]!r}; compare it, for example "
                "with > 0"
            ) from None
        except TypeError as cause:
            if not isinstance(self._where, str):
                raise
            raise ValueError(
                f"{self} cannot be decided: {cause}; compare numbers with numbers, and texts with "
                "texts"
            ) from None
        return truth is not False

    def refusal(self, config: Mapping[str, Any], what: str = "") -> ValueError:
        """Return the error for a given configuration that violates it.

        Args:
            config: The configuration.
            what: What it is, for the message; empty for nothing special.
        """
        values = {
            spelling(path): value
            for path in self.names or ()
            if (value := at(config, path)) is not UNKNOWN
        }
        return ValueError(
            f"{what or 'the only configuration'} must satisfy {self}, got {values or config!r}; "
            "change it, or relax the relation"
        )

    def unsatisfied(self, num_draws: int, what: str = "") -> ValueError:
        """Return the error for a relation that no drawn configuration satisfies.

        Args:
            num_draws: How many were drawn.
            what: What was completed by the draws, for the message; empty for nothing.
        """
        drawn = f"completion of {what}" if what else "configuration"
        return ValueError(
            f"no {drawn} satisfies {self} after {num_draws:,} draws; relax it, or narrow the space "
            "to where it holds"
        )


def _shown(where: _Where) -> str:
    return repr(where) if isinstance(where, str) else str(getattr(where, "__qualname__", where))


def _called(function: Callable[[Any], Any]) -> _Evaluate:
    def evaluate(read: Read) -> Any:
        from .computed_values import ConfigView, NotYetKnown  # noqa: PLC0415  (functions only)

        config = read(())
        try:
            return function(ConfigView(config))
        except NotYetKnown:
            raise ValueError(
                f"where={_shown(function)} must read values that are drawn, got one of "
                "sample_from, which is computed later; read what that is computed from"
            ) from None
        except Exception as error:
            error.add_note(f"raised by where={_shown(function)} of {dict(config)!r}")
            raise

    return evaluate


class _NoNumber(Exception):
    """Something is computed with a value that is no number."""


class _NoTruth(Exception):
    """A condition is neither true nor false."""


# Three-valued logic, after Kleene: what holds for any value of an unknown is known.


def _truth(value: Any) -> Any:
    """Return True, False or `UNKNOWN`."""
    if value is UNKNOWN or value is True or value is False:
        return value
    if type(value).__name__ in {"bool", "bool_"}:  # NumPy's
        return bool(value)
    raise _NoTruth(value)


def _all(parts: Sequence[_Evaluate]) -> _Evaluate:
    def evaluate(read: Read) -> Any:
        result: Any = True
        for part in parts:
            truth = _truth(part(read))
            if truth is False:
                return False
            result = UNKNOWN if truth is UNKNOWN else result
        return result

    return evaluate


def _negated(part: _Evaluate) -> _Evaluate:
    def evaluate(read: Read) -> Any:
        truth = _truth(part(read))
        return UNKNOWN if truth is UNKNOWN else not truth

    return evaluate


def _any(parts: Sequence[_Evaluate]) -> _Evaluate:
    return _negated(_all([_negated(part) for part in parts]))


def _applied(function: Callable[..., Any], parts: Sequence[_Evaluate]) -> _Evaluate:
    def evaluate(read: Read) -> Any:
        values = [part(read) for part in parts]
        return UNKNOWN if any(value is UNKNOWN for value in values) else function(*values)

    return evaluate


def _numeric(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of numbers that is NaN where it has no value, or too great a one."""

    def computed(*values: Any) -> Any:
        for value in values:
            if not isinstance(value, Real):
                raise _NoNumber(value)
        try:
            return function(*values)
        except (ArithmeticError, ValueError):
            return math.nan

    return computed


def _power(base: Any, exponent: Any) -> Any:
    is_whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0
    if is_whole and base.bit_length() * exponent <= _MAX_BITS:
        return base**exponent
    if base < 0 and exponent != int(exponent):
        return math.nan  # Python's is complex
    try:
        return float(base) ** float(exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf


def _product(left: Any, right: Any) -> Any:
    # Products of products would be as long as all factors together.
    is_long = (
        isinstance(left, int)
        and isinstance(right, int)
        and left.bit_length() + right.bit_length() > _MAX_BITS
    )
    return float(left) * float(right) if is_long else left * right


_ARITHMETIC: Final[Mapping[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARISONS: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, options: any(value == option for option in options),
    ast.NotIn: lambda value, options: all(value != option for option in options),
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "sqrt": math.sqrt,
}
_SEVERAL: Final = frozenset({"max", "min"})
_ACCEPTED: Final = (
    "a relation has names of the space, numbers, texts, comparisons, and, or, not, in, arithmetic "
    f"and {', '.join(_FUNCTIONS)}; give a function for anything else"
)


@final
class _Parser:
    """Turns the text of a relation into a function of a configuration.

    Args:
        text: The text.
        space: The space whose names it may use.

    Attributes:
        found: The paths that it names.
    """

    def __init__(self, text: str, space: Mapping[str, Any]) -> None:
        self._text = text
        self._space = space
        self._leaves: dict[Path, bool] = {}
        for leaf in walk(space):
            is_computed = isinstance(leaf.node, SampleFrom)
            self._leaves[leaf.path] = self._leaves.get(leaf.path, False) or is_computed
        self.found: dict[Path, None] = {}

    def parsed(self) -> _Evaluate:
        """Return the function.

        Raises:
            ValueError: If the text is not well-formed, or not accepted.
        """
        if len(self._text) > MAX_LENGTH:
            raise ValueError(
                f"where must have {MAX_LENGTH:,} characters at most, got {len(self._text):,}; give "
                "a function"
            )
        try:
            tree = ast.parse(self._text.strip(), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            column = getattr(error, "offset", None)
            at = f" at column {column}" if column else ""
            raise ValueError(
                f"where must be an expression, got {self._text!r:.200} ({error.args[0]}{at}); "
                "write it as in Python, such as 'low < high'"
            ) from None
        return self._evaluating(tree.body, 0)

    def _evaluating(self, node: ast.expr, depth: int) -> _Evaluate:
        if depth > _MAX_DEPTH:
            raise self._refusal("so many parts inside each other", "give a function")
        combined = self._combined(node, depth)
        if combined is not None:
            return combined
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return lambda _: value
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._value_at(self._path(node))
            case ast.Call():
                return self._call(node, depth)
        raise self._refusal(repr(self._source(node)), _ACCEPTED)

    def _combined(self, node: ast.expr, depth: int) -> _Evaluate | None:
        """Return the function of an operation on others, None if it is none."""
        match node:
            case ast.BoolOp(op, parts):
                combined = _all if isinstance(op, ast.And) else _any
                return combined([self._evaluating(part, depth + 1) for part in parts])
            case ast.UnaryOp(ast.Not(), operand):
                return _negated(self._evaluating(operand, depth + 1))
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) if type(op) in _ARITHMETIC:
                operands = [
                    each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)
                ]
                return self._computed(_ARITHMETIC[type(op)], operands, depth)
            case ast.List(elts=options) | ast.Tuple(elts=options) | ast.Set(elts=options):
                listed = [self._evaluating(option, depth + 1) for option in options]
                return _applied(lambda *values: values, listed)
        return None

    def _comparison(self, node: ast.Compare, depth: int) -> _Evaluate:
        for op, right in zip(node.ops, node.comparators, strict=True):
            is_listed = isinstance(right, ast.List | ast.Tuple | ast.Set)
            if type(op) not in _COMPARISONS:
                raise self._refusal(repr(self._source(node)), "write == or != instead of is")
            if isinstance(op, ast.In | ast.NotIn) and not is_listed:
                raise self._refusal(
                    repr(self._source(node)), 'write in with a list, such as kind in ["a", "b"]'
                )
        operands = [self._evaluating(each, depth + 1) for each in (node.left, *node.comparators)]
        parts = [
            _applied(_COMPARISONS[type(op)], pair)
            for op, pair in zip(node.ops, pairwise(operands), strict=True)
        ]
        return parts[0] if len(parts) == 1 else _all(parts)

    def _computed(
        self, function: Callable[..., Any], operands: Sequence[ast.expr], depth: int
    ) -> _Evaluate:
        parts = [self._evaluating(operand, depth + 1) for operand in operands]
        return _applied(_numeric(function), parts)

    def _call(self, node: ast.Call, depth: int) -> _Evaluate:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS or node.keywords:
            raise self._refusal(repr(self._source(node)), _ACCEPTED)
        num = len(node.args)
        if not (num > 1 if name in _SEVERAL else num == 1):
            wanted = "two numbers at least" if name in _SEVERAL else "one number"
            raise self._refusal(repr(self._source(node)), f"give {name} {wanted}")
        return self._computed(_FUNCTIONS[name], node.args, depth)

    def _value_at(self, path: Path) -> _Evaluate:
        if path not in self._leaves:
            raise self._unknown(path)
        if self._leaves[path]:
            raise self._refusal(
                f"{spelling(path)}, which sample_from computes", "name what it is computed from"
            )
        self.found[path] = None
        return lambda read: read(path)

    def _path(self, node: ast.expr) -> Path:
        path = path_of(node, has_config=_CONFIG in self._space)
        if path is None:
            raise self._refusal(repr(self._source(node)), _ACCEPTED)
        return path

    def _unknown(self, path: Path) -> ValueError:
        known = [
            leaf for leaf in self._leaves if len(leaf) > len(path) and leaf[: len(path)] == path
        ]
        if known:
            return self._refusal(
                f"{spelling(path)!r}, which holds others", f"name one of {_listed(known)}"
            )
        names = {spelling(leaf): leaf for leaf in self._leaves}
        close = difflib.get_close_matches(spelling(path), names, n=1) or [
            name for name, leaf in names.items() if leaf[-1:] == path[-1:]
        ]
        remedy = f"did you mean {close[0]!r}? " if close else ""
        return self._refusal(
            f"the unknown name {spelling(path)!r}",
            f"{remedy}There are {_listed(self._leaves)}"
            if close
            else f"there are {_listed(names)}",
        )

    def _source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._text.strip(), node) or type(node).__name__

    def _refusal(self, what: str, remedy: str) -> ValueError:
        return ValueError(f"where={self._text!r:.200} must not have {what}; {remedy}")


def path_of(node: ast.expr, *, has_config: bool) -> Path | None:
    """Return the path that a name, an attribute or an item of a relation stands for.

    Args:
        node: The part of the relation.
        has_config: Whether the space has an entry that is called ``config``.

    Returns:
        None if it stands for nothing.
    """
    steps: list[str | int] = []
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=node, attr=name):
                steps.append(name)
            case ast.Subscript(value=node, slice=ast.Constant(value=str() | int() as step)):
                steps.append(step)
            case _:
                return None
    if node.id != _CONFIG or has_config:
        steps.append(node.id)
    return tuple(reversed(steps))


def spelling(path: Path) -> str:
    """Return the name of a parameter as a relation has it.

    Example:
        >>> spelling(("model", "layers", 0, "units")), spelling(("weight-decay",))
        ('model.layers[0].units', "config['weight-decay']")
    """
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and not _is_keyword(step):
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]" if text else f"{_CONFIG}[{step!r}]"
    return text


def _is_keyword(name: str) -> bool:
    import keyword  # noqa: PLC0415  (messages only)

    return keyword.iskeyword(name)


def _listed(paths: Iterator[Path] | Any) -> str:
    shown = [path if isinstance(path, str) else spelling(path) for path in paths]
    more = f" and {len(shown) - _NUM_SHOWN} more" if len(shown) > _NUM_SHOWN else ""
    return (", ".join(shown[:_NUM_SHOWN]) or "none") + more


def at(config: Any, path: Path) -> Any:
    """Return what a configuration has at a path, `UNKNOWN` where it has nothing there."""
    for step in path:
        try:
            config = config[step]
        except (LookupError, TypeError):
            return UNKNOWN
    return UNKNOWN if isinstance(config, SampleFrom) else config
