"""Python code that declares the experiment recorded in an ``experiment.json`` again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import schedulers
import searchers
from tuner.core.settings import ExperimentSettings
from tuner.spec.argument_codec import (
    KINDS,
    SPACE,
    TAG,
    code_of,
    default_note,
    fields_of,
    known_class,
    name_of_several,
)

_TUNE, _RUN = "TuneConfig", "RunConfig"
_CONFIGS: Final = (_TUNE, _RUN, "CheckpointConfig", "FailureConfig")
"""Classes of which all fields are recorded, and not only those that were given."""
_NOT_OF_THE_SEARCH: Final = frozenset({"callbacks", "verbose", "if_exists"})
"""Fields of a run's configuration that do not affect what is searched."""


def as_code(declaration: Mapping[str, Any], requests: Iterable[Mapping[str, float]] = ()) -> str:
    """Return Python code that declares the same experiment again.

    Where ``experiment.json`` has only a description, as of the user's functions, the code has
    ``...`` and a comment that names what is missing.

    Args:
        declaration: What `read_declaration` returned.
        requests: The resources that each trial requested; the declaration has only those that do
            not depend on a configuration.
    """
    trainable = declaration.get("trainable") or {}
    name = _trainable_name(trainable)
    space, tune, run = (
        declaration.get(part) or {} for part in ("param_space", "tune_config", "run_config")
    )
    tune_fields = _non_defaults(_TUNE, tune) | {"seed": declaration.get("seed")}
    run_fields = {
        field: value
        for field, value in _non_defaults(_RUN, run).items()
        if field not in _NOT_OF_THE_SEARCH
    }
    settings = declaration.get("settings") or {}
    request = settings.get("default_request")
    # A request for the default resources needs no with_resources, and a trainer has its own.
    has_request = (
        request is not None
        and request != ExperimentSettings({}).default_request
        and "default_group" not in settings
    )
    trainer = _trainer(trainable)
    what = f"{trainer}({name}, scaling_config=...)" if trainer else name
    arguments = [
        f"tune.with_resources({name}, {expression(request)})" if has_request else what,
        f"param_space={_mapping(space, 4)}",
        f"tune_config={_config(_TUNE, tune_fields)}",
        *([f"run_config={_config(_RUN, run_fields)}"] if run_fields else []),
    ]
    missing = [
        *(f"{place} was {what}; it has" for place, what in _absent(space, "param_space")),
        *(f"{what} has" for _, what in _absent([tune_fields, run_fields], "")),
        *(f"callback {what} has" for _, what in _absent(run.get("callbacks"), "")),
    ]
    comments = [f"# {subject} to be given again" for subject in missing]
    if len({tuple(sorted(request.items())) for request in requests}) > 1:
        comments.append(
            "# the function that chose the resources of each trial has to be given again, with "
            "tune.with_resources"
        )
    trainable_import = [*_trainable_import(trainable, name)]
    if trainer:
        comments.append(f"# all arguments of {trainer} have to be given again")
    if not trainable_import:
        where = f"{trainable.get('qualname')!r} in {trainable.get('module')!r}"
        comments.append(f"# {name} is the training code, {where}; it has to be given again")
    return "\n".join(
        [
            "import tuner as tune",
            *_imports([space, tune_fields, run_fields]),
            *_trainer_import(trainable),
            *trainable_import,
            "",
            *comments,
            "tuner = tune.Tuner(",
            *(f"    {argument}," for argument in arguments),
            ")",
            "results = tuner.fit()",
        ]
    )


def expression(recorded: Any) -> str:
    """Return the Python expression for one recorded value.

    Example:
        >>> expression({"@": "Float", "lower": 1e-05, "upper": 1.0, "q": None, "is_log": True})
        'tune.loguniform(1e-05, 1.0)'
        >>> expression({"@": "ASHAScheduler", "max_t": 81})
        'ASHAScheduler(max_t=81)'
    """
    match recorded:
        case {"@": str(name)} if name in _EXPRESSIONS:
            return _EXPRESSIONS[name](recorded)
        case {"@": str(name)} if name not in KINDS:
            return _call(name, fields_of(recorded))
        case {"grid_search": list(values)} if len(recorded) == 1:
            return f"tune.grid_search({expression(values)})"
        case float() if not math.isfinite(recorded):
            return f"float({str(recorded)!r})"
        case _:
            return code_of(recorded, expression)


def _mapping(recorded: Mapping[str, Any], indent: int) -> str:
    """Return a dictionary with a line for each key, also for nested ones without a tag."""
    if not recorded or TAG in recorded or "grid_search" in recorded:
        return expression(recorded)
    pad = " " * indent
    lines = [
        f"{pad}    {key!r}: "
        f"{_mapping(value, indent + 4) if isinstance(value, dict) else expression(value)},"
        for key, value in recorded.items()
    ]
    return "\n".join(["{", *lines, f"{pad}}}"])


def _config(kind: str, fields: Mapping[str, Any]) -> str:
    given = [f"        {name}={expression(value)}," for name, value in fields.items()]
    return "\n".join([f"tune.{kind}(", *given, "    )"])


def _call(name: str, fields: Mapping[str, Any]) -> str:
    given = _non_defaults(name, fields) if name in _CONFIGS else dict(fields)
    kind = known_class(name)
    # The arguments of *args are recorded as a tuple under the parameter's name.
    several = (given.pop(name_of_several(kind), None) if kind else None) or {}
    listed = [
        *map(expression, several.get("items", ())),
        *(f"{key}={expression(value)}" for key, value in given.items()),
    ]
    return f"{name if _home(name) else f'tune.{name}'}({', '.join(listed)})"


def _non_defaults(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a recorded configuration that differ from their defaults."""
    defaults = default_note(kind)
    # Compared as text, by which 0 differs from False, and 1.0 from 1.
    return {
        name: value
        for name, value in fields.items()
        if name != TAG and not (name in defaults and repr(defaults[name]) == repr(value))
    }


def _interval(kind: str, fields: Mapping[str, Any]) -> str:
    lower, upper, q = fields["lower"], fields["upper"], fields.get("q")
    is_integer = kind == "randint"
    has_steps = q not in (None, 1) if is_integer else q is not None
    function = f"{'q' if has_steps else ''}{'log' if fields.get('is_log') else ''}{kind}"
    # An Integer includes its upper end, which tune.randint excludes and tune.qrandint includes.
    ends = [lower, upper, q] if has_steps else [lower, upper + is_integer]
    return f"tune.{function}({', '.join([*map(expression, ends), *_prior(fields)])})"


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


_EXPRESSIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "absent": lambda _: "...",
    "Float": lambda fields: _interval("uniform", fields),
    "Integer": lambda fields: _interval("randint", fields),
    "Categorical": lambda fields: _choice(fields, "categories"),
    "Branching": lambda fields: _choice(fields, "options"),
    "Normal": _normal,
    "OnlyIf": lambda fields: (
        f"tune.only_if({expression(fields['conditions'])}, {expression(fields['node'])})"
    ),
    SPACE: lambda fields: (
        f"tune.Space({_mapping(fields['space'], 4)}, where={expression(fields['where'])})"
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
    names = sorted({str(node[TAG]) for part in parts for node in _nodes(part) if TAG in node})
    if "path" in names:
        yield "import pathlib"
    for package in ("schedulers", "searchers"):
        found = [name for name in names if name not in _EXPRESSIONS and _home(name) == package]
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
    # Neither a script nor a local function nor a lambda can be imported.
    if (
        module != "__main__"
        and trainable.get("qualname") == name
        and all(part.isidentifier() for part in [*module.split("."), name])
    ):
        yield f"from {module} import {name}"


def _trainer(trainable: Mapping[str, Any]) -> str:
    """Return the name of the trainer's class, empty without a trainer."""
    return str(trainable.get("trainer") or "").rpartition(".")[2]


def _trainer_import(trainable: Mapping[str, Any]) -> Iterator[str]:
    steps = str(trainable.get("trainer") or "").split(".")
    if len(steps) > 1 and steps[0] != "__main__" and all(step.isidentifier() for step in steps):
        yield f"from {'.'.join(steps[:-1])} import {steps[-1]}"


def _nodes(recorded: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(recorded, dict):
        yield recorded
        recorded = list(recorded.values())
    if isinstance(recorded, list):
        for inner in recorded:
            yield from _nodes(inner)


def _absent(recorded: Any, place: str) -> Iterator[tuple[str, str]]:
    match recorded:
        case {"@": "absent", "what": what}:
            yield place, str(what)
        case dict():
            for key, value in recorded.items():
                yield from _absent(value, f"{place}[{key!r}]")
        case list():
            for index, value in enumerate(recorded):
                yield from _absent(value, f"{place}[{index}]")
        case _:
            pass
