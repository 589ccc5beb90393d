"""Extremely randomised regression trees, grown all at once, level by level, with one array operation per step instead of one per node."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import (
        Generator,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

MAX_DEPTH = 40
"""Where growing ends at the latest; trees of a thousand rows are about twenty deep."""
_NOT_ALLOWED = -math.inf
_ABSENT = -1.0
"""Stands for NaN: below every place of the unit interval, so that half of the first cuts tell what is there from what is not."""


@final
@dataclass(frozen=True, slots=True)
class ExtraTrees:
    """A forest: for each node its cut and its children, all trees in one list of nodes.

    Categories have no order, so each tree puts those of each column into a random order of its own and cuts that like a number.

    Attributes:
        features: The column that a node cuts.
        thresholds: Rows with less than this go to the first child.
        children: The first child of a node, the second follows it; a leaf is its own child.
        values: What a node predicts, the mean of its rows.
        codes: For each tree the number that stands for each category, by column.

    Example:
        >>> import numpy as np
        >>> rows = np.linspace(0, 1, 20)[:, None]
        >>> forest = grow(rows, rows[:, 0] ** 2, (0,), num_trees=3, rng=np.random.default_rng(0))
        >>> bool(np.allclose(forest.predict(rows[[4, 15]]), rows[[4, 15], 0] ** 2))
        True

    Reference:
        Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 63, 2006.

    Departures:
        Every column is tried at each node (their K is the number of columns), and unordered categories are cut in a random order that
        is drawn once per tree rather than once per node.
    """

    features: Array
    thresholds: Array
    children: Array
    values: Array
    codes: tuple[dict[int, Array], ...]

    def predict(self, rows: Array) -> Array:
        """Return what each tree says of each row.

        Args:
            rows: Vectors, one per row; NaN for what is not there.

        Returns:
            An array with a row for each tree and a column for each of `rows`.
        """
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        coded = np.concatenate([_coded(rows, codes) for codes in self.codes])
        where = np.arange(len(coded))
        nodes = np.repeat(np.arange(len(self.codes)), len(rows))
        for _ in range(MAX_DEPTH):
            is_inner = self.children[nodes[where]] != nodes[where]
            where = where[is_inner]
            if not len(where):
                break
            at = nodes[where]
            nodes[where] = self.children[at] + (
                coded[where, self.features[at]] >= self.thresholds[at]
            )
        return self.values[nodes].reshape(len(self.codes), len(rows))


def grow(
    rows: Array,
    targets: Array,
    num_categories: tuple[int, ...],
    *,
    num_trees: int,
    rng: Generator,
    min_leaf: int = 1,
) -> ExtraTrees:
    """Return a forest fitted to all rows, without bootstrap.

    Args:
        rows: Vectors, one per row; NaN for what is not there.
        targets: The value of each row, the same for all trees or, with a row for each tree, its own.
        num_categories: For each column the number of its categories, 0 for numbers.
        num_trees: How many trees to grow.
        rng: Source of chance.
        min_leaf: How many rows each side of a cut has at least.
    """
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    codes = tuple(
        {column: rng.permutation(count) for column, count in enumerate(num_categories) if count}
        for _ in range(num_trees)
    )
    coded = np.ascontiguousarray(np.concatenate([_coded(rows, each) for each in codes]).T)
    growth = _Growth(
        coded,
        np.broadcast_to(targets, (num_trees, len(rows))).ravel(),
        np.repeat(np.arange(num_trees), len(rows)),
    )
    for depth in range(MAX_DEPTH):
        if not growth.cut(rng, min_leaf, is_last=depth == MAX_DEPTH - 1):
            break
    return growth.forest(codes)


class _Growth:
    """Trees while they grow: the rows not yet in a leaf, in the order of their nodes."""

    def __init__(self, coded: Array, targets: Array, nodes: Array) -> None:
        self.coded, self.targets, self.nodes = coded, targets, nodes
        self.parts: list[tuple[Array, Array, Array, Array]] = []
        self.num_nodes = int(nodes[-1]) + 1
        self.first = 0

    def cut(self, rng: Generator, min_leaf: int, *, is_last: bool) -> bool:
        """Cut every node of the lowest level; return whether there is a level below."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        starts = np.concatenate(([0], np.flatnonzero(np.diff(self.nodes)) + 1))
        sizes = np.diff(np.append(starts, len(self.nodes)))
        lows = np.minimum.reduceat(self.coded, starts, axis=1)
        highs = np.maximum.reduceat(self.coded, starts, axis=1)
        cuts = lows + (highs - lows) * rng.random(lows.shape)
        cuts = np.where(
            cuts > lows, cuts, highs
        )  # a cut at the lower end would leave the first side empty
        local = np.repeat(np.arange(len(starts)), sizes)
        is_first = self.coded < cuts.take(
            local, axis=1
        )  # which takes a third of the time of an index
        totals = np.add.reduceat(self.targets, starts)
        gains = self._gains(is_first, starts, sizes, totals, min_leaf)
        best = gains.argmax(axis=0)
        columns = np.arange(len(starts))
        is_mixed = np.maximum.reduceat(self.targets, starts) > np.minimum.reduceat(
            self.targets, starts
        )
        is_cut = is_mixed & (gains[best, columns] > _NOT_ALLOWED) & (not is_last)
        self._note(best, cuts[best, columns], totals / sizes, is_cut)
        return self._descend(is_first[best[local], np.arange(len(local))], is_cut, local)

    def _gains(
        self, is_first: Array, starts: Array, sizes: Array, totals: Array, min_leaf: int
    ) -> Array:
        """Return by how much each cut lowers the squared error, by column and node; minus infinity where it is not allowed."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        first = np.add.reduceat(is_first * self.targets, starts, axis=1)
        first_size = np.add.reduceat(is_first, starts, axis=1, dtype=np.int32)
        second_size = sizes - first_size
        gains = (
            first**2 / np.maximum(first_size, 1)
            + (totals - first) ** 2 / np.maximum(second_size, 1)
            - totals**2 / sizes
        )
        return np.where((first_size >= min_leaf) & (second_size >= min_leaf), gains, _NOT_ALLOWED)

    def _note(self, features: Array, thresholds: Array, values: Array, is_cut: Array) -> None:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        below = self.num_nodes + 2 * (np.cumsum(is_cut) - 1)
        children = np.where(is_cut, below, self.first + np.arange(len(values)))
        self.parts.append((features, thresholds, children, values))

    def _descend(self, goes_first: Array, is_cut: Array, local: Array) -> bool:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        children = self.parts[-1][2]
        goes_on = np.flatnonzero(is_cut[local])
        nodes = children[local[goes_on]] + ~goes_first[goes_on]
        by_node = nodes.argsort(kind="stable")
        order = goes_on[by_node]
        self.first, self.num_nodes = self.num_nodes, self.num_nodes + 2 * int(is_cut.sum())
        self.nodes, self.targets = nodes[by_node], self.targets[order]
        self.coded = self.coded.take(order, axis=1)
        return len(order) > 0

    def forest(self, codes: tuple[dict[int, Array], ...]) -> ExtraTrees:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        features, thresholds, children, values = (
            np.concatenate(part) for part in zip(*self.parts, strict=True)
        )
        return ExtraTrees(features, thresholds, children, values, codes)


def _coded(rows: Array, codes: dict[int, Array]) -> Array:
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    coded = np.array(rows, dtype=float)
    for column, order in codes.items():
        known = ~np.isnan(coded[:, column])
        coded[known, column] = order[coded[known, column].astype(int)]
    return np.where(np.isnan(coded), _ABSENT, coded)
