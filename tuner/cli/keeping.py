"""``tuner prune``, ``doctor`` and ``resume``: looking after experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from tuner.analysis.stored import read_stored
from tuner.loggers.formatting import printable
from tuner.restoration import recorded_line
from tuner.storage.driving import driver_of
from tuner.upkeep.checkup import Finding, Level, check
from tuner.upkeep.pruning import prune as pruned
from tuner.upkeep.standing import State, state_of
from tuner.upkeep.usage import Keep, Usage, sum_of, usage_of

from .app import FOUND, OK, UNREADABLE
from .arguments import experiment_argument
from .output import Column, Output, output_option
from .steering import optional_trial_argument, resume_trial

_UNIT: Final = 1024.0


@click.command()
@experiment_argument
@click.option("--keep-best", type=click.IntRange(min=0), metavar="N", help="Keep the best checkpoint of each of the N best trials.")
@click.option("--keep-last", is_flag=True, help="Keep the latest checkpoint of every trial.")
@click.option("--yes", is_flag=True, help="Delete; without it this only shows what would go.")
@click.option("--dry-run", is_flag=True, help="Only show what would go, which is the default.")
@output_option
def prune(experiment: Path, keep_best: int | None, output: Output, *, keep_last: bool, yes: bool, dry_run: bool) -> int:
    """Show what an experiment takes on the disk, and delete superseded checkpoints and leftovers.

    A checkpoint is kept if one of the --keep options names it; without any of them the latest and the best one of every trial are kept.
    In any case those stay from which an unfinished or failed trial, or another trial, is to go on, so that an experiment can be continued
    as before. Logs, results and the journal are never touched, and nothing is deleted while a driver runs. The journal notes what is
    gone, so tuner explain and Tuner.restore know of it.

    \b
    Examples:
      tuner prune digits
      tuner prune digits --keep-best 3 --yes
    """
    if yes and dry_run:
        raise click.UsageError("--yes and --dry-run must not both be given")
    keep = Keep(keep_best, keep_last)
    try:
        if not yes:
            usage = usage_of(read_stored(experiment), keep, is_driven=driver_of(experiment) is not None)
            _write_usage(usage, output)
            _tell_what_would_go(usage, output)
            return OK
        done = pruned(experiment, keep)
    except ValueError as refusal:
        raise click.UsageError(str(refusal)) from refusal
    _write_usage(done.usage, output)
    if output.kind == "table":
        click.echo(f"deleted {len(done.removed)}, freed {size(done.usage.freed_bytes)}")
    for line in done.kept:
        click.echo(f"tuner prune: could not be deleted: {line}", err=True)
    return UNREADABLE if done.kept else OK


def _tell_what_would_go(usage: Usage, output: Output) -> None:
    if output.kind == "table":
        nothing = not (usage.superseded or usage.leftovers)
        click.echo("nothing is superseded" if nothing else f"--yes deletes what is superseded or left over: {size(usage.freed_bytes)}")


def _write_usage(usage: Usage, output: Output) -> None:
    parts = [
        ("checkpoints kept", len(usage.kept), sum_of(usage.kept)),
        ("checkpoints superseded", len(usage.superseded), sum_of(usage.superseded)),
        ("leftovers", len(usage.leftovers), sum(usage.leftovers.values())),
        ("journal and snapshots", None, usage.state_bytes),
        ("logs and output", None, usage.other_bytes),
        ("all", None, usage.total_bytes),
    ]
    records = [{"what": what, "number": number, "size_bytes": size_bytes} for what, number, size_bytes in parts]
    output.write(records, [Column("what", text=str), Column("number"), Column("size_bytes", "on disk", size)])


def size(size_bytes: Any) -> str:
    """Return a size as people read it.

    Example:
        >>> size(0), size(123_456), size(5 << 30)
        ('0 B', '120.6 KiB', '5.0 GiB')
    """
    amount, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < _UNIT:
            break
        amount, unit = amount / _UNIT, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


@click.command()
@experiment_argument
@click.option("--deep", is_flag=True, help="Read all checkpoints and stored arrays, and compare their contents.")
@output_option
def doctor(experiment: Path, output: Output, *, deep: bool) -> int:
    """Check that an experiment is whole, and say what to do where it is not.

    Looked at are the folder's permissions, the declaration, the lock, every record of the journal, the snapshots, every checkpoint
    against its manifest, leftovers, and the room that is left on the disk. Nothing is changed, and a driver may be at work. Ends with 0
    where all is well and with 1 where anything is damaged or left over.

    \b
    Examples:
      tuner doctor digits
      tuner doctor digits --deep -f json
    """
    findings = check(experiment, is_deep=deep)
    if output.kind == "table":
        _tell(findings)
    else:
        records = [{"subject": one.subject, "level": str(one.level), "what": one.what, "remedy": one.remedy or None} for one in findings]
        output.write(records, ())
    return OK if all(one.level is Level.OK for one in findings) else FOUND


def _tell(findings: Sequence[Finding]) -> None:
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
    width = max(len(one.subject) for one in findings)
    for one in findings:
        click.echo(f"{click.style(f'{one.level:7}', fg=colours[one.level])}  {one.subject:{width}}  {printable(one.what)}")
        if one.remedy:
            click.echo(f"{'':7}  {'':{width}}  -> {printable(one.remedy)}")


@click.command()
@experiment_argument
@optional_trial_argument
def resume(experiment: Path, trial: str | None) -> int:
    """Print the line of Python that continues an experiment.

    With a trial, let that trial go on, which somebody has paused while the experiment runs.

    The training code is not stored, so the line names it and your script has to have it; what else could only be described, functions and
    objects of your own, stands there to be given again. On the standard error stands how the experiment is. Ends with 1 where a plain
    restore would find nothing left to run.

    \b
    Examples:
      tuner resume digits
      tuner resume digits 3
    """
    if trial is not None:
        resume_trial(experiment, trial)
        return OK
    stored = read_stored(experiment)
    click.echo(recorded_line(experiment))
    state = state_of(experiment, stored.experiment)
    code = stored.declaration.get("trainable", {})
    click.echo(f"{state}; {_advice(state)}; trainable: {code.get('qualname')} of module {code.get('module')}", err=True)
    return FOUND if state is State.FINISHED else OK


def _advice(state: State) -> str:
    match state:
        case State.RUNNING:
            return "wait for its driver, or end it, before you continue it"
        case State.FINISHED:
            return "nothing is left to run: raise num_samples= or time_budget_s=, or pass a resume_config= with which trials go on"
        case _:
            return "trials go on from their latest checkpoints"
