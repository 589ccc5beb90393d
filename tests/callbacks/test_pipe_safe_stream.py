"""Output continues without a reader, and does not block on a stopped one."""

import io
import os
import pty
import termios

import pytest

from tuner.callbacks.pipe_safe_stream import PipeSafeStream


@pytest.fixture(params=["pipe", "terminal"])
def ends(request):
    """Return what a reader reads from, and a stream that it reads."""
    reader, writer = os.pipe() if request.param == "pipe" else pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream


def test_what_is_written_arrives(ends):
    reader, stream = ends
    safe = PipeSafeStream(stream)
    assert safe.write("table") == 5
    safe.flush()
    assert os.read(reader, 100) == b"table"
    os.close(reader)


def test_without_a_reader_all_goes_on_for_others_that_write_there_too(ends):
    reader, stream = ends
    safe = PipeSafeStream(stream)
    os.close(reader)
    for _ in range(2):
        assert safe.write("table\n") == 6
        safe.flush()
    print("the script itself", file=stream, flush=True)


def test_other_attributes_are_those_of_the_stream(ends):
    reader, stream = ends
    safe = PipeSafeStream(stream)
    assert (safe.isatty(), safe.encoding) == (stream.isatty(), "utf-8")
    os.close(reader)


def test_a_stream_without_a_descriptor_is_given_up_in_silence():
    class Gone:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def fileno(self):
            raise OSError

    safe = PipeSafeStream(Gone())
    assert safe.write("table") == 5
    safe.flush()


def test_a_stopped_terminal_is_not_writable_until_it_goes_on():
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        safe = PipeSafeStream(stream)
        assert safe.is_writable_now()
        termios.tcflow(stream.fileno(), termios.TCOOFF)
        assert not safe.is_writable_now()
        termios.tcflow(stream.fileno(), termios.TCOON)
        assert safe.is_writable_now()
    os.close(reader)


def test_a_stream_without_a_descriptor_counts_as_writable():
    assert PipeSafeStream(io.StringIO()).is_writable_now()
