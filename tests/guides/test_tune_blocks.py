"""The guide to checkpoints of trials: each block runs with only its imports changed."""

import pytest

BLOCKS = {
    "function_api": ["error: None", "rows: 5", "epoch saved: 5"],
    "function_api_frequency": ["saved at: [3, 6, 9, 12]"],
    "class_api": ["saved at: [2]", "inputs: 64"],
    "class_api_preemption": ["preempted some time: True", "saved when preempted: True"],
    "class_api_callback": ["saved at: [2, 5, 8]"],
}


HEAVY = {"class_api"}
"""Of two that import PyTorch in each process, one is enough in the tier ``guides``."""


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.heavy] if block in HEAVY else []) for block in BLOCKS],
)
def test_a_block_of_the_guide_does_what_it_says(run_block, block):
    run_block(block).must_print(BLOCKS[block])


def test_a_frequency_that_never_comes_saves_at_the_end_with_and_without_asking(run_block):
    lines = run_block("class_api_periodic").lines
    assert [line for line in lines if line.startswith("saved")] == ["saved at: [2]"] * 2


@pytest.mark.heavy  # the page on checkpoints has the same in the tier ``guides``
def test_a_file_of_model_optimizer_epoch_and_loss_continues_the_same_training(run_block):
    assert run_block("torch_state_dict").lines == ["epoch 10 loss 0.02 same weights: True"]
