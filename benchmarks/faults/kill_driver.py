"""Kills the driver at random instants, restores, and checks the results.

Run ``python -m benchmarks.faults.kill_driver``. Each experiment is killed several times at instants
drawn from a seed, also during its start and its restores, and is restored each time in a fresh
process, until it ends. The results are compared with the ledger and with an uninterrupted run.
``--victim`` selects the processes that are killed: ``driver``, ``driver+zygote``, ``group`` (the
driver's process group) or ``container`` (every process). With all but the first, each trial starts
loader processes, which have to end as well.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import final

from .bystanders import KILLS
from .conditions import Condition, Verdict, arguments, at_most, conclude, none_of
from .ledger import Entry
from .lives import DEADLINE_S, Kill, Lives
from .load import CHECKPOINT_EVERY, NUM_REPORTS, NUM_TRIALS
from .readers import LOGS, doubles_and_holes

QUICKLY_S = 0.25
FIRST_REPORT_S = 2.0
RESTORE_S = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Story:
    """An experiment that was killed and restored until it ended.

    Attributes:
        lives: The experiment; only its directory and the times of its starts are used.
        kills: The state after each kill.
        entries: The ledger.
        num_leavers: Processes in separate sessions that no later driver has ended.
        status: Exit status of the last driver.
    """

    lives: Lives
    kills: Sequence[Kill]
    entries: Sequence[Entry]
    num_leavers: int
    status: int


def live_through(lives: Lives, delays_s: Iterator[float], max_kills: int, victim: str) -> Story:
    """Run an experiment to its end, with at most `max_kills` kills on the way."""
    kills: list[Kill] = []
    while len(kills) < max_kills:
        seen = lives.live(next(delays_s), victim)
        if isinstance(seen, int):
            return Story(lives, kills, lives.entries(), lives.leavers(), seen)
        kills.append(seen)
    status = lives.live(None)
    assert isinstance(status, int)  # noqa: S101  (it was not killed)
    return Story(lives, kills, lives.entries(), lives.leavers(), status)


def first_reports_s(story: Story) -> Iterator[float]:
    """Yield the seconds from the start of each restored driver to its first acknowledged report."""
    for life, start_s in enumerate(story.lives.starts_s[1:], 1):
        first = next(
            (entry for entry in story.entries if entry.kind == "report" and entry.life == life),
            None,
        )
        if first is not None:
            yield first.at_s - start_s


def opening_s(story: Story, lives: Iterable[int]) -> Iterator[float]:
    """Yield the seconds from the user's script to the first training function, for each driver."""
    for life in lives:
        marks = {entry.kind: entry.at_s for entry in reversed(story.entries) if entry.life == life}
        if "start" in marks:
            yield marks["start"] - marks["imported"]


def again(story: Story) -> Iterator[tuple[int, int]]:
    """Yield the number of iterations trained again, for each kill and trial.

    Each is paired with the number of acknowledged iterations since the latest checkpoint, which
    cannot be avoided.
    """
    for kill in story.kills:
        for trial in {entry.trial for entry in story.entries if entry.trial}:
            reports = [
                entry for entry in story.entries if entry.kind == "report" and entry.trial == trial
            ]
            reached = next(
                (entry.iteration for entry in reversed(reports) if entry.life <= kill.life), 0
            )
            resumed = next(
                (entry.iteration for entry in reports if entry.life > kill.life), NUM_REPORTS + 1
            )
            yield max(0, reached - resumed + 1), reached % CHECKPOINT_EVERY


def stories(
    num_kills: int, seed: int, victim: str, span_s: float, pace_s: float
) -> Iterator[Story]:
    """Yield experiments until `num_kills` kills have been made."""
    chance = random.Random(seed)  # noqa: S311  (not for cryptography)
    delays_s = (chance.uniform(0.0, span_s) for _ in itertools.count())
    while num_kills > 0:
        with tempfile.TemporaryDirectory(prefix="faults-") as root:
            lives = Lives(Path(root), uuid.uuid4().hex, pace_s, has_loaders=victim != "driver")
            try:
                story = live_through(lives, delays_s, num_kills, victim)
                yield story
            finally:
                lives.close()
        num_kills -= len(story.kills)


def uninterrupted(pace_s: float) -> Tally:
    """Run the experiment without a kill, and return a tally that compares others with it."""
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        lives = Lives(Path(root), uuid.uuid4().hex, pace_s)
        status = lives.live(None)
        if status != 0:
            sys.exit(lives.output.read_text(encoding="utf-8"))
        story = Story(lives, [], lives.entries(), 0, 0)
        return Tally(lives.tables(), opening_s(story, [0]))


@final
class Tally:
    """Collects the measurements of all experiments.

    Args:
        expected: The final tables that each experiment has to write.
        new_s: Seconds from the user's script to the training function, for new experiments.
    """

    def __init__(self, expected: tuple[bytes, bytes], new_s: Iterable[float]) -> None:
        self._expected = expected
        self.kills: list[Kill] = []
        self.first_reports_s: list[float] = []
        self.new_s = list(new_s)
        self.restored_s: list[float] = []
        self.again: list[tuple[int, int]] = []
        self.num_restores = self.num_failed = self.num_different = self.num_leavers = 0
        self.doubles = dict.fromkeys(LOGS, 0)
        self.holes = dict.fromkeys(LOGS, 0)

    def add(self, story: Story) -> None:
        """Add an experiment, whose directory must still exist."""
        self.kills += story.kills
        self.first_reports_s += first_reports_s(story)
        self.new_s += opening_s(story, [0])
        self.restored_s += opening_s(story, range(1, len(story.lives.starts_s)))
        self.again += again(story)
        self.num_restores += len(story.lives.starts_s) - 1
        self.num_failed += story.status != 0
        self.num_different += story.lives.tables() != self._expected
        self.num_leavers += story.num_leavers
        for trial in sorted(story.lives.experiment.glob("t[0-9]*")):
            self._look_into(trial)
        for kill in story.kills:
            for process in kill.left:
                print(f"left after kill {kill.life}: {process}", file=sys.stderr)
        if story.status != 0:
            print(story.lives.output.read_text(encoding="utf-8"), file=sys.stderr)

    def _look_into(self, trial: Path) -> None:
        for name, read in LOGS.items():
            doubles, holes = doubles_and_holes(read(trial), NUM_REPORTS)
            self.doubles[name] += doubles
            self.holes[name] += holes

    def _restoring_s(self) -> list[float]:
        new_s = statistics.median(self.new_s)
        return [max(0.0, restored_s - new_s) for restored_s in self.restored_s]

    def verdict(self) -> Verdict:
        """Return the verdict on all experiments."""
        kills = self.kills
        gone_s = [kill.gone_s for kill in kills if kill.gone_s is not None]
        num_quick = sum(after_s <= QUICKLY_S for after_s in gone_s)
        excess = [count - unavoidable for count, unavoidable in self.again]
        return Verdict(
            len(kills),
            [
                none_of(
                    "acknowledged results lost, read right after the kill",
                    sum(len(kill.lost) for kill in kills),
                    sum(kill.num_acknowledged for kill in kills),
                ),
                none_of("experiments that did not end", self.num_failed, self.num_restores),
                none_of("final tables unlike that of the uninterrupted run", self.num_different),
                *(
                    none_of(f"doubled rows, {name}", number)
                    for name, number in self.doubles.items()
                ),
                *(none_of(f"missing rows, {name}", number) for name, number in self.holes.items()),
                none_of(
                    f"kills with processes left after {DEADLINE_S:g} s", len(kills) - len(gone_s)
                ),
                Condition(
                    f"kills with everything gone within {1000 * QUICKLY_S:g} ms",
                    f"{num_quick} of {len(kills)}",
                    "95 of 100",
                    100 * num_quick >= 95 * len(kills),
                ),
                Condition(
                    "the last process was gone after",
                    f"{1000 * max(gone_s, default=0):.0f} ms at worst",
                ),
                none_of(
                    "processes in separate sessions that no later driver ended",
                    self.num_leavers,
                ),
                Condition(
                    "acknowledged iterations trained again, per kill",
                    f"{sum(count for count, _ in self.again) / len(kills):.1f}",
                ),
                Condition(
                    "beyond those without a checkpoint, per trial and kill",
                    f"{max(excess, default=0)} at most",
                    "<= 1",
                    max(excess) <= 1,
                ),
                at_most(
                    "start of the process to the first new report",
                    self.first_reports_s,
                    FIRST_REPORT_S,
                ),
                at_most(
                    "of that the restore, beyond what a new experiment takes",
                    self._restoring_s(),
                    RESTORE_S,
                    is_middle=True,
                ),
            ],
        )


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, kills=100, seed=0, victim="driver", span_s=1.6, pace_s=0.005)
    if given.victim not in KILLS:
        sys.exit(f"--victim must be one of {', '.join(KILLS)}, got {given.victim!r}")
    tally = uninterrupted(given.pace_s)
    for story in stories(given.kills, given.seed, given.victim, given.span_s, given.pace_s):
        tally.add(story)
        lost = sum(len(kill.lost) for kill in tally.kills)
        print(
            f"{len(tally.kills)} of {given.kills} kills, {NUM_TRIALS} trials each, {lost} lost",
            file=sys.stderr,
        )
    return conclude(tally.verdict(), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
