"""The linear inequalities of a relation, for libraries that take only these."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .conditions import is_word
from .relations import at, path_of
from .tree import Path


@dataclass(frozen=True, slots=True)
class LinearPart:
    """An inequality: the sum of parameters times factors is at most a number.

    Attributes:
        factors: The factor of each parameter, by its path; none of them is 0.
        most: The number.
    """

    factors: Mapping[Path, float]
    most: float


def linear_parts(where: str, space: Mapping[str, Any]) -> Iterator[LinearPart]:
    """Yield linear inequalities that each configuration with the relation satisfies.

    These are the conditions of its text that are linear, and joined by ``and``. What is yielded
    says less than the relation: other conditions are left out, and ``<`` becomes ``<=``.

    Args:
        where: The text of a relation.
        space: The space, without conditions.

    Example:
        >>> from searchers.space import uniform
        >>> space = {"low": uniform(0, 1), "high": uniform(0, 1), "gap": 0.125}
        >>> list(linear_parts("2 * low + gap < high and low * high < 0.5", space))
        [LinearPart(factors={('low',): 2.0, ('high',): -1.0}, most=-0.125)]
    """
    for test in _conjuncts(ast.parse(where.strip(), mode="eval").body):
        sides = [_sum_of(side, space) for side in (test.left, *test.comparators)]
        for op, (left, right) in zip(test.ops, pairwise(sides), strict=True):
            if left is None or right is None:
                continue
            match op:
                case ast.Lt() | ast.LtE():
                    difference = _plus(left, _times(right, -1.0))
                case ast.Gt() | ast.GtE():
                    difference = _plus(right, _times(left, -1.0))
                case _:
                    continue
            most = 0.0 - difference.pop((), 0.0)
            if factors := {path: factor for path, factor in difference.items() if factor}:
                yield LinearPart(factors, most)


_Sum = dict[Path, float]
"""The factors of parameters; that of the empty path is a number of its own."""


def _conjuncts(node: ast.expr) -> Iterator[ast.Compare]:
    match node:
        case ast.Compare():
            yield node
        case ast.BoolOp(ast.And(), parts):
            for part in parts:
                yield from _conjuncts(part)


def _sum_of(node: ast.expr, space: Mapping[str, Any]) -> _Sum | None:
    """Return an expression as a sum; None if it is no linear one."""
    match node:
        case ast.Constant(value=value):
            return _number(value)
        case ast.Name() | ast.Attribute() | ast.Subscript():
            path = path_of(node, has_config="config" in space)
            found = None if path is None else at(space, path)
            return {path: 1.0} if path is not None and is_word(found) else _number(found)
        case ast.UnaryOp(ast.USub(), operand):
            inner = _sum_of(operand, space)
            return None if inner is None else _times(inner, -1.0)
        case ast.BinOp(left, op, right):
            return _combined(op, _sum_of(left, space), _sum_of(right, space))
    return None


def _number(value: Any) -> _Sum | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {(): float(value)} if is_number else None


def _combined(op: ast.operator, left: _Sum | None, right: _Sum | None) -> _Sum | None:
    if left is None or right is None:
        return None
    if isinstance(op, ast.Mult) and left.keys() <= {()}:
        left, right = right, left
    factor = right.get((), 0.0) if right.keys() <= {()} else None
    match op:
        case ast.Add():
            return _plus(left, right)
        case ast.Sub():
            return _plus(left, _times(right, -1.0))
        case ast.Mult() if factor is not None:
            return _times(left, factor)
        case ast.Div() if factor:
            return _times(left, 1 / factor)
    return None


def _plus(left: _Sum, right: _Sum) -> _Sum:
    return {path: left.get(path, 0.0) + right.get(path, 0.0) for path in [*left, *right]}


def _times(terms: _Sum, factor: float) -> _Sum:
    return {path: value * factor for path, value in terms.items()}
