"""Programs of Hydra, Lightning's CLI, torchrun and Accelerate, tuned by their command lines."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tuner as tune
from tests.interpreter import ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]  # launchers load PyTorch many times

KILLER = """
    import os, signal, tuner as tune
    class KillsItself(tune.Callback):
        num_results = 0
        def on_trial_result(self, **info):
            self.num_results += 1
            if self.num_results == int(os.environ["KILL_AT"]):
                os.kill(os.getpid(), signal.SIGKILL)
    """
HYDRA = """
    import hydra
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier
    import tuner as tune
    @hydra.main(version_base=None, config_path=".", config_name="config")
    def main(config):
        assert config.model.penalty in (None, "l2")
        images, labels = load_digits(return_X_y=True)
        model = SGDClassifier(alpha=config.model.alpha, penalty=config.model.penalty)
        for epoch in range(1, config.epochs + 1):
            model.partial_fit(images, labels, classes=range(10))
            tune.report({"epoch": epoch, "accuracy": model.score(images, labels)})
        tune.report({"epoch": epoch + 1, "accuracy": 1.0, "note": config.note})
    main()
    """
LIGHTNING = """
    import lightning, torch
    from lightning.pytorch.cli import LightningCLI
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from tuner.integration.pytorch_lightning import TuneReportCallback
    class Digits(lightning.LightningDataModule):
        def train_dataloader(self):
            images, labels = map(torch.from_numpy, load_digits(return_X_y=True))
            return DataLoader(TensorDataset(images.float() / 16, labels), batch_size=256)
        val_dataloader = train_dataloader
    class Net(lightning.LightningModule):
        def __init__(self, lr: float = 0.1, width: int = 8):
            super().__init__()
            self.lr = lr
            self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        def training_step(self, batch, number):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        def validation_step(self, batch, number):
            self.log("val_loss", self.training_step(batch, number))
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)
    if __name__ == "__main__":
        LightningCLI(Net, Digits, trainer_defaults={
            "max_epochs": 3, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
            "enable_progress_bar": False, "num_sanity_val_steps": 0,
            "callbacks": [TuneReportCallback({"val_loss": "val_loss"})],
        })
    """
ACCELERATE = """
    import argparse, torch
    from accelerate import Accelerator
    import tuner as tune
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    lr = parser.parse_args().lr
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    net = torch.nn.Linear(4, 1)
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=lr))
    for epoch in range(1, 4):
        loss = net(torch.ones(8, 4)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        tune.report({"epoch": epoch, "loss": loss.item()})
    """


@pytest.fixture
def tuner_in(tmp_path):
    """Return a function that runs the command `tuner` in a directory of its own."""

    def run(*words, kill_at=None, **variables):
        if kill_at:
            (tmp_path / "killer.py").write_text(textwrap.dedent(KILLER), encoding="utf-8")
            variables |= {"TUNER_CALLBACKS": "killer.KillsItself", "KILL_AT": str(kill_at)}
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *words],
            cwd=tmp_path,
            env=os.environ
            | {"HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
            | variables,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stdout + done.stderr
        return done.stdout

    return run


def write(path, text):
    path.write_text(textwrap.dedent(text), encoding="utf-8")


def results_of(place):
    return tune.ResultGrid.from_directory(place / "tuner_results" / "exp")


def test_a_program_of_hydra(tuner_in, tmp_path):
    write(tmp_path / "train.py", HYDRA)
    write(
        tmp_path / "config.yaml",
        """
        epochs: 1
        note: ""
        model: {alpha: 0.1, penalty: l1}
        """,
    )
    write(
        tmp_path / "sweep.yaml",
        """
        command: python train.py {hydra} hydra.run.dir={trial_dir}/hydra
        space:
          epochs: 3
          note: "it's {here}, [or] $there=1"
          model: {alpha: "loguniform(1e-5, 1e-1)", penalty: "choice(l2, None)"}
        metric: accuracy
        mode: max
        num_samples: 2
        name: exp
        """,
    )
    tuner_in("run", "sweep.yaml")
    results = results_of(tmp_path)
    assert len(results) == 2
    for result in results:
        assert list(result.metrics_dataframe["epoch"]) == [1, 2, 3, 4]
        assert result.metrics["note"] == "it's {here}, [or] $there=1"
        assert Path(result.path, "hydra", ".hydra", "overrides.yaml").exists()
    assert not (tmp_path / "outputs").exists()


def test_a_program_of_lightnings_cli(tuner_in, tmp_path):
    write(tmp_path / "main.py", LIGHTNING)
    printed = tuner_in(
        "run", "--name", "exp", "-p", "model.lr=grid_search(0.01, 1.0)", "-p", "model.width=16",
        "--metric", "val_loss", "--mode", "min",
        "--", "python", "main.py", "fit", "{args}", "--trainer.default_root_dir", "{trial_dir}",
    )  # fmt: skip
    assert "python main.py fit --model.width 16 --model.lr 1.0 --trainer.default_root" in printed
    assert [len(result.metrics_dataframe) for result in results_of(tmp_path)] == [3, 3]


def test_a_program_of_accelerate(tuner_in, tmp_path):
    write(tmp_path / "train.py", ACCELERATE)
    tuner_in(
        "run", "--name", "exp", "-p", "lr=grid_search(0.01)", "--cpus", "2", "--",
        "accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0",
        "train.py", "{args}",
    )  # fmt: skip
    [result] = results_of(tmp_path)
    assert list(result.metrics_dataframe["epoch"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("launcher", "script", "num_trials"),
    [
        (["python"], "argparse_digits.py", 2),
        (["torchrun", "--standalone", "--nproc-per-node", "2"], "torchrun_digits.py", 1),
    ],
)
def test_a_sweep_that_is_killed_twice_is_continued_as_if_nothing_had_been(
    launcher, script, num_trials, tuner_in, tmp_path
):
    shutil.copy(ROOT / "examples" / script, tmp_path)

    def sweep(name, kill_at=None):
        tuner_in(
            "run", "--name", name, "-n", str(num_trials), "-p", "lr=loguniform(1e-3,1e-1)",
            "--seed", "7", "--metric", "val_loss", "--mode", "min", "--max-concurrent", "1",
            "--cpus", "2", "--checkpoints",
            "--", *launcher, script, "{args}", "--epochs", "4",
            kill_at=kill_at,
        )  # fmt: skip

    sweep("undisturbed")
    sweep("exp", kill_at=2)
    tuner_in("resume", "exp", kill_at=1)
    tuner_in("resume", "exp")
    whole = tune.ResultGrid.from_directory(tmp_path / "tuner_results" / "undisturbed")
    for result, expected in zip(results_of(tmp_path), whole, strict=True):
        assert result.config == expected.config
        columns = ["epoch", "val_loss", "training_iteration"]
        assert list(result.metrics_dataframe["epoch"]) == [1, 2, 3, 4]
        assert result.metrics_dataframe[columns].equals(expected.metrics_dataframe[columns])
