"""Settings of an experiment, checked when they are constructed."""

from __future__ import annotations

import builtins
import datetime as dt
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import schedulers
import searchers
from schedulers.scheduler import Scheduler
from searchers.objectives.outcome_constraint import outcome_constraints
from searchers.searcher import POLICIES, Duplicates, Searcher
from tuner import capabilities
from tuner.callbacks.callback import Callback
from tuner.core import events
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import Stopper, stopper_from
from tuner.errors import StorageError
from tuner.execution.resources import standard_name
from tuner.storage import layout
from tuner.storage.directories import absolute_path
from tuner.storage.urls import is_like_url

from .checked_settings import (
    Settings,
    check_limit,
    check_seconds,
    check_type,
    check_whole,
    names_unknown_arguments,
)

if TYPE_CHECKING:
    from tuner.callbacks.console.reporter import ProgressReporter
    from tuner.cluster.cluster import Cluster
    from tuner.stopping.stop_search import StopSearch

    from .training_config import ValidationConfig

MODES = ("min", "max")
CLOSING_S = 2.0
"""How long before its time limit all trials of an experiment must have ended, so that there is time
to kill those that have not and to close the files."""
EXECUTORS = ("process", "inline")
DURABILITIES = ("process", "group", "strict", "storage")
IN_STORAGE: Final = "storage"
"""The durability of an experiment that waits until the object store has each result."""
STORAGE_LOCKS = ("epochs", "none")
UPLOADS = ("sync", "async")
IF_EXISTS = ("error", "new", "replace")

FOR_FUNCTIONS, FOR_CLASSES = "function", "class"
CHECKPOINT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "num_to_keep": (FOR_FUNCTIONS, FOR_CLASSES),
    "checkpoint_score_attribute": (FOR_FUNCTIONS, FOR_CLASSES),
    "checkpoint_score_order": (FOR_FUNCTIONS, FOR_CLASSES),
    "checkpoint_frequency": (FOR_CLASSES,),
    "checkpoint_at_end": (FOR_CLASSES,),
    "upload": (FOR_FUNCTIONS, FOR_CLASSES),
}
"""Which fields of `CheckpointConfig` apply to function trainables and which to class trainables."""


@names_unknown_arguments
@dataclass(slots=True)
class CheckpointConfig(Settings):
    """When checkpoints are made and which of them are kept.

    Attributes:
        num_to_keep: How many checkpoints of each trial are kept: the best by
            `checkpoint_score_attribute`, or the most recent without it. The latest is never
            deleted, so one more than `num_to_keep` can exist. None, the default, keeps all.
        checkpoint_score_attribute: Name of a reported metric, nested ones as ``"a/b"``. A
            checkpoint without it ranks lowest, NaN just above.
        checkpoint_score_order: ``"max"`` if a larger score is better (the default), ``"min"`` if a
            smaller one is.
        checkpoint_frequency: Class trainables only: save at every so many iterations; 0, the
            default, for never.
        checkpoint_at_end: Class trainables only: save at a trial's last result. None, the default,
            means yes for them.
        upload: For experiments in an object store: when a function that has reported a checkpoint
            goes on. ``"sync"``, the default, is once the checkpoint is stored; ``"async"`` is at
            once, and a checkpoint whose upload fails, or is cut off by a crash, does not count.
            Then one checkpoint of a trial is uploaded at a time, and its next report with one waits
            for that. Class trainables always train on after saving.

    Raises:
        ValueError: If a value is out of range.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    upload: Literal["sync", "async"] = "sync"

    def _check(self) -> None:
        if self.num_to_keep is not None:
            check_whole("num_to_keep", self.num_to_keep, "a whole number or None")
        check_whole("checkpoint_frequency", self.checkpoint_frequency)
        if not isinstance(self.checkpoint_score_attribute, str | None):
            raise TypeError(
                "checkpoint_score_attribute must be the name of a reported value, got "
                f"{self.checkpoint_score_attribute!r}"
            )
        if self.num_to_keep is not None and self.num_to_keep < 1:
            raise ValueError(
                f"num_to_keep must be at least 1, or None to keep all, got {self.num_to_keep!r}"
            )
        if self.checkpoint_score_order not in MODES:
            raise ValueError(
                "checkpoint_score_order must be 'max' or 'min', got "
                f"{self.checkpoint_score_order!r}"
            )
        if self.upload not in UPLOADS:
            raise ValueError(f"upload must be 'sync' or 'async', got {self.upload!r}")
        if not self.checkpoint_frequency >= 0:
            raise ValueError(
                "checkpoint_frequency must be at least 0 (0 is off), got "
                f"{self.checkpoint_frequency!r}"
            )

    def policy(self, *, is_class: bool, can_save: bool = True) -> CheckpointPolicy:
        """Return the policy for a kind of trainable.

        Args:
            is_class: Whether it is a class trainable, not a function.
            can_save: Whether a class trainable implements saving.

        Raises:
            ValueError: If a field is set that does not apply to that kind of trainable.
        """
        kind = FOR_CLASSES if is_class else FOR_FUNCTIONS
        for name, kinds in CHECKPOINT_FIELDS.items():
            if kind not in kinds and getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} does not apply to a {kind} trainable; "
                    "report a checkpoint where one is due: report(metrics, "
                    "checkpoint=Checkpoint.from_directory(...))"
                )
        retention = RetentionPolicy(
            self.num_to_keep, self.checkpoint_score_attribute, self.checkpoint_score_order
        )
        at_end = is_class if self.checkpoint_at_end is None else self.checkpoint_at_end
        return CheckpointPolicy(
            can_save_on_demand=is_class and can_save,
            frequency=self.checkpoint_frequency,
            at_end=at_end and is_class,
            retention=retention,
        )


WORTH_A_RETRY: Final = ("ConnectionError", "TimeoutError")
"""Errors that usually go away by themselves."""
NOT_WORTH_A_RETRY: Final = (
    "AttributeError",
    "ImportError",
    "KeyError",
    "NameError",
    "NotImplementedError",
    "SyntaxError",
    "TypeError",
)
"""Errors that usually come from a bug, so that a retry would fail again."""
NEVER: Final = "never"
"""Turns off at a restore what was on."""
AUTO: Final = "auto"
"""Leaves a choice to the engine: of scheduler or searcher to `tuner.spec.default_algorithms`."""
_MIN_COMMON_FAILURES: Final = 5


@names_unknown_arguments
@dataclass(slots=True)
class FailureConfig(Settings):
    """What happens when a trial fails.

    Attributes:
        max_failures: How often each trial is retried, in a new process and from its latest
            checkpoint: 0, the default, for never, -1 for no limit. A trial that makes no progress
            is retried at once three times, then after increasing delays of up to a minute. Some
            failures are not retried, see `no_retry_on` and `max_identical_failures`.
        fail_fast: True ends the experiment when the first trial has failed for good: the others are
            killed, and stay resumable. ``"raise"`` raises the error from ``fit()`` as well. Needs
            ``max_failures=0``.
        report_timeout_s: A trial that does not report for this many seconds counts as hung: it is
            killed, which is a failure. Neither the time that its process takes to start and to
            import modules counts (that has a limit of its own, ten minutes or this if it is more),
            nor the time that `report` takes to store a checkpoint. None, the default, for no
            timeout.
        stop_grace_s: How many seconds a trial has to save, clean up and exit after it was asked to
            stop, before it is killed; 30 by default.
        retry_on: Classes of exceptions, or their names, after which a trial is always retried, up
            to `max_failures` times: ``[ConnectionError, "OutOfMemoryError"]``. Derived classes
            count as well; classes are recorded and compared by their bare names. `ConnectionError`
            and `TimeoutError` are always included, unless `no_retry_on` names them or a base class
            of theirs.
        no_retry_on: Classes of exceptions, or their names, after which a trial is not retried.
            None, the default, for those that usually come from a bug (`NOT_WORTH_A_RETRY`):
            `AttributeError`, `ImportError`, `KeyError`, `NameError`, `NotImplementedError`,
            `SyntaxError` and `TypeError`, except where `retry_on` names them or a base class of
            theirs. With an empty list all are retried. If an exception matches both `retry_on` and
            `no_retry_on`, the class nearest to the exception's own counts.
        max_identical_failures: How often a trial may fail with the same exception at the same line,
            without progress in between, before it is not retried again; 3 by default, 1 for no
            retry after any exception, None for no such limit. A process that was killed is always
            retried.
        max_common_failures: How many trials may fail with the same exception at the same line,
            while no trial has succeeded or made progress, before the experiment stops: ``"auto"``,
            the default, for twice the number that run at once, and at least 5; None for no such
            limit. The experiment can be restored when the cause is fixed.
        max_preemption_failures: With a cluster: how often in a row, without a new result in
            between, a trial may lose its node before it fails for good. -1, the default, for 4
            times, so that a trial that brings its nodes down does not go through all of them; a
            node that has announced that it will leave does not count. On a single machine, which is
            lost together with the experiment, it has no effect.
        preemption_grace_s: With a cluster: how many seconds after the time at which its node has
            announced to leave a trial may still take to report, save and leave, before it is killed
            and continued on another node; 0 by default. A trial on such a node is saved at its next
            report in any case. Where nodes announce no time, trials stay until their node is gone.
            On a single machine it has no effect: the experiment's signals and time limit give a
            trial ``RunConfig(interrupt_grace_s=...)``.
        relax_collectives_on_preemption: Must be False: all workers of a group leave together.
        controller_failure_limit: Accepted for code written for Ray Train, without effect: a
            restarted experiment continues as often as it is restarted.
        fail_script: Whether a script exits with 1 where trials failed and none succeeded; see
            `Tuner.fit`. False leaves its exit code as it is.

    Raises:
        ValueError: If a value is out of range or two contradict each other.
        TypeError: If a value has the wrong type.

    Departures:
        Ray Tune retries every exception up to `max_failures` times, and starts all trials even if
        each of them fails in the same way.
    """

    max_failures: int = 0
    fail_fast: bool | Literal["raise"] = False
    report_timeout_s: float | None = None
    stop_grace_s: float = 30.0
    retry_on: Sequence[type[BaseException] | str] | None = None
    no_retry_on: Sequence[type[BaseException] | str] | None = None
    max_identical_failures: int | None = 3
    max_common_failures: int | Literal["auto"] | None = "auto"
    max_preemption_failures: int = -1
    preemption_grace_s: float = 0.0
    relax_collectives_on_preemption: bool = False
    controller_failure_limit: int = -1
    fail_script: bool = True

    def _check(self) -> None:
        check_whole("max_failures", self.max_failures)
        self._check_preemption()
        self._check_policies()
        if self.report_timeout_s is not None:
            check_seconds("report_timeout_s", self.report_timeout_s, " or None")
        check_seconds("stop_grace_s", self.stop_grace_s)
        if self.fail_script not in (True, False):
            raise ValueError(f"fail_script must be True or False, got {self.fail_script!r}")
        if self.max_failures < -1:
            raise ValueError(
                "max_failures must be at least 0, or -1 for endless retries, got "
                f"{self.max_failures!r}"
            )
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f"fail_fast must be True, False or 'raise', got {self.fail_fast!r}")
        if self.report_timeout_s is not None and not self.report_timeout_s > 0:
            raise ValueError(
                "report_timeout_s must be a positive number of seconds or None, got "
                f"{self.report_timeout_s!r}"
            )
        if not self.stop_grace_s >= 0:
            raise ValueError(f"stop_grace_s must be at least 0 seconds, got {self.stop_grace_s!r}")

    def _check_together(self) -> None:
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                f"fail_fast needs max_failures=0, got max_failures={self.max_failures!r}; set "
                "only one of them"
            )

    def _check_preemption(self) -> None:
        for name in ("max_preemption_failures", "controller_failure_limit"):
            check_whole(name, value := getattr(self, name))
            if value < -1:
                raise ValueError(f"{name} must be at least 0, or -1 for the default, got {value!r}")
        check_seconds("preemption_grace_s", self.preemption_grace_s)
        if not self.preemption_grace_s >= 0:
            raise ValueError(
                f"preemption_grace_s must be at least 0 seconds, got {self.preemption_grace_s!r}"
            )
        if self.relax_collectives_on_preemption is not False:
            raise ValueError(
                "relax_collectives_on_preemption must be False, got "
                f"{self.relax_collectives_on_preemption!r}; all workers of a group leave together"
            )

    def _check_policies(self) -> None:
        for name in ("retry_on", "no_retry_on"):
            # Not by assignment, which would check again, without end.
            object.__setattr__(self, name, _exception_names(name, getattr(self, name)))
        if both := set(self.retry_on or ()) & set(self.no_retry_on or ()):
            raise ValueError(
                "retry_on and no_retry_on must name different exceptions, got "
                f"{', '.join(map(str, both))} in both"
            )
        check_limit("max_identical_failures", self.max_identical_failures)
        if self.max_common_failures != AUTO:
            check_limit(
                "max_common_failures", self.max_common_failures, f"a whole number, {AUTO!r} or None"
            )

    def policies(self, num_slots: int) -> dict[str, Any]:
        """Return the fields of `ExperimentSettings` about failures and retries.

        Args:
            num_slots: How many trials run at once.
        """
        given, refused = self.retry_on or (), self.no_retry_on
        common = (
            max(_MIN_COMMON_FAILURES, 2 * num_slots)
            if self.max_common_failures == AUTO
            else self.max_common_failures
        )
        return {
            "max_failures": self.max_failures,
            "fail_fast": bool(self.fail_fast),
            "retry_on": tuple(dict.fromkeys([*given, *_not_covered(WORTH_A_RETRY, refused or ())])),
            # An empty list is a choice of the user's: all exceptions are retried.
            "no_retry_on": _not_covered(NOT_WORTH_A_RETRY, given) if refused is None else refused,
            "max_identical_failures": self.max_identical_failures,
            "max_common_failures": common,
        }


@dataclass(slots=True)
class LoggingConfig(Settings):
    """How much tuner logs, on its logger ``tuner``, in the driver's process and the workers.

    Attributes:
        log_level: Name of a level of the module `logging`; messages below it are dropped. The
            default is ``"INFO"``.

    Raises:
        ValueError: If there is no such level.
    """

    log_level: str = "INFO"

    def _check(self) -> None:
        levels = sorted(logging.getLevelNamesMapping())
        if not isinstance(self.log_level, str) or self.log_level.upper() not in levels:
            raise ValueError(
                f"log_level must be one of {', '.join(map(repr, levels))}, got {self.log_level!r}"
            )
        object.__setattr__(self, "log_level", self.log_level.upper())


@names_unknown_arguments
@dataclass(slots=True)
class RunConfig(Settings):
    """Where an experiment is stored and how it is run.

    Attributes:
        name: Name of the experiment and of its directory, e.g. ``"lr=0.1"``, ``"my exp"``, or
            ``"group/exp"`` for a directory in a folder; None, the default, for
            ``<trainable>_<date>``.
        storage_path: Directory in which the experiment's directory is created; None, the default,
            for ``~/tuner_results``, or inside a trial or a validation function for the directory in
            which their experiment's lies on this machine; that is not stored elsewhere. A URL such
            as ``"s3://bucket/dir"`` keeps the experiment in an object store, from which any machine
            can restore it, see `local_dir`.
        stop: When a trial has trained enough: a dictionary ``{metric: value}`` (reached by an equal
            or larger value, regardless of `TuneConfig.mode`; for other comparisons give a string
            such as ``"<= 0.1"``), a function ``(trial_id, result) -> bool``, a `Stopper`, or a list
            of stoppers, any of which may stop.
        checkpoint_config: See `CheckpointConfig`; None, the default, stands for its defaults.
        failure_config: See `FailureConfig`; None likewise.
        callbacks: Called in this order, before the loggers that are added by default.
        verbose: 0 prints nothing; 1, the default, shows progress and a summary; 2 adds a line for
            each trial. Inside a trial or a validation function nothing is printed.
        resources: Total resources of the experiment by name, e.g. ``{"cpu": 4, "licence": 2}``.
            CPUs and GPUs that are not named are those of the machine; other names are custom
            resources, which trials may request as well.
        executor: ``"process"`` (the default) runs each trial in a fresh process. ``"inline"`` runs
            trials in this process, one step at a time, so that a debugger works; a trial that
            crashes ends the whole process. There is none to kill either: a trial that is killed,
            e.g. after `FailureConfig.report_timeout_s`, and does not report within 5 s is counted
            as ended, while its code runs on in a thread until it reports or the process ends.
        time_limit_s: How many seconds from now the job may run, e.g. until a batch system ends it;
            None, the default, for no limit. The experiment stops early enough for running trials to
            save, and can be restored. A script then exits with code 124; each restore gets its own
            limit. (After `TuneConfig.time_budget_s`, in contrast, the experiment is complete.)
        interrupt_grace_s: How many seconds running trials have to report, save and exit after a
            signal or the time limit has interrupted the experiment, before they are killed; 10 by
            default. Batch systems commonly wait 30 s between a signal and the kill.
        durability: What a power failure may lose: ``"group"`` (the default) at most the last 50 ms
            of results, ``"strict"`` nothing, ``"process"`` what the system had not written yet. A
            crash of processes loses nothing in any of these modes. ``"storage"``, with a URL as
            `storage_path`, loses nothing with the machine either: each report waits until the
            object store has it.
        storage_retry_s: How many seconds trials wait for storage that has failed or become
            read-only, before they are stopped and `fit` raises; 60 by default. If the disk is full,
            they wait without limit.
        log_to_file: Accepted for compatibility; each trial's output is always in its directory, in
            ``stdout`` and ``stderr``.
        progress_reporter: What is shown of the progress, and when: a `CLIReporter`, a
            `JupyterNotebookReporter`, or your own `ProgressReporter`. None, the default, for a live
            table on a terminal and in a notebook, and a few lines elsewhere. Not recorded: give it
            to `Tuner.restore` again.
        sync_config: Accepted for compatibility and not used, see `SyncConfig`.
        storage_filesystem: The file system of fsspec or PyArrow on which `storage_path` is, such as
            ``fsspec.filesystem("s3", endpoint_url=...)``; the path may be given with or without the
            protocol. None, the default, for the one that the URL names, with the credentials of
            your environment. Not recorded: give it to `Tuner.restore` again.
        if_exists: What happens if an experiment of this name exists: ``"error"`` (the default)
            raises `ExperimentExists`. ``"new"`` runs beside it, in a directory with a number
            appended (``exp_2``, ``exp_3``, ...). ``"replace"`` removes it, results and checkpoints
            included, after all other checks have passed; a running experiment and a directory that
            is not recognised as an experiment are never removed, and unrelated files in the
            directory are kept. ``Tuner(..., resume="auto")`` continues it instead.
        worker_runtime_env: Environment variables of the worker processes,
            ``{"env_vars": {"NCCL_DEBUG": "INFO"}}``. They are recorded: export secrets in the shell
            instead. Not with ``executor="inline"``.
        logging_config: How much tuner logs; None, the default, for what `verbose` shows. See
            `LoggingConfig`.
        validation_config: How reported checkpoints are validated beside the training, see
            `ValidationConfig`; None, the default, for not at all, unless a report names a function.
            A trainer's own counts before it.
        local_dir: With a URL as `storage_path`: directory of this machine in which the experiment's
            working directory is created; None, the default, for ``~/tuner_results``. All that is
            written there is copied to the object store. Without a `storage_path` it is the
            directory in which the experiment's is created, as in code written for Ray Tune 1.
        mirror_s: With a URL as `storage_path`: after how many seconds at the latest new results are
            copied to the object store; 2 by default. If this machine is lost, so are the results
            since, except with ``durability="storage"``.
        storage_lock: With a URL as `storage_path`: ``"epochs"``, the default, lets one driver at a
            time write the experiment, whatever machine it is on. ``"none"`` is for stores that
            cannot create an object only if it is absent, and leaves that to you.
        cache_bytes: With a URL as `storage_path`: how large the local copies of stored checkpoints
            may be together; above that, those that were used least recently and that no trial is
            using are deleted. None, the default, for a tenth of the disk. With a cluster this
            holds for each node.
        cluster: The cluster on whose nodes trials run, a `RayCluster` or a `DaskCluster`; None, the
            default, for this machine. `storage_path` then has to be what all nodes reach: an object
            store, or a directory that all of them share under the same path, which each node checks
            when it joins. `resources` are those of the nodes. Not recorded: `Tuner.restore` may be
            given another cluster, or none.
        node_wait_s: With a cluster: for how many seconds a trial that no node present could run
            waits for one that could, before it fails, and the experiment for its first node, before
            `fit` ends; 300 by default.

    Raises:
        ValueError: If a value is out of range, or two contradict each other.
        TypeError: If a value has the wrong type.

    Departures:
        With a URL, Ray Tune uploads the files of trials now and then. Here the results, the state
        of the search and the checkpoints are in the store, each checkpoint before it counts.
        Ray Tune always runs on Ray; here an experiment runs on this machine unless `cluster` is
        given.
    """

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    stop: (
        Mapping[str, float | str]
        | Callable[[str, Mapping[str, Any]], bool]
        | Stopper
        | Sequence[Stopper]
        | None
    ) = None
    checkpoint_config: CheckpointConfig | None = None
    failure_config: FailureConfig | None = None
    callbacks: Sequence[Callback] | None = None
    verbose: int = 1
    resources: Mapping[str, float] | None = None
    executor: Literal["process", "inline"] = "process"
    durability: Literal["process", "group", "strict", "storage"] = "group"
    storage_retry_s: float = 60.0
    time_limit_s: float | None = None
    interrupt_grace_s: float = 10.0
    log_to_file: bool | str | tuple[str, str] = True
    progress_reporter: ProgressReporter | None = None
    sync_config: Any = None
    storage_filesystem: Any = None
    if_exists: Literal["error", "new", "replace"] = "error"
    worker_runtime_env: Mapping[str, Any] | None = None
    logging_config: LoggingConfig | None = None
    validation_config: ValidationConfig | None = None
    local_dir: str | os.PathLike[str] | None = None
    mirror_s: float = 2.0
    storage_lock: Literal["epochs", "none"] = "epochs"
    cache_bytes: int | None = None
    cluster: Cluster | None = None
    node_wait_s: float = 300.0

    def _check(self) -> None:
        stopper_from(self.stop)
        self._check_storage()
        self._check_cache()
        self._check_nodes()
        checked_environment(self.worker_runtime_env)
        check_type("logging_config", self.logging_config, LoggingConfig)
        if self.verbose not in (0, 1, 2, 3):
            raise ValueError(f"verbose must be 0 (silent), 1 or 2, got {self.verbose!r}")
        if self.executor not in EXECUTORS:
            raise ValueError(
                f"executor must be one of {', '.join(EXECUTORS)}, got {self.executor!r}"
            )
        if self.durability not in DURABILITIES:
            raise ValueError(
                f"durability must be one of {', '.join(DURABILITIES)}, got {self.durability!r}"
            )
        check_seconds("storage_retry_s", self.storage_retry_s)
        if not self.storage_retry_s >= 0:
            raise ValueError(
                f"storage_retry_s must be at least 0 seconds, got {self.storage_retry_s!r}"
            )
        self._check_objects()
        check_type("checkpoint_config", self.checkpoint_config, CheckpointConfig)
        check_type("failure_config", self.failure_config, FailureConfig)
        # Never None once it is constructed: scripts read and change these fields.
        for name, kind in (
            ("checkpoint_config", CheckpointConfig),
            ("failure_config", FailureConfig),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, kind())
        _check_amounts(self.resources)
        self._check_times()

    def _check_together(self) -> None:
        if self.executor == "inline" and self.environ:
            raise ValueError(
                "worker_runtime_env must be None with executor='inline', where trials share this "
                "process; set os.environ instead"
            )
        if self.cluster is not None:
            self._check_with_cluster(self.cluster)
        if self.storage_url is None:
            self._check_local()

    def _check_with_cluster(self, cluster: Cluster) -> None:
        """Refuse settings of this machine for an experiment on the nodes of a cluster."""
        if self.executor != "process":
            raise ValueError(
                f"executor must be 'process' with a cluster, got {self.executor!r} and "
                f"{cluster.describe()}; leave the cluster out to debug in this process"
            )
        if self.resources:
            raise ValueError(
                f"resources must be None with a cluster, whose nodes have their own, got "
                f"{dict(self.resources)}; give custom resources to the nodes when the cluster is "
                "started, and resources={} to Tuner.restore for an experiment that had some"
            )
        url = self.storage_url
        if url is not None and url.startswith("memory://"):
            raise ValueError(
                f"storage_path must be what all nodes reach with a cluster, got {url!r}, which is "
                "in the memory of this process; give the URL of an object store, or a directory "
                "that all nodes share"
            )

    def _check_local(self) -> None:
        """Refuse settings of experiments in object stores for one that is not in any."""
        if self.durability == IN_STORAGE:
            raise ValueError(
                f"durability='storage' needs a URL as storage_path, got {self.storage_path!r}; "
                "durability='strict' loses nothing in a power failure"
            )
        if self.local_dir is not None and self.storage_path is not None:
            raise ValueError(
                f"local_dir must be None with a directory as storage_path, got {self.local_dir!r} "
                f"and storage_path={self.storage_path!r}, which mean the same; use storage_path "
                "alone"
            )
        if self.storage_filesystem is not None:
            raise ValueError(
                "storage_filesystem must be None without a storage_path, got an object of "
                f"{type(self.storage_filesystem).__qualname__}; give the directory on it as "
                "storage_path"
            )

    @property
    def storage_url(self) -> str | None:
        """The URL of `storage_path` if that is in an object store, None if on this machine."""
        if self.storage_path is None:
            return None
        path = os.fspath(self.storage_path)
        if self.storage_filesystem is None and not is_like_url(path):
            return None
        url: str = capabilities.checked_url("storage_path", path, self.storage_filesystem)
        return url

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables of `worker_runtime_env`."""
        return checked_environment(self.worker_runtime_env)

    @property
    def leave_at_s(self) -> float | None:
        """Seconds after which running trials are stopped for `time_limit_s`; None for never."""
        return (
            None
            if self.time_limit_s is None
            else self.time_limit_s - self.interrupt_grace_s - CLOSING_S
        )

    def _check_times(self) -> None:
        if self.time_limit_s is not None:
            check_seconds("time_limit_s", self.time_limit_s, " or None")
        check_seconds("interrupt_grace_s", self.interrupt_grace_s)
        if not 0 <= self.interrupt_grace_s < math.inf:
            raise ValueError(
                "interrupt_grace_s must be finite and at least 0 seconds, got "
                f"{self.interrupt_grace_s!r}"
            )
        if self.leave_at_s is not None and not 0 < self.leave_at_s < math.inf:
            raise ValueError(
                "time_limit_s must be finite and more than "
                f"interrupt_grace_s={self.interrupt_grace_s!r} and {CLOSING_S} s to kill "
                f"trials that do not exit and to close the files, got {self.time_limit_s!r}; "
                "give a longer limit or less grace"
            )

    def _check_objects(self) -> None:
        if not isinstance(self.callbacks, Sequence | None):
            raise TypeError(f"callbacks must be a list of tuner.Callback, got {self.callbacks!r}")
        for callback in self.callbacks or ():
            if not isinstance(callback, Callback):
                raise TypeError(f"callbacks must be instances of tuner.Callback, got {callback!r}")
        if self.progress_reporter is not None:
            from tuner.callbacks.console.reporter import ProgressReporter  # noqa: PLC0415  (rare)

            check_type("progress_reporter", self.progress_reporter, ProgressReporter)
        if self.validation_config is not None:
            from .training_config import ValidationConfig  # noqa: PLC0415  (rare)

            check_type("validation_config", self.validation_config, ValidationConfig)

    def _check_nodes(self) -> None:
        if self.cluster is not None and not isinstance(self.cluster, capabilities.Cluster):
            raise TypeError(
                "cluster must be a RayCluster, a DaskCluster or None, got "
                f"{self.cluster!r}{_how_to_give(self.cluster)}"
            )
        check_seconds("node_wait_s", self.node_wait_s)
        if not 0 <= self.node_wait_s < math.inf:
            raise ValueError(
                f"node_wait_s must be finite and at least 0 seconds, got {self.node_wait_s!r}"
            )

    def _check_cache(self) -> None:
        if self.cache_bytes is not None:
            check_whole("cache_bytes", self.cache_bytes, "a whole number of bytes or None")
            if self.cache_bytes < 0:
                raise ValueError(
                    f"cache_bytes must be at least 0, or None for a tenth of the disk, got "
                    f"{self.cache_bytes!r}"
                )

    def _check_storage(self) -> None:
        if self.name is not None:
            layout.check_name(self.name)
        if self.if_exists not in IF_EXISTS:
            raise ValueError(
                f"if_exists must be one of {', '.join(map(repr, IF_EXISTS))}, got "
                f"{self.if_exists!r}"
            )
        for name in ("storage_path", "local_dir"):
            if not isinstance(given := getattr(self, name), str | os.PathLike | None):
                raise TypeError(f"{name} must be a path, got {given!r}")
        if self.storage_path is not None and self.storage_url is None:
            _check_path("storage_path", os.fspath(self.storage_path))
        if self.local_dir is not None:
            _check_local_dir(os.fspath(self.local_dir))
        check_seconds("mirror_s", self.mirror_s)
        if not 0 < self.mirror_s < math.inf:
            raise ValueError(f"mirror_s must be finite and more than 0 s, got {self.mirror_s!r}")
        if self.storage_lock not in STORAGE_LOCKS:
            raise ValueError(
                f"storage_lock must be one of {', '.join(map(repr, STORAGE_LOCKS))}, got "
                f"{self.storage_lock!r}"
            )


def _check_local_dir(path: str) -> None:
    if is_like_url(path):
        raise ValueError(
            f"local_dir must be a directory of this machine, got {path!r}; give the URL as "
            "storage_path"
        )
    _check_path("local_dir", path)


def _check_path(name: str, path: str) -> None:
    if not path.strip():
        raise ValueError(
            f"{name} must name a directory, got {path!r}; leave it out for "
            "~/tuner_results, or give '.'"
        )
    if "\0" in path:
        raise ValueError(f"{name} must not contain a null character, got {path!r}")
    if path.startswith("~"):  # fails if the user is unknown or has no home
        try:
            absolute_path(path)
        except StorageError as cause:
            raise ValueError(f"{name} {cause}") from cause


@names_unknown_arguments
@dataclass(slots=True)
class TuneConfig(Settings):
    """What to optimise, and how to search.

    Attributes:
        metric: Name of the metric to optimise, nested ones as ``"a/b"``; a list of several for the
            best trade-offs between them.
        mode: ``"min"`` if a smaller value of `metric` is better, ``"max"`` if a larger one is.
            Required with a metric, since neither direction is a safe guess. With several metrics a
            list with one for each, or one for all.
        constraints: Bounds that the best trials have to keep, by metric: ``{"size_mb": "<= 4",
            "fairness": ">= 0.8"}``; a list of two for a lower and an upper bound, ``[">= 1", "<=
            4"]``. A trial counts as infeasible if the newest value that it has reported misses a
            bound, is NaN or infinite, or if there is none. An infeasible trial is never the best
            one.
        num_samples: How many trials; with ``grid_search`` in the space, how often the grid is
            repeated. -1 for no limit, until another limit stops the experiment.
        search_alg: A `Searcher`, the short name of one, such as ``"optuna"``, see
            `create_searcher`, or ``"auto"`` for `searchers.AutoSearch` if there is something to
            search. None, the default, means ``"auto"`` where metric and mode are known, beside any
            `scheduler` but population methods; random sampling and grids otherwise.
        scheduler: A `Scheduler`, the short name of one, such as ``"asha"``, see
            `create_scheduler`, an object with the methods of Ray Tune's schedulers (see
            `schedulers.TrialScheduler`), or ``"auto"`` for ASHA, or MOASHA for several metrics.
            None, the default, means the same if neither this nor `search_alg` is given, `metric`
            and `mode` are, and the trainable can be saved on demand or `RunConfig.stop` names the
            ``training_iteration`` at which trials end; otherwise every trial runs to its end.
            `FIFOScheduler` always runs all trials to the end. See
            `tuner.spec.default_algorithms`.
        max_concurrent_trials: How many trials run at once; None or 0 for as many as the resources
            allow.
        time_budget_s: Total running time in seconds (or a `datetime.timedelta`), restores included,
            after which the experiment stops; None for no limit.
        budget: What the experiment may spend before it stops, by unit, such as ``{"gpu_hours":
            20}``: ``"iterations"`` of all trials together, ``"trial_hours"`` of workers, or hours
            of any resource that trials occupy. Retries, validations and earlier sessions count.
            None for no limit.
        seed: Seed of everything random in the experiment; None draws one and records it.
        duplicates: What happens if the searcher proposes a configuration again: ``"repeat"``, the
            default, runs it again; ``"skip"`` asks the searcher for another; ``"reuse"`` gives it
            the results of the earlier trial, and asks for another. See `searchers.DuplicateGuard`.
        reuse_actors: Accepted for compatibility: a new process costs milliseconds, so each trial
            has its own.
        trial_name_creator: Accepted for compatibility and not used; `trial_dirname_creator`
            likewise. Trials are named by their id.
        chdir_to_trial_dir: True makes each trial's own directory its working directory, so that
            relative paths in the training code lead there. False keeps the working directory of the
            script. In both cases the script's working directory is in the environment variable
            ``TUNE_ORIG_WORKING_DIR``. None, the default, is False unless the environment variable
            ``RAY_CHDIR_TO_TRIAL_DIR`` is 1 when the experiment begins.
        stop_search: ``"auto"`` or a `StopSearch` ends the search when further trials are expected
            to gain too little. Running trials go on, and a restore can continue the search. None,
            the default, and ``"never"``, which a restore can be given, run all samples.

    Raises:
        ValueError: If a value is out of range.
        TypeError: If a value has the wrong type.
    """

    metric: str | Sequence[str] | None = None
    mode: Literal["min", "max"] | Sequence[Literal["min", "max"]] | None = None
    num_samples: int = 1
    search_alg: Searcher | str | None = None
    scheduler: Scheduler | str | None = None
    max_concurrent_trials: int | None = None
    time_budget_s: float | dt.timedelta | None = None
    seed: int | None = None
    duplicates: Duplicates = "repeat"
    reuse_actors: bool = False
    trial_name_creator: Any = None
    trial_dirname_creator: Any = None
    chdir_to_trial_dir: bool | None = None
    constraints: Mapping[str, str | Sequence[str]] | None = None
    stop_search: StopSearch | Literal["auto", "never"] | None = None
    budget: Mapping[str, float] | None = None

    def _check(self) -> None:
        self._check_objectives()
        outcome_constraints(self.constraints)
        if self.budget is not None:
            from .budget import check_budget  # noqa: PLC0415  (few have one)

            check_budget(self.budget)
        check_whole("num_samples", self.num_samples)
        if self.num_samples != -1 and self.num_samples < 1:
            raise ValueError(
                f"num_samples must be at least 1, or -1 for endless, got {self.num_samples!r}"
            )
        if self.max_concurrent_trials is not None:
            check_whole(
                "max_concurrent_trials", self.max_concurrent_trials, "a whole number or None"
            )
        if self.max_concurrent_trials is not None and self.max_concurrent_trials < 0:
            raise ValueError(
                "max_concurrent_trials must be at least 1, or None for no limit, got "
                f"{self.max_concurrent_trials!r}"
            )
        if not isinstance(self.budget_s, int | float | None):
            raise TypeError(
                "time_budget_s must be a positive number of seconds or a timedelta, got "
                f"{self.time_budget_s!r}"
            )
        if self.budget_s is not None and not self.budget_s > 0:
            raise ValueError(
                "time_budget_s must be a positive number of seconds or a timedelta, got "
                f"{self.time_budget_s!r}"
            )
        if self.duplicates not in POLICIES:
            raise ValueError(
                f"duplicates must be one of {', '.join(map(repr, POLICIES))}, got "
                f"{self.duplicates!r}"
            )
        if self.stop_search not in (None, AUTO, NEVER) and not isinstance(
            self.stop_search, capabilities.StopSearch
        ):
            raise TypeError(
                "stop_search must be 'auto', 'never', a StopSearch or None, got "
                f"{self.stop_search!r}; e.g. StopSearch(patience=30)"
            )
        # An adapter is for those that were written for Ray Tune, which are the user's own.
        is_ours = type(self.scheduler).__module__.partition(".")[0] == "schedulers"
        if not (is_ours or isinstance(self.scheduler, str | None)):
            from schedulers.trial_scheduler import adapted  # noqa: PLC0415  (for those alone)

            object.__setattr__(self, "scheduler", adapted(self.scheduler))
        _check_part("scheduler", self.scheduler, Scheduler, named_scheduler)
        _check_part("search_alg", self.search_alg, Searcher, named_searcher)

    def _check_objectives(self) -> None:
        names = _listed(self.metric)
        if any(not isinstance(name, str) or not name for name in names):
            raise TypeError(
                "metric must be the name of a reported value, or a list of several, got "
                f"{self.metric!r}"
            )
        if len(set(names)) < len(names) or self.metric in ([], ()):
            raise ValueError(
                f"metric must name one metric or several different ones, got {self.metric!r}"
            )
        if any(mode not in MODES for mode in _listed(self.mode)) or self.mode in ([], ()):
            raise ValueError(
                f"mode must be 'min' or 'max', or a list with one for each metric, got "
                f"{self.mode!r}"
            )

    def _check_together(self) -> None:
        num_metrics, num_modes = len(_listed(self.metric)), len(_listed(self.mode))
        if num_modes > 1 and num_modes != num_metrics:
            raise ValueError(
                f"mode must be one for each metric, or one for all, got {self.mode!r} for "
                f"metric={self.metric!r}"
            )
        # Several metrics have theirs here: an algorithm's own is that of one metric.
        parts = (self, self.scheduler, self.search_alg)[: None if num_metrics < 2 else 1]  # noqa: PLR2004
        if self.metric is not None and not any(getattr(part, "mode", None) for part in parts):
            raise ValueError(
                "mode must be 'min' or 'max' where a metric is named, got "
                f"metric={self.metric!r} without a mode; write "
                f"TuneConfig(metric={self.metric!r}, mode='max') if a larger value is better, "
                "mode='min' if a smaller one is"
            )

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective; empty where one of them is not given."""
        metrics, modes = _listed(self.metric), _listed(self.mode)
        return tuple(zip(metrics, modes * len(metrics) if len(modes) == 1 else modes, strict=False))

    @property
    def only_metric(self) -> str | None:
        """The metric if there is one, None for none and for several."""
        metrics = _listed(self.metric)
        return metrics[0] if len(metrics) == 1 else None

    @property
    def only_mode(self) -> Literal["min", "max"] | None:
        """The mode where there are not several metrics, None if it is not given."""
        modes = _listed(self.mode)
        return modes[0] if len(modes) == 1 and len(_listed(self.metric)) <= 1 else None

    @property
    def budget_s(self) -> float | None:
        """The time budget in seconds."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, dt.timedelta) else budget


@names_unknown_arguments
@dataclass(slots=True)
class ResumeConfig(Settings):
    """What happens to each kind of trial when an experiment is restored.

    Each field is ``"skip"`` (trials are left unchanged; unfinished ones end), ``"resume"`` (trials
    continue from their latest checkpoints) or ``"restart"`` (trials start over under their ids:
    checkpoints are deleted, and results no longer count).

    Attributes:
        finished: Trials that have ended, those that were stopped early included.
        unfinished: Trials that have not, or were interrupted, e.g. by Ctrl-C or at the end of the
            time budget.
        errored: Trials that failed; if they are resumed or restarted, their failures count anew.

    Raises:
        ValueError: If a field has another value.

    Example:
        >>> ResumeConfig(errored="restart").errored is ResumeConfig.ResumeType.RESTART
        True

    Departures:
        In Ray Tune, a trial that starts over gets another id, and the old one disappears.
    """

    ResumeType: ClassVar[type[events.ResumeType]] = events.ResumeType

    finished: events.ResumeType | str = events.ResumeType.SKIP
    unfinished: events.ResumeType | str = events.ResumeType.RESUME
    errored: events.ResumeType | str = events.ResumeType.SKIP

    def _check(self) -> None:
        for name in ("finished", "unfinished", "errored"):
            value = getattr(self, name)
            if value not in tuple(events.ResumeType):
                raise ValueError(f"{name} must be 'skip', 'resume' or 'restart', got {value!r}")
            object.__setattr__(self, name, events.ResumeType(value))

    @classmethod
    def of(
        cls, *, resume_unfinished: bool, resume_errored: bool, restart_errored: bool
    ) -> ResumeConfig:
        """Return the configuration for the switches of `Tuner.restore`; resuming wins."""
        errored = (
            events.ResumeType.RESUME
            if resume_errored
            else events.ResumeType.RESTART
            if restart_errored
            else events.ResumeType.SKIP
        )
        return cls(
            unfinished=events.ResumeType.RESUME if resume_unfinished else events.ResumeType.SKIP,
            errored=errored,
        )

    def event(self, settings: ExperimentSettings) -> events.DriverRestarted:
        """Return the event that the new driver adds to the journal first."""
        unfinished, errored, finished = map(
            events.ResumeType, (self.unfinished, self.errored, self.finished)
        )
        return events.DriverRestarted(settings, unfinished, errored, finished)


def _listed(given: Any) -> list[Any]:
    """Return one name or several as a list, nothing for None."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _check_part(name: str, value: Any, kind: type, named: Callable[[Any], Any]) -> None:
    if isinstance(value, str):
        named(value)
    elif value is not None and not isinstance(value, kind):
        raise TypeError(
            f"{name} must be a {kind.__name__}, the name of one, {AUTO!r} or None, got {value!r}"
        )


def named_scheduler(part: Any) -> Any:
    """Return a new scheduler if this is the name of one, anything else as it is."""
    return schedulers.create_scheduler(part) if isinstance(part, str) and part != AUTO else part


def named_searcher(part: Any) -> Any:
    """Return a new searcher if this is the name of one, anything else as it is."""
    return searchers.create_searcher(part) if isinstance(part, str) and part != AUTO else part


def _exception_names(name: str, given: Any) -> tuple[str, ...] | None:
    """Return the bare names of exception classes, by which they are recorded and compared."""
    if given is None:
        return None
    wanted = f"{name} must be a list of classes of exceptions or of their names"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{wanted}, got {given!r}; put it in a list")
    for item in given:
        if not isinstance(item, str) and not (
            isinstance(item, type) and issubclass(item, BaseException)
        ):
            raise TypeError(f"{wanted}, got {item!r} in it")
    return tuple(
        item.rpartition(".")[2] if isinstance(item, str) else item.__name__ for item in given
    )


def _not_covered(defaults: Sequence[str], given: Sequence[Any]) -> tuple[str, ...]:
    """Return the built-in exceptions that `given` names neither directly nor by a base class."""
    return tuple(
        name
        for name in defaults
        if not any(kind.__name__ in given for kind in getattr(builtins, name).__mro__)
    )


def _how_to_give(cluster: Any) -> str:
    """Return how to write what was given as a cluster, as the end of a sentence."""
    if isinstance(cluster, type) and issubclass(cluster, capabilities.Cluster):
        return f"; write {cluster.__name__}(...)"
    if isinstance(cluster, str):
        return f"; write RayCluster({cluster!r}) or DaskCluster({cluster!r})"
    if type(cluster).__module__.partition(".")[0] in {"distributed", "dask_jobqueue"}:
        return "; write DaskCluster(...) around it"
    return "; leave it out for this machine"


def _check_amounts(resources: Any) -> None:
    if resources is None:
        return
    for name in resources if isinstance(resources, Mapping) else ():
        standard_name(name)
    if not isinstance(resources, Mapping) or not all(
        isinstance(amount, int | float) for amount in resources.values()
    ):
        raise TypeError(f"resources must be a dictionary of amounts by name, got {resources!r}")
    if not all(0 <= amount < math.inf for amount in resources.values()):
        raise ValueError(f"resources must be finite and at least 0, got {resources!r}")


def checked_environment(given: Any) -> dict[str, str]:
    """Return the variables of a ``worker_runtime_env``.

    Raises:
        TypeError: If it is no dictionary of variables.
        ValueError: If it asks for anything else, such as packages.

    Example:
        >>> checked_environment({"env_vars": {"NCCL_DEBUG": "INFO"}})
        {'NCCL_DEBUG': 'INFO'}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"worker_runtime_env must be a dictionary such as {{'env_vars': {{...}}}}, got "
            f"{given!r}"
        )
    if others := [name for name, value in given.items() if name != "env_vars" and value]:
        raise ValueError(
            f"worker_runtime_env must have the key 'env_vars' only, got "
            f"{', '.join(map(repr, others))}; workers run with the packages and files of this "
            "environment"
        )
    variables = given.get("env_vars") or {}
    if not isinstance(variables, Mapping) or not all(
        isinstance(text, str) for pair in variables.items() for text in pair
    ):
        raise TypeError(f"env_vars must be strings by name, got {variables!r}")
    return dict(variables)
