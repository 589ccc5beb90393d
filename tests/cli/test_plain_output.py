"""What a trial has printed reaches a terminal without control sequences, but with its colours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli.plain_output import PlainOutput

SAFE = [
    b"plain, \t tabbed\r\n",
    "färbig \N{CHECK MARK} \U0001f468\u200d\U0001f469\n".encode(),
    b"\x1b[31mred\x1b[0m \x1b[1;4;38;5;8mgrey\x1b[m \x1b[48;2;8;8;8mdark\x1b[38:5:8mgrey\x1b[0m\n",
]
UNSAFE = [
    b"\x1b[2J\x1b[H",  # clears the screen
    b"\x1b]0;title\x07",
    b"\x1b]52;c;cm0gLXJm\x07",  # the clipboard
    b"\x1b[6n",  # answers as if it were typed
    b"\x1b[8mhidden\x1b[0;8m\x1b[08m",
    b"\x1b[1A\x1b[2Kgone",
    b"\xc2\x9b2J",  # C1
    b"\x9b2J",
    b"\x08\x7f\x00\x07\x0c\x0b",
    b"\x1bP1;1|\x1b\\",
    "\u202egpj.exe".encode(),
    b"\x1b[31",
    b"\x1b",
]


def shown(*pieces):
    output = PlainOutput()
    texts = [output.text_of(piece) for piece in pieces]
    return "".join([*texts, output.text_of(b"", is_last=True)])


@pytest.mark.parametrize("data", SAFE)
def test_colours_letters_and_progress_bars_pass(data):
    assert shown(data).encode() == data


@pytest.mark.parametrize("data", UNSAFE)
def test_everything_else_is_escaped(data):
    text = shown(b"a" + data + b"b")
    left = text.replace("\x1b[0m", "")
    assert (left[0], left[-1]) == ("a", "b")
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in left)
    assert "\u202e" not in text
    assert "\\" in text


@given(st.lists(st.sampled_from([*SAFE, *UNSAFE, b"x", "\N{EURO SIGN}".encode()])), st.data())
def test_pieces_make_no_difference(parts, data):
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert shown(*pieces) == shown(whole)


def test_the_command_escapes_them(call, plain):
    (plain / "t00001" / "stdout").write_bytes(b"\x1b[32mok\x1b[0m \x1b]0;owned\x07\n")
    told = call("tail", "plain", "1", "--file", "stdout", code=0)
    assert told.stdout_bytes == b"\x1b[32mok\x1b[0m \\x1b]0;owned\\x07\n"


def test_errors_escape_them(call, storage):
    assert "\x1b" not in call("show", "no\x1b[2Jwhere", code=2).stderr
