"""Keys of a result, and its flattened form, which schedulers, searchers and tables see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

TRAINING_ITERATION = "training_iteration"
"""Count of the trial's results, from 1, or what training code reports by this name if it grows.

Continues over retries and restores from the checkpoint's count.
"""
SHOULD_CHECKPOINT = "should_checkpoint"
"""Set to True by a trainable's result or by a callback to ask for a checkpoint at this result."""
DONE = "done"
"""True in a result after which the trial has nothing left to do."""
CHECKPOINT_DIR_NAME = "checkpoint_dir_name"
TRIAL_ID = "trial_id"
DATE = "date"
TIMESTAMP = "timestamp"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TIME_SINCE_RESTORE = "time_since_restore"
ITERATIONS_SINCE_RESTORE = "iterations_since_restore"
"""How far ``training_iteration`` has come since the attempt began."""
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
TIMESTEPS_TOTAL = "timesteps_total"
EPISODES_THIS_ITER = "episodes_this_iter"
EPISODES_TOTAL = "episodes_total"
PID = "pid"
HOSTNAME = "hostname"
NODE_IP = "node_ip"
CONFIG = "config"
NUM_EXPLOITS = "num_exploits"
"""How often the trial had continued from another trial's checkpoint before this result.

It tells the rows of one iteration apart: after an exploit, iterations continue from the donor's.
"""
EXPERIMENT_TAG = "experiment_tag"
DEFAULT_METRIC = "_metric"
"""The name under which a bare number returned by a function is reported."""

AUTO_FILLED = frozenset(
    {
        TRAINING_ITERATION, SHOULD_CHECKPOINT, DONE, CHECKPOINT_DIR_NAME, TRIAL_ID, DATE, TIMESTAMP,
        TIME_THIS_ITER_S, TIME_TOTAL_S, TIME_SINCE_RESTORE, ITERATIONS_SINCE_RESTORE,
        TIMESTEPS_THIS_ITER, TIMESTEPS_TOTAL, EPISODES_THIS_ITER, EPISODES_TOTAL, PID, HOSTNAME,
        NODE_IP, NUM_EXPLOITS, CONFIG, EXPERIMENT_TAG,
    }
)  # fmt: skip
"""Keys that the engine adds to every result; all others are the user's metrics."""

SUPPLIED_BY_USER = frozenset(
    {
        DONE,
        SHOULD_CHECKPOINT,
        TIME_THIS_ITER_S,
        TIMESTAMP,
        TIMESTEPS_THIS_ITER,
        TIMESTEPS_TOTAL,
        EPISODES_THIS_ITER,
        EPISODES_TOTAL,
    }
)
"""Auto-filled keys that a trainable may report itself, to override or to be accumulated."""

_IDENTITY = (TRAINING_ITERATION, TIMESTAMP, TIME_TOTAL_S)

MAX_SIZE_BYTES = 1 << 20
"""How large a result may be as JSON."""
DELIMITER = "/"
SCALARS = frozenset({float, int, str, bool, type(None)})
"""The classes of what nearly every result consists of."""


def identity(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a result of a trial: its iteration and its times."""
    return tuple(map(result.get, _IDENTITY))


def is_same_report(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two results are the same report, judged by iteration and times.

    The iteration alone does not: an attempt that is over may have reported the same one.
    """
    return identity(one) == identity(other)


def flatten(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with nested keys joined to ``"a/b"``; an empty dictionary has no key."""
    # Asked several times for each result, and nearly always true; a loop in Python takes three
    # times as long.
    if SCALARS.issuperset(map(type, result.values())):
        return dict(result)
    flat: dict[str, Any] = {}
    _add_leaves(result, "", flat)
    return flat


def _add_leaves(node: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
    for key, value in node.items():
        if isinstance(value, dict):
            _add_leaves(value, f"{prefix}{key}{DELIMITER}", flat)
        else:
            flat[f"{prefix}{key}"] = value


def merged(result: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested result with the metrics of its checkpoint's validation.

    Of equal names the validation's value counts, except for those that the engine fills in.

    Example:
        >>> merged({"loss": 0.5, "val": {"acc": 0.1}, "pid": 7}, {"val": {"f1": 0.3}, "pid": 8})
        {'loss': 0.5, 'val': {'acc': 0.1, 'f1': 0.3}, 'pid': 7}
    """
    return _joined(
        result, {name: value for name, value in metrics.items() if name not in AUTO_FILLED}
    )


def _joined(node: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(node)
    for name, value in other.items():
        before = joined.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            joined[name] = _joined(before, value)
        else:
            joined[name] = value
    return joined


def with_own_containers(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with its own dictionaries, lists and tuples; all other values are shared."""
    return {
        key: value if value.__class__ in SCALARS else _copied(value)
        for key, value in result.items()
    }


def _copied(value: Any) -> Any:
    if value.__class__ is dict:
        return with_own_containers(value)
    if value.__class__ in (list, tuple):
        return value.__class__(map(_copied, value))
    return value


def as_float(value: Any) -> float:
    """Return a number as a float, an infinite one where it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
