"""Public names of a package that are imported when they are first used.

So a program loads only the classes that it uses, and a worker process starts faster.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    package: str,
    names_by_module: Mapping[str, Iterable[str]],
    missing: Callable[[str], AttributeError] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    ``if TYPE_CHECKING:`` imports beside it show type checkers what the names are.

    Args:
        package: Name of the package.
        names_by_module: The names to import from each module, written as in an import statement:
            ``".asha"`` for one inside the package.
        missing: Returns the error for any other name; None for the usual one.

    Example:
        >>> import searchers
        >>> find, names = lazy_names("searchers", {".searcher": ["Searcher"]})
        >>> find("Searcher") is searchers.Searcher
        True
    """
    module_of = {name: module for module, names in names_by_module.items() for name in names}
    namespace = sys.modules[package].__dict__

    def find(name: str) -> Any:
        if name not in module_of:
            raise (
                missing(name)
                if missing
                else AttributeError(f"module {package!r} has no attribute {name!r}")
            )
        module = importlib.import_module(module_of[name], package)
        if not hasattr(module, name):  # a module of that package
            importlib.import_module(f"{module.__name__}.{name}")
        value = namespace[name] = getattr(module, name)  # the next access does not come here
        return value

    def names() -> list[str]:
        return sorted({*module_of, *(name for name in namespace if _is_special(name))})

    return find, names


def _is_special(name: str) -> bool:
    return name.startswith("__")
