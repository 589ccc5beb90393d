"""A model and data for Lightning, and arguments that keep its trainer quiet and on the CPU."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tuner.train.lightning import RayDDPStrategy, RayLightningEnvironment


def settings():
    """Return the arguments of a trainer that works with several workers, quietly on the CPU."""
    return {
        "accelerator": "cpu",
        "strategy": RayDDPStrategy(),
        "plugins": [RayLightningEnvironment()],
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }


class Model(pl.LightningModule):
    """Separates the numbers above zero from those below."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 2)
        self.num_right = []

    def training_step(self, batch):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layer(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch):
        images, labels = batch
        self.num_right.append((self.layer(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(pl.LightningDataModule):
    """Points on a line."""

    def _loader(self):
        images = torch.linspace(-1, 1, 64).unsqueeze(1)
        return DataLoader(TensorDataset(images, (images[:, 0] > 0).long()), batch_size=16)

    train_dataloader = val_dataloader = _loader
