"""Four epochs of a tiny transformer, whose checkpoints the trainer itself deletes again."""

import json
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import tuner as tune
from tuner.integration.transformers import TuneReportCheckpointCallback, resume


class Witness(TrainerCallback):
    def on_train_end(self, *arguments, **options):
        Path(tune.get_context().get_trial_dir(), "closed.json").write_text(json.dumps("success"))


def data():
    words = torch.randint(0, 16, (32, 8), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": line, "labels": int(line.float().mean() > 8)} for line in words]


def loss_of(checkpoint):
    """Return the loss of the model in a checkpoint."""
    model = TuneReportCheckpointCallback.get_model(checkpoint, BertForSequenceClassification).eval()
    inputs = torch.stack([line["input_ids"] for line in data()])
    with torch.no_grad():
        return model(inputs, labels=torch.tensor([line["labels"] for line in data()])).loss.item()


def train(config):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 16,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    settings = TrainingArguments(
        output_dir=tune.get_context().get_trial_dir() + "/trainer",
        num_train_epochs=4,
        per_device_train_batch_size=16,
        learning_rate=config["lr"],
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    report = TuneReportCheckpointCallback(
        {"loss": "eval_loss", "rate": "learning_rate", "epoch": "epoch"}
    )
    model = BertForSequenceClassification(BertConfig(**sizes, max_position_embeddings=8))
    trainer = Trainer(
        model, settings, train_dataset=data(), eval_dataset=data(), callbacks=[Witness(), report]
    )
    trainer.train(resume_from_checkpoint=resume())
