"""The command line of our own processes: a fresh interpreter that calls ``main`` of a module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = str(Path(__file__).resolve().parents[3])
_CODE: Final = (
    "import sys; root, module, *rest = sys.argv[1:]; sys.path.insert(0, root); "
    "__import__('importlib').import_module(module).main(*rest)"
)


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line that calls the module's ``main`` with the arguments, as strings.

    ``-P`` keeps the working directory out of the module path: its files must not shadow ours.
    """
    # multiprocessing passes the interpreter's flags on with the same private function
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    return [sys.executable, *flags, "-P", "-c", _CODE, _ROOT, module, *map(str, arguments)]
