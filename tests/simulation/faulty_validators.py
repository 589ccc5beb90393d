"""Validators in virtual time, which return, fail, hang and are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from tuner.core.commands import KillValidation, StartValidation
from tuner.core.events import Event, Outcome, ValidationEnded
from tuner.core.worker_records import Failure

from . import validation_invariants
from .acknowledgement_log import STALE
from .environment import Environment

_TICKS: Final = (0, 1, 3, 10, 40)
"""Ticks that a validation takes."""
_HANGS_TICKS: Final = 400
_CRASH: Final = Failure("ValueError", "injected")


@final
class FaultyValidators:
    """Validates checkpoints; see `FaultyExecutor`.

    Args:
        env: The environment.
        emit: Receives events.
        call_later: Makes a call after a number of ticks.
        is_draining: Returns whether a node is known to leave.
    """

    def __init__(
        self,
        env: Environment,
        emit: Callable[[Event], None],
        call_later: Callable[[int, Callable[[], None]], None],
        is_draining: Callable[[str], bool],
    ) -> None:
        """Wait for the first command."""
        self._env = env
        self._emit = emit
        self._call_later = call_later
        self._is_draining = is_draining
        self._running: dict[tuple[str, int, int], StartValidation] = {}

    @property
    def running(self) -> list[StartValidation]:
        """The commands that started what runs."""
        return list(self._running.values())

    def start(self, command: StartValidation) -> None:
        """Start a validation."""
        env = self._env
        validation_invariants.validations_run_once(env, command)
        key = command.trial_id, command.checkpoint.index, command.num_try
        self._running[key] = command
        ticks, rank = env.rng.choice(_TICKS), env.rng.random()
        is_damaged = env.checkpoints.find_damage(command.trial_id, command.checkpoint)
        if is_damaged or rank < 0.1:
            self._end_later(ticks, ValidationEnded(*key, Outcome.FAILED, failure=_CRASH))
        elif rank < 0.15:
            self._end_later(ticks, ValidationEnded(*key, Outcome.LOST))
        elif rank < 0.2:
            self._end_later(ticks, ValidationEnded(*key, Outcome.COMPLETED))
        elif rank < 0.25:
            self._end_later(_HANGS_TICKS, ValidationEnded(*key, Outcome.FAILED, failure=_CRASH))
        else:
            metrics = validation_invariants.metrics_of(env, *key[:2])
            self._end_later(ticks, ValidationEnded(*key, Outcome.COMPLETED, metrics))
        if env.rng.random() < 0.1:
            self._repeat_later(ticks + env.rng.choice(_TICKS), key)

    def kill(self, command: KillValidation) -> None:
        """Kill a validation."""
        key = command.trial_id, command.index, command.num_try
        self._end_later(1, ValidationEnded(*key, Outcome.KILLED, failure=Failure("killed", "")))

    def lose_node(self, name: str, *, is_announced: bool) -> None:
        """End all validators on a node; nothing more is heard of them."""
        for key in [key for key, command in self._running.items() if command.node == name]:
            del self._running[key]
            self._env.seen["validation lost with its node"] += 1
            if not is_announced:
                self._env.ack_log.note_lost_validation(key[:2])

    def kill_all(self) -> None:
        """Kill all validators with their driver."""
        self._running.clear()

    def _end_later(self, ticks: int, ended: ValidationEnded) -> None:
        self._call_later(ticks, lambda: self._end(ended))

    def _end(self, ended: ValidationEnded) -> None:
        key = ended.trial_id, ended.index, ended.num_try
        if key in self._running:  # else it was killed, or has ended just before it was
            command = self._running.pop(key)
            if ended.outcome is not Outcome.LOST:
                self._env.ack_log.validations_lost_in_row[key[:2]] = 0
            elif not self._is_draining(command.node):
                self._env.ack_log.note_lost_validation(key[:2])
            self._env.seen[f"validation {ended.outcome}"] += 1
            self._emit(ended)

    def _repeat_later(self, ticks: int, key: tuple[str, int, int]) -> None:
        """Send the end of a validation once more, when another try may be running."""
        metrics: dict[str, Any] = {"of": "nothing", "loss": -1.0, STALE: True}
        ghost = ValidationEnded(*key, Outcome.COMPLETED, metrics)
        self._call_later(ticks, lambda: None if key in self._running else self._emit(ghost))
