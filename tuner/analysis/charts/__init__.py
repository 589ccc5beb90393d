"""Charts, drawn with Plotly: the data come from `tuner.analysis.charts.data`, here they get colours, axes and texts."""

from .plots import Plots

__all__ = ["Plots"]
