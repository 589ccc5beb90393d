"""Report of a comparison in Markdown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

import numpy as np

from .conversation import ROOT
from .figures import SHARES, Comparison, Interval, compare
from .methods import METHODS
from .record import Record
from .trace import NUM_WORKERS

PAGE = ROOT / "docs" / "quality.md"
BEGIN = "<!-- figures: python -m benchmarks.quality report --write -->"
END = "<!-- end of figures -->"
QUARTERS = (0.25, 0.5, 1.0)
_SIGNS = {"ahead": "**ahead**", "behind": "**behind**", "open": "open"}


def report(
    records: Sequence[Record], tasks: Sequence[str], num_seeds: int, ours: str
) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        records: All available records.
        tasks: Names of the tasks to report.
        num_seeds: Number of seeds of each task, counted from 0. Searches with fewer are left out.
        ours: The search to compare the others with.

    Raises:
        ValueError: If that search has not run on all tasks with all seeds.
    """
    comparison = compare(records, tasks, num_seeds)
    if ours not in comparison.regrets:
        raise ValueError(
            f"{ours} must have run on all {len(tasks)} tasks with {num_seeds} seeds; run it, "
            "or give --ours another name"
        )
    yield f"{len(tasks)} tasks, {num_seeds} seeds for each search and task, {NUM_WORKERS} workers."
    yield ""
    yield from _overview(comparison)
    yield ""
    yield from _differences(comparison, ours, len(tasks))
    yield ""
    yield from _by_task(comparison, tasks)
    yield ""
    yield from (
        f"Left out: {name} has run {num} of {len(tasks) * num_seeds} times; figures need "
        f"{num_seeds} seeds on every task."
        for name, num in comparison.incomplete.items()
    )
    yield from versions(records, list(comparison.regrets))


def page(text: str, figures: str, mark: str = BEGIN) -> str:
    """Return a text with the figures between a mark and the next `END` replaced.

    Raises:
        ValueError: If the text lacks the mark or `END`.
    """
    head, begin, rest = text.partition(mark)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"the text has no lines {mark!r} and {END!r} between which figures could stand"
        )
    return f"{head}{mark}\n\n{figures}\n\n{END}{tail}"


def write_page(figures: str, ours: str) -> None:
    """Write the figures to ``docs/quality.md``, with the date and the command."""
    today = dt.datetime.now(tz=dt.UTC).date()
    command = f"python -m benchmarks.quality report --ours {ours} --write"
    dated = f"Written on {today} by `{command}`.\n\n{figures}"
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), dated), encoding="utf-8")


def _overview(comparison: Comparison) -> Iterator[str]:
    """Yield a table with a row for each search, ordered by mean log10 regret over time."""
    ranks = comparison.ranks()
    yield "At 25 / 50 / 100 % of the time; s: CPU seconds per suggestion."
    yield ""
    yield (
        "| search | median regret | mean log10 regret | ... over all of the time | mean rank | s |"
    )
    yield "|---|---|---|---|---|---|"
    for name in sorted(comparison.regrets, key=lambda method: comparison.logs(method).mean()):
        regrets, logs = comparison.regrets[name], comparison.logs(name)
        places = [SHARES.index(share) for share in QUARTERS]
        medians = " / ".join(f"{np.median(regrets[:, :, place]):.3f}" for place in places)
        means = " / ".join(f"{logs[:, :, place].mean():.2f}" for place in places)
        rank = " / ".join(f"{ranks[name][place]:.1f}" for place in places)
        yield (
            f"| {_about(name)} | {medians} | {means} | {logs.mean():.2f} | {rank} | "
            f"{comparison.seconds[name]:.2g} |"
        )


def _differences(comparison: Comparison, ours: str, num_tasks: int) -> Iterator[str]:
    yield (
        f"Difference of mean log10 regret, {ours} minus the other, with 95 % intervals; negative "
        f"is better for {ours}. Each interval is paired: {num_tasks} tasks with "
        f"{comparison.num_seeds} seeds, the same for both searches, resampled by task and then by "
        "seed."
    )
    yield ""
    yield "| compared with | pairs | over time | | at 50 % | | at the end | |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in comparison.regrets:
        if name != ours:
            cells = [_cell(comparison.difference(ours, name, share)) for share in (None, 0.5, 1.0)]
            pairs = f"{num_tasks} x {comparison.num_seeds}"
            yield f"| {_about(name)} | {pairs} | {' | '.join(cells)} |"


def _by_task(comparison: Comparison, tasks: Sequence[str]) -> Iterator[str]:
    yield "Median regret at the end, task by task."
    yield ""
    yield f"| search | {' | '.join(tasks)} |"
    yield f"|---|{'---|' * len(tasks)}"
    for name, regrets in comparison.regrets.items():
        medians = np.median(regrets[:, :, -1], axis=1)
        yield f"| {name} | {' | '.join(f'{median:.3f}' for median in medians)} |"


def versions(records: Sequence[Record], methods: Sequence[str]) -> Iterator[str]:
    """Yield a line with the versions of the libraries of searches."""
    found = {
        f"{library} {version}"
        for kept in records
        if kept.method in methods
        for library, version in kept.versions.items()
    }
    yield f"Versions: {', '.join(sorted(found))}."


def _about(name: str) -> str:
    return f"{METHODS[name].about} (`{name}`)" if name in METHODS else f"`{name}`"


def _cell(interval: Interval) -> str:
    return (
        f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}] | "
        f"{_SIGNS[interval.verdict]}"
    )
