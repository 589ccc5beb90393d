"""The tasks: which problem, model and grid. *Development* tasks are for tuning methods, *reporting* tasks for the figures alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import boosting, networks, problems
from .grid import Grid, axes, log_axis
from .model import Model
from .problems import Problem

NUM_EPOCHS = 27


@dataclass(frozen=True, slots=True)
class Task:
    """Where a table comes from.

    Attributes:
        about: What is trained on what, by which metric; all metrics are minimised.
        model: What is trained.
        grid: All configurations.
        problem: Makes the problem.
    """

    about: str
    model: Model
    grid: Grid
    problem: Callable[[], Problem]


_SGD_RATES = log_axis("lr", 1e-3, 1.0, 12)
_ADAM_RATES = log_axis("lr", 1e-4, 0.1, 12)
_WIDE_RATES = log_axis("lr", 1e-4, 1.0, 13)
_DECAYS = log_axis("weight_decay", 1e-5, 1e-1, 5)
_ACTIVATIONS = ("activation", "choice", ("relu", "tanh"))
_OPTIMIZERS = ("optimizer", "choice", ("adam", "sgd"))
_SCHEDULES = ("schedule", "choice", ("constant", "cosine"))
_TREES = (
    log_axis("learning_rate", 0.02, 1.0, 10),
    *axes(
        ("max_depth", "int", (1, 2, 3, 4, 5)),
        ("subsample", "linear", (0.3, 0.5, 0.7, 0.9)),
        ("max_features", "linear", (0.2, 0.5, 0.8)),
        ("min_samples_leaf", "log_int", (1, 4, 16)),
    ),
)


def _batches(*sizes: int) -> tuple[str, str, tuple[int, ...]]:
    return "batch_size", "log_int", sizes


def _widths(*widths: int) -> tuple[str, str, tuple[int, ...]]:
    return "width", "log_int", widths


def _depths(*depths: int) -> tuple[str, str, tuple[int, ...]]:
    return "depth", "int", depths


def _dropouts(*shares: float) -> tuple[str, str, tuple[float, ...]]:
    return "dropout", "linear", shares


DEVELOPMENT: Mapping[str, Task] = {
    "digits_few": Task(
        "perceptrons on 150 digits, by SGD with momentum; cross-entropy",
        networks.MODEL,
        Grid((_SGD_RATES, *axes(_batches(8, 16, 32, 64), _widths(8, 16, 32, 64), _depths(1, 2), _dropouts(0.0, 0.25, 0.5), _ACTIVATIONS))),
        lambda: problems.classification("digits", "log_loss", 150, 500, 1),
    ),
    "cancer_distractors": Task(
        "perceptrons on 120 cases of breast cancer, with 30 columns of noise, by two optimizers; cross-entropy",
        networks.MODEL,
        Grid((_WIDE_RATES, _DECAYS, *axes(_OPTIMIZERS, _batches(8, 16, 32, 64), _widths(8, 16, 32), _dropouts(0.0, 0.3, 0.6)))),
        lambda: problems.with_distractors(problems.classification("breast_cancer", "log_loss", 120, 400, 2), 30, 2),
    ),
    "diabetes_products": Task(
        "perceptrons on diabetes with all products of two columns, by Adam; squared error",
        networks.MODEL,
        Grid((_ADAM_RATES, _DECAYS, *axes(_batches(8, 16, 32), _widths(8, 16, 32), _dropouts(0.0, 0.2, 0.4, 0.6), _SCHEDULES))),
        lambda: problems.with_products(problems.regression("diabetes", 200, 242, 3)),
    ),
    "wine_trees": Task(
        "boosted trees on 90 wines with a third of the labels random; cross-entropy",
        boosting.MODEL,
        Grid(_TREES),
        lambda: problems.with_label_noise(problems.classification("wine", "log_loss", 90, 88, 4), 0.33, 4),
    ),
}

REPORTING: Mapping[str, Task] = {
    "digits": Task(
        "perceptrons on 400 digits, by SGD; share of errors",
        networks.MODEL,
        Grid(
            (
                _SGD_RATES,
                *axes(_batches(16, 32, 64, 128), _widths(16, 32, 64), _depths(1, 2, 3), ("momentum", "linear", (0.0, 0.45, 0.9))),
                log_axis("weight_decay", 1e-5, 1e-1, 3),
            )
        ),
        lambda: problems.classification("digits", "error", 400, 800, 5),
    ),
    "digits_noisy": Task(
        "perceptrons on 300 digits with 30 % of the labels random, by Adam; share of errors",
        networks.MODEL,
        Grid((_ADAM_RATES, _DECAYS, *axes(_batches(16, 32, 64), _widths(16, 32, 64), _depths(1, 2), _dropouts(0.0, 0.25, 0.5)))),
        lambda: problems.with_label_noise(problems.classification("digits", "error", 300, 800, 6), 0.3, 6),
    ),
    "digit_parity": Task(
        "perceptrons that tell odd digits from even ones after 250 examples, by two optimizers; cross-entropy",
        networks.MODEL,
        Grid((_WIDE_RATES, *axes(_OPTIMIZERS, _batches(8, 16, 32), _widths(16, 32, 64), _depths(1, 2, 3), _ACTIVATIONS, _SCHEDULES))),
        lambda: problems.digit_parity(250, 600, 7),
    ),
    "digit_halves": Task(
        "perceptrons that draw the lower half of a digit after its upper half, 250 examples, by SGD; squared error",
        networks.MODEL,
        Grid(
            (
                _SGD_RATES,
                *axes(_batches(8, 16, 32, 64), _widths(8, 16, 32, 64), _depths(1, 2), ("momentum", "linear", (0.0, 0.45, 0.9))),
                log_axis("init_scale", 0.1, 1.0, 3),
            )
        ),
        lambda: problems.digit_halves(250, 500, 8),
    ),
    "diabetes_trees": Task(
        "boosted trees on diabetes; squared error",
        boosting.MODEL,
        Grid(_TREES),
        lambda: problems.regression("diabetes", 220, 222, 9),
    ),
    "cancer_trees": Task(
        "boosted trees on 150 cases of breast cancer; cross-entropy",
        boosting.MODEL,
        Grid(_TREES),
        lambda: problems.classification("breast_cancer", "log_loss", 150, 400, 10),
    ),
    "cancer_few": Task(
        "perceptrons on 60 cases of breast cancer with 10 % of the labels random, by SGD; cross-entropy",
        networks.MODEL,
        Grid((_SGD_RATES, *axes(_batches(4, 8, 16), _widths(8, 16, 32), _depths(1, 2, 3), _dropouts(0.0, 0.2, 0.4, 0.6), _SCHEDULES))),
        lambda: problems.with_label_noise(problems.classification("breast_cancer", "log_loss", 60, 500, 11), 0.1, 11),
    ),
    "wine_alcohol": Task(
        "perceptrons that tell a wine's alcohol from its other properties, by two optimizers; squared error",
        networks.MODEL,
        Grid(
            (
                _WIDE_RATES,
                log_axis("weight_decay", 1e-4, 1e-1, 4),
                *axes(_OPTIMIZERS, _batches(8, 16, 32), _widths(8, 16, 32), _depths(1, 2, 3), _SCHEDULES),
            )
        ),
        lambda: problems.column_of("wine", 0, 100, 78, 12),
    ),
    "iris_petal": Task(
        "perceptrons that tell an iris's petal width from its other sizes and ten columns of noise, by SGD; squared error",
        networks.MODEL,
        Grid(
            (
                _SGD_RATES,
                *axes(_batches(4, 8, 16), _widths(8, 16, 32), _depths(1, 2, 3), _dropouts(0.0, 0.2, 0.4), _ACTIVATIONS),
                *axes(("momentum", "linear", (0.0, 0.9))),
            )
        ),
        lambda: problems.with_distractors(problems.column_of("iris", 3, 75, 75, 13), 10, 13),
    ),
}

TASKS: Mapping[str, Task] = {**DEVELOPMENT, **REPORTING}
