"""Hints at secrets that are given as plain texts, where anybody who reads the files sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from searchers.space import every_leaf, flat_name, is_grid, leaves
from searchers.space.domains import Categorical
from searchers.space.tree import GRID_KEY

from .environment import is_name_of_secret, words_of

_OF_TEXTS: Final = frozenset(
    {"pad", "mask", "eos", "bos", "cls", "sep", "unk", "special", "start", "end", "stop", "next"}
)
"""A token of these kinds is a piece of a text."""


def plain_secrets(space: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the texts of a search space that their names call secrets, by these names.

    Example:
        >>> plain_secrets({"lr": 0.1, "db": {"password": "hunter2"}, "pad_token": "[PAD]"})
        {'db/password': {'hunter2'}}
    """
    found: dict[str, set[str]] = {}
    for path, leaf in every_leaf(space):
        names = tuple(step for step in path if isinstance(step, str))
        if any(map(_is_secret, names)):
            texts = {
                part
                for value in _values_of(leaf)
                for _, part in leaves(value)
                if isinstance(part, str) and part
            }
            if texts:
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


def _values_of(leaf: Any) -> Sequence[Any]:
    if isinstance(leaf, Categorical):
        return leaf.categories
    return leaf[GRID_KEY] if is_grid(leaf) else [leaf]
