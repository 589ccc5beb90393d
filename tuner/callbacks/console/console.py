"""Console output of a running experiment.

A live table on a terminal or in a notebook, single lines in a log file, nothing at verbosity 0.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, cast, final

from tuner.callbacks.callback import Callback
from tuner.callbacks.formatting import printable
from tuner.callbacks.pipe_safe_stream import LastingStream
from tuner.core.failure_causes import Cause, cause_of
from tuner.core.progress import Progress
from tuner.core.trial import Trial

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
from .sparklines import Curves

_REFRESH_S: Final = 0.5
_PAUSES: Final = 50
"""So many times as long as a look takes, nobody looks again: what is shown costs the driver two
hundredths of its time at most."""
_STATUS_S: Final = 30.0
_NEW_BEST_S: Final = 5.0
_STATUS_FRACTION: Final = 0.1
_MAX_CAUSES: Final = 10
"""So many causes of failures are told; what fails for another one is only counted."""
_MAX_TRACEBACKS: Final = 3
_TOLD_NUMBERS: Final = frozenset({10, 100, 1_000, 10_000, 100_000})
"""At these numbers of failures for one cause there is a line more."""

_log = logging.getLogger("tuner")


@final
class Console(Callback):
    """Shows the progress of an experiment.

    On a terminal and in a notebook a view is redrawn in place, at most twice a second, and gives
    way to a summary at the end. Elsewhere there is a line every 30 seconds and every tenth of the
    trials, and one when another trial takes the lead. The first failure of each cause is told with
    its traceback, further ones of that cause are counted. Text of the user's is printed with
    control characters written out.

    Args:
        progress: Returns how far the experiment is; called a few times a second at most.
        verbose: 0 for no output whatever, 1 as above, 2 for one more line at the end of each trial.
        reporter: Decides when progress is shown, and how; None for as above.
        stream: Where to write, None for the standard output.
        is_terminal: Whether `stream` can redraw lines, None to ask it.
        width: Columns, None for those of the terminal, 100 where there is none.
        show: What shows things in a notebook, None to look whether one runs.
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
        if verbose not in (0, 1, 2):
            raise ValueError(
                "verbose must be 0 (nothing), 1 (progress) or 2 (one line per trial as "
                f"well), got {verbose!r}"
            )
        self._look_at = progress
        self._num_behind = self._moved_s = 0.0
        self._verbose = verbose
        self._reporter = reporter if verbose else None
        self._display = _display(reporter, stream, is_terminal, width, show)
        self._clock = clock
        self._metric: str | None = None
        self._experiment_path: Path | None = None
        self._handler: logging.Handler | None = None
        self._keeps_warnings = False
        self._refresh_at = self._status_at = self._new_best_at = float("-inf")
        self._next_fraction = _STATUS_FRACTION
        self._leader: Trial | None = None
        self._failed: dict[str, Trial] = {}
        self._num_failures: Counter[Cause] = Counter()
        self._ending_causes: set[Cause] = set()
        self._curves: Curves | None = None

    def print_notice(self, text: str) -> None:
        """Print a line, or a few, above the live table; nothing at ``verbose=0``.

        On a terminal lines are wrapped at words. Indented ones are commands to be copied, and stay
        whole, as do lines in log files.
        """
        for line in map(printable, text.splitlines() if self._verbose else ()):
            if self._display.redraws and not line.startswith(" "):
                for part in textwrap.wrap(
                    line, self._display.width, break_long_words=False, break_on_hyphens=False
                ):
                    self._display.say(part)
            else:
                self._display.say(line)

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Get ready, and take over the engine's warnings if nobody else shows them."""
        path = info.get("experiment_path")
        self._experiment_path = Path(path) if path else None
        self._metric = info.get("metric")
        self._status_at = self._clock() + _STATUS_S
        self._take_over_warnings()
        if isinstance(self._reporter, TableReporter):
            self._reporter.attach(self._report)
        if self._is_drawn:
            self._curves = Curves(getattr(self._reporter, "metric", None) or self._metric)
        if self._reporter is not None:
            try:
                self._reporter.setup(time.time(), total_num_samples, self._metric, info.get("mode"))
            except Exception as error:  # noqa: BLE001  (whatever a user's reporter raises must not end the experiment)
                self._dismiss(self._reporter, error)

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Show how far the experiment is, if it is time to."""
        if self._verbose == 0:
            return
        now = self._clock()
        if now < self._refresh_at:
            return
        try:
            if self._curves:
                progress = self._progress()
                self._curves.look_at([*progress.running, *progress.leaders])
            if self._reporter is None or not self._is_told(self._reporter, trials, done=False):
                self._look(trials, now)
        except BaseException:
            # A terminal with a hidden cursor and a captured standard output would be left behind.
            self.close()
            raise
        self._refresh_at = now + max(_REFRESH_S, _PAUSES * (self._clock() - now))

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Tell that an attempt has failed and is tried again."""
        self._tell_failure(trial, will_retry=True)

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Tell that a trial has failed for good."""
        self._tell_failure(trial, will_retry=False)

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Tell how the trial ended, at ``verbose=2``."""
        self._failed.pop(trial.trial_id, None)
        if self._verbose > 1:
            self._display.say(ending_line(trial, self._objectives).text)

    @functools.cached_property
    def _objectives(self) -> list[str]:
        return (
            [self._metric]
            if self._metric
            else [metric for metric, _ in self._progress().several_objectives]
        )

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Replace the live table by the summary."""
        try:
            if self._verbose and (
                self._reporter is None or not self._is_told(self._reporter, trials, done=True)
            ):
                self._report(trials, done=True)
        finally:
            self.close()

    def close(self) -> None:
        """Give the terminal back, and the engine's warnings outside `showing_warnings`; nothing more is redrawn. May be called twice."""
        self._display.close()
        if not self._keeps_warnings:
            self._give_warnings_back()

    @contextlib.contextmanager
    def showing_warnings(self) -> Iterator[None]:
        """Show the engine's warnings unless a handler of the user's does, also those of before `setup` and after the end."""
        self._keeps_warnings = True
        self._take_over_warnings()
        try:
            yield
        finally:
            self._keeps_warnings = False
            self.close()

    def _progress(self) -> Progress:
        """Return how far the experiment is, and for how long it has not moved."""
        progress = self._look_at()
        if progress.num_behind != self._num_behind:
            self._num_behind, self._moved_s = progress.num_behind, progress.elapsed_s
        return dataclasses.replace(progress, quiet_s=progress.elapsed_s - self._moved_s)

    @property
    def _is_drawn(self) -> bool:
        return (
            self._verbose > 0
            and self._display.redraws
            and isinstance(self._reporter, TableReporter | None)
        )

    def _look(self, trials: Sequence[Trial], now: float) -> None:
        if self._display.redraws:
            self._report(trials, done=False)
        else:
            self._tell(self._progress(), now)

    def _report(self, trials: Sequence[Trial], done: bool) -> None:
        """Show how far the experiment is, or the summary: what table reporters let happen, and what happens without any."""
        display, scene = self._display, self._scene(trials)
        if done:
            display.conclude(summary_view(scene, display.width))
        elif display.redraws or scene.options.has_progress_table:
            display.draw(live_view(scene, display.width, display.height))
        else:
            display.say(status_line(scene.progress).text)

    def _scene(self, trials: Sequence[Trial]) -> Scene:
        progress, options = self._progress(), TableOptions()
        if isinstance(self._reporter, TableReporter):
            progress = self._reporter.look(progress, trials)
            options = self._reporter.options(redraws=self._display.redraws)
        return Scene(progress, trials, self._failed, options, self._curves, self._experiment_path)

    def _is_told(self, reporter: ProgressReporter, trials: Sequence[Trial], *, done: bool) -> bool:
        """Let the reporter report, if it wants to, and return whether it can be relied on."""
        try:
            if reporter.should_report(trials, done=done):
                progress = self._progress()
                reporter.report(trials, done, counts_line(progress).text, resources_line(progress))
        except Exception as error:  # noqa: BLE001  (as in `setup`)
            self._dismiss(reporter, error)
            return False
        return True

    def _dismiss(self, reporter: ProgressReporter, error: Exception) -> None:
        self._reporter = None
        name, kind = type(reporter).__name__, type(error).__name__
        _log.warning(
            "progress reporter %s raised %s and is switched off; the usual display takes its place",
            name,
            kind,
            exc_info=error,
        )

    def _tell(self, progress: Progress, now: float) -> None:
        if (
            progress.best is not None
            and progress.best is not self._leader
            and now >= self._new_best_at
        ):
            self._leader = progress.best
            self._new_best_at = now + _NEW_BEST_S
            self._display.say(f"new {best_line(progress).text}")
        fraction = progress.fraction or 0.0
        if now >= self._status_at or fraction >= self._next_fraction:
            self._status_at = now + _STATUS_S
            # The small term keeps 0.3 from being taken for less than three tenths.
            self._next_fraction = (int(fraction / _STATUS_FRACTION + 1e-9) + 1) * _STATUS_FRACTION
            self._display.say(status_line(progress).text)

    def _tell_failure(self, trial: Trial, *, will_retry: bool) -> None:
        self._failed.pop(trial.trial_id, None)
        self._failed[trial.trial_id] = trial
        if self._verbose == 0 or not trial.failures:
            return
        cause = cause_of(trial.failures[-1])
        self._num_failures[cause] += 1
        num, num_causes = self._num_failures[cause], len(self._num_failures)
        is_first_end = not will_retry and cause not in self._ending_causes
        if not will_retry:
            self._ending_causes.add(cause)
        if num_causes > _MAX_CAUSES:
            if num == 1 and num_causes == _MAX_CAUSES + 1:
                self._display.say("further causes of failures are only listed at the end")
        elif num == 1 or is_first_end:
            self._display.say(failure_line(trial, will_retry=will_retry).text)
            if num == 1 and num_causes <= _MAX_TRACEBACKS:
                self.print_notice("\n".join(failure_lines(trial.failures[-1], log_path(trial))))
        elif num in _TOLD_NUMBERS:
            self._display.say(common_failure_line(num, cause).text)

    def _give_warnings_back(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            _log.removeHandler(handler)

    def _take_over_warnings(self) -> None:
        if self._handler is None and not _has_visible_handler(_log):
            # Without any handler, Python would print warnings to the standard error, verbose or
            # not.
            self._handler = _NoticeHandler(self) if self._verbose else logging.NullHandler()
            _log.addHandler(self._handler)


@final
class _NoticeHandler(logging.Handler):
    """Shows the engine's warnings where the progress is shown."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print_notice(self.format(record))


def _has_visible_handler(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _display(
    reporter: ProgressReporter | None,
    stream: TextIO | None,
    is_terminal: bool | None,
    width: int | None,
    show: Show | None,
) -> Display:
    output = stream or sys.stdout
    lasting = cast("TextIO", LastingStream(output))
    if not isinstance(reporter, CLIReporter) and (show := show or notebook()):
        return NotebookDisplay(
            show,
            lasting,
            overwrite=not isinstance(reporter, JupyterNotebookReporter) or reporter.overwrite,
        )
    if can_redraw(lasting) if is_terminal is None else is_terminal:
        return TerminalDisplay(lasting, width, is_standard=output in (sys.stdout, sys.stderr))
    return PlainDisplay(lasting, width)
