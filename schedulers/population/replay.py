"""Replay of one member's schedule that population based training has recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from schedulers.decisions import Decision, Exploit, Pause, Reason, Resume, Save
from schedulers.scheduler import Scheduler, TrialView

_WRONG_CONFIG = (
    "the trial does not begin with the configuration that is replayed; set param_space to "
    "replay.config"
)
_LINE = "[target, donor, target iteration, donor iteration, donor config, new config]"


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a schedule.

    Attributes:
        iteration: ``training_iteration`` after which it happens.
        config: The hyperparameters from then on.
    """

    iteration: int
    config: Mapping[str, Any]


@final
class PopulationBasedTrainingReplay(Scheduler):
    """Trains one trial with the recorded schedule of a population member and its ancestors.

    The policy is the list of exploits that led to a member, as population based training logs it:
    one line each, with the name of the member and of its donor, their iterations, and the
    configurations before and after. It is read from its end: an entry belongs to the schedule if
    its member is the donor of the entry after it.

    The trial has to begin with `config`. After the first result at or past the iteration of a
    change it is saved, and continues from there with the new configuration; of several changes that
    one result has passed, the last counts. A trial that cannot save on demand is paused
    with its next checkpoint, and may therefore repeat iterations.

    Args:
        policy_file: Path of a ``pbt_policy_*.txt`` with a JSON list per line, which is read once;
            or the lines themselves, as text or as lists.

    Attributes:
        config: The first configuration; give it as ``param_space``.
        changes: The changes of the configuration, in order.

    Raises:
        TypeError: If the policy is neither a path nor lines.
        ValueError: If it is empty, or a line does not have the right form.
        OSError: If the file cannot be read.

    Example:
        >>> lines = [
        ...     ["0_a", "1_b", 10, 10, {"lr": 0.1}, {"lr": 0.2}],
        ...     ["2_c", "0_a", 20, 18, {"lr": 0.2}, {"lr": 0.4}],
        ... ]
        >>> replay = PopulationBasedTrainingReplay(lines)
        >>> replay.config, [(change.iteration, change.config) for change in replay.changes]
        ({'lr': 0.1}, [(10, {'lr': 0.2}), (18, {'lr': 0.4})])

    Departures:
        From Ray Tune: a trial whose configuration is not `config` is not given another one, but a
        remark warns the user; lines may be given without a file; changes that one result has passed
        together are not spread over the next results.
    """

    changes_trials: ClassVar[bool] = True

    def __init__(self, policy_file: str | Sequence[str | Sequence[Any]]) -> None:
        steps = [_parsed(line) for line in _lines(policy_file)]
        chain = _chain(steps)
        if not chain:
            raise ValueError(
                f"policy_file must hold a line such as {_LINE}, got none; a member that never "
                "became a clone has no policy"
            )
        self.config: Mapping[str, Any] = chain[0].donor_config
        self.changes = tuple(Change(step.donor_iteration, step.new_config) for step in chain)
        self._num_made = 0
        self._made_at: int | None = None
        self._is_pausing = False
        self._trial_id: str | None = None

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Handle the only trial.

        Raises:
            ValueError: If it is not the first.
        """
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError(
                f"a replay must have one trial only, got {self._trial_id} and {trial.trial_id}; "
                "set num_samples to 1"
            )
        self._trial_id = trial.trial_id
        if not _is_equal(trial.config, self.config):
            self.remarks = [
                *self.remarks,
                _WRONG_CONFIG,
            ]
        return ()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Change the configuration as scheduled."""
        iteration = result.get("training_iteration")
        if not isinstance(iteration, int):
            return ()
        # Changes that one result has passed together count as one: the last.
        num_due = sum(change.iteration <= iteration for change in self.changes)
        if num_due > self._num_made:
            self._num_made, self._is_pausing = num_due, not self.experiment.can_save_on_demand
        elif self._made_at is None or iteration < self._made_at or not self._is_outstanding(trial):
            return ()
        self._made_at = iteration
        if self._is_pausing:
            return [Pause(trial.trial_id, self._reason())]
        return [Save(trial.trial_id, self._reason()), *self._change(trial)]

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """End the wait for a checkpoint."""
        self._is_pausing = False
        return ()

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume the trial, with its new configuration if it was paused for one."""
        decisions: list[Decision] = []
        for trial in trials[:num_free_slots]:
            if trial.status != "PAUSED":
                continue
            is_for_change = self._is_pausing and trial.has_checkpoint
            decisions += (
                self._change(trial)
                if is_for_change
                else [Resume(trial.trial_id, Reason("pbt_replay.resume"))]
            )
        if decisions:
            self._is_pausing = False
        return decisions

    def _is_outstanding(self, trial: TrialView) -> bool:
        """Return whether a decided change was not applied, e.g. because the trial was lost."""
        has_missed = self.experiment.can_save_on_demand and not _is_equal(
            trial.config, self.changes[self._num_made - 1].config
        )
        return self._is_pausing or has_missed

    def _change(self, trial: TrialView) -> Sequence[Decision]:
        # The trial is its own donor: it continues from its own checkpoint, with other
        # hyperparameters. Where it saves on demand, that is the one that is about to be saved.
        index = None if self.experiment.can_save_on_demand else trial.checkpoint_index
        exploit = Exploit(
            trial.trial_id,
            trial.trial_id,
            self.changes[self._num_made - 1].config,
            self._reason(),
            index,
        )
        return [exploit, Resume(trial.trial_id, self._reason())]

    def _reason(self) -> Reason:
        change = self.changes[self._num_made - 1]
        numbers = {
            "iteration": self._made_at or 0,
            "change": self._num_made,
            "scheduled": change.iteration,
            "of": len(self.changes),
        }
        return Reason("pbt_replay.change", numbers)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the schedule has come, as JSON values."""
        return {
            "num_changes": len(self.changes),
            "num_made": self._num_made,
            "made_at": self._made_at,
            "is_pausing": self._is_pausing,
            "trial_id": self._trial_id,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from another schedule.
        """
        if state["num_changes"] != len(self.changes):
            num, num_saved = len(self.changes), state["num_changes"]
            raise ValueError(
                f"state must come from a schedule of {num} changes, got one of {num_saved}; give "
                "the same policy_file"
            )
        self._num_made, self._made_at = state["num_made"], state["made_at"]
        self._is_pausing, self._trial_id = state["is_pausing"], state["trial_id"]

    def debug_string(self) -> str:
        """Return how far the schedule has come."""
        return f"{type(self).__name__}: {self._num_made} of {len(self.changes)} changes made"


@dataclass(frozen=True, slots=True)
class _Step:
    target: Any
    donor: Any
    donor_iteration: int
    donor_config: Mapping[str, Any]
    new_config: Mapping[str, Any]


def _lines(policy_file: Any) -> Iterable[Any]:
    if isinstance(policy_file, Sequence) and not isinstance(policy_file, str | bytes):
        return policy_file
    if not isinstance(policy_file, str) and not hasattr(policy_file, "__fspath__"):
        raise TypeError(
            f"policy_file must be a path or a list of lines, got {policy_file!r}; give the path of "
            "a pbt_policy_*.txt"
        )
    # Schedulers read no files, but Ray Tune's argument is a path. It is read once, before the
    # experiment begins; a restored one is given the same lines.
    with open(policy_file, encoding="utf-8") as file:  # noqa: PTH123  (schedulers know no paths)
        return [line for line in file if line.strip()]


def _parsed(line: Any) -> _Step:
    try:
        entries = json.loads(line) if isinstance(line, str) else line
        target, donor, _, donor_iteration, donor_config, new_config = entries
        return _Step(target, donor, int(donor_iteration), {**donor_config}, {**new_config})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"policy_file must hold lines such as {_LINE}, got {line!r}; give the log of one member"
        ) from error


def _chain(steps: Sequence[_Step]) -> list[_Step]:
    """Return the entries that led to the last one: each is about the next one's donor."""
    chain: list[_Step] = []
    for step in reversed(steps):
        if chain and step.target != chain[-1].donor:
            break
        chain.append(step)
    return chain[::-1]


def _is_equal(config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    # As JSON, since tuples become lists when they are written and read.
    return json.dumps(config, sort_keys=True, default=repr) == json.dumps(
        other, sort_keys=True, default=repr
    )
