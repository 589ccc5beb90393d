"""Kills parts of a cluster, or its driver, at random instants, and checks the results.

Run ``python -m benchmarks.faults.kill_cluster``. ``--victim`` selects what is killed: ``node`` (all
its processes; another one joins soon after), ``host`` (the process that runs a node's trials),
``gateway`` (the driver's connection), or ``driver``, which is restored each time in a fresh
process. On a cluster of Dask or Ray (``--engine``), ``scheduler`` is Dask's, or Ray's head, and
``worker`` one of Dask's that its nanny starts again. ``--scheduler asha`` and ``pbt`` have trials
stopped, paused and continued from each other's checkpoints meanwhile. Without, the results are
compared with those of one machine, too.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from . import bystanders
from .clusters import KINDS, BrokenCluster
from .conditions import Condition, Verdict, arguments, conclude, none_of
from .ledger import Entry
from .lives import Kill, Lives, lost_from
from .load import NUM_REPORTS, SCHEDULER
from .readers import LOGS, doubles_and_holes, journal_bytes, reported_in

GONE_S: Final = 25.0
VICTIMS: Final = ("node", "host", "gateway", "driver", "scheduler", "worker")
_MAX_PER_EXPERIMENT: Final = 25
_SHARE_AT_ANY_TIME: Final = 0.25
_SOON_S: Final = 1.5
_LONG_S: Final = 12.0


@final
class Tally:
    """Collects the measurements of all experiments.

    Args:
        expected: The final tables that each experiment has to write; None where they differ.
        is_by_value: Whether results are found in the journal by their values alone.
    """

    def __init__(self, expected: tuple[bytes, bytes] | None, *, is_by_value: bool) -> None:
        self._expected = expected
        self._is_by_value = is_by_value
        self.num_kills = self.num_during_training = self.num_experiments = 0
        self.num_acknowledged = self.num_lost = 0
        self.num_failed = self.num_different = self.num_left = 0
        self.doubles = dict.fromkeys(LOGS, 0)
        self.holes = dict.fromkeys(LOGS, 0)
        self.gone_s = [0.0]

    def add(self, lives: Lives, status: int, mark: str) -> None:
        """Add an experiment that has ended, whose directory must still exist."""
        self.num_experiments += 1
        self.note_processes(bystanders.gone_after_s(mark, GONE_S), bystanders.described(mark))
        acknowledged = [entry for entry in lives.entries() if entry.kind == "report"]
        self.num_acknowledged += len(acknowledged)
        self.num_lost += len(self._lost(journal_bytes(lives.experiment), acknowledged))
        self.num_failed += status != 0
        if status != 0:
            print(lives.output.read_text(encoding="utf-8"), file=sys.stderr)
        elif self._expected:
            self.num_different += lives.tables() != self._expected
        for trial in sorted(lives.experiment.glob("t[0-9]*")):
            for name, read in LOGS.items():
                rows = read(trial)
                num_rows = NUM_REPORTS if self._expected else max(rows, default=0)
                doubles, holes = doubles_and_holes(rows, num_rows)
                self.doubles[name] += doubles
                self.holes[name] += holes

    def add_kill(self, kill: Kill) -> None:
        """Add a kill of a driver."""
        self.num_lost += len(kill.lost)
        self.note_processes(kill.gone_s, kill.left)

    def note_processes(self, gone_s: float | None, left: object) -> None:
        """Note after how many seconds no process was left, or which ones were."""
        if gone_s is None:
            self.num_left += 1
            print(f"left: {left}", file=sys.stderr)
        else:
            self.gone_s.append(gone_s)

    def _lost(self, segments: list[bytes], acknowledged: list[Entry]) -> Sequence[Entry]:
        if not self._is_by_value:
            return lost_from(segments, acknowledged)
        # What a trial has taken over from another one counts its own iterations.
        recorded = {(trial, value) for trial, _, value in reported_in(segments)}
        return [each for each in acknowledged if (each.trial, each.value) not in recorded]

    def verdict(self) -> Verdict:
        """Return the verdict on all experiments."""
        compared = (
            none_of("final tables unlike that of one machine", self.num_different)
            if self._expected
            else Condition("final tables", "not compared")
        )
        return Verdict(
            self.num_kills,
            [
                Condition("kills while trials trained", f"{self.num_during_training}"),
                none_of("acknowledged results lost", self.num_lost, self.num_acknowledged),
                none_of("experiments that failed", self.num_failed, self.num_experiments),
                compared,
                *(
                    none_of(f"doubled rows, {name}", number)
                    for name, number in self.doubles.items()
                ),
                *(none_of(f"missing rows, {name}", number) for name, number in self.holes.items()),
                none_of(f"times that processes were left after {GONE_S:g} s", self.num_left),
                Condition("the last process was gone after", f"{max(self.gone_s):.2f} s at worst"),
            ],
        )


def on_one_machine(pace_s: float) -> tuple[bytes, bytes]:
    """Return the tables of the experiment without a cluster."""
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        lives = Lives(Path(root), uuid.uuid4().hex, pace_s)
        if lives.live(None) != 0:
            sys.exit(lives.output.read_text(encoding="utf-8"))
        return lives.tables()


@final
class Siege:
    """Kills beside an experiment.

    Three of four happen soon after a report that is newer than the last kill, so that trials train,
    and the others at any time.

    Args:
        lives: The experiment.
        tally: Takes what has happened.
        chance: Chooses the instants.
        num_kills: How many there are at most.
    """

    def __init__(self, lives: Lives, tally: Tally, chance: random.Random, num_kills: int) -> None:
        self._lives = lives
        self._tally = tally
        self._chance = chance
        self._num_left = num_kills
        self._num_reports = 0
        self._is_any_time = False

    def kill_drivers(self) -> int:
        """Run the experiment to its end, with kills of its driver on the way; return its status."""
        while self._num_left:
            self._choose()
            after_s = self._chance.uniform(0.0, _LONG_S if self._is_any_time else _SOON_S)
            seen = self._lives.live(after_s, has_begun=self._is_due)
            if isinstance(seen, int):
                return seen
            self._note()
            self._tally.add_kill(seen)
        status = self._lives.live(None)
        assert isinstance(status, int)  # noqa: S101  (it was not killed)
        return status

    def kill_parts(self, cluster: BrokenCluster, victim: str) -> int:
        """Run the experiment to its end, with kills of its cluster's parts; return its status."""
        self._choose()

        def kill() -> None:
            if self._num_left and self._is_due() and cluster.break_part(victim):
                self._note()
                self._choose()

        pauses_s = (self._chance.uniform(0.0, _SOON_S) for _ in itertools.count())
        return self._lives.live_through(pauses_s, kill)

    def _choose(self) -> None:
        self._is_any_time = self._chance.random() < _SHARE_AT_ANY_TIME
        self._num_reports = self._lives.num_reports

    def _is_due(self) -> bool:
        return self._is_any_time or self._lives.num_reports > self._num_reports

    def _note(self) -> None:
        self._num_left -= 1
        self._tally.num_kills += 1
        self._tally.num_during_training += self._lives.num_reports > self._num_reports


def main() -> int:
    """Run the bench."""
    given = arguments(
        __doc__,
        kills=100,
        seed=0,
        engine="fake",
        victim="node",
        scheduler="",
        pace_s=0.05,
    )
    if given.engine not in KINDS:
        sys.exit(f"--engine must be one of {', '.join(KINDS)}, got {given.engine!r}")
    if given.victim not in VICTIMS:
        sys.exit(f"--victim must be one of {', '.join(VICTIMS)}, got {given.victim!r}")
    chance = random.Random(given.seed)  # noqa: S311  (not for cryptography)
    tally = Tally(
        None if given.scheduler else on_one_machine(given.pace_s),
        is_by_value=given.scheduler == "pbt",
    )
    while (num_left := given.kills - tally.num_kills) > 0:
        mark = uuid.uuid4().hex
        with tempfile.TemporaryDirectory(prefix="faults-") as root:
            cluster = KINDS[given.engine](Path(root), mark, chance)
            environment = {**cluster.environment, SCHEDULER: given.scheduler}
            lives = Lives(
                Path(root), mark, given.pace_s, environment=environment, deadline_s=GONE_S
            )
            begun_s = time.monotonic()
            try:
                siege = Siege(lives, tally, chance, min(num_left, _MAX_PER_EXPERIMENT))
                status = (
                    siege.kill_drivers()
                    if given.victim == "driver"
                    else siege.kill_parts(cluster, given.victim)
                )
                tally.add(lives, status, mark)
            finally:
                lives.close()
                cluster.close()
        print(
            f"{tally.num_kills} of {given.kills} kills, {tally.num_lost} of "
            f"{tally.num_acknowledged} lost, {time.monotonic() - begun_s:.0f} s",
            file=sys.stderr,
        )
    return conclude(tally.verdict(), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
