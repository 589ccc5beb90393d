"""What the console shows of a training of its own: its output and its metrics, line by line."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from tuner.callbacks.console.reporter import ProgressReporter
from tuner.callbacks.formatting import duration, printable, show
from tuner.core.result import AUTO_FILLED, flatten
from tuner.core.trial import Status, Trial
from tuner.storage.layout import STDOUT

_MAX_METRICS: Final = 8
"""Metrics beyond these are left out of a line; all are in the result."""
_ENDINGS: Final = {Status.TERMINATED: "ended", Status.ERROR: "failed"}


@final
class TrainingReporter(ProgressReporter):
    """Prints what rank 0 prints, and its metrics, as they come.

    A search has many trials, and a table of them; a training of its own has one, and whoever runs
    it wants to see what its code prints, as if it ran in this process. Where results come faster
    than twice a second, only the latest is shown.

    Args:
        continued: The directory of the training if it has been run before, whose output and results
            are not shown again; None for a new one.
    """

    def __init__(self, continued: Path | None = None) -> None:
        self._position = _output_size(continued) if continued else 0
        self._num_results: int | None = None if continued else 0
        self._begin_s = time.monotonic()

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return True: whether there is anything new is seen by looking."""
        return True

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Print new lines of output, the latest result if it is new, and at the end a summary."""
        for trial in trials[:1]:
            if self._num_results is None:
                self._num_results = trial.num_rows
            lines = [*self._new_output(trial, is_last=done), *self._new_result(trial)]
            if done:
                spent = duration(time.monotonic() - self._begin_s)
                ending = _ENDINGS.get(trial.status, "interrupted")
                lines.append(f"{ending} after {spent}; results in {printable(trial.local_path)}")
            if lines:
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()

    def _new_output(self, trial: Trial, *, is_last: bool) -> list[str]:
        try:
            with Path(trial.local_path, STDOUT).open("rb") as file:
                file.seek(self._position)
                content = file.read()
        except OSError:
            return []  # it has printed nothing yet, or runs on another machine
        if not is_last:
            content = content[: content.rfind(b"\n") + 1]
        self._position += len(content)
        return content.decode(errors="replace").splitlines()

    def _new_result(self, trial: Trial) -> list[str]:
        if trial.num_rows == self._num_results:
            return []
        self._num_results = trial.num_rows
        metrics = {
            name: value
            for name, value in flatten(trial.last_result).items()
            if name not in AUTO_FILLED and isinstance(value, int | float | str)
        }
        shown = [f"{printable(name)} {show(value)}" for name, value in metrics.items()]
        more = ["..."] if len(shown) > _MAX_METRICS else []
        return [f"[{trial.num_rows}]  {'  '.join([*shown[:_MAX_METRICS], *more])}"]


def _output_size(directory: Path) -> int:
    try:
        return (directory / STDOUT).stat().st_size
    except OSError:
        return 0
