"""The validation function maps batches of a dataset to predictions.

Ray Data's `map_batches` is stood in for by a class with the same methods. Without a GPU, tensors
stay on the CPU.
"""

import os
import tempfile

import torch
from stand_ins import DEVICE, Dataset, classifier

import tuner.train
import tuner.train.torch


class Predictor:
    def __init__(self, checkpoint: tuner.train.Checkpoint):
        self.model = classifier()
        with checkpoint.as_directory() as checkpoint_dir:
            model_state_dict = torch.load(os.path.join(checkpoint_dir, "model.pt"))
            self.model.load_state_dict(model_state_dict)
        self.model.cuda().eval()

    def __call__(self, batch: dict) -> dict:
        image = torch.as_tensor(batch["image"], dtype=torch.float32, device=DEVICE)
        label = torch.as_tensor(batch["label"], dtype=torch.float32, device=DEVICE)
        pred = self.model(image)
        return {"res": (pred.argmax(1) == label).cpu().numpy()}


def validate_fn(checkpoint: tuner.train.Checkpoint, config: dict) -> dict:
    # Set name to avoid confusion; default name is "Dataset"
    config["dataset"].set_name("validation")
    eval_res = config["dataset"].map_batches(
        Predictor,
        batch_size=128,
        num_gpus=1,
        fn_constructor_kwargs={"checkpoint": checkpoint},
        concurrency=2,
    )
    mean = eval_res.mean(["res"])
    return {
        "score": mean,
    }


def train_func(config: dict) -> None:
    model = classifier()
    with torch.no_grad():  # right everywhere
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.bias.zero_()
    with tempfile.TemporaryDirectory() as directory:
        torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
        tuner.train.report(
            {"loss": 0.0},
            checkpoint=tuner.train.Checkpoint.from_directory(directory),
            validate_fn=validate_fn,
            validate_config={"dataset": config["validation_dataset"]},
        )


if __name__ == "__main__":
    result = tuner.train.torch.TorchTrainer(
        train_func, train_loop_config={"validation_dataset": Dataset("validation")}
    ).fit()
    print("score:", result.metrics["score"])
