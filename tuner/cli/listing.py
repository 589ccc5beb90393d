"""``tuner ls``: experiments with their state and best trial."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from tuner.analysis.explain import why_search_ended
from tuner.callbacks.formatting import duration, printable
from tuner.core.experiment import Experiment
from tuner.core.near_misses import is_none_feasible
from tuner.core.progress import Progress
from tuner.core.trial import Status
from tuner.maintenance.status import (
    ExperimentStatus,
    experiments_under,
    status_in_store,
    status_of,
)
from tuner.storage.urls import is_like_url, path_in, split_url
from tuner.stores.checked_url import checked_url
from tuner.stores.readable_copy import experiments_in_store

from .app import FOUND, OK
from .arguments import default_storage
from .output import Column, Output, Record, output_option, spent
from .selection import Selection, selection_options

_DAY_S: Final = 86_400


def _age(seconds: Any) -> str:
    return f"{seconds / _DAY_S:.0f}d" if seconds >= 2 * _DAY_S else duration(seconds)


def _spent(budget: Any) -> str:
    return ", ".join(
        f"{amounts['spent']:.4g}/{amounts['limit']:g} {printable(unit)}"
        for unit, amounts in budget.items()
    )


def _whole(text: Any) -> str:
    return printable(str(text))


_COLUMNS: Final = (
    Column("name", text=_whole),
    Column("state"),
    Column("trials", text=_whole),
    Column("best_trial", "best trial", rank=2, beside="metric"),
    Column("metric", rank=1, text=_whole),
    Column("last", rank=1, beside="metric"),
    Column("best", rank=2, beside="metric"),
    Column("best_iteration", "at iter", rank=3, beside="best"),
    Column("failed", rank=3),
    Column("elapsed_s", "run for", spent, rank=2),
    Column("budget", "spent", _spent, rank=2),
    Column("age_s", "changed", lambda seconds: f"{_age(seconds)} ago", rank=1),
    Column("remark", text=_whole, rank=4),
)


@click.command("ls")
@click.argument("path", required=False)
@selection_options
@output_option
def list_experiments(path: str | None, chosen: Selection, output: Output) -> int:
    """List the experiments at or under PATH with state and best trial, newest change first.

    The best trial is the one whose last value of the metric is best; best is the best value that
    this trial has reported. PATH is a directory, or a URL such as s3://bucket/dir, and defaults to
    the default storage path. States: running (a driver
    holds the experiment), finished, interrupted (it can be continued) and damaged (tuner doctor
    says more). Nothing is changed, and running experiments are not delayed.

    \b
    Examples:
      tuner ls
      tuner ls runs --filter "state == running" --filter "changed < 1h"
      tuner ls -f json | jq '.[].best'
    """
    place, found = _found_in_store(path) if path and is_like_url(path) else _found_under(path)
    records = sorted(found, key=lambda record: record["age_s"])
    if not records:
        click.echo(f"tuner ls: there are no experiments in {place}", err=True)
    chosen.write(records, _COLUMNS, output)
    return OK if records else FOUND


def _found_under(path: str | None) -> tuple[str, Iterator[Record]]:
    root = (Path(path) if path else default_storage()).expanduser()
    if path is not None and not root.is_dir():
        raise click.UsageError(f"PATH must be a directory or a URL, got {str(root)!r}")
    return str(root), (
        _record(
            status_of(found),
            found.relative_to(root).as_posix() if found != root else found.name,
            str(found.absolute()),
        )
        for found in experiments_under(root)
    )


def _found_in_store(given: str) -> tuple[str, Iterator[Record]]:
    try:
        root = checked_url("PATH", given)
    except ValueError as refusal:
        raise click.UsageError(str(refusal)) from refusal
    return root, (
        _record(
            status_in_store(url),
            path_in(url, root) if url != root else split_url(url)[1],
            url,
        )
        for url in experiments_in_store(root)
    )


def _record(status: ExperimentStatus, name: str, path: str) -> Record:
    record: dict[str, Any] = {"name": name, "state": str(status.state)}
    if status.stored is None:
        return {
            **record,
            "age_s": status.age_s,
            "path": path,
            "remark": status.damage,
        }
    progress = status.stored.progress()
    objectives = status.stored.experiment.settings.objectives
    best, last, ever = progress.best, progress.best_last, progress.best_ever
    total = "" if progress.num_total is None else f"/{progress.num_total}"
    return {
        **record,
        "trials": f"{progress.num_finished}{total}",
        "best_trial": best.trial_id if best else None,
        "metric": ", ".join(f"{mode} {metric}" for metric, mode in objectives) or progress.metric,
        "last": last.value if last else None,
        "last_iteration": last.iteration if last else None,
        "best": ever.value if ever else None,
        "best_iteration": ever.iteration if ever else None,
        "running": progress.num_trials_by_status.get(Status.RUNNING, 0),
        "failed": progress.num_trials_by_status.get(Status.ERROR, 0) or None,
        "elapsed_s": progress.elapsed_s,
        "budget": {
            use.unit: {"spent": use.spent_at(progress.elapsed_s), "limit": use.limit}
            for use in progress.budgets
        }
        or None,
        "age_s": status.age_s,
        "created": _local(status.stored.declaration.get("created")),
        "path": path,
        **({"remark": remark} if (remark := _remark(progress, status.stored.experiment)) else {}),
    }


def _remark(progress: Progress, experiment: Experiment) -> str:
    """Return what takes the place of a best trial, if there is none, and why the search ended."""
    front = f"{len(progress.front)} on the Pareto front" if progress.front else ""
    lack = "no feasible trial" if is_none_feasible(progress) else ""
    return "; ".join(filter(None, [front, lack, why_search_ended(experiment)]))


def _local(created: Any) -> str | None:
    try:
        return dt.datetime.fromisoformat(str(created)).astimezone().isoformat(timespec="seconds")
    except ValueError:
        return None
