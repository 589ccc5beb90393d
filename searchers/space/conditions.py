"""Conditional parts of a search space: choices between sub-spaces, and entries under conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, final

from searchers.plain_values import python_scalar

from .domains import DEFAULT_CONFIDENCE, PRIOR_FIELDS, Categorical, Domain, shown
from .sample_from import SampleFrom
from .tree import Conditional, Path, flat_name, is_grid, leaves

Predicate = Callable[[Any], bool]
"""A condition as a function of a parameter's value."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


@final
@dataclass(frozen=True, slots=True)
class Branching(Conditional):
    """A choice between options that contain domains.

    A configuration has only the chosen option, with its parameters. For searchers the choice is a
    parameter whose values are the numbers of its options, from 0.

    Attributes:
        options: The options, at least one: sub-spaces, domains and plain values.
        is_ordered: Whether neighbours in the list are similar.
        prior: The option expected to be best, by its number or, if it is plain and not a number,
            itself; None for no prior.
        prior_confidence: ``"low"``, ``"medium"`` or ``"high"``.
        selector: The domain of the options' numbers.

    Raises:
        ValueError: If there is no option, one of them contains a grid or is an `OnlyIf`, or the
            prior is none of them.

    Example:
        >>> from searchers.space import uniform
        >>> optimizer = Branching(
        ...     ({"name": "sgd", "momentum": uniform(0, 1)}, "none"), prior="none"
        ... )
        >>> optimizer.selector.categories, optimizer.selector.prior
        ((0, 1), 1)
    """

    options: tuple[Any, ...]
    is_ordered: bool = False
    prior: Any = None
    prior_confidence: str = DEFAULT_CONFIDENCE
    selector: Categorical = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options and the prior."""
        object.__setattr__(self, "options", tuple(self.options))
        if not self.options:
            raise ValueError(
                "choice must be given one value at least, got none; leave the parameter out where "
                "there is no choice"
            )
        for number, option in enumerate(self.options):
            _check_no_grid("choice", option)
            if isinstance(option, OnlyIf):
                raise ValueError(  # noqa: TRY004
                    "choice must have options that are always there, got only_if as option "
                    f"{number}; put the choice into only_if"
                )
        preferred = None if self.prior is None else self.number_of(self.prior)
        if self.prior is not None and preferred is None:
            raise ValueError(
                f"prior must be one of the options, got {self.prior!r}; give an option that is "
                f"plain and no number itself, any other by its number, 0 to {len(self.options) - 1}"
            )
        numbers = tuple(range(len(self.options)))
        object.__setattr__(
            self,
            "selector",
            Categorical(numbers, self.is_ordered, preferred, self.prior_confidence),
        )

    def __repr__(self) -> str:
        return shown(
            self,
            hidden=frozenset(
                {"selector"} if self.prior is not None else {"selector", *PRIOR_FIELDS}
            ),
        )

    def inner(self) -> Iterator[tuple[Path, Any]]:
        """Yield the options by their numbers."""
        return (((number,), option) for number, option in enumerate(self.options))

    def grid(self) -> dict[str, list[Any]]:
        """Raise an error, since only a `Categorical` can be a grid.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "grid must be asked of a choice between plain values, got one between sub-spaces; grid "
            "over names, and use only_if"
        )

    def number_of(self, given: Any) -> int | None:
        """Return an option's number from its number or plain value; None if there is none."""
        if isinstance(given, int) and not isinstance(given, bool):
            return given if 0 <= given < len(self.options) else None
        plain = {
            number: option for number, option in enumerate(self.options) if not holds_words(option)
        }
        if not plain or not (known := Categorical(tuple(plain.values()))).contains(given):
            return None
        return list(plain)[known.index(given)]


@final
@dataclass(frozen=True, slots=True)
class OnlyIf(Conditional):
    """An entry of a space that is only there under conditions.

    Attributes:
        conditions: For each parameter asked for, by name: a value, a list of values, or a function
            of the value that returns whether the condition holds. All of them have to hold.
        node: The entry: a domain, a sub-space or a constant.

    Raises:
        TypeError: If the conditions are not a dictionary with names.
        ValueError: If there is no condition, or the entry contains a grid.

    Example:
        >>> from searchers.space import uniform
        >>> OnlyIf({"optimizer": "sgd"}, uniform(0, 1)).conditions
        {'optimizer': 'sgd'}
    """

    conditions: Mapping[str, Any]
    node: Any

    def __post_init__(self) -> None:
        """Check the conditions."""
        if not isinstance(self.conditions, Mapping) or not all(
            isinstance(name, str) for name in self.conditions
        ):
            raise TypeError(
                "only_if must be given a dictionary from names to values, got "
                f"{self.conditions!r}; such as {{'optimizer': 'sgd'}}"
            )
        if not self.conditions:
            raise ValueError(
                "only_if must be given one condition at least, got none; leave only_if out for "
                "what is always there"
            )
        _check_no_grid("only_if", self.node)
        # A set has no order, and the recorded form must be the same each time.
        listed = {
            name: sorted(asked, key=repr) if isinstance(asked, AbstractSet) else asked
            for name, asked in self.conditions.items()
        }
        object.__setattr__(self, "conditions", listed)

    def inner(self) -> Iterator[tuple[Path, Any]]:
        """Yield the entry."""
        yield (), self.node


def is_word(leaf: Any) -> bool:
    """Return whether the leaf is a domain, function, grid axis or conditional."""
    # Most leaves are plain, and isinstance of an abstract class is slow when the answer is no.
    if type(leaf) in _PLAIN:
        return False
    return isinstance(leaf, Domain | SampleFrom | Conditional) or is_grid(leaf)


def holds_words(node: Any) -> bool:
    """Return whether any leaf of a part of a space is searched."""
    return any(is_word(leaf) for _, leaf in leaves(node))


def unwrapped(node: Any) -> Any:
    """Return the entry inside an `OnlyIf`, or the node itself."""
    while type(node) is OnlyIf:
        node = node.node
    return node


def plain_values(word: str, values: Iterable[Any]) -> list[Any]:
    """Return the values of a choice or grid as a list, with numpy scalars as Python numbers.

    Args:
        word: Name of the function, for the message.
        values: The values.

    Raises:
        TypeError: If they are not a list or another ordered iterable.
        ValueError: If there are none, or domains among them.
    """
    found = listed(word, values)
    if any(is_word(leaf) for _, leaf in leaves(found)):
        raise ValueError(
            f"{word} must be given plain values, got domains inside {found!r}; "
            "use sample_from(lambda config: ...), which may return a domain depending on other "
            "parameters, or only_if"
        )
    return found


def listed(word: str, values: Any) -> list[Any]:
    """Return the values as a list, with numpy scalars as Python numbers; see `plain_values`."""
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not isinstance(values, Iterable):
        raise TypeError(
            f"{word} must be given a list, got {values!r}; put the values in square brackets"
        )
    found = [python_scalar(value) for value in values]
    if not found:
        raise ValueError(
            f"{word} must be given one value at least, got none; leave the parameter out where "
            "there is no choice"
        )
    return found


def _check_no_grid(word: str, node: Any) -> None:
    found = [flat_name(path) for path, leaf in leaves(node) if is_grid(leaf)]
    if found:
        place = f" at {found[0]!r}" if found[0] else ""
        raise ValueError(
            f"{word} must hold no grid, got one{place} inside {node!r}: a grid has no points where "
            "it is not there; use choice instead of grid_search"
        )
