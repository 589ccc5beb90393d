"""The validation function starts a trainer of its own, with two workers and another name.

Without a GPU, `use_gpu` is False, and `cuda()` leaves models where they are.
"""

import os
import tempfile

import torch
import torchmetrics
from stand_ins import HAS_GPU, Dataset, classifier
from torch.nn import CrossEntropyLoss

import tuner.train
import tuner.train.torch


def eval_only_train_fn(config_dict: dict) -> None:
    # Load the checkpoint
    model = classifier()
    with config_dict["checkpoint"].as_directory() as checkpoint_dir:
        model_state_dict = torch.load(os.path.join(checkpoint_dir, "model.pt"))
        model.load_state_dict(model_state_dict)
    model.cuda().eval()

    # Set up metrics and data loaders
    criterion = CrossEntropyLoss()
    mean_valid_loss = torchmetrics.MeanMetric().cuda()
    test_data_shard = tuner.train.get_dataset_shard("validation")
    test_dataloader = test_data_shard.iter_torch_batches(batch_size=128)

    # Compute and report metric
    with torch.no_grad():
        for batch in test_dataloader:
            images, labels = batch["image"], batch["label"]
            outputs = model(images)
            loss = criterion(outputs, labels)
            mean_valid_loss(loss)
    tuner.train.report(
        metrics={"score": mean_valid_loss.compute().item()},
        checkpoint=tuner.train.Checkpoint(
            tuner.train.get_context().get_storage().build_checkpoint_path_from_name("placeholder")
        ),
        checkpoint_upload_mode=tuner.train.CheckpointUploadMode.NO_UPLOAD,
    )


def validate_fn(checkpoint: tuner.train.Checkpoint, config: dict) -> dict:
    trainer = tuner.train.torch.TorchTrainer(
        eval_only_train_fn,
        train_loop_config={"checkpoint": checkpoint},
        scaling_config=tuner.train.ScalingConfig(
            num_workers=2, use_gpu=HAS_GPU, accelerator_type="A10G"
        ),
        # Name validation run to easily associate it with training run
        run_config=tuner.train.RunConfig(
            name=f"{config['train_run_name']}_validation_epoch_{config['epoch']}"
        ),
        # User weaker GPUs for validation
        datasets={"validation": config["dataset"]},
    )
    result = trainer.fit()
    return result.metrics


def train_func(config: dict) -> None:
    model = tuner.train.torch.prepare_model(classifier())
    rank = tuner.train.get_context().get_world_rank()
    for epoch in range(2):
        with torch.no_grad():
            model.module.weight.fill_(epoch)
            model.module.bias.zero_()
        if rank == 0:
            directory = tempfile.mkdtemp()
            torch.save(model.module.state_dict(), os.path.join(directory, "model.pt"))
            tuner.train.report(
                {"epoch": epoch},
                checkpoint=tuner.train.Checkpoint.from_directory(directory),
                checkpoint_upload_mode=tuner.train.CheckpointUploadMode.ASYNC,
                validate_fn=validate_fn,
                validate_config={
                    "dataset": config["validation_dataset"],
                    "train_run_name": tuner.train.get_context().get_experiment_name(),
                    "epoch": epoch,
                },
            )
        else:
            tuner.train.report({}, None)


if __name__ == "__main__":
    result = tuner.train.torch.TorchTrainer(
        train_func,
        train_loop_config={"validation_dataset": Dataset("validation")},
        scaling_config=tuner.train.ScalingConfig(num_workers=2, use_gpu=HAS_GPU),
        run_config=tuner.train.RunConfig(name="digits"),
    ).fit()
    for _, metrics in result.best_checkpoints:
        print("epoch", metrics["epoch"], "score", round(metrics["score"], 4))
