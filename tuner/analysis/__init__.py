"""Reading results: which trial was best, what every trial reported, as objects and as data frames."""

from .earlier import points_from
from .experiment_analysis import ExperimentAnalysis
from .result import Result
from .result_grid import ResultGrid
from .rows import JournalRows, MemoryRows, Rows

__all__ = ["ExperimentAnalysis", "JournalRows", "MemoryRows", "Result", "ResultGrid", "Rows", "points_from"]
