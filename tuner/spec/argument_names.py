"""Hints for arguments of other names: of other libraries, of another class, or misspelt."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

_Kind = TypeVar("_Kind")

_OTHERS: Final = {
    "n_trials": "TuneConfig(num_samples=...)",
    "num_trials": "TuneConfig(num_samples=...)",
    "max_trials": "TuneConfig(num_samples=...)",
    "n_samples": "TuneConfig(num_samples=...)",
    "samples": "TuneConfig(num_samples=...)",
    "n_iter": "TuneConfig(num_samples=...)",
    "max_evals": "TuneConfig(num_samples=...)",
    "n_jobs": "TuneConfig(max_concurrent_trials=...)",
    "max_concurrent": "TuneConfig(max_concurrent_trials=...)",
    "timeout": "TuneConfig(time_budget_s=...)",
    "direction": "TuneConfig(mode=...)",
    "objective": "TuneConfig(metric=...)",
    "sampler": "TuneConfig(search_alg=...)",
    "searcher": "TuneConfig(search_alg=...)",
    "algo": "TuneConfig(search_alg=...)",
    "pruner": "TuneConfig(scheduler=...)",
    "random_state": "TuneConfig(seed=...)",
    "output_dir": "RunConfig(storage_path=...)",
    "results_dir": "RunConfig(storage_path=...)",
    "config": "Tuner(train, param_space=...)",
    "space": "Tuner(train, param_space=...)",
    "search_space": "Tuner(train, param_space=...)",
    "resources_per_trial": 'tune.with_resources(train, {"cpu": 2})',
}
"""What to write for arguments of other libraries, or of other functions."""
_classes: Final[dict[str, tuple[str, ...]]] = {}
"""The arguments of each class that was decorated, by its name."""


def names_unknown_arguments(kind: type[_Kind]) -> type[_Kind]:
    """Let the constructor of a class say which argument may be meant by one that it lacks."""
    construct: Callable[..., None] = kind.__init__
    known = tuple(inspect.signature(construct).parameters)[1:]
    _classes[kind.__name__] = known

    @functools.wraps(construct)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                hint = hint_for(name, known)
                raise TypeError(f"{kind.__name__} has no argument {name!r}{hint}")
        construct(self, *args, **kwargs)

    kind.__init__ = checked  # type: ignore[method-assign]
    return kind


def hint_for(name: str, known: Collection[str]) -> str:
    """Return what to write instead of an unknown argument, with a semicolon; empty if unknown.

    Args:
        name: The argument.
        known: Those that there are.
    """
    if name in _OTHERS:
        return f"; write {_OTHERS[name]}"
    owner = next((kind for kind, names in _classes.items() if name in names), None)
    if owner is not None:
        return f"; it is an argument of {owner}: {owner}({name}=...)"
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
