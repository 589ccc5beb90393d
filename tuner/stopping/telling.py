"""Why a search has ended, as a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schedulers.decisions import Reason
from tuner.restore.resume_command import restore_line, shell_line
from tuner.spec.experiment_spec import ExperimentSpec

from .stop_search import PATIENCE


def why_search_ended(reason: Reason) -> str:
    """Return why a search has ended before all its samples were drawn.

    Example:
        >>> numbers = {"num_trials": 63, "num_samples": 200, "metric": "accuracy", "worth": 0.001}
        >>> numbers |= {"num_next": 20, "gain": 4e-4, "deviation": 3e-4, "stop_search": "'auto'"}
        >>> print(why_search_ended(Reason("stop_search.expected_gain", numbers)))
        stopped after 63 of 200 trials: the next 20 trials are expected to gain 0.0004 ± 0.0003...
    """
    numbers: dict[str, Any] = dict(reason.numbers)
    of = f" of {numbers['num_samples']}" if numbers["num_samples"] > 0 else ""
    # Gains of several metrics are parts of a hypervolume.
    factor, unit, percent = (
        (100, f"% of the hypervolume of {numbers['metrics']}", " %")
        if "metrics" in numbers
        else (1, numbers["metric"], "")
    )
    gain, deviation, worth = (
        f"{factor * numbers.get(name, 0.0):.2g}" for name in ("gain", "deviation", "worth")
    )
    if reason.rule == PATIENCE:
        why = (
            f"the last {numbers['num_last']} trials have gained {gain} {unit}, and more than "
            f"{worth}{percent} would be worth others"
        )
    else:
        why = (
            f"the next {numbers['num_next']} trials are expected to gain {gain} ± {deviation} "
            f"{unit}, and {worth}{percent} would be worth them"
        )
    by = f"stop_search={numbers['stop_search']}"
    return f"stopped after {numbers['num_trials']}{of} trials: {why} ({by})"


def line_at_end(reason: Reason, directory: Path, spec: ExperimentSpec) -> str:
    """Return why the search of an experiment has ended, and how it is continued all the same."""
    line = shell_line(directory, spec, "--stop-search never")
    again = line or restore_line(directory, spec, stop_search="'never'")
    return f"{why_search_ended(reason)}; to go on,\n    {again}"
