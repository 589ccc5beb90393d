"""Base class of schedulers that train a population: turns, generations, shared slots and clones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from schedulers.arguments import check_names, checked_time, plain_number
from schedulers.decisions import Decision, Exploit, Number, Pause, Reason, Resume, Save
from schedulers.metric import (
    MetricReader,
    MetricScheduler,
    require_mode,
    strict,
    violation_number,
)
from schedulers.scheduler import ExperimentView, TrialView

from .members import Comparison, CurvePoint, Member, compare

_NO_CHECKPOINTS = (
    "no trial can be paused or cloned, since none has saved a checkpoint so far; save one at every "
    "perturbation_interval"
)
_ALONE = "a population of one has no donor; set num_samples to the size of the population"


@dataclass(frozen=True, slots=True)
class ClonePlan:
    """A decision that one member becomes a clone of another one, with new hyperparameters.

    Attributes:
        target: The member whose weights are replaced.
        donor: The member whose weights are copied.
        config: The hyperparameters with which the target continues.
        rule: Last part of the reason's name.
        numbers: The numbers on which it is based.
    """

    target: Member
    donor: Member
    config: Mapping[str, Any]
    rule: str
    numbers: Mapping[str, Number | str]


class PopulationScheduler(MetricScheduler):
    """Gives each member of a population a turn after every interval.

    In its turn, a subclass decides whether it becomes a clone of another member.

    **Turns.** A member has its turn at the first result at least `perturbation_interval` after its
    last turn, or after the checkpoint from which it was cloned. It is then asked to save, where
    trials save on demand, so that it can be a donor.

    **Shared slots.** If not all existing and future trials fit in at once, a member pauses at each
    turn while another one waits. New members come first; then the least trained member continues,
    of equals the oldest. So no waiting member is left behind: meanwhile every other one trains at
    most one interval, and one result more, beyond where it or the waiting one stood when the wait
    began, whichever is more. (A member that takes over later weights jumps, of course.)

    **Generations.** With `synch`, members pause at the turn at which they may become clones, until
    all that have not ended have come there; then clones are decided upon, all at one step, and all
    continue. Members do not wait for one that has ended or failed.

    **Donors** are compared as described in `members`, and need a checkpoint of the weights they
    have now. Members that have ended well stay in the comparison as long as they have one; those
    that failed do not. A donor that has none, but is running and saves on demand, is asked to save,
    and the clone waits for it; otherwise it is passed over, and where no trial has ever saved, a
    remark is added to `remarks`. A donor's checkpoint may be older than the weights it replaces: a
    clone becomes one again only after it has been trained for longer than those.

    **With constraints**, members that keep all of them rank before those that do not, see
    `schedulers.feasible_first`, and as long as there is one of the former, none of the latter is a
    donor. A clone counts as its donor until it reports.

    **When something is missing.** A result without ``time_attr`` or the metric decides nothing;
    `debug_string` shows which was missing, and `remarks` as well with `require_attrs`. A metric
    that is there but None, NaN, or plus or minus infinity counts as worst.

    **Repeated results**, after a crash or a restore, are not judged again; an earlier decision to
    pause is returned again.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow.
        metric: What to compare, by flattened name; None to take the experiment's.
        mode: ``"min"`` or ``"max"``; None to take the experiment's.
        perturbation_interval: How long members train from turn to turn, in units of `time_attr`;
            more than 0.
        burn_in_period: No member becomes a clone before this time.
        quantile_fraction: Which part of the population becomes clones, and which is cloned; from 0
            to 0.5.
        log_config: Whether the engine logs which member becomes a clone of which.
        require_attrs: Whether to warn the user about results in which something is missing.
        synch: Whether the population is compared in generations.

    Attributes:
        needs_population: True: all trials are one population, so that no searcher may postpone
            some of them.
        log_config: As given.

    Raises:
        TypeError: If a number is not a number.
        ValueError: If an argument is out of range.
    """

    needs_population: ClassVar[bool] = True
    changes_trials: ClassVar[bool] = True
    first_comparison: ClassVar[str | None] = "perturbation_interval"
    prefix: ClassVar[str]
    """Prefix of the names of its reasons."""

    def __init__(
        self,
        *,
        time_attr: str,
        metric: str | None,
        mode: str | None,
        perturbation_interval: Number,
        burn_in_period: Number = 0.0,
        quantile_fraction: Number = 0.25,
        log_config: bool,
        require_attrs: bool,
        synch: bool,
    ) -> None:
        check_names(time_attr, metric, mode)
        self._interval = plain_number("perturbation_interval", perturbation_interval)
        self._burn_in = checked_time("burn_in_period", burn_in_period)
        self._quantile_fraction = plain_number("quantile_fraction", quantile_fraction)
        _check_ranges(self._interval, self._quantile_fraction)
        self.metric, self.mode, self.log_config = metric, mode, log_config
        self._time_attr, self._require_attrs, self._synch = time_attr, require_attrs, synch
        self._members: dict[str, Member] = {}
        self._num_generations: dict[str, int] = {}
        self._num_clones = 0
        self._metrics = MetricReader()
        self._past_remarks: set[str] = set()

    @abstractmethod
    def _new_config(self, target: Member, donor: Member, event: str) -> Mapping[str, Any]:
        """Return the hyperparameters of a clone; `event` seeds the random numbers."""

    def _plan(self, member: Member, event: str) -> ClonePlan | None:
        """Choose a donor by truncation selection: for the worst, a random one of the best."""
        comparison = self._compare(member, self._peers(member), f"{self._seed}/{event}")
        # Without results of its own at the step of the comparison it has no rank yet.
        if comparison is None:
            return None
        size = comparison.quantile_size(self._quantile_fraction)
        if comparison.rank(member) <= len(comparison.members) - size:
            return None
        donors = [other for other in comparison.members[:size] if self._can_donate(other)]
        if not donors:
            return None
        # Named by seed, event and trial: a stream of draws would depend on the order of the turns,
        # which differs from run to run.
        rng = Random(f"{self._seed}/{event}/{member.trial_id}/donor")  # noqa: S311  (not a secret)
        donor = rng.choice(donors)
        config = self._new_config(member, donor, event)
        return ClonePlan(
            member,
            donor,
            config,
            "exploit",
            {**comparison_numbers(comparison, member, donor), "num_in_quantile": size},
        )

    def _compare(self, member: Member, others: Sequence[Member], key: str) -> Comparison | None:
        """Compare a member with others; `key` is the seed of the order of equal scores."""
        return compare(member, others, str(self.mode), key, self._feasible.violation)

    def _next_turn(self, begin: float) -> float:
        """Return the end of the interval that begins at a time."""
        return begin + self._interval

    def _may_become_clone(self, member: Member) -> bool:
        """Return whether a member may become a clone in the turn it has now."""
        return member.time >= self._burn_in and member.is_further

    def _group(self, member: Member) -> str:
        """Return the name of the group in which a member forms generations."""
        return ""

    def _on_turn(self, trial: TrialView, member: Member, begin: float) -> None:
        """Handle the end of a member's interval, which began at a time, before its turn."""

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Add the trial to the population.

        Raises:
            ValueError: If the size of the population is unknown.
        """
        if self.experiment.max_trials is None:
            raise ValueError(
                "the size of the population must be known, got a search without end; set "
                "num_samples to the number of members"
            )
        self._check_size(self.experiment.max_trials)
        self._member(trial)
        return ()

    def _check_size(self, num_members: int) -> None:
        if num_members == 1:
            self._add_remark(_ALONE)

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Give the member its turn if its interval is over."""
        require_mode(self)
        member = self._member(trial)
        self._feasible.note(trial.trial_id, result)
        point = self._read(result)
        if point is None:
            return ()
        is_new = member.record(point)
        # A trial that cannot be saved when asked reports on until it has a checkpoint; one that
        # has crashed repeats results, and is paused where it was to pause.
        if member.paused_at is not None:
            return self._pause(member) if point.time >= member.paused_at else ()
        if not is_new or member.time < self._next_turn(member.turn_time):
            return ()
        begin = member.turn_time
        member.begin_turn()
        self._on_turn(trial, member, begin)
        return self._take_turn(trial, member)

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Stop waiting for the trial; as long as it has a checkpoint it may be a donor."""
        return self._leave(trial)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Stop waiting for the trial."""
        return self._leave(trial)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume the least trained members once all have joined; finish complete generations."""
        if not self.experiment.no_more_trials:
            return ()
        paused = [self._member(trial) for trial in trials if trial.status == "PAUSED"]
        ready = sorted((member for member in paused if not member.is_waiting), key=_by_training)
        return [
            *self._finish(list(self._complete_generations())),
            *(self._resume(member) for member in ready[:num_free_slots]),
        ]

    def _take_turn(self, trial: TrialView, member: Member) -> Sequence[Decision]:
        may_become_clone = self._may_become_clone(member)
        can_pause = self._can_pause()
        if may_become_clone and not can_pause:
            self._add_remark(_NO_CHECKPOINTS)
            # The training code may save later. If a second turn comes first, the engine ends the
            # experiment at this pause, which it cannot carry out: it would be a random search.
            return (
                ()
                if member.num_turns == 1
                else [Pause(member.trial_id, self._reason("no_checkpoints", member))]
            )
        if may_become_clone and self._synch and can_pause:
            member.paused_at, member.is_waiting = member.time, True
            return self._pause(member)
        is_shared = can_pause and has_to_share(trial, self.experiment)
        plan = (
            self._plan(member, f"{member.trial_id}/{member.num_turns}")
            if may_become_clone and not self._synch
            else None
        )
        # In a shared slot a clone stays paused, and continues when its turn for the slot comes.
        if plan is not None:
            return [*self._carry_out(plan), *(() if is_shared else [self._resume(member)])]
        if is_shared:
            member.paused_at = member.time
            return self._pause(member)
        # From one interval before the end of the burn-in: the first clones need donors then.
        is_donor_soon = (
            self.experiment.can_save_on_demand and self._next_turn(member.time) >= self._burn_in
        )
        return [Save(member.trial_id, self._reason("save", member))] if is_donor_soon else ()

    def _pause(self, member: Member) -> Sequence[Decision]:
        return [
            Pause(
                member.trial_id,
                self._reason("generation" if member.is_waiting else "share", member),
            )
        ]

    def _resume(self, member: Member) -> Resume:
        member.resume()
        return Resume(member.trial_id, self._reason("resume", member))

    def _reason(self, rule: str, member: Member) -> Reason:
        numbers = {
            "time": strict(member.time),
            "score": strict(member.curve.score),
            "turn": member.num_turns,
        }
        return Reason(f"{self.prefix}.{rule}", numbers)

    def _can_pause(self) -> bool:
        # One checkpoint shows that the training code saves; others then save, too.
        return self.experiment.can_save_on_demand or any(
            trial.has_checkpoint for trial in self.experiment.trials.values()
        )

    def _complete_generations(self) -> Iterator[list[Member]]:
        """Yield the members of each complete generation."""
        groups: dict[str, list[TrialView]] = {}
        for trial in self.experiment.trials.values():
            if trial.status in LIVE:
                groups.setdefault(self._group(self._member(trial)), []).append(trial)
        for trials in groups.values():
            members = [self._member(trial) for trial in trials]
            if all(member.is_waiting for member in members) and all(
                trial.status == "PAUSED" for trial in trials
            ):
                yield members

    def _finish(self, generations: Sequence[Sequence[Member]]) -> Sequence[Decision]:
        """Decide which members become clones, and resume all."""
        # All are decided before one of them becomes a clone: ranks must not depend on the order.
        plans = [plan for generation in generations for plan in self._plans(generation)]
        targets = {plan.target for plan in plans}
        # A donor that becomes a clone itself gives up the weights that it would donate.
        cloned = [
            decision
            for plan in plans
            if plan.donor not in targets
            for decision in self._carry_out(plan)
        ]
        ready = sorted(
            (member for generation in generations for member in generation), key=_by_training
        )
        return [*cloned, *(self._resume(member) for member in ready)]

    def _plans(self, generation: Sequence[Member]) -> list[ClonePlan]:
        group = self._group(generation[0])
        self._num_generations[group] = self._num_generations.get(group, 0) + 1
        event = f"{group}/generation {self._num_generations[group]}"
        return [plan for member in generation if (plan := self._plan(member, event)) is not None]

    def _carry_out(self, plan: ClonePlan) -> Sequence[Decision]:
        target, donor = plan.target, self.experiment.trials[plan.donor.trial_id]
        # A donor without a checkpoint of its present weights is asked to save; the exploit then
        # names no checkpoint, and takes the next one.
        is_saved = self._is_saved(donor, plan.donor)
        view = self.experiment.trials.get(target.trial_id)
        own = None if view is None else view.checkpoint_index
        numbers: dict[str, Number | str] = {
            **plan.numbers,
            "donor": donor.trial_id,
            "turn": target.num_turns,
        }
        if is_saved and donor.checkpoint_iteration is not None:
            numbers["checkpoint_iteration"] = donor.checkpoint_iteration
        iteration = donor.checkpoint_iteration if is_saved else None
        target.become_clone(plan.donor, iteration, own, is_awaited=not is_saved)
        self._feasible.take_over(target.trial_id, donor.trial_id)
        target.resume()
        self._num_clones += 1
        index = donor.checkpoint_index if is_saved else None
        exploit = Exploit(
            target.trial_id,
            donor.trial_id,
            plan.config,
            Reason(f"{self.prefix}.{plan.rule}", numbers),
            index,
        )
        return (
            [exploit]
            if is_saved
            else [Save(donor.trial_id, self._reason("save", plan.donor)), exploit]
        )

    def _peers(self, member: Member) -> list[Member]:
        """Return all other members that have not ended, or have ended with a checkpoint."""
        return [
            other
            for other in self._members.values()
            if other is not member and self._is_present(other)
        ]

    def _is_present(self, member: Member) -> bool:
        trial = self.experiment.trials.get(member.trial_id)
        if trial is None:
            return False
        return trial.status in LIVE or (
            trial.status == "TERMINATED" and has_own_checkpoint(trial, member)
        )

    def _can_donate(self, member: Member) -> bool:
        trial = self.experiment.trials.get(member.trial_id)
        if trial is None or not self._is_present(member) or not math.isfinite(member.curve.score):
            return False
        if self._feasible.violation(member.trial_id) and any(
            math.isfinite(other.curve.score) and not self._feasible.violation(other.trial_id)
            for other in self._peers(member)
        ):
            return False
        return has_own_checkpoint(trial, member) or (
            self.experiment.can_save_on_demand and trial.status == "RUNNING"
        )

    def _is_saved(self, trial: TrialView, member: Member) -> bool:
        """Return whether a donor need not save before a clone continues from its checkpoint."""
        return has_own_checkpoint(trial, member)

    def _config_of(self, member: Member) -> Mapping[str, Any]:
        return self.experiment.trials[member.trial_id].config

    def _member(self, trial: TrialView) -> Member:
        if trial.trial_id not in self._members:
            self._members[trial.trial_id] = Member(trial.trial_id, len(self._members))
        return self._members[trial.trial_id]

    def _leave(self, trial: TrialView) -> Sequence[Decision]:
        self._member(trial).resume()
        for member in self._members.values():
            if member.awaited_donor == trial.trial_id and not has_own_checkpoint(
                trial, self._member(trial)
            ):
                member.undo_clone()
                self._feasible.undo_take_over(member.trial_id)
        return ()

    def _read(self, result: Mapping[str, Any]) -> CurvePoint | None:
        missing = set(self._metrics.missing)
        time = self._metrics.amount(result, self._time_attr)
        score = self._metrics.finite(result, str(self.metric))
        for name in sorted(self._metrics.missing - missing) if self._require_attrs else ():
            self._add_remark(
                f"results must have a number under {name!r} for trials to be compared, got one "
                "without; report it every time"
            )
        if time is None or not math.isfinite(time) or score is None:
            return None
        iteration = result.get("training_iteration")
        return CurvePoint(time, score, iteration if isinstance(iteration, int) else None)

    def _add_remark(self, remark: str) -> None:
        if remark not in self._past_remarks:
            self._past_remarks.add(remark)
            self.remarks = [*self.remarks, remark]

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, as JSON values."""
        return {
            **self._base_state(),
            "seed": self._seed,
            "members": [member.state_dict() for member in self._members.values()],
            "num_generations": dict(self._num_generations),
            "num_clones": self._num_clones,
            "missing": sorted(self._metrics.missing),
            "told": sorted(self._past_remarks),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler that measures otherwise: recorded values
                would not compare.
        """
        self._load_base_state(state)
        self._seed = state["seed"]
        self._members = {
            saved["trial_id"]: Member.from_state(number, saved)
            for number, saved in enumerate(state["members"])
        }
        self._num_generations = dict(state["num_generations"])
        self._num_clones = state["num_clones"]
        self._metrics = MetricReader(state["missing"])
        self._past_remarks = set(state["told"])

    def _settings(self) -> dict[str, Any]:
        return {"metric": self.metric, "mode": self.mode, "time_attr": self._time_attr}

    def debug_string(self) -> str:
        """Return the numbers of members, clones and waiting members, and missing entries."""
        num_waiting = sum(member.paused_at is not None for member in self._members.values())
        parts = [
            (
                f"{type(self).__name__}: {len(self._members)} members, {self._num_clones} clones, "
                f"{num_waiting} waiting"
            )
        ]
        return "; ".join([*parts, *([str(self._metrics)] if self._metrics.missing else [])])


def _by_training(member: Member) -> tuple[float, int]:
    """Return a key that sorts the least trained member first, of equals the oldest."""
    return member.time, member.number


def has_own_checkpoint(trial: TrialView, member: Member) -> bool:
    """Return whether its latest checkpoint is of the weights that the member has now."""
    return (
        trial.checkpoint_index is not None
        and trial.checkpoint_index > member.last_abandoned_checkpoint
    )


def comparison_numbers(
    comparison: Comparison, member: Member, donor: Member
) -> dict[str, Number | str]:
    """Return how two members stood, for a reason."""
    return {
        "step": strict(comparison.step),
        "score": strict(comparison.score(member)),
        **violation_number(comparison.violation(member)),
        "donor_score": strict(comparison.score(donor)),
        **violation_number(comparison.violation(donor), "donor_violation"),
        "rank": comparison.rank(member),
        "donor_rank": comparison.rank(donor),
        "num_compared": len(comparison.members),
        "time": strict(member.time),
        "donor_time": strict(donor.time),
    }


def _check_ranges(interval: Number, fraction: Number) -> None:
    if not 0 < interval < math.inf:
        raise ValueError(
            f"perturbation_interval must be more than 0 and finite, got {interval}; it is counted "
            "in time_attr units"
        )
    if not 0 <= fraction <= 0.5:  # noqa: PLR2004  (the best and the worst half)
        raise ValueError(
            f"quantile_fraction must be between 0 and 0.5, got {fraction}; 0.25 lets the worst "
            "quarter clone the best"
        )


LIVE = ("PENDING", "RUNNING", "PAUSED")
"""Statuses of trials that are not over."""


def has_to_share(trial: TrialView, experiment: ExperimentView) -> bool:
    """Return whether a trial waits for a slot and not all trials fit in at once.

    Trials to come are assumed to need what this one needs. An experiment whose resources are
    unknown is assumed to be full.

    Args:
        trial: The trial that might make room.
        experiment: The experiment.
    """
    live = [other for other in experiment.trials.values() if other.status in LIVE]
    num_to_come = (
        0
        if experiment.no_more_trials
        else max(0, (experiment.max_trials or 0) - len(experiment.trials))
    )
    if not num_to_come and all(
        other.status == "RUNNING" or other.trial_id == trial.trial_id for other in live
    ):
        return False
    demand: dict[str, float] = {}
    for resources in (*(other.resources for other in live), *[trial.resources] * num_to_come):
        for name, amount in resources.items():
            demand[name] = demand.get(name, 0.0) + amount
    supply = experiment.resources
    # Ten times 0.1 is not quite 1 in binary.
    return not supply or any(
        amount > supply.get(name, 0.0) + 1e-9 for name, amount in demand.items()
    )
