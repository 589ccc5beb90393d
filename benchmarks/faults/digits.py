"""Kills and restores the digits example, and compares it with an uninterrupted run.

Run ``python -m benchmarks.faults.digits``. By default one network is trained at a time, so that the
scheduler receives the results in the same order each time, and all results have to be equal. With
``--concurrent 2`` that order is random even without kills, and so is the choice of the networks
that are stopped early; there, two curves have to be equal up to the end of the shorter one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .conditions import Condition, Verdict, arguments, conclude, none_of
from .readers import journal_bytes, reported_in

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_mlp.py"
Curves = Mapping[str, list[tuple[int, float, float]]]
"""Iteration, loss and accuracy of each result of each trial."""


def start(storage: Path, *options: object) -> subprocess.Popen[str]:
    """Start the example."""
    command = [sys.executable, str(EXAMPLE), "--storage-path", str(storage), *map(str, options)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603  (our own example)


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for the example to end, and return the line with the best configuration."""
    printed, _ = process.communicate(timeout=600)
    if process.returncode != 0:
        sys.exit(printed)
    return next(line for line in printed.splitlines() if line.startswith("Best configuration:"))


def experiment_in(storage: Path) -> Path:
    """Return the directory of the only experiment."""
    return next(iter(storage.iterdir()))


def curves_in(storage: Path) -> Curves:
    """Return the learning curves of all networks."""
    return {
        path.parent.name: _curve(path)
        for path in sorted(experiment_in(storage).glob("*/result.json"))
    }


def _curve(path: Path) -> list[tuple[int, float, float]]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row["training_iteration"], row["loss"], row["accuracy"]) for row in rows]


def num_results(storage: Path) -> int:
    """Return the number of results in the journal, of all attempts."""
    return sum(len(reported_in(journal_bytes(directory))) for directory in storage.glob("*"))


def kill_when(process: subprocess.Popen[str], storage: Path, target: int, delay_s: float) -> bool:
    """Kill the example `delay_s` after its journal has `target` results.

    Returns:
        False if it ended before.
    """
    while num_results(storage) < target:
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    time.sleep(delay_s)
    process.kill()
    process.communicate()
    return True


def interrupted(
    storage: Path, options: list[object], num_total: int, num_kills: int, chance: random.Random
) -> tuple[str, int]:
    """Kill and restore the example; return its best configuration and the number of kills."""
    killed = 0
    process = start(storage, *options)
    for target in sorted(chance.sample(range(1, num_total), num_kills)):
        if not kill_when(process, storage, target, chance.uniform(0.0, 0.05)):
            break
        killed += 1
        process = start(storage, *options, "--restore", experiment_in(storage))
    return finish(process), killed


def num_different(whole: Curves, other: Curves, *, is_exact: bool) -> int:
    """Return the number of trials whose curves differ.

    If not `is_exact`, curves are compared up to the end of the shorter one.
    """
    pairs = [(whole.get(trial, []), other.get(trial, [])) for trial in whole.keys() | other.keys()]
    return sum(
        one != two
        if is_exact
        else any(left != right for left, right in zip(one, two, strict=False))
        for one, two in pairs
    )


def compare(
    given_seed: int, repetitions: int, num_kills: int, options: list[object], *, is_exact: bool
) -> Verdict:
    """Run the example once without and several times with kills, and compare the results."""
    chance = random.Random(given_seed)  # noqa: S311  (not for cryptography)
    num_killed = other_best = other_curves = num_curves = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        best = finish(start(Path(root, "whole"), *options))
        whole = curves_in(Path(root, "whole"))
        num_total = sum(map(len, whole.values()))
        for repetition in range(repetitions):
            storage = Path(root, f"killed-{repetition}")
            storage.mkdir()
            best_of_killed, killed = interrupted(storage, options, num_total, num_kills, chance)
            curves = curves_in(storage)
            num_killed += killed
            num_curves += len(curves)
            other_best += best_of_killed != best
            other_curves += num_different(whole, curves, is_exact=is_exact)
    return Verdict(
        num_killed,
        [
            Condition("results of the uninterrupted run", f"{num_total}, of {len(whole)} trials"),
            none_of("experiments with another best configuration", other_best, repetitions),
            none_of("trials with another learning curve", other_curves, num_curves),
        ],
    )


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, repetitions=2, kills=3, trials=8, concurrent=1, seed=0)
    options = ["--trials", given.trials, "--concurrent", given.concurrent, "--seed", given.seed]
    return conclude(
        compare(
            given.seed, given.repetitions, given.kills, options, is_exact=given.concurrent == 1
        ),
        given.verdict,
    )


if __name__ == "__main__":
    sys.exit(main())
