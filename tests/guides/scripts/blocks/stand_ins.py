"""What the guides leave to the reader: data, a model, and what Ray Data would offer."""

import torch
from torch import nn

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"

if not HAS_GPU:
    # The guides write `model.cuda()`, which raises without a GPU.
    nn.Module.cuda = lambda self: self


class Dataset:
    """Points on a line, labelled by their side of zero, with the methods of a dataset.

    Iterating gives rows, which is all that `datasets` needs; `iter_torch_batches` gives batches.
    """

    def __init__(self, name, size=96):
        self.name = name
        self._images = torch.linspace(-1, 1, size).unsqueeze(1)
        self._labels = (self._images[:, 0] > 0).long()

    def __len__(self):
        return len(self._labels)

    def __iter__(self):
        for image, label in zip(self._images, self._labels, strict=True):
            yield {"image": image, "label": label}

    def iter_torch_batches(self, batch_size=256):
        for rows in torch.arange(len(self)).split(batch_size):
            yield {"image": self._images[rows], "label": self._labels[rows]}

    def set_name(self, name):
        self.name = name

    def map_batches(self, predictor, *, batch_size, num_gpus, fn_constructor_kwargs, concurrency):
        call = predictor(**fn_constructor_kwargs)
        return Predictions([call(batch) for batch in self.iter_torch_batches(batch_size)])


class Predictions:
    """The results of `Dataset.map_batches`."""

    def __init__(self, batches):
        self._batches = batches

    def mean(self, columns):
        (column,) = columns
        values = [float(value) for batch in self._batches for value in batch[column]]
        return sum(values) / len(values)


def classifier():
    """Return a model with two outputs for an image of one pixel."""
    torch.manual_seed(0)
    return nn.Linear(1, 2)
