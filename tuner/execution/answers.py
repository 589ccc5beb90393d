"""Answers on a worker's connection, given to the threads that wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, final


class Receiver(Protocol):
    """The receiving side of a worker's connection."""

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait for the next message.

        Args:
            timeout_s: How many seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: If none has come in time.
            EOFError: If the driver is gone.
        """


@final
class Answers:
    """Hands each message of the driver to the thread that waits for its kind.

    A report, a lease and a list of checkpoints may be under way in several threads at once, and the
    driver answers them in any order. One of the waiting threads reads; it keeps what is meant for
    the others and wakes them.
    """

    _changed: ClassVar = threading.Condition()
    """Guards the fields below; made once, since hardly any worker needs it."""

    def __init__(self, receiver: Receiver) -> None:
        """Read from a connection, from which nothing else reads."""
        self._receiver = receiver
        self._reading = threading.Lock()  # held by the thread that reads
        self._num_waiting = 0
        self._unclaimed: list[Mapping[str, Any]] = []
        self._expired: set[str] = set()

    def wait(
        self, *keys: str, token: str | None = None, timeout_s: float | None = None
    ) -> Mapping[str, Any]:
        """Wait for a message that has one of these keys.

        Args:
            *keys: The keys.
            token: The value that the key must have; None for any.
            timeout_s: How many seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: If none has come in time; it is dropped when it comes later.
            EOFError: If the driver is gone.
        """
        try:
            return self._await(keys, token, timeout_s)
        except TimeoutError:
            if token is not None:
                self._expired.add(token)
            raise

    def _await(
        self, keys: tuple[str, ...], token: str | None, timeout_s: float | None
    ) -> Mapping[str, Any]:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._unclaimed and (found := self._take(keys, token)):
                return found
            # Nearly always one thread is alone, and takes no other lock than this one.
            if not self._reading.acquire(blocking=False):
                self._await_change(keys, token, deadline_s)
                continue
            try:
                message = self._receiver.receive(_left_s(deadline_s))
                if _fits(message, keys, token):
                    return message
                self._keep(message)
            finally:
                # Also after an exception that a signal handler of the user's raises.
                self._reading.release()
                if self._num_waiting:
                    with self._changed:
                        self._changed.notify_all()

    def _await_change(
        self, keys: tuple[str, ...], token: str | None, deadline_s: float | None
    ) -> None:
        """Wait until the reading thread has kept a message, or has stopped to read."""
        with self._changed:
            # Counted before it is looked again: the reading thread looks in the other order.
            self._num_waiting += 1
            try:
                is_needed = self._reading.locked() and not any(
                    _fits(message, keys, token) for message in self._unclaimed
                )
                if is_needed and not self._changed.wait(_left_s(deadline_s)):
                    raise TimeoutError
            finally:
                self._num_waiting -= 1

    def _take(self, keys: tuple[str, ...], token: str | None) -> Mapping[str, Any] | None:
        with self._changed:
            for number, message in enumerate(self._unclaimed):
                if _fits(message, keys, token):
                    return self._unclaimed.pop(number)
        return None

    def _keep(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            if self._expired.isdisjoint(_texts(message)):
                self._unclaimed.append(message)
                self._changed.notify_all()


def _fits(message: Mapping[str, Any], keys: tuple[str, ...], token: str | None) -> bool:
    for key in keys:  # noqa: SIM110  (a generator would take as long as all the rest)
        if key in message and (token is None or message[key] == token):
            return True
    return False


def _texts(message: Mapping[str, Any]) -> list[str]:
    return [value for value in message.values() if isinstance(value, str)]


def _left_s(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
