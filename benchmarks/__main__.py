"""Run the benchmarks, each in a separate process, and print one table."""

from __future__ import annotations

import argparse
import subprocess
import sys

from .figure import Figure

BENCHMARKS = (
    "import_time",
    "first_result",
    "trial_rate",
    "report_rate",
    "driver_scale",
    "pause_resume",
    "checkpoint_files",
    "restore_time",
    "training",
    "cluster",
)


def run(benchmark: str) -> bool:
    """Run a benchmark, print its rows as they arrive, and return whether it succeeded."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  (our own modules)
        assert process.stdout is not None  # noqa: S101  (a pipe was asked for)
        for line in process.stdout:
            print(Figure.parse(line).row(), flush=True)
    return process.returncode == 0


def main() -> int:
    """Run the benchmarks given by name, or all of them, and return how many failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which to run: {', '.join(BENCHMARKS)} (default: all), ray_tune, ray_train",
    )
    names = parser.parse_args().names or BENCHMARKS
    print(f"{'what':<58} {'measured':>12} {'':<9} goal")
    return sum(not run(name) for name in names)


if __name__ == "__main__":
    sys.exit(main())
