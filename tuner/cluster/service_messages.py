"""What driver and node say to each other about processes: a process service in messages.

The driver sends the requests of `ProcessService`, each as a record; the node answers with the
records of `process_service`. All are JSON objects with the key ``kind``, which a `Link` carries.

A node has run the user's code, so all that it says is checked as it is read. It trusts its driver;
configurations are pickled, and passed on by the node to the processes without being loaded.
"""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, final

from tuner.execution.assignment import Assignment
from tuner.execution.local.worker_connection import pickled
from tuner.execution.process_service import (
    Gone,
    HungUp,
    Listening,
    ProcessEvent,
    Said,
    StackDumped,
    Unstarted,
    Violated,
)
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.wire.declared import Form, Tagged, declare, tagged

_MAX_PORT: Final = 2**16 - 1


@final
class PickledConfig:
    """Stands for a configuration in the pickle of an assignment, and is unpickled as that.

    So the process that makes the assignment loads none of the user's code.

    Args:
        data: The pickled configuration.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.data,)


def _config_as_text(config: Mapping[str, Any]) -> str:
    return base64.b64encode(pickled(config)).decode()


def _config_of_text(text: str) -> Mapping[str, Any]:
    # No mapping, but all that is done with it is to pickle it for the worker, where it is one.
    return cast("Mapping[str, Any]", PickledConfig(base64.b64decode(text)))


_CONFIG: Final = Form(_config_as_text, _config_of_text)
declare(Assignment, trial_dir=Form(os.fspath, str), config=_CONFIG)
declare(ValidationAssignment, config=_CONFIG)

declare(Listening, "listening")
declare(Said, "said")
declare(Violated, "violated")
declare(HungUp, "hung_up")
declare(StackDumped, "stack_dumped")
declare(Gone, "gone")
declare(Unstarted, "unstarted")


@final
@tagged("listen")
@dataclass(frozen=True, slots=True)
class Listen:
    """See `ProcessService.listen`."""

    key: int
    is_local: bool


@final
@tagged("start")
@dataclass(frozen=True, slots=True)
class Start:
    """See `ProcessService.start`."""

    key: int
    assignment: Assignment


@final
@tagged("start_validation")
@dataclass(frozen=True, slots=True)
class Validate:
    """See `ProcessService.start`."""

    key: int
    assignment: ValidationAssignment


@final
@tagged("reassign")
@dataclass(frozen=True, slots=True)
class Reassign:
    """See `ProcessService.reassign`."""

    key: int
    assignment: Assignment


@final
@tagged("send")
@dataclass(frozen=True, slots=True)
class Send:
    """See `ProcessService.send`."""

    key: int
    line: str


@final
@tagged("kill")
@dataclass(frozen=True, slots=True)
class Kill:
    """See `ProcessService.kill`."""

    key: int
    grace_s: float


@final
@tagged("expect_exit")
@dataclass(frozen=True, slots=True)
class ExpectExit:
    """See `ProcessService.expect_exit`."""

    key: int


@final
@tagged("dump_stack")
@dataclass(frozen=True, slots=True)
class DumpStack:
    """See `ProcessService.dump_stack`."""

    key: int


@final
@tagged("preload")
@dataclass(frozen=True, slots=True)
class Preload:
    """See `ProcessService.preload`."""

    modules: list[str]


Request = Listen | Start | Validate | Reassign | Send | Kill | ExpectExit | DumpStack | Preload

REQUESTS: Final = Tagged[Request](
    "kind",
    (Listen, Start, Validate, Reassign, Send, Kill, ExpectExit, DumpStack, Preload),
)
"""What the driver asks for."""

PROCESS_EVENTS: Final = Tagged[ProcessEvent](
    "kind", (Listening, Said, Violated, HungUp, StackDumped, Gone, Unstarted)
)
"""What a node says about its processes, see `read_record`."""


def read_record(message: Mapping[str, Any]) -> ProcessEvent:
    """Return what a node says about a process, which need not be one of its own.

    Raises:
        ValueError: If the message is malformed.
    """
    record = PROCESS_EVENTS.decode(message)
    match record:
        case Listening(_, address, port) if not (address and 0 < port <= _MAX_PORT):
            raise ValueError(f"a socket must have an address and a port, got {record}")
        case Said(_, []):
            raise ValueError("a process that has said something must have sent a message")
    return record
