"""MF-PBT: population based training with sub-populations that evolve at different frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, final

from schedulers.decisions import Number

from .explore import CustomExplore, Explorer, named_generator
from .members import Comparison, Member
from .population_scheduler import ClonePlan, PopulationScheduler, comparison_numbers

_QUARTERS = 4


@final
class MFPopulationBasedTraining(PopulationScheduler):
    """MF-PBT: equal sub-populations that evolve at different frequencies and share weights.

    Trial number `i` of `n` belongs to sub-population ``i % k``, where `k` is the number of
    frequencies, or ``n // 4`` if that is less: a smaller sub-population could not be divided into
    quarters. Then the last frequencies are not used; below 8 members all are one population. In
    each of its turns, or every tenth one where its frequency is 10, a member is ranked within its
    sub-population, at equal resource (see `members`):

    * in the **last quarter** it becomes a clone of the member at the same place in the first
      quarter, with varied hyperparameters;
    * in the **third quarter** it takes the weights of one of the best members of all *other*
      sub-populations, the best for the best of the quarter and so on, if that one ranks above it.
      From a slower sub-population (larger frequency) it takes the hyperparameters as well; from a
      faster one it takes the weights alone, and continues with the hyperparameters of the best of
      its own sub-population.

    Fast sub-populations lend only their weights, since their hyperparameters may be good only at
    first. A quarter is rounded down, to one at least.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow, and
            continue from its value in a checkpoint.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        perturbation_interval: How long members train from turn to turn, in units of `time_attr`;
            more than 0.
        burn_in_period: No member is cloned before this time; at least 0.
        hyperparam_mutations: How each hyperparameter may change, as in `PopulationBasedTraining`;
            None clones without varying anything.
        frequencies: After how many turns each sub-population evolves; whole numbers from 1 up, each
            larger than the one before.
        resample_probability: How likely a hyperparameter is drawn afresh rather than moved; from 0
            to 1.
        perturbation_factors: Up and down: 1.2 moves by a fifth of the domain's whole scale.
        custom_explore_fn: Takes the varied configuration and returns the one to continue with.
        log_config: Whether the engine logs which member becomes a clone of which.
        require_attrs: Whether to warn the user about results without `time_attr` or the metric;
            nothing is decided on those.
        synch: Whether the members of a sub-population wait for each other where it evolves, and are
            compared all together; sub-populations never wait for each other.

    Attributes:
        frequencies: As given.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.

    Example:
        >>> from searchers.space import loguniform
        >>> mutations = {"lr": loguniform(1e-4, 1)}
        >>> MFPopulationBasedTraining(
        ...     "training_iteration", "reward", "max", 5, hyperparam_mutations=mutations
        ... ).frequencies
        (1, 10)

    Reference:
        Doulazmi, Lehuger, Toromanoff and others. Multiple-Frequencies Population-Based Training.
        2025, arXiv 2506.03225.

    Departures:
        The paper evolves a sub-population at one moment; without `synch`, each member does in its
        own turn, by the ranking of that moment. The paper runs 4 sub-populations at the frequencies
        1, 10, 25 and 50; with few members, 2 are the default, and 1 below 8 members.
    """

    prefix: ClassVar[str] = "mf_pbt"

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: Number = 60.0,
        burn_in_period: Number = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        frequencies: Sequence[int] = (1, 10),
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
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
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self.frequencies = _checked_frequencies(frequencies)
        self._num_groups: int | None = None
        self._explorer = Explorer(
            hyperparam_mutations, resample_probability, perturbation_factors, custom_explore_fn
        )

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space with missing entries of `hyperparam_mutations` added."""
        return self._explorer.completed_space(space)

    def _check_size(self, num_members: int) -> None:
        # Once: members stay where they are if a restored experiment is given more of them.
        if self._num_groups is None:
            num_quartets = max(1, num_members // _QUARTERS)
            self._num_groups = min(len(self.frequencies), num_quartets)
        least = _QUARTERS * len(self.frequencies)
        if num_members < least:
            self._add_remark(
                f"sub-populations at the frequencies {self.frequencies} need {least} members, "
                f"{_QUARTERS} each, to be ranked in quarters, got {num_members}, which evolve at "
                f"{self.frequencies[: self._num_groups]}; set num_samples to {least} or more"
            )

    def _sub_population(self, member: Member) -> int:
        return member.number % (self._num_groups or len(self.frequencies))

    def _group(self, member: Member) -> str:
        return f"sub-population {self._sub_population(member)}"

    def _may_become_clone(self, member: Member) -> bool:
        is_due = member.num_turns % self.frequencies[self._sub_population(member)] == 0
        return is_due and super()._may_become_clone(member)

    def _plan(self, member: Member, event: str) -> ClonePlan | None:
        own, key = self._sub_population(member), f"{self._seed}/{event}"
        peers = [other for other in self._peers(member) if self._sub_population(other) == own]
        comparison = self._compare(member, peers, key)
        if comparison is None or len(comparison.members) < 2:  # noqa: PLR2004  (it is alone)
            return None
        num, share = len(comparison.members), max(1, len(comparison.members) // _QUARTERS)
        rank = comparison.rank(member)
        # Last quarter: exploit within the sub-population. Third quarter: migration. The better half
        # continues as it is.
        if rank > num - share:
            return self._internal(member, comparison, rank - (num - share), event)
        if 2 * share < rank <= 3 * share:
            return self._migration(member, comparison.members[0], rank - 2 * share, key)
        return None

    def _internal(
        self, member: Member, comparison: Comparison, place: int, event: str
    ) -> ClonePlan | None:
        """Clone the member at this place of the first quarter, counted from 1."""
        donor = self._best_feasible(comparison, place)
        if not self._can_donate(donor):
            return None
        numbers = {
            **comparison_numbers(comparison, member, donor),
            "sub_population": self._sub_population(member),
        }
        return ClonePlan(member, donor, self._new_config(member, donor, event), "exploit", numbers)

    @staticmethod
    def _best_feasible(comparison: Comparison, place: int) -> Member:
        """Return the member at a place, or the last better one if only that keeps constraints."""
        members = comparison.members[:place]
        feasible = [member for member in members if not comparison.violation(member)]
        return (feasible or members)[-1]

    def _migration(self, member: Member, best: Member, place: int, key: str) -> ClonePlan | None:
        """Clone the external member with this rank, counted from 1, if it is better."""
        own = self._sub_population(member)
        external = [
            other
            for other in self._peers(member)
            if self._sub_population(other) != own and self._can_donate(other)
        ]
        comparison = self._compare(member, external, key)
        if comparison is None or comparison.rank(member) <= place:
            return None
        donor = self._best_feasible(comparison, place)
        theirs = self._sub_population(donor)
        # Weights may come from anywhere, but hyperparameters not from a faster sub-population: they
        # may be good only at first.
        model = donor if self.frequencies[theirs] > self.frequencies[own] else best
        numbers = {
            **comparison_numbers(comparison, member, donor),
            "sub_population": own,
            "donor_sub_population": theirs,
            "config_from": model.trial_id,
        }
        return ClonePlan(member, donor, dict(self._config_of(model)), "migrate", numbers)

    def _new_config(self, target: Member, donor: Member, event: str) -> Mapping[str, Any]:
        return self._explorer(
            self._config_of(donor),
            named_generator(f"{self._seed}/{event}/{target.trial_id}/explore"),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, as JSON values."""
        return {**super().state_dict(), "num_groups": self._num_groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other frequencies, or that measures
                otherwise.
        """
        super().load_state_dict(state)
        self._num_groups = state["num_groups"]

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "frequencies": list(self.frequencies)}


def _checked_frequencies(frequencies: Any) -> tuple[int, ...]:
    if isinstance(frequencies, str) or not isinstance(frequencies, Sequence) or not frequencies:
        raise TypeError(
            f"frequencies must be a list of whole numbers, got {frequencies!r}; the default is (1, "
            "10)"
        )
    for frequency in frequencies:
        if not isinstance(frequency, int) or isinstance(frequency, bool):
            raise TypeError(
                f"frequencies must be whole numbers, got {frequency!r}; the default is (1, 10)"
            )
    if frequencies[0] < 1 or any(left >= right for left, right in pairwise(frequencies)):
        raise ValueError(
            f"frequencies must grow, from 1 at least, got {frequencies!r}; the default is (1, 10)"
        )
    return tuple(frequencies)
