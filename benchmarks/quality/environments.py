"""Virtual environments of the peers, each with the versions pinned in `pins`.

``python -m benchmarks.quality.environments [NAME ...]`` creates them. Only pinned packages are
installed (``--no-deps``), since Syne Tune depends on libraries for GPUs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).parent / "pins"
NAMES = tuple(sorted(path.stem for path in PINS.glob("*.txt")))


def home() -> Path:
    """Return the folder of the environments.

    It is ``TUNER_QUALITY_ENVIRONMENTS``, or a folder in the user's cache where that is not set.
    """
    given = os.environ.get("TUNER_QUALITY_ENVIRONMENTS")
    return Path(given) if given else Path.home() / ".cache" / "tuner-hpo" / "quality"


def python_of(name: str) -> Path:
    """Return the interpreter of an environment.

    Raises:
        FileNotFoundError: If the environment has not been created.
    """
    python = home() / name / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(
            f"there is no environment {name!r} in {home()}; make it with: python -m "
            f"benchmarks.quality.environments {name}"
        )
    return python


def make_environment(name: str) -> str:
    """Create an environment anew; return the error output of pip, or ``""`` if it succeeded."""
    place = home() / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)  # noqa: S603  (our own interpreter)
    command = [
        str(place / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "-r",
        str(PINS / f"{name}.txt"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (pip of the environment)
    return done.stderr if done.returncode else ""


def main() -> int:
    """Create the given environments, or all, and return the number of failures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.environments", description=__doc__
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which to create: {', '.join(NAMES)} (default: all)",
    )
    errors = {name: make_environment(name) for name in parser.parse_args().names or NAMES}
    for name, error in errors.items():
        print(f"{name:<12} {error or home() / name}")
    return sum(map(bool, errors.values()))


if __name__ == "__main__":
    sys.exit(main())
