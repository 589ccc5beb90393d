"""Causes of failures: grouping by cause, retries, and stopping for a common cause."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, final

from schedulers.decisions import Reason
from tuner.errors import trial_failed
from tuner.wire.record import record

from .trial import Status, Trial
from .worker_records import STORAGE_FAILED, STORAGE_FULL, Failure, place_in

NO_NODE: Final = "no_node"
"""Rule for which an experiment ends when no node has joined on which anything can run."""

COMMON_FAILURE: Final = "common_failure"
"""Rule for which an experiment ends when many trials fail for one cause and none gets farther."""
CHECKPOINT_LOST: Final = "CheckpointLost"
"""Kind of the failure of an attempt that found the checkpoint damaged that it was to start from."""
WORKER_LOST: Final = "WorkerLost"
"""Kind of the failure of a trial whose worker was lost too often."""
_MAX_STORAGE_RETRIES: Final = 8
"""How often in a row an attempt is retried whose disk has failed otherwise than by being full, with
the pauses between retries within about a minute."""

_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_ANY_NUMBER: Final = "#"
"""Stands for every number in the message of a cause, so that messages that differ only in their
numbers are the same cause."""


@record
class Cause:
    """What identifies failures that have the same cause.

    Attributes:
        kind: The exception's class, or what happened to the process.
        place: Where in the user's code, e.g. ``"train.py:12 in train"``; the message without its
            numbers where that is not known.
        is_exception: Whether it was an exception that was raised there.
    """

    kind: str
    place: str
    is_exception: bool = True

    def __str__(self) -> str:
        """Return both in one line."""
        joint = " at " if self.is_exception else ": "
        return f"{self.kind}{joint}{self.place}" if self.place else self.kind


@functools.lru_cache(maxsize=1024)
def cause_of(failure: Failure) -> Cause:
    r"""Return the cause of a failure.

    The same exception at the same line of the user's code is the same cause, whatever its message.

    Example:
        >>> lines = ['  File "/home/me/train.py", line 12, in train', "    x", "KeyError: 3"]
        >>> traceback = "\n".join(["Traceback (most recent call last):", *lines])
        >>> str(cause_of(Failure("KeyError", "3", traceback)))
        'KeyError at train.py:12 in train'
    """
    place = failure.place or place_in(failure.traceback)
    return (
        Cause(failure.kind, place)
        if place
        else Cause(failure.kind, _NUMBER.sub(_ANY_NUMBER, failure.message), is_exception=False)
    )


def storage_fault(failure: Failure) -> str:
    """Return `STORAGE_FULL` or `STORAGE_FAILED` if the storage is at fault; empty if it is not.

    Of a group, one worker is enough: the others fail since it is gone.
    """
    names = {*failure.bases, *(name for _, own in failure.ranks for name in own.bases)}
    return next((fault for fault in (STORAGE_FULL, STORAGE_FAILED) if fault in names), "")


def by_cause(failed: Iterable[Trial]) -> dict[Cause | None, list[Trial]]:
    """Return trials by the cause of their latest failure, None for no failure.

    Causes are in the order of their first trials.
    """
    groups: dict[Cause | None, list[Trial]] = {}
    for trial in failed:
        groups.setdefault(cause_of(trial.failures[-1]) if trial.failures else None, []).append(
            trial
        )
    return groups


@record
class RetryPolicy:
    """Which failures are worth a retry.

    Exceptions are named by their classes, which stand for derived classes as well.

    Attributes:
        max_failures: How often each trial is tried again; -1 for no limit.
        retry_on: What is worth all these retries, even if it happens again and again at the same
            place.
        no_retry_on: What is worth none. Of several classes that fit, the one nearest to the
            exception's own counts.
        max_identical_failures: After how many times the same exception at the same place without
            progress in between a trial is given up, although it has retries left; None for no such
            limit. A process that was killed is not given up for that.
    """

    max_failures: int = 0
    retry_on: Sequence[str] = ()
    no_retry_on: Sequence[str] = ()
    max_identical_failures: int | None = None

    def is_excused(self, trial: Trial) -> bool:
        """Return whether the latest failed attempt is the storage's fault, and does not count.

        A full disk is waited for without a limit, as the journal does.
        """
        fault = storage_fault(trial.failures[-1]) if trial.failures else ""
        return fault == STORAGE_FULL or (
            fault == STORAGE_FAILED and trial.num_vain_attempts < _MAX_STORAGE_RETRIES
        )

    def objection(self, trial: Trial) -> str:
        """Return why a failed attempt is not retried although retries are left; empty if it is."""
        failure = trial.failures[-1] if trial.failures else None
        if failure is None:
            return ""
        for name in (failure.kind, *failure.bases):
            if name in self.retry_on:
                return ""
            if name in self.no_retry_on:
                return (
                    f"a {failure.kind} is not worth a retry; "
                    f"FailureConfig(retry_on=[{name!r}]) has it tried again"
                )
        cause, num = cause_of(failure), self._num_identical(trial)
        if (
            self.max_identical_failures is None
            or num < self.max_identical_failures
            or not cause.is_exception
        ):
            return ""
        return (
            f"it has failed {num} times in a row with {cause}, without any progress in between; "
            f"FailureConfig(max_identical_failures=None), or retry_on=[{failure.kind!r}], has "
            "it tried again as often as max_failures says"
        )

    def why_given_up(self, trial: Trial) -> str:
        """Return why a trial in ERROR was not retried; empty for other trials or if not known."""
        is_lost = bool(trial.failures) and trial.failures[-1].kind == WORKER_LOST
        if trial.status is not Status.ERROR or not trial.failures or is_lost:
            return ""
        if not self.max_failures:
            return "FailureConfig(max_failures=0) allows no retry"
        if 0 < self.max_failures < trial.num_failures:
            return (
                f"all retries that FailureConfig(max_failures={self.max_failures}) allows are used"
            )
        return self.objection(trial)

    def has_retries_left(self, trial: Trial) -> bool:
        """Return whether a trial whose attempt has just failed may be retried."""
        return not 0 <= self.max_failures <= trial.num_failures

    def _num_identical(self, trial: Trial) -> int:
        """Return how many of the latest failures have one cause, without progress in between."""
        latest, *earlier = reversed(trial.failures[-trial.num_vain_attempts - 1 :])
        cause, num = cause_of(latest), 1
        for failure in earlier:
            if cause_of(failure) != cause:
                break
            num += 1
        return num


@dataclass(slots=True)
class _Group:
    """Trials that have failed for one cause."""

    num: int
    farthest: int
    trial_id: str


@final
class FailureTally:
    """Counts the trials that one session has given up, by cause.

    At the limit nothing new is started until one of the trials that run has succeeded or got
    farther, or none runs any more: they may just not have reported yet.

    Args:
        limit: How many trials may fail for one cause as long as nothing succeeds; None for no
            limit.
        trials: The trials of earlier sessions.
    """

    def __init__(self, limit: int | None, trials: Iterable[Trial] = ()) -> None:
        self._limit = limit
        self._groups: dict[Cause, _Group] = {}
        self._frequent: list[Cause] = []
        """Causes that have reached the limit: hardly ever any, and this is asked in each turn."""
        unfailed = (trial for trial in trials if trial.status is not Status.ERROR)
        self._farthest = max((trial.farthest_iteration for trial in unfailed), default=0)

    def on_progress(self, iteration: int) -> bool:
        """Record a reported iteration; return whether trials may start again because of it."""
        if iteration <= self._farthest:
            return False
        was_in_doubt = bool(self._frequent) and self.suspected(0) is not None
        self._farthest = iteration
        return was_in_doubt and self.suspected(0) is None

    def add(self, trial: Trial) -> bool:
        """Count a trial that has failed for good; return whether its cause reaches the limit."""
        cause = cause_of(trial.failures[-1])
        group = self._groups.setdefault(cause, _Group(0, 0, trial.trial_id))
        group.num += 1
        group.farthest = max(group.farthest, trial.farthest_iteration)
        if group.num == self._limit:
            self._frequent.append(cause)
        return group.num == self._limit

    def suspected(self, num_succeeded: int) -> Reason | None:
        """Return why the experiment has to end once no trial runs any more, None if it has not.

        Args:
            num_succeeded: How many trials have completed or were stopped early. A trial that has
                got beyond the iteration at which the others failed counts as well.
        """
        for cause in self._frequent:
            group = self._groups[cause]
            if not num_succeeded and self._farthest <= group.farthest:
                return Reason(
                    COMMON_FAILURE,
                    {"cause": str(cause), "num_failures": group.num, "trial_id": group.trial_id},
                )
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        groups = [[*astuple(cause), *astuple(group)] for cause, group in self._groups.items()]
        return {"groups": groups, "farthest": self._farthest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._groups = {Cause(*fields[:3]): _Group(*fields[3:]) for fields in state["groups"]}
        self._frequent = [
            cause
            for cause, group in self._groups.items()
            if self._limit is not None and group.num >= self._limit
        ]
        self._farthest = state["farthest"]


def common_failure(reason: Reason) -> str:
    """Return the sentence for what `FailureTally.suspected` has returned, once it has come true.

    Example:
        >>> numbers = {"cause": "KeyError at train.py:12", "num_failures": 5, "trial_id": "t00000"}
        >>> common_failure(Reason(COMMON_FAILURE, numbers))
        '5 trials failed with KeyError at train.py:12, t00000 first, and none has got any farther'
    """
    return f"{_trials_that_failed(reason)}, and none has got any farther"


def possible_common_failure(reason: Reason) -> str:
    """Return the sentence for what `FailureTally.suspected` returned while other trials still run.

    Example:
        >>> numbers = {"cause": "KeyError", "num_failures": 5, "trial_id": "t00000"}
        >>> possible_common_failure(Reason(COMMON_FAILURE, numbers)).partition("; ")[0]
        '5 trials failed with KeyError, t00000 first'
    """
    return (
        f"{_trials_that_failed(reason)}; "
        "no other is started until one of those that run gets farther or all have ended"
    )


def _trials_that_failed(reason: Reason) -> str:
    numbers = reason.numbers
    cause = _without_placeholders(str(numbers["cause"]))
    return f"{numbers['num_failures']} trials failed with {cause}, {numbers['trial_id']} first"


def _without_placeholders(cause: str) -> str:
    """Return a recorded cause without the clauses of its message that have placeholders.

    If every clause has one, the placeholders are shown as dots.

    Example:
        >>> _without_placeholders("killed by SIGKILL: memory ran out; its peak was # MiB")
        'killed by SIGKILL: memory ran out'
    """
    # The journal has the cause with placeholders, since its format is fixed; they are removed here.
    kind, _, message = cause.partition(": ")
    known = [clause for clause in message.split("; ") if _ANY_NUMBER not in clause]
    return f"{kind}: {'; '.join(known)}" if any(known) else cause.replace(_ANY_NUMBER, "...")


def lost_too_often(losses: Sequence[tuple[int, str]], *, is_validation: bool = False) -> Failure:
    """Return the failure of a trial whose worker was lost too often.

    Args:
        losses: The attempts and why each was lost, see `Trial.losses`.
        is_validation: Whether it is a validation, and these are its tries.

    Example:
        >>> lost_too_often([(2, "node b is gone"), (3, "node c is gone")]).message.split("; ")[0]
        'lost 2 times in a row without a new result, in attempts 2 and 3: node b is gone'
    """
    *earlier, latest = [str(attempt) for attempt, _ in losses]
    one, several = ("try", "tries") if is_validation else ("attempt", "attempts")
    attempts = f"{several} {', '.join(earlier)} and {latest}" if earlier else f"{one} {latest}"
    times = f"{len(losses)} times in a row" if earlier else "once"
    when, who = ("", "the validation") if is_validation else (" without a new result", "the trial")
    reasons = "; ".join(dict.fromkeys(why for _, why in losses))
    return Failure(
        WORKER_LOST,
        f"lost {times}{when}, in {attempts}: {reasons}; see whether {who} ends what it runs on, "
        "for example by using up its memory",
    )


def errors_by_rank(failure: Failure) -> dict[int, Exception]:
    """Return the error of each worker that failed, by its rank, the one to blame first.

    Args:
        failure: Of an attempt; that of a single process counts as rank 0's.

    Example:
        >>> group = Failure("ValueError", "rank 1: no data", ranks=(
        ...     (1, Failure("ValueError", "no data")), (0, Failure("killed by SIGKILL", ""))
        ... ))
        >>> errors_by_rank(group)
        {1: TrialFailed('ValueError: no data'), 0: TrialFailed('killed by SIGKILL')}
        >>> isinstance(errors_by_rank(group)[1], ValueError)
        True
    """
    return {
        rank: trial_failed(str(own), (own.kind, *own.bases))
        for rank, own in failure.ranks or ((0, failure),)
    }
