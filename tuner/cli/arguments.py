"""Arguments of commands: experiments by directory or name, trials by id, prefix or number."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, final

import click
from click.shell_completion import CompletionItem

from tuner.cluster.cluster import Cluster, cluster_at
from tuner.storage import layout
from tuner.storage.declaration import is_experiment
from tuner.storage.urls import is_like_url, split_url
from tuner.stores.object_store import ObjectStore
from tuner.stores.readable_copy import ReadableCopy

BEHIND: Final = "write a command and its options behind --, as in ... -- python train.py"
_MAX_LISTED: Final = 5
_FIRST: Final = "t00000"


@final
class CommandOfAnother(click.Command):
    """A subcommand whose last arguments, behind ``--``, are the words of another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what is before ``--``; the words behind it become the parameter ``words``."""
        end = args.index("--") if "--" in args else len(args)
        ctx.params["words"] = args[end + 1 :]
        try:
            return super().parse_args(ctx, args[:end])
        except click.BadParameter:
            raise
        except click.UsageError as error:
            if end < len(args):
                raise
            told = error.format_message().rstrip(".")
            raise click.UsageError(f"{told}; {BEHIND}", ctx) from error


def default_storage() -> Path:
    """Return the default storage path of experiments."""
    return Path(layout.DEFAULT_STORAGE_PATH).expanduser()


def is_external(path: Path) -> bool:
    """Return whether a directory holds Ray Tune's experiment, or only files of trials."""
    return not is_experiment(path) and (
        any(path.glob(layout.RAY_STATES)) or any(path.glob(f"*/{layout.RESULTS}"))
    )


_copies: Final[list[ReadableCopy]] = []
"""Copies of experiments in object stores; each is removed at the end of the command."""


def local_copy(url: str) -> Path:
    """Return a directory with a copy of an experiment in an object store, to be read.

    Raises:
        click.BadParameter: If the URL is none, or names no experiment.
        StorageError: If the store cannot be read.
    """
    try:
        copy = ReadableCopy(url)
        if ObjectStore(copy.url).get_if_exists(layout.DECLARATION) is None:
            above = split_url(copy.url)[0]
            raise click.BadParameter(
                f"there is no experiment in {url!r}; tuner ls {shlex.quote(above)} lists the "
                "experiments there"
            )
    except ValueError as refusal:
        raise click.BadParameter(str(refusal)) from refusal
    _copies.append(copy)
    return copy.directory


def remove_copies() -> None:
    """Remove the copies that have been made, before the process is replaced by another."""
    while _copies:
        _copies.pop().close()


@final
class ExperimentType(click.ParamType[Path]):
    """The directory of an experiment, its name under the default storage path, or its URL.

    Of an experiment in an object store, this is the directory of a copy; `origin_of` tells.

    Args:
        allow_external: Accept directories of Ray Tune as well, and those of which only the trials'
            files are left.
    """

    name = "experiment"

    def __init__(self, *, allow_external: bool = False) -> None:
        self._allow_foreign = allow_external

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the directory, absolute."""
        if isinstance(value, str) and is_like_url(value):
            return local_copy(value)
        given = Path(value).expanduser()
        for candidate in (given, default_storage() / given):
            if self._is_one(candidate):
                return candidate.absolute()
        what = (
            f"there is no experiment {str(given)!r}, here or in {default_storage()}; tuner ls "
            f"lists the experiments"
        )
        if is_external(given):
            what = (
                f"{str(given)!r} has no journal; only tuner show, best, compare, tail, report, "
                f"export and dash can read it"
            )
        elif given.is_dir():
            what = f"{str(given)!r} holds no experiment; tuner ls {given} lists those below it"
        raise click.BadParameter(what, ctx, param)

    def _is_one(self, path: Path) -> bool:
        return is_experiment(path) or (self._allow_foreign and is_external(path))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return matching names in the default storage path; the shell adds directories."""
        found = (
            default_storage().glob(f"{incomplete}*")
            if incomplete.isprintable() and "/" not in incomplete
            else ()
        )
        names = sorted(path.name for path in found if is_experiment(path))
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="dir")]


@final
class TrialType(click.ParamType[str]):
    """A trial of the experiment in the argument before it; `find_trial` returns its id."""

    name = "trial"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the ids that begin like this."""
        try:
            experiment = ExperimentType(allow_external=True).convert(
                ctx.params.get("experiment") or "", None, None
            )
        except click.UsageError:
            return []
        return [
            CompletionItem(name)
            for name in trial_folders(experiment)
            if name.startswith(incomplete)
        ]


experiment_argument: Final[Callable[..., Any]] = click.argument(
    "experiment", type=ExperimentType(), metavar="EXP"
)
readable_argument: Final[Callable[..., Any]] = click.argument(
    "experiment", type=ExperimentType(allow_external=True), metavar="EXP"
)
trial_argument: Final[Callable[..., Any]] = click.argument(
    "trial", type=TrialType(), metavar="TRIAL"
)


@final
class ClusterType(click.ParamType[Cluster]):
    """A cluster: ``ray:ADDRESS``, ``dask:ADDRESS`` or ``dask:FILE``, or what only one can mean."""

    name = "ADDRESS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Cluster:
        """Return the cluster, to which nothing connects yet."""
        if isinstance(value, Cluster):
            return value
        try:
            return cluster_at(str(value))
        except (TypeError, ValueError) as refusal:
            raise click.BadParameter(str(refusal), ctx, param) from refusal


def trial_folders(experiment: Path) -> list[str]:
    """Return the names of the directories of an experiment's trials."""
    own = {*layout.FOLDERS_WITH_STAGING, layout.OBJECTS, layout.REQUESTS}
    return sorted(
        path.name
        for path in experiment.iterdir()
        if path.is_dir() and path.name not in own and not path.name.startswith(".")
    )


def find_trial(text: str, trial_ids: Iterable[str], experiment: Path) -> str:
    """Return the id of the trial that the user means.

    Args:
        text: Its id, a unique beginning of it, or its number.
        trial_ids: The ids of all trials.
        experiment: The experiment, for the message.

    Raises:
        click.UsageError: If no trial or several match.

    Example:
        >>> find_trial("3", ["t00002", "t00003"], Path("digits"))
        't00003'
    """
    ids = list(trial_ids)
    number = int(text) if text.isdecimal() else -1
    for candidate in (text, f"t{number:05d}"):
        if candidate in ids:
            return candidate
    meant = [trial_id for trial_id in ids if trial_id.startswith(text)]
    if not meant and 0 <= number < len(ids) and _FIRST not in ids:
        meant = [ids[number]]  # ids of Ray Tune hold no number
    if len(meant) == 1:
        return meant[0]
    what = (
        f"{text!r} is the beginning of {len(meant)} trials"
        if meant
        else f"there is no trial {text!r} in {experiment.name}"
    )
    raise click.UsageError(
        f"{what}; {'they are' if meant else 'there are'} {_listed(meant or ids)}"
    )


def named_value(text: str, option: str) -> tuple[str, Any]:
    """Return name and value of ``NAME=VALUE``; the value is parsed as JSON if possible, else text.

    Raises:
        click.UsageError: If it has another form; names the option.

    Example:
        >>> named_value("max_t=27", "--arg"), named_value("mode=max", "--arg")
        (('max_t', 27), ('mode', 'max'))
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"{option} must be NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def mapping_of(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Return names and values of several ``NAME=VALUE``; those of variables stay texts.

    Raises:
        click.UsageError: If one has another form.
        ValueError: If a name is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, value = named_value(text, flag)
        if name in found:
            raise ValueError(f"{flag} {name} is given twice; give it once")
        found[name] = text.partition("=")[2] if flag == "--env" else value
    return found


def _listed(ids: list[str]) -> str:
    shown = ", ".join(ids[:_MAX_LISTED]) or "none"
    return f"{shown}, ... ({len(ids)} in all)" if len(ids) > _MAX_LISTED else shown
