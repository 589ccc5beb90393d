"""The connection between driver and node, over a carrier that loses, doubles and reorders."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cluster.link import Link
from tuner.storage import strict_json

NOW_S = 100.0


def frames(link, now_s=NOW_S):
    return [json.loads(frame) for frame in link.take_frames(now_s)]


def pair():
    return Link("token", NOW_S), Link("token", NOW_S)


def test_messages_arrive_in_order_and_once():
    here, there = pair()
    for number in range(3):
        here.send({"number": number})
    (frame,) = frames(here)
    assert there.receive(frame, NOW_S) == [{"number": number} for number in range(3)]
    assert there.receive(frame, NOW_S) == []


def test_a_message_that_overtook_another_waits_for_it():
    here, there = pair()
    here.send({"number": 1})
    (first,) = frames(here)
    here.send({"number": 2})
    (second,) = frames(here)
    assert there.receive(second, NOW_S) == []
    assert there.receive(first, NOW_S) == [{"number": 1}, {"number": 2}]


def test_what_is_not_acknowledged_is_sent_again_after_growing_pauses():
    here, there = pair()
    here.send({"lost": True})
    frames(here)
    assert here.next_s == NOW_S + 1.0
    (again,) = frames(here, NOW_S + 1.0)
    assert again["m"] == [{"lost": True}]
    assert frames(here, NOW_S + 2.0)[0]["m"] == []  # a sign of life
    (again,) = frames(here, NOW_S + 3.0)
    assert there.receive(again, NOW_S + 3.0) == [{"lost": True}]
    (answer,) = frames(there, NOW_S + 3.1)
    here.receive(answer, NOW_S + 3.1)
    assert here.is_drained
    assert all(not frame["m"] for frame in frames(here, NOW_S + 60.0))


def test_an_acknowledgement_waits_a_moment_for_a_message():
    here, there = pair()
    frames(there)
    here.send({})
    there.receive(*frames(here), NOW_S)
    assert frames(there) == []
    assert there.next_s == pytest.approx(NOW_S + 0.1)
    assert frames(there, NOW_S + 0.1) == [
        {"s": "token", "n": 1, "a": 1, "t": NOW_S + 0.1, "e": NOW_S, "m": []}
    ]


def test_both_ends_give_signs_of_life_where_nothing_else_is_said():
    here, there = pair()
    assert len(frames(here)) == 1
    assert frames(here, NOW_S + 0.9) == []
    (beat,) = frames(here, NOW_S + 1.0)
    assert there.receive(beat, NOW_S + 7.0) == []
    assert there.heard_s == NOW_S + 7.0


def test_an_end_knows_when_it_was_heard_last_however_long_frames_take():
    here, there = pair()
    (greeting,) = frames(here, NOW_S + 1.0)
    frames(here, NOW_S + 5.0)  # lost
    there.receive(greeting, NOW_S + 6.0)
    (answer,) = frames(there, NOW_S + 7.0)
    here.receive(answer, NOW_S + 20.0)
    assert (here.heard_s, here.confirmed_s) == (NOW_S + 20.0, NOW_S + 1.0)


def test_a_frame_of_another_connection_is_dropped():
    here, _ = pair()
    stranger = Link("other", NOW_S)
    stranger.send({})
    assert here.receive(*frames(stranger), NOW_S + 5.0) == []
    assert here.heard_s == NOW_S


def test_large_messages_are_divided_among_frames():
    here, there = pair()
    for _ in range(3):
        here.send({"data": "x" * (1 << 19)})
    parts = frames(here)
    assert [len(part["m"]) for part in parts] == [1, 1, 1]
    assert sum(len(there.receive(part, NOW_S)) for part in parts) == 3


def test_values_that_are_no_numbers_arrive_as_they_are():
    here, there = pair()
    here.send({"loss": float("inf")})
    (text,) = here.take_frames(NOW_S)
    assert there.receive(strict_json.loads(text), NOW_S) == [{"loss": float("inf")}]


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"s": "token", "n": 0, "a": 0, "t": 0.0, "e": 0.0, "m": []},
        {"s": "token", "n": 1, "a": 1, "t": 0.0, "e": 0.0, "m": []},
        {"s": "token", "n": 1, "a": 0, "t": 0.0, "e": 0.0, "m": [7]},
        {"s": "token", "n": "1", "a": 0, "t": 0.0, "e": 0.0, "m": []},
        {"s": "token", "n": 1, "a": 0, "t": 0.0, "e": NOW_S + 1.0, "m": []},
    ],
)
def test_a_malformed_frame_is_refused(frame):
    with pytest.raises(ValueError, match="must"):
        Link("token", NOW_S).receive(frame, NOW_S)


class Carrier:
    """Two ends, and what is under way to each of them."""

    def __init__(self):
        self.ends = pair()
        self.under_way, self.got, self.num_sent = [[], []], [[], []], [0, 0]
        self.now_s = NOW_S

    def send(self, end):
        self.num_sent[end] += 1
        self.ends[end].send({"number": self.num_sent[end]})

    def take(self, end):
        self.under_way[1 - end] += frames(self.ends[end], self.now_s)

    def deliver(self, end, at):
        self.got[end] += self.ends[end].receive(self.under_way[end][at], self.now_s)

    def lose(self, end, at):
        del self.under_way[end][at]


@given(st.data())
def test_nothing_is_lost_doubled_or_reordered(data):
    carrier = Carrier()
    for _ in range(data.draw(st.integers(1, 40))):
        end = data.draw(st.integers(0, 1))
        what = data.draw(st.sampled_from(["send", "take", "lose", "deliver", "wait"]))
        if what == "wait":
            carrier.now_s += data.draw(st.floats(0.0, 20.0))
        elif what in {"send", "take"}:
            getattr(carrier, what)(end)
        elif waiting := carrier.under_way[end]:
            # What is delivered stays, to be delivered again or lost.
            getattr(carrier, what)(end, data.draw(st.integers(0, len(waiting) - 1)))
    for _ in range(4):
        carrier.now_s += 30.0
        for end in (0, 1):
            carrier.under_way[1 - end].clear()
            carrier.take(end)
            for at in range(len(carrier.under_way[1 - end])):
                carrier.deliver(1 - end, at)
    for end in (0, 1):
        assert [message["number"] for message in carrier.got[end]] == list(
            range(1, carrier.num_sent[1 - end] + 1)
        )
        assert carrier.ends[end].is_drained


def test_only_so_much_is_under_way_as_queues_between_the_ends_can_keep():
    here, there = pair()
    for number in range(20):
        here.send({"number": number, "data": "x" * (1 << 20)})
    first = frames(here)
    assert (len(first), frames(here)) == (8, [])
    assert here.next_s > NOW_S
    arrived = [message for frame in first for message in there.receive(frame, NOW_S)]
    (acknowledgement,) = frames(there, NOW_S + 0.2)
    here.receive(acknowledgement, NOW_S + 0.2)
    assert here.next_s == 0.0
    arrived += [
        message
        for frame in frames(here, NOW_S + 0.2)
        for message in there.receive(frame, NOW_S + 0.2)
    ]
    assert [message["number"] for message in arrived] == list(range(16))
