"""Several drivers take one experiment in an object store over from each other, at the same time.

Run ``python -m benchmarks.faults.racing_drivers``. In each round, processes steal the lock of a new
experiment, read its journal, and add pieces to it until another has stolen it. Each notes what it
was told is stored; the journal must hold all of that in the end, in one line. ``--server ceph``
uses Ceph's gateway, and the URL of a bucket any other store.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Final

from tuner.errors import DamagedJournal, ExperimentFenced
from tuner.journal.segments import body_of, line_of
from tuner.stores.object_store import ObjectStore
from tuner.stores.pieces import Piece, PieceReader, piece_key
from tuner.stores.remote_lock import RemoteLock

from .conditions import Condition, Verdict, arguments, conclude, none_of
from .s3_servers import ceph_gateway, moto_server

NUM_DRIVERS: Final = 4
_NUM_PIECES: Final = 4
_TAKEOVERS: Final = range(3)
MAX_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Round:
    """What has come of an experiment that several drivers have fought for.

    Attributes:
        num_acknowledged: Number of records that a driver was told are stored.
        num_lost: Number of those that the journal does not hold.
        num_doubles: Number of records that it holds twice.
        num_epochs: How often the experiment was taken over.
        damage: Why the journal cannot be read; empty if it can.
    """

    num_acknowledged: int
    num_lost: int
    num_doubles: int
    num_epochs: int
    damage: str = ""


def race(
    bucket: str, num_rounds: int, *, max_pause_s: float = MAX_PAUSE_S, seed: int = 0
) -> Iterator[Round]:
    """Let processes race for one experiment after the other.

    Args:
        bucket: URL of the bucket, which the library finds the server and its credentials for.
        num_rounds: Number of experiments.
        max_pause_s: The longest pause before a takeover, in seconds.
        seed: Of these pauses.
    """
    chance = random.Random(seed)  # noqa: S311  (not for cryptography)
    spawning = multiprocessing.get_context("spawn")
    barrier = spawning.Barrier(NUM_DRIVERS)
    root = ObjectStore(bucket)
    with spawning.Pool(NUM_DRIVERS, _open, (bucket, barrier)) as pool:
        for number in range(num_rounds):
            tasks = [
                (f"round-{number}", index, [chance.uniform(0, max_pause_s) for _ in _TAKEOVERS])
                for index in range(NUM_DRIVERS)
            ]
            told = pool.starmap(_drive_again, tasks, chunksize=1)
            yield _judge(root.child(f"round-{number}"), [name for each in told for name in each])


_given: tuple[ObjectStore, Barrier]


def _open(bucket: str, barrier: Barrier) -> None:
    global _given  # noqa: PLW0603  (how a pool's processes are given what they share)
    _given = ObjectStore(bucket), barrier


def _drive_again(name: str, index: int, pauses_s: Sequence[float]) -> list[str]:
    """Drive an experiment until this driver has ended it or was fenced several times."""
    store, barrier = _given
    barrier.wait()
    acknowledged: list[str] = []
    for attempt, pause_s in enumerate(pauses_s):
        # Without a pause all fence each other before any has stored something.
        time.sleep(pause_s)
        try:
            _drive(store.child(name), f"{index}.{attempt}", acknowledged)
        except ExperimentFenced:
            continue
        break
    return acknowledged


def _drive(store: ObjectStore, name: str, acknowledged: list[str]) -> None:
    lock = RemoteLock(store, steal=True)
    lock.acquire()
    reader = PieceReader(store)
    try:
        for _ in reader:
            pass
    except DamagedJournal:
        lock.check()  # another driver goes on meanwhile from what this one has begun to read
        raise
    last = reader.tail.sequence, reader.tail.crc
    lock.start_after(*last)
    for number in range(_NUM_PIECES):
        record = f"{name}.{number}"
        first = last[0] + 1
        fields = {"q": first, "e": lock.epoch, "record": record}
        body = json.dumps(fields, separators=(",", ":")).encode()
        piece = Piece(first, last, (first, zlib.crc32(body)), lock.epoch, line_of(body))
        if not store.create(piece_key(lock.epoch, first), piece.content):
            raise RuntimeError(f"{piece_key(lock.epoch, first)} exists already")
        lock.check()
        acknowledged.append(record)
        last = piece.last
    lock.release()


def _judge(store: ObjectStore, acknowledged: Sequence[str]) -> Round:
    reader = PieceReader(store)
    held: list[str] = []
    damage = ""
    try:
        for piece in reader:
            lines = piece.lines.splitlines()
            held += [json.loads(body_of(line) or b"")["record"] for line in lines]
    except DamagedJournal as error:
        damage = str(error)
    lost = set(acknowledged) - set(held)
    return Round(
        len(acknowledged), len(lost), len(held) - len(set(held)), len(reader.starts), damage
    )


def verdict(rounds: Sequence[Round]) -> Verdict:
    """Return the verdict on all rounds."""
    num_acknowledged = sum(each.num_acknowledged for each in rounds)
    return Verdict(
        len(rounds),
        [
            none_of(
                "acknowledged records lost", sum(each.num_lost for each in rounds), num_acknowledged
            ),
            none_of("records stored twice", sum(each.num_doubles for each in rounds)),
            none_of("journals that cannot be read", sum(bool(each.damage) for each in rounds)),
            Condition("epochs that have begun", f"{sum(each.num_epochs for each in rounds):,}"),
        ],
    )


@contextmanager
def _bucket(server: str) -> Iterator[str]:
    if "://" in server:
        yield server
        return
    with {"moto": moto_server, "ceph": ceph_gateway}[server]() as started:
        os.environ.update(started.environment)
        yield started.make_bucket()


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, rounds=100, server="moto", seed=0)
    with _bucket(given.server) as bucket:
        rounds = []
        for each in race(bucket, given.rounds, seed=given.seed):
            rounds.append(each)
            print(f"{len(rounds)} of {given.rounds}: {each}", file=sys.stderr)
    return conclude(verdict(rounds), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
