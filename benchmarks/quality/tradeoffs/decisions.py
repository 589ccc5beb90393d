"""Decisions about patients, whose errors are weighed against fairness, calibration and effort."""

from __future__ import annotations

import functools

import numpy as np

from benchmarks.quality.functions.function import Axis
from searchers.objectives import OutcomeConstraint

from .data import Classes, cancer, diabetes, sigmoid
from .problem import Config, Metrics, Objective, Problem, Values

_SEX = 1
"""Column of the sex in the data of patients with diabetes."""
_NUM_BINS = 8
_NUM_STEPS = 8
"""Steps of Newton's method, after which regressions of this size have converged."""


def fair(config: Config) -> Metrics:
    """Return error, gap between the sexes and calibration of a forecast for patients."""
    data = diabetes(242, 200, 11)
    is_woman, asked_woman = data.train[:, _SEX] > 0, data.valid[:, _SEX] > 0
    train, valid = (_columns(part, config) for part in (data.train, data.valid))
    # The group whose ill are missed more often weighs more, if the weight is above 1.
    weights = np.where(is_woman == (data.classes == 1), config["weight"], 1.0)
    logits = valid @ _regression(train, data.classes, weights, config["l2"])
    risks = sigmoid(logits * config["sharpness"] + config["shift"] * np.where(asked_woman, 1, -1))
    is_called, is_ill = risks > config["threshold"], data.truth == 1
    return {
        "error": float(np.mean(is_called != is_ill)),
        "gap": float(abs(is_called[asked_woman].mean() - is_called[~asked_woman].mean())),
        "calibration": _calibration(risks, is_ill),
        "recall": float(is_called[is_ill].mean()),
    }


def _columns(inputs: Values, config: Config) -> Values:
    """Return the columns that a forecast uses, their products if wanted, and a column of ones."""
    used = inputs if config["sex"] == "used" else np.delete(inputs, _SEX, axis=1)
    if config["columns"] == "products":
        first, second = np.triu_indices(used.shape[1], 1)
        used = np.hstack([used, used[:, first] * used[:, second]])
    elif config["columns"] == "squares":
        used = np.hstack([used, used**2])
    return np.hstack([used, np.ones((len(used), 1))])


def screening(config: Config) -> Metrics:
    """Return what a test for cancer measures, and how often it errs in each direction."""
    data = cancer(250, 319, 12)
    chosen = _ranking(config["ranking"])[: config["measurements"]]
    train, valid = (
        np.hstack([_transformed(part[:, chosen], config["transform"]), np.ones((len(part), 1))])
        for part in (data.train, data.valid)
    )
    weights = np.where(data.classes == 1, config["weight"], 1.0)
    risks = sigmoid(valid @ _regression(train, data.classes, weights, config["l2"]))
    is_called, is_ill = risks > config["threshold"], data.truth == 1
    likely = np.where(is_ill, risks, 1 - risks).clip(1e-6)
    return {
        "measurements": float(config["measurements"]),
        "false_alarms": float(is_called[~is_ill].mean()),
        "log_loss": float(-np.log(likely).mean()),
        "recall": float(is_called[is_ill].mean()),
    }


@functools.cache
def _ranking(kind: str) -> Classes:
    """Return the measurements in the order in which they are taken."""
    data = cancer(250, 319, 12)
    targets = data.classes - data.classes.mean()
    relevance = np.abs(data.train.T @ targets)
    if kind == "separate":
        return np.argsort(-relevance)
    if kind == "as listed":
        return np.arange(len(relevance))
    between = np.abs(np.corrcoef(data.train.T))
    relevance = relevance / relevance.max()
    ranking = [int(np.argmax(relevance))]
    while len(ranking) < len(relevance):
        values = relevance - between[:, ranking].mean(axis=1)
        values[ranking] = -np.inf
        ranking.append(int(np.argmax(values)))
    return np.array(ranking)


def _transformed(inputs: Values, transform: str) -> Values:
    """Return standardised columns, with long tails drawn in if wanted."""
    if transform == "none":
        return inputs
    drawn_in: Values = np.tanh(inputs) if transform == "tanh" else np.cbrt(inputs)
    return drawn_in


def _regression(inputs: Values, classes: Classes, weights: Values, l2: float) -> Values:
    """Return the coefficients of a weighted logistic regression."""
    coefficients, shares = np.zeros(inputs.shape[1]), weights / weights.sum()
    penalty = np.full(inputs.shape[1], l2 / len(inputs))
    penalty[-1] = 1e-6  # the column of ones
    for _ in range(_NUM_STEPS):
        likely = sigmoid(inputs @ coefficients)
        slope = inputs.T @ (shares * (classes - likely)) - penalty * coefficients
        curved = (inputs * (shares * likely * (1 - likely))[:, None]).T @ inputs
        coefficients = coefficients + np.linalg.solve(curved + np.diag(penalty), slope)
    return coefficients


def _calibration(risks: Values, is_true: Values) -> float:
    """Return the expected calibration error over bins of equal width."""
    bins = np.minimum((risks * _NUM_BINS).astype(np.int64), _NUM_BINS - 1)
    gaps = np.bincount(bins, risks - is_true, minlength=_NUM_BINS)
    return float(np.abs(gaps).sum() / len(risks))


PROBLEMS = (
    Problem(
        "diabetes_fair",
        "models",
        "forecast for patients: error, gap between the sexes, calibration",
        (
            Axis("columns", "choice", values=("linear", "products", "squares")),
            Axis("sex", "choice", values=("hidden", "used")),
            Axis("l2", "float", 0.01, 1_000.0, log=True),
            Axis("weight", "float", 0.2, 5.0, log=True),
            Axis("sharpness", "float", 0.3, 3.0, log=True),
            Axis("shift", "float", -1.0, 1.0),
            Axis("threshold", "float", 0.1, 0.9),
        ),
        (Objective("error"), Objective("gap"), Objective("calibration")),
        (OutcomeConstraint("recall", ">=", 0.8), OutcomeConstraint("error", "<=", 0.35)),
        fair,
    ),
    Problem(
        "cancer_screening",
        "models",
        "test for cancer: measurements, false alarms, log loss; few cases missed",
        (
            Axis("measurements", "int", 1, 30, log=True),
            Axis("ranking", "choice", values=("as listed", "different", "separate")),
            Axis("transform", "choice", values=("none", "root", "tanh")),
            Axis("l2", "float", 1e-3, 1_000.0, log=True),
            Axis("weight", "float", 0.1, 10.0, log=True),
            Axis("threshold", "float", 0.02, 0.98),
        ),
        (Objective("measurements"), Objective("false_alarms"), Objective("log_loss")),
        (OutcomeConstraint("recall", ">=", 0.97), OutcomeConstraint("false_alarms", "<=", 0.5)),
        screening,
    ),
)
