import math
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import StorageError
from tuner.journal import snapshot_files
from tuner.journal.snapshot_files import Snapshot, SnapshotClock, load_newest, write
from tuner.storage import layout


def test_the_newest_comes_back_and_two_are_kept(tmp_path, names_in):
    for sequence in (9, 10, 100):
        write(tmp_path, {"trials": sequence, "best": -math.inf}, sequence)
    assert load_newest(tmp_path) == Snapshot(100, {"trials": 100, "best": -math.inf})
    assert len(names_in(tmp_path / layout.SNAPSHOT)) == 2


def test_the_name_tells_which_is_the_newest_and_not_the_clock(tmp_path):
    write(tmp_path, {}, 1)
    newest = write(tmp_path, {}, 2)
    os.utime(newest, (0, 0))
    assert load_newest(tmp_path).last_sequence == 2


def test_without_a_snapshot_there_is_none(tmp_path):
    assert load_newest(tmp_path) is None


def test_a_damaged_one_is_passed_over_wherever_it_is_cut(tmp_path):
    write(tmp_path, {"generation": 1}, 1)
    newest = write(tmp_path, {"generation": 2, "state": list(range(300))}, 2)
    whole = newest.read_bytes()
    for size in range(0, len(whole), 64):
        newest.write_bytes(whole[:size])
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert load_newest(tmp_path) == Snapshot(1, {"generation": 1})


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_is_read_in_silence(position, bit):
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory, {"lr": 0.125}, 5, sync=False)
        content = bytearray(path.read_bytes())
        content[position % len(content)] ^= 1 << bit
        path.write_bytes(content)
        with pytest.warns(RuntimeWarning):
            assert load_newest(directory) is None


def test_one_under_a_wrong_name_is_damaged(tmp_path):
    path = write(tmp_path, {}, 5)
    path.rename(path.with_name(f"{9:020d}.json"))
    with pytest.warns(RuntimeWarning, match="records up to 5"):
        assert load_newest(tmp_path) is None


def test_one_of_a_newer_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as future:
        future.setattr(snapshot_files, "FORMAT", 2)
        write(tmp_path, {}, 1)
    with pytest.raises(StorageError, match="newer version"):
        load_newest(tmp_path)


@pytest.mark.parametrize(
    "operation", ["make_directory", "create", "write", "sync", "rename", "sync_directory"]
)
def test_a_failed_write_raises_and_the_older_ones_stay(tmp_path, faulty_disk, operation, names_in):
    for sequence in (1, 2):
        write(tmp_path, {}, sequence)
    with pytest.raises(StorageError, match="injected"):
        write(tmp_path, {}, 3, disk=faulty_disk({operation: {1}}))
    assert load_newest(tmp_path).last_sequence in (2, 3)
    assert not [
        name
        for name in names_in(tmp_path / layout.SNAPSHOT)
        if name.startswith(layout.STAGING_PREFIX)
    ]
    assert Path(tmp_path / layout.SNAPSHOT / f"{2:020d}.json").exists()


def test_one_that_cannot_be_removed_is_no_misfortune(tmp_path, faulty_disk, names_in):
    disk = faulty_disk({"remove": {1}})
    for sequence in range(1, 5):
        write(tmp_path, {}, sequence, disk=disk)
    assert disk.num_faults == 1
    assert len(names_in(tmp_path / layout.SNAPSHOT)) == 2


def test_a_fast_save_comes_every_minute_and_a_slow_one_after_nineteen_times_its_duration():
    clock = SnapshotClock(start_s=0.0)
    assert not clock.is_due(59.9)
    assert clock.is_due(60.0)
    clock.saved(60.0, 60.01)
    assert clock.due_s == pytest.approx(120.01)
    clock.saved(130.0, 135.0)
    assert clock.due_s == pytest.approx(230.0)


def test_one_that_is_taken_before_its_time_has_to_be_paid_off():
    clock = SnapshotClock(start_s=0.0)
    clock.saved(5.0, 5.1)
    assert not clock.is_affordable(6.9)
    assert clock.is_affordable(7.1)
    assert clock.due_s == pytest.approx(65.1)


def test_work_on_a_save_that_is_not_finished_is_paid_off_and_leaves_it_due():
    clock = SnapshotClock(start_s=0.0)
    clock.worked(60.0, 60.1)
    assert clock.due_s == pytest.approx(62.0)
    clock.worked(62.0, 62.1)
    assert clock.due_s == pytest.approx(64.0)
    clock.saved(64.0, 64.1)
    assert clock.due_s == pytest.approx(124.1)


def test_a_fixed_period_does_not_depend_on_the_cost_of_a_save():
    clock = SnapshotClock(start_s=0.0, fixed_period_s=3.0)
    assert clock.due_s == 3.0
    clock.saved(3.0, 8.0)
    assert clock.due_s == 11.0


def test_a_period_below_zero_is_refused():
    for period in (-1.0, math.nan):
        with pytest.raises(ValueError, match="fixed_period_s must be at least 0"):
            SnapshotClock(0.0, period)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, 20), st.booleans()), max_size=30))
def test_saves_take_at_most_a_twentieth_of_the_time_until_the_next_one_is_due(saves):
    clock, now, spent, forced = SnapshotClock(start_s=0.0), 0.0, 0.0, 0.0
    for pause, duration, is_forced in saves:
        started = now + pause if is_forced else max(now + pause, clock.due_s)
        now, spent, forced = started + duration, spent + duration, forced + duration * is_forced
        clock.saved(started, now)
        assert spent <= clock.due_s / 20 + 1e-6
