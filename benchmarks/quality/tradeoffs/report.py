"""Report of a comparison with several metrics in Markdown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.quality.figures import SHARES, Comparison, Interval, compare
from benchmarks.quality.record import Record
from benchmarks.quality.report import PAGE, page, versions

from .instances import PROBLEMS
from .methods import METHODS
from .running import NUM_EVALUATIONS, NUM_WORKERS

BEGIN = "<!-- tradeoffs: python -m benchmarks.quality.tradeoffs report --write -->"
FLOOR = 1e-3
"""Smaller missing shares of the hypervolume count as this."""
_PLACES = tuple(SHARES.index(share) for share in (0.25, 0.5, 1.0))
_POINTS = " / ".join(str(round(SHARES[place] * NUM_EVALUATIONS)) for place in _PLACES)


def report(
    records: Sequence[Record], problems: Sequence[str], num_seeds: int, ours: str
) -> Iterator[str]:
    """Yield the lines of a report.

    Each search is compared on the seeds that it has run on all problems.

    Args:
        records: All available records, see `running.missing`.
        problems: Names of the problems to report.
        num_seeds: Largest number of seeds of each problem, counted from 0.
        ours: The search to compare the others with.

    Raises:
        ValueError: If that search has not run on all problems with one seed at least.
    """
    seeds = _seeds(records, problems, num_seeds)
    if not seeds.get(ours):
        raise ValueError(
            f"{ours} must have run on all {len(problems)} problems with one seed at least; run it, "
            "or give --ours another name"
        )
    num_bounded = sum(bool(PROBLEMS[name].constraints) for name in problems)
    yield (
        f"{len(problems)} problems, {num_bounded} of them with constraints; up to {seeds[ours]} "
        f"seeds, {NUM_EVALUATIONS} evaluations, {NUM_WORKERS} at a time."
    )
    yield ""
    yield from _overview(records, problems, seeds)
    yield ""
    yield from _differences(records, problems, seeds, ours)
    yield ""
    yield from _by_problem(records, problems, seeds)
    yield ""
    yield from (
        f"Left out: {name} has not run on all problems." for name, num in seeds.items() if not num
    )
    yield from versions(records, [name for name, num in seeds.items() if num])


def write_page(figures: str, ours: str) -> None:
    """Write the figures to ``docs/quality.md``, with the date and the command."""
    today = dt.datetime.now(tz=dt.UTC).date()
    command = f"python -m benchmarks.quality.tradeoffs report --ours {ours} --write"
    dated = f"Written on {today} by `{command}`.\n\n{figures}"
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), dated, BEGIN), encoding="utf-8")


def _seeds(records: Sequence[Record], problems: Sequence[str], num_seeds: int) -> dict[str, int]:
    """Return how many seeds each search has run on all problems, counted from 0."""
    done = {kept.key for kept in records}
    methods = sorted({kept.method for kept in records}, key=_place)
    return {
        method: next(
            (
                seed
                for seed in range(num_seeds)
                if any((method, problem, seed) not in done for problem in problems)
            ),
            num_seeds,
        )
        for method in methods
    }


def _place(method: str) -> tuple[int, str]:
    return (list(METHODS).index(method) if method in METHODS else len(METHODS), method)


def _alone(
    records: Sequence[Record], problems: Sequence[str], seeds: Mapping[str, int]
) -> dict[str, Comparison]:
    """Return the figures of each search with all the seeds that it has."""
    return {
        name: compare([kept for kept in records if kept.method == name], problems, num, floor=FLOOR)
        for name, num in seeds.items()
        if num
    }


def _overview(
    records: Sequence[Record], problems: Sequence[str], seeds: Mapping[str, int]
) -> Iterator[str]:
    """Yield a table with a row for each search, ordered by its mean log over time."""
    figures = _alone(records, problems, seeds)
    yield (
        f"After {_POINTS} evaluations: mean share of the best known hypervolume, and mean log10 of "
        "the share that is missing; then the mean of this over all evaluations; s: CPU seconds per "
        "suggestion."
    )
    yield ""
    yield "| search | seeds | hypervolume | mean log10 missing | ... over time | s |"
    yield "|---|---|---|---|---|---|"
    for name in sorted(figures, key=lambda name: figures[name].logs(name).mean()):
        shares, logs = 1 - figures[name].regrets[name], figures[name].logs(name)
        cells = [
            str(seeds[name]),
            " / ".join(f"{shares[..., place].mean():.3f}" for place in _PLACES),
            " / ".join(f"{logs[..., place].mean():.2f}" for place in _PLACES),
            f"{logs.mean():.2f}",
            f"{figures[name].seconds[name]:.2g}",
        ]
        yield f"| {_about(name)} | {' | '.join(cells)} |"


def _differences(
    records: Sequence[Record], problems: Sequence[str], seeds: Mapping[str, int], ours: str
) -> Iterator[str]:
    yield (
        f"Difference of mean log10 missing, {ours} minus the other, with 95 % intervals; negative "
        f"is better for {ours}. Each interval is paired by problem and seed, and resampled by "
        "problem and then by seed. Bold where it excludes zero."
    )
    yield ""
    yield "| compared with | pairs | over time | at half | at the end | won at the end |"
    yield "|---|---|---|---|---|---|"
    for name, num in seeds.items():
        shared = min(num, seeds[ours])
        if name == ours or not shared:
            continue
        both = [kept for kept in records if kept.method in {ours, name}]
        comparison = compare(both, problems, shared, floor=FLOOR)
        cells = [cell(comparison.difference(ours, name, share)) for share in (None, 0.5, 1.0)]
        ends = comparison.logs(ours)[..., -1] - comparison.logs(name)[..., -1]
        won = ((ends < 0) + (ends == 0) / 2).mean()
        yield (f"| {_about(name)} | {len(problems)} x {shared} | {' | '.join(cells)} | {won:.0%} |")


def _by_problem(
    records: Sequence[Record], problems: Sequence[str], seeds: Mapping[str, int]
) -> Iterator[str]:
    yield "Mean share of the best known hypervolume at the end, problem by problem."
    yield ""
    yield f"| search | {' | '.join(problems)} |"
    yield f"|---|{'---|' * len(problems)}"
    for name, figures in _alone(records, problems, seeds).items():
        means = 1 - figures.regrets[name][..., -1].mean(axis=1)
        yield f"| {name} | {' | '.join(f'{mean:.3f}' for mean in means)} |"


def _about(name: str) -> str:
    return f"{METHODS[name].about} (`{name}`)" if name in METHODS else f"`{name}`"


def cell(interval: Interval) -> str:
    """Return an interval as text, bold where it excludes zero."""
    text = f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"
    return text if interval.verdict == "open" else f"**{text}**"
