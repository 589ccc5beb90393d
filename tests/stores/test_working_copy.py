"""Experiments in an object store, restored elsewhere and read."""

import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.stores.stored_journals import Driver, FailingStore, declare, values_of
from tests.tiers import examples
from tuner.errors import DamagedJournal, ExperimentFenced, StorageError, StorageUnreachable
from tuner.journal import snapshot_files
from tuner.journal.reader import read
from tuner.stores.object_store import ObjectStore
from tuner.stores.pieces import piece_key
from tuner.stores.working_copy import fetch_experiment

pytestmark = pytest.mark.process


@pytest.fixture
def store(request):
    return emptied(f"memory://remote/{request.node.name}")


def emptied(url):
    found = ObjectStore(url, retry_s=0)
    found.delete(found.list())
    return found


def values_in(directory):
    return [body["value"] for body in read(directory)]


class History:
    """Drivers of one experiment on several machines, one after the other or at the same time."""

    def __init__(self, root, piece_bytes):
        self.root = root
        self.piece_bytes = piece_bytes
        self.store = emptied("memory://remote/histories")
        self.failing = FailingStore(self.store)
        self.num_machines = self.number = 0
        self.acknowledged = []
        self.driver = self.old = None
        self.change_machine()

    def change_machine(self):
        self.num_machines += 1
        self.directory = self.root / str(self.num_machines)

    def carry_out(self, operation):
        if self.driver is None:
            self.start()
        if self.driver:
            getattr(self, operation)()
        if self.driver:
            stored = values_of(self.store)
            self.check(stored)
            assert len(set(stored)) == len(stored)

    def check(self, values):
        assert [value for value in values if value in self.acknowledged] == self.acknowledged

    def start(self):
        try:
            self.driver = Driver(self.failing, self.directory, piece_bytes=self.piece_bytes)
        except StorageUnreachable:
            event("failed start")
        else:
            self.driver.values = values_in(self.directory)
            self.check(self.driver.values)

    def append(self):
        self.append_by(self.driver)

    def old_appends(self):
        if self.old:
            self.append_by(self.old)

    def append_by(self, driver):
        self.number += 1
        driver.append(self.number)
        driver.values.append(self.number)

    def mirror(self):
        try:
            self.mirror_by(self.driver)
        except StorageUnreachable:
            event("failed upload")

    def old_mirrors(self):
        if self.old:
            with suppress(ExperimentFenced, StorageUnreachable):
                self.mirror_by(self.old)

    def mirror_by(self, driver):
        try:
            driver.mirror.store_new()
        finally:
            mirrored = driver.values[: driver.mirror.mirrored_sequence]
            self.acknowledged += [value for value in mirrored if value not in self.acknowledged]

    def fail(self):
        self.failing.plan = [""] * (self.number % 3) + ["before"]

    def lose_answer(self):
        self.failing.plan = [""] * (self.number % 3) + ["after"]

    def kill(self):
        self.driver.end()
        self.driver = None

    def lose_machine(self):
        self.kill()
        shutil.rmtree(self.directory)

    def take_over(self):
        if self.old:
            self.old.end()
        self.old, self.driver = self.driver, None
        self.change_machine()

    def close(self):
        for driver in filter(None, (self.driver, self.old)):
            driver.end()


OPERATIONS = ["append"] * 4 + ["mirror"] * 3 + ["old_appends", "old_mirrors", "fail", "lose_answer"]
OPERATIONS += ["kill", "lose_machine", "take_over"]


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(OPERATIONS), max_size=40), st.sampled_from([1, 100, 1 << 20]))
def test_the_stored_journal_always_contains_what_counts_as_mirrored(operations, piece_bytes):
    with tempfile.TemporaryDirectory() as root:
        history = History(Path(root), piece_bytes)
        try:
            for operation in operations:
                history.carry_out(operation)
            if history.store.get_if_exists("experiment.json"):
                fetch_experiment(history.store, Path(root, "copy"))
                assert values_in(Path(root, "copy")) == values_of(history.store)
        finally:
            history.close()


def test_a_local_copy_that_is_ahead_is_kept(store, tmp_path):
    first = Driver(store, tmp_path / "run")
    first.append(1)
    first.mirror.store_new()
    first.append(2)
    first.end()
    second = Driver(store, tmp_path / "run")
    second.append(3)
    second.mirror.store_new()
    second.end()
    assert values_of(store) == values_in(tmp_path / "run") == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_local_copy_that_is_behind_is_kept_aside(store, tmp_path, caplog):
    here = Driver(store, tmp_path / "here")
    here.append(1)
    here.mirror.store_new()
    here.append("only here")
    here.end()
    there = Driver(store, tmp_path / "there")
    there.append(2)
    there.mirror.store_new()
    there.end()
    again = Driver(store, tmp_path / "here")
    assert values_in(tmp_path / "here") == [1, 2]
    assert values_in(tmp_path / "here.aside-1") == [1, "only here"]
    assert "here.aside-1" in caplog.text
    again.end()


def test_a_local_copy_is_kept_aside_where_another_driver_has_begun_and_stored_nothing(
    store, tmp_path
):
    here = Driver(store, tmp_path / "here")
    here.append(1)
    here.mirror.store_new()
    here.append("only here")
    here.end()
    Driver(store, tmp_path / "there").end()
    Driver(store, tmp_path / "here").end()
    assert values_in(tmp_path / "here") == [1]
    assert values_in(tmp_path / "here.aside-1") == [1, "only here"]


def test_a_local_copy_whose_journal_is_damaged_is_kept_aside(store, tmp_path):
    driver = Driver(store, tmp_path / "run")
    for value in range(5):
        driver.append(value)
    driver.mirror.store_new()
    driver.end()
    (segment,) = (tmp_path / "run" / "journal").iterdir()
    segment.write_bytes(segment.read_bytes().replace(b'"value":2', b'"value":8'))
    Driver(store, tmp_path / "run").end()
    assert values_in(tmp_path / "run") == list(range(5))
    assert (tmp_path / "run.aside-1" / "experiment.json").is_file()


def test_a_local_copy_of_another_experiment_is_refused(store, tmp_path):
    driver = Driver(store, tmp_path / "run")
    driver.end()
    declare(tmp_path / "run", "two")
    with pytest.raises(StorageError, match="contains another experiment"):
        Driver(store, tmp_path / "run")


def test_a_damaged_last_piece_is_stored_again_from_a_local_copy(store, tmp_path):
    for values in ((1, 2), (3, 4)):
        driver = Driver(store, tmp_path / "run")
        for value in values:
            driver.append(value)
            driver.mirror.store_new()
        driver.end()
    store.put(piece_key(2, 4), store.get(piece_key(2, 4))[:-3])
    driver = Driver(store, tmp_path / "run")
    driver.append(5)
    driver.mirror.store_new()
    driver.end()
    assert values_of(store) == values_in(tmp_path / "run") == [1, 2, 3, 4, 5]


def test_a_lost_piece_is_stored_again_from_a_local_copy(store, tmp_path, caplog):
    for values in ((1, 2, 3), (4, 5)):
        driver = Driver(store, tmp_path / "run")
        for value in values:
            driver.append(value)
            driver.mirror.store_new()
        driver.end()
    store.delete([piece_key(1, 2)])
    driver = Driver(store, tmp_path / "run")
    driver.mirror.store_new()
    driver.end()
    assert values_of(store) == values_in(tmp_path / "run") == [1, 2, 3, 4, 5]
    assert "is damaged behind record 1 " in caplog.text
    fetch_experiment(store, tmp_path / "copy")
    assert values_in(tmp_path / "copy") == [1, 2, 3, 4, 5]


def test_salvage_continues_before_a_gap(store, tmp_path):
    driver = Driver(store, tmp_path / "a")
    for value in range(4):
        driver.append(value)
        driver.mirror.store_new()
    driver.end()
    store.delete([piece_key(1, 3)])
    with pytest.raises(DamagedJournal, match="is incomplete, records 1 to 2 are there"):
        Driver(store, tmp_path / "b")
    driver = Driver(store, tmp_path / "c", is_salvage=True)
    driver.append("new")
    driver.mirror.store_new()
    driver.end()
    assert values_of(store) == values_in(tmp_path / "c") == [0, 1, "new"]


def test_a_journal_that_ends_before_a_snapshot_is_refused(store, tmp_path):
    driver = Driver(store, tmp_path / "a")
    driver.append(1)
    driver.mirror.store_new()
    driver.end()
    store.put(f"snapshot/1/{7:020d}.json", b"{}")
    with pytest.raises(DamagedJournal, match="was stored behind record 7"):
        fetch_experiment(store, tmp_path / "b")
    assert not list((tmp_path / "b").iterdir())


def test_a_journal_without_the_last_record_of_its_last_driver_is_refused(store, tmp_path):
    driver = Driver(store, tmp_path / "a")
    for value in range(3):
        driver.append(value)
        driver.mirror.store_new()
    driver.lock.release(driver.mirror.mirrored_sequence)
    driver.end()
    fetch_experiment(store, tmp_path / "whole")
    store.delete([piece_key(1, 3)])
    with pytest.raises(DamagedJournal, match="released was stored behind record 3"):
        fetch_experiment(store, tmp_path / "b")
    again = Driver(store, tmp_path / "a")
    again.mirror.store_new()
    again.end()
    assert values_of(store) == [0, 1, 2]


def test_a_journal_without_records_is_refused_where_there_are_files_of_trials(store, tmp_path):
    Driver(store, tmp_path / "a").end()
    store.put("t00000/stdout", b"hello")
    with pytest.raises(DamagedJournal, match="t00000/stdout was stored behind record 1"):
        fetch_experiment(store, tmp_path / "b")


def test_the_newest_snapshot_that_counts_is_copied(store, tmp_path):
    old = Driver(store, tmp_path / "a")
    for value in range(6):
        old.append(value)
        old.mirror.store_new()
    for sequence in (2, 4):
        path = snapshot_files.write(tmp_path / "a", {"taken": sequence}, sequence)
        store.upload({f"snapshot/1/{path.name}": path})
    new = Driver(store, tmp_path / "b")
    new.append("new")
    new.mirror.store_new()
    # Of the old driver, behind the record after which the new one has gone on.
    path = snapshot_files.write(tmp_path / "a", {"taken": "stale"}, 7)
    store.upload({f"snapshot/1/{path.name}": path})
    fetch_experiment(store, tmp_path / "copy")
    assert snapshot_files.load_newest(tmp_path / "copy").state == {"taken": 4}
    store.put(f"snapshot/1/{4:020d}.json", b"damaged")
    with pytest.warns(RuntimeWarning, match="is damaged"):
        fetch_experiment(store, tmp_path / "other")
    assert snapshot_files.load_newest(tmp_path / "other").state == {"taken": 2}
    old.end()
    new.end()


def test_files_of_trials_are_copied_but_for_those_that_the_journal_contains(store, tmp_path):
    driver = Driver(store, tmp_path / "a")
    driver.append(1)
    driver.mirror.store_new()
    driver.end()
    wanted = ["environment.json", f"objects/{'0' * 64}.npy", "t00000/stdout", "t00000/error.txt"]
    others = ["t00000/result.json", "t00000/progress.csv", "t00000/events.out.tfevents.1"]
    others += ["t00000/checkpoint_000000.1a/model", "requests/x", "lock/00000001.alive"]
    for key in (*wanted, *others):
        store.put(key, b"content")
    fetch_experiment(store, tmp_path / "b")
    found = {
        path.relative_to(tmp_path / "b").as_posix()
        for path in (tmp_path / "b").rglob("*")
        if path.is_file()
    }
    assert found == {*wanted, "experiment.json", f"journal/{1:020d}.log", f"journal/{2:020d}.log"}
    fetch_experiment(store, tmp_path / "c", with_logs=False)
    assert not (tmp_path / "c" / "t00000").exists()


def test_there_is_no_experiment_in_an_empty_store(store, tmp_path):
    with pytest.raises(StorageError, match="there is no experiment in memory://"):
        fetch_experiment(store, tmp_path)
    store.put(piece_key(1, 1), b"")
    store.put("t00000/stdout", b"")
    with pytest.raises(StorageError, match=r"has no experiment\.json, but other objects"):
        fetch_experiment(store, tmp_path)


def test_machines_lost_one_after_the_other_lose_nothing_that_was_acknowledged(tmp_path):
    url, acknowledged = (tmp_path / "store").as_uri(), 0
    (tmp_path / "store").mkdir()
    for machine in range(2):
        directory = tmp_path / f"machine{machine}"
        command = [sys.executable, "-m", "tests.stores.remote_driver", url, str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:  # noqa: S603
            numbers = [int(driver.stdout.readline()) for _ in range(30)]
            driver.kill()
            numbers += [int(line) for line in driver.stdout if line.endswith("\n")]
        assert numbers[0] > acknowledged
        acknowledged = numbers[-1]
        shutil.rmtree(directory)
    fetch_experiment(ObjectStore(url), tmp_path / "copy")
    values = values_in(tmp_path / "copy")
    assert values == list(range(1, len(values) + 1))
    assert len(values) >= acknowledged


def test_a_stored_declaration_that_was_cut_is_replaced_from_the_local_copy(store, tmp_path):
    first = Driver(store, tmp_path / "run")
    first.append(1)
    first.mirror.store_new()
    first.end()
    store.put("experiment.json", store.get("experiment.json")[:-9])
    second = Driver(store, tmp_path / "run")
    second.end()
    fetch_experiment(store, tmp_path / "copy")
    assert values_in(tmp_path / "copy") == [1]
