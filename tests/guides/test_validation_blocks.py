"""The guide to asynchronous validation: each block runs with only its imports changed."""

from pathlib import Path

import pytest

BLOCKS = {
    "async_validation": [
        "epochs: [0, 1, 2, 3]",  # Every epoch has a checkpoint.
        "validated: True",  # `fit` waits for all validations.
        # Metrics are attached to the checkpoint that was validated.
        "each score is that of its checkpoint: True",
        "last: True",  # The result has the merged metrics.
    ],
    "map_batches_validation": ["score: 1.0"],  # A dataset may map batches in a validation.
}


HEAVY = {"map_batches_validation"}
"""Of two that import PyTorch in each process, one is enough in the tier ``guides``."""


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.heavy] if block in HEAVY else []) for block in BLOCKS],
)
def test_a_block_of_the_guide_does_what_it_says(run_block, block):
    run_block(block).must_print(BLOCKS[block])


def test_a_dataset_is_divided_among_the_workers(run_block):
    (trial,) = run_block("async_validation").storage.glob("*/t00000")
    for name in ("stdout", "stdout.rank1"):
        lines = (trial / name).read_text().splitlines()
        assert [line for line in lines if line.startswith("rows")] == ["rows 48"] * 4


def test_a_directory_that_was_stored_asynchronously_is_deleted(run_block):
    (trial,) = run_block("async_validation").storage.glob("*/t00000")
    lines = (trial / "stdout").read_text().splitlines()
    directories = [Path(line.split()[1]) for line in lines if line.startswith("local")]
    assert len(directories) == 4
    assert [directory for directory in directories if directory.exists()] == []
