"""Configurations of conditional spaces, put together from the values of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from .conditions import Branching, OnlyIf, holds_words, is_word, unwrapped
from .parameters import Inventory, are_met
from .sample_from import SampleFrom, resolve_dependents, sample
from .tree import Path, copied, flat_name

if TYPE_CHECKING:
    from numpy.random import (
        Generator,
    )  # for annotations only, so that importing the space words stays cheap


def arranged(
    space: Mapping[str, Any],
    inventory: Inventory,
    assignments: Mapping[Path, Any],
    rng: Generator | None,
) -> dict[str, Any]:
    """Return a configuration: assigned values as they are, all else that exists beside them sampled or computed.

    Args:
        space: The space.
        inventory: What it consists of.
        assignments: Values by the steps to their parameters, the numbers of options among them.
        rng: Source of chance.

    Raises:
        ValueError: If a grid axis has no value, a parameter has one that does not exist beside the others, or functions wait for each other
            in a circle.
    """
    values: dict[str, Any] = {}
    for parameter in inventory.parameters:
        steps, is_active = inventory.steps[parameter.name], parameter.is_active(values)
        if steps in assignments:
            value = assignments[steps]
        elif parameter.is_grid:
            raise ValueError(
                f"grid axis {parameter.name!r} must be assigned, got no value; choose one of its values"
            )
        elif is_active or rng is not None:
            # Drawn in any case, so that what exists beside one value does not shift the chance of what is there beside all.
            value = sample(parameter.domain, rng)
        if is_active:
            values[parameter.name] = value
    builder = _Builder(inventory, values, assignments)
    config: dict[str, Any] = builder.built(dict(space), (), ())
    used = {inventory.steps[name] for name in values} | builder.computed
    if strangers := sorted(flat_name(steps) for steps in assignments if steps not in used):
        raise ValueError(
            f"{strangers[0]!r} must be left out, since it is not there beside {values!r}; its conditions do not hold"
        )
    return resolve_dependents(config, builder.pending, rng) if builder.pending else config


@final
class _Builder:
    """Copies a space, with values in place of words.

    Attributes:
        pending: What is to be computed, by where it stands in the configuration.
        computed: The steps to all computed parameters that exist, also those that have been assigned.
    """

    def __init__(
        self, inventory: Inventory, values: Mapping[str, Any], assignments: Mapping[Path, Any]
    ) -> None:
        self._inventory = inventory
        self._values = values
        self._assignments = assignments
        self.pending: dict[Path, SampleFrom] = {}
        self.computed: set[Path] = set()

    def built(self, node: Any, path: Path, steps: Path) -> Any:
        """Return a part of the configuration."""
        match node:
            case Branching():
                number = self._values[self._inventory.names[steps]]
                return self.built(node.options[number], path, (*steps, number))
            case SampleFrom():
                return self._dependent(node, path, steps)
            case _ if is_word(node):
                return self._values[self._inventory.names[steps]]
            case dict() | list() | tuple() if type(node) in (dict, list, tuple) or holds_words(
                node
            ):
                return self._container(node, path, steps)
            case _:
                return node

    def _dependent(self, node: SampleFrom, path: Path, steps: Path) -> Any:
        self.computed.add(steps)
        if steps in self._assignments:
            return self._assignments[steps]
        self.pending[path] = node
        return node

    def _container(self, node: Any, path: Path, steps: Path) -> Any:
        if isinstance(node, dict):
            there = {
                key: child for key, child in node.items() if self._is_there(child, (*steps, key))
            }
            return {
                key: self.built(unwrapped(child), (*path, key), (*steps, key))
                for key, child in there.items()
            }
        children = [
            self.built(child, (*path, index), (*steps, index)) for index, child in enumerate(node)
        ]
        if isinstance(node, list):
            return children
        return type(node)(*children) if hasattr(node, "_fields") else tuple(children)

    def _is_there(self, node: Any, steps: Path) -> bool:
        return type(node) is not OnlyIf or are_met(self._inventory.conditions[steps], self._values)


def known_constants(
    space: Mapping[str, Any], inventory: Inventory, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what stays constant beside the values of parameters, those in chosen options and under conditions that hold included.

    A list or tuple that holds a word is left out as a whole.

    Args:
        space: The space.
        inventory: What it consists of.
        values: The values of parameters by name, perhaps not of all.
    """
    return _constants(space, (), inventory, values)


def _constants(
    node: Mapping[str, Any], steps: Path, inventory: Inventory, values: Mapping[str, Any]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, child in node.items():
        inside = (*steps, key)
        if isinstance(child, OnlyIf) and not are_met(inventory.conditions[inside], values):
            continue
        found = unwrapped(child)
        while (
            isinstance(found, Branching)
            and (number := values.get(inventory.names[inside])) is not None
        ):
            found, inside = found.options[number], (*inside, number)
        if not holds_words(found):
            kept[key] = copied(found)
        elif (
            isinstance(found, dict)
            and not is_word(found)
            and (inner := _constants(found, inside, inventory, values))
        ):
            kept[key] = inner
    return kept
