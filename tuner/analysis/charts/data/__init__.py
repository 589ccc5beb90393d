"""What charts show, as plain records and as data frames; nothing here draws, and no library for that is needed.

Each file has the data of one kind of chart: pure functions of a `Source`. `PlotData` gives the same as data frames.
"""

from .plot_data import PlotData
from .source import Source

__all__ = ["PlotData", "Source"]
