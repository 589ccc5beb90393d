"""PBT whose intervals are long early, so that it judges by lasting progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from schedulers.arguments import checked_time
from schedulers.decisions import Number
from schedulers.metric import strict
from schedulers.scheduler import TrialView

from .explore import CustomExplore, Explorer, named_generator
from .members import Member
from .population_scheduler import ClonePlan, PopulationScheduler, has_own_checkpoint

# Chosen by measurement, with benchmarks/quality/populations.
_SHARE = 0.2
"""The longest interval, as a part of the training that is left."""


@final
class PatientPopulationBasedTraining(PopulationScheduler):
    """PBT with long intervals, short only at the end: lasting progress counts.

    PBT is greedy. What lowers the loss within one interval spreads through the population, whether
    or not it pays in the end: typically a learning rate that is reduced too early, since less noise
    shows at once, and slower progress late. With short intervals the outcome may be worse than with
    a good constant.

    Here a member has as much time until its next turn as it has been trained for, but at most a
    fifth of the training that is left: of 100 iterations, its turns are at 1, 2, 4, 8, 16, 32, 46,
    57 and so on. So early comparisons are quick, those in the middle are about long training, and
    haste is left for the end, where only the next iterations matter. Values move by small steps,
    and none are drawn afresh. At its turn a member is compared, cloned and varied as in
    `PopulationBasedTraining`.

    Where several hyperparameters keep out noise and members are not equally fast,
    `PopulationBasedTraining` with long intervals was as good or better; equally fast members, or
    those that wait (`synch`), lose nothing.

    Args:
        max_t: How long each member will be trained, in units of `time_attr`, as your stop criterion
            says; more than 0. After it, turns follow at each `perturbation_interval`.
        hyperparam_mutations: How each hyperparameter may change, as in `PopulationBasedTraining`;
            None clones without varying anything.
        time_attr: Entry of a result that tells how long the trial has trained; must grow, and
            continue from a checkpoint's value.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        perturbation_interval: The shortest interval, in units of `time_attr`; more than 0.
        burn_in_period: No member is cloned before this time; at least 0.
        quantile_fraction: Which part of the population becomes clones, and which is cloned; from 0,
            for none, to 0.5.
        resample_probability: How likely a hyperparameter is drawn afresh rather than moved; from 0
            to 1.
        perturbation_factors: Up and down: 1.1 moves by a tenth of the domain's whole scale. Numbers
            without a domain are multiplied.
        custom_explore_fn: Takes the varied configuration and returns the one to continue with.
        log_config: Whether the engine logs which member becomes a clone of which.
        require_attrs: Whether to warn the user about results without `time_attr` or the metric;
            nothing is decided on those.
        synch: Whether members wait for each other at each turn, and are compared all together.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.

    Example:
        >>> from searchers.space import loguniform
        >>> mutations = {"lr": loguniform(1e-4, 1e-1)}
        >>> scheduler = PatientPopulationBasedTraining(40, mutations, metric="loss", mode="min")
        >>> scheduler.debug_string()
        'PatientPopulationBasedTraining: 0 members, 0 clones, 0 waiting'

    Reference:
        Jaderberg and others. Population Based Training of Neural Networks. 2017, arXiv 1711.09846:
        algorithm 1 with truncation selection.

        Wu, Ren, Liao, Grosse. Understanding Short-Horizon Bias in Stochastic Meta-Optimization.
        ICLR 2018, arXiv 1803.02021: why a short horizon reduces learning rates too early.

    Departures:
        From PBT, which has intervals of equal lengths: see above. Chebykin, Alderliesten, Bosman
        (arXiv 2511.09190) make intervals longer when the population stagnates, and restart; here
        nothing is restarted, and intervals become shorter towards the end.
    """

    prefix: ClassVar[str] = "patient_pbt"

    def __init__(
        self,
        max_t: Number,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        *,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: Number = 1,
        burn_in_period: Number = 0.0,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.0,
        perturbation_factors: Sequence[float] = (1.1, 0.9),
        custom_explore_fn: CustomExplore | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            burn_in_period=burn_in_period,
            quantile_fraction=quantile_fraction,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self._max_t = checked_time("max_t", max_t)
        self._explorer = Explorer(
            hyperparam_mutations, resample_probability, perturbation_factors, custom_explore_fn
        )

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space with missing entries of `hyperparam_mutations` added."""
        return self._explorer.completed_space(space)

    def _next_turn(self, begin: float) -> float:
        patience = min(begin, _SHARE * (self._max_t - begin))
        return begin + max(self._interval, patience)

    def _is_saved(self, trial: TrialView, member: Member) -> bool:
        # Intervals are long: its checkpoint may be far behind the score for which it was chosen.
        can_save_now = self.experiment.can_save_on_demand and trial.status == "RUNNING"
        is_latest = trial.checkpoint_iteration == member.curve.points[-1].iteration
        return has_own_checkpoint(trial, member) and (is_latest or not can_save_now)

    def _plan(self, member: Member, event: str) -> ClonePlan | None:
        plan = super()._plan(member, event)
        if plan is None:
            return None
        return dataclasses.replace(
            plan, numbers={**plan.numbers, "interval": strict(member.stride)}
        )

    def _new_config(self, target: Member, donor: Member, event: str) -> Mapping[str, Any]:
        return self._explorer(
            self._config_of(donor),
            named_generator(f"{self._seed}/{event}/{target.trial_id}/explore"),
        )
