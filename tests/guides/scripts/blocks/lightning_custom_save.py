"""Lightning: a callback of one's own, which saves every third epoch.

In the guide `global_rank` is ``rank == 0``, so that the condition below it holds on rank 1 alone,
where Lightning writes nothing; here it is the rank.
"""

import os
from tempfile import TemporaryDirectory

import pytorch_lightning as pl
from lightning_stand_ins import Data, Model, settings
from pytorch_lightning.callbacks import Callback

import tuner
import tuner.train
from tuner.train import Checkpoint
from tuner.train.torch import TorchTrainer


class CustomRayTrainReportCallback(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        should_checkpoint = trainer.current_epoch % 3 == 0

        with TemporaryDirectory() as tmpdir:
            # Fetch metrics from `self.log(..)` in the LightningModule
            metrics = trainer.callback_metrics
            metrics = {k: v.item() for k, v in metrics.items()}

            # Add customized metrics
            metrics["epoch"] = trainer.current_epoch
            metrics["custom_metric"] = 123

            checkpoint = None
            global_rank = tuner.train.get_context().get_world_rank()
            if global_rank == 0 and should_checkpoint:
                # Save model checkpoint file to tmpdir
                ckpt_path = os.path.join(tmpdir, "ckpt.pt")
                trainer.save_checkpoint(ckpt_path, weights_only=False)

                checkpoint = Checkpoint.from_directory(tmpdir)

            # Report to train session
            tuner.train.report(metrics=metrics, checkpoint=checkpoint)


def train_func():
    trainer = pl.Trainer(max_epochs=5, **settings(), callbacks=[CustomRayTrainReportCallback()])
    trainer.fit(Model(), datamodule=Data())


result = TorchTrainer(train_func, scaling_config=tuner.train.ScalingConfig(num_workers=2)).fit()
print("rows:", len(result.metrics_dataframe), "custom:", result.metrics["custom_metric"])
for checkpoint, metrics in result.best_checkpoints:
    with checkpoint.as_directory() as directory:
        print("epoch", metrics["epoch"], os.path.exists(os.path.join(directory, "ckpt.pt")))
