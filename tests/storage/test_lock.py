import contextlib
import dataclasses
import errno
import fcntl
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter

import pytest

from tests.orphans import orphan_of
from tuner.errors import ExperimentLocked, StorageError
from tuner.storage import layout, lock, strict_json
from tuner.storage.lock import ExperimentLock, Lock, Owner, driver_of, read_note, read_owner
from tuner.storage.origin import Origin, note_origin


def test_the_refusal_of_a_second_driver_names_the_owner(tmp_path):
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


@pytest.mark.process
def test_a_killed_owner_holds_no_lock(tmp_path):
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


def contend(experiments, barrier, wins):
    for experiment in experiments:
        held = ExperimentLock(experiment)
        barrier.wait()
        with contextlib.suppress(ExperimentLocked):
            held.acquire()
        wins.put((experiment.name, held.is_held))
        barrier.wait()


@pytest.mark.process
def test_of_many_that_come_at_once_exactly_one_wins(tmp_path):
    context = multiprocessing.get_context("fork")
    experiments = [tmp_path / str(number) for number in range(10)]
    for experiment in experiments:
        experiment.mkdir()
    barrier, wins = context.Barrier(4), context.SimpleQueue()
    drivers = [context.Process(target=contend, args=(experiments, barrier, wins)) for _ in range(4)]
    for driver in drivers:
        driver.start()
    told = Counter(wins.get() for _ in range(4 * len(experiments)))
    for driver in drivers:
        driver.join()
    assert told == Counter(
        {
            (experiment.name, is_won): 1 if is_won else 3
            for experiment in experiments
            for is_won in (True, False)
        }
    )


@pytest.mark.process
def test_a_forked_child_does_not_keep_the_lock_when_its_parent_dies(tmp_path):
    with orphan_of(ExperimentLock(tmp_path).acquire), ExperimentLock(tmp_path):
        pass


@pytest.mark.process
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


@pytest.mark.process
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


def test_a_file_system_without_locks_causes_a_warning(tmp_path, monkeypatch):
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


@pytest.mark.process
def test_a_refusal_names_the_owner_and_not_the_one_before(tmp_path, monkeypatch):
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


def write_owner(directory, **changes):
    owner = {
        "pid": 1,
        "host": socket.gethostname(),
        "boot_id": "another",
        "started": "then",
        "epoch": 1,
        "ticks": 1,
    }
    (directory / "lock").write_text(json.dumps(owner | changes))


def test_an_experiment_without_lock_or_with_a_free_one_has_no_driver(tmp_path):
    assert driver_of(tmp_path) is None
    with ExperimentLock(tmp_path):
        assert driver_of(tmp_path).pid == os.getpid()
    assert driver_of(tmp_path) is None


@pytest.mark.parametrize("changes", [{}, {"host": "elsewhere"}])
def test_of_another_machine_or_an_earlier_start_of_this_one_the_lock_itself_is_asked(
    tmp_path, changes
):
    write_owner(tmp_path, **changes)
    assert driver_of(tmp_path) is None
    held = Lock(tmp_path / "lock")
    assert held.acquire()
    assert driver_of(tmp_path).started == "then"
    held.release()
    assert driver_of(tmp_path) is None


def test_to_look_changes_nothing_and_leaves_the_lock_free(tmp_path):
    write_owner(tmp_path)
    before = (tmp_path / "lock").read_text()
    driver_of(tmp_path)
    assert (tmp_path / "lock").read_text() == before
    with ExperimentLock(tmp_path) as lock:
        assert lock.is_held


def test_a_copy_of_an_experiment_is_not_driven_by_the_driver_of_the_original(tmp_path):
    with ExperimentLock(tmp_path):
        copy = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}_copy")
        assert driver_of(tmp_path) is not None
        assert driver_of(copy) is None


def test_a_lock_that_may_only_be_read_can_be_asked(tmp_path):
    write_owner(tmp_path)
    (tmp_path / "lock").chmod(0o444)
    assert driver_of(tmp_path) is None


def test_a_lock_that_cannot_be_opened_counts_as_held_by_its_owner(tmp_path, monkeypatch):
    write_owner(tmp_path)

    def refuse(*_, **__):
        raise PermissionError(13, "not yours")

    monkeypatch.setattr("tuner.storage.lock.os.open", refuse)
    monkeypatch.setattr(
        "tuner.storage.lock.read_owner", lambda _: Owner(1, "elsewhere", "", "then")
    )
    assert driver_of(tmp_path).pid == 1


OWNER = """
import signal, sys
from tuner.storage.lock import ExperimentLock
ExperimentLock(sys.argv[1]).acquire()
print("held", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def owning(directory):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OWNER, str(directory)]
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def owner(tmp_path):
    """Start a process that holds the lock."""
    with owning(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
def spared(tmp_path_factory):
    """Return a directory, what its lock file says, and the process that holds it to the end."""
    directory = tmp_path_factory.mktemp("owned")
    with owning(directory) as process:
        yield directory, (directory / layout.LOCK).read_text(), process
        assert process.poll() is None


def rewrite_owner(experiment, **changes):
    changed = dataclasses.replace(read_owner(experiment), **changes)
    (experiment / layout.LOCK).write_text(strict_json.dumps(dataclasses.asdict(changed)))


@pytest.mark.process
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_driver_is_killed_and_replaced_only_when_told(tmp_path, owner, is_stopped, caplog):
    if is_stopped:
        owner.send_signal(signal.SIGSTOP)
    with pytest.raises(ExperimentLocked, match=f"process {owner.pid} on "):
        ExperimentLock(tmp_path).acquire()
    assert owner.poll() is None
    with ExperimentLock(tmp_path, steal=True):
        assert owner.wait(60) == -signal.SIGKILL
        assert read_owner(tmp_path).pid == os.getpid()
    assert f"process {owner.pid} on " in caplog.text


def test_an_experiment_without_owner_is_not_stolen(tmp_path, caplog):
    with ExperimentLock(tmp_path, steal=True) as held:
        assert held.is_held
    assert not caplog.records


@pytest.mark.process
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"host": "elsewhere"}, "another machine; end it there"),
        ({"boot_id": "earlier"}, "another machine; end it there"),
        ({"boot_id": ""}, "too little is known"),
        ({"ticks": None}, "too little is known"),
        ({"ticks": 1}, "another one than that which took the lock"),
        ({"pid": os.getpid()}, "which is this process"),
    ],
)
def test_a_process_that_may_not_be_the_owner_is_not_killed(spared, changes, why):
    directory, text, process = spared
    (directory / layout.LOCK).write_text(text)
    rewrite_owner(directory, **changes)
    with pytest.raises(ExperimentLocked, match=why):
        ExperimentLock(directory, steal=True).acquire()
    assert process.poll() is None


@pytest.mark.process
def test_an_owner_that_has_left_no_name_is_not_killed(spared):
    directory, _, process = spared
    (directory / layout.LOCK).write_text("[garbage")
    with pytest.raises(ExperimentLocked, match="too little is known"):
        ExperimentLock(directory, steal=True).acquire()
    assert process.poll() is None


@pytest.mark.process
def test_where_another_is_faster_it_keeps_what_it_has(tmp_path, owner, monkeypatch):
    def kill(*_):
        return

    monkeypatch.setattr(lock, "kill", kill)
    with pytest.raises(ExperimentLocked, match="another has been faster"):
        ExperimentLock(tmp_path, steal=True).acquire()


@pytest.mark.process
def test_a_process_that_is_gone_needs_no_killing():
    child = os.fork()
    if not child:
        os._exit(0)
    ticks = lock.start_ticks(child)
    os.waitpid(child, 0)
    lock.kill(child, ticks, 1.0)
    assert lock.start_ticks(child) is None


@pytest.mark.process
def test_a_process_that_does_not_end_causes_an_error(monkeypatch):
    child = os.fork()
    if not child:
        signal.pause()
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    with pytest.raises(ExperimentLocked, match=r"has not ended after 0\.01 s"):
        lock.kill(child, lock.start_ticks(child), 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_process_of_another_user_is_left(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(ExperimentLocked, match="belongs to another user"):
        lock.kill(os.getpid(), lock.start_ticks(os.getpid()), 0.01)


DRIVER = {"pid": 7, "host": "here", "boot_id": "", "started": "noon"}


@pytest.mark.parametrize(
    ("noted", "driver"),
    [
        (DRIVER | {"nickname": "of a later release"}, Owner(7, "here", "", "noon")),
        (None, None),
        ({"pid": 7}, None),
        (DRIVER | {"pid": "7"}, None),
        (DRIVER | {"host": "here\x1b[2J"}, None),
    ],
    ids=["later", "none", "incomplete", "text", "unprintable"],
)
def test_the_driver_of_a_fetched_copy_is_unknown_where_its_note_is_damaged(tmp_path, noted, driver):
    note_origin(tmp_path, Origin("s3://bucket/experiment", is_copy=True, driver=noted))
    assert driver_of(tmp_path) == driver
