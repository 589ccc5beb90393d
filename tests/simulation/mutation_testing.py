"""Mutation test of the simulation: plants defects in copies of the packages.

Run ``python -m tests.simulation.mutation_testing``. How long the search for a defect goes on is
counted in experiments, so that a busy machine finds what an idle one does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tuner", "schedulers", "searchers", "tests/simulation")
MAX_EXPERIMENTS = 6_000
HANG_S = 1_800.0
"""After how long a search is given up; only one that hangs takes so long."""


class Catch(NamedTuple):
    """The result of the hunt for one mutant.

    Attributes:
        seconds: How long the search took, imports included.
        cpu_s: How much processor time it took, without the imports.
        num_experiments: How many experiments.
        invariant: Which invariant found it, empty if none did.
        what: What it said.
    """

    seconds: float
    cpu_s: float
    num_experiments: int
    invariant: str
    what: str


def copy_packages(target: Path) -> Path:
    """Copy the packages, without their byte code, and return where they are."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return target


def is_plantable(mutant: Mutant) -> bool:
    """Return whether the line that is to be changed is there, once."""
    return len(mutant.places((ROOT / mutant.file).read_text(encoding="utf-8"))) == 1


def hunt(
    mutant: Mutant, where: Path, max_experiments: int = MAX_EXPERIMENTS, first_seed: int = 0
) -> Catch:
    """Plant a mutant in a copy of the packages, run the simulation, and restore the file."""
    original = (ROOT / mutant.file).read_text(encoding="utf-8")
    (where / mutant.file).write_text(mutant.planted_in(original), encoding="utf-8")
    try:
        return _search(where, max_experiments, first_seed)
    finally:
        (where / mutant.file).write_text(original, encoding="utf-8")


def _search(where: Path, max_experiments: int, first_seed: int) -> Catch:
    environment = os.environ | {"PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.simulation", "--json", "--no-shrink"]
    command += ["--first-seed", str(first_seed), "--experiments", str(max_experiments)]
    began = time.monotonic()
    try:
        done = subprocess.run(  # noqa: S603  (our own interpreter and files)
            command,
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
    except subprocess.TimeoutExpired:
        return Catch(time.monotonic() - began, 0.0, 0, "", "it hangs")
    seconds = time.monotonic() - began
    if not done.stdout:
        # A defect that is no Python tests nothing.
        return Catch(seconds, 0.0, 0, "", done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout)
    return Catch(
        seconds, found["cpu_s"], found["num_experiments"], found["invariant"] or "", found["what"]
    )


def main() -> int:
    """Hunt all mutants, or those whose file contains a word, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument(
        "--experiments", type=int, default=MAX_EXPERIMENTS, help="how many for each at most"
    )
    parser.add_argument(
        "--first-seed", type=int, default=0, help="where the search for each begins"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.word in mutant.file]
    if not chosen:
        parser.error(f"no mutant is in a file whose name contains {options.word!r}")
    catches = hunt_all(
        chosen,
        options.jobs,
        lambda mutant, where: hunt(mutant, where, options.experiments, options.first_seed),
    )
    num_found = sum(bool(catch.invariant) for catch in catches)
    sum_s, worst_s = sum(catch.cpu_s for catch in catches), max(catch.cpu_s for catch in catches)
    print(
        f"{num_found} of {len(chosen)} found in {sum_s:.1f} CPU seconds, the last of them "
        f"after {worst_s:.1f}"
    )
    return 0 if num_found == len(chosen) else 1


def hunt_all(
    mutants: list[Mutant], num_jobs: int, hunt_one: Callable[[Mutant, Path], Catch]
) -> list[Catch]:
    """Hunt mutants, some at a time, each of these in a copy of its own, and print each catch."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(num_jobs) as pool:
        own = threading.local()

        def hunted(mutant: Mutant) -> Catch:
            if not hasattr(own, "copy"):
                own.copy = copy_packages(Path(tempfile.mkdtemp(dir=scratch)))
            missing = Catch(0.0, 0.0, 0, "", "its line is not there any more")
            return hunt_one(mutant, own.copy) if is_plantable(mutant) else missing

        catches = []
        for mutant, catch in zip(mutants, pool.map(hunted, mutants), strict=True):
            print(_row(mutant, catch), flush=True)
            catches.append(catch)
    return catches


def _row(mutant: Mutant, catch: Catch) -> str:
    old = " ".join(mutant.old.split())[:70]
    verdict = catch.invariant or "ESCAPED"
    cost = f"{catch.cpu_s:6.2f} s {catch.num_experiments:6}"
    return f"{verdict:8} {cost}  {mutant.file}: {old} | {catch.what[:90]}"


if __name__ == "__main__":
    sys.exit(main())
