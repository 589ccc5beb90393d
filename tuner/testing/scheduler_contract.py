"""Contract tests for schedulers."""
# ruff: noqa: S101  (these are tests)

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, Final

from schedulers import Scheduler

from .crash_check import simulate_with_faults
from .late_validations import Judged, comparable, decided_again, run_one_after_the_other
from .rehearsal import Rehearsal, ResultOf, rising


class SchedulerContract(ABC):
    """Tests that every scheduler has to pass; name a subclass ``Test...``.

    The trials of the contract report ``score`` (larger is better), ``training_iteration`` (1 to 20)
    and ``time_total_s`` (10 to 200).

    Example:
        >>> from schedulers import FIFOScheduler
        >>> class TestFIFO(SchedulerContract):
        ...     def make_scheduler(self):
        ...         return FIFOScheduler()
        >>> TestFIFO().test_the_same_seed_gives_the_same_decisions()
    """

    config: ClassVar[Mapping[str, Any]] = {"lr": 0.1}
    """The hyperparameters of the contract's trials; override for a scheduler that changes them."""

    num_trials: ClassVar[int] = 12
    """Number of trials; override for a scheduler that accepts fewer."""

    @abstractmethod
    def make_scheduler(self) -> Scheduler:
        """Return a new scheduler without metric and mode that decides within 20 iterations."""

    def _ready(self, seed: int = 0) -> Scheduler:
        scheduler = self.make_scheduler()
        assert scheduler.set_search_properties("score", "max", seed=seed), (
            "make_scheduler must give no metric and no mode"
        )
        return scheduler

    def _rehearsal(self, seed: int = 0, result_of: ResultOf = rising) -> Rehearsal:
        return Rehearsal(
            self._ready(seed), result_of=result_of, config=self.config, num_trials=self.num_trials
        )

    def test_metric_and_mode_of_the_experiment_are_taken_over_once(self) -> None:
        """Refuse a second metric by returning False, and keep the first."""
        scheduler = self._ready()
        assert not scheduler.set_search_properties("other", "min", seed=0), (
            "a second metric must be answered with False"
        )
        assert (scheduler.metric, scheduler.mode) == ("score", "max"), (
            "the first metric and mode must stay"
        )

    def test_decisions_name_trials_that_exist_and_are_not_over(self) -> None:
        """Name in a decision only trials that were added and are neither TERMINATED nor ERROR."""
        strays = self._rehearsal().run().strays
        assert not strays, f"decisions must name trials that have not ended, got {strays}"

    def test_every_experiment_ends(self) -> None:
        """Let every experiment end; `on_idle` must not keep one running without progress."""
        assert all(trial.is_finished for trial in self._rehearsal().run().trials), (
            "every trial must end"
        )

    def test_repeated_results_change_nothing(self) -> None:
        """Decide the same when each result is repeated, as after a crash."""
        once, twice = self._rehearsal(), self._rehearsal()
        twice.repeats_results = True
        assert twice.run().facts == once.run().facts, (
            "a repeated result must not be evaluated again"
        )

    def test_the_same_seed_gives_the_same_decisions(self) -> None:
        """Draw random numbers from the seed alone."""
        assert self._rehearsal(seed=5).run().facts == self._rehearsal(seed=5).run().facts, (
            "decisions must follow from facts and seed"
        )

    def test_odd_results_never_raise(self) -> None:
        """Accept results whose metric or time is missing, None, infinite or not a number."""
        for odd in (math.nan, math.inf, -math.inf, None, "0.5", [1.0]):
            strays = self._rehearsal(result_of=_spoilt("score", odd)).run().strays
            assert not strays, (
                f"decisions must name trials that have not ended, got {strays} for score={odd!r}"
            )
        for missing in ("score", "training_iteration", "time_total_s"):
            self._rehearsal(result_of=_without(missing)).run()
            self._rehearsal(result_of=_spoilt(missing, None)).run()

    def test_the_state_survives_a_restart_at_any_point(self) -> None:
        """Continue exactly as before from ``load_state_dict(state_dict())``, after any fact."""
        facts = self._rehearsal().run().facts
        cuts = range(1, len(facts))
        # At every third of them in turn within one experiment, and at some alone.
        for restarts in (cuts[::3], *([cut] for cut in cuts[:: len(cuts) // _NUM_ALONE + 1])):
            rehearsal = self._rehearsal()
            rehearsal.after_fact = partial(self._restart, restarts)
            found = rehearsal.run().facts
            assert found == facts, (
                f"a restored scheduler must decide as the original, but after restarts at "
                f"{restarts} of {len(facts)} facts it decided {_first_difference(found, facts)}"
            )

    def _restart(self, cuts: Container[int], rehearsal: Rehearsal) -> None:
        if len(rehearsal.facts) in cuts:
            saved = json.dumps(rehearsal.scheduler.state_dict(), sort_keys=True)
            rehearsal.scheduler = self._ready()
            rehearsal.scheduler.load_state_dict(json.loads(saved))
            assert json.dumps(rehearsal.scheduler.state_dict(), sort_keys=True) == saved, (
                "state_dict must return what was loaded"
            )

    def test_state_is_a_copy(self) -> None:
        """Return a state that does not change when the scheduler continues."""
        rehearsal = self._rehearsal()
        state = rehearsal.scheduler.state_dict()
        before = json.dumps(state)
        rehearsal.run()
        assert json.dumps(state) == before, "a state must not change after it was returned"

    def test_paused_trials_it_did_not_pause_never_raise(self) -> None:
        """Accept in `on_idle` trials that it has not paused."""
        rehearsal = self._rehearsal().run()
        for num_free_slots in (1, 100):
            decisions = self._ready().on_idle(rehearsal.trials, num_free_slots)
            names = {trial.trial_id for trial in rehearsal.trials}
            assert {decision.trial_id for decision in decisions} <= names, (
                "on_idle must decide about the trials it was given"
            )

    def test_late_validations_lead_to_the_same_decisions(self) -> None:
        """Decide the same where a validation supplies the metric one or several results later."""
        at_once = self._judged(None)
        for late_by in (1.0, 2.5):
            late = self._judged(late_by)
            wanted = comparable(at_once.decisions)
            found = comparable(late.decisions)
            # The last ones are made on results that come too late for trials that are over.
            num_due = int(_SHARE_DUE * len(wanted))
            assert found[:num_due] == wanted[:num_due], (
                f"decisions must not depend on when a result is judged, but with validations that "
                f"are {late_by} iterations late it decided {_first_difference(found, wanted)}"
            )

    def test_late_validations_survive_a_restore(self) -> None:
        """Decide the same after a restore from a snapshot while validations are open."""
        late = self._judged(2.5, snapshots_at=(10, 50, 200))
        decided = late.decisions
        assert late.snapshots, "there must be snapshots"
        for num_before in late.snapshots:
            again = decided_again(late, self._ready(), num_before)
            rest = decided[-len(again) :] if again else []
            num_rest = sum(len(entry.decisions) for entry in late.history[num_before:])
            assert len(again) == num_rest, "a restored scheduler must decide as often"
            assert [*map(repr, again)] == [*map(repr, rest)], (
                f"a restored scheduler must decide as the original, but did not after "
                f"{num_before} events"
            )

    def _judged(self, late_by: float | None, snapshots_at: Collection[int] = ()) -> Judged:
        return run_one_after_the_other(
            self._ready(),
            lambda number, iteration: float(rising(number, iteration)["score"]),
            config=self.config,
            num_trials=self.num_trials,
            late_by=late_by,
            snapshots_at=snapshots_at,
        )

    def test_it_survives_faults(self) -> None:
        """Decide the same after crashes of the driver; see `simulate_with_faults`."""
        simulate_with_faults(self.make_scheduler, num_experiments=8, max_trials=self.num_trials)

    def test_the_debug_string_is_one_line(self) -> None:
        """Describe the state in one line, at the start and at the end."""
        for scheduler in (self.make_scheduler(), self._rehearsal().run().scheduler):
            text = scheduler.debug_string()
            assert text, "debug_string must not be empty"
            assert "\n" not in text, f"debug_string must be one line, got {text!r}"


_NUM_ALONE: Final = 5
"""At how many points the only restart of an experiment is tried."""
_SHARE_DUE: Final = 0.9
"""Share of the decisions that have to be made however late results are judged."""


def _first_difference(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    pairs = enumerate(zip_longest(found, wanted))
    return next((f"{one} and not {other}" for _, (one, other) in pairs if one != other), "")


def _spoilt(name: str, value: Any) -> ResultOf:
    """Report `value` under `name` in every third result."""
    return lambda number, time: (
        rising(number, time) | ({name: value} if (number + time) % 3 == 0 else {})
    )


def _without(name: str) -> ResultOf:
    """Leave `name` out of every third result."""
    return lambda number, time: {
        key: value
        for key, value in rising(number, time).items()
        if key != name or (number + time) % 3 != 0
    }
