"""Simulated user who pauses, resumes, stops and forks trials at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tuner.core.experiment import Experiment
from tuner.storage.control_requests import ControlReply, ControlRequest, PendingRequest, Verb

from .environment import Environment

_VERBS: Final = (Verb.PAUSE, Verb.PAUSE, Verb.RESUME, Verb.FORK, Verb.STOP_TRIAL)
_FORKED_X: Final = (0.25, 0.5)


@final
class SimulatedUser:
    """Source of a simulated user's control requests.

    Held trials are resumed once nothing else is left, so that every experiment ends.

    Args:
        env: The environment.
        experiment: What is driven.
    """

    def __init__(self, env: Environment, experiment: Experiment) -> None:
        self._env = env
        self._experiment = experiment

    def take(self) -> Sequence[PendingRequest]:
        """Return the user's requests in this turn."""
        every = self._env.scenario.requests_every
        if not every:
            return ()
        trial_table = self._experiment.trial_table
        if trial_table.held and not (trial_table.live or trial_table.ready or trial_table.backlog):
            return [
                (ControlRequest(Verb.RESUME, trial_id), self._hear) for trial_id in trial_table.held
            ]
        rng = self._env.user_rng
        if not trial_table.trials or self._env.num_requests_left <= 0 or rng.random() >= 1 / every:
            return ()
        self._env.num_requests_left -= 1
        verb, trial = rng.choice(_VERBS), rng.choice(trial_table.trials)
        changes = {"x": rng.choice(_FORKED_X)} if verb is Verb.FORK else {}
        return [(ControlRequest(verb, trial.trial_id, changes), self._hear)]

    def close(self) -> None:
        """Do nothing."""

    def _hear(self, answer: ControlReply) -> None:
        self._env.seen["request granted" if answer.is_granted else "request refused"] += 1
