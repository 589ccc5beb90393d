import os

import pytest

from tuner.storage.disk import LocalDisk, write_bytes, write_text


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, names_in):
    path = tmp_path / "state.json"
    write_text(path, "old")
    write_text(path, "néw")
    assert path.read_text(encoding="utf-8") == "néw"
    assert names_in(tmp_path) == ["state.json"]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path, faulty_disk, operation, names_in
):
    path = tmp_path / "state.json"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="injected"):
        write_bytes(path, b"new", disk=faulty_disk({operation: {1}}))
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["state.json"]


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path):
    for path in (tmp_path / "nowhere" / "a.json", tmp_path):
        with pytest.raises(OSError, match=path.name) as caught:
            write_bytes(path, b"new")
        assert str(caught.value).endswith(f": {str(path)!r}")


def test_a_short_write_is_continued(tmp_path):
    class ShortWrites(LocalDisk):
        def write(self, descriptor, data):
            return super().write(descriptor, data[:3])

    path = tmp_path / "state.json"
    write_bytes(path, b"0123456789", disk=ShortWrites())
    assert path.read_bytes() == b"0123456789"


def test_the_error_after_a_short_write_is_raised(tmp_path, faulty_disk):
    path = tmp_path / "state.json"
    with pytest.raises(OSError, match="injected"):
        write_bytes(path, b"0123456789", disk=faulty_disk({"write": {1}}, partial_bytes=3))
    assert not path.exists()


def test_without_sync_nothing_is_synced(tmp_path, faulty_disk):
    disk = faulty_disk()
    write_bytes(tmp_path / "state.json", b"x", sync=False, disk=disk)
    assert disk.num_calls["sync"] == disk.num_calls["sync_directory"] == 0


def test_a_link_at_the_place_is_replaced_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    path = tmp_path / "state.json"
    path.symlink_to(outside)
    write_bytes(path, b"new")
    assert outside.read_bytes() == b"precious"
    assert not path.is_symlink()


def test_no_file_is_writable_for_others_under_an_empty_umask(tmp_path):
    before = os.umask(0)
    try:
        write_bytes(tmp_path / "state.json", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "state.json").stat().st_mode & 0o022 == 0
