"""What a trial asks for while it runs: CPUs, GPUs and whatever else the experiment counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .placement import PlacementGroupFactory, checked_bundle
from .trainable import Trainable, check_trainable, derive, is_class_trainable

DEFAULT_REQUEST = {"cpu": 1.0}

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
            total = checked_bundle(request)
        case _:
            raise TypeError(
                f"resources must be a dictionary or a PlacementGroupFactory, got {request!r}; e.g. {{'cpu': 1, 'gpu': 0.5}}"
            )
    gpus = total.get("gpu", 0.0)
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(
            f"gpu must be at most 1 or a whole number, got {gpus}; only one GPU can be shared by fractions"
        )
    return total
