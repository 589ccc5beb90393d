"""Nodes in the life of an experiment: they join, drain and leave, and trials wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from schedulers.decisions import Reason
from tuner.core.commands import KillWorker
from tuner.core.events import NodeDraining, NodeJoined, NodeLeft, Outcome
from tuner.core.failure_causes import NO_NODE, WORKER_LOST
from tuner.core.lifecycle import WorkerMove, move_worker
from tuner.core.part import Part
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import NODE_DRAINING, TerminationReason, Trial
from tuner.core.worker_records import Failure
from tuner.errors import InvalidTransition

from .nodes import Nodes
from .waits import NodeWaits

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment


@final
class NodeEvents(Part):
    """What becomes of trials when nodes come and go.

    Args:
        core: The state machine.
    """

    def __init__(self, core: Experiment) -> None:
        super().__init__(core)
        self._waits = NodeWaits(core, None)

    def begin_session(self, settings: ExperimentSettings) -> None:
        """Forget the waits of the last session."""
        self._waits = NodeWaits(self._core, settings.node_wait_s)

    def handle(self, event: NodeJoined | NodeDraining | NodeLeft) -> None:
        """Add, drain or remove a node.

        Raises:
            InvalidTransition: If there is only this machine.
        """
        nodes = self._core.trial_table.nodes
        if not isinstance(nodes, Nodes):
            raise InvalidTransition(f"{event!r:.200} in an experiment on one machine")
        match event:
            case NodeJoined(name, resources, labels):
                self._lose(nodes, name, "it has joined again")
                for trial in self._core.trial_table.on_node(name):  # it has nothing of theirs left
                    self._core.end_attempt(trial, Outcome.LOST)
                nodes.join(name, resources, labels)
            case NodeDraining(name, deadline_s, is_cut_off) if name in nodes:
                nodes.drain(name, is_announced=not is_cut_off)
                within = {} if deadline_s is None else {"deadline_s": deadline_s}
                reason = Reason(NODE_DRAINING, {"node": name, **within})
                for trial in self._core.trial_table.on_node(name):
                    self._core.intend_pause(trial, reason)
                    self._expect_evacuation(trial, deadline_s)
            case NodeLeft(name, why):
                self._lose(nodes, name, why)

    @property
    def next_s(self) -> float | None:
        """When the next wait for a node is over, or the user has to know of one."""
        return None if self._core.is_stopping else self._waits.next_s

    @property
    def is_stuck(self) -> bool:
        """Whether nothing can run before a node joins."""
        return self._waits.is_stuck

    def on_time(self) -> None:
        """Give up what has waited for a node for too long, and groups whose end is not heard of."""
        if not self._core.is_stopping:
            self._end_waits()
        for trial_id in self._core.timeouts.take_overdue_remnants(self._core.now_s):
            self._core.end_attempt(self._core.trial_table.live[trial_id], Outcome.LOST)
            self._core.needs_scheduling = True

    def on_scheduled(self) -> None:
        """Look at what waits for a node now."""
        if not self._core.is_finished:
            self._waits.update(self._core.now_s)

    def take_remarks(self) -> Sequence[str]:
        """Return which waits the user has to know of, each once."""
        return self._waits.take_remarks(self._core.now_s)

    def is_loss_known(self, trial: Trial, outcome: Outcome) -> bool:
        """Return whether a loss was counted with the node, or does not count, as announced."""
        timeouts = self._core.timeouts
        is_evacuated = timeouts.is_evacuated(trial.trial_id) and outcome is Outcome.KILLED
        return is_evacuated or timeouts.is_remnant(trial.trial_id)

    def is_being_killed(self, trial: Trial) -> bool:
        """Return whether a group has lost workers with their node, and is being killed."""
        return self._core.timeouts.is_remnant(trial.trial_id)

    def add_state(self, fields: dict[str, Any]) -> None:
        """Add the waits; nodes and what they have granted are in the trial table's state."""
        if waits := self._waits.state_dict():
            fields["node_waits"] = waits

    def load_state(self, fields: Mapping[str, Any]) -> None:
        """Restore the waits."""
        self._waits.load_state_dict(fields["node_waits"])

    def _expect_evacuation(self, trial: Trial, deadline_s: float | None) -> None:
        grace_s = self._core.settings.preemption_grace_s
        if deadline_s is not None and grace_s is not None:
            due_s = self._core.now_s + deadline_s + grace_s
            self._core.timeouts.expect_evacuation(trial.trial_id, due_s)

    def _lose(self, nodes: Nodes, name: str, why: str) -> None:
        """End what runs on a node, since it is gone."""
        core = self._core
        if name not in nodes:
            return
        gone = Failure(WORKER_LOST, f"node {name} is gone: {why}")
        for trial in core.trial_table.on_node(name):
            if not self.is_being_killed(trial):
                core.note_loss(trial, gone.message)
            if any(other in nodes for other in trial.nodes if other != name):
                self._kill_remnant(trial, gone.message)
            else:
                core.end_attempt(trial, Outcome.LOST)
        for part in core.parts:
            part.on_node_lost(name, gone)
        nodes.leave(name)

    def _kill_remnant(self, trial: Trial, why: str) -> None:
        """Kill what is left of a group; until it is gone, it occupies what it has on its nodes."""
        if self.is_being_killed(trial):
            return
        core = self._core
        move_worker(trial, WorkerMove.KILL)
        core.unanswered.drop(trial)
        core.end_process(trial)
        core.timeouts.expect_remnant_gone(trial.trial_id, core.now_s)
        core.out.commands.append(KillWorker(trial.trial_id, trial.attempt, why))

    def _end_waits(self) -> None:
        """Give up what has waited for a node for too long."""
        core = self._core
        if why := self._waits.why_stuck(core.now_s):
            core.fatal_error = why
            core.stop_all(TerminationReason.INTERRUPTED, Reason(NO_NODE))
            return
        trials, why_no_part = self._waits.take_failed(core.now_s)
        for trial, why in trials:
            trial.failures.append(Failure("ResourcesUnavailable", why))
            core.give_up(trial)
            core.needs_scheduling = True
        for part, why in why_no_part:
            part.give_up_waiting(why)
            core.needs_scheduling = True
