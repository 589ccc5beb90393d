"""``tuner rerun``: train one trial again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tuner.analysis.open_experiment import read_stored
from tuner.command.command import recorded_command
from tuner.maintenance.rerun import require_own_checkpoints
from tuner.restore.resume_command import launch_of, rerun_value
from tuner.restore.shell_requests import RERUN
from tuner.storage.origin import address_of
from tuner.tuner import rerun as train_again

from .app import FOUND, OK
from .arguments import experiment_argument, find_trial, remove_copies, trial_argument


@click.command(context_settings={"ignore_unknown_options": True})
@experiment_argument
@trial_argument
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Path of the script, if it was moved.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
def rerun(experiment: Path, trial: str, script: str, arguments: tuple[str, ...]) -> int | None:
    """Train one trial again, alone, with the same seed and configuration.

    Runs the experiment's script with its recorded arguments, or with ARGS, or the command of tuner
    run; instead of the whole experiment it trains this trial, from its first iteration to the end
    of a full training, in a new experiment beside the other. At the end it compares the results
    with the recorded ones. Exits with 1 if the trial fails.

    \b
    Examples:
      tuner rerun digits 3
      tuner rerun digits 3 --script moved/train.py -- --data elsewhere
    """
    by_id = {one.trial_id: one for one in read_stored(experiment).experiment.trials}
    trial_id = find_trial(trial, by_id, experiment)
    try:
        require_own_checkpoints(by_id[trial_id], experiment)
    except ValueError as refusal:
        raise click.UsageError(str(refusal)) from refusal
    if (command := recorded_command(experiment)) and not (script or arguments):
        address = address_of(experiment)
        remove_copies()
        return FOUND if train_again(address, trial_id, command).error else OK
    launch = launch_of(experiment, script, arguments or None)
    if launch is None:
        raise click.UsageError(
            f"no script is recorded for {experiment.name}, which was begun by an older release, "
            f"in a notebook or in an interpreter; give it as --script, or call "
            f"tune.rerun(path, {trial_id!r}, train)"
        )
    if not Path(launch.script).is_file():
        raise click.UsageError(
            f"the script {launch.script!r} does not exist any more; give its new path as --script"
        )
    if launch.withheld:
        raise click.UsageError(
            "an argument of the script looked like a secret and was not recorded; give all its "
            "arguments after --"
        )
    if Path(launch.directory).is_dir():
        os.chdir(launch.directory)
    sys.stdout.flush()
    environment = {**os.environ, RERUN: rerun_value(experiment, trial_id)}
    remove_copies()
    return os.execve(launch.arguments[0], list(launch.arguments), environment)  # noqa: S606
