"""Problems of the quality benchmark that are made of pictures or computed."""

import numpy as np
import pytest

from benchmarks.quality import computed, pictures
from benchmarks.quality.problems import bundled

DIGITS = {
    "digit_codes": lambda: pictures.digit_codes(50, 40, 1),
    "digit_loops": lambda: pictures.digit_loops(50, 40, 1),
    "digit_pairs": lambda: pictures.digit_pairs(50, 40, 1),
    "digit_turns": lambda: pictures.digit_turns(50, 40, 1),
    "digit_sums": lambda: pictures.digit_sums(50, 40, 1),
}
PHOTOGRAPHS = {
    "place_colours": lambda: pictures.place_colours("china", 50, 40, 1),
    "photograph_of": lambda: pictures.photograph_of("error", 4, 50, 40, 1),
    "quarter_of": lambda: pictures.quarter_of("china", 4, 50, 40, 1),
    "height_of": lambda: pictures.height_of("china", 4, 50, 40, 1),
    "channel_of": lambda: pictures.channel_of("flower", 4, 50, 40, 1),
    "clean_patches": lambda: pictures.clean_patches("flower", 4, 50, 40, 1),
    "colours": lambda: pictures.colours("china", 5, 50, 40, 1),
}
SHAPES = {
    "digit_codes": (64, 40),
    "digit_loops": (64, 2),
    "digit_pairs": (128, 2),
    "digit_turns": (64, 4),
    "digit_sums": (128, 1),
    "place_colours": (2, 3),
    "photograph_of": (16, 2),
    "quarter_of": (48, 4),
    "height_of": (48, 1),
    "channel_of": (16, 3),
    "clean_patches": (16, 16),
    "colours": (25, 2),
}


def checked(name, make):
    problem, again = make(), make()
    num_columns, num_outputs = SHAPES[name]
    assert [len(problem.train[0]), len(problem.valid[0])] == [50, 40]
    assert problem.train[0].shape[1] == num_columns
    assert problem.num_outputs == num_outputs or name == "digit_codes"
    if problem.is_classification:
        assert set(np.unique(problem.train[1])) == set(range(num_outputs))
    else:
        np.testing.assert_allclose(problem.train[1].mean(axis=0), 0.0, atol=1e-4)
    if problem.shape != (0, 0):
        assert np.prod(problem.shape) == num_columns
    for part, same in zip(
        (*problem.train, *problem.valid), (*again.train, *again.valid), strict=True
    ):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("name", DIGITS)
def test_problems_of_digits(name):
    checked(name, DIGITS[name])


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_problems_of_photographs(name):
    pytest.importorskip("PIL", reason="scikit-learn reads its photographs with Pillow")
    checked(name, PHOTOGRAPHS[name])


def test_the_two_photographs_can_be_distinguished():
    pytest.importorskip("PIL", reason="scikit-learn reads its photographs with Pillow")
    problem = pictures.photograph_of("error", 4, 200, 100, 1)
    means = [problem.train[0][problem.train[1] == kind].mean() for kind in (0, 1)]
    assert abs(means[0] - means[1]) > 0.5


def test_half_of_the_pairs_are_the_same_digit():
    problem = pictures.digit_pairs(1000, 10, 1)
    assert 0.4 < problem.train[1].mean() < 0.6


def test_training_and_validation_sums_share_no_digits():
    problem = pictures.digit_sums(400, 400, 1)
    left = [
        {tuple(row.reshape(8, 16)[:, :8].round(3).ravel()) for row in part[0]}
        for part in (problem.train, problem.valid)
    ]
    assert not left[0] & left[1]
    assert len(left[0]) > 200


def test_turned_digits_are_those_of_the_data_set():
    problem = pictures.digit_turns(1000, 797, 1)
    assert np.bincount(problem.train[1]).min() > 200
    assert len(bundled("digits")[0]) == 1797


@pytest.mark.parametrize(
    ("operation", "result", "num_pairs"), [("sum", np.add, 25), ("product", np.multiply, 16)]
)
def test_every_pair_of_numbers_is_in_one_of_both_parts(operation, result, num_pairs):
    problem = computed.modular(operation, 5, 10, "error", 1)
    inputs = np.concatenate([problem.train[0], problem.valid[0]])
    first, second = inputs[:, :5].argmax(axis=1), inputs[:, 5:].argmax(axis=1)
    assert len(np.unique(5 * first + second)) == len(inputs) == num_pairs
    results = np.concatenate([problem.train[1], problem.valid[1]])
    np.testing.assert_array_equal(results, result(first, second) % 5)
    assert (len(problem.train[1]), problem.num_outputs) == (10, 5)


def test_the_parity_depends_on_the_first_bits_only():
    inputs, kinds = computed.bit_parity(6, 2, 50, 1).train
    np.testing.assert_array_equal(kinds, (inputs[:, 0] != inputs[:, 1]).astype(int))


@pytest.mark.parametrize(
    ("make", "num_columns", "num_outputs"),
    [
        (lambda: computed.spirals(1.5, 0.02, 50, 40, 1), 2, 2),
        (lambda: computed.melody(6, 50, 40, 1), 1, 1),
        (lambda: computed.noisy_digits(1.0, 50, 40, 1), 64, 48),
        (lambda: computed.names(7, 50, 40, 1), 7, 18),
        (lambda: computed.sentences(7, 50, 40, 1), 7, 18),
    ],
)
def test_computed_problems_are_the_same_each_time(make, num_columns, num_outputs):
    problem, again = make(), make()
    assert [part[0].shape for part in (problem.train, problem.valid)] == [
        (50, num_columns),
        (40, num_columns),
    ]
    assert problem.num_outputs == num_outputs
    for part, same in zip(
        (*problem.train, *problem.valid), (*again.train, *again.valid), strict=True
    ):
        np.testing.assert_array_equal(part, same)


def test_the_end_of_a_name_repeats_its_beginning():
    windows, following = computed.names(7, 300, 10, 1).train
    space = 0
    is_end = windows[:, -1] == space
    assert is_end.sum() > 20
    np.testing.assert_array_equal(windows[is_end, 0:2], windows[is_end, 4:6])
    assert (following[windows[:, -3] == space] != space).all()
