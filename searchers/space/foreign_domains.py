"""Domains of other libraries are refused, which a space would hold as constants.

Recognised are objects, by the module of their class, so that no library is imported; distributions
of SciPy; and dictionaries in the forms of NNI, Weights & Biases and Ax. A dictionary, or a
distribution, that is meant as a constant is written as a choice with this one option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .domains import Categorical
from .tree import GRID_KEY, Conditional, Path, flat_name, is_grid

if TYPE_CHECKING:
    from .foreign_lines import ForeignDomain

_LIBRARY_OF: Final = {
    "hyperopt.pyll": "hyperopt",
    "optuna.distributions": "optuna",
    "ConfigSpace": "ConfigSpace",
    "nevergrad.parametrization": "nevergrad",
    "ray.tune.search.sample": "ray",
    "ray.tune.sample": "ray",
    "flaml.tune.sample": "flaml",
    "syne_tune.config_space": "syne_tune",
    "skopt.space": "skopt",
    "keras_tuner": "keras_tuner",
    "ax.core.parameter": "ax",
    "ax.api.configs": "ax",
}
"""The library, by the module, or prefix of modules, with its domains."""
_SCIPY: Final = "scipy.stats"
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_GENERAL_REMEDY: Final = (
    "tune.uniform(lower, upper), tune.loguniform(lower, upper), tune.randint(lower, upper), "
    "tune.choice([...]) or the like"
)


def library_of(value: Any) -> str | None:
    """Return the library whose domain an object is, or None; without importing any library.

    Example:
        >>> library_of(3.0)
    """
    module = type(value).__module__
    return next(
        (
            library
            for known, library in _LIBRARY_OF.items()
            if module == known or module.startswith(f"{known}.")
        ),
        None,
    )


def foreign_domain(value: Any) -> ForeignDomain | None:
    """Return what a value is in another library, None if it is no domain there.

    Example:
        >>> foreign_domain({"_type": "uniform", "_value": [0, 1]}).line
        'tune.uniform(0, 1)'
    """
    if type(value) in _PLAIN:
        return None
    library = library_of(value)
    is_distribution = type(value).__module__.startswith(_SCIPY) and (
        hasattr(value, "rvs") or hasattr(value, "icdf")
    )
    if not (library or is_distribution or isinstance(value, Mapping)):
        return None
    from . import foreign_lines  # noqa: PLC0415  (few spaces have what may be such a domain)

    if isinstance(value, Mapping):
        return foreign_lines.of_dictionary(value)
    if library:
        return foreign_lines.of_object(library, value)
    return foreign_lines.of_distribution(value)


def check_no_foreign_domains(
    space: Mapping[str, Any], place: str, *, accepts: str | None = None
) -> None:
    """Refuse a space with domains of other libraries.

    Args:
        space: The space.
        place: Where it was given, for the message.
        accepts: A library whose domains the searcher supports.

    Raises:
        ValueError: If there are any; with the lines to write instead.
    """
    found = {
        flat_name(path): domain
        for path, domain in _found(space, ())
        if accepts is None or domain.library != accepts
    }
    if not found:
        return
    name, first = next(iter(found.items()))
    lines = ", ".join(
        f'"{name}": {domain.line or _GENERAL_REMEDY}' for name, domain in found.items()
    )
    constant = f", or {first.constant} where it is a constant" if first.constant else ""
    raise ValueError(
        f"{place} must hold constants and tuner's domains, got a domain of {first.library} for "
        f"{name!r}; write {lines}{constant}"
    )


def check_own_space(space: Any, kind: str, *, accepts: str | None = None) -> None:
    """Check a space that was given to a searcher.

    Args:
        space: What was given, None for nothing.
        kind: The searcher.
        accepts: A library whose domains it supports.

    Raises:
        TypeError: If it is no dictionary.
        ValueError: If it has domains of another library.
    """
    if space is None:
        return
    library = library_of(space)
    if not isinstance(space, Mapping):
        given = f"a space of {library}" if library else repr(space)
        raise TypeError(
            f'space must be a dictionary for {kind}, got {given}; write {kind}(space={{"x": '
            "tune.uniform(0, 1)}, ...)"
        )
    check_no_foreign_domains(space, f"space of {kind}", accepts=accepts)


def _found(node: Any, path: Path) -> Iterator[tuple[Path, ForeignDomain]]:
    """Yield the foreign domains of a part of a space, each with its path."""
    # The whole space may have any keys: {"min": 0, "max": 1} are two parameters there.
    if path and (domain := foreign_domain(node)) is not None:
        yield path, domain
    else:
        for steps, part in _parts(node):
            yield from _found(part, (*path, *steps))


def _parts(node: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, Conditional):
        yield from node.inner()
    elif isinstance(node, Categorical):
        yield from _inside_options(node.categories)
    elif is_grid(node):
        yield from _inside_options(node[GRID_KEY])
    elif isinstance(node, Mapping):
        yield from (((key,), part) for key, part in node.items())
    elif isinstance(node, list | tuple):
        yield from (((index,), part) for index, part in enumerate(node))


def _inside_options(options: Any) -> Iterator[tuple[Path, Any]]:
    """Yield what may not be constant in options; an option itself says that it is a constant."""
    for number, option in enumerate(options):
        domain = foreign_domain(option)
        if domain is None:
            yield from (((number, *steps), part) for steps, part in _parts(option))
        elif domain.constant is None:
            yield (number,), option
