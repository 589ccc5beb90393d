"""`TorchCheckpoint`: a checkpoint that holds a PyTorch model, or its weights."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tuner.storage.checkpoints import Checkpoint

if TYPE_CHECKING:
    import torch

_DDP_PREFIX = "module."


class TorchCheckpoint(Checkpoint):
    """A checkpoint with a PyTorch model in the file ``model.pt``.

    Its files are in a temporary directory until it is reported, and until the process ends.

    Example:
        >>> import torch
        >>> saved = TorchCheckpoint.from_state_dict(torch.nn.Linear(1, 1).state_dict())
        >>> saved.get_model(torch.nn.Linear(1, 1))
        Linear(in_features=1, out_features=1, bias=True)

    Departures:
        Preprocessors of Ray Data are not accepted. The temporary directory is removed.
    """

    MODEL_FILENAME: ClassVar[str] = "model.pt"

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any]) -> Self:
        """Return a checkpoint with the weights of a model, e.g. ``model.state_dict()``.

        Args:
            state_dict: The weights. The names that `prepare_model` gives them in a group, which
                begin with ``"module."``, are shortened to those of the model itself.
        """
        weights = dict(state_dict)
        if weights and all(name.startswith(_DDP_PREFIX) for name in weights):
            weights = {name.removeprefix(_DDP_PREFIX): value for name, value in weights.items()}
        return cls._with(weights)

    @classmethod
    def from_model(cls, model: torch.nn.Module) -> Self:
        """Return a checkpoint with a whole model, pickled with its class; prefer the weights.

        Args:
            model: The model; of one that `prepare_model` has wrapped, what is inside.
        """
        from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415  (an extra)

        return cls._with(model.module if isinstance(model, DistributedDataParallel) else model)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Return the same checkpoint with these methods, e.g. for that of a `Result`."""
        return cls(*checkpoint.__reduce__()[1])

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """Return the model.

        A whole model is unpickled, which runs code: load only checkpoints that you trust.

        Args:
            model: A model of the same shape, into which weights are loaded; not needed for a
                checkpoint that `from_model` made.

        Raises:
            ValueError: If the checkpoint holds weights, and no model is given.
            FileNotFoundError: If it holds neither.
        """
        import torch  # noqa: PLC0415  (an extra)

        with self.as_directory() as directory:
            saved = torch.load(
                Path(directory, self.MODEL_FILENAME), map_location="cpu", weights_only=False
            )
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise ValueError(
                "model must be given for a checkpoint of weights alone, got None; construct the "
                "model and call get_model(model)"
            )
        model.load_state_dict(saved)
        return model

    @classmethod
    def _with(cls, content: Any) -> Self:
        import torch  # noqa: PLC0415  (an extra)

        directory = tempfile.mkdtemp(dir=_scratch().name)
        torch.save(content, Path(directory, cls.MODEL_FILENAME))
        return cls(directory)


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a directory that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="tuner-torch-checkpoints-")
