"""The account with the searcher."""

from tuner.core.suggestion_budget import SearchDesk


def test_ids_are_counted_and_no_more_is_asked_for_than_is_wanted():
    desk = SearchDesk(None)
    assert desk.take(2) == ["t00000", "t00001"]
    assert desk.take(2) == []
    assert desk.take(3) == ["t00002"]
    desk.answer()
    assert desk.num_outstanding == 2
    assert desk.take(3) == ["t00003"]


def test_never_more_than_max_trials_are_asked_for():
    desk = SearchDesk(3)
    assert desk.take(2) == ["t00000", "t00001"]
    assert desk.take(9) == ["t00002"]
    assert desk.is_over
    assert not desk.is_closed
    for _ in range(3):
        desk.answer()
    assert desk.is_closed
    assert desk.take(9) == []


def test_nothing_is_asked_for_where_nothing_is_wanted():
    desk = SearchDesk(3)
    assert desk.take(0) == []
    assert desk.take(-2) == []
    assert not desk.is_over


def test_after_a_postponement_the_searcher_is_asked_for_the_same_id_once_something_has_happened():
    desk = SearchDesk(2)
    desk.take(2)
    desk.answer()
    desk.postpone()
    assert desk.is_postponed
    assert not desk.is_over
    assert desk.take(2) == []
    desk.hear()
    assert desk.take(2) == ["t00001"]


def test_a_postponement_that_has_been_overtaken_does_not_count():
    desk = SearchDesk(2)
    desk.take(2)
    desk.answer()
    desk.hear()
    desk.postpone()
    assert not desk.is_postponed
    assert desk.take(1) == ["t00001"]


def test_what_happened_before_the_question_does_not_overtake_the_answer():
    desk = SearchDesk(2)
    desk.hear()
    desk.take(1)
    desk.postpone()
    assert desk.is_postponed


def test_once_the_search_has_ended_nothing_more_is_asked_for_in_any_session():
    desk = SearchDesk(None)
    desk.take(2)
    desk.close()
    assert desk.is_over
    assert not desk.is_closed
    desk.close()
    assert desk.is_closed
    desk.resume(None)
    assert desk.take(1) == []


def test_a_suspended_desk_opens_again_in_the_next_session():
    desk = SearchDesk(3)
    desk.take(1)
    desk.answer()
    desk.suspend()
    assert desk.is_closed
    desk.resume(2)
    assert desk.take(9) == ["t00001"]


def test_what_a_dead_driver_has_asked_for_is_asked_for_again():
    desk = SearchDesk(3)
    desk.take(3)
    desk.answer()
    desk.postpone()
    desk.resume(3)
    assert desk.num_outstanding == 0
    assert desk.take(9) == ["t00001", "t00002"]


def test_a_second_question_leaves_valid_what_was_heard_since_the_first():
    desk = SearchDesk(9)
    desk.take(1)
    desk.hear()
    assert desk.take(2) == ["t00001"]
    desk.take(0)
    desk.postpone()
    desk.postpone()
    assert not desk.is_postponed, "the searcher has not seen that result when it postponed"
    desk.take(1)
    desk.postpone()
    assert desk.is_postponed
