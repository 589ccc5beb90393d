"""Development tasks with trees, which were reporting tasks of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping

from . import boosting, forests, leaves, pictures, problems
from .grid import Axis, Grid, log_axis
from .spaces import KINDS, TREES, columns, leaf_counts, leaf_sizes, levels, samples
from .task import Task

FORESTS: Mapping[str, Task] = {
    "diabetes_trees": Task(
        "boosted trees on diabetes; squared error",
        boosting.MODEL,
        Grid(TREES),
        lambda: problems.regression("diabetes", 220, 222, 9),
        seed=8,
    ),
    "cancer_trees": Task(
        "boosted trees on 150 cases of breast cancer; cross-entropy",
        boosting.MODEL,
        Grid(TREES),
        lambda: problems.classification("breast_cancer", "log_loss", 150, 400, 10),
        seed=9,
    ),
    "photo_rows_forest": Task(
        "forests that predict the height of a patch in a photograph; squared error",
        forests.MODEL,
        Grid(
            (
                KINDS,
                leaf_sizes(1, 2, 4, 8, 16, 32),
                columns(0.05, 0.2, 0.35, 0.5),
                samples(0.2, 0.4, 0.6, 0.8, 1.0),
            )
        ),
        lambda: pictures.height_of("china", 5, 300, 400, 31),
        seed=30,
    ),
    "cancer_forest": Task(
        "forests on 120 cases of breast cancer with a fifth of the labels random; cross-entropy",
        forests.MODEL,
        Grid(
            (
                Axis("criterion", "choice", ("entropy", "gini")),
                KINDS,
                levels(2, 4, 6, 8),
                leaf_sizes(1, 2, 4, 8),
                columns(0.1, 0.3, 0.5, 0.7, 0.9),
                samples(0.4, 0.7, 1.0),
            )
        ),
        lambda: problems.with_label_noise(
            problems.classification("breast_cancer", "log_loss", 120, 400, 32), 0.2, 32
        ),
        seed=31,
    ),
    "photo_which_leaves": Task(
        "boosted trees that grow leaf by leaf and predict which of two photographs a patch is "
        "from; share of errors",
        leaves.MODEL,
        Grid(
            (
                log_axis("learning_rate", 0.02, 1.0, 8),
                leaf_counts(2, 4, 8, 16, 32),
                leaf_sizes(5, 10, 20, 40),
                Axis("max_bins", "log_int", (8, 32, 128)),
                columns(0.2, 0.6, 1.0),
            )
        ),
        lambda: pictures.photograph_of("error", 4, 400, 800, 33),
        seed=32,
    ),
    "wine_proline_leaves": Task(
        "boosted trees that grow leaf by leaf and predict a wine's proline from its other "
        "properties; squared error",
        leaves.MODEL,
        Grid(
            (
                log_axis("learning_rate", 0.02, 1.0, 10),
                leaf_counts(2, 4, 8, 16),
                leaf_sizes(2, 4, 8, 16),
                log_axis("l2_regularization", 0.01, 10.0, 4),
            )
        ),
        lambda: problems.column_of("wine", 12, 100, 78, 34),
        seed=33,
    ),
}
