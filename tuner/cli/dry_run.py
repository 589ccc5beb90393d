"""``tuner run --dry-run``: the first commands of a sweep, and what would be used."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from tuner.callbacks.formatting import duration, printable, show
from tuner.command import Command
from tuner.command.sweeps.sweep import Sweep
from tuner.execution.resources import machine_capacity
from tuner.spec.environment import without_secrets
from tuner.spec.experiment_location import named_location, safe_name, storage_root
from tuner.spec.experiment_spec import ExperimentSpec, make_spec
from tuner.stopping.stoppable_search import shown

_NUM_COMMANDS: Final = 5


def show_dry_run(sweep: Sweep, arguments: Mapping[str, Any], remarks: Sequence[str]) -> None:
    """Print the first commands, and what would be used; nothing is started or written.

    Args:
        sweep: The declaration.
        arguments: The arguments of `Tuner` that it makes.
        remarks: What to say about them.

    Raises:
        ValueError: If the declaration does not fit together.
    """
    spec = make_spec(*arguments.values())
    if spec.run.cluster is None:
        spec.check_resources(machine_capacity(spec.run.resources))
    spec.connect()
    command: Command = arguments["trainable"]
    for config in _first_configurations(spec):
        click.echo(printable(line_of(command, config)))
    click.echo()
    facts = dict(_facts(sweep, spec, command))
    width = max(map(len, facts))
    for name, text in facts.items():
        click.echo(f"{name:{width}}  {printable(text)}")
    for remark in filter(None, [spec.remark, *remarks]):
        click.echo(printable(remark))


def line_of(command: Command, config: Mapping[str, Any]) -> str:
    """Return the line of a shell that runs the command for a configuration, without secrets."""
    words = without_secrets(command.words_for(config))
    return words[0] if command.as_record()["shell"] else shlex.join(words)


def _first_configurations(spec: ExperimentSpec) -> Iterator[Mapping[str, Any]]:
    total = spec.searcher.num_trials_for(spec.tune.num_samples)
    for number in range(_NUM_COMMANDS if total is None else min(_NUM_COMMANDS, total)):
        suggested = spec.searcher.suggest(f"t{number:05d}")
        if not isinstance(suggested, Mapping):
            return  # there are no more, or it waits for results
        yield suggested


def _facts(sweep: Sweep, spec: ExperimentSpec, command: Command) -> Iterator[tuple[str, str]]:
    record = command.as_record()
    yield "program", f"{command.__name__}, in {record['cwd']}"
    number = spec.searcher.num_trials_for(spec.tune.num_samples)
    fewer = (
        f", or fewer (stop_search={shown(spec.tune.stop_search)})" if spec.may_stop_search else ""
    )
    yield "trials", f"{'no limit' if number is None else number}{fewer}"
    aims = spec.several_objectives or ((spec.metric, spec.mode),)
    yield "metric", ", ".join(f"{metric} ({mode})" for metric, mode in aims if metric) or "none"
    if spec.constraints:
        yield "constraints", ", ".join(map(str, spec.constraints))
    yield "reports", _reports(record)
    yield "checkpoints", _saving(command)
    if isinstance(spec.run.stop, Mapping):
        yield "stops", ", ".join(f"{name}: {limit}" for name, limit in spec.run.stop.items())
    if sweep.time_limit is not None:
        yield "time limit", duration(sweep.time_limit)
    if sweep.budget:
        yield "budget", ", ".join(f"{amount:g} {unit}" for unit, amount in sweep.budget.items())
    yield "each trial", ", ".join(f"{show(n)} {name}" for name, n in spec.request_for({}).items())
    if spec.run.cluster is not None:
        yield "cluster", spec.run.cluster.describe()
    yield "seed", f"{spec.seed}{'' if sweep.seed is not None else ' (drawn; --seed fixes it)'}"
    yield "stored in", _place_of(spec)


def _reports(record: Mapping[str, Any]) -> str:
    ways = [f"lines of output that match {pattern}" for pattern in record["report"]]
    if record["report_file"]:
        ways.append(f"the file {record['report_file']}")
    return " and ".join(ways) or "tuner.report in Python, or lines of JSON in TUNER_REPORT"


def _saving(command: Command) -> str:
    return (
        "in TUNER_CHECKPOINT_DIR, so trials can be paused and continued"
        if command.saves
        else "none, so trials are stopped for good"
    )


def _place_of(spec: ExperimentSpec) -> str:
    if spec.run.name is not None:
        return named_location(spec.run).address
    root = spec.run.storage_url or os.fspath(storage_root(spec.run))
    return f"{root}/{safe_name(spec.name)}_<date>"
