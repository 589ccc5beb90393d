"""What training code imports after its process has loaded the trainable: modules worth preloading, and versions of packages.

Some modules libraries import only when they are first used, so that a freshly forked worker would import them each time anew.

What the zygote has loaded all workers share. It cannot know what training code is going to need, so the first worker that had to import
such a module says so at its end, and the zygote imports it as well, before it forks the next. Whoever does not need it does not pay.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import sys
from collections.abc import Iterable

MODULES = ("torch._dynamo",)
"""``torch._dynamo`` comes with the first optimizer of a process: 800 modules, more than a second. None of these starts a thread."""

_OWN = frozenset({"tuner", "schedulers", "searchers", "__main__", "__mp_main__"})


def missing() -> tuple[str, ...]:
    """Return which of them have not been imported in this process."""
    return tuple(name for name in MODULES if name not in sys.modules)


def imported_since(were_missing: Iterable[str]) -> list[str]:
    """Return which of those that were missing have been imported since."""
    return [name for name in were_missing if name in sys.modules]


def packages_since(num_modules: int) -> dict[str, str]:
    """Return the packages that have been imported since so many modules were, with their versions, empty where they do not tell.

    Only what is new is looked at: in a forked worker each object that is touched costs a page.
    """
    with contextlib.suppress(RuntimeError):  # another thread is importing
        new = itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - num_modules))
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
    """Import one of them in the process from which workers are forked; what goes wrong there, goes wrong in the worker, too."""
    if name in MODULES and name not in sys.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
