r"""Train one network on handwritten digits in the processes of ``torchrun``, to be tuned.

Rank 0 saves model, optimizer and epoch into the directory ``TUNER_CHECKPOINT_DIR`` before each
report, so that trials can be paused, continued and promoted. In the directory above this one::

    tuner run --name torchrun -n 12 -p 'lr=loguniform(1e-3,1)' -p 'width=choice(32,64,128)' \
        --metric val_loss --mode min --scheduler asha --max-t 9 --cpus 2 --checkpoints \
        -- torchrun --standalone --nproc-per-node 2 examples/torchrun_digits.py {args}

takes some minutes on two cores, most of which is spent on starting processes, and downloads
nothing. On GPUs, write ``--gpus 2`` for ``--cpus 2``. ``tuner resume torchrun`` continues it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tuner as tune


def digits(device: torch.device) -> list[Tensor]:
    """Return images and labels, for training and for validation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = (torch.from_numpy(part).to(device) for part in parts)
    return [images, labels, val_images, val_labels]


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Train in one of the processes; all of them run this."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    images, labels, val_images, val_labels = digits(device)
    torch.manual_seed(options.seed)
    network = nn.Sequential(nn.Linear(64, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    network.to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=options.lr, momentum=0.9)
    state = Path(os.environ.get("TUNER_CHECKPOINT_DIR", "."), "state.pt")
    epoch = 0
    if state.exists():
        saved = torch.load(state, map_location=device)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
    model = DistributedDataParallel(network)

    while epoch < options.epochs:
        # Another order in each epoch, the same on all ranks, of which each one has its share.
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order[rank::num_ranks].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        epoch += 1
        with torch.no_grad():
            logits = network(val_images)
            val_loss = nn.functional.cross_entropy(logits, val_labels).item()
        if rank == 0:
            unfinished = state.with_suffix(".new")
            torch.save(
                {
                    "network": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch,
                },
                unfinished,
            )
            unfinished.rename(state)
        # Rank 0 reports, and the call does nothing in the others: they wait at the next gradient.
        tune.report({"epoch": epoch, "val_loss": val_loss})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--width", type=int, default=64, help="neurons of the hidden layer")
    parser.add_argument("--epochs", type=int, default=9, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    arguments = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if has_gpu else "gloo")
    train(arguments, torch.device("cuda" if has_gpu else "cpu"))
    dist.destroy_process_group()
