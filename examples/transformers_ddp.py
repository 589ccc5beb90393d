"""Train a tiny transformer in two processes, and continue it after a failure.

A worker looks to Transformers like one of torchrun's, so that its `Trainer` trains with all of them
by itself. `RayTrainReportCallback` reports whenever the trainer saves. After its third epoch the
first attempt fails on purpose; the next one continues from the checkpoint, with the state of
optimizer, schedule and random generators. Run it with ``python examples/transformers_ddp.py``; it
takes less than a minute on two cores and downloads nothing: the data are generated, and the model
starts with random weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from tuner import train
from tuner.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from tuner.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from tuner.train.torch import TorchTrainer

NUM_WORDS, LENGTH = 16, 8


class FailsOnce(TrainerCallback):
    """Fails after the third epoch of a training that began anew."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self._is_first = is_first

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise at the beginning of the fourth epoch."""
        if self._is_first and state.epoch >= 3:  # noqa: PLR2004  (as the docstring says)
            raise RuntimeError("a failure on purpose")


def lines(number: int, seed: int) -> list[dict[str, Any]]:
    """Return lines of numbers, labelled by whether the first half has the larger sum."""
    words = torch.randint(
        0, NUM_WORDS, (number, LENGTH), generator=torch.Generator().manual_seed(seed)
    )
    first, second = words.float().split(LENGTH // 2, dim=1)
    return [
        {"input_ids": line, "labels": int(label)}
        for line, label in zip(words, first.sum(1) > second.sum(1), strict=True)
    ]


def train_func(config: dict[str, Any]) -> None:
    """Train in one of the workers."""
    torch.manual_seed(config["seed"])
    sizes = BertConfig(
        vocab_size=NUM_WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
    )
    checkpoint = train.get_checkpoint()
    settings = TrainingArguments(
        output_dir=str(Path(train.get_context().get_trial_dir(), "trainer")),
        num_train_epochs=config["num_epochs"],
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        # Both at the same steps, so that each checkpoint has the metric by which it is ranked.
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(
        BertForSequenceClassification(sizes),
        settings,
        train_dataset=lines(1024, seed=0),
        eval_dataset=lines(256, seed=1),
        callbacks=[RayTrainReportCallback(), FailsOnce(is_first=checkpoint is None)],
    )
    trainer = prepare_trainer(trainer)
    if checkpoint is None:
        trainer.train()
    else:
        with checkpoint.as_directory() as directory:
            trainer.train(str(Path(directory, RayTrainReportCallback.CHECKPOINT_NAME)))


def fit(options: argparse.Namespace) -> train.Result:
    """Train and return the result."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": options.epochs, "seed": options.seed},
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            storage_path=options.storage_path,
            checkpoint_config=CheckpointConfig(
                num_to_keep=2,
                checkpoint_score_attribute="eval_loss",
                checkpoint_score_order="min",
            ),
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    return trainer.fit()


def show(result: train.Result) -> None:
    """Print the learning curve, and the best model as Transformers loads it."""
    table = result.metrics_dataframe
    print("\nLoss by epoch:", ", ".join(f"{value:.3f}" for value in table["eval_loss"]))
    checkpoint, metrics = result.best_checkpoints[-1]
    with checkpoint.as_directory() as directory:
        path = str(Path(directory, RayTrainReportCallback.CHECKPOINT_NAME))
        model = BertForSequenceClassification.from_pretrained(path)
    print(f"Best model: epoch {metrics['epoch']:.0f}, {model.num_parameters()} parameters")
    print("Its files:", checkpoint.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes train")
    parser.add_argument("--epochs", type=int, default=6, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    parser.add_argument(
        "--storage-path", help="where the run's directory is made; default: ~/tuner_results"
    )
    show(fit(parser.parse_args()))
