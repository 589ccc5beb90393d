"""Pool of resources: CPUs, GPUs (whole or in fractions) and custom resources."""

from __future__ import annotations

from collections.abc import Mapping

GPU = "gpu"
_UNIT = 10_000
"""Amounts are counted in ten-thousandths, so that ten tenths are one."""


class ResourcePool:
    """Grants requests from a fixed capacity.

    GPUs are devices: a request of 1 or more takes whole ones, a fraction shares the fullest device
    that still has room, so that whole devices stay free as long as possible.
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

    def misfit(self, request: Mapping[str, float]) -> str:
        """Return why the request could never be granted; empty if it could."""
        too_much = [
            name for name, amount in request.items() if _units(amount) > self._total.get(name, 0)
        ]
        if too_much:
            return (
                f"the trial asks for {dict(request)}, the experiment has {self.capacity} in all; "
                f"ask for less {' and '.join(too_much)}"
            )
        if (gpus := request.get(GPU, 0)) > 1 and _units(gpus) % _UNIT:
            return f"gpu must be a fraction below 1 or a whole number, got {gpus}"
        return ""

    def num_fitting(self, request: Mapping[str, float], limit: int) -> int:
        """Return how many such requests fit now, counting no further than `limit`."""
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

    def acquire(self, request: Mapping[str, float]) -> tuple[int, ...] | None:
        """Grant the request.

        Returns:
            The devices assigned, empty where no GPU was asked for; None if the request does not fit
            now.
        """
        if any(_units(amount) > self._free.get(name, 0) for name, amount in request.items()):
            return None
        devices = self._choose_devices(_units(request.get(GPU, 0)))
        if devices is None:
            return None
        self._book(request, devices, -1)
        return devices

    def hold(self, request: Mapping[str, float], devices: tuple[int, ...]) -> None:
        """Reserve what `acquire` granted before a restore."""
        self._book(request, devices, -1)

    def release(self, request: Mapping[str, float], devices: tuple[int, ...]) -> None:
        """Release what `acquire` granted."""
        self._book(request, devices, 1)

    def _book(self, request: Mapping[str, float], devices: tuple[int, ...], sign: int) -> None:
        for name, amount in request.items():
            if name in self._free:
                self._free[name] += sign * _units(amount)
        # A request of several takes each device whole; a fraction takes its share of one.
        share = min(_units(request.get(GPU, 0)), _UNIT)
        for device in devices:
            self._devices[device] += sign * share

    def _choose_devices(self, units: int) -> tuple[int, ...] | None:
        if units == 0:
            return ()
        if units >= _UNIT:
            whole = [index for index, free in enumerate(self._devices) if free == _UNIT]
            wanted = units // _UNIT
            return tuple(whole[:wanted]) if len(whole) >= wanted else None
        # The fullest device that has room, the first among equals.
        shared = [(free, index) for index, free in enumerate(self._devices) if free >= units]
        return (min(shared)[1],) if shared else None

    def _num_free_shares(self, units: int) -> int:
        if units >= _UNIT:
            return sum(free == _UNIT for free in self._devices) // (units // _UNIT)
        return sum(free // units for free in self._devices)


def _units(amount: float) -> int:
    return round(amount * _UNIT)
