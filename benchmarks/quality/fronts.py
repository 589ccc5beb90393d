"""First part of a network: the inputs, random Fourier features, or a convolution with pooling."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import torch

    from .problems import Problem

_POOL = 2


class Front(ABC):
    """The first part of networks of one shape.

    Attributes:
        size: Number of columns that it passes to the dense layers.
        layers: Numbers of inputs and outputs of its trained layers, of which there is at most one.
        num_products: Number of multiplications for each example.
    """

    size: int
    layers: tuple[tuple[int, int], ...] = ()
    num_products: int = 0

    def draw(self, frequency: torch.Tensor, generator: torch.Generator) -> None:  # noqa: B027  (most have nothing to draw)
        """Draw the random values that are not trained; `frequency` has one value per network."""

    @abstractmethod
    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Return the inputs of the dense layers: networks by examples by columns.

        Args:
            inputs: Networks by examples by columns, or 1 by examples by columns if all networks
                have the same inputs.
            layer: Weights and biases of the first trained layer.
        """


@final
class _Inputs(Front):
    """The inputs, unchanged."""

    def __init__(self, num_columns: int) -> None:
        self.size = num_columns

    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """See `Front`."""
        return inputs.expand(len(layer[1]), *inputs.shape[1:])


@final
class _Features(Front):
    """Random Fourier features: cosines of fixed random projections of the inputs."""

    def __init__(self, num_columns: int, num_features: int) -> None:
        self._num_columns = num_columns
        self.size, self.num_products = num_features, num_columns * num_features

    def draw(self, frequency: torch.Tensor, generator: torch.Generator) -> None:
        """See `Front`."""
        import torch  # noqa: PLC0415  (an extra)

        self._frequency = frequency
        self._projection = torch.randn(
            (self._num_columns, self.size), generator=generator
        ) / math.sqrt(self._num_columns)
        self._phases = 2 * math.pi * torch.rand(self.size, generator=generator)

    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """See `Front`."""
        return ((inputs @ self._projection) * self._frequency + self._phases).cos() * math.sqrt(2)


@final
class _Convolution(Front):
    """A convolution with activation and pooling of two by two pixels."""

    def __init__(
        self,
        shape: tuple[int, int],
        config: Mapping[str, Any],
        activated: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._shape, self._pool, self._activated = shape, config["pool"], activated
        self._kernel, channels = int(config["kernel"]), int(config["channels"])
        high, wide = (side - self._kernel + 1 for side in shape)
        self.layers = ((self._kernel**2, channels),)
        self.size = (high // _POOL) * (wide // _POOL) * channels
        self.num_products = high * wide * self._kernel**2 * channels

    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """See `Front`."""
        weight, bias = layer
        patches = (
            inputs.unflatten(2, self._shape).unfold(2, self._kernel, 1).unfold(3, self._kernel, 1)
        )
        rows = patches.reshape(len(inputs), -1, self._kernel**2).expand(len(bias), -1, -1)
        return self._pooled(
            self._activated(bias.baddbmm(rows, weight)).unflatten(1, patches.shape[1:4])
        ).flatten(2)

    def _pooled(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean or maximum of two by two pixels."""
        import torch  # noqa: PLC0415  (an extra)

        high, wide = (side // _POOL * _POOL for side in values.shape[2:4])
        # Combining whole tensors, one per corner, is faster than reducing over short dimensions.
        corners = [
            values[:, :, top:high:_POOL, left:wide:_POOL]
            for top in range(_POOL)
            for left in range(_POOL)
        ]
        combine = torch.maximum if self._pool == "max" else torch.add
        pooled = functools.reduce(combine, corners)
        return pooled if self._pool == "max" else pooled / len(corners)


def front(
    problem: Problem, config: Mapping[str, Any], activated: Callable[[torch.Tensor], torch.Tensor]
) -> Front:
    """Return the front of a configuration.

    `num_features` above 0 gives that many random Fourier features. `channels` above 0 gives a
    convolution with a window of `kernel` by `kernel` pixels, pooled by `pool` (``"mean"`` or
    ``"max"``).
    """
    num_columns = int(problem.train[0].shape[1])
    if config["num_features"]:
        return _Features(num_columns, int(config["num_features"]))
    return (
        _Convolution(problem.shape, config, activated)
        if config["channels"]
        else _Inputs(num_columns)
    )
