"""Ordered connection without losses over a carrier that may lose, double and reorder frames.

One end is in the driver, the other in a node's host. What is between them (gateway, cluster engine,
agent) keeps no state of the frames and may be replaced at any time. A frame is a JSON object::

    {"s": token, "n": number of its first message, "a": last number received in order,
     "t": when it was sent, "e": the last "t" of the other end, "m": [message, ...]}

An end keeps each message until the other one has acknowledged it, and sends it again from time to
time. A frame without messages acknowledges, or is a sign of life.

By the echo of its times, an end knows up to when at least the other one has heard it. So a lease
that runs from then on ends before the other end gives it up, although both have clocks of their own
and frames may take long or go one way only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, final

from tuner.storage import strict_json

BEAT_S: Final = 1.0
RESEND_S: Final = 1.0
_MAX_RESEND_S: Final = 8.0
_ACKNOWLEDGE_S: Final = 0.1
"""For how long an acknowledgement waits for a message that it can travel with."""
_FRAME_BYTES: Final = 1 << 20
_WINDOW_BYTES: Final = 8 << 20
"""How much is under way at a time: what is between the ends keeps little, and drops the rest."""
_MAX_EARLY: Final = 1 << 16
"""How many messages are kept that have overtaken others."""


@final
@dataclass(frozen=True, slots=True)
class Liveness:
    """How long nodes and driver may be silent, in seconds of the clock of whoever waits.

    Attributes:
        silent_s: After which the user is warned.
        node_timeout_s: After which a node has left.
        lease_s: After which a host kills its trials that does not know of its driver that it was
            heard since. Shorter, so that they are dead when they are started elsewhere.
        reconnect_s: For how long a cluster that cannot be reached any more is looked for.
        idle_s: After which a node that an engine has added for trials that waited is given back.
    """

    silent_s: float = 10.0
    node_timeout_s: float = 30.0
    lease_s: float = 20.0
    reconnect_s: float = 300.0
    idle_s: float = 60.0

    @classmethod
    def of_lease(cls, lease_s: float) -> Self:
        """Return what fits a lease: a node has left after one and a half times as long."""
        return cls(silent_s=lease_s / 2, node_timeout_s=1.5 * lease_s, lease_s=lease_s)

    @property
    def beat_s(self) -> float:
        """After how many seconds both ends give a sign of life: several in the time of a lease."""
        return beat_within(self.lease_s)

    def __post_init__(self) -> None:
        if not 0 < self.lease_s < self.node_timeout_s:
            raise ValueError(
                f"lease_s must be above 0 and below node_timeout_s={self.node_timeout_s}, got "
                f"{self.lease_s}; else a trial could run twice"
            )


def hang_within(lease_s: float) -> float:
    """Return after how many seconds a host that says nothing is killed by its agent.

    It hangs, and cannot end its trials itself when its lease is over.
    """
    return 0.75 * lease_s


def beat_within(lease_s: float) -> float:
    """Return after how many seconds an end gives a sign of life where a lease lasts so long."""
    return min(BEAT_S, lease_s / 8)


class _Sent(NamedTuple):
    number: int
    data: bytes


@final
class Link:
    """One end of a connection. It does no input or output, and takes the time from its caller.

    Args:
        token: Common to both ends, and different from that of every other connection; frames with
            another one are dropped.
        now_s: The time in seconds, of a clock that never goes back.
        beat_s: See the attribute.

    Attributes:
        beat_s: After how many seconds a sign of life is sent where there is nothing else to send.
        heard_s: When the last valid frame was received, or the link was made.
        confirmed_s: When the last frame was sent of which it is known that the other end has
            received it, or the link was made.
    """

    def __init__(self, token: str, now_s: float, *, beat_s: float = BEAT_S) -> None:
        self.heard_s = self.confirmed_s = now_s
        self._echo_s = 0.0
        self._token = token
        self._quoted_token = strict_json.dumps(token)
        self.beat_s = beat_s
        self._resend_s = RESEND_S
        self._num_sent = 0
        self._fresh: deque[_Sent] = deque()
        self._unacknowledged: deque[_Sent] = deque()
        self._unacknowledged_bytes = 0
        self._resend_at_s: float | None = None
        self._num_received = 0
        self._early: dict[int, dict[str, Any]] = {}
        self._acknowledge_at_s: float | None = None
        self._beat_at_s = now_s  # the first frame is sent at once

    @property
    def is_drained(self) -> bool:
        """Whether the other end has acknowledged all messages."""
        return not self._fresh and not self._unacknowledged

    @property
    def next_s(self) -> float:
        """When `take_frames` has to be called at the latest."""
        if self._fresh and self._has_room:
            return 0.0
        moments = (self._beat_at_s, self._resend_at_s, self._acknowledge_at_s)
        return min(moment for moment in moments if moment is not None)

    @property
    def _has_room(self) -> bool:
        return self._unacknowledged_bytes < _WINDOW_BYTES

    def send(self, message: Mapping[str, Any]) -> None:
        """Add a message, which `take_frames` returns in a frame."""
        # Training code can send what was JSON, and is an object now that JSON cannot hold.
        data = strict_json.to_bytes(message, strict_json.opaque)
        self._num_sent += 1
        self._fresh.append(_Sent(self._num_sent, data))

    def take_frames(self, now_s: float) -> list[str]:
        """Return the frames that are to be sent now, as JSON texts."""
        due: list[_Sent] = []
        if self._resend_at_s is not None and now_s >= self._resend_at_s:
            due += self._unacknowledged
            self._resend_s = min(2 * self._resend_s, _MAX_RESEND_S)
            self._resend_at_s = None
        while self._fresh and self._has_room:
            sent = self._fresh.popleft()
            due.append(sent)
            self._unacknowledged.append(sent)
            self._unacknowledged_bytes += len(sent.data)
        frames = [self._frame(part, now_s) for part in _parts(due)]
        if not frames and (
            now_s >= self._beat_at_s
            or (self._acknowledge_at_s is not None and now_s >= self._acknowledge_at_s)
        ):
            frames = [self._frame((), now_s)]
        if frames:
            self._beat_at_s = now_s + self.beat_s
            self._acknowledge_at_s = None
        if self._unacknowledged and self._resend_at_s is None:
            self._resend_at_s = now_s + self._resend_s
        return frames

    def receive(self, frame: Mapping[str, Any], now_s: float) -> list[dict[str, Any]]:
        """Take a frame, and return the messages that are complete by it: each once, in order.

        Args:
            frame: The frame, decoded by `strict_json.loads`.
            now_s: The time.

        Raises:
            ValueError: If it is malformed.
        """
        match frame:
            case {
                "s": str(token),
                "n": int(number),
                "a": int(acknowledged),
                "t": float(sent_s),
                "e": float(echo_s),
                "m": [*messages],
            }:
                pass
            case _:
                raise ValueError(f"a frame must have s, n, a, t, e and m, got {frame!r:.200}")
        if token != self._token:
            return []
        if number < 1 or acknowledged > self._num_sent:
            raise ValueError(
                f"a frame must begin at number 1 or later and acknowledge at most "
                f"{self._num_sent}, got n={number} and a={acknowledged}"
            )
        if echo_s > now_s:
            raise ValueError(f"a frame must echo a time that is past, got e={echo_s} at {now_s}")
        self.heard_s = now_s
        self.confirmed_s = max(self.confirmed_s, echo_s)
        self._echo_s = max(self._echo_s, sent_s)
        self._note_acknowledged(acknowledged, now_s)
        if messages and self._acknowledge_at_s is None:
            self._acknowledge_at_s = now_s + _ACKNOWLEDGE_S
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError(f"messages must be objects, got {messages!r:.200}")
        for at, message in enumerate(messages, number):
            if at > self._num_received and len(self._early) < _MAX_EARLY:
                self._early[at] = message
        complete: list[dict[str, Any]] = []
        while (at := self._num_received + 1) in self._early:
            complete.append(self._early.pop(at))
            self._num_received = at
        return complete

    def _note_acknowledged(self, number: int, now_s: float) -> None:
        num_before = len(self._unacknowledged)
        while self._unacknowledged and self._unacknowledged[0].number <= number:
            self._unacknowledged_bytes -= len(self._unacknowledged.popleft().data)
        if len(self._unacknowledged) < num_before:
            self._resend_s = RESEND_S
            self._resend_at_s = now_s + self._resend_s if self._unacknowledged else None

    def _frame(self, part: Sequence[_Sent], now_s: float) -> str:
        first = part[0].number if part else self._num_sent + 1
        body = b",".join(sent.data for sent in part).decode()
        return (
            f'{{"s":{self._quoted_token},"n":{first},"a":{self._num_received},'
            f'"t":{now_s!r},"e":{self._echo_s!r},"m":[{body}]}}'
        )


def _parts(due: Sequence[_Sent]) -> list[list[_Sent]]:
    """Divide consecutive messages among frames of limited size; a large message has its own."""
    parts: list[list[_Sent]] = []
    num_bytes = _FRAME_BYTES
    for sent in due:
        num_bytes += len(sent.data)
        if num_bytes > _FRAME_BYTES:
            parts.append([])
            num_bytes = len(sent.data)
        parts[-1].append(sent)
    return parts
