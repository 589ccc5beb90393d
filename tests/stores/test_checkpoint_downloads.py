import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402  (if installed)

from tuner.errors import CheckpointError, StorageError  # noqa: E402
from tuner.storage import strict_json  # noqa: E402
from tuner.storage.checkpoint_directories import commit_from  # noqa: E402
from tuner.storage.checkpoints import Checkpoint  # noqa: E402
from tuner.storage.layout import MANIFEST  # noqa: E402
from tuner.storage.manifest import Provenance  # noqa: E402
from tuner.stores.checkpoint_downloads import download  # noqa: E402

pytestmark = pytest.mark.process  # Threads download several files at once.


class CountingFileSystem(LocalFileSystem):
    """A "remote" file system for all processes that counts its downloads in a file."""

    protocol = "counted"
    cachable = False

    def __init__(self, counter="", **options):
        super().__init__(counter=counter, **options)
        self.counter = counter

    def find(self, *arguments, **options):
        with Path(self.counter).open("ab") as file:
            file.write(b"x")
        return super().find(*arguments, **options)


@pytest.fixture
def counter(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "downloads"


@pytest.fixture
def checkpoint(tmp_path, counter):
    directory = tmp_path / "store" / "run"
    (directory / "deep").mkdir(parents=True)
    (directory / "deep" / "weights").write_bytes(b"0.5")
    (directory / "config").write_bytes(b"{}")
    return Checkpoint(str(directory), CountingFileSystem(str(counter)))


@pytest.fixture
def memory(counter):
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe_file("/bucket/run/deep/weights", b"0.5")
    yield filesystem
    filesystem.rm("/bucket", recursive=True)


def left_over():
    return list(Path(tempfile.gettempdir()).glob("tuner-downloads-*/*"))


def test_a_url_is_downloaded_read_and_removed(memory):
    checkpoint = Checkpoint("memory://bucket/run")
    with checkpoint.as_directory() as path:
        assert Path(path, "deep", "weights").read_bytes() == b"0.5"
        assert (
            Path(path).stat().st_mode & 0o077 == 0 or Path(path).parent.stat().st_mode & 0o077 == 0
        )
    assert not Path(path).exists()
    assert left_over() == []


def test_a_remote_checkpoint_knows_its_path_and_file_system(memory):
    checkpoint = Checkpoint("memory://bucket/run")
    assert checkpoint.path == "memory://bucket/run"
    assert checkpoint.filesystem is memory
    assert not checkpoint.is_local
    assert checkpoint == pickle.loads(pickle.dumps(checkpoint))  # noqa: S301  (our own)


def test_a_remote_checkpoint_is_copied_into_a_directory_that_stays(memory, tmp_path):
    assert (
        Path(
            Checkpoint("memory://bucket/run").to_directory(tmp_path / "copy"), "deep", "weights"
        ).read_bytes()
        == b"0.5"
    )


def test_metadata_of_a_remote_checkpoint(memory):
    checkpoint = Checkpoint("memory://bucket/run")
    assert checkpoint.get_metadata() == {}
    checkpoint.update_metadata({"epoch": 1})
    assert checkpoint.get_metadata() == {"epoch": 1}


def test_what_does_not_exist_is_named_and_leaves_nothing(memory):
    with (
        pytest.raises(FileNotFoundError, match="memory://bucket/other"),
        Checkpoint("memory://bucket/other").as_directory(),
    ):
        pass
    with Checkpoint("memory://bucket/run").as_directory():
        pass
    assert [path for place in left_over() for path in place.glob("checkpoint")] == []


def test_a_damaged_download_is_refused(tmp_path, counter):
    source = tmp_path / "source"
    source.mkdir()
    (source / "weights").write_bytes(b"0.5")
    (tmp_path / "trial").mkdir()
    path = commit_from(source, tmp_path / "trial", Provenance("t00001", 1, 0, 1))
    (path / "weights").write_bytes(b"0.6")
    with (
        pytest.raises(CheckpointError, match="weights"),
        Checkpoint(path, CountingFileSystem(str(counter))).as_directory(),
    ):
        pass


@pytest.fixture
def committed(tmp_path, memory):
    """A checkpoint with folders and links, of which an object store holds the files alone."""
    source = tmp_path / "source"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "weights").write_bytes(b"0.5")
    (source / "deep" / "latest").symlink_to("../weights")
    (tmp_path / "trial").mkdir()
    path = commit_from(source, tmp_path / "trial", Provenance("t00001", 1, 0, 1))
    for name in ("weights", MANIFEST):
        memory.pipe_file(f"/bucket/run/committed/{name}", (path / name).read_bytes())
    return path


def test_empty_folders_and_links_of_a_downloaded_checkpoint_are_made(committed, tmp_path, tree_of):
    checkpoint = Checkpoint("memory://bucket/run/committed")
    with checkpoint.as_directory() as path:
        assert tree_of(Path(path)) == tree_of(committed)
    for _ in range(2):  # the second time over what is there
        assert tree_of(Path(checkpoint.to_directory(tmp_path / "copy"))) == tree_of(committed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links": {"deep/latest": "../../../escaped"}}, "leads out"),
        ({"links": {"../escaped": "weights"}}, "no name inside"),
        ({"directories": ["../escaped"]}, "no name inside"),
    ],
)
def test_a_manifest_from_a_store_makes_nothing_outside(
    changes, message, committed, memory, tmp_path
):
    manifest = {"directories": ["deep"], "links": {}}
    manifest = strict_json.unseal((committed / MANIFEST).read_bytes()) | manifest | changes
    content = strict_json.seal(manifest, default=strict_json.opaque).encode()
    memory.pipe_file(f"/bucket/run/committed/{MANIFEST}", content)
    target = tmp_path / "copies" / "copy"
    with pytest.raises(CheckpointError, match=message):
        Checkpoint("memory://bucket/run/committed").to_directory(target)
    assert [path for path in target.rglob("*") if path.is_symlink()] == []
    assert [path.name for path in target.parent.iterdir()] == ["copy"]


def test_a_name_that_leads_out_is_refused(tmp_path, counter):
    class Malicious(CountingFileSystem):
        def find(self, path, *_, **__):
            return {f"{path}/../../escaped": {"type": "file", "size": 1}}

    with pytest.raises(StorageError, match=r"'\.\./\.\./escaped', which is no name of a"):
        download(str(tmp_path / "store"), Malicious(str(counter)), tmp_path / "target")


def test_without_fsspec_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with (
        pytest.raises(ImportError, match=r'pip install "tuner-hpo\[remote\]"'),
        Checkpoint("s3://bucket/run").as_directory(),
    ):
        pass


def read_together(checkpoint, barrier, paths):
    with checkpoint.as_directory() as path:
        barrier.wait()
        assert Path(path, "deep", "weights").read_bytes() == b"0.5"
        paths.put(path)
        barrier.wait()


def test_four_processes_share_one_download_and_the_last_removes_it(checkpoint, counter):
    context = multiprocessing.get_context("fork")
    barrier, paths = context.Barrier(4), context.SimpleQueue()
    readers = [
        context.Process(
            target=read_together,
            args=(pickle.loads(pickle.dumps(checkpoint)), barrier, paths),  # noqa: S301
        )
        for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [reader.exitcode for reader in readers] == [0] * 4
    assert len({paths.get() for _ in readers}) == 1
    assert counter.read_bytes() == b"x"
    assert left_over() == []


def test_nested_readers_share_and_the_files_stay_until_the_outer_one_leaves(checkpoint, counter):
    with checkpoint.as_directory() as outer:
        with Checkpoint(checkpoint.path, CountingFileSystem(str(counter))).as_directory() as inner:
            assert inner == outer
        assert Path(outer, "config").exists()
    assert counter.read_bytes() == b"x"
    with checkpoint.as_directory():
        assert counter.read_bytes() == b"xx"


def test_the_files_stay_until_the_last_reader_leaves(checkpoint):
    first, second = checkpoint.as_directory(), checkpoint.as_directory()
    first.__enter__()
    with second as path:
        first.__exit__(None, None, None)
        assert Path(path, "config").exists()
    assert left_over() == []


def test_what_a_killed_reader_left_is_replaced(checkpoint, counter):
    child = os.fork()
    if not child:
        with checkpoint.as_directory() as path:
            Path(path, "config").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert left_over()
    with checkpoint.as_directory() as path:
        assert Path(path, "config").read_bytes() == b"{}"
    assert counter.read_bytes() == b"xx"
    assert left_over() == []


def test_a_download_directory_that_others_can_enter_is_refused(checkpoint, tmp_path):
    (tmp_path / f"tuner-downloads-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(CheckpointError, match="only this user"), checkpoint.as_directory():
        pass
