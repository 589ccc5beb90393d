"""Parts: what capabilities add to the state machine, each of which exists only when it is used.

A search on one machine needs no validations, leases or nodes. Each of these is a `Part`: it is
created by the first event that concerns it, or by a setting, and from then on `Experiment` calls it
where the life of a trial or the end of a turn may matter to it. An experiment that does not use a
capability has no such part, and reads none of its code.

A new capability names its class in `_PARTS`, and the events that are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from schedulers.decisions import Reason
from tuner import capabilities

from .events import (
    CheckpointsRequested,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
)
from .resources import Demand
from .settings import ExperimentSettings
from .trial import Intention, Trial
from .worker_records import CheckpointRecord, Failure

if TYPE_CHECKING:
    from .experiment import Experiment


class Part:
    """A capability's share of the state machine. All that it does not override does nothing.

    Args:
        core: The state machine.
    """

    def __init__(self, core: Experiment) -> None:
        self._core = core

    # ---------------------------------------------------------------- sessions

    def end_processes(self) -> None:
        """Note that no process of the last session is alive; its resources are replaced next."""

    def begin_session(self, settings: ExperimentSettings) -> None:
        """Apply the settings of a new session, whose resources are there."""

    def interrupt(self) -> None:
        """Start nothing more in this session, and end what runs."""

    def add_state(self, fields: dict[str, Any]) -> None:
        """Add the state after a turn, as JSON values, to the snapshot; nothing where it is idle."""

    def load_state(self, fields: Mapping[str, Any]) -> None:
        """Restore what `add_state` has added; the trials are there."""

    def check(self) -> None:
        """Assert every invariant; for tests, since it may look at all trials."""

    # ---------------------------------------------------------------- events and turns

    def handle(self, event: Any) -> None:
        """Apply one of its own events."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is under way that the end of the experiment has to wait for."""
        return True

    @property
    def next_s(self) -> float | None:
        """Experiment time at which it wants a turn without any event; None for never."""
        return None

    @property
    def is_stuck(self) -> bool:
        """Whether something is awaited from outside before anything can run."""
        return False

    def on_time(self) -> None:
        """Give up what has taken too long, before trials are looked at."""

    def on_scheduled(self) -> None:
        """Look at what waits, after free slots have been filled."""

    def take_remarks(self) -> Sequence[str]:
        """Return what the user has to know after this turn, each once."""
        return ()

    def claim(self) -> None:
        """Take the resources for what it wants to start in this turn, before trials do."""

    def reserve(self) -> None:
        """Keep trials from taking what it waits for."""

    def answer(self) -> None:
        """Answer what waits for it, after the reports have been answered."""

    def resolve_deadlock(self) -> None:
        """Let something go on if all processes wait for each other."""

    def on_turn_ended(self) -> None:
        """Take notice of what has started and ended in the turn."""

    def reason_to_end(self, own: Reason | None) -> Reason | None:
        """Return why continuing makes no sense.

        Args:
            own: The reason that the metric is one, as far as others know.
        """
        return own

    @property
    def progress(self) -> Mapping[str, Any]:
        """Fields of `Progress` that it knows."""
        return {}

    # ---------------------------------------------------------------- processes

    @property
    def processes(self) -> Sequence[LeaseOwner]:
        """Its processes, beside the workers of trials."""
        return ()

    @property
    def unbooked(self) -> Mapping[str, float]:
        """What they occupy beside what `TrialTable.nodes` has granted."""
        return {}

    @property
    def blocked(self) -> set[LeaseOwner]:
        """Processes that wait for what another process has to bring about."""
        return set()

    @property
    def stuck(self) -> set[LeaseOwner]:
        """Processes that wait for resources."""
        return set()

    def end_process(self, owner: LeaseOwner) -> None:
        """Free what a process held that is gone."""

    def suspend_time_limit(self, owner: LeaseOwner) -> None:
        """Stop the time limit of a process that waits for resources, for which it is not slow."""

    def resume_time_limit(self, owner: LeaseOwner) -> None:
        """Let a time limit run on that was suspended; no effect on others."""

    def on_node_lost(self, name: str, failure: Failure) -> None:
        """End its processes on a node that is gone."""

    @property
    def shortage(self) -> str:
        """Why no node that is present could run what it wants to start; empty if one could."""
        return ""

    def give_up_waiting(self, why: str) -> None:
        """Fail what it wants to start, since no node has joined that could run it."""

    def demand(self, limit: int) -> tuple[Demand, int]:
        """Return what each process asks for that it would start if there were room, and how many.

        Args:
            limit: How far to count.
        """
        return Demand({}), 0

    # ---------------------------------------------------------------- trials

    def on_result(self, trial: Trial, event: ResultReported, flat: Mapping[str, Any]) -> bool:
        """Note what it needs of a result; return whether that may yet get a metric it lacks."""
        return False

    def may_be_judged(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """Return whether the scheduler is asked about a result that has just been recorded."""
        return True

    def holds_report(self, trial: Trial) -> bool:
        """Return whether a report is answered in a later turn only."""
        return False

    def before_checkpoint(self, trial: Trial, checkpoint: CheckpointRecord) -> None:
        """Take notice of a checkpoint that has been stored, before retention is applied."""

    def on_checkpoint(self, trial: Trial, recorded: CheckpointRecord) -> None:
        """Take notice of a checkpoint that has been recorded."""

    def on_checkpoint_lost(self, trial: Trial, index: int, why: str) -> None:
        """Give up what needs a checkpoint that is damaged or gone."""

    def on_attempt_ended(self, trial: Trial) -> None:
        """Forget what was noted of the attempt that has ended."""

    def on_unpaused(self, trial: Trial, intention: Intention) -> None:
        """Take notice of a pause that failed, so that the trial is started again."""

    def on_resumed(self, trial: Trial) -> None:
        """Take notice that the scheduler has resumed a trial."""

    def is_loss_known(self, trial: Trial, outcome: Outcome) -> bool:
        """Return whether the end of a worker follows from a loss that has been counted."""
        return False

    def is_being_killed(self, trial: Trial) -> bool:
        """Return whether what is left of a trial's worker is being killed already."""
        return False

    def holds_end(self, trial: Trial) -> bool:
        """Return whether the end of a trial is announced later, by `Experiment.announce_end`."""
        return False

    def on_ended(self, trial: Trial) -> bool:
        """Settle what is open about a trial whose end is announced next.

        Returns:
            Whether a trial without the metric is one that has not reported it.
        """
        return True

    def on_restarted(self, trial: Trial) -> None:
        """Forget a trial's past, since it starts from the beginning."""

    def on_readmitted(self, trial: Trial) -> None:
        """Take up what a restart of the driver has left open about a trial."""


class _Place(NamedTuple):
    """Where a part is defined, and when it is needed.

    Attributes:
        key: Its key in a snapshot.
        name: Its class in `tuner.capabilities`.
        events: The events that are its own; the first one creates it.
        is_declared: Returns whether settings ask for it; None if none do.
        concerns: Returns whether a trial has something that it has to know; None if none has.
    """

    key: str
    name: str
    events: tuple[type, ...]
    is_declared: Callable[[ExperimentSettings], bool] | None = None
    concerns: Callable[[Trial], bool] | None = None


_PARTS: Final = (
    _Place("leases", "Leases", (LeaseRequested, LeaseReleased)),
    _Place(
        "node_waits",
        "NodeEvents",
        (NodeJoined, NodeDraining, NodeLeft),
        lambda settings: settings.node_wait_s is not None,
    ),
    _Place(
        "validations",
        "Validations",
        (ValidationEnded, CheckpointsRequested),
        lambda settings: settings.validation is not None,
        lambda trial: bool(trial.group or trial.validation_part),
    ),
    _Place("budgets", "Budgets", (), lambda settings: bool(settings.budget)),
)
"""In the order in which they take resources, and then learn of reasons to end."""
_PLACE_OF_EVENT: Final = {event: place for place in _PARTS for event in place.events}


@final
class Parts(list[Part]):
    """The parts of an experiment that exist, in the order of `_PARTS`; mostly there is none.

    Args:
        core: The state machine.
    """

    def __init__(self, core: Experiment) -> None:
        super().__init__()
        self._core = core
        self._by_key: dict[str, Part] = {}

    def begin_session(self, settings: ExperimentSettings) -> None:
        """Apply the settings of a new session."""
        for place in _PARTS:
            if place.is_declared and place.is_declared(settings):
                self._ensure(place)
        for part in self:
            part.begin_session(settings)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what each part has added to a snapshot; the trials are there."""
        for place in _PARTS:
            if place.concerns and any(map(place.concerns, self._core.trial_table.trials)):
                self._ensure(place)
            if place.key in state:
                self._ensure(place).load_state(state)

    def add_state(self, fields: dict[str, Any]) -> None:
        """Add the state after a turn, as JSON values, to a snapshot."""
        for part in reversed(self):
            part.add_state(fields)

    def of_event(self, event: object) -> Part:
        """Return the part that an event belongs to; it is created by the first one."""
        return self._ensure(_PLACE_OF_EVENT[type(event)])

    def on_result(self, trial: Trial, event: ResultReported, flat: Mapping[str, Any]) -> bool:
        """See `Part`; a result may be the first event that concerns one."""
        if event.validation or trial.group:
            self._ensure(_PLACE_OF_EVENT[ValidationEnded])
        return bool([part for part in self if part.on_result(trial, event, flat)])

    def interrupt(self) -> None:
        for part in self:
            part.interrupt()

    def may_be_judged(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """See `Part`; each of them takes notice."""
        return not [part for part in self if not part.may_be_judged(trial, flat)]

    def holds_end(self, trial: Trial) -> bool:
        """See `Part`; each of them takes notice."""
        return bool([part for part in self if part.holds_end(trial)])

    def on_ended(self, trial: Trial) -> bool:
        """See `Part`; each of them takes notice."""
        return not [part for part in self if not part.on_ended(trial)]

    def on_scheduled(self) -> None:
        for part in self:
            part.on_scheduled()

    def claim(self) -> None:
        """Let each take the resources for what it wants to start, and reserve what it waits for."""
        self._core.trial_table.reserved = {}
        for part in self:
            part.claim()
        for part in self:
            part.reserve()

    def _ensure(self, place: _Place) -> Part:
        """Return a part, which is created if it does not exist yet."""
        part = self._by_key.get(place.key)
        if part is None:
            part = self._by_key[place.key] = getattr(capabilities, place.name)(self._core)
            part.begin_session(self._core.settings)
            if self._core.is_interrupted:
                part.interrupt()
            self[:] = [self._by_key[place.key] for place in _PARTS if place.key in self._by_key]
        return part
