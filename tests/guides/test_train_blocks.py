"""The guide to checkpoints of training over several workers: each block runs with other imports."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("tuner.train")


def logged(ran, experiment, rank=0):
    """Return the lines that a worker has printed."""
    (folder,) = ran.storage.glob(f"{experiment}*")
    name = f"stdout.rank{rank}" if rank else "stdout"
    return (folder / "t00000" / name).read_text().splitlines()


@pytest.mark.parametrize(
    ("block", "line"),
    [
        pytest.param(
            "ddp_single_worker", "metrics of rank 0 of 2", id="metrics are those of rank 0"
        ),
        pytest.param("ddp_single_worker", "saved by rank 0", id="the checkpoint is rank 0's"),
        pytest.param(
            "pytorch_save", "rows: 5 checkpoints: 5", id="each epoch is reported and saved"
        ),
        pytest.param(
            "pytorch_save",
            "keys: ['bias', 'weight']",
            id="an unwrapped model's keys have no prefix",
        ),
        pytest.param(
            "pytorch_restore", "rows: 5 checkpoints: 5", id="no epoch counts twice over a failure"
        ),
        pytest.param(
            "pytorch_restore",
            "epoch saved: 4 steps of the optimizer: 5",
            id="the optimizer continues where it was",
        ),
        pytest.param(
            "distributed_checkpoint",
            "model-rank=0.pt model-rank=1.pt",
            id="the parts of all ranks are in one directory",
        ),
        pytest.param(
            "distributed_checkpoint", "different contents: True", id="each part is its rank's"
        ),
        pytest.param("distributed_checkpoint", "checkpoints: 1", id="the parts are one checkpoint"),
        pytest.param("checkpoint_config", "[0.1, 0.2]", id="the latest two are kept"),
        pytest.param("checkpoint_config", "[0.8, 0.9]", id="the best two are kept"),
        pytest.param("inspect_checkpoint", "in place: True", id="a local directory is not copied"),
        pytest.param("inspect_checkpoint", "a copy: True", id="to_directory copies"),
    ],
)
def test_a_block_of_the_guide_does_what_it_says(run_block, block, line):
    assert line in run_block(block).lines


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_restarts_all_workers_from_the_latest_checkpoint(run_block, rank):
    lines = logged(run_block("pytorch_restore"), "", rank)
    assert [line for line in lines if line.startswith("starts")] == [
        "starts with epoch 0",
        "starts with epoch 2",
    ]


def test_the_failure_is_told_with_its_rank(run_block):
    (trial,) = run_block("pytorch_restore").storage.glob("*/t00000")
    assert "Intentional error to showcase restoration!" in (trial / "error.txt").read_text()


# Lightning and Transformers.


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("lightning_save", "rows: 4 of 4 epochs"),
        ("lightning_save", "metrics: ['epoch', 'loss', 'mean_accuracy', 'step']"),
        ("lightning_save", "epochs saved: 4 keys: ['layer.bias', 'layer.weight']"),
        ("lightning_custom_save", "rows: 5 custom: 123"),
        ("lightning_custom_save", "epoch 0 True"),
        ("lightning_custom_save", "epoch 3 True"),
        ("lightning_restore", "rows: 4 kept: 2"),
    ],
)
def test_a_block_for_lightning_does_what_it_says(run_block, block, line):
    pytest.importorskip("pytorch_lightning")
    assert line in run_block(block).lines


def test_lightning_keeps_the_best_two_by_a_metric_that_it_has_logged(run_block):
    pytest.importorskip("pytorch_lightning")
    (kept,) = [line for line in run_block("lightning_save").lines if line.startswith("kept")]
    assert kept == "kept: 2 ascending: True"


@pytest.mark.parametrize("rank", [0, 1])
def test_lightning_trains_no_epoch_again_that_has_been_saved(run_block, rank):
    pytest.importorskip("pytorch_lightning")
    lines = logged(run_block("lightning_restore"), "", rank)
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert epochs == ["epoch 0", "epoch 1", "epoch 2", "epoch 2", "epoch 3"]


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("transformers_save", "rows: 4 epoch: 4.0"),
        ("transformers_save", "kept: True descending: True"),
        ("transformers_save", "loaded: BertForSequenceClassification"),
        ("transformers_strategies", "epoch 4 True"),
        ("transformers_strategies", "steps 2 True"),
        ("transformers_custom_save", "epochs: [1.0, 2.0, 3.0, 4.0]"),
        ("transformers_custom_save", "evaluated: True"),
        ("transformers_custom_save", "model saved: True"),
    ],
)
def test_a_block_for_transformers_does_what_it_says(run_block, block, line):
    pytest.importorskip("transformers")
    assert line in run_block(block).lines
