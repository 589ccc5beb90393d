"""Import modules that workers would otherwise each import, and record versions of packages.

Some libraries import modules only when a function is first used, after the zygote has loaded the
trainable; every forked worker would then import them again. The zygote cannot know which ones
training code needs. So the first worker that had to import one of `MODULES` says so when it exits,
and the zygote imports it before it forks the next one. Experiments that do not need it do not pay.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import sys
from collections.abc import Iterable

MODULES = ("torch._dynamo",)
"""Modules that start no threads when they are imported.

``torch._dynamo`` is imported with the first optimizer of a process: 800 modules, over a second.
"""

_OWN = frozenset({"tuner", "schedulers", "searchers", "__main__", "__mp_main__"})


def missing() -> tuple[str, ...]:
    """Return the preloadable modules that have not been imported in this process."""
    return tuple(name for name in MODULES if name not in sys.modules)


def imported_since(were_missing: Iterable[str]) -> list[str]:
    """Return those of the missing modules that have been imported since."""
    return [name for name in were_missing if name in sys.modules]


def packages_since(num_modules: int) -> dict[str, str]:
    """Return the versions of packages imported since, empty strings for unknown versions.

    Args:
        num_modules: Length of ``sys.modules`` at the time from which to count. Older modules are
            not looked at: in a forked worker, touching an object copies a page.
    """
    if len(sys.modules) <= num_modules:
        return {}
    with contextlib.suppress(RuntimeError):  # another thread is importing
        new = itertools.islice(reversed(sys.modules), len(sys.modules) - num_modules)
        names = {name.partition(".")[0] for name in new} - sys.stdlib_module_names - _OWN
        versions = {
            name: getattr(sys.modules.get(name), "__dict__", {}).get("__version__")
            for name in names
        }
        return {
            name: version if isinstance(version, str) else "" for name, version in versions.items()
        }
    return {}


def import_module(name: str) -> None:
    """Import a preloadable module into the process that workers are forked from.

    Errors are ignored: the worker that needs the module will raise them.
    """
    if name in MODULES and name not in sys.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        # What it has created is to be shared with the workers like the rest, see `zygote`.
        gc.collect()
        gc.freeze()
