"""Whether a tree has changed: each write counts, however soon and of whatever size."""

import os
import re

import pytest

from tuner.errors import CheckpointError
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.tree_state import check_unchanged, state_of

pytestmark = pytest.mark.process


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights").write_text("1")
    (tmp_path / "epoch").write_text("1")
    (tmp_path / "latest").symlink_to("epoch")
    return tmp_path


def rename_over(tree):
    (tree / "new").write_text("2")
    (tree / "new").replace(tree / "epoch")


def keep_the_time(tree):
    status = (tree / "epoch").stat()
    (tree / "epoch").write_text("22")
    os.utime(tree / "epoch", ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = {
    "same size": lambda tree: (tree / "folder" / "weights").write_text("2"),
    "another size": lambda tree: (tree / "epoch").write_text("12"),
    "added": lambda tree: (tree / "more").touch(),
    "removed": lambda tree: (tree / "epoch").unlink(),
    "replaced": rename_over,
    "old time": keep_the_time,
    "another link": lambda tree: (
        (tree / "latest").unlink() or (tree / "latest").symlink_to("folder")
    ),
    "gone": lambda tree: tree.rename(tree.with_name("elsewhere")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_is_seen_and_the_error_names_the_remedy(tree, change):
    before = state_of(str(tree))
    change(tree)
    with pytest.raises(CheckpointError, match=re.escape(str(tree)) + ".*into a new directory"):
        check_unchanged(str(tree), before)


def test_a_file_that_is_written_again_at_once_with_the_same_size_is_seen_each_time(tree):
    for number in range(20):
        (tree / "epoch").write_text(str(number % 10))
        before = state_of(str(tree))
        (tree / "epoch").write_text(str((number + 1) % 10))
        with pytest.raises(CheckpointError):
            check_unchanged(str(tree), before)


def test_notes_may_be_stored_with_a_checkpoint_at_any_time(tree):
    before = state_of(str(tree))
    Checkpoint.from_directory(tree).set_metadata({"epoch": 1})
    check_unchanged(str(tree), before)


def test_reading_changes_nothing_and_without_a_state_nothing_is_compared(tree):
    before = state_of(str(tree))
    assert (tree / "folder" / "weights").read_text() == "1"
    check_unchanged(str(tree), before)
    (tree / "epoch").write_text("2")
    check_unchanged(str(tree), None)


def test_the_clock_of_a_file_server_that_is_ahead_holds_nobody_up(tree):
    os.utime(tree / "epoch", (2**32, 2**32))
    check_unchanged(str(tree), state_of(str(tree)))
