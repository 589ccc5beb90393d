"""The contents of the virtual disk after a crash and after a power cut."""

import errno
from pathlib import Path
from random import Random

import pytest

from tests.simulation.fault_injection import DriverKilled, Fault, FaultInjector, FaultPoint
from tests.simulation.virtual_disk import VirtualDisk

HOME = Path("/disk")
FILE = HOME / "file"
LINE = b"a line that is long enough to be torn\n"


class Machine:
    """A disk, and a process that uses it."""

    def __init__(self, seed, *, gaps=None, without=()):
        self.rng = Random(seed)  # noqa: S311  (not a secret)
        self.faults = FaultInjector(self.rng, gaps or {}, without, 100)
        self.disk = VirtualDisk(self.faults, self.rng, self.step, lambda data: None)
        self.disk.make_directory(HOME)
        self.disk.sync_directory(HOME.parent)

    def step(self):
        if self.faults.is_dead:
            raise DriverKilled

    def write(self, name, *, syncs, syncs_directory=True):
        descriptor = self.disk.create(HOME / name)
        self.disk.write(descriptor, LINE)
        if syncs:
            self.disk.sync(descriptor)
        if syncs_directory:
            self.disk.sync_directory(HOME)
        return descriptor

    def left(self):
        return self.disk.contents(HOME)


def outcomes(prepare, *, num=200, **options):
    """Return everything that power cuts have left."""
    left = set()
    for seed in range(num):
        machine = Machine(seed, **options)
        prepare(machine)
        machine.disk.lose_power()
        left.add(frozenset(machine.left().items()))
    return left


def test_a_crash_loses_nothing_that_was_written():
    machine = Machine(0)
    machine.write("file", syncs=False, syncs_directory=False)
    machine.disk.crash()
    assert machine.left() == {"file": LINE}


def test_a_power_cut_keeps_what_was_synced():
    assert outcomes(lambda machine: machine.write("file", syncs=True)) == {
        frozenset({("file", LINE)})
    }


def test_a_power_cut_keeps_any_beginning_of_what_was_not_synced_perhaps_with_zeros():
    left = {
        dict(files)["file"]
        for files in outcomes(lambda machine: machine.write("file", syncs=False))
    }
    assert {b"", LINE} <= left
    assert any(0 < len(data) < len(LINE) and LINE.startswith(data) for data in left)
    assert any(data.endswith(b"\0") for data in left)
    assert all(LINE.startswith(data.rstrip(b"\0")) for data in left)


def test_a_name_that_was_not_synced_may_be_gone_though_its_data_were():
    assert outcomes(lambda machine: machine.write("file", syncs=True, syncs_directory=False)) == {
        frozenset(),
        frozenset({("file", LINE)}),
    }


def test_a_rename_may_reach_the_platter_before_the_data():
    def rename(machine):
        machine.write("file", syncs=False)
        machine.disk.rename(FILE, HOME / "final")

    assert any(dict(files).get("final") == b"" for files in outcomes(rename))


def test_a_directory_that_was_not_synced_may_vanish():
    def make(machine):
        machine.disk.make_directory(HOME / "inner")

    kept = set()
    for seed in range(20):
        machine = Machine(seed)
        make(machine)
        machine.disk.lose_power()
        kept.add(str(HOME / "inner") in machine.disk._entries)
    assert kept == {True, False}


def test_pages_that_a_failed_sync_has_dropped_never_reach_the_platter():
    def fail(machine):
        descriptor = machine.write("file", syncs=True)
        machine.disk.write(descriptor, LINE)
        machine.faults._left[FaultPoint.SYNC] = 1
        with pytest.raises(OSError, match="injected"):
            machine.disk.sync(descriptor)
        machine.faults._left[FaultPoint.SYNC] = 1 << 60
        machine.disk.sync(descriptor)

    left = outcomes(fail, gaps={FaultPoint.SYNC: 1 << 50}, without={Fault.POWER_CUT_IN_SYNC})
    assert left == {frozenset({("file", LINE + bytes(len(LINE)))})}


def test_a_cut_that_was_not_synced_may_come_undone():
    def cut(machine):
        machine.disk.truncate(machine.write("file", syncs=True), 5)

    left = {dict(files)["file"] for files in outcomes(cut)}
    assert LINE[:5] in left
    assert LINE in left


@pytest.mark.parametrize(
    ("fault", "code"), [(Fault.DISK_FULL, errno.ENOSPC), (Fault.WRITE_ERROR, errno.EIO)]
)
def test_a_write_that_fails_has_taken_a_part_at_most(fault, code):
    sizes, codes = set(), set()
    for seed in range(60):
        machine = Machine(
            seed, gaps={FaultPoint.WRITE: 1}, without={Fault.DISK_FULL, Fault.WRITE_ERROR} - {fault}
        )
        machine.faults._left[FaultPoint.WRITE] = 1
        descriptor = machine.disk.create(FILE)
        try:
            assert machine.disk.write(descriptor, LINE) < len(LINE)
        except OSError as error:
            codes.add(error.errno)
        sizes.add(len(machine.left()["file"]))
    assert codes == {code}
    assert len(sizes) > 3
    assert machine.disk.num_refusals


def test_a_dead_process_changes_nothing_any_more():
    machine = Machine(0)
    descriptor = machine.write("file", syncs=False)
    machine.faults.kill(is_power_out=False)
    for call in (
        lambda: machine.disk.write(descriptor, LINE),
        lambda: machine.disk.truncate(descriptor, 0),
        lambda: machine.disk.rename(FILE, HOME / "other"),
        lambda: machine.disk.remove(FILE),
        lambda: machine.disk.sync(descriptor),
    ):
        with pytest.raises(DriverKilled):
            call()
    assert machine.left() == {"file": LINE}
