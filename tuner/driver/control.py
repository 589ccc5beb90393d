"""Where the user's hand takes hold of a running experiment: wishes come in from everywhere, and reach the fold in the driver's turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, final

from tuner.core import events as ev
from tuner.core.experiment import Experiment
from tuner.core.manual_control import ManualRequest, next_fork_id, with_changes
from tuner.core.trial import Status, Trial, WorkerState
from tuner.restore.search_adapter import Proposer
from tuner.storage.control_requests import Answer, Petition, Verb, Wish

_STOPPING: Final = Answer(
    is_granted=True, text="running trials save and leave; the experiment can be restored"
)
_OWN_THREAD: Final = Answer(
    is_granted=False,
    text="callbacks run in the driver's thread, which cannot wait for itself; ask from another thread",
)
_OVER: Final = Answer(is_granted=False, text="the experiment has come to its end")


class Source(Protocol):
    """Where petitions come from."""

    def take(self) -> Sequence[Petition]:
        """Return those that have come since the last look; called in every turn of the driver."""

    def close(self) -> None:
        """Refuse those that still wait: the experiment is over."""


@final
class Line:
    """Leads from other threads of this process to the driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._petitions: list[Petition] = []
        self._wake: Callable[[], None] | None = None
        self._request_stop: Callable[[ev.StopRequested], None] | None = None
        self._on_open: Callable[[], None] | None = None
        self._driver: int | None = None
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether the driver has begun to listen."""
        return self._wake is not None

    def when_open(self, call: Callable[[], None]) -> None:
        """Have somebody called when the driver begins to listen."""
        self._on_open = call

    def open(
        self, wake: Callable[[], None], request_stop: Callable[[ev.StopRequested], None]
    ) -> None:
        """Begin to listen; called by the thread that will.

        Args:
            wake: Lets the driver look at once.
            request_stop: Stops the experiment, also where the driver is waiting for its storage and cannot look.
        """
        self._driver = threading.get_ident()
        self._request_stop = request_stop
        self._wake = wake
        if self._on_open:
            self._on_open()

    def ask(self, wish: Wish) -> Answer:
        """Ask for something and wait for the answer; before the driver listens, for that as well."""
        if wish.verb is Verb.STOP and self._request_stop and not self._is_closed:
            self._request_stop(ev.StopRequested(ev.USER_STOP, is_urgent=wish.is_urgent))
            return _STOPPING
        if threading.get_ident() == self._driver:
            return _OWN_THREAD
        answered, answers = threading.Event(), [_OVER]

        def take(answer: Answer) -> None:
            answers.append(answer)
            answered.set()

        with self._lock:
            if self._is_closed:
                return _OVER
            self._petitions.append((wish, take))
        if self._wake:
            self._wake()
        answered.wait()
        return answers[-1]

    def take(self) -> Sequence[Petition]:
        """See `Source.take`."""
        if not self._petitions:
            return ()
        with self._lock:
            taken, self._petitions = self._petitions, []
        return taken

    def close(self) -> None:
        """See `Source.close`."""
        with self._lock:
            self._is_closed = True
            left, self._petitions = self._petitions, []
        for _, answer in left:
            answer(_OVER)


@final
class Helm:
    """Turns wishes into events, and tells those who had them what becomes of them.

    Args:
        experiment: The experiment.
        proposer: The searcher's desk, which knows what a trial occupies.
        sources: Where wishes come from.
    """

    def __init__(
        self, experiment: Experiment, proposer: Proposer, sources: Sequence[Source]
    ) -> None:
        self._experiment = experiment
        self._proposer = proposer
        self._sources = sources
        self._waiting: list[Petition] = []
        """Forks of trials that have been asked to save first."""
        self._granted: list[tuple[Callable[[Answer], None], Answer]] = []

    def events(self) -> Iterator[ev.Event]:
        """Yield what follows from the wishes that have come; each is to be folded before the next is looked at."""
        petitions, self._waiting = self._waiting, []
        for source in self._sources:
            petitions += source.take()
        for wish, answer in petitions:
            yield from self._granted_by(wish, answer)

    def confirm(self) -> None:
        """Answer what has been granted, now that it is written down."""
        granted, self._granted = self._granted, []
        for answer, words in granted:
            answer(words)

    def close(self) -> None:
        """Refuse what still waits."""
        self.confirm()
        for _, answer in self._waiting:
            answer(_OVER)
        for source in self._sources:
            source.close()

    def _granted_by(self, wish: Wish, answer: Callable[[Answer], None]) -> Iterator[ev.Event]:
        if wish.verb is Verb.STOP:
            self._granted.append((answer, _STOPPING))
            yield ev.StopRequested(ev.USER_STOP, is_urgent=wish.is_urgent)
            return
        donor = self._experiment.trial_table.find(wish.trial_id)
        if wish.verb is Verb.FORK and donor and self._can_yet_save(donor):
            self._waiting.append((wish, answer))
            if not donor.owes_save and donor.worker is not WorkerState.SAVING:
                yield ev.CheckpointRequested(donor.trial_id)
            return
        try:
            event = self._event_for(wish)
        except Exception as error:  # noqa: BLE001  (the user's resource function)
            answer(
                Answer(
                    is_granted=False,
                    text=f"the resource request of the new trial raised {type(error).__name__}: {error}",
                )
            )
            return
        if why := self._experiment.objection(event):
            answer(Answer(is_granted=False, text=why, trial_id=wish.trial_id))
            return
        yield event
        if isinstance(event, ev.TrialForked):
            self._proposer.disown(event.trial_id, is_awaited=False)
        trial = self._experiment.trial_table[event.trial_id]
        self._granted.append(
            (answer, Answer(is_granted=True, text=_told(event, trial), trial_id=trial.trial_id))
        )

    def _can_yet_save(self, donor: Trial) -> bool:
        can = self._experiment.settings.checkpoints.can_save_on_demand
        return can and donor.status is Status.RUNNING and not donor.checkpoints

    def _event_for(self, wish: Wish) -> ManualRequest:
        match wish.verb:
            case Verb.PAUSE:
                return ev.PauseRequested(wish.trial_id)
            case Verb.RESUME:
                return ev.ResumeRequested(wish.trial_id)
            case Verb.FORK:
                return self._fork(wish)
            case _:
                return ev.TrialStopRequested(wish.trial_id)

    def _fork(self, wish: Wish) -> ev.TrialForked:
        trial_table = self._experiment.trial_table
        donor = trial_table.find(wish.trial_id)
        checkpoint = (
            wish.checkpoint
            if donor is None or wish.checkpoint is not None
            else donor.checkpoint_index
        )
        resources = (
            dict(self._proposer.request_for(with_changes(donor.config, wish.changes)))
            if donor
            else {}
        )
        index = -1 if checkpoint is None else checkpoint  # that no trial has
        return ev.TrialForked(
            next_fork_id(trial_table.num_forked), wish.trial_id, wish.changes, resources, index
        )


def _told(event: ManualRequest, trial: Trial) -> str:
    """Return what happens to a trial whose event has just been folded."""
    name = trial.trial_id
    match event:
        case ev.TrialForked():
            return f"{name} goes on from checkpoint {event.checkpoint} of {event.donor_id}"
        case ev.TrialStopRequested():
            return f"{name} has ended" if trial.is_finished else f"{name} ends with its next report"
        case ev.ResumeRequested():
            return f"{name} goes on"
        case ev.PauseRequested() if trial.status is not Status.RUNNING:
            return f"{name} stays where it is until it is resumed"
        case ev.PauseRequested():
            return f"{name} is paused with its next report, or once it has saved a checkpoint"
