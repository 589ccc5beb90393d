"""Find a schedule for the learning rate of a tiny transformer.

The model learns which half of a line of words is the larger. Run it with ``python
examples/transformers_tiny.py``; it takes less than a minute on two cores and downloads nothing: the
data are generated, and the model starts with random weights. Every second epoch the worse half of
the population continues from the checkpoints of the better half, with other learning rates:
`resume` passes the checkpoint to Transformers' `Trainer`, and the callback applies the new rate. If
the search is interrupted, ``python examples/transformers_tiny.py --restore DIRECTORY`` continues
it.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)

import tuner as tune
from schedulers import PopulationBasedTraining
from tuner.integration.transformers import TuneReportCheckpointCallback, resume

NUM_EPOCHS, NUM_WORDS, LENGTH = 8, 16, 8


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


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Return the share of lines that were told right (higher is better)."""
    return {
        "accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())
    }


def train(config: dict[str, Any]) -> None:
    """Train one model; the trainer evaluates and saves it each epoch, and the callback reports."""
    torch.manual_seed(0)
    sizes = BertConfig(
        vocab_size=NUM_WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
    )
    settings = TrainingArguments(
        output_dir=f"{tune.get_context().get_trial_dir()}/trainer",
        num_train_epochs=NUM_EPOCHS,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=256,
        learning_rate=config["lr"],
        weight_decay=config["weight_decay"],
        lr_scheduler_type="constant",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        BertForSequenceClassification(sizes),
        settings,
        train_dataset=lines(1024, seed=0),
        eval_dataset=lines(512, seed=1),
        compute_metrics=accuracy,
        callbacks=[
            TuneReportCheckpointCallback(
                {"loss": "eval_loss", "accuracy": "eval_accuracy", "lr": "learning_rate"}
            )
        ],
    )
    trainer.train(resume_from_checkpoint=resume())


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Train a population, or continue an interrupted one, and return its results."""
    if options.restore:
        return tune.Tuner.restore(options.restore, train).fit()
    space = {"lr": tune.loguniform(1e-5, 1e-1), "weight_decay": tune.uniform(0.0, 0.1)}
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.trials,
            scheduler=PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=2,
                quantile_fraction=0.5,
                hyperparam_mutations=space,
            ),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(
            storage_path=options.storage_path,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        ),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print the rates with which the best model was trained, and how well it does."""
    best = results.get_best_result()
    rates = best.metrics_dataframe["lr"]
    print("\nBest model: loss {loss:.4f}, accuracy {accuracy:.3f}".format(**best.metrics))
    print("Learning rates that it reported:", ", ".join(f"{rate:.2g}" for rate in rates))
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=4, help="how many models there are in the population"
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="what the choice of configurations follows from; default: drawn and written down",
    )
    parser.add_argument(
        "--storage-path", help="where the experiment's directory is made; default: ~/tuner_results"
    )
    parser.add_argument(
        "--restore",
        metavar="DIRECTORY",
        help="continue the experiment in this directory instead of starting one",
    )
    show(search(parser.parse_args()))
