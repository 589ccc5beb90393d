"""What comes before the dense layers of a network: nothing, random Fourier features, or a convolution with pooling."""

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
        size: How many columns the dense layers get to see.
        layers: Inputs and outputs of the layers that are trained: one or none.
        num_products: Multiplications for each example.
    """

    size: int
    layers: tuple[tuple[int, int], ...] = ()
    num_products: int = 0

    def draw(self, frequency: torch.Tensor, chance: torch.Generator) -> None:  # noqa: B027  (most have nothing to draw)
        """Draw what is random and not trained; `frequency` is that of each network."""

    @abstractmethod
    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Return what the dense layers see: networks by examples by columns.

        Args:
            inputs: Networks by examples by columns; one network where all of them see the same.
            layer: Weights and biases of the first layer that is trained.
        """


@final
class _Inputs(Front):
    """The inputs themselves."""

    def __init__(self, num_columns: int) -> None:
        self.size = num_columns

    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """See `Front`."""
        return inputs.expand(len(layer[1]), *inputs.shape[1:])


@final
class _Features(Front):
    """Cosines of random projections of the inputs, which are not trained."""

    def __init__(self, num_columns: int, num_features: int) -> None:
        self._num_columns = num_columns
        self.size, self.num_products = num_features, num_columns * num_features

    def draw(self, frequency: torch.Tensor, chance: torch.Generator) -> None:
        """See `Front`."""
        import torch  # noqa: PLC0415  (an extra)

        self._frequency = frequency
        self._projection = torch.randn(
            (self._num_columns, self.size), generator=chance
        ) / math.sqrt(self._num_columns)
        self._phases = 2 * math.pi * torch.rand(self.size, generator=chance)

    def outputs(
        self, inputs: torch.Tensor, layer: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """See `Front`."""
        return ((inputs @ self._projection) * self._frequency + self._phases).cos() * math.sqrt(2)


@final
class _Convolution(Front):
    """Channels of a convolution, activated and pooled two by two."""

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
        """Return the mean or maximum of two by two pixels: corner by corner, which is faster than to reduce over short dimensions."""
        import torch  # noqa: PLC0415  (an extra)

        high, wide = (side // _POOL * _POOL for side in values.shape[2:4])
        corners = [
            values[:, :, top:high:_POOL, left:wide:_POOL]
            for top in range(_POOL)
            for left in range(_POOL)
        ]
        add = torch.maximum if self._pool == "max" else torch.add
        pooled = functools.reduce(add, corners)
        return pooled if self._pool == "max" else pooled / len(corners)


def front(
    problem: Problem, config: Mapping[str, Any], activated: Callable[[torch.Tensor], torch.Tensor]
) -> Front:
    """Return the front that a configuration asks for.

    `num_features` above 0 asks for so many random Fourier features, `channels` above 0 for a
    convolution of `kernel` by `kernel` pixels, pooled by their `pool` (``"mean"`` or ``"max"``).
    """
    num_columns = int(problem.train[0].shape[1])
    if config["num_features"]:
        return _Features(num_columns, int(config["num_features"]))
    return (
        _Convolution(problem.shape, config, activated)
        if config["channels"]
        else _Inputs(num_columns)
    )
