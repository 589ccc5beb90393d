"""List of an experiment's callbacks: calls their hooks in order and isolates their errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal

from tuner.callbacks.files.trial_file import TrialFileLogger
from tuner.core.result import SHOULD_CHECKPOINT, with_own_containers

from .callback import Callback, LoggerCallback
from .logger_group import GROUPED, LoggerGroup, groups_of

Hook = Literal[
    "setup",
    "on_step_begin",
    "on_step_end",
    "on_trial_start",
    "on_trial_restore",
    "on_trial_save",
    "on_trial_result",
    "on_trial_complete",
    "on_trial_recover",
    "on_trial_error",
    "on_checkpoint",
    "on_checkpoint_validated",
    "on_trial_exploit",
    "on_experiment_end",
]
"""The name of a hook of `Callback`."""

HOOKS: tuple[Hook, ...] = Hook.__args__  # type: ignore[attr-defined]

_FORWARDS = {**GROUPED, "on_trial_restore": "log_trial_restore", "on_trial_save": "log_trial_save"}
"""The method to which `LoggerCallback` forwards each hook."""

_Overrider = tuple[Sequence[Callback], Callable[..., None], bool]
"""Callbacks, the function that is called for them, and whether it writes files."""

_log = logging.getLogger("tuner")


class CallbackList:
    """Calls the hooks of many callbacks, in their order.

    If a callback raises, that is logged once on the logger ``tuner``, with its traceback, and it is
    never called again; neither the experiment nor other callbacks are affected. Hooks that a
    callback does not override cost nothing.

    Args:
        callbacks: The callbacks, the user's before the loggers, so that loggers log the changes
            that the others make in the copy of a result.

    Attributes:
        file_logging_s: Seconds spent in the hooks of loggers that write files.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        self.file_logging_s = 0.0
        self._groups = list(groups_of(self._callbacks, self._switch_off))
        self._overriders: dict[Hook, list[_Overrider]] = {}
        self._may_change_results = False
        """Whether any callback gets results besides grouped loggers, which only read them."""
        self._index()

    def has(self, hook: Hook) -> bool:
        """Return whether any callback overrides the hook."""
        return bool(self._overriders[hook])

    def call(self, hook: Hook, **info: Any) -> None:
        """Call the hook of each callback that overrides it, with these keyword arguments."""
        # The index is replaced, never changed, when a callback fails, so iterating over the old one
        # is safe.
        for overrider in self._overriders[hook]:
            self._call_one(overrider, hook, info)

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> str:
        """Call ``on_trial_result`` and return the class that requested a checkpoint, or ``""``.

        Args:
            result: The result, which is not changed: callbacks get a copy, in which later ones see
                the changes of earlier ones.
            **info: ``iteration``, ``trials``, ``trial``, and for a group of workers
                ``rank_metrics``, which `UserCallback` alone is given.
        """
        rank_metrics = info.pop("rank_metrics", None)
        if self._may_change_results:
            result = with_own_containers(result)
        was_requested = bool(result.get(SHOULD_CHECKPOINT))
        arguments, asker = {**info, "result": result}, ""
        for overrider in self._overriders["on_trial_result"]:
            wants_ranks = rank_metrics and overrider[0][0].takes_rank_metrics
            own = {**arguments, "rank_metrics": rank_metrics} if wants_ranks else arguments
            self._call_one(overrider, "on_trial_result", own)
            if not (was_requested or asker) and result.get(SHOULD_CHECKPOINT):
                asker = type(overrider[0][0]).__name__
        return asker if result.get(SHOULD_CHECKPOINT) else ""

    def get_state(self) -> list[dict[str, Any]]:
        """Return the states of the callbacks that have one, as JSON values."""
        states = []
        for callback in list(self._callbacks):
            try:
                state = callback.get_state()
            except Exception as error:  # noqa: BLE001  (as in `call`)
                self._switch_off(callback, "get_state", error)
                continue
            if state is not None:
                states.append({"callback": _qualified_name(callback), "state": state})
        return states

    def set_state(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Restore the states that `get_state` returned.

        Callbacks of the same class are matched in their order. A state without a callback is
        ignored.
        """
        waiting = list(self._callbacks)
        for record in states:
            owner = next(
                (
                    callback
                    for callback in waiting
                    if _qualified_name(callback) == record["callback"]
                ),
                None,
            )
            if owner is None:
                continue
            waiting.remove(owner)
            try:
                owner.set_state(record["state"])
            except Exception as error:  # noqa: BLE001  (as in `call`)
                self._switch_off(owner, "set_state", error)

    def _call_one(self, overrider: _Overrider, hook: Hook, info: Mapping[str, Any]) -> None:
        owners, method, writes_files = overrider
        started_s = perf_counter() if writes_files else None
        try:
            method(**info)
        except Exception as error:  # noqa: BLE001  (a user's callback may raise anything)
            for owner in owners:
                self._switch_off(owner, hook, error)
        if started_s is not None:
            self.file_logging_s += perf_counter() - started_s

    def _index(self) -> None:
        self._overriders = {hook: [] for hook in HOOKS}
        for callback in self._callbacks:
            group = self._group_of(callback)
            for hook, overriders in self._overriders.items():
                if group and hook in GROUPED:
                    if callback is group.members[0]:
                        overriders.append((group.members, getattr(group, hook), True))
                elif overrides(callback, hook):
                    overriders.append(
                        ([callback], getattr(callback, hook), isinstance(callback, TrialFileLogger))
                    )
        self._may_change_results = any(
            self._group_of(owners[0]) is None
            for owners, _, _ in self._overriders["on_trial_result"]
        )

    def _group_of(self, callback: Callback) -> LoggerGroup | None:
        return next(
            (
                group
                for group in self._groups
                if any(member is callback for member in group.members)
            ),
            None,
        )

    def _switch_off(self, callback: Callback, where: str, error: Exception) -> None:
        self._callbacks = [other for other in self._callbacks if other is not callback]
        if group := self._group_of(callback):
            group.members = [member for member in group.members if member is not callback]
        self._index()
        _log.warning(
            "%s.%s raised %s and is switched off; the experiment continues without it",
            type(callback).__name__,
            where,
            type(error).__name__,
            exc_info=error,
        )


def overrides(callback: Callback, hook: Hook) -> bool:
    """Return whether the hook does more than forward to a method that is not overridden."""
    function = _function(callback, hook)
    if function is None or function is getattr(Callback, hook):
        return False
    if function is not getattr(LoggerCallback, hook):
        return True
    forward = _FORWARDS[hook]
    return _function(callback, forward) is not getattr(LoggerCallback, forward)


def _function(callback: Callback, name: str) -> Any:
    method = getattr(callback, name, None)
    return getattr(method, "__func__", method)


def _qualified_name(callback: Callback) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"
