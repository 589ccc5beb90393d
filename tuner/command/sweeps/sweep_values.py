"""The keys of a sweep, and checks of their values, one by one."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from schedulers.by_name import scheduler_class
from searchers.by_name import searcher_class
from searchers.objectives.outcome_constraint import comparisons, outcome_constraints
from searchers.space import Path, is_word
from tuner.callbacks.formatting import seconds_of
from tuner.cluster.cluster import Cluster, cluster_at
from tuner.command.reports import compiled
from tuner.spec.config import AUTO, NEVER, FailureConfig, RunConfig, TuneConfig
from tuner.stopping.stop_search import StopSearch

from .space_text import path_of, space_of, value_of

TYPE: Final = "type"
"""The argument of a scheduler or searcher that is its short name."""
_MAX_S: Final = 1e9
_BOUNDED: Final = re.compile(r"\s*(.*?\S)\s*([<>]=.*)")
_MEANT: Final = {
    "direction": "mode",
    "early_terminate": "scheduler",
    "goal": "mode",
    "method": "searcher",
    "n": "num_samples",
    "n_trials": "num_samples",
    "objective": "metric",
    "parameters": "space",
    "params": "space",
    "program": "command",
    "run_cap": "num_samples",
    "samples": "num_samples",
    "search_space": "space",
    "timeout": "time_limit",
    "trials": "num_samples",
}
"""What other tools call these keys."""


def _refusal(accepted: str, value: Any, remedy: str = "") -> ValueError:
    return ValueError(f"must be {accepted}, got {value!r}{f'; {remedy}' if remedy else ''}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        is_word = isinstance(value, int | float)
        raise _refusal("a text", value, "put it in quotes" if is_word else "")
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refusal("true or false", value)
    return value


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise _refusal("a number of at least 0", value)
    return value


def _seconds(value: Any) -> float:
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(value, str) and seconds is None:
        try:
            seconds = float(value)
        except ValueError:
            seconds = None
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < _MAX_S
    ):
        raise _refusal("a number of seconds, or a text such as 1h30m", value)
    return float(seconds)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refusal("a whole number of at least 0", value)
    return value


def _iterations(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise _refusal("a number of iterations", value)
    return int(value) if value == int(value) else value


def _mapping(one: Callable[[Any], Any], example: str) -> Callable[[Any], dict[str, Any]]:
    """Return a check of a mapping whose values another check takes."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _refusal(f"a mapping such as {example}", value)
        found = {}
        for name, inner in value.items():
            try:
                found[str(name)] = one(inner)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from error
        return found

    return check


def _variable(value: Any) -> str:
    if isinstance(value, Mapping | list) or value is None:
        raise _refusal("a text", value, "put it in quotes")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limit(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refusal("a number, or a comparison such as '<= 0.1'", value)
    try:
        RunConfig(stop={"": value})
    except ValueError as error:
        raise ValueError(str(error).removeprefix("stop[''] ")) from error
    return value


def _command(value: Any) -> str | list[str]:
    if isinstance(value, str) and value.strip():
        return value
    words = [_word(one) for one in value] if isinstance(value, list | tuple) else []
    if not words:
        raise _refusal("a text such as python train.py --lr {lr}, or a list of words", value)
    return words


def _word(value: Any) -> str:
    # In YAML, - {lr} is a mapping.
    if isinstance(value, Mapping) and len(value) == 1 and [*value.values()] == [None]:
        return f"{{{next(iter(value))}}}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _refusal("words", value, "put them in quotes")
    return str(value)


def _patterns(value: Any) -> list[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) for one in patterns):
        raise _refusal("a regular expression, or a list of some", value)
    try:
        compiled(list(patterns))
    except ValueError as error:
        raise ValueError(str(error).removeprefix("report ")) from error
    return list(patterns)


def _progress(value: Any) -> str | None:
    return None if value in (None, "none") else _text(value)


def _algorithm(kinds: Callable[[str], Any], what: str) -> Callable[[Any], dict[str, Any]]:
    def check(value: Any) -> dict[str, Any]:
        given = {TYPE: value} if isinstance(value, str) else value
        if not isinstance(given, Mapping) or not isinstance(given.get(TYPE), str):
            raise _refusal(f"the name of a {what}, or a mapping with its name as type", value)
        if given[TYPE] != AUTO:
            try:
                kinds(given[TYPE])
            except ValueError as error:
                raise ValueError(str(error).removeprefix("name ")) from error
        return dict(given)

    return check


def _points(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise _refusal("a list of configurations such as {lr: 0.1}", value)
    return [space_of(_flat(one)) for one in value]


def _flat(point: Mapping[str, Any], above: Path = ()) -> Iterable[tuple[Path, Any]]:
    for name, value in point.items():
        path = (*above, *path_of(name))
        if isinstance(value, Mapping):
            yield from _flat(value, path)
            continue
        read = value_of(value) if isinstance(value, str) else value
        if is_word(read):
            raise ValueError(f"must have values, got {value!r}; domains belong into the space")
        yield path, read


def _cluster(value: Any) -> Cluster:
    if isinstance(value, Cluster):
        return value
    try:
        return cluster_at(_text(value))
    except TypeError as error:
        raise ValueError(str(error)) from error


def _of_settings(kind: Any, name: str) -> Callable[[Any], Any]:
    """Return a check that the settings of an experiment make."""

    def check(value: Any) -> Any:
        try:
            kind(**{name: value})
        except (TypeError, ValueError) as error:
            raise ValueError(re.sub(rf"^{name} ", "", str(error))) from error
        return value

    return check


def _stop_search(value: Any) -> Any:
    if value in (AUTO, NEVER):
        return value
    given = {"patience": value} if isinstance(value, int | str) else value
    if isinstance(value, str) and value.isdecimal():
        given = {"patience": int(value)}
    if not isinstance(given, Mapping) or isinstance(given.get("patience"), str):
        raise _refusal(
            "auto, never, a number of trials, or a mapping such as {patience: 30, min_delta: 0.01}",
            value,
        )
    try:
        return StopSearch(**given)
    except TypeError as error:
        raise ValueError(str(error).replace("StopSearch.__init__()", "mapping")) from error


def _metric(value: Any) -> str | list[str]:
    """Return a metric, or several."""
    names = [_text(one) for one in value] if isinstance(value, list) and value else [_text(value)]
    return names[0] if len(names) == 1 else names


def _mode(value: Any) -> Any:
    """Return a mode, or one for each of several metrics."""
    check = _of_settings(TuneConfig, "mode")
    modes = [check(one) for one in value] if isinstance(value, list) and value else [check(value)]
    return modes[0] if len(modes) == 1 else modes


def _constraints(value: Any) -> dict[str, Any]:
    """Return comparisons by metric, of a mapping or of texts such as ``size_mb <= 4``."""
    if isinstance(value, list):
        found = [_BOUNDED.fullmatch(_text(one)) for one in value]
        if not all(found):
            raise _refusal("comparisons such as 'size_mb <= 4'", value)
        value = {}
        for one in filter(None, found):
            value.setdefault(one[1], []).append(one[2])
    if not isinstance(value, Mapping):
        raise _refusal("a mapping such as {size_mb: '<= 4'}", value)
    try:
        return comparisons(outcome_constraints(value))
    except (TypeError, ValueError) as error:
        raise ValueError(str(error).removeprefix("constraints")) from error


def _no_space(value: Any) -> Any:
    raise _refusal("a mapping such as lr: loguniform(1e-5, 1e-1)", value)


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "space": _no_space,  # mappings are read by `space_text`
    "where": _text,
    "command": _command,
    "name": _of_settings(RunConfig, "name"),
    "metric": _metric,
    "mode": _mode,
    "constraints": _constraints,
    "num_samples": _of_settings(TuneConfig, "num_samples"),
    "scheduler": _algorithm(scheduler_class, "scheduler"),
    "searcher": _algorithm(searcher_class, "searcher"),
    "max_t": _iterations,
    "points": _points,
    "report": _patterns,
    "report_file": _text,
    "progress": _progress,
    "checkpoints": _switch,
    "shell": _switch,
    "env": _mapping(_variable, "{OMP_NUM_THREADS: 1}"),
    "variables": _switch,
    "cwd": _text,
    "grace_s": _amount,
    "allow_unused": _switch,
    "cpus": _amount,
    "gpus": _amount,
    "resources": _mapping(_amount, "{licence: 1}"),
    "total_resources": _mapping(_amount, "{cpu: 4}"),
    "stop": _mapping(_limit, "{training_iteration: 27}"),
    "max_concurrent": _of_settings(TuneConfig, "max_concurrent_trials"),
    "max_failures": _of_settings(FailureConfig, "max_failures"),
    "time_limit": _seconds,
    "stop_search": _stop_search,
    "budget": _of_settings(TuneConfig, "budget"),
    "trial_time_limit": _seconds,
    "storage": _of_settings(RunConfig, "storage_path"),
    "cluster": _cluster,
    "seed": _whole,
    "if_exists": _of_settings(RunConfig, "if_exists"),
}
KEYS: Final = tuple(_CHECKS)
"""The keys of a sweep file."""


def checked(key: str, value: Any, name: str = "") -> Any:
    """Return a value as `Sweep` has it; what is given here for a space is none.

    Args:
        key: One of `KEYS`.
        value: What a file or a flag says.
        name: How the message calls it; its key if empty.

    Raises:
        ValueError: If it is not accepted; begins with the name.
    """
    try:
        return _CHECKS[key](value)
    except ValueError as error:
        raise ValueError(f"{name or key} {error}") from error


def unknown_key(key: str) -> str:
    """Return the message about a key that there is not."""
    close = [_MEANT[key]] if key in _MEANT else difflib.get_close_matches(key, KEYS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(KEYS)}"
    return f"unknown key {key!r}; {hint}"
