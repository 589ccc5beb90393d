"""``tuner export --to mlflow``, ``wandb``, ``comet`` and ``tensorboard``: trackers filled later."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import click

from tuner.callbacks.formatting import printable
from tuner.callbacks.trackers.tracker import EXPORT_OPTIONS, TrackerCallback
from tuner.callbacks.trackers.tracker_queue import without_password
from tuner.errors import TunerError
from tuner.storage.origin import is_copy

from .app import OK, UNREADABLE
from .arguments import is_external, named_value

TENSORBOARD: Final = "tensorboard"
TRACKERS: Final = (*EXPORT_OPTIONS, TENSORBOARD)
_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "tracking_uri": ("URI", "mlflow: where runs are kept; MLFLOW_TRACKING_URI by default."),
    "experiment_name": ("NAME", "mlflow: the MLflow experiment; by default the name of EXP."),
    "project": ("NAME", "wandb, comet: the project; by default the name of EXP."),
    "group": ("NAME", "wandb: the group of the runs; by default the name of EXP."),
    "entity": ("NAME", "wandb: the user or team."),
    "workspace": ("NAME", "comet: the workspace."),
    "mode": ("MODE", "wandb, comet: online or offline."),
    "dir": ("DIR", "The directory for files of wandb and comet offline, or for event files."),
}


@final
class _Failed(click.ClickException):
    exit_code = UNREADABLE


def tracker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of trackers to a command, passed as the argument `tracker`."""

    @functools.wraps(function)
    def with_options(**given: Any) -> Any:
        tracker = {name: given.pop(name) for name in (*_OPTIONS, "arguments")}
        return function(tracker=tracker, **given)

    wrapped: Callable[..., Any] = click.option(
        "--arg",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        help="Another argument of the tracker's callback, as JSON or text.",
    )(with_options)
    for name, (metavar, text) in reversed(list(_OPTIONS.items())):
        option = f"--{name.replace('_', '-')}"
        kind = click.Choice(("online", "offline")) if name == "mode" else None
        wrapped = click.option(option, name, type=kind, metavar=metavar, help=text)(wrapped)
    return wrapped


def check_no_tracker(kind: str, tracker: Mapping[str, Any]) -> None:
    """Check that no option of a tracker is given with another format.

    Raises:
        click.UsageError: If one is.
    """
    if given := _given(tracker):
        raise click.UsageError(
            f"--{given[0].replace('_', '-')} is for --to {', '.join(TRACKERS)}, got --to {kind}"
        )


def export_to_tracker(experiment: Path, kind: str, tracker: Mapping[str, Any]) -> int:
    """Fill a tracker with an experiment, and return the exit code."""
    fitting = {TENSORBOARD: frozenset({"dir"}), **EXPORT_OPTIONS}[kind]
    allowed = fitting if kind == TENSORBOARD else fitting | {"arguments"}
    if others := [name for name in _given(tracker) if name not in allowed]:
        option = "arg" if others[0] == "arguments" else others[0].replace("_", "-")
        known = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(fitting))
        raise click.UsageError(f"--to {kind} takes {known}, got --{option}")
    if kind == TENSORBOARD:
        return _to_event_files(experiment, tracker["dir"])
    if is_copy(experiment) and tracker["mode"] == "offline" and not tracker["dir"]:
        raise click.UsageError(
            "--mode offline of an experiment in a store needs a place; give --dir"
        )
    given = {name: tracker[name] for name in fitting if tracker[name] is not None}
    return _to_runs(experiment, _callback(kind, given | _parsed(tracker["arguments"])))


def _given(tracker: Mapping[str, Any]) -> list[str]:
    return [name for name, value in tracker.items() if value not in (None, ())]


def _parsed(arguments: Sequence[str]) -> dict[str, Any]:
    return dict(named_value(text, "--arg") for text in arguments)


def _callback(kind: str, given: Mapping[str, Any]) -> TrackerCallback:
    from tuner.maintenance.tracker_export import CALLBACKS  # noqa: PLC0415

    try:
        return CALLBACKS[kind](**given)
    except (TypeError, ValueError) as refusal:
        raise click.UsageError(str(refusal)) from refusal


def _to_runs(experiment: Path, callback: TrackerCallback) -> int:
    from tuner.maintenance.tracker_export import fill_tracker  # noqa: PLC0415

    num = 0
    try:
        for _ in fill_tracker(experiment, callback):
            num += 1
            if sys.stderr.isatty():
                click.echo(f"\r{num} trials", nl=False, err=True)
    except (TunerError, ImportError):
        raise
    except Exception as error:
        cause = without_password(f"{type(error).__name__}: {error}")
        raise _Failed(
            f"{callback.product} has {num} trials, and then failed ({printable(cause)}); when that "
            "is mended, the same command adds the others"
        ) from error
    if num and sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    click.echo(f"{callback.product} has all results of {num} trials")
    return OK


def _to_event_files(experiment: Path, directory: str | None) -> int:
    if directory is None and (is_copy(experiment) or is_external(experiment)):
        raise click.UsageError("--to tensorboard needs a directory for its files here; give --dir")
    from tuner.maintenance.tracker_export import fill_event_files  # noqa: PLC0415

    target = None if directory is None else Path(directory).absolute()
    num = len(fill_event_files(experiment, target))
    click.echo(f"{num} event files written; tensorboard --logdir {target or experiment}")
    return OK
