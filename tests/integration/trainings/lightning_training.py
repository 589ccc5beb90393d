"""Four epochs of a small network in Lightning, in either namespace, with a schedule."""

import json
import warnings
from pathlib import Path

import lightning.pytorch
import pytorch_lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tuner as tune
from tuner.integration.pytorch_lightning import TuneReportCheckpointCallback, resume

NAMESPACES = {"lightning": lightning.pytorch, "pytorch_lightning": pytorch_lightning}
warnings.simplefilter("ignore")


def network(namespace, config):
    class Network(namespace.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 1)

        def training_step(self, batch, index):
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("val_loss", self.training_step(batch, index))
            self.log("rate", self.optimizers().param_groups[0]["lr"])

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=config["lr"])
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    return Network()


def logger(namespace):
    class Log(namespace.loggers.CSVLogger):
        def finalize(self, status):
            super().finalize(status)
            Path(self.log_dir, "closed.json").write_text(json.dumps(status))

    return Log(tune.get_context().get_trial_dir(), name="", version="")


def data():
    x = torch.rand(32, 4, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)


def loss_of(checkpoint):
    """Return the loss of the module in a checkpoint."""
    kind = type(network(lightning.pytorch, {}))
    model = TuneReportCheckpointCallback.get_model(checkpoint, kind).eval()
    x, y = data()
    return nn.functional.mse_loss(model.net(x), y).item()


def train(config):
    namespace = NAMESPACES[config["namespace"]]
    namespace.seed_everything(0, verbose=False)
    loader = DataLoader(TensorDataset(*data()), 16)
    report = TuneReportCheckpointCallback({"loss": "val_loss", "rate": "rate"})
    assert isinstance(report, namespace.Callback)
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "log_every_n_steps": 1,
    }
    trainer = namespace.Trainer(
        max_epochs=4, accelerator="cpu", logger=logger(namespace), callbacks=[report], **quiet
    )
    trainer.fit(network(namespace, config), loader, loader, ckpt_path=resume())
