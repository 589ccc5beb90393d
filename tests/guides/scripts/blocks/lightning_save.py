"""Lightning: the callback reports a checkpoint at the end of each epoch."""

import pytorch_lightning as pl
import torch
from lightning_stand_ins import Data, Model, settings

from tuner import train
from tuner.train.lightning import RayTrainReportCallback
from tuner.train.torch import TorchTrainer


class MyLightningModule(Model):
    # ...
    def on_validation_epoch_end(self):
        mean_acc = torch.stack(self.num_right).mean()
        self.num_right.clear()
        self.log("mean_accuracy", mean_acc, sync_dist=True)


MyLightningDataModule = Data


def train_func():
    model = MyLightningModule()
    datamodule = MyLightningDataModule()
    trainer = pl.Trainer(
        max_epochs=4,
        **settings(),
        callbacks=[RayTrainReportCallback()],
    )
    trainer.fit(model, datamodule=datamodule)


ray_trainer = TorchTrainer(
    train_func,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(
        checkpoint_config=train.CheckpointConfig(
            num_to_keep=2,
            checkpoint_score_attribute="mean_accuracy",
            checkpoint_score_order="max",
        ),
    ),
)

result = ray_trainer.fit()
print("rows:", len(result.metrics_dataframe), "of", result.metrics["epoch"] + 1, "epochs")
print("metrics:", sorted({"epoch", "step", "loss", "mean_accuracy"} & set(result.metrics)))
scores = [metrics["mean_accuracy"] for _, metrics in result.best_checkpoints]
print("kept:", len(scores), "ascending:", scores == sorted(scores))

# After training finished
checkpoint = result.checkpoint
with checkpoint.as_directory() as checkpoint_dir:
    lightning_checkpoint_path = f"{checkpoint_dir}/checkpoint.ckpt"
    saved = torch.load(lightning_checkpoint_path, weights_only=False)
print("epochs saved:", saved["epoch"] + 1, "keys:", sorted(saved["state_dict"]))
