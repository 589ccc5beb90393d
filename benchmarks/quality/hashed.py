"""Tasks that are put into development or confirmation by a hash of their names; see `tasks`.

They differ from the earlier ones: more choices, hyperparameters that exist only for some values of
others, evaluations that are not repeatable, and early values that mislead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import boosting, econometrics, forests, generated, leaves, mixed, networks, problems
from .grid import Axis, Grid, log_axis, under
from .model import Model
from .preparation import prepared
from .spaces import (
    ACTIVATIONS,
    DISTANCES,
    MARGINS,
    OPTIMIZERS,
    batches,
    choice,
    columns,
    decays,
    depths,
    dropouts,
    features,
    frequencies,
    input_noises,
    leaf_counts,
    leaf_sizes,
    levels,
    momenta,
    samples,
    widths,
)
from .task import Task

_MERGED = ("activation", "init", "optimizer", "schedule")
_PERCEPTRONS = networks.model(merged=_MERGED)
_PREPARED = networks.model(merged=_MERGED, prepare=prepared)
_LINEAR: tuple[Model, Mapping[str, Any]] = (_PERCEPTRONS, {"depth": 0})
_PERCEPTRON: tuple[Model, Mapping[str, Any]] = (_PERCEPTRONS, {})
_BOOSTING: tuple[Model, Mapping[str, Any]] = (boosting.MODEL, {})
_LEAVES: tuple[Model, Mapping[str, Any]] = (leaves.MODEL, {})
_FOREST: tuple[Model, Mapping[str, Any]] = (forests.MODEL, {"kind": "random forest"})
_EXTRA_TREES: tuple[Model, Mapping[str, Any]] = (forests.MODEL, {"kind": "extra trees"})


BETAS = choice("beta2", 0.9, 0.99, 0.999)
WARMUPS = Axis("warmup", "linear", (0, 4, 8))
DROPS = choice("drop", 0.1, 0.3)
SMOOTHINGS = Axis("label_smoothing", "linear", (0.0, 0.15))


HASHED: Mapping[str, Task] = {
    "fair_prepared": Task(
        "perceptrons that predict from a survey whether wives had an affair, with four scalers and "
        "four encodings of occupations; mean share of errors of both classes",
        networks.model(merged=_MERGED, prepare=prepared, width=16, class_weight=1.0),
        Grid(
            (
                choice("scaler", "minmax", "none", "rank", "standard"),
                choice("encoder", "frequency", "one-hot", "ordinal", "target"),
                choice("activation", "leaky relu", "sine", "tanh"),
                choice("optimizer", "adagrad", "adam", "rmsprop", "sgd"),
                choice("init", "he", "small"),
                MARGINS,
                log_axis("lr", 1e-3, 0.3, 6),
            )
        ),
        lambda: econometrics.affairs("balanced_error", 100, 250, 35),
        seed=34,
    ),
    "anes_party": Task(
        "perceptrons that predict a voter's party, with five optimizers and three schedules that "
        "have hyperparameters of their own; share of errors",
        networks.model(merged=_MERGED, batch_size=32),
        Grid(
            (
                choice("optimizer", "adagrad", "adam", "nesterov", "rmsprop", "sgd"),
                *under("optimizer", ("nesterov", "sgd"), momenta(0.0, 0.45, 0.9)),
                *under("optimizer", ("adam", "rmsprop"), BETAS),
                log_axis("lr", 1e-4, 1.0, 6),
                choice("schedule", "constant", "cosine", "step"),
                *under("schedule", ("cosine",), WARMUPS),
                *under("schedule", ("step",), DROPS),
                depths(1, 2),
                widths(16, 32),
                dropouts(0.0, 0.3),
                ACTIVATIONS,
            )
        ),
        lambda: econometrics.party(120, 250, 36),
        seed=35,
    ),
    "anes_families": Task(
        "linear models, kernel machines and perceptrons that predict a vote, three training seeds; "
        "cross-entropy",
        mixed.model({"kernel": _LINEAR, "linear": _LINEAR, "perceptron": _PERCEPTRON}),
        Grid(
            (
                choice("family", "kernel", "linear", "perceptron"),
                log_axis("lr", 1e-4, 0.3, 6),
                choice("optimizer", "adam", "sgd", "sign"),
                batches(16, 64),
                decays(1e-4, 1e-1, 2),
                *under("family", ("linear",), log_axis("l1", 1e-4, 1e-2, 3)),
                *under("family", ("kernel",), features(32, 64, 128)),
                *under("family", ("kernel",), frequencies(0.05, 1.5, 4)),
                *under(
                    "family",
                    ("perceptron",),
                    widths(8, 32),
                    depths(1, 2),
                    ACTIVATIONS,
                    dropouts(0.0, 0.4),
                ),
            )
        ),
        lambda: econometrics.vote(100, 600, 37),
        seed=36,
        num_seeds=3,
    ),
    "randhie_visits": Task(
        "boosted trees, four to an epoch, that predict how often people visit a doctor, with two "
        "losses; absolute error",
        boosting.model(4),
        Grid(
            (
                log_axis("learning_rate", 0.01, 1.0, 8),
                levels(1, 2, 3),
                choice("loss", "huber", "squared_error"),
                *under("loss", ("huber",), Axis("alpha", "linear", (0.5, 0.7, 0.9))),
                Axis("subsample", "linear", (0.3, 0.6, 0.9)),
                leaf_sizes(2, 10),
            )
        ),
        lambda: econometrics.doctor_visits(150, 300, 38),
        seed=37,
    ),
    "randhie_prepared": Task(
        "perceptrons that predict how often people visit a doctor, with five scalers and four ways "
        "to reduce the columns; absolute error",
        _PREPARED,
        Grid(
            (
                choice("scaler", "minmax", "none", "rank", "robust", "standard"),
                choice("selection", "all", "best", "components", "random"),
                *under(
                    "selection",
                    ("best", "components", "random"),
                    Axis("num_selected", "int", (2, 4, 6)),
                ),
                DISTANCES,
                choice("activation", "relu", "silu", "tanh"),
                choice("optimizer", "adam", "rmsprop", "sgd"),
                log_axis("lr", 1e-4, 0.3, 6),
            )
        ),
        lambda: econometrics.doctor_visits(200, 600, 39),
        seed=38,
    ),
    "star_schools": Task(
        "linear models and perceptrons that predict how good the pupils of a school district are, "
        "with missing values that can be replaced in four ways; squared error",
        networks.model(merged=_MERGED, prepare=prepared, width=16),
        Grid(
            (
                choice("imputer", "flag", "low", "mean", "median"),
                choice("scaler", "minmax", "rank", "standard"),
                choice("selection", "all", "best", "components"),
                *under(
                    "selection", ("best", "components"), Axis("num_selected", "int", (4, 8, 12))
                ),
                depths(0, 1),
                *under("depth", (1,), ACTIVATIONS),
                OPTIMIZERS,
                log_axis("lr", 1e-3, 0.1, 5),
                choice("schedule", "constant", "linear"),
                decays(1e-4, 1e-2, 2),
            )
        ),
        lambda: problems.with_missing(econometrics.school_scores(150, 150, 40), 0.08, 40),
        seed=39,
    ),
    "sunspots_lags": Task(
        "perceptrons that predict a year's sunspots from the twelve years before, four training "
        "seeds; squared error",
        _PERCEPTRONS,
        Grid(
            (
                log_axis("lr", 1e-3, 0.3, 8),
                OPTIMIZERS,
                *under("optimizer", ("sgd",), momenta(0.0, 0.9)),
                widths(4, 8, 16),
                depths(1, 2),
                choice("activation", "relu", "sine", "tanh"),
                batches(8, 16),
                decays(1e-4, 1e-1, 2),
            )
        ),
        lambda: econometrics.next_sunspots(12, 100, 197),
        seed=40,
        num_seeds=4,
    ),
    "macro_inflation": Task(
        "perceptrons that predict the inflation of the next quarter, three training seeds; "
        "squared error",
        networks.model(merged=_MERGED, batch_size=16),
        Grid(
            (
                log_axis("lr", 1e-3, 0.3, 6),
                choice("optimizer", "adagrad", "adam", "sgd"),
                *under("optimizer", ("adam",), choice("beta2", 0.9, 0.999)),
                *under("optimizer", ("sgd",), momenta(0.0, 0.9)),
                widths(8, 32),
                depths(1, 2),
                dropouts(0.0, 0.25, 0.5),
                input_noises(0.0, 0.3, 0.6),
                choice("schedule", "constant", "cosine"),
            )
        ),
        lambda: econometrics.next_inflation(100, 101, 42),
        seed=41,
        num_seeds=3,
    ),
    "mode_choice": Task(
        "four kinds of trees that predict whether travellers go by air, train, bus or car; "
        "cross-entropy",
        mixed.model(
            {
                "boosting": _BOOSTING,
                "extra trees": _EXTRA_TREES,
                "forest": _FOREST,
                "leaves": _LEAVES,
            }
        ),
        Grid(
            (
                choice("family", "boosting", "extra trees", "forest", "leaves"),
                leaf_sizes(1, 4, 16),
                *under("family", ("boosting", "leaves"), log_axis("learning_rate", 0.02, 1.0, 8)),
                *under("family", ("boosting", "extra trees", "forest"), levels(1, 3, 5, 7)),
                *under("family", ("boosting", "extra trees", "forest"), columns(0.3, 0.7)),
                *under("family", ("boosting",), Axis("subsample", "linear", (0.5, 1.0))),
                *under(
                    "family",
                    ("extra trees", "forest"),
                    samples(0.4, 0.7, 1.0),
                    choice("criterion", "entropy", "gini"),
                ),
                *under(
                    "family",
                    ("leaves",),
                    leaf_counts(2, 4, 8, 16),
                    log_axis("l2_regularization", 0.01, 10.0, 3),
                ),
            )
        ),
        lambda: econometrics.travel_mode(110, 100, 43),
        seed=42,
    ),
    "friedman_noisy": Task(
        "perceptrons on 60 examples of a function of five of ten columns, with half as much noise "
        "as signal, four training seeds; squared error",
        networks.model(merged=_MERGED, optimizer="adam"),
        Grid(
            (
                log_axis("lr", 3e-4, 0.1, 8),
                batches(8, 16, 32),
                widths(8, 16, 32),
                depths(1, 2, 3),
                dropouts(0.0, 0.2, 0.4),
                decays(1e-3, 1e-1, 3),
            )
        ),
        lambda: generated.friedman(1, 0.5, 60, 300, 44),
        seed=43,
        num_seeds=4,
    ),
    "friedman_ratios": Task(
        "boosted trees, five to an epoch, on a function of ratios with noise; squared error",
        boosting.model(5),
        Grid(
            (
                log_axis("learning_rate", 0.01, 1.0, 8),
                levels(1, 2, 3, 4),
                Axis("subsample", "linear", (0.3, 0.6, 0.9)),
                columns(0.3, 0.6, 0.9),
                leaf_sizes(1, 10),
            )
        ),
        lambda: generated.friedman(3, 0.6, 200, 300, 45),
        seed=44,
    ),
    "hastie_slow": Task(
        "boosted trees, six to an epoch, that separate points near the origin from others; "
        "cross-entropy",
        boosting.model(6),
        Grid(
            (
                log_axis("learning_rate", 0.02, 1.0, 8),
                levels(1, 2, 3),
                Axis("subsample", "linear", (0.3, 0.6, 0.9)),
                columns(0.1, 0.5, 0.9),
                leaf_sizes(1, 10),
            )
        ),
        lambda: generated.hastie("log_loss", 200, 300, 46),
        seed=45,
    ),
    "friedman_schedules": Task(
        "perceptrons on a function of five of ten columns, with four schedules, long warm-ups and "
        "strong dropout; squared error",
        networks.model(merged=_MERGED, batch_size=16),
        Grid(
            (
                log_axis("lr", 3e-4, 0.1, 5),
                choice("schedule", "constant", "cosine", "linear", "step"),
                *under(
                    "schedule",
                    ("cosine", "linear", "step"),
                    Axis("warmup", "linear", (0, 9)),
                ),
                *under("schedule", ("step",), DROPS),
                OPTIMIZERS,
                *under("optimizer", ("sgd",), momenta(0.0, 0.9)),
                dropouts(0.0, 0.3, 0.6),
                choice("init", "he", "small"),
                widths(16, 48),
                depths(1, 2),
                decays(1e-4, 1e-2, 2),
            )
        ),
        lambda: generated.friedman(1, 0.2, 120, 300, 47),
        seed=46,
    ),
    "moons_noisy": Task(
        "kernel machines and perceptrons that separate two half moons, four training seeds; share "
        "of errors",
        mixed.model({"kernel": _LINEAR, "perceptron": _PERCEPTRON}),
        Grid(
            (
                choice("family", "kernel", "perceptron"),
                log_axis("lr", 1e-3, 1.0, 6),
                OPTIMIZERS,
                batches(8, 32),
                decays(1e-4, 1e-1, 2),
                *under("family", ("kernel",), features(16, 64, 256), frequencies(0.3, 10.0, 5)),
                *under(
                    "family",
                    ("perceptron",),
                    widths(4, 8, 16),
                    depths(1, 2, 3),
                    choice("activation", "relu", "sine", "tanh"),
                ),
            )
        ),
        lambda: generated.moons("error", 0.3, 60, 500, 48),
        seed=47,
        num_seeds=4,
    ),
    "classes_twelve": Task(
        "perceptrons with twelve hyperparameters that distinguish five classes in 20 columns, ten "
        "of which are noise; share of errors",
        networks.model(merged=_MERGED, prepare=prepared, width=24),
        Grid(
            (
                choice("scaler", "rank", "standard"),
                choice("selection", "all", "best", "components"),
                *under("selection", ("best", "components"), Axis("num_selected", "int", (5, 10))),
                ACTIVATIONS,
                choice("optimizer", "adam", "sgd", "sign"),
                *under("optimizer", ("sgd",), momenta(0.0, 0.9)),
                choice("init", "glorot", "he"),
                log_axis("lr", 3e-4, 0.1, 4),
                choice("schedule", "constant", "cosine"),
                dropouts(0.0, 0.3),
                SMOOTHINGS,
                decays(1e-3, 1e-1, 2),
            )
        ),
        lambda: generated.classes("error", 5, 160, 250, 49),
        seed=48,
    ),
    "grunfeld_families": Task(
        "linear models, perceptrons, forests and boosted trees that predict the investments of "
        "firms, three training seeds; squared error",
        mixed.model(
            {
                "forest": _FOREST,
                "leaves": _LEAVES,
                "linear": _LINEAR,
                "perceptron": _PERCEPTRON,
            }
        ),
        Grid(
            (
                choice("family", "forest", "leaves", "linear", "perceptron"),
                *under(
                    "family",
                    ("linear", "perceptron"),
                    log_axis("lr", 1e-4, 0.1, 10),
                    decays(1e-4, 1e-1, 4),
                ),
                *under("family", ("perceptron",), widths(8, 16, 32), depths(1, 2), ACTIVATIONS),
                *under("family", ("forest", "leaves"), leaf_sizes(1, 3, 9, 27)),
                *under(
                    "family",
                    ("leaves",),
                    log_axis("learning_rate", 0.02, 1.0, 10),
                    leaf_counts(2, 4, 8, 16),
                ),
                *under(
                    "family",
                    ("forest",),
                    levels(2, 4, 6, 8),
                    columns(0.2, 0.5, 0.8),
                    samples(0.4, 0.7, 1.0),
                ),
            )
        ),
        lambda: econometrics.investments(120, 100, 50),
        seed=49,
        num_seeds=3,
    ),
    "fair_families": Task(
        "boosted trees, extra trees, kernel machines and perceptrons that predict from a survey "
        "whether wives had an affair; cross-entropy",
        mixed.model(
            {
                "boosting": _BOOSTING,
                "extra trees": (forests.MODEL, {"kind": "extra trees", "sample": 1.0}),
                "kernel": (_PREPARED, {"depth": 0}),
                "perceptron": (_PREPARED, {}),
            }
        ),
        Grid(
            (
                choice("family", "boosting", "extra trees", "kernel", "perceptron"),
                *under(
                    "family",
                    ("boosting", "extra trees"),
                    levels(1, 3, 5, 7),
                    columns(0.2, 0.5, 0.8),
                    leaf_sizes(1, 5, 25),
                ),
                *under(
                    "family",
                    ("boosting",),
                    log_axis("learning_rate", 0.02, 1.0, 8),
                    Axis("subsample", "linear", (0.3, 0.6, 0.9)),
                ),
                *under(
                    "family",
                    ("kernel", "perceptron"),
                    log_axis("lr", 1e-3, 0.3, 6),
                    choice("encoder", "one-hot", "ordinal", "target"),
                ),
                *under("family", ("kernel",), features(32, 128), frequencies(0.05, 1.5, 4)),
                *under("family", ("perceptron",), widths(8, 32), dropouts(0.0, 0.4)),
            )
        ),
        lambda: econometrics.affairs("log_loss", 250, 500, 51),
        seed=50,
    ),
    "digits_schedules": Task(
        "perceptrons on 150 digits with 20 % of the labels random, with three schedules, long "
        "warm-ups, strong dropout and noise in the inputs; cross-entropy",
        networks.model(merged=_MERGED, batch_size=32),
        Grid(
            (
                log_axis("lr", 1e-3, 0.3, 6),
                choice("schedule", "cosine", "linear", "step"),
                Axis("warmup", "linear", (0, 6, 12)),
                *under("schedule", ("step",), DROPS),
                OPTIMIZERS,
                dropouts(0.0, 0.4, 0.8),
                SMOOTHINGS,
                input_noises(0.0, 0.6, 1.2),
                widths(16, 48),
            )
        ),
        lambda: problems.with_label_noise(
            problems.classification("digits", "log_loss", 150, 250, 52), 0.2, 52
        ),
        seed=51,
    ),
    "cancer_missing": Task(
        "perceptrons on 100 cases of breast cancer with a fifth of the values missing, with four "
        "ways to replace them; cross-entropy",
        networks.model(merged=_MERGED, prepare=prepared, width=16),
        Grid(
            (
                choice("imputer", "flag", "low", "mean", "median"),
                choice("scaler", "minmax", "rank", "standard"),
                choice("selection", "all", "best", "components"),
                *under("selection", ("best", "components"), Axis("num_selected", "int", (4, 12))),
                ACTIVATIONS,
                choice("optimizer", "adam", "rmsprop", "sgd"),
                *under("optimizer", ("sgd",), momenta(0.0, 0.9)),
                log_axis("lr", 1e-3, 0.1, 4),
                dropouts(0.0, 0.4),
                decays(1e-3, 1e-1, 2),
            )
        ),
        lambda: problems.with_missing(
            problems.raw("log_loss", *problems.bundled("breast_cancer"), (100, 450), 53), 0.2, 53
        ),
        seed=52,
    ),
}
