"""The order in which trials are started."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.core.ready_queue import ReadyQueue
from tuner.core.trial import Trial


def trial(trial_id, **resources):
    return Trial(trial_id, {}, resources or {"cpu": 1.0})


def ids(queue):
    return [waiting.trial_id for waiting in queue]


def anybody(_):
    return True


def test_first_come_first_served():
    queue = ReadyQueue()
    for trial_id in "bac":
        queue.push(trial(trial_id))
    assert [queue.pop_first(anybody).trial_id for _ in range(3)] == ["b", "a", "c"]
    assert queue.pop_first(anybody) is None
    assert len(queue) == 0


def test_a_request_that_does_not_fit_lets_others_pass_but_keeps_its_place():
    queue = ReadyQueue()
    for waiting in (trial("big", cpu=8.0), trial("small"), trial("later", cpu=8.0)):
        queue.push(waiting)
    assert queue.pop_first(lambda waiting: waiting.resources["cpu"] <= 1).trial_id == "small"
    assert queue.pop_first(anybody).trial_id == "big"


def test_each_kind_of_request_is_tried_once():
    queue = ReadyQueue()
    for number in range(100):
        queue.push(trial(str(number), cpu=float(number % 2 + 1)))
    tried = []
    assert queue.pop_first(lambda waiting: tried.append(waiting.trial_id)) is None
    assert tried == ["0", "1"]
    assert len(queue) == 100


def test_the_order_of_resource_names_makes_no_difference():
    queue = ReadyQueue()
    queue.push(Trial("a", {}, {"cpu": 1.0, "gpu": 1.0}))
    queue.push(Trial("b", {}, {"gpu": 1.0, "cpu": 1.0}))
    tried = []
    queue.pop_first(lambda waiting: tried.append(waiting.trial_id))
    assert tried == ["a"]


def test_a_discarded_trial_is_not_started_and_may_be_queued_again_at_the_end():
    queue = ReadyQueue()
    first, second, third = trial("a"), trial("b"), trial("c")
    for waiting in (first, second, third):
        queue.push(waiting)
    queue.discard(first)
    queue.discard(first)
    assert (ids(queue), len(queue)) == (["b", "c"], 2)
    assert queue.pop_first(anybody) is second
    queue.push(second)
    assert ids(queue) == ["c", "b"]


def test_a_trial_that_is_queued_twice_keeps_its_place_and_is_started_once():
    queue = ReadyQueue()
    first, second = trial("a"), trial("b")
    for waiting in (first, second, first):
        queue.push(waiting)
    assert ids(queue) == ["a", "b"]
    assert queue.pop_first(anybody) is first
    queue.push(first)
    assert ids(queue) == ["b", "a"]


STEPS = st.one_of(
    st.tuples(st.sampled_from(["push", "discard"]), st.integers(0, 5)),
    st.tuples(st.just("pop"), st.integers(0, 3)),
)


@given(st.lists(STEPS, min_size=15, max_size=40))
def test_the_queue_agrees_with_a_list(steps):
    trials = [trial(str(number), cpu=float(number % 3)) for number in range(6)]
    queue, model = ReadyQueue(), []
    for action, number in steps:
        match action:
            case "push" if trials[number] not in model:
                queue.push(trials[number])
                model.append(trials[number])
            case "discard" if trials[number] not in model:
                queue.discard(trials[number])
            case "pop":

                def fits(waiting, limit=number):
                    return waiting.resources["cpu"] <= limit

                expected = next((waiting for waiting in model if fits(waiting)), None)
                assert queue.pop_first(fits) is expected
                model = [waiting for waiting in model if waiting is not expected]
        assert sorted(ids(queue)) == sorted(waiting.trial_id for waiting in model)
        assert len(queue) == len(model)


def test_a_delayed_trial_waits_but_is_not_started_before_its_time():
    queue = ReadyQueue()
    queue.rest(trial("tired"), 10.0)
    queue.push(trial("fresh"))
    assert (len(queue), ids(queue), queue.next_s) == (2, ["fresh", "tired"], 10.0)
    assert queue.pop_first(anybody).trial_id == "fresh"
    assert queue.pop_first(anybody) is None
    assert not queue.wake(9.9)
    assert queue.wake(10.0)
    assert queue.pop_first(anybody).trial_id == "tired"
    assert (len(queue), queue.next_s) == (0, None)


def test_a_delayed_trial_is_not_queued_by_a_push_and_can_be_removed():
    queue, tired = ReadyQueue(), trial("tired")
    queue.rest(tired, 10.0)
    queue.push(tired)
    assert queue.pop_first(anybody) is None
    queue.discard(tired)
    assert (len(queue), ids(queue), queue.wake(10.0)) == (0, [], False)


def test_a_trial_whose_request_has_changed_waits_in_one_place_only():
    queue = ReadyQueue()
    small, large = Trial("t00000", {}, {"cpu": 1.0}), Trial("t00001", {}, {"cpu": 2.0})
    for trial in (small, large):
        queue.push(trial)
    queue.discard(small)
    small.resources = {"cpu": 2.0}
    queue.push(small)
    assert queue.in_order() == [large, small]
    assert list(queue) == [large, small]
    assert [queue.pop_first(lambda _: True) for _ in range(3)] == [large, small, None]
