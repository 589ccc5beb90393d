"""Callback for Weights & Biases: one run per trial, online or offline."""

from __future__ import annotations

import importlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tuner.callbacks.log_records import Row, Validated
from tuner.core.result import TIMESTAMP, TRAINING_ITERATION, flatten
from tuner.core.trial import Status, Trial
from tuner.storage.origin import origin_of

from .tracker import ExperimentFacts, TrackerCallback, measured, need_library
from .tracker_queue import (
    Begun,
    Ended,
    Outcome,
    Recalled,
    Saved,
    Tracker,
    rows_without,
    validations_without,
)
from .wandb_files import Trace, trace_of

DEFAULT_UPLOAD_TIMEOUT_S: Final = 1800
_INIT_TIMEOUT_S: Final = 20.0
"""How long one attempt to begin a run may take; a finished script waits for it."""
_FIXED: Final = frozenset({"id", "reinit", "resume"})
_WITHOUT_KEY: Final = frozenset({"offline", "dryrun", "disabled"})
_EXIT_CODES: Final = {Outcome.FINISHED: 0, Outcome.FAILED: 1, Outcome.KILLED: 255}
"""Exit codes that W&B shows as finished, failed and killed."""

_log = logging.getLogger("tuner")


@final
class WandbLoggerCallback(TrackerCallback):
    """Keeps one run of Weights & Biases per trial, written in the background.

    Install it with ``pip install "tuner-hpo[wandb]"``.

    A run is named after its trial, grouped by the experiment, and has the flattened configuration.
    Each reported number, boolean or text is logged under its own name (nested ones as ``a/b``), and
    ``time_total_s``, ``timestamp`` and ``training_iteration``, which is the x axis of all charts;
    lists and other objects are left out, our own files have them. NaN and infinite values are kept.
    Metrics of a checkpoint's validation are logged with the ``training_iteration`` of the
    checkpoint.
    W&B's own step is ``training_iteration`` as well, until a trial reports an iteration again:
    steps of W&B only increase, so from then on each result is one step. A run continues over
    pauses, retries, exploits and restores, and ends as finished, failed or, if the experiment was
    interrupted, killed.

    Without a connection: ``WANDB_MODE=offline``, or ``mode="offline"``. Runs are then written
    to ``wandb/`` in the experiment's directory; upload them with ``wandb sync``. A run that was
    interrupted and restored has several folders there.

    Args:
        project: W&B project; None for ``WANDB_PROJECT``, or the name of the experiment.
        group: Group of the runs; None for ``WANDB_RUN_GROUP``, or the name of the experiment.
        api_key_file: A file that holds the key.
        api_key: The key; without one W&B uses ``WANDB_API_KEY``, or that of ``wandb login``. It is
            never written.
        excludes: Names of metrics that are not logged, nested ones as ``"a/b"`` or all of ``"a"``.
        log_config: Whether each result is logged with the configuration it was obtained with, as
            ``config/<name>``.
        upload_checkpoints: Whether checkpoints are uploaded, as versions of an artifact
            ``checkpoint_<trial>``.
        save_checkpoints: An older name of `upload_checkpoints`.
        upload_timeout: How many seconds the end of the experiment waits for W&B at most.
        **kwargs: Passed on to ``wandb.init``; its ``config`` is added to each trial's.

    Raises:
        ImportError: If wandb is not installed.
        ValueError: If a key is given twice, its file cannot be read or is empty, W&B is online and
            has no key, `kwargs` name an argument that the callback sets, or `upload_timeout` is not
            a positive number.

    Example:
        >>> from tuner import RunConfig
        >>> wandb = WandbLoggerCallback(project="digits", mode="offline", tags=["first"])
        >>> run_config = RunConfig(callbacks=[wandb])

    Departures:
        Ray Tune starts a process for each trial, begins a new run when an experiment is restored,
        and passes the key through the environment. System metrics, the console and the code are
        recorded only with ``settings=wandb.Settings(...)``: they would be those of the driver;
        `setup_wandb` in the training code records the trial's.
    """

    product = "W&B"
    kind = "wandb"

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: float = DEFAULT_UPLOAD_TIMEOUT_S,
        **kwargs: Any,
    ) -> None:
        need_library("wandb", "wandb")
        if fixed := sorted(_FIXED & kwargs.keys()):
            raise ValueError(
                f"arguments for wandb.init must leave {', '.join(sorted(_FIXED))} to the "
                f"callback, got {', '.join(fixed)}; omit it"
            )
        super().__init__(upload_timeout)
        self._options = _Options(
            project=project,
            group=group,
            api_key=read_key(api_key, api_key_file),
            excludes=frozenset(excludes or ()),
            log_config=log_config,
            upload_checkpoints=upload_checkpoints or save_checkpoints,
            init=kwargs,
        )
        self._key_file = None if api_key_file is None else str(Path(api_key_file).absolute())
        check_access(self._options.api_key, kwargs.get("mode"))

    def tracker(self, experiment: ExperimentFacts) -> Tracker:
        """Return the client for an experiment."""
        return _WandbTracker(experiment, self._options)

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that make such a callback; what the environment says is included."""
        options, experiment = self._options, self._experiment
        name = experiment.name if experiment else None
        directory = options.init.get("dir") or os.environ.get("WANDB_DIR")
        if experiment and not directory and origin_of(experiment.path):
            directory = experiment.path  # not that of the copy that is fetched
        return {
            **options.init,
            "project": options.project or os.environ.get("WANDB_PROJECT") or name,
            "group": options.group or os.environ.get("WANDB_RUN_GROUP") or name,
            "mode": options.init.get("mode") or os.environ.get("WANDB_MODE"),
            "dir": None if directory is None else str(Path(directory).absolute()),
            "api_key_file": self._key_file,
            "excludes": sorted(options.excludes),
            "log_config": options.log_config or None,
        }


@dataclass(frozen=True, slots=True)
class _Options:
    project: str | None
    group: str | None
    api_key: str | None
    excludes: frozenset[str]
    log_config: bool
    upload_checkpoints: bool
    init: Mapping[str, Any]


@dataclass(slots=True)
class _Run:
    """A run that is open.

    Attributes:
        run: W&B's object.
        config: The trial's configuration.
        last_step: The last step in W&B.
    """

    run: Any
    config: dict[str, Any]
    last_step: int


@final
class _WandbTracker(Tracker):
    """Client of Weights & Biases.

    Args:
        experiment: Our experiment.
        options: The user's options.
    """

    def __init__(self, experiment: ExperimentFacts, options: _Options) -> None:
        self._experiment = experiment
        self._options = options
        self._wandb: Any = None
        self._runs: dict[Trial, _Run] = {}
        self._steps: dict[str, int] = {}
        self._begun: dict[Trial, Begun] = {}
        self._is_offline = False
        self._directory = Path()

    def connect(self) -> None:
        self._wandb = importlib.import_module("wandb")
        settings = self._wandb.setup(self._wandb.Settings(silent=True)).settings
        self._is_offline = self._options.init.get("mode", settings.mode) in ("offline", "dryrun")
        self._directory = Path(
            self._options.init.get("dir") or os.environ.get("WANDB_DIR") or self._experiment.path
        )

    def begin(self, trial: Trial, begun: Begun) -> None:
        self._begun[trial] = begun
        if open_run := self._runs.get(trial):
            if open_run.config != begun.config:
                open_run.run.config.update(_plain(begun.config), allow_val_change=True)
                open_run.config = begun.config
            return
        step = self._steps.get(trial.trial_id)
        if step is None:
            step = self._trace(trial).last_step if trial.attempt > 1 else 0
        self._runs[trial] = self._open(trial, begun, step)

    def log(self, trial: Trial, rows: Sequence[Row]) -> None:
        if trial not in self._runs:
            self.begin(trial, self._begun[trial])  # it was closed while paused
        open_run = self._runs[trial]
        for row in rows:
            step = max(open_run.last_step + 1, int(row.result.get(TRAINING_ITERATION, 0)))
            open_run.run.log(dict(self._values(row, open_run.config)), step=step, commit=True)
            open_run.last_step = step

    def log_validation(self, trial: Trial, validated: Validated) -> None:
        if trial not in self._runs and trial in self._begun:
            self.begin(trial, self._begun[trial])  # it was closed while paused
        if open_run := self._runs.get(trial):
            # Steps of W&B only increase; the axis of its charts is the iteration.
            open_run.last_step += 1
            open_run.run.log(
                {**self._shown(validated), TRAINING_ITERATION: validated.iteration},
                step=open_run.last_step,
                commit=True,
            )

    def save(self, trial: Trial, saved: Saved) -> None:
        if not self._options.upload_checkpoints or trial not in self._runs:
            return
        artifact = self._wandb.Artifact(f"checkpoint_{trial.trial_id}", type="model")
        try:
            artifact.add_dir(str(saved.path))
        except (OSError, ValueError) as error:
            # Retention may have deleted it.
            _log.info("%s is not uploaded to W&B: %s", saved.path, error)
            return
        self._runs[trial].run.log_artifact(artifact, aliases=[saved.path.name, "latest"])

    def end(self, trial: Trial, ended: Ended) -> None:
        self._close(trial, ended.outcome)
        self._begun.pop(trial, None)

    def recall(self, trial: Trial, recalled: Recalled) -> None:
        # What has been written here reaches the server with ``wandb sync``, if not by itself.
        self._fill(trial, recalled, self._trace(trial), is_local=self._is_offline)

    def complete(self, trial: Trial, recalled: Recalled) -> None:
        is_local = self._is_offline
        self._fill(trial, recalled, self._trace(trial) if is_local else Trace(), is_local=is_local)

    def _fill(self, trial: Trial, recalled: Recalled, trace: Trace, *, is_local: bool) -> None:
        rows = rows_without(recalled.rows, trace.results)
        lost = [
            one
            for one in validations_without(rows, recalled.validations)
            if not _has(trace.metrics.get(one.iteration, {}), self._shown(one))
        ]
        exit_code = _EXIT_CODES[recalled.ended.outcome] if recalled.ended else trace.exit_code
        if is_local and not (rows or lost) and exit_code == trace.exit_code:
            return
        self._steps[trial.trial_id] = trace.last_step
        self.begin(trial, recalled.begun)
        self.log(trial, rows_without(rows, self._on_server(self._runs[trial].run)))
        for one in lost:
            self.log_validation(trial, one)
        if recalled.ended:
            self.end(trial, recalled.ended)

    def idle(self) -> None:
        for trial in [trial for trial in self._runs if trial.status is Status.PAUSED]:
            # An open run costs memory, and thousands may be paused.
            self._close(trial, Outcome.FINISHED)

    def close(self) -> None:
        for trial in list(self._runs):
            self._close(trial, Outcome.KILLED)

    def is_transient(self, error: Exception) -> bool:
        errors = importlib.import_module("wandb.errors")
        return isinstance(error, errors.CommError) and not isinstance(
            error, errors.AuthenticationError
        )

    def _open(self, trial: Trial, begun: Begun, last_step: int) -> _Run:
        given = dict(self._options.init)
        config = {**(given.pop("config", None) or {}), **_plain(begun.config)}
        name = self._experiment.name
        arguments = {
            "project": self._options.project or os.environ.get("WANDB_PROJECT") or name,
            "group": self._options.group or os.environ.get("WANDB_RUN_GROUP") or name,
            "name": trial.trial_id,
            "dir": str(self._directory),
            "config": config,
            "id": self._experiment.run_id(trial),
            "reinit": "create_new",
            "resume": None if self._is_offline else "allow",
            "settings": self._settings(given.pop("settings", None)),
            **given,
        }
        run = self._wandb.init(**arguments)
        run.define_metric(TRAINING_ITERATION)
        run.define_metric("*", step_metric=TRAINING_ITERATION)
        if run.resumed:
            run.config.update(config, allow_val_change=True)
        return _Run(run, begun.config, max(last_step, int(run.starting_step or 0) - 1))

    def _settings(self, given: Any) -> Any:
        ours = {
            "console": "off",
            "silent": True,
            "x_disable_stats": True,
            "disable_git": True,
            "disable_code": True,
            "init_timeout": _INIT_TIMEOUT_S,
        }
        if self._options.api_key:
            ours["api_key"] = self._options.api_key
        if given is None:
            return self._wandb.Settings(**ours)
        theirs = given if isinstance(given, dict) else given.model_dump(exclude_unset=True)
        return self._wandb.Settings(**{**ours, **theirs})

    def _close(self, trial: Trial, outcome: Outcome) -> None:
        if open_run := self._runs.get(trial):
            open_run.run.finish(exit_code=_EXIT_CODES[outcome])
            self._steps[trial.trial_id] = open_run.last_step
            del self._runs[trial]

    def _values(self, row: Row, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        shown = measured(row.flat)
        shown.setdefault(TIMESTAMP, int(row.at))
        for name, value in shown.items():
            if not _starts_with(name, self._options.excludes):
                yield name, value
        if self._options.log_config:
            yield from ((f"config/{name}", value) for name, value in _plain(config).items())

    def _shown(self, validated: Validated) -> dict[str, Any]:
        return {
            name: value
            for name, value in measured(flatten(validated.metrics)).items()
            if not _starts_with(name, self._options.excludes)
        }

    def _trace(self, trial: Trial) -> Trace:
        try:
            return trace_of(self._directory / "wandb", self._experiment.run_id(trial))
        except OSError:
            return Trace()

    def _on_server(self, run: Any) -> Counter[tuple[int, int]]:
        """Return the `key_of` each result on the server; empty for a new run, and offline."""
        if not run.resumed:
            return Counter()
        api = self._wandb.Api(api_key=self._options.api_key)
        stored = api.run(f"{run.entity}/{run.project}/{run.id}")
        history = stored.scan_history(keys=[TIMESTAMP, TRAINING_ITERATION], use_cache=False)
        return Counter((int(row[TIMESTAMP]), int(row[TRAINING_ITERATION])) for row in history)


def read_key(api_key: str | None, api_key_file: str | os.PathLike[str] | None) -> str | None:
    """Return the key that was given, from its file if necessary; None without one.

    Raises:
        ValueError: If both are given, or the file cannot be read or is empty.
    """
    if api_key_file is None:
        return api_key
    if api_key is not None:
        raise ValueError(
            "api_key and api_key_file must not both be given, got the file "
            f"{str(api_key_file)!r} as well; omit one"
        )
    try:
        key = Path(api_key_file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise ValueError(
            f"api_key_file must be a file with the key, got {str(api_key_file)!r} ({cause}); "
            "write the key into it"
        ) from cause
    if not key:
        raise ValueError(
            f"api_key_file must be a file with the key, got {str(api_key_file)!r}, which is "
            "empty; write the key into it"
        )
    return key


def check_access(api_key: str | None, mode: str | None) -> None:
    """Check that W&B has a key or needs none; else it would prompt for one during the experiment.

    Args:
        api_key: The key that was given.
        mode: W&B's mode; None for that of its environment and settings.

    Raises:
        ValueError: If it needs a key and has none.
    """
    mode = mode or os.environ.get("WANDB_MODE")
    if api_key or os.environ.get("WANDB_API_KEY") or mode in _WITHOUT_KEY:
        return
    wandb = importlib.import_module("wandb")
    if (mode or wandb.setup().settings.mode) not in _WITHOUT_KEY and not wandb.login(prompt=False):
        raise ValueError(
            "W&B must have a key to be online, got none; give api_key or api_key_file, set "
            "WANDB_API_KEY, run 'wandb login', "
            "or stay offline with WANDB_MODE=offline"
        )


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with values other than scalars as texts."""
    return {
        name: value if isinstance(value, bool | int | float | str | None) else str(value)
        for name, value in config.items()
    }


def _has(written: Mapping[str, str], metrics: Mapping[str, Any]) -> bool:
    """Return whether these values are among those that W&B has written as JSON."""
    return all(
        name in written and _comparable(json.loads(written[name])) == _comparable(value)
        for name, value in metrics.items()
    )


def _comparable(value: Any) -> str:
    # NaN equals itself as text, and W&B writes 1.0 as 1.
    return repr(float(value)) if isinstance(value, bool | int | float) else repr(value)


def _starts_with(name: str, names: frozenset[str]) -> bool:
    parts = name.split("/")
    return any("/".join(parts[:count]) in names for count in range(1, len(parts) + 1))
