"""Control requests of the user to a running experiment: stop, pause, resume and fork trials.

Requests come from other threads and other processes; the driver takes them in each of its turns and
turns them into events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, final

from tuner.core import events as ev
from tuner.core.experiment import Experiment
from tuner.core.trial import Status, Trial, WorkerState
from tuner.restore.search_adapter import SearchAdapter
from tuner.storage.control_requests import ControlReply, ControlRequest, PendingRequest, Verb

_STOPPING: Final = ControlReply(
    is_granted=True, text="running trials save and leave; the experiment can be restored"
)
_OWN_THREAD: Final = ControlReply(
    is_granted=False,
    text="callbacks run in the driver's thread, which cannot wait for itself; send the request "
    "from another thread",
)
_OVER: Final = ControlReply(is_granted=False, text="the experiment has ended")


class Source(Protocol):
    """A source of control requests."""

    def take(self) -> Sequence[PendingRequest]:
        """Return the requests that have come since the last call; called in every turn."""

    def close(self) -> None:
        """Refuse the requests that still wait, since the experiment is over."""


@final
class RequestQueue:
    """Takes control requests from other threads of this process to the driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[PendingRequest] = []
        self._wake: Callable[[], None] | None = None
        self._request_stop: Callable[[ev.StopRequested], None] | None = None
        self._on_open: Callable[[], None] | None = None
        self._driver: int | None = None
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether the driver takes requests yet."""
        return self._wake is not None

    def when_open(self, call: Callable[[], None]) -> None:
        """Call a function when the driver begins to take requests."""
        self._on_open = call

    def open(
        self, wake: Callable[[], None], request_stop: Callable[[ev.StopRequested], None]
    ) -> None:
        """Begin to take requests; called in the driver's thread.

        Args:
            wake: Has the driver take the requests at once.
            request_stop: Stops the experiment, even while the driver retries writes and takes no
                requests.
        """
        self._driver = threading.get_ident()
        self._request_stop = request_stop
        self._wake = wake
        if self._on_open:
            self._on_open()

    def ask(self, request: ControlRequest) -> ControlReply:
        """Send a request and wait for the reply, also before the driver takes requests."""
        # At once and not in the driver's next turn, which does not come while it retries a write.
        if request.verb is Verb.STOP and self._request_stop and not self._is_closed:
            self._request_stop(ev.StopRequested(ev.USER_STOP, is_urgent=request.is_urgent))
            return _STOPPING
        if threading.get_ident() == self._driver:
            return _OWN_THREAD
        answered, answers = threading.Event(), [_OVER]

        def take(answer: ControlReply) -> None:
            answers.append(answer)
            answered.set()

        with self._lock:
            if self._is_closed:
                return _OVER
            self._pending.append((request, take))
        if self._wake:
            self._wake()
        answered.wait()
        return answers[-1]

    def take(self) -> Sequence[PendingRequest]:
        # Without the lock, since this is called in every turn; a request that comes now wakes the
        # driver for another one.
        if not self._pending:
            return ()
        with self._lock:
            taken, self._pending = self._pending, []
        return taken

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            left, self._pending = self._pending, []
        for _, answer in left:
            answer(_OVER)


@final
class RequestHandler:
    """Turns control requests into events, and replies to them.

    Args:
        experiment: The experiment.
        search_adapter: Adapter of the searcher, which knows the resources of a trial.
        sources: Where requests come from.
    """

    def __init__(
        self, experiment: Experiment, search_adapter: SearchAdapter, sources: Sequence[Source]
    ) -> None:
        self._experiment = experiment
        self._search_adapter = search_adapter
        self._sources = sources
        self._waiting: list[PendingRequest] = []
        """Requests to fork trials that have been asked to save a checkpoint first."""
        self._granted: list[tuple[Callable[[ControlReply], None], ControlReply]] = []

    def events(self) -> Iterator[ev.Event]:
        """Yield the events of the requests that have come; fold each before taking the next."""
        pending, self._waiting = self._waiting, []
        for source in self._sources:
            pending += source.take()
        for request, answer in pending:
            yield from self._events_of(request, answer)

    def confirm(self) -> None:
        """Reply to what has been granted, now that it is in the journal."""
        granted, self._granted = self._granted, []
        for answer, reply in granted:
            answer(reply)

    def close(self) -> None:
        """Refuse the requests that still wait."""
        self.confirm()
        for _, answer in self._waiting:
            answer(_OVER)
        for source in self._sources:
            source.close()

    def _events_of(
        self, request: ControlRequest, answer: Callable[[ControlReply], None]
    ) -> Iterator[ev.Event]:
        if request.verb is Verb.STOP:
            self._granted.append((answer, _STOPPING))
            yield ev.StopRequested(ev.USER_STOP, is_urgent=request.is_urgent)
            return
        donor = self._experiment.trial_table.find(request.trial_id)
        if request.verb is Verb.FORK and donor and self._can_yet_save(donor):
            self._waiting.append((request, answer))
            if not donor.owes_save and donor.worker is not WorkerState.SAVING:
                yield ev.CheckpointRequested(donor.trial_id)
            return
        try:
            event = self._event_of(request)
        except Exception as error:  # noqa: BLE001  (the user's resource function)
            answer(
                ControlReply(
                    is_granted=False,
                    text=f"the resource request of the new trial raised {type(error).__name__}: "
                    f"{error}",
                )
            )
            return
        if why := self._experiment.why_rejected(event):
            answer(ControlReply(is_granted=False, text=why, trial_id=request.trial_id))
            return
        yield event
        if isinstance(event, ev.TrialForked):
            self._search_adapter.exclude(event.trial_id, is_awaited=False)
        trial = self._experiment.trial_table[event.trial_id]
        self._granted.append(
            (
                answer,
                ControlReply(
                    is_granted=True, text=_reply_to(event, trial), trial_id=trial.trial_id
                ),
            )
        )

    def _can_yet_save(self, donor: Trial) -> bool:
        can = self._experiment.settings.checkpoints.can_save_on_demand
        return can and donor.status is Status.RUNNING and not donor.has_checkpoint

    def _event_of(self, request: ControlRequest) -> ev.ManualRequest:
        match request.verb:
            case Verb.PAUSE:
                return ev.PauseRequested(request.trial_id)
            case Verb.RESUME:
                return ev.ResumeRequested(request.trial_id)
            case Verb.FORK:
                return self._fork(request)
            case _:
                return ev.TrialStopRequested(request.trial_id)

    def _fork(self, request: ControlRequest) -> ev.TrialForked:
        from tuner.core.manual_control import next_fork_id, with_changes  # noqa: PLC0415  (rare)

        trial_table = self._experiment.trial_table
        donor = trial_table.find(request.trial_id)
        # Not the one that schedulers see, which may be older.
        latest = donor.latest_checkpoint if donor else None
        checkpoint = request.checkpoint
        if checkpoint is None and latest:
            checkpoint = latest.index
        config = with_changes(donor.config, request.changes) if donor else {}
        index = -1 if checkpoint is None else checkpoint  # no checkpoint has the index -1
        return ev.TrialForked(
            next_fork_id(trial_table.num_forked),
            request.trial_id,
            request.changes,
            dict(self._search_adapter.request_for(config)) if donor else {},
            index,
            self._search_adapter.group_for(config) if donor else None,
            self._search_adapter.labels_for(config) if donor else {},
        )


def _reply_to(event: ev.ManualRequest, trial: Trial) -> str:
    """Return the reply to a granted request, whose event has been folded."""
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
