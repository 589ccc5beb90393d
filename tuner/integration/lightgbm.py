"""LightGBM: a callback that reports each round and saves the model, and `resume`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, ClassVar

from tuner.storage.checkpoints import Checkpoint

from .boosting import Postprocessing, Rounds, num_rounds_left
from .reporting import Metrics, explain_missing, latest_file, saved_file

try:
    from lightgbm import Booster, CVBooster
except ModuleNotFoundError as error:
    explain_missing(error, "lightgbm", "LightGBM")
    raise

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback", "resume"]

MODEL = "model.txt"

_has_reported_last: ContextVar[bool] = ContextVar("has_reported_last", default=False)
"""Whether an earlier attempt of the trial has already reported the next round."""


class TuneReportCheckpointCallback:
    """Reports LightGBM's metrics after each round, and saves the model.

    The metrics are those of ``valid_sets``, named ``"<data>-<metric>"``, e.g. ``"validation-auc"``;
    for a cross-validation ``"valid-auc-mean"`` and ``"valid-auc-stdv"``. Whether a smaller or
    larger value is better depends on the metric.

    To continue after a pause or a failure, a trial needs a `frequency`, best 1, and `resume`: the
    model at the end comes too late. LightGBM's early stopping ends training without another report,
    so that no model is saved then without a `frequency`.

    Args:
        metrics: Which metrics to report: names, or LightGBM's names by those to report; None, the
            default, for all.
        filename: File in the checkpoint that holds the model.
        frequency: After how many rounds the model is saved, counted from the trial's first; 0, the
            default, for never.
        checkpoint_at_end: Whether the model is saved with the last round.
        results_postprocessing_fn: Converts the chosen metrics, by name, before they are reported.

    Raises:
        ImportError: On import of this module, if LightGBM is not installed.
        TypeError: If `metrics` are no names.
        ValueError: If `frequency` is negative or `filename` leads out of the checkpoint; in
            training, if there is no such metric.

    Example:
        >>> import lightgbm, numpy
        >>> settings = {"objective": "binary", "min_data_in_leaf": 1, "min_data_in_bin": 1}
        >>> settings |= {"num_threads": 1, "verbosity": -1}
        >>> def train(config):
        ...     data = lightgbm.Dataset(numpy.arange(8.0).reshape(8, 1), label=numpy.arange(8) > 3)
        ...     metrics = {"loss": "train-binary_logloss"}
        ...     callback = TuneReportCheckpointCallback(metrics, frequency=1)
        ...     watch = {"valid_sets": [data], "valid_names": ["train"]}
        ...     lightgbm.train(settings | config, data, callbacks=[callback], **watch, **resume(5))
        >>> import tuner as tune
        >>> run_config = tune.RunConfig(executor="inline", verbose=0)
        >>> space = {"learning_rate": 0.3}
        >>> result = tune.Tuner(train, param_space=space, run_config=run_config).fit()[0]
        >>> result.metrics["training_iteration"], result.metrics["loss"] < 0.3
        (5, True)
        >>> TuneReportCheckpointCallback.get_model(result.checkpoint).current_iteration()
        5

    Departures:
        `frequency` counts from the trial's first round, in Ray Tune from the attempt's. `get_model`
        also reads the models of a cross-validation.
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
        self._rounds = Rounds(metrics, filename, frequency, results_postprocessing_fn)
        self._checkpoint_at_end = checkpoint_at_end

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = MODEL) -> Booster | CVBooster:
        """Return the model from a checkpoint, a ``CVBooster`` for a cross-validation.

        Args:
            checkpoint: The checkpoint.
            filename: The callback's `filename`.

        Raises:
            TypeError: If there is no checkpoint.
            FileNotFoundError: If it holds no such file.
        """
        with saved_file(checkpoint, filename) as path:
            text = path.read_text(encoding="utf-8")
        # One model is written as lines, those of a cross-validation as JSON.
        return (
            CVBooster().model_from_string(text) if text.startswith("{") else Booster(model_str=text)
        )

    def __call__(self, env: Any) -> None:
        """Report the round; `env` is LightGBM's ``CallbackEnv``."""
        if _has_reported_last.get():  # see `resume`
            _has_reported_last.set(False)
            return
        num_rounds = env.iteration + 1
        is_last = self._checkpoint_at_end and num_rounds == env.end_iteration
        self._rounds.report(
            _metrics_of(env.evaluation_result_list), env.model, num_rounds, is_last=is_last
        )


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports LightGBM's metrics, and saves nothing; see `TuneReportCheckpointCallback`.

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
    """Return arguments for ``lightgbm.train`` to continue from the trial's checkpoint, if any.

    Trees are added to those of the checkpoint. LightGBM does not save the state of its random
    generators: with bagging and the like, an uninterrupted training would grow other trees.

    Args:
        num_boost_round: The total number of rounds.
        filename: The callback's `filename`.

    Returns:
        ``num_boost_round``, the rounds that are left, and ``init_model``, the model or None. Since
        LightGBM cannot train for no rounds, the last one is trained again if all are done, but not
        reported again.

    Raises:
        ValueError: If `num_boost_round` is not positive.
        FileNotFoundError: If the checkpoint holds no such file.

    Example:
        >>> resume(100)
        {'num_boost_round': 100, 'init_model': None}
    """
    saved = latest_file(filename)
    model = None if saved is None else Booster(model_file=str(saved))
    num_left = num_rounds_left(num_boost_round, 0 if model is None else model.current_iteration())
    if model is not None and num_left == 0:
        num_left = 1
        _has_reported_last.set(True)
        model = _first_rounds(model, num_boost_round - 1)
    return {"num_boost_round": num_left, "init_model": model}


def _first_rounds(model: Booster, num_rounds: int) -> Booster | None:
    # LightGBM takes 0 for all rounds.
    return (
        Booster(model_str=model.model_to_string(num_iteration=num_rounds)) if num_rounds else None
    )


def _metrics_of(evaluations: Any) -> dict[str, Any]:
    """Return the metrics by name; in a cross-validation each has a mean and a deviation."""
    metrics: dict[str, Any] = {}
    # (data, name, value, is_higher_better), with the deviation as a fifth in a cross-validation
    for data, name, value, *rest in evaluations or ():
        if len(rest) > 1:
            metrics[f"{data}-{name}-mean"], metrics[f"{data}-{name}-stdv"] = value, rest[1]
        else:
            metrics[f"{data}-{name}"] = value
    return metrics
