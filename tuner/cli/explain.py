"""``tuner explain`` and ``tail``: the history and the output of a trial."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tuner.analysis.explain import explain_end, explain_trial
from tuner.analysis.node_history import read_nodes
from tuner.analysis.open_experiment import read_stored
from tuner.analysis.shortfalls import why_trial_never_compared
from tuner.callbacks.formatting import printable
from tuner.core.near_misses import why_infeasible
from tuner.core.progress import why_waiting
from tuner.journal.reader import read
from tuner.storage import layout
from tuner.storage.disk import open_file
from tuner.storage.lock import driver_of
from tuner.storage.origin import is_copy
from tuner.stores.readable_copy import refresh

from .app import FOUND, OK
from .arguments import (
    experiment_argument,
    find_trial,
    is_external,
    readable_argument,
    trial_argument,
    trial_folders,
)
from .control import optional_trial_argument
from .experiment_tables import open_grid
from .plain_output import PlainOutput

_POLL_S: Final = 0.2
_STORE_POLL_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 16
_FILES: Final = {"stdout": layout.STDOUT, "stderr": layout.STDERR, "error": layout.ERROR}


@click.command()
@experiment_argument
@optional_trial_argument
def explain(experiment: Path, trial: str | None) -> int:
    """Explain what happened to a trial, and why; without TRIAL, why the experiment has ended.

    Each decision is shown with the numbers that it was based on: rungs and cut-offs, pauses and
    promotions, exploits, attempts and how they ended.

    \b
    Example:
      tuner explain digits 3
    """
    stored = read_stored(experiment)
    if trial is None:
        click.echo(printable(explain_end(stored)))
        return OK
    settings = stored.experiment.settings
    by_id = {one.trial_id: one for one in stored.experiment.trials}
    chosen = by_id[find_trial(trial, by_id, experiment)]
    why = settings.retries.why_given_up(chosen)
    history = read_nodes(experiment)[1] if any(chosen.nodes) else None
    metric = settings.metric
    for line in explain_trial(chosen, read(experiment), metric, why, history):
        click.echo(printable(line))
    if stored.driver and (why := why_waiting(stored.experiment, chosen)):
        click.echo(f"it {printable(why)}")
    if why := why_infeasible(chosen, settings.constraints):
        click.echo(f"infeasible: {printable(why)}")
    if why := why_trial_never_compared(chosen, experiment):
        click.echo(printable(why))
    return OK


@click.command()
@readable_argument
@trial_argument
@click.option(
    "-n",
    "--lines",
    "num_lines",
    type=click.IntRange(min=0),
    default=10,
    metavar="N",
    help="The number of lines to begin with; 10 by default.",
)
@click.option("-f", "--follow", is_flag=True, help="Continue until the experiment ends, or Ctrl-C.")
@click.option(
    "--file",
    "kinds",
    type=click.Choice([*_FILES]),
    multiple=True,
    help="The file to show; stdout and stderr by default.",
)
@click.option(
    "--rank",
    "ranks",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Of which worker, if several train the trial; of all by default.",
)
def tail(
    experiment: Path,
    trial: str,
    num_lines: int,
    kinds: Sequence[str],
    ranks: Sequence[int],
    *,
    follow: bool,
) -> int:
    """Show the output of a trial: what its training code has printed.

    It is in the files stdout and stderr of the trial's directory, for all attempts together; error
    has the tracebacks. If several workers train the trial, these files are those of rank 0, and
    stdout.rank1 is that of rank 1. If several files have output, a line names the file. In an
    object store is what was printed until a minute ago. Control characters are escaped; colours
    pass.

    \b
    Examples:
      tuner tail digits 3
      tuner tail digits 3 -f --file stderr
      tuner tail digits 3 --rank 1
    """
    directory = _directory_of(experiment, trial)
    names = [_FILES[kind] for kind in kinds or ("stdout", "stderr")]
    files: dict[Path, _Tail] = {}
    shown = _Shown()
    for path in _outputs(directory, names, ranks):
        files[path] = _Tail(path)
        shown.write(files[path], files[path].last_lines(num_lines), is_last=not follow)
    while follow:
        is_driven = driver_of(experiment) is not None
        for path in _outputs(directory, names, ranks):
            file = files.setdefault(path, _Tail(path))  # a worker may start later
            shown.write(file, file.news(), is_last=not is_driven)
        if not is_driven:
            break
        if is_copy(experiment):
            time.sleep(_STORE_POLL_S)
            refresh(experiment, directory.name)
        else:
            time.sleep(_POLL_S)
    if not shown.has_shown:
        click.echo(
            f"{click.get_current_context().command_path}: {directory.name} has printed nothing",
            err=True,
        )
    return OK if shown.has_shown or follow else FOUND


def _outputs(directory: Path, names: Sequence[str], ranks: Sequence[int]) -> list[Path]:
    """Return the files of these names, of all workers or of some."""
    return [
        directory / layout.of_rank(name, rank)
        for name in names
        for rank in layout.ranks_of(directory, name)
        if not ranks or rank in ranks or name == layout.ERROR
    ]


def _directory_of(experiment: Path, trial: str) -> Path:
    if is_copy(experiment):
        # Nothing of a trial is in the store in its first minute but its results.
        ids = [one.trial_id for one in read_stored(experiment).experiment.trials]
        return experiment / find_trial(trial, ids, experiment)
    if not is_external(experiment):
        return experiment / find_trial(trial, trial_folders(experiment), experiment)
    folders = {one.trial_id: one.local_path for one in open_grid(experiment).trials}
    return Path(folders[find_trial(trial, folders, experiment)])


class _Tail:
    """Reads a file that may still be written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = PlainOutput()
        self._offset = 0

    def last_lines(self, num_lines: int) -> bytes:
        """Return the last lines; later calls of `news` continue after them."""
        try:
            with open_file(self.path) as file:
                self._offset = end = file.seek(0, os.SEEK_END)
                return b"".join(_backwards(file.fileno(), end, num_lines))
        except FileNotFoundError:
            return b""

    def news(self) -> bytes:
        """Return what was added; everything if the file was replaced."""
        try:
            with open_file(self.path) as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return b""
        self._offset += len(added)
        return added


def _backwards(descriptor: int, end: int, num_lines: int) -> Iterator[bytes]:
    """Yield the last lines of a file, reading no more than necessary."""
    start, found = end, b""
    # The line break at the very end belongs to the last line.
    while start > 0 and found.rstrip(b"\n").count(b"\n") < num_lines and num_lines:
        start = max(0, start - _CHUNK_BYTES)
        found = os.pread(descriptor, end - start, start)
    yield from found.splitlines(keepends=True)[-num_lines:] if num_lines else ()


class _Shown:
    """Writes the output of several files, with a heading when the file changes."""

    def __init__(self) -> None:
        self._last: Path | None = None

    @property
    def has_shown(self) -> bool:
        """Whether anything has been written."""
        return self._last is not None

    def write(self, file: _Tail, data: bytes, *, is_last: bool) -> None:
        """Write output of a file."""
        text = file.output.text_of(data, is_last=is_last)
        if not text:
            return
        if self._last != file.path and (self._last is not None or file.path.name != layout.STDOUT):
            click.echo(f"==> {file.path.name} <==")
        self._last = file.path
        # As bytes: the terminal may have no letters but those of ASCII.
        click.echo(text.encode(), nl=False)
        sys.stdout.flush()
