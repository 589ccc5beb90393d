"""Queue of calls to the searcher, which keeps their order and may make them in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import final

from tuner.background import BackgroundJobs
from tuner.core.commands import Notice
from tuner.core.events import SearchEnded, SuggestionPostponed
from tuner.restore.search_adapter import Answer, Call, SearchAdapter

_LEAVE_S = 0.1
"""How long a thread without work may take to end."""
_PROMPT_S = 0.002
"""How long the driver waits for the answers to what it has just asked; most searchers take less."""


@final
class SuggestionQueue:
    """Asks the searcher for configurations and notifies it, in an order that a replay can repeat.

    Only one batch of questions is under way at a time. Meanwhile notices and new questions wait.
    When all answers of the batch have been taken, the end of that turn passes the waiting notices
    to the searcher and then asks the next batch. The journal records when questions were asked and
    answered, so a replay repeats the order, however long an answer took (`tuner.restore`).

    The methods are called by the driver's thread only.

    Args:
        search_adapter: Adapter of the searcher.
        jobs: Makes the calls, one at a time; None to make them at once.
        wake: Called from the thread of the calls when answers can be taken; None where they are
            there at once.

    Attributes:
        search_adapter: See above.
        is_answering: Whether answers are still to be taken.
        search_s: Time that the searcher has taken for its suggestions, in seconds.
    """

    def __init__(
        self,
        search_adapter: SearchAdapter,
        jobs: BackgroundJobs | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.search_adapter = search_adapter
        self._jobs = jobs or BackgroundJobs("tuner-searcher", num_threads=0)
        self._wake = wake
        self._pending_calls: list[Call] = []
        self._waiting: list[str] = []
        self._arrived: deque[tuple[list[Answer], bool]] = deque()
        """Answers that were given and not yet taken, each time with whether they are the last ones
        of the batch."""
        self._error: BaseException | None = None
        self._is_withdrawn = self._is_closed = False
        self.is_answering = False
        """Whether answers are still to be taken."""
        self.search_s = 0.0
        """Time that the searcher has taken for its suggestions, in seconds."""

    def notify(self, notice: Notice) -> None:
        """Pass a notice to the searcher at the end of the turn, or when it has answered."""
        if call := self.search_adapter.call_for(notice):
            self._pending_calls.append(call)

    def ask(self, trial_ids: list[str]) -> Sequence[Answer]:
        """End a turn: notify the searcher, then ask it; return the answers so far.

        Args:
            trial_ids: The trials for which a configuration is wanted; empty where the turn has
                asked for none.

        Raises:
            BaseException: What the searcher raised.
        """
        self._waiting += trial_ids
        if not self.is_answering:
            self._deliver()
            if self._waiting:
                batch, self._waiting = self._waiting, []
                self.is_answering = True
                self._jobs.submit(partial(self._guarded, partial(self._answer, batch)))
                self._jobs.wait(_PROMPT_S)
        return self.take()

    def take(self) -> Sequence[Answer]:
        """Return the answers that have come since the last look.

        Raises:
            BaseException: What the searcher raised.
        """
        if self._error is not None:
            raise self._error
        answers: list[Answer] = []
        while self._arrived:
            arrived, is_last = self._arrived.popleft()
            answers += arrived
            self.is_answering = not is_last
        if answers and _is_refusal(answers[-1]):
            # The questions that have come since get the same answer: the core asks for a postponed
            # trial again under its id, so no question for a later id may remain.
            waiting, self._waiting = self._waiting, []
            answers += _refusals(answers[-1], waiting)
        return answers

    def settle(self, timeout_s: float | None) -> bool:
        """Notify the searcher of everything, and wait until it is idle.

        Returns:
            Whether it is: it has made all calls, and no answer is left to be taken.

        Args:
            timeout_s: How long to wait at most, in seconds; None for as long as it takes.

        Raises:
            BaseException: What the searcher raised.
        """
        if not self.is_answering:
            self._deliver()
        is_done = self._jobs.wait(timeout_s)
        if self._error is not None:
            raise self._error
        return is_done and not self.is_answering

    def withdraw(self) -> None:
        """Ask nothing more, since the experiment stops; a suggestion under way may be taken."""
        self._is_withdrawn = True
        self._waiting.clear()

    def close(self) -> bool:
        """Make no further call; return whether the searcher is still computing a suggestion."""
        self._is_closed = self._is_withdrawn = True
        return not self._jobs.close(_LEAVE_S, drops_queued=True)

    def _deliver(self) -> None:
        if self._pending_calls:
            calls, self._pending_calls = self._pending_calls, []
            self._jobs.submit(partial(self._guarded, partial(_make, calls)))

    def _guarded(self, call: Call) -> None:
        """Make a call unless an earlier one has failed; keep its error for the driver's thread."""
        if self._error is not None or self._is_closed:
            return
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (raised again where the driver looks)
            self._error = error
            self._wake_driver()

    def _answer(self, trial_ids: Sequence[str]) -> None:
        """Ask for one trial after the other, until the searcher has nothing to propose."""
        for place, trial_id in enumerate(trial_ids, start=1):
            began_s = perf_counter()
            answers = [self.search_adapter.ask(trial_id)]
            self.search_s += perf_counter() - began_s
            if _is_refusal(answers[0]):
                answers += _refusals(answers[0], trial_ids[place:])
            is_last = place - 1 + len(answers) == len(trial_ids) or self._is_withdrawn
            # In one piece: refused ids are given out again together, and the last answer ends the
            # batch in the turn that takes it.
            self._arrived.append((answers, is_last))
            self._wake_driver()
            if is_last:
                return

    def _wake_driver(self) -> None:
        if self._wake and not self._is_closed:
            self._wake()


def _is_refusal(answer: Answer) -> bool:
    return isinstance(answer, SuggestionPostponed | SearchEnded)


def _refusals(answer: Answer, trial_ids: Sequence[str]) -> list[Answer]:
    return [
        SuggestionPostponed(trial_id) if isinstance(answer, SuggestionPostponed) else answer
        for trial_id in trial_ids
    ]


def _make(calls: Sequence[Call]) -> None:
    for call in calls:
        call()
