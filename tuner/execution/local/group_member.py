"""Interfaces of the members of a group of workers, and of the executor that runs them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tuner.core.commands import StartWorker
from tuner.core.events import Event, WorkerExited

from .exit_diagnosis import ExitInfo


class GroupMember(Protocol):
    """One worker of a group, whether its process runs on this machine or on another node."""

    @property
    def rank(self) -> int:
        """Its number in the group, from 0."""

    @property
    def exit_message(self) -> WorkerExited | None:
        """How the attempt ended according to the worker itself; None until it says so."""

    def exit_event(self, exit_info: ExitInfo | None, /) -> WorkerExited:
        """Return how the attempt ended, according to the worker itself if it has said so.

        Args:
            exit_info: What was observed of its process; None if nobody could.
        """

    def note_answer(self) -> None:
        """Note that its report is answered, so that it may report again."""

    @property
    def stderr_size(self) -> int:
        """How many bytes there are of its standard error."""

    def last_lines(self) -> str:
        """Return the end of what it has written to standard error, with its stack."""

    def lines_since(self, stderr_size: int, /) -> str:
        """Return what it has written to standard error since that had a size, or the end of it."""


Member = TypeVar("Member", bound=GroupMember)
_Member_contra = TypeVar("_Member_contra", bound=GroupMember, contravariant=True)


class GroupHost(Protocol[_Member_contra]):
    """What a group needs of its executor."""

    def emit(self, event: Event, /) -> None:
        """Pass an event on to the driver."""

    def send(self, worker: _Member_contra, data: bytes, /) -> None:
        """Begin to send a message to a worker."""

    def kill(self, worker: _Member_contra, /) -> None:
        """Kill a worker's process group."""

    def dump_stack(self, worker: _Member_contra, /) -> None:
        """Have a worker write its stack to its standard error."""

    def start_again(self, command: StartWorker, /) -> None:
        """Start the attempt again later; all its processes are gone."""

    def expect_exit(self, worker: _Member_contra, /) -> None:
        """Kill a worker that does not end in time."""
