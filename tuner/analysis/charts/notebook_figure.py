"""Plotly figure that notebooks show with or without nbformat.

Imports Plotly, so it is imported only where a chart is drawn.
"""

from __future__ import annotations

import importlib.util
from typing import final

import plotly.graph_objects as go


@final
class NotebookFigure(go.Figure):  # type: ignore[misc]  # Plotly has no types
    """A figure for notebooks whose kernel has ipykernel alone.

    Plotly's own way of showing a figure raises where nbformat is missing, and leaves a long
    traceback above the chart.
    """

    def _ipython_display_(self) -> None:
        if importlib.util.find_spec("nbformat") is None:
            # IPython then takes the figure's MIME bundle, which needs no nbformat.
            raise NotImplementedError
        super()._ipython_display_()
