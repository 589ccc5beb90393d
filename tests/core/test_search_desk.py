"""The account with the searcher."""

from tuner.core.suggestion_budget import SuggestionBudget


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


def test_a_postponement_that_has_been_overtaken_does_not_count():
    suggestion_budget = SuggestionBudget(2)
    suggestion_budget.request(2)
    suggestion_budget.on_suggested()
    suggestion_budget.on_progress()
    suggestion_budget.on_postponed()
    assert not suggestion_budget.is_postponed
    assert suggestion_budget.request(1) == ["t00001"]


def test_what_happened_before_the_question_does_not_overtake_the_answer():
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


def test_a_suspended_desk_opens_again_in_the_next_session():
    suggestion_budget = SuggestionBudget(3)
    suggestion_budget.request(1)
    suggestion_budget.on_suggested()
    suggestion_budget.suspend()
    assert suggestion_budget.is_closed
    suggestion_budget.begin_session(2)
    assert suggestion_budget.request(9) == ["t00001"]


def test_what_a_dead_driver_has_asked_for_is_asked_for_again():
    suggestion_budget = SuggestionBudget(3)
    suggestion_budget.request(3)
    suggestion_budget.on_suggested()
    suggestion_budget.on_postponed()
    suggestion_budget.begin_session(3)
    assert suggestion_budget.num_outstanding == 0
    assert suggestion_budget.request(9) == ["t00001", "t00002"]


def test_a_second_question_leaves_valid_what_was_heard_since_the_first():
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
