"""The guide's blocks for TensorFlow, run with today's names where it has removed one."""

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow") or not importlib.util.find_spec("tuner.train"),
    reason="TensorFlow is not installed",
)


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("tensorflow_checkpoint", "rows: 4"),
        pytest.param(
            "tensorflow_checkpoint",
            "steps saved: 4",
            id="a run continues from what tf.train.Checkpoint has saved, to the last variable",
        ),
        pytest.param(
            "tensorflow_checkpoint",
            "a copy is found: True",
            id="latest_checkpoint finds it in a copy",
        ),
        pytest.param(
            "tensorflow_manager", "['ckpt-3', 'ckpt-4', 'ckpt-5']", id="a manager keeps three"
        ),
        pytest.param(
            "tensorflow_manager",
            "[True, True, True, False]",
            id="the chief is the first worker, the chief or the only process",
        ),
        ("tensorflow_manager", "float16"),
        ("tensorflow_manager", "(1, 2)"),
        pytest.param(
            "tensorflow_workers",
            "chief: True last: ckpt-4",
            id="rank 0 is the chief of the strategy",
        ),
        ("tensorflow_workers", "ckpt-4"),
        ("tensorflow_workers", "3 kept"),
    ],
)
def test_a_block_for_tensorflow_does_what_it_says(run_block, block, line):
    assert line in run_block(block).lines
