"""`Sweep`: what is declared of the search for the best command line, and the `Tuner` it makes.

Files and flags declare the same keys, in the same words. Each of their values is checked by itself
where it was read, so that a message can tell file and line; here they are put together.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import schedulers
from schedulers.by_name import scheduler_class
from schedulers.scheduler import Scheduler
from searchers.by_name import create_searcher
from searchers.searcher import Searcher
from searchers.space import Float, Integer, Space, is_grid, is_word, leaves
from searchers.space.domains import Domain
from tuner.cluster.cluster import Cluster
from tuner.command.command import Command
from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION
from tuner.spec.config import AUTO, FailureConfig, RunConfig, TuneConfig
from tuner.spec.default_algorithms import NO_END, chosen
from tuner.stopping.stop_search import StopSearch

from .space_text import dotted, space_of, value_of
from .sweep_values import TYPE

_ALGORITHMS: Final = ("scheduler", "searcher")
_WITHOUT_METRIC: Final = frozenset({"fifo", "random", "variant_generator", "pbt_replay"})
_PAUSING: Final = frozenset(
    {
        "HyperBandForBOHB",
        "HyperBandScheduler",
        "MFPopulationBasedTraining",
        "PB2",
        "PatientPopulationBasedTraining",
        "PopulationBasedTraining",
        "PopulationBasedTrainingReplay",
        "ResourceChangingScheduler",
    }
)
"""Schedulers that pause trials, or copy them, whatever they are told."""
_HOW_TO_SAVE: Final = (
    "have the program save into the directory TUNER_CHECKPOINT_DIR, and say so by checkpoints: "
    "true (--checkpoints)"
)
_PROMOTES: Final = (
    "{} pauses trials and promotes the best of them later, since the program saves checkpoints."
)
_STOPS: Final = (
    "{} stops trials for good, since the program saves no checkpoints; with --checkpoints it "
    "pauses them, and promotes the best later."
)


@final
@dataclass(frozen=True, slots=True)
class Given:
    """What a file, or the flags of a command line, say of a sweep.

    Attributes:
        values: Checked values by their keys, see `checked`; of ``space`` by paths.
        places: Where each key was given, such as ``sweep.yaml:3`` or ``--metric``.
        remarks: Sentences for the user.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    def overridden_by(self, other: Given) -> Given:
        """Return what both say; where they differ, the other one counts.

        Of mappings, such as the space, single entries are overridden, and so are the arguments of
        a scheduler or searcher, unless another one is named.
        """
        values = dict(self.values)
        for key, value in other.values.items():
            before = values.get(key)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                is_other = key in _ALGORITHMS and value.get(TYPE, before[TYPE]) != before[TYPE]
                values[key] = value if is_other else {**before, **value}
            else:
                values[key] = value
        return Given(values, {**self.places, **other.places}, [*self.remarks, *other.remarks])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The declaration of a sweep; each field is a key of a file, and a flag of ``tuner run``.

    Attributes:
        command: The command, see `Command`.
        space: The search space, nested.
        where: The relation that its configurations satisfy, see `Space`; None for none.
        name: See `RunConfig`.
        metric: See `TuneConfig`, as for `mode`, `constraints`, `num_samples` and `seed`.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; a list for
            several metrics.
        constraints: What a trial has to keep to be the best one.
        num_samples: How many trials; None for one, where nothing is sampled.
        scheduler: Arguments of the scheduler, and its short name as ``type``; None for the default.
        searcher: The same of the searcher.
        max_t: How many iterations a full training takes, at which trials end.
        points: Configurations to begin with.
        report: See `Command`, as for all others up to `allow_unused`.
        report_file: A file with results.
        progress: The metric that counts iterations.
        checkpoints: Whether the program saves its state.
        shell: Whether the command is a line for a shell.
        env: Further variables.
        variables: Whether parameters are variables as well.
        cwd: The working directory.
        grace_s: How long the program has to end.
        allow_unused: Whether parameters may be used nowhere in the command.
        cpus: How many CPUs each trial occupies.
        gpus: How many GPUs each trial occupies.
        resources: Further resources that each trial occupies.
        total_resources: Total resources of the experiment, see ``RunConfig.resources``.
        stop: When a trial ends, see `RunConfig`.
        max_concurrent: How many trials run at once.
        max_failures: How often a failed trial is tried again.
        time_limit: How many seconds the sweep may take in all.
        stop_search: When the search ends early, see `TuneConfig`.
        budget: What the sweep may spend, see `TuneConfig`.
        trial_time_limit: How many seconds a trial may train, and take for each report.
        storage: Where the experiment is stored, see ``RunConfig.storage_path``.
        cluster: The cluster on which trials run; None for this machine.
        if_exists: See `RunConfig`.
    """

    command: str | Sequence[str]
    space: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None
    name: str | None = None
    metric: str | list[str] | None = None
    mode: Any = None
    constraints: Mapping[str, str | Sequence[str]] | None = None
    num_samples: int | None = None
    scheduler: Mapping[str, Any] | None = None
    searcher: Mapping[str, Any] | None = None
    max_t: float | None = None
    points: Sequence[Mapping[str, Any]] = ()
    report: Sequence[str] = ()
    report_file: str | None = None
    progress: str | None = AUTO
    checkpoints: bool = False
    shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    variables: bool = False
    cwd: str | None = None
    grace_s: float | None = None
    allow_unused: bool = False
    cpus: float | None = None
    gpus: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    total_resources: Mapping[str, float] = field(default_factory=dict)
    stop: Mapping[str, Any] = field(default_factory=dict)
    max_concurrent: int | None = None
    max_failures: int = 0
    time_limit: float | None = None
    stop_search: StopSearch | Literal["auto", "never"] | None = None
    budget: Mapping[str, float] | None = None
    trial_time_limit: float | None = None
    storage: str | None = None
    cluster: Cluster | None = None
    seed: int | None = None
    if_exists: Any = "error"

    @classmethod
    def of(cls, given: Given) -> Sweep:
        """Return the sweep that was declared.

        Raises:
            ValueError: If something is missing, or does not fit together.
        """
        values, places = dict(given.values), given.places
        if "command" not in values:
            raise ValueError(
                "there is no command to run; write it behind --, as in tuner run -p "
                "'lr=loguniform(1e-5,1e-1)' -- python train.py --lr {lr}, or as command: in a file"
            )
        try:
            values["space"] = space_of(values.get("space", {}).items())
        except ValueError as error:
            raise ValueError(f"{places.get('space', 'the space')}: {error}") from error
        if values.get("where") is not None:
            try:
                values["space"] = Space(values["space"], values["where"])
            except ValueError as error:
                raise ValueError(f"{places['where']}: {error}") from error
        if values.get("shell") and not isinstance(values["command"], str):
            values["command"] = " ".join(values["command"])
        sweep = cls(**values)
        sweep._check_objective(places)
        sweep._check_number()
        return sweep

    def _check_objective(self, places: Mapping[str, str]) -> None:
        if self.metric is not None and self.mode is None:
            raise ValueError(
                f"{places['metric']}: the metric {self.metric!r} needs a mode; add mode: min or "
                "max (--mode), depending on which values are better"
            )
        if self.mode is not None and self.metric is None:
            raise ValueError(
                f"{places['mode']}: the mode {self.mode!r} needs a metric; add metric: NAME "
                "(--metric)"
            )
        for key in ("scheduler", "searcher"):
            given: Mapping[str, Any] | None = getattr(self, key)
            if given is None:
                continue
            if TYPE not in given:
                raise ValueError(
                    f"{places[key]}: {', '.join(given)} needs the name of a {key}; add --{key} NAME"
                )
            is_blind = given[TYPE] in _WITHOUT_METRIC or {"metric", "metrics"} & given.keys()
            if self.metric is None and not is_blind:
                raise ValueError(
                    f"{places[key]}: {given[TYPE]} compares trials, and needs to know by which "
                    "metric; add metric: NAME and mode: min or max (--metric, --mode)"
                )

    def _check_number(self) -> None:
        sampled = [
            dotted(path)
            for path, leaf in leaves(dict(self.space))
            if is_word(leaf) and not is_grid(leaf)
        ]
        if self.num_samples is None and sampled:
            raise ValueError(
                f"values of {', '.join(sampled)} are drawn, but the number of trials is not given; "
                "add num_samples: 20 (-n 20), or -1 for any number"
            )

    def trainable(self) -> Command:
        """Return the command.

        Raises:
            ValueError: If it is not found, or a part of it is wrong.
        """
        grace = {} if self.grace_s is None else {"grace_s": self.grace_s}
        requested = {
            "cpu": 1.0 if self.cpus is None else self.cpus,
            **({} if self.gpus is None else {"gpu": self.gpus}),
            **self.resources,
        }
        is_usual = self.cpus is self.gpus is None and not self.resources
        return Command(
            self.command,
            report=self.report,
            report_file=self.report_file,
            progress=self.progress,
            checkpoints=self.checkpoints,
            shell=self.shell,
            environ=self.env,
            variables=self.variables,
            cwd=self.cwd,
            allow_unused=self.allow_unused,
            resources=None if is_usual else requested,
            **grace,
        )

    def arguments(self) -> tuple[dict[str, Any], list[str]]:
        """Return the arguments of `Tuner`, and remarks on what was chosen.

        Raises:
            ValueError: If scheduler, searcher and command do not fit together.
            TypeError: If scheduler or searcher have no such argument.
            ImportError: If a library that the searcher needs is not installed.
        """
        command = self.trainable()
        scheduler, remarks = self._scheduler(command)
        searcher = self._searcher()
        tune = TuneConfig(
            metric=self.metric,
            mode=self.mode,
            constraints=self.constraints,
            num_samples=1 if self.num_samples is None else self.num_samples,
            scheduler=scheduler,
            search_alg=searcher,
            max_concurrent_trials=self.max_concurrent,
            time_budget_s=self.time_limit,
            stop_search=self.stop_search,
            budget=self.budget,
            seed=self.seed,
        )
        run = RunConfig(
            name=self.name,
            storage_path=self.storage,
            stop=self._stop() or None,
            resources=self.total_resources or None,
            cluster=self.cluster,
            if_exists=self.if_exists,
            failure_config=FailureConfig(
                max_failures=self.max_failures, report_timeout_s=self.trial_time_limit
            ),
        )
        if self.points and searcher in (None, AUTO):
            choice = chosen(tune, run, self.space, command)
            kind: Any = type(choice.searcher)
            tune = replace(
                tune,
                scheduler=choice.scheduler,
                search_alg=kind(points_to_evaluate=self.points),
            )
        arguments = {
            "trainable": command,
            "param_space": self.space,
            "tune_config": tune,
            "run_config": run,
        }
        return arguments, remarks

    def _searcher(self) -> Searcher | str | None:
        given = dict(self.searcher or {})
        if not given or given == {TYPE: AUTO}:
            return given.get(TYPE)
        if self.points:
            given.setdefault("points_to_evaluate", self.points)
        return create_searcher(given.pop(TYPE), **given)

    def _stop(self) -> dict[str, Any]:
        stop = dict(self.stop)
        if self.trial_time_limit is not None:
            stop.setdefault(TIME_TOTAL_S, self.trial_time_limit)
        if self.max_t is not None and "max_t" not in self._scheduler_parameters():
            stop.setdefault(TRAINING_ITERATION, self.max_t)
        return stop

    def _scheduler_parameters(self) -> Iterable[str]:
        kind = (self.scheduler or {}).get(TYPE, AUTO)
        return () if kind == AUTO else inspect.signature(scheduler_class(kind)).parameters

    def _scheduler(self, command: Command) -> tuple[Scheduler | str | None, list[str]]:
        """Return the scheduler, and what to say about it."""
        if self.scheduler is None or self.scheduler[TYPE] == AUTO:
            return (None if self.scheduler is None else AUTO), []
        given = dict(self.scheduler)
        short = given.pop(TYPE)
        kind = scheduler_class(short)
        if kind.__name__ in _PAUSING and not command.saves:
            raise ValueError(
                f"the scheduler {short!r} pauses trials and continues them, which this program "
                f"cannot; {_HOW_TO_SAVE}, or take asha, which then stops trials"
            )
        remarks = []
        parameters = inspect.signature(kind).parameters
        if "max_t" in parameters:
            given |= self._max_t(kind, given)
        if kind in (schedulers.ASHAScheduler, schedulers.MOASHAScheduler):
            given["type"] = "promotion" if command.saves else "stopping"
            remarks.append((_PROMOTES if command.saves else _STOPS).format(short))
        for argument, of_space in (
            ("hyperparam_mutations", _mutations),
            ("hyperparam_bounds", _bounds),
        ):
            if argument in parameters:
                own = given.get(argument)
                given[argument] = of_space(self.space) if own is None else _with_domains(own)
        missing = [
            name
            for name, one in parameters.items()
            if one.default is one.empty
            and name not in given
            and one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        if missing:
            raise ValueError(
                f"the scheduler {short!r} needs {', '.join(missing)}; write scheduler: {{type: "
                f"{short}, {missing[0]}: ...}} (--scheduler-arg {missing[0]}=...)"
            )
        return schedulers.create_scheduler(short, **given), remarks

    def _max_t(self, kind: type[Scheduler], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return where trials end, if the scheduler is not told: at the limit, or else nowhere."""
        if self.max_t is not None or "max_t" in given:
            return {} if self.max_t is None else {"max_t": self.max_t}
        limit = self.stop.get(TRAINING_ITERATION)
        if isinstance(limit, int | float) and given.get("time_attr") in (None, TRAINING_ITERATION):
            return {"max_t": limit}
        if kind in (schedulers.ASHAScheduler, schedulers.MOASHAScheduler):
            return {"max_t": NO_END, "stop_last_trials": False}
        raise ValueError(
            f"{kind.__name__} needs to know how many iterations a full training takes; add "
            "max_t: 27 (--max-t 27), for example"
        )


def _mutations(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that a population may change: what is sampled."""
    return space_of((path, leaf) for path, leaf in leaves(dict(space)) if isinstance(leaf, Domain))


def _bounds(space: Mapping[str, Any]) -> dict[str, Any]:
    return space_of(
        (path, [leaf.lower, leaf.upper])
        for path, leaf in leaves(dict(space))
        if isinstance(leaf, Float | Integer)
    )


def _with_domains(value: Any) -> Any:
    """Return mutations with domains in the place of texts."""
    if isinstance(value, Mapping):
        return {key: _with_domains(inner) for key, inner in value.items()}
    return value_of(value) if isinstance(value, str) else value
