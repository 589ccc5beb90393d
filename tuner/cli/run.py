"""``tuner run``: search for the best command line of any program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import click
from click.shell_completion import CompletionItem

from schedulers.by_name import scheduler_names
from searchers.by_name import searcher_names
from tuner.command.sweeps.space_text import assignment, dotted
from tuner.command.sweeps.sweep import Given, Sweep
from tuner.command.sweeps.sweep_keys import given_by_file
from tuner.command.sweeps.sweep_values import TYPE, checked
from tuner.restore.shell_requests import RERUN, RESUME
from tuner.spec.config import IF_EXISTS, MODES, RunConfig
from tuner.spec.experiment_location import named_location
from tuner.tuner import Tuner

from .app import OK
from .arguments import BEHIND, ClusterType, CommandOfAnother, mapping_of
from .dry_run import show_dry_run
from .sweep_end import fit_and_show, told_in_one_line


@final
class _NameType(click.ParamType[str]):
    """A name, which the shell completes; it is checked together with what a file says."""

    name = "NAME"

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin like this."""
        return [CompletionItem(name) for name in self._known if name.startswith(incomplete)]


def _options(*options: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds options, in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _several(flag: str, metavar: str, text: str, *others: str) -> Callable[..., Any]:
    return click.option(*others, flag, multiple=True, metavar=metavar, help=text)


_what: Final = _options(
    click.option(
        "--name",
        metavar="NAME",
        help="Name of the experiment, by default the program's and a date.",
    ),
    click.option(
        "-n", "--num-samples", type=int, metavar="N", help="How many trials; -1 for no limit."
    ),
    _several(
        "--param",
        "NAME=DOMAIN",
        "A parameter: uniform(0,1), loguniform(1e-5,1e-1), randint(1,9), choice(a,b,c), "
        "grid_search(1,2), or a constant. Nested ones are written model.width=...",
        "-p",
    ),
    click.option(
        "--where",
        metavar="RELATION",
        help="What configurations satisfy, e.g. 'low < high and depth * width <= 4096'.",
    ),
    _several(
        "--metric",
        "NAME",
        "What to optimise, as the program reports it; several for a trade-off.",
    ),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        multiple=True,
        help="Which values of the metric are better; one for each of several metrics, or for all.",
    ),
    _several(
        "--constraint",
        "COMPARISON",
        "What the best trial has to keep, e.g. 'size_mb <= 4' or 'accuracy >= 0.8'.",
    ),
    click.option(
        "--scheduler",
        type=_NameType(("auto", *scheduler_names())),
        help="Which trials are stopped early, e.g. asha; a default is chosen without it.",
    ),
    click.option(
        "--max-t",
        type=float,
        metavar="N",
        help="How many iterations (reports, or epochs) a full training takes.",
    ),
    _several("--scheduler-arg", "NAME=VALUE", "Another argument of the scheduler."),
    click.option(
        "--searcher",
        type=_NameType(searcher_names()),
        help="Where configurations come from, e.g. random; a model of the results by default.",
    ),
    _several("--searcher-arg", "NAME=VALUE", "An argument of the searcher."),
)
_how: Final = _options(
    _several(
        "--report",
        "REGEX",
        "A regular expression with a named group for each metric, searched for in each line of "
        "output: 'loss=(?P<loss>[0-9.e+-]+)'.",
    ),
    click.option(
        "--report-file", metavar="FILE", help="A CSV or JSON-lines file that the program writes."
    ),
    click.option(
        "--progress",
        metavar="NAME",
        help="The metric that counts iterations; epoch or step by default, none for none.",
    ),
    click.option(
        "--checkpoints",
        is_flag=True,
        help="The program saves into TUNER_CHECKPOINT_DIR and continues from TUNER_RESUME_DIR.",
    ),
    click.option("--shell", is_flag=True, help="COMMAND is one line for the shell."),
    _several("--env", "NAME=VALUE", "A variable of the program's environment."),
    click.option(
        "--variables", is_flag=True, help="Give parameters as variables, too: TUNER_PARAM_LR."
    ),
    click.option(
        "--allow-unused", is_flag=True, help="Parameters need not be named in the command."
    ),
    click.option("--cwd", metavar="DIR", help="The program's working directory."),
    click.option(
        "--grace-s", type=float, metavar="S", help="How long the program has to end; 5 seconds."
    ),
)
_where: Final = _options(
    click.option("--cpus", type=float, metavar="N", help="CPUs of each trial; 1 by default."),
    click.option("--gpus", type=float, metavar="N", help="GPUs of each trial, e.g. 2 or 0.5."),
    _several("--resources", "NAME=N", "Another resource that each trial occupies."),
    _several("--total-resources", "NAME=N", "How much there is of a resource, e.g. cpu=4."),
    _several("--stop", "METRIC=LIMIT", "End a trial where a metric reaches a value."),
    click.option("--max-concurrent", type=int, metavar="N", help="How many trials run at once."),
    click.option(
        "--max-failures", type=int, metavar="N", help="How often a failed trial is tried again."
    ),
    click.option("--time-limit", metavar="TIME", help="Time for the whole sweep, e.g. 1h30m."),
    click.option(
        "--stop-search",
        metavar="auto|N",
        help="End the search when further trials would gain too little, or N trials in a row have "
        "gained nothing.",
    ),
    _several("--budget", "UNIT=N", "What the sweep may spend: gpu_hours=20, iterations=5000."),
    click.option("--trial-time-limit", metavar="TIME", help="Time for each trial, e.g. 10m."),
    click.option(
        "--storage", metavar="DIR|URL", help="Where to store it; ~/tuner_results by default."
    ),
    click.option("--cluster", type=ClusterType(), help="Run trials on a Ray or Dask cluster."),
    click.option("--seed", type=int, metavar="N", help="Seed of everything random."),
    click.option(
        "--if-exists",
        type=click.Choice(IF_EXISTS),
        help="What to do if there is an experiment of this name.",
    ),
)


@click.command("run", cls=CommandOfAnother)
@click.argument(
    "sweep",
    required=False,
    type=click.Path(path_type=Path),
    metavar="[SWEEP] [-- COMMAND...]",
)
@_what
@_how
@_where
@click.option("--resume", is_flag=True, help="Continue the experiment of this name, if there is.")
@click.option("--dry-run", is_flag=True, help="Show the first commands, and start nothing.")
def run(
    words: Sequence[str], sweep: Path | None, *, resume: bool, dry_run: bool, **flags: Any
) -> int:
    """Run a program with many configurations, and find the best one.

    COMMAND is what is run for each trial. In its words, {lr} stands for the parameter lr, {args}
    for all parameters as --lr 0.01 --width 64, {hydra} for all as lr=0.01 width=64, and {json} for
    a file with all of them, which the variable TUNER_CONFIG names as well.

    The program reports by tuner.report(...) if it is in Python, or by lines of JSON in the file
    that TUNER_REPORT names; or its output or a file that it writes is read (--report,
    --report-file).

    SWEEP is a YAML or TOML file. Its keys are the options below with _ for -, and command, space
    (a mapping of names to domains), constraints (a mapping of metrics to comparisons) and points.
    Options override what it says. tuner init writes
    one for a script; those of W&B are read as well, as far as they have a meaning here.

    Exits with 1 if all trials have failed.

    \b
    Examples:
      tuner run --name digits -n 50 -p 'lr=loguniform(1e-5,1e-1)' -p 'width=choice(64,128)'
          --metric val_loss --mode min -- python train.py --lr {lr} --width {width}
      tuner run sweep.yaml --dry-run
      tuner run sweep.yaml -n 100 --resume
    """
    if sweep and not sweep.is_file():
        raise click.UsageError(f"there is no file {str(sweep)!r}; {BEHIND}")
    with told_in_one_line():
        given = given_by_file(sweep) if sweep else Given()
        declared = Sweep.of(given.overridden_by(_given_by_flags(words, flags)))
        arguments, remarks = declared.arguments()
        remarks = [*given.remarks, *remarks]
        _check_name(arguments["run_config"], is_resumed=resume)
        if dry_run:
            show_dry_run(declared, arguments, remarks)
            return OK
        tuner = Tuner(**arguments, resume="auto" if resume else None)
    for remark in remarks:
        click.echo(remark)
    return fit_and_show(lambda: tuner, arguments["trainable"])


def _given_by_flags(words: Sequence[str], flags: Mapping[str, Any]) -> Given:
    """Return what the options declare, each checked."""
    values: dict[str, Any] = {"command": list(words)} if words else {}
    places = {"command": "COMMAND"}
    for key, value in flags.items():
        if value is None or value is False or value == ():
            continue
        flag = f"--{key.replace('_', '-')}"
        if key == "param":
            values["space"] = _space_of(value)
            places["space"] = flag
        elif key == "constraint":
            values["constraints"] = checked("constraints", list(value), flag)
            places["constraints"] = flag
        elif key in ("scheduler_arg", "searcher_arg"):
            algorithm = key.removesuffix("_arg")
            named = {} if flags[algorithm] is None else {TYPE: flags[algorithm]}
            values[algorithm] = named | mapping_of(value, flag)
            places[algorithm] = flag
        elif key not in values:
            given = mapping_of(value, flag) if key in _MAPPINGS else value
            values[key] = checked(key, list(given) if isinstance(given, tuple) else given, flag)
            places[key] = flag
    return Given(values, places)


_MAPPINGS: Final = ("budget", "env", "resources", "stop", "total_resources")


def _space_of(texts: Iterable[str]) -> dict[Any, Any]:
    space: dict[Any, Any] = {}
    for text in texts:
        try:
            path, value = assignment(text)
        except ValueError as error:
            raise ValueError(f"--param: {error}") from error
        if path in space:
            raise ValueError(f"--param: {dotted(path)} is given twice; give it once")
        space[path] = value
    return space


def _check_name(config: RunConfig, *, is_resumed: bool) -> None:
    """Check that there is an experiment to resume, or none in the way, by its name.

    Raises:
        ValueError: If that is not so.
    """
    if config.name is None and is_resumed:
        raise ValueError("--resume needs the name of the experiment to continue; add --name NAME")
    if config.name is None or is_resumed or config.if_exists != "error":
        return
    if os.environ.keys() & {RERUN, RESUME}:
        return  # tuner rerun has started this
    location = named_location(config)
    if location.has_experiment():
        name = shlex.quote(location.address)
        raise ValueError(
            f"there is an experiment {config.name!r} in {location.address}; continue it with "
            f"--resume or tuner resume {name}, run this one beside it with --if-exists new, remove "
            "it with --if-exists replace, or choose another --name"
        )
