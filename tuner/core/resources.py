"""Pool of resources: CPUs, GPUs (whole or in fractions) and custom resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from .trial import Trial, WorkerGroup

Request = Mapping[str, float] | WorkerGroup
"""Amounts by name for a single process, or the workers of a group, each with the same share."""

_NO_LABELS: Final[Mapping[str, str]] = {}


class Demand(NamedTuple):
    """What is asked for, and what the nodes must have that grant it.

    Attributes:
        request: The resources.
        labels: See `tuner.nodes.nodes.matches`.
    """

    request: Request
    labels: Mapping[str, str] = _NO_LABELS

    @property
    def shape(self) -> tuple[object, ...]:
        """A key that is equal for demands that fit in the same cases."""
        shape = request_shape(self.request)
        return (*shape, "labels", *sorted(self.labels.items())) if self.labels else shape


GPU = "gpu"
_UNIT = 10_000
"""Amounts are counted in ten-thousandths, so that ten tenths are one."""


class ResourcePool:
    """Grants requests from a fixed capacity.

    GPUs are devices: a request of 1 or more takes whole ones, a fraction shares the fullest device
    that still has room, so that whole devices stay free as long as possible. A group of workers is
    granted the shares of all of them or nothing; the fractions of several may be on one device.
    """

    def __init__(self, capacity: Mapping[str, float]) -> None:
        """Create a pool with everything free.

        Args:
            capacity: Total amount by name; the number of GPUs is rounded down.
        """
        self._total = {
            # GPUs are whole devices: with 1.5 of them, one can be assigned.
            name: _units(int(amount) if name == GPU else amount)
            for name, amount in capacity.items()
        }
        self._free = dict(self._total)
        self._devices = [_UNIT] * int(capacity.get(GPU, 0))

    @property
    def capacity(self) -> dict[str, float]:
        """Total amount by name."""
        return {name: units / _UNIT for name, units in self._total.items()}

    @property
    def used(self) -> dict[str, float]:
        """Granted amount by name."""
        return {name: (units - self._free[name]) / _UNIT for name, units in self._total.items()}

    def misfit(self, request: Request) -> str:
        """Return why the request could never be granted; empty if it could.

        A group could be if the fewest workers with which it can be started fit.
        """
        if isinstance(request, WorkerGroup):
            return self._misfit_of_group(request)
        too_much = [
            name for name, amount in request.items() if _units(amount) > self._total.get(name, 0)
        ]
        if too_much:
            return (
                f"the trial asks for {dict(request)}, the experiment has {self.capacity} in all; "
                f"ask for less {' and '.join(too_much)}"
            )
        return gpu_misfit(request)

    def _misfit_of_group(self, group: WorkerGroup) -> str:
        share, fewest = group.resources_per_worker, group.fewest
        if why := gpu_misfit(group):
            return why
        num_fitting = ResourcePool(self.capacity).num_fitting(share, fewest)
        if num_fitting >= fewest:
            return ""
        enough = "enough for one" if num_fitting == 1 else f"enough for {num_fitting or 'none'}"
        return (
            f"the trial asks for {fewest} workers with {dict(share)} each, the experiment has "
            f"{self.capacity} in all, {enough}; use fewer workers, or ask for less for each"
        )

    def num_fitting(self, request: Request, limit: int) -> int:
        """Return how many such requests fit now, counting no further than `limit`.

        Groups of variable size are counted as they would be started, each as large as then fits.
        """
        if isinstance(request, WorkerGroup):
            share, most = request.resources_per_worker, request.most
            num_full, num_left = divmod(self.num_fitting(share, limit * most), most)
            return num_full + (num_left >= request.fewest)
        count = limit
        for name, amount in request.items():
            units = _units(amount)
            if units:
                free = (
                    self._num_free_shares(units)
                    if name == GPU
                    else self._free.get(name, 0) // units
                )
                count = min(count, free)
        return max(count, 0)

    def largest_fitting(self, group: WorkerGroup) -> WorkerGroup | None:
        """Return the group with as many workers as fit now; None if not even the fewest do."""
        num_workers = self.num_fitting(group.resources_per_worker, group.most)
        return group.resized(num_workers) if num_workers >= group.fewest else None

    def leaves(self, held: Request, request: Request) -> bool:
        """Return whether granting a request now would take nothing of what another one waits for.

        Devices that are shared count as if they were taken whole.
        """
        kept = _units_of(held, held.fewest if isinstance(held, WorkerGroup) else 1)
        wanted = _units_of(request, _shares(request)[1])
        free = {**self._free, GPU: sum(_UNIT for left in self._devices if left == _UNIT)}
        return all(
            kept[name] + units <= free.get(name, 0)
            for name, units in wanted.items()
            if units and kept.get(name)
        )

    def acquire(self, request: Request) -> tuple[int, ...] | None:
        """Grant the request; of a group, the shares of `num_workers`.

        Returns:
            The devices assigned, empty where no GPU was asked for; None if the request does not fit
            now. Those of a group are in the order of its ranks: as many for each as it asks for, or
            one of which it gets a fraction.
        """
        share, num_shares = _shares(request)
        if any(
            num_shares * _units(amount) > self._free.get(name, 0) for name, amount in share.items()
        ):
            return None
        devices = self._choose_devices(_units(share.get(GPU, 0)), num_shares)
        if devices is None:
            return None
        self._book(request, devices, -1)
        return devices

    def hold(self, request: Request, devices: tuple[int, ...]) -> None:
        """Reserve what `acquire` granted before a restore."""
        self._book(request, devices, -1)

    def release(self, request: Request, devices: tuple[int, ...]) -> None:
        """Release what `acquire` granted."""
        self._book(request, devices, 1)

    def _book(self, request: Request, devices: tuple[int, ...], sign: int) -> None:
        share, num_shares = _shares(request)
        for name, amount in share.items():
            if name in self._free:
                self._free[name] += sign * num_shares * _units(amount)
        # A request of several takes each device whole; a fraction takes its share of one.
        units = min(_units(share.get(GPU, 0)), _UNIT)
        for device in devices:
            self._devices[device] += sign * units

    def _choose_devices(self, units: int, num_shares: int) -> tuple[int, ...] | None:
        if units == 0:
            return ()
        if units >= _UNIT:
            whole = [index for index, free in enumerate(self._devices) if free == _UNIT]
            wanted = units // _UNIT * num_shares
            return tuple(whole[:wanted]) if len(whole) >= wanted else None
        free, chosen = list(self._devices), []
        for _ in range(num_shares):
            device = _fullest_with_room(free, units)
            if device is None:
                return None
            free[device] -= units
            chosen.append(device)
        return tuple(chosen)

    def _num_free_shares(self, units: int) -> int:
        if units >= _UNIT:
            return sum(free == _UNIT for free in self._devices) // (units // _UNIT)
        return sum(free // units for free in self._devices)


def gpu_misfit(request: Request) -> str:
    """Return why no machine could grant the GPUs that are asked for; empty if one could."""
    share, _ = _shares(request)
    if (gpus := share.get(GPU, 0)) > 1 and _units(gpus) % _UNIT:
        whose = " of each worker" if isinstance(request, WorkerGroup) else ""
        return f"gpu{whose} must be a fraction below 1 or a whole number, got {gpus}"
    return ""


def amounts_of(request: Request) -> dict[str, float]:
    """Return the amounts by name, of all workers of a group together."""
    return request.total if isinstance(request, WorkerGroup) else dict(request)


def demand_of(trial: Trial) -> Demand:
    """Return what a trial's next attempt asks for."""
    return Demand(trial.request, trial.labels)


def request_shape(request: Request) -> tuple[object, ...]:
    """Return a key that is equal for requests that fit in the same cases."""
    if isinstance(request, WorkerGroup):
        share = request_shape(request.resources_per_worker)
        strategy = () if request.strategy == "PACK" else (request.strategy,)
        return (*share, request.fewest, request.most, *strategy)
    return tuple(sorted(request.items()))


def _units_of(request: Request, num_shares: int) -> dict[str, int]:
    """Return the amounts of so many shares, with whole devices."""
    share, _ = _shares(request)
    units = {name: num_shares * _units(amount) for name, amount in share.items()}
    if gpus := _units(share.get(GPU, 0)):
        units[GPU] = num_shares * max(gpus, _UNIT)
    return units


def _shares(request: Request) -> tuple[Mapping[str, float], int]:
    """Return the share of one process, and how many processes have one."""
    if isinstance(request, WorkerGroup):
        return request.resources_per_worker, request.num_workers
    return request, 1


def _fullest_with_room(free: Sequence[int], units: int) -> int | None:
    """Return the fullest device that has room, the first among equals; None if there is none."""
    with_room = [(left, index) for index, left in enumerate(free) if left >= units]
    return min(with_room)[1] if with_room else None


def _units(amount: float) -> int:
    return round(amount * _UNIT)
