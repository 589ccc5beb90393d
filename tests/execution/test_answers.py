"""Each waiting thread gets the answer that is meant for it, in whatever order answers come."""

import functools
import queue
import random
import threading

import pytest

from tuner.execution.answers import Answers

ONE, TWO = "1", "2"


class Connection:
    """Messages that a test sends one by one."""

    def __init__(self):
        self.messages = queue.Queue()

    def receive(self, timeout_s=None):
        try:
            message = self.messages.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(message, BaseException):
            raise message
        return message


@pytest.fixture
def connection():
    return Connection()


def in_thread(wait):
    """Start to wait in a thread; return a function that returns what came."""
    got = []
    thread = threading.Thread(target=lambda: got.append(wait()), daemon=True)
    thread.start()

    def result():
        thread.join(60)
        return got[0]

    return result


@pytest.mark.process
def test_answers_for_others_are_kept_for_them(connection):
    answers = Answers(connection)
    verdict = in_thread(lambda: answers.wait("verdict"))
    first = in_thread(lambda: answers.wait("lease", "refused", token=ONE))
    second = in_thread(lambda: answers.wait("lease", "refused", token=TWO))
    for message in (
        {"refused": "2", "reason": "no"},
        {"verdict": "continue"},
        {"lease": "1", "num_workers": 2},
    ):
        connection.messages.put(message)
    assert verdict() == {"verdict": "continue"}
    assert first()["num_workers"] == 2
    assert second()["reason"] == "no"


def test_an_answer_that_came_before_it_was_waited_for_is_found(connection):
    answers = Answers(connection)
    connection.messages.put({"leave": True})
    connection.messages.put({"verdict": "stop"})
    assert answers.wait("verdict") == {"verdict": "stop"}
    assert answers.wait("leave", timeout_s=0) == {"leave": True}


def test_an_answer_after_its_timeout_is_dropped(connection):
    answers = Answers(connection)
    with pytest.raises(TimeoutError):
        answers.wait("checkpoints", token=ONE, timeout_s=0)
    connection.messages.put({"checkpoints": "1", "list": []})
    connection.messages.put({"verdict": "continue"})
    assert answers.wait("verdict") == {"verdict": "continue"}
    with pytest.raises(TimeoutError):
        answers.wait("checkpoints", token=ONE, timeout_s=0)


@pytest.mark.process
def test_another_thread_reads_on_when_the_reading_one_times_out(connection):
    answers = Answers(connection)
    with pytest.raises(TimeoutError):
        answers.wait("lease", timeout_s=0.01)
    verdict = in_thread(lambda: answers.wait("verdict"))
    connection.messages.put({"verdict": "continue"})
    assert verdict() == {"verdict": "continue"}


def test_an_exception_of_a_signal_handler_leaves_the_connection_readable(connection):
    answers = Answers(connection)
    connection.messages.put(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        answers.wait("verdict")
    connection.messages.put({"verdict": "continue"})
    assert answers.wait("verdict") == {"verdict": "continue"}


@pytest.mark.process
def test_the_end_of_the_connection_ends_all_waiting(connection):
    answers = Answers(connection)
    for _ in range(2):
        connection.messages.put(EOFError("the driver is gone"))
    caught = []

    def wait(key):
        try:
            answers.wait(key)
        except EOFError as error:
            caught.append(str(error))

    threads = [threading.Thread(target=wait, args=(key,)) for key in ("verdict", "lease")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert caught == ["the driver is gone"] * 2


@pytest.mark.process
@pytest.mark.parametrize("seed", range(20))
def test_several_threads_get_all_their_answers_in_any_order(connection, seed):
    numbers = [str(number) for number in range(10)]
    answers = Answers(connection)

    def wait_for_all(key):
        return [answers.wait(key, token=number)[key] for number in numbers]

    waits = [in_thread(functools.partial(wait_for_all, key)) for key in "abcd"]
    messages = [{key: number} for number in numbers for key in "abcd"]
    random.Random(seed).shuffle(messages)  # noqa: S311  (an order)
    for message in messages:
        connection.messages.put(message)
    assert [wait() for wait in waits] == [numbers] * 4
