"""Transformers: a callback of one's own, which reports what has been logged since the last save."""

import os

import transformers
from transformers import TrainingArguments
from transformers.trainer_callback import TrainerCallback
from transformers_stand_ins import QUIET, lines, model

import tuner.train
from tuner import train
from tuner.train import Checkpoint
from tuner.train.torch import TorchTrainer


class MyTrainReportCallback(TrainerCallback):
    def __init__(self):
        super().__init__()
        self.metrics = {}

    def on_log(self, args, state, control, model=None, logs=None, **kwargs):
        """Log is called on evaluation step and logging step."""
        self.metrics.update(logs)

    def on_save(self, args, state, control, **kwargs):
        """Event called after a checkpoint save."""

        checkpoint = None
        if train.get_context().get_world_rank() == 0:
            # Build a Ray Train Checkpoint from the latest checkpoint
            checkpoint_path = transformers.trainer.get_last_checkpoint(args.output_dir)
            checkpoint = Checkpoint.from_directory(checkpoint_path)

        # Report to Ray Train with up-to-date metrics
        tuner.train.report(metrics=self.metrics, checkpoint=checkpoint)

        # Clear the metrics buffer
        self.metrics = {}


def train_func(config):
    args = TrainingArguments(
        output_dir=os.path.join(train.get_context().get_trial_dir(), "trainer"),
        **QUIET,
        eval_strategy="epoch",
        save_strategy="epoch",
    )
    trainer = transformers.Trainer(
        args=args,
        model=model(),
        train_dataset=lines(64, 0),
        eval_dataset=lines(32, 1),
        callbacks=[MyTrainReportCallback()],
    )
    trainer.train()


result = TorchTrainer(train_func, scaling_config=train.ScalingConfig(num_workers=2)).fit()
saved = result.best_checkpoints
print("epochs:", [metrics["epoch"] for _, metrics in saved])
print("evaluated:", all("eval_loss" in metrics for _, metrics in saved))
with result.checkpoint.as_directory() as directory:
    print("model saved:", os.path.exists(os.path.join(directory, "model.safetensors")))
