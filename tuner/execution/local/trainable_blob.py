"""The pickled trainable in anonymous memory.

The blob also holds the declared validation function, and the driver's module path and arguments. It
is inherited as a descriptor: nothing of it is written to a disk or shown in a list of processes, no
size can block the driver, and all processes share one copy.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple, Self, final

from tuner.execution.validation_assignment import NOT_DECLARED, DeclaredValidator, own_validator
from tuner.wire.record import record

CURRENT_TEST: Final = "PYTEST_CURRENT_TEST"
"""The variable with the name of the test that runs, which pytest sets anew for each one."""
_LENGTH: Final = struct.Struct("!Q")


class UserCode(NamedTuple):
    """What the user has declared, as loaded by the process that runs it.

    Attributes:
        trainable: The trainable.
        validator: The validation function.
    """

    trainable: Any
    validator: DeclaredValidator


@final
@record
class PickledCode:
    """What the user has declared, pickled by the driver for the processes of another machine.

    Attributes:
        trainable: The trainable.
        validator: The validation function; empty for none or that of the trainable.
        path: Module path of the processes that load it.
        argv: The driver's arguments.
        variables: Variables of the environment that are as in the driver, though the process was
            started earlier; None for one that is not set.
    """

    trainable: bytes
    validator: bytes
    path: Sequence[str]
    argv: Sequence[str]
    variables: Mapping[str, str | None] = field(default_factory=dict)


class TrainableBlob:
    """A pickled trainable with the driver's module path, arguments, variables, and settings."""

    def __init__(self, descriptor: int) -> None:
        """Map an inherited blob; the object owns the descriptor."""
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        (length,) = _LENGTH.unpack_from(self._memory)
        self._body_start = _LENGTH.size + length
        self._header: dict[str, Any] = json.loads(self._memory[_LENGTH.size : self._body_start])
        self._validator_start = self._body_start + self._header["trainable_bytes"]

    @classmethod
    def pack(cls, trainable: bytes, validator: bytes = b"", **settings: float) -> Self:
        """Return a new blob, with the module path and arguments of this process.

        Args:
            trainable: The pickled trainable.
            validator: The pickled validation function, empty for none or that of the trainable.
            **settings: Settings for the process that loads it.
        """
        path = [os.fspath(entry) for entry in sys.path]
        variables = {CURRENT_TEST: os.environ.get(CURRENT_TEST)}
        code = PickledCode(trainable, validator, path, sys.argv, variables)
        return cls.pack_code(code, **settings)

    @classmethod
    def pack_code(cls, code: PickledCode, **settings: float) -> Self:
        """Return a new blob.

        Args:
            code: The code.
            **settings: Settings for the process that loads it.
        """
        lengths = {"trainable_bytes": len(code.trainable)}
        places = {
            "path": list(code.path),
            "argv": list(code.argv),
            "variables": dict(code.variables),
        }
        header = json.dumps({**places, **lengths, **settings}).encode()
        descriptor = _anonymous_file()
        # In several writes: joined, a trainable of gigabytes would be copied once more.
        with open(descriptor, "wb", closefd=False) as file:
            file.write(_LENGTH.pack(len(header)) + header)
            file.write(code.trainable)
            file.write(code.validator)
        return cls(descriptor)

    def __getitem__(self, setting: str) -> float:
        """Return a setting."""
        return float(self._header[setting])

    def load(self) -> UserCode:
        """Take over the driver's module path, arguments and variables; return what was unpickled.

        A validation function that cannot be loaded fails the validations, and not the training.
        """
        sys.path[:] = self._header["path"]
        sys.argv[:] = self._header["argv"]
        for name, value in self._header["variables"].items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        trainable = self._unpickled(self._body_start, self._validator_start)
        return UserCode(trainable, self._validator_beside(trainable))

    def _validator_beside(self, trainable: Any) -> DeclaredValidator:
        try:
            if own := own_validator(trainable):
                return DeclaredValidator(own)
            if self._validator_start == len(self._memory):
                return NOT_DECLARED
            return DeclaredValidator(self._unpickled(self._validator_start, len(self._memory)))
        except Exception as error:  # noqa: BLE001  (importing the user's modules may raise anything)
            return DeclaredValidator(error=error)

    def _unpickled(self, start: int, end: int) -> Any:
        # Views, not slices: unpickling then reads straight from the shared pages. Both have to be
        # released, or the mapping cannot be closed.
        with memoryview(self._memory) as memory, memory[start:end] as body:
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
