"""Calls of a store that does not answer, in virtual time where nothing has to be waited for."""

import errno
import logging
import threading
from concurrent.futures import Future

import pytest

from tuner.errors import StorageUnreachable
from tuner.stores import store_calls
from tuner.stores.object_store import ObjectStore
from tuner.stores.store_calls import Outage, StoreCalls, StoreWaits, current_deadline, in_thread

URL = "s3://bucket/run"


class Time:
    """Time that passes only while something is waited for."""

    now_s = 0.0

    def clock(self):
        return self.now_s

    def sleep(self, duration_s):
        self.now_s += duration_s

    def wait(self, futures, timeout_s):
        if not futures[0].done():
            self.now_s += timeout_s
        done = [future for future in futures if future.done()]
        return type("Waited", (), {"done": done})


@pytest.fixture
def virtual(monkeypatch):
    virtual = Time()
    monkeypatch.setattr(store_calls, "wait", virtual.wait)
    monkeypatch.setattr(store_calls.time, "sleep", virtual.sleep)
    return virtual


def calls(virtual, limit_s=20.0):
    return StoreCalls(limit_s, Outage(URL, virtual.clock))


def hang():
    return current_deadline().result_of(Future())


def refuse():
    raise ConnectionError("refused")


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("call", [hang, refuse])
@pytest.mark.parametrize("limit_s", [20.0, 60.0])
def test_one_deadline_holds_for_all_tries_and_begins_with_the_call(virtual, call, limit_s):
    with pytest.raises(
        StorageUnreachable, match=rf"{URL} could not be reached for {limit_s:.0f} s"
    ):
        calls(virtual, limit_s).call(URL, call)
    assert limit_s <= virtual.now_s <= limit_s + 1.0


def test_tries_that_hang_and_are_refused_in_turn_share_the_deadline(virtual):
    def call():
        tries.append(virtual.now_s)
        if len(tries) % 2:
            virtual.sleep(7.0)  # as the library's own time-out
            raise TimeoutError("read timeout")
        refuse()

    tries = []
    with pytest.raises(StorageUnreachable):
        calls(virtual).call(URL, call)
    assert virtual.now_s <= 20.0 + 7.0
    assert len(tries) > 3


@pytest.mark.parametrize("limit_s", [0.0, 1.0])
def test_a_single_try_has_five_seconds(virtual, limit_s):
    with pytest.raises(StorageUnreachable):
        calls(virtual, limit_s).call(URL, hang)
    assert 5.0 <= virtual.now_s <= 6.0


def test_each_part_of_a_file_that_arrives_gives_the_whole_time_again(virtual):
    def call():
        for _ in range(5):
            virtual.sleep(15.0)
            current_deadline().on_progress()
        hang()

    with pytest.raises(StorageUnreachable):
        calls(virtual).call(URL, call)
    assert 95.0 <= virtual.now_s <= 97.0


def test_what_is_large_has_more_time_before_its_first_part_arrives(virtual):
    with pytest.raises(StorageUnreachable):
        calls(virtual).call(URL, hang, size_bytes=30 << 20)
    assert 50.0 <= virtual.now_s <= 51.0


def test_a_limit_that_is_lowered_meanwhile_counts(virtual):
    made = calls(virtual, 600.0)

    def call():
        made.limit_s = 10.0
        hang()

    with pytest.raises(StorageUnreachable):
        made.call(URL, call)
    assert virtual.now_s < 12.0


def test_an_outage_is_told_once_and_when_it_is_over(virtual, caplog):
    made = calls(virtual)
    for _ in range(3):
        with pytest.raises(StorageUnreachable):
            made.call(URL, hang)
    assert 60.0 <= made.outage.duration_s <= 63.0
    assert made.call(URL, lambda: "answer") == "answer"
    assert made.outage.duration_s == 0.0
    first, last = lines(caplog)
    assert first == f"{URL} has not answered for 5 s; each request is repeated for 20 s"
    assert last.startswith(f"{URL} answers again, after 6")


@pytest.mark.parametrize("error", [FileNotFoundError(), PermissionError(), FileExistsError()])
def test_a_refusal_is_an_answer(virtual, error, caplog):
    def call():
        virtual.sleep(30.0)
        raise error

    made = calls(virtual)
    with pytest.raises((FileNotFoundError, StorageUnreachable)):
        made.call(URL, call)
    assert made.outage.duration_s == 0.0
    assert lines(caplog) == []


def test_an_answer_to_another_call_shows_that_the_store_is_there(virtual, caplog):
    made = calls(virtual)

    def call():
        for _ in range(10):
            virtual.sleep(4.0)
            made.call(URL, lambda: None)
            current_deadline().tell()

    made.call(URL, call)
    assert lines(caplog) == []


def test_a_call_that_is_given_up_is_cancelled(virtual):
    future = Future()
    with pytest.raises(StorageUnreachable):
        calls(virtual).call(URL, lambda: current_deadline().result_of(future))
    assert future.cancelled()


@pytest.mark.process
def test_what_a_thread_raises_is_raised():
    def call():
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        in_thread(call).result(30)


@pytest.mark.process
def test_a_file_system_without_coroutines_is_given_up_as_well(monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    may_end = threading.Event()

    class Hanging(fsspec.AbstractFileSystem):
        protocol = "hanging"

        def cat_file(self, path, start=None, end=None, **options):
            may_end.wait(60)

    monkeypatch.setattr(store_calls, "_LEAST_TRY_S", 0.0)
    store = ObjectStore("hanging://bucket/run", Hanging(), retry_s=0.0)
    with pytest.raises(StorageUnreachable, match="no answer within"):
        store.get("key")
    may_end.set()


def test_a_line_comes_after_ten_seconds_and_then_each_time_after_twice_as_long(caplog):
    waits = StoreWaits(URL)
    for second in range(200):
        waits.look(float(second), 3)
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for {URL}: 3 trials, {second} s" for second in (10, 20, 40, 80, 160)
    ]


def test_a_second_outage_is_told_from_its_beginning_and_one_trial_is_one(caplog):
    waits = StoreWaits(URL)
    for outage_s in (35.0, 0.0, 9.0, 11.0):
        waits.look(outage_s, 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for {URL}: 1 trial, {second} s" for second in (35, 11)
    ]


def test_where_no_trial_waits_nothing_is_printed(caplog):
    StoreWaits(URL).look(100.0, 0)
    assert caplog.records == []
