"""``tuner resume``: continue an experiment, or a paused trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tuner.analysis.explain import why_search_ended
from tuner.analysis.open_experiment import read_stored
from tuner.callbacks.formatting import printable
from tuner.command.command import Command, recorded_command
from tuner.command.sweeps.sweep_values import checked
from tuner.maintenance.status import State, state_of
from tuner.restore.resume_command import launch_of, recorded_snippet
from tuner.restore.shell_requests import RESUME
from tuner.spec.environment import WITHHELD
from tuner.storage.origin import address_of
from tuner.tuner import Tuner

from .app import FOUND, OK
from .arguments import ClusterType, experiment_argument, mapping_of, remove_copies
from .control import optional_trial_argument, resume_trial
from .sweep_end import fit_and_show, told_in_one_line


@click.command()
@experiment_argument
@optional_trial_argument
@click.option(
    "-n", "--num-samples", type=int, metavar="N", help="How many trials; -1 for no limit."
)
@click.option(
    "--time-limit", metavar="TIME", help="Time for the whole sweep from its start, e.g. 1h30m."
)
@click.option(
    "--stop-search",
    metavar="never|auto|N",
    help="Go on with a search that has ended early; or when it is to end, see tuner run.",
)
@click.option(
    "--budget",
    multiple=True,
    metavar="UNIT=N",
    help="What the sweep may spend from its start: gpu_hours=20.",
)
@click.option("--retry-failed", is_flag=True, help="Try failed trials again.")
@click.option("--cluster", type=ClusterType(), help="Run trials on a Ray or Dask cluster.")
def resume(experiment: Path, trial: str | None, **changes: Any) -> int:
    """Continue an experiment of tuner run; print a command that continues any other one.

    With TRIAL, resume this trial, which was paused, of a running experiment.

    Trials continue from their latest checkpoints. What was declared is kept, but for what the
    options say. They are for experiments of tuner run, and of a tune.Command in Python.

    The command that is printed for any other experiment runs its script with the same arguments;
    TUNER_RESUME makes it continue the experiment instead of beginning another. If the script is not
    known, as after a notebook, a Python program with its imports is printed. The state of the
    experiment, and what has to be filled in, are printed to the standard error. Exits with 1, and
    prints no command to the standard output, if the experiment is running or nothing is left to
    run.

    \b
    Examples:
      tuner resume digits
      tuner resume digits -n 100
      tuner resume digits 3
    """
    given = {name: value for name, value in changes.items() if value not in (None, False, ())}
    with told_in_one_line():
        if "time_limit" in given:
            given["time_limit"] = checked("time_limit", given["time_limit"], "--time-limit")
        if "stop_search" in given:
            given["stop_search"] = checked("stop_search", given["stop_search"], "--stop-search")
        if "budget" in given:
            given["budget"] = checked("budget", mapping_of(given["budget"], "--budget"), "--budget")
    if trial is not None:
        _refuse(given, "to resume one trial")
        resume_trial(experiment, trial)
        return OK
    state = state_of(experiment, read_stored(experiment).experiment)
    if state is State.RUNNING:
        click.echo(f"{state}; {_hint_for(state)}", err=True)
        return FOUND
    with told_in_one_line():
        command = recorded_command(experiment)
    if command is not None:
        return _continued(experiment, command, state, given)
    _refuse(given, "for an experiment of a script, which says what is to be done")
    program, notes = _continuation(experiment)
    if state is not State.FINISHED:
        click.echo(program)
    for line in [*notes, f"{state}; {_hint_for(state)}"]:
        click.echo(line, err=True)
    # Not to the standard output: piped to a shell, it would run without doing anything.
    if state is State.FINISHED:
        click.echo(program, err=True)
        return FOUND
    return OK


def _refuse(given: Mapping[str, Any], where: str) -> None:
    for name in given:
        raise click.UsageError(f"--{name.replace('_', '-')} has no meaning {where}; leave it out")


def _continued(experiment: Path, command: Command, state: State, given: Mapping[str, Any]) -> int:
    """Continue an experiment of a command, and return the exit code."""
    if state is State.FINISHED and not given:
        why = why_search_ended(read_stored(experiment).experiment)
        hint = (
            f"{printable(why)}: give --stop-search never to go on"
            if why
            else "nothing is left to run: give a larger -n, --time-limit or --budget, or "
            "--retry-failed"
        )
        click.echo(f"{state}; {hint}", err=True)
        return FOUND
    address = address_of(experiment)
    remove_copies()  # the experiment itself is continued
    return fit_and_show(
        lambda: Tuner.restore(
            address,
            command,
            resume_errored=given.get("retry_failed", False),
            num_samples=given.get("num_samples"),
            time_budget_s=given.get("time_limit"),
            stop_search=given.get("stop_search"),
            budget=given.get("budget"),
            cluster=given.get("cluster"),
        ),
        command,
    )


def _continuation(experiment: Path) -> tuple[str, Sequence[str]]:
    """Return the command that continues an experiment, and notes for the user."""
    launch = launch_of(experiment)
    if launch and Path(launch.script).is_file():
        note = f"an argument that looked like a secret was not recorded; replace {WITHHELD} by it"
        return launch.shell_line(**{RESUME: address_of(experiment)}), [
            note
        ] if launch.withheld else []
    program, lacking = recorded_snippet(experiment)
    gone = [f"its script {printable(launch.script)} does not exist any more"] if launch else []
    return program, [*gone, *map(printable, lacking)]


def _hint_for(state: State) -> str:
    match state:
        case State.RUNNING:
            return "wait for its driver, or end it, before you continue the experiment"
        case State.FINISHED:
            return (
                "nothing is left to run: raise num_samples=, time_budget_s= or budget=, or pass "
                "stop_search='never' or a resume_config=; then continue it with"
            )
        case _:
            return "trials continue from their latest checkpoints"
