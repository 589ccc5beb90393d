"""Starting a Python process of ours, and what it inherits: the parcel.

The parcel is an anonymous file in memory with the pickled trainable and what it needs to be loaded as in the driver. It is inherited as
a descriptor, so that nothing of it ever lies on a disk or in a list of processes, no size blocks the driver, and many processes
share one copy.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, Self

_LENGTH: Final = struct.Struct("!Q")
_ROOT: Final = str(Path(__file__).resolve().parents[3])
_CODE: Final = (
    "import sys; root, module, *rest = sys.argv[1:]; sys.path.insert(0, root); "
    "__import__('importlib').import_module(module).main(*rest)"
)


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line that calls the module's ``main`` with the arguments, as strings, in a fresh interpreter.

    It imports nothing from the working directory, which may be anybody's.
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001  (multiprocessing uses it, too)
    return [sys.executable, *flags, "-P", "-c", _CODE, _ROOT, module, *map(str, arguments)]


class Parcel:
    """A trainable on its way."""

    def __init__(self, descriptor: int) -> None:
        """Open a parcel that was inherited; the descriptor is now the parcel's."""
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        (length,) = _LENGTH.unpack_from(self._memory)
        self._body = _LENGTH.size + length
        self._surroundings: dict[str, Any] = json.loads(self._memory[_LENGTH.size : self._body])

    @classmethod
    def pack(cls, trainable: bytes, **settings: float) -> Self:
        """Pack a pickled trainable, the driver's module path and arguments, and settings for the process that unpacks it."""
        surroundings = {
            "path": [os.fspath(entry) for entry in sys.path],
            "argv": sys.argv,
            **settings,
        }
        head = json.dumps(surroundings).encode()
        descriptor = _anonymous_file()
        with open(descriptor, "wb", closefd=False) as file:
            file.write(_LENGTH.pack(len(head)) + head)
            file.write(trainable)
        return cls(descriptor)

    def __getitem__(self, setting: str) -> float:
        """Return a setting."""
        return float(self._surroundings[setting])

    def load(self) -> Any:
        """Return the trainable, imported and unpickled amid the driver's module path and arguments."""
        sys.path[:] = self._surroundings["path"]
        sys.argv[:] = self._surroundings["argv"]
        with memoryview(self._memory) as memory, memory[self._body :] as body:
            return pickle.loads(body)  # noqa: S301  (from the driver, which also gave us our code)

    def close(self) -> None:
        """Close the descriptor."""
        self._memory.close()
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tuner-trainable", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
