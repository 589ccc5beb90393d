"""A driver of an experiment in an object store, as a process: it appends numbers and prints them.

Run as ``python -m tests.stores.remote_driver URL DIRECTORY``. Each number is printed when it has
been flushed under ``durability="storage"``.
"""

import itertools
import sys
from pathlib import Path

from tests.stores.stored_journals import declare
from tuner.journal.reader import read, recover
from tuner.journal.writer import Journal
from tuner.storage.lock import ExperimentLock
from tuner.stores.file_mirror import FileMirror
from tuner.stores.journal_mirror import JournalMirror
from tuner.stores.object_store import ObjectStore
from tuner.stores.remote_lock import RemoteLock
from tuner.stores.working_copy import note_epoch, prepare_working_copy


def drive(url, directory):
    store = ObjectStore(url)
    directory.mkdir(exist_ok=True)
    local, lock = ExperimentLock(directory), RemoteLock(store)
    local.acquire()
    lock.acquire()
    if store.get_if_exists("experiment.json"):
        after = prepare_working_copy(store, local, directory, lock.epoch, is_salvage=False)
    else:
        after = (0, 0)
        declare(directory)
        note_epoch(directory, lock.epoch)
    lock.start_after(*after)
    mirror = JournalMirror(directory, store, lock, after, period_s=0.02)
    FileMirror(directory, store, lock, lambda: mirror.mirrored_sequence, after[0]).start()
    first = max((body["value"] for body in read(directory)), default=0) + 1
    with Journal(directory, recover(directory), sync="storage", mirror=mirror) as journal:
        mirror.follow(lambda: journal.mirrorable_sequence)
        for number in itertools.count(first):
            journal.append({"t": 0.0, "k": "result", "value": number})
            journal.flush()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    drive(sys.argv[1], Path(sys.argv[2]))
