"""Journals copied to an object store in pieces."""

import threading
import zlib
from concurrent.futures import Future

import pytest

from tests.stores.stored_journals import Driver, FailingStore, StoreLock, bodies, values_of
from tuner.errors import DamagedJournal, ExperimentFenced, StorageUnreachable
from tuner.journal.reader import read, recover
from tuner.journal.writer import Journal
from tuner.stores import journal_mirror as mirror_module
from tuner.stores import pieces
from tuner.stores.journal_mirror import JournalMirror
from tuner.stores.object_store import ObjectStore
from tuner.stores.pieces import (
    PieceReader,
    Stretch,
    find_end,
    piece_key,
    read_starts,
    stretches,
)
from tuner.stores.remote_lock import start_key
from tuner.stores.segment_tail import SegmentTail


class Inline:
    """Does at once what a pool of threads would do."""

    def __init__(self, *options):
        pass

    def submit(self, call, *arguments):
        done = Future()
        done.set_result(call(*arguments))
        return done

    def shutdown(self, **options):
        pass


@pytest.fixture(autouse=True)
def _no_pool(monkeypatch):
    monkeypatch.setattr(pieces, "ThreadPoolExecutor", Inline)


@pytest.fixture
def store(request):
    found = ObjectStore(f"memory://mirror/{request.node.name}", retry_s=0)
    found.delete(found.list())
    return found


def write(directory, values, **options):
    with Journal(directory, recover(directory), sync="process", **options) as journal:
        for value in values:
            journal.append({"t": 0.0, "k": "result", "value": value})
            journal.flush()


def stored_once(store, directory, up_to, piece_bytes=1 << 20):
    mirror = JournalMirror(
        directory, store, StoreLock(store, (0, 0)), (0, 0), piece_bytes=piece_bytes
    )
    mirror.follow(lambda: up_to, has_thread=False)
    mirror.store_new()
    return mirror


@pytest.mark.parametrize(("piece_bytes", "num_pieces"), [(1, 40), (300, 7), (1 << 20, 1)])
def test_pieces_hold_the_lines_of_the_journal(store, tmp_path, piece_bytes, num_pieces):
    write(tmp_path, range(20), segment_bytes=500)
    write(tmp_path, range(20, 40), segment_bytes=500)
    mirror = stored_once(store, tmp_path, 40, piece_bytes)
    assert mirror.mirrored_sequence == 40
    assert list(bodies(store)) == list(read(tmp_path))
    assert len(store.list("journal/")) == num_pieces
    assert find_end(store, read_starts(store))[0] == 40


def test_nothing_is_stored_beyond_what_is_safe_locally(store, tmp_path):
    write(tmp_path, range(10))
    stored_once(store, tmp_path, 7)
    assert values_of(store) == list(range(7))


def test_a_line_longer_than_a_chunk_is_stored(store, tmp_path):
    write(tmp_path, [1, "x" * (3 << 20), 2])
    stored_once(store, tmp_path, 3)
    assert values_of(store) == [1, "x" * (3 << 20), 2]


def test_a_damaged_line_is_not_stored(store, tmp_path):
    write(tmp_path, range(10))
    (segment,) = (tmp_path / "journal").iterdir()
    segment.write_bytes(segment.read_bytes().replace(b'"value":7', b'"value":8'))
    tail = SegmentTail(tmp_path, (0, 0))
    with pytest.raises(DamagedJournal, match="there is not record 8 as it was written"):
        tail.next_piece(10)
    assert tail.position == (0, 0)
    assert tail.next_piece(7).last[0] == 7


def test_lines_written_again_after_a_failed_sync_are_read_where_they_are_good(store, tmp_path):
    write(tmp_path, range(6))
    tail = SegmentTail(tmp_path, (0, 0))
    assert tail.next_piece(3).last[0] == 3
    first = tmp_path / "journal" / f"{1:020d}.log"
    lines = first.read_bytes().splitlines(keepends=True)
    position = recover(tmp_path)._replace(sequence=3, crc=tail.position[1])
    with Journal(tmp_path, position, sync="process"):
        pass
    second = tmp_path / "journal" / f"{4:020d}.log"
    second.write_bytes(second.read_bytes() + b"".join(lines[4:]))
    first.write_bytes(b"".join(lines[:4]) + b"lost\n")
    assert tail.next_piece(6).last[0] == 6


@pytest.mark.parametrize("failures", [["before"], ["after"], ["", "before"], ["", "after"]])
def test_a_piece_that_could_not_be_stored_or_counted_is_stored_again_as_it_was(
    store, tmp_path, failures
):
    failing = FailingStore(store)
    driver = Driver(failing, tmp_path)
    driver.append(1)
    failing.plan = list(failures)
    with pytest.raises(StorageUnreachable):
        driver.mirror.store_new()
    assert driver.mirror.mirrored_sequence == 0
    driver.append(2)
    driver.mirror.store_new()
    assert driver.mirror.mirrored_sequence == 2
    assert values_of(store) == [1, 2]
    assert len(store.list("journal/")) == 2
    driver.end()


def test_what_a_fenced_driver_stores_does_not_count(store, tmp_path):
    old = Driver(store, tmp_path / "a")
    old.append(1)
    old.mirror.store_new()
    new = Driver(store, tmp_path / "b")
    old.append(2)
    with pytest.raises(ExperimentFenced):
        old.mirror.store_new()
    assert old.mirror.mirrored_sequence == 1
    new.append(3)
    new.mirror.store_new()
    assert values_of(store) == [1, 3]
    assert set(store.list("journal/")) == {piece_key(1, 1), piece_key(1, 2), piece_key(2, 2)}
    old.end()
    new.end()


def test_a_later_epoch_may_cut_what_an_earlier_one_has_stored():
    starts = {1: (0, 0), 2: (70, 5), 3: (70, 5), 4: (30, 9), 5: (40, 8)}
    assert stretches(starts) == [
        Stretch(1, (0, 0), 30),
        Stretch(4, (30, 9), 40),
        Stretch(5, (40, 8), None),
    ]
    assert stretches({}) == []


def grown(store, tmp_path):
    """Store the values 1 to 12, two a piece, by three drivers."""
    for first in (1, 5, 9):
        driver = Driver(store, tmp_path)
        for value in range(first, first + 4, 2):
            driver.append(value)
            driver.append(value + 1)
            driver.mirror.store_new()
        driver.end()
    assert values_of(store) == list(range(1, 13))


@pytest.mark.parametrize(
    ("key", "what", "num_left"),
    [
        (piece_key(1, 1), f"{start_key(2)} was stored behind record 4", 0),
        (piece_key(1, 3), f"{start_key(2)} was stored behind record 4", 2),
        (piece_key(2, 7), f"{start_key(3)} was stored behind record 8", 6),
        (piece_key(3, 9), f"{piece_key(3, 11)} was stored behind record 10", 8),
        (start_key(2), f"{start_key(2)} is missing, and pieces of epoch 2 are there", 4),
        (start_key(3), f"{start_key(3)} is missing, and pieces of epoch 3 are there", 8),
    ],
)
def test_what_is_missing_is_named_or_salvaged(store, tmp_path, key, what, num_left):
    grown(store, tmp_path)
    store.delete([key])
    with pytest.raises(DamagedJournal, match=what.replace(".", r"\.")) as refusal:
        values_of(store)
    assert "salvage=True" in str(refusal.value)
    reader = PieceReader(store, is_salvage=True)
    left = sum(len(piece.lines.splitlines()) for piece in reader)
    assert left == reader.tail.sequence == num_left
    assert any(what in one for one in reader.missing)
    assert any(f"{key} is missing" in one for one in reader.missing)


@pytest.mark.parametrize("cut", ["byte", "line", "end", "other"])
def test_a_piece_that_is_not_as_it_was_stored_is_refused(store, tmp_path, cut):
    grown(store, tmp_path)
    key = piece_key(3, 11)
    content = store.get(key)
    changed = {
        "byte": content.replace(b'"value":11', b'"value":13'),
        "line": content[: content.rindex(b"\n", 0, -1) + 1],
        "end": content[:-5],
        "other": store.get(piece_key(3, 9)),
    }[cut]
    store.put(key, changed)
    with pytest.raises(DamagedJournal, match=rf"piece memory://.*{key} of the journal is damaged"):
        values_of(store)
    assert values_of(store, is_salvage=True) == list(range(1, 11))


def test_a_listing_that_is_behind_hides_nothing(store, tmp_path, monkeypatch):
    grown(store, tmp_path)
    monkeypatch.setattr(ObjectStore, "list", lambda self, prefix="": {})
    assert values_of(store) == list(range(1, 13))
    assert read_starts(store).keys() == {1, 2, 3}


@pytest.mark.process
def test_the_thread_stores_what_is_written_and_push_waits_for_it(store, tmp_path):
    mirror = JournalMirror(tmp_path, store, StoreLock(store, (0, 0)), (0, 0), period_s=60.0)
    with Journal(tmp_path, sync="process") as journal:
        mirror.follow(lambda: journal.written_sequence)
        journal.append({"t": 0.0, "k": "result", "value": 1})
        journal.flush()
        mirror.push(1, timeout_s=60.0)
        assert values_of(store) == [1]
        journal.append({"t": 0.0, "k": "result", "value": 2})
        journal.flush()
    mirror.close(60.0)
    assert values_of(store) == [1, 2]


@pytest.mark.process
def test_push_raises_what_keeps_the_thread_from_storing(store, tmp_path):
    failing = FailingStore(store)
    mirror = JournalMirror(tmp_path, failing, StoreLock(store, (0, 0)), (0, 0), period_s=60.0)
    with Journal(tmp_path, sync="process") as journal:
        mirror.follow(lambda: journal.written_sequence)
        journal.append({"t": 0.0, "k": "result", "value": 1})
        journal.flush()
        failing.plan = ["before"]
        with pytest.raises(StorageUnreachable, match="planned"):
            mirror.push(1, timeout_s=60.0)
        mirror.push(1, timeout_s=60.0)
        StoreLock(store)
        journal.append({"t": 0.0, "k": "result", "value": 2})
        journal.flush()
        with pytest.raises(ExperimentFenced):
            mirror.push(2, timeout_s=60.0)
        with pytest.raises(ExperimentFenced):
            mirror.check()
    mirror.stop()


@pytest.mark.process
def test_push_gives_up_on_a_store_that_does_not_answer(store, tmp_path):
    answer = threading.Event()

    class Silent(FailingStore):
        def create(self, key, content):
            answer.wait()
            return self.store.create(key, content)

    mirror = JournalMirror(tmp_path, Silent(store), StoreLock(store, (0, 0)), (0, 0))
    with Journal(tmp_path, sync="process") as journal:
        mirror.follow(lambda: journal.written_sequence)
        journal.append({"t": 0.0, "k": "result", "value": 1})
        journal.flush()
        with pytest.raises(StorageUnreachable, match="could not be stored"):
            mirror.push(1, timeout_s=0.05)
        answer.set()
        mirror.push(1, timeout_s=60.0)
    mirror.close(60.0)


def test_a_copy_that_is_far_behind_is_told_once(store, tmp_path, caplog):
    now = [0.0]
    failing = FailingStore(store)
    lock = StoreLock(store, (0, 0))
    mirror = JournalMirror(tmp_path, failing, lock, (0, 0), clock=lambda: now[0])
    write(tmp_path, [1])
    mirror.follow(lambda: 1, has_thread=False)
    mirror.wrote(10)
    now[0] = 11.0
    mirror.check()
    assert not caplog.records
    now[0] = 13.0
    mirror.check()
    mirror.check()
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith(
        f"the copy of the journal in {store.url} is more than 13 s"
    )
    mirror.store_new()
    mirror.check()
    assert not mirror._is_lag_told


@pytest.mark.process
def test_under_storage_a_record_is_flushed_when_it_is_in_the_store(store, tmp_path):
    failing = FailingStore(store)
    lock = StoreLock(store, (0, 0))
    mirror = JournalMirror(tmp_path, failing, lock, (0, 0), period_s=60.0)
    with Journal(tmp_path, sync="storage", mirror=mirror, look_period_s=0.0) as journal:
        mirror.follow(lambda: journal.mirrorable_sequence)
        journal.append({"t": 0.0, "k": "result", "value": 1})
        journal.flush()
        assert values_of(store) == [1]
        journal.append({"t": 0.0, "k": "result", "value": 2})
        failing.plan = ["before"]
        with pytest.raises(StorageUnreachable, match="planned"):
            journal.flush()
        journal.append({"t": 0.0, "k": "result", "value": 3})
        journal.flush()
        assert values_of(store) == [1, 2, 3]
    mirror.stop()


@pytest.mark.process
def test_a_journal_whose_copy_another_driver_has_taken_over_takes_nothing_more(store, tmp_path):
    lock, woken = StoreLock(store, (0, 0)), threading.Event()
    mirror = JournalMirror(tmp_path, store, lock, (0, 0), period_s=60.0)
    with Journal(tmp_path, sync="group", mirror=mirror, look_period_s=0.0) as journal:
        mirror.follow(lambda: journal.mirrorable_sequence, woken.set)
        journal.append({"t": 0.0, "k": "result", "value": 1})
        journal.flush()
        journal.sync()
        journal.push()
        StoreLock(store)
        journal.append({"t": 0.0, "k": "result", "value": 2})
        journal.flush()
        journal.sync()
        with pytest.raises(ExperimentFenced):
            journal.push()
        assert woken.wait(60.0)
        journal.append({"t": 0.0, "k": "result", "value": 3})
        with pytest.raises(ExperimentFenced):
            journal.flush()
    mirror.stop()
    assert [body["value"] for body in read(tmp_path)] == [1, 2]
    assert mirror.mirrored_sequence == 1


@pytest.mark.process
def test_the_driver_hears_of_another_one_even_where_nothing_is_written(store, tmp_path):
    lock, woken = StoreLock(store, (0, 0)), threading.Event()
    StoreLock(store)
    lock.beat = lock.check
    mirror = JournalMirror(tmp_path, store, lock, (0, 0), period_s=60.0)
    mirror.follow(lambda: 0, woken.set)
    assert woken.wait(60.0)
    with pytest.raises(ExperimentFenced):
        mirror.check()
    mirror.stop()


@pytest.mark.process
def test_a_journal_that_cannot_be_read_does_not_end_the_copy_without_a_word(store, tmp_path):
    write(tmp_path, [1])
    segment = tmp_path / "journal" / f"{1:020d}.log"
    segment.rename(tmp_path / "away")
    mirror = JournalMirror(tmp_path, store, StoreLock(store, (0, 0)), (0, 0), period_s=60.0)
    mirror.follow(lambda: 1)
    with pytest.raises(DamagedJournal, match="has no record 1"):
        mirror.push(1)
    (tmp_path / "away").rename(segment)
    mirror.push(1)
    assert values_of(store) == [1]
    mirror.stop()


def packed(store, directory, monkeypatch):
    """Store the values 0 to 13, one a piece and four a pack, and return the packs."""
    monkeypatch.setattr(mirror_module, "_NUM_PACKED", 4)
    write(directory, range(14))
    stored_once(store, directory, 14, piece_bytes=1)
    keys = [piece_key(1, first, first + 3) for first in (1, 5, 9)]
    assert set(store.list("journal/")) == {*keys, *(piece_key(1, n) for n in range(1, 15))}
    return keys


def test_small_pieces_are_read_from_packs(store, tmp_path, monkeypatch):
    packed(store, tmp_path, monkeypatch)
    read_keys = []
    get = ObjectStore.get
    monkeypatch.setattr(
        ObjectStore,
        "get",
        lambda self, key, *limit: read_keys.append(key) or get(self, key, *limit),
    )
    assert values_of(store) == list(range(14))
    # The last one is asked for and not there.
    assert sum(key.startswith("journal/") for key in read_keys) == 3 + 2 + 1


@pytest.mark.parametrize("change", ["delete", "cut", "hide"])
def test_pieces_are_read_where_a_pack_is_not_good(store, tmp_path, monkeypatch, change):
    keys = packed(store, tmp_path, monkeypatch)
    if change == "delete":
        store.delete(keys[1:2])
    elif change == "cut":
        store.put(keys[1], store.get(keys[1])[:-5])
    else:
        shown = ObjectStore.list
        monkeypatch.setattr(
            ObjectStore,
            "list",
            lambda self, prefix="": {
                key: size for key, size in shown(self, prefix).items() if key != keys[1]
            },
        )
    assert values_of(store) == list(range(14))


def test_a_pack_counts_up_to_where_a_later_epoch_continues(store, tmp_path, monkeypatch):
    packed(store, tmp_path, monkeypatch)
    (piece,) = (piece for piece in PieceReader(store) if piece.first == 5)
    crc = zlib.crc32(piece.lines.splitlines()[1][9:])
    StoreLock(store, (6, crc))
    assert values_of(store) == list(range(6))
