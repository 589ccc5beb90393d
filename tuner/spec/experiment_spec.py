"""Specification of an experiment: its declaration, checked and completed with defaults."""

from __future__ import annotations

import copy
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import searchers
from schedulers.fifo import FIFOScheduler
from schedulers.scheduler import Scheduler
from searchers.objectives.outcome_constraint import OutcomeConstraint, outcome_constraints
from searchers.random_search import BasicVariantGenerator
from searchers.searcher import Searcher, pass_search_properties, unwrapped
from searchers.space import flat_name, is_word, leaves
from searchers.space.declared_space import where_of
from searchers.space.foreign_domains import check_no_foreign_domains
from tuner import capabilities
from tuner.core.resources import ResourcePool, gpu_misfit
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import Stopper, stopper_from, unused, users_stoppers
from tuner.core.worker_records import WorkerGroup
from tuner.execution.group_trainable import (
    GroupTrainable,
    TrainableSource,
    checked_group,
    checks_of,
    what_runs,
)
from tuner.execution.trainable import (
    DEFAULT_REQUEST,
    asks_for_labels,
    can_be_saved,
    check_trainable,
    get_trainable,
    is_class_trainable,
    labels_for,
    requests_vary,
    resources_for,
    trainable_name,
)
from tuner.storage.directories import check_working_directory

from .config import (
    NEVER,
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    TuneConfig,
    named_scheduler,
    named_searcher,
)
from .default_algorithms import chosen
from .param_space import RecordedSpace, check_portable, checked_space, warn_of_apparent_domains

if TYPE_CHECKING:
    from .training_config import ValidationConfig

_USED_BY: Final = "_used_by"
"""Attribute of the user's scheduler, searcher or stopper: the run that uses it."""
_INNER: Final = ("searcher", "base_scheduler", "adapted")
"""Attributes of schedulers and searchers that hold the one that they wrap."""
_MANY_SLOTS: Final = 10_000
"""More trials than ever run at once on one machine."""
_CLUSTER_SLOTS: Final = 16
"""How many trials are taken to run at once on a cluster, whose nodes join and leave."""
_MAX_OVERTAKEN_S: Final = 60.0
_MAX_LOSSES: Final = 5
_MIN_PENDING: Final = 16
"""How many trials of a grid or of random samples are suggested ahead at least, as in Ray Tune."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """A trial of another experiment that is run again.

    Attributes:
        experiment: Name of that experiment.
        trial_id: The trial's id there.
        seed: Its seed.
    """

    experiment: str
    trial_id: str
    seed: int


@dataclass(frozen=True, slots=True)
class ExperimentSpec:
    """A checked declaration.

    Attributes:
        trainable: What each trial runs.
        name: The trainable's name.
        space: The search space, as the scheduler completes it.
        declared_space: The search space that was given.
        tune: What to optimise, and how to search.
        run: Where the experiment is stored, and how it is run.
        checkpoint: Which checkpoints are made and kept.
        failure: What happens when a trial fails.
        scheduler: The scheduler, before `connect` without its search properties.
        searcher: The searcher, before `connect` without its search properties.
        stopper: The stop criterion.
        seed: Seed of everything random in the experiment.
        experiment_id: Identifies the experiment; a restored one keeps it.
        remark: Message about algorithms chosen by default; empty for none.
        rerun: The trial of another experiment that this one repeats, None if there is none.
        run_id: Identifies this specification, also among those of the same experiment.
    """

    trainable: Any
    name: str
    space: Mapping[str, Any]
    tune: TuneConfig
    run: RunConfig
    checkpoint: CheckpointConfig
    failure: FailureConfig
    scheduler: Scheduler
    searcher: Searcher
    stopper: Stopper
    seed: int
    experiment_id: str
    declared_space: Mapping[str, Any]
    remark: str = ""
    rerun: Rerun | None = None
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def metric(self) -> str | None:
        """Name of the metric to optimise, from the settings or else from an algorithm.

        None where the settings name several; schedulers may still compare one of them.
        """
        if len(self.tune.objectives) > 1:
            return None
        return self.tune.only_metric or self.scheduler.metric or self.searcher.metric

    @property
    def mode(self) -> str | None:
        """``"min"`` or ``"max"``: its direction, from the settings or else from an algorithm."""
        if len(self.tune.objectives) > 1:
            return None
        # Not the direction of another metric than that.
        parts = (self.scheduler, self.searcher)
        own = (part.mode for part in parts if part.metric in (None, self.metric))
        return self.tune.only_mode or next(filter(None, own), None)

    @property
    def several_objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective where settings or an algorithm have several."""
        if len(self.tune.objectives) > 1:
            return self.tune.objectives
        return next(
            (
                part.objectives
                for part in (self.searcher, self.scheduler)
                if len(part.objectives) > 1
            ),
            (),
        )

    @property
    def constraints(self) -> tuple[OutcomeConstraint, ...]:
        """What a trial has to keep to be the best one, or on the Pareto front.

        It is from the settings or else from the searcher.
        """
        return outcome_constraints(self.tune.constraints) or unwrapped(self.searcher).constraints

    @property
    def validation_config(self) -> ValidationConfig | None:
        """How checkpoints are validated: as the trainer says, or else the settings."""
        return getattr(self.trainable, "validation_config", None) or self.run.validation_config

    def request_for(self, config: Mapping[str, Any]) -> Mapping[str, float]:
        """Return the resources of a trial with this configuration, of all its workers together."""
        group = self.group_for(config)
        return group.total if group else resources_for(self.trainable, config)

    def group_for(self, config: Mapping[str, Any]) -> WorkerGroup | None:
        """Return the workers over which such a trial trains, None for a single process.

        Raises:
            ValueError: If their number or a worker's resources are impossible.
        """
        if not isinstance(self.trainable, GroupTrainable):
            return None
        group = checked_group(self.trainable.group_for(dict(config)))
        if self.run.executor == "inline" and group.max_workers > 1:
            raise ValueError(
                "executor must not be 'inline' for trials that train over several workers, got "
                f"{group.max_workers} workers; use executor='process', or one worker to debug"
            )
        # One machine is what it is, as for Ray Train's scripts that run on any cluster.
        return replace(group, labels={}) if self.run.cluster is None else group

    def labels_for(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what the node of such a trial must have; nothing for a group, which has its own.

        Raises:
            TypeError: If they are no labels.
        """
        is_group = isinstance(self.trainable, GroupTrainable)
        return {} if is_group else labels_for(self.trainable, config)

    def seed_of(self, trial_id: str) -> int:
        """Return the seed of a trial, the same in each attempt."""
        return seed_of_trial(trial_id, self.seed, self.rerun)

    def copy(self) -> ExperimentSpec:
        """Return a copy with a scheduler, searcher and stopper of its own."""
        # In one call, so that an object that two of them share stays one object.
        scheduler, searcher, stopper = copy.deepcopy((self.scheduler, self.searcher, self.stopper))
        return replace(self, scheduler=scheduler, searcher=searcher, stopper=stopper)

    def connect(self) -> None:
        """Give scheduler and searcher their metric, mode, space and seed.

        Raises:
            ValueError: If one of them has another metric or mode than the settings, cannot work
                with the space, or was used by another experiment.
        """
        _check_unused(self)
        goals = {"objectives": self.tune.objectives, "constraints": self.constraints}
        metric, mode = self._objective_for(self.scheduler, self.searcher)
        if not self.scheduler.set_search_properties(
            metric, mode, seed=derived_seed(self.seed, "scheduler"), **goals
        ):
            raise _conflict(self.scheduler, self.tune)
        properties = {
            "seed": derived_seed(self.seed, "searcher"),
            "num_samples": self.tune.num_samples,
            "experiment": self.experiment_id,
            **goals,
        }
        metric, mode = self._objective_for(self.searcher, self.scheduler)
        if not pass_search_properties(self.searcher, metric, mode, self.space, properties):
            raise _refusal(self.searcher, self)
        # Only now: objects that were refused can still be used elsewhere.
        for part in _stateful_parts(self):
            setattr(part, _USED_BY, self.run_id)

    def _objective_for(
        self, part: Scheduler | Searcher, other: Scheduler | Searcher
    ) -> tuple[str | None, str | None]:
        """Return metric and mode of the settings, completed by what only the other part names."""
        metric, mode = self.tune.only_metric, self.tune.only_mode
        is_known = part.objectives or len(self.tune.objectives) > 1
        if is_known or len(other.objectives) > 1:
            return metric, mode
        metric = metric or (other.metric if part.metric is None else None)
        is_same = other.metric in (None, metric or part.metric)
        return metric, mode or (other.mode if part.mode is None and is_same else None)

    def check_resources(self, capacity: Mapping[str, float]) -> None:
        """Check that trials can run with the available resources.

        Args:
            capacity: Total resources; does not count on a cluster, whose nodes are not known yet.

        Raises:
            ValueError: If a trial's resource request can never fit, or nothing limits how many
                trials run at once, or trials ask for labels that there are only on a cluster.
        """
        _check_labels(self)
        resources, group, _ = self._default_request()
        if self.run.cluster is not None:
            if misfit := gpu_misfit(group or resources):
                raise ValueError(f"resources of a trial fit no node: {misfit}")
        elif misfit := ResourcePool(capacity).misfit(group or resources):
            raise ValueError(
                f"resources of a trial never fit: {misfit}, or give RunConfig(resources=...), or a "
                "cluster=... whose nodes have as much"
            )
        if not any(resources.values()) and not self.tune.max_concurrent_trials:
            raise ValueError(
                f"resources {resources} ask for nothing, so that nothing limits how many trials "
                "run; set max_concurrent_trials"
            )
        if self.tune.budget and not requests_vary(self.trainable):
            from .budget import check_spent  # noqa: PLC0415  (few have one)

            policy = self.validation_config.policy if self.validation_config else None
            check_spent(self.tune.budget, resources, policy.resources if policy else {})

    def settings(self, capacity: Mapping[str, float]) -> ExperimentSettings:
        """Return the settings for the core.

        Args:
            capacity: Total resources; does not count on a cluster.

        Raises:
            ValueError: As `check_resources` does.
        """
        # Not always the capacity checked at the start: executors may look again, or simulate one.
        self.check_resources(capacity)
        resources, group, labels = self._default_request()
        max_concurrent, max_trials = (
            self.tune.max_concurrent_trials or None,
            self.searcher.num_trials_for(self.tune.num_samples),
        )
        is_on_cluster = self.run.cluster is not None
        num_slots = (
            min(max_concurrent or _CLUSTER_SLOTS, _CLUSTER_SLOTS)
            if is_on_cluster
            else ResourcePool(capacity).num_fitting(
                group or resources, max_concurrent or _MANY_SLOTS
            )
        )
        is_listed = (
            type(self.searcher) is BasicVariantGenerator
            and not self.searcher.max_concurrent
            and max_trials is not None
            and not self.may_stop_search
        )
        return ExperimentSettings(
            capacity=capacity,
            default_request=resources,
            default_group=group,
            default_labels=labels,
            metric=self.metric,
            mode=self.mode,
            max_trials=max_trials,
            max_concurrent=max_concurrent,
            **self.failure.policies(num_slots),
            time_budget_s=self.tune.budget_s,
            budget=dict(self.tune.budget or {}),
            stop_grace_s=self.failure.stop_grace_s,
            interrupt_grace_s=self.run.interrupt_grace_s,
            report_timeout_s=self.failure.report_timeout_s,
            checkpoints=self.checkpoint.policy(
                is_class=is_class_trainable(self.trainable), can_save=can_be_saved(self.trainable)
            ),
            several_objectives=self.several_objectives,
            constraints=self.constraints,
            is_metric_required=os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING") != "1",
            validation=self.validation_config.policy if self.validation_config else None,
            # Only suggestions that no result can change may be made early, so that users see them.
            max_pending=max(_MIN_PENDING, 2 * num_slots) if is_listed else 0,
            max_overtaken_s=_MAX_OVERTAKEN_S if requests_vary(self.trainable) else None,
            max_losses=self._max_losses,
            max_validation_losses=_MAX_LOSSES,
            preemption_grace_s=float(self.failure.preemption_grace_s) if is_on_cluster else None,
            node_wait_s=float(self.run.node_wait_s) if is_on_cluster else None,
        )

    @property
    def may_stop_search(self) -> bool:
        """Whether the search may end before all samples are drawn."""
        return self.tune.stop_search not in (None, NEVER)

    @property
    def is_searched_at_once(self) -> bool:
        """Whether a suggestion is but a draw: it takes less time than to have a thread make it."""
        return (
            type(self.searcher) is BasicVariantGenerator
            and not self.searcher.calls_functions
            and not requests_vary(self.trainable)
        )

    @property
    def _max_losses(self) -> int:
        allowed = self.failure.max_preemption_failures
        # Without nodes a loss is one of the zygote's, which has nothing to do with preemption.
        return _MAX_LOSSES if allowed == -1 or self.run.cluster is None else allowed + 1

    @property
    def usual_group(self) -> WorkerGroup | None:
        """The workers of a trial if they do not depend on its configuration, None for none."""
        return self._default_request()[1]

    def _default_request(
        self,
    ) -> tuple[Mapping[str, float], WorkerGroup | None, Mapping[str, str]]:
        """Return what a trial asks for if that does not depend on its configuration.

        That are its resources, its workers, and the labels of its node.
        """
        try:
            return self.request_for({}), self.group_for({}), self.labels_for({})
        except Exception:  # noqa: BLE001  (the user's function needs a configuration)
            return DEFAULT_REQUEST, None, {}


def make_spec(
    trainable: Any,
    param_space: Mapping[str, Any] | None,
    tune_config: TuneConfig | None,
    run_config: RunConfig | None,
) -> ExperimentSpec:
    """Return the specification for the user's arguments, checked and completed.

    Raises:
        TypeError: If something has the wrong type.
        ValueError: If a value is out of range or two contradict each other.
        StorageError: If the working directory, in which trials run, has been deleted.
    """
    check_working_directory()  # first, because resolving paths would fail with an obscure error
    given = get_trainable(trainable) if isinstance(trainable, str) else trainable
    if run_config is None and isinstance(given, TrainableSource):
        run_config = getattr(given, "run_config", None)
    trainable = what_runs(given)
    check_trainable(trainable)
    tune = _completed(_checked("tune_config", tune_config, TuneConfig))
    run = _checked("run_config", run_config, RunConfig)
    # Copies of the inner settings as well: the user may change them after this.
    parts = {name: getattr(run, name) for name in ("checkpoint_config", "failure_config")}
    run = replace(run, **{name: replace(part) for name, part in parts.items() if part is not None})
    space = checked_space(param_space)
    # A searcher may have a space of its own, or suggest one configuration, as for a rerun.
    is_elsewhere = not space and isinstance(tune.search_alg, Searcher)
    if (check := checks_of(trainable, "check_space")) and not is_elsewhere:
        check(space)
    if check := checks_of(trainable, "check_run"):
        check(run)
    if check := checks_of(trainable, "check_tune"):
        check(tune)
    if run.executor == "process":
        check_portable(space)
    if run.cluster is not None:
        run.cluster.check_installed()
    choice = chosen(tune, run, space, trainable)
    _check_mutated_names(choice.scheduler, space)
    completed = choice.scheduler.completed_space(space)
    # Defaults are recorded like given arguments: a restore continues with them even if a later
    # release would choose others.
    tune = replace(
        tune,
        scheduler=choice.scheduler,
        search_alg=choice.searcher,
        chdir_to_trial_dir=_changes_directory(tune, run),
    )
    spec = ExperimentSpec(
        trainable=trainable,
        name=trainable_name(trainable),
        space=space if completed is space else checked_space(completed),
        declared_space=space,
        tune=tune,
        run=run,
        checkpoint=run.checkpoint_config or CheckpointConfig(),
        failure=run.failure_config or FailureConfig(),
        scheduler=choice.scheduler,
        searcher=_guarded(choice.searcher, tune),
        stopper=unused(stopper_from(run.stop)),
        seed=secrets.randbits(32) if tune.seed is None else tune.seed,
        experiment_id=secrets.token_hex(8),
        remark=choice.remark,
    )
    spec.checkpoint.policy(is_class=is_class_trainable(trainable))  # raises if it does not apply
    _check_unused(spec)
    if not isinstance(param_space, RecordedSpace):
        # By name, so that the module with Optuna's searcher need not be imported.
        knows_optuna = any(
            type(part).__name__ == "OptunaSearch" for part in _chain([spec.searcher])
        )
        check_no_foreign_domains(space, "param_space", accepts="optuna" if knows_optuna else None)
        warn_of_apparent_domains(space)
    _check_population(spec)
    _check_group(spec)
    _check_labels(spec)
    for part in (spec.scheduler, spec.searcher):
        if _has_other_objective(part, tune):
            raise _conflict(part, tune)
    _check_constraints_agree(spec.searcher, tune)
    _check_objective(spec)
    _check_searcher_takes(spec)
    return spec


def _completed(tune: TuneConfig) -> TuneConfig:
    """Return the settings with objects for names, and the mode that only an algorithm has."""
    # New ones, since the settings that are given may serve several experiments.
    scheduler = named_scheduler(tune.scheduler)
    searcher = named_searcher(tune.search_alg)
    modes: Iterator[Any] = (
        part.mode
        for part in (scheduler, searcher)
        if isinstance(part, Scheduler | Searcher) and part.metric in (None, tune.only_metric)
    )
    mode: Any = tune.mode or (next(filter(None, modes), None) if tune.metric else None)
    return replace(tune, scheduler=scheduler, search_alg=searcher, mode=mode)


def _changes_directory(tune: TuneConfig, run: RunConfig) -> bool | None:
    """Return whether each trial works in its own directory; None, the default, is recorded too."""
    wanted = tune.chdir_to_trial_dir
    if wanted is None and os.environ.get("RAY_CHDIR_TO_TRIAL_DIR") == "1":
        wanted = True
    if wanted and run.executor == "inline":
        raise ValueError(
            "chdir_to_trial_dir must not be True with executor='inline', where all trials "
            "share one process; write to get_context().get_trial_dir() instead"
        )
    return wanted


def _check_group(spec: ExperimentSpec) -> None:
    """Check that the workers of a trial can be where trials run, where that is known by now."""
    if isinstance(spec.trainable, GroupTrainable):
        try:
            spec.trainable.group_for({})
        except Exception:  # noqa: BLE001  (it needs a configuration; then the trial fails)
            return
        spec.group_for({})


def _check_labels(spec: ExperimentSpec) -> None:
    """Check that trials ask for labels of their nodes only where there are nodes."""
    if spec.run.cluster is None and asks_for_labels(spec.trainable):
        given = spec.trainable.requested_labels
        shown = "a function" if callable(given) else f"{given!r}"
        raise ValueError(
            f"labels need RunConfig(cluster=...), got {shown} for trials on this machine, which "
            "has none; leave labels out of with_resources, or name the cluster"
        )


def _check_mutated_names(scheduler: Scheduler, space: Mapping[str, Any]) -> None:
    if getattr(scheduler, "needs_population", False):  # others mutate nothing
        from .mutations import check_mutated_names  # noqa: PLC0415  (few schedulers do)

        check_mutated_names(scheduler, space)


def _check_population(spec: ExperimentSpec) -> None:
    """Check that a scheduler of populations can generate and vary the members itself."""
    if not getattr(spec.scheduler, "needs_population", False):
        return
    kind = type(spec.scheduler).__name__
    if not isinstance(spec.tune.search_alg or BasicVariantGenerator(), BasicVariantGenerator):
        found = type(spec.tune.search_alg).__name__
        raise ValueError(  # noqa: TRY004  (as Ray Tune)
            f"search_alg must be None with {kind}, got {found}; {kind} itself finds what to "
            "try next"
        )
    if spec.tune.num_samples == -1:
        raise ValueError(
            f"num_samples must be the size of the population with {kind}, got -1; it has to "
            "be known before it begins"
        )
    from .mutations import check_mutations  # noqa: PLC0415  (few schedulers do)

    check_mutations(spec.scheduler, spec.space)


def _guarded(searcher: Searcher, tune: TuneConfig) -> Searcher:
    return (
        searcher
        if tune.duplicates == "repeat"
        else searchers.DuplicateGuard(searcher, tune.duplicates)
    )


def with_seed(spec: ExperimentSpec, seed: int, experiment_id: str | None = None) -> ExperimentSpec:
    """Return a copy with another seed and experiment id."""
    return replace(spec, seed=seed, experiment_id=experiment_id or spec.experiment_id)


def derived_seed(seed: int, purpose: str) -> int:
    """Return the seed for one purpose, so that no two parts share a random stream."""
    # Hashed, because neighbouring seeds, such as seed + 1, may give correlated streams. A later
    # release with another formula could not reproduce experiments of this one.
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:4])


def seed_of_trial(trial_id: str, seed: int, rerun: Rerun | None) -> int:
    """Return the seed of a trial.

    Args:
        trial_id: The trial.
        seed: The seed of its experiment.
        rerun: The trial that its experiment repeats, with the same seed; None if there is none.
    """
    return derived_seed(seed, trial_id) if rerun is None else rerun.seed


def _checked(name: str, value: Any, kind: Any) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
    return replace(value)  # copied, against later assignments, and checked as a whole


def _conflict(part: Scheduler | Searcher, tune: TuneConfig) -> ValueError:
    own = part.objectives
    metric, mode = (
        (part.metric, part.mode) if len(own) < 2 else tuple(map(list, zip(*own, strict=True)))  # noqa: PLR2004
    )
    return ValueError(
        f"metric and mode must be the same everywhere, got metric={tune.metric!r}, "
        f"mode={tune.mode!r} in TuneConfig and metric={metric!r}, "
        f"mode={mode!r} in {_kind_of(part)}; give them in one of the two places"
    )


def _has_other_objective(part: Scheduler | Searcher, tune: TuneConfig) -> bool:
    """Return whether a scheduler or searcher was given another metric or mode."""
    if len(tune.objectives) > 1:
        # A scheduler may compare others than are optimised: one of them, or a cheaper one.
        return isinstance(part, Searcher) and (
            part.objectives not in ((), tune.objectives) or part.metric is not None
        )
    metric, mode = tune.only_metric, tune.only_mode
    return bool(
        (metric and part.metric not in (None, metric)) or (mode and part.mode not in (None, mode))
    )


def _check_constraints_agree(searcher: Searcher, tune: TuneConfig) -> None:
    """Check that a searcher was not given other constraints than the settings."""
    given, own = outcome_constraints(tune.constraints), unwrapped(searcher).constraints
    if given and own and set(given) != set(own):
        raise ValueError(
            f"constraints must be the same everywhere, got {', '.join(map(str, given))} in "
            f"TuneConfig and {', '.join(map(str, own))} in {_kind_of(searcher)}; give them in "
            "TuneConfig"
        )


def _refusal(searcher: Searcher, spec: ExperimentSpec) -> ValueError:
    """Return why a searcher has refused its search properties: objective or space conflict."""
    searched = [flat_name(path) for path, leaf in leaves(spec.space) if is_word(leaf)]
    if _has_other_objective(searcher, spec.tune) or not searched:
        return _conflict(searcher, spec.tune)
    return ValueError(
        f"the search space must be given once, got one in {_kind_of(searcher)} and "
        f"{', '.join(map(repr, searched))} to search in "
        "param_space; give the space in one of the two places, with at most constants in the other"
    )


def _kind_of(part: Scheduler | Searcher) -> str:
    return type(unwrapped(part) if isinstance(part, Searcher) else part).__name__


def _check_objective(spec: ExperimentSpec) -> None:
    """Check that a metric has a mode."""
    # With a default, half of all searches would look for the worst.
    if spec.metric is None or spec.mode is not None:
        return
    named_by = next(
        (type(part).__name__ for part in (spec.scheduler, spec.searcher) if part.metric),
        "TuneConfig",
    )
    raise ValueError(
        f"mode must be 'min' or 'max' where a metric is named, got metric={spec.metric!r} in "
        f"{named_by} without a mode; write TuneConfig(mode='max'), or "
        "Tuner.restore(..., mode='max') for an experiment that exists, if a larger value is "
        "better, mode='min' if a smaller one is"
    )


def _check_searcher_takes(spec: ExperimentSpec) -> None:
    """Check that the searcher takes what is declared, and that the search can end early."""
    for part in _chain([spec.searcher]):
        kind = type(part).__name__
        if len(spec.tune.objectives) > 1 and not part.takes_several_metrics:
            raise ValueError(
                f"metric must be one metric with {kind}, got {spec.tune.metric!r}; leave "
                "search_alg out for AutoSearch, which takes several"
            )
        if spec.constraints and not part.takes_constraints:
            listed = ", ".join(map(str, spec.constraints))
            raise ValueError(
                f"constraints must be None with {kind}, which would not respect {listed}; leave "
                "search_alg out for AutoSearch, which does"
            )
        if (where := where_of(spec.space)) is not None and not part.takes_where:
            shown = where if isinstance(where, str) else getattr(where, "__qualname__", where)
            raise ValueError(
                f"the space must have no where with {kind}, which would not respect {shown!r}; "
                "leave search_alg out for AutoSearch, which does"
            )
    if spec.may_stop_search:
        capabilities.check_stop_search(spec)


def _check_unused(spec: ExperimentSpec) -> None:
    """Check that no algorithm or stopper was used by another experiment, whose trials it knows."""
    for part in _stateful_parts(spec):
        if getattr(part, _USED_BY, spec.run_id) != spec.run_id:
            kind = type(part).__name__
            raise ValueError(
                f"{kind} must be new for each experiment, got one that another experiment has "
                f"used; construct another {kind}"
            )


def _stateful_parts(spec: ExperimentSpec) -> Iterator[Any]:
    """Yield the user's objects that keep a state in an experiment."""
    yield from _chain([spec.scheduler, spec.searcher])
    yield from users_stoppers(spec.stopper)


def _chain(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield schedulers and searchers with those that they wrap; `FIFOScheduler` has no state."""
    for outermost in parts:
        part = outermost
        while part is not None and not isinstance(part, FIFOScheduler):
            yield part
            part = next(filter(None, (getattr(part, name, None) for name in _INNER)), None)
