"""Development tasks with networks, which were reporting tasks of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from . import networks, pictures, problems
from .grid import Axis, Grid, log_axis
from .spaces import (
    ACTIVATIONS,
    ALL_OPTIMIZERS,
    DECAYS,
    DISTANCES,
    LOW_RATES,
    MARGINS,
    OPTIMIZERS,
    POOLS,
    SCHEDULES,
    SGD_RATES,
    WIDE_RATES,
    batches,
    channels,
    decays,
    depths,
    dropouts,
    features,
    frequencies,
    input_noises,
    lr_decays,
    momenta,
    widths,
)
from .task import Task

NETWORKS: Mapping[str, Task] = {
    "digits": Task(
        "perceptrons on 400 digits, by SGD; share of errors",
        networks.MODEL,
        Grid(
            (
                SGD_RATES,
                batches(16, 32, 64, 128),
                widths(16, 32, 64),
                depths(1, 2, 3),
                momenta(0.0, 0.45, 0.9),
                decays(1e-5, 1e-1, 3),
            )
        ),
        lambda: problems.classification("digits", "error", 400, 800, 5),
        seed=4,
    ),
    "digits_noisy": Task(
        "perceptrons on 300 digits with 30 % of the labels random, by SGD with momentum; "
        "share of errors",
        networks.MODEL,
        Grid(
            (
                LOW_RATES,
                DECAYS,
                batches(16, 32, 64),
                widths(16, 32, 64),
                depths(1, 2),
                dropouts(0.0, 0.25, 0.5),
            )
        ),
        lambda: problems.with_label_noise(
            problems.classification("digits", "error", 300, 800, 6), 0.3, 6
        ),
        seed=5,
    ),
    "digit_parity": Task(
        "perceptrons that separate odd digits from even ones, 250 examples, by two optimizers; "
        "cross-entropy",
        networks.MODEL,
        Grid(
            (
                WIDE_RATES,
                OPTIMIZERS,
                batches(8, 16, 32),
                widths(16, 32, 64),
                depths(1, 2, 3),
                ACTIVATIONS,
                SCHEDULES,
            )
        ),
        lambda: problems.digit_parity(250, 600, 7),
        seed=6,
    ),
    "digit_halves": Task(
        "perceptrons that predict the lower half of a digit from its upper half, 250 examples, "
        "by SGD; squared error",
        networks.MODEL,
        Grid(
            (
                SGD_RATES,
                batches(8, 16, 32, 64),
                widths(8, 16, 32, 64),
                depths(1, 2),
                momenta(0.0, 0.45, 0.9),
                log_axis("init_scale", 0.1, 1.0, 3),
            )
        ),
        lambda: problems.digit_halves(250, 500, 8),
        seed=7,
    ),
    "cancer_few": Task(
        "perceptrons on 60 cases of breast cancer with 10 % of the labels random, by SGD; "
        "cross-entropy",
        networks.MODEL,
        Grid(
            (
                SGD_RATES,
                batches(4, 8, 16),
                widths(8, 16, 32),
                depths(1, 2, 3),
                dropouts(0.0, 0.2, 0.4, 0.6),
                SCHEDULES,
            )
        ),
        lambda: problems.with_label_noise(
            problems.classification("breast_cancer", "log_loss", 60, 500, 11), 0.1, 11
        ),
        seed=10,
    ),
    "wine_alcohol": Task(
        "perceptrons that predict a wine's alcohol from its other properties, by two "
        "optimizers; squared error",
        networks.MODEL,
        Grid(
            (
                WIDE_RATES,
                decays(1e-4, 1e-1, 4),
                OPTIMIZERS,
                batches(8, 16, 32),
                widths(8, 16, 32),
                depths(1, 2, 3),
                SCHEDULES,
            )
        ),
        lambda: problems.column_of("wine", 0, 100, 78, 12),
        seed=11,
    ),
    "iris_petal": Task(
        "perceptrons that predict an iris's petal width from its other sizes and ten columns "
        "of noise, by SGD; squared error",
        networks.MODEL,
        Grid(
            (
                SGD_RATES,
                batches(4, 8, 16),
                widths(8, 16, 32),
                depths(1, 2, 3),
                dropouts(0.0, 0.2, 0.4),
                ACTIVATIONS,
                momenta(0.0, 0.9),
            )
        ),
        lambda: problems.with_distractors(problems.column_of("iris", 3, 75, 75, 13), 10, 13),
        seed=12,
    ),
    "photo_noise": Task(
        "perceptrons that remove the noise from patches of a photograph, by two optimizers; "
        "squared error",
        networks.MODEL,
        Grid(
            (
                WIDE_RATES,
                OPTIMIZERS,
                batches(8, 16, 32),
                widths(16, 32, 64),
                depths(1, 2),
                decays(1e-5, 1e-1, 3),
            )
        ),
        lambda: pictures.clean_patches("flower", 6, 300, 300, 20),
        seed=19,
    ),
    "digit_codes": Task(
        "perceptrons with narrow layers that reproduce a digit, 250 examples, by Adam; "
        "squared error",
        networks.model(optimizer="adam"),
        Grid(
            (
                LOW_RATES,
                batches(8, 16, 32),
                widths(4, 8, 16),
                depths(1, 2, 3),
                input_noises(0.0, 0.3, 0.6),
                ACTIVATIONS,
                SCHEDULES,
            )
        ),
        lambda: pictures.digit_codes(250, 300, 21),
        seed=20,
    ),
    "digit_pairs": Task(
        "perceptrons that predict whether two digits are the same, 400 pairs, by SGD; "
        "cross-entropy",
        networks.MODEL,
        Grid(
            (
                SGD_RATES,
                DECAYS,
                widths(8, 16, 32),
                depths(1, 2, 3),
                dropouts(0.0, 0.25, 0.5),
                momenta(0.0, 0.9),
            )
        ),
        lambda: pictures.digit_pairs(400, 600, 22),
        seed=21,
    ),
    "photo_colours": Task(
        "perceptrons that predict the colour of a pixel from the grey ones around it, by Adam "
        "with two losses; absolute error",
        networks.model(optimizer="adam"),
        Grid(
            (
                LOW_RATES,
                DISTANCES,
                batches(16, 32, 64),
                widths(8, 16, 32),
                depths(1, 2, 3),
                lr_decays(0.8, 0.9, 1.0),
            )
        ),
        lambda: pictures.colours("china", 7, 350, 350, 23),
        seed=22,
    ),
    "digits_linear": Task(
        "linear models on 200 digits, with two losses and three optimizers; share of errors",
        networks.model("linear models", depth=0),
        Grid(
            (
                log_axis("lr", 1e-4, 1.0, 8),
                ALL_OPTIMIZERS,
                MARGINS,
                batches(8, 16, 32),
                decays(1e-4, 1e-2, 3),
                log_axis("l1", 1e-4, 1e-2, 3),
                lr_decays(0.8, 0.9, 1.0),
                input_noises(0.0, 0.5),
            )
        ),
        lambda: problems.classification("digits", "error", 200, 800, 24),
        seed=23,
    ),
    "diabetes_linear": Task(
        "linear models on diabetes with all products of two columns, by SGD with two losses; "
        "absolute error",
        networks.model("linear models", depth=0),
        Grid(
            (
                log_axis("lr", 1e-4, 0.1, 10),
                DISTANCES,
                decays(1e-3, 1.0, 6),
                log_axis("l1", 1e-3, 1.0, 6),
                lr_decays(0.8, 0.9, 1.0),
            )
        ),
        lambda: problems.with_products(problems.regression("diabetes", 200, 240, 25, "mae")),
        seed=24,
    ),
    "cancer_rare": Task(
        "linear models on breast cancer with ten malignant cases, which may count more than "
        "others; mean share of errors of both classes",
        networks.model("linear models", depth=0),
        Grid(
            (
                WIDE_RATES,
                OPTIMIZERS,
                batches(8, 16, 32),
                DECAYS,
                Axis("class_weight", "linear", (0.0, 0.25, 0.5, 0.75, 1.0)),
                Axis("label_smoothing", "linear", (0.0, 0.1, 0.2)),
            )
        ),
        lambda: problems.with_rare_class(
            problems.classification("breast_cancer", "balanced_error", 200, 360, 26), 0, 10
        ),
        seed=25,
    ),
    "photo_quarters_kernel": Task(
        "linear models on random Fourier features that predict the quarter of a photograph that "
        "a patch is from, by SGD; share of errors",
        networks.model("kernel machines", depth=0),
        Grid((WIDE_RATES, frequencies(0.05, 5.0, 9), features(64, 128, 256))),
        lambda: pictures.quarter_of("china", 6, 400, 600, 27),
        seed=26,
    ),
    "wine_colour_kernel": Task(
        "linear models on random Fourier features that predict the depth of a wine's colour "
        "from its other properties, by SGD; squared error",
        networks.model("kernel machines", depth=0),
        Grid(
            (
                SGD_RATES,
                frequencies(0.05, 5.0, 7),
                features(32, 64, 128),
                batches(8, 16, 32),
                decays(1e-4, 1e-1, 4),
            )
        ),
        lambda: problems.column_of("wine", 9, 100, 78, 28),
        seed=27,
    ),
    "digits_conv": Task(
        "convolutional networks on 200 digits, by SGD; share of errors",
        networks.model("convolutional networks", depth=1),
        Grid(
            (
                log_axis("lr", 1e-3, 1.0, 8),
                momenta(0.0, 0.9),
                channels(4, 8, 16),
                Axis("kernel", "int", (3, 5)),
                POOLS,
                widths(16, 32),
                dropouts(0.0, 0.25, 0.5),
            )
        ),
        lambda: replace(problems.classification("digits", "error", 200, 500, 29), shape=(8, 8)),
        seed=28,
    ),
    "digit_sums_conv": Task(
        "convolutional networks that predict the sum of two digits side by side, 250 pairs, by "
        "Adam; squared error",
        networks.model("convolutional networks", optimizer="adam", depth=1, width=24),
        Grid(
            (
                log_axis("lr", 1e-4, 0.1, 9),
                channels(2, 4, 8),
                Axis("kernel", "int", (3, 5)),
                POOLS,
                batches(16, 32),
                SCHEDULES,
            )
        ),
        lambda: pictures.digit_sums(250, 250, 30),
        seed=29,
    ),
}
