"""`Result`: what one trial reported, its checkpoints, and how it ended."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from searchers.objectives.outcome_constraint import Constraints
from tuner import capabilities
from tuner.core.checkpoints import RetentionPolicy, ranked
from tuner.core.feasibility import missed
from tuner.core.result import (
    AUTO_FILLED,
    CHECKPOINT_DIR_NAME,
    CONFIG,
    DONE,
    EXPERIMENT_TAG,
    TRIAL_ID,
    identity,
    merged,
)
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import COMMITTED, CheckpointRecord
from tuner.errors import TrialFailed, error_of_trial
from tuner.journal.rows import JournalRows, MemoryRows, Row, Rows, histories_of
from tuner.storage import layout
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.disk import LARGE_BYTES, read_file
from tuner.storage.urls import is_like_url, is_url, join_url, split_url

from .flat_results import flat_metrics
from .ranking import (
    Mode,
    best_row_index,
    check_mode,
    config_at,
    is_number,
    mode_for,
    newest_of,
    step_rank,
    unknown_metric,
    with_newest,
)

if TYPE_CHECKING:
    import pandas as pd

    from .frames import MetricsFrames


@dataclass(frozen=True, slots=True)
class CheckpointValidation:
    """How a checkpoint was validated.

    Attributes:
        status: ``"PENDING_VALIDATION"``, ``"VALIDATED"``, ``"VALIDATION_FAILED"`` or
            ``"VALIDATION_TIMEOUT"``.
        metrics: What the validation function returned, nested; empty unless it completed, and once
            retention has deleted the checkpoint.
        error: What went wrong; empty for nothing.
    """

    status: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@final
@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The object store that an experiment is in.

    Attributes:
        url: The experiment's URL.
        filesystem: The fsspec file system that was given for it; None for that of the URL.
        copy: The copy that is read if the experiment was opened by its URL; None if its local
            directory was.
    """

    url: str
    filesystem: Any = None
    copy: os.PathLike[str] | None = None

    def checkpoint(self, trial_id: str, record: CheckpointRecord, local: Path) -> Checkpoint:
        """Return a trial's checkpoint: the local one if it is there, else the one in the store."""
        if not record.remote or (self.copy is None and local.exists()):
            return Checkpoint(local)
        return Checkpoint(join_url(self.url, f"{trial_id}/{record.remote}"), self.filesystem)


@final
class FramesOnDemand:
    """The data frames of an experiment's trials, made when the first is asked for.

    Args:
        trials: The trials.
        rows: Source of their results.
    """

    def __init__(self, trials: Sequence[Trial], rows: Rows) -> None:
        self._trials = trials
        self._rows = rows

    @functools.cached_property
    def made(self) -> MetricsFrames:
        """The frames."""
        from .frames import MetricsFrames, TableTrial  # noqa: PLC0415  (not after every run)

        table_trials = [
            TableTrial(
                trial.trial_id, trial.config, is_over(trial), trial.num_rows, tuple(trial.grafts)
            )
            for trial in self._trials
        ]
        return MetricsFrames(table_trials, self._rows)


@final
# Without slots, since cached properties need a __dict__.
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result:
    """The outcome of one trial: its last result, its checkpoints, and how it ended.

    Two results are equal if they belong to the same trial of the same experiment.

    Attributes:
        trial_id: The trial.
        path: The trial's directory; a URL if the experiment was opened by its URL.
        config: Its current hyperparameters, nested as they were given. If a scheduler changed them
            after the last result, no result was reached with them: ``metrics["config"]`` is the
            configuration of the last result, `best_config` that of the best one.
        metrics: Its last result, nested as reported, with the ``config`` in force at it,
            ``experiment_tag``, and ``done``: whether the trial is over. For a trial that never
            reported, only these and ``trial_id``. A last result that lacks the experiment's metric
            has the newest value that was reported. The result of the best step is `best_metrics`.
        checkpoint: Its latest checkpoint, None without one. It is not always the best; see
            `best_checkpoint`.
        error: Why it failed for good, with the traceback among its notes; None if it ended well,
            recovered or is not over.
        status: Its status at the end of the experiment; None if only its directory was read, which
            does not record it.
        ending: Why it ended; None if it has not, or if only its directory was read.
        metric: The metric by which the best step is chosen, flattened: the experiment's, or that
            given to `get_best_result`; None for none.
        mode: Whether that metric is minimised (``"min"``) or maximised (``"max"``).
        kept_checkpoints: Every checkpoint still on the disk, in ascending order of its score, so
            that the best one is last.
        num_to_keep: How many of them `best_checkpoints` lists; None for all.
        validations: How its checkpoints were validated, by the names of their directories; without
            those for which no validation was asked.
        violations: The constraints of the experiment that it misses, e.g. ``"size_mb <= 4"``, and
            by how much; infinity for a metric that is missing or not finite. Its newest values
            count. Empty if it is feasible, and if only its directory was read.
        rows: Source of all of its results, read on demand.
        frames: The frames of all trials of the experiment; None for a trial read alone.
        storage: The object store that the experiment is in; None if it is in none.
        checkpoint_names: Names of the directories of checkpoints in the object store as they are in
            results, by their URLs.

    Departures:
        `best_metrics` and `best_checkpoint` belong to the best step; Ray Tune offers only the last
        result and, as ``checkpoint``, the latest one, also if the trial was chosen by an earlier
        value. `error` is None for a trial that recovered; Ray Tune reports the error file of its
        first attempt.
    """

    trial_id: str
    path: str
    config: dict[str, Any]
    metrics: dict[str, Any]
    checkpoint: Checkpoint | None = None
    error: TrialFailed | None = None
    status: Status | None = None
    ending: TerminationReason | None = None
    metric: str | None = None
    mode: Mode | None = None
    kept_checkpoints: Sequence[Checkpoint] = ()
    num_to_keep: int | None = None
    validations: Mapping[str, CheckpointValidation] = field(default_factory=dict)
    violations: Mapping[str, float] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: MemoryRows({}))
    frames: FramesOnDemand | None = None
    storage: ObjectStorage | None = None
    checkpoint_names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Return the result of a trial from its directory alone, or from its URL.

        Args:
            path: The trial's directory, which may have been moved. It reads ``params.json``,
                ``result.json`` (``progress.csv`` without it), ``validations.json``, the manifests
                of the checkpoints and ``error.txt``. Or the URL of a trial in an object store,
                which is that of its experiment with the trial's id behind it; it reads the
                experiment's journal.
            storage_filesystem: For a URL: the fsspec file system it is on; None for that of the
                URL.

        Returns:
            From a directory a result without `ending`, its checkpoints ranked by recency, with an
            error only if the trial did not continue after it.

        Raises:
            FileNotFoundError: If there is no such directory, or no trial in it.
            StorageError: If one of the files cannot be understood, or the store not be read.
        """
        if storage_filesystem is not None or is_like_url(os.fspath(path)):
            return _from_store(os.fspath(path), storage_filesystem)
        from .trial_files import read_trial_files  # noqa: PLC0415  (most are read by the journal)

        files = read_trial_files(path)
        last = files.rows[-1] if files.rows else {TRIAL_ID: files.trial_id}
        rows = MemoryRows(
            {files.trial_id: files.rows},
            {files.trial_id: files.branches},
            {files.trial_id: files.configs},
        )
        configs = rows.configs(files.trial_id)
        return cls(
            trial_id=files.trial_id,
            path=str(files.path),
            config=files.config,
            metrics={**last, CONFIG: dict(configs[-1]) if configs else files.config},
            checkpoint=files.checkpoints[-1] if files.checkpoints else None,
            error=files.error,
            status=Status.ERROR if files.error else None,
            kept_checkpoints=files.checkpoints,
            validations={
                one.checkpoint: CheckpointValidation(one.status, one.metrics, one.error)
                for one in files.validations
            },
            rows=rows,
        )

    @property
    def feasible(self) -> bool:
        """Whether it keeps all constraints of the experiment, by the newest value of each metric.

        True without constraints, and if only its directory was read, which does not have them.
        """
        return not self.violations

    @functools.cached_property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The best of the kept checkpoints with their metrics, in ascending order of score.

        The best one is last. There are as many as ``CheckpointConfig.num_to_keep``, without it all.
        They are ranked by ``checkpoint_score_attribute`` in the direction of
        ``checkpoint_score_order``, without an attribute by recency.

        Raises:
            CheckpointError: If one has been deleted or damaged since; `best_checkpoint` and
                `get_best_checkpoint` likewise.
        """
        best = (
            self.kept_checkpoints
            if self.num_to_keep is None
            else self.kept_checkpoints[-self.num_to_keep :]
        )
        return [(checkpoint, self.metrics_of(checkpoint)) for checkpoint in best]

    @property
    def best_metrics(self) -> dict[str, Any]:
        """The result of the best step, nested as reported, with the ``config`` in force at it.

        The best step is that with the best finite value of `metric` in the direction of `mode`, the
        latest of equal ones. Empty without a best step.
        """
        place = self._best_place
        if place is None:
            return {}
        return {**self.rows.of(self.trial_id)[place], CONFIG: self._config_at(place)}

    @property
    def best_config(self) -> dict[str, Any]:
        """The hyperparameters of the best step, which a scheduler may have changed since.

        Without a best step they are `config`.
        """
        return self.config if self._best_place is None else self._config_at(self._best_place)

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The checkpoint of the best of the steps that have one.

        Steps are compared as for `best_metrics`; without a metric it is the last of
        `best_checkpoints`. None without checkpoints, or if no result with a checkpoint has the
        metric.

        Raises:
            CheckpointError: If one has been deleted or damaged since.
        """
        if self.metric is None or self.mode is None:
            return self.kept_checkpoints[-1] if self.kept_checkpoints else None
        scored = self._scored(self.metric)
        return _best(scored, self.mode) if scored else None

    def get_best_checkpoint(self, metric: str, mode: Mode) -> Checkpoint | None:
        """Return the kept checkpoint with the best value of a metric; the latest of equal ones.

        Args:
            metric: Name of the metric; ``"a/b"`` for a nested one.
            mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are. NaN is never
                better than a number.

        Returns:
            The checkpoint, None if the trial has none.

        Raises:
            ValueError: If no checkpoint's result has such a metric, or the mode is unknown.
        """
        check_mode(mode)
        if not self.kept_checkpoints:
            return None
        scored = self._scored(metric)
        if not scored:
            every = [
                flat_metrics(self.metrics_of(checkpoint)) for checkpoint in self.kept_checkpoints
            ]
            known = {key for metrics in every for key, value in metrics.items() if is_number(value)}
            raise unknown_metric(metric, known, f"trial {self.trial_id} with a checkpoint")
        return _best(scored, mode)

    @property
    def checkpoint_statuses(self) -> dict[Checkpoint, str]:
        """Whether each checkpoint was validated, by the names of Ray's `ReportedCheckpointStatus`.

        ``"COMMITTED"`` if no validation was asked for, ``"PENDING_VALIDATION"`` if it has not
        ended, ``"VALIDATED"``, ``"VALIDATION_FAILED"`` or ``"VALIDATION_TIMEOUT"``. They are in the
        order of `kept_checkpoints`, followed by those that were validated and are deleted.
        `validations` has what was returned, and what went wrong.
        """
        kept = dict.fromkeys(self.kept_checkpoints, COMMITTED)
        return kept | {
            self._checkpoint_named(name): validation.status
            for name, validation in self.validations.items()
        }

    def metrics_of(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Return the metrics of a kept checkpoint's result, with the ``config`` then.

        Those of its validation are among them.

        Raises:
            CheckpointError: If it has been deleted or damaged since.
        """
        path = Path(checkpoint.path)
        name = self.checkpoint_names.get(checkpoint.path) or os.path.relpath(path, self._files)
        metrics: Mapping[str, Any] | None = None
        # Ray Tune writes no manifests; nor is there one in a directory that need not exist.
        if not (path / layout.MANIFEST).exists():
            metrics = self._rows_by_checkpoint.get(name)
        if metrics is None:
            from tuner.storage.manifest import read_manifest  # noqa: PLC0415  (rarely looked into)

            metrics = read_manifest(path).metrics
        if validation := self.validations.get(name):
            metrics = merged(metrics, validation.metrics)
        return {
            **metrics,
            CONFIG: dict(self._configs_by_report.get(identity(metrics), self.config)),
        }

    @functools.cached_property
    def return_value(self) -> Any:
        """What the training function of a trainer returned on rank 0; None for nothing.

        It is a JSON value: arrays and tensors have become lists, tuples as well.

        Departures:
            Ray Train returns any object that can be pickled.
        """
        path = Path(self._files, layout.RETURN_VALUE)
        return json.loads(path.read_bytes()) if path.exists() else None

    @functools.cached_property
    def metrics_dataframe(self) -> pd.DataFrame:
        """Every result of the trial as a row, flattened with ``/``; empty if it never reported.

        Columns ``config/...`` are the configuration in force at each row; ``done`` in the last row
        is whether the trial is over. The frames of all trials are read together as soon as more
        than a few of them are requested.
        """
        from .frames import with_hints  # noqa: PLC0415  (not after every run)

        return with_hints(self._all_frames.of(self.trial_id))

    @functools.cached_property
    def training_curve(self) -> pd.DataFrame:
        """The results that led to the last one, each iteration once, in ascending order.

        The columns are those of `metrics_dataframe`. Without exploits, it is that frame. If the
        trial continued from another trial's checkpoint, its earlier results are replaced by those
        of that trial up to the checkpoint, and so on back to the beginning: ``trial_id`` is the
        trial that trained the row, ``config/...`` what it was trained with.

        Raises:
            ValueError: If the trial was read alone and continued from other trials.
        """
        return self._all_frames.curve(self.trial_id)

    @property
    def _all_frames(self) -> MetricsFrames:
        if self.frames:
            return self.frames.made
        from .frames import MetricsFrames, TableTrial  # noqa: PLC0415  (not after every run)

        own = TableTrial(self.trial_id, self.config, self.metrics.get(DONE, False))
        return MetricsFrames([own], self.rows)

    def get_output(self, stream: Literal["stdout", "stderr"] = "stdout", rank: int = 0) -> str:
        """Return what the training code has printed, in all attempts together.

        Args:
            stream: ``"stdout"`` or ``"stderr"``.
            rank: Of which worker, if several train the trial.

        Raises:
            ValueError: If there is no such stream.
            OSError: If the file cannot be read.
        """
        names = {"stdout": layout.STDOUT, "stderr": layout.STDERR}
        if stream not in names:
            raise ValueError(f"stream must be 'stdout' or 'stderr', got {stream!r}")
        path = Path(self._files, layout.of_rank(names[stream], rank))
        try:
            return read_file(path, LARGE_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def filesystem(self) -> Any:
        """The fsspec file system of `path`; needs fsspec."""
        return capabilities.filesystem_of(
            self.path, self.storage.filesystem if self.storage else None
        )

    def __getstate__(self) -> dict[str, Any]:
        # The frames hold all trials of the experiment; a pickled result contains only its own.
        return {**self.__dict__, "frames": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and (self.trial_id, self.path) == (
            other.trial_id,
            other.path,
        )

    def __hash__(self) -> int:
        return hash((self.trial_id, self.path))

    def __repr__(self) -> str:
        """Return status, metrics, what is missed, configuration and directory, a line for each."""
        metrics = {
            key: value
            for key, value in flat_metrics(self.metrics).items()
            if key not in AUTO_FILLED
        }
        lines = [
            f"trial_id={self.trial_id!r}, status={self.status and str(self.status)!r}",
            f"metrics={metrics!r}",
        ]
        if self.violations:
            lines.append(f"violations={self.violations!r}")
        lines += [f"config={self.config!r}", f"path={self.path!r}"]
        lines += [
            f"{name}={value!r}"
            for name, value in (("checkpoint", self.checkpoint), ("error", self.error))
            if value is not None
        ]
        return "Result(\n  " + ",\n  ".join(lines) + "\n)"

    @functools.cached_property
    def _best_place(self) -> int | None:
        """Index of the best step among all results; None without one."""
        if self.metric is None or self.mode is None:
            return None
        return best_row_index(self.rows.of(self.trial_id), self.metric, self.mode)

    @functools.cached_property
    def _rows_by_checkpoint(self) -> dict[str, Row]:
        """The results saved with a checkpoint, by the name of its directory."""
        return {
            str(row[CHECKPOINT_DIR_NAME]): row
            for row in self.rows.of(self.trial_id)
            if row.get(CHECKPOINT_DIR_NAME)
        }

    @functools.cached_property
    def _configs_by_report(self) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        """The configuration in force at each result; empty where it never changed."""
        configs = self.rows.configs(self.trial_id)
        if not configs:
            return {}
        rows = self.rows.of(self.trial_id)
        return {identity(row): config for row, config in zip(rows, configs, strict=True)}

    @property
    def _files(self) -> str:
        """The directory of this machine with the trial's files."""
        copy = self.storage.copy if self.storage else None
        return layout.trial_path(copy, self.trial_id) if copy else self.path

    def _checkpoint_named(self, name: str) -> Checkpoint:
        """Return the checkpoint of a directory, which may have been deleted."""
        url = next((url for url, known in self.checkpoint_names.items() if known == name), "")
        if url:
            return Checkpoint(url, self.storage.filesystem if self.storage else None)
        return Checkpoint(Path(self._files, name))

    def _config_at(self, place: int) -> dict[str, Any]:
        configs = self.rows.configs(self.trial_id)
        return self.config if configs is None else dict(configs[place])

    def _scored(self, metric: str) -> list[tuple[Checkpoint, float]]:
        found = [
            (checkpoint, flat_metrics(self.metrics_of(checkpoint)).get(metric))
            for checkpoint in self.kept_checkpoints
        ]
        return [(checkpoint, value) for checkpoint, value in found if is_number(value)]


def _from_store(path: str, filesystem: Any) -> Result:
    """Return the result of the trial with this URL."""
    url = capabilities.checked_url("path", path, filesystem)
    experiment, trial_id = split_url(url)
    # Its protocol and a bucket remain at least.
    if layout.is_trial_id(trial_id) and is_url(experiment):
        copy = capabilities.ReadableCopy(experiment, filesystem)
        from .open_experiment import read_directory  # noqa: PLC0415  (not after a run)

        found = read_directory(copy.directory)
        for trial in found.trials:
            if trial.trial_id == trial_id:
                return result_of(
                    trial,
                    experiment,
                    # The copy, not its path, which would be removed.
                    JournalRows(copy, histories_of(found.trials)),
                    found.retention,
                    metric=found.metric,
                    mode=mode_for(None, found.metric, found.mode, found.several),
                    constraints=found.constraints,
                    storage=ObjectStorage(experiment, filesystem, copy),
                )
    raise FileNotFoundError(
        f"path must be the URL of a trial, that of its experiment with the trial's id behind it, "
        f"got {url!r}; ResultGrid.from_directory reads all trials of an experiment"
    )


def result_of(
    trial: Trial,
    experiment_path: str,
    rows: Rows,
    retention: RetentionPolicy,
    *,
    metric: str | None,
    mode: Mode | None,
    constraints: Constraints = (),
    frames: FramesOnDemand | None = None,
    storage: ObjectStorage | None = None,
) -> Result:
    """Return the result of a trial.

    Args:
        trial: The trial.
        experiment_path: Directory of its experiment.
        rows: Source of its results, read on demand.
        retention: How its checkpoints are ranked.
        metric: The metric that the experiment optimises, flattened, if it names one; it chooses the
            best step.
        mode: ``"min"`` or ``"max"``: the direction in which that metric is optimised.
        constraints: What trials of the experiment have to keep.
        frames: The frames of all trials.
        storage: The object store that the experiment is in; None if it is in none.
    """
    directory = trial.local_path or layout.trial_path(experiment_path, trial.trial_id)

    def checkpoint(record: CheckpointRecord) -> Checkpoint:
        local = Path(directory, record.directory)
        return storage.checkpoint(trial.trial_id, record, local) if storage else Checkpoint(local)

    is_copy = storage is not None and storage.copy is not None
    return Result(
        trial_id=trial.trial_id,
        path=join_url(storage.url, trial.trial_id) if storage and is_copy else directory,
        storage=storage,
        checkpoint_names={checkpoint(record).path: record.directory for record in trial.checkpoints}
        if storage
        else {},
        config=dict(trial.config),
        metrics={
            **(
                with_newest(trial.last_result, newest_of(trial, metric, mode), metric)
                or {TRIAL_ID: trial.trial_id}
            ),
            CONFIG: dict(config_at(trial, rows)),
            DONE: is_over(trial),
            EXPERIMENT_TAG: trial.experiment_tag,
        },
        # Also one from which nothing could continue, since its directory need not exist.
        checkpoint=checkpoint(trial.checkpoints[-1]) if trial.checkpoints else None,
        error=_error_of(trial),
        status=trial.status,
        ending=trial.ending,
        metric=metric,
        mode=mode,
        kept_checkpoints=[checkpoint(record) for record in ranked(trial.checkpoints, retention)],
        num_to_keep=retention.num_to_keep,
        validations=_validations_of(trial),
        violations=missed(trial, constraints),
        rows=rows,
        frames=frames,
    )


def _validations_of(trial: Trial) -> dict[str, CheckpointValidation]:
    """Return how the checkpoints in a trial's directory were validated, by their names."""
    # Another one may have taken the directory of a checkpoint with a name.
    indices = {record.directory: record.index for record in trial.checkpoints}
    return {
        name: CheckpointValidation(one.status, one.metrics or {}, str(one.failure or ""))
        for index, one in trial.validations.items()
        if indices.get(name := one.checkpoint.directory, index) == index
    }


def is_over(trial: Trial) -> bool:
    """Return whether the trial has ended, and not because the experiment was interrupted."""
    return bool(trial.is_finished) and trial.ending is not TerminationReason.INTERRUPTED


def _error_of(trial: Trial) -> TrialFailed | None:
    if trial.status is not Status.ERROR:
        return None
    if not trial.failures:
        return TrialFailed(f"trial {trial.trial_id} failed")
    failure = trial.failures[-1]
    return error_of_trial(trial.trial_id, str(failure), failure.traceback, failure.bases)


def _best(scored: Sequence[tuple[Checkpoint, float]], mode: Mode) -> Checkpoint:
    """Return the checkpoint of the best step; of equal steps the last one."""
    from .trial_files import index_of  # noqa: PLC0415  (not after every run)

    return max(scored, key=lambda pair: (step_rank(pair[1], mode), index_of(pair[0])))[0]
