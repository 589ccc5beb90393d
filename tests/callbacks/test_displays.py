"""Displays: terminals, notebooks and plain lines."""

import io
import os
import pty
import sys
import termios
import types
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.callbacks.scenes import failed_trial, trial_at
from tuner.callbacks.console.console import Console
from tuner.callbacks.console.console_view import Scene, live_view, summary_view
from tuner.callbacks.console.displays import (
    Line,
    NotebookDisplay,
    TerminalDisplay,
    can_redraw,
    html_of,
    notebook,
    plain_lines,
)
from tuner.callbacks.pipe_safe_stream import PipeSafeStream


class FakeDisplay:
    """IPython's ``display``: remembers what each output of the notebook shows."""

    def __init__(self):
        self.outputs = []
        self.num_updates = 0

    def __call__(self, bundle, *, raw, display_id):
        assert (raw, display_id) == (True, True)
        index = len(self.outputs)
        self.outputs.append(bundle)
        return types.SimpleNamespace(update=lambda bundle, raw: self._update(index, bundle))

    def _update(self, index, bundle):
        self.num_updates += 1
        self.outputs[index] = bundle


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_a_notebook_shows_one_table_that_is_replaced_and_the_summary_stays(progress, trials):
    show, clock, stream = FakeDisplay(), Clock(), io.StringIO()
    console = Console(lambda: progress, stream=stream, show=show, clock=clock)
    console.setup(metric="val/loss")
    for _ in range(5):
        console.on_step_end(1, trials)
        clock.now += 1
    (live,) = show.outputs
    assert "21m40s left" in live["text/html"]
    assert "21m40s left" in live["text/plain"]
    console.on_experiment_end(trials)
    console.close()
    (final,) = show.outputs
    assert (show.num_updates, stream.getvalue()) == (5, "")
    for text in final.values():
        assert "7/20 trials in 11m40s" in text
        assert "ValueError: exploded" in text
        assert "t00009/error.txt" in text
        assert " left" not in text


def test_notices_stand_beside_the_table_of_a_notebook(progress, trials):
    show, stream = FakeDisplay(), io.StringIO()
    console = Console(lambda: progress, stream=stream, show=show, verbose=2)
    console.setup(metric="val/loss")
    console.on_step_end(1, trials)
    console.print_notice("restored 7 trials")
    console.on_trial_complete(1, trials, trials[4])
    assert stream.getvalue().splitlines() == [
        "restored 7 trials",
        "t00004  stopped_early  iter 5  val/loss last 0.46 (iter 5)  1m41s",
    ]
    assert len(show.outputs) == 1


def test_a_front_end_without_handles_gets_a_new_output_each_time(progress):
    outputs = []
    display = NotebookDisplay(lambda bundle, **_: outputs.append(bundle), io.StringIO())
    display.draw([Line(("one",))])
    display.draw([Line(("two",))])
    assert [output["text/plain"] for output in outputs] == ["one", "two"]


def test_the_texts_of_the_user_are_escaped(progress, trials):
    evil = "<script>alert(1)</script>&\"'"
    trials[0].config = {**trials[0].config, evil: evil}
    trials[0].last_result[evil] = 1.0
    failed = failed_trial(5, message=evil)
    scene = Scene(
        replace(progress, name=evil, metric="val/loss", waiting_for=evil),
        trials,
        {"t00005": failed},
    )
    html = html_of(live_view(scene, 150), 150)
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_html_is_well_formed_and_self_contained(progress, trials):
    html = html_of(live_view(Scene(progress, trials, {"t00009": trials[9]}), 150), 150)
    root = ET.fromstring(html)  # noqa: S314  (our own text)
    assert {element.tag for element in root.iter()} == {"pre", "span"}
    lines = "".join(root.itertext()).splitlines()
    (heading,) = (number for number, line in enumerate(lines) if line.startswith("failed "))
    assert heading == 4 + 8
    assert lines[heading + 1].split("  ")[:4] == [
        "t00009",
        "1, gave up",
        "ValueError: exploded",
        "/results/cifar/t00009/error.txt",
    ]


@pytest.mark.parametrize(
    ("shell", "is_notebook"),
    [
        (None, False),
        (types.SimpleNamespace(), False),
        (types.SimpleNamespace(kernel=None), False),
        (types.SimpleNamespace(kernel=1), True),
    ],
)
def test_a_notebook_is_where_a_kernel_runs_and_ipython_on_a_terminal_is_none(
    monkeypatch, shell, is_notebook
):
    def display(): ...

    ipython, parts = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, parts.display, ipython.display = lambda: shell, display, parts
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", parts)
    assert notebook() is (display if is_notebook else None)


def test_where_ipython_was_never_imported_there_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook() is None


@pytest.mark.parametrize(
    ("term", "encoding", "can"),
    [
        ("xterm", "utf-8", True),
        ("dumb", "utf-8", False),
        ("unknown", "utf-8", False),
        ("xterm", "ascii", False),
    ],
)
def test_a_terminal_is_drawn_on_that_can_move_its_cursor_and_show_bars(
    monkeypatch, term, encoding, can
):
    monkeypatch.setenv("TERM", term)
    stream = Terminal()
    monkeypatch.setattr(Terminal, "encoding", encoding)
    assert can_redraw(stream) is can
    assert not can_redraw(io.StringIO())


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_respected(monkeypatch, no_color):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    display = TerminalDisplay(PipeSafeStream(stream), 80)
    display.draw([Line((("good", "green"), ("bad", "red")))])
    display.close()
    assert ("\x1b[32mgood" in stream.getvalue()) is not bool(no_color)
    assert ("\x1b[31mbad" in stream.getvalue()) is not bool(no_color)


def test_the_view_leaves_room_for_failures_on_a_low_terminal(progress, trials):
    failed = {
        f"t{number:05d}": failed_trial(number, is_over=number % 2 == 0, message="x" * number)
        for number in range(40)
    }
    scene = Scene(
        replace(progress, running=[trial_at(number) for number in range(9, 40)]), trials, failed
    )
    lines = plain_lines(live_view(scene, 80, 24), 80)
    assert len(lines) == 24 - 2
    (heading,) = [number for number, line in enumerate(lines) if line.startswith("failed ")]
    assert heading == 4 + 12
    assert lines[heading + 1].split()[:4] == ["t00039", "1,", "trying", "again"]
    assert lines[heading + 2].split()[:4] == ["t00038", "1,", "gave", "up"]
    assert lines[-1] == "and 36 more failed trials"


@pytest.mark.parametrize("height", [1, 5, 10, 24])
def test_the_view_is_never_higher_than_the_terminal_by_more_than_its_fixed_lines(
    progress, trials, height
):
    scene = Scene(progress, trials, {"t00009": trials[9]})
    assert len(plain_lines(live_view(scene, 80, height), 80)) <= max(height - 1, 7)


def test_failures_of_one_cause_share_a_row_with_their_number(progress, trials):
    failed = [failed_trial(number) for number in range(9, 40)] + [
        failed_trial(50, message="something else")
    ]
    lines = plain_lines(summary_view(Scene(progress, [*trials, *failed]), 100), 100)
    (heading,) = [number for number, line in enumerate(lines) if line.startswith("failed ")]
    assert lines[heading].split() == ["failed", "trials", "attempt", "error", "log"]
    assert lines[heading + 1].split()[:4] == ["t00009", "32", "1,", "gave"]
    assert lines[heading + 2].split()[:4] == ["t00050", "1", "1,", "gave"]
    assert not any("more failed" in line for line in lines)


@pytest.fixture
def pseudo_terminal():
    """Return a terminal's stream, and a function that reads what is written to it up to a text."""
    reader, writer = pty.openpty()

    def read_until(end):
        text = ""
        while end not in text:
            text += os.read(reader, 65_536).decode()
        return text

    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream, read_until
    os.close(reader)


def test_a_stopped_terminal_does_not_block_and_shows_the_next_view_when_it_goes_on(pseudo_terminal):
    stream, read_until = pseudo_terminal
    display = TerminalDisplay(PipeSafeStream(stream), 80)
    display.draw([Line(("first",))])
    termios.tcflow(stream.fileno(), termios.TCOOFF)
    display.draw([Line(("second",))])
    termios.tcflow(stream.fileno(), termios.TCOON)
    display.draw([Line(("third",))])
    shown = read_until("third")
    assert "first" in shown
    assert "second" not in shown
    display.close()


def test_text_that_is_printed_above_the_view_leaves_it_in_place(pseudo_terminal):
    stream, read_until = pseudo_terminal
    display = TerminalDisplay(PipeSafeStream(stream), 80)
    display.draw([Line(("view",))])
    display.print("one\ntwo")
    assert "one\r\n" in read_until("two\r\nview")
    display.close()


def test_the_time_to_import_rich_does_not_delay_the_second_view(progress, trials):
    clock = Clock()

    def slow_at_first():
        if clock.now == 1000.0:
            clock.now += 10
        return progress

    stream = io.StringIO()
    console = Console(slow_at_first, stream=stream, is_terminal=True, width=80, clock=clock)
    console.on_step_end(1, trials)
    clock.now += 0.5
    console.on_step_end(2, trials)
    assert stream.getvalue().count("stopped_early 4") == 2
    console.close()
