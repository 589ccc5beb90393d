"""Time of ``import tuner`` in a fresh interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys

from .figure import Figure

PROBE = "import time; start = time.perf_counter(); import tuner; print(time.perf_counter() - start)"
NUM_RUNS = 5


def import_once_s() -> float:
    """Return the time of the import in a new process."""
    return float(
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
        ).stdout
    )


if __name__ == "__main__":
    import_once_s()  # fills the disk cache
    Figure(
        "import tuner, middle of five",
        statistics.median(import_once_s() for _ in range(NUM_RUNS)),
        "s",
        "0.15 s",
    ).print()
