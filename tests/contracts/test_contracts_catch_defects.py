"""Each contract test fails for a plug-in that violates it."""

import itertools

import pytest

from schedulers import Pause, Reason, Resume, Scheduler, Stop
from searchers import BasicVariantGenerator, Searcher
from searchers.seeding import generator
from searchers.space import SearchSpace
from tuner.core.stoppers import Stopper
from tuner.testing.rehearsal import Rehearsal
from tuner.testing.scheduler_contract import SchedulerContract
from tuner.testing.searcher_contract import SearcherContract
from tuner.testing.stopper_contract import StopperContract

WHY = Reason("test")
CALLS = itertools.count()


class NamesFinishedTrials(Scheduler):
    def on_trial_complete(self, trial, result):
        return [Stop(trial.trial_id, WHY)]

    def on_trial_result(self, trial, result):
        return ()


class NamesUnknownTrials(Scheduler):
    def on_trial_result(self, trial, result):
        return [Stop("t99999", WHY)]


class CountsCalls(Scheduler):
    num_calls = 0

    def on_trial_result(self, trial, result):
        self.num_calls += 1
        return [Stop(trial.trial_id, WHY)] if self.num_calls % 7 == 0 else ()


class UsesAnUnseededGenerator(Scheduler):
    def on_trial_result(self, trial, result):
        return (
            [Stop(trial.trial_id, Reason("test", {"draw": next(CALLS)}))]
            if result["training_iteration"] == 9
            else ()
        )


class TrustsTheMetric(Scheduler):
    def on_trial_result(self, trial, result):
        return [Stop(trial.trial_id, WHY)] if result["score"] > 0.9 else ()


class ForgetsItsSettings(Scheduler):
    def set_search_properties(self, metric, mode, **spec):
        self.metric = metric
        return True

    def on_trial_result(self, trial, result):
        return ()


class SharesItsState(Scheduler):
    def __init__(self):
        self.seen = []

    def on_trial_result(self, trial, result):
        self.seen.append(trial.trial_id)
        return ()

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


class HasNoDebugString(Scheduler):
    def on_trial_result(self, trial, result):
        return ()

    def debug_string(self):
        return ""


class ResumesWhatItWasNotGiven(Scheduler):
    def on_trial_result(self, trial, result):
        return ()

    def on_idle(self, trials, num_free_slots):
        return [Resume("t99999", WHY)]


@pytest.mark.parametrize(
    ("scheduler", "test"),
    [
        (NamesFinishedTrials, "test_decisions_name_trials_that_exist_and_are_not_over"),
        (NamesUnknownTrials, "test_decisions_name_trials_that_exist_and_are_not_over"),
        (CountsCalls, "test_repeated_results_change_nothing"),
        (CountsCalls, "test_the_state_survives_a_restart_at_any_point"),
        (UsesAnUnseededGenerator, "test_the_same_seed_gives_the_same_decisions"),
        (TrustsTheMetric, "test_odd_results_never_raise"),
        (ForgetsItsSettings, "test_metric_and_mode_of_the_experiment_are_taken_over_once"),
        (SharesItsState, "test_state_is_a_copy"),
        (HasNoDebugString, "test_the_debug_string_is_one_line"),
        (ResumesWhatItWasNotGiven, "test_paused_trials_it_did_not_pause_never_raise"),
    ],
)
def test_a_defective_scheduler_breaks_the_contract(scheduler, test):
    class Contract(SchedulerContract):
        def make_scheduler(self):
            return scheduler()

    with pytest.raises((AssertionError, TypeError, KeyError)):
        getattr(Contract(), test)()


class PromotesByTheMetricAlone(Scheduler):
    """Pauses each trial once, and resumes the one with the best score."""

    def __init__(self):
        self.scores, self.resumed = {}, set()

    def on_trial_result(self, trial, result):
        if trial.trial_id in self.scores:
            return ()
        self.scores[trial.trial_id] = result["score"]
        return [Pause(trial.trial_id, WHY)]

    def on_idle(self, trials, num_free_slots):
        names = sorted((trial.trial_id for trial in trials), key=self.scores.get)
        return [Resume(name, WHY) for name in names[-1:]]


def test_a_promotion_that_ignores_constraints_breaks_the_contract():
    class Contract(SchedulerContract):
        promotions = (WHY.rule,)

        def make_scheduler(self):
            return PromotesByTheMetricAlone()

    with pytest.raises(AssertionError, match="must continue before t00"):
        Contract().test_trials_that_keep_the_constraints_continue_first()


class TrustsTheConstrainedMetric(Scheduler):
    def on_trial_result(self, trial, result):
        return [Stop(trial.trial_id, WHY)] if self.constraints and result["size"] > 9 else ()


def test_a_scheduler_that_trusts_a_constrained_metric_breaks_the_contract():
    class Contract(SchedulerContract):
        def make_scheduler(self):
            return TrustsTheConstrainedMetric()

    with pytest.raises((TypeError, KeyError)):
        Contract().test_constraints_never_raise()


def test_an_experiment_without_end_is_reported():
    with pytest.raises(AssertionError, match="the experiment must end, got no end within 3 rounds"):
        Rehearsal(HasNoDebugString()).run(max_rounds=3)


class ReturnsOne(Stopper):
    def __call__(self, trial_id, result):
        return 1


class StopsEverySecondCall(Stopper):
    def __call__(self, trial_id, result):
        return False

    def stop_all(self):
        return next(CALLS) % 2 == 0


class StopsAtOnce(Stopper):
    def __call__(self, trial_id, result):
        return False

    def stop_all(self):
        return True


class TrustsTheLoss(Stopper):
    def __call__(self, trial_id, result):
        return result["loss"] < 0.1


class ChangesResults(Stopper):
    def __call__(self, trial_id, result):
        return bool(result.pop("loss", None))


class DrawsRandomNumbers(Stopper):
    def __call__(self, trial_id, result):
        return next(CALLS) % 5 == 0


@pytest.mark.parametrize(
    ("stopper", "test"),
    [
        (ReturnsOne, "test_answers_are_booleans"),
        (DrawsRandomNumbers, "test_the_same_facts_give_the_same_answers"),
        (StopsAtOnce, "test_nothing_is_stopped_before_anything_happened"),
        (StopsEverySecondCall, "test_the_end_of_the_experiment_is_final"),
        (TrustsTheLoss, "test_odd_results_never_raise"),
        (ChangesResults, "test_results_are_not_changed"),
    ],
)
def test_a_defective_stopper_breaks_the_contract(stopper, test):
    class Contract(StopperContract):
        def make_stopper(self):
            return stopper()

    with pytest.raises((AssertionError, TypeError, KeyError)):
        getattr(Contract(), test)()


class Wrapped(Searcher):
    """A good searcher to spoil."""

    def __init__(self):
        self.good = BasicVariantGenerator()

    def set_search_properties(self, metric, mode, config, **spec):
        self.space = SearchSpace(config)
        return self.good.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id):
        return self.good.suggest(trial_id)

    def state_dict(self):
        return self.good.state_dict()

    def load_state_dict(self, state):
        self.good.load_state_dict(state)


class LeavesTheSpace(Wrapped):
    def suggest(self, trial_id):
        return super().suggest(trial_id) | {"lr": 0.5}


class ForgetsAnEntry(Wrapped):
    def suggest(self, trial_id):
        return super().suggest(trial_id) | {"layer": {"units": 8}}


class AddsAnInactiveParameter(Wrapped):
    def suggest(self, trial_id):
        return super().suggest(trial_id) | {"warmup": 3}


class OmitsConditionalParameters(Wrapped):
    def suggest(self, trial_id):
        return {
            name: value for name, value in super().suggest(trial_id).items() if name != "warmup"
        }


class ForgetsConstantsOfBranches(Wrapped):
    def suggest(self, trial_id):
        config = super().suggest(trial_id)
        if isinstance(config["optimizer"], dict):
            del config["optimizer"]["name"]
        return config


class DrawsForItself(Wrapped):
    def suggest(self, trial_id):
        return self.space.resolve({}, generator(next(CALLS), 0))


class SharesAConfiguration(Wrapped):
    shared = None

    def suggest(self, trial_id):
        self.shared = self.shared or super().suggest(trial_id)
        return self.shared


class ComesBack(Wrapped):
    def suggest(self, trial_id):
        return Searcher.FINISHED if trial_id == "late1" else self.space.resolve({}, generator(0, 0))


class TrustsTheScore(Wrapped):
    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.best = max(0.0, result["score"])


class RaisesAtRepeatedResults(Wrapped):
    def on_trial_result(self, trial_id, result):
        assert trial_id not in vars(self).setdefault("seen", set())
        self.seen.add(trial_id)


class ForgetsWhereItWas(Wrapped):
    def load_state_dict(self, state):
        pass


class ForgetsTradeOffs(ForgetsWhereItWas):
    takes_several_metrics = True


class ExplainsWithoutWords(Wrapped):
    def explain_suggestion(self):
        return None


class WaitsForNothing(Wrapped):
    def suggest(self, trial_id):
        return None


@pytest.mark.parametrize(
    ("searcher", "test"),
    [
        (LeavesTheSpace, "test_suggestions_lie_in_the_space"),
        (ForgetsAnEntry, "test_suggestions_lie_in_the_space"),
        (WaitsForNothing, "test_suggestions_lie_in_the_space"),
        (AddsAnInactiveParameter, "test_a_conditional_space_is_searched_or_refused_with_the_space"),
        (
            OmitsConditionalParameters,
            "test_a_conditional_space_is_searched_or_refused_with_the_space",
        ),
        (
            ForgetsConstantsOfBranches,
            "test_a_conditional_space_is_searched_or_refused_with_the_space",
        ),
        (DrawsForItself, "test_the_same_seed_gives_the_same_suggestions"),
        (SharesAConfiguration, "test_no_suggestion_shares_anything_with_another"),
        (ExplainsWithoutWords, "test_a_suggestion_is_explained_with_a_text"),
        (ComesBack, "test_finished_stays_finished"),
        (TrustsTheScore, "test_failures_and_odd_results_never_raise"),
        (RaisesAtRepeatedResults, "test_repeated_results_never_raise"),
        (ForgetsWhereItWas, "test_a_restored_state_continues_where_it_was"),
        (ForgetsTradeOffs, "test_trade_offs_are_searched_with_each_result"),
    ],
)
def test_a_defective_searcher_breaks_the_contract(searcher, test):
    class Contract(SearcherContract):
        def make_searcher(self):
            return searcher()

    with pytest.raises((AssertionError, TypeError, KeyError)):
        getattr(Contract(), test)()
