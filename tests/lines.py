"""The sizes of the rooms, compared with what ``tests/lines.toml`` allows.

``python -m tests.lines`` shows what differs, and ``python -m tests.lines --lower`` lowers figures
to what is there. A figure is raised by hand, with the reason beside it.
"""

import argparse
import collections
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "lines.toml"
PACKAGES = ("tuner", "schedulers", "searchers")
STEP = 50
"""What figures are multiples of, so that a repair of a few lines fits and few of them change."""
LOOSE_LINES, LOOSE_SHARE = 100, 0.02
"""How far below its figure a room may be, whichever is more."""
_FIGURE = re.compile(r'^"(?P<room>.+)" = (?P<lines>\d+).*\n\n?', re.MULTILINE)


def rooms(root=ROOT):
    """Return how many lines of Python each folder has, without the folders in it."""
    sizes = collections.Counter()
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            room = path.parent.relative_to(root).as_posix()
            sizes[room] += path.read_bytes().count(b"\n")
    return dict(sorted(sizes.items()))


def figure(size):
    """Return the figure of a room of that size."""
    return -(-size // STEP) * STEP


def differences(sizes, allowed):
    """Return a sentence for each room that has outgrown its figure or is far below it."""
    found = []
    for room in sorted(sizes | allowed):
        has, may = sizes.get(room), allowed.get(room)
        if has is None:
            found.append(f"{room} is gone; run python -m tests.lines --lower")
        elif may is None:
            found.append(
                f'{room} is new; add "{room}" = {figure(has)} to tests/lines.toml, with a comment '
                f"that says which user asked for it, or where its lines come from"
            )
        elif has > may:
            found.append(
                f"{room} has {has} lines, {has - may} more than tests/lines.toml allows; delete or "
                f"move as many, or raise its figure to {figure(has)} with a comment that "
                f"says which user asked for what"
            )
        elif may - has > max(LOOSE_LINES, may * LOOSE_SHARE):
            found.append(
                f"{room} has {has} lines, {may - has} fewer than tests/lines.toml allows; run "
                f"python -m tests.lines --lower"
            )
    return found


def lowered(text, sizes):
    """Return ``lines.toml`` with figures lowered towards `sizes`, without rooms that are gone.

    A room above its figure keeps it.
    """

    def lower(found):
        has, may = sizes.get(found["room"]), int(found["lines"])
        return (
            "" if has is None else found[0].replace(found["lines"], str(min(figure(has), may)), 1)
        )

    return _FIGURE.sub(lower, text)


def main():
    """Show differences, or lower the figures; return 1 if any is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="lower figures to what is there")
    text, sizes = FILE.read_text(encoding="utf-8"), rooms()
    if parser.parse_args().lower:
        text = lowered(text, sizes)
        FILE.write_text(text, encoding="utf-8")
    left = differences(sizes, tomllib.loads(text))
    print("\n".join(left) or f"{len(sizes)} rooms have {sum(sizes.values())} lines")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
