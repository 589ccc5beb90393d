"""When something is due."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.core.deadlines import Deadlines

KEYS = st.sampled_from("abc")
TIMES = st.integers(0, 12).map(float)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, TIMES),
    st.tuples(st.just("cancel"), KEYS),
    st.tuples(st.just("take"), TIMES),
)


def test_what_is_due_comes_earliest_first_and_once():
    deadlines = Deadlines()
    for key, due_s in (("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 9.0)):
        deadlines.set(key, due_s)
    assert deadlines.next_s() == 1.0
    assert deadlines.take_due(3.0) == ["b", "c", "a"]
    assert deadlines.take_due(3.0) == []
    assert deadlines.next_s() == 9.0


def test_a_deadline_may_move_in_both_directions_and_be_taken_back():
    deadlines = Deadlines()
    deadlines.set("a", 5.0)
    deadlines.set("a", 8.0)
    assert deadlines.take_due(5.0) == []
    deadlines.set("a", 6.0)
    assert deadlines.next_s() == 6.0
    assert deadlines.take_due(7.0) == ["a"]
    deadlines.set("a", 1.0)
    deadlines.cancel("a")
    deadlines.cancel("never set")
    assert deadlines.next_s() is None


def test_moving_a_deadline_later_again_and_again_costs_no_memory():
    deadlines = Deadlines()
    for now_s in range(10_000):
        deadlines.set("a", now_s + 60.0)
        deadlines.take_due(float(now_s))
    assert len(deadlines._heap) <= 2


@given(st.lists(STEPS, min_size=15, max_size=40))
def test_deadlines_agree_with_a_dictionary(steps):
    deadlines, model = Deadlines(), {}
    for step in steps:
        match step:
            case ("set", key, due_s):
                deadlines.set(key, due_s)
                model[key] = due_s
            case ("cancel", key):
                deadlines.cancel(key)
                model.pop(key, None)
            case ("take", now_s):
                due = {key: due_s for key, due_s in model.items() if due_s <= now_s}
                taken = deadlines.take_due(now_s)
                assert sorted(taken) == sorted(due)
                assert [due[key] for key in taken] == sorted(due.values())
                model = {key: due_s for key, due_s in model.items() if key not in due}
        assert deadlines.next_s() == min(model.values(), default=None)
