"""Training of many neural networks at once: those of equal shape are one batch of matrices."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from . import losses
from .fronts import Front, front
from .model import Model
from .problems import Floats, Problem

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

DEFAULTS: Mapping[str, Any] = {
    "lr": 0.01,
    "batch_size": 32,
    "width": 32,
    "depth": 1,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "decoupled_decay": 0.0,
    "momentum": 0.9,
    "beta2": 0.999,
    "activation": "relu",
    "optimizer": "sgd",
    "schedule": "constant",
    "warmup": 0,
    "frozen": 0,
    "drop": 0.1,
    "init": "he",
    "init_scale": 1.0,
    "lr_decay": 1.0,
    "l1": 0.0,
    "input_noise": 0.0,
    "loss": "",
    "label_smoothing": 0.0,
    "class_weight": 0.0,
    "num_features": 0,
    "frequency": 1.0,
    "channels": 0,
    "kernel": 3,
    "pool": "mean",
    "blocks": 0,
}
"""Hyperparameters that a task does not search. An empty loss stands for cross-entropy with classes
and for the metric with columns.

`warmup` is the number of epochs in which the learning rate rises, `frozen` the number of those in
which only the last layer is trained, and `drop` the factor of each of the two steps of the schedule
``"step"``. `decoupled_decay` shrinks the weights beside the optimizer, as in AdamW; `weight_decay`
is part of the gradient. `blocks` is the number of blocks of a transformer."""

_SHAPE = (
    "width",
    "depth",
    "batch_size",
    "activation",
    "optimizer",
    "schedule",
    "init",
    "loss",
    "num_features",
    "channels",
    "kernel",
    "pool",
    "blocks",
)
_PER_NETWORK = (
    "lr",
    "momentum",
    "beta2",
    "warmup",
    "frozen",
    "drop",
    "dropout",
    "weight_decay",
    "decoupled_decay",
    "init_scale",
    "lr_decay",
    "l1",
    "input_noise",
    "label_smoothing",
    "class_weight",
    "frequency",
)
_MAX_BATCH, _MAX_CONVOLUTIONS = 144, 36
_STEP_S, _FLOPS = 1e-4, 2e9
_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": lambda values: values.relu(),
    "tanh": lambda values: values.tanh(),
    "leaky relu": lambda values: values.maximum(0.1 * values),
    "silu": lambda values: values * values.sigmoid(),
    "sine": lambda values: values.sin(),
}
_INITIALISATIONS: Mapping[str, Callable[[int, int], float]] = {
    "he": lambda fan_in, _: math.sqrt(2 / fan_in),
    "lecun": lambda fan_in, _: math.sqrt(1 / fan_in),
    "glorot": lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)),
    "small": lambda fan_in, _: 0.1 / math.sqrt(fan_in),
}
"""Standard deviation of the first weights of a layer, from its numbers of inputs and outputs."""
_SCHEDULES: Mapping[str, Callable[[float, torch.Tensor], torch.Tensor | float]] = {
    "constant": lambda _, __: 1.0,
    "cosine": lambda progress, _: 0.5 * (1 + math.cos(math.pi * progress)),
    "linear": lambda progress, _: 1.0 - progress,
    "step": lambda progress, drop: drop ** math.floor(3 * progress),
}
"""Factor of the learning rate, from the share of epochs that are done and the factor of a step."""
Prepare = Callable[[Problem, Mapping[str, Any]], Problem]
"""Returns a problem as a configuration prepares its inputs; the examples remain the same."""


@contextlib.contextmanager
def _torch_settings() -> Iterator[None]:
    """Use one thread and flush denormal numbers to zero; restore the settings afterwards."""
    import torch  # noqa: PLC0415  (an extra, and heavy)

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Weights that decay towards zero become denormal, and arithmetic with those is slow.
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(num_threads)


def train_networks(
    problem: Problem,
    configs: Sequence[Mapping[str, Any]],
    num_epochs: int,
    seed: int,
    *,
    merged: Sequence[str] = (),
    prepare: Prepare | None = None,
) -> NDArray[np.float64]:
    """Return the validation metric of each configuration (rows) after each epoch (columns).

    All are trained with the same seed, as is common practice: networks of one shape start with the
    same weights, and have the same order of batches and the same dropout masks. Values after
    training has diverged are NaN.

    Args:
        problem: Examples and metric.
        configs: The configurations; what they lack is one of `DEFAULTS`.
        num_epochs: Number of epochs.
        seed: Seed of first weights, batches and dropout.
        merged: Hyperparameters in which networks that are trained together may differ, of
            ``"activation"``, ``"optimizer"``, ``"schedule"`` and ``"init"``. This is faster where a
            grid has many of them.
        prepare: Prepares the inputs for each configuration; by default they remain as they are.
    """
    import torch  # noqa: PLC0415  (an extra, and heavy)

    values = np.full((len(configs), num_epochs), np.nan)
    full = [{**DEFAULTS, **config} for config in configs]
    inputs = _Inputs(problem, full, prepare)
    with _torch_settings():
        for rows in _batches(full, merged):
            batch = _Batch(
                inputs.problem,
                [full[row] for row in rows],
                inputs.of(rows),
                torch.Generator().manual_seed(seed),
            )
            for epoch in range(num_epochs):
                batch.train(epoch, num_epochs)
                values[rows, epoch] = batch.validate()
    return values


def cost_s(problem: Problem, config: Mapping[str, Any]) -> float:
    """Return the estimated duration of an epoch on one core, in seconds.

    It is 0.1 ms for each step, and the time of its operations at 2 GFlop/s. An estimate keeps the
    tables independent of other load on the machine.
    """
    config = {**DEFAULTS, **config}
    head = front(problem, config, _ACTIVATIONS[config["activation"]])
    num_products = head.num_products + sum(
        first * second for first, second in _dense(problem, config, head)
    )
    num_train, num_valid = len(problem.train[0]), len(problem.valid[0])
    num_steps = math.ceil(num_train / int(config["batch_size"]))
    # Two operations per product in a forward pass, and twice that in a backward pass.
    return num_steps * _STEP_S + (6 * num_train + 2 * num_valid) * num_products / _FLOPS


class _Inputs:
    """Training and validation inputs, as each configuration has prepared them.

    Those with fewer columns than others are filled up with zeros.

    Attributes:
        problem: The problem with the inputs of one configuration.
    """

    def __init__(
        self, problem: Problem, configs: Sequence[Mapping[str, Any]], prepare: Prepare | None
    ) -> None:
        self._numbers = [0] * len(configs)
        problems = [problem]
        if prepare is not None:
            found: dict[int, int] = {}
            problems = []
            for row, config in enumerate(configs):
                prepared = prepare(problem, config)
                if id(prepared) not in found:
                    found[id(prepared)] = len(problems)
                    problems.append(prepared)
                self._numbers[row] = found[id(prepared)]
        num_columns = max(each.train[0].shape[1] for each in problems)
        self._stacked = [
            np.stack([_widened(inputs, num_columns) for inputs in parts])
            for parts in (
                [each.train[0] for each in problems],
                [each.valid[0] for each in problems],
            )
        ]
        self.problem = replace(
            problem, train=(self._stacked[0][0], problem.train[1]), valid=problems[0].valid
        )

    def of(self, rows: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs of some configurations; a single one if all have the same."""
        import torch  # noqa: PLC0415  (an extra, and heavy)

        numbers = [self._numbers[row] for row in rows]
        chosen = numbers[:1] if len(set(numbers)) == 1 else numbers
        train, valid = (torch.from_numpy(part[chosen]) for part in self._stacked)
        return train, valid


def _widened(inputs: Floats, num_columns: int) -> Floats:
    return np.pad(inputs, ((0, 0), (0, num_columns - inputs.shape[1])))


def _batches(configs: Sequence[Mapping[str, Any]], merged: Sequence[str]) -> list[list[int]]:
    shape = [name for name in _SHAPE if name not in merged]
    groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, config in enumerate(configs):
        groups[tuple(config[name] for name in shape)].append(row)
    for rows in groups.values():
        # Equal ones are neighbours, since each kind of a batch is one slice of its tensors.
        rows.sort(key=lambda row: [str(configs[row][name]) for name in merged])
    size = _MAX_CONVOLUTIONS if any(config["channels"] for config in configs) else _MAX_BATCH
    return [
        rows[start : start + size]
        for rows in groups.values()
        for start in range(0, len(rows), size)
    ]


def _dense(problem: Problem, config: Mapping[str, Any], head: Front) -> list[tuple[int, int]]:
    return list(pairwise([head.size, *[config["width"]] * config["depth"], problem.num_outputs]))


def _slices(configs: Sequence[Mapping[str, Any]], name: str) -> list[tuple[str, slice]]:
    """Return the values of a hyperparameter and the neighbouring configurations that have it."""
    found: list[tuple[str, slice]] = []
    start = 0
    for value, group in itertools.groupby(config[name] for config in configs):
        stop = start + len(list(group))
        found.append((value, slice(start, stop)))
        start = stop
    return found


class _Batch:
    """Networks of one shape that are trained together."""

    def __init__(
        self,
        problem: Problem,
        configs: Sequence[Mapping[str, Any]],
        inputs: tuple[torch.Tensor, torch.Tensor],
        generator: torch.Generator,
    ) -> None:
        import torch  # noqa: PLC0415  (an extra)

        self._torch = torch
        self._problem = problem
        self._shared = configs[0]
        self._generator = generator
        self._own = {
            name: torch.tensor([config[name] for config in configs], dtype=torch.float32)[
                :, None, None
            ]
            for name in _PER_NETWORK
        }
        self._train = inputs[0], torch.from_numpy(problem.train[1])
        self._valid = inputs[1], torch.from_numpy(problem.valid[1])
        self._loss = self._shared["loss"] or (
            "log" if problem.is_classification else problem.metric
        )
        self._example_weights = losses.example_weights(problem, self._own["class_weight"][:, :, 0])
        self._activations = _slices(configs, "activation")
        self._optimizers = _slices(configs, "optimizer")
        self._schedules = _slices(configs, "schedule")
        self._front = front(problem, self._shared, self._activated)
        self._front.draw(self._own["frequency"], generator)
        layers = [*self._front.layers, *_dense(problem, self._shared, self._front)]
        self._weights = [
            self._own["init_scale"]
            * torch.randn((1, fan_in, fan_out), generator=generator)
            * torch.tensor(
                [_INITIALISATIONS[config["init"]](fan_in, fan_out) for config in configs]
            )[:, None, None]
            for fan_in, fan_out in layers
        ]
        self._biases = [torch.zeros((len(configs), 1, fan_out)) for _, fan_out in layers]
        self._first = [torch.zeros_like(tensor) for tensor in self._parameters]
        self._second = [torch.zeros_like(tensor) for tensor in self._parameters]
        self._num_steps = 0

    @property
    def _parameters(self) -> list[torch.Tensor]:
        return [*self._weights, *self._biases]

    def train(self, epoch: int, num_epochs: int) -> None:
        """Train for one epoch, of which `epoch` are done."""
        inputs, targets = self._train
        lr = self._own["lr"].clone()
        for name, part in self._schedules:
            lr[part] *= _SCHEDULES[name](epoch / num_epochs, self._own["drop"][part])
        if bool(self._own["warmup"].any()):
            lr = lr * ((epoch + 1) / (self._own["warmup"] + 1)).clamp(max=1.0)
        self._own["lr"] = self._own["lr"] * self._own["lr_decay"]
        body_lr = lr * (epoch >= self._own["frozen"])
        order = self._torch.randperm(len(targets), generator=self._generator)
        for rows in order.split(self._shared["batch_size"]):
            weights = None if self._example_weights is None else self._example_weights[:, rows]
            self._step(inputs[:, rows], targets[rows], weights, (body_lr, lr))

    def validate(self) -> NDArray[np.float64]:
        """Return the validation metric of each network."""
        with self._torch.no_grad():
            outputs = self._forward(self._valid[0], is_training=False)
            values = losses.metric(self._problem.metric, outputs, self._valid[1]).double()
            is_finite = self._torch.isfinite(outputs).all(dim=2).all(dim=1)
        return np.where(is_finite.numpy(), values.numpy(), np.nan)

    def _forward(self, inputs: torch.Tensor, *, is_training: bool) -> torch.Tensor:
        if is_training and bool(self._own["input_noise"].any()):
            inputs = inputs + self._own["input_noise"] * self._torch.randn(
                inputs.shape, generator=self._generator
            )
        num_front_layers = len(self._front.layers)
        hidden = self._front.outputs(
            inputs, list(zip(self._weights, self._biases, strict=True))[: num_front_layers or 1]
        )
        for weight, bias in zip(
            self._weights[num_front_layers:-1], self._biases[num_front_layers:-1], strict=True
        ):
            hidden = self._activated(self._torch.baddbmm(bias, hidden, weight))
            if is_training and bool(self._own["dropout"].any()):
                kept = (
                    self._torch.rand(hidden.shape[1:], generator=self._generator)
                    >= self._own["dropout"]
                )
                hidden = hidden * kept / (1 - self._own["dropout"])
        return self._torch.baddbmm(self._biases[-1], hidden, self._weights[-1])

    def _activated(self, values: torch.Tensor) -> torch.Tensor:
        """Return the activations of each network."""
        if len(self._activations) == 1:
            return _ACTIVATIONS[self._activations[0][0]](values)
        return self._torch.cat(
            [_ACTIVATIONS[name](values[part]) for name, part in self._activations]
        )

    def _step(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        rates: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        """Change all parameters once, with the learning rates of other layers and of the last."""
        parameters = self._parameters
        for parameter in parameters:
            parameter.requires_grad_(True)
        outputs = self._forward(inputs, is_training=True)
        # Each network has its own parameters, so the gradient of the sum holds those of all.
        loss = losses.loss(
            self._loss, outputs, targets, weights, self._own["label_smoothing"][:, :, 0]
        ).sum()
        gradients = self._torch.autograd.grad(loss, parameters)
        self._num_steps += 1
        with self._torch.no_grad():
            for number, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                parameter.requires_grad_(False)
                decayed = (
                    self._decayed(parameter, gradient) if number < len(self._weights) else gradient
                )
                is_last = number % len(self._weights) == len(self._weights) - 1
                lr = rates[is_last]
                if number < len(self._weights):
                    parameter.mul_(1 - lr * self._own["decoupled_decay"])
                for name, part in self._optimizers:
                    parameter[part].sub_(lr[part] * self._direction(name, number, part, decayed))

    def _decayed(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        decayed = gradient + self._own["weight_decay"] * parameter
        return (
            decayed + self._own["l1"] * parameter.sign() if bool(self._own["l1"].any()) else decayed
        )

    def _direction(
        self, optimizer: str, number: int, part: slice, gradient: torch.Tensor
    ) -> torch.Tensor:
        """Return the step of one parameter of some networks, for a learning rate of 1."""
        gradient = gradient[part]
        first, second = self._first[number][part], self._second[number][part]
        momentum, beta2 = self._own["momentum"][part], self._own["beta2"][part]
        if optimizer == "sgd":
            return first.mul_(momentum).add_(gradient)
        if optimizer == "nesterov":
            return gradient + momentum * first.mul_(momentum).add_(gradient)
        if optimizer == "sign":
            # Signum: https://arxiv.org/abs/1802.04434, Algorithm 2.
            return first.mul_(momentum).add_((1 - momentum) * gradient).sign()
        if optimizer == "adagrad":
            return gradient / (second.addcmul_(gradient, gradient).sqrt() + 1e-8)
        second.mul_(beta2).add_((1 - beta2) * gradient * gradient)
        if optimizer == "rmsprop":
            return gradient / (second.sqrt() + 1e-8)
        # Adam: https://arxiv.org/abs/1412.6980, Algorithm 1.
        first.mul_(0.9).add_(gradient, alpha=0.1)
        unbiased = first / (1 - 0.9**self._num_steps)
        return unbiased / ((second / (1 - beta2**self._num_steps)).sqrt() + 1e-8)


def model(
    family: str = "perceptrons",
    *,
    merged: Sequence[str] = (),
    prepare: Prepare | None = None,
    **fixed: Any,
) -> Model:
    """Return networks with fixed hyperparameters, e.g. ``depth=0`` for linear models.

    `merged` and `prepare` are those of `train_networks`.
    """

    def train(
        problem: Problem, configs: Sequence[Mapping[str, Any]], num_epochs: int, seed: int
    ) -> NDArray[np.float64]:
        full = [{**fixed, **config} for config in configs]
        return train_networks(problem, full, num_epochs, seed, merged=merged, prepare=prepare)

    def estimated_s(problem: Problem, config: Mapping[str, Any]) -> float:
        prepared = problem if prepare is None else prepare(problem, config)
        return cost_s(prepared, {**fixed, **config})

    return Model(family, train, estimated_s)


MODEL = model()
