"""Only regular files of a bounded size are read; the error for others says what they are."""

import os
import socket
import tracemalloc

import pytest

from tuner.storage.declaration import read_environments
from tuner.storage.disk import LARGE_BYTES, has_content, open_file, read_file


def test_a_regular_file_is_read_as_a_whole(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", 5) == b"12345"
    with open_file(tmp_path / "file") as file:
        assert file.read(2) == b"12"


def test_a_larger_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=f"it has {1 << 40} bytes, and at most 100 are read"):
        read_file(tmp_path / "file", 100)


def test_no_more_memory_is_taken_than_the_file_needs(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_file(tmp_path / "file", LARGE_BYTES) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_has_the_content_that_it_has_and_no_other(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    asked = [
        ("file", b"12345"),
        ("file", b"12344"),
        ("file", b"1234"),
        ("file", b"123456"),
        ("link", b"12345"),
        ("gone", b""),
    ]
    assert [has_content(tmp_path / name, data) for name, data in asked] == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]


def test_no_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="it is a symbolic link"):
        read_file(tmp_path / "link", 100)


def test_what_is_no_file_is_named_and_nothing_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, kind in (("fifo", "a FIFO"), ("folder", "a directory"), ("socket", "a socket")):
            with pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
                read_file(tmp_path / name, 100)
    with pytest.raises(OSError, match="it is a device"):
        read_file("/dev/zero", 100)


def test_who_asks_for_the_environment_does_not_wait_for_one(tmp_path):
    os.mkfifo(tmp_path / "environment.json")
    assert read_environments(tmp_path) == []
