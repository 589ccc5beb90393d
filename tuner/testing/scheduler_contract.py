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

from schedulers import Resume, Scheduler
from searchers.objectives import Constraints, outcome_constraints

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

    promotions: ClassVar[Collection[str]] = ()
    """Names of the rules by which the best of the trials that wait side by side continue; a trial
    that misses a constraint must not continue by these while another one waits that keeps all."""

    @abstractmethod
    def make_scheduler(self) -> Scheduler:
        """Return a new scheduler without metric and mode that decides within 20 iterations."""

    def _ready(self, seed: int = 0, constraints: Constraints = ()) -> Scheduler:
        scheduler = self.make_scheduler()
        assert scheduler.set_search_properties(
            "score", "max", seed=seed, constraints=constraints
        ), "make_scheduler must give no metric and no mode"
        return scheduler

    def _rehearsal(
        self, seed: int = 0, result_of: ResultOf = rising, constraints: Constraints = ()
    ) -> Rehearsal:
        return Rehearsal(
            self._ready(seed, constraints),
            result_of=result_of,
            config=self.config,
            num_trials=self.num_trials,
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
        num_facts = len(self._rehearsal().run().facts)
        cuts = range(1, num_facts)
        # At every third of them in turn within one experiment, and at some alone.
        alone = [[cut] for cut in cuts[:: num_facts // _NUM_ALONE + 1]]
        self._check_restarts([cuts[::3], *alone])

    def test_the_state_survives_a_restart_under_constraints(self) -> None:
        """Continue exactly as before, also with what is known about constraints."""
        self._check_restarts([range(1, 10_000, 3)], _with_size, _LIMIT)

    def _check_restarts(
        self,
        cuts: Sequence[Sequence[int]],
        result_of: ResultOf = rising,
        constraints: Constraints = (),
    ) -> None:
        facts = self._rehearsal(0, result_of, constraints).run().facts
        for restarts in cuts:
            rehearsal = self._rehearsal(0, result_of, constraints)
            rehearsal.after_fact = partial(self._restart, restarts, constraints)
            found = rehearsal.run().facts
            assert found == facts, (
                f"a restored scheduler must decide as the original, but after restarts at "
                f"{restarts} of {len(facts)} facts it decided {_first_difference(found, facts)}"
            )

    def _restart(
        self, cuts: Container[int], constraints: Constraints, rehearsal: Rehearsal
    ) -> None:
        if len(rehearsal.facts) in cuts:
            saved = json.dumps(rehearsal.scheduler.state_dict(), sort_keys=True)
            rehearsal.scheduler = self._ready(0, constraints)
            rehearsal.scheduler.load_state_dict(json.loads(saved))
            assert json.dumps(rehearsal.scheduler.state_dict(), sort_keys=True) == saved, (
                "state_dict must return what was loaded"
            )

    def test_constraints_never_raise(self) -> None:
        """Accept constraints, and results whose constrained metric is missing or no number."""
        for odd in (math.nan, math.inf, None, "3", [1.0]):
            spoilt = partial(_with_odd_size, odd)
            rehearsal = self._rehearsal(result_of=spoilt, constraints=_LIMIT).run()
            assert not rehearsal.strays, (
                f"decisions must name trials that have not ended, got {rehearsal.strays} for "
                f"size={odd!r}"
            )
        self._rehearsal(constraints=_LIMIT).run()

    def test_trials_that_keep_the_constraints_continue_first(self) -> None:
        """Promote no trial that misses a constraint while another one waits that keeps all."""
        for paused, decisions in self._rehearsal(0, _with_size, _LIMIT).run().promoted:
            feasible = {trial_id for trial_id in paused if _is_feasible(trial_id)}
            chosen = {
                decision.trial_id
                for decision in decisions
                if isinstance(decision, Resume) and decision.reason.rule in self.promotions
            }
            for trial_id in chosen - feasible:
                waits = [other for other in feasible - chosen if paused[other] == paused[trial_id]]
                assert not waits, f"{waits} must continue before {trial_id}, which is infeasible"

    def test_several_metrics_are_compared_or_refused(self) -> None:
        """Refuse several metrics with a ValueError, or run and end an experiment with them."""
        scheduler = self.make_scheduler()
        several = (("score", "max"), ("time_total_s", "min"))
        try:
            scheduler.set_search_properties(None, None, seed=0, objectives=several)
        except ValueError:
            return
        rehearsal = Rehearsal(scheduler, config=self.config, num_trials=self.num_trials).run()
        assert not rehearsal.strays, f"decisions must name living trials, got {rehearsal.strays}"

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


_LIMIT: Final = outcome_constraints({"size": "<= 4"})


def _is_feasible(trial_id: str) -> bool:
    return int(trial_id[1:]) % 3 > 0


def _with_size(number: int, time: int) -> dict[str, Any]:
    """Return a result in which every third trial is too large, and better than all others."""
    result = rising(number, time)
    is_small = number % 3 > 0
    # What does not change is often reported only once.
    size = {"size": 4 if is_small else 5 + number} if time == 1 else {}
    return {**result, "score": result["score"] + (0 if is_small else 1), **size}


def _with_odd_size(odd: Any, number: int, time: int) -> dict[str, Any]:
    return {**rising(number, time), "size": odd if (number + time) % 3 else 3}


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
