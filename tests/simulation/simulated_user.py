"""The user's hand in a simulated world: pauses, resumes, stops and forks trials whenever it feels like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tuner.core.experiment import Experiment
from tuner.storage.control_requests import ControlReply, ControlRequest, PendingRequest, Verb

from .environment import World

_VERBS: Final = (Verb.PAUSE, Verb.PAUSE, Verb.RESUME, Verb.FORK, Verb.STOP_TRIAL)
_FORKED_X: Final = (0.25, 0.5)


@final
class Hand:
    """Where the wishes of a simulated user come from.

    A user who has put trials aside takes them up again once nothing else is left, so that every story comes to an end.

    Args:
        world: The world.
        experiment: What is driven.
    """

    def __init__(self, world: World, experiment: Experiment) -> None:
        self._world = world
        self._experiment = experiment

    def take(self) -> Sequence[PendingRequest]:
        """Return what the user wants in this turn."""
        every = self._world.scenario.wishes_every
        if not every:
            return ()
        trial_table = self._experiment.trial_table
        if trial_table.held and not (trial_table.live or trial_table.ready or trial_table.backlog):
            return [
                (ControlRequest(Verb.RESUME, trial_id), self._hear) for trial_id in trial_table.held
            ]
        chance = self._world.whims
        if (
            not trial_table.trials
            or self._world.num_wishes_left <= 0
            or chance.random() >= 1 / every
        ):
            return ()
        self._world.num_wishes_left -= 1
        verb, trial = chance.choice(_VERBS), chance.choice(trial_table.trials)
        changes = {"x": chance.choice(_FORKED_X)} if verb is Verb.FORK else {}
        return [(ControlRequest(verb, trial.trial_id, changes), self._hear)]

    def close(self) -> None:
        """Want nothing more."""

    def _hear(self, answer: ControlReply) -> None:
        self._world.seen["wish granted" if answer.is_granted else "wish refused"] += 1
