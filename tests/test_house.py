"""The cost of imports, and examples that run."""

import doctest
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tuner", "schedulers", "searchers")
HEAVY = {
    "accelerate", "aiobotocore", "ax", "bayes_opt", "botocore", "click", "dask", "distributed",
    "fsspec", "hyperopt", "joblib", "keras", "lightgbm", "lightning", "nevergrad", "optuna",
    "pandas", "plotly", "pyarrow", "pytorch_lightning", "ray",
    "rich", "s3fs", "scipy", "sklearn", "tensorboard", "tensorboardX", "tensorflow", "torch",
    "transformers", "xgboost",
}  # fmt: skip
EXAMPLES = {
    "digits_mlp.py": (["--trials", "2"], ["Best configuration:", "on the test split"]),
    "cluster_digits.py": (["--on", "fake", "--trials", "4"], ["Best configuration:"]),
    "asha_promotion.py": (
        ["--trials", "3"],
        ["Best configuration:", "promoted 3 times", "is resumed: asha."],
    ),
    "define_by_run.py": (["--trials", "6"], ["Tried:", "Best configuration:"]),
    "several_objectives.py": (["--trials", "6"], ["Nothing beats these in both:", "Pareto front:"]),
    "constraints.py": (
        ["--trials", "6"],
        ["In the second half of the search,", "Best within the budget:", "Best of all:"],
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
    "nested_validation.py": (["--epochs", "2"], ["checkpoint_000001: loss", "of 597 images"]),
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
NEEDS = {"tensorflow_checkpoints.py": "tensorflow"}
"""Modules without which an example is skipped; the extra `test` has those of all others."""


def run_python(*arguments, cwd):
    """Run a fresh interpreter with `cwd` as its home, and return its standard output."""
    environment = os.environ | {"HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603  (our own interpreter and files)
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def modules_with_examples():
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if ">>>" in file.read_text(encoding="utf-8"):
                yield ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(
                    ".__init__"
                )


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(package, tmp_path):
    loaded = run_python("-c", f"import sys, {package}; print(*sys.modules)", cwd=tmp_path).split()
    assert package in loaded
    assert HEAVY.isdisjoint(loaded)


@pytest.mark.parametrize("package", ["schedulers", "searchers"])
def test_schedulers_and_searchers_work_without_the_engine(package, tmp_path):
    loaded = run_python("-c", f"import sys, {package}; print(*sys.modules)", cwd=tmp_path).split()
    assert "tuner" not in loaded


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_face_exists_and_is_documented(package):
    face = importlib.import_module(package)
    assert sorted(face.__all__) == sorted(set(face.__all__))
    undocumented = [
        name
        for name in face.__all__
        if callable(getattr(face, name)) and not getattr(face, name).__doc__
    ]
    assert undocumented == []


@pytest.mark.parametrize("module", list(modules_with_examples()))
def test_docstring_examples_run(module, tmp_path, monkeypatch, request):
    if module == "searchers.libraries.nevergrad_search":
        request.getfixturevalue("nevergrad")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"getfixture": request.getfixturevalue}
    outcome = doctest.testmod(
        importlib.import_module(module), extraglobs=given, optionflags=doctest.ELLIPSIS
    )
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.timeout(300)  # some import PyTorch or TensorFlow several times
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_run(name, tmp_path):
    if not importlib.util.find_spec(NEEDS.get(name, "tuner")):
        pytest.skip(f"{NEEDS[name]} is not installed")
    arguments, expected = EXAMPLES[name]
    # A fixed seed, so that the best trial and what is printed about it stay: few trials of a wide
    # space may all be bad ones.
    printed = run_python(
        str(ROOT / "examples" / name),
        *arguments,
        "--seed",
        "3",
        "--storage-path",
        str(tmp_path),
        cwd=tmp_path,
    )
    assert [text for text in expected if text not in printed] == []
