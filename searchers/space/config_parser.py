"""The way back from a configuration of a conditional space to the values of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from .conditions import Branching, OnlyIf, is_word, unwrapped
from .parameters import Inventory
from .tree import DELIMITER, Path, flat_name, is_same_constant


def fitted(
    space: Mapping[str, Any], inventory: Inventory, config: Mapping[str, Any]
) -> dict[Path, Any]:
    """Return the values that a configuration, perhaps a partial one, gives for parameters and for what is computed, by the steps to them.

    Which option of a choice is meant follows from what is given there. Where several fit with nothing missing, the first is taken.

    Args:
        space: The space.
        inventory: What it consists of.
        config: A configuration, nested or with names such as ``"a/b"``.

    Raises:
        ValueError: If it has an unknown name, a value outside its domain, another value for a constant, what is not there beside the other
            values, or what fits no option of a choice or, being incomplete, several.
    """
    fitting = _Fitting(inventory)
    fit = fitting.of(dict(space), (), (), config, {})
    for steps in fit.guarded:
        fitting.require_met(steps, fit.known)
    return fit.assignments


@final
@dataclass(slots=True)
class _Fit:
    """What a part of a configuration gives.

    Attributes:
        known: The values of parameters by name, those found before included.
        assignments: What this part gives, by the steps to it.
        guarded: The steps to the entries under conditions that are given.
        undecided: The choices that are still to be decided, each with path and steps and with what is given for it.
        is_complete: Whether nothing is missing.
        is_exact: Whether everything is also of the type that the space has.
    """

    known: dict[str, Any]
    assignments: dict[Path, Any] = field(default_factory=dict)
    guarded: list[Path] = field(default_factory=list)
    undecided: list[tuple[Branching, Path, Path, Any]] = field(default_factory=list)
    is_complete: bool = True
    is_exact: bool = True

    def take(self, other: _Fit) -> None:
        """Take over what a choice that is decided gives."""
        self.known = other.known
        self.assignments |= other.assignments
        self.guarded += other.guarded
        self.is_complete &= other.is_complete
        self.is_exact &= other.is_exact


@final
class _Fitting:
    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def of(self, node: Any, path: Path, steps: Path, given: Any, known: Mapping[str, Any]) -> _Fit:
        """Return what a part of a configuration gives.

        Raises:
            ValueError: If it does not fit.
        """
        fit = _Fit(dict(known))
        self._collect(node, path, steps, given, fit)
        # After all else that is given beside them: conditions inside may ask for it.
        while fit.undecided:
            self._decide(*fit.undecided.pop(0), fit)
        return fit

    def require_met(self, steps: Path, known: Mapping[str, Any]) -> None:
        """Check that an entry which is given may be there."""
        for condition in self._inventory.conditions[steps]:
            if condition.name not in known:
                raise ValueError(
                    f"{flat_name(steps)!r} must come with {condition.name!r}, which decides whether it is there; add that"
                )
            if not condition.holds(known[condition.name]):
                raise ValueError(
                    f"{flat_name(steps)!r} must be left out where {condition.name!r} is {known[condition.name]!r}; "
                    f"it is there only if {condition}"
                )

    def _collect(self, node: Any, path: Path, steps: Path, given: Any, fit: _Fit) -> None:
        if (
            type(node) is Branching
        ):  # here and below: a final class is told from others far faster by its type
            fit.undecided.append((node, path, steps, given))
        elif is_word(node):
            self._put(steps, given, fit)
        elif (
            isinstance(node, dict | list | tuple)
            and (children := _given_children(node, path, given)) is not None
        ):
            self._collect_children(node, path, steps, children, fit)
        elif is_same_constant(node, given):
            fit.is_exact &= node is given or type(node) is type(given)
        else:
            raise ValueError(
                f"{flat_name(path)!r} must be {node!r} as in the space, got {given!r}; change the space to change a constant"
            )

    def _put(self, steps: Path, given: Any, fit: _Fit) -> None:
        if steps in self._inventory.dependents:
            fit.assignments[steps] = given
            return
        name = self._inventory.names[steps]
        fit.known[name] = fit.assignments[steps] = value = self._inventory.by_name[name].checked(
            given
        )
        fit.is_exact &= type(value) is type(given)

    def _collect_children(
        self, node: Any, path: Path, steps: Path, children: Mapping[Any, Any], fit: _Fit
    ) -> None:
        entries = list(node.items() if isinstance(node, dict) else enumerate(node))
        entries.sort(
            key=lambda entry: type(entry[1]) is OnlyIf
        )  # conditions mostly ask for what stands beside them
        for key, child in entries:
            inside = (*steps, key)
            is_there = self._is_there(inside, fit.known) if type(child) is OnlyIf else True
            if key not in children:
                fit.is_complete &= is_there is not True
                continue
            if type(child) is OnlyIf:
                fit.guarded.append(inside)
            if is_there is False:
                self.require_met(inside, fit.known)
            self._collect(unwrapped(child), (*path, key), inside, children[key], fit)

    def _is_there(self, steps: Path, known: Mapping[str, Any]) -> bool | None:
        """Return whether an entry under conditions has to be there; None where that cannot be told yet."""
        conditions = self._inventory.conditions[steps]
        held = [
            condition.holds(known[condition.name])
            for condition in conditions
            if condition.name in known
        ]
        return False if not all(held) else True if len(held) == len(conditions) else None

    def _decide(self, choice: Branching, path: Path, steps: Path, given: Any, fit: _Fit) -> None:
        name, fits, refusals = self._inventory.names[steps], dict[int, _Fit](), list[str]()
        for number, option in enumerate(choice.options):
            try:
                fits[number] = self.of(
                    option, path, (*steps, number), given, {**fit.known, name: number}
                )
            except ValueError as refusal:
                refusals.append(f"option {number}: {refusal}")
        if not fits:
            raise ValueError(
                f"{flat_name(path)!r} must fit an option of its choice, got {given!r}; {'; '.join(refusals)}"
            )
        whole = [number for number, found in fits.items() if found.is_complete]
        exact = [number for number in whole if fits[number].is_exact]
        number = next(iter(exact or whole or fits))
        if not whole and len(fits) > 1:
            raise ValueError(
                f"{flat_name(path)!r} must fit one option of its choice, got {given!r}, which could be one of {list(fits)}; add what "
                "tells them apart"
            )
        fit.take(fits[number])
        fit.assignments[steps] = number


def _given_children(node: Any, path: Path, given: Any) -> dict[Any, Any] | None:
    """Return what is given for the entries of a container, None where it is given as something else."""
    if isinstance(given, Mapping):
        return _gathered(node if isinstance(node, dict) else dict(enumerate(node)), path, given)
    is_sequence = (
        isinstance(node, list | tuple)
        and isinstance(given, list | tuple)
        and len(given) == len(node)
    )
    return dict(enumerate(given)) if is_sequence else None


def _gathered(node: Mapping[Any, Any], path: Path, given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what is given for each entry, names such as ``"a/b"`` put together as what is given for ``"a"``."""
    found: dict[Any, Any] = {}
    for key, value in _split(node, given):
        if key not in node:
            raise ValueError(
                f"{flat_name((*path, key))!r} must be a name in the space, which has {list(node)!r} there; correct the name or leave it out"
            )
        both = isinstance(found.get(key), Mapping) and isinstance(value, Mapping)
        found[key] = {**found[key], **value} if both else value
    return found


def _split(node: Mapping[Any, Any], given: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, value in given.items():
        if not isinstance(key, str) or key in node:
            yield key, value
            continue
        head, *rest = key.split(DELIMITER, maxsplit=1)
        is_index = head not in node and head.isdigit() and int(head) in node
        yield int(head) if is_index else head, {rest[0]: value} if rest else value
