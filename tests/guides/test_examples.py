"""The examples run."""

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.interpreter import run_python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "digits_mlp.py": (["--trials", "1"], ["Best configuration:", "on the test split"]),
    "cluster_digits.py": (["--trials", "4"], ["Best configuration:"]),
    "asha_promotion.py": (
        ["--trials", "3"],
        ["Best configuration:", "promoted 3 times", "is resumed: asha."],
    ),
    "define_by_run.py": (["--trials", "6"], ["Tried:", "Best configuration:"]),
    "several_objectives.py": (
        ["--trials", "8"],
        ["Nothing within 500 kB beats these in both:", "Pareto front:", "A compromise:"],
    ),
    "warm_start.py": (["--trials", "3"], ["to begin with:", "Best configuration:"]),
    "prior.py": (
        ["--trials", "5", "--searches", "1"],
        ["with a prior", "without", "Best configuration:"],
    ),
    "keras_digits.py": (["--trials", "3"], ["Best configuration:", "Its network after"]),
    "lightgbm_cancer.py": (["--trials", "4"], ["Best configuration:", "Its best model, of"]),
    "lightning_digits.py": (
        ["--trials", "3"],
        ["Trials by epochs trained: 2 x 1, 1 x 9", "Best configuration:"],
    ),
    "sklearn_search.py": (
        ["--trials", "4"],
        ["Folds evaluated:", "Its accuracy on the test split:"],
    ),
    "transformers_tiny.py": (["--trials", "2"], ["Learning rates that it reported:"]),
    "xgboost_cancer.py": (["--trials", "4"], ["Best configuration:", "Its best model, of"]),
    "pbt_digits.py": (
        ["--members", "3", "--epochs", "10"],
        ["Best configuration:", "Schedule of its weights:", "schedule.svg"],
    ),
    "ddp_digits.py": (["--epochs", "4"], ["Accuracy by epoch:", "Best model: epoch"]),
    "sharded_dcp.py": (
        [],
        [
            "Parts written by 2 workers: __0_0.distcp, __1_0.distcp",
            "Steps of the second run, over one worker: 10-19",
        ],
    ),
    "async_validation.py": (["--epochs", "3"], ["Accuracy by epoch:", "Best model: epoch"]),
    "asha_async_validation.py": (
        ["--trials", "3"],
        ["Trials by epochs trained:", "Best configuration:"],
    ),
    "pbt_ddp.py": (
        ["--members", "2", "--epochs", "6"],
        ["Learning rates that it reported:", "members were restarted"],
    ),
    "nested_validation.py": (["--epochs", "1"], ["checkpoint_000000: loss", "of 597 images"]),
    "lightning_ddp.py": ([], ["Trials by epochs trained: 2 x 1, 1 x 9", "Best configuration:"]),
    "transformers_ddp.py": (["--epochs", "4"], ["Loss by epoch:", "Best model: epoch"]),
    "accelerate_ddp.py": (["--epochs", "4"], ["Accuracy by epoch:", "Files:"]),
    "tensorflow_checkpoints.py": (
        ["--epochs", "4"],
        [
            "Kept by the manager: ckpt-2, ckpt-3, ckpt-4",
            "Checkpoints kept: 3",
            "Epochs of the model restored: 4",
            "Keras: loss, val_accuracy",
        ],
    ),
}
PROGRAMS = {
    "awk_descent.sh": (["-n", "12"], ["Scheduler: ASHAScheduler", "sh examples/awk_descent.sh --"]),
    "argparse_digits.yaml": (
        ["-n", "3", "--max-t", "3", "--scheduler-arg", "reduction_factor=2"],
        ["asha pauses trials and promotes", "python examples/argparse_digits.py --lr"],
    ),
    "torchrun_digits.py": (
        ["-n", "2", "--max-t", "2", "--scheduler-arg", "reduction_factor=2"],
        ["asha pauses trials and promotes", "--nproc-per-node 2 examples/torchrun_digits.py --lr"],
    ),
}
"""Programs that are tuned, by the command that they show: options instead, and what is printed."""
LIGHT = {"awk_descent.sh", "digits_mlp.py"}
"""The first that readers come to; the others are tried with the large libraries."""


def names_of(examples):
    return [
        pytest.param(name, marks=[] if name in LIGHT else [pytest.mark.heavy]) for name in examples
    ]


@pytest.mark.timeout(300)  # some import PyTorch or TensorFlow several times
@pytest.mark.parametrize("name", names_of(EXAMPLES))
def test_the_examples_run(name, tmp_path, runner):
    arguments, expected = EXAMPLES[name]
    # A fixed seed, so that the best trial and what is printed about it stay: few trials of a wide
    # space may all be bad ones.
    options = [*arguments, "--seed", "3", "--storage-path", str(tmp_path)]
    script = ROOT / "examples" / name
    if name in LIGHT:
        printed = run_python(str(script), *options, cwd=tmp_path).stdout
    elif name == "keras_digits.py":
        # Keras has one backend in a process, and this example wants PyTorch. Each process that
        # saves would load TensorFlow as well, where it is there.
        (tmp_path / "tensorflow.py").write_text("raise ImportError")
        path = os.pathsep.join(map(str, (ROOT, tmp_path)))
        printed = run_python(str(script), *options, cwd=tmp_path, PYTHONPATH=path).stdout
    else:
        printed = runner.run(script, *options)
    assert [text for text in expected if text not in printed] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", names_of(PROGRAMS))
def test_the_programs_are_tuned_by_the_commands_that_they_show(name, tmp_path):
    options, expected = PROGRAMS[name]
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    shown = re.search(r"tuner run (.*?)(?:   .*)?$", re.sub(r"\\\n#?\s*", "", text), re.MULTILINE)
    words = shlex.split(shown[1])
    where = words.index("--") if "--" in words else len(words)
    words[where:where] = [*options, "--seed", "3", "--storage", str(tmp_path)]
    printed = run_python("-m", "tuner", "run", *words, cwd=ROOT, HOME=str(tmp_path)).stdout
    assert [text for text in expected if text not in printed] == []
