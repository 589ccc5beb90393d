"""Checks of the search space before an experiment starts.

Values that cannot be sent to workers and secrets that are missing are refused. The user is told of
constants that look as if they were to be searched, and of secrets that are given as plain texts,
where anybody who reads the files sees them.
"""

from __future__ import annotations

import inspect
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from searchers.space import Path, SampleFrom, SearchSpace, every_leaf, flat_name, is_grid, leaves
from searchers.space.conditions import holds_words
from searchers.space.declared_space import Space, like
from searchers.space.domains import Categorical, Domain
from searchers.space.tree import GRID_KEY
from tuner.core.secret_reference import Secret
from tuner.execution.pickling import check_picklable
from tuner.storage.config_codec import check_keys

from .checked_settings import Settings
from .environment import is_name_of_secret, words_of

_PLAIN: Final = (str, int, float, bool)
_OF_CONFIG: Final = frozenset({"config", "cfg", "conf", "c", "spec", "_"})
"""Names of the parameter of a function for `sample_from`."""
_OF_TEXTS: Final = frozenset(
    {"pad", "mask", "eos", "bos", "cls", "sep", "unk", "special", "start", "end", "stop", "next"}
)
"""A token of these kinds is a piece of a text."""


class RecordedSpace(Space):
    """A search space from an experiment's directory, all of whose constants are meant as such."""


def checked_space(space: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the search space if it is well-formed, an empty one for None.

    Raises:
        TypeError: If it is no dictionary.
        ValueError: If a domain, a condition or a key of it is invalid, or nothing satisfies its
            ``where``.
    """
    if space is None:
        return {}
    if not isinstance(space, Mapping):
        raise TypeError(
            "param_space must be a dictionary of parameter names to values or domains, got "
            f"{space!r}"
        )
    # Settings that are searched are a part of the space like any other.
    opened = {
        key: value.as_space() if isinstance(value, Settings) else value
        for key, value in space.items()
    }
    check_keys(opened)
    taken = like(space, opened)
    SearchSpace(taken).check_satisfiable()  # raises what is wrong with it
    return taken


def check_portable(space: Mapping[str, Any]) -> None:
    """Check that all values of a search space can be sent to a worker process.

    Raises:
        TypeError: If one cannot; the message names its place.
    """
    for path, which, value in _fixed_values(space):
        keys = (json.dumps(step) if isinstance(step, str) else repr(step) for step in path)
        check_picklable(f"config{''.join(f'[{key}]' for key in keys)}{which}", value)


def check_secrets(space: Mapping[str, Any]) -> None:
    """Check that the environment has every secret of a search space.

    Raises:
        ValueError: If some are missing; the message names the variables.
    """
    if lacking := sorted(names_of_secrets(space) - os.environ.keys()):
        raise ValueError(
            f"the environment must have every secret of param_space, "
            f"got no variable {', '.join(lacking)}; set it first"
        )


def names_of_secrets(space: Mapping[str, Any]) -> set[str]:
    """Return the names of the environment variables of a search space's secrets."""
    return {
        leaf.name
        for _, _, value in _fixed_values(space)
        for _, leaf in leaves(value)
        if isinstance(leaf, Secret)
    }


def _fixed_values(space: Mapping[str, Any]) -> Iterator[tuple[Path, str, Any]]:
    """Yield the values that configurations take over as they are, with path and number at it."""
    for path, leaf in every_leaf(space):
        match leaf:
            case Categorical(categories):
                for number, category in enumerate(categories):
                    yield path, f", category {number},", category
            case dict() if is_grid(leaf):
                for number, value in enumerate(leaf[GRID_KEY]):
                    yield path, f", grid value {number},", value
            case Domain() | SampleFrom():
                continue  # numbers, or computed in the driver
            case _:
                yield path, "", leaf


def warn_of_apparent_domains(space: Mapping[str, Any]) -> None:
    """Warn of lists in a space without any domain, and of functions that compute a value.

    Args:
        space: The search space, as it was declared.
    """
    for path, leaf in every_leaf(space):
        if _computes_a_value(leaf):
            warnings.warn(
                f"param_space has a lambda for {flat_name(path)!r}, which is a constant: each "
                "trial gets the function itself. If its result is meant, write "
                "tune.sample_from(lambda config: ...)",
                RuntimeWarning,
                stacklevel=2,
            )
    if holds_words(dict(space)):
        return
    lists = {name: value for name, value in space.items() if _lists_options(value)}
    if lists:
        name, options = next(iter(lists.items()))
        warnings.warn(
            f"param_space has nothing to search, and a list for {', '.join(map(repr, lists))}, "
            f"which is a constant: each trial gets the whole list. If its values are meant, write "
            f'"{name}": tune.choice({list(options)!r}), or tune.grid_search for each of them',
            RuntimeWarning,
            stacklevel=2,
        )


def _computes_a_value(leaf: Any) -> bool:
    """Return whether this is a lambda of nothing, or of a configuration."""
    if getattr(leaf, "__name__", "") != "<lambda>":
        return False
    parameters = inspect.signature(leaf).parameters
    return not parameters or (len(parameters) == 1 and next(iter(parameters)) in _OF_CONFIG)


def _lists_options(value: Any) -> bool:
    return (
        isinstance(value, list | range)
        and len(value) > 1
        and all(isinstance(one, _PLAIN) for one in value)
        and len(set(value)) == len(value)
    )


def plain_secrets(space: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the texts of a search space that their names call secrets, by these names.

    Example:
        >>> plain_secrets({"lr": 0.1, "db": {"password": "hunter2"}, "pad_token": "[PAD]"})
        {'db/password': {'hunter2'}}
    """
    found: dict[str, set[str]] = {}
    for path, _, value in _fixed_values(space):
        texts = {part for _, part in leaves(value) if isinstance(part, str) and part}
        names = tuple(step for step in path if isinstance(step, str))
        if texts and any(map(_is_secret, names)):
            found.setdefault(flat_name(names), set()).update(texts)
    return found


def secret_hints(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """Yield a hint at parameters and one at arguments that look like secrets.

    Args:
        names: Parameters of the search space, see `plain_secrets`.
        arguments: Arguments of the command line, as they are recorded.
    """
    if names:
        variable = "_".join(words_of(names[0].rpartition("/")[2])).upper()
        yield (
            f"param_space holds {', '.join(names)} as a plain text, which looks like a secret and "
            "is written to the experiment's files; put it into an environment variable, and give "
            f"tune.Secret({variable!r}), which is written by that name only"
        )
    if arguments:
        yield (
            f"{', '.join(arguments)} on the command line looks like a secret, which other users of "
            "this machine can read there; it is recorded as shown here. Put it into an environment "
            "variable, which tune.Secret(NAME) in param_space passes to the training code"
        )


def _is_secret(name: str) -> bool:
    words = words_of(name)
    # What is said of a secret, such as its length, is none, so the last word decides.
    return (
        is_name_of_secret("_".join(words[-2:]))
        and (words[-1] == "key" or is_name_of_secret(words[-1]))
        and not (words[-1] == "token" and words[-2:][0] in _OF_TEXTS)
    )
