"""XGBoost: a callback that reports each round and saves the model, and `resume`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tuner.storage.checkpoints import Checkpoint

from .boosting import Postprocessing, Rounds, num_rounds_left
from .reporting import Metrics, explain_missing, latest_file, saved_file

try:
    from xgboost import Booster
    from xgboost.callback import TrainingCallback
except ModuleNotFoundError as error:
    explain_missing(error, "xgboost", "XGBoost")
    raise

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback", "resume"]

MODEL = "model.ubj"


class TuneReportCheckpointCallback(TrainingCallback):
    """Reports XGBoost's metrics after each round, and saves the model.

    The metrics are those of ``evals``, named ``"<data>-<metric>"``, e.g. ``"validation-logloss"``;
    for a cross-validation, whose models cannot be saved, ``"test-logloss-mean"`` and
    ``"test-logloss-std"``. Whether a smaller or larger value is better depends on the metric.

    To continue after a pause or a failure, a trial needs a `frequency`, best 1, and `resume`: the
    model at the end comes too late.

    Args:
        metrics: Which metrics to report: names, or XGBoost's names by those to report; None, the
            default, for all.
        filename: File in the checkpoint that holds the model; XGBoost chooses the format by its
            ending.
        frequency: After how many rounds the model is saved, counted from the trial's first; 0, the
            default, for never.
        checkpoint_at_end: Whether the model is saved after training, if it was not saved with the
            last round. That round has been reported by then, so its metrics are reported twice.
        results_postprocessing_fn: Converts the chosen metrics, by name, before they are reported.
            For a cross-validation it gets pairs of mean and deviation, named ``"test-logloss"``.

    Raises:
        ImportError: On import of this module, if XGBoost is not installed.
        TypeError: If `metrics` are no names.
        ValueError: If `frequency` is negative or `filename` leads out of the checkpoint; in
            training, if there is no such metric.

    Example:
        >>> import numpy, xgboost
        >>> data = xgboost.DMatrix(numpy.arange(8.0).reshape(8, 1), label=numpy.arange(8) > 3)
        >>> def train(config):
        ...     callback = TuneReportCheckpointCallback({"error": "train-error"}, frequency=1)
        ...     watch = {"evals": [(data, "train")], "verbose_eval": False}
        ...     xgboost.train(config, data, callbacks=[callback], **watch, **resume(5))
        >>> import tuner as tune
        >>> run_config = tune.RunConfig(executor="inline", verbose=0)
        >>> space = {"max_depth": 3, "min_child_weight": 0, "nthread": 1, "eval_metric": "error"}
        >>> result = tune.Tuner(train, param_space=space, run_config=run_config).fit()[0]
        >>> result.metrics["training_iteration"], result.metrics["error"]
        (5, 0.0)
        >>> TuneReportCheckpointCallback.get_model(result.checkpoint).num_boosted_rounds()
        5

    Departures:
        `frequency` counts from the trial's first round, in Ray Tune from the attempt's.
        Cross-validation works with `checkpoint_at_end`.
    """

    CHECKPOINT_NAME: ClassVar[str] = MODEL

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = MODEL,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocessing | None = None,
    ) -> None:
        super().__init__()
        self._rounds = Rounds(metrics, filename, frequency, results_postprocessing_fn)
        self._has_pairs = results_postprocessing_fn is not None
        self._checkpoint_at_end = checkpoint_at_end
        self._is_saved = True

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = MODEL) -> Booster:
        """Return the model from a checkpoint.

        Args:
            checkpoint: The checkpoint.
            filename: The callback's `filename`.

        Raises:
            TypeError: If there is no checkpoint.
            FileNotFoundError: If it holds no such file.
        """
        with saved_file(checkpoint, filename) as path:
            return Booster(model_file=str(path))

    def before_training(self, model: Any) -> Any:
        """Prepare for another training; see XGBoost's ``TrainingCallback``."""
        self._is_saved = True
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Any]) -> bool:
        """Report the round; see XGBoost's ``TrainingCallback``."""
        # The boosters of a cross-validation have no number of rounds, and cannot be resumed.
        num_rounds = (
            model.num_boosted_rounds() if hasattr(model, "num_boosted_rounds") else epoch + 1
        )
        self._is_saved = self._rounds.report(
            _latest(evals_log, keep_pairs=self._has_pairs), model, num_rounds
        )
        return False  # True would stop the training

    def after_training(self, model: Any) -> Any:
        """Save the model if it is to be saved at the end and has not been."""
        if self._checkpoint_at_end and not self._is_saved and hasattr(model, "save_model"):
            self._is_saved = self._rounds.report_again(model)
        return model


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports XGBoost's metrics, and saves nothing; see `TuneReportCheckpointCallback`.

    Args:
        metrics: Which metrics to report; None for all.
        results_postprocessing_fn: Converts the chosen metrics before they are reported.

    Departures:
        Ray Tune has removed this class.
    """

    def __init__(
        self, metrics: Metrics = None, results_postprocessing_fn: Postprocessing | None = None
    ) -> None:
        super().__init__(
            metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn
        )


def resume(num_boost_round: int, filename: str = MODEL) -> dict[str, Any]:
    """Return arguments for ``xgboost.train`` to continue from the trial's checkpoint, if any.

    Trees are added to those of the checkpoint. XGBoost does not save the state of its random
    generator: with ``subsample`` and the like, an uninterrupted training would grow other trees.

    Args:
        num_boost_round: The total number of rounds.
        filename: The callback's `filename`.

    Returns:
        ``num_boost_round``, the rounds that are left, possibly none, and ``xgb_model``, the model
        or None.

    Raises:
        ValueError: If `num_boost_round` is not positive.
        FileNotFoundError: If the checkpoint holds no such file.

    Example:
        >>> resume(100)
        {'num_boost_round': 100, 'xgb_model': None}
    """
    saved = latest_file(filename)
    model = None if saved is None else Booster(model_file=str(saved))
    num_done = 0 if model is None else model.num_boosted_rounds()
    return {"num_boost_round": num_rounds_left(num_boost_round, num_done), "xgb_model": model}


def _latest(evals_log: Mapping[str, Any], *, keep_pairs: bool) -> dict[str, Any]:
    """Return the last value of each metric, in a cross-validation a pair of mean and deviation."""
    latest: dict[str, Any] = {}
    for data, metrics in evals_log.items():
        for name, values in metrics.items():
            key, value = f"{data}-{name}", values[-1]
            # A post-processing function gets the pairs, as in Ray Tune.
            if isinstance(value, tuple) and not keep_pairs:
                latest[f"{key}-mean"], latest[f"{key}-std"] = value
            else:
                latest[key] = value
    return latest
