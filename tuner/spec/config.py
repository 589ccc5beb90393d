"""Settings of an experiment, checked when they are constructed."""

from __future__ import annotations

import builtins
import dataclasses
import datetime as dt
import difflib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from schedulers.scheduler import Scheduler
from schedulers.trial_scheduler import adapted
from searchers.searcher import Searcher
from searchers.wrappers.duplicate_guard import POLICIES, Duplicates
from tuner.callbacks.callback import Callback
from tuner.callbacks.console.reporter import ProgressReporter
from tuner.core import events
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import Stopper, stopper_from
from tuner.errors import StorageError
from tuner.storage import layout
from tuner.storage.directories import absolute_path

MODES = ("min", "max")
CLOSING_S = 2.0
"""How long before its time limit an experiment wants all trials gone, so that killing who does not
leave and closing the files fit in."""
EXECUTORS = ("process", "inline")
DURABILITIES = ("process", "group", "strict")
IF_EXISTS = ("error", "new", "replace")

FOR_FUNCTIONS, FOR_CLASSES = "function", "class"
CHECKPOINT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "num_to_keep": (FOR_FUNCTIONS, FOR_CLASSES),
    "checkpoint_score_attribute": (FOR_FUNCTIONS, FOR_CLASSES),
    "checkpoint_score_order": (FOR_FUNCTIONS, FOR_CLASSES),
    "checkpoint_frequency": (FOR_CLASSES,),
    "checkpoint_at_end": (FOR_CLASSES,),
}
"""Which fields of `CheckpointConfig` apply to function trainables and which to class trainables."""


class Settings:
    """Base of the settings: a field can be assigned to, and is checked then as when it is given to the constructor.

    What two fields have to do with each other is checked by the constructor and by `Tuner`, so that
    they can be assigned one by one.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        self._check()
        self._check_together()

    def _check(self) -> None:
        """Refuse a value that no other value could make right."""

    def _check_together(self) -> None:
        """Refuse values that contradict each other."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field.

        Raises:
            AttributeError: If there is no such field; names the nearest that there is.
            ValueError: If the value is out of range.
            TypeError: If it has the wrong type.
        """
        fields = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]!r}" if near else f"; it has {', '.join(fields)}"
            raise AttributeError(f"{type(self).__name__} has no field {name!r}{hint}")
        is_constructed = all(hasattr(self, field) for field in fields)
        before = getattr(self, name, None)
        object.__setattr__(self, name, value)
        if not is_constructed:
            return
        try:
            self._check()
        except (TypeError, ValueError):
            object.__setattr__(self, name, before)
            raise


@dataclass(slots=True)
class CheckpointConfig(Settings):
    """When checkpoints are made and which of them are kept.

    Attributes:
        num_to_keep: How many checkpoints of each trial are kept: the best by
            `checkpoint_score_attribute`, or the most recent without it. The latest is never
            deleted, so one more than `num_to_keep` can exist. None keeps all.
        checkpoint_score_attribute: Name of a reported metric, nested ones as ``"a/b"``. A
            checkpoint without it ranks lowest, NaN just above.
        checkpoint_score_order: ``"max"`` if a larger score is better (the default), ``"min"`` if a
            smaller one is.
        checkpoint_frequency: Class trainables only: save at every so many iterations; 0, the
            default, for never.
        checkpoint_at_end: Class trainables only: save at a trial's last result. None, the default,
            means yes for them.

    Raises:
        ValueError: If a value is out of range.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def _check(self) -> None:
        if self.num_to_keep is not None:
            _check_whole("num_to_keep", self.num_to_keep, "a whole number or None")
        _check_whole("checkpoint_frequency", self.checkpoint_frequency)
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
        if not self.checkpoint_frequency >= 0:
            raise ValueError(
                "checkpoint_frequency must be at least 0 (0 is off), got "
                f"{self.checkpoint_frequency!r}"
            )

    def policy(self, *, is_class: bool, can_save: bool = True) -> CheckpointPolicy:
        """Return what these settings mean for a class trainable, which may be unable to save itself, or for a function.

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
AUTO: Final = "auto"
"""Leaves a choice to the engine: of scheduler or searcher to `tuner.spec.default_algorithms`."""
_URL_LIKE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MIN_COMMON_FAILURES: Final = 5


@dataclass(slots=True)
class FailureConfig(Settings):
    """What happens when a trial fails.

    Attributes:
        max_failures: How often each trial is tried again, in a new process and from its latest
            checkpoint: 0, the default, for never, -1 for no limit. A trial that gets no farther is
            tried again at once for three times, then ever more slowly, up to once a minute. Not
            every failure is worth it, see `no_retry_on` and `max_identical_failures`.
        fail_fast: True ends the experiment when the first trial has failed; the others stay
            resumable. ``"raise"`` raises the error from ``fit()`` as well. Needs
            ``max_failures=0``.
        report_timeout_s: A trial that does not report for this many seconds counts as hung: it is
            killed, which is a failure. The time that its process takes to start and to import what
            it needs counts as well, the time that `report` takes to store a checkpoint does not.
            None, the default, for never.
        stop_grace_s: How many seconds a trial has to save, clean up and leave once it has been told
            to stop, before it is killed.
        retry_on: Classes of exceptions that are worth all `max_failures` retries, or the names of
            such classes: ``[ConnectionError, "OutOfMemoryError"]``. Derived classes count as well;
            they are recorded and compared by their bare names. `ConnectionError` and `TimeoutError`
            are also worth them, unless `no_retry_on` names them or a class that they derive from.
        no_retry_on: Classes of exceptions that are worth no retry. None, the default, for those
            that mostly tell of a mistake in the code, which `NOT_WORTH_A_RETRY` lists:
            `AttributeError`, `ImportError`, `KeyError`, `NameError`, `NotImplementedError`,
            `SyntaxError`, `TypeError`, as far as `retry_on` names neither them nor a class that
            they derive from. An empty list has all tried again. Where `retry_on` and `no_retry_on`
            both fit, the class nearest to the exception's own counts.
        max_identical_failures: After how many times the same exception at the same line, without
            any progress in between, a trial is given up although it has retries left; 3 by default,
            1 for no retry after any exception, None for no such limit. A process that was killed is
            tried again all the same.
        max_common_failures: After how many trials that failed with the same exception at the same
            line the experiment stops, as long as no trial has succeeded or got any farther:
            ``"auto"``, the default, for twice as many as run at once, and at least 5; None for no
            such limit. It can be continued when the cause is mended.

    Raises:
        ValueError: If a value is out of range or two contradict each other.
        TypeError: If a value has the wrong type.

    Departures:
        Ray Tune tries every exception again as often as `max_failures` says, and runs all trials
        whatever they fail with.
    """

    max_failures: int = 0
    fail_fast: bool | Literal["raise"] = False
    report_timeout_s: float | None = None
    stop_grace_s: float = 30.0
    retry_on: Sequence[type[BaseException] | str] | None = None
    no_retry_on: Sequence[type[BaseException] | str] | None = None
    max_identical_failures: int | None = 3
    max_common_failures: int | Literal["auto"] | None = "auto"

    def _check(self) -> None:
        _check_whole("max_failures", self.max_failures)
        self._check_policies()
        if not isinstance(self.report_timeout_s, int | float | None):
            raise TypeError(
                "report_timeout_s must be a number of seconds or None, got "
                f"{self.report_timeout_s!r}"
            )
        if not isinstance(self.stop_grace_s, int | float):
            raise TypeError(f"stop_grace_s must be a number of seconds, got {self.stop_grace_s!r}")
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

    def _check_policies(self) -> None:
        for name in ("retry_on", "no_retry_on"):
            object.__setattr__(self, name, _exception_names(name, getattr(self, name)))
        if both := set(self.retry_on or ()) & set(self.no_retry_on or ()):
            raise ValueError(
                "retry_on and no_retry_on must name different exceptions, got "
                f"{', '.join(map(str, both))} in both"
            )
        _check_limit("max_identical_failures", self.max_identical_failures)
        if self.max_common_failures != AUTO:
            _check_limit(
                "max_common_failures", self.max_common_failures, f"a whole number, {AUTO!r} or None"
            )

    def policies(self, num_slots: int) -> dict[str, Any]:
        """Return the fields of `ExperimentSettings` that say what is tried again and when an experiment gives up.

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
            "no_retry_on": _not_covered(NOT_WORTH_A_RETRY, given) if refused is None else refused,
            "max_identical_failures": self.max_identical_failures,
            "max_common_failures": common,
        }


@dataclass(slots=True)
class RunConfig(Settings):
    """Where an experiment lives and how it is run.

    Attributes:
        name: Name of the experiment and of its directory, e.g. ``"lr=0.1"``, ``"my exp"``, or
            ``"group/exp"`` for a directory in a folder; None, the default, for
            ``<trainable>_<date>``.
        storage_path: Directory in which the experiment's own is made; None, the default, for
            ``~/tuner_results``.
        stop: When a trial has trained enough: a dictionary ``{metric: value}`` (reached by an equal
            or larger value, whatever the direction of optimisation; a string such as ``"<= 0.1"``
            compares otherwise), a function ``(trial_id, result) -> bool``, a `Stopper` or a list of
            them, any of which may stop.
        checkpoint_config: See `CheckpointConfig`.
        failure_config: See `FailureConfig`.
        callbacks: Called in this order, before the loggers that are added by default.
        verbose: 0 prints nothing at all; 1, the default, shows progress and a summary; 2 adds a
            line for each trial.
        resources: What the experiment may occupy in all, by name, e.g. ``{"cpu": 4, "licence":
            2}``; what is not named is taken from the machine. This is also where resources of your
            own invention come from.
        executor: ``"process"`` (the default) runs each trial in a fresh process. ``"inline"`` runs
            trials in this process, one step at a time, so that a debugger works; a trial that
            crashes the process takes everything with it.
        time_limit_s: How many seconds from now the job may run, where a batch system will end it;
            None, the default, for no limit. The experiment stops early enough before, so that
            running trials may save, and can be restored. A script then exits with code 124; each
            restore gets its own limit. (`TuneConfig.time_budget_s` is another thing: after it the
            experiment is complete.)
        interrupt_grace_s: How many seconds running trials have to report, save and leave once a
            signal or the time limit interrupts the experiment, before they are killed. Batch
            systems commonly wait 30 s between a signal and the kill.
        durability: What a power cut may cost: ``"group"`` (the default) at most the last 50 ms of
            results, ``"strict"`` nothing, ``"process"`` what the system had not written yet. The
            death of processes costs nothing in any of them.
        storage_retry_s: How long, in seconds, trials wait for storage that has failed or become
            read-only before they are stopped and `fit` raises; 60 by default. For a full disk to
            have space again they wait as long as it takes.
        log_to_file: Accepted for compatibility; each trial's output always lands in its directory,
            in ``stdout`` and ``stderr``.
        progress_reporter: What is shown of the progress, and when: a `CLIReporter`, a
            `JupyterNotebookReporter`, or a `ProgressReporter` of your own. None, the default, for a
            live table on a terminal and in a notebook, and a few lines elsewhere. Not written down:
            give it again to `Tuner.restore`.
        sync_config: Accepted for compatibility and not used: what a trial writes stays where it is.
        storage_filesystem: Must be None; other file systems are not supported for experiments yet.
        if_exists: What a new experiment does where one of its name is: ``"error"`` (the default)
            raises `ExperimentExists`. ``"new"`` leaves it alone and runs beside it, in a directory
            with a number behind the name (``exp_2``, ``exp_3``, ...). ``"replace"`` removes it,
            results and checkpoints included, after all other checks have passed; one that is
            running, and what is not recognisable as a tuner experiment, is never removed, and files
            of others in its directory are kept. ``Tuner(..., resume="auto")`` continues it instead.

    Raises:
        ValueError: If a value is out of range.
        TypeError: If a value has the wrong type.
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
    durability: Literal["process", "group", "strict"] = "group"
    storage_retry_s: float = 60.0
    time_limit_s: float | None = None
    interrupt_grace_s: float = 10.0
    log_to_file: bool | str | tuple[str, str] = True
    progress_reporter: ProgressReporter | None = None
    sync_config: Any = None
    storage_filesystem: Any = None
    if_exists: Literal["error", "new", "replace"] = "error"

    def _check(self) -> None:
        stopper_from(self.stop)
        self._check_storage()
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
        if isinstance(self.storage_retry_s, bool) or not isinstance(
            self.storage_retry_s, int | float
        ):
            raise TypeError(
                f"storage_retry_s must be a number of seconds, got {self.storage_retry_s!r}"
            )
        if not self.storage_retry_s >= 0:
            raise ValueError(
                f"storage_retry_s must be at least 0 seconds, got {self.storage_retry_s!r}"
            )
        if not isinstance(self.callbacks, Sequence | None):
            raise TypeError(f"callbacks must be a list of tuner.Callback, got {self.callbacks!r}")
        for callback in self.callbacks or ():
            if not isinstance(callback, Callback):
                raise TypeError(f"callbacks must be instances of tuner.Callback, got {callback!r}")
        _check_type("checkpoint_config", self.checkpoint_config, CheckpointConfig)
        _check_type("failure_config", self.failure_config, FailureConfig)
        _check_type("progress_reporter", self.progress_reporter, ProgressReporter)
        _check_amounts(self.resources)
        self._check_times()

    @property
    def leave_at_s(self) -> float | None:
        """Seconds after which running trials are told to save and leave, so that all is over at `time_limit_s`; None for never."""
        return (
            None
            if self.time_limit_s is None
            else self.time_limit_s - self.interrupt_grace_s - CLOSING_S
        )

    def _check_times(self) -> None:
        if isinstance(self.time_limit_s, bool) or not isinstance(
            self.time_limit_s, int | float | None
        ):
            raise TypeError(
                f"time_limit_s must be a number of seconds or None, got {self.time_limit_s!r}"
            )
        if isinstance(self.interrupt_grace_s, bool) or not isinstance(
            self.interrupt_grace_s, int | float
        ):
            raise TypeError(
                f"interrupt_grace_s must be a number of seconds, got {self.interrupt_grace_s!r}"
            )
        if not 0 <= self.interrupt_grace_s < math.inf:
            raise ValueError(
                "interrupt_grace_s must be finite and at least 0 seconds, got "
                f"{self.interrupt_grace_s!r}"
            )
        if self.leave_at_s is not None and not 0 < self.leave_at_s < math.inf:
            raise ValueError(
                "time_limit_s must be finite and more than "
                f"interrupt_grace_s={self.interrupt_grace_s!r} and {CLOSING_S} s to kill "
                f"who does not leave and to close the files, got {self.time_limit_s!r}; give "
                "a longer limit or less grace"
            )

    def _check_storage(self) -> None:
        if self.name is not None:
            layout.check_name(self.name)
        if self.if_exists not in IF_EXISTS:
            raise ValueError(
                f"if_exists must be one of {', '.join(map(repr, IF_EXISTS))}, got "
                f"{self.if_exists!r}"
            )
        if not isinstance(self.storage_path, str | os.PathLike | None):
            raise TypeError(f"storage_path must be a path, got {self.storage_path!r}")
        if self.storage_filesystem is not None:
            raise ValueError(
                f"storage_filesystem must be None, got {self.storage_filesystem!r}; mount it "
                "and give a path"
            )
        if self.storage_path is not None:
            _check_storage_path(os.fspath(self.storage_path))


def _check_storage_path(path: str) -> None:
    if not path.strip():
        raise ValueError(
            f"storage_path must name a directory, got {path!r}; leave it out for "
            "~/tuner_results, or give '.'"
        )
    if _URL_LIKE.match(path):
        raise ValueError(
            f"storage_path must be a directory on a mounted file system, got {path!r}, which "
            "looks like a URL; mount it and give the "
            "path of the mount, or write ./ in front for a folder of that name"
        )
    if "\0" in path:
        raise ValueError(f"storage_path must not contain a null character, got {path!r}")
    if path.startswith("~"):
        try:
            absolute_path(path)
        except StorageError as cause:
            raise ValueError(f"storage_path {cause}") from cause


@dataclass(slots=True)
class TuneConfig(Settings):
    """What is searched for, and how.

    Attributes:
        metric: Name of the metric to optimise, nested ones as ``"a/b"``.
        mode: ``"min"`` if a smaller value of `metric` is better, ``"max"`` if a larger one is.
            Required with a metric, since neither direction is a safe guess.
        num_samples: How many trials; with ``grid_search`` in the space, how often the grid is
            repeated. -1 for endless, until another limit stops the experiment.
        search_alg: A `Searcher`, or ``"auto"`` for ours, `searchers.TreeSearch`, where there is
            something to search. None, the default, is random sampling and grids beside a scheduler
            that is named, and ``"auto"`` where none is and metric and mode are.
        scheduler: A `Scheduler`, an object with the methods of Ray Tune's (see
            `schedulers.TrialScheduler`), or ``"auto"`` for ASHA. None, the default, runs every
            trial to its end beside a searcher that is named; where none is and metric and mode are,
            it is ASHA if the trainable saves when it is asked to or `RunConfig.stop` names the
            ``training_iteration`` at which trials end. `FIFOScheduler` trains all to the end in any
            case. See `tuner.spec.default_algorithms`.
        max_concurrent_trials: How many trials run at once; None or 0 for as many as the resources
            allow.
        time_budget_s: After so many seconds of running (or a `datetime.timedelta`) everything
            stops; None for no limit. Counted over restores.
        seed: Everything random in the experiment follows from it; None draws one and writes it
            down.
        duplicates: What becomes of a configuration that the searcher proposes again: ``"repeat"``,
            the default, runs it again; ``"skip"`` has the searcher propose another; ``"reuse"`` has
            it learn what the earlier trial reported, and propose another. See
            `searchers.DuplicateGuard`.
        reuse_actors: Accepted for compatibility: a new process costs milliseconds, so that each
            trial has its own.
        trial_name_creator: Accepted for compatibility and not used; `trial_dirname_creator`
            likewise. Trials are named by their id.
        chdir_to_trial_dir: True lets each trial run in its own directory, so that relative paths in
            the training code lead there. False leaves the working directory as it is, so that they
            mean what they mean in the script, whose directory a trial finds in the environment
            variable ``TUNE_ORIG_WORKING_DIR`` in either case. None, the default, is False unless
            the environment variable ``RAY_CHDIR_TO_TRIAL_DIR`` is 1 when the experiment begins.

    Raises:
        ValueError: If a value is out of range.
        TypeError: If a value has the wrong type.
    """

    metric: str | None = None
    mode: Literal["min", "max"] | None = None
    num_samples: int = 1
    search_alg: Searcher | Literal["auto"] | None = None
    scheduler: Scheduler | Literal["auto"] | None = None
    max_concurrent_trials: int | None = None
    time_budget_s: float | dt.timedelta | None = None
    seed: int | None = None
    duplicates: Duplicates = "repeat"
    reuse_actors: bool = False
    trial_name_creator: Any = None
    trial_dirname_creator: Any = None
    chdir_to_trial_dir: bool | None = None

    def _check(self) -> None:
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            raise TypeError(f"metric must be the name of a reported value, got {self.metric!r}")
        if self.mode is not None and self.mode not in MODES:
            raise ValueError(f"mode must be 'min' or 'max', got {self.mode!r}")
        _check_whole("num_samples", self.num_samples)
        if self.num_samples != -1 and self.num_samples < 1:
            raise ValueError(
                f"num_samples must be at least 1, or -1 for endless, got {self.num_samples!r}"
            )
        if self.max_concurrent_trials is not None:
            _check_whole(
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
        object.__setattr__(self, "scheduler", adapted(self.scheduler))
        _check_part("scheduler", self.scheduler, Scheduler)
        _check_part("search_alg", self.search_alg, Searcher)

    def _check_together(self) -> None:
        if self.metric is not None and self.mode is None:
            raise ValueError(
                "mode must be 'min' or 'max' where a metric is named, got "
                f"metric={self.metric!r} without a mode; write "
                f"TuneConfig(metric={self.metric!r}, mode='max') if a larger value is better, "
                "mode='min' if a smaller one is"
            )

    @property
    def budget_s(self) -> float | None:
        """The time budget in seconds."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, dt.timedelta) else budget


@dataclass(slots=True)
class ResumeConfig(Settings):
    """What becomes of trials when an experiment is restored.

    Each field takes ``"skip"`` (they stay as they are; unfinished ones end), ``"resume"`` (they go
    on from their latest checkpoints) or ``"restart"`` (they begin anew under their ids: checkpoints
    are deleted, and results no longer count).

    Attributes:
        finished: Trials that are over, those that were stopped early included.
        unfinished: Trials that are not, or were only interrupted, e.g. by Ctrl-C or when the time
            budget was used up.
        errored: Trials that failed; those that are tried again have all their attempts left.

    Raises:
        ValueError: If a value is none of the three.

    Example:
        >>> ResumeConfig(errored="restart").errored is ResumeConfig.ResumeType.RESTART
        True

    Departures:
        In Ray Tune, a trial that begins anew gets another id, and the old one disappears.
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
        """Return what the three switches of `Tuner.restore` mean; resuming comes before restarting."""
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
        """Return the event with which the new driver, and what holds for it, enters the journal."""
        unfinished, errored, finished = map(
            events.ResumeType, (self.unfinished, self.errored, self.finished)
        )
        return events.DriverRestarted(settings, unfinished, errored, finished)


def _check_part(name: str, value: Any, kind: type) -> None:
    if value is not None and value != AUTO and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, {AUTO!r} or None, got {value!r}")


def _check_type(name: str, value: Any, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")


def _check_whole(name: str, value: Any, accepted: str = "a whole number") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {accepted}, got {value!r}")


def _check_limit(name: str, value: Any, accepted: str = "a whole number or None") -> None:
    if value is not None:
        _check_whole(name, value, accepted)
        if value < 1:
            raise ValueError(f"{name} must be at least 1, or None for no limit, got {value!r}")


def _exception_names(name: str, given: Any) -> tuple[str, ...] | None:
    """Return the bare names of classes of exceptions: they are recorded by them, and nothing is imported to look for them again."""
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
    """Return the names of the built-in exceptions that neither are named in what the user has given, nor derive from what is."""
    return tuple(
        name
        for name in defaults
        if not any(kind.__name__ in given for kind in getattr(builtins, name).__mro__)
    )


def _check_amounts(resources: Any) -> None:
    if resources is None:
        return
    if not isinstance(resources, Mapping) or not all(
        isinstance(amount, int | float) for amount in resources.values()
    ):
        raise TypeError(f"resources must be a dictionary of amounts by name, got {resources!r}")
    if not all(0 <= amount < math.inf for amount in resources.values()):
        raise ValueError(f"resources must be finite and at least 0, got {resources!r}")
