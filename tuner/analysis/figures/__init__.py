"""Charts, drawn with Plotly: the data come from `tuner.analysis.plots`, here they get colours, axes and texts."""

from .plots import Plots

__all__ = ["Plots"]
