"""Contents of the progress display: status line, failures, resources, best trial, trial table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from searchers.objectives.outcome_constraint import Constraints
from tuner.callbacks.formatting import duration, printable, resource_name, shorten, show
from tuner.callbacks.tables import GAP
from tuner.core.failure_causes import Cause, by_cause
from tuner.core.feasibility import is_feasible
from tuner.core.near_misses import is_none_feasible, why_infeasible, why_none_feasible
from tuner.core.progress import Progress
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.trial_metrics import Evaluation
from tuner.core.worker_records import Failure

from .displays import Line, Part, View, line
from .progress_table import (
    TableOptions,
    differing,
    ending,
    failure_table,
    listed,
    log_path,
    training_time,
    trial_table,
    unique,
)
from .sparklines import Curves

_BAR_CELLS: Final = 20
_MIN_BAR_CELLS: Final = 5
_TRACEBACK_LINES: Final = 40
_TRACEBACK_HEAD: Final = 8
_NUM_LEADERS: Final = 5
_LINES_BESIDE_ROWS: Final = 6
"""Headline, best, counts, heading and path of a live view, and a line for the cursor."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a view may show.

    Attributes:
        progress: The experiment's progress.
        trials: All its trials.
        failed: The trials whose latest attempt has failed, by id, the latest to fail last.
        options: Options of the tables.
        curves: The learning curves, None for none.
        experiment_path: The experiment's directory, None if it has none.
        url: The URL of an experiment in an object store; empty for none.
    """

    progress: Progress
    trials: Sequence[Trial] = ()
    failed: dict[str, Trial] = field(default_factory=dict)
    options: TableOptions = field(default_factory=TableOptions)
    curves: Curves | None = None
    experiment_path: Path | None = None
    url: str = ""


def live_view(scene: Scene, width: int, height: int | None = None) -> View:
    """Return the live view: headline, best trial, counts, trials and failures.

    Args:
        scene: The scene.
        width: Characters of a line.
        height: How many lines there may be, None for no limit.
    """
    progress, options = scene.progress, scene.options
    view: list[Line] = [headline(progress, width), best_line(progress), counts_line(progress)]
    groups = list(by_cause(reversed(scene.failed.values())).values())
    num_failures = min(len(groups), options.max_error_rows)
    room = 10_000 if height is None else max(1, height - _LINES_BESIDE_ROWS)
    if height is not None and num_failures:
        num_failures = min(num_failures, max(1, room // 4))
        room = max(1, room - num_failures - 2)
    tables = []
    if options.has_progress_table:
        trials = listed(progress, scene.trials, options, room)
        tables.append(trial_table(trials, progress, options, scene.curves, width))
    return [
        *view,
        *tables,
        *_failures(groups[:num_failures], len(scene.failed), scene, width),
        _place(scene),
    ]


def summary_view(scene: Scene, width: int) -> View:
    """Return the final summary: the best trial, the best few, failures, and the directory.

    Args:
        scene: The experiment at its end.
        width: Characters of a line; only paths and configurations may be longer.
    """
    progress, options = scene.progress, scene.options
    done = f"{printable(progress.name)}: {_num_trials(progress)} in {duration(progress.elapsed_s)}"
    leaders = (progress.leaders or progress.front)[: min(_NUM_LEADERS, options.max_progress_rows)]
    failed = [trial for trial in scene.trials if trial.status is Status.ERROR]
    return [
        line((done, "bold"), *_state_counts(progress), *_budgets(progress), is_whole=True),
        *_best_configuration(progress),
        *_feasible(scene),
        trial_table(leaders, progress, options, scene.curves, width),
        *_failures(
            list(by_cause(failed).values())[: options.max_error_rows], len(failed), scene, width
        ),
        *([line(f"results in {_address(scene)}", is_whole=True)] if scene.experiment_path else []),
    ]


def headline(progress: Progress, width: int = 100) -> Line:
    """Return name, objective, bar and times in one line; the bar fills the room that is left."""
    name: list[Part] = [(shorten(printable(progress.name), max(20, width // 4)), "bold")]
    if objective := _objective(progress):
        name.append(objective)
    parts = [_num_trials(progress)]
    if progress.fraction is not None and progress.fraction < 1:
        left = "?" if progress.remaining_s is None else duration(progress.remaining_s)
        parts.append(f"{left} left")
    budget = f" of {duration(progress.time_budget_s)}" if progress.time_budget_s else " elapsed"
    parts.append(f"{duration(progress.elapsed_s)}{budget}")
    if progress.fraction is None:
        return line(*name, *parts)
    room = width - len(line(*name, *parts).text) - len(GAP)
    return line(*name, _bar(progress.fraction, min(_BAR_CELLS, max(_MIN_BAR_CELLS, room))), *parts)


def best_line(progress: Progress) -> Line:
    """Return the best trial so far, with its last value, which ranks trials, and its best."""
    if progress.best is None:
        return line(_front(progress) or _lack(progress))
    values: list[Part] = [" last ", (_evaluation(progress.best_last), "green")]
    found = Line((f"best trial {progress.best.trial_id}", *values))
    ever = f"best {_evaluation(progress.best_ever)}" if progress.best_ever else ""
    return line(found, ever, " ".join(_params_of(progress, progress.best)))


def counts_line(progress: Progress) -> Line:
    """Return the number of trials in each state, and the resources in use."""
    waiting = f"waiting for {printable(progress.waiting_for)}" if progress.waiting_for else ""
    return line(
        *_state_counts(progress),
        resources_line(progress),
        *_budgets(progress),
        *_validations(progress),
        waiting,
    )


def _budgets(progress: Progress) -> Iterator[str]:
    """Yield what is spent of each budget, and what is left."""
    for use in progress.budgets:
        spent, left = use.spent_at(progress.elapsed_s), use.left_at(progress.elapsed_s)
        yield f"{resource_name(use.unit)} {spent:.4g}/{use.limit:g}, {left:.4g} left"


def _validations(progress: Progress) -> Iterator[str]:
    """Yield how many validations are under way, and which trials wait for them."""
    if progress.num_validating or progress.num_to_validate:
        waiting = f", {progress.num_to_validate} waiting" if progress.num_to_validate else ""
        yield f"validating {progress.num_validating}{waiting}"
    if progress.held:
        held = ", ".join(trial.trial_id for trial in progress.held[:_NUM_LEADERS])
        more = ", …" if len(progress.held) > _NUM_LEADERS else ""
        yield f"{held}{more} held in report by max_pending"


def resources_line(progress: Progress) -> str:
    """Return the resources in use, out of how many."""
    return GAP.join(_resources(progress))


def status_line(progress: Progress) -> Line:
    """Return the progress in one line, for log files."""
    best = (
        f"best trial {progress.best.trial_id} last {_evaluation(progress.best_last)}"
        if progress.best
        else _front(progress) or _lack(progress)
    )
    left = "" if progress.remaining_s is None else f"{duration(progress.remaining_s)} left"
    return line(
        f"[{duration(progress.elapsed_s)}]",
        printable(progress.name),
        _num_trials(progress),
        counts_line(progress),
        best,
        left,
    )


def ending_line(trial: Trial, metrics: Sequence[str], constraints: Constraints = ()) -> Line:
    """Return in one line how a trial ended.

    Args:
        trial: The trial.
        metrics: The optimised metrics, of which the last values are told.
        constraints: Those of the experiment; which of them it misses is told.
    """
    why = why_infeasible(trial, constraints)
    values = [
        f"{printable(metric)} last {_evaluation(last)}"
        for metric in metrics
        if (last := _last_of(trial, metric))
    ]
    return line(
        trial.trial_id,
        ending(trial) or str(trial.status),
        f"iter {trial.iteration}",
        *values,
        training_time(trial),
        f"infeasible: {printable(why)}" if why else "",
    )


def _last_of(trial: Trial, metric: str) -> Evaluation | None:
    """Return the newest value of a metric, with its iteration for the experiment's own only."""
    if trial.objective.metric == metric:
        return trial.objective.last
    summary = trial.summary.get(metric)
    return Evaluation(summary.last) if summary else None


def failure_line(trial: Trial, *, will_retry: bool) -> Line:
    """Return the error of a trial's latest attempt, and the path of its error file."""
    what = shorten(printable(str(trial.failures[-1])), 200) if trial.failures else "no reason known"
    then = "trying again" if will_retry else "giving up"
    return line(
        f"{trial.trial_id} failed in attempt {trial.attempt}, {then}: {what}",
        log_path(trial),
        is_whole=True,
    )


def _bar(fraction: float, num_cells: int) -> Line:
    done = round(fraction * num_cells)
    return Line((("━" * done, "green"), ("─" * (num_cells - done), "dim")))


def failure_lines(failure: Failure, log: str) -> list[str]:
    """Return the traceback of a failure, or what is known instead, a long one without its middle.

    Args:
        failure: The failure.
        log: Path of the file that holds all of it.
    """
    lines = failure.traceback.rstrip().splitlines()
    if len(lines) > _TRACEBACK_LINES:
        lines = [
            *lines[:_TRACEBACK_HEAD],
            f"  ... all of it is in {log or 'error.txt'} ...",
            *lines[_TRACEBACK_HEAD - _TRACEBACK_LINES :],
        ]
    return [f"  {printable(text)}" for text in lines]


def common_failure_line(num: int, cause: Cause) -> Line:
    """Return the number of attempts that have failed for one cause."""
    return line(f"{num} failures so far: {printable(str(cause))}", is_whole=True)


def _failures(shown: Sequence[Sequence[Trial]], num_all: int, scene: Scene, width: int) -> View:
    if not shown:
        return []
    num_more = num_all - sum(map(len, shown))
    more = [line((f"and {num_more} more failed trials", "dim"))] if num_more else []
    return [failure_table(shown, scene.experiment_path, width), *more]


def _place(scene: Scene) -> Line:
    return line((f"in {_address(scene)}", "dim")) if scene.experiment_path else line()


def _address(scene: Scene) -> str:
    path = _path(scene.experiment_path)
    return f"{printable(scene.url)}, local directory {path}" if scene.url else path


def _path(path: Path | None) -> str:
    return printable(str(path))


def _objective(progress: Progress) -> str:
    """Return the optimised metrics with their directions."""
    if progress.metric:
        return f"{progress.mode or ''} {printable(progress.metric)}".strip()
    return ", ".join(f"{mode} {printable(metric)}" for metric, mode in progress.several_objectives)


def _front(progress: Progress) -> str:
    """Return the trials on the Pareto front of several objectives; empty for a single one."""
    if not progress.front:
        return ""
    num = len(progress.front)
    shown = ", ".join(trial.trial_id for trial in progress.front[:_NUM_LEADERS])
    more = ", …" if num > _NUM_LEADERS else ""
    return f"{num} trial{'s' if num > 1 else ''} on the Pareto front: {shown}{more}"


def _lack(progress: Progress) -> str:
    return "no feasible trial yet" if is_none_feasible(progress) else ""


def _feasible(scene: Scene) -> Iterator[Line]:
    """Yield how many trials of an experiment with constraints keep them, or what they miss."""
    if not (constraints := scene.progress.constraints):
        return
    num = sum(is_feasible(trial, constraints) for trial in scene.trials)
    kept = f"{num} of {len(scene.trials)} trials keep {', '.join(map(str, constraints))}"
    why = why_none_feasible(scene.trials, constraints)
    yield line((printable(why or kept), "bold" if why else ""), is_whole=True)


def _best_configuration(progress: Progress) -> Iterator[Line]:
    if progress.best is None and progress.front:
        yield Line(((f"{_front(progress)} ({_objective(progress)})", "bold"),), is_whole=True)
    if progress.best is None:
        return
    metric = printable(progress.metric or "")
    found = (f"best trial {progress.best.trial_id} ({progress.mode} {metric})", "bold")
    ever = f"best {_evaluation(progress.best_ever)}" if progress.best_ever else ""
    yield line(found, f"last {_evaluation(progress.best_last)}", ever, is_whole=True)
    params = {show(name, 40): show(value, 200) for name, value in progress.best_config.items()}
    size = max(map(len, params), default=0)
    yield from (
        Line((f"{GAP}{name:{size}}{GAP}{value}",), is_whole=True) for name, value in params.items()
    )


def _evaluation(evaluation: Evaluation | None) -> str:
    """Return a value, with the iteration in which it was reported if known."""
    if evaluation is None:
        return "-"
    value = show(evaluation.value)
    return value if evaluation.iteration is None else f"{value} (iter {evaluation.iteration})"


def _params_of(progress: Progress, trial: Trial) -> list[str]:
    params = progress.best_config
    names = differing(unique([*progress.running, *progress.leaders, trial]))
    return [f"{show(name)}={show(params[name])}" for name in names if name in params]


def _num_trials(progress: Progress) -> str:
    total = "" if progress.num_total is None else f"/{progress.num_total}"
    return f"{progress.num_finished}{total} trials"


def _state_counts(progress: Progress) -> list[Part]:
    count = progress.num_trials_by_status
    states = {
        "running": count.get(Status.RUNNING, 0),
        "paused": count.get(Status.PAUSED, 0),
        "pending": count.get(Status.PENDING, 0),
        "completed": count.get(Status.TERMINATED, 0)
        - progress.num_stopped_early
        - progress.num_interrupted,
        TerminationReason.STOPPED_EARLY.word: progress.num_stopped_early,
        "interrupted": progress.num_interrupted - progress.num_not_started,
        "not started": progress.num_not_started,
        "failed": count.get(Status.ERROR, 0),
    }
    return [
        (f"{name} {num}", "red" if name == "failed" else "") for name, num in states.items() if num
    ]


def _resources(progress: Progress) -> Iterator[str]:
    if progress.num_nodes is not None:
        yield "1 node" if progress.num_nodes == 1 else f"{progress.num_nodes} nodes"
    for name, amount in progress.capacity.items():
        if amount:
            yield f"{resource_name(name)} {progress.used.get(name, 0):g}/{amount:g}"
