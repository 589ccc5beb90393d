import copy
import errno
import os
import resource
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import StorageError
from tuner.journal import writer as journal
from tuner.journal.reader import read, recover
from tuner.journal.segments import START, JournalPosition
from tuner.journal.writer import SYNC_WINDOW_S, Journal, SyncPolicy, rest_after
from tuner.storage import layout
from tuner.storage.disk import LocalDisk
from tuner.storage.layout import journal_directory


def body(number):
    return {
        "t": number / 2,
        "k": "result",
        "id": f"t{number % 3:05d}",
        "a": 1,
        "m": {"loss": float(number)},
        "c": None,
    }


def fill(writer, numbers, per_flush=2):
    for number in numbers:
        writer.append(body(number))
        if number % per_flush == 0:
            writer.flush()


def losses(experiment, **options):
    return [record["m"]["loss"] for record in read(experiment, **options)]


@pytest.mark.parametrize("policy", SyncPolicy)
def test_what_is_written_is_read_in_order_with_sequence_and_epoch_in_front(tmp_path, policy):
    with Journal(tmp_path, sync=policy, has_syncer=False) as writer:
        fill(writer, range(10))
        assert writer.last_sequence == 10
    found = list(read(tmp_path))
    assert [record["q"] for record in found] == list(range(1, 11))
    assert list(found[4]) == ["q", "e", "t", "k", "id", "a", "m", "c"]
    assert {**found[4], "q": None, "e": None} == {"q": None, "e": None, **body(4)}


def test_nothing_is_on_the_disk_before_the_flush_and_all_of_it_after_one_write(
    tmp_path, faulty_disk
):
    disk = faulty_disk()
    writer = Journal(tmp_path, sync="process", disk=disk)
    before = disk.num_calls["write"]
    writer.append(body(1), body(2))
    writer.append(body(3))
    assert losses(tmp_path) == []
    assert (writer.last_sequence, writer.written_sequence) == (3, 0)
    writer.flush()
    assert losses(tmp_path) == [1.0, 2.0, 3.0]
    assert disk.num_calls["write"] == before + 1
    assert writer.written_sequence == 3
    writer.flush()
    assert disk.num_calls["write"] == before + 1


def test_a_record_that_is_no_json_leaves_the_journal_as_it_was(tmp_path):
    with Journal(tmp_path, has_syncer=False) as writer:
        with pytest.raises(TypeError):
            writer.append(body(1), {"k": "result", (1, 2): 3})
        writer.append(body(2))
    assert losses(tmp_path) == [2.0]


def test_what_json_cannot_hold_is_written_as_its_repr(tmp_path):
    with Journal(tmp_path, has_syncer=False) as writer:
        writer.append({"t": 0.0, "k": "suggested", "config": {"activation": len}})
    assert "len" in next(read(tmp_path))["config"]["activation"].text


def test_each_opening_begins_a_segment_and_an_epoch_and_goes_on_counting(tmp_path, names_in):
    for epoch in range(1, 5):
        with Journal(tmp_path, recover(tmp_path), has_syncer=False) as writer:
            assert writer.epoch == epoch
            fill(writer, range(3))
    assert [(record["q"], record["e"]) for record in read(tmp_path)] == [
        (q + 1, q // 3 + 1) for q in range(12)
    ]
    assert names_in(tmp_path / layout.JOURNAL) == [f"{first:020d}.log" for first in (1, 4, 7, 10)]


def test_an_epoch_in_which_nothing_was_written_counts_as_well(tmp_path, names_in):
    Journal(tmp_path, has_syncer=False).close()
    Journal(tmp_path, recover(tmp_path), has_syncer=False).close()
    assert recover(tmp_path) == JournalPosition(0, 0, 2)
    assert len(names_in(tmp_path / layout.JOURNAL)) == 1


def test_a_full_segment_is_followed_by_another(tmp_path, names_in):
    with Journal(tmp_path, has_syncer=False, segment_bytes=400) as writer:
        fill(writer, range(40))
        writer.rotate()
    assert len(names_in(tmp_path / layout.JOURNAL)) > 5
    assert losses(tmp_path) == list(range(40))
    assert losses(tmp_path, after=17) == list(range(17, 40))
    assert losses(tmp_path, after=40) == []


def test_the_cost_counts_everything(tmp_path):
    with Journal(tmp_path, sync="strict") as writer:
        fill(writer, range(10), per_flush=5)
        size = sum(path.stat().st_size for path in journal_directory(tmp_path).iterdir())
        spent = writer.cost
        assert spent.num_syncs == 2
        assert 0 < spent.num_bytes < size
        assert spent.loop_s > 0


def test_strict_syncs_before_the_flush_returns_and_group_without_a_thread_when_told(
    tmp_path, memory_disk
):
    for policy, after_flush in (("strict", 2), ("group", 0)):
        writer = Journal(tmp_path / policy, sync=policy, has_syncer=False, disk=memory_disk())
        writer.append(body(1), body(2))
        writer.flush()
        assert writer.synced_sequence == after_flush
        writer.sync()
        assert writer.synced_sequence == 2


def test_process_never_syncs(tmp_path, faulty_disk):
    disk = faulty_disk()
    with Journal(tmp_path, sync="process", disk=disk, segment_bytes=100) as writer:
        fill(writer, range(10))
        writer.sync()
        assert writer.synced_sequence == writer.written_sequence
    assert disk.num_calls["sync"] == disk.num_calls["sync_directory"] == 0


@pytest.mark.process
def test_the_thread_syncs_what_was_flushed(tmp_path, faulty_disk, monkeypatch):
    synced = threading.Event()
    disk = faulty_disk()
    genuine = disk.sync

    def sync(descriptor):
        genuine(descriptor)
        if threading.current_thread() is not threading.main_thread():
            synced.set()

    monkeypatch.setattr(disk, "sync", sync)
    with Journal(tmp_path, disk=disk) as writer:
        assert not synced.is_set()
        writer.append(body(1))
        writer.flush()
        assert synced.wait(60)


@pytest.mark.process
def test_a_failed_sync_of_the_thread_is_mended_at_the_next_flush(tmp_path, faulty_disk):
    disk = faulty_disk({"sync": {2}})
    condemned = threading.Event()
    genuine = disk.sync

    def sync(descriptor):
        try:
            genuine(descriptor)
        except OSError:
            condemned.set()
            raise

    disk.sync = sync
    with Journal(tmp_path, disk=disk) as writer:
        fill(writer, range(2))
        writer.flush()
        assert condemned.wait(60)
        fill(writer, range(2, 6))
    assert losses(tmp_path) == list(range(6))


def test_a_sync_of_the_thread_that_fails_while_the_driver_syncs_is_mended_as_well(
    tmp_path, monkeypatch
):
    writer = Journal(tmp_path, has_syncer=False)
    genuine = writer._rewrite_unsynced
    failures = iter([True])

    def mend():
        genuine()
        writer._sync_failed = next(failures, False)

    monkeypatch.setattr(writer, "_rewrite_unsynced", mend)
    writer.append(body(0))
    writer._write_staged()
    writer.rotate()
    writer.append(body(1))
    writer.close()
    assert losses(tmp_path) == [0.0, 1.0]
    assert writer.synced_sequence == 2


OPERATIONS = (
    "make_directory",
    "create",
    "write",
    "truncate",
    "sync",
    "rename",
    "sync_directory",
    "close",
    "remove",
)


def insist(action):
    for _ in range(100):
        try:
            return action()
        except StorageError:
            continue
    raise AssertionError("the disk has recovered, but not the journal")


@pytest.mark.parametrize("policy", ["process", "group", "strict"])
@pytest.mark.parametrize("num_faults", [1, 2, 3])
@pytest.mark.parametrize("operation", [*OPERATIONS, "short write"])
def test_whichever_call_fails_nothing_is_lost_or_double(
    faulty_disk, memory_disk, policy, operation, num_faults
):
    partial = {"partial_bytes": 30} if operation == "short write" else {}
    for first in range(1, 200):
        failing = range(first, first + num_faults)
        disk = faulty_disk(
            {operation.removeprefix("short "): failing},
            code=errno.ENOSPC,
            disk=memory_disk(),
            **partial,
        )
        write_through_faults(policy, disk)
        if not disk.num_faults:
            return
    pytest.fail("the fault fired for ever")


def write_through_faults(policy, disk):
    experiment = Path("/virtual")
    writer = insist(
        lambda: Journal(experiment, sync=policy, has_syncer=False, segment_bytes=300, disk=disk)
    )
    for number in range(12):
        writer.append(body(number))
        try:
            writer.flush()
        except StorageError:
            assert losses(experiment, disk=disk) == list(range(writer.written_sequence))
            insist(writer.flush)
        assert losses(experiment, disk=disk) == list(range(number + 1))
        if number % 4 == 3:
            insist(writer.sync)
            assert writer.synced_sequence == number + 1
        if number == 6:
            insist(writer.rotate)
    insist(writer.sync)
    writer.close()
    assert insist(lambda: recover(experiment, disk=disk)).sequence == 12
    assert losses(experiment, disk=disk) == list(range(12))


@pytest.mark.parametrize("policy", ["group", "strict"])
@pytest.mark.parametrize("other", ["sync", "sync_directory", "create"])
@pytest.mark.parametrize("write", range(2, 10))
def test_a_failed_write_followed_by_another_fault_loses_and_doubles_nothing(
    faulty_disk, memory_disk, policy, other, write
):
    for second in range(1, 10):
        write_through_faults(
            policy, faulty_disk({"write": {write}, other: {second}}, disk=memory_disk())
        )


@given(
    faults=st.dictionaries(st.sampled_from(OPERATIONS), st.sets(st.integers(1, 30), max_size=8)),
    policy=st.sampled_from(SyncPolicy),
    partial_bytes=st.sampled_from([0, 30]),
)
def test_faults_upon_faults_lose_and_double_nothing(
    faulty_disk, memory_disk, faults, policy, partial_bytes
):
    write_through_faults(
        policy, faulty_disk(faults, partial_bytes=partial_bytes, disk=memory_disk())
    )


class Sparing(LocalDisk):
    """A disk that takes a few bytes at a time."""

    def write(self, descriptor, data):
        return super().write(descriptor, data[:7])


def test_the_rest_of_a_short_write_follows(tmp_path):
    writer = Journal(tmp_path, has_syncer=False, disk=Sparing())
    writer.append(body(0))
    writer.flush()
    writer.close()
    assert losses(tmp_path) == [0.0]


class Numb(LocalDisk):
    """A disk that takes nothing, and does not say why, while it is numb."""

    is_numb = False

    def write(self, descriptor, data):
        return 0 if self.is_numb else super().write(descriptor, data)


def test_a_disk_that_takes_nothing_is_an_error_and_not_asked_for_ever(tmp_path):
    disk = Numb()
    writer = Journal(tmp_path, has_syncer=False, disk=disk)
    writer.append(body(0))
    disk.is_numb = True
    with pytest.raises(StorageError, match=r"none of \d+ bytes were taken"):
        writer.flush()
    disk.is_numb = False
    writer.close()
    assert losses(tmp_path) == [0.0]


def test_a_limit_to_the_size_of_files_is_reported_as_such_and_costs_nothing(tmp_path):
    writer = Journal(tmp_path, has_syncer=False)
    path = tmp_path / layout.JOURNAL / f"{1:020d}.log"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size_bytes = path.stat().st_size
    writer.append(body(0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 10, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"cannot be written: \[Errno 27\]") as error:
            writer.flush()
        assert error.value.__cause__.errno == errno.EFBIG
        assert path.stat().st_size == size_bytes
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.flush()
    writer.close()
    assert losses(tmp_path) == [0.0]


def test_a_short_write_is_cut_back_at_once_and_if_that_fails_before_the_next_write(
    tmp_path, faulty_disk
):
    disk = faulty_disk({"write": {2, 4}, "truncate": {2, 3}}, partial_bytes=30)
    writer = Journal(tmp_path, has_syncer=False, disk=disk)
    path = tmp_path / layout.JOURNAL / f"{1:020d}.log"
    size_bytes = path.stat().st_size
    writer.append(body(0))
    for expected_bytes in (size_bytes, size_bytes + 30, size_bytes + 30):
        with pytest.raises(StorageError):
            writer.flush()
        assert path.stat().st_size == expected_bytes
    writer.close()
    assert losses(tmp_path) == [0.0]


@pytest.mark.property
@given(
    faults=st.dictionaries(st.sampled_from(OPERATIONS), st.sets(st.integers(1, 30), max_size=8)),
    partial_bytes=st.sampled_from([0, 30]),
    chance=st.randoms(use_true_random=False),
)
def test_strict_loses_nothing_to_any_faults_and_a_power_cut_after_them(
    faulty_disk, memory_disk, faults, partial_bytes, chance
):
    experiment, memory = Path("/virtual"), memory_disk()
    disk = faulty_disk(faults, partial_bytes=partial_bytes, disk=memory)
    writer = insist(lambda: Journal(experiment, sync="strict", segment_bytes=300, disk=disk))
    for number in range(12):
        writer.append(body(number))
        insist(writer.flush)
        after = copy.deepcopy(memory)
        after.power_cut(lambda most: chance.randint(0, most))
        assert recover(experiment, disk=after).sequence == number + 1
        assert losses(experiment, disk=after) == list(range(number + 1))


def test_a_power_cut_takes_neither_a_segment_that_was_begun_nor_what_was_written_before(
    memory_disk,
):
    experiment, disk = Path("/virtual"), memory_disk()
    writer = Journal(experiment, has_syncer=False, disk=disk)
    fresh = copy.deepcopy(disk)
    fresh.power_cut(lambda most: 0)
    assert recover(experiment, disk=fresh).epoch == 1
    fill(writer, range(2), per_flush=1)
    writer.rotate()
    disk.power_cut(lambda most: 0)
    assert losses(experiment, disk=disk) == [0.0, 1.0]


def test_a_rotation_in_vain_is_made_up_for_before_anything_is_written(tmp_path, faulty_disk):
    disk = faulty_disk({"sync_directory": {3, 4}})
    writer = Journal(tmp_path, has_syncer=False, disk=disk)
    fill(writer, range(3))
    with pytest.raises(StorageError):
        writer.rotate()
    writer.append(body(3))
    with pytest.raises(StorageError):
        writer.flush()
    writer.flush()
    writer.close()
    assert losses(tmp_path) == list(range(4))


def test_an_interrupt_right_behind_the_write_neither_loses_nor_doubles(tmp_path, monkeypatch):
    writer = Journal(tmp_path, has_syncer=False)
    genuine = writer._segment.write

    def interrupted(data):
        genuine(data)
        raise KeyboardInterrupt

    writer.append(body(0))
    with monkeypatch.context() as patch:
        patch.setattr(journal.Segment, "write", lambda _, data: interrupted(data))
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
    fill(writer, [1, 2])
    writer.close()
    assert losses(tmp_path) == [0.0, 1.0, 2.0]


def test_an_interrupt_within_the_write_neither_loses_nor_doubles(
    tmp_path, faulty_disk, monkeypatch
):
    disk = faulty_disk()
    writer = Journal(tmp_path, has_syncer=False, disk=disk)

    def interrupted(descriptor, data):
        os.write(descriptor, data[:20])
        raise KeyboardInterrupt

    writer.append(body(0))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
    fill(writer, [1, 2])
    writer.close()
    assert losses(tmp_path) == [0.0, 1.0, 2.0]


def test_a_read_only_place_is_refused_at_once(tmp_path, faulty_disk):
    with pytest.raises(StorageError, match="no journal can be written"):
        Journal(tmp_path, disk=faulty_disk({"create": {1}}, code=errno.EROFS))


def test_a_closed_journal_writes_no_more_and_may_be_closed_again(tmp_path):
    writer = Journal(tmp_path, has_syncer=False)
    writer.close()
    writer.close()
    writer.append(body(1))
    with pytest.raises(StorageError):
        writer.flush()


def test_the_file_is_not_inherited_by_executed_programs(tmp_path):
    with Journal(tmp_path, has_syncer=False) as writer:
        assert not os.get_inheritable(writer._segment._descriptor)


def test_an_empty_journal_ends_at_the_start(tmp_path):
    assert recover(tmp_path) == START
    assert list(read(tmp_path)) == []


@pytest.mark.parametrize("duration_s", [0.0, 0.0002, 0.001, 0.002])
def test_what_has_just_missed_a_sync_is_safe_within_the_window(duration_s):
    """It waits for that sync, the rest after it, the wake-up of the thread, and its own sync."""
    waking_s = 0.005
    assert duration_s + rest_after(duration_s, duration_s) + waking_s + duration_s < SYNC_WINDOW_S


@pytest.mark.parametrize("duration_s", [0.0025, 0.015, 1.0])
def test_slow_syncs_take_a_twentieth_of_the_time(duration_s):
    assert duration_s / (duration_s + rest_after(duration_s, duration_s)) == pytest.approx(0.05)


@pytest.mark.parametrize("duration_s", [0.005, 0.015, 0.1])
def test_a_sync_that_waits_for_a_checkpoint_s_does_not_put_off_the_next(duration_s):
    assert 0.0 <= rest_after(duration_s, usual_s=0.001) <= max(0.0, SYNC_WINDOW_S - 2 * duration_s)
