"""Transformers: strategies with which the metric that ranks is known when a checkpoint is saved."""

import os
import sys

import transformers
from transformers import TrainingArguments
from transformers_stand_ins import QUIET, lines, model

from tuner import train
from tuner.train.huggingface.transformers import RayTrainReportCallback
from tuner.train.torch import TorchTrainer


def strategies(name):
    if name == "epoch":
        return TrainingArguments(
            os.path.join(train.get_context().get_trial_dir(), "trainer"),
            **QUIET,
            eval_strategy="epoch",
            save_strategy="epoch",
        )
    return TrainingArguments(
        os.path.join(train.get_context().get_trial_dir(), "trainer"),
        **(QUIET | {"num_train_epochs": 50}),
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=50,
        save_steps=100,
    )


def train_func(config):
    trainer = transformers.Trainer(
        args=strategies(config["strategy"]),
        model=model(),
        train_dataset=lines(32, 0),
        eval_dataset=lines(32, 1),
        callbacks=[RayTrainReportCallback()],
    )
    trainer.train()


for strategy in ("epoch", "steps"):
    result = TorchTrainer(
        train_func,
        train_loop_config={"strategy": strategy},
        run_config=train.RunConfig(
            name=strategy,
            storage_path=sys.argv[1],
            checkpoint_config=train.CheckpointConfig(checkpoint_score_attribute="eval_loss"),
        ),
    ).fit()
    saved = [metrics for _, metrics in result.best_checkpoints]
    print(strategy, len(saved), all("eval_loss" in metrics for metrics in saved))
