"""ASHA over trainings of two workers, which continues where it was killed.

The arguments are the storage path, what is trained (``cnn``, ``lightning`` or ``transformers``),
and the number of trials.
"""

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tuner as tune
from schedulers import ASHAScheduler
from tuner import train
from tuner.train import Checkpoint, ScalingConfig
from tuner.train.torch import TorchTrainer, prepare_data_loader, prepare_model

# Imported here, so that it is once per run, not once per worker: workers are forked from a process
# that has loaded what the function refers to.
match sys.argv[2]:
    case "lightning":
        import pytorch_lightning as pl

        from tuner.train.lightning import (
            RayDDPStrategy,
            RayLightningEnvironment,
            RayTrainReportCallback,
        )
    case "transformers":
        from transformers import (
            BertConfig,
            BertForSequenceClassification,
            Trainer,
            TrainingArguments,
        )

        from tuner.train.huggingface.transformers import RayTrainReportCallback

MAX_EPOCHS = 4
NUM_TRAIN = 512


def digits():
    """Return pixels and labels, for training and for validation."""
    images = torch.rand(2 * NUM_TRAIN, 64, generator=torch.Generator().manual_seed(0))
    labels = images[:, :10].argmax(dim=1)
    return images[:NUM_TRAIN], labels[:NUM_TRAIN], images[NUM_TRAIN:], labels[NUM_TRAIN:]


class Network(nn.Module):
    """A small convolutional network for 8 x 8 pixels."""

    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(1, channels, 3)
        self.output = nn.Linear(36 * channels, 10)

    def forward(self, images):
        maps = self.convolution(images.reshape(-1, 1, 8, 8)).relu()
        return self.output(maps.flatten(1))


def train_cnn(config):
    torch.manual_seed(0)
    images, labels, val_images, val_labels = digits()
    model = prepare_model(Network(config["channels"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    loader = prepare_data_loader(
        DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    )
    start = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "state.pt"))
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epoch"] + 1
    for epoch in range(start, MAX_EPOCHS):
        loader.sampler.set_epoch(epoch)
        for batch, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), targets).backward()
            optimizer.step()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model.module(val_images), val_labels)
        with tune.checkpoint_dir() as directory:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state | {"epoch": epoch}, Path(directory, "state.pt"))
                checkpoint = Checkpoint.from_directory(directory)
            train.report({"val_loss": loss.item(), "epoch": epoch}, checkpoint=checkpoint)


def train_lightning(config):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network(config["channels"])

        def training_step(self, batch):
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def validation_step(self, batch):
            loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
            self.log("val_loss", loss, sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=config["lr"], momentum=0.9)

    pl.seed_everything(0, verbose=False)
    images, labels, val_images, val_labels = digits()
    trainer = pl.Trainer(
        max_epochs=MAX_EPOCHS,
        accelerator="cpu",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    path = None
    if checkpoint := train.get_checkpoint():
        path = str(Path(checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME))
    trainer.fit(
        Module(),
        DataLoader(TensorDataset(images, labels), batch_size=32),
        DataLoader(TensorDataset(val_images, val_labels), batch_size=256),
        ckpt_path=path,
    )


def train_transformers(config):
    def lines(number, seed):
        words = torch.randint(0, 8, (number, 4), generator=torch.Generator().manual_seed(seed))
        first, second = words.float().split(2, dim=1)
        return [
            {"input_ids": line, "labels": int(label)}
            for line, label in zip(words, first.sum(1) > second.sum(1), strict=True)
        ]

    torch.manual_seed(0)
    sizes = BertConfig(
        vocab_size=8,
        hidden_size=2 * config["channels"],
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=4,
    )
    settings = TrainingArguments(
        output_dir=os.path.join(train.get_context().get_trial_dir(), "trainer"),  # noqa: PTH118
        num_train_epochs=MAX_EPOCHS,
        learning_rate=config["lr"],
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        BertForSequenceClassification(sizes),
        settings,
        train_dataset=lines(128, 0),
        eval_dataset=lines(64, 1),
        callbacks=[RayTrainReportCallback()],
    )
    path = None
    if checkpoint := train.get_checkpoint():
        path = str(Path(checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME))
    trainer.train(resume_from_checkpoint=path)


class Count(tune.Callback):
    """Prints how many results are recorded."""

    num_results = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.num_results += 1
        print(f"RESULT {self.num_results}", flush=True)


LOOPS = {"cnn": train_cnn, "lightning": train_lightning, "transformers": train_transformers}

if __name__ == "__main__":
    storage, kind, num_samples = sys.argv[1:]
    metric = "eval_loss" if kind == "transformers" else "val_loss"
    tuner = tune.Tuner(
        TorchTrainer(LOOPS[kind], scaling_config=ScalingConfig(num_workers=2)),
        param_space={
            "train_loop_config": {"lr": tune.loguniform(1e-3, 0.1), "channels": tune.choice([2, 4])}
        },
        tune_config=tune.TuneConfig(
            metric=metric,
            mode="min",
            num_samples=int(num_samples),
            max_concurrent_trials=1,
            scheduler=ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=2),
            seed=1,
        ),
        run_config=tune.RunConfig(
            name="exp",
            storage_path=storage,
            verbose=0,
            callbacks=[Count()],
            resources={"cpu": 2},
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
        resume="auto",
    )
    frame = tuner.fit().get_dataframe()
    print("ENDED")
    print(frame[["trial_id", "training_iteration", metric, "status"]].to_csv(index=False))
