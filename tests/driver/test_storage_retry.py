"""Journal writes that are retried while storage fails or does not answer, in virtual time."""

import errno
import logging

import pytest

from tuner.driver.storage_retry import StorageRetry
from tuner.errors import StorageError, StorageUnreachable


class Driver:
    """A driver whose writes each take a while before they fail."""

    def __init__(self, error, try_s=0.0, num_failures=1000):
        self.now_s = 0.0
        self.error, self.try_s, self.num_failures = error, try_s, num_failures

    def sleep(self, duration_s):
        self.now_s += duration_s

    def write(self):
        self.now_s += self.try_s
        self.num_failures -= 1
        if self.num_failures >= 0:
            raise StorageUnreachable("not stored") from self.error

    def retry(self, limit_s, line=None):
        made = StorageRetry(limit_s, clock=lambda: self.now_s, sleep=self.sleep, line=line)
        made.on(self.write)


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def test_the_time_begins_with_the_call_where_a_store_does_not_answer():
    driver = Driver(TimeoutError(), try_s=5.0)
    with pytest.raises(StorageError, match=r"given up after 2\d s"):
        driver.retry(20.0)
    assert 20.0 <= driver.now_s <= 25.0


def test_lines_say_how_long_trials_wait_and_that_it_is_over(caplog):
    caplog.set_level(logging.WARNING)
    driver = Driver(TimeoutError(), try_s=5.0, num_failures=20)
    driver.retry(600.0, line=lambda waited_s: f"waiting for s3://b: 3 trials, {waited_s:.0f} s")
    first, *waiting, last = lines(caplog)
    assert "trials wait meanwhile" in first
    assert waiting == [f"waiting for s3://b: 3 trials, {second} s" for second in (23, 47, 95)]
    assert last == "the journal is written again, after 125 s"


def test_waiting_for_space_takes_nothing_from_the_time_for_other_errors():
    driver = Driver(OSError(errno.ENOSPC, "full"), num_failures=500)
    driver.retry(20.0)
    assert driver.now_s > 400.0


def test_a_file_that_may_grow_no_more_is_waited_for_no_longer_than_other_errors():
    driver = Driver(OSError(errno.EFBIG, "file too large"))
    with pytest.raises(StorageError, match="given up after 20 s"):
        driver.retry(20.0)


def test_what_fails_once_costs_a_second_and_two_lines(caplog):
    driver = Driver(OSError(errno.EIO, "broken"), num_failures=1)
    driver.retry(60.0, line=str)
    assert driver.now_s == pytest.approx(1.0)
    assert len(lines(caplog)) == 2
