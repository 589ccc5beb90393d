"""Adapter for schedulers with Ray Tune's signatures."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Never, final

from .decisions import Decision, Pause, Reason, Resume, Stop
from .scheduler import Scheduler, TrialView

_RESULT: Final = "on_trial_result"
_CHOOSE: Final = "choose_trial_to_run"
_HAS_RUN: Final = "_tuner_has_run"
"""Attribute that marks a scheduler as used, which its own attributes need not show."""
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_trial_add": ("tune_controller", "trial"),
    _RESULT: ("tune_controller", "trial", "result"),
    "on_trial_complete": ("tune_controller", "trial", "result"),
    "on_trial_error": ("tune_controller", "trial"),
    "on_trial_remove": ("tune_controller", "trial"),
    _CHOOSE: ("tune_controller",),
}
"""What Ray Tune passes to each method."""
_REMEDY: Final = "write it as a schedulers.Scheduler, which returns decisions instead"


class TrialScheduler:
    """Base of schedulers that were written for Ray Tune.

    A scheduler with these signatures, whether it derives from this class, from Ray Tune's or from
    none, is accepted by ``TuneConfig(scheduler=...)``. New ones are better written as a
    `Scheduler`: it decides about several trials at once, keeps its state through a restore without
    a replay, and gives reasons.

    The controller has ``get_trials``, ``get_live_trials``, ``get_trial``, ``stop_trial`` and
    ``pause_trial``; a trial has ``trial_id``, ``config`` and ``status``, which are not to
    be changed, ``last_result`` (the one before `result`), ``is_finished()`` and
    ``has_checkpoint()``. Anything else of them raises an `AttributeError` that says so.

    Departures:
        From Ray Tune: new trials start by themselves, in the order in which they were suggested;
        `choose_trial_to_run` is asked about those that are paused, when a slot is free and no new
        trial is to come before one of them continues. Unless it is overridden they continue in
        their order. ``save`` and ``restore`` are never called: a restored scheduler is given all
        facts again.
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    _metric: str | None = None
    _mode: str | None = None

    @property
    def metric(self) -> str | None:
        """Name of the metric, flattened."""
        return self._metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the experiment's metric and mode; return False if others are set already."""
        if (metric and self._metric) or (mode and self._mode):
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Handle a new trial."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Judge a flattened result; return `CONTINUE`, `PAUSE`, `STOP` or `NOOP`."""
        return self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Handle a running trial that has ended or was stopped."""

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Handle a trial that has failed for good."""

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Handle a paused trial that was stopped."""

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Return a paused trial to continue, or None."""
        return None

    def debug_string(self) -> str:
        """Return one line about the scheduler's state."""
        return type(self).__name__


def adapted(scheduler: Any) -> Any:
    """Return a scheduler for the engine; one with Ray Tune's signatures gets an adapter.

    Raises:
        TypeError: If it is a class, or has Ray Tune's signatures in some of its methods only.
    """
    if isinstance(scheduler, type) and callable(getattr(scheduler, _RESULT, None)):
        name = scheduler.__name__
        raise TypeError(
            f"scheduler must be an object, got the class {name}; call it: scheduler={name}(...)"
        )
    return TrialSchedulerAdapter(scheduler) if _has_ray_signatures(type(scheduler)) else scheduler


def _has_ray_signatures(kind: type) -> bool:
    if not callable(getattr(kind, _RESULT, None)) or issubclass(kind, TrialSchedulerAdapter):
        return False
    # A method with ``*arguments`` fits both signatures: the base class decides.
    is_ours = issubclass(kind, Scheduler) and _can_take(kind, _RESULT, _ARGUMENTS[_RESULT][1:])
    return not is_ours and _takes_controller(kind, _RESULT)


def _takes_controller(kind: type, method: str) -> bool:
    """Return whether a method of a class can be called with what Ray Tune passes."""
    return _can_take(kind, method, _ARGUMENTS[method])


def _can_take(kind: type, method: str, arguments: Sequence[Any]) -> bool:
    function = getattr(kind, method, None)
    try:
        inspect.signature(function).bind(None, *arguments) if callable(function) else None
    except (TypeError, ValueError):
        return False
    return callable(function)


@final
class TrialSchedulerAdapter(Scheduler):
    """Adapts a scheduler with Ray Tune's signatures; see `TrialScheduler`.

    Args:
        scheduler: The scheduler.

    Attributes:
        adapted: The scheduler.

    Raises:
        TypeError: If one of its methods, or a base class, has other signatures than Ray Tune's.
    """

    def __init__(self, scheduler: Any) -> None:
        kind = type(scheduler)
        for complaint in _unsupported(kind):
            raise TypeError(f"{complaint}; {_REMEDY}")
        self.adapted = scheduler
        self._methods = [name for name in _ARGUMENTS if _takes_controller(kind, name)]
        self._trials: dict[str, _Trial] = {}
        self._paused: set[str] = set()
        self._decisions: list[Decision] = []
        self.metric, self.mode = (
            _own(scheduler, "_metric", "metric"),
            _own(scheduler, "_mode", "mode"),
        )

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Pass on metric and mode, unless the scheduler has the same ones already."""
        # Ray Tune's method returns False if a metric is set already, even if it is the same one.
        metric = None if metric == self.metric else metric
        mode = None if mode == self.mode else mode
        taken = (
            self.adapted.set_search_properties(metric, mode)
            if hasattr(self.adapted, "set_search_properties")
            else True
        )
        for name, value in (("_metric", metric), ("_mode", mode)):
            if getattr(self.adapted, name, None) is None:
                setattr(self.adapted, name, value)
        self.metric, self.mode = metric or self.metric, mode or self.mode
        return bool(taken)

    @property
    def has_run(self) -> bool:
        """Whether the adapted scheduler has been used, by this adapter or another one."""
        return getattr(self.adapted, _HAS_RUN, False) is True

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Pass on a new trial."""
        # A class with __slots__ takes no mark; its reuse is then not noticed.
        with contextlib.suppress(AttributeError):
            setattr(self.adapted, _HAS_RUN, True)
        return self._notify("on_trial_add", self._trial(trial))

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pass on a result, and return the scheduler's answer as decisions.

        Raises:
            ValueError: If it answers none of `CONTINUE`, `PAUSE`, `STOP` and `NOOP`.
        """
        shown, flat = self._trial(trial), dict(result)
        self._paused.discard(trial.trial_id)
        answer = self.adapted.on_trial_result(_Controller(self), shown, flat)
        # Set after the call: during it, `last_result` is the one before, as in Ray Tune.
        shown.last_result = flat
        reason = self._reason(str(answer).lower(), flat)
        match answer:
            case TrialScheduler.STOP:
                self._decisions.append(Stop(trial.trial_id, reason))
            case TrialScheduler.PAUSE:
                self._pause(trial.trial_id, reason)
            case TrialScheduler.CONTINUE | TrialScheduler.NOOP:
                pass
            case _:
                raise ValueError(
                    f"{self._name}.on_trial_result must return CONTINUE, PAUSE, STOP or NOOP, got "
                    f"{answer!r}"
                )
        return self._take_decisions()

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Pass on that a trial has ended; a paused one as its removal, as Ray Tune does."""
        shown = self._trial(trial)
        if trial.trial_id in self._paused or result is None:
            self._paused.discard(trial.trial_id)
            return self._notify("on_trial_remove", shown)
        return self._notify("on_trial_complete", shown, dict(result))

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Pass on that a trial has failed for good."""
        self._paused.discard(trial.trial_id)
        return self._notify("on_trial_error", self._trial(trial))

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume the paused trials that it chooses, or the first ones, once no new trials come."""
        if not self.experiment.no_more_trials:
            return ()
        paused = {
            trial.trial_id: self._trial(trial) for trial in trials if trial.status == "PAUSED"
        }
        is_overridden = (
            _CHOOSE in self._methods
            and getattr(type(self.adapted), _CHOOSE) is not TrialScheduler.choose_trial_to_run
        )
        if not is_overridden:
            return [self._resume(trial_id) for trial_id in list(paused)[:num_free_slots]]
        resumed: list[_Trial] = []
        while len(resumed) < num_free_slots:
            chosen = self.adapted.choose_trial_to_run(_Controller(self))
            if chosen is None or chosen.trial_id not in paused:
                break
            del paused[chosen.trial_id]
            self._decisions.append(self._resume(chosen.trial_id))
            # Shown as RUNNING, so that the next choice is another one.
            chosen.is_chosen = True
            resumed.append(chosen)
        for trial in resumed:
            trial.is_chosen = False
        return self._take_decisions()

    def debug_string(self) -> str:
        """Return the adapted scheduler's line."""
        return (
            str(self.adapted.debug_string())
            if hasattr(self.adapted, "debug_string")
            else self._name
        )

    @property
    def _name(self) -> str:
        return type(self.adapted).__name__

    def _notify(self, method: str, *facts: Any) -> Sequence[Decision]:
        if method in self._methods:
            getattr(self.adapted, method)(_Controller(self), *facts)
        return self._take_decisions()

    def _take_decisions(self) -> Sequence[Decision]:
        decisions, self._decisions = self._decisions, []
        return decisions

    def _pause(self, trial_id: str, reason: Reason) -> None:
        self._paused.add(trial_id)
        self._decisions.append(Pause(trial_id, reason))

    def _resume(self, trial_id: str) -> Resume:
        self._paused.discard(trial_id)
        return Resume(trial_id, self._reason("resume", {}))

    def _reason(self, verb: str, result: Mapping[str, Any]) -> Reason:
        iteration = result.get("training_iteration")
        return Reason(
            f"{self._name}.{verb}",
            {"training_iteration": iteration} if isinstance(iteration, int) else {},
        )

    def _trial(self, view: TrialView) -> _Trial:
        """Return the adapted scheduler's trial object, always the same one for a trial."""
        # Schedulers written for Ray Tune keep trials in dictionaries and compare them by identity.
        shown = self._trials.setdefault(view.trial_id, _Trial())
        shown.view = view
        return shown

    def pause(self, trial_id: str) -> None:
        """Record a pause decided by a call to the controller."""
        self._pause(trial_id, self._reason("pause", {}))

    def stop(self, trial_id: str) -> None:
        """Record a stop decided by a call to the controller."""
        self._decisions.append(Stop(trial_id, self._reason("stop", {})))

    def shown_trials(self) -> list[_Trial]:
        """Return all trials, in the order in which they were added."""
        return [self._trial(view) for view in self.experiment.trials.values()]


@final
class _Trial:
    """A trial with the attributes that Ray Tune's trials have."""

    PENDING, RUNNING, PAUSED, TERMINATED, ERROR = (
        "PENDING",
        "RUNNING",
        "PAUSED",
        "TERMINATED",
        "ERROR",
    )

    def __init__(self) -> None:
        self.view: TrialView
        self.is_chosen = False
        self.last_result: dict[str, Any] = {}

    @property
    def trial_id(self) -> str:
        return self.view.trial_id

    @property
    def config(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(self.view.config))

    @property
    def status(self) -> str:
        return self.RUNNING if self.is_chosen else str(self.view.status)

    def is_finished(self) -> bool:
        return self.status in (self.TERMINATED, self.ERROR)

    def has_checkpoint(self) -> bool:
        return self.view.has_checkpoint

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(
            f"a trial has no {name} here, only config, has_checkpoint(), is_finished(), "
            f"last_result, status and trial_id; {_REMEDY}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {"config", "status", "trial_id"}:
            raise AttributeError(f"only the engine changes trial.{name}; {_REMEDY}")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"Trial({self.trial_id}, {self.status})"


@final
class _Controller:
    """The controller that is passed to the scheduler, with Ray Tune's method names."""

    def __init__(self, adapter: TrialSchedulerAdapter) -> None:
        self._adapter = adapter

    def get_trials(self) -> list[_Trial]:
        return self._adapter.shown_trials()

    def get_live_trials(self) -> set[_Trial]:
        return {trial for trial in self._adapter.shown_trials() if not trial.is_finished()}

    def get_trial(self, tid: str) -> _Trial | None:
        return next(
            (trial for trial in self._adapter.shown_trials() if trial.trial_id == tid), None
        )

    def stop_trial(self, trial: _Trial) -> None:
        self._adapter.stop(trial.trial_id)

    def pause_trial(self, trial: _Trial, should_checkpoint: bool = True) -> None:
        self._adapter.pause(trial.trial_id)

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(
            f"the controller has no {name} here, only get_live_trials, get_trial, get_trials, "
            f"pause_trial and stop_trial; {_REMEDY}"
        )


def _own(scheduler: Any, *names: str) -> str | None:
    found = next(
        (value for name in names if isinstance(value := getattr(scheduler, name, None), str)), None
    )
    # "_metric" is Ray Tune's default for a scheduler that was given no metric.
    return None if found == "_metric" else found


def _unsupported(kind: type) -> Iterator[str]:
    """Yield a message for each method and base class that does not fit Ray Tune's signatures."""
    ours = next(
        (base for base in kind.__mro__ if issubclass(base, Scheduler) and _is_ours(base)), None
    )
    if ours is not None and not inspect.isabstract(ours) and ours.__name__ != "FIFOScheduler":
        yield (
            f"{kind.__name__} derives from {ours.__name__}, whose on_trial_result takes (trial, "
            "result) and no tune_controller"
        )
    # Of each class its own methods: an inherited one may be checked by another rule.
    for base in kind.__mro__:
        if (
            base in (object, Scheduler, TrialScheduler)
            or _is_ours(base)
            or base.__module__.partition(".")[0] == "typing"
        ):
            continue
        for name, function in vars(base).items():
            if not inspect.isfunction(function):
                continue
            if name in _ARGUMENTS and not _takes_controller(base, name):
                wanted = ", ".join(("self", *_ARGUMENTS[name]))
                yield (
                    f"{base.__name__}.{name} must take ({wanted}), as on_trial_result has Ray "
                    "Tune's signature"
                )


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "schedulers"
