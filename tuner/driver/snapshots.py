"""Snapshots of an experiment while it runs."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Final, final

from tuner.callbacks.callback_list import CallbackList
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.journal.snapshot_files import SnapshotClock, write_parts
from tuner.restore.snapshot_state import ExperimentState, identity
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage import strict_json

from .journal_log import JournalLog
from .persistence_cost import PersistenceAccount, PersistenceCosts
from .suggestion_queue import SuggestionQueue

_PERIOD: Final = "TUNE_GLOBAL_CHECKPOINT_S"
_MIN_RECORDS: Final = 1_000
"""Fewer records than this are replayed faster than a snapshot is written."""
_MANY_RECORDS: Final = 12_000
"""As many as are replayed in less than a second: a snapshot is worth taking before its time has
come."""
_MUCH_SEARCH_S: Final = 1.0
"""A searcher that has computed for so long since the last snapshot is a reason to take one before
its time has come, too."""
_SETTLE_S: Final = 0.05
"""How long the searcher may take to hear what it has not heard yet, before a snapshot is put
off."""
_MAX_ENCODED_AT_ONCE: Final = 1_000
_SEGMENT_BYTES: Final = 4 << 20
"""From this size on the journal begins a new segment with a snapshot, so that a restore need not
even look at the old one."""

_log = logging.getLogger("tuner")


@final
class Snapshots:
    """Takes snapshots: rarely enough to cost little, often enough that a restore has little to replay.

    The driver only puts the state into words; a thread seals and writes them. The words for a trial
    that is over are kept, so that a snapshot costs what has changed and not what there is.

    Args:
        directory: The experiment's directory.
        spec: What was declared.
        state: What changes.
        suggestions: Where the searcher is called, which has to be at rest for its state to be told.
        callbacks: The callbacks, some of which have a state.
        log: Where events are written down.
        account: Hears what it costs.
    """

    def __init__(  # noqa: PLR0917  (its collaborators, given once)
        self,
        directory: Path,
        spec: ExperimentSpec,
        state: ExperimentState,
        suggestions: SuggestionQueue,
        callbacks: CallbackList,
        log: JournalLog,
        account: PersistenceAccount,
    ) -> None:
        self._directory = directory
        self._suggestions = suggestions
        self._callbacks = callbacks
        self._log = log
        self._identity = identity(spec)
        self._state = state
        self._journal = log.journal
        self._account = account
        period_s = fixed_period_s()
        self._min_records = _MIN_RECORDS if period_s is None else 1
        self._clock = SnapshotClock(time.perf_counter(), period_s)
        self._last_sequence = self._journal.last_sequence
        self._last_search_s = 0.0
        self._words: dict[str, tuple[_Holdings, bytes]] = {}
        self._parts: list[bytes] = []
        """The words for each trial, in their order; those for one that has settled stay as they
        are."""
        self._unsettled: list[int] = []
        """The numbers of the trials of which something may still change."""
        self._writing: threading.Thread | None = None
        self._loop_s = self._thread_s = self._unpaid_thread_s = 0.0
        self._put_down_s = time.perf_counter()
        self._num_bytes = 0
        self._is_off = not state.keeps_state
        if self._is_off:
            _log.debug(
                "no snapshots are taken, since a part of the experiment cannot tell its "
                "state; a restore replays the whole journal"
            )
        account.add_source(self._costs)

    def take_if_due(self, elapsed_s: float) -> None:
        """Take a snapshot if one is due; called when all that was folded has been told, and nothing yet been done about it."""
        num_records = self._journal.last_sequence - self._last_sequence
        # A restore lets the searcher compute the suggestions behind the snapshot again.
        is_slow_search = self._suggestions.search_s - self._last_search_s >= _MUCH_SEARCH_S
        if (
            self._is_off
            or (num_records < self._min_records and not is_slow_search)
            or self._is_writing()
        ):
            return
        if self._unpaid_thread_s:
            self._charge_thread()
        now_s = time.perf_counter()
        is_urgent = num_records >= _MANY_RECORDS or is_slow_search
        if (
            self._clock.is_due(now_s) or (is_urgent and self._clock.is_affordable(now_s))
        ) and self._is_searcher_at_rest():
            self._take(elapsed_s, is_last=False)

    def _is_searcher_at_rest(self) -> bool:
        """Whether the searcher's state is that after the last record; where it is computing, a later turn takes the snapshot."""
        return not self._suggestions.is_answering and self._suggestions.settle(_SETTLE_S)

    def close(self, elapsed_s: float) -> None:
        """Take a last snapshot, at the end or at an interrupt, and wait until it is written."""
        if self._writing:
            self._writing.join()
        if (
            not self._is_off
            and self._journal.last_sequence > self._last_sequence
            and self._is_searcher_at_rest()
        ):
            self._take(elapsed_s, is_last=True)
        if self._writing:
            self._writing.join()

    def _is_writing(self) -> bool:
        return self._writing is not None and self._writing.is_alive()

    def _charge_thread(self) -> None:
        """Have what the thread has computed for the last snapshot paid off as well, before the next."""
        unpaid_s, self._unpaid_thread_s = self._unpaid_thread_s, 0.0
        self._clock.worked(self._put_down_s, self._put_down_s + unpaid_s)

    def _take(self, elapsed_s: float, *, is_last: bool) -> None:
        started_s = time.perf_counter()
        if not self._find_words(is_last=is_last):
            ended_s = self._charge(started_s)
            self._account.take_pause(ended_s - started_s)
            self._clock.worked(started_s, ended_s)
            return
        self._charge(started_s)
        try:
            rest, words, sequence = self._put_down(elapsed_s)
        except StorageError as error:
            _log.warning(
                "no snapshot could be taken, which makes a restore slower and nothing else: %s",
                error,
            )
            return
        finally:
            ended_s = time.perf_counter()
            self._account.take_pause(ended_s - started_s)
            self._clock.saved(started_s, ended_s)
            self._put_down_s = ended_s
        self._account.num_snapshots += 1
        self._writing = threading.Thread(
            target=self._write, args=(rest, words, sequence), name="tuner-snapshot", daemon=True
        )
        self._writing.start()

    def _put_down(self, elapsed_s: float) -> tuple[bytes, list[bytes], int]:
        """Return the state in words, the words for each trial, and the number of the last record behind them, which is safe."""
        self._log.settle()
        started_s = time.perf_counter()
        words, rest = self._all_words(), self._rest(elapsed_s)
        self._charge(started_s)
        self._journal.sync()
        self._last_sequence = self._journal.last_sequence
        self._last_search_s = self._suggestions.search_s
        if self._journal.segment_bytes >= _SEGMENT_BYTES:
            self._journal.rotate()
        return rest, words, self._last_sequence

    def _charge(self, started_s: float) -> float:
        """Charge what has passed since then, and return the time; what the journal does meanwhile is in its own account."""
        now_s = time.perf_counter()
        self._loop_s += now_s - started_s
        return now_s

    def _find_words(self, *, is_last: bool) -> bool:
        """Encode trials that are over; return False if there are more of them than the driver should be kept for."""
        budget = _MAX_ENCODED_AT_ONCE
        trials = self._state.experiment.trials
        self._unsettled += range(len(self._parts), len(trials))
        self._parts += [b""] * (len(trials) - len(self._parts))
        for number in self._unsettled:
            trial = trials[number]
            if trial.is_finished and self._known_words(trial) is None:
                if budget == 0 and not is_last:
                    return False
                budget -= 1
                self._words[trial.trial_id] = _holdings(trial), self._state.trial_json(trial)
        return True

    def _known_words(self, trial: Trial) -> bytes | None:
        """Return the words for a trial that is over, None if they are not known or no longer true."""
        holdings, words = self._words.get(trial.trial_id, (None, None))
        return words if holdings == _holdings(trial) else None

    def _rest(self, elapsed_s: float) -> bytes:
        """Return all but the trials in words."""
        parts = {
            **self._state.state_dict(),
            "callbacks": self._callbacks.get_state(),
            "identity": self._identity,
            "elapsed_s": elapsed_s,
        }
        return strict_json.to_bytes(parts, strict_json.opaque)

    def _all_words(self) -> list[bytes]:
        """Return the words for all trials; of those that have settled nobody asks again, however many they become."""
        trials = self._state.experiment.trials
        for number in self._unsettled:
            self._parts[number] = self._known_words(trials[number]) or self._state.trial_json(
                trials[number]
            )
        settled = {number for number in self._unsettled if _has_settled(trials[number])}
        self._unsettled = [number for number in self._unsettled if number not in settled]
        for number in settled:
            self._words.pop(trials[number].trial_id, None)
        return self._parts.copy()

    def _write(self, rest: bytes, words: list[bytes], sequence: int) -> None:
        state = [rest[:-1], b',"trials":[', b",".join(words), b"]}"]
        self._num_bytes += sum(map(len, state))
        try:
            write_parts(self._directory, state, sequence)
        except StorageError as error:
            _log.warning(
                "no snapshot could be written, which makes a restore slower and nothing else: %s",
                error,
            )
        self._unpaid_thread_s = time.thread_time()
        self._thread_s += self._unpaid_thread_s

    def _costs(self) -> PersistenceCosts:
        return PersistenceCosts(
            self._loop_s, self._thread_s, self._num_bytes, 2 * self._account.num_snapshots
        )


_Holdings = tuple[int, tuple[tuple[str, int], ...], int | None]


def _holdings(trial: Trial) -> _Holdings:
    """Return what may still change of a trial that is over: how many checkpoints it keeps, and who has which of them on lease."""
    return (
        len(trial.checkpoints),
        tuple(trial.leases.items()),
        trial.graft.checkpoint.index if trial.graft else None,
    )


def _has_settled(trial: Trial) -> bool:
    """Return whether nothing can change any more of a trial: it is over, and neither keeps a checkpoint nor goes back to another one's."""
    return trial.is_finished and not trial.checkpoints and not trial.leases and trial.graft is None


def fixed_period_s() -> float | None:
    """Return the seconds between two snapshots that the user asks for, None for as many as they cost.

    Raises:
        ValueError: If ``TUNE_GLOBAL_CHECKPOINT_S`` is neither ``"auto"`` nor a number of seconds.
    """
    text = os.environ.get(_PERIOD, "auto")
    if text == "auto":
        return None
    try:
        period_s = float(text)
    except ValueError:
        period_s = -1.0
    if not period_s >= 0.0:
        raise ValueError(
            f"{_PERIOD} must be 'auto' or a number of seconds, got {text!r}; unset it for the "
            "adaptive period"
        )
    return period_s
