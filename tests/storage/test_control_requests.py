"""Requests between processes are carried out once, by the driver they name, and answered."""

import json
import os
import threading
from dataclasses import asdict

import pytest

from tuner.errors import NotRunning, StorageError
from tuner.storage import control_requests
from tuner.storage.control_requests import (
    ControlReply,
    ControlRequest,
    RequestInbox,
    Verb,
    post,
    requests_in,
)
from tuner.storage.lock import ExperimentLock, read_owner

PAUSE = ControlRequest(Verb.PAUSE, "t00001")
YES = ControlReply(is_granted=True, text="t00001 is paused", trial_id="t00001")


@pytest.fixture
def experiment(tmp_path):
    """A directory that this process drives."""
    with ExperimentLock(tmp_path):
        yield tmp_path


class Clock:
    """Stands still until it is advanced."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


def inbox(experiment, clock=lambda: 0.0):
    return RequestInbox(requests_in(experiment), read_owner(experiment), clock=clock)


@pytest.fixture
def answering(experiment):
    """Answer requests from another thread, and record them."""
    asked, is_over = [], threading.Event()
    mailbox = inbox(experiment, iter(range(10**9)).__next__)

    def work():
        while not is_over.wait(0.001):
            for request, answer in mailbox.take():
                asked.append(request)
                answer(YES)

    thread = threading.Thread(target=work)
    thread.start()
    yield asked
    is_over.set()
    thread.join()
    mailbox.close()


def write(experiment, text, name="1-1-1.json"):
    directory = experiment / "requests"
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)


def addressed(experiment, request):
    return json.dumps(
        {
            "to": requests_in(experiment).name_of(read_owner(experiment)),
            **asdict(request),
        }
    )


@pytest.mark.process
def test_a_wish_reaches_the_driver_and_the_answer_comes_back(experiment, answering):
    request = ControlRequest(
        Verb.FORK, "t00001", {"net/lr": 0.1, "sizes": [1, 2], "rate": float("inf")}, checkpoint=3
    )
    assert post(requests_in(experiment), request) == YES
    assert answering == [request]
    assert not list((experiment / "requests").iterdir())


def test_nothing_is_written_where_no_driver_runs(tmp_path):
    with pytest.raises(NotRunning, match=r"is not running; resume it with Tuner\.restore"):
        post(requests_in(tmp_path), PAUSE)
    assert not list(tmp_path.iterdir())


def test_a_driver_that_does_not_answer_is_named_and_the_note_taken_back(experiment):
    with pytest.raises(StorageError, match=r"process \d+ .* has not answered within 0 s"):
        post(requests_in(experiment), PAUSE, timeout_s=0.0)
    assert not list((experiment / "requests").iterdir())


def test_a_request_to_a_driver_that_ends_gets_an_error(tmp_path, monkeypatch):
    lock = ExperimentLock(tmp_path)
    lock.acquire()
    monkeypatch.setattr(control_requests.time, "sleep", lambda _: lock.release())
    with pytest.raises(NotRunning, match="has ended before it answered"):
        post(requests_in(tmp_path), PAUSE)


def test_a_note_for_an_earlier_driver_is_not_obeyed(experiment):
    write(experiment, addressed(experiment, PAUSE).replace('"to": "', '"to": "1'))
    assert not inbox(experiment).take()
    assert [path.name for path in (experiment / "requests").iterdir()] == ["1-1-1.json"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"to": "x"}',
        '{"to": "x", "verb": "dance"}',
        '{"to": "x", "verb": "pause", "trial_id": 3}',
    ],
)
def test_a_note_that_cannot_be_understood_is_answered_so(experiment, text):
    write(experiment, text)
    assert not inbox(experiment).take()
    answer = json.loads((experiment / "requests" / "1-1-1.reply").read_text())
    assert not answer["is_granted"]
    assert "cannot be understood" in answer["text"]


def test_what_is_still_being_written_is_left_alone(experiment):
    write(experiment, addressed(experiment, PAUSE), ".tmp-1-1-1.json-abc")
    assert not inbox(experiment).take()
    assert list((experiment / "requests").iterdir())


def test_the_disk_is_not_asked_in_every_turn(experiment):
    clock = Clock()
    mailbox = inbox(experiment, clock)
    assert not mailbox.take()
    write(experiment, addressed(experiment, PAUSE))
    assert not mailbox.take()
    clock.now_s = 1.0
    ((request, _),) = mailbox.take()
    assert request == PAUSE


def test_notes_are_taken_in_the_order_in_which_they_were_written(experiment):
    for number in (3, 1, 2):
        write(
            experiment,
            addressed(experiment, ControlRequest(Verb.PAUSE, f"t{number}")),
            f"100{number}-1-1.json",
        )
    assert [request.trial_id for request, _ in inbox(experiment).take()] == [
        "t1",
        "t2",
        "t3",
    ]


def test_a_late_request_is_refused_since_the_experiment_has_ended(experiment):
    mailbox = inbox(experiment)
    write(experiment, addressed(experiment, PAUSE))
    mailbox.close()
    assert "has come to its end" in (experiment / "requests" / "1-1-1.reply").read_text()


def test_a_link_in_the_place_of_the_folder_is_refused(experiment, tmp_path_factory):
    (experiment / "requests").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(StorageError, match="is a link"):
        post(requests_in(experiment), PAUSE)


def test_a_note_that_is_nested_too_deeply_is_answered_and_harms_nothing(experiment):
    mailbox = inbox(experiment)
    write(experiment, "[" * 100_000)
    assert not mailbox.take()
    answer = json.loads((experiment / "requests" / "1-1-1.reply").read_text())
    assert not answer["is_granted"]
    assert "cannot be understood" in answer["text"]


@pytest.mark.parametrize(
    "note",
    [
        "[]",
        "3",
        "null",
        '{"to": "x"}',
        '{"to": 3, "verb": "stop", "trial_id": []}',
        '{"to": "x", "verb": ["stop"]}',
    ],
)
def test_a_note_that_says_something_else_is_answered_and_harms_nothing(note, experiment):
    mailbox = inbox(experiment)
    write(experiment, note)
    assert not mailbox.take()
    assert "cannot be understood" in (experiment / "requests" / "1-1-1.reply").read_text()


@pytest.mark.parametrize(
    "place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()]
)
def test_what_is_no_file_is_answered_and_logged_once(place, experiment, caplog):
    clock = Clock()
    mailbox = inbox(experiment, clock)
    (experiment / "requests").mkdir()
    place(experiment / "requests" / "1-x.json")
    assert not mailbox.take()
    assert (experiment / "requests" / "1-x.reply").is_file()
    clock.now_s = 10.0
    write(experiment, addressed(experiment, PAUSE), "2-2-2.json")
    assert [request for request, _ in mailbox.take()] == [PAUSE]
    assert caplog.text.count("request 1-x was not carried out") == 1


def test_a_note_that_is_too_large_is_not_read(experiment, caplog):
    write(experiment, " " * (2 << 20))
    assert not inbox(experiment).take()
    assert "at most" in caplog.text
