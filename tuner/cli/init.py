"""``tuner init``: write a sweep file for a program, to begin with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from tuner.command.sweeps.first_sweep import first_sweep
from tuner.command.sweeps.sweep_file import ENDINGS
from tuner.storage.disk import require_parent, write_text

from .app import OK
from .arguments import CommandOfAnother

_FILE: Final = "sweep.yaml"
_OUT: Final = "-"


@click.command("init", cls=CommandOfAnother)
@click.argument(
    "script",
    required=False,
    type=click.Path(path_type=Path),
    metavar="[SCRIPT] [-- COMMAND...]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write, .yaml or .toml; sweep.yaml beside SCRIPT by default, - to print it.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def init(words: Sequence[str], script: Path | None, output: str | None, *, force: bool) -> int:
    """Write a commented sweep file for a program, for tuner run.

    SCRIPT is a Python script. It is read, and not run: its options, as it declares them by
    argparse, click or typer, become parameters with domains around their defaults, and what it
    prints or reports becomes the metric. What is to be added is marked TODO.

    COMMAND is the command to train with, if that is not python SCRIPT, or for a program that is no
    Python: in its words, {lr} stands for the parameter lr, and {args} for all of them.

    \b
    Examples:
      tuner init train.py
      tuner init train.py -o digits.toml -- torchrun --nproc-per-node 2 train.py
      tuner init -- ./train --lr {lr} --width {width}
    """
    if script is None and not words:
        raise click.UsageError(
            "there is no program to write a sweep file for; name a Python script, or write the "
            "command behind --"
        )
    if script is not None and not script.is_file():
        raise click.UsageError(
            f"there is no script {str(script)!r}; write a command that is no script behind --"
        )
    target = Path(output) if output else (script.parent if script else Path()) / _FILE
    name = _FILE if output == _OUT else str(target)
    if not name.endswith(ENDINGS):
        raise click.UsageError(f"FILE must end in {', '.join(ENDINGS)}, or be -, got {output!r}")
    try:
        text = first_sweep(script, words, file=name)
    except ValueError as refusal:
        raise click.UsageError(str(refusal)) from refusal
    if output == _OUT:
        click.echo(text, nl=False)
        return OK
    if target.exists() and not force:
        raise click.UsageError(
            f"{str(target)!r} exists; overwrite it with --force, or name another file with -o"
        )
    try:
        require_parent(target)
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from error
    write_text(target, text)
    num_todo = text.count("TODO")
    todo = f"edit {'its line' if num_todo == 1 else f'its {num_todo} lines'} with TODO, then "
    click.echo(f"{target} is written; {todo if num_todo else ''}try it: {_dry_run(target)}")
    return OK


def _dry_run(target: Path) -> str:
    return f"tuner run {shlex.quote(str(target))} --dry-run"
