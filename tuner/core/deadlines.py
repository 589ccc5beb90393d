"""When something is due: a heap with one entry per key, so that moving a deadline later costs nothing."""

from __future__ import annotations

import heapq


def earliest(*moments: float | None) -> float | None:
    """Return the earliest of some moments, of which None never comes; None if none does.

    Example:
        >>> earliest(3.0, None, 2.0)
        2.0
    """
    first = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first


class Deadlines:
    """Due times by key.

    A deadline that moves later leaves its old heap entry in place; the entry is put back when it comes up. A key therefore never has
    more than a few entries, however often its deadline moves.
    """

    def __init__(self) -> None:
        """Create an empty schedule."""
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._earliest_entry: dict[str, float] = {}

    def set(self, key: str, due_s: float) -> None:
        """Set or move a deadline."""
        self._due[key] = due_s
        entry = self._earliest_entry.get(key)
        if entry is None or due_s < entry:
            self._push(key, due_s)

    def cancel(self, key: str) -> None:
        """Forget a deadline, if there is one."""
        self._due.pop(key, None)

    @property
    def due(self) -> dict[str, float]:
        """When each key is due; a copy."""
        return dict(self._due)

    def may_be_due(self, now_s: float) -> bool:
        """Return whether anything may be due, without looking closely: no entry is later than what it stands for."""
        return bool(self._heap) and self._heap[0][0] <= now_s

    def take_due(self, now_s: float) -> list[str]:
        """Remove and return the keys whose deadline is `now_s` or earlier, earliest first."""
        if not self.may_be_due(now_s):
            return []
        taken = []
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            key = self._pop()
            del self._due[key]
            taken.append(key)
        return taken

    def next_s(self) -> float | None:
        """Return the earliest deadline, None if there is none."""
        while self._heap:
            entry_s, key = self._heap[0]
            due_s = self._due.get(key)
            if due_s == entry_s:
                return due_s
            self._pop()
            if due_s is not None and key not in self._earliest_entry:
                self._push(key, due_s)
        return None

    def _push(self, key: str, due_s: float) -> None:
        heapq.heappush(self._heap, (due_s, key))
        self._earliest_entry[key] = due_s

    def _pop(self) -> str:
        entry_s, key = heapq.heappop(self._heap)
        if self._earliest_entry.get(key) == entry_s:
            del self._earliest_entry[key]
        return key
