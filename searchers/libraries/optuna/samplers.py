"""Optuna's samplers, seeded by the searcher's seed and the number of the suggestion."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, final

from searchers.seeding import generator

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler  # an extra: at run time imported where it is used
    from optuna.trial import FrozenTrial

_HOME = "optuna.samplers."
_MAX_SEED = 2**32
_EXHAUSTIVE = ("GridSampler", "BruteForceSampler")


@final
class SamplerSource:
    """Returns a sampler for each suggestion.

    The state of Optuna's own samplers is the study, their arguments and their random number
    generators. Each suggestion is made by a new copy of the given one, whose generators are seeded
    by the number of the suggestion; so a restored search continues as if never interrupted, and
    the number of draws of one suggestion does not affect the next. Any other sampler may have
    hidden state: the whole search uses one copy of it, with its own random numbers.

    Args:
        given: The user's sampler, which is not changed; None for TPE.
        seed: The searcher's seed, which the sampler's own seed replaces if there is one.
    """

    def __init__(self, given: BaseSampler | None, seed: int) -> None:
        self._given = copy.deepcopy(given)
        self.seed = seed if given is None else _own_seed(given, seed)

    @property
    def is_portable(self) -> bool:
        """Whether the study holds the sampler's whole state, as JSON."""
        # CMA-ES keeps a pickle there, which must not be loaded from a file of unknown origin.
        return self._given is None or (
            is_built_in(self._given) and not _contains(self._given, "CmaEsSampler")
        )

    @property
    def is_exhaustive(self) -> bool:
        """Whether the sampler enumerates finitely many configurations, after which it repeats."""
        return type(self._given).__name__ in _EXHAUSTIVE

    @property
    def learns_refusals(self) -> bool:
        """Whether the sampler proposes the like again, unless it is shown what was refused."""
        return self.ranks_pruned or _contains(self._given, "GPSampler")

    @property
    def ranks_pruned(self) -> bool:
        """Whether the sampler uses PRUNED trials too, and ranks those without a value last."""
        from optuna.samplers import PartialFixedSampler, TPESampler  # noqa: PLC0415  (an extra)

        sampler = self._given
        while isinstance(sampler, PartialFixedSampler):
            sampler = sampler._base_sampler  # noqa: SLF001
        return sampler is None or isinstance(sampler, TPESampler)

    def sampler_for(self, number: int) -> BaseSampler:
        """Return the sampler for the suggestion with that number, 0 or more."""
        if self._given is None:
            return _tpe(self.seed, number)
        if not is_built_in(self._given):
            return self._given
        sampler = copy.deepcopy(self._given)
        states = list(_random_generators(sampler))
        for state, seed in zip(
            states, generator(self.seed, number).integers(_MAX_SEED, size=len(states)), strict=True
        ):
            state.rng.seed(int(seed))
        return sampler

    def attributes_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a `GridSampler` notes with a trial that it has proposed; else nothing."""
        grid: Any = self._given
        if type(grid).__name__ != "GridSampler" or params.keys() != set(grid._param_names):  # noqa: SLF001
            return {}
        point = tuple(params[name] for name in grid._param_names)  # noqa: SLF001
        numbers = {tuple(each): number for number, each in enumerate(grid._all_grids)}  # noqa: SLF001
        if point not in numbers:
            return {}
        return {"search_space": dict(grid._search_space), "grid_id": numbers[point]}  # noqa: SLF001

    def repeats(self, trial: FrozenTrial, others: list[FrozenTrial]) -> bool:
        """Return whether an exhaustive sampler repeats a trial, since it has no others left."""
        grid = trial.system_attrs.get("search_space")
        if grid is not None:
            taken = {
                other.system_attrs["grid_id"]
                for other in others
                if other.system_attrs.get("search_space") == grid
            }
            return trial.system_attrs["grid_id"] in taken and len(taken) == prod(
                map(len, grid.values())
            )
        if "fixed_params" in trial.system_attrs:
            return False
        asked = _as_text(trial.params)
        return any(_as_text(other.params) == asked for other in others)


def _as_text(params: Mapping[str, Any]) -> dict[str, str]:
    # NaN does not equal itself, while 1, 1.0 and True, which may be three categories, are equal.
    return {name: repr(value) for name, value in params.items()}


def is_built_in(sampler: BaseSampler) -> bool:
    """Return whether a sampler and the samplers inside it are Optuna's own."""
    return all(
        type(part).__module__.startswith(_HOME) for part in _parts(sampler) if _is_sampler(part)
    )


def check_sampler(sampler: BaseSampler | None, *, is_constrained: bool) -> None:
    """Check that a sampler supports the objectives and constraints.

    Raises:
        ValueError: If it is CMA-ES and there are constraints, or an exhaustive sampler inside
            another one.
        TypeError: If it is no sampler.
    """
    if sampler is None:
        return
    if not _is_sampler(sampler):
        raise TypeError(
            f"sampler must be one of optuna.samplers, got {sampler!r}; construct it first"
        )
    if is_constrained and _contains(sampler, "CmaEsSampler"):
        raise ValueError(
            "constraints must be None with CmaEsSampler, which cannot respect them; take "
            "TPESampler or GPSampler"
        )
    inner = [
        name for name in _EXHAUSTIVE if _contains(sampler, name) and type(sampler).__name__ != name
    ]
    if inner and is_built_in(sampler):
        # A grid inside a PartialFixedSampler never ends: Optuna counts grid points that contradict
        # the fixed values as not yet run, and repeats others instead.
        raise ValueError(
            f"{type(sampler).__name__} must not hold {inner[0]}, which would repeat itself; take "
            "what is fixed out of the space"
        )


def _tpe(seed: int, number: int) -> BaseSampler:
    from optuna.samplers import TPESampler  # noqa: PLC0415  (an extra)

    return TPESampler(seed=int(generator(seed, number).integers(_MAX_SEED)))


def _contains(sampler: BaseSampler | None, name: str) -> bool:
    return sampler is not None and any(
        type(part).__name__ == name for part in _parts(sampler) if _is_sampler(part)
    )


def _is_sampler(part: Any) -> bool:
    from optuna.samplers import BaseSampler  # noqa: PLC0415  (an extra)

    return isinstance(part, BaseSampler)


def _parts(sampler: BaseSampler) -> Iterator[Any]:
    """Yield a sampler and all samplers and generators inside it, once, in a fixed order."""
    # The order decides which generator gets which seed: it has to be the same in each session.
    found, waiting = {id(sampler)}, [sampler]
    while waiting:
        part = waiting.pop(0)
        yield part
        for value in vars(part).values():
            is_part = _is_sampler(value) or (
                type(value).__module__.startswith(_HOME) and hasattr(value, "__dict__")
            )
            if is_part and id(value) not in found:
                found.add(id(value))
                waiting.append(value)


def _random_generators(sampler: BaseSampler) -> Iterator[Any]:
    yield from (part for part in _parts(sampler) if type(part).__name__ == "LazyRandomState")


def _own_seed(sampler: BaseSampler, seed: int) -> int:
    """Return a seed derived from the sampler's own, or the searcher's without one."""
    # Optuna creates the generator of an unseeded sampler at its first use.
    seeded = [
        state.rng
        for state in _random_generators(sampler)
        if getattr(state, "_rng", None) is not None
    ]
    if not seeded:
        return seed
    # The seeds themselves are not stored anywhere, but the states of the generators depend on them.
    digest = hashlib.sha256()
    for rng in seeded:
        _, keys, position, *_ = rng.get_state()
        digest.update(keys.tobytes() + str(position).encode())
    return int.from_bytes(digest.digest()[:4])
