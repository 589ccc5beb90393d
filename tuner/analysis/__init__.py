"""Results of an experiment as objects, data frames, charts and a report.

`ResultGrid` holds the results of all trials and `Result` those of one; `open_experiment` and
`trial_files` read them from directories, `charts` and `report` show them. Nothing here changes an
experiment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchers.lazy_names import lazy_names

if TYPE_CHECKING:
    from .experiment_analysis import ExperimentAnalysis
    from .result import Result
    from .result_grid import ResultGrid
    from .warm_start import points_from
__all__ = ["ExperimentAnalysis", "Result", "ResultGrid", "points_from"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".experiment_analysis": ("ExperimentAnalysis",),
        ".result": ("Result",),
        ".result_grid": ("ResultGrid",),
        ".warm_start": ("points_from",),
    },
)
