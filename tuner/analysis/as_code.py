"""What ``experiment.json`` declares, written as the Python code that declares it."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import schedulers
import searchers
from tuner.core import stoppers
from tuner.core.settings import ExperimentSettings

_TAG: Final = "@"
_TUNE, _RUN = "TuneConfig", "RunConfig"
_CONFIGS: Final = (_TUNE, _RUN, "CheckpointConfig", "FailureConfig")
"""Classes of which all fields are noted, and not only those that were given."""
_OF_ONE_RUN: Final = frozenset({"callbacks", "verbose", "if_exists"})
"""Fields that have no part in what is searched."""


def as_code(declaration: Mapping[str, Any], requests: Iterable[Mapping[str, float]] = ()) -> str:
    """Return Python code that declares the same experiment again.

    What ``experiment.json`` only describes, such as functions of the user's, stands there as
    ``...`` behind a comment that names it.

    Args:
        declaration: What `read_declaration` returned.
        requests: The resources that the trials asked for, of which the declaration has but those
            that no configuration decides.
    """
    trainable = declaration.get("trainable") or {}
    name = _trainable_name(trainable)
    space, tune, run = (
        declaration.get(part) or {} for part in ("param_space", "tune_config", "run_config")
    )
    chosen = _differing(_TUNE, tune) | {"seed": declaration.get("seed")}
    limits = {
        field: value for field, value in _differing(_RUN, run).items() if field not in _OF_ONE_RUN
    }
    request = (declaration.get("settings") or {}).get("default_request")
    has_request = request is not None and request != ExperimentSettings({}).default_request
    trained = f"tune.with_resources({name}, {expression(request)})" if has_request else name
    arguments = [
        trained,
        f"param_space={_mapping(space, 4)}",
        f"tune_config={_config(_TUNE, chosen)}",
    ]
    if limits:
        arguments.append(f"run_config={_config(_RUN, limits)}")
    parts = [space, chosen, limits]
    unknown = [
        f"# {place} was {what}; it has to be given again"
        for place, what in _absent(space, "param_space")
    ]
    unknown += [
        f"# {what} has to be given again"
        for part in (chosen, limits)
        for _, what in _absent(part, "")
    ]
    unknown += [
        f"# callback {what} has to be given again" for _, what in _absent(run.get("callbacks"), "")
    ]
    if len({tuple(sorted(request.items())) for request in requests}) > 1:
        unknown.append(
            "# the function that chose the resources of each trial has to be given again, with "
            "tune.with_resources"
        )
    imported = [*_trainable_import(trainable, name)]
    if not imported:
        where = f"{trainable.get('qualname')!r} in {trainable.get('module')!r}"
        unknown.append(f"# {name} is the training code, {where}; it has to be given again")
    lines = ["import tuner as tune", *_imports(parts), *imported, "", *unknown]
    return "\n".join(
        [
            *lines,
            "tuner = tune.Tuner(",
            *(f"    {argument}," for argument in arguments),
            ")",
            "results = tuner.fit()",
        ]
    )


def expression(noted: Any) -> str:
    """Return the Python expression for one declared value.

    Example:
        >>> expression({"@": "Float", "lower": 1e-05, "upper": 1.0, "q": None, "is_log": True})
        'tune.loguniform(1e-05, 1.0)'
        >>> expression({"@": "AsyncHyperBandScheduler", "max_t": 81})
        'AsyncHyperBandScheduler(max_t=81)'
    """
    match noted:
        case {"@": str(name)}:
            fields = {key: value for key, value in noted.items() if key != _TAG}
            return _WORDS[name](fields) if name in _WORDS else _call(name, fields)
        case {"grid_search": list(values)} if len(noted) == 1:
            return f"tune.grid_search({expression(values)})"
        case dict():
            return (
                f"{{{', '.join(f'{key!r}: {expression(value)}' for key, value in noted.items())}}}"
            )
        case list():
            return f"[{', '.join(map(expression, noted))}]"
        case float() if not math.isfinite(noted):
            return f"float({str(noted)!r})"
        case _:
            return repr(noted)


def _mapping(noted: Mapping[str, Any], indent: int) -> str:
    """Return a dictionary with a line for each key; nested ones without a tag likewise."""
    if not noted or _TAG in noted or "grid_search" in noted:
        return expression(noted)
    pad = " " * indent
    lines = [
        f"{pad}    {key!r}: "
        f"{_mapping(value, indent + 4) if isinstance(value, dict) else expression(value)},"
        for key, value in noted.items()
    ]
    return "\n".join(["{", *lines, f"{pad}}}"])


def _config(kind: str, fields: Mapping[str, Any]) -> str:
    given = [f"        {name}={expression(value)}," for name, value in fields.items()]
    return "\n".join([f"tune.{kind}(", *given, "    )"])


def _call(name: str, fields: Mapping[str, Any]) -> str:
    given = _differing(name, fields) if name in _CONFIGS else dict(fields)
    positional = [
        item for key in _positional(name) for item in (given.pop(key, None) or {}).get("items", ())
    ]
    listed = [
        *map(expression, positional),
        *(f"{key}={expression(value)}" for key, value in given.items()),
    ]
    return f"{name if _home(name) else f'tune.{name}'}({', '.join(listed)})"


def _differing(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a noted configuration that are not what they are by default."""
    # Looked up where the code will look them up: the classes lie on a floor above this one.
    defaults = getattr(importlib.import_module("tuner"), kind)()
    return {
        name: value
        for name, value in fields.items()
        if name != _TAG and not _is_noted_as(getattr(defaults, name, ...), value)
    }


def _is_noted_as(value: Any, noted: Any) -> bool:
    """Return whether a default value equals a recorded one in type and value.

    0 differs from False, and 1.0 from 1.
    """
    if type(value) is tuple:
        items = (
            noted.get("items", ()) if isinstance(noted, dict) and noted.get(_TAG) == "tuple" else ()
        )
        return len(items) == len(value) and all(map(_is_noted_as, value, items))
    return value == noted and isinstance(value, bool) == isinstance(noted, bool)


def _positional(name: str) -> Iterator[str]:
    """Yield the parameter of a class that takes any number of positional arguments."""
    kind = next(
        (getattr(face, name) for face in (schedulers, searchers, stoppers) if hasattr(face, name)),
        None,
    )
    for parameter in inspect.signature(kind).parameters.values() if kind else ():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield parameter.name


def _interval(kind: str, fields: Mapping[str, Any]) -> str:
    lower, upper, q = fields["lower"], fields["upper"], fields.get("q")
    is_integer = kind == "randint"
    has_steps = q not in (None, 1) if is_integer else q is not None
    word = f"{'q' if has_steps else ''}{'log' if fields.get('is_log') else ''}{kind}"
    ends = [lower, upper, q] if has_steps else [lower, upper + is_integer]
    return f"tune.{word}({', '.join([*map(expression, ends), *_prior(fields)])})"


def _prior(fields: Mapping[str, Any]) -> Iterator[str]:
    if fields.get("prior") is not None:
        yield f"prior={expression(fields['prior'])}"
        yield f"prior_confidence={expression(fields.get('prior_confidence'))}"


def _choice(fields: Mapping[str, Any], name: str) -> str:
    listed = fields[name]
    options = expression(listed["items"] if isinstance(listed, dict) else listed)
    ordered = ["ordered=True"] if fields.get("is_ordered") else []
    return f"tune.choice({', '.join([options, *ordered, *_prior(fields)])})"


def _normal(fields: Mapping[str, Any]) -> str:
    steps = [fields["q"]] if fields.get("q") is not None else []
    arguments = ", ".join(map(expression, [fields["mean"], fields["sd"], *steps]))
    return f"tune.{'q' if steps else ''}randn({arguments})"


def _tuple(fields: Mapping[str, Any]) -> str:
    items = [expression(item) for item in fields["items"]]
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "absent": lambda _: "...",
    "tuple": _tuple,
    "dict": lambda fields: (
        "{"
        + ", ".join(f"{expression(key)}: {expression(value)}" for key, value in fields["items"])
        + "}"
    ),
    "path": lambda fields: f"pathlib.Path({fields['path']!r})",
    "timedelta": lambda fields: expression(fields["seconds"]),
    "Float": lambda fields: _interval("uniform", fields),
    "Integer": lambda fields: _interval("randint", fields),
    "Categorical": lambda fields: _choice(fields, "categories"),
    "Branching": lambda fields: _choice(fields, "options"),
    "Normal": _normal,
    "OnlyIf": lambda fields: (
        f"tune.only_if({expression(fields['conditions'])}, {expression(fields['node'])})"
    ),
    "Secret": lambda fields: f"tune.Secret({fields['name']!r})",
}


def _home(name: str) -> str | None:
    """Return the package from which a searcher or scheduler is imported.

    None for names that ``tuner`` itself exports.
    """
    homes = {"schedulers": schedulers.__all__, "searchers": searchers.__all__}
    return next((package for package, names in homes.items() if name in names), None)


def _imports(parts: Sequence[Any]) -> Iterator[str]:
    names = sorted({str(node[_TAG]) for part in parts for node in _nodes(part) if _TAG in node})
    if "path" in names:
        yield "import pathlib"
    for package in ("schedulers", "searchers"):
        found = [name for name in names if name not in _WORDS and _home(name) == package]
        if found:
            yield f"from {package} import {', '.join(found)}"


def _trainable_name(trainable: Mapping[str, Any]) -> str:
    """Return the name of the training code, ``train`` for a lambda.

    A local function is named without the function that it was defined in.
    """
    name = str(trainable.get("qualname") or "").removeprefix("<lambda>").rpartition("<locals>.")[2]
    return name if name and all(part.isidentifier() for part in name.split(".")) else "train"


def _trainable_import(trainable: Mapping[str, Any], name: str) -> Iterator[str]:
    module = str(trainable.get("module") or "")
    if (
        module != "__main__"
        and trainable.get("qualname") == name
        and all(part.isidentifier() for part in [*module.split("."), name])
    ):
        yield f"from {module} import {name}"


def _nodes(noted: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(noted, dict):
        yield noted
    for inner in (
        noted.values() if isinstance(noted, dict) else noted if isinstance(noted, list) else ()
    ):
        yield from _nodes(inner)


def _absent(noted: Any, place: str) -> Iterator[tuple[str, str]]:
    match noted:
        case {"@": "absent", "what": what}:
            yield place, str(what)
        case dict():
            for key, value in noted.items():
                yield from _absent(value, f"{place}[{key!r}]")
        case list():
            for index, value in enumerate(noted):
                yield from _absent(value, f"{place}[{index}]")
        case _:
            pass
