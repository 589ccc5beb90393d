"""Checkpoints are validated in a task of their own while training continues.

Without a GPU, `use_gpu` is False.
"""

import os
import tempfile

import torch
from stand_ins import HAS_GPU, Dataset, classifier
from torch import nn

import tuner.train
import tuner.train.torch


def validate_fn(checkpoint: tuner.train.Checkpoint, config: dict) -> dict:
    # Load the checkpoint
    model = classifier()
    with checkpoint.as_directory() as checkpoint_dir:
        model_state_dict = torch.load(os.path.join(checkpoint_dir, "model.pt"))
        model.load_state_dict(model_state_dict)
    model.eval()

    # Perform validation on the data
    total_accuracy = 0
    dataset = config["dataset"]
    with torch.no_grad():
        for batch in dataset.iter_torch_batches(batch_size=128):
            images, labels = batch["image"], batch["label"]
            outputs = model(images)
            total_accuracy += (outputs.argmax(1) == labels).sum().item()
    return {"score": total_accuracy / len(dataset)}


def train_func(config: dict) -> None:
    epochs = range(4)
    model = tuner.train.torch.prepare_model(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    shard = tuner.train.get_dataset_shard("train")
    rank = tuner.train.get_context().get_world_rank()
    for epoch in epochs:
        num_rows = 0
        for batch in shard.iter_torch_batches(batch_size=16):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            num_rows += len(batch["label"])
        print("rows", num_rows)
        if rank == 0:
            training_metrics = {"loss": loss.item(), "epoch": epoch}
            local_checkpoint_dir = tempfile.mkdtemp()
            torch.save(
                model.module.state_dict(),
                os.path.join(local_checkpoint_dir, "model.pt"),
            )
            tuner.train.report(
                training_metrics,
                checkpoint=tuner.train.Checkpoint.from_directory(local_checkpoint_dir),
                checkpoint_upload_mode=tuner.train.CheckpointUploadMode.ASYNC,
                validate_fn=validate_fn,
                validate_config={
                    "dataset": config["validation_dataset"],
                    "train_run_name": tuner.train.get_context().get_experiment_name(),
                    "epoch": epoch,
                },
            )
            print("local", local_checkpoint_dir)
        else:
            tuner.train.report({}, None)


def run_trainer() -> tuner.train.Result:
    train_dataset = Dataset("train")
    validation_dataset = Dataset("validation")
    trainer = tuner.train.torch.TorchTrainer(
        train_func,
        # Pass training dataset in datasets arg to split it across training workers
        datasets={"train": train_dataset},
        # Pass validation dataset in train_loop_config so validate_fn can choose how to use it later
        train_loop_config={"validation_dataset": validation_dataset},
        scaling_config=tuner.train.ScalingConfig(
            num_workers=2,
            use_gpu=HAS_GPU,
            # Use powerful GPUs for training
            accelerator_type="A100",
        ),
    )
    return trainer.fit()


if __name__ == "__main__":
    result = run_trainer()
    print("epochs:", [metrics["epoch"] for _, metrics in result.best_checkpoints])
    print("validated:", all("score" in metrics for _, metrics in result.best_checkpoints))
    right = []
    for checkpoint, metrics in result.best_checkpoints:
        again = validate_fn(checkpoint, {"dataset": Dataset("again")})
        right.append(metrics["score"] == again["score"])
    print("each score is that of its checkpoint:", all(right))
    print("last:", result.metrics["score"] == again["score"])
