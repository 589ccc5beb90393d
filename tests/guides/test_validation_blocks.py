"""The guide to asynchronous validation: each block runs with only its imports changed."""

import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tuner.train")


@pytest.mark.parametrize(
    ("block", "line"),
    [
        pytest.param("async_validation", "epochs: [0, 1, 2, 3]", id="every epoch has a checkpoint"),
        pytest.param("async_validation", "validated: True", id="fit waits for all validations"),
        pytest.param(
            "async_validation",
            "each score is that of its checkpoint: True",
            id="metrics are attached to the checkpoint that was validated",
        ),
        pytest.param("async_validation", "last: True", id="the result has the merged metrics"),
        pytest.param(
            "map_batches_validation", "score: 1.0", id="a dataset may map batches in a validation"
        ),
    ],
)
def test_a_block_of_the_guide_does_what_it_says(run_block, block, line):
    assert line in run_block(block).lines


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


def test_a_validator_may_start_two_workers_in_a_run_of_its_own_name(run_block):
    pytest.importorskip("torchmetrics")
    ran = run_block("nested_validation")
    scores = [float(line.split()[-1]) for line in ran.lines if line.startswith("epoch")]
    assert scores[0] == pytest.approx(math.log(2), abs=1e-4)  # weights of zero
    assert len(scores) == 2
    names = {path.name for path in ran.storage.rglob("digits_validation_epoch_*")}
    assert names == {"digits_validation_epoch_0", "digits_validation_epoch_1"}
