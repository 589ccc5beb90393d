"""Progress displays: a terminal redrawn in place, a notebook's output, a stream of plain lines."""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, final

from .html_view import html_of
from .view import Line, Tone, View, rendered, texts

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

_PLAIN_WIDTH: Final = 100
_NOTEBOOK_WIDTH: Final = 150
_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.FAINT: "dim",
    Tone.GOOD: "green",
    Tone.BAD: "red",
}
_DUMB: Final = frozenset({"dumb", "unknown"})
_DRAWN: Final = "━─…▁█"


class Handle(Protocol):
    """A notebook's output that can be replaced."""

    def update(self, bundle: dict[str, str], **how: Any) -> None:
        """Put something else in its place."""


class Show(Protocol):
    """IPython's ``display``."""

    def __call__(self, bundle: dict[str, str], **how: Any) -> Handle | None:
        """Show something, given by its types, and return a handle to it."""


class Display(ABC):
    """A place where a view is shown, and lines beside it.

    Attributes:
        redraws: Whether a view takes the place of the one before.
        width: Characters of a line.
        height: Lines that are seen at once; None where that does not matter.
    """

    redraws = True
    width = _PLAIN_WIDTH
    height: int | None = None

    @abstractmethod
    def draw(self, view: View) -> None:
        """Show a view."""

    @abstractmethod
    def conclude(self, view: View) -> None:
        """Show the last view; nothing is drawn any more."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line of printable text."""

    @abstractmethod
    def close(self) -> None:
        """Leave the place as it was found. May be called twice."""


@final
class PlainDisplay(Display):
    """Writes everything line by line.

    Args:
        stream: Where to write.
        width: Characters of a line, None for 100.
    """

    redraws = False

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        self._stream = stream
        self.width = width or _PLAIN_WIDTH

    def draw(self, view: View) -> None:
        """Write the view's lines."""
        self._write(texts(rendered(view, self.width)))

    def conclude(self, view: View) -> None:
        """Write the view's lines."""
        self.draw(view)

    def say(self, text: str) -> None:
        """Write a line."""
        self._write([text])

    def close(self) -> None:
        """Do nothing, since nothing was changed."""

    def _write(self, lines: Iterable[str]) -> None:
        # A stream of the user's own need not have an encoding.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        for text in lines:
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


@final
class TerminalDisplay(Display):
    """Redraws a view in place, below the lines that are printed meanwhile; colours follow ``NO_COLOR`` and the terminal.

    Args:
        stream: The terminal.
        width: Characters of a line, None for what the terminal has.
        is_standard: Whether what the script prints itself goes to this terminal, too, and has to be
            kept apart.
    """

    def __init__(
        self, stream: TextIO, width: int | None = None, *, is_standard: bool = False
    ) -> None:
        self._lines = PlainDisplay(stream, width)
        self._stream = stream
        self._width = width
        self._is_standard = is_standard
        self._live: Live | None = None

    @property
    def width(self) -> int:  # type: ignore[override]  # it changes while we watch
        """Characters of a line, which may change at any time."""
        return self._width or shutil.get_terminal_size().columns

    @property
    def height(self) -> int:  # type: ignore[override]  # as above
        """Lines of the terminal."""
        return self._live.console.height if self._live else shutil.get_terminal_size().lines

    def draw(self, view: View) -> None:
        """Put the view in the place of the one before."""
        if self._live is None:
            self._live = self._start()
        self._live.update(_styled(rendered(view, self.width)), refresh=True)

    def conclude(self, view: View) -> None:
        """Write the view below everything else."""
        self.close()
        self._lines.width = self.width
        self._lines.draw(view)

    def say(self, text: str) -> None:
        """Print a line above the view."""
        if self._live is None:
            self._lines.say(text)
            return
        from rich.text import Text  # noqa: PLC0415  (only where something is drawn)

        self._live.console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Take the view away, and show the cursor again."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _start(self) -> Live:
        from rich.console import Console as Terminal  # noqa: PLC0415  (only where something is drawn)
        from rich.live import Live  # noqa: PLC0415  (as above)

        terminal = Terminal(
            file=self._stream,
            force_terminal=True,
            force_jupyter=False,
            width=self._width,
            highlight=False,
            markup=False,
        )
        both = self._is_standard
        live = Live(
            console=terminal,
            auto_refresh=False,
            transient=True,
            redirect_stdout=both,
            redirect_stderr=both,
        )
        live.start()
        return live


@final
class NotebookDisplay(Display):
    """Shows a view as HTML in the output of a notebook's cell, and replaces it there; no widgets are needed.

    What cannot show HTML gets the same as text.

    Args:
        show: IPython's ``display``.
        stream: Where lines go that are to stay.
        overwrite: Whether a view takes the place of the one before, rather than being added to it.
    """

    def __init__(self, show: Show, stream: TextIO, *, overwrite: bool = True) -> None:
        self._show = show
        self._lines = PlainDisplay(stream)
        self._overwrite = overwrite
        self._handle: Handle | None = None
        self.width = _NOTEBOOK_WIDTH

    def draw(self, view: View) -> None:
        """Show the view, in the place of the one before unless that is to stay."""
        text = "\n".join(texts(rendered(view, _PLAIN_WIDTH)))
        bundle = {"text/plain": text, "text/html": html_of(view, self.width)}
        if self._handle is None or not self._overwrite:
            self._handle = self._show(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def conclude(self, view: View) -> None:
        """Leave this view in the notebook."""
        self.draw(view)

    def say(self, text: str) -> None:
        """Print a line, which notebooks show beside the view."""
        self._lines.say(text)

    def close(self) -> None:
        """Do nothing: what is shown stays."""


def notebook() -> Show | None:
    """Return what shows things in the notebook that runs this, None where there is none; IPython on a terminal is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display  # noqa: PLC0415  (it runs, so it is there)

    shown: Show = display
    return shown


def can_redraw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a view can be drawn and replaced."""
    if not stream.isatty() or os.environ.get("TERM", "").lower() in _DUMB:
        return False
    try:
        _DRAWN.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _styled(lines: Iterable[Line]) -> Text:
    from rich.text import Text  # noqa: PLC0415  (only where something is drawn)

    text = Text(no_wrap=True, overflow="crop")
    for index, part in enumerate(lines):
        text.append("\n" if index else "")
        for piece in part.pieces:
            text.append(piece.text, style=_STYLES[piece.tone])
    return text
