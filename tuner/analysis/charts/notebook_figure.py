"""Plotly figure that notebooks show with or without nbformat, and keep when they are exported.

Imports Plotly, so it is imported only where a chart is drawn.
"""

from __future__ import annotations

import importlib.util
from typing import final

import plotly.graph_objects as go
import plotly.io as pio


@final
class NotebookFigure(go.Figure):  # type: ignore[misc]  # Plotly has no types
    """A figure for notebooks.

    Plotly's own way of showing a figure raises where nbformat is missing, and leaves a long
    traceback above the chart. Where nbformat is there, it stores the chart in Plotly's format
    alone, which nbconvert leaves out of a page.
    """

    def _ipython_display_(self) -> None:
        if importlib.util.find_spec("nbformat") is None or "plotly_mimetype" in (
            pio.renderers.default or ""
        ):
            # IPython then takes the figure's MIME bundle, which needs no nbformat, and its HTML,
            # which nbconvert writes.
            raise NotImplementedError
        super()._ipython_display_()
