"""Simulated power cuts under a real file system: ``python -m benchmarks.faults.power_cut``.

Runs on Linux only and as root. The experiment runs on a disk that records each write and each
flush, see `forgetful_disk`, from which the content of the disk after a power cut at any instant is
computed. For each cut the file system is mounted, the journal is read, and the experiment is
restored in a fresh process and run to its end. Half of the cuts hit an experiment with
``durability="group"``, half one with ``"strict"``.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.journal.mark import MARK
from tuner.storage import strict_json
from tuner.storage.layout import DECLARATION, LOCK
from tuner.storage.lock import boot_id

from .conditions import Condition, Verdict, arguments, conclude, none_of
from .forgetful_disk import ForgetfulDisk, mounted_image, why_not
from .ledger import Entry
from .lives import Lives, lost_from
from .load import NUM_REPORTS
from .readers import LOGS, doubles_and_holes, journal_bytes, numbers_in

WINDOW_S = 0.05
DURABILITIES = ("group", "strict")
_MEMORY = Path("/dev/shm")  # noqa: S108  (a private directory is made in it)


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """Losses and errors after a power cut.

    Attributes:
        durability: Durability of the journal.
        num_acknowledged: Number of results acknowledged before the cut.
        lost_s: For each of them that the journal lacks, the seconds from its acknowledgement to the
            cut.
        num_out_of_line: Records of the journal after a missing one.
        is_ended: Whether the restored experiment ended with status 0.
        is_same: Whether its tables equal those of the uninterrupted run.
        num_doubles: Duplicate rows in log files at the end.
        num_holes: Rows missing in log files at the end.
        num_zeros: Log files that were empty or had blocks of zeros after the cut.
    """

    durability: str
    num_acknowledged: int
    lost_s: Sequence[float]
    num_out_of_line: int
    is_ended: bool
    is_same: bool
    num_doubles: int
    num_holes: int
    num_zeros: int


def cuts(num_cuts: int, durability: str, chance: random.Random, pace_s: float) -> Iterator[Cut]:
    """Run the experiment once, and yield the outcomes of power cuts at random instants."""
    with tempfile.TemporaryDirectory(
        prefix="faults-", dir=_MEMORY if _MEMORY.is_dir() else None
    ) as directory:
        root = Path(directory)
        (root / "disk").mkdir()
        disk = ForgetfulDisk(root / "disk")
        with disk.mounted() as mounted:
            lives = Lives(
                root, uuid.uuid4().hex, pace_s, storage=mounted / "storage", durability=durability
            )
            if lives.live(None) != 0:
                sys.exit(lives.output.read_text(encoding="utf-8"))
            expected = lives.tables()
        reports = [entry for entry in lives.entries() if entry.kind == "report"]
        written = disk.platter.written
        first = next(
            number for number, write in enumerate(written) if write.at_s >= lives.starts_s[0]
        )
        for _ in range(num_cuts):
            number = chance.randrange(first, len(written))
            acknowledged = [entry for entry in reports if entry.at_s <= written[number].at_s]
            with tempfile.TemporaryDirectory(prefix="cut-", dir=root) as place:
                image = disk.platter.image_at(number, chance)
                yield _look(
                    Path(place),
                    image,
                    durability,
                    acknowledged,
                    written[number].at_s,
                    expected,
                    pace_s,
                )


def _look(  # noqa: PLR0917  (all describe one cut)
    place: Path,
    image: bytes,
    durability: str,
    acknowledged: Sequence[Entry],
    cut_s: float,
    expected: tuple[bytes, bytes],
    pace_s: float,
) -> Cut:
    with mounted_image(image, place) as mounted:
        lives = Lives(
            place, uuid.uuid4().hex, pace_s, storage=mounted / "storage", durability=durability
        )
        segments = journal_bytes(lives.experiment)
        lost_s = [cut_s - entry.at_s for entry in lost_from(segments, acknowledged)]
        num_zeros = sum(
            _is_spoilt(path)
            for name in ("result.json", "progress.csv")
            for path in lives.experiment.glob(f"*/{name}")
        )
        # The machine itself was not restarted.
        _set_earlier_boot(lives.experiment)
        status = lives.live(None)
        if status != 0:
            print(lives.output.read_text(encoding="utf-8"), file=sys.stderr)
        counts = [
            doubles_and_holes(read(trial), NUM_REPORTS)
            for trial in lives.experiment.glob("t[0-9]*")
            for read in LOGS.values()
        ]
        return Cut(
            durability,
            len(acknowledged),
            lost_s,
            sum(number != due for due, number in enumerate(numbers_in(segments), 1)),
            status == 0,
            lives.tables() == expected,
            sum(doubles for doubles, _ in counts),
            sum(holes for _, holes in counts),
            num_zeros,
        )


def _set_earlier_boot(experiment: Path) -> None:
    """Make declaration and lock look as if they were written before the machine was restarted."""
    declaration, lock = experiment / DECLARATION, experiment / LOCK
    if declaration.exists():
        fields = strict_json.checked(strict_json.loads(declaration.read_bytes()))
        if MARK in fields:
            earlier = {**fields, MARK: {**fields[MARK], "boot_id": "earlier"}}
            declaration.write_text(
                strict_json.dumps(strict_json.signed(earlier)) + "\n", encoding="utf-8"
            )
    if lock.exists():
        lock.write_bytes(lock.read_bytes().replace(boot_id().encode(), b"earlier"))


def _is_spoilt(path: Path) -> bool:
    data = path.read_bytes()
    return not data or b"\0" in data


def verdict(seen: Sequence[Cut]) -> Verdict:
    """Return the verdict on all cuts."""
    group, strict = (
        [cut for cut in seen if cut.durability == durability] for durability in DURABILITIES
    )
    worst_s = max((age_s for cut in group for age_s in cut.lost_s), default=0.0)
    return Verdict(
        len(seen),
        [
            none_of(
                "strict: acknowledged results lost",
                sum(len(cut.lost_s) for cut in strict),
                sum(cut.num_acknowledged for cut in strict),
            ),
            Condition(
                "group: acknowledged results lost",
                f"{sum(len(cut.lost_s) for cut in group):,} of "
                f"{sum(cut.num_acknowledged for cut in group):,}",
            ),
            Condition(
                "group: the oldest of them, before the cut",
                f"{1000 * worst_s:.0f} ms",
                f"<= {1000 * WINDOW_S:g} ms",
                worst_s <= WINDOW_S,
            ),
            none_of(
                "records that stand behind a missing one", sum(cut.num_out_of_line for cut in seen)
            ),
            none_of(
                "experiments that did not open without help and end",
                sum(not cut.is_ended for cut in seen),
                len(seen),
            ),
            none_of(
                "final tables unlike that of the uninterrupted run",
                sum(not cut.is_same for cut in seen),
                len(seen),
            ),
            Condition(
                "log files that were empty or had zeros in them",
                f"{sum(cut.num_zeros for cut in seen):,}",
            ),
            none_of("doubled rows in them in the end", sum(cut.num_doubles for cut in seen)),
            none_of("missing rows in them in the end", sum(cut.num_holes for cut in seen)),
        ],
    )


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, cuts=40, seed=0, pace_s=0.005)
    if reason := why_not():
        sys.exit(f"the power cannot be cut here: {reason}")
    chance = random.Random(given.seed)  # noqa: S311  (not for cryptography)
    seen: list[Cut] = []
    for durability in DURABILITIES:
        for cut in cuts(given.cuts // len(DURABILITIES), durability, chance, given.pace_s):
            seen.append(cut)
            print(f"{len(seen)} of {given.cuts} cuts: {cut}", file=sys.stderr)
    return conclude(verdict(seen), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
