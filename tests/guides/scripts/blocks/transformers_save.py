"""Transformers: the callback reports a checkpoint whenever the trainer saves one.

The guide writes `evaluation_strategy` and `logging_strategy="step"`, which Transformers has since
renamed to `eval_strategy` and `"steps"`.
"""

import os

import transformers
from transformers import TrainingArguments
from transformers_stand_ins import QUIET, lines, model

from tuner import train
from tuner.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from tuner.train.torch import TorchTrainer


def train_func(config):
    # Configure logging, saving, evaluation strategies as usual.
    args = TrainingArguments(
        output_dir=os.path.join(train.get_context().get_trial_dir(), "trainer"),
        **QUIET,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="steps",
    )

    trainer = transformers.Trainer(
        args=args, model=model(), train_dataset=lines(64, 0), eval_dataset=lines(32, 1)
    )

    # Add a report callback to transformers Trainer
    # =============================================
    trainer.add_callback(RayTrainReportCallback())
    trainer = prepare_trainer(trainer)

    trainer.train()


ray_trainer = TorchTrainer(
    train_func,
    run_config=train.RunConfig(
        checkpoint_config=train.CheckpointConfig(
            num_to_keep=3,
            checkpoint_score_attribute="eval_loss",  # The monitoring metric
            checkpoint_score_order="min",
        )
    ),
    scaling_config=train.ScalingConfig(num_workers=2),
)

result = ray_trainer.fit()
print("rows:", len(result.metrics_dataframe), "epoch:", result.metrics["epoch"])
scores = [metrics["eval_loss"] for _, metrics in result.best_checkpoints]
print("kept:", len(scores) == 3, "descending:", scores == sorted(scores, reverse=True))

# After training finished
checkpoint = result.checkpoint
with checkpoint.as_directory() as checkpoint_dir:
    hf_checkpoint_path = f"{checkpoint_dir}/checkpoint/"
    loaded = transformers.BertForSequenceClassification.from_pretrained(hf_checkpoint_path)
print("loaded:", type(loaded).__name__)
