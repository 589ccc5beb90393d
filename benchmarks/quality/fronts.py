"""First part of a network: inputs, Fourier features, a pooled convolution or a transformer."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import torch

    from .problems import Problem

    Layer = tuple[torch.Tensor, torch.Tensor]
    """Weights and biases of one layer of all networks."""

_POOL = 2
_NUM_HEADS = 2


class Front(ABC):
    """The first part of networks of one shape.

    Attributes:
        size: Number of columns that it passes to the dense layers.
        layers: Numbers of inputs and outputs of its trained layers.
        num_products: Number of multiplications for each example.
    """

    size: int
    layers: tuple[tuple[int, int], ...] = ()
    num_products: int = 0

    def draw(self, frequency: torch.Tensor, generator: torch.Generator) -> None:  # noqa: B027  (most have nothing to draw)
        """Draw the random values that are not trained; `frequency` has one value per network."""

    @abstractmethod
    def outputs(self, inputs: torch.Tensor, layers: Sequence[Layer]) -> torch.Tensor:
        """Return the inputs of the dense layers: networks by examples by columns.

        Args:
            inputs: Networks by examples by columns, or 1 by examples by columns if all networks
                have the same inputs.
            layers: Weights and biases of its trained layers; of the first one of the network if
                it has none.
        """


@final
class _Inputs(Front):
    """The inputs, unchanged."""

    def __init__(self, num_columns: int) -> None:
        self.size = num_columns

    def outputs(self, inputs: torch.Tensor, layers: Sequence[Layer]) -> torch.Tensor:
        """See `Front`."""
        return inputs.expand(len(layers[0][1]), *inputs.shape[1:])


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

    def outputs(self, inputs: torch.Tensor, layers: Sequence[Layer]) -> torch.Tensor:
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

    def outputs(self, inputs: torch.Tensor, layers: Sequence[Layer]) -> torch.Tensor:
        """See `Front`."""
        ((weight, bias),) = layers
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


@final
class _Transformer(Front):
    """Blocks of a transformer over numbers of characters, which passes on the last place.

    Each block is attention and a feed-forward layer, both after a normalisation. No place sees
    those behind it.
    """

    def __init__(self, length: int, num_kinds: int, config: Mapping[str, Any]) -> None:
        self._length, self._num_kinds = length, num_kinds
        self.size = size = int(config["width"])
        block = ((size, 3 * size), (size, size), (size, 2 * size), (2 * size, size))
        self.layers = ((num_kinds, size), (length, size), *block * int(config["blocks"]))
        self.num_products = sum(first * second for first, second in self.layers) * length

    def outputs(self, inputs: torch.Tensor, layers: Sequence[Layer]) -> torch.Tensor:
        """See `Front`."""
        import torch  # noqa: PLC0415  (an extra)

        num_networks, num_examples = len(layers[0][1]), inputs.shape[1]
        kinds = torch.nn.functional.one_hot(inputs.reshape(1, -1).long(), self._num_kinds).float()
        places = (layers[1][0] + layers[1][1]).repeat(1, num_examples, 1)
        hidden = self._dense(kinds.expand(num_networks, -1, -1), layers[0]) + places
        for start in range(2, len(layers), 4):
            joint, out, up, down = layers[start : start + 4]
            hidden = hidden + self._dense(self._attended(self._dense(_normal(hidden), joint)), out)
            hidden = hidden + self._dense(self._dense(_normal(hidden), up).relu(), down)
        last: torch.Tensor = hidden.unflatten(1, (num_examples, self._length))[:, :, -1]
        return _normal(last)

    def _attended(self, joint: torch.Tensor) -> torch.Tensor:
        import torch  # noqa: PLC0415  (an extra)

        heads = joint.unflatten(1, (-1, self._length)).unflatten(3, (3, _NUM_HEADS, -1))
        # Kind of projection, then network, example and head in one, then place and column.
        query, key, value = heads.permute(3, 0, 1, 4, 2, 5).flatten(1, 3)
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        split = found.unflatten(0, (len(joint), -1, _NUM_HEADS))
        together: torch.Tensor = split.transpose(2, 3).flatten(3).flatten(1, 2)
        return together

    @staticmethod
    def _dense(values: torch.Tensor, layer: Layer) -> torch.Tensor:
        return layer[1].baddbmm(values, layer[0])


def _normal(values: torch.Tensor) -> torch.Tensor:
    """Return values with mean 0 and deviation 1 in each place."""
    import torch  # noqa: PLC0415  (an extra)

    return torch.nn.functional.layer_norm(values, values.shape[-1:])


def front(
    problem: Problem, config: Mapping[str, Any], activated: Callable[[torch.Tensor], torch.Tensor]
) -> Front:
    """Return the front of a configuration.

    `num_features` above 0 gives that many random Fourier features. `channels` above 0 gives a
    convolution with a window of `kernel` by `kernel` pixels, pooled by `pool` (``"mean"`` or
    ``"max"``). `blocks` above 0 gives a transformer of `width` columns over numbers of characters,
    which have as many kinds as the problem has outputs.
    """
    num_columns = int(problem.train[0].shape[1])
    if config["num_features"]:
        return _Features(num_columns, int(config["num_features"]))
    if config["blocks"]:
        return _Transformer(num_columns, problem.num_outputs, config)
    return (
        _Convolution(problem.shape, config, activated)
        if config["channels"]
        else _Inputs(num_columns)
    )
