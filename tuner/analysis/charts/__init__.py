"""Charts of an experiment: one module per chart, with its data and its drawing in Plotly.

`source`, `timeline`, `downsample` and `style` are shared by all charts; `Plots` offers the charts
to notebooks and `PlotData` offers what they show as data frames, for which Plotly is not needed.
"""

from .plots import PlotData, Plots
from .source import Source

__all__ = ["PlotData", "Plots", "Source"]
