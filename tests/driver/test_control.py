"""Control requests become events; refusals come at once, confirmations after the journal."""

import threading

import pytest

from searchers import BasicVariantGenerator
from tests.core.conversation import Conversation
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.events import (
    USER_STOP,
    CheckpointRequested,
    PauseRequested,
    StopRequested,
    TrialForked,
)
from tuner.core.worker_records import CheckpointRecord
from tuner.driver.control import RequestHandler, RequestQueue
from tuner.restore.search_adapter import SearchAdapter
from tuner.storage.control_requests import ControlRequest, Verb


class Desk:
    """Holds requests until they are taken, and the replies."""

    def __init__(self):
        self.pending = []
        self.answers = []
        self.is_closed = False

    def request(self, *arguments, **more):
        self.pending.append((ControlRequest(*arguments, **more), self.answers.append))

    def take(self):
        taken, self.pending = self.pending, []
        return taken

    def close(self):
        self.is_closed = True


class Talk:
    """A conversation with the core through the driver."""

    def __init__(self, request_for=lambda config: {"cpu": 1.0}, **settings):
        self.core = Conversation(max_trials=1, **settings)
        self.core.begin(1)
        searcher = BasicVariantGenerator()
        searcher.set_search_properties(None, None, {}, seed=0, num_samples=1)
        self.search_adapter = SearchAdapter(searcher, {}, request_for)
        self.desk = Desk()
        self.control = RequestHandler(self.core.experiment, self.search_adapter, [self.desk])

    def turn(self):
        """Let the requests take effect; return the events."""
        events = []
        for event in self.control.events():
            self.core.say(event)
            events.append(event)
        return events


def test_a_wish_is_granted_when_it_is_written_down_and_not_before():
    talk = Talk()
    talk.desk.request(Verb.PAUSE, "t00000")
    assert talk.turn() == [PauseRequested("t00000")]
    assert not talk.desk.answers
    talk.control.confirm()
    (answer,) = talk.desk.answers
    assert (answer.is_granted, answer.trial_id) == (True, "t00000")


def test_a_wish_that_cannot_be_granted_is_no_event():
    talk = Talk()
    talk.desk.request(Verb.RESUME, "t00000")
    assert talk.turn() == []
    (answer,) = talk.desk.answers
    assert (answer.is_granted, answer.text) == (False, "trial t00000 is RUNNING and not paused")


def test_wishes_of_one_turn_see_what_those_before_them_have_done():
    talk = Talk()
    talk.desk.request(Verb.PAUSE, "t00000")
    talk.desk.request(Verb.PAUSE, "t00000")
    assert len(talk.turn()) == 1
    assert [answer.is_granted for answer in talk.desk.answers] == [False]


def test_a_stop_of_all_is_an_interruption():
    talk = Talk()
    talk.desk.request(Verb.STOP, is_urgent=True)
    assert talk.turn() == [StopRequested(USER_STOP, is_urgent=True)]


def test_a_fork_gets_an_id_of_its_own_and_what_its_configuration_occupies():
    talk = Talk(lambda config: {"cpu": float(config["x"])})
    talk.core.report("t00000", 1, CheckpointRecord(4, 1))
    talk.desk.request(Verb.FORK, "t00000", {"x": 2})
    assert talk.turn() == [TrialForked("f00000", "t00000", {"x": 2}, {"cpu": 2.0}, 4)]
    talk.control.confirm()
    (answer,) = talk.desk.answers
    assert (answer.trial_id, answer.text) == (
        "f00000",
        "f00000 goes on from checkpoint 4 of t00000",
    )
    assert "f00000" in talk.search_adapter.excluded


def test_a_donor_that_saves_on_demand_is_asked_to_once_and_waited_for():
    talk = Talk(checkpoints=CheckpointPolicy(can_save_on_demand=True))
    talk.desk.request(Verb.FORK, "t00000", {"x": 2})
    assert talk.turn() == [CheckpointRequested("t00000")]
    assert talk.turn() == []
    talk.core.report("t00000", 1)
    assert talk.turn() == []
    talk.core.saved("t00000", 0, 1)
    assert [type(event) for event in talk.turn()] == [TrialForked]
    talk.control.confirm()
    assert talk.desk.answers[0].is_granted


def test_a_fork_of_what_has_no_checkpoint_is_refused():
    talk = Talk()
    talk.desk.request(Verb.FORK, "t00000")
    talk.desk.request(Verb.FORK, "t7")
    assert talk.turn() == []
    assert [answer.text.partition(";")[0] for answer in talk.desk.answers] == [
        "trial t00000 has no checkpoint to go on from",
        "there is no trial 't7'",
    ]


def test_a_resource_request_that_raises_refuses_the_fork_and_nothing_else():
    def asks(config):
        raise KeyError("gpu")

    talk = Talk(asks)
    talk.core.report("t00000", 1, CheckpointRecord(0, 1))
    talk.desk.request(Verb.FORK, "t00000")
    assert talk.turn() == []
    assert "raised KeyError" in talk.desk.answers[0].text


def test_requests_that_still_wait_at_the_end_are_refused():
    talk = Talk(checkpoints=CheckpointPolicy(can_save_on_demand=True))
    talk.desk.request(Verb.FORK, "t00000", {"x": 2})
    talk.desk.request(Verb.PAUSE, "t00000")
    talk.turn()
    talk.control.close()
    assert sorted(answer.is_granted for answer in talk.desk.answers) == [False, True]
    assert talk.desk.is_closed


@pytest.fixture
def asked_of():
    """Ask through a line from another thread; return a function that returns the answer."""

    def ask(line, request):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(line.ask(request)))
        thread.start()

        def answer():
            thread.join()
            return answers[0]

        return answer

    return ask


@pytest.mark.process
def test_what_is_asked_through_a_line_wakes_the_driver(asked_of):
    line, woken = RequestQueue(), threading.Event()
    line.open(woken.set, lambda _: None)  # by the driver's thread, which here is this one
    answer = asked_of(line, ControlRequest(Verb.PAUSE, "t00000"))
    assert woken.wait(60.0)
    line.close()
    assert not answer().is_granted


def test_a_stop_through_a_line_goes_where_signals_go():
    line, requests = RequestQueue(), []
    line.open(lambda: None, requests.append)
    assert line.ask(ControlRequest(Verb.STOP, is_urgent=True)).is_granted
    assert requests == [StopRequested(USER_STOP, is_urgent=True)]


def test_a_request_from_the_drivers_own_thread_is_refused_instead_of_waiting_for_itself():
    line = RequestQueue()
    line.open(lambda: None, lambda _: None)
    answer = line.ask(ControlRequest(Verb.PAUSE, "t00000"))
    assert (answer.is_granted, "from another thread" in answer.text) == (False, True)


def test_a_closed_line_refuses_at_once():
    line = RequestQueue()
    line.open(lambda: None, lambda _: None)
    line.close()
    assert not line.ask(ControlRequest(Verb.PAUSE, "t00000")).is_granted
    assert not line.ask(ControlRequest(Verb.STOP)).is_granted
