import errno
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import CheckpointError
from tuner.storage import trees
from tuner.storage.trees import contents_of, copy_file, copy_tree, sync_files

NAMES = st.text("abcé .-", min_size=1, max_size=6).filter(lambda name: name.strip(".") == name)
TREES = st.recursive(
    st.binary(max_size=50) | st.just(b"\0" * 5000),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


def plant(root, node):
    root.mkdir()
    for name, child in node.items():
        if isinstance(child, dict):
            plant(root / name, child)
        else:
            (root / name).write_bytes(child)


@pytest.mark.property
@given(st.dictionaries(NAMES, TREES, max_size=4), st.booleans())
def test_a_copy_is_byte_identical_and_the_source_untouched(tree_of, tree, has_copy_range):
    place = Path(tempfile.mkdtemp())
    try:
        plant(place / "source", tree)
        before = tree_of(place / "source")
        with pytest.MonkeyPatch.context() as patch:
            if not has_copy_range:
                patch.setattr(
                    os,
                    "copy_file_range",
                    lambda *_: (_ for _ in ()).throw(OSError("not here")),
                    raising=False,
                )
            contents = copy_tree(place / "source", place / "copy")
        assert tree_of(place / "copy") == tree_of(place / "source") == before
        assert {*contents.files, *contents.directories} == set(before)
    finally:
        shutil.rmtree(place)


def test_links_inside_stay_links_and_still_hold_after_a_move(tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "weights").write_bytes(b"w")
    (source / "deep" / "relative").symlink_to("../weights")
    (source / "deep" / "absolute").symlink_to(source / "weights")
    (source / "by_name").symlink_to("../source/weights")
    copy_tree(source, tmp_path / "copy")
    shutil.rmtree(source)
    for name in ("deep/relative", "deep/absolute", "by_name"):
        assert (tmp_path / "copy" / name).is_symlink()
        assert (tmp_path / "copy" / name).read_bytes() == b"w"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "..", "inner/../../secret"])
def test_a_link_that_leads_out_is_refused_by_name_before_anything_is_copied(tmp_path, target):
    (tmp_path / "secret").write_bytes(b"s")
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "link").symlink_to(target)
    with pytest.raises(CheckpointError, match=r"link .*source/link leads out"):
        copy_tree(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_link_out_behind_a_linked_directory_is_refused(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "door").symlink_to(tmp_path)
    with pytest.raises(CheckpointError, match="door"):
        contents_of(source)


def test_a_pipe_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="pipe is neither"):
        contents_of(tmp_path)


def test_a_copy_into_itself_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must lie outside"):
        copy_tree(tmp_path, tmp_path / "inner" / "copy")


def test_a_copy_replaces_a_link_at_its_place_and_does_not_write_through_it(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"new")
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").symlink_to(outside)
    copy_tree(tmp_path / "source", tmp_path / "copy")
    assert outside.read_bytes() == b"precious"
    assert (tmp_path / "copy" / "file").read_bytes() == b"new"


def test_permissions_are_kept_but_for_writing_by_others(tmp_path):
    source = tmp_path / "run.sh"
    source.write_bytes(b"#!")
    source.chmod(0o777)
    before = os.umask(0)
    try:
        trees.copy_file(source, tmp_path / "copy.sh")
    finally:
        os.umask(before)
    assert (tmp_path / "copy.sh").stat().st_mode & 0o777 == 0o755


HOLE = 1 << 20


@pytest.mark.parametrize("pieces", [[], [0], [1], [0, 2, 3], [1, 4]])
@pytest.mark.parametrize("has_copy_range", [True, False])
def test_holes_stay_holes(tmp_path, monkeypatch, pieces, has_copy_range):
    if not has_copy_range:
        monkeypatch.setattr(
            os,
            "copy_file_range",
            lambda *_: (_ for _ in ()).throw(OSError("not here")),
            raising=False,
        )
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        for piece in pieces:
            file.seek(piece * HOLE)
            file.write(os.urandom(10_000))
        file.truncate(5 * HOLE + 17)
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks + 16 * len(pieces)


def test_a_file_system_that_cannot_tell_where_its_holes_are_has_everything_copied(
    tmp_path, monkeypatch
):
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.seek(HOLE)
        file.write(b"end")
    genuine = os.lseek

    def lseek(descriptor, offset, whence):
        if whence == os.SEEK_DATA:
            raise OSError(errno.EINVAL, "unknown")
        return genuine(descriptor, offset, whence)

    monkeypatch.setattr(os, "lseek", lseek)
    copy_file(source, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def synced(monkeypatch, paths, fails_at=None):
    """Sync the files and return the names of those that were."""
    names = []

    def fsync(descriptor):
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if name == fails_at:
            raise OSError(errno.EIO, f"injected at {name}")
        names.append(name)

    monkeypatch.setattr(os, "fsync", fsync)
    sync_files(paths)
    return sorted(names)


@pytest.fixture
def many(tmp_path):
    paths = [tmp_path / f"{number:03}" for number in range(100)]
    for path in paths:
        path.touch()
    return paths


@pytest.mark.process
def test_each_of_many_files_is_flushed_once(monkeypatch, many):
    assert synced(monkeypatch, many) == [path.name for path in many]


def test_each_file_is_flushed_where_no_thread_can_be_started(monkeypatch, many):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert synced(monkeypatch, many) == [path.name for path in many]


@pytest.mark.process
@pytest.mark.parametrize("number", [0, 50, 99])
def test_an_error_at_any_of_many_files_is_raised_when_no_thread_is_left(monkeypatch, many, number):
    num_before = threading.active_count()
    with pytest.raises(OSError, match=f"injected at {many[number].name}"):
        synced(monkeypatch, many, fails_at=many[number].name)
    assert threading.active_count() == num_before
