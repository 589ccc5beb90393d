"""Console output of a running experiment.

A live table on a terminal or in a notebook, single lines in a log file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, final

from searchers.objectives.outcome_constraint import Constraints
from tuner.callbacks.formatting import printable
from tuner.callbacks.pipe_safe_stream import PipeSafeStream
from tuner.core.failure_causes import Cause, cause_of
from tuner.core.progress import Progress
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.storage.origin import origin_of

from .console_view import (
    Scene,
    best_line,
    common_failure_line,
    counts_line,
    ending_line,
    failure_line,
    failure_lines,
    live_view,
    resources_line,
    status_line,
    summary_view,
)
from .displays import (
    Display,
    NotebookDisplay,
    PlainDisplay,
    Show,
    TerminalDisplay,
    can_redraw,
    notebook,
)
from .progress_table import TableOptions, log_path
from .reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter, TableReporter
from .silent import SilentConsole
from .sparklines import Curves

_REFRESH_S: Final = 0.5
_PAUSES: Final = 50
"""The pause between two updates, in multiples of what an update takes: at most 2 % of the driver's
time."""
_STATUS_S: Final = 30.0
_NEW_BEST_S: Final = 5.0
_STATUS_FRACTION: Final = 0.1
_MAX_CAUSES: Final = 10
"""Failures for further causes are only counted."""
_MAX_TRACEBACKS: Final = 3
_REPORTED_COUNTS: Final = frozenset({10, 100, 1_000, 10_000, 100_000})
"""Counts of failures for one cause at which a line is printed."""

_log = logging.getLogger("tuner")


@final
class Console(SilentConsole):
    """Shows the progress of an experiment.

    On a terminal and in a notebook a view is redrawn in place, at most twice a second, and replaced
    by a summary at the end. Elsewhere a line is printed every 30 seconds, at every tenth of the
    trials, and when another trial becomes the best. The first failure of each cause is printed with
    its traceback, further ones are counted. Control characters in the user's texts are escaped.

    Args:
        progress: Returns the experiment's progress; called a few times a second at most.
        verbose: 1 as above, 2 for a line at the end of each trial as well.
        reporter: Decides when progress is shown, and how; None for as above.
        stream: Where to write, None for the standard output.
        is_terminal: Whether `stream` can redraw lines, None to ask it.
        width: Columns, None for those of the terminal, 100 where there is none.
        show: IPython's ``display``, None to find out whether this is a notebook.
        clock: Returns seconds.
    """

    def __init__(
        self,
        progress: Callable[[], Progress],
        verbose: int = 1,
        *,
        reporter: ProgressReporter | None = None,
        stream: TextIO | None = None,
        is_terminal: bool | None = None,
        width: int | None = None,
        show: Show | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._get_progress = progress
        self._num_behind = self._moved_s = 0.0
        self._verbose = verbose
        self._reporter = reporter
        self._display = _display(reporter, stream, is_terminal, width, show)
        self._clock = clock
        self._metric: str | None = None
        self._experiment_path: Path | None = None
        self._url = ""
        self._refresh_at = self._status_at = self._new_best_at = float("-inf")
        self._next_fraction = _STATUS_FRACTION
        self._leader: Trial | None = None
        self._failed: dict[str, Trial] = {}
        self._num_failures: Counter[Cause] = Counter()
        self._ending_causes: set[Cause] = set()
        self._curves: Curves | None = None

    def print_notice(self, text: str) -> None:
        """Print a line, or a few, above the live table.

        On a terminal lines are wrapped at words. Indented ones are commands to be copied, and stay
        whole, as do lines in log files.
        """
        lines: list[str] = []
        for line in map(printable, text.splitlines()):
            if self._display.redraws and not line.startswith(" "):
                lines += textwrap.wrap(
                    line, self._display.width, break_long_words=False, break_on_hyphens=False
                )
            else:
                lines.append(line)
        if lines:
            # At once, since each print on a terminal draws the view below it anew.
            self._display.print("\n".join(lines))

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Prepare, and show the engine's warnings unless another handler does."""
        path = info.get("experiment_path")
        self._experiment_path = Path(path) if path else None
        with contextlib.suppress(StorageError):
            origin = origin_of(self._experiment_path) if self._experiment_path else None
            self._url = origin.url if origin else ""
        self._metric = info.get("metric")
        self._status_at = self._clock() + _STATUS_S
        self._leader = self._get_progress().best  # of an earlier session, and so not new
        self._start_showing_warnings()
        if isinstance(self._reporter, TableReporter):
            self._reporter.attach(self._report)
        if self._is_drawn:
            self._curves = Curves(getattr(self._reporter, "metric", None) or self._metric)
        if self._reporter is not None:
            try:
                self._reporter.setup(time.time(), total_num_samples, self._metric, info.get("mode"))
            except Exception as error:  # noqa: BLE001  (a user's reporter may raise anything)
                self._switch_off(self._reporter, error)

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Show the progress, if it is time to."""
        now = self._clock()
        if now < self._refresh_at:
            return
        try:
            if self._curves:
                progress = self._progress()
                self._curves.update([*progress.running, *progress.leaders])
            if self._reporter is None or not self._report_by(self._reporter, trials, done=False):
                self._show_progress(trials, now)
        except BaseException:
            # Otherwise the cursor would stay hidden, and the standard output redirected.
            self.close()
            raise
        # The first update imports rich, so how long it takes says nothing about the next ones.
        spent_s = 0.0 if self._refresh_at == float("-inf") else self._clock() - now
        self._refresh_at = now + max(_REFRESH_S, _PAUSES * spent_s)

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Print that an attempt has failed and is retried."""
        self._print_failure(trial, will_retry=True)

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Print that a trial has failed for good."""
        self._print_failure(trial, will_retry=False)

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Print how the trial ended, at ``verbose=2``."""
        self._failed.pop(trial.trial_id, None)
        if self._verbose > 1:
            self._display.print(ending_line(trial, self._objectives, self._constraints).text)

    @functools.cached_property
    def _objectives(self) -> list[str]:
        return (
            [self._metric]
            if self._metric
            else [metric for metric, _ in self._progress().several_objectives]
        )

    @functools.cached_property
    def _constraints(self) -> Constraints:
        return self._progress().constraints

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Replace the live view by the summary."""
        try:
            if self._reporter is None or not self._report_by(self._reporter, trials, done=True):
                self._report(trials, done=True)
        finally:
            self.close()

    def close(self) -> None:
        """Restore the terminal, and outside `showing_warnings` the logging; may be called twice."""
        self._display.close()
        super().close()

    def new_handler(self) -> logging.Handler:
        """Return a handler that prints warnings above the progress."""
        return _NoticeHandler(self)

    def _progress(self) -> Progress:
        """Return the progress, with the time for which no trial has ended."""
        progress = self._get_progress()
        if progress.num_behind != self._num_behind:
            self._num_behind, self._moved_s = progress.num_behind, progress.elapsed_s
        return dataclasses.replace(progress, quiet_s=progress.elapsed_s - self._moved_s)

    @property
    def _is_drawn(self) -> bool:
        return self._display.redraws and isinstance(self._reporter, TableReporter | None)

    def _show_progress(self, trials: Sequence[Trial], now: float) -> None:
        if self._display.redraws:
            self._report(trials, done=False)
        else:
            self._print_status(self._progress(), now)

    def _report(self, trials: Sequence[Trial], done: bool) -> None:
        """Show the progress or the summary, with the options of a table reporter."""
        display, scene = self._display, self._scene(trials)
        if done:
            display.draw_last(summary_view(scene, display.width))
        elif display.redraws or scene.options.has_progress_table:
            display.draw(live_view(scene, display.width, display.height))
        else:
            display.print(status_line(scene.progress).text)

    def _scene(self, trials: Sequence[Trial]) -> Scene:
        progress, options = self._progress(), TableOptions()
        if isinstance(self._reporter, TableReporter):
            progress = self._reporter.adjusted(progress, trials)
            options = self._reporter.options(redraws=self._display.redraws)
        return Scene(
            progress,
            trials,
            self._failed,
            options,
            self._curves,
            self._experiment_path,
            self._url,
        )

    def _report_by(
        self, reporter: ProgressReporter, trials: Sequence[Trial], *, done: bool
    ) -> bool:
        """Let the reporter report if it is due, and return False if it raised."""
        try:
            if reporter.should_report(trials, done=done):
                progress = self._progress()
                reporter.report(trials, done, counts_line(progress).text, resources_line(progress))
        except Exception as error:  # noqa: BLE001  (as in `setup`)
            self._switch_off(reporter, error)
            return False
        return True

    def _switch_off(self, reporter: ProgressReporter, error: Exception) -> None:
        self._reporter = None
        name, kind = type(reporter).__name__, type(error).__name__
        _log.warning(
            "progress reporter %s raised %s and is switched off; the usual display takes its place",
            name,
            kind,
            exc_info=error,
        )

    def _print_status(self, progress: Progress, now: float) -> None:
        if (
            progress.best is not None
            and progress.best is not self._leader
            and now >= self._new_best_at
        ):
            self._leader = progress.best
            self._new_best_at = now + _NEW_BEST_S
            self._display.print(f"new {best_line(progress).text}")
        fraction = progress.fraction or 0.0
        if now >= self._status_at or fraction >= self._next_fraction:
            self._status_at = now + _STATUS_S
            # In floats 0.3 / 0.1 is less than 3; the small term keeps that tenth from being
            # reported twice.
            self._next_fraction = (int(fraction / _STATUS_FRACTION + 1e-9) + 1) * _STATUS_FRACTION
            self._display.print(status_line(progress).text)

    def _print_failure(self, trial: Trial, *, will_retry: bool) -> None:
        self._failed.pop(trial.trial_id, None)
        self._failed[trial.trial_id] = trial
        if not trial.failures:
            return
        cause = cause_of(trial.failures[-1])
        self._num_failures[cause] += 1
        num, num_causes = self._num_failures[cause], len(self._num_failures)
        is_first_end = not will_retry and cause not in self._ending_causes
        if not will_retry:
            self._ending_causes.add(cause)
        if num_causes > _MAX_CAUSES:
            if num == 1 and num_causes == _MAX_CAUSES + 1:
                self._display.print("further causes of failures are only listed at the end")
        elif num == 1 or is_first_end:
            self._display.print(failure_line(trial, will_retry=will_retry).text)
            if num == 1 and num_causes <= _MAX_TRACEBACKS:
                self.print_notice("\n".join(failure_lines(trial.failures[-1], log_path(trial))))
        elif num in _REPORTED_COUNTS:
            self._display.print(common_failure_line(num, cause).text)


@final
class _NoticeHandler(logging.Handler):
    """Prints the engine's warnings above the progress."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "is_on_console", False):
            self._console.print_notice(self.format(record))


def _display(
    reporter: ProgressReporter | None,
    stream: TextIO | None,
    is_terminal: bool | None,
    width: int | None,
    show: Show | None,
) -> Display:
    output = stream or sys.stdout
    safe = PipeSafeStream(output)
    if not isinstance(reporter, CLIReporter) and (show := show or notebook()):
        return NotebookDisplay(
            show,
            safe,
            overwrite=not isinstance(reporter, JupyterNotebookReporter) or reporter.overwrite,
        )
    if can_redraw(safe) if is_terminal is None else is_terminal:
        return TerminalDisplay(safe, width, is_standard=output in (sys.stdout, sys.stderr))
    return PlainDisplay(safe, width)
