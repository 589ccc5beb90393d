"""Searches that are compared, by name."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Ours:
    """A search of this project.

    Attributes:
        about: Description for the report.
        searcher: Name of a class in `searchers`.
        scheduler: ``"default"`` for the scheduler of an experiment that names none, ``"promotion"``
            or ``"stopping"`` for ASHA of that type with ``grace_period=1`` and
            ``reduction_factor=3``, ``"fifo"`` for full trainings.
        arguments: Keyword arguments of the searcher.
    """

    about: str
    searcher: str
    scheduler: str = "promotion"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """A search of another project.

    Attributes:
        about: Description for the report.
        environment: Name of its environment; the module in `peers` is ``<environment>_peer``.
        method: Name of the search in that module.
    """

    about: str
    environment: str
    method: str


METHODS: Mapping[str, Ours | Peer] = {
    "random": Ours("random search, full trainings", "BasicVariantGenerator", "fifo"),
    "ours-random": Ours("promotion ASHA, random search", "BasicVariantGenerator"),
    "ours-optuna": Ours("promotion ASHA, Optuna's TPE", "OptunaSearch"),
    "ours": Ours(
        "the default: promotion ASHA with scouts, a Gaussian process and trees in turn",
        "AutoSearch",
        "default",
    ),
    "ours-tree": Ours("promotion ASHA with scouts, trees over all rungs", "TreeSearch", "default"),
    "ours-bohb": Ours("promotion ASHA, density estimators", "BOHBSearch"),
    "ours-cqr": Ours("promotion ASHA, conformal quantiles", "CQRSearch"),
    "optuna-tpe": Peer("Optuna TPE, full trainings", "optuna", "tpe"),
    "optuna-tpe-hyperband": Peer("Optuna TPE with HyperbandPruner", "optuna", "tpe-hyperband"),
    "optuna-gp": Peer("Optuna GP, full trainings", "optuna", "gp"),
    "syne-asha": Peer("Syne Tune ASHA", "syne_tune", "asha"),
    "syne-bohb": Peer("Syne Tune BOHB", "syne_tune", "bohb"),
    "syne-bore": Peer("Syne Tune ASHA with BORE", "syne_tune", "bore"),
    "syne-cqr": Peer("Syne Tune ASHA with CQR", "syne_tune", "cqr"),
    "smac": Peer("SMAC3, multi-fidelity", "smac", "multi-fidelity"),
    "dehb": Peer("DEHB", "dehb", "dehb"),
    "ray-asha": Peer("Ray Tune ASHA, random search", "ray_tune", "asha"),
}


def method_of(name: str) -> Ours | Peer:
    """Return the search with a name, or parse a call such as ``OptunaSearch(seed=3)``.

    A call stands for promotion ASHA with that searcher, to try settings on development tasks.

    Args:
        name: A key of `METHODS`, or a call of a class in `searchers` with literal keyword
            arguments.

    Raises:
        ValueError: If it is neither.

    Example:
        >>> method_of("BasicVariantGenerator(max_concurrent=2)").arguments
        {'max_concurrent': 2}
    """
    if name in METHODS:
        return METHODS[name]
    try:
        call = ast.parse(name, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            arguments = {
                str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords
            }
            return Ours(f"promotion ASHA, {name}", call.func.id, arguments=arguments)
    except (SyntaxError, ValueError):
        pass
    raise ValueError(
        f"a search must be one of {', '.join(METHODS)}, or a searcher with its arguments as "
        f"in 'OptunaSearch()', got {name!r}"
    )
