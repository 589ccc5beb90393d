"""The foot of the page: how the experiment was declared, with what it was run, and how to declare it again."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from tuner.analysis.as_code import as_code, expression
from tuner.analysis.charts.data.source import Source
from tuner.analysis.charts.style import direction
from tuner.errors import StorageError
from tuner.storage.declaration import read_declaration, read_environments
from tuner.storage.version_info import RELEASE_KEY

_MAX_PACKAGES: Final = 40
_MAX_SHORT: Final = 40
_LONG: Final = ' class="long"'


def setup_section(source: Source) -> str:
    """Return searcher, scheduler, seed, space, versions and date of an experiment, and code that declares it again.

    Empty where the directory does not tell, as that of another program.
    """
    try:
        declaration = read_declaration(Path(source.experiment_path))
    except StorageError:
        return ""
    sessions = read_environments(Path(source.experiment_path))
    facts = [*_declared(source, declaration), *_recorded(sessions[-1] if sessions else {})]
    items = "".join(
        f"<div{_LONG if len(text) > _MAX_SHORT else ''}><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in facts
        if text
    )
    # A scheduler that gives trials other resources while they run is declared itself.
    is_changing = "ResourceChangingScheduler" in expression(
        (declaration.get("tune_config") or {}).get("scheduler")
    )
    code = escape(
        as_code(declaration, () if is_changing else [trial.resources for trial in source.trials])
    )
    return (
        f'<section id="setup" class="wide"><h2>How it was searched</h2><dl class="params setup">{items}</dl>'
        '<details><summary>How to reproduce it</summary><p class="note">The same code with the same seed proposes the same '
        "configurations. Whether training itself repeats is up to the training code: seed it with the seed of the trial's context.</p>"
        f'<div class="code"><button class="more copy" type="button" data-copy="code">Copy code</button><pre id="code">{code}</pre></div>'
        "</details></section>"
    )


def _declared(source: Source, declaration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tune, trainable = declaration.get("tune_config") or {}, declaration.get("trainable") or {}
    yield (
        "Objectives" if source.several else "Objective",
        ", ".join(f"{metric}{direction(mode)}" for metric, mode in source.objectives),
    )
    yield "Searcher", expression(tune.get("search_alg"))
    yield "Scheduler", expression(tune.get("scheduler"))
    yield "Seed", str(declaration.get("seed", ""))
    yield "Samples asked for", str(declaration.get("num_samples", ""))
    stop = (declaration.get("run_config") or {}).get("stop")
    yield "Stop", "" if stop is None else expression(stop)
    yield (
        "Training code",
        f"{trainable.get('qualname')} in {trainable.get('module')}" if trainable else "",
    )
    yield "Begun", _date(declaration.get("created"))
    yield "Version of tuner-hpo", str(declaration.get(RELEASE_KEY, ""))


def _recorded(session: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield with what the latest session was run, as far as that was recorded."""
    yield "Python", str((session.get("python") or {}).get("version") or "")
    yield "Platform", str(session.get("platform") or "")
    if script := session.get("script"):
        command = ["-m", session["module"]] if session.get("module") else [script]
        yield (
            "Command",
            shlex.join(["python", *map(str, [*command, *(session.get("arguments") or ())])]),
        )
    git = session.get("git") or {}
    yield (
        "Git commit",
        f"{git.get('commit')}{', with uncommitted changes' if git.get('dirty') else ''}"
        if git.get("commit")
        else "",
    )
    packages = session.get("packages") or {}
    more = len(packages) - _MAX_PACKAGES
    listed = ", ".join(
        f"{name} {version}" for name, version in list(packages.items())[:_MAX_PACKAGES]
    )
    yield "Packages", f"{listed} and {more} more" if more > 0 else listed


def _date(created: Any) -> str:
    try:
        return (
            dt.datetime.fromisoformat(str(created))
            .astimezone(dt.UTC)
            .strftime("%Y-%m-%d %H:%M UTC")
        )
    except ValueError:
        return ""
