"""Queue and thread between the hooks and the files."""

import logging
import threading

import pytest

from tests.callbacks.scenes import new_idle_writer
from tests.waiting import wait_until
from tuner.callbacks.files.background_writer import (
    Addressee,
    BatchWriter,
    Sink,
    _Breather,
    stretched,
)


class Memory(Sink):
    """Keeps what is written, after raising the given errors."""

    def __init__(self, failures=()):
        self.batches = []
        self.errors = []
        self.failures = list(failures)
        self.kept = []

    def write(self, entries, pace):
        self.kept += pace(entries)
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(self.kept)
        self.kept = []

    def fail(self, error):
        self.errors.append(error)


@pytest.fixture
def without_breath(monkeypatch):
    """Pass over the pauses between batches."""
    monkeypatch.setattr("tuner.callbacks.files.background_writer.time.sleep", lambda _: None)


def test_entries_reach_their_sink_in_order_and_each_sink_gets_its_own():
    writer, left, right = new_idle_writer(), Memory(), Memory()
    for number in range(5):
        writer.add(left, number)
        writer.add(right, -number)
    writer.close()
    assert [entry for batch in left.batches for entry in batch] == [0, 1, 2, 3, 4]
    assert [entry for batch in right.batches for entry in batch] == [0, -1, -2, -3, -4]


def test_nothing_is_written_by_add_below_the_capacity_and_everything_at_it():
    writer, sink = new_idle_writer(capacity=10), Memory()
    for number in range(9):
        writer.add(sink, number)
    assert not sink.batches
    assert writer.num_waiting == 9
    writer.add(sink, 9)
    assert sink.batches == [list(range(10))]
    assert writer.num_waiting == 0
    writer.close()


def test_at_the_capacity_a_caller_writes_a_part_only_so_that_it_is_not_kept_long():
    writer, sink = new_idle_writer(capacity=10, max_batch=4), Memory()
    for number in range(10):
        writer.add(sink, number)
    assert sink.batches == [[0, 1, 2, 3]]
    writer.close()
    assert [entry for batch in sink.batches for entry in batch] == list(range(10))


@pytest.mark.process
def test_reaching_the_early_mark_wakes_the_thread():
    writer, sink = BatchWriter(period_s=1e6, wake_at=3), Memory()
    has_written = threading.Event()
    sink.batches = type("Batches", (list,), {"append": lambda self, batch: has_written.set()})()
    for number in range(3):
        writer.add(sink, number)
    assert has_written.wait(60)
    writer.close()


@pytest.mark.process
def test_what_is_added_after_the_end_is_written_by_a_new_thread():
    writer, sink = BatchWriter(period_s=1e6, wake_at=1), Memory()
    for number in (1, 2):
        writer.add(sink, number)
        wait_until(lambda number=number: [number] in sink.batches)
        writer.close()
    assert sink.batches == [[1], [2]]


def test_a_sink_that_the_system_refuses_is_tried_again_and_reported_once(caplog):
    writer, sink = new_idle_writer(), Memory([OSError("no space"), OSError("no space")])
    with caplog.at_level(logging.WARNING, "tuner"):
        for number in range(3):
            writer.add(sink, number)
            writer.flush()
    assert sink.batches == [[0, 1, 2]]
    assert [record.getMessage().count("no space") for record in caplog.records] == [1]
    writer.close()


def test_an_incomplete_file_is_reported_once_if_several_loggers_close_the_writer(caplog):
    writer, sink = new_idle_writer(), Memory([OSError("no space")] * 3)
    writer.add(sink, 1)
    writer.flush()
    with caplog.at_level(logging.WARNING, "tuner"):
        for _ in range(3):
            writer.close()
    assert [
        record.getMessage().count("1 log files are incomplete") for record in caplog.records
    ].count(1) == 1
    assert not any(record.exc_info for record in caplog.records)


def test_a_defect_goes_to_the_sink_that_has_it_and_the_others_are_written():
    writer, broken, sound = new_idle_writer(), Memory([RuntimeError("broken")]), Memory()
    writer.add(broken, 1)
    writer.add(sound, 2)
    writer.close()
    assert [str(error) for error in broken.errors] == ["broken"]
    assert sound.batches == [[2]]


def test_without_a_thread_the_caller_writes():
    writer, sink = new_idle_writer(max_batch=2), Memory()
    for number in range(3):
        writer.add(sink, number)
    assert (sink.batches, writer.num_waiting) == ([], 3)
    assert writer.write_batch()
    assert not writer.write_batch()
    assert sink.batches == [[0, 1], [2]]
    writer.close()
    assert writer.cpu_s == 0.0


def test_expensive_writing_is_done_less_often():
    assert stretched(1.0, 0.0) == stretched(1.0, 0.02) == 1.0
    assert stretched(1.0, 0.04) == 2.0
    assert stretched(1.0, 60.0) == 4.0
    assert stretched(1e6, 60.0) == 1e6


class Several(Addressee):
    """Stands for several sinks."""

    def __init__(self, *sinks):
        self.sinks = sinks

    def parts(self):
        return self.sinks


def test_all_parts_get_the_entries_and_one_that_fails_is_tried_again_alone():
    sound, full = Memory(), Memory([OSError("no space")])
    writer, both = new_idle_writer(), Several(sound, full)
    writer.add(both, 1)
    writer.flush()
    assert (sound.batches, full.batches) == ([[1]], [])
    writer.write_batch()
    assert (sound.batches, full.batches) == ([[1]], [[1]])
    writer.add(both, 2)
    writer.close()
    assert (sound.batches, full.batches) == ([[1], [2]], [[1], [2]])


def test_a_part_that_gets_entries_on_its_own_as_well_gets_all_in_their_order():
    part, other = Memory(), Memory()
    writer, both = new_idle_writer(), Several(part, other)
    for number, sink in enumerate([both, part, both, part, part, other, both]):
        writer.add(sink, number)
    writer.close()
    assert [entry for batch in part.batches for entry in batch] == [0, 1, 2, 3, 4, 6]
    assert [entry for batch in other.batches for entry in batch] == [0, 2, 5, 6]


class Talkative(Several):
    """Expects more until it receives "end"."""

    def expects_more(self, last):
        return last != "end"


def test_entries_that_expect_more_wait_once():
    long, short = Memory(), Memory()
    writer, talks, is_brief = new_idle_writer(), Talkative(long), Talkative(short)
    writer.add(talks, 1)
    writer.add(is_brief, 1)
    writer.write_due()
    assert (long.batches, short.batches, writer.num_waiting) == ([], [], 2)
    writer.add(talks, 2)
    writer.add(is_brief, "end")
    writer.write_due()
    assert (long.batches, short.batches, writer.num_waiting) == ([[1, 2]], [[1, "end"]], 0)
    writer.add(talks, 3)
    writer.write_due()
    assert long.batches == [[1, 2]]
    writer.flush()
    assert long.batches == [[1, 2], [3]]


def test_entries_wait_once_also_over_several_batches(without_breath):
    long, others = Memory(), [Memory() for _ in range(5)]
    writer, talks = new_idle_writer(max_batch=2), Talkative(long)
    for other in others:
        writer.add(talks, 1)
        writer.add(other, 1)
    writer.write_due()
    assert (long.batches, [other.batches for other in others]) == ([], [[[1]]] * 5)
    writer.write_due()
    assert long.batches == [[1] * 5]


def test_entries_that_others_must_follow_do_not_wait(without_breath):
    part = Memory()
    writer, talks = new_idle_writer(), Talkative(part, Memory())
    for number, sink in enumerate([talks, part, talks]):
        writer.add(sink, number)
    writer.write_due()
    writer.flush()
    assert [entry for batch in part.batches for entry in batch] == [0, 1, 2]


def test_the_driver_gets_the_interpreter_now_and_then_however_short_the_files_are(monkeypatch):
    rests = []
    monkeypatch.setattr("tuner.callbacks.files.background_writer.time.sleep", rests.append)
    walk = _Breather()
    assert [list(walk(range(100))) for _ in range(6)] == [list(range(100))] * 6
    assert len(rests) == 2
