"""A model and data for Transformers, and arguments that keep its trainer quiet and on the CPU."""

import torch
from transformers import BertConfig, BertForSequenceClassification

QUIET = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "num_train_epochs": 4}


def model():
    """Return a transformer with random weights."""
    sizes = BertConfig(
        vocab_size=8,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=4,
    )
    return BertForSequenceClassification(sizes)


def lines(number, seed):
    """Return lines of numbers, labelled by whether the first half has the larger sum."""
    words = torch.randint(0, 8, (number, 4), generator=torch.Generator().manual_seed(seed))
    first, second = words.float().split(2, dim=1)
    return [
        {"input_ids": line, "labels": int(label)}
        for line, label in zip(words, first.sum(1) > second.sum(1), strict=True)
    ]
