"""Time to store a checkpoint of many small files, compared with ``cp -r`` and ``sync``.

The files are on the file system of ``TMPDIR``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from tuner.storage.checkpoint_directories import commit_from
from tuner.storage.manifest import Provenance

from .figure import Figure

NUM_FILES: Final = 20_000
FILES_PER_FOLDER: Final = 1_000
FILE_BYTES: Final = 1_000
NUM_ROUNDS: Final = 3


def write_files(root: Path) -> None:
    """Fill a directory with small files, in several folders."""
    for number in range(NUM_FILES):
        folder = root / f"{number // FILES_PER_FOLDER:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06}").write_bytes(os.urandom(FILE_BYTES))


def copy_s(source: Path, target: Path) -> float:
    """Return the seconds that ``cp -r`` and ``sync`` take."""
    start_s = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)  # noqa: S603, S607  (what the user would type)
    os.sync()
    return time.perf_counter() - start_s


def commit_s(source: Path, trial_dir: Path, *, sync: bool) -> float:
    """Return the seconds it takes to store the files as a checkpoint with its manifest."""
    trial_dir.mkdir()
    start_s = time.perf_counter()
    commit_from(source, trial_dir, Provenance("t00000", 1, 0, 1), sync=sync)
    return time.perf_counter() - start_s


def main() -> None:
    """Measure each method several times, in turn, and print the best time of each."""
    copies, commits, unsynced = [], [], []
    with tempfile.TemporaryDirectory(prefix="checkpoint-files-") as directory:
        root = Path(directory)
        write_files(root / "source")
        os.sync()
        for number in range(NUM_ROUNDS):
            copies.append(copy_s(root / "source", root / f"copy-{number}"))
            commits.append(commit_s(root / "source", root / f"trial-{number}", sync=True))
            unsynced.append(commit_s(root / "source", root / f"unsynced-{number}", sync=False))
            os.sync()
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
    Figure(f"cp -r and sync of {NUM_FILES:,} files", NUM_FILES / min(copies), "files/s").print()
    Figure(
        f"the same as a checkpoint, {min(commits) / min(copies):.1f} times as long",
        NUM_FILES / min(commits),
        "files/s",
        f"{NUM_FILES / min(copies) / 3:,.0f}: 3 times",
    ).print()
    Figure('the same with durability="process"', NUM_FILES / min(unsynced), "files/s").print()


if __name__ == "__main__":
    main()
