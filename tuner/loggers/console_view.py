"""The lines that show how far an experiment is: text in, text out, for terminals, notebooks and log files alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.progress import Progress
from tuner.core.result import AUTO_FILLED, TIME_TOTAL_S, flatten
from tuner.core.trial import Status, Trial
from tuner.storage.layout import ERROR

from .formatting import duration, printable, shorten, show

_GAP = "  "
_MAX_ROWS = 25
_MAX_OTHERS = 3
_MAX_ERRORS = 10
_NUM_LEADERS = 5
_BAR_CELLS = 20
_COMPARED = 1_000


def live_lines(progress: Progress, width: int, max_rows: int = _MAX_ROWS) -> list[str]:
    """Return the live view: headline, best trial, counts, and a table of the running and the best trials.

    Args:
        progress: What there is to show.
        width: Columns of the terminal; no line is longer.
        max_rows: Most trials to list, 25 at most.
    """
    running = list(progress.running)
    shown = _unique([*running, *progress.leaders[:_NUM_LEADERS]])[: min(max_rows, _MAX_ROWS)]
    lines = [headline(progress), best_line(progress), counts_line(progress), *table(shown, progress, width)]
    return _fit(lines, width)


def status_line(progress: Progress) -> str:
    """Return everything that counts in one line, for log files."""
    parts = [f"[{duration(progress.elapsed_s)}]", printable(progress.name), _num_trials(progress), counts_line(progress)]
    if progress.best is not None:
        parts.append(f"best {show(progress.best_value)} ({progress.best.trial_id})")
    if progress.remaining_s is not None:
        parts.append(f"{duration(progress.remaining_s)} left")
    return _join(parts)


def summary_lines(progress: Progress, trials: Sequence[Trial], experiment_path: Path | None, width: int) -> list[str]:
    """Return the final summary: what was found, how it compares, what failed, and where it all lies.

    Args:
        progress: The experiment at its end.
        trials: All its trials.
        experiment_path: Its directory, None if it has none.
        width: Columns of the terminal; only paths and configurations may be longer.
    """
    done = f"{printable(progress.name)}: {_num_trials(progress)} in {duration(progress.elapsed_s)}"
    lines = [_join([done, *_state_counts(progress)])]
    lines += _best_configuration(progress)
    lines += _fit(table(progress.leaders[:_NUM_LEADERS], progress, width), width)
    lines += _errors([trial for trial in trials if trial.status is Status.ERROR])
    if experiment_path is not None:
        lines.append(f"results in {printable(str(experiment_path))}")
    return lines


def headline(progress: Progress) -> str:
    """Return name, objective, bar and times in one line."""
    parts = [printable(progress.name)]
    if progress.metric:
        parts.append(f"{progress.mode} {printable(progress.metric)}")
    if progress.fraction is not None:
        done = round(progress.fraction * _BAR_CELLS)
        parts.append("━" * done + "─" * (_BAR_CELLS - done))
    parts.append(_num_trials(progress))
    if progress.fraction is not None:
        left = "?" if progress.remaining_s is None else duration(progress.remaining_s)
        parts.append(f"{left} left")
    parts.append(f"{duration(progress.elapsed_s)} elapsed")
    return _join(parts)


def best_line(progress: Progress) -> str:
    """Return the best trial so far with its parameters, empty before the first result."""
    if progress.best is None:
        return ""
    trial = progress.best
    params = _params_of(trial, _unique([*progress.running, *progress.leaders, trial]))
    iteration = (progress.best_result or {}).get("training_iteration", trial.iteration)
    return _join([f"best {show(progress.best_value)}", trial.trial_id, f"iter {iteration}", " ".join(params)])


def counts_line(progress: Progress) -> str:
    """Return how many trials are in which state, and which resources are in use."""
    parts = [*_state_counts(progress), *_resources(progress)]
    if progress.waiting_for:
        parts.append(f"waiting for {printable(progress.waiting_for)}")
    return _join(parts)


def ending_line(trial: Trial, metric: str | None) -> str:
    """Return how a trial ended, in one line."""
    value = flatten(trial.last_result).get(metric) if metric else None
    parts = [trial.trial_id, _state(trial), f"iter {trial.iteration}"]
    if metric and value is not None:
        parts.append(f"{printable(metric)} {show(value)}")
    parts.append(_time(trial))
    return _join(parts)


def failure_line(trial: Trial, *, will_retry: bool) -> str:
    """Return what went wrong in a trial's latest attempt and where more is written about it."""
    what = shorten(printable(str(trial.failures[-1])), 200) if trial.failures else "no reason known"
    then = "trying again" if will_retry else "giving up"
    return f"{trial.trial_id} failed in attempt {trial.attempt}, {then}: {what}{_GAP}{_error_path(trial)}".rstrip()


def table(trials: Sequence[Trial], progress: Progress, width: int) -> list[str]:
    """Return trials as a table that fits the width, heading first; nothing for no trials.

    Columns that do not fit are left out, other metrics first, then parameters.
    """
    from rich.cells import set_cell_size  # noqa: PLC0415  (only where something is shown)

    if not trials:
        return []
    columns = _fitting(_columns(trials, progress), width)
    rows = [[column.title for column in columns], *([column.cells[row] for column in columns] for row in range(len(trials)))]
    sizes = [column.width for column in columns]
    return [_GAP.join(set_cell_size(cell, size) for cell, size in zip(row, sizes, strict=True)).rstrip() for row in rows]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table.

    Attributes:
        title: Its heading.
        cells: One text per trial.
        rank: Columns with higher ranks are left out first; rank 0 always stays.
    """

    title: str
    cells: Sequence[str]
    rank: int

    @property
    def width(self) -> int:
        from rich.cells import cell_len  # noqa: PLC0415  (only where something is shown)

        return max(cell_len(text) for text in (self.title, *self.cells))


def _columns(trials: Sequence[Trial], progress: Progress) -> list[_Column]:
    metric = progress.metric
    results = [flatten(trial.last_result) for trial in trials]
    columns = [
        _Column("trial", [trial.trial_id for trial in trials], 0),
        _Column("state", [_state(trial) for trial in trials], 0),
        _Column("iter", [str(trial.iteration) for trial in trials], 0),
    ]
    if metric:
        columns.append(_column(metric, [result.get(metric) for result in results], 0))
        columns.append(_Column("best", [show(_best_of(trial, progress)) for trial in trials], 1))
    columns += [_column(name, [result.get(name) for result in results], 3) for name in _others(results, metric)]
    params = [trial.evaluated_params for trial in trials]
    columns += [_column(name, [config.get(name) for config in params], 2) for name in _differing(params)]
    return [*columns, _Column("time", [_time(trial) for trial in trials], 1)]


def _column(name: str, values: Sequence[Any], rank: int) -> _Column:
    return _Column(show(name), [show(value) for value in values], rank)


def _fitting(columns: list[_Column], width: int) -> list[_Column]:
    chosen: set[int] = set()
    room = width + len(_GAP)
    # A stable sort: among equals the leftmost column is the first to get room.
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        size = columns[index].width + len(_GAP)
        if columns[index].rank == 0 or size <= room:
            chosen.add(index)
            room -= size
    return [column for index, column in enumerate(columns) if index in chosen]


def _others(results: Iterable[Mapping[str, Any]], metric: str | None) -> list[str]:
    names = (name for result in results for name, value in result.items() if name not in AUTO_FILLED and isinstance(value, int | float))
    return [name for name in dict.fromkeys(names) if name != metric and not name.startswith("config/")][:_MAX_OTHERS]


def _differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for config in configs for name in config)
    if len(configs) == 1:
        return list(names)
    return [name for name in names if _do_differ([config.get(name) for config in configs])]


def _do_differ(values: Sequence[Any]) -> bool:
    # Constants of a search space are the same object in all trials; comparing big ones by their text would be slow.
    if all(value is values[0] for value in values):
        return False
    return len({repr(value) if isinstance(value, float) else show(value, _COMPARED) for value in values}) > 1


def _params_of(trial: Trial, among: Sequence[Trial]) -> list[str]:
    params = trial.evaluated_params
    names = _differing([other.evaluated_params for other in among])
    return [f"{show(name)}={show(params[name])}" for name in names if name in params]


def _best_configuration(progress: Progress) -> Iterator[str]:
    if progress.best is None:
        return
    metric = printable(progress.metric or "")
    iteration = (progress.best_result or {}).get("training_iteration", progress.best.iteration)
    yield f"best {metric} {show(progress.best_value)} ({progress.mode}), {progress.best.trial_id}, iteration {iteration}"
    params = {show(name, 40): show(value, 200) for name, value in progress.best.evaluated_params.items()}
    size = max(map(len, params), default=0)
    yield from (f"{_GAP}{name:{size}}{_GAP}{value}" for name, value in params.items())


def _errors(failed: Sequence[Trial]) -> Iterator[str]:
    for trial in failed[:_MAX_ERRORS]:
        what = shorten(printable(str(trial.failures[-1])), 100) if trial.failures else "failed"
        yield _join([trial.trial_id, what, _error_path(trial)])
    if len(failed) > _MAX_ERRORS:
        yield f"and {len(failed) - _MAX_ERRORS} more failed trials"


def _error_path(trial: Trial) -> str:
    return printable(str(Path(trial.local_path) / ERROR)) if trial.local_path else ""


def _best_of(trial: Trial, progress: Progress) -> float | None:
    summary = trial.summary.get(progress.metric or "")
    return summary.by_scope("all", progress.mode or "min") if summary else None


def _state(trial: Trial) -> str:
    return str(trial.ending) if trial.ending else trial.status.lower()


def _time(trial: Trial) -> str:
    return duration(float(trial.last_result.get(TIME_TOTAL_S) or 0))


def _num_trials(progress: Progress) -> str:
    total = "" if progress.num_total is None else f"/{progress.num_total}"
    return f"{progress.num_finished}{total} trials"


def _state_counts(progress: Progress) -> list[str]:
    count = progress.num_trials_by_status
    states = {
        "running": count.get(Status.RUNNING, 0),
        "paused": count.get(Status.PAUSED, 0),
        "pending": count.get(Status.PENDING, 0),
        "done": count.get(Status.TERMINATED, 0) - progress.num_stopped_early - progress.num_interrupted,
        "stopped early": progress.num_stopped_early,
        "interrupted": progress.num_interrupted,
        "failed": count.get(Status.ERROR, 0),
    }
    return [f"{state} {number}" for state, number in states.items() if number]


def _resources(progress: Progress) -> Iterator[str]:
    for name, amount in progress.capacity.items():
        if amount:
            shown = name.upper() if name in ("cpu", "gpu") else printable(name)
            yield f"{shown} {progress.used.get(name, 0):g}/{amount:g}"


def _unique(trials: Iterable[Trial]) -> list[Trial]:
    return list(dict.fromkeys(trials))


def _join(parts: Iterable[str]) -> str:
    return _GAP.join(part for part in parts if part)


def _fit(lines: Iterable[str], width: int) -> list[str]:
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  (only where something is shown)

    return [line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…" for line in lines if line]
