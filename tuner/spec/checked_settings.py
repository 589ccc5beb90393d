"""Base of the settings that users construct, checks of their values, hints at misspelt names."""

from __future__ import annotations

import dataclasses
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


class Settings:
    """Base of the settings, which check a field when it is assigned as the constructor does.

    Rules about several fields are checked by the constructor and by `Tuner` only, so that the
    fields can be assigned one by one.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        self._check()
        self._check_together()

    def _check(self) -> None:
        """Refuse a field that is invalid by itself."""

    def _check_together(self) -> None:
        """Refuse fields that contradict each other."""

    def as_space(self) -> Any:
        """Return what stands for them in a search space: themselves, or their searched fields."""
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field.

        Raises:
            AttributeError: If there is no such field; names the most similar one.
            ValueError: If the value is out of range.
            TypeError: If it has the wrong type.
        """
        fields = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]!r}" if near else f"; it has {', '.join(fields)}"
            raise AttributeError(f"{type(self).__name__} has no field {name!r}{hint}")
        # The constructor assigns the fields one by one, and checks them when all are there.
        is_constructed = all(hasattr(self, field) for field in fields)
        before = getattr(self, name, None)
        object.__setattr__(self, name, value)
        if not is_constructed:
            return
        try:
            self._check()
        except (TypeError, ValueError):
            object.__setattr__(self, name, before)
            raise


def check_type(name: str, value: Any, kind: type) -> None:
    """Raise TypeError unless the value is None or of this class."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")


def check_seconds(name: str, value: Any, otherwise: str = "") -> None:
    """Raise TypeError unless the value is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds{otherwise}, got {value!r}")


def check_whole(name: str, value: Any, accepted: str = "a whole number") -> None:
    """Raise TypeError unless the value is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {accepted}, got {value!r}")


def check_limit(name: str, value: Any, accepted: str = "a whole number or None") -> None:
    """Raise TypeError or ValueError unless the value is None or a whole number of at least 1."""
    if value is not None:
        check_whole(name, value, accepted)
        if value < 1:
            raise ValueError(f"{name} must be at least 1, or None for no limit, got {value!r}")


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
