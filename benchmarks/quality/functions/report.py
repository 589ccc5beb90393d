"""Report of a comparison on functions in Markdown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.quality.figures import SHARES, Comparison, Interval, Values, compare
from benchmarks.quality.record import Record
from benchmarks.quality.report import PAGE, page, versions

from .instances import FUNCTIONS
from .methods import METHODS
from .running import NUM_EVALUATIONS, task_name

BEGIN = "<!-- functions: python -m benchmarks.quality.functions report --write -->"
FLOOR = 1e-4
"""Smaller regrets count as this."""
POINTS = (20, 40, 80)
"""Numbers of evaluations after which searches are compared."""
_SHARES = tuple(point / NUM_EVALUATIONS for point in POINTS)
_PLACES = tuple(SHARES.index(share) for share in _SHARES)


def report(
    records: Sequence[Record],
    functions: Sequence[str],
    num_workers: Sequence[int],
    num_seeds: int,
    ours: str,
) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        records: All available records.
        functions: Names of the functions to report.
        num_workers: Numbers of workers to report.
        num_seeds: Number of seeds of each function, counted from 0.
        ours: The search to compare the others with.

    Raises:
        ValueError: If that search has not run on all functions with all workers and seeds.
    """
    groups: dict[str, list[str]] = {}
    for name in functions:
        groups.setdefault(FUNCTIONS[name].group, []).append(name)
    counts = ", ".join(f"{len(names)} {group}" for group, names in groups.items())
    yield (
        f"{len(functions)} functions ({counts}), {num_seeds} seeds, {NUM_EVALUATIONS} evaluations. "
        "Intervals are paired: functions are drawn with replacement, then seeds."
    )
    for workers in num_workers:
        comparisons = {
            group: compare(
                records, [task_name(name, workers) for name in names], num_seeds, floor=FLOOR
            )
            for group, names in {"all": list(functions), **groups}.items()
        }
        everything = comparisons["all"]
        if ours not in everything.regrets:
            raise ValueError(
                f"{ours} must have run on all {len(functions)} functions with {workers} workers "
                f"and {num_seeds} seeds; run it, or give --ours another name"
            )
        yield ""
        yield "One evaluation at a time" if workers == 1 else f"{workers} evaluations at a time"
        yield ""
        yield from _overview(comparisons)
        yield ""
        yield from _differences(comparisons, ours)
        yield ""
        yield from (
            f"Left out: {name} has run {num} of {len(functions) * num_seeds} times."
            for name, num in everything.incomplete.items()
        )
    yield ""
    yield from versions(records, list(everything.regrets))


def write_page(figures: str, ours: str) -> None:
    """Write the figures to ``docs/quality.md``, with the date and the command."""
    today = dt.datetime.now(tz=dt.UTC).date()
    command = f"python -m benchmarks.quality.functions report --ours {ours} --write"
    dated = f"Written on {today} by `{command}`.\n\n{figures}"
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), dated, BEGIN), encoding="utf-8")


def _overview(comparisons: dict[str, Comparison]) -> Iterator[str]:
    """Yield a table with a row for each search, ordered by mean log10 regret at the end."""
    everything = comparisons["all"]
    ranks = {group: comparison.ranks() for group, comparison in comparisons.items()}
    points = " / ".join(map(str, POINTS))
    yield (
        f"After {points} evaluations: mean rank and mean log10 regret over all functions; then the "
        "mean rank in each group; s: CPU seconds per suggestion."
    )
    yield ""
    groups = [group for group in comparisons if group != "all"]
    yield f"| search | mean rank | mean log10 regret | {' | '.join(groups)} | s |"
    yield f"|---|---|---|{'---|' * len(groups)}---|"
    for name in sorted(everything.regrets, key=lambda name: everything.logs(name)[..., -1].mean()):
        logs = everything.logs(name)
        cells = [
            _at_points(ranks["all"], name),
            " / ".join(f"{logs[..., place].mean():.2f}" for place in _PLACES),
            *(_at_points(ranks[group], name) for group in groups),
            f"{everything.seconds[name]:.2g}",
        ]
        yield f"| {_about(name)} | {' | '.join(cells)} |"


def _at_points(ranks: Mapping[str, Values], name: str) -> str:
    """Return the mean ranks of a search at `POINTS`."""
    return " / ".join(f"{ranks[name][place]:.1f}" for place in _PLACES)


def _differences(comparisons: dict[str, Comparison], ours: str) -> Iterator[str]:
    yield (
        f"Difference of mean log10 regret, {ours} minus the other, with 95 % intervals; negative "
        f"is better for {ours}. Bold where the interval excludes zero."
    )
    yield ""
    groups = [group for group in comparisons if group != "all"]
    heads = [f"after {point}" for point in POINTS] + [f"{group}, {POINTS[-1]}" for group in groups]
    yield f"| compared with | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(heads)}"
    everything = comparisons["all"]
    for name in everything.regrets:
        if name != ours:
            cells = [everything.difference(ours, name, share) for share in _SHARES] + [
                comparisons[group].difference(ours, name, _SHARES[-1]) for group in groups
            ]
            yield f"| {_about(name)} | {' | '.join(map(_cell, cells))} |"


def _about(name: str) -> str:
    return f"{METHODS[name].about} (`{name}`)" if name in METHODS else f"`{name}`"


def _cell(interval: Interval) -> str:
    text = f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"
    return text if interval.verdict == "open" else f"**{text}**"
