"""Searches that are compared on functions, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from benchmarks.quality import methods as curves
from benchmarks.quality.methods import Ours, Peer

AUTO = "auto"
"""In place of a searcher's name: the one that tuner takes by default."""

METHODS: Mapping[str, Ours | Peer] = {
    "ours": Ours("the default of tuner", AUTO, "fifo"),
    "ours-tree": Ours("trees", "TreeSearch", "fifo"),
    "ours-bohb": Ours("density estimators", "BOHBSearch", "fifo"),
    "ours-optuna-tpe": Ours("Optuna's TPE in tuner", "OptunaSearch", "fifo"),
    "random": Ours("random search", "BasicVariantGenerator", "fifo"),
    "optuna-tpe": Peer("Optuna TPE", "optuna", "tpe"),
    "optuna-gp": Peer("Optuna GP", "optuna", "gp"),
    "smac-hpo": Peer("SMAC3, random forest", "smac", "hpo"),
    "smac-bb": Peer("SMAC3, Gaussian process", "smac", "black-box"),
    "syne-bore": Peer("Syne Tune BORE", "syne_tune", "bore-full"),
}


def method_of(name: str) -> Ours | Peer:
    """Return the search with a name, or parse a call such as ``TreeSearch(seed=3)``.

    Args:
        name: A key of `METHODS`, or a call of a class in `searchers` with literal keyword
            arguments, to try settings on the development functions.

    Raises:
        ValueError: If it is neither.
    """
    if name in METHODS:
        return METHODS[name]
    called = curves.method_of(name) if "(" in name else None
    if isinstance(called, Ours):
        return dataclasses.replace(called, about=name, scheduler="fifo")
    raise ValueError(
        f"a search must be one of {', '.join(METHODS)}, or a searcher with its arguments as "
        f"in 'TreeSearch()', got {name!r}"
    )
