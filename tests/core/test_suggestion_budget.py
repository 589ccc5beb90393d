"""The times and the number of requests to the searcher."""

import dataclasses

from schedulers.decisions import Pause, Reason, Stop
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler, starts, suggest
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import AskSearcher
from tuner.core.events import (
    DriverRestarted,
    Outcome,
    SearchEnded,
    StopRequested,
    SuggestionPostponed,
    TrialSuggested,
    WorkerStarted,
)
from tuner.core.trial import Status
from tuner.core.trial_starter import SuggestionBudget


def test_ids_are_counted_and_no_more_is_asked_for_than_is_wanted():
    suggestion_budget = SuggestionBudget(None)
    assert suggestion_budget.request(2) == ["t00000", "t00001"]
    assert suggestion_budget.request(2) == []
    assert suggestion_budget.request(3) == ["t00002"]
    suggestion_budget.on_suggested()
    assert suggestion_budget.num_outstanding == 2
    assert suggestion_budget.request(3) == ["t00003"]


def test_never_more_than_max_trials_are_asked_for():
    suggestion_budget = SuggestionBudget(3)
    assert suggestion_budget.request(2) == ["t00000", "t00001"]
    assert suggestion_budget.request(9) == ["t00002"]
    assert suggestion_budget.is_over
    assert not suggestion_budget.is_closed
    for _ in range(3):
        suggestion_budget.on_suggested()
    assert suggestion_budget.is_closed
    assert suggestion_budget.request(9) == []


def test_nothing_is_asked_for_where_nothing_is_wanted():
    suggestion_budget = SuggestionBudget(3)
    assert suggestion_budget.request(0) == []
    assert suggestion_budget.request(-2) == []
    assert not suggestion_budget.is_over


def test_after_a_postponement_the_searcher_is_asked_for_the_same_id_once_something_has_happened():
    suggestion_budget = SuggestionBudget(2)
    suggestion_budget.request(2)
    suggestion_budget.on_suggested()
    suggestion_budget.on_postponed()
    assert suggestion_budget.is_postponed
    assert not suggestion_budget.is_over
    assert suggestion_budget.request(2) == []
    suggestion_budget.on_progress()
    assert suggestion_budget.request(2) == ["t00001"]


def test_a_postponement_after_newer_results_is_ignored():
    suggestion_budget = SuggestionBudget(2)
    suggestion_budget.request(2)
    suggestion_budget.on_suggested()
    suggestion_budget.on_progress()
    suggestion_budget.on_postponed()
    assert not suggestion_budget.is_postponed
    assert suggestion_budget.request(1) == ["t00001"]


def test_results_before_the_request_do_not_make_its_postponement_obsolete():
    suggestion_budget = SuggestionBudget(2)
    suggestion_budget.on_progress()
    suggestion_budget.request(1)
    suggestion_budget.on_postponed()
    assert suggestion_budget.is_postponed


def test_once_the_search_has_ended_nothing_more_is_asked_for_in_any_session():
    suggestion_budget = SuggestionBudget(None)
    suggestion_budget.request(2)
    suggestion_budget.on_search_ended()
    assert suggestion_budget.is_over
    assert not suggestion_budget.is_closed
    suggestion_budget.on_search_ended()
    assert suggestion_budget.is_closed
    suggestion_budget.begin_session(None)
    assert suggestion_budget.request(1) == []


def test_the_question_that_ended_a_search_uses_up_no_trial_of_another_declaration():
    suggestion_budget = SuggestionBudget(3)
    suggestion_budget.request(1)
    suggestion_budget.on_suggested()
    suggestion_budget.request(2)
    suggestion_budget.on_search_ended("one")
    suggestion_budget.on_search_ended("one")
    restored = SuggestionBudget(3)
    restored.load_state_dict(suggestion_budget.state_dict())
    for budget in (suggestion_budget, restored):
        budget.begin_session(3, "another")
        assert budget.num_left(9) == 2
        assert budget.request(9) == ["t00003", "t00004"]
        assert budget.is_over


def test_a_suspended_budget_opens_again_in_the_next_session():
    suggestion_budget = SuggestionBudget(3)
    suggestion_budget.request(1)
    suggestion_budget.on_suggested()
    suggestion_budget.suspend()
    assert suggestion_budget.is_closed
    suggestion_budget.begin_session(2)
    assert suggestion_budget.request(9) == ["t00001"]


def test_a_new_session_reuses_the_ids_of_outstanding_suggestions():
    suggestion_budget = SuggestionBudget(3)
    suggestion_budget.request(3)
    suggestion_budget.on_suggested()
    suggestion_budget.on_postponed()
    suggestion_budget.begin_session(3)
    assert suggestion_budget.num_outstanding == 0
    assert suggestion_budget.request(9) == ["t00001", "t00002"]


def test_news_since_the_first_request_still_count_after_a_second_one():
    suggestion_budget = SuggestionBudget(9)
    suggestion_budget.request(1)
    suggestion_budget.on_progress()
    assert suggestion_budget.request(2) == ["t00001"]
    suggestion_budget.request(0)
    suggestion_budget.on_postponed()
    suggestion_budget.on_postponed()
    assert not suggestion_budget.is_postponed, (
        "the searcher has not seen that result when it postponed"
    )
    suggestion_budget.request(1)
    suggestion_budget.on_postponed()
    assert suggestion_budget.is_postponed


WHY = Reason("test")
SAVES = CheckpointPolicy(can_save_on_demand=True)


def asked(commands):
    return [command.trial_id for command in commands if isinstance(command, AskSearcher)]


def paused_while_postponed(idle):
    """Return a conversation in which t00000 is paused and the searcher waits for news."""
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}, idle=idle),
        max_trials=2,
        checkpoints=SAVES,
        max_concurrent=1,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    assert asked(talk.exit("t00000", Outcome.STOPPED)) == ["t00001"]
    return talk


def test_a_postponement_is_void_if_a_trial_has_failed_since_the_question():
    talk = Conversation(max_trials=3)
    talk.say()
    assert asked(
        talk.say(TrialSuggested("t00000", {}, {}, failure=BOOM), SuggestionPostponed("t00001"))
    ) == ["t00001", "t00002"]


def test_a_searcher_that_waits_is_asked_again_when_a_paused_trial_is_stopped():
    talk = paused_while_postponed(idle=[[], [Stop("t00000", WHY)]])
    assert asked(talk.say(SuggestionPostponed("t00001"))) == ["t00001"]
    assert talk.trial("t00000").reason == WHY
    assert talk.experiment.stall_reason == ""


def test_a_searcher_that_waits_for_paused_trials_is_asked_again_after_their_end():
    talk = paused_while_postponed(idle=[])
    assert asked(talk.say(SuggestionPostponed("t00001"))) == ["t00001"]
    assert talk.trial("t00000").reason == Reason("idle")
    talk.say(SuggestionPostponed("t00001"))
    assert "postponed" in talk.experiment.stall_reason
    assert talk.experiment.is_finished


def test_a_searcher_that_is_asked_while_trials_run_may_postpone_as_often_as_it_likes():
    talk = Conversation(max_trials=9)
    talk.say()
    talk.say(suggest("t00000"), SuggestionPostponed("t00001"))
    talk.say(WorkerStarted("t00000", 1, 1))
    for time in range(1, 6):
        assert asked(talk.report("t00000", time)) == ["t00001"]
        assert talk.say(SuggestionPostponed("t00001")) == []
    assert talk.experiment.stall_reason == ""


def test_what_a_dead_driver_has_asked_for_is_asked_for_again():
    talk = Conversation(max_trials=3)
    assert asked(talk.say()) == ["t00000", "t00001"]
    assert asked(talk.say(suggest("t00000"))) == []
    assert asked(talk.say(DriverRestarted(talk.experiment.settings))) == ["t00001"]


def test_a_restarted_driver_asks_again_although_the_searcher_had_postponed():
    talk = Conversation(max_trials=3)
    talk.say()
    talk.say(suggest("t00000"), SuggestionPostponed("t00001"))
    assert asked(talk.say(DriverRestarted(talk.experiment.settings))) == ["t00001"]


def test_a_restarted_driver_begins_without_the_stall_of_the_last_one():
    talk = Conversation(max_trials=1)
    talk.say()
    talk.say(SuggestionPostponed("t00000"))
    assert talk.experiment.stall_reason
    assert asked(talk.say(DriverRestarted(talk.experiment.settings))) == ["t00000"]
    assert talk.experiment.stall_reason == ""


def test_a_search_that_has_ended_stays_so_after_a_restart():
    talk = Conversation()
    talk.say()
    talk.say(suggest("t00000"), SearchEnded())
    assert asked(talk.say(DriverRestarted(talk.experiment.settings))) == []


def test_after_a_restart_on_a_smaller_machine_trials_that_no_longer_fit_fail_with_the_numbers():
    script = {("t00000", 1): [Pause("t00000", WHY)]}
    talk = Conversation(
        ScriptedScheduler(script),
        capacity={"cpu": 6.0},
        max_trials=3,
        checkpoints=SAVES,
        default_request={"cpu": 2.0},
    )
    talk.begin(3, cpu=2.0)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    talk.exit("t00001", Outcome.COMPLETED)
    assert [str(trial.status) for trial in talk.experiment.trials] == [
        "PAUSED",
        "TERMINATED",
        "RUNNING",
    ]
    talk.say(DriverRestarted(dataclasses.replace(talk.experiment.settings, capacity={"cpu": 1.0})))
    assert [str(trial.status) for trial in talk.experiment.trials] == [
        "ERROR",
        "TERMINATED",
        "ERROR",
    ]
    assert "'cpu': 2.0" in talk.trial("t00002").failures[-1].message
    assert talk.experiment.is_finished


def test_what_is_suggested_while_the_experiment_stops_is_interrupted_before_it_begins():
    talk = Conversation(max_trials=3)
    talk.say()
    assert starts(talk.say(StopRequested("signal.SIGINT"), suggest("t00000"), SearchEnded())) == []
    assert (talk.trial("t00000").status, talk.trial("t00000").ending) == (Status.PENDING, None)
    assert talk.experiment.is_finished


def test_a_trial_that_the_scheduler_stops_on_admission_has_not_failed_even_if_it_could_not_run():
    script = {(trial_id, 0): [Stop(trial_id, WHY)] for trial_id in ("t00000", "t00001", "t00002")}
    talk = Conversation(
        ScriptedScheduler(script), max_trials=3, max_concurrent=3, capacity={"cpu": 3.0}
    )
    talk.say()
    talk.say(
        TrialSuggested("t00000", {}, {}, failure=BOOM),
        suggest("t00001", cpu=99.0),
        StopRequested("signal.SIGINT"),
        suggest("t00002"),
    )
    assert [trial.reason for trial in talk.experiment.trials] == [WHY] * 3
    assert [fact for fact, _ in talk.scheduler.heard] == ["add", "complete"] * 3
    assert talk.experiment.is_finished


def test_an_experiment_that_stops_does_not_wait_for_a_suggestion():
    talk = Conversation(max_trials=3)
    assert asked(talk.say()) == ["t00000", "t00001"]
    talk.say(suggest("t00000"))
    talk.say(WorkerStarted("t00000", 1, 1))
    talk.say(StopRequested("signal.SIGINT"))
    assert not talk.experiment.is_finished
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.experiment.is_finished
    assert asked(talk.say(DriverRestarted(talk.experiment.settings))) == ["t00001"]
