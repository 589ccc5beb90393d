"""Reports and checkpoints by boosting round, for the callbacks for XGBoost and LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from tuner.execution.session import report

from .reporting import Metrics, Selection, check_filename, report_saved

Postprocessing = Callable[[dict[str, Any]], dict[str, Any]]


@final
class Rounds:
    """Reports rounds of boosting.

    Args:
        metrics: Which metrics are reported; None for all.
        filename: File in the checkpoint that holds the model.
        frequency: After how many rounds the model is saved; 0 for never.
        postprocess: Converts the chosen metrics before they are reported; None to report them.

    Raises:
        TypeError: If `metrics` are no names.
        ValueError: If `frequency` is negative, or `filename` leads out of the checkpoint.
    """

    __slots__ = ("_filename", "_frequency", "_latest", "_postprocess", "_selection")

    def __init__(
        self, metrics: Metrics, filename: str, frequency: int, postprocess: Postprocessing | None
    ) -> None:
        if frequency < 0:
            raise ValueError(
                f"frequency must be at least 0 (0 is off), got {frequency!r}; it is counted "
                "in rounds of boosting"
            )
        self._selection = Selection(metrics)
        self._filename = check_filename(filename)
        self._frequency = frequency
        self._postprocess = postprocess
        self._latest: dict[str, Any] = {}

    def report(
        self, offered: Mapping[str, Any], model: Any, num_rounds: int, *, is_last: bool = False
    ) -> bool:
        """Report a round, and save the model if that is due.

        Args:
            offered: The metrics of the round.
            model: The model; those of some cross-validations cannot be saved and are not.
            num_rounds: How many rounds it has, earlier attempts included.
            is_last: Whether the model is saved even if it is not due.

        Returns:
            Whether it was saved.
        """
        chosen = self._selection.all_of(offered)
        self._latest = self._postprocess(chosen) if self._postprocess else chosen
        if is_last or (self._frequency and num_rounds % self._frequency == 0):
            return self.report_again(model)
        report(self._latest)
        return False

    def report_again(self, model: Any) -> bool:
        """Report the latest round with the model; returns whether that could be saved."""
        if not hasattr(model, "save_model"):  # a cross-validation of XGBoost
            report(self._latest)
            return False
        report_saved(self._latest, lambda directory: self._save(model, directory))
        return True

    def _save(self, model: Any, directory: Path) -> None:
        model.save_model(str(directory / self._filename))


def num_rounds_left(num_boost_round: int, num_done: int) -> int:
    """Return how many rounds are still to be trained.

    Raises:
        ValueError: If `num_boost_round` is not positive.
    """
    if num_boost_round < 1:
        raise ValueError(
            f"num_boost_round must be at least 1, got {num_boost_round!r}; it counts all "
            "rounds, those of the checkpoint included"
        )
    return max(0, num_boost_round - num_done)
