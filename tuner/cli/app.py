"""The command ``tuner``: its subcommands, its error messages and its exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn, final

import click
from click.shell_completion import CompletionItem

from tuner.errors import TunerError
from tuner.version import __version__

OK: Final = 0
FOUND: Final = 1
"""A problem was found, or there is nothing to show."""
USAGE: Final = 2
"""The command line is invalid, or names no experiment or trial."""
UNREADABLE: Final = 3
"""An experiment cannot be read or changed: it is damaged, in use, or the disk fails."""
INTERRUPTED: Final = 130
"""Ctrl-C; the code that shells expect."""
BROKEN_PIPE: Final = 141
"""The reader of a pipe has closed it; the code that shells report for SIGPIPE."""


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand that has not been imported.

    Attributes:
        section: Heading under which the help lists it.
        module: Its module in this package.
        attribute: Its function there.
        help: Its help, in one line.
    """

    section: str
    module: str
    attribute: str
    help: str


_RUN = "Run experiments"
_LOOK, _SEARCH = "Look at experiments", "Export results"
_STEER, _KEEP = "Control running experiments", "Maintain experiments"

COMMANDS: Final = {
    "run": Subcommand(
        _RUN, "run", "run", "Run a program with many configurations, and find the best one."
    ),
    "init": Subcommand(
        _RUN, "init", "init", "Write a sweep file for a program, from the options of its script."
    ),
    "ls": Subcommand(
        _LOOK, "listing", "list_experiments", "List experiments with their state and best value."
    ),
    "show": Subcommand(
        _LOOK, "trials", "show", "Show the trials of an experiment, or one of them."
    ),
    "best": Subcommand(_LOOK, "trials", "best", "Show the best trials and their configurations."),
    "compare": Subcommand(_LOOK, "trials", "compare", "Compare experiments by their best trials."),
    "explain": Subcommand(
        _LOOK, "explain", "explain", "Explain what happened to a trial, and why."
    ),
    "tail": Subcommand(_LOOK, "explain", "tail", "Show the output of a trial."),
    "nodes": Subcommand(
        _LOOK, "nodes", "nodes", "Show the nodes of a cluster that took part in an experiment."
    ),
    "what-if": Subcommand(
        _LOOK, "export", "what_if", "Replay an experiment's curves through another scheduler."
    ),
    "report": Subcommand(_SEARCH, "export", "report", "Write an HTML report in one file."),
    "export": Subcommand(
        _SEARCH,
        "export",
        "export",
        "Write the table of trials as CSV, JSON or Parquet, or fill a tracker.",
    ),
    "dash": Subcommand(_SEARCH, "dashboard", "dash", "Show an experiment in Optuna's dashboard."),
    "stop": Subcommand(
        _STEER, "control", "stop", "Stop an experiment, or one of its trials for good."
    ),
    "pause": Subcommand(_STEER, "control", "pause", "Pause a trial until it is resumed."),
    "fork": Subcommand(
        _STEER, "control", "fork", "Start a new trial from a checkpoint of another one."
    ),
    "resume": Subcommand(
        _KEEP,
        "resume",
        "resume",
        "Continue an experiment, or print the command that does; resume a paused trial.",
    ),
    "rerun": Subcommand(
        _KEEP,
        "rerun",
        "rerun",
        "Train one trial again, alone, with the same seed and configuration.",
    ),
    "doctor": Subcommand(
        _KEEP, "maintenance", "doctor", "Check an experiment for damage, and say how to repair it."
    ),
    "prune": Subcommand(
        _KEEP,
        "maintenance",
        "prune",
        "Show disk usage, and delete superseded checkpoints.",
    ),
}
"""All subcommands, in the order of the help."""
ALIASES: Final = {"logs": "tail", "log": "tail", "list": "ls"}
"""Names that users of other tools type, and the subcommands they run."""


@final
class App(click.Group):
    """Group that imports a subcommand when it is used and prints each error in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand; None if there is none with this name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"tuner.cli.{entry.module}"), entry.attribute
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that is named, with what follows.

        Raises:
            click.UsageError: If there is none with this name; names similar ones.
        """
        if args and args[0] in ALIASES:
            _, command, rest = super().resolve_command(ctx, [ALIASES[args[0]], *args[1:]])
            return args[0], command, rest  # errors name what the user has typed
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name, entry.help)
                        for name, entry in COMMANDS.items()
                        if entry.section == section
                    ]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the subcommands and options that begin like this."""
        names = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; a closed pipe ends it silently."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            return BROKEN_PIPE
        return code

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *rest: Any,
        **extra: Any,
    ) -> NoReturn:
        """Run the command and end the process; exit codes are the constants of this module."""
        extra["standalone_mode"] = False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", RuntimeWarning)
                warnings.showwarning = _print_warning
                code = super().main(args, prog_name or "tuner", *rest, **extra)
        except click.exceptions.NoArgsIsHelpError as asked:
            asked.show()
            code = asked.exit_code
        except click.Abort:
            code = INTERRUPTED
        except click.ClickException as error:
            code = _print_error(error)
        except (TunerError, OSError, ImportError) as error:
            click.echo(f"tuner: {_one_line(str(error))}", err=True)
            code = UNREADABLE
        sys.exit(code if isinstance(code, int) else OK)


def _print_error(error: click.ClickException) -> int:
    """Print an error in one line, and return the exit code."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context else "tuner"
    message = _one_line(error.format_message()).rstrip(".")
    hint = (
        f"; see {name} --help" if isinstance(error, click.UsageError) and ";" not in message else ""
    )
    click.echo(f"{name}: {message}{hint}", err=True)
    return error.exit_code


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"tuner: {_one_line(str(message))}", err=True)


def _one_line(text: str) -> str:
    from tuner.callbacks.formatting import printable  # noqa: PLC0415  (only errors need it)

    return printable(" ".join(text.split()))


def _discard_output() -> None:
    """Discard buffered output, since the reader has closed the pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command(
    "tuner",
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tuner")
def main() -> None:
    """Run, inspect and manage experiments.

    EXP is the directory of an experiment, its name under the default storage path,
    ~/tuner_results, or its URL in an object store, such as s3://bucket/dir/name. TRIAL is the id of
    a trial, the beginning of one, or its number: 3 means t00003. The experiment may be running.

    Exit codes: 0 success, 1 a problem was found or there is nothing to show, 2 the command line is
    invalid, 3 an experiment cannot be read or changed, 130 Ctrl-C.
    """
