"""Nobody has to read what is shown."""

import os
import pty

import pytest

from tuner.callbacks.pipe_safe_stream import LastingStream


@pytest.fixture(params=["pipe", "terminal"])
def ends(request):
    """Return what a reader reads from, and a stream that it reads."""
    reader, writer = os.pipe() if request.param == "pipe" else pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream


def test_what_is_written_arrives(ends):
    reader, stream = ends
    lasting = LastingStream(stream)
    assert lasting.write("table") == 5
    lasting.flush()
    assert os.read(reader, 100) == b"table"
    os.close(reader)


def test_without_a_reader_all_goes_on_for_others_that_write_there_too(ends):
    reader, stream = ends
    lasting = LastingStream(stream)
    os.close(reader)
    for _ in range(2):
        assert lasting.write("table\n") == 6
        lasting.flush()
    print("the script itself", file=stream, flush=True)


def test_it_is_what_the_stream_is(ends):
    reader, stream = ends
    lasting = LastingStream(stream)
    assert (lasting.isatty(), lasting.encoding) == (stream.isatty(), "utf-8")
    os.close(reader)


def test_a_stream_without_a_descriptor_is_given_up_in_silence():
    class Gone:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def fileno(self):
            raise OSError

    lasting = LastingStream(Gone())
    assert lasting.write("table") == 5
    lasting.flush()
