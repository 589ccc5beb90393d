"""Progress displays: a terminal redrawn in place, a notebook's output, a stream of plain lines.

rich draws all three; it is imported when the first view is drawn.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, final

from tuner.callbacks.pipe_safe_stream import PipeSafeStream
from tuner.callbacks.tables import GAP, Table

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import Group
    from rich.live import Live

_PLAIN_WIDTH: Final = 100
_NOTEBOOK_WIDTH: Final = 150
_DUMB: Final = frozenset({"dumb", "unknown"})
_DRAWN: Final = "━─…▁█"
_HTML: Final = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:1.4;font-size:13px;'
    "font-family:var(--jp-code-font-family,ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',"
    'monospace)">{code}</pre>'
)
_RED: Final = (217, 69, 61)
_GREEN: Final = (46, 158, 79)
_GREY: Final = (128, 128, 128)
"""Colors that have enough contrast on white as well as on black."""

Part = str | tuple[str, str]
"""A text that is safe to print, without line breaks: alone, or with its rich style."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text.

    Attributes:
        parts: Its parts, with everything that separates them.
        is_whole: Whether it is never cut, e.g. since it is a path to be copied.
    """

    parts: Sequence[Part]
    is_whole: bool = False

    @property
    def text(self) -> str:
        """The line without its styles."""
        return "".join(part if isinstance(part, str) else part[0] for part in self.parts)


View = Sequence[Line | Table]
"""What is shown, from top to bottom; empty lines and tables without rows are left out."""


def line(*parts: Part | Line, is_whole: bool = False) -> Line:
    """Return the parts with gaps between them; empty ones are left out."""
    joined: list[Part] = []
    for part in parts:
        new = part if isinstance(part, Line) else Line((part,))
        if new.text:
            joined += [GAP, *new.parts] if joined else new.parts
    return Line(joined, is_whole)


class Handle(Protocol):
    """A notebook's output that can be replaced."""

    def update(self, bundle: dict[str, str], **how: Any) -> None:
        """Replace it."""


class Show(Protocol):
    """IPython's ``display``."""

    def __call__(self, bundle: dict[str, str], **how: Any) -> Handle | None:
        """Show a value, given in each of its MIME types, and return a handle to it."""


class Display(ABC):
    """A place where a view is shown, and lines beside it.

    Attributes:
        redraws: Whether a view replaces the one before.
        width: Characters of a line.
        height: Lines that are visible at once; None where that does not matter.
    """

    redraws = True
    width = _PLAIN_WIDTH
    height: int | None = None

    @abstractmethod
    def draw(self, view: View) -> None:
        """Show a view."""

    @abstractmethod
    def draw_last(self, view: View) -> None:
        """Show the final view, which stays."""

    @abstractmethod
    def print(self, text: str) -> None:
        """Print text, which holds no control characters but line breaks."""

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal. May be called twice."""


@final
class PlainDisplay(Display):
    """Writes everything line by line.

    Args:
        stream: Where to write.
        width: Characters of a line, None for 100.
    """

    redraws = False

    def __init__(self, stream: PipeSafeStream, width: int | None = None) -> None:
        self._stream = stream
        self.width = width or _PLAIN_WIDTH

    def draw(self, view: View) -> None:
        """Write the view's lines."""
        self._write(plain_lines(view, self.width))

    def draw_last(self, view: View) -> None:
        """Write the view's lines."""
        self.draw(view)

    def print(self, text: str) -> None:
        """Write the text."""
        self._write([text])

    def close(self) -> None:
        """Do nothing, since nothing was changed."""

    def _write(self, lines: Iterable[str]) -> None:
        # A user's stream need not have an encoding.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        for text in lines:
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


@final
class TerminalDisplay(Display):
    """Redraws a view in place, below the lines that are printed meanwhile.

    Colors follow ``NO_COLOR`` and the terminal.

    Args:
        stream: The terminal.
        width: Characters of a line, None for what the terminal has.
        is_standard: Whether the script's own output goes to this terminal too, and has to be
            printed above the view.
    """

    def __init__(
        self, stream: PipeSafeStream, width: int | None = None, *, is_standard: bool = False
    ) -> None:
        self._plain = PlainDisplay(stream, width)
        self._stream = stream
        self._width = width
        self._is_standard = is_standard
        self._live: Live | None = None

    @property
    def width(self) -> int:  # type: ignore[override]  # changes with the window
        """Characters of a line, which may change at any time."""
        return self._width or shutil.get_terminal_size().columns

    @property
    def height(self) -> int:  # type: ignore[override]  # as above
        """Lines of the terminal."""
        return self._live.console.height if self._live else shutil.get_terminal_size().lines

    def draw(self, view: View) -> None:
        """Replace the view before by this one."""
        from rich.segment import Segments  # noqa: PLC0415  (only where something is drawn)

        # A frame that is skipped is replaced by the next one; one that blocks stops the driver, and
        # with it every trial that waits for an answer.
        if not self._stream.is_writable_now():
            return
        if self._live is None:
            self._live = self._start()
        # As segments, since rich draws the view anew at each print above it, and tables are slow.
        drawn = Segments(self._live.console.render(_group(view)))
        self._live.update(drawn, refresh=True)

    def draw_last(self, view: View) -> None:
        """Remove the live view and write this one below everything else."""
        self.close()
        self._plain.width = self.width
        self._plain.draw(view)

    def print(self, text: str) -> None:
        """Print text above the view."""
        if self._live is None:
            self._plain.print(text)
            return
        from rich.text import Text  # noqa: PLC0415  (only where something is drawn)

        self._live.console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Remove the view and show the cursor again."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _start(self) -> Live:
        from rich.live import Live  # noqa: PLC0415  (only where something is drawn)

        # No refresh thread: it would draw while the driver changes trials, and outlive a fork.
        live = Live(
            console=_rich_console(self._stream, self._width, force_terminal=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=self._is_standard,
            redirect_stderr=self._is_standard,
        )
        live.start()
        return live


@final
class NotebookDisplay(Display):
    """Shows a view as HTML in the output of a notebook's cell, and replaces it there.

    No widgets are needed. Front ends that cannot show HTML get the same as text.

    Args:
        show: IPython's ``display``.
        stream: Where lines go that are to stay.
        overwrite: Whether a view replaces the one before, rather than being added to it.
    """

    def __init__(self, show: Show, stream: PipeSafeStream, *, overwrite: bool = True) -> None:
        self._show = show
        self._plain = PlainDisplay(stream)
        self._overwrite = overwrite
        self._handle: Handle | None = None
        self.width = _NOTEBOOK_WIDTH

    def draw(self, view: View) -> None:
        """Show the view, in the place of the one before unless that is to stay."""
        text = "\n".join(plain_lines(view, _PLAIN_WIDTH))
        bundle = {"text/plain": text, "text/html": html_of(view, self.width)}
        if self._handle is None or not self._overwrite:
            self._handle = self._show(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def draw_last(self, view: View) -> None:
        """Leave this view in the notebook."""
        self.draw(view)

    def print(self, text: str) -> None:
        """Print text, which notebooks show beside the view."""
        self._plain.print(text)

    def close(self) -> None:
        """Do nothing: what is shown stays."""


def notebook() -> Show | None:
    """Return IPython's ``display`` in a notebook, None elsewhere, also in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display  # noqa: PLC0415  (it runs, so it is installed)

    shown: Show = display
    return shown


def can_redraw(stream: TextIO | PipeSafeStream) -> bool:
    """Return whether a stream is a terminal on which a view can be drawn and replaced."""
    if not stream.isatty() or os.environ.get("TERM", "").lower() in _DUMB:
        return False
    try:
        _DRAWN.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def plain_lines(view: View, width: int) -> list[str]:
    """Return a view as plain text, its tables fitted to the width."""
    file = io.StringIO()
    _print(view, _rich_console(file, width, force_terminal=False))
    # rich pads the last column.
    return [text.rstrip() for text in file.getvalue().splitlines()]


def html_of(view: View, width: int) -> str:
    """Return a view as HTML with everything in it escaped, without scripts or style sheets."""
    from rich.terminal_theme import TerminalTheme  # noqa: PLC0415  (only where something is drawn)

    # The page's own colors are unknown: only black text on black is mixed, into the grey of what is
    # dim. Of the eight colors, the views use red and green.
    theme = TerminalTheme(_GREY, _GREY, [_GREY, _RED, _GREEN, *[_GREY] * 5])
    console = _rich_console(io.StringIO(), width, force_terminal=False, record=True)
    _print(view, console)
    return console.export_html(theme=theme, code_format=_HTML, inline_styles=True)


def _rich_console(
    file: Any, width: int | None, *, force_terminal: bool, record: bool = False
) -> RichConsole:
    from rich.console import Console as RichConsole  # noqa: PLC0415  (as above)

    # All texts are the user's: rich must neither find markup in them nor color numbers, and in a
    # notebook it must not show them by itself.
    return RichConsole(
        file=file,
        width=width,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=force_terminal,
        record=record,
    )


def _print(view: View, console: RichConsole) -> None:
    # Not cropped, since whole lines may be longer than the console is wide.
    console.print(_group(view), crop=False)


def _group(view: View) -> Group:
    from rich.console import Group  # noqa: PLC0415  (only where something is drawn)
    from rich.text import Text  # noqa: PLC0415

    shown: list[Text | Table] = []
    for part in view:
        if isinstance(part, Table):
            if part.num_rows:
                shown.append(part)
        elif part.text:
            text = Text.assemble(*part.parts, no_wrap=True)
            text.overflow = "ignore" if part.is_whole else "ellipsis"
            shown.append(text)
    # A group: texts that are printed side by side would be joined, and wrapped.
    return Group(*shown)
