"""Importance of each parameter, as data and as a chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tuner.analysis.importances import (
    At,
    Evaluator,
    Importances,
    evaluated_trials,
    importances,
    require_optuna,
)
from tuner.analysis.ranking import rank

from .downsample import spread
from .source import Source
from .style import GOOD, OTHER, label, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_BARS: Final = 20
_MAX_IMPORTANCE_TRIALS: Final = 1000
"""Limits the time that forests and bootstraps take."""


def param_importances(
    source: Source,
    evaluator: Evaluator = "ped_anova",
    at: At = "common",
    *,
    with_errors: bool = False,
) -> Importances:
    """Return the importance of each parameter; see `ResultGrid.get_param_importances`.

    Of more than 1,000 trials, 1,000 are compared, spread evenly over the ranks.

    Raises:
        ImportError: If Optuna or, for the forests, scikit-learn is not installed.
        ValueError: If there are too few trials, no parameter differs, or the experiment has no
            metric.
    """
    require_optuna()
    metric, mode = source.objective
    trials, iteration = evaluated_trials(source.trials, source.rows, metric, at)
    ranked = sorted(trials, key=lambda trial: rank(trial.value, mode), reverse=True)
    return importances(
        spread(ranked, _MAX_IMPORTANCE_TRIALS), mode, evaluator, iteration, with_errors=with_errors
    )


def importance_figure(importances: Importances) -> go.Figure:
    """Return a bar for each parameter, the most important on top, with its error if known."""
    names = list(importances.shares)[:MAX_BARS][::-1]
    shares = [importances.shares[name] for name in names]
    errors = [importances.std_errors[name] for name in names]
    has_errors = all(map(math.isfinite, errors))
    texts = [
        _percent(share) + (f" ± {100 * error:.0f}" if has_errors else "")
        for share, error in zip(shares, errors, strict=True)
    ]
    # A share is within 0 and 1, so its whisker is clipped there; the number follows the whisker.
    ends = [
        min(1.0, share + error) if has_errors else share
        for share, error in zip(shares, errors, strict=True)
    ]
    figure = new_figure(90 + 28 * len(names))
    figure.add_bar(
        x=shares,
        y=[label(name, 28) for name in names],
        orientation="h",
        marker={"color": GOOD},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [end - share for end, share in zip(ends, shares, strict=True)],
            "arrayminus": [min(share, error) for share, error in zip(shares, errors, strict=True)],
            "color": OTHER,
            "thickness": 1.4,
            "width": 4,
            "visible": has_errors,
        },
        customdata=texts,
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )
    # A trace of its own for the texts, since those of bars would be crossed by the whiskers.
    figure.add_scatter(
        x=ends,
        y=[label(name, 28) for name in names],
        text=[f" {text}" for text in texts],
        mode="text",
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    figure.update_xaxes(
        title_text="share of importance", tickformat=".0%", range=[0, 1.2 * max(ends, default=1)]
    )
    figure.update_yaxes(type="category", showgrid=False, ticks="")
    figure.update_layout(bargap=0.4, showlegend=False)
    return figure


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
