"""Queue of trials that are ready to start, in the order in which they became so."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator

from .resources import demand_of
from .timeouts import Deadlines
from .trial import Trial

Shape = tuple[object, ...]
"""Key of what a trial asks for, see `Demand.shape`."""


class ReadyQueue:
    """Queue of trials to be started, first come, first served per resource request.

    A trial whose request does not fit does not block trials with other requests.

    Trials are grouped by request, so that finding the next one that fits costs the number of
    different requests, not of trials. One that rests is in the queue, but gets its place only when
    it is woken.

    Attributes:
        resting: The trials that rest, by id.
        overtaken: The oldest trial, and since when others have been started before it; None if none
            has.
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        self._groups: OrderedDict[Shape, deque[tuple[int, Trial]]] = OrderedDict()
        self._num_pushed = 0
        self._members: dict[str, tuple[int, Shape]] = {}
        """Position and request of each; an entry of a group with another position is stale."""
        self._nums: Counter[Shape] = Counter()
        """How many wait of each request."""
        self._rests = Deadlines()
        self.resting: dict[str, Trial] = {}
        self.overtaken: tuple[str, float] | None = None

    @property
    def next_s(self) -> float | None:
        """When the next delay is over; None if no trial is delayed."""
        return self._rests.next_s()

    def __len__(self) -> int:
        """Return how many trials wait, delayed ones included."""
        return len(self._members) + len(self.resting)

    def __contains__(self, trial: Trial) -> bool:
        """Return whether the trial waits or is delayed."""
        return trial.trial_id in self._members or trial.trial_id in self.resting

    def __iter__(self) -> Iterator[Trial]:
        """Iterate over the waiting trials, grouped by request, then over the delayed ones."""
        return itertools.chain(
            (
                entry[1]
                for group in self._groups.values()
                for entry in group
                if self._is_alive(entry)
            ),
            self.resting.values(),
        )

    @property
    def resting_until_s(self) -> dict[str, float]:
        """When the delay of each delayed trial is over."""
        return self._rests.due

    def rest(self, trial: Trial, until_s: float) -> None:
        """Add a trial that is not to be started before a time."""
        self.resting[trial.trial_id] = trial
        self._rests.set(trial.trial_id, until_s)

    def wake(self, now_s: float) -> bool:
        """Queue the trials whose delay is over; return whether there are any."""
        rested = self._rests.take_due(now_s)
        for trial_id in rested:
            self.push(self.resting.pop(trial_id))
        return bool(rested)

    def in_order(self) -> list[Trial]:
        """Return the waiting trials in the order in which they became ready."""
        entries = [
            entry for group in self._groups.values() for entry in group if self._is_alive(entry)
        ]
        return [trial for _, trial in sorted(entries, key=lambda entry: entry[0])]

    def push(self, trial: Trial) -> None:
        """Append a trial, unless it waits or is delayed already."""
        if trial.trial_id in self._members or trial.trial_id in self.resting:
            return
        shape = demand_of(trial).shape
        self._num_pushed += 1
        self._members[trial.trial_id] = self._num_pushed, shape
        self._nums[shape] += 1
        self._groups.setdefault(shape, deque()).append((self._num_pushed, trial))

    def discard(self, trial: Trial) -> None:
        """Take a trial out, if it is in."""
        # Its entry stays in the group, where it is skipped: to find it would take a scan.
        self._take_out(trial)
        self.resting.pop(trial.trial_id, None)
        self._rests.cancel(trial.trial_id)
        self._begin_anew(trial)

    @property
    def firsts(self) -> list[Trial]:
        """The trial that has waited longest of each different request."""
        return [group[0][1] for group in self._live_groups()]

    @property
    def num_by_first(self) -> list[tuple[Trial, int]]:
        """The same, each with how many trials with its request wait."""
        return [(first, self._nums[self._members[first.trial_id][1]]) for first in self.firsts]

    @property
    def oldest(self) -> Trial | None:
        """The trial that has waited longest; None if none waits."""
        first = min((group[0] for group in self._live_groups()), key=_position, default=None)
        return first[1] if first else None

    def note_overtaken(self, trial: Trial, now_s: float) -> None:
        """Note that another trial was started before the oldest one."""
        if self.overtaken_since_s(trial) is None:
            self.overtaken = (trial.trial_id, now_s)

    def overtaken_since_s(self, trial: Trial) -> float | None:
        """Return since when the oldest trial has been overtaken; None if it has not been."""
        return self.overtaken[1] if self.overtaken and self.overtaken[0] == trial.trial_id else None

    def pop_first(self, can_start: Callable[[Trial], bool]) -> Trial | None:
        """Remove and return the longest waiting trial that `can_start` accepts.

        `can_start` is called once per different request.
        """
        if not self._members:
            return None
        # By the position of each group's first trial: first come, first served among requests too.
        for group in sorted(self._live_groups(), key=lambda group: _position(group[0])):
            trial = group[0][1]
            if can_start(trial):
                group.popleft()
                self._take_out(trial)
                self._begin_anew(trial)
                return trial
        return None

    def _take_out(self, trial: Trial) -> None:
        if member := self._members.pop(trial.trial_id, None):
            _, shape = member
            self._nums[shape] -= 1
            if not self._nums[shape]:
                del self._nums[shape]

    def _begin_anew(self, trial: Trial) -> None:
        if self.overtaken_since_s(trial) is not None:
            self.overtaken = None

    def _is_alive(self, entry: tuple[int, Trial]) -> bool:
        member = self._members.get(entry[1].trial_id)
        return member is not None and member[0] == entry[0]

    def _live_groups(self) -> list[deque[tuple[int, Trial]]]:
        for shape, group in list(self._groups.items()):
            while group and not self._is_alive(group[0]):
                group.popleft()
            if not group:
                del self._groups[shape]
        return list(self._groups.values())


def _position(entry: tuple[int, Trial]) -> int:
    return entry[0]
