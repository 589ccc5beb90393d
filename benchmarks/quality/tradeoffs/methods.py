"""Searches that are compared on problems with several metrics, by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.quality.functions import methods as functions
from benchmarks.quality.methods import Ours, Peer

METHODS: Mapping[str, Ours | Peer] = {
    "ours": Ours("the default of tuner", functions.AUTO, "fifo"),
    "ours-gp": Ours("Gaussian process", "GPSearch", "fifo"),
    "ours-tree": Ours("trees", "TreeSearch", "fifo"),
    "random": Ours("random search", "BasicVariantGenerator", "fifo"),
    "optuna-tpe": Peer("Optuna TPE", "optuna", "tpe"),
    "optuna-nsga2": Peer("Optuna NSGA-II", "optuna", "nsga2"),
    "optuna-gp": Peer("Optuna GP", "optuna", "gp"),
    "ax": Peer("Ax", "ax", "default"),
}


def method_of(name: str) -> Ours | Peer:
    """Return the search with a name, or parse a call such as ``GPSearch(seed=3)``.

    Args:
        name: A key of `METHODS`, or a call of a class in `searchers` with literal keyword
            arguments, to try settings on the development problems.

    Raises:
        ValueError: If it is neither.
    """
    if name in METHODS:
        return METHODS[name]
    if "(" in name:
        return functions.method_of(name)
    raise ValueError(
        f"a search must be one of {', '.join(METHODS)}, or a searcher with its arguments as "
        f"in 'GPSearch()', got {name!r}"
    )
