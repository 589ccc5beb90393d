"""The interface of searchers."""

from __future__ import annotations

import functools
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from .objectives.outcome_constraint import OutcomeConstraint
from .recorded_arguments import Declared

MODES = ("min", "max")
Duplicates = Literal["repeat", "skip", "reuse"]
"""How to treat a repeated configuration: run it again, skip it, or reuse the result."""

POLICIES: Final[tuple[Duplicates, ...]] = ("repeat", "skip", "reuse")


class Searcher(Declared, ABC):
    """Proposes configurations and learns from results.

    A searcher is called by one thread only and draws all random numbers from the seed it is given.
    For each trial it gets `suggest`, then any number of `on_trial_result` and `on_trial_pause`,
    then exactly one `on_trial_complete` or `on_trial_discard`. Retries of a crashed trial are not
    visible to it, except that results may be repeated.

    A subclass written for Ray Tune works unchanged: its `on_trial_complete` need not take
    ``stopped``, nor its `set_search_properties` further arguments, and ``self._metric`` and
    ``self._mode`` are what `metric` and `mode` return.

    Args:
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.

    Attributes:
        constraints: What results have to keep, see `TuneConfig`; empty while unknown.

    Raises:
        TypeError: If `metric` is no name.
        ValueError: If `mode` is neither of the two.

    Departures:
        Ray Tune's `save` and `restore` have to be written for each searcher. Here they save
        `get_state`, and an experiment does not need them: it is restored from its journal.
    """

    FINISHED: ClassVar[str] = "FINISHED"
    takes_several_metrics: ClassVar[bool] = False
    """Whether it searches for trade-offs between several metrics; true as well of one that does not
    look at any."""
    takes_constraints: ClassVar[bool] = False
    """Whether it keeps to the feasible trials where ``TuneConfig(constraints=...)`` bounds what
    they may report; true as well of one that does not look at any metric."""
    takes_where: ClassVar[bool] = False
    """Whether all that it suggests satisfies the ``where`` of a `Space`."""

    _metric: str | None = None
    _mode: str | None = None
    _several_objectives: tuple[tuple[str, str], ...] = ()
    constraints: tuple[OutcomeConstraint, ...] = ()
    _num_samples: int | None = None
    _total_samples: int | None = None
    _wrapped: Searcher | None = None
    """What a `SearcherWrapper` wraps; None for any other searcher."""

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        if metric is not None and (not isinstance(metric, str) or not metric):
            raise TypeError(
                f"metric must be the name of a reported value, got {metric!r}; None takes "
                "TuneConfig(metric=...)"
            )
        if mode is not None and mode not in MODES:
            raise ValueError(
                f"mode must be one of {MODES}, got {mode!r}; None takes TuneConfig(mode=...)"
            )
        self.metric = metric
        self.mode = mode

    # Properties, since searchers written for Ray Tune assign to `_metric` and `_mode`, some without
    # calling our methods.
    @property
    def metric(self) -> str | None:
        """Name of the metric, flattened; None while unknown."""
        return self._metric

    @metric.setter
    def metric(self, metric: str | None) -> None:
        self._metric = metric

    @property
    def mode(self) -> str | None:
        """``"min"`` or ``"max"``: the direction of optimisation; None while unknown."""
        return self._mode

    @mode.setter
    def mode(self, mode: str | None) -> None:
        self._mode = mode

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode (``"min"`` or ``"max"``) of each objective; empty while unknown."""
        one = ((self.metric, self.mode),) if self.metric and self.mode else ()
        return self._several_objectives or one

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set the experiment's metric, mode, space and seed, before the first suggestion.

        Args:
            metric: Name of the metric in flattened form, or None.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
            config: The search space, constants included.
            **spec: ``seed`` (int), ``num_samples`` (int, -1 for endless), ``experiment`` (str), an
                id of the experiment, which is the same when it is restored, ``objectives``, metric
                and mode of each objective, of which `metric` and `mode` are None where there are
                several, and ``constraints``, the `OutcomeConstraint` of each metric that has one.

        Returns:
            False where the searcher already has a metric, mode or space that differs from the one
            given here.
        """
        if (metric and self.metric not in (None, metric)) or (
            mode and self.mode not in (None, mode)
        ):
            return False
        self.metric = metric or self.metric
        self.mode = mode or self.mode
        self._num_samples = spec.get("num_samples", self._num_samples)
        objectives = tuple(spec.get("objectives", ()))
        if len(objectives) > 1:
            self._several_objectives = objectives
        self.constraints = tuple(spec.get("constraints", self.constraints))
        return True

    @abstractmethod
    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Propose a configuration.

        Args:
            trial_id: The trial that will run it.

        Returns:
            A configuration (nested as in the space), `FINISHED` when there will be no more, or None
            for "not now, ask again after the next result".
        """

    def explain_suggestion(self) -> str:
        """Return how the last suggestion was made, e.g. by which model; empty if unknown.

        An experiment calls it after each configuration that `suggest` has returned, and
        ``tuner explain`` shows the answer.
        """
        return ""

    @property
    def total_samples(self) -> int | None:
        """Total number of suggestions; None for endless, 0 before the searcher has an experiment.

        A subclass may use an attribute of this name for another purpose: experiments call
        `num_trials_for`.
        """
        if self._total_samples is not None:
            return self._total_samples
        return 0 if self._num_samples is None else self.num_trials_for(self._num_samples)

    @total_samples.setter
    def total_samples(self, total_samples: int | None) -> None:
        self._total_samples = total_samples

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return how many suggestions an experiment takes in all; None for endless.

        Args:
            num_samples: ``TuneConfig.num_samples``, where -1 means endless.
        """
        return None if num_samples < 0 else num_samples

    def num_first_points(self, num_samples: int) -> int:
        """Return how many suggestions usually come before those of its model; 0 without a model.

        Args:
            num_samples: How many there will be in all; -1 for an endless number.
        """
        return 0

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Handle an intermediate result, flattened to ``"a/b"``."""

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Handle a paused trial, which may be resumed later.

        Args:
            trial_id: The trial.
            result: Its last result, flattened; None if it never reported.
        """

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Handle a trial's end.

        Args:
            trial_id: The trial.
            result: Its last result, flattened; None if it never reported or failed.
            error: Whether it failed for good.
            stopped: Whether a scheduler or a stopper ended it before it was done.
        """

    def on_trial_discard(self, trial_id: str) -> None:
        """Handle a suggestion that will not be run as proposed.

        It is the last call for the trial, in place of `on_trial_complete`. Unless it is
        overridden, the trial counts as failed.

        Args:
            trial_id: The trial that the configuration was suggested for.
        """
        self.on_trial_complete(trial_id, error=True)

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Handle a trial that runs another configuration than the one suggested for it.

        An experiment that is restored asks for all its trials again. Where it is declared otherwise
        than before, the answers differ from what it has run, and it calls this right after
        `suggest`. A searcher that enumerates configurations, or is given some to begin with, has to
        go on with those that have not been run.

        Args:
            trial_id: The trial.
            config: What the trial runs, maybe a configuration of another space; None for a
                suggestion that was made too early, and belongs to a later trial.

        Returns:
            Whether the searcher learns from the trial: results and end follow as if it had
            suggested this configuration. Otherwise nothing follows, but `on_trial_discard` if it
            has made a suggestion.
        """
        return False

    def surplus_trials(self, num_samples: int) -> Collection[str]:
        """Return the trials that take the place of no suggestion, see `on_trial_replaced`.

        Args:
            num_samples: ``TuneConfig.num_samples``, where -1 means endless.
        """
        return ()

    def num_points_left(self, num_samples: int) -> int:
        """Return how many points to evaluate are still to be run.

        Args:
            num_samples: ``TuneConfig.num_samples``, where -1 means endless. Further points are not
                run, and do not count.
        """
        return 0

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set how many suggestions may be unfinished at a time, e.g. to propose as many together.

        Args:
            max_concurrent: At least 1.

        Returns:
            Whether the searcher itself enforces it, by answering None.
        """
        return False

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add an externally evaluated configuration; metric, mode and space must be known.

        The point is known to this object only: where the experiment is restored, it has to be
        added again.

        Args:
            parameters: The configuration, nested or with names such as ``"a/b"``.
            value: The metric's value, in its own direction; a dictionary with the values of all
                where there are several metrics or constraints.
            error: Whether the run failed.
            pruned: Whether it was stopped before it was done.
            intermediate_values: Its intermediate values, from the first training iteration on.

        Raises:
            NotImplementedError: If the searcher does not learn from results, or only from its own.
            ValueError: If the configuration does not fit the space.
        """
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} takes no evaluated points, got {parameters!r}; give it points_to_evaluate to "
            "run them again"
        )

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str | None = None) -> None:
        """Add the trials of another experiment as evaluated points.

        Args:
            trials_or_analysis: A list of trials, or an object that has them as ``trials``: a
                `ResultGrid` or an `ExperimentAnalysis`. Trials that reported no number are left
                out, and so are those that have not ended, and those of Ray Tune for which it is not
                known whether they were trained to the end.
            metric: Name of the metric, flattened, whose last value counts. None for what the search
                optimises: the metric, or all of several. The newest values of those that
                constraints bound are added in any case.

        Raises:
            NotImplementedError: If the searcher does not learn from results, or only from its own.
            ValueError: If a configuration does not fit the space, or one metric is named where
                several are optimised.
        """
        inner = unwrapped(self)
        own = [name for name, _ in inner.objectives]
        if metric is not None and len(own) > 1:
            listed = ", ".join(map(repr, own))
            raise ValueError(
                f"metric must be left out where several are optimised, {listed}, got {metric!r}; "
                "trials are added with all of them"
            )
        metrics = own if metric is None else [metric]
        if not metrics:
            raise ValueError(
                "metric must be given as long as the search has none, got None; pass metric=..., "
                "or call set_search_properties before"
            )
        bounded = [each.metric for each in inner.constraints if each.metric not in metrics]
        for trial in getattr(trials_or_analysis, "trials", trials_or_analysis):
            value = _values_of(trial, metrics, bounded)
            if value is not None and _has_known_end(trial):
                status, ending = str(trial.status), str(getattr(trial, "ending", None))
                self.add_evaluated_point(
                    trial.config, value, error=status == "ERROR", pruned=ending == "stopped early"
                )

    @property
    def keeps_state(self) -> bool:
        """Whether `state_dict` returns the complete state.

        False unless it is overridden: the searcher is then restored by replaying all suggestions
        and results.
        """
        return type(self).state_dict is not Searcher.state_dict

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def get_state(self) -> dict[str, Any]:
        """Return what `save` writes: `state_dict`, unless it is overridden.

        Raises:
            NotImplementedError: If the searcher has no state that can be saved.
        """
        if not self.keeps_state:
            kind = type(self).__name__
            raise NotImplementedError(
                f"{kind} has no state that can be saved; override get_state and set_state, or use "
                f"Tuner.restore, which repeats all results to {kind}"
            )
        return self.state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.load_state_dict(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the searcher's state to a file, for use without an experiment.

        Args:
            checkpoint_path: The file, which is replaced.

        Raises:
            NotImplementedError: See `get_state`.
            OSError: If the file cannot be written.
        """
        text = json.dumps({"searcher": type(self).__name__, "state": self.get_state()})
        # Without pathlib: searchers do not touch the disk, except here and in `restore`.
        with open(checkpoint_path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state from a file that `save` has written.

        The searcher has to be constructed with the same arguments as the saved one.

        Args:
            checkpoint_path: The file.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If another kind of searcher has written it, or `save` has not.
        """
        with open(checkpoint_path, encoding="utf-8") as file:  # noqa: PTH123
            saved = json.load(file)
        kind = type(self).__name__
        if (
            not isinstance(saved, dict)
            or saved.keys() != {"searcher", "state"}
            or saved["searcher"] != kind
        ):
            raise ValueError(
                f"{checkpoint_path!r} must be saved by {kind}, got {saved!r:.80}; restore it with "
                "the searcher that saved it"
            )
        self.set_state(saved["state"])


def report_end(
    searcher: Searcher,
    trial_id: str,
    result: Mapping[str, Any] | None = None,
    *,
    error: bool = False,
    stopped: bool = False,
) -> None:
    """Call `Searcher.on_trial_complete`, without ``stopped`` if a subclass does not take it."""
    arguments: dict[str, Any] = {"result": result, "error": error}
    if _takes(type(searcher).on_trial_complete, "stopped"):
        arguments["stopped"] = stopped
    searcher.on_trial_complete(trial_id, **arguments)


def pass_search_properties(
    searcher: Searcher,
    metric: str | None,
    mode: str | None,
    config: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> bool:
    """Call `Searcher.set_search_properties` with those entries of `spec` that it takes."""
    method = type(searcher).set_search_properties
    is_taken = bool(
        searcher.set_search_properties(
            metric,
            mode,
            config,
            **{name: value for name, value in spec.items() if _takes(method, name)},
        )
    )
    if is_taken and "num_samples" in spec:
        # A subclass's method may not take the number, or, in a wrapper, pass on another one.
        searcher._num_samples = spec["num_samples"]  # noqa: SLF001
    return is_taken


# Called at the end of each trial, and signatures are slow to inspect.
@functools.lru_cache(maxsize=256)
def _takes(function: Callable[..., Any], argument: str) -> bool:
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def _has_known_end(trial: Any) -> bool:
    """Return whether a trial was trained to its end, stopped early, or failed."""
    # Objects of other packages have no ending; the user has chosen them.
    endings = ("completed", "stopped early", "failed")
    return not hasattr(trial, "ending") or str(trial.ending) in endings


def _values_of(
    trial: Any, metrics: Sequence[str], bounded: Sequence[str]
) -> float | dict[str, float] | None:
    """Return a trial's last value of the only metric, or what is known of all by name.

    Returns:
        None if it lacks one of `metrics`.
    """
    known = {name: _newest_value(trial, name) for name in [*metrics, *bounded]}
    found = {name: value for name, value in known.items() if value is not None}
    if any(name not in found for name in metrics):
        return None
    return found if len(metrics) > 1 or bounded else found[metrics[0]]


def _newest_value(trial: Any, metric: str) -> float | None:
    """Return the last result's value, or of a metric that it lacks the newest one."""
    value = _value_at(trial.last_result, metric)
    earlier = getattr(trial, "summary", {}).get(metric)
    return float(earlier.last) if value is None and earlier is not None else value


def _value_at(result: Any, metric: str) -> float | None:
    """Return the number under a flattened name of a nested or flat result."""
    if not isinstance(result, Mapping):
        return None
    value = result.get(metric)
    head, _, rest = metric.partition("/")
    if value is None and rest:
        return _value_at(result.get(head), rest)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def unwrapped(searcher: Searcher) -> Searcher:
    """Return the searcher inside all wrappers."""
    while searcher._wrapped is not None:  # noqa: SLF001  (of this module)
        searcher = searcher._wrapped  # noqa: SLF001
    return searcher
