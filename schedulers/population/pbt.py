"""PBT: the worst members clone the weights of the best and vary their hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from schedulers.decisions import Number

from .explore import CustomExplore, Explorer, named_generator
from .members import Member
from .population_scheduler import PopulationScheduler


@final
class PopulationBasedTraining(PopulationScheduler):
    """PBT: trains all trials at once; at each interval the worst become varied clones of the best.

    At its turn, a member among the worst `quantile_fraction` of the population (rounded up, half of
    it at most) takes over the latest checkpoint of a random one of the best, with a variation of
    its hyperparameters (`Explorer`). So hyperparameters change while the weights are trained: the
    result is a schedule rather than one configuration.

    Members are compared at equal resource (see `members`), equal scores in an order drawn from
    the seed. For pauses, donors and missing values see `PopulationScheduler`.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow, and
            continue from a checkpoint's value.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        perturbation_interval: How long members train from turn to turn, in units of `time_attr`;
            more than 0.
        burn_in_period: No member is cloned before this time; at least 0.
        hyperparam_mutations: How each hyperparameter may change: a domain such as
            ``loguniform(1e-4, 1e-1)``, a list of neighbours, a function to draw from, or a
            dictionary of these, nested as in the configuration. One that ``param_space`` lacks is
            sampled from this for each trial's first configuration.
        quantile_fraction: Which part of the population becomes clones, and which is cloned; from 0,
            for none, to 0.5.
        resample_probability: How likely a hyperparameter is drawn afresh rather than moved; from 0
            to 1.
        perturbation_factors: Up and down: 1.2 moves by a fifth of the domain's whole scale. Numbers
            without a domain are multiplied.
        custom_explore_fn: Takes the varied configuration and returns the one to continue with.
        log_config: Whether the engine logs which member becomes a clone of which.
        require_attrs: Whether to warn the user about results without `time_attr` or the metric;
            nothing is decided on those.
        synch: Whether members wait for each other at each interval, and are compared all together.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range, or nothing says how hyperparameters change.

    Example:
        >>> from searchers.space import loguniform
        >>> mutations = {"lr": loguniform(1e-4, 1e-1), "batch_size": [16, 32, 64]}
        >>> scheduler = PopulationBasedTraining(
        ...     "training_iteration", "loss", "min", 5, hyperparam_mutations=mutations
        ... )
        >>> scheduler.debug_string()
        'PopulationBasedTraining: 0 members, 0 clones, 0 waiting'

    Reference:
        Jaderberg, Dalibard, Osindero, Czarnecki, Donahue, Razavi, Vinyals, Green, Dunning,
        Simonyan, Fernando, Kavukcuoglu. Population Based Training of Neural Networks. 2017, arXiv
        1711.09846: algorithm 1 with truncation selection.

    Departures:
        From the paper, as Ray Tune: a new clone is judged again only by results of its own. From
        Ray Tune: scores are taken at one step for all, where Ray takes everyone's latest, so that
        the last to report looks best; ties are drawn, rather than going to the oldest;
        hyperparameters never leave their domains (see `Explorer`); trials that have ended stay
        donors; those that fail keep no other waiting; a donor without a checkpoint is asked to
        save; members pause only where not all fit in at once; a result without the metric is
        ignored rather than fatal, even with `require_attrs`; all random numbers come from the seed.
    """

    prefix: ClassVar[str] = "pbt"

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: Number = 60.0,
        burn_in_period: Number = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
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
            quantile_fraction=quantile_fraction,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ValueError(
                f"hyperparam_mutations must name a hyperparameter, got {hyperparam_mutations!r}; "
                "say how it may change, e.g. {'lr': loguniform(1e-4, 1e-1)}, or give "
                "custom_explore_fn"
            )
        self._explorer = Explorer(
            hyperparam_mutations, resample_probability, perturbation_factors, custom_explore_fn
        )

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space with missing entries of `hyperparam_mutations` added."""
        return self._explorer.completed_space(space)

    def _new_config(self, target: Member, donor: Member, event: str) -> Mapping[str, Any]:
        return self._explorer(
            self._config_of(donor),
            named_generator(f"{self._seed}/{event}/{target.trial_id}/explore"),
        )
