"""What an experiment shows while it runs: a live table on a terminal, a few calm lines elsewhere, nothing at ``verbose=0``."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast, final

from tuner.core.progress import Progress
from tuner.core.trial import Trial

from .callback import Callback
from .console_view import best_line, ending_line, failure_line, live_lines, status_line, summary_lines
from .formatting import printable
from .lasting_stream import LastingStream

if TYPE_CHECKING:
    from rich.live import Live

_REFRESH_S = 0.5
_STATUS_S = 30.0
_NEW_BEST_S = 5.0
_STATUS_FRACTION = 0.1
_MAX_FAILURE_LINES = 10
_PLAIN_WIDTH = 100
_LINES_BESIDE_ROWS = 6

_log = logging.getLogger("tuner")


@final
class Console(Callback):
    """Shows the progress of an experiment.

    On a terminal a table is redrawn in place, at most twice a second, and gives way to a summary at the end. Elsewhere there is a line
    every 30 seconds and every tenth of the trials, one when another trial takes the lead, and one for each failed attempt, the first
    ten of them. Text of the user's is printed with control characters written out.

    Args:
        progress: Returns how far the experiment is; called at most twice a second.
        verbose: 0 for no output whatever, 1 as above, 2 for one more line at the end of each trial.
        stream: Where to write, None for the standard output.
        is_terminal: Whether `stream` can redraw lines, None to ask it.
        width: Columns, None for those of the terminal, 100 where there is none.
        clock: Returns seconds.
    """

    def __init__(
        self,
        progress: Callable[[], Progress],
        verbose: int = 1,
        *,
        stream: TextIO | None = None,
        is_terminal: bool | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if verbose not in (0, 1, 2):
            raise ValueError(f"verbose must be 0 (nothing), 1 (progress) or 2 (one line per trial as well), got {verbose!r}")
        self._progress = progress
        self._verbose = verbose
        self._stream: TextIO = cast("TextIO", LastingStream(stream or sys.stdout))
        self._is_standard = (stream or sys.stdout) in (sys.stdout, sys.stderr)
        self._is_terminal = (self._stream.isatty() and _can_draw(self._stream)) if is_terminal is None else is_terminal
        self._width = width
        self._clock = clock
        self._live: Live | None = None
        self._experiment_path: Path | None = None
        self._handler: logging.Handler | None = None
        self._refresh_at = self._status_at = self._new_best_at = float("-inf")
        self._next_fraction = _STATUS_FRACTION
        self._leader: Trial | None = None
        self._num_failure_lines = 0

    @property
    def refresh_period_s(self) -> float | None:
        """How often, in seconds, `on_step_end` wants to be called even if nothing happens; None for not at all."""
        if self._verbose == 0:
            return None
        return _REFRESH_S if self._is_terminal else _STATUS_S

    def print_notice(self, text: str) -> None:
        """Print a line, or a few, above the live table; nothing at ``verbose=0``."""
        for line in text.splitlines() if self._verbose else ():
            self._print(printable(line))

    def setup(self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any) -> None:
        """Get ready, and take over the engine's warnings if nobody else shows them."""
        path = info.get("experiment_path")
        self._experiment_path = Path(path) if path else None
        self._status_at = self._clock() + _STATUS_S
        self._take_over_warnings()

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Show how far the experiment is, if it is time to."""
        if self._verbose == 0:
            return
        now = self._clock()
        if now < self._refresh_at:
            return
        self._refresh_at = now + _REFRESH_S
        try:
            self._show(self._progress(), now)
        except BaseException:
            # A terminal with a hidden cursor and a captured standard output would be left behind.
            self.close()
            raise

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Tell that an attempt has failed and is tried again."""
        self._tell_failure(trial, will_retry=True)

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Tell that a trial has failed for good."""
        self._tell_failure(trial, will_retry=False)

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any) -> None:
        """Tell how the trial ended, at ``verbose=2``."""
        if self._verbose > 1:
            self._print(ending_line(trial, self._progress().metric))

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Replace the live table by the summary."""
        self.close()
        if self._verbose:
            for line in summary_lines(self._progress(), trials, self._experiment_path, self._columns()):
                self._print(line)

    def close(self) -> None:
        """Give the terminal and the engine's warnings back; nothing more is redrawn. May be called twice."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        handler, self._handler = self._handler, None
        if handler is not None:
            _log.removeHandler(handler)

    def _show(self, progress: Progress, now: float) -> None:
        if self._is_terminal:
            self._redraw(progress)
        else:
            self._tell(progress, now)

    def _redraw(self, progress: Progress) -> None:
        from rich.text import Text  # noqa: PLC0415  (only where something is drawn)

        if self._live is None:
            self._live = self._start_live()
        max_rows = max(1, self._live.console.height - _LINES_BESIDE_ROWS)
        lines = live_lines(progress, self._columns(), max_rows)
        text = Text("\n".join(lines), no_wrap=True, overflow="crop")
        text.stylize("bold", 0, len(lines[0]))
        self._live.update(text, refresh=True)

    def _start_live(self) -> Live:
        from rich.console import Console as Terminal  # noqa: PLC0415  (only where something is drawn)
        from rich.live import Live  # noqa: PLC0415  (as above)

        terminal = Terminal(file=self._stream, force_terminal=True, force_jupyter=False, width=self._width, highlight=False, markup=False)
        both = self._is_standard
        live = Live(console=terminal, auto_refresh=False, transient=True, redirect_stdout=both, redirect_stderr=both)
        live.start()
        return live

    def _tell(self, progress: Progress, now: float) -> None:
        if progress.best is not None and progress.best is not self._leader and now >= self._new_best_at:
            self._leader = progress.best
            self._new_best_at = now + _NEW_BEST_S
            self._print(f"new {best_line(progress)}")
        fraction = progress.fraction or 0.0
        if now >= self._status_at or fraction >= self._next_fraction:
            self._status_at = now + _STATUS_S
            # The small term keeps 0.3 from being taken for less than three tenths.
            self._next_fraction = (int(fraction / _STATUS_FRACTION + 1e-9) + 1) * _STATUS_FRACTION
            self._print(status_line(progress))

    def _tell_failure(self, trial: Trial, *, will_retry: bool) -> None:
        if self._verbose == 0 or self._num_failure_lines > _MAX_FAILURE_LINES:
            return
        self._num_failure_lines += 1
        if self._num_failure_lines > _MAX_FAILURE_LINES:
            self._print("further failures are only counted")
        else:
            self._print(failure_line(trial, will_retry=will_retry))

    def _print(self, line: str) -> None:
        if self._live is not None:
            from rich.text import Text  # noqa: PLC0415  (only where something is drawn)

            self._live.console.print(Text(line), soft_wrap=True)
            return
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()

    def _columns(self) -> int:
        return self._width or (shutil.get_terminal_size().columns if self._is_terminal else _PLAIN_WIDTH)

    def _take_over_warnings(self) -> None:
        if self._handler is None and not _has_visible_handler(_log):
            # Without any handler, Python would print warnings to the standard error even at verbose=0.
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


def _can_draw(stream: TextIO) -> bool:
    try:
        "━─…".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _has_visible_handler(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
