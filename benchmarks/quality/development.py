"""The first ten development tasks, on which methods may be tuned."""

from __future__ import annotations

from collections.abc import Mapping

from . import boosting, forests, leaves, networks, pictures, problems
from .grid import Axis, Grid, log_axis
from .spaces import (
    ACTIVATIONS,
    ALL_OPTIMIZERS,
    DECAYS,
    KINDS,
    LOW_RATES,
    OPTIMIZERS,
    POOLS,
    SCHEDULES,
    SGD_RATES,
    TREES,
    WIDE_RATES,
    batches,
    channels,
    columns,
    decays,
    depths,
    dropouts,
    features,
    frequencies,
    leaf_counts,
    leaf_sizes,
    levels,
    samples,
    widths,
)
from .task import Task

DEVELOPMENT: Mapping[str, Task] = {
    "digits_few": Task(
        "perceptrons on 150 digits, by SGD with momentum; cross-entropy",
        networks.MODEL,
        Grid(
            (
                SGD_RATES,
                batches(8, 16, 32, 64),
                widths(8, 16, 32, 64),
                depths(1, 2),
                dropouts(0.0, 0.25, 0.5),
                ACTIVATIONS,
            )
        ),
        lambda: problems.classification("digits", "log_loss", 150, 500, 1),
        seed=0,
    ),
    "cancer_distractors": Task(
        "perceptrons on 120 cases of breast cancer, with 30 columns of noise, by two "
        "optimizers; cross-entropy",
        networks.MODEL,
        Grid(
            (
                WIDE_RATES,
                DECAYS,
                OPTIMIZERS,
                batches(8, 16, 32, 64),
                widths(8, 16, 32),
                dropouts(0.0, 0.3, 0.6),
            )
        ),
        lambda: problems.with_distractors(
            problems.classification("breast_cancer", "log_loss", 120, 400, 2), 30, 2
        ),
        seed=1,
    ),
    "diabetes_products": Task(
        "perceptrons on diabetes with all products of two columns, by SGD with momentum; "
        "squared error",
        networks.MODEL,
        Grid(
            (
                LOW_RATES,
                DECAYS,
                batches(8, 16, 32),
                widths(8, 16, 32),
                dropouts(0.0, 0.2, 0.4, 0.6),
                SCHEDULES,
            )
        ),
        lambda: problems.with_products(problems.regression("diabetes", 200, 242, 3)),
        seed=2,
    ),
    "wine_trees": Task(
        "boosted trees on 90 wines with a third of the labels random; cross-entropy",
        boosting.MODEL,
        Grid(TREES),
        lambda: problems.with_label_noise(
            problems.classification("wine", "log_loss", 90, 88, 4), 0.33, 4
        ),
        seed=3,
    ),
    "photo_place": Task(
        "perceptrons on random Fourier features that predict the colour of a photograph's pixel "
        "from its position, by Adam; squared error",
        networks.model(optimizer="adam"),
        Grid(
            (
                log_axis("lr", 1e-4, 0.1, 8),
                frequencies(0.5, 16, 6),
                features(16, 32, 64),
                widths(8, 16, 32),
                depths(1, 2),
                SCHEDULES,
            )
        ),
        lambda: pictures.place_colours("china", 500, 600, 14),
        seed=13,
    ),
    "iris_linear": Task(
        "linear models on 70 irises with products of columns, 15 columns of noise and 20 % of "
        "the labels random; cross-entropy",
        networks.model("linear models", depth=0),
        Grid(
            (
                log_axis("lr", 1e-3, 1.0, 8),
                ALL_OPTIMIZERS,
                batches(4, 16),
                decays(1e-3, 1e-1, 3),
                log_axis("l1", 1e-3, 1e-1, 3),
                Axis("label_smoothing", "linear", (0.0, 0.1, 0.2)),
                log_axis("init_scale", 0.1, 1.0, 2),
                SCHEDULES,
            )
        ),
        lambda: problems.with_products(
            problems.with_distractors(
                problems.with_label_noise(
                    problems.classification("iris", "log_loss", 70, 80, 15), 0.2, 15
                ),
                15,
                15,
            )
        ),
        seed=14,
    ),
    "cancer_kernel": Task(
        "linear models on 128 random Fourier features of 80 cases of breast cancer with 15 % "
        "of the labels random; cross-entropy",
        networks.model("kernel machines", depth=0, num_features=128),
        Grid((WIDE_RATES, frequencies(0.05, 5.0, 9), DECAYS)),
        lambda: problems.with_label_noise(
            problems.classification("breast_cancer", "log_loss", 80, 450, 16), 0.15, 16
        ),
        seed=15,
    ),
    "digit_turns_conv": Task(
        "convolutional networks that predict the quarter turns of a turned digit, 200 examples, "
        "by Adam; cross-entropy",
        networks.model("convolutional networks", optimizer="adam", depth=1, width=24),
        Grid(
            (
                log_axis("lr", 1e-4, 0.1, 8),
                channels(4, 8, 16),
                Axis("kernel", "int", (3, 5)),
                POOLS,
                batches(16, 32),
                dropouts(0.0, 0.3),
                decays(1e-5, 1e-1, 3),
            )
        ),
        lambda: pictures.digit_turns(200, 400, 17),
        seed=16,
    ),
    "photo_channel_forest": Task(
        "forests that predict the colour channel of a patch of a photograph; cross-entropy",
        forests.MODEL,
        Grid(
            (
                KINDS,
                levels(2, 4, 6, 8, 10),
                leaf_sizes(1, 2, 4, 8, 16),
                columns(0.1, 0.3, 0.5, 0.7, 0.9),
                samples(0.25, 0.5, 0.75, 1.0),
            )
        ),
        lambda: pictures.channel_of("flower", 5, 300, 400, 18),
        seed=17,
    ),
    "digit_loops_leaves": Task(
        "boosted trees that grow leaf by leaf and recognise digits with loops, 250 examples; "
        "cross-entropy",
        leaves.MODEL,
        Grid(
            (
                log_axis("learning_rate", 0.03, 1.0, 8),
                leaf_counts(2, 4, 8, 16, 32),
                leaf_sizes(5, 10, 20, 40),
                columns(0.2, 0.6, 1.0),
                log_axis("l2_regularization", 0.001, 10.0, 3),
            )
        ),
        lambda: pictures.digit_loops(250, 600, 19),
        seed=18,
    ),
}
