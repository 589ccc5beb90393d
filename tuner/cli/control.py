"""``tuner stop``, ``pause`` and ``fork``: control of a running experiment."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tuner.analysis.open_experiment import read_stored
from tuner.errors import NotGranted
from tuner.handle import Handle, attach
from tuner.storage.origin import origin_of

from .app import OK
from .arguments import TrialType, experiment_argument, find_trial, named_value, trial_argument

optional_trial_argument = click.argument(
    "trial", type=TrialType(), metavar="[TRIAL]", required=False
)


@click.command()
@experiment_argument
@optional_trial_argument
@click.option(
    "--urgent", is_flag=True, help="Kill the workers of the experiment instead of asking them."
)
def stop(experiment: Path, trial: str | None, *, urgent: bool) -> int:
    """Stop a running experiment, or one of its trials for good.

    An experiment ends as with Ctrl-C: running trials save and end, and it can be restored. A trial
    ends with its next report.

    \b
    Examples:
      tuner stop digits
      tuner stop digits 3
    """
    if trial is None:
        attach(experiment).stop(urgent=urgent)
        click.echo(
            "running trials save and end; tuner resume prints the command that continues them"
        )
        return OK
    handle, trial_id = _attached(experiment, trial)
    _ask(handle.stop_trial, trial_id)
    click.echo(f"{trial_id} ends with its next report, or at once if it is not running")
    return OK


@click.command()
@experiment_argument
@trial_argument
def pause(experiment: Path, trial: str) -> int:
    """Pause a trial of a running experiment until it is resumed.

    With its next report it saves, its worker ends, and its resources become free; a function pauses
    once it has reported a checkpoint. tuner resume EXP TRIAL resumes it.

    \b
    Example:
      tuner pause digits 3
    """
    handle, trial_id = _attached(experiment, trial)
    _ask(handle.pause_trial, trial_id)
    origin = origin_of(experiment)
    name = origin.url if origin else experiment.name
    click.echo(
        f"{trial_id} pauses with its next report; "
        f"tuner resume {shlex.quote(name)} {trial_id} resumes it"
    )
    return OK


@click.command()
@experiment_argument
@trial_argument
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A hyperparameter to change, e.g. model/lr=0.1.",
)
@click.option(
    "--checkpoint",
    type=click.IntRange(min=0),
    metavar="N",
    help="The number of the checkpoint to begin with; the latest by default.",
)
def fork(experiment: Path, trial: str, changes: Sequence[str], checkpoint: int | None) -> int:
    """Start a new trial of a running experiment from a checkpoint of another one.

    The other trial continues unchanged, or may have ended. Prints the id of the new one.

    \b
    Example:
      tuner fork digits 3 --set lr=0.01
    """
    handle, trial_id = _attached(experiment, trial)
    config = dict(named_value(text, "--set") for text in changes)
    click.echo(_ask(handle.fork_trial, trial_id, config, checkpoint=checkpoint))
    return OK


def resume_trial(experiment: Path, trial: str) -> None:
    """Resume a paused trial of a running experiment."""
    handle, trial_id = _attached(experiment, trial)
    _ask(handle.resume_trial, trial_id)
    click.echo(f"{trial_id} resumes as soon as resources are free")


def _attached(experiment: Path, trial: str) -> tuple[Handle, str]:
    """Return a handle of the experiment, and the id of the trial."""
    ids = [one.trial_id for one in read_stored(experiment).experiment.trials]
    return attach(experiment), find_trial(trial, ids, experiment)


def _ask(request: Any, *arguments: Any, **more: Any) -> Any:
    try:
        return request(*arguments, **more)
    except NotGranted as refusal:
        raise click.UsageError(str(refusal)) from refusal
