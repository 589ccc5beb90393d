"""Resources in bundles: what a trial asks for, and what it occupies while it runs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import final

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@final
class PlacementGroupFactory(Mapping[str, float]):
    """A request in several bundles, the first of which is for the trial's own process.

    It is also what a running trial occupies; as a mapping it gives the total amounts by name, ``{"cpu": 1.0, "gpu": 0.5}``.

    Args:
        bundles: Resources of each bundle, e.g. ``[{"cpu": 1}, {"cpu": 2, "gpu": 1}]``; the first may be empty.
        strategy: How bundles are spread over machines: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Example:
        >>> PlacementGroupFactory([{}, {"CPU": 2}, {"CPU": 2}]).total()
        {'cpu': 4.0}

    Departures:
        `bundles` and `required_resources` spell CPU and GPU in capitals, as there; the mapping does not. On one machine all
        strategies mean the same, and a trial is granted the sum of its bundles.
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK") -> None:
        if not bundles:
            raise ValueError(
                "bundles must hold at least one bundle, got none; the first is for the trial itself and may be empty"
            )
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(_STRATEGIES)}, got {strategy!r}")
        self._bundles = tuple(checked_bundle(bundle) for bundle in bundles)
        self.strategy = strategy

    def total(self) -> dict[str, float]:
        """Return the sum of the bundles."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    @property
    def bundles(self) -> list[dict[str, float]]:
        """Resources of each bundle, without those of which it asks for nothing, and without the first where that is empty."""
        shown = [
            {_spelt(name): amount for name, amount in bundle.items() if amount}
            for bundle in self._bundles
        ]
        return shown if shown[0] else shown[1:]

    @property
    def head_cpus(self) -> float:
        """CPUs of the first bundle, which is the trial's own process."""
        return self._bundles[0].get("cpu", 0.0)

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the first bundle asks for nothing."""
        return not any(self._bundles[0].values())

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of the bundles."""
        return {_spelt(name): amount for name, amount in self.total().items() if amount}

    def __getitem__(self, name: str) -> float:
        return self.total()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.total())

    def __len__(self) -> int:
        return len(self.total())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlacementGroupFactory):
            return (self._bundles, self.strategy) == (other._bundles, other.strategy)
        return isinstance(other, Mapping) and self.total() == dict(other)

    def __hash__(self) -> int:
        return hash((tuple(frozenset(bundle.items()) for bundle in self._bundles), self.strategy))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({list(self._bundles)}, strategy={self.strategy!r})"


def _spelt(name: str) -> str:
    return name.upper() if name in ("cpu", "gpu") else name


def checked_bundle(bundle: Mapping[str, float]) -> dict[str, float]:
    """Return amounts as floats by name, CPU and GPU in small letters.

    Raises:
        ValueError: If an amount is negative or no number, or a name is there twice.
    """
    checked: dict[str, float] = {}
    for name, amount in bundle.items():
        if (
            isinstance(amount, bool)
            or not isinstance(amount, numbers.Real)
            or not 0 <= amount < math.inf
        ):
            raise ValueError(
                f"resource {name!r} must be a finite number of at least 0, got {amount!r}"
            )
        standard = name.lower() if name.lower() in ("cpu", "gpu") else name
        if standard in checked:
            raise ValueError(
                f"resource {standard!r} is asked for twice in {dict(bundle)}; CPU and cpu are the same"
            )
        checked[standard] = float(amount)
    return checked
