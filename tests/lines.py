"""The sizes of the rooms and of the smallest fit, compared with what ``tests/lines.toml`` allows.

``python -m tests.lines`` shows what differs, and ``python -m tests.lines --lower`` lowers figures
to what is there. A figure is raised by hand, with the reason beside it.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "lines.toml"
PACKAGES = ("tuner", "schedulers", "searchers")
STEP = 50
"""What figures are multiples of, so that a repair of a few lines fits and few of them change."""
FIT_STEPS = {"smallest fit: lines": 500, "smallest fit: modules": 5}
LOOSE_STEPS, LOOSE_SHARE = 2, 0.02
"""How far below its figure a size may be, whichever is more."""
_FIGURE = re.compile(r'^"(?P<name>.+)" = (?P<size>\d+).*\n\n?', re.MULTILINE)


def rooms(root=ROOT):
    """Return how many lines of Python each folder has, without the folders in it."""
    sizes = collections.Counter()
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            room = path.parent.relative_to(root).as_posix()
            sizes[room] += path.read_bytes().count(b"\n")
    return dict(sorted(sizes.items()))


def smallest_fit():
    """Return how many modules and lines the smallest experiment loads."""
    found = json.loads(
        subprocess.check_output(  # noqa: S603  (our own interpreter and file)
            [sys.executable, ROOT / "docs" / "walks.py", "--walk", "smallest fit"]
        )
    )
    return dict(zip(FIT_STEPS, (found["lines"], len(found["files"])), strict=True))


def figure(name, size):
    """Return the figure for a size."""
    step = FIT_STEPS.get(name, STEP)
    return -(-size // step) * step


def differences(sizes, allowed):
    """Return a sentence for each size above its figure or far below it."""
    found = []
    for name in sorted(sizes | allowed):
        has, may = sizes.get(name), allowed.get(name)
        loose = LOOSE_STEPS * FIT_STEPS.get(name, STEP)
        if has is None:
            found.append(f"{name} is gone; run python -m tests.lines --lower")
        elif may is None:
            found.append(
                f'{name} is new; add "{name}" = {figure(name, has)} to tests/lines.toml, with a '
                f"comment that says which user asked for it, or where its lines come from"
            )
        elif has > may:
            found.append(
                f"{name} has {has}, {has - may} more than tests/lines.toml allows; delete or move "
                f"as many, or raise the figure to {figure(name, has)} with a comment that says "
                f"which user asked for what"
            )
        elif may - has > max(loose, may * LOOSE_SHARE):
            found.append(
                f"{name} has {has}, {may - has} fewer than tests/lines.toml allows; run "
                f"python -m tests.lines --lower"
            )
    return found


def lowered(text, sizes):
    """Return ``lines.toml`` with figures lowered towards `sizes`, without rooms that are gone.

    A room above its figure keeps it.
    """

    def lower(found):
        name, may = found["name"], found["size"]
        if name not in sizes:
            return ""
        return found[0].replace(may, str(min(figure(name, sizes[name]), int(may))), 1)

    return _FIGURE.sub(lower, text)


def main():
    """Show differences, or lower the figures; return 1 if any is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="lower figures to what is there")
    text, sizes = FILE.read_text(encoding="utf-8"), rooms() | smallest_fit()
    if parser.parse_args().lower:
        text = lowered(text, sizes)
        FILE.write_text(text, encoding="utf-8")
    left = differences(sizes, tomllib.loads(text))
    print("\n".join(left) or f"{len(rooms())} rooms have {sum(rooms().values())} lines")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
