"""Lightning: continue from the checkpoint that the callback has reported."""

import os

import pytorch_lightning as pl
from lightning_stand_ins import Data, Model, settings

from tuner import train
from tuner.train.lightning import RayTrainReportCallback
from tuner.train.torch import TorchTrainer


class MyLightningModule(Model):
    starts_anew = True

    def on_load_checkpoint(self, checkpoint):
        self.starts_anew = False

    def on_train_epoch_start(self):
        print("epoch", self.current_epoch)
        if self.current_epoch == 2 and self.starts_anew:
            raise RuntimeError("a failure, to show how it is survived")


MyLightningDataModule = Data


def train_func():
    model = MyLightningModule()
    datamodule = MyLightningDataModule()
    trainer = pl.Trainer(max_epochs=4, **settings(), callbacks=[RayTrainReportCallback()])

    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as ckpt_dir:
            ckpt_path = os.path.join(ckpt_dir, RayTrainReportCallback.CHECKPOINT_NAME)
            trainer.fit(model, datamodule=datamodule, ckpt_path=ckpt_path)
    else:
        trainer.fit(model, datamodule=datamodule)


ray_trainer = TorchTrainer(
    train_func,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(
        checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        failure_config=train.FailureConfig(max_failures=1),
    ),
)

result = ray_trainer.fit()
print("rows:", len(result.metrics_dataframe), "kept:", len(result.best_checkpoints))
