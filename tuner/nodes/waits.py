"""Waits for nodes: what no node that is present could run, and for how long that may last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, final

from tuner.core.part import Part
from tuner.core.resources import demand_of
from tuner.core.timeouts import Deadlines, earliest
from tuner.core.trial import Trial

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment

_TELL_AFTER_S: Final = 15.0
"""How long nodes may take to join, one after the other, until the user is told what waits."""

_ALL: Final = "all"
"""Key of the wait of the whole experiment, while nothing can run."""
_PARTS: Final = "validations"
"""Key of the wait of all that parts start, which asks for the same resources."""


@final
class NodeWaits:
    """Deadlines until which nodes have to join that have what is asked for.

    A trial that no node present could run waits, and the user is warned once, but not before nodes
    have had the time to join. It fails when the time is over. Where there is no node at all, or
    none for the trials that are yet to be suggested, the whole experiment ends. What parts start,
    such as validations, waits and fails like trials.

    Args:
        core: The state machine.
        wait_s: For how long to wait; None where there is only this machine.
    """

    def __init__(self, core: Experiment, wait_s: float | None) -> None:
        self._core = core
        self._trial_table = core.trial_table
        self._wait_s = wait_s
        self._deadlines = Deadlines()
        self._untold: dict[str, tuple[float, str]] = {}
        """When the user has to know of a wait, and what, by the key of the wait."""

    @property
    def next_s(self) -> float | None:
        """When the next wait is over, or the user has to know of one; None for never."""
        return earliest(self._deadlines.next_s(), *(tell_s for tell_s, _ in self._untold.values()))

    @property
    def is_stuck(self) -> bool:
        """Whether nothing can run before a node joins."""
        return self._deadlines.due_s(_ALL) is not None

    def update(self, now_s: float) -> None:
        """Look at what waits now."""
        if self._wait_s is None:
            return
        lacking = self._lacking()
        for key in self._deadlines.due.keys() - lacking.keys():
            self._deadlines.cancel(key)
        self._untold = {key: told for key, told in self._untold.items() if key in lacking}
        for key, (who, why) in lacking.items():
            is_new = self._deadlines.due_s(key) is None
            if is_new:
                self._deadlines.set(key, now_s + self._wait_s)
            if is_new or key in self._untold:
                in_a_while_s = now_s + min(_TELL_AFTER_S, self._wait_s / 2)
                tell_s, _ = self._untold.get(key, (in_a_while_s, ""))
                text = (
                    f"{who} for a node: {why}; it ends with an error unless a node that has this "
                    f"joins within node_wait_s={self._wait_s:g}"
                )
                self._untold[key] = tell_s, text

    def take_remarks(self, now_s: float) -> list[str]:
        """Return what the user has to know by now, each once."""
        due = [key for key, (tell_s, _) in self._untold.items() if now_s >= tell_s]
        return [self._untold.pop(key)[1] for key in due]

    def take_failed(self, now_s: float) -> tuple[list[tuple[Trial, str]], list[tuple[Part, str]]]:
        """Return the trials, and the parts, that have waited for too long, each with the reason.

        The wait of the whole experiment is not over by this, see `why_stuck`.
        """
        if now_s < self._deadlines.none_before_s or self.is_stuck:
            return [], []
        keys = set(self._deadlines.take_due(now_s))
        nodes, ending = self._trial_table.nodes, f"; none that has this has joined {self._within}"
        # One may have joined in this turn.
        trials = [
            (trial, why + ending)
            for trial in list(self._trial_table.ready)
            if _key(trial) in keys and (why := nodes.shortage(*demand_of(trial)))
        ]
        parts = [
            (part, why + ending)
            for part in self._core.parts
            if _PARTS in keys and (why := part.shortage)
        ]
        return trials, parts

    def why_stuck(self, now_s: float) -> str:
        """Return why the experiment has to end; empty if it has not."""
        due_s = self._deadlines.due_s(_ALL)
        if due_s is None or now_s < due_s:
            return ""
        # One may have joined in this turn.
        _, why = self._lacking().get(_ALL, ("", ""))
        ending = f"nothing can run: {why}; no node that has this has joined {self._within}"
        return ending if why else ""

    def state_dict(self) -> dict[str, float]:
        """Return the deadlines as JSON values; empty where nothing waits."""
        return self._deadlines.due

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for key, due_s in state.items():
            self._deadlines.set(key, due_s)

    @property
    def _within(self) -> str:
        return f"within node_wait_s={self._wait_s:g}"

    def _lacking(self) -> dict[str, tuple[str, str]]:
        """Return who waits and why, by the key of the request."""
        table = self._trial_table
        lacking = self._lacking_of_trials()
        shortages = (part.shortage for part in self._core.parts)
        if _ALL not in lacking and (why := next(filter(None, shortages), "")):
            if table.nodes.usable:
                lacking[_PARTS] = "a validation waits", why
            elif not table.live:
                return {_ALL: ("the experiment waits", why)}
        return lacking

    def _lacking_of_trials(self) -> dict[str, tuple[str, str]]:
        table = self._trial_table
        nodes, firsts = table.nodes, table.ready.firsts
        if not table.live and not (nodes.usable and firsts):
            demand = demand_of(firsts[0]) if firsts else self._core.typical_demand
            why = "" if demand is None else nodes.shortage(*demand)
            return {_ALL: ("the experiment waits", why)} if why else {}
        if not nodes.usable:
            return {}  # those that drain are going to leave
        return {
            _key(trial): (f"trial {trial.trial_id} waits", why)
            for trial in firsts
            if (why := nodes.shortage(*demand_of(trial)))
        }


def _key(trial: Trial) -> str:
    return repr(demand_of(trial).shape)
