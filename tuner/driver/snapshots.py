"""Snapshots of a running experiment, from which a restore starts instead of the first record."""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import Final, final

from tuner.background import BackgroundJobs
from tuner.callbacks.callback_list import CallbackList
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.journal.snapshot_files import SnapshotClock, write_parts
from tuner.restore.snapshot_state import ExperimentState, identity
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage import strict_json

from .journal_log import JournalLog
from .suggestion_queue import SuggestionQueue

_PERIOD: Final = "TUNE_GLOBAL_CHECKPOINT_S"
_MIN_RECORDS: Final = 1_000
"""Fewer records than this are replayed faster than a snapshot is written."""
_MANY_RECORDS: Final = 12_000
"""As many as are replayed in less than a second; from here on a snapshot is taken early."""
_MUCH_SEARCH_S: Final = 1.0
"""A searcher that has computed for so long since the last snapshot is a reason to take one early,
since a restore has it compute the same again."""
_SETTLE_S: Final = 0.05
"""How long the driver waits for the searcher to process what it was notified of, before a snapshot
is put off."""
_MAX_ENCODED_AT_ONCE: Final = 1_000
_SEGMENT_BYTES: Final = 4 << 20
"""From this size on the journal begins a new segment with a snapshot, so that a restore does not
open the old one."""

_log = logging.getLogger("tuner")


@final
class Snapshots:
    """Takes snapshots often enough that a restore replays little, at a bounded cost.

    The driver encodes the state, since it is the only thread that may read it; another thread
    writes the file.

    Args:
        directory: The experiment's directory.
        spec: What was declared.
        state: The experiment with scheduler, stopper and searcher.
        suggestions: Calls the searcher, which has to be idle when its state is encoded.
        callbacks: The callbacks, some of which have a state.
        log: Where events are recorded.
    """

    def __init__(  # noqa: PLR0917  (its collaborators, given once)
        self,
        directory: Path,
        spec: ExperimentSpec,
        state: ExperimentState,
        suggestions: SuggestionQueue,
        callbacks: CallbackList,
        log: JournalLog,
    ) -> None:
        self._directory = directory
        self._suggestions = suggestions
        self._callbacks = callbacks
        self._log = log
        self._identity = identity(spec)
        self._state = state
        self._trials = EncodedTrials(state)
        self._journal = log.journal
        self._cost = log.journal.cost
        period_s = fixed_period_s()
        self._min_records = _MIN_RECORDS if period_s is None else 1
        self._clock = SnapshotClock(time.perf_counter(), period_s)
        self._last_sequence = self._journal.last_sequence
        self._last_search_s = 0.0
        self._writes = BackgroundJobs(
            "tuner-snapshot",
            on_error=lambda error: _log.warning(
                "no snapshot could be written, which makes a restore slower and nothing else: %s",
                error,
            ),
        )
        self._paid_thread_s = 0.0
        self._encoded_at_s = time.perf_counter()
        self._is_off = not state.keeps_state
        if self._is_off:
            _log.debug(
                "no snapshots are taken, since a part of the experiment cannot tell its "
                "state; a restore replays the whole journal"
            )
        self._cost.threads.append(self._writes)

    def take_if_due(self, elapsed_s: float) -> None:
        """Take a snapshot if one is due; called when a turn has been notified and not yet acted on.

        Args:
            elapsed_s: The experiment's running time, in seconds.
        """
        num_records = self._journal.last_sequence - self._last_sequence
        is_slow_search = self._suggestions.search_s - self._last_search_s >= _MUCH_SEARCH_S
        if (
            self._is_off
            or (num_records < self._min_records and not is_slow_search)
            or self._writes.num_outstanding
        ):
            return
        thread_s = self._writes.cpu_s
        if thread_s > self._paid_thread_s:
            # What the thread has computed for the last snapshot delays the next one as well.
            unpaid_s, self._paid_thread_s = thread_s - self._paid_thread_s, thread_s
            self._clock.worked(self._encoded_at_s, self._encoded_at_s + unpaid_s)
        now_s = time.perf_counter()
        is_urgent = num_records >= _MANY_RECORDS or is_slow_search
        if (
            self._clock.is_due(now_s) or (is_urgent and self._clock.is_affordable(now_s))
        ) and self._is_searcher_idle():
            self._take(elapsed_s, is_last=False)

    def take_last(self, elapsed_s: float) -> None:
        """Take a last snapshot, at the end or at an interrupt, and wait until it is written."""
        self._writes.wait()
        if (
            not self._is_off
            and self._journal.last_sequence > self._last_sequence
            and self._is_searcher_idle()
        ):
            self._take(elapsed_s, is_last=True)
            self._writes.wait()

    def close(self) -> None:
        """End the thread; does not wait for a snapshot that it may be writing."""
        self._writes.close(0.0)

    def _is_searcher_idle(self) -> bool:
        # Its state has to be the one after the last record. While it computes a suggestion, it is
        # not, and a later turn takes the snapshot.
        return not self._suggestions.is_answering and self._suggestions.settle(_SETTLE_S)

    def _take(self, elapsed_s: float, *, is_last: bool) -> None:
        started_s = time.perf_counter()
        # Where thousands of trials have ended since the last snapshot, they are encoded over
        # several turns, so that reports do not wait for all of them.
        if not self._trials.encode_finished(None if is_last else _MAX_ENCODED_AT_ONCE):
            ended_s = self._charge_loop(started_s)
            self._cost.take_pause(ended_s - started_s)
            self._clock.worked(started_s, ended_s)
            return
        self._charge_loop(started_s)
        try:
            parts, trials = self._encode(elapsed_s)
        except StorageError as error:
            _log.warning(
                "no snapshot could be taken, which makes a restore slower and nothing else: %s",
                error,
            )
            return
        finally:
            ended_s = time.perf_counter()
            self._cost.take_pause(ended_s - started_s)
            self._clock.saved(started_s, ended_s)
            self._encoded_at_s = ended_s
        self._cost.num_snapshots += 1
        self._cost.num_bytes += len(parts) + sum(map(len, trials))
        self._writes.submit(partial(self._write, parts, trials, self._last_sequence))

    def _encode(self, elapsed_s: float) -> tuple[bytes, list[bytes]]:
        """Return the JSON of all but the trials, and that of each trial."""
        self._log.settle()
        started_s = time.perf_counter()
        trials = self._trials.encode_all()
        parts = {
            **self._state.state_dict(),
            "callbacks": self._callbacks.get_state(),
            "identity": self._identity,
            "elapsed_s": elapsed_s,
        }
        encoded = strict_json.to_bytes(parts, strict_json.opaque)
        self._charge_loop(started_s)
        # A snapshot on disk must not be ahead of the journal: after a power cut the records that it
        # contains would be missing, and a restore would refuse the experiment.
        self._journal.sync()
        self._last_sequence = self._journal.last_sequence
        self._last_search_s = self._suggestions.search_s
        if self._journal.segment_bytes >= _SEGMENT_BYTES:
            self._journal.rotate()
        return encoded, trials

    def _charge_loop(self, started_s: float) -> float:
        """Charge the driver's loop with the time since then, and return the time now.

        The time of the journal's own calls is not in it; the journal accounts for that itself.
        """
        now_s = time.perf_counter()
        self._cost.loop_s += now_s - started_s
        return now_s

    def _write(self, parts: bytes, trials: list[bytes], sequence: int) -> None:
        text = [parts[:-1], b',"trials":[', b",".join(trials), b"]}"]
        write_parts(self._directory, text, sequence)


@final
class EncodedTrials:
    """The JSON text of every trial, kept where it cannot have changed.

    So a snapshot costs what has changed since the last one, not what there is.

    Args:
        state: The experiment.
    """

    def __init__(self, state: ExperimentState) -> None:
        self._state = state
        self._texts: list[bytes] = []
        """By the trial's number; that of one which may change is replaced by `encode_all`."""
        self._changeable: list[int] = []
        """Numbers of the trials that may still change."""
        self._finished: dict[int, tuple[_Version, bytes]] = {}
        """Texts of finished trials that may still change, with what they were encoded from."""

    def encode_finished(self, limit: int | None) -> bool:
        """Encode finished trials whose text is not known.

        Args:
            limit: How many to encode at most; None for all.

        Returns:
            Whether none is left.
        """
        trials = self._state.experiment.trials
        self._changeable += range(len(self._texts), len(trials))
        self._texts += [b""] * (len(trials) - len(self._texts))
        num_encoded = 0
        for number in self._changeable:
            trial = trials[number]
            # Until its validations have ended, a finished trial changes like one that runs.
            is_over = trial.is_finished and not trial.has_open_validation
            if is_over and self._known(number, trial) is None:
                if num_encoded == limit:
                    return False
                num_encoded += 1
                self._finished[number] = _version(trial), self._state.trial_json(trial)
        return True

    def encode_all(self) -> list[bytes]:
        """Return the texts of all trials, after `encode_finished` has returned True."""
        trials = self._state.experiment.trials
        still_changeable = []
        for number in self._changeable:
            trial = trials[number]
            self._texts[number] = self._known(number, trial) or self._state.trial_json(trial)
            if _is_settled(trial):
                self._finished.pop(number, None)
            else:
                still_changeable.append(number)
        self._changeable = still_changeable
        return self._texts.copy()

    def _known(self, number: int, trial: Trial) -> bytes | None:
        version, text = self._finished.get(number, (None, None))
        is_known = version == _version(trial) and not trial.has_open_validation
        return text if is_known else None


_Version = tuple[int, tuple[tuple[str, int], ...], int | None]


def _version(trial: Trial) -> _Version:
    """Return what may still change of a finished trial: its checkpoints and who leases them."""
    return (
        len(trial.checkpoints),
        tuple(trial.leases.items()),
        trial.graft.checkpoint.index if trial.graft else None,
    )


def _is_settled(trial: Trial) -> bool:
    """Return whether a trial can no longer change: it has ended, without checkpoint or lease."""
    return (
        trial.is_finished
        and not trial.checkpoints
        and not trial.leases
        and not trial.has_open_validation
        and trial.graft is None
    )


def fixed_period_s() -> float | None:
    """Return the seconds between two snapshots that the user asks for, None to adapt to their cost.

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
