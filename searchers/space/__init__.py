"""Search spaces: the functions that declare one, and its parameters and configurations.

A space is a dictionary, nested through dictionaries, lists and tuples. Some of its leaves are
searched: what search-space functions such as `uniform`, `choice` or `grid_search` return, called
words in this package. All other leaves are constants: each configuration has new dictionaries,
lists and tuples, with the same objects in them.

A space is conditional if a `choice` has options that contain words, or an entry is under `only_if`.
Then a configuration has only some of the parameters; see `SearchSpace.parameters`.
"""

from __future__ import annotations

from .conditions import Branching, OnlyIf, is_word
from .domains import Categorical, Domain, Float, Integer, Normal
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
    sample_from,
    uniform,
)
from .parameters import Condition, Parameter
from .sample_from import ConfigView, SampleFrom
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


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
