"""How the subcommands that run trials end: the command of the best one, errors, the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from tuner.analysis.result_grid import ResultGrid
from tuner.callbacks.formatting import printable
from tuner.command import Command
from tuner.driver.signals import has_failed
from tuner.errors import CannotPause, MetricNotReported
from tuner.tuner import Tuner

from .app import FOUND, OK
from .dry_run import line_of

_MAX_COMMANDS: Final = 5
_OPTIONS: Final = {
    "give RunConfig(resources=...), or a cluster=...": "give --total-resources, or a --cluster",
    "set max_concurrent_trials": "set --max-concurrent",
    "with max_concurrent_trials=1": "with --max-concurrent 1",
    "pass that one, start an experiment with another name, or continue this one with "
    "Tuner.restore(..., allow_other_trainable=True)": "run that one, or choose another --name",
    "report one with each result at which it may be paused, or use a scheduler that only stops, "
    'e.g. ASHAScheduler(type="stopping")': "have the program save into TUNER_CHECKPOINT_DIR before "
    "each result at which it may be paused, or leave out --checkpoints and take asha, which then "
    "stops trials for good, under another --name",
}


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn errors of a declaration, and of a metric that is never reported, into the command's.

    Raises:
        click.UsageError: If the declaration cannot be run.
        click.ClickException: If no trial has reported the metric, or none can be paused.
    """
    try:
        yield
    except MetricNotReported as error:
        what, _, _ = str(error).partition("\n")
        raise click.ClickException(
            f"{what}; have the program report it, or name another --metric or --constraint, and "
            "add --resume, which keeps what has been reported"
        ) from error
    except CannotPause as error:
        raise click.ClickException(_in_options(" ".join(str(error).split()))) from error
    except (ImportError, TypeError, ValueError) as refusal:
        raise click.UsageError(_in_options(str(refusal))) from refusal


def fit_and_show(make: Callable[[], Tuner], command: Command) -> int:
    """Run the trials, print the command of the best one, and return the exit code.

    Args:
        make: Returns the experiment.
        command: Its command.
    """
    with told_in_one_line():
        grid = make().fit()
    _show_best(grid, command)
    return FOUND if has_failed(grid.trials, "") else OK


def _show_best(grid: ResultGrid, command: Command) -> None:
    """Print the command of the best trial, if there is one."""
    if not (grid.trials and grid.objectives):
        return
    try:
        several = grid.get_best_results()[:_MAX_COMMANDS] if len(grid.objectives) > 1 else ()
        found = [*several] or [grid.get_best_result()]
    except (RuntimeError, ValueError):
        return  # no trial has reported the metric, or none is feasible
    which = "commands of trials on the Pareto front" if several else "command of the best trial"
    click.echo(f"{which}:")
    for best in found:
        click.echo(f"    {printable(line_of(command, best.config))}")
        if not command.names_all:
            click.echo(f"with the configuration\n    {json.dumps(best.config, default=str)}")


def _in_options(message: str) -> str:
    """Return a message of the engine with options in the place of Python's arguments."""
    for argument, option in _OPTIONS.items():
        message = message.replace(argument, option)
    return message
