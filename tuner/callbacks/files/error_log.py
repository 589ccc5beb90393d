"""Logger of ``error.txt``: the failure of each failed attempt of a trial."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.callbacks.callback import Callback
from tuner.core.trial import Trial
from tuner.core.worker_records import Failure
from tuner.storage.layout import ERROR, STARTED_AGAIN, trial_directory

from .append import append

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])"
)

_log = logging.getLogger("tuner")


class ErrorLog(Callback):
    """Appends each failure of a trial, and each retry, to ``error.txt`` in its directory.

    It is written at once. If that fails, it is written with the next failure, or at the end of the
    experiment.

    Departures:
        Ray Tune leaves the color codes of tracebacks in the file and does not name the attempt.
    """

    def __init__(self) -> None:
        self._experiment_path = Path()
        self._unwritten: list[tuple[Path, bytes]] = []
        self._num_retried: dict[str, int] = {}
        self._warned_of: set[Path] = set()
        """Files that cannot be written, of which the user has been warned."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Remember the directory of the experiment."""
        self._experiment_path = Path(info.get("experiment_path") or "")

    def on_trial_start(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Write that the trial is retried, once for each failure."""
        if trial.failures and self._num_retried.get(trial.trial_id) != len(trial.failures):
            self._num_retried[trial.trial_id] = len(trial.failures)
            self._append(trial, f"{STARTED_AGAIN} (attempt {trial.attempt}, {_now()})\n\n")

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Write the failure of an attempt that is retried."""
        self._write(trial)

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Write the failure that ended the trial."""
        self._write(trial)

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Write what could not be written before."""
        self._catch_up()

    def _write(self, trial: Trial) -> None:
        if trial.failures:
            self._append(trial, describe_failure(trial, trial.failures[-1]))

    def _append(self, trial: Trial, text: str) -> None:
        directory = Path(trial.local_path or trial_directory(self._experiment_path, trial.trial_id))
        self._unwritten.append((directory / ERROR, text.encode(errors="backslashreplace")))
        self._catch_up()

    def _catch_up(self) -> None:
        while self._unwritten:
            path, text = self._unwritten[0]
            try:
                append(path, text)
            except OSError as error:
                if path not in self._warned_of:
                    self._warned_of.add(path)
                    _log.warning("cannot write %s: %s; retrying later", path, error)
                return
            self._warned_of.discard(path)
            del self._unwritten[0]


def describe_failure(trial: Trial, failure: Failure) -> str:
    """Return the paragraph of ``error.txt`` about the trial's latest failure."""
    lines = [
        f"Failure #{len(trial.failures)} (attempt {trial.attempt}, {_now()})",
        str(failure),
        failure.traceback,
    ]
    return _ESCAPE_SEQUENCE.sub("", "\n".join(line.rstrip() for line in lines if line)) + "\n\n"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
