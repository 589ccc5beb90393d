"""Why a program has failed, by the last lines of its standard error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_HEAD: Final = "Traceback (most recent call last):"
_RANK: Final = re.compile(r"^\[rank\d+\]: ?")
"""With which PyTorch begins the lines of processes that train together."""
_EXCEPTION: Final = re.compile(r"(?P<kind>[^\W\d][\w.]*)(?::.*)?")
_LAUNCHERS: Final = frozenset({"CalledProcessError", "ChildFailedError"})
"""What Accelerate and torchrun raise when a process of theirs has failed."""
_NUM_SHOWN: Final = 40


def cause_of_failure(lines: Sequence[str]) -> str:
    """Return the line that names the cause: the last exception, or else the last line with a word.

    Launchers, and Hydra, print more behind it.

    Example:
        >>> cause_of_failure([_HEAD, "  File ...", "KeyError: 'lr'", "See the manual.", "====="])
        "KeyError: 'lr'"
        >>> cause_of_failure(["usage: train.py", "error: unknown option --lr", "====="])
        'error: unknown option --lr'
    """
    exceptions = [text for _, text in _exceptions(lines) if not _is_of_launcher(text)]
    if exceptions:
        return exceptions[-1]
    with_words = [line.strip() for line in lines if re.search(r"\w", line)]
    return with_words[-1] if with_words else ""


def end_of_output(lines: Sequence[str]) -> str:
    """Return the last lines, without those of a launcher that only tell that it has failed."""
    exceptions = _exceptions(lines)
    own = [number for number, text in exceptions if not _is_of_launcher(text)]
    ends = [number for number, text in exceptions if _is_of_launcher(text)]
    if own and ends and own[-1] < ends[-1]:
        head = max(number for number in range(ends[-1]) if _plain(lines[number]) == _HEAD)
        lines = lines[: max(head, own[-1] + 1)]
    return "\n".join(lines[-_NUM_SHOWN:])


def _exceptions(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Return the exceptions that end tracebacks, with the numbers of their lines."""
    found = []
    is_inside = False
    for number, line in enumerate(map(_plain, lines)):
        if line == _HEAD:
            is_inside = True
        elif is_inside and _EXCEPTION.fullmatch(line):
            found.append((number, line))
            is_inside = False
    return found


def _is_of_launcher(text: str) -> bool:
    return text.partition(":")[0].rpartition(".")[2] in _LAUNCHERS


def _plain(line: str) -> str:
    return _RANK.sub("", line).rstrip()
