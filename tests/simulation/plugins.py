"""Plug-ins of simulated experiments: schedulers, and wrappers that raise now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, final

from schedulers import (
    Decision,
    ExperimentView,
    Exploit,
    Pause,
    Reason,
    Resize,
    Resume,
    Save,
    Scheduler,
    Stop,
    TrialView,
)
from searchers import Searcher
from tuner.callbacks.callback import Callback
from tuner.core.result import SHOULD_CHECKPOINT

from .fault_injection import Fault, FaultInjector, FaultPoint, PluginError

_BROKEN = "injected"


@final
class LapScheduler(Scheduler):
    """Pauses each trial after a lap, and the worst with it; resumes the best, and stops the worst.

    Smaller losses are better. It asks for a checkpoint in the middle of every second lap.

    Args:
        lap: How many iterations a lap has.
    """

    def __init__(self, lap: int) -> None:
        """Prepare for the first lap."""
        self._lap = lap
        self._losses: dict[str, float] = {}
        self._num_idle = 0

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pause at the end of a lap."""
        time = result["training_iteration"]
        if self.metric not in result:  # which a validation has yet to supply
            return ()
        self._losses[trial.trial_id] = result[str(self.metric)]
        numbers = {"time": time, "lap": self._lap}
        if time % self._lap == 0:
            worst = max(self._losses, key=lambda trial_id: (self._losses[trial_id], trial_id))
            paused = (trial.trial_id, worst) if time % (2 * self._lap) == 0 else (trial.trial_id,)
            return [
                Pause(trial_id, Reason("relay.lap", numbers)) for trial_id in dict.fromkeys(paused)
            ]
        return (
            [Save(trial.trial_id, Reason("relay.save", numbers))]
            if time % (2 * self._lap) == self._lap + self._lap // 2
            else []
        )

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume the best; every fourth time, stop the worst."""
        self._num_idle += 1
        order = sorted(
            (trial.trial_id for trial in trials),
            key=lambda trial_id: (self._losses.get(trial_id, 0.0), trial_id),
        )
        if self._num_idle % 4 == 0 and len(order) > 1:
            return [Stop(order[-1], Reason("relay.worst", {"rank": len(order)}))]
        resumed = [
            Resume(trial_id, Reason("relay.best", {"rank": rank}))
            for rank, trial_id in enumerate(order[:num_free_slots], 1)
        ]
        return [*resumed, resumed[0]]  # a repeated decision has no further effect

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {"losses": dict(self._losses), "num_idle": self._num_idle}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self._losses, self._num_idle = dict(state["losses"]), state["num_idle"]


@final
class RandomScheduler(Scheduler):
    """Makes a number of random decisions about any trials, and then resumes them all.

    No sensible scheduler does what it does; the engine has to accept it all the same.

    Args:
        seed: Seed of its decisions, together with the number of results so far.
        num_decisions: How often it decides anything.
    """

    def __init__(self, seed: int, num_decisions: int) -> None:
        """Begin without trials."""
        self._seed = seed
        self._num_left = num_decisions
        self._num_told = 0
        self._known: list[str] = []

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Note the trial."""
        self._known.append(trial.trial_id)
        return ()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Decide something about this trial or another one, or nothing."""
        self._num_told += 1
        if not self._num_left:
            return ()
        rng = Random(f"{self._seed}/{self._num_told}")  # noqa: S311  (no secret)
        if rng.random() < 0.5:
            return ()
        self._num_left -= 1
        chosen = rng.choice((trial.trial_id, trial.trial_id, rng.choice(self._known)))
        return [
            decision
            for _ in range(rng.choice((1, 1, 2)))
            for decision in self._random_decisions(chosen, rng)
        ]

    def _sizes(self, trial_id: str) -> Sequence[Mapping[str, float]]:
        """Return the smallest and the largest amounts that a trial may be resized to."""
        group = getattr(self.experiment.trials[trial_id], "group", None)
        if group is None:
            return {"cpu": 1.0}, {"cpu": self.experiment.resources["cpu"]}
        return group.resized(group.min_workers).total, group.resized(group.max_workers).total

    def _random_decisions(self, trial_id: str, rng: Random) -> Sequence[Decision]:
        reason = Reason("whim", {"told": self._num_told, "number": rng.random()})
        resume, save = Resume(trial_id, reason), Save(rng.choice(self._known), reason)
        match rng.choice(
            ("exploit", "exploit", "exploit", "pause", "pause", "resume", "resize", "save", "stop")
        ):
            case "exploit":
                donor = self.experiment.trials[rng.choice((save.trial_id, rng.choice(self._known)))]
                index = rng.choice((None, None, donor.checkpoint_index, 0))
                exploit = Exploit(
                    trial_id, donor.trial_id, {"x": rng.uniform(0.1, 1.0)}, reason, index
                )
                return [
                    *rng.choice(([], [save], [Save(donor.trial_id, reason)])),
                    exploit,
                    *rng.choice(([], [resume])),
                ]
            case "pause":
                return [Pause(trial_id, reason)]
            case "resume":
                return [resume]
            case "resize":
                return [Resize(trial_id, rng.choice(self._sizes(trial_id)), reason)]
            case "save":
                return [save]
            case _:
                return [Stop(trial_id, reason)]

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume all paused trials."""
        return [Resume(trial.trial_id, Reason("whim.over")) for trial in trials]

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {"num_left": self._num_left, "num_told": self._num_told, "known": list(self._known)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self._num_left, self._num_told, self._known = (
            state["num_left"],
            state["num_told"],
            list(state["known"]),
        )


@final
class FragileScheduler(Scheduler):
    """Passes everything on to another scheduler, and raises now and then.

    Args:
        scheduler: The other one, with its search properties.
        faults: When it raises.

    Attributes:
        inner: The other one.
        is_calm: Whether it never raises.
        has_raised: Whether it has raised, so that its state may be inconsistent.
    """

    def __init__(self, scheduler: Scheduler, faults: FaultInjector) -> None:
        """Wrap a scheduler."""
        self.inner = scheduler
        self.metric, self.mode = scheduler.metric, scheduler.mode
        self._faults = faults
        self.is_calm = self.has_raised = False

    @property
    def experiment(self) -> ExperimentView:
        """The experiment as the wrapped scheduler sees it."""
        return self.inner.experiment

    @experiment.setter
    def experiment(self, experiment: ExperimentView) -> None:
        self.inner.experiment = experiment

    def _maybe_raise(self) -> None:
        if not self.is_calm and self._faults.draw(FaultPoint.SCHEDULER):
            self.has_raised = True
            raise PluginError(_BROKEN)

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Pass it on."""
        return self.inner.on_trial_add(trial)

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pass it on, or raise."""
        self._maybe_raise()
        return self.inner.on_trial_result(trial, result)

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Pass it on, or raise."""
        self._maybe_raise()
        return self.inner.on_trial_complete(trial, result)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Pass it on."""
        return self.inner.on_trial_error(trial)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Pass it on."""
        return self.inner.on_idle(trials, num_free_slots)

    def state_dict(self) -> dict[str, Any]:
        """Return the other one's state."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the other one its state."""
        self.inner.load_state_dict(state)


@final
class FragileSearcher(Searcher):
    """Passes everything on to another searcher, and raises now and then.

    Args:
        searcher: The other one, with its search properties.
        faults: When it raises.
    """

    def __init__(self, searcher: Searcher, faults: FaultInjector) -> None:
        """Wrap a searcher."""
        self.inner = searcher
        self._faults = faults

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Pass it on, or raise."""
        if self._faults.draw(FaultPoint.SEARCHER):
            raise PluginError(_BROKEN)
        return self.inner.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Pass it on."""
        self.inner.on_trial_result(trial_id, result)

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Pass it on."""
        self.inner.on_trial_complete(trial_id, result, error, stopped)

    def state_dict(self) -> dict[str, Any]:
        """Return the other one's state."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the other one its state."""
        self.inner.load_state_dict(state)


@final
class FragileCallback(Callback):
    """Asks for a checkpoint now and then, and raises once in a while.

    Args:
        faults: When.
        step: Called with each hook; may raise `DriverKilled`.
    """

    def __init__(self, faults: FaultInjector, step: Callable[[], None]) -> None:
        """Wait for the first result."""
        self._faults = faults
        self._step = step

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Ask for a checkpoint, raise, or do nothing."""
        self._step()
        match self._faults.draw(FaultPoint.CALLBACK):
            case Fault.CALLBACK_RAISES:
                raise ValueError(_BROKEN)
            case Fault.CALLBACK_WANTS_CHECKPOINT:
                result[SHOULD_CHECKPOINT] = True
            case _:
                pass
