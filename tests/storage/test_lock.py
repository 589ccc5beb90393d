import errno
import fcntl
import multiprocessing
import os
import re
import signal

import pytest

from tests.orphans import orphan_of
from tuner.errors import ExperimentLocked, StorageError
from tuner.storage import layout, lock
from tuner.storage.lock import ExperimentLock, read_note, read_owner


def test_a_second_driver_is_refused_and_told_who_has_it(tmp_path):
    with ExperimentLock(tmp_path) as first:
        owner = read_owner(tmp_path)
        with pytest.raises(
            ExperimentLocked,
            match=re.escape(f"process {os.getpid()} on {owner.host} since {owner.started}"),
        ):
            ExperimentLock(tmp_path).acquire()
        assert first.is_held
        assert read_owner(tmp_path) == owner
    with ExperimentLock(tmp_path):
        pass


def test_a_segment_is_noted_and_stays_noted(tmp_path):
    with ExperimentLock(tmp_path) as held:
        held.note_segment(4, 17)
        assert (read_owner(tmp_path).epoch, read_owner(tmp_path).segment) == (4, 17)
        assert read_owner(tmp_path).pid == os.getpid()
    assert read_owner(tmp_path) is None
    assert {name: read_note(tmp_path)[name] for name in ("epoch", "segment")} == {
        "epoch": 4,
        "segment": 17,
    }
    with ExperimentLock(tmp_path):
        assert (read_owner(tmp_path).epoch, read_owner(tmp_path).segment) == (4, 17)


def test_of_a_lock_file_that_is_being_written_the_new_line_counts(tmp_path):
    with ExperimentLock(tmp_path) as held:
        held.note_segment(4, 17)
        path = tmp_path / layout.LOCK
        path.write_bytes(b'{"epoch":5,"segment":18}\n' + path.read_bytes()[25:])
        assert read_note(tmp_path) == {"epoch": 5, "segment": 18}


def test_a_killed_owner_blocks_nobody(tmp_path):
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        ExperimentLock(tmp_path).acquire()
        os.write(tell, b"x")
        signal.pause()
    os.read(ready, 1)
    with pytest.raises(ExperimentLocked, match=f"process {child} "):
        ExperimentLock(tmp_path).acquire()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with ExperimentLock(tmp_path):
        assert read_owner(tmp_path).pid == os.getpid()


def contend(experiment, barrier):
    barrier.wait()
    try:
        ExperimentLock(experiment).acquire()
    except ExperimentLocked:
        code = 1
    else:
        code = 0
    barrier.wait()
    os._exit(code)


def test_of_many_that_come_at_once_exactly_one_wins(tmp_path):
    context = multiprocessing.get_context("fork")
    for _ in range(10):
        barrier = context.Barrier(4)
        drivers = [context.Process(target=contend, args=(tmp_path, barrier)) for _ in range(4)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        assert sorted(driver.exitcode for driver in drivers) == [0, 1, 1, 1]


def test_a_forked_child_does_not_keep_the_lock_when_its_parent_dies(tmp_path):
    with orphan_of(ExperimentLock(tmp_path).acquire), ExperimentLock(tmp_path):
        pass


def test_a_forked_child_cannot_give_its_parents_lock_away(tmp_path):
    with ExperimentLock(tmp_path) as held:
        child = os.fork()
        if not child:
            code = 1 if held.is_held else 0
            held.release()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert held.is_held
        with pytest.raises(ExperimentLocked):
            ExperimentLock(tmp_path).acquire()


def test_an_executed_program_does_not_inherit_the_lock(tmp_path):
    held = lock.Lock(tmp_path / "lock")
    held.acquire()
    assert not os.get_inheritable(held.descriptor)
    held.release()


def test_an_unreadable_owner_is_still_an_owner(tmp_path):
    with ExperimentLock(tmp_path):
        (tmp_path / layout.LOCK).write_text("[garbage")
        with pytest.raises(ExperimentLocked, match="driven by another process"):
            ExperimentLock(tmp_path).acquire()


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path):
    (tmp_path / layout.LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot be locked"):
        ExperimentLock(tmp_path).acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_is_told_of(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    held = ExperimentLock(tmp_path)
    with pytest.warns(RuntimeWarning, match="no working file locks"):
        held.acquire()
    assert held.is_held
    held.release()


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(StorageError, match="missing/lock cannot be locked"):
        ExperimentLock(tmp_path / "missing").acquire()


def test_one_that_has_given_it_back_is_not_named_any_more(tmp_path):
    with ExperimentLock(tmp_path):
        assert read_owner(tmp_path)
    assert read_owner(tmp_path) is None


def test_whoever_is_refused_is_told_of_the_owner_and_not_of_the_one_before(tmp_path, monkeypatch):
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    with ExperimentLock(tmp_path):
        owner = (tmp_path / layout.LOCK).read_text()
        late = iter([owner.replace(f'"pid":{os.getpid()}', f'"pid":{ended}'), "", owner])
        monkeypatch.setattr(
            lock.time, "sleep", lambda _: (tmp_path / layout.LOCK).write_text(next(late))
        )
        (tmp_path / layout.LOCK).write_text(next(late))
        with pytest.raises(ExperimentLocked, match=f"process {os.getpid()} on "):
            ExperimentLock(tmp_path).acquire()
        assert list(late) == []
