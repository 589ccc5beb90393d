"""Detection of a metric that is never reported, mostly since its name is misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, final

from schedulers.decisions import Reason

from .result import AUTO_FILLED, DELIMITER, flatten
from .trial import TerminationReason, Trial
from .trial_metrics import number_in

METRIC_NOT_REPORTED: Final = "metric_not_reported"
"""Rule for which an experiment ends when a trial has completed and none reported the metric."""

_ENOUGH_RESULTS: Final = 10
"""Results of one trial without the metric until the user is warned; not every result has it."""
_ENOUGH_SILENT_TRIALS: Final = 5
"""Trials that have to complete without any result until the metric counts as never reported."""
_ENOUGH_FAILED_VALIDATIONS: Final = 20
"""Validations that have to fail until the metric that they were to supply counts as never reported,
while trials are left to run."""


@final
class MetricWatch:
    """Looks for what is to be optimised in all results.

    Args:
        metrics: The flattened names of the metrics.
        is_required: Whether the experiment ends once a trial has completed and no trial has ever
            reported one of them.
        trials: The trials so far; those of them that have completed did so in an earlier session,
            and since then the training code may have been corrected.

    Attributes:
        missing: The metrics for which no trial has reported a number yet; NaN is one, texts,
            booleans and None are none.
    """

    def __init__(
        self, metrics: Iterable[str], *, is_required: bool, trials: Iterable[Trial] = ()
    ) -> None:
        self.missing = list(metrics)
        self._is_required = is_required
        self._has_warned = False
        self._not_numbers: dict[str, str] = {}
        """Values of missing metrics that are no numbers, shortened for a message."""
        self._completed: Trial | None = None
        self._unvalidated: Trial | None = None
        """One that has completed, and of which each validation has failed."""
        self._num_silent = 0
        for trial in trials:
            self.missing = [metric for metric in self.missing if metric not in trial.summary]

    def on_result(self, flat: Mapping[str, Any], num_rows: int) -> bool:
        """Record a flattened result; return whether to warn now, once, that a metric is missing.

        Args:
            flat: The result.
            num_rows: How many results its trial has with it.
        """
        for metric in list(self.missing):
            if number_in(flat, metric) is not None:
                self.missing.remove(metric)
            elif metric in flat:
                self._not_numbers[metric] = f"{flat[metric]!r:.60}"
        if not self.missing or self._has_warned or num_rows < _ENOUGH_RESULTS:
            return False
        self._has_warned = True
        return True

    def on_completed(self, trial: Trial) -> bool:
        """Record a completed trial; one without results says nothing about the metric's name.

        Returns:
            Whether to warn the user now that the trial has reported nothing, which happens
            once.
        """
        if not trial.last_result:
            self._num_silent += 1
        if trial.last_result or self._num_silent >= _ENOUGH_SILENT_TRIALS:
            self._completed = self._completed or trial
        return not trial.last_result and self._num_silent == 1 and bool(self.missing)

    def on_unvalidated(self, trial: Trial) -> None:
        """Record a completed trial all of whose validations failed, one of which had the metric."""
        self._unvalidated = self._unvalidated or trial

    def value_of(self, metric: str) -> str:
        """Return the last value of a missing metric that is no number, shortened; may be empty."""
        return self._not_numbers.get(metric, "")

    @property
    def reason_to_end(self) -> Reason | None:
        """Why the experiment has to end, None if it has not."""
        if not (self.missing and self._is_required and self._completed):
            return None
        metric, keys = self.missing[0], own_keys(self._completed)
        numbers = {
            "metric": metric,
            "trial_id": self._completed.trial_id,
            "reported": ", ".join(keys),
            "meant": _likeliest(metric, keys),
        }
        if value := self.value_of(metric):
            numbers |= {"meant": "", "value": value}
        return Reason(METRIC_NOT_REPORTED, numbers)

    def reason_of_validations(self, trials: Iterable[Trial], *, is_over: bool) -> Reason | None:
        """Why the experiment has to end as no validation supplies the metric, None if it has not.

        Args:
            trials: All trials.
            is_over: Whether nothing is left to run.
        """
        if not (self.missing and self._is_required and self._unvalidated):
            return None
        ended = [
            one for trial in trials for one in trial.validations.values() if not one.is_unfinished
        ]
        num_failed = sum(not one.is_validated for one in ended)
        if num_failed < len(ended):
            self._unvalidated = None  # the others might have returned the metric, or not
            return None
        if num_failed < _ENOUGH_FAILED_VALIDATIONS and not is_over:
            return None
        numbers: dict[str, int | float | str] = {
            "metric": self.missing[0],
            "trial_id": self._unvalidated.trial_id,
            "num_failed_validations": num_failed,
        }
        return Reason(METRIC_NOT_REPORTED, numbers)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the trials do not contain, as JSON values."""
        completed = self._completed.trial_id if self._completed else None
        unvalidated = {"unvalidated": self._unvalidated.trial_id} if self._unvalidated else {}
        return {
            "missing": list(self.missing),
            "has_warned": self._has_warned,
            "not_numbers": dict(self._not_numbers),
            "completed": completed,
            "num_silent": self._num_silent,
            **unvalidated,
        }

    def load_state_dict(self, state: Mapping[str, Any], trial_of: Callable[[str], Trial]) -> None:
        """Restore what `state_dict` returned; `trial_of` returns a trial by its id."""
        self.missing, self._has_warned = list(state["missing"]), state["has_warned"]
        self._completed = trial_of(state["completed"]) if state["completed"] else None
        self._unvalidated = trial_of(state["unvalidated"]) if "unvalidated" in state else None
        self._num_silent = state["num_silent"]
        self._not_numbers = dict(state["not_numbers"])


def why_unknown(metrics: Iterable[str], trials: Collection[Trial]) -> Reason | None:
    """Return why metrics that a restore names cannot be right: no recorded result has them.

    Args:
        metrics: The flattened names of those that the experiment did not have before.
        trials: Its trials.

    Returns:
        None if the trials have reported all of them, or none has completed, so that one may come.
    """
    watch = MetricWatch(metrics, is_required=True, trials=trials)
    for trial in trials:
        if trial.ending is TerminationReason.COMPLETED:
            watch.on_completed(trial)
    return watch.reason_to_end


def own_keys(trial: Trial) -> list[str]:
    """Return the flattened names of all that the training code of a trial has reported itself."""
    keys = (
        trial.summary.keys()
        | flatten(
            {key: value for key, value in trial.last_result.items() if key not in AUTO_FILLED}
        ).keys()
    )
    return sorted(keys - AUTO_FILLED)


def meant_by(metric: str, keys: Collection[str]) -> list[str]:
    """Return the reported keys, at most three, that resemble a missing metric, the likeliest first.

    First come those that differ in the path only, ``val/loss`` for ``loss`` and the other way
    round.

    Example:
        >>> meant_by("val_accuracy", ["train_loss", "val_acc"])
        ['val_acc']
    """
    leaf = metric.rpartition(DELIMITER)[2]
    same_leaf = [key for key in keys if key.rpartition(DELIMITER)[2] == leaf]
    return list(dict.fromkeys([*same_leaf, *difflib.get_close_matches(metric, keys, n=3)]))[:3]


def _likeliest(metric: str, keys: Sequence[str]) -> str:
    return next(iter(meant_by(metric, keys)), "")


def warning_for(metric: str, trial: Trial, value: str = "") -> str:
    """Return the warning that a trial has not reported the metric in many results, or in none.

    Args:
        metric: The metric.
        trial: The trial.
        value: See `MetricWatch.value_of`.
    """
    keys = own_keys(trial)
    beginning = f"has reported {_ENOUGH_RESULTS} results" if trial.last_result else "completed"
    return _sentence(
        f"trial {trial.trial_id} {beginning}",
        metric,
        value,
        ", ".join(keys),
        _likeliest(metric, keys),
        so_far=" so far",
    )


def error_for(reason: Reason) -> str:
    """Return the sentence for a `MetricWatch.reason_to_end`.

    Example:
        >>> numbers = {"metric": "ac", "trial_id": "t00000", "reported": "acc", "meant": "acc"}
        >>> error_for(Reason(METRIC_NOT_REPORTED, numbers)).partition(", and ")[2]
        "no trial has reported the metric 'ac'; reported were acc; did you mean 'acc'?"
    """
    numbers = reason.numbers
    beginning = f"trial {numbers['trial_id']} completed"
    if "num_failed_validations" in numbers:
        return f"{beginning}, and no trial has reported the metric {numbers['metric']!r}"
    return _sentence(
        beginning,
        str(numbers["metric"]),
        str(numbers.get("value", "")),
        str(numbers["reported"]),
        str(numbers["meant"]),
    )


def _sentence(
    beginning: str, metric: str, value: str, keys: str, meant: str, *, so_far: str = ""
) -> str:
    if value and keys:
        return (
            f"{beginning}, and no trial has reported a number for the metric {metric!r}{so_far}; "
            f"it was {value}, which is no number"
        )
    beginning = f"{beginning}, and no trial has reported the metric {metric!r}{so_far}"
    if not keys:
        return (
            f"{beginning}; the trial reported nothing: "
            "call tune.report(metrics), or return the metrics"
        )
    return f"{beginning}; reported were {keys}{f'; did you mean {meant!r}?' if meant else ''}"
