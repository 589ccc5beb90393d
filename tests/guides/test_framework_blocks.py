"""The guide's blocks for Lightning, Transformers and TensorFlow.

They have today's names where a framework has removed one.
"""

import importlib.util
import math

import pytest

pytestmark = pytest.mark.heavy
BLOCKS = {
    "lightning_save": [
        "rows: 4 of 4 epochs",
        "metrics: ['epoch', 'loss', 'mean_accuracy', 'step']",
        "epochs saved: 4 keys: ['layer.bias', 'layer.weight']",
    ],
    "lightning_custom_save": ["rows: 5 custom: 123", "epoch 0 True", "epoch 3 True"],
    "lightning_restore": ["rows: 4 kept: 2"],
    "transformers_save": [
        "rows: 4 epoch: 4.0",
        "kept: True descending: True",
        "loaded: BertForSequenceClassification",
    ],
    "transformers_strategies": ["epoch 4 True", "steps 2 True"],
    "transformers_custom_save": [
        "epochs: [1.0, 2.0, 3.0, 4.0]",
        "evaluated: True",
        "model saved: True",
    ],
    "tensorflow_checkpoint": [
        "rows: 4",
        "steps saved: 4",  # A run continues from tf.train.Checkpoint's, to the last variable.
        "a copy is found: True",  # `latest_checkpoint` finds it in a copy.
    ],
    "tensorflow_manager": [
        "['ckpt-3', 'ckpt-4', 'ckpt-5']",  # A manager keeps three.
        # The chief is the first worker, the chief or the only process.
        "[True, True, True, False]",
        "float16",
        "(1, 2)",
    ],
    "tensorflow_workers": [
        "chief: True last: ckpt-4",  # Rank 0 is the chief of the strategy.
        "ckpt-4",
        "3 kept",
    ],
}


@pytest.fixture(autouse=True)
def framework(request):
    """Skip where what a block is named after is not installed."""
    block = getattr(request.node, "callspec", None) and request.node.callspec.params.get("block")
    name = (block or "lightning").partition("_")[0].replace("lightning", "pytorch_lightning")
    if not importlib.util.find_spec(name):
        pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_does_what_it_says(run_heavy_block, block):
    run_heavy_block(block).must_print(BLOCKS[block])


def test_lightning_keeps_the_best_two_by_a_metric_that_it_has_logged(run_heavy_block):
    (kept,) = [line for line in run_heavy_block("lightning_save").lines if line.startswith("kept")]
    assert kept == "kept: 2 ascending: True"


@pytest.mark.parametrize("rank", [0, 1])
def test_lightning_trains_no_epoch_again_that_has_been_saved(run_heavy_block, rank):
    lines = run_heavy_block("lightning_restore").logged(rank)
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert epochs == ["epoch 0", "epoch 1", "epoch 2", "epoch 2", "epoch 3"]


def test_a_validator_may_start_two_workers_in_a_run_of_its_own_name(run_heavy_block):
    ran = run_heavy_block("nested_validation")
    scores = [float(line.split()[-1]) for line in ran.lines if line.startswith("epoch")]
    assert scores[0] == pytest.approx(math.log(2), abs=1e-4)  # weights of zero
    assert len(scores) == 2
    names = {path.name for path in ran.storage.rglob("digits_validation_epoch_*")}
    assert names == {"digits_validation_epoch_0", "digits_validation_epoch_1"}
