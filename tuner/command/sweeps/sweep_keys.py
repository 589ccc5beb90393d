"""What a sweep file declares: its keys, each checked where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from searchers.space import Path as Steps

from .space_text import dotted, path_of, value_of
from .sweep import Given
from .sweep_file import Section, parsed, plain
from .sweep_values import KEYS, checked, unknown_key
from .wandb_sweep import is_wandb_sweep, translated

_DESCRIPTIONS: Final = {
    ("min", "max"): "uniform(MIN, MAX) or loguniform(MIN, MAX)",
    ("low", "high"): "uniform(LOW, HIGH) or loguniform(LOW, HIGH)",
    ("lower", "upper"): "uniform(LOWER, UPPER) or loguniform(LOWER, UPPER)",
    ("values",): "choice(VALUE, ...)",
    ("choices",): "choice(VALUE, ...)",
    ("distribution",): "uniform(MIN, MAX) or choice(VALUE, ...)",
}
_DESCRIBING: Final = frozenset(
    {
        "distribution",
        "log",
        "mu",
        "name",
        "prior",
        "probabilities",
        "q",
        "scale",
        "sigma",
        "step",
        "type",
        "value",
    }
).union(*_DESCRIPTIONS)


def given_by_file(path: Path) -> Given:
    """Return what a sweep file declares, one of W&B's included.

    Raises:
        ValueError: If the file is not well-formed, or a key or value is not accepted; begins with
            file and line.
        OSError: If it cannot be read.
    """
    keys = parsed(path)
    if not is_wandb_sweep(keys):
        return given_by(keys)
    keys, remarks = translated(keys)
    return replace(given_by(keys), remarks=remarks)


def given_by(keys: Section) -> Given:
    """Return what the keys of a sweep file declare.

    Raises:
        ValueError: If a key or value is not accepted; begins with file and line.
    """
    values: dict[str, Any] = {}
    for key, value in keys.items():
        if key not in KEYS:
            raise keys.refusal(key, unknown_key(key))
        if key == "space" and isinstance(value, Section):
            values[key] = _space_of(value)
        elif value is not None or key == "progress":  # other keys without a value say nothing
            try:
                values[key] = checked(key, plain(value))
            except ValueError as error:
                raise keys.refusal(key, str(error)) from error
    return Given(values, {key: keys.place(key) for key in values})


def _space_of(section: Section) -> dict[Steps, Any]:
    space: dict[Steps, Any] = {}
    for path, value, place in _parameters(section, ()):
        if path in space:
            raise ValueError(f"{place}: {dotted(path)} is given twice; give it once")
        space[path] = value
    return space


def _parameters(section: Section, above: Steps) -> Iterator[tuple[Steps, Any, str]]:
    for key, value in section.items():
        try:
            path = (*above, *path_of(key))
            read = value_of(value) if isinstance(value, str) else value
        except ValueError as error:
            raise section.refusal(key, f"{key}: {error}") from error
        if isinstance(value, Section):
            _check_nested(key, value, section)
            yield from _parameters(value, path)
        elif isinstance(value, list):
            raise section.refusal(
                key,
                f"{key} must be a domain or a constant, got the list {value!r}; write "
                f"choice({', '.join(map(str, value))}), which samples one, or grid_search(...), "
                "which tries all",
            )
        else:
            yield path, read, section.place(key)


def _check_nested(key: str, value: Section, section: Section) -> None:
    """Refuse a mapping by which other tools describe a domain."""
    meant = next((domain for names, domain in _DESCRIPTIONS.items() if {*names} <= {*value}), None)
    has_inner = any(isinstance(inner, Section) for inner in value.values())
    if meant and value.keys() <= _DESCRIBING and not has_inner:
        raise section.refusal(
            key,
            f"{key} must be a domain such as {meant}, got the mapping {plain(value)!r}; a mapping "
            "holds the parameters of a nested name",
        )
