"""The guide to checkpoints of training over several workers: each block runs with other imports."""

import pytest

BLOCKS = {
    "ddp_single_worker": [
        "metrics of rank 0 of 2",  # Metrics are those of rank 0,
        "saved by rank 0",  # and so is the checkpoint.
    ],
    "pytorch_save": [
        "rows: 5 checkpoints: 5",  # Each epoch is reported and saved.
        "keys: ['bias', 'weight']",  # An unwrapped model's keys have no prefix.
    ],
    "pytorch_restore": [
        "rows: 5 checkpoints: 5",  # No epoch counts twice over a failure.
        "epoch saved: 4 steps of the optimizer: 5",  # The optimizer continues where it was.
    ],
    "distributed_checkpoint": [
        "model-rank=0.pt model-rank=1.pt",  # The parts of all ranks are in one directory.
        "different contents: True",  # Each part is its rank's.
        "checkpoints: 1",  # The parts are one checkpoint.
    ],
    "checkpoint_config": [
        "[0.1, 0.2]",  # The latest two are kept.
        "[0.8, 0.9]",  # The best two are kept.
    ],
    "inspect_checkpoint": [
        "in place: True",  # A local directory is not copied.
        "a copy: True",  # `to_directory` copies.
    ],
}

HEAVY = {"checkpoint_config", "ddp_single_worker", "distributed_checkpoint", "pytorch_save"}
"""Of the groups of torch, one block is enough in the tier ``guides``."""


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.heavy] if block in HEAVY else []) for block in BLOCKS],
)
def test_a_block_of_the_guide_does_what_it_says(run_block, run_heavy_block, block):
    run = run_heavy_block if block in HEAVY else run_block
    run(block).must_print(BLOCKS[block])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_restarts_all_workers_from_the_latest_checkpoint(run_block, rank):
    lines = run_block("pytorch_restore").logged(rank)
    assert [line for line in lines if line.startswith("starts")] == [
        "starts with epoch 0",
        "starts with epoch 2",
    ]


def test_the_failure_is_told_with_its_rank(run_block):
    (trial,) = run_block("pytorch_restore").storage.glob("*/t00000")
    assert "Intentional error to showcase restoration!" in (trial / "error.txt").read_text()
