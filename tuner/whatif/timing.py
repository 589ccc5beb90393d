"""How long things took in a recorded experiment that no result tells: to start a worker, to be answered, to save and to leave."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, final

from tuner.core.events import Outcome
from tuner.core.result import TIME_THIS_ITER_S, TRAINING_ITERATION
from tuner.journal.reader import read
from tuner.journal.records import RESULT, ROUTINE_END


@dataclass(slots=True)
class Pace:
    """How long one trial took for what its results do not tell, in seconds.

    Attributes:
        start_s: From the moment at which it could have begun until its training code ran, at its first attempt.
        exit_s: From its last result, and its last checkpoint, until its worker was gone, at its last attempt.
        waits_s: By ``training_iteration``: what passed between a result and the one before it beside training, such as waiting for the
            answer, or saving. Only where both were reported by one attempt, or the result was the trial's first.
        reported_s: By ``training_iteration``: when the result was reported, in seconds of experiment time.
        worker_s: How long the trial had a worker, starts of later attempts left out.
    """

    start_s: float = 0.0
    exit_s: float = 0.0
    waits_s: dict[int, float] = field(default_factory=dict)
    reported_s: dict[int, float] = field(default_factory=dict)
    worker_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things took in an experiment, in seconds.

    Attributes:
        elapsed_s: Its running time; None where no journal tells.
        begin_s: How long it took until the first trial was asked for.
        start_s: How long a trial took, mostly, until its training code ran.
        leave_s: How long a trial took to be gone once it was told to, mostly.
        save_s: How long one took to save when it was asked to, mostly.
        paces: What is to be known of each trial, by its id.
    """

    elapsed_s: float | None = None
    begin_s: float = 0.0
    start_s: float = 0.0
    leave_s: float = 0.0
    save_s: float = 0.0
    paces: Mapping[str, Pace] = field(default_factory=dict)

    def pace_of(self, trial_id: str) -> Pace:
        """Return what is known of a trial; nothing took any time where nothing is."""
        return self.paces.get(trial_id) or Pace()


def read_timing(
    experiment_path: str | os.PathLike[str], *, is_uniform: bool, num_slots: int | None = None
) -> Timing:
    """Return how long things took, by an experiment's journal; of one without a journal nothing is known.

    Args:
        experiment_path: Directory of the experiment.
        is_uniform: Whether all trials asked for the same resources, so that one could begin as soon as it was asked for.
        num_slots: How many trials could run at once, where they were suggested before there was a slot for them; None where they were not.

    Raises:
        DamagedJournal: If the journal does not verify.
    """
    watch = _Watch(is_uniform=is_uniform, num_slots=num_slots)
    for record in read(experiment_path):
        watch.see(record)
    return watch.timing()


@final
class _Watch:
    """Goes along with a journal and takes the time."""

    def __init__(self, *, is_uniform: bool, num_slots: int | None = None) -> None:
        self._is_uniform = is_uniform
        self._num_slots = num_slots
        self._freed_s: deque[float] = deque([0.0] * (num_slots or 0))
        """Since when each slot is free that no trial has taken."""
        self._elapsed_s: float | None = None
        self._first_s: float | None = None
        self._turn_s = self._exit_s = 0.0
        self._asked_s: dict[str, float] = {}
        self._began_s: dict[str, float] = {}
        self._heard_s: dict[str, float] = {}
        self._saved_s: dict[str, float] = {}
        self._waited: set[str] = set()
        """Trials whose next result tells how long it was waited for: it is their first, or follows another one of the same attempt."""
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._leaves_s: list[float] = []
        self._saves_s: list[float] = []

    def see(self, record: Mapping[str, Any]) -> None:
        at_s = float(record["t"])
        self._turn_s = record.get(ROUTINE_END, self._turn_s)
        self._first_s = record.get(ROUTINE_END, at_s) if self._first_s is None else self._first_s
        match record["k"]:
            case "turn":
                self._turn_s = at_s
            case "suggested":
                # It was asked for in the turn before, mostly since there was a free slot.
                self._asked_s[record["id"]] = self._turn_s
            case "started":
                self._start(record["id"], record["a"], at_s)
            case kind if kind == RESULT:
                self._report(record["id"], record["m"], at_s)
            case "saved":
                self._saves_s.append(at_s - self._heard_s.get(record["id"], at_s))
                self._saved_s[record["id"]] = at_s
            case "exited":
                self._exit(record["id"], record["outcome"], at_s)
            case "restarted":
                for trial_id in list(self._began_s):
                    self._close(trial_id, self._elapsed_s or 0.0)
                self._freed_s = deque([at_s] * (self._num_slots or 0))
            case _:
                pass
        self._elapsed_s = max(self._elapsed_s or 0.0, at_s)

    def timing(self) -> Timing:
        for trial_id in list(self._began_s):
            self._close(trial_id, self._elapsed_s or 0.0)
        # Where nobody was told to leave, the quickest end tells best how long a worker takes that has nothing more to do.
        leave_s = (
            _median(self._leaves_s)
            if self._leaves_s
            else min((pace.exit_s for pace in self._paces.values()), default=0.0)
        )
        return Timing(
            elapsed_s=self._elapsed_s,
            begin_s=self._first_s or 0.0,
            # Not that of each trial: those that begin first wait until the training code is loaded, once for all.
            start_s=_median([pace.start_s for pace in self._paces.values()]),
            leave_s=leave_s,
            save_s=_median(self._saves_s),
            paces=dict(self._paces),
        )

    def _start(self, trial_id: str, attempt: int, at_s: float) -> None:
        pace = self._paces[trial_id]
        freed_s = self._take_slot()
        if attempt == 1 and trial_id in self._asked_s:
            since_s = max(self._asked_s[trial_id], freed_s if self._is_uniform else self._exit_s)
            pace.start_s = max(at_s - since_s, 0.0)
            pace.worker_s += pace.start_s
            self._waited.add(trial_id)
        else:
            self._waited.discard(
                trial_id
            )  # what its first result took includes loading, which the recorded curve knows nothing of
        self._began_s[trial_id] = self._heard_s[trial_id] = at_s

    def _report(self, trial_id: str, metrics: Mapping[str, Any], at_s: float) -> None:
        pace, iteration = self._paces[trial_id], metrics.get(TRAINING_ITERATION, 0)
        trained_s = metrics.get(TIME_THIS_ITER_S, 0.0)
        if trial_id in self._waited:
            pace.waits_s[iteration] = max(at_s - self._heard_s.get(trial_id, at_s) - trained_s, 0.0)
        pace.reported_s[iteration] = at_s
        self._heard_s[trial_id] = at_s
        self._waited.add(trial_id)

    def _take_slot(self) -> float:
        """Return since when the slot is free that is taken now: slots that are alike are taken in the order in which they became free."""
        return self._freed_s.popleft() if self._freed_s else 0.0

    def _exit(self, trial_id: str, outcome: str, at_s: float) -> None:
        if trial_id not in self._began_s:
            self._take_slot()
        if self._num_slots:
            self._freed_s.append(at_s)
        lag_s = at_s - max(self._heard_s.get(trial_id, at_s), self._saved_s.get(trial_id, 0.0))
        self._paces[trial_id].exit_s = lag_s
        if outcome == Outcome.STOPPED:
            self._leaves_s.append(lag_s)
        self._close(trial_id, at_s)
        self._exit_s = at_s

    def _close(self, trial_id: str, at_s: float) -> None:
        self._paces[trial_id].worker_s += at_s - self._began_s.pop(trial_id, at_s)


def _median(values: Sequence[float]) -> float:
    return median(values) if values else 0.0
