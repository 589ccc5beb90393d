"""Search spaces: the functions that declare one, and its parameters and configurations.

A space is a dictionary, nested through dictionaries, lists and tuples. Some of its leaves are
searched: what search-space functions such as `uniform`, `choice` or `grid_search` return, called
words in this package. All other leaves are constants: each configuration has new dictionaries,
lists and tuples, with the same objects in them.

A space is conditional if a `choice` has options that contain words, or an entry is under `only_if`.
Then a configuration has only some of the parameters; see `SearchSpace.parameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchers.lazy_names import lazy_names

from .conditions import Branching, OnlyIf, is_word
from .domains import Categorical, Domain, Float, Integer, Normal
from .parameters import Condition, Parameter
from .sample_from import SampleFrom, sample_from
from .search_space import (
    SearchSpace,
    constants,
    domains,
    experiment_tag,
    grid_axes,
    resolve,
)
from .tree import (
    Conditional,
    Path,
    assign,
    copied,
    every_leaf,
    flat_name,
    is_grid,
    leaves,
    match,
    merge,
    nest,
)

if TYPE_CHECKING:
    from .computed_values import ConfigView
    from .declared_space import Space
    from .functions import (
        choice,
        grid_search,
        lograndint,
        loguniform,
        only_if,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        uniform,
    )  # fmt: skip

__all__ = [
    "Branching",
    "Categorical",
    "Condition",
    "Conditional",
    "ConfigView",
    "Domain",
    "Float",
    "Integer",
    "Normal",
    "OnlyIf",
    "Parameter",
    "Path",
    "SampleFrom",
    "SearchSpace",
    "Space",
    "assign",
    "choice",
    "constants",
    "copied",
    "domains",
    "every_leaf",
    "experiment_tag",
    "flat_name",
    "grid_axes",
    "grid_search",
    "is_grid",
    "is_word",
    "leaves",
    "lograndint",
    "loguniform",
    "match",
    "merge",
    "nest",
    "only_if",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "resolve",
    "sample_from",
    "uniform",
]

# What is not imported above: only scripts that declare a space need it.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".functions": __all__,
        ".computed_values": ["ConfigView"],
        ".declared_space": ["Space"],
    },
)
