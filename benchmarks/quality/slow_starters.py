"""Tasks made so that their best configurations start slowly; see `tasks` for their two sets.

Searches receive the values of each epoch, which may rise again, and NaN from the epoch on in which
training diverges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import computed, generated, networks, pictures, problems
from .grid import Axis, Grid, log_axis
from .problems import Problem
from .spaces import (
    OPTIMIZERS,
    SCHEDULES,
    batches,
    choice,
    depths,
    dropouts,
    frequencies,
    input_noises,
    momenta,
    widths,
)
from .task import Task

_MERGED = ("activation", "init", "optimizer", "schedule")
_LONG = 81


def _decoupled(low: float, high: float, num: int) -> Axis:
    return log_axis("decoupled_decay", low, high, num)


def _warmups(*epochs: int) -> Axis:
    return Axis("warmup", "linear", epochs)


def _modular(about: str, problem: Callable[[], Problem], seed: int) -> Task:
    return Task(
        about,
        networks.model(merged=_MERGED, optimizer="adam", batch_size=16, beta2=0.98, init="lecun"),
        Grid(
            (
                log_axis("lr", 1e-3, 3e-2, 5),
                _decoupled(0.03, 3.0, 5),
                widths(32, 64, 128),
                choice("activation", "relu", "silu", "sine"),
            )
        ),
        problem,
        seed,
        num_epochs=_LONG,
        is_raw=True,
    )


def _transformer(about: str, problem: Callable[[], Problem], seed: int) -> Task:
    return Task(
        about,
        networks.model(
            "transformers", merged=_MERGED, optimizer="adam", depth=0, init="lecun", batch_size=32
        ),
        Grid(
            (
                log_axis("lr", 3e-3, 0.3, 5),
                _warmups(0, 9, 18),
                SCHEDULES,
                _decoupled(0.01, 1.0, 2),
                widths(8, 16),
                Axis("blocks", "int", (1, 2)),
            )
        ),
        problem,
        seed,
        is_raw=True,
    )


def _coordinates(about: str, scales: Axis, problem: Callable[[], Problem], seed: int) -> Task:
    return Task(
        about,
        networks.model(
            merged=_MERGED, batch_size=32, init="lecun", activation="sine", num_features=64
        ),
        Grid(
            (
                log_axis("lr", 3e-3, 1.0, 6),
                _warmups(0, 27),
                scales,
                SCHEDULES,
                momenta(0.0, 0.9),
                depths(1, 3),
            )
        ),
        problem,
        seed,
        num_epochs=_LONG,
        is_raw=True,
    )


SLOW_STARTERS: Mapping[str, Task] = {
    "modular_products": _modular(
        "perceptrons that multiply modulo 23, with weight decay beside Adam; cross-entropy",
        lambda: computed.modular("product", 23, 360, "log_loss", 54),
        seed=53,
    ),
    "digits_denoised": Task(
        "perceptrons that remove noise from digits, with warm-ups, dropout and more noise; squared "
        "error",
        networks.model(merged=_MERGED, optimizer="adam", width=64),
        Grid(
            (
                log_axis("lr", 1e-3, 0.1, 5),
                _warmups(0, 18),
                SCHEDULES,
                depths(1, 2),
                dropouts(0.0, 0.25, 0.5),
                input_noises(0.0, 0.5, 1.0),
            )
        ),
        lambda: computed.noisy_digits(1.0, 300, 400, 55),
        seed=54,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "diabetes_large_batches": Task(
        "perceptrons on diabetes with small and large batches, by SGD; squared error",
        networks.model(merged=_MERGED),
        Grid(
            (
                log_axis("lr", 1e-3, 0.1, 5),
                batches(8, 32, 128),
                momenta(0.0, 0.9),
                SCHEDULES,
                _warmups(0, 27),
                dropouts(0.0, 0.3, 0.6),
            )
        ),
        lambda: problems.regression("diabetes", 220, 222, 56),
        seed=55,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "wine_warmups": Task(
        "perceptrons that predict a wine's alcohol, with long warm-ups and three schedules; "
        "squared error",
        networks.model(merged=_MERGED, batch_size=8, width=32),
        Grid(
            (
                log_axis("lr", 1e-3, 1.0, 7),
                _warmups(0, 18, 36),
                choice("schedule", "constant", "cosine", "linear"),
                depths(1, 3),
                dropouts(0.0, 0.3, 0.6),
            )
        ),
        lambda: problems.column_of("wine", 0, 100, 78, 57),
        seed=56,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "digits_regularised": Task(
        "perceptrons on 150 digits with a quarter of the labels random, with strong dropout and "
        "weight decay; cross-entropy",
        networks.model(merged=_MERGED, optimizer="adam", width=64),
        Grid(
            (
                log_axis("lr", 3e-3, 0.1, 4),
                _warmups(0, 27),
                dropouts(0.0, 0.4, 0.8),
                _decoupled(0.01, 1.0, 3),
                input_noises(0.0, 1.0, 2.0),
            )
        ),
        lambda: problems.with_label_noise(
            problems.classification("digits", "log_loss", 150, 400, 58), 0.25, 58
        ),
        seed=57,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "spirals_deep": Task(
        "perceptrons of up to five layers that separate two spirals; cross-entropy",
        networks.model(merged=_MERGED, width=24),
        Grid(
            (
                log_axis("lr", 3e-3, 1.0, 6),
                _warmups(0, 18, 36),
                depths(3, 5),
                choice("activation", "relu", "tanh"),
                OPTIMIZERS,
                SCHEDULES,
            )
        ),
        lambda: computed.spirals(1.5, 0.02, 400, 400, 59),
        seed=58,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "names_transformer": _transformer(
        "transformers that predict the next letter of names whose end repeats the beginning, with "
        "long warm-ups; cross-entropy",
        lambda: computed.names(7, 800, 500, 60),
        seed=59,
    ),
    "melody_coordinates": _coordinates(
        "perceptrons on random Fourier features of the time that predict a melody, by SGD, which "
        "may diverge; squared error",
        frequencies(4.0, 64.0, 4),
        lambda: computed.melody(6, 250, 400, 61),
        seed=60,
    ),
    "modular_sums": _modular(
        "perceptrons that add modulo 23, with weight decay beside Adam; share of errors",
        lambda: computed.modular("sum", 23, 360, "error", 62),
        seed=61,
    ),
    "letters_transformer": _transformer(
        "transformers that predict the next letter of a text, with long warm-ups; cross-entropy",
        lambda: computed.sentences(7, 800, 500, 63),
        seed=62,
    ),
    "photo_coordinates": _coordinates(
        "perceptrons on random Fourier features that predict the colour of a photograph's pixel "
        "from its position, by SGD, which may diverge; squared error",
        frequencies(0.5, 16.0, 4),
        lambda: pictures.place_colours("flower", 300, 500, 64),
        seed=63,
    ),
    "friedman_annealed": Task(
        "perceptrons on a function of five of ten columns, with three schedules and large batches; "
        "squared error",
        networks.model(merged=_MERGED, width=32),
        Grid(
            (
                log_axis("lr", 3e-3, 0.3, 5),
                choice("schedule", "constant", "cosine", "linear"),
                _warmups(0, 27),
                batches(8, 32, 128),
                momenta(0.0, 0.9),
                dropouts(0.0, 0.3),
            )
        ),
        lambda: generated.friedman(1, 0.3, 200, 400, 65),
        seed=64,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "bits_parity": Task(
        "perceptrons that predict the parity of four of sixteen bits, with weight decay beside "
        "two optimizers; cross-entropy",
        networks.model(merged=_MERGED, batch_size=16),
        Grid(
            (
                log_axis("lr", 1e-3, 0.1, 5),
                _decoupled(0.01, 1.0, 3),
                OPTIMIZERS,
                widths(16, 64),
                depths(1, 2),
                choice("activation", "relu", "tanh"),
            )
        ),
        lambda: computed.bit_parity(16, 4, 800, 66),
        seed=65,
        num_epochs=_LONG,
        is_raw=True,
    ),
    "digits_unfrozen": Task(
        "perceptrons on 150 digits whose first layers are frozen at the beginning; cross-entropy",
        networks.model(merged=_MERGED, width=64, batch_size=16),
        Grid(
            (
                log_axis("lr", 3e-3, 0.3, 4),
                Axis("frozen", "linear", (0, 9, 18)),
                depths(1, 3),
                choice("init", "he", "small"),
                dropouts(0.0, 0.4),
                OPTIMIZERS,
                SCHEDULES,
            )
        ),
        lambda: problems.classification("digits", "log_loss", 150, 400, 67),
        seed=66,
        num_epochs=_LONG,
        is_raw=True,
    ),
}
