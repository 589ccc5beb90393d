"""What a trial asks for while it runs: CPUs, GPUs and whatever else the experiment counts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .trainable import Trainable, check_trainable, derive, is_class_trainable

DEFAULT_REQUEST = {"cpu": 1.0}
_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True, slots=True, init=False)
class PlacementGroupFactory:
    """A request in several bundles, the first of which is for the trial's own process.

    Attributes:
        bundles: Resources of each bundle, e.g. ``({"cpu": 1}, {"cpu": 2, "gpu": 1})``; the first may be empty.
        strategy: How bundles are spread over machines: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Example:
        >>> PlacementGroupFactory([{}, {"CPU": 2}, {"CPU": 2}]).total()
        {'cpu': 4.0}

    Departures:
        On one machine all strategies mean the same, and a trial is granted the sum of its bundles.
    """

    bundles: tuple[Mapping[str, float], ...]
    strategy: str

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK") -> None:
        if not bundles:
            raise ValueError("bundles must hold at least one bundle, got none; the first is for the trial itself and may be empty")
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(_STRATEGIES)}, got {strategy!r}")
        object.__setattr__(self, "bundles", tuple(_checked(bundle) for bundle in bundles))
        object.__setattr__(self, "strategy", strategy)

    def total(self) -> dict[str, float]:
        """Return the sum of the bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total


Request = Mapping[str, float] | PlacementGroupFactory
"""What can be asked for."""


def with_resources(trainable: Any, resources: Request | Callable[[dict[str, Any]], Request]) -> Any:
    """Return the trainable with a request for resources; an earlier request is overridden, the original stays as it is.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        resources: What each trial occupies, e.g. ``{"cpu": 2, "gpu": 0.5}``, or a function of the configuration that returns it. A
            GPU may be shared by fractions. Names that are not mentioned are not occupied.

    Raises:
        TypeError: If `trainable` or `resources` is of another kind.
        ValueError: If an amount is negative or no number.

    Example:
        >>> train = with_resources(lambda config: None, {"cpu": 2, "gpu": 0.5})
        >>> resources_for(train, {})
        {'cpu': 2.0, 'gpu': 0.5}
    """
    check_trainable(trainable)
    if not callable(resources):
        _total(resources)
    return derive(trainable, requested_resources=resources)


def resources_for(trainable: Any, config: Mapping[str, Any]) -> dict[str, float]:
    """Return what a trial of this trainable with this configuration occupies, 1 CPU unless it asks for something else.

    Raises:
        TypeError: If the request is neither a dictionary nor a `PlacementGroupFactory`.
        ValueError: If an amount is negative or no number.
    """
    request = getattr(trainable, "requested_resources", None)
    if request is None and is_class_trainable(trainable):
        request = _of_class(trainable, config)
    elif callable(request):
        request = request(dict(config))
    return dict(DEFAULT_REQUEST) if request is None else _total(request)


def _of_class(trainable: type[Trainable], config: Mapping[str, Any]) -> Any:
    return trainable.default_resource_request(dict(config))


def _total(request: Any) -> dict[str, float]:
    match request:
        case PlacementGroupFactory():
            total = request.total()
        case Mapping():
            total = _checked(request)
        case _:
            raise TypeError(f"resources must be a dictionary or a PlacementGroupFactory, got {request!r}; e.g. {{'cpu': 1, 'gpu': 0.5}}")
    gpus = total.get("gpu", 0.0)
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"gpu must be at most 1 or a whole number, got {gpus}; only one GPU can be shared by fractions")
    return total


def _checked(bundle: Mapping[str, float]) -> dict[str, float]:
    checked: dict[str, float] = {}
    for name, amount in bundle.items():
        if isinstance(amount, bool) or not isinstance(amount, numbers.Real) or not 0 <= amount < math.inf:
            raise ValueError(f"resource {name!r} must be a finite number of at least 0, got {amount!r}")
        standard = name.lower() if name.lower() in ("cpu", "gpu") else name
        if standard in checked:
            raise ValueError(f"resource {standard!r} is asked for twice in {dict(bundle)}; CPU and cpu are the same")
        checked[standard] = float(amount)
    return checked
