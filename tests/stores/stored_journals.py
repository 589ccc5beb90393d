"""Journals in an object store, and drivers that write them."""

import json

from tuner.errors import ExperimentFenced, StorageUnreachable
from tuner.journal.reader import recover
from tuner.journal.writer import Journal
from tuner.storage import layout, strict_json
from tuner.storage.lock import ExperimentLock
from tuner.stores.journal_mirror import JournalMirror
from tuner.stores.pieces import PieceReader
from tuner.stores.remote_lock import RemoteLock, lock_key, start_key
from tuner.stores.working_copy import note_epoch, prepare_working_copy


class StoreLock:
    """The next epoch in a store, taken at once; see `tuner.stores.remote_lock`."""

    def __init__(self, store, after=None):
        self._store = store
        self.epoch = 1
        while not store.create(lock_key(self.epoch), b"%d" % id(self)):
            self.epoch += 1
        if after is not None:
            self.start_after(*after)

    def start_after(self, sequence, crc):
        start = json.dumps({"sequence": sequence, "crc": crc}).encode()
        self._store.create(start_key(self.epoch), start)
        self.check()

    def check(self):
        if self._store.get_if_exists(lock_key(self.epoch + 1)) is not None:
            raise ExperimentFenced(f"epoch {self.epoch + 1} has begun")

    def beat(self):
        pass


class FailingStore:
    """A store that fails as planned: before a call takes effect, or after it."""

    def __init__(self, store):
        self.store = store
        self.plan = []

    def __getattr__(self, name):
        found = getattr(self.store, name)
        return self._failing(found) if callable(found) else found

    def _failing(self, method):
        def call(*args, **options):
            failure = self.plan.pop(0) if self.plan else ""
            if failure == "before":
                raise StorageUnreachable("planned, before the call")
            result = method(*args, **options)
            if failure == "after":
                raise StorageUnreachable("planned, after the call")
            return result

        return call


class Driver:
    """Drives an experiment in a local directory: restores it, or begins it."""

    def __init__(self, store, directory, *, piece_bytes=1 << 20, is_salvage=False):
        self.store = store
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.local_lock = ExperimentLock(directory)
        self.local_lock.acquire()
        try:
            self.lock = RemoteLock(store, steal=True)
            self.lock.acquire()
            if store.get_if_exists(layout.DECLARATION) is None:
                declare(directory)
                note_epoch(directory, self.lock.epoch)
                end = (0, 0)
            else:
                end = prepare_working_copy(
                    store, self.local_lock, directory, self.lock.epoch, is_salvage=is_salvage
                )
            self.lock.start_after(*end)
            store.put(layout.DECLARATION, (directory / layout.DECLARATION).read_bytes())
            self.mirror = JournalMirror(directory, store, self.lock, end, piece_bytes=piece_bytes)
            self.journal = Journal(directory, recover(directory), sync="process")
            self.mirror.follow(lambda: self.journal.written_sequence, has_thread=False)
        except BaseException:
            self.local_lock.release()
            raise

    def append(self, value):
        self.journal.append({"t": 0.0, "k": "result", "value": value})
        self.journal.flush()

    def end(self):
        """End as a process that dies: nothing more is stored."""
        self.journal.close()
        self.local_lock.release()


def declare(directory, identity="one"):
    """Write the declaration of an experiment."""
    fields = strict_json.signed({"format_version": 1, "id": identity})
    (directory / layout.DECLARATION).write_text(strict_json.dumps(fields), encoding="utf-8")


def bodies(store, **options):
    """Yield the records that are stored."""
    for piece in PieceReader(store, **options):
        for line in piece.lines.splitlines():
            yield json.loads(line[9:])


def values_of(store, **options):
    """Return what was appended, as far as it is stored."""
    return [body["value"] for body in bodies(store, **options)]
